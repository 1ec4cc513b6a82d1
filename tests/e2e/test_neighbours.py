# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Other controllers beside a run: what they are told by node conditions and marks, and what they say themselves.

Objects are as their projects write them: kured 1.17 (pkg/daemonsetlock), Karpenter 1 (pkg/apis/v1/taints.go),
cluster-autoscaler 1.33 (utils/taints/taints.go), the kubelet of 1.36 (pkg/kubelet/kubelet_node_status.go), Cluster API
1.11 (internal/controllers/machinehealthcheck, api/core/v1beta2).
"""

from __future__ import annotations

import contextlib
import copy
import datetime
import functools
import json
import re
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from support.arena import Arena
from support.lab import Lab
from support.operators.base import Kind, define
from support.plays import Player
from support.waiting import until
from support.watching import Seen, Watch
from witness import objects as o
from witness.api import STRATEGIC_PATCH, Api
from witness.log import Json

GUIDE = Path(__file__).resolve().parents[2] / "docs/docsite/rst/guide_cluster.rst"
MARKS = {
    "node.kubernetes.io/exclude-from-external-load-balancers",
    "cluster-autoscaler.kubernetes.io/scale-down-disabled",
    "karpenter.sh/do-not-disrupt",
    "remediation.medik8s.io/exclude-from-remediation",
}
LIFECYCLE = ("MaintenancePlanned", "DrainInProgress", "Drained", "MaintenanceInProgress")
BACK = {
    "type": "Drained",
    "status": "False",
    "lastHeartbeatTime": "2025-12-01T00:00:00Z",
    "lastTransitionTime": "2025-12-01T00:00:00Z",
    "reason": "Back",
    "message": "by the hardware team",
}


def add_condition(arena: Arena, name: str, condition: Json) -> None:
    arena.api.patch(f"/api/v1/nodes/{name}/status", {"status": {"conditions": [condition]}}, STRATEGIC_PATCH)


def image(arena: Arena, name: str, *, but: Sequence[str] = ("lastHeartbeatTime",)) -> str:
    """All of a node that is not the kubelet's heartbeat or the server's bookkeeping, as bytes.

    `but` are the fields of the kubelet's conditions that do not count.
    """
    node = copy.deepcopy(arena.node(name))
    for key in ("resourceVersion", "managedFields", "generation"):
        node["metadata"].pop(key, None)
    for condition in node["status"]["conditions"]:
        if condition["type"] not in LIFECYCLE:
            for field in but:
                condition.pop(field, None)
    return json.dumps(node)


def marks(seen: Seen, name: str) -> set[str]:
    """The marks for other controllers that a node had at any time."""
    found: set[str] = set()
    for moment in seen.log.moments():
        node = moment.world.get("Node", "", name)
        if node is not None:
            found |= MARKS & {*o.labels(node), *o.notes(node)}
    return found


def shown(node: Json) -> list[str]:
    return [c["type"] for c in node["status"]["conditions"] if c["type"] in LIFECYCLE and c["status"] == "True"]


@contextlib.contextmanager
def heartbeats(api: Api, name: str) -> Iterator[list[list[str]]]:
    """A kubelet that beats ten times a second; gives which conditions it met, whenever they were others."""
    seen: list[list[str]] = []
    over = threading.Event()

    def beat() -> None:
        while not over.is_set():
            now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
            body = {"status": {"conditions": [{"type": "Ready", "lastHeartbeatTime": now}]}}
            met = shown(api.patch(f"/api/v1/nodes/{name}/status", body, STRATEGIC_PATCH))
            if seen[-1:] != [met]:
                seen.append(met)
            over.wait(0.1)

    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def documented() -> list[str]:
    """The commands of the guide that show the conditions, without `kubectl`."""
    text = GUIDE.read_text(encoding="utf-8")
    return re.findall(r"^   \$ kubectl (get nodes -o .*)$", text, re.MULTILINE)


@pytest.mark.whole
def test_conditions_and_marks_follow_a_run_beside_heartbeats_and_are_given_back(
    lab: Lab, arena: Arena, play: Player, watching: Watch
) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", 2, on=here, start="1s", stop="1s")
    arena.settle()
    add_condition(arena, here, BACK)
    arena.annotate(here, {"karpenter.sh/do-not-disrupt": "false"})
    before = image(arena, here)
    looks = [f"{lab.kubectl} --kubeconfig {lab.kubeconfig} {words}" for words in documented()]
    tasks = play.tasks(*({"name": "Look", "ansible.builtin.shell": words} for words in looks))
    with watching() as seen, heartbeats(arena.api, here) as met:
        run = play(
            "maintain",
            inventory=play.hosts([here]),
            maintain_nodes=[here],
            maintain_tasks=tasks,
            maintain_reason="new disk",
            maintain_node_conditions=True,
            maintain_planned_notice="4s",
        )
        assert run.ok, run.text
    seen.all_held()
    assert image(arena, here) == before
    assert met == [
        [],
        ["MaintenancePlanned"],
        ["MaintenancePlanned", "DrainInProgress"],
        ["Drained", "MaintenancePlanned"],
        ["Drained", "MaintenanceInProgress"],
        ["Drained"],
        [],
    ]
    assert seen.dark_seconds(web) == 0
    assert marks(seen, here) == MARKS
    assert "for others to react to MaintenancePlanned" in run.text
    columns, messages = [each.result["stdout"] for each in run.results if each.result.get("cmd") in looks]
    (row,) = [line.split() for line in columns.splitlines() if line.startswith(here)]
    assert row == [here, "<none>", "<none>", "True", "True"]
    assert re.search(rf"^{here} Drained: Run \w+ of .*: new disk MaintenanceInProgress: Run", messages, re.MULTILINE)


@pytest.mark.whole
def test_a_run_that_is_killed_in_its_notice_waits_for_the_rest_and_leaves_nothing(arena: Arena, play: Player) -> None:
    here, _unused = arena.nodes(2)
    arena.deployment("web", 2, on=here)
    arena.settle()
    before = image(arena, here)
    start = functools.partial(
        play.start, "maintain", maintain_nodes=[here], maintain_node_conditions=True, maintain_planned_notice="45s"
    )
    running = start()
    until(lambda: shown(arena.node(here)) == ["MaintenancePlanned"], 120, "the maintenance is planned")
    began = time.time()
    time.sleep(2.0)
    running.kill_group()
    with heartbeats(arena.api, here) as met:
        again = start()
        until(lambda: ["MaintenancePlanned", "DrainInProgress"] in met, 120, "the drain has begun")
        assert 43.0 <= time.time() - began <= 75.0
        run = again.wait()
    assert run.ok, run.text
    assert image(arena, here) == before


@pytest.mark.whole
def test_what_others_do_to_nodes_is_told_at_once_before_the_first_write(arena: Arena, play: Player) -> None:
    nodes = arena.nodes(4)
    lock = {"nodeID": nodes[3], "metadata": {"unschedulable": False}, "created": "2026-01-01T00:00:00Z", "TTL": 0}
    arena.daemonset("kured", notes={"weave.works/kured-node-lock": json.dumps(lock)})
    arena.settle()
    arena.taint(nodes[0], {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"})
    arena.taint(nodes[1], {"key": "ToBeDeletedByClusterAutoscaler", "value": "1767300000", "effect": "NoSchedule"})
    add_condition(arena, nodes[2], {**BACK, "type": "MaintenanceInProgress", "status": "True", "reason": "Firmware"})
    before = [image(arena, name) for name in nodes]
    run = play("maintain", maintain_nodes=nodes[:3], maintain_kured=f"{arena.name}/kured")
    assert not run.ok
    told = {finding["code"]: finding["message"] for finding in run.findings if finding["severity"] == "blocker"}
    assert set(told) == {"node_being_deleted", "foreign_condition", "kured_reboot"}
    assert "(Firmware: by the hardware team)" in told["foreign_condition"]
    assert f"kured is rebooting node {nodes[3]}" in told["kured_reboot"]
    assert len([finding for finding in run.findings if finding["code"] == "node_being_deleted"]) == 2
    assert [image(arena, name) for name in nodes] == before


MACHINE = Kind("cluster.x-k8s.io", "v1beta2", "Machine", "machines")
HEALTH_CHECK = Kind("cluster.x-k8s.io", "v1beta2", "MachineHealthCheck", "machinehealthchecks")
SKIP = "cluster.x-k8s.io/skip-remediation"


def machines(arena: Arena, nodes: Sequence[str]) -> None:
    """A Machine for each node, of the same name, and a check of them that is out of patience after a second."""
    for kind in (MACHINE, HEALTH_CHECK):
        define(arena.api, kind)
    labels = {"cluster.x-k8s.io/cluster-name": "lab"}
    for name in nodes:
        arena.annotate(name, {"cluster.x-k8s.io/cluster-name": "lab", "cluster.x-k8s.io/machine": name})
        made = {"metadata": {"name": name, "labels": labels}, "status": {"nodeRef": {"name": name}}}
        known = {"apiVersion": MACHINE.api_version, "kind": MACHINE.kind}
        arena.api.create(MACHINE.path(arena.namespace), {**known, **made})
    unhealthy = [{"type": "Ready", "status": status, "timeoutSeconds": 1} for status in ("False", "Unknown")]
    spec: Json = {
        "clusterName": "lab",
        "selector": {"matchLabels": labels},
        "checks": {"unhealthyNodeConditions": unhealthy},
    }
    check = {"apiVersion": HEALTH_CHECK.api_version, "kind": HEALTH_CHECK.kind, "metadata": {"name": "lab"}}
    arena.api.create(HEALTH_CHECK.path(arena.namespace), {**check, "spec": spec})


@contextlib.contextmanager
def health_checks(arena: Arena) -> Iterator[set[str]]:
    """The controller of MachineHealthChecks; gives the Machines that it wants to be replaced.

    It has a Machine replaced if its Node is gone, or a condition of it is bad for too long, unless the Machine says
    that it is to be skipped (machinehealthcheck_targets.go).
    """
    found: set[str] = set()
    over = threading.Event()

    def ill(node: Json | None, checks: list[Json]) -> bool:
        if node is None:
            return True
        now = datetime.datetime.now(datetime.UTC)
        for condition in node["status"]["conditions"]:
            lasted = (now - datetime.datetime.fromisoformat(condition["lastTransitionTime"])).total_seconds()
            for check in checks:
                same = (condition["type"], condition["status"]) == (check["type"], check["status"])
                if same and lasted > check["timeoutSeconds"]:
                    return True
        return False

    def reconcile() -> None:
        for check in arena.api.items(HEALTH_CHECK.path(arena.namespace)):
            for machine in arena.api.items(MACHINE.path(arena.namespace)):
                node = arena.api.find(f"/api/v1/nodes/{machine['status']['nodeRef']['name']}")
                skipped = SKIP in (machine["metadata"].get("annotations") or {})
                if not skipped and ill(node, check["spec"]["checks"]["unhealthyNodeConditions"]):
                    found.add(machine["metadata"]["name"])

    def control() -> None:
        while not over.wait(0.2):
            reconcile()

    thread = threading.Thread(target=control)
    thread.start()
    try:
        yield found
    finally:
        over.set()
        thread.join()


@pytest.mark.whole
def test_a_machine_health_check_replaces_only_what_is_down_for_too_long_and_not_skipped(
    arena: Arena, play: Player, watching: Watch
) -> None:
    """As the guide says: nothing on the node keeps it away, an annotation of the Machine does. So no mark is needed."""
    up, skipped, forgotten = here = arena.nodes(3)
    arena.nodes(1)
    arena.deployment("web", 3, on=here)
    machines(arena, here)
    arena.settle()
    before = [image(arena, name, but=("lastHeartbeatTime", "lastTransitionTime")) for name in here]
    machine = f"annotate machines.cluster.x-k8s.io --namespace {arena.namespace}"
    tasks = play.tasks(
        {**play.kubectl_task(f"{machine} {skipped} {SKIP}="), "run_once": True},
        {
            **play.kubectl_task("annotate node {{ inventory_hostname }} lab.kubeops.io/node=not-ready"),
            "when": f"inventory_hostname != '{up}'",
        },
        {"name": "Work", "ansible.builtin.command": "sleep 6"},
        {
            **play.kubectl_task("annotate node {{ inventory_hostname }} lab.kubeops.io/node-"),
            "when": f"inventory_hostname != '{up}'",
        },
    )
    with watching() as seen, health_checks(arena) as replaced:
        run = play(
            "maintain",
            inventory=play.hosts(here),
            maintain_nodes=here,
            maintain_serial=3,
            maintain_tasks=tasks,
            maintain_exclude_from_load_balancers=False,
            maintain_hold_autoscalers=False,
            maintain_hold_remediation=False,
        )
        assert run.ok, run.text
    seen.all_held()
    assert replaced == {forgotten}
    assert [marks(seen, name) for name in here] == [set()] * 3, "all of them are switched off"
    after = [image(arena, name, but=("lastHeartbeatTime", "lastTransitionTime")) for name in here]
    assert after == before
