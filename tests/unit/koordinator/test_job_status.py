# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where a job stands and why it failed, from its conditions and the cluster around it."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.job_status import (
    View,
    stage,
    verdict,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import (
    PASSED,
    Job,
    JobSettings,
    manifest,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.migration_controller import Controller
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import Raw

POD = Ref("Pod", "web-1", "shop", "uid-web-1", "v1")
BEGAN, LATER = "2026-01-01T00:00:00Z", "2026-01-01T00:01:00Z"
RUNS = {"phase": "Running"}
TIMEOUT = {"phase": "Failed", "reason": "Timeout"}


def condition(kind: str, status: str, **more: str) -> Raw:
    return {"type": kind, "status": status, **more}


CREATED = condition("ReservationCreated", "True")
NO_PLACE = condition("ReservationScheduled", "False", reason="Unschedulable", message="0/3 nodes are available")
PLACE = condition("ReservationScheduled", "True")
EVICTING = condition("Eviction", "False", reason="Evicting")
EVICTED = condition("Eviction", "True", reason="EvictComplete")
UNBOUND = condition("PodBoundReservation", "False")
NOT_READY = condition("BoundPodReady", "False")


def raw(status: Raw, *conditions: Raw, **spec: t.Any) -> Raw:
    made = manifest("move", POD, JobSettings(reservation=spec.pop("reservation", "")))
    made["metadata"].update(creationTimestamp=BEGAN, annotations={PASSED: "true"} if status else {})
    made["spec"].update(spec)
    made["status"] = {**status, "conditions": list(conditions)}
    return made


def world(replicas: int = 2, scheduler: str = "koord-scheduler", there: bool = True, **more: list[Raw]) -> View:
    pods = [objects.pod(f"web-{i + 1}", "n1", objects.owned("ReplicaSet", "web")) for i in range(replicas)]
    for pod in pods:
        pod["spec"]["schedulerName"] = scheduler
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "10m"}}
    found = objects.snapshot(objects.deployment("web", replicas), pods=pods if there else pods[1:], **more)
    return View(found, Controller(), {}, LATER)


def code(job: Raw, view: View) -> str:
    found = verdict(Job.of(job), view)
    return found.code if found else ""


@pytest.mark.parametrize(
    ("job", "view", "expected"),
    [
        (raw({}), world(), "not_arbitrated"),
        (raw(RUNS, paused=True), world(), "paused"),
        (raw(RUNS), world(), "object_limiter"),
        (raw(RUNS), world(there=False), "pod_gone"),
        (raw(RUNS, condition("ReservationCreated", "False", message="no owners")), world(), "reservation_not_created"),
        (raw(RUNS, CREATED, reservation="r"), world(), "no_scheduler"),
        (raw(RUNS, CREATED, reservation="r"), world(scheduler="default-scheduler"), "scheduler"),
        (raw(RUNS, CREATED, NO_PLACE), world(), "unschedulable"),
        (raw({**RUNS, "nodeName": "n2"}, CREATED, PLACE), world(budgets=[objects.budget("b", 0)]), "budget"),
        (
            raw({**RUNS, "nodeName": "n2"}, CREATED, PLACE),
            world(budgets=[objects.budget("b", 1, healthy=2, desired=1)]),
            "",
        ),
        (raw(RUNS, mode="EvictDirectly"), world(budgets=[objects.budget("b", 0)]), "budget"),
        (raw(RUNS, EVICTING), world(), "pod_stays"),
        (raw(RUNS, EVICTED, UNBOUND), world(there=False), "not_bound"),
        (raw(RUNS, EVICTED, NOT_READY), world(there=False), "new_pod_not_ready"),
        (raw(TIMEOUT), world(), "timeout"),
        (raw(TIMEOUT, CREATED, NO_PLACE), world(), "unschedulable"),
        (raw({**TIMEOUT, "nodeName": "n2"}, CREATED, PLACE), world(budgets=[objects.budget("b", 0)]), "budget"),
        (raw({"phase": "Failed", "reason": "ForbiddenMigratePod"}), world(1), "single_replica"),
        (raw({"phase": "Failed", "reason": "ForbiddenMigratePod"}), world(), "forbidden"),
        (
            raw({"phase": "Failed", "reason": "ForbiddenMigratePod", "message": "on the same node as"}),
            world(),
            "same_node",
        ),
        (
            raw({"phase": "Failed", "reason": "ForbiddenMigratePod", "message": "is already bound by"}),
            world(),
            "reservation_used",
        ),
        (raw({"phase": "Failed", "reason": "MissingPod"}), world(there=False), "pod_gone"),
        (raw({"phase": "Failed", "reason": "MissingReservation"}), world(), "reservation_gone"),
        (raw({"phase": "Failed", "reason": "ReservationExpired"}), world(), "reservation_expired"),
        (raw({"phase": "Failed", "reason": "Unschedulable"}), world(), "unschedulable"),
        (raw({"phase": "Failed", "reason": "InvalidPodRef"}), world(), "invalid_pod_ref"),
        (raw({"phase": "Failed", "reason": "Rejected", "message": "Rejected by me"}), world(), "rejected"),
        (raw({"phase": "Failed", "reason": "Other"}), world(), "failed"),
        (raw({"phase": "Aborted"}), world(), "failed"),
        (raw({"phase": "Succeeded"}), world(), ""),
    ],
)
def test_the_verdict(job: Raw, view: View, expected: str) -> None:
    assert code(job, view) == expected


