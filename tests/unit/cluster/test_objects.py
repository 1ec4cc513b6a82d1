# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a field is that the API server left out, and what stands for what in those it sent."""

from __future__ import annotations

import typing as t
from dataclasses import FrozenInstanceError

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, objects
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import Raw, owned

BARE: Raw = {"metadata": {"name": "x"}}
"""Go's encoder omits fields that are empty or zero."""


@pytest.mark.parametrize(
    ("parse", "fields"),
    [
        (objects.Node.of, {"unschedulable": False, "ready": False, "taints": (), "address": "", "deleting": False}),
        (objects.Pod.of, {"grace_seconds": 30, "priority": 0, "ready": False, "mirror": False, "finished": False}),
        (objects.Budget.of, {"allowed": 0, "healthy": 0, "desired": 0, "expected": 0, "observed": False}),
        (objects.Workload.of, {"replicas": 1, "ready": 0, "available": 0, "current": 0, "observed": True}),
        (objects.Autoscaler.of, {"minimum": 1, "maximum": 1}),
    ],
)
def test_fields_left_out_are_the_defaults_of_the_api(parse: t.Callable[[Raw], t.Any], fields: Raw) -> None:
    found = parse(BARE)
    assert {name: getattr(found, name) for name in fields} == fields
    assert (found.name, found.namespace, found.uid, found.owner) == ("x", "", "", None)
    with pytest.raises(FrozenInstanceError):
        found.name = "y"


@pytest.mark.parametrize(
    ("generation", "observed", "current"),
    [
        pytest.param({"generation": 2}, {"observedGeneration": 1}, False, id="behind"),
        pytest.param({"generation": 2}, {"observedGeneration": 2}, True, id="current"),
        pytest.param({"generation": 2}, {"observedGeneration": 3}, True, id="ahead of what was listed"),
        pytest.param({"generation": 1}, {}, False, id="never"),
        pytest.param({}, {"observedGeneration": 0}, True, id="a kind without generations"),
    ],
)
def test_a_status_is_observed_once_it_is_of_the_current_generation(
    generation: Raw, observed: Raw, current: bool
) -> None:
    raw = {"metadata": {"name": "x", **generation}, "status": observed}
    assert objects.Budget.of(raw).observed is current
    assert objects.Workload.of(raw).observed is current


@pytest.mark.parametrize(("written", "current"), [("2", True), ("1", False), ("7c8d9f", False), ("", False)])
def test_argo_rollouts_write_their_observed_generation_as_text(written: str, current: bool) -> None:
    raw = {"metadata": {"name": "x", "generation": 2}, "status": {"observedGeneration": written}}
    assert objects.Workload.of(raw).observed is current


def test_the_controller_is_the_owner_that_says_so() -> None:
    owners = [{"kind": "Node", "name": "n1", "uid": "u1"}, *owned("ReplicaSet", "web")]
    found = objects.controller_of({"metadata": {"name": "p", "namespace": "shop", "ownerReferences": owners}})
    assert found == objects.Ref("ReplicaSet", "web", "shop", "uid-ReplicaSet-web", "apps/v1")
    assert objects.controller_of({"metadata": {"name": "p", "ownerReferences": owners[:1]}}) is None


@pytest.mark.parametrize(
    ("addresses", "address"),
    [
        ({"ExternalIP": "1.2.3.4", "Hostname": "n1.example", "InternalIP": "10.0.0.1"}, "10.0.0.1"),
        ({"ExternalIP": "1.2.3.4", "Hostname": "n1.example"}, "n1.example"),
        ({"ExternalIP": "1.2.3.4"}, ""),
    ],
)
def test_a_node_is_reached_by_its_internal_address_then_by_its_name(addresses: dict[str, str], address: str) -> None:
    listed = [{"type": kind, "address": value} for kind, value in addresses.items()]
    assert objects.Node.of({**BARE, "status": {"addresses": listed}}).address == address


@pytest.mark.parametrize(
    ("kind", "state", "reason", "said"),
    [
        ("PodScheduled", "False", "Unschedulable", "0/3 nodes are available"),
        ("PodScheduled", "False", "SchedulingGated", ""),
        ("PodScheduled", "True", "Unschedulable", ""),
        ("Ready", "False", "Unschedulable", ""),
    ],
)
def test_the_scheduler_speaks_in_one_condition(kind: str, state: str, reason: str, said: str) -> None:
    condition = {"type": kind, "status": state, "reason": reason, "message": "0/3 nodes are available"}
    assert objects.Pod.of({**BARE, "status": {"conditions": [condition]}}).unschedulable == said


@pytest.mark.parametrize(
    ("labels", "name", "ours"),
    [
        ({names.MANAGED_BY_LABEL: names.MANAGED_BY}, names.guard_name("u"), True),
        ({names.MANAGED_BY_LABEL: names.MANAGED_BY}, "web", False),
        ({names.MANAGED_BY_LABEL: "helm"}, names.guard_name("u"), False),
        ({}, names.guard_name("u"), False),
    ],
)
def test_a_budget_is_ours_by_its_label_and_its_name(labels: dict[str, str], name: str, ours: bool) -> None:
    assert objects.Budget.of({"metadata": {"name": name, "labels": labels}}).ours is ours


