# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Results in two parts, for as many nodes and pods as a large maintenance has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import details
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import arguments as drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import arguments as plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import arguments as guard
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.waves import run_steps

MOST = 50_000
"""Bytes of the result of a plan of 100 nodes and 2,000 pods, and of all results of a wave of 10 nodes."""


def name(number: int) -> str:
    return f"ip-10-20-{number // 250}-{number % 250}.eu-central-1.compute.internal"


def pod(node: str, number: int) -> dict[str, Any]:
    app = f"app-{number % 100:03d}"
    return {
        "namespace": "production",
        "name": f"{app}-6bf5d7566d-{number:05d}",
        "uid": f"0d9291e5-4a3f-4179-b634-{number:012d}",
        "node": node,
        "owner": {"kind": "Deployment", "namespace": "production", "name": app},
        "route": "evict",
        "reason": f"Deployment production/{app} has 10 replicas; it is evicted when its budget allows it.",
        "fits": True,
        "target": name(number),
        "outcome": "evicted",
        "waited_seconds": 3.257,
    }


def planned(nodes: int, pods: int) -> dict[str, Any]:
    """A result of ``maintenance_plan`` with waves of ten."""
    names = [name(number) for number in range(nodes)]
    waves = [names[first : first + 10] for first in range(0, nodes, 10)]
    wait = "its pods wait for the budgets of the workloads that node ip-10-20-0-0 has as well, too"
    return {
        "changed": False,
        "failed": False,
        "msg": "",
        "feasible": True,
        "findings": [],
        "pods": [pod(names[number % nodes], number) for number in range(pods)],
        "waves": waves,
        "waits": [{"node": each, "reason": wait} for each in names],
        "wave_seconds": [120] * len(waves),
        "wave_parts": [{"steps": 5.0, "notice": 0, "starts": 2.0, "stops": 30.0, "budgets": 8.0, "jobs": 0}]
        * len(waves),
        "budgets": [{"wave": 1, "namespace": "production", "name": f"app-{n}", "pods": 9} for n in range(400)],
        "estimate_seconds": 1200,
        "nodes": [{"name": each, "address": "10.20.30.40", "outcome": "planned", "record": None} for each in names],
        "actions": [],
        "timeline": [],
        "invocation": {"module_args": {"nodes": names}},
    }


def answered(nodes: int, pods: int, outcome: str) -> dict[str, Any]:
    """A result about nodes, with an event for each pod and each node."""
    names = [name(number) for number in range(nodes)]
    on = {each: [pod(each, number) for number in range(pods // nodes)] for each in names}
    record = {"run": "ab12cd34", "by": "root@controller.example.com", "added": ["x" * 80], "prior": "x" * 400}
    event = {
        "at": "2026-11-25T09:13:39.068Z",
        "node": names[0],
        "what": outcome,
        "message": "moved",
        "phase": "draining",
    }
    return {
        "changed": True,
        "failed": False,
        "msg": "",
        "nodes": [
            {"name": each, "outcome": outcome, "failed": False, "message": f"Node {each} is {outcome}."}
            | {"kept": [], "record": record, "pods": on[each]}
            for each in names
        ],
        "workloads": [{"kind": "Deployment", "namespace": "production", "name": f"app-{n}"} for n in range(pods)],
        "actions": ["Evict Pod production/app-000-6bf5d7566d-00000 from the node"] * (nodes + pods),
        "timeline": [event] * (nodes + 4 * pods),
        "invocation": {"module_args": {"nodes": names, "run": "ab12cd34/01234567"}},
    }


def size(*results: Any) -> int:
    return sum(len(json.dumps(result)) for result in results)


def test_the_plan_of_a_hundred_nodes_is_small_and_has_what_the_waves_are_made_of(tmp_path: Path) -> None:
    result = planned(100, 2000)
    brief = details.apart(result, str(tmp_path))
    assert size(result) > 10 * MOST
    assert size(brief) <= MOST
    assert [brief[key] for key in ("waves", "nodes", "findings", "wave_seconds")] == [
        result[key] for key in ("waves", "nodes", "findings", "wave_seconds")
    ]
    assert details.whole(brief) == result


def test_the_results_of_a_wave_are_small_and_the_report_gets_all_of_them(tmp_path: Path) -> None:
    again, known = planned(10, 200), ("cordon", "protect", "migrate", "returning", "verify", "guards", "uncordon")
    steps = [again, *(answered(10, 200 if step == "migrate" else 0, step) for step in known)]
    answers = {step: run_steps.brief(result) for step, result in zip(("again", *known), steps, strict=True)}
    out = {"nodes": [], "answers": answers, "steps": steps, "failed": False}
    brief = details.apart(out, str(tmp_path))
    back = details.apart({**out, "details": brief["details"], "steps": steps[:1]}, str(tmp_path))
    assert size(out) > 4 * MOST
    assert size(back) <= MOST
    assert [details.whole(each)["steps"] for each in details.told(back)] == [steps, steps[:1]]


def test_the_calls_of_a_wave_and_the_plan_have_details() -> None:
    assert [module.SPEC.detailed for module in (plan, drain, guard)] == [True] * 3


def test_where_the_details_cannot_be_kept_the_result_has_them() -> None:
    result = planned(1, 2)
    assert details.apart(result, "/nowhere") == result


def test_details_that_are_gone_leave_the_rest(tmp_path: Path) -> None:
    brief = details.apart(planned(1, 2), str(tmp_path))
    for path in brief["details"]:
        Path(path).unlink()
    assert details.whole(brief) == brief
    assert details.whole("text") == "text"
    assert details.whole({"details": "odd", "nodes": []})["nodes"] == []
