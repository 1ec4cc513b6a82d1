# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Arguments of the MigrationController at work in the real koord-descheduler, one scene for several of them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator

import pytest
from support import shapes
from support.arena import Arena, Workload
from support.jobs import JOBS, Jobs, job_of, move, release
from support.koordinator import configured, migration_args
from support.lab import Lab
from support.plays import Player
from support.waiting import steadily, until
from witness import objects as o
from witness.log import Json

SOFT = "scheduling.koordinator.sh/soft-eviction"
POLICY = "koordinator.sh/evict-policy"
ANYWAY = {"descheduler.alpha.kubernetes.io/evict": "true"}
SCRATCH: Json = {"volumes": [{"name": "scratch", "emptyDir": {}}]}


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


@contextlib.contextmanager
def arguments(lab: Lab, **args: object) -> Iterator[None]:
    """The MigrationController with these arguments, and without an object limiter."""

    def change(config: Json) -> None:
        migration_args(config).update(objectLimiters={"workload": {"duration": "0s"}}, **args)

    with configured(lab, change):
        yield


@pytest.mark.whole
def test_skip_check_expected_replicas_holds_a_batch_jobs_pod_for_ever(
    lab: Lab, arena: Arena, jobs: Jobs, play: Player
) -> None:
    """A single replica moves; a pod without a replica count waits for ever, until its annotation admits it."""
    here, _there = arena.nodes(2)
    alone, batch = jobs.deployment("alone", 1), arena.job("batch", here)
    until(lambda: batch.pods() and o.ready(batch.pods()[0]), 30, "the batch Job's pod runs")
    arena.settle()
    with arguments(lab, skipCheckExpectedReplicas=True):
        pod = jobs.named(batch, uid=True)
        held = jobs.by_hand("held", pod, mode="EvictDirectly")
        run = move(play, jobs.named(alone, uid=True), mode="EvictDirectly", ttl="60s")
        assert job_of(run)["outcome"] == "moved", run.text
        steadily(lambda: not jobs.passed(held) and jobs.phase(held) == "", 5, "arbitration holds it, and says nothing")
        assert cause(play, held) == "unknown_workload"
        release(jobs, held)
        run = move(play, pod, mode="EvictDirectly")
        assert (job_of(run)["outcome"], job_of(run)["cause"]["code"]) == ("refused", "unknown_workload"), run.text
        assert "skipCheckExpectedReplicas does not help" in job_of(run)["cause"]["remedy"]
        arena.patch("Pod", pod["name"], {"metadata": {"annotations": ANYWAY}})
        run = move(play, pod, mode="EvictDirectly", ttl="60s")
    assert job_of(run)["phase"] == "Succeeded", "its pod is evicted, which ends this batch Job without a successor"


@pytest.mark.whole
def test_eviction_policy_soft_eviction_waits_for_a_taker_and_evict_local_storage_pods(
    lab: Lab, arena: Arena, jobs: Jobs, play: Player
) -> None:
    """SoftEviction only annotates the pod; a drain's jobs evict all the same. Pods with an emptyDir are admitted."""
    here, there = arena.nodes(2)
    soft = jobs.deployment("soft", pod=SCRATCH, on=[here, there])
    drained = jobs.deployment("drained", pod=SCRATCH, on=[here, there])
    refused = job_of(move(play, jobs.named(soft, uid=True), mode="EvictDirectly"))
    assert (refused["outcome"], refused["cause"]["code"]) == ("refused", "local_storage")
    options = {"gracePeriodSeconds": 7}
    with arguments(lab, evictionPolicy="SoftEviction", evictLocalStoragePods=True):
        (pod,) = arena.pods("soft", on=here)
        run = play.module_start(
            "pod_migration_job",
            pods=[{"namespace": arena.namespace, "name": o.name(pod), "uid": o.uid(pod)}],
            mode="EvictDirectly",
            delete_options=options,
            ttl="60s",
        )
        until(lambda: SOFT in o.notes(arena.pods("soft", on=here)[0]), 20, "the pod is annotated")
        steadily(lambda: o.uid(arena.pods("soft", on=here)[0]) == o.uid(pod), 3, "nothing else happens to it")
        asked = taken(arena, soft)
        assert asked["deleteOptions"]["gracePeriodSeconds"] == 7
        assert {"timestamp", "initiator", "reason"} <= asked.keys()
        assert job_of(run.wait(60))["outcome"] == "moved"
        assert play.module("node_cordon", nodes=[here]).ok
        assert play.module("pdb_guard", nodes=[here], method="surge").ok
        call = play.module("node_drain", nodes=[here], method="surge", backend="koordinator", delete_emptydir_data=True)
    assert call.ok, call.text
    routes = {each["name"].rsplit("-", 2)[0]: each["route"] for node in call.answer["nodes"] for each in node["pods"]}
    assert routes["drained"] == "job", call.text
    assert drained.nodes() == [there, there]


def cause(play: Player, job: str) -> str:
    """What the module says holds a job that somebody else made."""
    return str(job_of(play.module("pod_migration_job", name=job, timeout="1s"))["cause"]["code"])


def taken(arena: Arena, workload: Workload) -> Json:
    """Somebody takes over the eviction, as the annotation asks; returns what it says."""
    (pod,) = (each for each in workload.pods() if SOFT in o.notes(each))
    asked: Json = json.loads(o.notes(pod)[SOFT])
    arena.delete("Pod", o.name(pod), **asked["deleteOptions"])
    return asked


