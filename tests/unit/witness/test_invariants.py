# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each invariant holds on a log of a run that went well, and fails on one that did not."""

from __future__ import annotations

from typing import Any

import handmade as h
import pytest
from handmade import Story
from witness import invariants as i
from witness.audit import Request
from witness.log import Event, Json, log_of


def shop(replicas: int = 1, **more: Any) -> Story:
    names = [f"web-{number}" for number in range(replicas)]
    return Story().before(
        Deployment=h.deployment(replicas=replicas),
        ReplicaSet=h.replica_set(replicas=replicas),
        Pod=[h.pod(name) for name in names],
        Service=h.service(),
        EndpointSlice=h.endpoints(*names),
        Node=[h.node("n1"), h.node("n2")],
        **more,
    )


def test_i1_holds_when_the_newcomer_is_ready_before_the_old_one_goes() -> None:
    story = shop().at(1, EndpointSlice=h.endpoints("web-0", not_ready=["web-1"]))
    story.at(6, EndpointSlice=h.endpoints("web-0", "web-1"))
    assert i.i1_services_stay_up(story.at(7, EndpointSlice=h.endpoints("web-1")).end()) == []


def test_i1_names_the_service_that_went_dark_and_when() -> None:
    log = shop().at(2, EndpointSlice=h.endpoints()).at(7, EndpointSlice=h.endpoints("b")).end()
    (found,) = i.i1_services_stay_up(log)
    assert (found.rule, found.kind, found.namespace, found.name) == ("I1", "Service", "shop", "web")
    assert found.at == pytest.approx(2)
    assert found.message == "0 ready endpoints, its floor is 1"


def test_i1_counts_an_endpoint_without_a_condition_as_ready() -> None:
    bare = h.endpoints("web-0")
    bare["endpoints"][0]["conditions"] = {}
    assert i.i1_services_stay_up(shop().at(1, EndpointSlice=bare).end()) == []


def test_i1_wants_all_but_one_of_several_replicas_without_a_budget() -> None:
    log = shop(3).at(1, EndpointSlice=h.endpoints("web-0", "web-1")).end()
    assert i.i1_services_stay_up(log) == []
    log = shop(3).at(1, EndpointSlice=h.endpoints("web-0")).end()
    assert [v.message for v in i.i1_services_stay_up(log)] == ["1 ready endpoints, its floor is 2"]


def test_i1_takes_the_floor_of_the_users_budget() -> None:
    generous = h.budget(minAvailable="30%")
    log = shop(3, PodDisruptionBudget=generous).at(1, EndpointSlice=h.endpoints("web-0")).end()
    assert i.i1_services_stay_up(log) == []
    strict = h.budget(minAvailable=3)
    story = shop(3, PodDisruptionBudget=strict)
    log = story.at(1, EndpointSlice=h.endpoints("web-0", "web-1")).end()
    assert len(i.i1_services_stay_up(log)) == 1


def test_i1_lets_a_guard_of_ours_not_loosen_the_floor() -> None:
    guard = h.budget("kubeops-guard-x", maxUnavailable=3)
    story = shop(3).at(1, PodDisruptionBudget=guard)
    assert len(i.i1_services_stay_up(story.at(2, EndpointSlice=h.endpoints("web-0")).end())) == 1


def test_i1_spares_what_was_down_before_what_is_scaled_to_zero_and_what_has_consent() -> None:
    down = Story().before(Deployment=h.deployment(), Service=h.service(), EndpointSlice=h.endpoints())
    assert i.i1_services_stay_up(down.at(1, EndpointSlice=h.endpoints()).end()) == []
    ended = shop().at(1, Deployment=h.deployment(replicas=0))
    assert i.i1_services_stay_up(ended.at(2, EndpointSlice=h.endpoints()).end()) == []
    dark = shop().at(2, EndpointSlice=h.endpoints()).end()
    assert i.i1_services_stay_up(dark, [("Deployment", "shop", "web")]) == []
    agreed = h.deployment(notes={"maintenance.kubeops.io/allow-interruption": "true"})
    story = Story().before(Deployment=agreed, Service=h.service(), EndpointSlice=h.endpoints("web-0"))
    assert i.i1_services_stay_up(story.at(1, EndpointSlice=h.endpoints()).end()) == []


def test_i1_tells_of_each_fall_once() -> None:
    story = shop().at(1, EndpointSlice=h.endpoints()).at(2, EndpointSlice=h.endpoints())
    story.at(3, EndpointSlice=h.endpoints("a")).at(4, EndpointSlice=h.endpoints())
    assert [round(v.at) for v in i.i1_services_stay_up(story.end())] == [1, 4]


