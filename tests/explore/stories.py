# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stories: who acts at the same time on a small cluster, each in any order with the others.

A story starts its actors; which of them goes on after each step, when each person acts and when each watch's event
arrives is chosen by the machine's choices, so a story and a list of numbers are one run.

Nine tenths of the orders are of small stories: one or two nodes and calls that move no pod. The others move pods; one
in fifty is of whole playbooks, half of them of everybody at once on three nodes with four pods.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import (
    CallAborted,
    Context,
    Result,
    Run,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_drain import DrainOptions, drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.errors import ClusterError
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions, State
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs.arguments import StateOptions, state
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_locks import Locks
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_guard import GuardOptions, guard
from ansible_collections.kubeops.node_maintenance.tests.explore import people, scenes
from ansible_collections.kubeops.node_maintenance.tests.explore.judge import Violation, holder_of
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Task
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.serving import Autoscalers
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import maintain, recover
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World

Loop = Callable[[Context], Result]


@dataclass(frozen=True)
class Story:
    """``begin`` starts all who act; ``touches``: people change objects of these kinds, which stay as they want them.

    ``share`` is the part of all orders that is given to this story. ``unwanted`` says at the end, in words, what is
    not as people wanted it at last. ``bystanders`` write beside all who act, or beside the scene's run alone; it then
    has to succeed, and ``calm`` says that it would without them.
    """

    name: str
    scene: scenes.Scene
    begin: Callable[[World], list[Task]]
    share: float
    touches: tuple[str, ...] = ()
    unwanted: Callable[[World], str] = lambda world: ""
    calm: bool = False
    bystanders: t.Literal["", "beside", "alone"] = ""

    def started(self, world: World) -> list[Task]:
        """All who act."""
        if self.bystanders != "alone":
            return self.begin(world)
        a = world.process("a")
        return [a.spawn(lambda: maintain(a, self.scene.given))]

    def with_bystanders(self, number: int) -> Story:
        """The same story with them in one of three orders, of a calm scene every other time with nobody else."""
        if number % 3:
            return self
        alone = self.calm and number % 2
        return replace(self, bystanders="alone" if alone else "beside")


def calls(actor: Actor, run: str, *loops: Loop) -> Task:
    """Calls by one start of a playbook, with a pause before each; the first that fails ends it."""

    def work() -> bool:
        for loop in loops:
            actor.clock.sleep(people.some_time(actor.world))
            ctx = actor.ctx(run)
            try:
                if loop(ctx).failed:
                    return False
            except (CallAborted, ClusterError):
                return False
            finally:
                ctx.cluster.close()
        return True

    return actor.spawn(work)


def to(goal: State, *nodes: str, **options: t.Any) -> Loop:
    return lambda ctx: cordon(ctx, CordonOptions(goal, nodes or ("n1",), **options))


def guarded(goal: t.Literal["present", "absent"], *nodes: str) -> Loop:
    return lambda ctx: guard(ctx, GuardOptions(goal, nodes or ("n1",), settle=0.0, timeout=60.0))


def drained(*nodes: str) -> Loop:
    return lambda ctx: drain(ctx, DrainOptions(nodes or ("n1",), DrainPolicy(backend="eviction"), timeout=120.0))


def undone(run: str = "") -> Loop:
    del run
    return lambda ctx: state(ctx, StateOptions("undone"))


def _locks(world: World) -> list[Task]:
    return [
        calls(world.process("a"), "a/a1", to("cordoned"), to("parked")),
        calls(world.process("b"), "b/b1", to("cordoned"), to("uncordoned")),
    ]


def _hands(world: World) -> list[Task]:
    return [
        calls(world.process("a"), "a/a1", to("cordoned"), to("returning"), to("uncordoned")),
        calls(world.process("b"), "", to("uncordoned")),
        people.person(world, lambda: world.cordon("n1", False), lambda: world.cordon("n1")),
    ]


def _starts(world: World) -> list[Task]:
    return [
        calls(world.process("a"), "a/a1", to("cordoned", "n1", "n2"), to("uncordoned", "n1", "n2")),
        calls(world.process("b"), "a/a2", to("cordoned", "n2", "n1"), to("uncordoned", "n2", "n1")),
    ]


def _guards(world: World) -> list[Task]:
    return [
        calls(world.process("a"), "a/a1", to("cordoned", "n1"), guarded("present", "n1"), guarded("absent", "n1")),
        calls(world.process("b"), "b/b1", to("cordoned", "n2"), guarded("present", "n2"), guarded("absent", "n2")),
    ]


def _drain_and_person(world: World) -> list[Task]:
    return [
        calls(world.process("a"), "a/a1", to("cordoned"), guarded("present"), drained()),
        people.person(
            world,
            lambda: world.cordon("n1", False),
            lambda: people.scale(world, "pair", 1),
            lambda: people.scale(world, "pair", 3),
        ),
    ]


def _node_again(world: World) -> list[Task]:
    return [
        calls(world.process("a"), "a/a1", to("cordoned"), guarded("present"), drained()),
        people.person(world, lambda: people.again(world, "n1")),
    ]


def _two_maintains(world: World) -> list[Task]:
    a, b = world.process("a"), world.process("b")
    other = replace(SMALL.given, nodes=("n2",))
    return [a.spawn(lambda: maintain(a, SMALL.given)), b.spawn(lambda: maintain(b, other))]


def _maintain_and_recover(world: World) -> list[Task]:
    a, b = world.process("a"), world.process("b")
    return [a.spawn(lambda: maintain(a, SMALL.given)), calls(b, "", undone())]


def _one_lock(world: World) -> list[Task]:
    """The lock alone: two who want it, and stand still now and then."""
    a, b = world.process("a"), world.process("b")

    def suspended() -> None:
        for actor in (a, b):
            world.process("fate").clock.sleep(people.some_time(world))
            actor.process.freeze(people.some_time(world))

    return [holds(a, "a/a1"), holds(b, "b/b1"), world.process("fate").spawn(suspended)]


def holds(actor: Actor, run: str) -> Task:
    """Takes the lock of n1 twice, and is sure to have it whenever it has proven its lock."""
    world, name = actor.world, names.node_lease_name("n1")

    def work() -> None:
        for drop in ((), ("n1",)):
            actor.clock.sleep(people.some_time(world))
            ctx = actor.ctx(run)
            locks = Locks(ctx, Run(*run.split("/")), {"n1": f"{names.NAMESPACE}/{name}"})
            try:
                if locks.take():
                    continue
                actor.clock.sleep(people.some_time(world))
                locks.prove()
                holder = holder_of(world.find(kinds.LEASES, name, names.NAMESPACE) or {})
                if holder != run:
                    raise Violation(f"I5: the lock of {run} was proven while {holder or 'nobody'} held the lock")
            except (CallAborted, ClusterError):
                continue
            finally:
                locks.leave(drop=drop)
                ctx.cluster.close()

    return actor.spawn(work)


def whole(actor: Actor, run: str, *nodes: str) -> Task:
    """One start of a playbook that takes nodes out, with all that belongs to it, and gives them back."""
    loops = (to("cordoned", *nodes), guarded("present", *nodes), drained(*nodes))
    return calls(actor, run, *loops, guarded("absent", *nodes), to("uncordoned", *nodes))


def _taints(world: World) -> list[Task]:
    return [
        whole(world.process("a"), "a/a1", "n1"),
        people.person(
            world,
            lambda: people.taint(world, "n1"),
            lambda: people.taint(world, "n1", False),
            people.any_of(world, lambda: None, lambda: people.untaint(world, "n1")),
            lambda: people.taint(world, "n1"),
        ),
    ]


def _taint_is_gone(world: World) -> str:
    found = any(taint == people.THEIRS for taint in people.taints(world, "n1"))
    return "" if found else "a person's taint of n1 is gone"


def _deletions(world: World) -> list[Task]:
    return [
        whole(world.process("a"), "a/a1", "n1"),
        people.person(
            world,
            people.any_of(
                world,
                lambda: people.delete_pod(world, "single"),
                lambda: people.delete_pod(world, "single", on="n2"),
                lambda: people.delete_pod(world, "single", now=True),
            ),
            people.any_of(
                world,
                lambda: people.delete_pod(world, "trio"),
                lambda: people.delete_pod(world, "trio", on="n1", now=True),
                lambda: people.delete_pod(world, "trio", on="n2"),
            ),
        ),
    ]


def _changing_load(world: World) -> list[Task]:
    """The HPA looks often and knows no window, so that it follows each change of the load at once."""
    scaler = world.controller(Autoscalers)
    scaler.period, scaler.window = 3.0, 0.0
    return [
        whole(world.process("a"), "a/a1", "n1"),
        people.person(world, *(lambda pods=pods: people.load(world, "single", pods) for pods in (3, 1, 2, 1))),
    ]


def _conditions(world: World) -> list[Task]:
    """Two runs that show what they do by conditions of the node, and another tool with conditions of its own."""
    planned, drained_ = names.LIFECYCLE[0], names.LIFECYCLE[2]
    return [
        calls(world.process("a"), "a/a1", to("cordoned", node_conditions=True), to("parked")),
        calls(world.process("b"), "b/b1", to("cordoned", node_conditions=True), to("returning"), to("uncordoned")),
        people.person(
            world,
            *(
                lambda kind=kind, wanted=wanted: people.condition(world, "n1", kind, wanted)
                for wanted in (True, False)
                for kind in (planned, drained_)
            ),
        ),
    ]


def _participants(world: World) -> list[Task]:
    """A run that stands still at some time, the same command once more, and another tool with its conditions."""
    a, b, fate = world.process("a"), world.process("b"), world.process("fate")

    def again() -> object:
        b.clock.sleep(people.some_time(world))
        return maintain(b, PARTICIPANTS.given)

    def suspended() -> None:
        fate.clock.sleep(people.some_time(world))
        a.process.freeze(people.some_time(world))

    kind = names.LIFECYCLE[1]
    return [
        a.spawn(lambda: maintain(a, PARTICIPANTS.given)),
        b.spawn(again),
        fate.spawn(suspended),
        people.person(
            world,
            lambda: people.condition(world, "n1", kind),
            lambda: people.condition(world, "n1", kind, False),
        ),
    ]


def _without_room(world: World) -> list[Task]:
    """A run whose pods find less room, or none, or are denied, until somebody sees to it."""
    a = world.process("a")
    something = people.any_of(
        world,
        *(lambda pods=pods: people.room(world, "n2", pods) for pods in (0, 1, 2, 3)),
        lambda: people.deny(world, "trio"),
        lambda: world.apply(manifests.node("n9")),
        lambda: world.cordon("n2", True),
    )

    def mended() -> None:
        world.process(people.PERSON).clock.sleep(100.0)
        people.deny(world, "")
        people.room(world, "n2", 4)
        world.cordon("n2", False)

    return [
        a.spawn(lambda: maintain(a, CROWDED.given)),
        people.person(world, something, something, mended),
    ]


def _replaced(world: World) -> list[Task]:
    """A run that replaces pods, somebody who undoes it, and people who scale, roll out, delete and need the room."""
    a, b = world.process("a"), world.process("b")
    something = people.any_of(
        world,
        *(lambda pods=pods: people.scale(world, "trio", pods) for pods in (2, 3, 5)),
        lambda: people.roll_out(world, "trio"),
        lambda: people.roll_out(world, "single"),
        lambda: people.room(world, "n2", 3),
        lambda: people.deny(world, "trio"),
        lambda: world.cordon("n1", False),
        lambda: None,
    )

    def undo() -> list[str]:
        b.clock.sleep(people.some_time(world))
        return recover(b, gates=REPLACED.given.gates, timeout=60.0)

    def mended() -> None:
        world.process(people.PERSON).clock.sleep(30.0)
        people.deny(world, "")
        people.room(world, "n2", 20)

    given = replace(REPLACED.given, timeout=120.0)
    return [
        a.spawn(lambda: maintain(a, given)),
        b.spawn(undo),
        people.person(world, something, something, mended),
    ]


def _replaced_beside(world: World) -> list[Task]:
    """A run that replaces pods, the same command once more, and others who take pods away or stop the controllers."""
    a, b, carl = world.process("a"), world.process("b"), world.process("carl")
    scaler = world.controller(Autoscalers)
    scaler.period, scaler.window = 3.0, 0.0
    something = people.any_of(
        world,
        *(lambda pods=pods: people.scale(world, "trio", pods) for pods in (1, 2, 5)),
        *(lambda app=app: people.roll_out(world, app) for app in ("single", "trio")),
        *(lambda pods=pods: people.load(world, "single", pods) for pods in (1, 3)),
        *(
            lambda app=app, on=on, now=now: people.delete_pod(world, app, on=on, now=now)
            for app, on, now in (("single", "", False), ("trio", "n1", True), ("trio", "n2", False))
        ),
        *(lambda force=force: people.drain(world, "n1", force=force) for force in (False, True)),
        lambda: people.drain(world, "n2"),
        *(lambda app=app: world.delete(kinds.DEPLOYMENTS, app) for app in ("single", "trio")),
        *(lambda stopped=stopped: people.stop_controllers(world, stopped) for stopped in (True, False)),
        *(lambda app=app: people.fail(world, app, 10.0) for app in ("single", "trio")),
    )

    def again() -> object:
        b.clock.sleep(people.some_time(world))
        return maintain(b, given)

    def undo() -> list[str]:
        carl.clock.sleep(people.some_time(world))
        return recover(carl, gates=given.gates, timeout=60.0)

    def mended() -> None:
        world.process(people.PERSON).clock.sleep(30.0)
        people.stop_controllers(world, False)
        world.cordon("n2", False)

    given = replace(REPLACED.given, timeout=120.0)
    other = b.spawn(again) if world.machine.choices.choose(2) else carl.spawn(undo)
    return [
        a.spawn(lambda: maintain(a, given)),
        other,
        people.person(world, something, something, something, mended),
    ]


def _crowd(world: World) -> list[Task]:
    a, b, carl = world.process("a"), world.process("b"), world.process("carl")
    given = CROWD.given

    def undo() -> list[str]:
        carl.clock.sleep(people.some_time(world))
        return recover(carl, gates=given.gates, timeout=60.0)

    anything = people.any_of(
        world,
        *(
            lambda node=node, wanted=wanted: world.cordon(node, wanted)
            for node in ("n1", "n3")
            for wanted in (True, False)
        ),
        *(lambda pods=pods: people.scale(world, "trio", pods) for pods in (2, 3)),
        *(lambda app=app: people.delete_pod(world, app) for app in ("single", "trio")),
        *(lambda wanted=wanted: people.taint(world, "n1", wanted) for wanted in (True, False)),
        lambda: people.untaint(world, "n2"),
        lambda: people.again(world, "n2"),
    )
    return [
        a.spawn(lambda: maintain(a, given)),
        b.spawn(lambda: maintain(b, replace(given, nodes=("n2",)))),
        carl.spawn(undo),
        people.person(world, anything, anything, anything),
    ]


SMALL, CROWD, PARTICIPANTS, CROWDED = scenes.small(), scenes.crowd(), scenes.participants(), scenes.crowded()
REPLACED = replace(scenes.replaced(), floors={"single": 1, "trio": 2})
"""People scale the trio to two."""
TAKEN = replace(scenes.replaced(), floors={})
"""People take pods away."""
TAKEN_KINDS = ("Node", "Deployment", kinds.HPAS.kind)
ALL: tuple[Story, ...] = (
    Story("two want one lock", scenes.locked(), _one_lock, 0.302),
    Story("two runs take one node", SMALL, _locks, 0.28),
    Story("a run, a call by hand and a person", SMALL, _hands, 0.26, ("Node",)),
    Story("two starts of one run on two nodes", SMALL, _starts, 0.05),
    Story("two runs and a tool with conditions", scenes.locked(), _conditions, 0.03),
    Story("two runs guard one workload", scenes.small(nodes=3), _guards, 0.008),
    Story("a drain and a person", SMALL, _drain_and_person, 0.01, ("Node", "Deployment")),
    Story("a drain of a node that registers again", SMALL, _node_again, 0.008, ("Node",)),
    Story("a run and a person who taints", SMALL, _taints, 0.008, ("Node",), _taint_is_gone),
    Story("a run and pods that people delete", scenes.deleted(), _deletions, 0.008, calm=True),
    Story("a run and an HPA that changes its mind", scenes.scaled(), _changing_load, 0.008, ("Deployment",), calm=True),
    Story("a run without room, and somebody who makes some", CROWDED, _without_room, 0.004, ("Node",)),
    Story("pods are replaced, and people", REPLACED, _replaced, 0.004, ("Node", "Deployment"), calm=True),
    Story("pods are replaced beside others who take pods", TAKEN, _replaced_beside, 0.004, TAKEN_KINDS, calm=True),
    Story("two runs of the playbook", scenes.small(nodes=3), _two_maintains, 0.005, calm=True),
    Story("a run and a recover", SMALL, _maintain_and_recover, 0.005, calm=True),
    Story("a run that others take part in", PARTICIPANTS, _participants, 0.001, calm=True),
    Story("everybody at once", CROWD, _crowd, 0.009, ("Node", "Deployment"), calm=True),
)
