# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Other controllers that delete, reboot or maintain a node: told before the first write.

Objects are as their projects write them: kured 1.17 (pkg/daemonsetlock/daemonsetlock.go), Medik8s
(node-maintenance-operator with common/pkg/lease: holder, duration and times of a lease), Karpenter 1
(pkg/apis/v1/taints.go), cluster-autoscaler 1.33 (utils/taints/taints.go).
"""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import neighbours
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import Raw, node, snapshot

NOW = "2026-01-02T00:00:00Z"


def told(*nodes: str, **objects: t.Any) -> list[tuple[str, str, str, tuple[str, ...]]]:
    found = neighbours.findings(snapshot(**objects), nodes or ("n1",), NOW)
    return [(finding.code, finding.severity, finding.object, finding.nodes) for finding in found]


def kured(value: t.Any, namespace: str = "kube-system", name: str = "kured") -> list[Raw]:
    text = value if isinstance(value, str) else json.dumps(value)
    return [
        {"metadata": {"name": "kube-proxy", "namespace": "kube-system", "uid": "u1"}},
        {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": "u2",
                "annotations": {"deprecated.daemonset.template.generation": "1", "weave.works/kured-node-lock": text},
            }
        },
    ]


def lock(holder: str, created: str = "2026-01-01T22:59:59.123456789Z", ttl: int = 0) -> Raw:
    return {"nodeID": holder, "metadata": {"unschedulable": False}, "created": created, "TTL": ttl}


HOUR = 3600 * 10**9


@pytest.mark.parametrize(
    ("value", "holders"),
    [
        pytest.param(lock("n1"), ["n1"], id="this node"),
        pytest.param(lock("n3"), ["n3"], id="another node: its lock is the cluster's"),
        pytest.param(lock("n3", ttl=2 * HOUR), ["n3"], id="for two hours, of which one is over"),
        pytest.param(lock("n3", ttl=HOUR), [], id="for an hour, which is over"),
        pytest.param(lock("n3", created="soon", ttl=HOUR), ["n3"], id="nobody knows since when"),
        pytest.param(lock("n9"), [], id="a node that is gone"),
        pytest.param('{"nodeID":"manual"}', [], id="switched off by hand, as kured documents it"),
        pytest.param({"maxOwners": 2, "locks": [lock("n2"), lock("n3")]}, ["n2", "n3"], id="two at a time"),
        pytest.param({"maxOwners": 2, "locks": [lock("n2", ttl=HOUR), lock("n3")]}, ["n3"], id="one of two is over"),
        pytest.param({"maxOwners": 2, "locks": None}, [], id="two at a time, none now"),
        pytest.param("manual", [], id="no JSON"),
        pytest.param("[]", [], id="another JSON"),
        pytest.param("{}", [], id="no node"),
        pytest.param("[" * 200_000, [], id="nested without end"),
        pytest.param(lock("n3", ttl=2**63), [], id="a TTL that no number of the API is"),
        pytest.param(lock("n3", ttl=2**63 - 1), ["n3"], id="for 292 years"),
        pytest.param(lock("n3", created="2026-01-01T00:00:00", ttl=HOUR), ["n3"], id="a time without offset"),
    ],
)
def test_a_reboot_by_kured_stands_against_all_nodes(value: t.Any, holders: list[str]) -> None:
    found = told("n1", "n2", daemon_sets=kured(value))
    assert found == [("kured_reboot", "blocker", f"Node {holder}", ("n1", "n2")) for holder in holders]


def test_the_remedy_is_the_command_that_kured_documents() -> None:
    (found,) = neighbours.findings(snapshot(daemon_sets=kured(lock("n3"))), ("n1",), NOW)
    assert "node n3 since 2026-01-01T22:59:59.123456789Z" in found.message
    assert "kubectl -n kube-system annotate daemonset kured weave.works/kured-node-lock-" in found.remedy


@pytest.mark.parametrize(
    ("namespace", "name"), [("tenant", "kured"), ("kube-system", "kured-canary"), ("kured", "my-kured")]
)
def test_a_lock_on_a_daemon_set_that_is_not_kureds_stops_nothing(namespace: str, name: str) -> None:
    """Any tenant could write it, even for every node; whoever calls kured so can say that it counts."""
    others = kured({"maxOwners": 2, "locks": [lock("n1"), lock("n2")]}, namespace, name)
    assert told("n1", daemon_sets=others) == [("kured_reboot", "warning", f"DaemonSet {namespace}/{name}", ())]
    (found,) = neighbours.findings(snapshot(daemon_sets=others), ("n1",), NOW)
    assert f" {namespace}/{name}." in found.remedy
    named = neighbours.findings(snapshot(daemon_sets=others), ("n1",), NOW, f"{namespace}/{name}")
    assert [(one.severity, one.object) for one in named] == [("blocker", "Node n1"), ("blocker", "Node n2")]
    assert neighbours.findings(snapshot(daemon_sets=kured("[" * 200_000, namespace, name)), ("n1",), NOW) == []


def test_who_takes_out_no_node_is_told_nothing() -> None:
    assert told("n9", daemon_sets=kured(lock("n3"))) == []


def lease(name: str = "node-n1", namespace: str = "medik8s-leases", labels: Raw | None = None, **spec: t.Any) -> Raw:
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": "u", **({"labels": labels} if labels else {})},
        "spec": {
            "holderIdentity": "node-maintenance",
            "leaseDurationSeconds": 3600,
            "acquireTime": "2026-01-01T23:10:00.000000Z",
            "renewTime": "2026-01-01T23:30:00.000000Z",
            "leaseTransitions": 1,
            **spec,
        },
    }


HELD = [("leased", "blocker", "Node n1", ("n1",))]


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (lease(), HELD),
        (lease(acquireTime=None), HELD),
        (lease("node-n2"), []),
        (lease(namespace="kubeops-node-maintenance"), []),
        (lease(renewTime="2026-01-01T22:00:00.000000Z"), []),
        (lease(holderIdentity=""), []),
        (lease(labels={names.MANAGED_BY_LABEL: names.MANAGED_BY}, holderIdentity="r1/n1"), []),
        (lease(labels={names.MANAGED_BY_LABEL: "Helm"}), HELD),
    ],
    ids=["held", "since when is unknown", "of another node", "elsewhere", "expired", "released", "ours", "labelled"],
)
def test_a_node_that_medik8s_works_on_is_theirs(found: Raw, expected: list[t.Any]) -> None:
    assert told("n1", leases=[found]) == expected


def test_the_holder_of_a_lease_is_named() -> None:
    (found,) = neighbours.findings(snapshot(leases=[lease()]), ("n1",), NOW)
    assert "node-maintenance since 2026-01-01T23:10:00.000000Z (lease medik8s-leases/node-n1)" in found.message


def test_a_node_with_a_record_is_judged_by_its_record() -> None:
    found = [node("n1", annotations={names.RECORD: "{}"}), node("n2")]
    assert told("n1", nodes=found, leases=[lease()]) == []


def taint(key: str, effect: str = "NoSchedule") -> Raw:
    return {"key": key, "effect": effect}


@pytest.mark.parametrize(
    ("taints", "words"),
    [
        ([taint("karpenter.sh/disrupted")], ["Karpenter", "karpenter.sh/disrupted"]),
        ([{**taint("karpenter.sh/disruption"), "value": "disrupting"}], ["Karpenter"]),
        ([{**taint("ToBeDeletedByClusterAutoscaler"), "value": "1767300000"}], ["cluster-autoscaler"]),
        ([taint("ToBeDeletedByClusterAutoscaler"), taint("karpenter.sh/disrupted")], ["Karpenter", "autoscaler"]),
        ([taint("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule")], []),
        ([taint("karpenter.sh/disrupted", "PreferNoSchedule")], []),
        ([taint("dedicated")], []),
    ],
)
def test_a_node_that_is_on_its_way_out_is_left_to_who_takes_it(taints: list[Raw], words: list[str]) -> None:
    found = neighbours.findings(snapshot(nodes=[node("n1", taints=taints), node("n2")]), ("n1", "n2"), NOW)
    expected = [("node_being_deleted", "blocker", ("n1",))] if words else []
    assert [(finding.code, finding.severity, finding.nodes) for finding in found] == expected
    assert all(word in found[0].message for word in words)


def test_a_node_object_that_waits_for_its_finalizers_is_being_deleted() -> None:
    """A NodeClaim that is deleted deletes its Node, which Karpenter's finalizer keeps until it is drained."""
    raw = node("n1", taints=[taint("karpenter.sh/disrupted")])
    raw["metadata"] |= {"deletionTimestamp": NOW, "finalizers": ["karpenter.sh/termination"]}
    (found,) = neighbours.findings(snapshot(nodes=[raw, node("n2")]), ("n1",), NOW)
    assert "it has a deletionTimestamp and Karpenter" in found.message


