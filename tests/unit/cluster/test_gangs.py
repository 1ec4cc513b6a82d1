# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods that only work together, in the shapes in which their projects make them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import gangs, objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.names import ALLOW_INTERRUPTION
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import neighbours, waves
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    node,
    owned,
    pod,
    snapshot,
    workload,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import planned

LWS = "leaderworkerset.sigs.k8s.io"
KEY = "689ce1b5e1dd2ab64b1ac8b8d1ff2f4a2c8c1b07"
ZONE = "topology.kubernetes.io/zone"


def lws(worker: int, group: str = KEY, index: str = "0") -> Raw:
    """LeaderWorkerSet v0.6, docs/reference/labels-annotations-and-environment-variables.md."""
    return {"labels": {f"{LWS}/name": "serve", f"{LWS}/group-index": index, f"{LWS}/group-key": group}} | {
        "annotations": {f"{LWS}/size": "3", **({f"{LWS}/leader-name": "serve-0"} if worker else {})}
    }


JOB_SET: Raw = {
    # JobSet v0.8, pkg/controllers/jobset_controller.go, labelAndAnnotateObject
    "labels": {
        "jobset.sigs.k8s.io/jobset-name": "train",
        "jobset.sigs.k8s.io/replicatedjob-name": "workers",
        "jobset.sigs.k8s.io/job-index": "0",
        "jobset.sigs.k8s.io/restart-attempt": "0",
    }
}
KUEUE: Raw = {
    # Kueue v0.12, pkg/controller/jobs/pod/constants/constants.go
    "labels": {"kueue.x-k8s.io/queue-name": "q", "kueue.x-k8s.io/pod-group-name": "train"},
    "annotations": {"kueue.x-k8s.io/pod-group-total-count": "3"},
}
COSCHEDULING: Raw = {"labels": {"scheduling.x-k8s.io/pod-group": "train"}}
KOORDINATOR: Raw = {
    # Koordinator v1.6, apis/extension/coscheduling.go
    "annotations": {"gang.scheduling.koordinator.sh/name": "train", "gang.scheduling.koordinator.sh/min-available": "3"}
}
SERVING: Raw = {
    "labels": {"kueue.x-k8s.io/pod-group-name": "web"},
    "annotations": {"kueue.x-k8s.io/pod-group-serving": "true"},
}


def of_group(name: str, on: str, **changes: t.Any) -> Raw:
    """Kubernetes 1.37, core/v1 PodSchedulingGroup."""
    made = pod(name, on, **changes)
    made["spec"]["schedulingGroup"] = {"podGroupName": "train"}
    return made


