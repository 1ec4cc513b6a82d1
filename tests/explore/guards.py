# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a table of guards is made of: the guard, how it is taken out, and the explorations that notice it."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, run_requests
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.api_changes import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Run
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_locks import Locks
from ansible_collections.kubeops.node_maintenance.tests.explore import scenes
from ansible_collections.kubeops.node_maintenance.tests.explore.judge import Judge, Violation, holder_of
from ansible_collections.kubeops.node_maintenance.tests.explore.points import (
    LONG,
    SCENES,
    Point,
    asked_for,
    explore,
    play,
    replaced,
    robbed,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Task
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import maintain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World

Out = t.Callable[[pytest.MonkeyPatch], None]
Meets = t.Callable[[verbs.Request], bool]
Notices = t.Callable[[], None]
NAMESPACE = "kubeops-node-maintenance"
SCENE = SCENES["eviction"]


@dataclass(frozen=True)
class Guard:
    """``out`` takes it out; ``notices`` raises then, and does not with it."""

    name: str
    out: Out
    notices: Notices


# -- requests -----------------------------------------------------------------------------------------------


def is_eviction(request: verbs.Request) -> bool:
    return request.resource == kinds.PODS.resource + "/eviction"


def is_node_patch(request: verbs.Request) -> bool:
    return request.resource == kinds.NODES.resource and request.verb == "patch"


def is_lock_patch(request: verbs.Request) -> bool:
    return request.resource == kinds.LEASES.resource and request.verb == "patch" and request.name.startswith("node-")


def is_renewal(request: verbs.Request) -> bool:
    of_lease = request.resource == kinds.LEASES.resource and request.verb == "patch"
    return of_lease and request.name.startswith(names.HEARTBEAT_PREFIX)


def takes_lock(request: verbs.Request) -> bool:
    meta = (request.body or {}).get("metadata") or {}
    return request.resource == kinds.LEASES.resource and request.verb == "create" and meta["name"].startswith("node-")


def makes_budget(request: verbs.Request) -> bool:
    return request.resource == kinds.BUDGETS.resource and request.verb == "create"


# -- explorations -------------------------------------------------------------------------------------------


Begin = t.Callable[[Actor], Task]


def maintained(me: Actor) -> Task:
    """The whole run of the scene."""
    return me.spawn(lambda: maintain(me, SCENE.given))


def cut_off(meets: Meets, fault: Fault, begin: Begin = maintained) -> Notices:
    """What is begun stands still at each such request, and is undone meanwhile."""

    def notice() -> None:
        with SCENE.world() as world:
            task = begin(world.process("me"))
            world.machine.run_until(lambda: not task.alive)
            asked = [sent.ordinal for sent in world.log if sent.process == "me" and meets(sent.request)]
        for ordinal in asked:
            robbed(SCENE, ordinal, fault, begin)

    return notice


def stood_still(meets: Meets) -> Notices:
    """The run stands still before each such request, and another start of it does everything meanwhile."""

    def notice() -> None:
        for ordinal in asked_for(SCENE, meets):
            replaced(Point("eviction", ordinal, Fault("frozen", LONG)))

    return notice


def faulty(meets: Meets, fault: Fault, scene: str = "eviction") -> Notices:
    """The run meets the fault at each such request."""

    def notice() -> None:
        for ordinal in asked_for(SCENES[scene], meets):
            explore(Point(scene, ordinal, fault))

    return notice


def undisturbed() -> None:
    with SCENE.world() as world:
        judge = Judge(world, SCENE.floors)
        outcome = play(world, world.process("me"), SCENE)
        assert outcome is not None
        if not outcome.ok:
            raise Violation(f"I8: {outcome.failed} {outcome.wrong}")
        world.settle()
        judge.all_as_before()


def meanwhile(meets: Meets, seconds: float, act_: t.Callable[[World, verbs.Request], None]) -> Notices:
    """The first such request arrives late, and in between somebody acts; their will counts at the end."""

    def notice() -> None:
        with SCENE.world() as world:
            judge, me = Judge(world, SCENE.floors), world.process("me")
            me.faults.when(meets, Fault("late", seconds))
            task = me.spawn(lambda: maintain(me, SCENE.given))
            world.machine.run_until(lambda: bool(me.faults.met))
            act_(world, me.faults.met[0][1])
            judge.before.update({key: told for key, told in judge_of(world).items() if key.startswith("Node")})
            world.machine.run_until(lambda: not task.alive)
            judge.check()

    return notice


def judge_of(world: World) -> dict[str, t.Any]:
    return Judge(world, {}).before


def locks(world: World, name: str, nodes: t.Sequence[str]) -> Locks:
    ctx = world.process(name).ctx(f"{name}/{name}1")
    return Locks(ctx, Run(name, f"{name}1"), {node: f"{NAMESPACE}/node-{node}" for node in nodes})


def holder(world: World, node: str) -> str:
    return holder_of(world.find(kinds.LEASES, f"node-{node}", NAMESPACE) or {}).partition("/")[0]


def prepared() -> World:
    """A small world with our namespace."""
    world = scenes.small(nodes=2).world()
    world.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    return world


# -- taking out ---------------------------------------------------------------------------------------------


def replaced_by(target: object, name: str, value: object) -> Out:
    """Fails where the table is made, not after all explorations, if ``target`` has no such guard."""
    getattr(target, name)
    return lambda patch: patch.setattr(target, name, value)


def without_version(kind: str, verb: str) -> Out:
    """Writes of this kind and verb carry no resourceVersion."""

    def out(patch: pytest.MonkeyPatch) -> None:
        real = run_requests.request_for

        def request_for(change: Change) -> verbs.Request:
            mine = (change.target.kind, change.verb) == (kind, verb)
            return real(replace(change, resource_version="") if mine else change)

        patch.setattr(run_requests, "request_for", request_for)

    return out
