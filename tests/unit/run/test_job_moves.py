# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Jobs made, followed, approved, rejected and removed, against jobs in memory.

A controller is played by what each test lets happen while the loop waits; the real one is asked on the lab.
"""

from __future__ import annotations

import copy
import typing as t
from dataclasses import dataclass, field

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.clock import Clock
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import (
    AlreadyExists,
    Conflict,
    NotFound,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs.job import (
    NO_LIMITER,
    PASSED,
    Job,
    Wish,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs.limits import Controller
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs.verdict import View
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.objects import Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.snapshot import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.job_moves import GONE, STILL, Moves
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.job_rulings import Ruling, Rulings
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.job_work import WOKEN, Work, approve
from ansible_collections.kubeops.node_maintenance.tests.unit.plan import objects
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.objects import Raw

Step = t.Callable[["World"], None]
CREATED = "2026-01-01T00:00:00Z"


class Steady(Clock):
    """Time that passes only while somebody waits."""

    def __init__(self) -> None:
        self.at = 0.0

    def now(self) -> float:
        return self.at

    def wall(self) -> str:
        return f"2026-01-01T00:{int(self.at) // 60:02d}:{int(self.at) % 60:02d}.000Z"

    def sleep(self, seconds: float) -> None:
        self.at += seconds


@dataclass
class World:
    """Jobs, Reservations and pods, as a cluster and as a board; `steps` happen one by one while somebody waits."""

    pods: list[Raw]
    clock: Steady = field(default_factory=Steady)
    jobs: dict[str, Raw] = field(default_factory=dict)
    reservations: dict[str, Raw] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    writes: list[str] = field(default_factory=list)
    rivals: int = 0

    # -- as a cluster

    def send(self, request: Request, **_options: t.Any) -> Raw:
        store = self.reservations if kinds.RESERVATIONS.plural in request.path else self.jobs
        if request.writes:
            self.writes.append(f"{request.verb} {request.resource.partition('.')[0]} {request.name}")
        if request.verb == "create":
            if request.name in store:
                raise AlreadyExists("there", request=request, status=409)
            body = copy.deepcopy(dict(request.body or {}))
            body["metadata"].update(uid=f"uid-{request.name}", resourceVersion="1", creationTimestamp=CREATED)
            body.setdefault("status", {})
            store[request.name] = body
        if request.name not in store:
            raise NotFound("not there", request=request, status=404)
        found = store[request.name]
        if request.verb == "patch":
            body = copy.deepcopy(dict(request.body or {}))
            if self.rivals:
                self.rivals -= 1
                self.touch(request.name)
            if body.get("metadata", {}).pop("resourceVersion", None) != found["metadata"]["resourceVersion"]:
                raise Conflict("changed", request=request, status=409)
            for part, values in body.items():
                for key, value in values.items():
                    known = found.setdefault(part, {})
                    known[key] = {**known.get(key, {}), **value} if isinstance(value, dict) else value
            self.touch(request.name)
        if request.verb == "delete":
            return store.pop(request.name)
        return copy.deepcopy(found)

    def touch(self, name: str) -> None:
        meta = self.jobs[name]["metadata"]
        meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)

    # -- as a board

    def snapshot(self) -> Snapshot:
        return objects.snapshot(objects.deployment("web", 2), pods=copy.deepcopy(self.pods))

    def view(self) -> View:
        return View(self.snapshot(), Controller(), list(copy.deepcopy(self.jobs).values()), self.clock.wall())

    def wait(self, seconds: float) -> None:
        if self.steps:
            self.steps.pop(0)(self)
            self.clock.sleep(0.1)
        else:
            self.clock.sleep(seconds)

    # -- what happens

    def becomes(self, name: str, passed: bool = True, **status: t.Any) -> None:
        job = self.jobs[name]
        if passed:
            job["metadata"]["annotations"][PASSED] = "true"
        job["status"] = {**job["status"], **status}
        self.touch(name)

    def pod_gone(self, name: str) -> None:
        self.pods = [pod for pod in self.pods if pod["metadata"]["name"] != name]


def world(owner: str = "ReplicaSet", *steps: Step) -> World:
    pods = [objects.pod(f"web-{i}", "n1", objects.owned(owner, "web"), requests={"cpu": "1"}) for i in (1, 2)]
    return World(pods, steps=list(steps))


def work(cluster: World, name: str = "web-1", job: str = "") -> Work:
    pod = next(Pod.of(raw) for raw in cluster.pods if raw["metadata"]["name"] == name)
    siblings = frozenset(raw["metadata"]["uid"] for raw in cluster.pods)
    return Work(pod.ref, pod, job or f"job-{name}", siblings=siblings)


def follow(
    cluster: World, *works: Work, wish: Wish | None = None, deadline: float = 100.0, check: bool = False
) -> Context:
    ctx = Context(t.cast("t.Any", cluster), check=check, clock=cluster.clock)
    Moves(ctx, works, wish or Wish(), Controller()).follow(t.cast("t.Any", cluster), deadline)
    return ctx


def ready(name: str, uid: str = "") -> Raw:
    made = objects.pod(name, "n2", objects.owned("ReplicaSet", "web"))
    made["metadata"]["uid"] = uid or f"uid-{name}"
    return made


EVICTED = [{"type": "Eviction", "status": "True"}]
ARRIVED = {"namespace": "shop", "name": "web-3", "uid": "uid-web-3"}


def succeeds(cluster: World) -> None:
    cluster.pod_gone("web-1")
    cluster.becomes(
        "job-web-1", phase="Succeeded", status="Complete", nodeName="n2", podRef=ARRIVED, conditions=EVICTED
    )


def test_a_pod_is_moved() -> None:
    cluster = world("ReplicaSet", succeeds)
    one = work(cluster)
    ctx = follow(cluster, one)
    assert one.outcome == "moved"
    assert "to node n2: Pod shop/web-3" in one.message
    assert cluster.writes == ["create podmigrationjobs job-web-1"]
    assert len(ctx.changes) == 1
    assert [event.message for event in ctx.timeline][-1] == "job job-web-1 has succeeded"
    assert one.shown()["new_pod"] == ARRIVED


def test_a_second_pod_of_the_workload_gets_its_job_when_the_first_has_moved() -> None:
    seen: list[int] = []

    def first(cluster: World) -> None:
        seen.append(len(cluster.jobs))
        succeeds(cluster)
        cluster.pods.append(ready("web-3"))

    def second(cluster: World) -> None:
        cluster.becomes(
            "job-web-2", phase="Succeeded", podRef={**ARRIVED, "name": "web-4", "uid": "4"}, conditions=EVICTED
        )

    cluster = world("ReplicaSet", first, lambda _cluster: None, second)
    works = work(cluster), work(cluster, "web-2")
    follow(cluster, *works)
    assert seen == [1], "a limit of one lets one job be made"
    assert [one.outcome for one in works] == ["moved", "moved"]


def test_a_job_that_ends_without_a_new_pod_waits_for_one_that_is_ready() -> None:
    def evicts(cluster: World) -> None:
        cluster.pod_gone("web-1")
        cluster.pods.append({**ready("web-3"), "status": {"phase": "Running"}})
        cluster.becomes("job-web-1", phase="Succeeded", conditions=EVICTED)

    def comes(cluster: World) -> None:
        cluster.pods[-1] = ready("web-3")

    cluster = world("ReplicaSet", evicts, comes)
    one = work(cluster)
    follow(cluster, one, wish=Wish("EvictDirectly"))
    assert one.outcome == "moved"
    assert one.new_pod
    assert one.new_pod.name == "web-3"

    cluster = world("ReplicaSet", evicts)
    one = work(cluster)
    follow(cluster, one, wish=Wish("EvictDirectly"), deadline=10)
    assert one.outcome == "not_ready"


def test_a_job_whose_pod_vanished_is_ended_and_its_place_given_back() -> None:
    def replaced(cluster: World) -> None:
        cluster.reservations["r"] = {"metadata": {"name": "r", "uid": "r"}, "status": {"phase": "Available"}}
        cluster.jobs["job-web-1"]["spec"]["reservationOptions"] = {"reservationRef": {"name": "r"}}
        cluster.becomes("job-web-1", phase="Running", nodeName="n2")
        cluster.pod_gone("web-1")
        cluster.pods.append(ready("web-1", "successor"))

    cluster = world("StatefulSet", replaced)
    one = work(cluster)
    follow(cluster, one)
    assert one.outcome == "gone"
    assert not one.failed
    assert cluster.clock.at >= GONE
    assert cluster.jobs["job-web-1"]["status"]["reason"] == "Rejected"
    assert cluster.reservations == {}


def test_the_job_of_a_pod_that_keeps_its_name_is_freed_of_the_limiter_once_it_has_evicted() -> None:
    def evicts(cluster: World) -> None:
        assert NO_LIMITER not in cluster.jobs["job-web-1"]["metadata"]["annotations"]
        cluster.pod_gone("web-1")
        cluster.becomes("job-web-1", phase="Running", conditions=EVICTED)

    cluster = world("StatefulSet", evicts, lambda _cluster: None, succeeds)
    one = work(cluster)
    follow(cluster, one)
    assert one.outcome == "moved"
    assert cluster.jobs["job-web-1"]["metadata"]["annotations"][NO_LIMITER] == "true"


def test_a_job_on_which_nothing_happens_is_woken_and_a_waiting_one_never_written() -> None:
    cluster = world("ReplicaSet", lambda cluster: cluster.becomes("job-web-1", phase="Running"))
    follow(cluster, work(cluster), deadline=STILL * 2.5)
    assert WOKEN in cluster.jobs["job-web-1"]["metadata"]["annotations"]
    for wish in (Wish(), Wish(paused=True)):
        cluster = world()
        one = work(cluster)
        follow(cluster, one, wish=wish, deadline=STILL * 2.5)
        assert cluster.writes == ["create podmigrationjobs job-web-1"]
        assert one.outcome == "timeout"
        assert one.cause
        assert one.cause.code == "not_arbitrated"


@pytest.mark.parametrize(("there", "outcome"), [(True, "deleted"), (False, "gone")])
def test_a_job_that_somebody_deletes(there: bool, outcome: str) -> None:
    def deletes(cluster: World) -> None:
        del cluster.jobs["job-web-1"]
        if not there:
            cluster.pod_gone("web-1")

    cluster = world("ReplicaSet", lambda cluster: cluster.becomes("job-web-1", phase="Running"), deletes)
    one = work(cluster)
    follow(cluster, one)
    assert one.outcome == outcome


def test_a_failed_job_says_why() -> None:
    cluster = world(
        "ReplicaSet", lambda cluster: cluster.becomes("job-web-1", phase="Failed", reason="ForbiddenMigratePod")
    )
    one = work(cluster)
    follow(cluster, one)
    assert (one.outcome, one.failed) == ("failed", True)
    assert one.shown()["cause"]["code"] == "forbidden"


def test_a_job_of_that_name_for_this_pod_is_adopted_and_another_is_not() -> None:
    for uid, outcome in (("uid-web-1", "moved"), ("other", "failed")):
        cluster = world("ReplicaSet", succeeds)
        one = work(cluster)
        follow(cluster, one, deadline=1)
        cluster = world("ReplicaSet", succeeds)
        made = {
            "labels": {},
            "annotations": {},
            "name": "job-web-1",
            "resourceVersion": "1",
            "creationTimestamp": CREATED,
        }
        spec = {"podRef": {"namespace": "shop", "name": "web-1", "uid": uid}}
        cluster.jobs["job-web-1"] = {"metadata": made, "spec": spec, "status": {}}
        one = work(cluster)
        follow(cluster, one)
        assert one.outcome == outcome


def ruled(cluster: World, ruling: Ruling, name: str = "job-web-1", wait: bool = True, check: bool = False) -> Work:
    one = Work(Job.of(cluster.jobs[name]).pod, name=name, raw=copy.deepcopy(cluster.jobs[name]), state="following")
    ctx = Context(t.cast("t.Any", cluster), check=check, clock=cluster.clock, by="me@here")
    Rulings(ctx, ruling, [one], "Rejected by me").carry_out(t.cast("t.Any", cluster), cluster.clock.at + 30, wait)
    return one


def prepared(paused: bool, *steps: Step, **status: t.Any) -> World:
    cluster = world()
    ctx = Context(t.cast("t.Any", cluster), clock=cluster.clock)
    Moves(ctx, [work(cluster)], Wish(paused=paused), Controller()).start()
    if status:
        cluster.becomes("job-web-1", **status)
    cluster.steps, cluster.writes = list(steps), []
    return cluster


def passes(cluster: World) -> None:
    assert cluster.writes == [], "it is not written before"
    cluster.becomes("job-web-1")


@pytest.mark.parametrize(
    ("ruling", "outcome", "writes"),
    [
        ("approved", "approved", ["patch podmigrationjobs job-web-1"]),
        ("rejected", "rejected", ["patch podmigrationjobs job-web-1"]),
        ("absent", "absent", ["patch podmigrationjobs job-web-1", "delete podmigrationjobs job-web-1"]),
    ],
)
def test_a_paused_job_is_ruled_over_once_it_has_passed(ruling: Ruling, outcome: str, writes: list[str]) -> None:
    cluster = prepared(True, passes)
    assert ruled(cluster, ruling).outcome == outcome
    assert cluster.writes == writes


@pytest.mark.parametrize("ruling", ["approved", "rejected", "absent"])
def test_a_job_that_never_passes_is_not_written(ruling: Ruling) -> None:
    for wait in (True, False):
        cluster = prepared(True)
        assert ruled(cluster, ruling, wait=wait).outcome == "still_waiting"
        assert cluster.writes == []


@pytest.mark.parametrize("ruling", ["approved", "rejected", "absent"])
def test_check_mode_writes_nothing(ruling: Ruling) -> None:
    cluster = prepared(True)
    assert ruled(cluster, ruling, check=True).outcome == ruling
    assert cluster.writes == []


def test_a_job_that_is_not_paused_is_rejected_before_it_can_begin() -> None:
    cluster = prepared(False)
    assert ruled(cluster, "rejected").outcome == "rejected"
    assert cluster.jobs["job-web-1"]["status"]["phase"] == "Failed"


@pytest.mark.parametrize(
    ("status", "ruling", "outcome"),
    [
        ({"phase": "Succeeded"}, "approved", "already_moved"),
        ({"phase": "Failed", "reason": "Timeout"}, "approved", "failed"),
        ({"phase": "Running"}, "approved", "already_approved"),
        ({"phase": "Succeeded"}, "rejected", "too_late"),
        ({"phase": "Running", "conditions": EVICTED}, "rejected", "too_late"),
        ({"phase": "Failed", "reason": "Timeout"}, "rejected", "already_rejected"),
        ({"phase": "Running", "conditions": EVICTED}, "absent", "still_waiting"),
        ({"phase": "Succeeded"}, "absent", "absent"),
    ],
)
def test_rulings_over_jobs_that_are_further(status: Raw, ruling: Ruling, outcome: str) -> None:
    assert ruled(prepared(False, **status), ruling).outcome == outcome


def test_an_approved_job_has_its_whole_ttl_from_then_on_also_against_rivals() -> None:
    cluster = prepared(True, phase="")
    cluster.clock.at, cluster.rivals = 100.0, 2
    ctx = Context(t.cast("t.Any", cluster), clock=cluster.clock)
    approve(ctx, Job.of(cluster.jobs["job-web-1"]))
    spec = cluster.jobs["job-web-1"]["spec"]
    assert (spec["paused"], spec["ttl"]) == (False, "400s")
    assert len(ctx.changes) == 1
