# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Jobs approved, rejected and removed, as soon as they may be written, and what that came to."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import (
    Job,
    JobSettings,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.run_job_moves import (
    JobMove,
    JobMoves,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.run_job_writes import approve
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.run_module import (
    Decision,
    JobDecision,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.object_rules import seconds_of
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_cluster import becomes, jobs_of, writes
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_moving import (
    EVICTED,
    JOB,
    Build,
    Scene,
    Step,
    decided,
    made,
    nothing,
    scenes,
)


@pytest.fixture
def build() -> t.Iterator[Build]:
    with scenes() as made:
        yield made


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


# -- several jobs, and how long a decision takes ---------------------------------------------------------


def decided_on(
    scene: Scene, decision: Decision, *, wait: bool = True, check: bool = False, steps: t.Iterable[Step] = ()
) -> tuple[list[JobMove], Context, float]:
    """A decision on all jobs that are there: what became of each, and how many seconds it took."""
    moves = []
    for name in sorted(jobs_of(scene.world)):
        job = Job.of(scene.job(name))
        moves.append(JobMove(job.pod, name=name, job=job, state="following"))
    ctx, began = scene.world.process("me").ctx(check=check), scene.machine.now
    call = JobDecision(ctx, decision, moves, "Rejected by me")
    scene.play(lambda looks: call.carry_out(looks, ctx.clock.now() + 30, wait), ctx, steps)
    return moves, ctx, scene.machine.now - began


def both(scene: Scene, paused: bool = True) -> Scene:
    """A job for each of the two pods."""
    maker = scene.world.process("maker")
    moves = [scene.move(1), scene.move(2)]
    maker.run(lambda ctx: JobMoves(ctx, moves, JobSettings(paused=paused)).start())
    return scene


def test_each_job_is_decided_on_when_it_has_passed_and_then_nobody_waits(build: Build) -> None:
    def second(scene: Scene) -> None:
        scene.becomes("job-2")

    scene = both(build())
    scene.becomes()
    moves, ctx, seconds = decided_on(scene, "approved", steps=[nothing, nothing, second])
    assert [move.outcome for move in moves] == ["approved", "approved"]
    assert 3.0 <= seconds < 6.0
    assert [(event.what, event.message.split()[1]) for event in ctx.timeline if event.what == "approved"] == [
        ("approved", "job-1"),
        ("approved", "job-2"),
    ]


@pytest.mark.parametrize(("wait", "most"), [(True, 33.0), (False, 3.0)])
def test_jobs_that_do_not_pass_are_waited_for_only_if_that_is_asked(build: Build, wait: bool, most: float) -> None:
    moves, _ctx, seconds = decided_on(both(build()), "approved", wait=wait)
    assert [move.outcome for move in moves] == ["still_waiting", "still_waiting"]
    assert most - 5.0 <= seconds + 2.0 <= most + 2.0
    assert moves[0].message.startswith("Job job-1 waits for arbitration: not written.")


def test_check_mode_decides_on_all_at_once_and_tells_nothing(build: Build) -> None:
    moves, ctx, seconds = decided_on(both(build()), "rejected", check=True)
    assert [move.outcome for move in moves] == ["rejected", "rejected"]
    assert seconds < 1.0
    assert [event.what for event in ctx.timeline if event.what == "rejected"] == []


def test_a_job_that_moves_its_pod_is_not_deleted_and_that_is_said(build: Build) -> None:
    one = decided(made(build(), False, phase="Running", conditions=EVICTED), "absent")
    assert one.message.startswith(f"Job {JOB} is moving Pod shop/web-")
    assert "and was not deleted." in one.message


# -- what was decided already, or too late ---------------------------------------------------------------


@pytest.mark.parametrize("status", [{"phase": "Succeeded"}, {"phase": "Running", "conditions": EVICTED}])
def test_what_is_too_late_is_not_written(build: Build, status: Raw) -> None:
    scene = made(build(), False, **status)
    assert decided(scene, "rejected").outcome == "too_late"
    assert writes(scene.world, "me") == []


def test_a_job_that_begins_to_evict_while_it_is_rejected_was_too_late(build: Build) -> None:
    scene = made(build(), False, phase="Running")
    me = scene.world.process("me")
    me.faults.overtaken(lambda request: request.writes, lambda: scene.becomes(phase="Running", conditions=EVICTED))
    one = decided(scene, "rejected")
    assert (one.outcome, one.message) == ("too_late", f"Job {JOB} has evicted {one.target}: that cannot be undone.")


@pytest.mark.parametrize(
    ("paused", "check"), [pytest.param(True, False, id="paused"), pytest.param(False, True, id="only predicted")]
)
def test_the_end_of_a_pod_whose_job_could_not_evict_it_is_somebody_elses(
    build: Build, paused: bool, check: bool
) -> None:
    scene = made(build(), paused, phase="Running")
    scene.machine.after(0.5, scene.vanishes, "somebody deletes it")
    moves, _ctx, seconds = decided_on(scene, "rejected", check=check)
    assert moves[0].outcome == "rejected"
    assert seconds < 1.0, "nobody waits to see"


def ending(scene: Scene) -> None:
    scene.world.delete(kinds.PODS, scene.pods[0]["metadata"]["name"], gracePeriodSeconds=600)


def replaced(scene: Scene) -> None:
    scene.vanishes()
    scene.arrives(scene.pods[0]["metadata"]["name"])


@pytest.mark.parametrize(("happens", "outcome"), [(ending, "too_late"), (replaced, "too_late"), (nothing, "rejected")])
def test_whether_a_rejection_came_in_time_is_seen_on_the_pod(
    build: Build, happens: t.Callable[[Scene], None], outcome: str
) -> None:
    scene = made(build(stateful=True), False, phase="Running")
    scene.machine.after(0.5, lambda: happens(scene), "what was on its way")
    assert decided(scene, "rejected").outcome == outcome


def reserves(scene: Scene) -> None:
    """As koord-descheduler does that has read the job before it was rejected; its note of it meets a conflict."""
    kind = kinds.RESERVATIONS
    meta = {"name": scene.job()["metadata"]["uid"]}
    scene.world.apply({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": {}})


@pytest.mark.parametrize("also", [nothing, ending], ids=["rejected", "too late"])
def test_a_reservation_that_was_on_its_way_when_its_job_was_rejected_holds_no_place(
    build: Build, also: t.Callable[[Scene], None]
) -> None:
    scene = made(build(stateful=True), False, phase="Running")
    scene.machine.after(0.5, lambda: reserves(scene), "what was on its way")
    scene.machine.after(0.6, lambda: also(scene), "and what comes of it")
    decided(scene, "rejected")
    assert scene.world.store.of(kinds.RESERVATIONS.resource) == {}


def gone(scene: Scene) -> None:
    scene.world.delete(kinds.PODMIGRATIONJOBS, JOB)


def made_anew(scene: Scene) -> None:
    raw = scene.job()
    gone(scene)
    scene.world.apply({**raw, "metadata": {"name": JOB}})
    scene.becomes(phase="Succeeded")


@pytest.mark.parametrize("happens", [gone, made_anew])
def test_a_job_that_is_gone_was_deleted_by_somebody_else(build: Build, happens: t.Callable[[Scene], None]) -> None:
    scene = made(build(), True, phase="Running")
    job = Job.of(scene.job())
    happens(scene)
    one = JobMove(job.pod, name=JOB, job=job, state="following")
    ctx = scene.world.process("me").ctx()
    call = JobDecision(ctx, "absent", [one], "")
    scene.world.process("me").run(lambda _ctx: call._apply(one, job))
    assert (one.outcome, one.message) == ("already_absent", f"Job {JOB} no longer exists.")
    assert writes(scene.world, "me") == []


def test_an_approved_job_is_followed_as_it_was_written(build: Build) -> None:
    one = decided(made(build(), True, phase="Running"), "approved")
    assert one.to_dict()["paused"] is False