def test_i2_holds_while_pods_go_one_at_a_time() -> None:
    story = shop(3, PodDisruptionBudget=h.budget(maxUnavailable=1))
    story.at(1, Pod=h.pod("web-0", ending=True)).at(2, Pod=h.pod("web-9", node="n2"))
    assert i.i2_budgets_are_kept(story.at(3, Pod=h.pod("web-1", ending=True)).end()) == []


@pytest.mark.parametrize("lost", [{"ending": True}, {"ready": False}])
def test_i2_names_the_budget_that_was_broken(lost: dict[str, Any]) -> None:
    story = shop(3, PodDisruptionBudget=h.budget(maxUnavailable=1))
    story.at(1, Pod=h.pod("web-0", **lost)).at(2, Pod=h.pod("web-1", **lost))
    (found,) = i.i2_budgets_are_kept(story.end())
    assert (found.kind, found.name, round(found.at)) == ("PodDisruptionBudget", "web", 2)
    assert found.message == "1 healthy pods, it wants 2"


def test_i2_does_not_hold_the_surge_against_the_budget() -> None:
    story = shop(2, PodDisruptionBudget=h.budget(minAvailable="100%"))
    story.at(1, Deployment=h.deployment(replicas=3), Pod=h.pod("web-2", ready=False))
    story.at(3, Pod=h.pod("web-2")).at(4, Pod=h.pod("web-0", ending=True))
    assert i.i2_budgets_are_kept(story.end()) == []


def test_i2_judges_a_budget_that_came_during_the_run_and_not_one_that_was_broken_before() -> None:
    story = shop(2).at(1, PodDisruptionBudget=h.budget("kubeops-guard-x", maxUnavailable=1))
    story.at(2, Pod=h.pod("web-0", ending=True)).at(3, Pod=h.pod("web-1", ending=True))
    assert len(i.i2_budgets_are_kept(story.end())) == 1
    broken = shop(1, PodDisruptionBudget=h.budget(minAvailable=1))
    broken.before(Pod=h.pod("web-0", ready=False))
    assert i.i2_budgets_are_kept(broken.at(1, Pod=h.pod("web-0", ready=False)).end()) == []


def test_i3_holds_when_all_went_back() -> None:
    story = shop().at(1, Node=h.node(step="cordoned", unschedulable=True))
    changed = h.node()
    changed["metadata"].update(resourceVersion="99", generation=4, managedFields=[{}])
    changed["status"] = {"phase": "Running"}
    assert i.i3_all_as_before(story.at(2, Node=changed).end()) == []


TAINTS: list[Json] = [
    {"key": "b", "effect": "NoSchedule"},
    {"key": "a", "effect": "NoExecute", "timeAdded": 1},
]


@pytest.mark.parametrize(
    ("kind", "was", "now", "message"),
    [
        ("Node", h.node(), h.node(unschedulable=True), "spec.unschedulable was None, is True"),
        ("Node", h.node(taints=TAINTS), h.node(taints=TAINTS[::-1]), "spec.taints was"),
        ("Node", h.node(unschedulable=True), h.node(), "spec.unschedulable was True, is None"),
        ("Deployment", h.deployment(), h.deployment(replicas=2), "spec.replicas was 1, is 2"),
        (
            "Deployment",
            h.deployment(),
            h.deployment(notes={"x": "y"}),
            "metadata.annotations was None",
        ),
        (
            "PodDisruptionBudget",
            h.budget(minAvailable=1),
            h.budget(minAvailable="1"),
            "was 1, is '1'",
        ),
    ],
)
def test_i3_names_the_field_that_is_not_as_before(kind: str, was: Json, now: Json, message: str) -> None:
    (found,) = i.i3_all_as_before(Story().before(**{kind: was}).at(1, **{kind: now}).end())
    assert (found.rule, found.kind, found.name) == ("I3", kind, was["metadata"]["name"])
    assert message in found.message


def test_i3_notices_a_time_added_that_changed() -> None:
    late = [TAINTS[0], {**TAINTS[1], "timeAdded": 2}]
    log = Story().before(Node=h.node(taints=TAINTS)).at(1, Node=h.node(taints=late)).end()
    assert len(i.i3_all_as_before(log)) == 1


