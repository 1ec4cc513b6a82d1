# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What becomes of the pods of a node that went away, and what speaks for its being dead."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, node_taints
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node, Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import unreachable
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import commands
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import PodPlan, Route
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import Record
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    claim,
    deployment,
    mounts,
    node,
    owned,
    pod,
    snapshot,
    workload,
)

NOW = "2026-01-01T03:10:00.000Z"
LOST: Raw = {"key": "node.kubernetes.io/unreachable", "effect": "NoExecute", "timeAdded": "2026-01-01T03:08:00Z"}
SOFT: Raw = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
DEFAULT: Raw = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
WAIT: Raw = {**DEFAULT, "tolerationSeconds": 300}
AWAY = node("n1", conditions={"Ready": "Unknown"}, taints=[SOFT, LOST])
WEB = {"web": owned("ReplicaSet", "web")}


def fate(made: Raw, *more: dict[str, list[Raw]], here: Raw | None = None) -> unreachable.AfterNodeLoss | None:
    world = snapshot(*more, nodes=[here or AWAY, node("n2")], pods=[made])
    return unreachable.after_node_loss(world, world.pods[0], NOW)


@pytest.mark.parametrize(
    ("changes", "told_at", "seconds"),
    [
        pytest.param({"tolerations": [WAIT]}, "2026-01-01T03:13:00Z", 180, id="default"),
        pytest.param({"tolerations": [{**WAIT, "tolerationSeconds": 30}]}, "2026-01-01T03:08:30Z", 0, id="overdue"),
        pytest.param({"tolerations": []}, "2026-01-01T03:08:00Z", 0, id="none"),
        pytest.param({"tolerations": [DEFAULT]}, "", None, id="for-ever"),
        pytest.param({"deleting": "2026-01-01T03:09:30Z"}, "2026-01-01T03:09:30Z", 0, id="told-already"),
    ],
)
def test_when_a_pod_of_a_lost_node_is_told_to_end(changes: Raw, told_at: str, seconds: int | None) -> None:
    found = fate(pod("web-1", owner=WEB["web"], **changes), deployment("web", 2))
    assert found is not None
    assert (found.told_at, found.in_seconds) == (told_at, seconds)
    assert found.successor == ("none" if seconds is None else "at_once")


def test_without_the_taint_nobody_knows_when() -> None:
    found = fate(pod("a", tolerations=[WAIT]), here=node("n1", conditions={"Ready": "Unknown"}, taints=[SOFT]))
    assert found is not None
    assert (found.told_at, found.in_seconds) == ("", None)
    assert "300 s after the taint" in found.reason


@pytest.mark.parametrize("ready", ["True", "False"])
def test_a_node_that_is_heard_of_has_no_fate(ready: str) -> None:
    assert fate(pod("a"), here=node("n1", conditions={"Ready": ready})) is None


@pytest.mark.parametrize(
    ("owner", "more", "successor"),
    [
        ([], {}, "none"),
        (owned("DaemonSet", "agent"), {}, "none"),
        (owned("StatefulSet", "db"), {"stateful_sets": [workload("StatefulSet", "db", 2)]}, "after_its_object"),
        (owned("Job", "j", "batch/v1"), {}, "at_once"),
        (owned("ReplicaSet", "web"), {}, "none"),
        (owned("ReplicaSet", "web"), deployment("web", 2), "at_once"),
        (owned("ReplicaSet", "web"), deployment("web", 0), "none"),
    ],
)
def test_when_a_pod_has_a_successor(owner: list[Raw], more: dict[str, list[Raw]], successor: str) -> None:
    found = fate(pod("a", owner=owner, tolerations=[WAIT]), more)
    assert found is not None
    assert found.successor == successor


def test_a_successor_waits_for_the_volume_that_stays_attached() -> None:
    attachment = {"spec": {"nodeName": "n1", "source": {"persistentVolumeName": "pv-data"}}}
    other = {"spec": {"nodeName": "n2", "source": {"persistentVolumeName": "pv-other"}}}
    data = claim("data", volume="pv-data", modes=("ReadWriteOnce",))
    made = pod("a", owner=WEB["web"], tolerations=[WAIT], volumes=mounts("data"))
    found = fate(made, {"claims": [data], "attachments": [attachment, other]}, deployment("web", 1))
    assert found is not None
    assert (found.successor, found.volumes) == ("after_its_volume", ("pv-data",))
    assert "pv-data stays attached to n1" in found.reason


