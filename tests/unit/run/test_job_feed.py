# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Jobs as they are fed and followed, with a controller that does what no lab does on demand."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.clock import Clock
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import way
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs.job import NO_LIMITER, PASSED, Job
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs.limits import Controller
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.migrate import Choices, routes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.snapshot import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run import job_feed, job_sweep
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.evict import Move
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.job_feed import JobFeed
from ansible_collections.kubeops.node_maintenance.tests.unit.plan import objects

LIMITS = Controller(object_limiters={}, max_migrating_per_node=2, max_migrating_per_workload=2)


@dataclass
class Time(Clock):
    present: float = 100.0

    def now(self) -> float:
        return self.present

    def wall(self) -> str:
        return "2026-01-01T00:10:00.000Z"


@dataclass
class Server:
    """Keeps jobs and Reservations; `refuse` is what creating one ends with."""

    jobs: dict[str, dict[str, t.Any]] = field(default_factory=dict)
    reservations: list[str] = field(default_factory=list)
    asked: list[verbs.Request] = field(default_factory=list)
    refuse: Exception | None = None

    def send(
        self, request: verbs.Request, *, fence: t.Callable[[], None] | None = None, **_times: float
    ) -> dict[str, t.Any]:
        if fence is not None:
            fence()
        self.asked.append(request)
        name = request.path.split("podmigrationjobs/")[-1].split("/")[0]
        if request.method == "POST":
            if self.refuse:
                raise self.refuse
            made = dict(t.cast("dict[str, t.Any]", request.body))
            made["metadata"] = {**made["metadata"], "uid": f"uid-{made['metadata']['name']}", "resourceVersion": "1"}
            self.jobs[made["metadata"]["name"]] = made
            return made
        if request.method == "GET":
            return self.jobs[name]
        if request.method == "PATCH":
            body = t.cast("dict[str, t.Any]", request.body)
            self.change(name, body.get("status") or {}, **(body["metadata"].get("annotations") or {}))
            return self.jobs[name]
        self.jobs.pop(name, None)
        return {}

    def items(self, kind: t.Any, **_selectors: t.Any) -> t.Any:
        @dataclass
        class Listing:
            items: list[dict[str, t.Any]]

        del kind
        return Listing([{"metadata": {"name": name, "uid": name}} for name in self.reservations])

    def change(self, name: str, status: dict[str, t.Any], **annotations: str) -> None:
        job = self.jobs[name]
        meta = job["metadata"]
        meta = {**meta, "resourceVersion": str(int(meta["resourceVersion"]) + 1)}
        meta["annotations"] = {**meta["annotations"], **annotations}
        self.jobs[name] = {**job, "metadata": meta, "status": {**job.get("status", {}), **status}}

    def sent(self, method: str) -> list[verbs.Request]:
        return [request for request in self.asked if request.method == method]


