# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Jobs made, followed, approved, rejected and removed, on a simulated cluster.

No controller moves there: what they would do is said by each test; the real ones are asked on the lab.
"""

from __future__ import annotations

import contextlib
import functools
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs.migration_jobs import (
    EVICT,
    Job,
    JobSettings,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.migration_controller import (
    Controller,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.objects import Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.context import Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs.job_decisions import (
    Decision,
    JobDecision,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs.job_moves import JobMove, JobMoves
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs.job_view import Looks, watched
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs.job_writes import REMINDED, approve
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs.tracker import GONE, SILENT
from ansible_collections.kubeops.node_maintenance.tests.unit.run.job_cluster import becomes, jobs_of, reserve, writes
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import koordinator, manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault, What
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.object_rules import seconds_of
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Saved, World

Step = t.Callable[["Scene"], None]
EVICTED = [{"type": "Eviction", "status": "True"}]
ARRIVED = {"namespace": "shop", "name": "web-3", "uid": "uid-web-3"}
JOB = "job-1"


@functools.cache
def begun(stateful: bool) -> Saved:
    """Two pods of `web`, both on node n1."""
    web = manifests.stateful_set("web", 2) if stateful else manifests.deployment("web", 2)
    with World([manifests.node("n1"), web], add_ons=[koordinator.GROUP]) as world:
        world.apply(manifests.node("n2"))
        return world.saved()


class Scene:
    """The cluster and its two first pods."""

    def __init__(self, world: World) -> None:
        for controller in world.controllers:
            controller.stop()
        self.world, self.machine = world, world.machine
        self.pods = world.pods(app="web")

    def move(self, number: int = 1) -> JobMove:
        """For the first or second pod."""
        pod = Pod.of(self.pods[number - 1])
        siblings = frozenset(raw["metadata"]["uid"] for raw in self.pods)
        return JobMove(pod.ref, pod, f"job-{number}", siblings=siblings)

    def job(self, name: str = JOB) -> Raw:
        return jobs_of(self.world)[name]

    def becomes(self, name: str = JOB, passed: bool = True, **status: t.Any) -> None:
        becomes(self.world, name, passed, **status)

    def vanishes(self) -> None:
        """The first pod does."""
        self.world.delete(kinds.PODS, self.pods[0]["metadata"]["name"], gracePeriodSeconds=0)

    def arrives(self, name: str, ready: bool = True) -> Raw:
        """Another pod of `web`, on node n2; as the job's status names it."""
        like = self.pods[0]
        meta = {key: like["metadata"][key] for key in ("namespace", "labels", "ownerReferences")}
        self.world.apply({**like, "metadata": {**meta, "name": name}, "spec": {**like["spec"], "nodeName": "n2"}})
        self.ready(name, ready)
        uid = self.world.get(kinds.PODS, name)["metadata"]["uid"]
        return {"namespace": meta["namespace"], "name": name, "uid": uid}

    def ready(self, name: str, ready: bool = True) -> None:
        status = {"phase": "Running", "conditions": [{"type": "Ready", "status": str(ready)}]}
        self.world.patch(kinds.PODS, name, {"status": status}, subresource="status")

    def play(self, loop: t.Callable[[Looks], None], ctx: Context, steps: t.Iterable[Step]) -> None:
        """Call it with all jobs as they are; a step happens each second."""

        def call(_ctx: Context) -> None:
            with watched(ctx, Controller()) as looks:
                loop(looks)

        task = self.world.process("me").call(call)
        for step in steps:
            self.machine.run_for(1.0)
            step(self)
        self.machine.run_until(lambda: not task.alive)
        task.value()

    def follow(
        self, *moves: JobMove, steps: t.Iterable[Step] = (), settings: JobSettings | None = None, within: float = 100.0
    ) -> Context:
        ctx = self.world.process("me").ctx()
        batch = JobMoves(ctx, moves, settings or JobSettings(), Controller())
        self.play(lambda looks: batch.follow(looks, ctx.clock.now() + within), ctx, steps)
        return ctx


Build = t.Callable[..., Scene]


@pytest.fixture
def build() -> t.Iterator[Build]:
    with contextlib.ExitStack() as stack:
        yield lambda stateful=False: Scene(stack.enter_context(World.of(begun(stateful))))


def succeeds(scene: Scene) -> None:
    scene.vanishes()
    scene.becomes(phase="Succeeded", status="Complete", nodeName="n2", podRef=ARRIVED, conditions=EVICTED)


def nothing(scene: Scene) -> None:
    """A second passes."""


