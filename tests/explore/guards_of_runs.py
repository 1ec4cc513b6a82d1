# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Guards of a run against what others do meanwhile: to its lock, its nodes, its memory, budgets and workloads."""

from __future__ import annotations

import random
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Budget, Raw
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import run_outcome, run_replacement_wait
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_evictor import Evictor
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.clocks import Stopwatch
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import ownership, run_external_controllers
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_gates import ReadyOptions, check_ready
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs import run_recovery, run_runs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs.arguments import StateOptions, state
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import run_locks
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import Record
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_heartbeats import HeldLease
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_node_lock import LostLockError
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import steps
from ansible_collections.kubeops.node_maintenance.tests.explore import scenes, stories
from ansible_collections.kubeops.node_maintenance.tests.explore.guards import (
    NAMESPACE,
    Guard,
    Notices,
    faulty,
    holder,
    is_eviction,
    is_renewal,
    locks,
    prepared,
    replaced_by,
    without_version,
)
from ansible_collections.kubeops.node_maintenance.tests.explore.judge import Judge, Violation, record
from ansible_collections.kubeops.node_maintenance.tests.explore.orders import tell
from ansible_collections.kubeops.node_maintenance.tests.explore.points import play
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Choices
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.nodes import STOP
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.serving import Budgets
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import recover
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.workloads import ReplicaSets
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World

RUN = "a/a1"

# -- explorations -------------------------------------------------------------------------------------------


def orders_of(name: str, count: int) -> Notices:
    """So many orders of a story."""
    story = next(story for story in stories.ALL if story.name == name)

    def notice() -> None:
        ends: set[str] = set()
        for number in range(count):
            tell(story, Choices(chance=random.Random(f"guards {name} {number}")), ends)

    return notice


def taken_out(world: World, *loops: stories.Loop) -> Actor:
    """A run that has brought n1 so far."""
    actor = world.process("a")
    for loop in (stories.to("cordoned"), *loops):
        assert not actor.run(loop, RUN).failed
    return actor


def web(replicas: int = 3, **options: t.Any) -> scenes.Scene:
    """All pods of one Deployment are on n1, and there is room for them on n2."""
    first = (manifests.node("n1"), manifests.deployment("web", replicas, **options), manifests.service("web"))
    given = replace(scenes.small().given, timeout=60.0)
    return scenes.Scene("web", (manifests.node("n2"),), {"web": replicas - 1}, given, first=first)


def judged(world: World, scene: scenes.Scene, actor: Actor, *loops: stories.Loop) -> None:
    """The run goes on so, and no service comes below its floor."""
    judge = Judge(world, scene.floors)
    for loop in loops:
        actor.run(loop, RUN)
    judge.check()


def late_deletion() -> None:
    """Whoever gives a lock back is cut off before its deletion arrives; another has taken the lock by then."""
    with prepared() as world:
        a, b = locks(world, "a", ["n1"]), locks(world, "b", ["n1"])
        me = world.process("a")

        def hold() -> None:
            a.take()
            a.leave(drop=("n1",))

        me.faults.when(lambda request: request.verb == "delete" and "leases" in request.resource, Fault("late", 25.0))
        me.spawn(hold)
        world.machine.run_for(1.0)
        taking = world.process("b").spawn(b.take)
        world.machine.run_until(lambda: not taking.alive)
        taking.value()
        world.machine.run_for(20.0)
        if holder(world, "n1") != "b":
            raise Violation("I5: the lock of n1 was deleted while somebody else held it")


def silent_watch() -> None:
    """The watches fall silent as the node's last pod leaves, and another pod is put there."""
    scene = web(2, annotations={STOP: "4s"})  # its replacement serves before it is gone
    with scene.world() as world:
        me = taken_out(world, stories.guarded("present"))

        def last(event: Event) -> None:
            if event.resource == kinds.PODS.resource and event.what == "DELETED" and not world.pods(on="n1"):
                world.on_event.remove(last)
                world.machine.after(0.2, put, "put a pod onto n1")

        def put() -> None:
            for watch in me.link.open_watches:
                watch.hang()
            spec = {"nodeName": "n1", "containers": [{"name": "c", "image": "registry.example/c:1"}]}
            meta = {"name": "late", "namespace": manifests.SHOP}
            world.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

        world.on_event.append(last)
        judged(world, scene, me, stories.drained())