def test_i3_spares_what_the_node_controller_sets_by_the_number_of_nodes() -> None:
    node = h.node()
    kept, lost = {"mine": "1", "node.alpha.kubernetes.io/ttl": "15"}, {"node.alpha.kubernetes.io/ttl": "15"}
    story = Story().before(Node={**node, "metadata": {**node["metadata"], "annotations": {"mine": "1"}}})
    story.at(1, Node={**node, "metadata": {**node["metadata"], "annotations": kept}})
    assert i.i3_all_as_before(story.end()) == []
    story.at(2, Node={**node, "metadata": {**node["metadata"], "annotations": lost}})
    assert len(i.i3_all_as_before(story.end())) == 1


def test_i3_notices_an_object_that_is_gone() -> None:
    log = Story().before(PodDisruptionBudget=h.budget()).gone(1, "PodDisruptionBudget", "web").end()
    assert [v.message for v in i.i3_all_as_before(log)] == ["is gone"]


def test_i3_wants_others_changes_kept_and_nothing_else_changed() -> None:
    foreign = [i.Foreign("Node", "", "n1", ("spec", "unschedulable"), True)]
    kept = Story().before(Node=h.node()).at(1, Node=h.node(unschedulable=True)).end()
    assert i.i3_all_as_before(kept, foreign) == []
    lost = Story().before(Node=h.node()).at(1, Node=h.node()).end()
    assert len(i.i3_all_as_before(lost, foreign)) == 1
    removed = [i.Foreign("Node", "", "n1", ("spec", "unschedulable"), None)]
    story = Story().before(Node=h.node(unschedulable=True)).at(1, Node=h.node())
    assert i.i3_all_as_before(story.end(), removed) == []


def test_i3_lets_a_replicaset_follow_the_deployment_that_somebody_scaled() -> None:
    story = Story().before(Deployment=h.deployment(), ReplicaSet=h.replica_set())
    story.at(1, Deployment=h.deployment(replicas=3), ReplicaSet=h.replica_set(replicas=3))
    foreign = [i.Foreign("Deployment", "shop", "web", ("spec", "replicas"), 3)]
    assert i.i3_all_as_before(story.end(), foreign) == []
    assert len(i.i3_all_as_before(story.end())) == 2


def test_i3_leaves_the_count_under_an_autoscaler_to_it() -> None:
    scaler: Json = {
        "metadata": h.meta("web"),
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 1},
    }
    story = Story().before(Deployment=h.deployment(), HorizontalPodAutoscaler=scaler)
    assert i.i3_all_as_before(story.at(1, Deployment=h.deployment(replicas=3)).end()) == []
    raised = {**scaler, "spec": {**scaler["spec"], "minReplicas": 2}}
    assert len(i.i3_all_as_before(story.at(2, HorizontalPodAutoscaler=raised).end())) == 1


def test_i3_leaves_the_count_that_a_replica_set_notes_to_the_autoscaler_too() -> None:
    scaler: Json = {
        "metadata": h.meta("web"),
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 1},
    }

    def noted(count: int) -> Json:
        made = h.replica_set(replicas=count)
        made["metadata"]["annotations"] = {"deployment.kubernetes.io/desired-replicas": str(count)}
        return made

    for kinds, differences in (({"HorizontalPodAutoscaler": scaler}, 0), ({}, 2)):
        story = Story().before(Deployment=h.deployment(), ReplicaSet=noted(1), **kinds)
        assert len(i.i3_all_as_before(story.at(1, ReplicaSet=noted(2)).end())) == differences


LABELLED = h.budget("mine")
LABELLED["metadata"]["labels"] = {"app.kubernetes.io/managed-by": "kubeops.node_maintenance"}
PRICED = h.pod("web-7", annotations={"controller.kubernetes.io/pod-deletion-cost": "-2147483648"})
MARKED = h.deployment(notes={"maintenance.kubeops.io/anything": "x"})
TAINTED = h.node(taints=[{"key": "maintenance.kubeops.io/in-progress", "effect": "NoSchedule"}])


@pytest.mark.parametrize(
    ("kind", "obj"),
    [
        ("PodDisruptionBudget", h.budget("kubeops-guard-123")),
        ("PodDisruptionBudget", LABELLED),
        ("Lease", {"metadata": {**h.meta("node-n1"), "namespace": "kubeops-node-maintenance"}}),
        ("SharedLease", {"metadata": {**h.meta("node-n1"), "namespace": "medik8s-leases"}}),
        ("Lease", {"metadata": {**h.meta("surge-1"), "namespace": "kubeops-node-maintenance"}}),
        ("ConfigMap", {"metadata": {**h.meta("run-1"), "namespace": "kubeops-node-maintenance"}}),
        ("Node", h.node(step="parked")),
        ("Node", TAINTED),
        ("Deployment", MARKED),
        ("Pod", PRICED),
    ],
)
def test_i3_names_what_was_left_behind(kind: str, obj: Json) -> None:
    found = i.i3_all_as_before(Story().before().at(1, **{kind: obj}).end())
    assert [(v.kind, v.name) for v in found] == [(kind, obj["metadata"]["name"])]