@pytest.mark.parametrize(("finalizers", "told"), [([], ""), (["a/b", "c"], "with finalizers a/b, c")])
def test_a_pod_that_stays_is_told_with_what_holds_it(finalizers: list[str], told: str) -> None:
    view = world()
    pods = tuple(replace(one, finalizers=tuple(finalizers)) for one in view.snapshot.pods)
    why = verdict(Job.of(raw(RUNS, EVICTING)), replace(view, snapshot=replace(view.snapshot, pods=pods)))
    assert why is not None
    assert ("finalizers" in why.message) is bool(finalizers)
    assert told in why.message


def test_a_limit_holds_a_job_that_waits() -> None:
    other = raw(RUNS)
    other["metadata"]["name"] = "other"
    other["spec"].update(podRef={"namespace": "shop", "name": "web-2", "uid": "uid-web-2"}, deleteOptions={})
    view = world()
    assert (
        code(raw({}), View(view.snapshot, view.controller, {"other": Job.of(other)}, LATER))
        == "max_migrating_per_workload"
    )


def test_the_object_limiter_holds_a_job_that_runs() -> None:
    other = raw({"phase": "Succeeded"}, {**EVICTED, "lastTransitionTime": BEGAN})
    other["metadata"]["name"] = "other"
    owner = {"controller": {"uid": "uid-ReplicaSet-web"}}
    other["spec"].update(
        podRef={"namespace": "shop", "name": "web-0", "uid": "uid-web-0"},
        deleteOptions={},
        reservationOptions={"template": {"spec": {"owners": [owner]}}},
    )
    view = world()
    limited = verdict(Job.of(raw(RUNS)), View(view.snapshot, view.controller, {"other": Job.of(other)}, LATER))
    alone = verdict(Job.of(raw(RUNS)), view)
    assert limited
    assert alone
    assert (limited.code, alone.code) == ("object_limiter", "object_limiter")
    assert "left no trace" in alone.message
    assert "left no trace" not in limited.message


def test_nothing_is_made_up_without_the_configuration() -> None:
    view = View(world(1).snapshot, None, {}, LATER)
    assert code(raw({"phase": "Failed", "reason": "ForbiddenMigratePod"}), view) == "forbidden"
    assert code(raw(RUNS, CREATED, reservation="r"), view) == "no_scheduler"
    assert code(raw({}), view) == "not_arbitrated"


def test_a_successor_of_the_name_is_not_the_pod() -> None:
    pods = [{**objects.pod("web-1", "n2"), "metadata": {**objects.pod("web-1")["metadata"], "uid": "successor"}}]
    view = View(objects.snapshot(pods=pods), Controller(), {}, LATER)
    assert view.pod(Job.of(raw(RUNS))) is None
    assert code(raw(RUNS), view) == "pod_gone"


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        ({"phase": "Failed", "reason": "Odd", "message": "It broke."}, "failed", "The job has ended: It broke."),
        ({"phase": "Failed", "reason": "Odd"}, "failed", "The job has ended: Odd."),
        ({"phase": "Aborted"}, "failed", "The job has ended: its phase is Aborted."),
        ({"phase": "Failed"}, "rejected", "Somebody set its phase to Failed."),
    ],
)
def test_a_job_that_ended_for_an_unknown_reason_says_what_there_is(status: Raw, code: str, said: str) -> None:
    found = verdict(Job.of(raw(status)), world())
    assert found is not None
    assert (found.code, found.message) == (code, said)


@pytest.mark.parametrize(
    ("job", "words"),
    [
        (raw({}), "waits for arbitration"),
        (raw(RUNS, paused=True), "is paused and waits for approval"),
        (raw(RUNS), "has passed arbitration"),
        (raw(RUNS, CREATED), "reserves a place"),
        (raw(RUNS, CREATED, NO_PLACE), "finds no place"),
        (raw({**RUNS, "nodeName": "n2"}, CREATED, PLACE), "has a place on node n2 and evicts the pod"),
        (raw(RUNS, CREATED, PLACE, EVICTING), "waits for the pod's end"),
        (raw(RUNS, CREATED, PLACE, EVICTED), "has evicted the pod"),
        (raw(RUNS, CREATED, PLACE, EVICTED, UNBOUND), "waits for the new pod"),
        (
            raw({**RUNS, "podRef": {"namespace": "shop", "name": "new"}}, EVICTED, NOT_READY),
            "waits until the new pod shop/new is ready",
        ),
        (raw({"phase": "Succeed"}), "has succeeded"),
        (raw(TIMEOUT), "has failed (Timeout)"),
        (raw({"phase": "Failed"}), "was rejected"),
        (raw({"phase": "Failed", "reason": "Rejected", "message": "Somebody said no."}), "was rejected"),
        (raw({"phase": "Failed", "message": "odd"}), "has failed"),
        (raw({"phase": "Aborted"}), "has failed (Aborted)"),
    ],
)
def test_the_stage(job: Raw, words: str) -> None:
    assert stage(Job.of(job)) == words
