# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What summaries are made of: entries of results, traces, findings; and the summary of a start."""

from __future__ import annotations

from typing import Any

from ansible_collections.kubeops.node_maintenance.plugins.filter import maintain_summary

SUMMED = maintain_summary.FilterModule().filters()["maintain_summary"]
BLOCKER = {
    "code": "room",
    "object": "Node n1",
    "severity": "blocker",
    "message": "There is no room.",
    "remedy": "Add a node.",
}
WARNING = {"code": "gone", "severity": "warning", "message": "It goes.", "remedy": ""}


def entry(name: str, *, failed: bool = False, outcome: str = "ok", message: str = "") -> dict[str, Any]:
    return {"name": name, "failed": failed, "outcome": outcome, "message": message}


def trace(what: str, run: str, *nodes: str, alive: bool = False, **more: str) -> dict[str, Any]:
    known = {"by": "", "since": "", "step": "", **more}
    known["kind"] = what.split()[0]
    return {"object": what, "what": "left", "run": run, "nodes": nodes, "alive": alive, **known}


def start(
    plan: dict[str, Any],
    resumable: Any = None,
    traces: Any = (),
    hosts: Any = (),
    *,
    evacuates: bool = False,
    **wanted: Any,
) -> dict[str, Any]:
    listed = {"traces": list(traces), "resumable": resumable}
    plan = {"wave_seconds": [10] * len(plan.get("waves") or ()), **plan}
    hooks: dict[str, Any] = {"before_node": [], "before_pod": [], "after_pod": [], "after_node": [], "fence_tasks": ""}
    known = {
        "hosts": list(hosts),
        "wanted": {"run": "", "tasks": "", "reboot": False, "tasks_estimate": 900, **hooks, **wanted},
        "evacuates": evacuates,
    }
    return dict(SUMMED({"listed": listed, "plan": plan}, "start", known))