def test_a_pod_is_moved(build: Build) -> None:
    scene = build()
    one = scene.move()
    ctx = scene.follow(one, steps=[succeeds])
    assert one.outcome == "moved"
    assert "to node n2: Pod shop/web-3" in one.message
    assert writes(scene.world) == [f"create podmigrationjobs {JOB}"]
    assert len(ctx.changes) == 1
    assert [event.message for event in ctx.timeline][-1] == f"job {JOB} has succeeded"
    assert one.to_dict()["new_pod"] == ARRIVED


def test_a_second_pod_of_the_workload_gets_its_job_when_the_first_has_moved(build: Build) -> None:
    seen: list[int] = []

    def first(scene: Scene) -> None:
        seen.append(len(jobs_of(scene.world)))
        scene.vanishes()
        scene.becomes(phase="Succeeded", podRef=scene.arrives("web-3"), conditions=EVICTED)

    def second(scene: Scene) -> None:
        arrived = {**ARRIVED, "name": "web-4", "uid": "4"}
        scene.becomes("job-2", phase="Succeeded", podRef=arrived, conditions=EVICTED)

    scene = build()
    moves = scene.move(), scene.move(2)
    scene.follow(*moves, steps=[first, nothing, second])
    assert seen == [1], "a limit of one lets one job be made"
    assert [one.outcome for one in moves] == ["moved", "moved"]


def test_a_job_that_somebody_deleted_holds_no_place_of_its_workload(build: Build) -> None:
    def deletes(scene: Scene) -> None:
        scene.world.delete(kinds.PODMIGRATIONJOBS, JOB)

    scene = build()
    moves = scene.move(), scene.move(2)
    starts = functools.partial(Scene.becomes, phase="Running")
    ends = functools.partial(Scene.becomes, name="job-2", phase="Succeeded", podRef=ARRIVED, conditions=EVICTED)
    scene.follow(*moves, steps=[starts, deletes, nothing, ends])
    assert [one.outcome for one in moves] == ["deleted", "moved"]


def test_a_job_that_ends_without_a_new_pod_waits_for_one_that_is_ready(build: Build) -> None:
    def evicts(scene: Scene) -> None:
        scene.vanishes()
        scene.arrives("web-3", ready=False)
        scene.becomes(phase="Succeeded", conditions=EVICTED)

    scene = build()
    one = scene.move()
    scene.follow(one, steps=[evicts, lambda scene: scene.ready("web-3")], settings=JobSettings("EvictDirectly"))
    assert one.outcome == "moved"
    assert one.new_pod
    assert one.new_pod.name == "web-3"

    scene = build()
    one = scene.move()
    scene.follow(one, steps=[evicts], settings=JobSettings("EvictDirectly"), within=10)
    assert one.outcome == "not_ready"


def test_a_job_whose_pod_vanished_is_ended_and_its_place_given_back(build: Build) -> None:
    at: list[float] = []

    def replaced(scene: Scene) -> None:
        reserve(scene.world, "r")
        body = {"spec": {"reservationOptions": {"reservationRef": {"name": "r"}}}}
        scene.world.patch(kinds.PODMIGRATIONJOBS, JOB, body)
        scene.becomes(phase="Running", nodeName="n2")
        scene.vanishes()
        scene.arrives(scene.pods[0]["metadata"]["name"])
        at.append(scene.machine.now)

    scene = build(stateful=True)
    one = scene.move()
    scene.follow(one, steps=[replaced])
    assert one.outcome == "gone"
    assert not one.failed
    assert scene.machine.now - at[0] >= GONE
    assert scene.job()["status"]["reason"] == "Rejected"
    assert scene.world.find(kinds.RESERVATIONS, "r") is None


def test_a_paused_job_whose_pod_vanished_is_somebody_s_and_stays(build: Build) -> None:
    def starts(scene: Scene) -> None:
        scene.becomes(phase="Running")
        scene.world.patch(kinds.PODMIGRATIONJOBS, JOB, {"spec": {"paused": True}})
        scene.vanishes()

    scene = build()
    one = scene.move()
    scene.follow(one, steps=[starts])
    assert (one.outcome, one.failed) == ("gone", False)
    assert scene.job()["status"] == {"phase": "Running"}


def test_a_job_that_failed_because_its_pod_had_gone_is_no_failure(build: Build) -> None:
    def fails(scene: Scene) -> None:
        scene.vanishes()
        scene.becomes(phase="Failed", reason="MissingPod")

    scene = build()
    one = scene.move()
    scene.follow(one, steps=[fails])
    assert (one.outcome, one.failed) == ("gone", False)