def conditioned(kind: str, status: str = "True", **more: str) -> Raw:
    raw = node("n1")
    raw["status"]["conditions"].append({"type": kind, "status": status, **more})
    return raw


@pytest.mark.parametrize(
    ("kind", "severity"),
    [
        ("MaintenancePlanned", "warning"),
        ("Drained", "warning"),
        ("DrainInProgress", "blocker"),
        ("MaintenanceInProgress", "blocker"),
    ],
)
def test_a_condition_of_somebody_else_is_told_with_reason_and_message(kind: str, severity: str) -> None:
    raw = conditioned(kind, reason="FirmwareUpgrade", message="by the hardware team")
    (found,) = neighbours.findings(snapshot(nodes=[raw, node("n2")]), ("n1", "n2"), NOW)
    assert (found.code, found.severity, found.nodes) == ("foreign_condition", severity, ("n1",))
    assert f"condition {kind} to True (FirmwareUpgrade: by the hardware team)" in found.message
    assert ("kubectl patch node n1 --subresource=status" in found.remedy) is (severity == "blocker")


@pytest.mark.parametrize(
    "raw",
    [
        conditioned("DrainInProgress", "False", reason="Done"),
        conditioned("DrainInProgress", reason=names.CONDITION_REASON),
        conditioned("GracefulNodeShutdownInProgress"),
        {**conditioned("DrainInProgress"), "metadata": node("n1", annotations={names.RECORD: "{}"})["metadata"]},
    ],
    ids=["False", "ours", "of the kubelet", "the node is out already"],
)
def test_other_conditions_are_told_by_nobody(raw: Raw) -> None:
    assert told("n1", nodes=[raw, node("n2")]) == []


def test_a_condition_without_words_has_some() -> None:
    (found,) = neighbours.findings(snapshot(nodes=[conditioned("Drained")]), ("n1",), NOW)
    assert "no reason given" in found.message