def lagging_controller() -> None:
    """ReplicaSets see a new count late, so that for a while the old pods are all there is."""
    scene = scenes.small()
    with scene.world() as world:
        judge, me = Judge(world, scene.floors), world.process("me")
        world.controller(ReplicaSets).lag = 4.0
        outcome = play(world, me, scene)
        if outcome is None or not outcome.ok:
            raise Violation(f"I8: {outcome}")
        world.settle()
        judge.all_as_before()


def older_start() -> None:
    """A start stood still between two calls, and goes on when another of its run has the node out for its tasks."""
    with scenes.small().world() as world:
        old, new = taken_out(world), world.process("new")
        for loop in (stories.to("cordoned"), stories.guarded("present"), stories.drained(), stories.to("out")):
            assert not new.run(loop, "a/a2").failed
        world.machine.run_for(120.0)
        old.run(stories.to("uncordoned"), RUN)
        if record(world.get(kinds.NODES, "n1")) is None:
            raise Violation("I5: an older start gave a node back that a newer one had taken over")


def frozen_while_renewing() -> None:
    """Whoever goes on with a node stands still before it reads so; it has to know then that another has it by now."""
    with prepared() as world:
        a, b, me = locks(world, "a", ["n1"]), locks(world, "b", ["n1"]), world.process("a")
        before = locks(world, "a", ["n1"])

        def work() -> None:
            before.take()
            before.leave()
            me.faults.when(is_renewal, Fault("frozen sent", 25.0))
            if a.take():
                return
            try:
                a.prove()
            except LostLockError:
                return
            if holder(world, "n1") != "a":
                raise Violation("I5: its lock was proven while somebody else held the lock")

        working = me.spawn(work)
        world.machine.run_until(lambda: me.process.frozen)
        taking = world.process("b").spawn(b.take)
        world.machine.run_until(lambda: not working.alive and not taking.alive)
        working.value()


def at_the_gates() -> None:
    """A run waits for a node that is long to come back; somebody undoes what dead runs left."""
    with scenes.small().world() as world:
        me = taken_out(world, stories.to("returning"))
        world.set_node_ready("n1", "False")
        options = ReadyOptions(nodes=("n1",), gates=("ready",), wait=True, stable=0.0, timeout=300.0)
        waiting = me.call(lambda ctx: check_ready(ctx, options), RUN)
        world.machine.run_for(90.0)
        found = world.get(kinds.LEASES, names.node_lease_name("n1"), NAMESPACE)
        taker = locks(world, "b", ["n1"])
        taking = world.process("b").spawn(taker.take)
        world.machine.run_until(lambda: not taking.alive)
        if holder(world, "n1") != "a":
            raise Violation(f"I5: the lock of a run that waits was taken: {found['spec']}")
        world.set_node_ready("n1")
        world.machine.run_until(lambda: not waiting.alive)


def guard_is_gone() -> None:
    """Somebody deletes our guard in the middle."""
    scene = web(3)
    with scene.world() as world:
        me = taken_out(world, stories.guarded("present"))

        def unguard(event: Event) -> None:
            for (namespace, name), _raw in list(world.store.of(kinds.BUDGETS.resource).items()):
                world.delete(kinds.BUDGETS, name, namespace)

        world.on_event.append(unguard)
        judged(world, scene, me, stories.drained())


def between_two_waves() -> None:
    """Somebody undoes what dead runs left, while a run that has no node out soaks between two waves."""
    with scenes.small().world() as world:
        me, carl = world.process("me"), world.process("carl")

        def said(run: str, goal: t.Any, **options: t.Any) -> dict[str, t.Any]:
            return me.run(lambda ctx: state(ctx, StateOptions(goal, **options)), run).data

        begun = said("", "started", input={"nodes": ["n1", "n2"]}, plan={"waves": [["n1"], ["n2"]]})
        undoing = carl.spawn(lambda: recover(carl))
        while undoing.alive:
            world.machine.run_for(5.0)
            said(begun["run"], "noted", nodes=())
        stored = [raw["metadata"]["name"] for raw in world.store.of(kinds.CONFIGMAPS.resource).values()]
        if names.run_name(begun["run_id"]) not in stored:
            raise Violation(f"the memory of a living run is gone: {stored}")