def test_the_job_of_a_pod_that_keeps_its_name_is_freed_of_the_limiter_once_it_has_evicted(build: Build) -> None:
    def evicts(scene: Scene) -> None:
        assert EVICT not in scene.job()["metadata"]["annotations"]
        scene.vanishes()
        scene.becomes(phase="Running", conditions=EVICTED)

    def ends(scene: Scene) -> None:
        scene.becomes(phase="Succeeded", nodeName="n2", podRef=ARRIVED)

    scene = build(stateful=True)
    one = scene.move()
    scene.follow(one, steps=[evicts, nothing, ends])
    assert one.outcome == "moved"
    assert scene.job()["metadata"]["annotations"][EVICT] == "true"


def test_a_job_on_which_nothing_happens_is_woken(build: Build) -> None:
    scene = build()
    scene.follow(scene.move(), steps=[lambda scene: scene.becomes(phase="Running")], within=SILENT * 2.5)
    assert REMINDED in scene.job()["metadata"]["annotations"]


def test_a_reminder_that_is_refused_ends_nothing_else(build: Build) -> None:
    scene = build()
    one = scene.move()
    scene.world.process("me").faults.when(lambda request: request.method == "PATCH", Fault("forbidden"), times=4)
    ctx = scene.follow(one, steps=[lambda scene: scene.becomes(phase="Running")], within=SILENT * 2.5)
    assert one.outcome == "timeout"
    assert any("could not be reminded" in event.message for event in ctx.timeline)


def test_a_job_that_names_no_uid_is_about_the_pod_that_its_controller_fills_in(build: Build) -> None:
    def starts(scene: Scene) -> None:
        scene.world.patch(kinds.PODMIGRATIONJOBS, JOB, {"spec": {"podRef": {"uid": uid}}})
        scene.becomes(phase="Running")

    scene = build()
    uid = scene.pods[0]["metadata"]["uid"]
    kind = {"apiVersion": kinds.PODMIGRATIONJOBS.api_version, "kind": kinds.PODMIGRATIONJOBS.kind}
    pod = {"namespace": scene.pods[0]["metadata"]["namespace"], "name": scene.pods[0]["metadata"]["name"]}
    scene.world.apply({**kind, "metadata": {"name": JOB}, "spec": {"podRef": pod}})
    job = Job.of(scene.job())
    one = JobMove(job.pod, name=JOB, job=job, state="following")
    scene.follow(one, steps=[starts, *[nothing] * int(GONE * 2), succeeds])
    assert one.outcome == "moved"


@pytest.mark.parametrize("paused", [False, True])
def test_a_job_that_waits_for_arbitration_is_never_written(build: Build, paused: bool) -> None:
    scene = build()
    one = scene.move()
    scene.follow(one, settings=JobSettings(paused=paused), within=SILENT * 2.5)
    assert writes(scene.world) == [f"create podmigrationjobs {JOB}"]
    assert one.outcome == "timeout"
    assert one.cause
    assert one.cause.code == "not_arbitrated"


@pytest.mark.parametrize(("there", "outcome"), [(True, "deleted"), (False, "gone")])
def test_a_job_that_somebody_deletes(build: Build, there: bool, outcome: str) -> None:
    def deletes(scene: Scene) -> None:
        scene.world.delete(kinds.PODMIGRATIONJOBS, JOB)
        if not there:
            scene.vanishes()

    scene = build()
    one = scene.move()
    scene.follow(one, steps=[lambda scene: scene.becomes(phase="Running"), deletes])
    assert one.outcome == outcome


def test_a_failed_job_says_why(build: Build) -> None:
    scene = build()
    one = scene.move()
    scene.follow(one, steps=[lambda scene: scene.becomes(phase="Failed", reason="ForbiddenMigratePod")])
    assert (one.outcome, one.failed) == ("failed", True)
    assert one.to_dict()["cause"]["code"] == "forbidden"


FAULTS: list[What] = ["lost", "in doubt", "conflict", "throttled", "error"]


@pytest.mark.parametrize("what", FAULTS)
def test_a_job_is_made_once_whatever_the_first_answer_was(build: Build, what: What) -> None:
    scene = build()
    one = scene.move()
    scene.world.process("me").faults.when(lambda request: request.method == "POST", Fault(what))
    ctx = scene.follow(one, steps=[nothing, nothing, nothing, succeeds])
    assert one.outcome == "moved"
    assert [change.verb for change in ctx.changes] == ["create"]


@pytest.mark.parametrize(("uid", "outcome"), [("", "moved"), ("other", "failed")])
def test_a_job_of_that_name_for_this_pod_is_adopted_and_another_is_not(build: Build, uid: str, outcome: str) -> None:
    scene = build()
    one = scene.move()
    pod = {"namespace": one.target.namespace, "name": one.target.name, "uid": uid or one.target.uid}
    kind = {"apiVersion": kinds.PODMIGRATIONJOBS.api_version, "kind": kinds.PODMIGRATIONJOBS.kind}
    scene.world.apply({**kind, "metadata": {"name": JOB}, "spec": {"podRef": pod}})
    scene.follow(one, steps=[succeeds])
    assert one.outcome == outcome