def pod_group(**mode: Raw) -> Raw:
    """Kubernetes 1.37, scheduling/v1beta1/types.go."""
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}} | ({"disruptionMode": mode} if mode else {})
    meta = {"name": "train", "namespace": "shop", "uid": "uid-train"}
    return {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": meta, "spec": spec}


def trained(marks: Raw, **changes: t.Any) -> dict[str, list[Raw]]:
    """Three pods of a StatefulSet on n1, n2 and n3, with these labels and annotations."""
    pods = [pod(f"train-{i}", f"n{i + 1}", owned("StatefulSet", "train"), **marks, **changes) for i in range(3)]
    return {"stateful_sets": [workload("StatefulSet", "train", 3)], "pods": pods}


def gang_of(one: objects.Pod, seen: Snapshot) -> gangs.Gang | None:
    return gangs.found(seen.pods, seen.pod_groups).get(one.uid)


@pytest.mark.parametrize(
    ("marks", "words"),
    [
        pytest.param(lws(1), "LeaderWorkerSet shop/serve group 0", id="LeaderWorkerSet"),
        pytest.param(JOB_SET, "JobSet shop/train", id="JobSet"),
        pytest.param(KUEUE, "Pod group shop/train", id="Kueue"),
        pytest.param(COSCHEDULING, "PodGroup shop/train", id="scheduler-plugins"),
        pytest.param({"labels": {"pod-group.scheduling.sigs.k8s.io": "train"}}, "PodGroup shop/train", id="before"),
        pytest.param(KOORDINATOR, "Gang shop/train", id="Koordinator"),
    ],
)
def test_a_gang_is_told_by_what_its_project_writes_on_pods(marks: Raw, words: str) -> None:
    found = snapshot(trained(marks))
    gang = gang_of(found.pods[0], found)
    assert gang is not None
    assert gang.words == f"{words} (3 pods on n1, n2, n3)"


@pytest.mark.parametrize("marks", [{}, SERVING, {"labels": {f"{LWS}/name": "serve"}}])
def test_other_pods_are_no_gang(marks: Raw) -> None:
    found = snapshot(trained(marks))
    assert gang_of(found.pods[0], found) is None


def test_finished_pods_single_pods_and_other_groups_do_not_count() -> None:
    pods = [
        pod("serve-0", "n1", **lws(0)),
        pod("serve-0-1", "n2", phase="Succeeded", **lws(1)),
        pod("serve-1", "n2", **lws(0, "0ff", "1")),
    ]
    assert gangs.found(map(objects.Pod.of, pods), ()) == {}


@pytest.mark.parametrize(
    ("groups", "together"),
    [
        ([pod_group(all={})], True),
        ([pod_group(single={})], False),
        ([pod_group()], False),
        ([], True),
    ],
)
def test_a_pod_group_says_whether_it_is_disrupted_as_a_whole(groups: list[Raw], together: bool) -> None:
    pods = [of_group(f"train-{i}", f"n{i + 1}") for i in range(3)]
    found = snapshot(pods=pods, pod_groups=groups)
    assert (gang_of(found.pods[1], found) is not None) == together


@pytest.mark.parametrize(
    ("changes", "choices", "route", "code"),
    [
        ({}, {}, "refuse", "gang"),
        ({}, {"allow_interruption": True}, "evict", "gang"),
        ({"ready": False}, {}, "evict", "not_ready"),
    ],
)
def test_a_gang_is_interrupted_with_consent_only(changes: Raw, choices: Raw, route: str, code: str) -> None:
    plans = planned(snapshot(trained(lws(1), **changes)), **choices)
    assert [(plan.route, plan.code) for plan in plans] == [(route, code)]


def test_its_owner_can_consent_by_annotation() -> None:
    parts = trained(KUEUE)
    parts["stateful_sets"] = [workload("StatefulSet", "train", 3, annotations={ALLOW_INTERRUPTION: "true"})]
    assert [plan.code for plan in planned(snapshot(parts))] == ["gang"]


def test_a_job_is_still_waited_for() -> None:
    pods = [pod(f"train-{i}", f"n{i + 1}", owned("Job", "train-workers-0", "batch/v1"), **JOB_SET) for i in range(3)]
    found = snapshot(pods=pods)
    plans = planned(found, ("n1", "n2"))
    assert {plan.route for plan in plans} == {"wait"}
    (told,) = neighbours.gang_findings(found, plans, (("n1",), ("n2",)))
    assert (told.severity, told.object, told.nodes) == ("info", "JobSet shop/train", ("n1", "n2"))
    assert neighbours.together(found, plans) == []


@pytest.mark.parametrize(
    ("consent", "severity", "said"),
    [(False, "blocker", "what ends one of its pods interrupts all of them."), (True, "warning", "leave together.")],
)
def test_a_finding_names_the_gang_with_its_size_and_all_its_nodes(consent: bool, severity: str, said: str) -> None:
    found = snapshot(trained(KOORDINATOR))
    plans = planned(found, ("n1", "n2"), allow_interruption=consent)
    (told,) = neighbours.gang_findings(found, plans, (("n1", "n2"),))
    assert (told.code, told.severity, told.object) == ("gang", severity, "Gang shop/train")
    assert told.message.startswith("Gang shop/train (3 pods on n1, n2, n3) is a gang")
    assert told.message.endswith(said)
    assert ("maintain_allow_interruption=true" in told.remedy) != consent


def nodes(zones: str) -> list[objects.Node]:
    return [objects.Node.of(node(f"n{i + 1}", labels={ZONE: zone})) for i, zone in enumerate(zones)]


@pytest.mark.parametrize(
    ("zones", "together", "options", "expected"),
    [
        ("abc", [("n1", "n3")], {}, [("n1", "n3"), ("n2",)]),
        ("abcd", [("n1", "n3"), ("n3", "n4")], {}, [("n1", "n3", "n4"), ("n2",)]),
        ("abcd", [("n2", "n3")], {"max_parallel": 3}, [("n1", "n2", "n3"), ("n4",)]),
        ("abcd", [("n2", "n3")], {"max_parallel": 2}, [("n1", "n4"), ("n2", "n3")]),
        ("aab", [("n1", "n2")], {"max_per_zone": 1}, [("n1",), ("n2",), ("n3",)]),
        ("aab", [("n1", "n3")], {"max_per_zone": 1}, [("n1", "n3"), ("n2",)]),
        ("ab", [("n1", "n9")], {}, [("n1",), ("n2",)]),
    ],
)
def test_the_nodes_of_a_gang_share_a_wave(
    zones: str, together: list[tuple[str, ...]], options: Raw, expected: list[tuple[str, ...]]
) -> None:
    found = waves.formed(nodes(zones), waves.Limits(**options), together=together)
    assert list(found.waves) == expected


def test_where_a_zone_would_lose_too_much_the_finding_says_how_often_it_is_interrupted() -> None:
    found = snapshot(trained(KOORDINATOR))
    plans = planned(found, ("n1", "n2"), allow_interruption=True)
    (told,) = neighbours.gang_findings(found, plans, (("n1",), ("n2",)))
    assert "in 2 waves because of max_per_zone, so it is interrupted 2 times" in told.message