def test_claims_of_a_pod_are_named_or_made_for_its_ephemeral_volumes() -> None:
    volumes = [
        {"name": "a", "persistentVolumeClaim": {"claimName": "data"}},
        {"name": "b", "ephemeral": {"volumeClaimTemplate": {}}},
        {"name": "c", "emptyDir": {}},
    ]
    found = objects.Pod.of({"metadata": {"name": "p"}, "spec": {"volumes": volumes}})
    assert (found.claims, found.empty_dirs) == (("data", "p-b"), ("c",))


def test_requests_are_kept_per_container() -> None:
    containers: list[Raw] = [{"resources": {"requests": {"cpu": "1"}}}, {}, {"resources": {"requests": {"cpu": "2"}}}]
    found = objects.Pod.of({**BARE, "spec": {"containers": containers}})
    assert found.requests == {"0/cpu": "1", "2/cpu": "2"}


def test_an_object_is_found_by_its_namespace_and_name() -> None:
    raws: list[Raw] = [
        {"metadata": {"name": "a", "namespace": "shop"}},
        {"metadata": {"name": "b", "namespace": "bank"}},
        {"metadata": {"name": "a"}},
    ]
    assert objects.find(raws, "shop", "a") is raws[0]
    assert objects.find(raws, "", "a") is raws[2]
    assert objects.find(raws, "shop", "b") is None


@pytest.mark.parametrize(
    ("ref", "text"),
    [
        (objects.Ref("Node", "n1"), "Node n1"),
        (objects.Ref("Deployment", "web", "shop"), "Deployment shop/web"),
    ],
)
def test_a_reference_is_shown_as_kind_and_place_and_read_back(ref: objects.Ref, text: str) -> None:
    assert str(ref) == text
    assert objects.Ref.read(text) == ref
    assert [objects.Ref.read(nothing) for nothing in ("", "Node", "Deployment shop/")] == [None] * 3


def condition(kind: str, status: str = "True", since: str = "") -> Raw:
    return {"type": kind, "status": status, "lastTransitionTime": since or None}


def test_what_the_scheduler_and_the_kubelet_have_said_of_a_pod_is_known() -> None:
    begun, later = "2026-01-01T00:00:00Z", "2026-01-01T00:00:05Z"
    status: Raw = {
        "conditions": [condition("PodScheduled", since=begun), condition("Ready", since=later)],
        "nominatedNodeName": "n2",
        "podIP": "10.0.0.1",
        "containerStatuses": [{"restartCount": 0}, {"restartCount": 1}],
    }
    found = objects.Pod.of({**BARE, "status": status})
    assert (found.looked_at, found.scheduled, found.ready_since) == (True, begun, later)
    assert (found.nominated, found.ip, found.restarted) == ("n2", "10.0.0.1", True)
    bare = objects.Pod.of(BARE)
    assert (bare.looked_at, bare.scheduled, bare.nominated, bare.ip, bare.restarted) == (False, "", "", "", False)
    steady = objects.Pod.of({**BARE, "status": {"containerStatuses": [{"restartCount": 0}, {}]}})
    assert steady.restarted is False


def test_device_claims_are_named_or_made_for_the_pod() -> None:
    """Those that it names are there before it; those of templates and of extended resources end with it."""
    spec: Raw = {"resourceClaims": [{"name": "a", "resourceClaimName": "mine"}, {"name": "b"}]}
    status: Raw = {
        "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "made"}, {"name": "c"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "extended"},
    }
    found = objects.Pod.of({**BARE, "spec": spec, "status": status})
    assert found.device_claims == (("mine", True), ("made", False), ("extended", False))
    assert objects.Pod.of(BARE).device_claims == ()


def test_groups_and_responders_of_a_pod_are_known() -> None:
    spec: Raw = {"schedulingGroup": {"podGroupName": "g"}, "evictionResponders": [{"name": "r"}, {}]}
    found = objects.Pod.of({**BARE, "spec": spec})
    assert (found.group, found.responders) == ("g", ("r", ""))
    assert (objects.Pod.of(BARE).group, objects.Pod.of(BARE).responders) == ("", ())


@pytest.mark.parametrize(
    ("wanted", "there", "owners", "kept"),
    [
        (0, 0, owned("Deployment", "web"), False),
        (1, 0, owned("Deployment", "web"), True),
        (0, 1, owned("Deployment", "web"), True),
        (0, 0, [], True),
    ],
    ids=["an earlier revision", "one that is rolled out", "one that is rolled away", "one of its own"],
)
def test_of_earlier_revisions_no_template_is_kept(wanted: int, there: int, owners: list[Raw], kept: bool) -> None:
    """A Deployment has ten of them, and no decision asks what their pods were."""
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "c"}]}}
    raw = {
        "kind": "ReplicaSet",
        "metadata": {"name": "web-1", "uid": "u", "ownerReferences": owners},
        "spec": {"replicas": wanted, "template": template},
        "status": {"replicas": there},
    }
    found = objects.Workload.of(raw)
    assert (found.replicas, found.current, bool(found.template)) == (wanted, there, kept)