def resumed_meanwhile() -> None:
    """A run too old to be of use is taken up by its name, at the moment at which another start forgets it."""
    with scenes.small().world() as world:
        old, new = world.process("old"), world.process("new")

        def said(actor: Actor, run: str, goal: t.Any, **options: t.Any) -> dict[str, t.Any]:
            result = actor.run(lambda ctx: state(ctx, StateOptions(goal, **options)), run)
            assert not result.failed, result.message
            return result.data

        first = said(old, "", "started", input={"nodes": ["n1", "n2"]}, plan={"waves": [["n1"], ["n2"]]})
        said(old, first["run"], "noted", nodes=("n1",))
        said(old, first["run"], "ended", failed=True)
        world.machine.run_for(49 * 3600.0)
        kept = names.run_name(first["run_id"])
        new.faults.overtaken(
            lambda request: request.verb == "get" and request.name == kept and request.resource == "configmaps",
            lambda: world.patch(kinds.CONFIGMAPS, kept, {"data": {"finished": '["n1", "n2"]'}}, NAMESPACE),
        )
        said(new, "", "started", input={"nodes": ["n2"]}, plan={"waves": [["n2"]]})
        if world.find(kinds.CONFIGMAPS, kept, NAMESPACE) is None:
            raise Violation("what was written meanwhile of an old run was forgotten with it")


def slow_budgets() -> None:
    """The disruption controller sees a new budget late."""
    scene = web(3)
    with scene.world() as world:
        world.controller(Budgets).lag = 4.0
        taken_out(world, stories.guarded("present"))
        for (_namespace, name), raw in world.store.of(kinds.BUDGETS.resource).items():
            if (raw.get("status") or {}).get("observedGeneration", 0) < raw["metadata"]["generation"]:
                raise Violation(f"{name} was called a protection before anybody counted for it")


# -- taking out ---------------------------------------------------------------------------------------------


def stamped_when_read(patch: pytest.MonkeyPatch) -> None:
    """A lock counts as fresh from when the answer of its renewal is read."""
    keep = HeldLease._keep

    def kept(self: HeldLease, lease: Raw) -> None:
        self._sent = Stopwatch(self._ctx.clock)
        keep(self, lease)

    patch.setattr(HeldLease, "_keep", kept)


def forgetful(patch: pytest.MonkeyPatch) -> None:
    """What lives is not looked at when runs are forgotten."""
    memories = run_recovery._memories
    patch.setattr(run_recovery, "_memories", lambda ctx, ids, held, alive, done: memories(ctx, ids, held, (), done))


def unconditional(patch: pytest.MonkeyPatch) -> None:
    forget = run_runs.forget
    patch.setattr(run_runs, "forget", lambda ctx, run_id, version="": forget(ctx, run_id))


def observed_at_once(patch: pytest.MonkeyPatch) -> None:
    budget = Snapshot.budget

    def found(self: Snapshot, namespace: str, name: str) -> Budget | None:
        known = budget(self, namespace, name)
        return replace(known, observed=True) if known else None

    patch.setattr(Snapshot, "budget", found)


GUARDS = (
    Guard("freshness counts from the sending", stamped_when_read, frozen_while_renewing),
    Guard(
        "the nonce of the record",
        replaced_by(Record, "foreign_to", lambda self, *args, **options: False),
        older_start,
    ),
    Guard("resourceVersion of lock deletions", without_version("Lease", "delete"), late_deletion),
    Guard(
        "the list before a node is called drained",
        replaced_by(run_outcome.NodeOutcomes, "_listed", lambda self, site: frozenset()),
        silent_watch,
    ),
    Guard("settled before a surge is lowered", replaced_by(steps, "not_applied", lambda *args: ""), lagging_controller),
    Guard(
        "renewal at the gates", replaced_by(run_locks.Locks, "take_recorded", lambda self, records: {}), at_the_gates
    ),
    Guard(
        "the watch of the node itself",
        replaced_by(ownership, "node_lost", lambda *args: None),
        orders_of("a drain and a person", 30),
    ),
    Guard("our own count of who serves", replaced_by(Evictor, "_too_few", lambda *args: None), guard_is_gone),
    Guard("the memory of runs that live", forgetful, between_two_waves),
    Guard("what is forgotten is what was read", unconditional, resumed_meanwhile),
    Guard("guards are counted for before they count", observed_at_once, slow_budgets),
    Guard(
        "what has to follow stands in the record",
        replaced_by(run_replacement_wait.ReplacementWait, "resume", lambda self, *args: None),
        faulty(is_eviction, Fault("killed after"), "waits"),
    ),
    Guard(
        "a node is forgotten when what waited for it runs",
        replaced_by(run_external_controllers, "await_workloads", lambda ctx, waiting: {name: [] for name in waiting}),
        faulty(is_eviction, Fault("lost"), "waits"),
    ),
)
"""Each is missed by its exploration when it is taken out."""