def lease(renewed: str, seconds: int = 40) -> Raw:
    return {
        "metadata": {"namespace": "kube-node-lease", "name": "n1", "uid": "u"},
        "spec": {"holderIdentity": "n1", "leaseDurationSeconds": seconds, "renewTime": renewed},
    }


@pytest.mark.parametrize(("ready", "speaks"), [("True", "Ready is True"), ("False", "Ready is False"), ("Unknown", "")])
def test_what_speaks_for_a_living_kubelet(ready: str, speaks: str) -> None:
    found = unreachable.alive(Node.of(node("n1", conditions={"Ready": ready})))
    assert (speaks in found) if speaks else not found


@pytest.mark.parametrize(
    ("route", "code", "tolerations", "becomes"),
    [
        ("evict", "replicas", [], ("wait", "out_of_service")),
        ("surge", "single_replica", [], ("wait", "out_of_service")),
        ("refuse", "unhealthy_blocked", [], ("wait", "out_of_service")),
        ("refuse", "local_volume", [], ("wait", "out_of_service")),
        ("wait", "job", [], ("wait", "out_of_service")),
        ("wait", "stuck_terminating", [], ("wait", "out_of_service")),
        ("refuse", "emptydir", [], ("refuse", "emptydir")),
        ("refuse", "bare_pod", [], ("refuse", "bare_pod")),
        ("skip", "daemonset", [], ("skip", "daemonset")),
        ("skip", "not_selected", [], ("refuse", "not_selected")),
        ("skip", "left_by_rule", [], ("refuse", "left_by_rule")),
        ("evict", "replicas", [{"operator": "Exists"}], ("skip", "out_of_service")),
    ],
)
def test_the_route_of_a_pod_on_a_fenced_node(
    route: Route, code: str, tolerations: list[Raw], becomes: tuple[str, str]
) -> None:
    plan = unreachable.fenced(
        PodPlan(Pod.of(pod("a", tolerations=tolerations)), route, code, "why", None, guarded=True)
    )
    assert (plan.route, plan.code) == becomes
    assert plan.route != "wait" or not plan.guarded


def test_one_finding_says_what_becomes_of_the_node() -> None:
    pods = [
        pod("web-1", owner=WEB["web"], tolerations=[WAIT]),
        pod("web-2", owner=WEB["web"], tolerations=[]),
        pod("db-0", owner=owned("StatefulSet", "db"), tolerations=[WAIT]),
        pod("agent", owner=owned("DaemonSet", "agent"), tolerations=[DEFAULT]),
    ]
    more = {**deployment("web", 2), "stateful_sets": [workload("StatefulSet", "db", 1)]}
    world = snapshot(nodes=[AWAY, node("n2")], pods=pods, leases=[lease("2026-01-01T03:07:00Z")], **more)
    plans = [PodPlan(found, "evict", "not_ready", "", None) for found in world.pods]
    (finding,) = unreachable.findings(world, plans, ["n1", "n2", "n3"], (), NOW)
    assert (finding.code, finding.severity, finding.nodes) == ("node_lost", "warning", ("n1",))
    for words in (
        "last renewed at 2026-01-01T03:07:00Z",
        "4 pods on it",
        "1 already terminating",
        "2 to be deleted",
        "03:13:00Z",
        "1 not deleted",
        "the volume: 1.",
    ):
        assert words in finding.message
    assert f"{commands.evacuate(['n1'])} -e maintain_fenced=n1 (" in finding.remedy
    assert "-e maintain_fence_tasks=" in finding.remedy
    (finding,) = unreachable.findings(world, plans, ["n1"], ["n1"], NOW)
    assert "You vouch" in finding.remedy


