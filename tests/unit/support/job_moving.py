# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Jobs of pods of one workload in a simulated cluster where nobody moves but the calls and what a test lets happen."""

from __future__ import annotations

import contextlib
import functools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import (
    Job,
    JobSettings,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.run_job_cache import Looks, watched
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.run_job_moves import (
    JobMove,
    JobMoves,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.run_module import (
    Decision,
    JobDecision,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.migration_controller import Controller
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import koordinator, manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Saved, World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_cluster import becomes, jobs_of

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


@contextlib.contextmanager
def scenes() -> t.Iterator[Build]:
    """Makes scenes, which end together."""
    with contextlib.ExitStack() as stack:
        yield lambda stateful=False: Scene(stack.enter_context(World.of(begun(stateful))))


def succeeds(scene: Scene) -> None:
    scene.vanishes()
    scene.becomes(phase="Succeeded", status="Complete", nodeName="n2", podRef=ARRIVED, conditions=EVICTED)


def nothing(scene: Scene) -> None:
    """A second passes."""


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
