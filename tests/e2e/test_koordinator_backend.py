# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes emptied by PodMigrationJobs, against the real koord-descheduler and koord-scheduler of both versions."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from support import sampling
from support.arena import Arena, Workload
from support.jobs import JOBS, PASSED, RESERVED, Jobs, left_behind
from support.koordinator import (
    DEPLOYMENT,
    NAMESPACE,
    chosen,
    configured,
    descheduler_pods,
    leads,
    migration_args,
    process,
    quickened,
    restart_api_server,
)
from support.lab import Lab
from support.plays import Player
from support.waiting import until
from support.watching import Seen, Watch
from witness.api import ApiError
from witness.log import Json

NODE_LIMIT = 6
WINDOW = 6.0


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """With windows of seconds instead of minutes, more pods of a node at a time, and single replicas admitted."""
    version = str(request.param)
    with configured(chosen(request), quickened(version, NODE_LIMIT, WINDOW)) as found:
        yield found


SCHEDULER = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments"


@contextlib.contextmanager
def scheduler_deployment(lab: Lab, replicas: int) -> Iterator[None]:
    """koord-scheduler as the chart has it: a Deployment; here with so many pods, which never get ready."""
    pod = {"nodeSelector": {"nobody": "here"}, "containers": [{"name": "main", "image": "x"}]}
    labels = {"koord-app": "koord-scheduler"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    made = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "koord-scheduler"}, "spec": spec}
    lab.api.create(SCHEDULER, made)
    try:
        yield
    finally:
        lab.api.delete(f"{SCHEDULER}/koord-scheduler")


@contextlib.contextmanager
def no_descheduler(lab: Lab) -> Iterator[None]:
    """koord-descheduler scaled down to nothing for a while."""
    lab.api.patch(DEPLOYMENT, {"spec": {"replicas": 0}})
    until(lambda: not descheduler_pods(lab), 30, "the descheduler is gone")
    try:
        yield
    finally:
        lab.api.patch(DEPLOYMENT, {"spec": {"replicas": 1}})
        until(lambda: leads(lab), 60, "the descheduler leads")


def deployment(arena: Arena, name: str, replicas: int, **more: Any) -> Workload:
    return arena.deployment(name, replicas, pod=RESERVED, **more)


@dataclass
class InFlightJob:
    """A job as it was seen; times are seconds on one clock. `passed_late`: it ran before it had passed arbitration."""

    pod: str
    created: float
    evicted: float = 0.0
    ended: float = 0.0
    reason: str = ""
    passed_late: bool = False
    reservation: str = ""
    node: str = ""

    @property
    def workload(self) -> str:
        return "-".join(self.pod.split("-")[:2])


