# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Stories: who acts at the same time on a small cluster, each in any order with the others.

A story starts its actors; which of them goes on after each step, when each person acts and when each watch's event
arrives is chosen by the machine's choices, so a story and a list of numbers are one run.
"""

from __future__ import annotations

import typing as t
from collections.abc import Callable
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import ClusterError
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.case import Choices
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context, Result, StopRun
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.cordon import CordonOptions, State, cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.drain import DrainOptions, drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.guard import GuardOptions, guard
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.state import StateOptions, state
from ansible_collections.kubeops.node_maintenance.tests.explore import scenes
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.answers import Refused
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Task
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import maintain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World

WHEN = (0.0, 0.05, 0.3, 1.0, 2.5, 6.0, 16.0, 61.0)
"""Seconds that somebody may let pass before acting; one of them is chosen."""

Loop = Callable[[Context], Result]


@dataclass(frozen=True)
class Story:
    """``begin`` starts all who act; ``touches``: people change objects of these kinds, which stay as they want them.

    ``share`` is the part of all orders that is given to this story.
    """

    name: str
    scene: scenes.Scene
    begin: Callable[[World], list[Task]]
    share: float
    touches: tuple[str, ...] = ()


def some_time(world: World) -> float:
    """A pause that the choices pick."""
    return WHEN[world.machine.choices.choose(len(WHEN))]


def calls(actor: Actor, run: str, *loops: Loop) -> Task:
    """Calls by one start of a playbook, with a pause before each; the first that fails ends it."""

    def work() -> bool:
        for loop in loops:
            actor.clock.sleep(some_time(actor.world))
            ctx = actor.ctx(run)
            try:
                if loop(ctx).failed:
                    return False
            except (StopRun, ClusterError):
                return False
            finally:
                ctx.cluster.close()
        return True

    return actor.spawn(work)


def person(world: World, *acts: Callable[[], object]) -> Task:
    """Somebody with kubectl; what is refused to them they let be."""
    actor = world.process("person")

    def work() -> None:
        for act in acts:
            actor.clock.sleep(some_time(world))
            try:
                act()
            except Refused:
                continue

    return actor.spawn(work)


def to(goal: State, *nodes: str, **options: t.Any) -> Loop:
    return lambda ctx: cordon(ctx, CordonOptions(goal, nodes or ("n1",), **options))


def guarded(goal: t.Literal["present", "absent"], *nodes: str) -> Loop:
    return lambda ctx: guard(ctx, GuardOptions(goal, nodes or ("n1",), settle=0.0, timeout=60.0))


def drained(*nodes: str) -> Loop:
    return lambda ctx: drain(ctx, DrainOptions(nodes or ("n1",), Choices(backend="eviction"), timeout=120.0))


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
        person(world, lambda: world.cordon("n1", False), lambda: world.cordon("n1")),
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
        person(
            world, lambda: world.cordon("n1", False), lambda: scale(world, "pair", 1), lambda: scale(world, "pair", 3)
        ),
    ]


def _node_again(world: World) -> list[Task]:
    return [
        calls(world.process("a"), "a/a1", to("cordoned"), guarded("present"), drained()),
        person(world, lambda: again(world, "n1")),
    ]


def _two_maintains(world: World) -> list[Task]:
    a, b = world.process("a"), world.process("b")
    given = world_scene(world).given
    other = replace(given, nodes=("n2",))
    return [a.spawn(lambda: maintain(a, given)), b.spawn(lambda: maintain(b, other))]


def _maintain_and_recover(world: World) -> list[Task]:
    a, b = world.process("a"), world.process("b")
    return [a.spawn(lambda: maintain(a, world_scene(world).given)), calls(b, "", undone())]


def scale(world: World, name: str, replicas: int) -> None:
    """``kubectl scale``."""
    world.patch(kinds.DEPLOYMENTS, name, {"spec": {"replicas": replicas}}, subresource="scale")


def again(world: World, name: str) -> None:
    """The node is deleted, and registers again under the same name."""
    world.delete(kinds.NODES, name)
    world.apply(manifests.node(name))


def world_scene(world: World) -> scenes.Scene:
    """The scene of the small stories."""
    del world
    return SMALL


SMALL = scenes.small()
ALL: tuple[Story, ...] = (
    Story("two runs take one node", SMALL, _locks, 0.34),
    Story("a run, a call by hand and a person", SMALL, _hands, 0.22, ("Node",)),
    Story("two starts of one run on two nodes", SMALL, _starts, 0.22),
    Story("two runs guard one workload", scenes.small(nodes=3), _guards, 0.08),
    Story("a drain and a person", SMALL, _drain_and_person, 0.05, ("Node", "Deployment")),
    Story("a drain of a node that registers again", SMALL, _node_again, 0.04, ("Node",)),
    Story("two runs of the playbook", scenes.small(nodes=3), _two_maintains, 0.03),
    Story("a run and a recover", SMALL, _maintain_and_recover, 0.02),
)
