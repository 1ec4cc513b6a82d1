# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the real koord-descheduler does where its documents leave it open: the ground that the module stands on.

Each fact has its line in docs/docsite/rst/koordinator_jobs.rst. The jobs here are made by hand.
"""

from __future__ import annotations

import copy
import itertools
import json
import os
import signal
from collections.abc import Iterator
from datetime import datetime

import pytest
from support.arena import Arena, Workload
from support.jobs import JOBS, Jobs, is_tried, job_of, move
from support.koordinator import DEPLOYMENT, configured, leads, migration_args, process, restart_descheduler
from support.lab import Lab
from support.plays import Player
from support.waiting import steadily, until
from witness.log import Json


@pytest.fixture(scope="module")
def lab(koord: Lab) -> Lab:
    return koord


@pytest.fixture
def jobs(arena: Arena) -> Iterator[Jobs]:
    made = Jobs(arena.api, arena)
    try:
        yield made
    finally:
        made.clear()


@pytest.mark.whole
def test_arbitration(lab: Lab, arena: Arena, jobs: Jobs) -> None:
    arena.nodes(3)
    names = ("timed", "touched", "dropped", "odd")
    works = {name: jobs.deployment(name) for name in names}
    arena.settle()
    held = _apart([works[name] for name in names[:3]])
    holders = {
        name: jobs.by_hand(f"hold-{name}", jobs.named(works[name], index), paused=True, ttl="10m")
        for name, index in zip(names, held, strict=False)
    }
    for name in holders.values():
        jobs.until_passed(name)
    assert jobs.phase(holders["timed"]) == "", "a paused job passes arbitration and begins nothing"
    timed, touched, dropped = (
        jobs.by_hand(name, jobs.named(works[name], 1 - index), ttl="3s")
        for name, index in zip(names, held, strict=False)
    )
    odd = jobs.by_hand("odd", jobs.named(works["odd"]), mode="evictdirectly")
    steadily(lambda: not any(jobs.passed(name) for name in (timed, touched, dropped)), 2, "limits hold them")

    # K4: an update starts a job that has not passed arbitration.
    arena.api.patch(f"{JOBS}/{touched}", {"metadata": {"labels": {"touched": "yes"}}})
    until(lambda: jobs.phase(touched) != "", 5, "the update has started it")
    assert not jobs.passed(touched)

    # K5: a deleted one stays in the arbitrator's queue, which tries to write it as soon as the limit lets it pass.
    arena.api.delete(f"{JOBS}/{dropped}")
    _release(arena, holders["dropped"])

    # K1: the ttl goes by while a job waits, and ends it in the moment in which it passes.
    steadily(lambda: jobs.phase(timed) == "", 3, "its ttl is over and nothing ends it")
    _release(arena, holders["timed"])
    assert jobs.ended(timed, 10)["reason"] == "Timeout"

    # The mode is not checked: every other word is taken for ReservationFirst.
    ended = jobs.ended(odd)
    assert (ended["phase"], bool(ended.get("nodeName"))) == ("Succeeded", True)
    until(lambda: is_tried(lab, dropped), 5, "the queue still has it")


def _apart(works: list[Workload]) -> tuple[int, ...]:
    """Which of its two pods to hold of each workload: on as many nodes as can be, since only two of a node pass."""
    homes = [[pod["spec"]["nodeName"] for pod in work.pods()] for work in works]

    def nodes(chosen: tuple[int, ...]) -> int:
        return len({home[index] for home, index in zip(homes, chosen, strict=True)})

    return max(itertools.product((0, 1), repeat=len(works)), key=nodes)


def _release(arena: Arena, name: str) -> None:
    arena.api.patch(f"{JOBS}/{name}/status", {"status": {"phase": "Failed", "reason": "TestIsOver"}})


@pytest.mark.whole
def test_a_restart(lab: Lab, arena: Arena, jobs: Jobs, play: Player) -> None:
    arena.nodes(3)
    web, late = jobs.deployment("web", budget={"maxUnavailable": 0}), jobs.deployment("late")
    arena.settle()
    running = jobs.by_hand("running", jobs.named(web), ttl="5m")
    until(lambda: jobs.find(running).get("status", {}).get("nodeName"), 20, "it has a place", every=0.2)
    paused = jobs.by_hand("paused", jobs.named(late), ttl="5m", paused=True)
    jobs.until_passed(paused)
    restart_descheduler(lab)
    arena.patch("PodDisruptionBudget", "web", {"spec": {"maxUnavailable": 1}})

    steadily(lambda: jobs.phase(running) == "Running", 8, "nobody looks at the job that ran")
    call = play.module_start("pod_migration_job", name=running)
    arena.api.patch(f"{JOBS}/{paused}", {"spec": {"paused": False}})
    assert jobs.ended(paused)["phase"] == "Succeeded", "an approval is an update, and that starts it"
    run = call.wait(60)
    assert run.ok, run.text
    assert job_of(run)["outcome"] == "moved"
    assert [action for action in run.answer["actions"] if "look at" in action], "the module has woken it"


@pytest.mark.whole
def test_parts_that_are_away(lab: Lab, arena: Arena, jobs: Jobs, play: Player) -> None:
    arena.nodes(2)
    web = jobs.deployment("web")
    arena.settle()
    pod = jobs.named(web, uid=True)
    scheduler = process(lab, "koord-scheduler")
    os.kill(scheduler, signal.SIGSTOP)
    try:
        run = move(play, pod, ttl="10s")
    finally:
        os.kill(scheduler, signal.SIGCONT)
    assert (job_of(run)["reason"], job_of(run)["cause"]["code"]) == ("Timeout", "no_scheduler"), run.text
    assert "No scheduler handles Reservation" in run.text
    assert jobs.reserved() == []

    lab.api.patch(DEPLOYMENT, {"spec": {"replicas": 0}})
    try:
        until(lambda: not lab.api.get(DEPLOYMENT)["status"].get("readyReplicas"), 30, "the descheduler is away")
        run = move(play, pod)
    finally:
        lab.api.patch(DEPLOYMENT, {"spec": {"replicas": 1}})
        until(lambda: leads(lab), 60, "the descheduler leads again")
    assert run.answer["findings"][0]["code"] == "no_controller", run.text
    assert pod["uid"] in {found["metadata"]["uid"] for found in web.pods()}


@pytest.mark.whole
def test_two_profiles(lab: Lab, arena: Arena, jobs: Jobs, play: Player) -> None:
    """Both have a MigrationController: each works on every job, and one that refuses is enough."""
    here, _there, _other = arena.nodes(3)
    names = [f"web-{i}" for i in range(8)]
    works = [jobs.deployment(name, budget={"maxUnavailable": 1}) for name in names]
    refused = jobs.deployment("refused")
    arena.settle()

    def twice(config: Json) -> None:
        config["profiles"].append({**copy.deepcopy(config["profiles"][0]), "name": "second"})

    def refusing(config: Json) -> None:
        twice(config)
        migration_args(config, profile=1)["namespaces"] = {"exclude": [arena.namespace]}

    with configured(lab, refusing):
        run = move(play, jobs.named(refused, uid=True), ttl="60s")
        assert (run.ok, job_of(run)["reason"]) == (False, "ForbiddenMigratePod"), run.text
        assert "koord-descheduler, second each have a MigrationController" in run.answer["doubt"]
        plan = play.module("maintenance_plan", nodes=[here], backend="koordinator")
        assert "several_controllers" in {finding["code"] for finding in plan.answer["findings"]}
    with configured(lab, twice):
        made = [jobs.by_hand(name, jobs.named(work)) for name, work in zip(names, works, strict=True)]
        ends = {name: jobs.ended(name, 60) for name in made}
        assert {end["phase"] for end in ends.values()} == {"Succeeded"}, ends
    told: dict[str, set[str]] = {name: set() for name in made}
    for event in lab.api.items("/api/v1/namespaces/default/events"):
        if event["involvedObject"]["name"] in told:
            told[event["involvedObject"]["name"]].add(event["source"]["component"])
    assert {"koord-descheduler", "second"} in told.values(), "both worked on one job"


@pytest.mark.whole
def test_a_job_that_cannot_be_decoded(lab: Lab, arena: Arena, jobs: Jobs) -> None:
    arena.nodes(3)
    web = jobs.deployment("web")
    arena.settle()
    bad = jobs.by_hand("bad", jobs.named(web), ttl="5 minutes")
    name = jobs.by_hand("good", jobs.named(web), ttl="5m")
    try:
        steadily(lambda: jobs.phase(name) == "" and not jobs.passed(name), 6, "the good job is not worked on")
    finally:
        arena.api.delete(f"{JOBS}/{bad}")
    assert jobs.ended(name, 60)["phase"] == "Succeeded", "it goes on once the bad one is gone"


@pytest.mark.whole
def test_jobs_that_nobody_tends(lab: Lab, arena: Arena, jobs: Jobs) -> None:
    """One is over, one belongs to another descheduler, one is refused by its budget for a while."""
    arena.nodes(4)
    over, foreign = jobs.deployment("over"), jobs.deployment("foreign")
    blocked = jobs.deployment("blocked", budget={"maxUnavailable": 0})
    arena.settle()
    kept = jobs.by_hand("kept", jobs.named(over), mode="EvictDirectly", ttl="20s")
    assert jobs.ended(kept)["phase"] == "Succeeded"

    # K6: what another process of the descheduler made passes arbitration, and is not looked at.
    theirs = jobs.by_hand("theirs", jobs.named(foreign), annotations={"koordinator.sh/job-created-by": "another"})
    jobs.until_passed(theirs)
    steadily(lambda: jobs.phase(theirs) == "", 8, "nobody begins it")

    # K7: every refusal makes the next try wait longer, and nobody tells the controller that there is room.
    pod = jobs.named(blocked)
    refused = jobs.by_hand("refused", pod, mode="EvictDirectly", ttl="10m")
    until(lambda: len(_evictions(lab, pod["name"])) >= 8, 90, "the eviction was tried eight times")
    tries = _evictions(lab, pod["name"])
    gaps = [later - earlier for earlier, later in itertools.pairwise(tries)]
    assert gaps[-1] > 4 * gaps[0], gaps
    arena.patch("PodDisruptionBudget", "blocked", {"spec": {"maxUnavailable": 1}})
    assert jobs.ended(refused, 120)["phase"] == "Succeeded"

    # K2: five minutes after its ttl a job is deleted; the look at them comes once a minute.
    assert jobs.find(kept), "it is there while it is young"
    until(lambda: arena.api.find(f"{JOBS}/{kept}") is None, 420, "the job was deleted", every=2.0)


def _evictions(lab: Lab, pod: str) -> list[float]:
    """When the pod's eviction was asked for."""
    found = []
    for line in lab.audit_log.read_text(encoding="utf-8").splitlines():
        if '"eviction"' in line and f'"{pod}"' in line:
            found.append(datetime.fromisoformat(json.loads(line)["requestReceivedTimestamp"]).timestamp())
    return found