@pytest.mark.whole
def test_eviction_policy_delete_ignores_budgets_and_delete_options_grace_period_seconds(
    lab: Lab, arena: Arena, jobs: Jobs, play: Player
) -> None:
    """Delete asks no budget, by the configuration or by a job's label; the grace period is the job's."""
    arena.nodes(2)
    shut: Json = {"budget": {"maxUnavailable": 0}, "stop": "4s"}
    guarded, graced = jobs.deployment("guarded", **shut), jobs.deployment("graced", stop="4s")
    labelled = jobs.deployment("labelled", **shut)
    arena.settle()
    options = {"gracePeriodSeconds": 7}
    made = jobs.by_hand("labelled", jobs.named(labelled), mode="EvictDirectly", labels={POLICY: "Delete"})
    run = play.module_start(
        "pod_migration_job", pods=[jobs.named(graced, uid=True)], mode="EvictDirectly", delete_options=options
    )
    until(lambda: 7 in graces(arena, "graced"), 60, "its grace period is the job's", every=0.2)
    assert job_of(run.wait(60))["outcome"] == "moved"
    assert jobs.ended(made)["phase"] == "Succeeded"
    with arguments(lab, evictionPolicy="Delete"):
        made = jobs.by_hand("guarded", jobs.named(guarded), mode="EvictDirectly", deleteOptions=options)
        until(lambda: 7 in graces(arena, "guarded"), 20, "its grace period is the job's", every=0.2)
        assert jobs.ended(made)["phase"] == "Succeeded"


def graces(arena: Arena, app: str) -> list[int]:
    """The grace periods of the workload's pods, 0 of those that do not terminate."""
    found = arena.api.items(arena.path("Pod"), labelSelector=f"app={app}")
    return [pod["metadata"].get("deletionGracePeriodSeconds", 0) for pod in found]


@pytest.mark.whole
def test_max_migrating_per_namespace_and_max_migrating_globally(
    lab: Lab, arena: Arena, jobs: Jobs, play: Player
) -> None:
    """One of a namespace and two of the cluster migrate; a paused job counts, and the module says who holds a job."""
    arena.nodes(4)
    works = {name: jobs.deployment(name) for name in ("first", "second", "third")}
    arena.settle()
    with arguments(lab, maxMigratingPerNamespace=1, maxMigratingPerNode=0):
        first = jobs.by_hand("first", jobs.named(works["first"]), paused=True, ttl="10m")
        jobs.until_passed(first)
        second = jobs.by_hand("second", jobs.named(works["second"]))
        assert cause(play, second) == "max_migrating_per_namespace"
        assert not jobs.passed(second)
        release(jobs, first)
        jobs.until_passed(second)
        jobs.ended(second)
    with arguments(lab, maxMigratingGlobally=2, maxMigratingPerNode=0):
        holders = [jobs.by_hand(f"again-{name}", jobs.named(works[name]), paused=True) for name in ("first", "second")]
        for name in holders:
            jobs.until_passed(name)
        third = jobs.by_hand("third", jobs.named(works["third"]))
        assert cause(play, third) == "max_migrating_globally"
        assert not jobs.passed(third)
        release(jobs, holders[0])
        jobs.until_passed(third)
        assert jobs.ended(third)["phase"] == "Succeeded"
    assert arena.api.get(f"{JOBS}/{holders[1]}")["spec"]["paused"], "the other one still holds its place"


@pytest.mark.whole
def test_replication_controllers_pods_move_by_hand_made_jobs_and_drains_evict_them(
    lab: Lab, arena: Arena, jobs: Jobs, play: Player
) -> None:
    """koord-descheduler reads their replicas if it may; the chart does not grant that, so a drain makes no job."""
    here, there = arena.nodes(2)
    labels = {"app": "classic"}
    template = shapes.template(arena.name, "classic", "0s", "0s", None, None)
    spec = {"replicas": 3, "selector": labels, "template": template}
    path = f"/api/v1/namespaces/{arena.namespace}/replicationcontrollers"
    with arena.placing(here):
        arena.api.create(path, {"metadata": {"name": "classic"}, "spec": spec})
        until(lambda: sum(map(o.ready, arena.pods("classic"))) == 3, 30, "its pods run")
    first = o.name(arena.pods("classic")[0])
    job = jobs.by_hand("classic", {"namespace": arena.namespace, "name": first}, mode="EvictDirectly")
    assert jobs.ended(job)["phase"] == "Succeeded"
    until(lambda: sum(map(o.ready, arena.pods("classic"))) == 3, 30, "its pods run again")
    assert play.module("node_cordon", nodes=[here]).ok
    assert play.module("pdb_guard", nodes=[here], method="surge").ok
    run = play.module("node_drain", nodes=[here], method="surge", backend="koordinator")
    assert run.ok, run.text
    reasons = {pod["route"]: pod["reason"] for node in run.answer["nodes"] for pod in node["pods"]}
    assert reasons.keys() == {"evict"}, run.text
    assert "reads no replica count of ReplicationController" in reasons["evict"]
    until(lambda: sum(map(o.ready, arena.pods("classic", on=there))) == 3, 30, "all of them run elsewhere")