def test_a_living_node_is_not_evacuated_as_dead() -> None:
    world = snapshot(nodes=[node("n1"), node("n2")])
    (finding,) = unreachable.findings(world, (), ["n1", "n2"], ["n1"], NOW)
    assert (finding.code, finding.severity, finding.nodes) == ("not_dead", "blocker", ("n1",))
    assert "Ready is True" in finding.message


RECORD = Record(
    "r1", "x", "me", "", "2026-01-01T00:00:00Z", "cordoned", "uid-n1", "ns/node-n1", {"unschedulable": False}
)


def test_the_taint_is_in_the_record_until_it_is_lifted() -> None:
    here = Node.of(AWAY)
    held, change = cordon.hold_with(here, RECORD, node_taints.OUT_OF_SERVICE)
    assert change is not None
    assert change.body is not None
    assert change.resource_version == here.resource_version
    assert held.added == (node_taints.OUT_OF_SERVICE,)
    assert change.body["spec"]["taints"] == [SOFT, LOST, node_taints.OUT_OF_SERVICE]
    assert change.body["metadata"]["annotations"][names.RECORD] == held.dump()
    tainted = replace(here, taints=(*here.taints, node_taints.OUT_OF_SERVICE), annotations={names.RECORD: held.dump()})
    assert cordon.hold_with(tainted, held, node_taints.OUT_OF_SERVICE) == (held, None)
    freed, back = cordon.let_go_of(tainted, held, node_taints.OUT_OF_SERVICE)
    assert freed == RECORD
    assert back is not None
    assert back.body is not None
    assert back.body["spec"]["taints"] == [SOFT, LOST]
    given = cordon.give_back(tainted, held)[0]
    assert given is not None
    assert given.body is not None
    assert node_taints.OUT_OF_SERVICE not in given.body["spec"]["taints"]


def test_a_taint_of_somebody_else_is_theirs() -> None:
    theirs = {**node_taints.OUT_OF_SERVICE, "value": "medik8s"}
    here = Node.of(node("n1", taints=[theirs]))
    assert cordon.hold_with(here, RECORD, node_taints.OUT_OF_SERVICE) == (RECORD, None)
    assert cordon.let_go_of(here, RECORD, node_taints.OUT_OF_SERVICE) == (RECORD, None)


@pytest.mark.parametrize(
    ("ready", "recorded", "tainted", "stays"),
    [
        ("Unknown", True, True, True),
        ("False", True, True, True),
        pytest.param("True", True, True, False, id="its kubelet is back"),
        pytest.param("Unknown", False, True, False, id="tainted by somebody else"),
        pytest.param("Unknown", True, False, False, id="untainted by hand"),
        pytest.param("Unknown", False, False, False, id="never evacuated as dead"),
    ],
)
def test_a_node_evacuated_as_dead_stays_out_until_its_kubelet_responds(
    ready: str, recorded: bool, tainted: bool, stays: bool
) -> None:
    added = (SOFT, node_taints.OUT_OF_SERVICE) if recorded else (SOFT,)
    taints = [LOST, node_taints.OUT_OF_SERVICE] if tainted else [LOST]
    why = unreachable.stays_out(
        Node.of(node("n1", conditions={"Ready": ready}, taints=taints)), replace(RECORD, added=added)
    )
    assert (f"Ready is {ready}" in why) if stays else not why