class Flights:
    """Follows the arena's jobs while a `with` lasts."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.known: dict[str, InFlightJob] = {}
        self.most: Counter[str] = Counter()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def __enter__(self) -> Flights:
        self._thread.start()
        return self

    def __exit__(self, *_unused: object) -> None:
        self._stop.set()
        self._thread.join(10)

    def _look(self) -> None:
        """By a watch: the last job is deleted in the moment of its end."""
        version, jobs = self._list()
        while not self._stop.is_set():
            with contextlib.suppress(ApiError, OSError, http.client.HTTPException):
                for event in self.arena.api.watch(JOBS, version, 2.0):
                    job = event["object"]
                    if event["type"] == "ERROR":
                        version, jobs = self._list()
                        break
                    version = job["metadata"]["resourceVersion"]
                    if event["type"] == "DELETED":
                        jobs.pop(job["metadata"]["name"], None)
                    elif event["type"] in ("ADDED", "MODIFIED") and self._mine(job):
                        jobs[job["metadata"]["name"]] = job
                    self._note(list(jobs.values()), time.monotonic())

    def _list(self) -> tuple[str, dict[str, Json]]:
        found = self.arena.api.get(JOBS)
        mine = {job["metadata"]["name"]: job for job in found["items"] if self._mine(job)}
        return found["metadata"]["resourceVersion"], mine

    def _mine(self, job: Json) -> bool:
        return bool(job["spec"]["podRef"]["namespace"] == self.arena.name)

    def _note(self, jobs: list[Json], now: float) -> None:
        active: Counter[str] = Counter()
        for job in jobs:
            status, meta = job.get("status") or {}, job["metadata"]
            flight = self.known.setdefault(meta["name"], InFlightJob(job["spec"]["podRef"]["name"], now))
            phase, passed = status.get("phase", ""), PASSED in (meta.get("annotations") or {})
            flight.passed_late |= phase == "Running" and not passed
            flight.reservation = (job["spec"].get("reservationOptions") or {}).get("reservationRef", {}).get("name", "")
            flight.node = status.get("nodeName", "")
            if any(condition["type"] == "Eviction" for condition in status.get("conditions") or []):
                flight.evicted = flight.evicted or now
            else:
                active["on the node"] += phase == "Running"
            if phase in ("Succeeded", "Failed"):
                flight.ended = flight.ended or now
                flight.reason = status.get("reason") or phase
            else:
                active[flight.workload] += 1
        for key, count in active.items():
            self.most[key] = max(self.most[key], count)

    @property
    def all(self) -> list[InFlightJob]:
        """In the order of their creation."""
        return sorted(self.known.values(), key=lambda flight: flight.created)

    @property
    def makespan(self) -> float:
        return max(flight.ended for flight in self.all) - self.all[0].created

    def at_best(self, window: float) -> float:
        """How long the same jobs, each as fast as it was, had taken if each had begun the moment it was admitted."""
        held: list[float] = []
        last: dict[str, tuple[float, float]] = {}
        for flight in self.all:
            ended, evicted = last.get(flight.workload, (0.0, -window))
            start = max(ended, evicted + window)
            if len(held) >= NODE_LIMIT:
                start = max(start, sorted(held)[-NODE_LIMIT])
            held.append(start + flight.evicted - flight.created)
            last[flight.workload] = start + flight.ended - flight.created, held[-1]
        return max(ended for ended, _evicted in last.values())


def written_by_us(seen: Seen, *verbs: str) -> list[str]:
    """Names of the jobs that this collection wrote with one of these verbs."""
    return [
        request.name
        for request in seen.requests
        if (request.resource, request.subresource) == ("podmigrationjobs", "")
        and request.verb in verbs
        and request.agent.startswith("kubeops.node_maintenance")
    ]


@pytest.mark.whole
@sampling.koordinator("v1.8.0")
def test_a_node_of_thirty_pods_goes_as_fast_as_arbitration_admits(arena: Arena, play: Player, watching: Watch) -> None:
    here, _there, _elsewhere = arena.nodes(3)
    with arena.placing(here):
        for i in range(6):
            deployment(arena, f"web-{i}", 3, start="1s", service=False)
        for i in range(2):
            deployment(arena, f"db-{i}", 3, start="1s", budget={"maxUnavailable": 1})
            arena.statefulset(f"set-{i}", 2, pod=RESERVED, start="1s", service=False)
        singles = [deployment(arena, f"one-{i}", 1, start="1s") for i in range(2)]
    assert len(arena.pods(on=here)) == 30
    with watching() as seen, Flights(arena) as flights:
        run = play("maintain", maintain_nodes=[here], maintain_backend="koordinator")
        assert run.ok, run.text
    seen.all_held()

    assert Counter(flight.reason for flight in flights.all) == {"Succeeded": 28}, "no timeout, no second try"
    assert all(flight.node != here and flight.reservation for flight in flights.all)
    assert not any(flight.passed_late for flight in flights.all), "none went past arbitration"
    assert len(written_by_us(seen, "create")) == 28
    reminded = written_by_us(seen, "patch", "update")
    assert all(name.startswith("set-") for name in reminded), "only for those that come back under their name"
    assert flights.most.pop("on the node") <= NODE_LIMIT
    assert set(flights.most.values()) == {1}, "one of three replicas may migrate at a time"
    # A busy machine adds to it.
    assert flights.at_best(WINDOW) >= 0.5 * flights.makespan
    assert left_behind(arena) == []

    routes = Counter(pod["route"] for pod in run.node(here, "node_drain")["pods"])
    assert routes == {"job": 28, "surge": 2}
    assert [seen.dark_seconds(single) for single in singles] == [0.0, 0.0]
    assert run.of("node_drain")[-1]["summary"]["requests"] <= 30 * 4


@sampling.koordinator("v1.7.0")
def test_descheduler_and_run_are_killed_in_the_middle(lab: Lab, arena: Arena, play: Player, watching: Watch) -> None:
    here, _there = arena.nodes(2)
    with arena.placing(here):
        for i in range(4):
            deployment(arena, f"web-{i}", 2, start="4s", budget={"maxUnavailable": 1}, service=False)
    wanted: Json = {"maintain_nodes": [here], "maintain_backend": "koordinator"}
    with watching() as seen, Flights(arena) as flights:
        first = play.start("maintain", **wanted)
        # Not in the middle of an eviction: the budget would remember that one for two minutes.
        until(lambda: sum(flight.evicted > 0 for flight in flights.all) == 4, 60, "four jobs have evicted their pods")
        time.sleep(0.3)
        os.kill(process(lab, "koord-descheduler"), signal.SIGKILL)
        first.kill_all()
        run = play("maintain", **wanted)
        assert run.ok, run.text
    seen.all_held()
    moved = Counter(flight.pod for flight in flights.all)
    assert set(moved.values()) == {1}, "nobody has two jobs"
    assert {flight.reason for flight in flights.all} == {"Succeeded"}
    assert not any(flight.passed_late for flight in flights.all)
    assert left_behind(arena) == []


@pytest.mark.whole
@sampling.koordinator("v1.7.0")
def test_the_api_server_is_restarted_in_the_middle(lab: Lab, arena: Arena, play: Player) -> None:
    """Without the witness, which loses its watches as everybody does."""
    play.may_be_refused = True
    here, _there = arena.nodes(2)
    with arena.placing(here):
        for i in range(4):
            deployment(arena, f"web-{i}", 2, start="4s", budget={"maxUnavailable": 1}, service=False)
    arena.settle()
    with Flights(arena) as flights:
        run = play.start("maintain", maintain_nodes=[here], maintain_backend="koordinator")
        until(lambda: sum(flight.evicted > 0 for flight in flights.all) >= 2, 60, "two jobs have evicted their pods")
        restart_api_server(lab)
        done = run.wait(240)
        assert done.ok, done.text
    moved = Counter(flight.pod for flight in flights.all)
    assert set(moved.values()) == {1}, "nobody has two jobs"
    assert len(moved) == 4 + 4, "all pods of the node went by jobs"
    # Its descheduler could not write any more that a job had evicted its pod.
    unwritten = [flight for flight in flights.all if flight.reason == "MissingPod" and flight.evicted]
    assert {flight.reason for flight in flights.all if flight not in unwritten} == {"Succeeded"}
    assert not any(flight.passed_late for flight in flights.all)
    assert left_behind(arena) == []


@sampling.koordinator("v1.7.0")
def test_what_no_job_can_move_is_evicted_or_refused_and_what_is_missing_is_named(
    lab: Lab, arena: Arena, play: Player
) -> None:
    here, _there = arena.nodes(2)
    arena.deployment("plain", 2, on=here, service=False)
    deployment(arena, "web", 2, on=here, service=False)
    arena.settle()

    def plan(backend: str, **more: Any) -> Json:
        answer: Json = play.module("maintenance_plan", nodes=[here], backend=backend, method="surge", **more).answer
        return answer

    def routes(answer: Json) -> set[tuple[str, str]]:
        return {(pod["name"].split("-")[0], pod["route"]) for pod in answer["pods"]}

    def codes(answer: Json) -> set[str]:
        return {finding["code"] for finding in answer["findings"]}

    by_job = plan("koordinator")
    assert routes(by_job) == {("plain", "evict"), ("web", "job")}
    [reason] = {pod["reason"] for pod in by_job["pods"] if pod["route"] == "evict"}
    assert "default-scheduler has no Reservation plugin" in reason
    assert routes(plan("auto")) == routes(by_job)
    assert routes(plan("eviction")) == {("plain", "evict"), ("web", "evict")}
    strict = plan("koordinator", fallback="fail")
    assert routes(strict) == {("plain", "refuse"), ("web", "job")}
    assert codes(strict) == {"no_job"}
    assert not strict["feasible"]

    with scheduler_deployment(lab, replicas=0):
        assert codes(plan("koordinator")) == {"no_scheduler", "unknown_scheduler"}
        unused = plan("auto")
        assert codes(unused) == {"koordinator_unused", "unknown_scheduler"}
        assert unused["feasible"]
        assert routes(unused) == {("plain", "evict"), ("web", "evict")}
        refused = play.module("node_drain", nodes=[here], method="surge", backend="koordinator", check=True)
        assert not refused.ok
        assert "no capacity can be reserved" in refused.answer["msg"]
    with no_descheduler(lab):
        assert codes(plan("koordinator")) == {"no_controller", "unknown_scheduler"}


@sampling.koordinator("v1.7.0")
def test_a_pod_waits_a_while_for_a_job_that_is_not_admitted_or_not_approved(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here, there = arena.nodes(2)
    works = [deployment(arena, name, 2, on=[here, there], start="1s") for name in ("asked", "held")]
    arena.settle()
    pods = {(pod["metadata"]["labels"]["app"], pod["spec"]["nodeName"]): pod["metadata"] for pod in arena.pods()}
    jobs = Jobs(arena.api, arena)
    try:
        asked = jobs.by_hand("ask-first", pods["asked", here], paused=True, ttl="20m")
        elsewhere = jobs.by_hand("elsewhere", pods["held", there], paused=True, ttl="20m")
        for name in (asked, elsewhere):
            jobs.until_passed(name)
        with watching() as seen:
            run = play("maintain", maintain_nodes=[here], maintain_method="surge", maintain_job_wait="8s")
            assert run.ok, run.text
        seen.all_held()
        assert [seen.dark_seconds(work) for work in works] == [0.0, 0.0]
        said = {pod["name"].split("-")[0]: pod for pod in run.node(here, "node_drain")["pods"]}
        assert run.finding("job_paused")["object"] == f"PodMigrationJob {asked}"
        for name, why in (
            ("asked", f"{asked} is paused and waits for approval: "),
            ("held", "migrate already: 1 of 2"),
        ):
            assert (said[name]["route"], said[name]["outcome"]) == ("evict", "evicted")
            assert why in said[name]["reason"]
            assert why in run.text.replace("\n", " ")
            assert 8 <= said[name]["waited_seconds"] < 30
        assert written_by_us(seen, "create", "patch", "update", "delete") == [], "no second job, and no decision"
        for name in (asked, elsewhere):
            assert jobs.find(name)["spec"]["paused"]
            assert jobs.phase(name) == ""
    finally:
        jobs.clear()


@pytest.mark.whole
@sampling.koordinator("v1.7.0")
def test_the_next_wave_and_the_next_run_know_what_the_object_limiter_remembers(
    lab: Lab, arena: Arena, play: Player
) -> None:
    window = 50.0

    def longer(config: Json) -> None:
        migration_args(config)["objectLimiters"] = {"workload": {"duration": f"{window:g}s"}}

    first, second, third = arena.nodes(3)
    deployment(arena, "web", 3, on=[first, second, third], start="1s", service=False)
    arena.settle()
    with configured(lab, longer), Flights(arena) as flights:
        run = play("maintain", maintain_nodes=[first, second], maintain_backend="koordinator")
        assert run.ok, run.text
        count = len(flights.all)
        again = play("maintain", maintain_nodes=[third], maintain_backend="koordinator")
        assert again.ok, again.text
    assert count >= 2
    assert len(flights.all) > count
    assert {flight.reason for flight in flights.all} == {"Succeeded"}
    assert max(flight.evicted - flight.created for flight in flights.all) < 15, "none waits in its place"
    times = sorted(flight.evicted for flight in flights.all)
    assert min(later - earlier for earlier, later in itertools.pairwise(times)) > window - 5
    for each in (run, again):
        assert "lets one pod of Deployment" in each.text
        assert "the next one goes at" in each.text
    assert left_behind(arena) == []


@pytest.mark.whole
@sampling.koordinator("v1.7.0")
def test_a_statefulset_of_one_is_down_no_longer_than_by_an_eviction(
    arena: Arena, play: Player, watching: Watch, record_property: Callable[[str, object], None]
) -> None:
    here, there = arena.nodes(2)
    db = arena.statefulset("db", 1, pod=RESERVED, on=here, start="2s", stop="1s")
    dark: dict[str, float] = {}
    for backend, node in (("koordinator", here), ("eviction", there)):
        with watching() as seen:
            run = play("maintain", maintain_nodes=[node], maintain_backend=backend, maintain_allow_interruption=True)
            assert run.ok, run.text
            arena.settle()
        seen.all_held(interruptible=[db])
        dark[backend] = seen.dark_seconds(db)
        record_property(f"dark_seconds_{backend}", dark[backend])
        route = {"koordinator": "job", "eviction": "evict"}[backend]
        assert run.pod("db-0")["route"] == route
    print("dark seconds", dark)
    assert dark["koordinator"] <= dark["eviction"] + 1.0
    assert left_behind(arena) == []