def decided(
    scene: Scene, decision: Decision, steps: t.Iterable[Step] = (), wait: bool = True, check: bool = False
) -> JobMove:
    job = Job.of(scene.job())
    one = JobMove(job.pod, name=JOB, job=job, state="following")
    ctx = scene.world.process("me").ctx(check=check)
    call = JobDecision(ctx, decision, [one], "Rejected by me")
    scene.play(lambda looks: call.carry_out(looks, ctx.clock.now() + 30, wait), ctx, steps)
    return one


def made(scene: Scene, paused: bool, **status: t.Any) -> Scene:
    """The job is there, made by another call."""
    maker = scene.world.process("maker")
    maker.run(lambda ctx: JobMoves(ctx, [scene.move()], JobSettings(paused=paused), Controller()).start())
    if status:
        scene.becomes(**status)
    return scene


def passes(scene: Scene) -> None:
    assert writes(scene.world, "me") == [], "it is not written before"
    scene.becomes()


@pytest.mark.parametrize(
    ("decision", "outcome", "written"),
    [
        ("approved", "approved", ["patch podmigrationjobs"]),
        ("rejected", "rejected", ["patch podmigrationjobs/status"]),
        ("absent", "absent", ["patch podmigrationjobs/status", "delete podmigrationjobs"]),
    ],
)
def test_a_paused_job_is_decided_on_once_it_has_passed(
    build: Build, decision: Decision, outcome: str, written: list[str]
) -> None:
    scene = made(build(), True)
    assert decided(scene, decision, [passes]).outcome == outcome
    assert writes(scene.world, "me") == [f"{what} {JOB}" for what in written]


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize(
    ("decision", "paused"),
    [("approved", True), ("rejected", True), ("rejected", False), ("absent", True), ("absent", False)],
)
def test_a_job_that_never_passes_is_not_written(build: Build, decision: Decision, wait: bool, paused: bool) -> None:
    scene = made(build(), paused)
    assert decided(scene, decision, wait=wait).outcome == "still_waiting"
    assert writes(scene.world, "me") == []


@pytest.mark.parametrize("decision", ["approved", "rejected", "absent"])
def test_check_mode_writes_nothing(build: Build, decision: Decision) -> None:
    scene = made(build(), True)
    assert decided(scene, decision, check=True).outcome == decision
    assert writes(scene.world, "me") == []


def test_a_job_that_is_not_paused_is_rejected_as_soon_as_it_has_passed(build: Build) -> None:
    scene = made(build(), False)
    assert decided(scene, "rejected", [nothing, nothing, passes]).outcome == "rejected"
    assert scene.job()["status"]["phase"] == "Failed"
    assert writes(scene.world, "me") == [f"patch podmigrationjobs/status {JOB}"]


@pytest.mark.parametrize(
    ("status", "decision", "outcome"),
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
def test_decisions_on_jobs_that_are_further(build: Build, status: Raw, decision: Decision, outcome: str) -> None:
    assert decided(made(build(), False, **status), decision).outcome == outcome


def test_an_approved_job_has_its_whole_ttl_from_then_on_also_against_rivals(build: Build) -> None:
    scene = made(build(), True, phase="")
    scene.machine.run_for(100.0)
    me, rivals = scene.world.process("me"), iter(range(2))

    def first(request: Request) -> bool:
        if request.writes and (number := next(rivals, None)) is not None:
            becomes(scene.world, JOB, annotations={"rival": str(number)})
        return False

    me.faults.when(first, Fault("late"))
    ctx = me.ctx()
    me.run(lambda _ctx: approve(ctx, Job.of(scene.job())))
    assert [sent.status for sent in scene.world.log if sent.request.writes and sent.process == "me"] == [409, 409, 200]
    spec, since = scene.job()["spec"], seconds_of(scene.job()["metadata"]["creationTimestamp"])
    assert spec["paused"] is False
    assert float(spec["ttl"].removesuffix("s")) == pytest.approx(300 + scene.machine.now - since, abs=1.0)
    assert len(ctx.changes) == 1


def test_a_job_that_evicted_its_pod_while_it_was_rejected_was_too_late(build: Build) -> None:
    scene = made(build(), False, phase="Running")
    scene.machine.after(0.5, scene.vanishes, "the eviction that was on its way")
    assert decided(scene, "rejected").outcome == "too_late"
