# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""PodMigrationJobs made, approved, rejected and removed, against the real koord-descheduler and koord-scheduler."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml
from support import rights
from support.arena import Arena
from support.jobs import JOBS, KOORD, RESERVATIONS, Jobs, is_tried, job_of, move, release
from support.lab import Lab
from support.plays import Player
from support.waiting import steadily, until
from witness.log import Json

# The Deployment of Koordinator's quick start; there it has one replica, which Koordinator itself refuses to move.
QUICK_START = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: pod-demo
spec:
  progressDeadlineSeconds: 600
  replicas: 2
  revisionHistoryLimit: 10
  selector:
    matchLabels:
      app: pod-demo
  strategy:
    rollingUpdate:
      maxSurge: 25%
      maxUnavailable: 25%
    type: RollingUpdate
  template:
    metadata:
      creationTimestamp: null
      labels:
        app: pod-demo
        name: stress
    spec:
      containers:
        - args: ["-c", "1"]
          command: [stress]
          image: polinux/stress
          imagePullPolicy: Always
          name: stress
          resources:
            limits:
              cpu: "2"
              memory: 4Gi
            requests:
              cpu: 200m
              memory: 400Mi
      restartPolicy: Always
      schedulerName: koord-scheduler
"""

EVENTS = ["ReservationCreated", "ReservationScheduled", "Evicting", "EvictComplete", "Complete"]
"""Those of the document, in its order; version 1.7.0 makes some more."""


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


def test_the_documents_quick_start(lab: Lab, arena: Arena, jobs: Jobs, play: Player) -> None:
    arena.nodes(2)
    demo = arena.create("Deployment", yaml.safe_load(QUICK_START))
    arena.settle()
    pod = jobs.named(demo, uid=True)
    name = f"{arena.name}-demo"

    predicted = move(play, pod, name=name, ttl="5m", check=True, diff=True)
    assert predicted.answer["changed"]
    assert job_of(predicted)["outcome"] == "moved"
    assert arena.api.find(f"{JOBS}/{name}") is None

    run = move(play, pod, name=name, ttl="5m")
    assert run.ok, run.text
    assert run.answer["actions"] == predicted.answer["actions"]
    job = job_of(run)
    assert (job["outcome"], job["phase"], job["status"]) == ("moved", "Succeeded", "Complete")
    assert job["node"] not in ("", job["pod"]["node"])
    assert job["reservation"]
    [new] = [found for found in demo.pods() if found["metadata"]["uid"] == job["new_pod"]["uid"]]
    assert new["spec"]["nodeName"] == job["node"], "the new pod is where its place was reserved"
    assert f"job {name} has succeeded" in run.text

    shown = lab.run_kubectl("get", "podmigrationjob", name).stdout.split("\n")[1].split()
    expected = [
        "Succeeded",
        "Complete",
        job["node"],
        job["reservation"],
        arena.name,
        pod["name"],
        job["new_pod"]["name"],
    ]
    assert [word for word in shown if word in expected] == expected

    again = move(play, pod, name=name, ttl="5m")
    assert again.ok, again.text
    assert not again.answer["changed"]
    assert job_of(again)["outcome"] == "already_moved"
    by_name = move(play, {key: pod[key] for key in ("namespace", "name")}, name=name, ttl="5m")
    assert (by_name.answer["changed"], job_of(by_name)["outcome"]) == (False, "already_moved"), (
        "as the example names it"
    )
    # The descheduler writes its last event after the status that ends the first call.
    events = job_of(again)["events"]
    assert [event["reason"] for event in events if event["reason"] in EVENTS] == EVENTS
    assert {event["from"] for event in events} == {"koord-descheduler"}
    arena.api.delete(f"{JOBS}/{name}")
    later = move(play, pod, name=name, ttl="5m")
    assert job_of(later)["outcome"] == "already_moved", "its UID is gone, though nobody remembers the job"
    assert not later.answer["changed"]


def test_a_single_replica_is_refused_with_the_cause(arena: Arena, jobs: Jobs, play: Player) -> None:
    arena.nodes(2)
    web, other = jobs.deployment("web", 1), jobs.deployment("other", 2, pod={"schedulerName": "default-scheduler"})
    arena.settle()
    pod, unserved = jobs.named(web), jobs.named(other)

    run = move(play, pod, unserved)
    assert not run.ok
    job = job_of(run, pod)
    assert (job["outcome"], job["cause"]["code"]) == ("refused", "single_replica")
    assert f"Deployment {arena.name}/web has one replica" in job["cause"]["message"]
    cause = job_of(run, unserved)["cause"]
    assert cause["code"] == "scheduler"
    assert "default-scheduler" in cause["message"]
    assert not run.answer["changed"]
    assert jobs.of_pods(web) == jobs.of_pods(other) == []

    made = jobs.by_hand("by-hand", pod)
    status = jobs.ended(made)
    assert (status["phase"], status["reason"]) == ("Failed", "ForbiddenMigratePod")
    assert "one replica" not in status["message"], "this is all that Koordinator says"
    followed = play.module("pod_migration_job", name=made)
    assert job_of(followed)["cause"]["code"] == "single_replica"
    assert len(web.pods()) == 1
    assert web.pods()[0]["metadata"]["name"] == pod["name"]


@pytest.mark.whole
def test_paused_jobs_are_approved_rejected_or_left(arena: Arena, jobs: Jobs, play: Player) -> None:
    places = arena.nodes(4)
    # Paused jobs that have passed count: two from a node, and the next would wait.
    for name, place in zip(("first", "second", "third", "late"), places, strict=True):
        jobs.deployment(name, on=place)
    other = jobs.deployment("other", on=places[3])
    arena.settle()
    extra = jobs.named(other)
    works = {name: jobs.pod(arena.pods(name)[0]["metadata"]["name"]) for name in ("first", "second", "third", "late")}
    run = move(play, *works.values(), paused=True, wait=False, ttl="20s", run="confirm")
    assert run.ok, run.text
    assert {job["outcome"] for job in run.answer["jobs"]} == {"paused"}
    names = {name: job_of(run, pod)["name"] for name, pod in works.items()}
    for name in names.values():
        jobs.until_passed(name)
        assert jobs.phase(name) == ""

    again = move(play, *works.values(), paused=True, wait=False, ttl="20s", run="confirm")
    assert not again.answer["changed"], again.text
    assert {job["outcome"] for job in again.answer["jobs"]} == {"paused"}

    rejected = play.module("pod_migration_job", state="rejected", name=names["second"], reason="not tonight")
    assert rejected.ok, rejected.text
    job = job_of(rejected)
    assert (job["outcome"], job["phase"], job["reason"]) == ("rejected", "Failed", "Rejected")
    assert "not tonight" in jobs.find(names["second"])["status"]["message"]
    assert not play.module("pod_migration_job", state="rejected", name=names["second"]).answer["changed"]

    # As the document does it: its phase alone.
    waiting = play.module_start("pod_migration_job", pods=[extra], paused=True, ttl="60s")
    (by_hand,) = until(lambda: jobs.of_pods(other), 30, "the job of the call is there")
    jobs.until_passed(by_hand["metadata"]["name"])
    arena.api.patch(f"{JOBS}/{by_hand['metadata']['name']}/status", {"status": {"phase": "Failed"}})
    assert job_of(waiting.wait())["outcome"] == "rejected"

    approved = play.module("pod_migration_job", state="approved", pods=[works["first"]])
    assert approved.ok, approved.text
    assert job_of(approved)["outcome"] == "moved"
    assert approved.answer["changed"]

    # The ttl does not end a paused job, but it is over: without more of it the approval would come too late.
    until(lambda: _age(jobs, names["third"]) > 21, 25, "the ttl of the paused jobs is over", every=0.5)
    assert jobs.phase(names["third"]) == jobs.phase(names["late"]) == ""
    arena.api.patch(f"{JOBS}/{names['third']}", {"spec": {"paused": False}})
    status = jobs.ended(names["third"], 10)
    assert (status["phase"], status["reason"]) == ("Failed", "Timeout")
    approved = play.module("pod_migration_job", state="approved", name=names["late"])
    assert approved.ok, approved.text
    assert job_of(approved)["outcome"] == "moved"

    for name in ("second", "third"):
        uids = {pod["metadata"]["uid"] for pod in arena.pods(name)}
        assert works[name]["uid"] in uids, "nothing was moved"
    assert jobs.reserved() == []
    too_late = play.module("pod_migration_job", state="rejected", name=names["first"])
    assert job_of(too_late)["outcome"] == "too_late"


def _age(jobs: Jobs, name: str) -> float:
    created = datetime.datetime.fromisoformat(jobs.find(name)["metadata"]["creationTimestamp"].replace("Z", "+00:00"))
    return (datetime.datetime.now(datetime.UTC) - created).total_seconds()


@pytest.mark.whole
def test_what_ends_by_its_ttl_leaves_the_pod_and_no_reservation(arena: Arena, jobs: Jobs, play: Player) -> None:
    arena.nodes(2)
    blocked = jobs.deployment("blocked", budget={"maxUnavailable": 0})
    homeless = jobs.deployment("homeless")
    arena.settle()
    pod, other = jobs.named(blocked, uid=True), jobs.named(homeless, uid=True)
    nowhere: Json = {"spec": {"template": {"spec": {"schedulerName": "koord-scheduler"}}}}
    nowhere["spec"]["template"]["spec"]["nodeSelector"] = {"pool": "nowhere"}
    nowhere["spec"]["template"]["spec"]["containers"] = KOORD["containers"]
    calls = [
        play.module_start("pod_migration_job", pods=[pod], ttl="15s"),
        play.module_start("pod_migration_job", pods=[other], ttl="15s", reservation_template=nowhere),
    ]
    first, second = (call.wait() for call in calls)
    job = job_of(first)
    assert (job["outcome"], job["reason"], job["cause"]["code"]) == ("failed", "Timeout", "budget")
    assert "maxUnavailable: 0" in job["cause"]["message"] or "blocked" in job["cause"]["message"]
    assert job["node"], "it had a place"
    job = job_of(second)
    assert (job["outcome"], job["reason"], job["cause"]["code"]) == ("failed", "Timeout", "unschedulable")
    assert "finds no place" in second.text, "the cause is told while it waits"
    assert jobs.reserved() == []
    for workload, wanted in ((blocked, pod), (homeless, other)):
        assert wanted["uid"] in {found["metadata"]["uid"] for found in workload.pods()}


@pytest.mark.whole
def test_reservations_that_are_there_first(arena: Arena, jobs: Jobs, play: Player) -> None:
    here, there, third = arena.nodes(3)
    web, api = jobs.deployment("web", on=[here, third]), jobs.deployment("api", on=[here, third])
    same, shared = jobs.deployment("same", on=[here, third]), jobs.deployment("shared", on=[here, third])
    arena.settle()
    pods = {one.name: next(p for p in one.pods() if p["spec"]["nodeName"] == here) for one in (web, api, same, shared)}
    named = {name: {key: pod["metadata"][key] for key in ("namespace", "name", "uid")} for name, pod in pods.items()}
    owner = {name: {"controller": {**pod["metadata"]["ownerReferences"][0]}} for name, pod in pods.items()}
    for one in owner.values():
        one["controller"].pop("blockOwnerDeletion", None)
        one["controller"]["namespace"] = arena.name

    missing = move(play, named["web"], reservation=f"{arena.name}-none")
    assert not missing.ok
    assert missing.answer["findings"][0]["code"] == "unknown_reservation"
    assert jobs.of_pods(web) == []

    ready = jobs.reservation("ready", owner["web"], there)
    stuck = jobs.reservation("same", owner["same"], here)
    object_only = {"object": {"namespace": arena.name, "name": named["shared"]["name"], "uid": named["shared"]["uid"]}}
    alone = jobs.reservation("object", object_only, there)
    for name in (ready, stuck, alone):
        until(partial(_available, arena, name), 15, f"Reservation {name} is available", every=0.2)

    for name, kept, code in (
        ("same", stuck, "same_node"),
        ("shared", alone, "object_owner"),
        ("api", ready, "not_for_pod"),
    ):
        run = move(play, named[name], reservation=kept)
        assert job_of(run)["cause"]["code"] == code, run.text
        assert not run.answer["changed"]

    # What the controller does with them, so that the refusals above are not only ours.
    reference = {"reservationRef": {"name": stuck}}
    by_hand = jobs.by_hand("same", named["same"], reservationOptions=reference)
    objects = jobs.by_hand("object", named["shared"], reservationOptions={"reservationRef": {"name": alone}})
    run = move(play, named["web"], reservation=ready, ttl="40s")
    assert run.ok, run.text
    assert (job_of(run)["node"], job_of(run)["reservation"]) == (there, ready)
    assert [p["spec"]["nodeName"] for p in web.pods() if p["metadata"]["uid"] == job_of(run)["new_pod"]["uid"]] == [
        there
    ]
    assert jobs.ended(by_hand)["reason"] == "ForbiddenMigratePod"
    assert jobs.ended(objects)["phase"] == "Succeeded", "and nothing was moved"
    assert named["shared"]["uid"] in {p["metadata"]["uid"] for p in shared.pods()}

    taken = jobs.by_hand("taken", named["api"], reservationOptions={"reservationRef": {"name": ready}})
    assert "already bound by another Pod" in jobs.ended(taken)["message"]
    used = move(play, jobs.named(web, uid=True), reservation=ready)
    assert job_of(used)["cause"]["code"] == "reservation_used", used.text

    template: Json = {"spec": {"ttl": "2m", "template": {"spec": {**pods["api"]["spec"], "nodeName": there}}}}
    made = move(play, named["api"], reservation=f"{arena.name}-made", reservation_template=template, ttl="40s")
    assert made.ok, made.text
    assert job_of(made)["node"] == there
    assert "has a place on node" in made.text


def _available(arena: Arena, name: str) -> bool:
    return (arena.api.get(f"{RESERVATIONS}/{name}").get("status") or {}).get("phase") == "Available"


@pytest.mark.whole
def test_a_pod_that_is_not_there_any_more(arena: Arena, jobs: Jobs, play: Player) -> None:
    arena.nodes(3)
    web, db, kv = jobs.deployment("web"), jobs.statefulset("db"), jobs.statefulset("kv")
    arena.settle()
    gone, replaced = jobs.named(web, uid=True), jobs.named(db, uid=True)

    unknown = move(play, {"namespace": arena.name, "name": "nobody"})
    assert unknown.answer["findings"][0]["code"] == "unknown_pod"
    assert not unknown.ok

    run = move(play, gone, replaced, paused=True, wait=False)
    names = [job_of(run, pod)["name"] for pod in (gone, replaced)]
    for name in names:
        jobs.until_passed(name)
    known = {pod["metadata"]["uid"] for pod in db.pods()}
    for pod in (gone, replaced):
        arena.delete("Pod", pod["name"], gracePeriodSeconds=0)
    # The status of the StatefulSet tells of the old pod until its controller has looked.
    until(lambda: {pod["metadata"]["uid"] for pod in db.pods()} - known, 30, f"{replaced['name']} is there again")
    arena.settle()
    successor = jobs.pod(replaced["name"])
    assert successor["uid"] != replaced["uid"]
    run = play.module("pod_migration_job", state="approved", pods=[gone, replaced])
    assert run.ok, run.text
    assert {job["outcome"] for job in run.answer["jobs"]} == {"gone"}
    assert jobs.ended(names[0])["reason"] == "MissingPod"
    taken = jobs.find(names[1])
    assert taken["spec"]["podRef"]["uid"] == successor["uid"], (
        "the controller takes the pod of that name, whoever it is"
    )
    assert jobs.ended(names[1])["reason"] == "Rejected"
    assert jobs.reserved() == []
    assert jobs.pod(replaced["name"]) == successor, "it was not evicted: the job is bound to the UID of its pod"

    # A StatefulSet's pod comes back with its name and is not moved twice.
    pod = jobs.named(kv)
    first = move(play, pod)
    assert job_of(first)["outcome"] == "moved", first.text
    second = move(play, pod)
    assert job_of(second)["outcome"] == "already_moved", second.text
    assert not second.answer["changed"]


def test_pods_of_a_node_are_fed_as_they_are_admitted(arena: Arena, jobs: Jobs, play: Player) -> None:
    here, there, third = arena.nodes(3)
    for index in range(4):
        jobs.deployment(f"w{index}", on=[here, there], start="1s")
    jobs.deployment("twin", 4, on=[here, here, there, third])
    arena.settle()
    leaving = {pod["metadata"]["uid"] for pod in arena.pods(on=here) if pod["metadata"]["labels"]["app"] != "twin"}
    run = play.module(
        "pod_migration_job", nodes=[here], pod_selector="app!=twin", mode="EvictDirectly", ttl="40s", timeout="100s"
    )
    assert run.ok, run.text
    assert {job["pod"]["uid"] for job in run.answer["jobs"]} == leaving
    for job in run.answer["jobs"]:
        assert job["outcome"] == "moved"
        [new] = [p for p in arena.pods() if p["metadata"]["uid"] == job["new_pod"]["uid"]]
        conditions = {one["type"]: one["status"] for one in new["status"]["conditions"]}
        assert conditions["Ready"] == "True", "EvictDirectly ends with the old pod, the module with the new one"
    assert "no job yet: 2 pods migrate from node" in run.text, "two at once, as the controller admits"
    assert len(arena.pods("twin", on=here)) == 2


@pytest.mark.whole
def test_jobs_are_removed_after_arbitration(arena: Arena, jobs: Jobs, play: Player) -> None:
    arena.nodes(3)
    web, held = jobs.deployment("web"), jobs.deployment("held")
    arena.settle()
    pod = jobs.named(web, uid=True)
    made = move(play, pod, paused=True, wait=False)
    name = job_of(made)["name"]
    holder = jobs.by_hand("hold", jobs.named(held), paused=True, ttl="10m")
    jobs.until_passed(holder)
    waiting = jobs.by_hand("waits", jobs.named(held, 1), paused=True, ttl="10m")
    steadily(lambda: not jobs.passed(waiting), 2, "a second job of the workload waits")

    refused = play.module("pod_migration_job", state="absent", name=waiting, wait=False)
    assert job_of(refused)["outcome"] == "still_waiting", refused.text
    assert job_of(refused)["cause"]["code"] == "max_migrating_per_workload"
    assert jobs.phase(waiting) == ""

    run = play.module("pod_migration_job", state="absent", pods=[pod])
    assert job_of(run)["outcome"] == "absent", run.text
    assert arena.api.find(f"{JOBS}/{name}") is None
    assert play.module("pod_migration_job", state="absent", name=name).answer["jobs"][0]["outcome"] == "already_absent"
    lost = play.module("pod_migration_job", state="approved", name=name)
    assert job_of(lost)["outcome"] == "not_found"
    assert not lost.ok
    assert pod["uid"] in {p["metadata"]["uid"] for p in web.pods()}


@pytest.mark.whole
def test_a_job_that_waits_for_arbitration_is_rejected_once_it_has_passed(
    lab: Lab, arena: Arena, jobs: Jobs, play: Player
) -> None:
    """Before, a rejection makes the arbitrator try for ever to update the job; after, the job may be faster."""
    first, second, third, fourth = arena.nodes(4)
    homes = {"let": [first, second], "cut": [first, second], "fast": [third, fourth]}
    for name, nodes in homes.items():
        jobs.deployment(name, on=nodes, budget={"maxUnavailable": 0} if name == "let" else None)
    arena.settle()
    at = {(pod["metadata"]["labels"]["app"], pod["spec"]["nodeName"]): pod["metadata"] for pod in arena.pods()}
    holders = [jobs.by_hand(f"hold-{name}", at[name, home[0]], paused=True, ttl="10m") for name, home in homes.items()]
    for holder in holders:
        jobs.until_passed(holder)
    let, cut, fast = (jobs.by_hand(name, at[name, home[1]], ttl="10m") for name, home in homes.items())
    calls = [play.module_start("pod_migration_job", state="rejected", name=n, timeout="60s") for n in (let, fast)]
    for call in calls:
        call.until_says("waits for arbitration: 1 pods of Deployment")
    release(jobs, cut)
    steadily(lambda: not any(jobs.phase(name) or jobs.passed(name) for name in (let, fast)), 2, "nobody writes them")
    for holder in holders:
        release(jobs, holder)
    outcomes = [job_of(call.wait(60))["outcome"] for call in calls]
    until(lambda: is_tried(lab, cut), 10, "the arbitrator does not get over a job that was written too early")
    steadily(lambda: not jobs.reserved(), 4, "no place is held for a rejected job")
    assert not is_tried(lab, let)
    assert not is_tried(lab, fast)
    here = {pod["metadata"]["uid"] for pod in arena.pods()}
    moved = at["fast", fourth]["uid"] not in here
    assert outcomes == ["rejected", "too_late" if moved else "rejected"]
    assert {meta["uid"] for (name, _node), meta in at.items() if name != "fast"} <= here


def test_the_documented_roles_suffice(lab: Lab, arena: Arena, jobs: Jobs, play: Player, tmp_path: Path) -> None:
    """Those of the module alone, which let nobody evict a pod."""
    arena.nodes(2)
    web, made = jobs.deployment("web"), jobs.deployment("made")
    arena.settle()
    mover = f"mover-{arena.name}"
    login: Json = {
        "kubeconfig": str(rights.granted(arena.api, tmp_path / mover, mover, ["read", "jobs", "koordinator"]))
    }
    try:
        run = move(play, jobs.named(web), **login)
        assert job_of(run)["outcome"] == "moved", run.text
        assert run.answer["doubt"] == ""
        assert job_of(run)["events"] == [], "they may not be read, and that is all"
        pod = jobs.named(made)
        template = {"spec": {"ttl": "1m"}}
        prepared = move(
            play,
            pod,
            reservation=mover,
            reservation_template=template,
            paused=True,
            wait=False,
            **login,
        )
        assert job_of(prepared)["outcome"] == "paused", prepared.text
        gone = play.module("pod_migration_job", state="absent", pods=[pod], **login)
        assert job_of(gone)["outcome"] == "absent", gone.text
        assert jobs.reserved() == []
    finally:
        rights.revoke(arena.api, mover)