class World:
    """Deployment `web` of nine with pods on node n1, and the feed that is to empty it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int = 3, **choices: t.Any) -> None:
        self.server, self.clock = Server(), Time()
        server = self.server

        class Watch:
            def __init__(self, *_unused: t.Any) -> None:
                self.started = False

            def start(self) -> None:
                self.started = True

            def look(self) -> t.Any:
                raws = tuple(server.jobs.values())
                return raws, {job.name: job for job in map(Job.of, raws)}

        monkeypatch.setattr(job_feed, "JobWatch", Watch)
        self.pods = [
            objects.pod(f"web-{i}", owner=objects.owned("ReplicaSet", "web"), requests={"cpu": "10m"})
            for i in range(count)
        ]
        for raw in self.pods:
            raw["spec"]["schedulerName"] = "koord-scheduler"
        self.ctx = Context(t.cast("t.Any", self.server), clock=self.clock)
        self.choices = Choices(**{"backend": "koordinator", "controller": LIMITS, **choices})
        self.feed = self.fresh()
        self.moves = [Move(p, "waiting", 0.0, reason=p.reason) for p in routes(self.snapshot(), {"n1"}, self.choices)]

    def fresh(self) -> JobFeed:
        made = JobFeed(self.ctx, self.choices, lambda: None, lambda: None, {"n1": "r1"})
        made.start()
        return made

    def snapshot(self) -> Snapshot:
        return objects.snapshot(objects.deployment("web", 9), pods=self.pods)

    def step(self, seconds: float = 1.0) -> list[str]:
        """A tick of the loop; returns the pods that have jobs."""
        self.clock.present += seconds
        self.feed.step(self.snapshot(), self.moves)
        return [raw["spec"]["podRef"]["name"] for raw in self.server.jobs.values()]

    def job(self, pod: str) -> str:
        return next(name for name, raw in self.server.jobs.items() if raw["spec"]["podRef"]["name"] == pod)

    def gone(self, pod: str) -> None:
        self.pods = [raw for raw in self.pods if raw["metadata"]["name"] != pod]
        next(m for m in self.moves if m.pod.name == pod).end("gone", "migrated", self.clock.now())


EVICTING = {"type": "Eviction", "status": "False"}


def test_as_many_as_admitted_with_uid_run_node_and_a_ttl(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch)
    assert world.step() == ["web-0", "web-1"]
    assert world.step() == ["web-0", "web-1"]
    made = world.server.jobs[world.job("web-0")]
    assert made["spec"]["deleteOptions"]["preconditions"] == {"uid": "uid-web-0"}
    assert made["spec"]["ttl"] == "170s"
    assert made["metadata"]["labels"][way.POLICY] == "Eviction"
    assert made["metadata"]["labels"][f"{names.PREFIX}/run"] == "r1"
    assert made["metadata"]["annotations"][names.SERVES_NODES] == "n1"
    assert world.moves[2].blocked_by is not None
    assert "maxMigratingPerNode is 2" in world.moves[2].blocked_by["message"]
    world.gone("web-0")
    world.server.change(world.job("web-0"), {"phase": "Succeeded"})
    assert world.step() == ["web-0", "web-1", "web-2"]


def test_a_job_that_waits_for_arbitration_is_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, 1)
    world.step()
    for _tick in range(100):
        world.step()
    assert world.server.sent("PATCH") == []
    assert world.server.sent("DELETE") == []


def test_a_run_that_takes_over_makes_no_second_job(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, 1)
    world.step()
    world.server.change(world.job("web-0"), {"phase": "Running"}, **{PASSED: "true"})
    world.feed = world.fresh()
    world.step()
    assert len(world.server.sent("POST")) == 1
    for _tick in range(5):
        world.step()
    assert len(world.server.sent("PATCH")) == 1, "its controller may be another one by now: it is reminded soon"


def test_silence_after_arbitration_is_broken_now_and_then(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, 1)
    world.step()
    world.server.change(world.job("web-0"), {"phase": "Running"}, **{PASSED: "true"})
    for _tick in range(45):
        world.step()
    assert len(world.server.sent("PATCH")) == 2


@pytest.mark.parametrize(("fallback", "state", "route"), [("eviction", "waiting", "evict"), ("fail", "failed", "job")])
def test_a_job_that_fails_is_explained_and_falls_back(
    monkeypatch: pytest.MonkeyPatch, fallback: str, state: str, route: str
) -> None:
    world = World(monkeypatch, 1, fallback=fallback)
    world.step()
    world.pods[0]["spec"]["volumes"] = [{"name": "scratch", "emptyDir": {}}]
    message = "Pod is forbidden to migrate because it does not meet the requirements"
    world.server.change(world.job("web-0"), {"phase": "Failed", "reason": "ForbiddenMigratePod", "message": message})
    world.step()
    move = world.moves[0]
    assert (move.state, move.plan.route) == (state, route)
    assert "It has local volumes" in move.reason
    world.step()
    assert len(world.server.sent("POST")) == 1


def test_after_two_jobs_that_no_scheduler_answered_no_more_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, 3)
    world.step()
    for pod in ("web-0", "web-1"):
        conditions = [{"type": "ReservationCreated", "status": "True"}]
        status = {"phase": "Failed", "reason": "Timeout", "conditions": conditions}
        world.server.change(world.job(pod), status, **{PASSED: "true"})
    world.step()
    world.step()
    assert [move.plan.route for move in world.moves] == ["evict", "evict", "evict"]
    assert "got no answer from their scheduler" in world.moves[2].reason


def test_a_controller_that_never_ends_a_job_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, 1)
    world.step()
    world.step(170 + job_sweep.OVERDUE + 1)
    assert world.moves[0].plan.route == "evict"
    [status] = [r for r in world.server.sent("PATCH") if r.path.endswith("/status")]
    assert t.cast("t.Any", status.body)["status"]["phase"] == "Failed"
    assert world.server.jobs == {}, "ended first, deleted then"


@pytest.mark.parametrize("error", [errors.Forbidden, errors.NotFound])
def test_jobs_that_may_not_be_made_are_not_tried_again(monkeypatch: pytest.MonkeyPatch, error: t.Any) -> None:
    world = World(monkeypatch, 2)
    world.server.refuse = error("no")
    world.step()
    world.step()
    assert [move.plan.route for move in world.moves] == ["evict", "evict"]
    assert len(world.server.sent("POST")) <= 2


def test_what_served_is_swept_and_what_a_killed_run_left_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, 2)
    world.step()
    done, left = world.job("web-0"), world.job("web-1")
    for pod in ("web-0", "web-1"):
        world.gone(pod)
    world.server.change(done, {"phase": "Succeeded"})
    world.server.change(left, {"phase": "Running", "conditions": [EVICTING]}, **{PASSED: "true"})
    world.server.reservations = [f"uid-{done}"]
    # Another process: it knows nothing of the pods that left before it began.
    world.feed, world.moves = world.fresh(), []
    for _tick in range(5):
        world.step()
        assert not world.feed.done_with("n1")
    assert NO_LIMITER in world.server.jobs[left]["metadata"]["annotations"]
    assert world.feed.done_with("n2"), "it serves another node"
    world.server.change(left, {"phase": "Succeeded"})
    for _tick in range(3):
        world.step()
        assert not world.feed.done_with("n1")
    assert world.server.jobs == {}
    world.server.reservations = []
    world.step()
    assert world.feed.done_with("n1")


def test_a_reservation_that_nobody_deletes_is_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, 1)
    world.step()
    name = world.job("web-0")
    world.gone("web-0")
    world.server.change(name, {"phase": "Succeeded"})
    world.server.reservations = [f"uid-{name}"]
    for _tick in range(10):
        world.step()
        assert not world.feed.done_with("n1")
    assert [r.path.rsplit("/", 1)[-1] for r in world.server.sent("DELETE")][-1] == f"uid-{name}"


def test_jobs_of_a_node_that_is_given_back_are_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, 2)
    world.step()
    evicting = world.job("web-1")
    world.server.change(evicting, {"phase": "Running", "conditions": [EVICTING]}, **{PASSED: "true"})
    world.feed.abandon("n1", "time is up")
    assert list(world.server.jobs) == [evicting], "nothing undoes an eviction"
    assert not world.feed.flying("n1")