@pytest.mark.parametrize(
    ("now", "seconds"),
    [
        ("2026-01-01T03:12:58.000Z", 2),
        ("2026-01-01T03:12:59.000Z", 1),
        ("2026-01-01T03:13:00.000Z", 0),
        ("2026-01-01T03:13:01.000Z", 0),
        pytest.param("", 300, id="the time is not known"),
    ],
)
def test_the_time_left_ends_with_the_toleration(now: str, seconds: int) -> None:
    world = snapshot(nodes=[AWAY], pods=[pod("a", tolerations=[WAIT])])
    found = unreachable.after_node_loss(world, world.pods[0], now)
    assert found is not None
    assert (found.told_at, found.in_seconds) == ("2026-01-01T03:13:00Z", seconds)


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ([], "It has no pods."),
        ([pod("a", phase="Succeeded")], "It has no pods."),
        ([pod("a", tolerations=[])], "1 pod on it: 1 already terminating."),
        ([pod("a", tolerations=[]), pod("b", tolerations=[DEFAULT])], "2 pods on it: 1 already"),
        ([pod("a", tolerations=[WAIT]), pod("b", tolerations=[WAIT])], "2 to be deleted, the last at 2026-01-01T03:13"),
        (
            [pod("a", tolerations=[WAIT]), pod("b", tolerations=[{**WAIT, "tolerationSeconds": 121}])],
            "2 to be deleted, the last at 2026-01-01T03:13",
        ),
        ([pod("a", tolerations=[DEFAULT])], "1 not deleted."),
        ([pod("a", phase="Failed"), pod("b", tolerations=[DEFAULT])], "1 not deleted."),
    ],
)
def test_the_pods_of_a_lost_node_are_counted_by_what_becomes_of_them(pods: list[Raw], words: str) -> None:
    world = snapshot(nodes=[AWAY], pods=pods)
    plans = [PodPlan(found, "evict", "not_ready", "", None) for found in world.pods]
    (finding,) = unreachable.findings(world, plans, ["n1"], (), NOW)
    assert words in finding.message


def test_a_node_that_is_not_there_hides_no_other() -> None:
    world = snapshot(nodes=[AWAY])
    assert [found.nodes for found in unreachable.findings(world, (), ["n9", "n1"], (), NOW)] == [("n1",)]


def test_the_silence_of_a_node_is_told_as_far_as_it_is_known() -> None:
    here = Node.of(AWAY)
    assert unreachable.since(here) == ""
    assert unreachable.since(replace(here, ready_since="2026-01-01T03:07:40Z")) == " since 2026-01-01T03:07:40Z"
    assert "renewed at 2026-01-01T03:07:00Z" in unreachable.since(here, lease("2026-01-01T03:07:00Z"))
    assert unreachable.beat(None) == ("", "", "")
    assert unreachable.beat(lease("2026-01-01T03:07:00Z")) == ("u", "n1", "2026-01-01T03:07:00Z")


@pytest.mark.parametrize(
    ("changes", "successor"),
    [
        ({"owner": WEB["web"], "phase": "Failed"}, "none"),
        ({"owner": owned("Node", "n1", "v1"), "annotations": {names.MIRROR: "x"}}, "none"),
        ({"owner": WEB["web"], "volumes": [{"name": "tmp", "emptyDir": {}}, *mounts("data")]}, "after_its_volume"),
        ({"owner": WEB["web"], "volumes": [{"name": "tmp", "emptyDir": {}}]}, "at_once"),
    ],
)
def test_a_successor_waits_for_the_first_volume_that_ties_it(changes: Raw, successor: str) -> None:
    data = claim("data", volume="pv-data", modes=("ReadWriteOnce",))
    found = fate(pod("a", tolerations=[WAIT], **changes), {"claims": [data]}, deployment("web", 1))
    assert found is not None
    assert found.successor == successor


def test_attached_are_the_volumes_of_the_pods_claims_on_its_own_node() -> None:
    held = [("pv-b", "n1"), ("pv-a", "n1"), ("pv-else", "n1"), ("pv-c", "n2")]
    attachments = [{"spec": {"nodeName": on, "source": {"persistentVolumeName": name}}} for name, on in held]
    claims = [claim(name, f"pv-{name}") for name in "abc"]
    volumes = [*mounts("b"), *mounts("a"), *mounts("c"), *mounts("missing")]
    world = snapshot(pods=[pod("p", volumes=volumes)], claims=claims, attachments=attachments)
    assert unreachable.attached(world, world.pods[0]) == ("pv-a", "pv-b")


@pytest.mark.parametrize(("annotations", "code"), [({names.MIRROR: "x"}, "skip"), ({}, "wait")])
def test_a_static_pod_stays_on_a_fenced_node(annotations: dict[str, str], code: str) -> None:
    plan = PodPlan(Pod.of(pod("a", annotations=annotations)), "skip", "mirror", "", None)
    assert unreachable.fenced(plan).route == code