def test_i3_accepts_what_was_there_before_the_run() -> None:
    old = h.node(step="parked", unschedulable=True)
    assert i.i3_all_as_before(Story().before(Node=old, Pod=PRICED).at(1, Pod=PRICED).end()) == []


def evict(name: str, second: float, code: int = 201, verb: str = "create") -> Request:
    sub = "eviction" if verb == "create" else ""
    return Request(5000 + second, "x", "", verb, "pods", sub, "shop", name, code, "/api/v1")


def test_i4_holds_when_refused_evictions_are_tried_again() -> None:
    log = shop().end()
    requests = [evict("web-0", 1, 429), evict("web-0", 2, 429), evict("web-0", 3)]
    assert i.i4_moved_once(log, requests) == []


def test_i4_names_the_pod_that_was_ended_twice() -> None:
    log = shop().end()
    (found,) = i.i4_moved_once(log, [evict("web-0", 1), evict("web-0", 4, verb="delete")])
    assert (found.name, round(found.at)) == ("web-0", 4)


def test_i4_tells_pods_of_one_name_apart_by_their_uid() -> None:
    first = h.pod("db-0", "db", owner=("StatefulSet", "db"), uid="one")
    second = h.pod("db-0", "db", owner=("StatefulSet", "db"), uid="two", node="n2")
    story = Story().before(Pod=first).gone(2, "Pod", "db-0").at(3, Pod=second)
    assert i.i4_moved_once(story.end(), [evict("db-0", 1), evict("db-0", 5)]) == []
    assert len(i.i4_moved_once(story.end(), [evict("db-0", 4), evict("db-0", 5)])) == 1


def test_i7_holds_on_an_empty_node_and_after_it_is_given_back() -> None:
    story = shop().gone(1, "Pod", "web-0").at(2, Node=h.node(step="drained"))
    story.at(5, Node=h.node(step="returning")).at(6, Pod=h.pod("web-8"))
    assert i.i7_drained_stays_empty(story.end()) == []


def test_i7_names_a_pod_that_was_still_there_or_came_back() -> None:
    log = shop().at(2, Node=h.node(step="drained")).end()
    assert [(v.name, round(v.at)) for v in i.i7_drained_stays_empty(log)] == [("web-0", 2)]
    story = shop().gone(1, "Pod", "web-0").at(2, Node=h.node(step="drained"))
    story.at(3, Node=h.node(step="out")).at(4, Pod=h.pod("web-8"))
    assert [(v.name, round(v.at)) for v in i.i7_drained_stays_empty(story.end())] == [("web-8", 4)]
    assert i.i7_drained_stays_empty(story.end(), may_stay=[("shop", "web-8")]) == []
    assert i.i7_drained_stays_empty(story.end(), seconds=1) == []


@pytest.mark.parametrize(
    "staying",
    [
        h.pod("m", annotations={"kubernetes.io/config.mirror": "x"}),
        h.pod("d", owner=("DaemonSet", "agent")),
        h.pod("f", phase="Succeeded"),
        h.pod("t", tolerations=[{"operator": "Exists"}]),
    ],
)
def test_i7_lets_pods_stay_that_no_drain_moves(staying: Json) -> None:
    agent = {"metadata": h.meta("agent"), "spec": {}}
    story = Story().before(Node=h.node(), Pod=staying, DaemonSet=agent)
    assert i.i7_drained_stays_empty(story.at(1, Node=h.node(step="drained")).end()) == []


def test_i7_counts_the_pod_of_a_daemonset_that_is_gone() -> None:
    story = Story().before(Node=h.node(), Pod=h.pod("d", owner=("DaemonSet", "agent")))
    assert len(i.i7_drained_stays_empty(story.at(1, Node=h.node(step="drained")).end())) == 1


def test_a_log_with_a_hole_or_without_an_end_is_no_proof() -> None:
    assert i.unseen(shop().end()) == []
    whole = shop().end().events
    gap = Event("Pod", "GAP", 9, 103.0, 5003.0, {})
    assert [v.kind for v in i.unseen(log_of([*whole, gap]))] == ["Pod"]
    endless = [event for event in whole if event.type != "END"]
    assert [v.message for v in i.unseen(log_of(endless))] == ["the log has no end"]
