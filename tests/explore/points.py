# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One fault at one request of one scene: played, ended by the same command where it has to be, and judged."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import run_leases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.lock_leases import WORKING
from ansible_collections.kubeops.node_maintenance.tests.explore import followers, invariants, scenes
from ansible_collections.kubeops.node_maintenance.tests.explore.judge import NODES, Judge, Violation, holder_of, record
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Task
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Outcome, maintain, recover
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.wire import Sent
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World

WITHIN = 3600.0
"""Seconds of simulated time after which a run counts as hanging."""
LONG = 2400.0
"""Seconds for which a process stands still whose work is done by another meanwhile."""
SCENES = {
    scene.name: scene
    for scene in (
        scenes.begin_and_end("eviction"),
        scenes.begin_and_end("koordinator"),
        scenes.odd(),
        scenes.anew(),
        scenes.waited_for(),
        scenes.replaced(),
    )
}

SURVIVED = ("lost", "conflict", "throttled", "throttled with time", "in doubt")
"""After these the run goes on by itself; after the others the same command may be needed once more."""

LASTING = ("down",)
"""While these last, asking again is what a run should do."""


@dataclass(frozen=True)
class Point:
    """One fault at one request of one scene."""

    scene: str
    ordinal: int
    fault: Fault

    def __str__(self) -> str:
        return f"{self.scene} {self.ordinal} {self.fault.what}"


def play(world: World, actor: Actor, scene: scenes.Scene) -> Outcome | None:
    """The run, to its end; ``None`` where it was killed."""
    task = actor.spawn(lambda: maintain(actor, scene.given))
    invariants.ended(world, lambda: not task.alive, WITHIN)
    return None if actor.process.dead else t.cast("Outcome", task.value())


def requests_of(scene: scenes.Scene) -> int:
    """How many requests an undisturbed run makes."""
    with scene.world() as world:
        judge, me = Judge(world, scene.floors), world.process("me")
        outcome = play(world, me, scene)
        assert outcome is not None
        assert outcome.ok, (outcome.failed, outcome.wrong)
        world.settle()
        judge.all_as_before(but=scene.touches)
        told(world, outcome)
        return me.link.count


@functools.cache
def undisturbed(name: str) -> int:
    """The same for the scene of that name, counted once."""
    return requests_of(SCENES[name])


def told(world: World, *outcomes: Outcome | None) -> None:
    """What the runs tell of themselves is true, enough and not too much.

    Raises:
        Violation: it is not.
    """
    known = [outcome for outcome in outcomes if outcome is not None]
    invariants.all_told(world)
    invariants.no_secrets(world, known)
    for outcome in known:
        invariants.says_why(world, outcome)


def looks(world: World, scene: scenes.Scene, run: str = "") -> Actor:
    """The same command in check mode, which writes nothing, however it ends (I10)."""
    actor = world.process("looks")
    play(world, actor, replace(scene, given=replace(scene.given, run=run, check=True)))
    invariants.only_looked(world, actor.name)
    return actor


def foretold(scene: scenes.Scene) -> None:
    """Check mode, and then the run: it changes what was foretold, and nothing else.

    Raises:
        Violation: they differ.
    """
    with scene.world() as world:
        looked, me = looks(world, scene), world.process("me")
        play(world, me, scene)
        invariants.foretold(looked, me)


def points(scene: scenes.Scene) -> list[Point]:
    return [Point(scene.name, ordinal, fault) for ordinal in range(requests_of(scene)) for fault in scene.faults]


def explore(point: Point) -> None:
    """Raises where an invariant does not hold.

    Raises:
        Violation: it says which.
    """
    scene = SCENES[point.scene]
    with scene.world() as world:
        judge, me = Judge(world, scene.floors), world.process("me")
        followers.attend(world, judge.broken)
        me.faults.at(point.ordinal, point.fault)
        outcome = play(world, me, scene)
        if not me.faults.met or not point.fault.fits(me.faults.met[0][1]):
            return
        judge.check()
        if point.fault.what not in LASTING:
            invariants.few_requests(me.link.count, undisturbed(point.scene))
        told(world, outcome)
        if point.fault.what in SURVIVED and (outcome is None or not outcome.ok):
            raise Violation(f"I8: the run does not live through it: {outcome and (outcome.failed, outcome.wrong)}")
        if outcome is None or not outcome.ok:
            # A person needs some seconds to see it and to call again.
            world.machine.run_for(5.0)
            again = play(world, world.process("again"), scene)
            if again and (run := out(world)):
                # The tasks may still run on the host, so whoever calls again has to name the run.
                given = replace(scene.given, run=run)
                again = play(world, world.process("again"), replace(scene, given=given))
            if again is None or not again.ok:
                said = (again.failed, again.wrong) if again else "killed"
                raise Violation(f"I8: the same command does not come through: {said}")
            told(world, again)
        world.settle()
        judge.all_as_before(but=scene.touches)
        judge.evicted_once()


def replaced(point: Point) -> None:
    """The process stands still at that request; somebody else calls the same command, and it thaws when all is done.

    A start begins when it stores its run, or finds it stored. One that stood still before that has nothing in the
    cluster and has learnt of nobody: when it thaws it is the same command once more, later, and may do everything.
    From then on it does nothing more.

    Raises:
        Violation: what the thawed process did was seen.
    """
    scene = SCENES[point.scene]
    with scene.world() as world:
        judge, me = Judge(world, scene.floors), world.process("me")
        followers.attend(world, judge.broken)
        me.faults.at(point.ordinal, point.fault)
        task = me.spawn(lambda: maintain(me, scene.given))
        world.machine.run_until(lambda: me.process.frozen or not task.alive, within=WITHIN)
        if not task.alive:
            return
        world.machine.run_for(WORKING + 1.0)
        other = world.process("other")
        second = play(world, other, scene)
        if second and (run := out(world)):
            second = play(world, other, replace(scene, given=replace(scene.given, run=run)))
        if second is None or not second.ok:
            said = (second.failed, second.wrong) if second else "killed"
            raise Violation(f"I8: the same command does not come through: {said}")
        thawed = world.machine.now
        invariants.ended(world, lambda: not task.alive, WITHIN)
        world.settle()
        mine = [sent for sent in world.log if sent.process == "me" and sent.arrived > thawed]
        begun = min((sent.arrived for sent in mine if begins(sent)), default=float("inf"))
        if late := [sent for sent in mine if acted(sent) and sent.arrived < begun]:
            raise Violation(
                f"I5: thawed, it still did {[(s.request.verb, s.request.resource, s.request.name) for s in late]}"
            )
        judge.all_as_before(but=scene.touches)
        judge.evicted_once()


def robbed(scene: scenes.Scene, ordinal: int, fault: Fault, begin: t.Callable[[Actor], Task] | None = None) -> None:
    """The run is cut off at a request; somebody undoes it by its name, and then it comes back.

    `begin` starts other calls than those of `maintain`.

    Raises:
        Violation: what it did after that was seen.
    """
    with scene.world() as world:
        judge, me = Judge(world, scene.floors), world.process("me")
        me.faults.at(ordinal, fault)
        task = begin(me) if begin else me.spawn(lambda: maintain(me, scene.given))
        world.machine.run_until(lambda: bool(me.faults.met) or not task.alive, within=WITHIN)
        known = next(filter(None, (record(raw) for raw in world.store.of(NODES).values())), None)
        if known is None:
            return
        other = world.process("other")
        undoing = other.spawn(lambda: recover(other, str(known["run"])))
        invariants.ended(world, lambda: not undoing.alive, WITHIN)
        if wrong := undoing.value():
            raise Violation(f"no way back for run {known['run']}: {wrong}")
        undone = world.machine.now
        invariants.ended(world, lambda: not task.alive, WITHIN)
        world.settle()
        judge.check()
        mine = [sent for sent in world.log if sent.process == "me" and sent.arrived > undone]
        if late := [sent for sent in mine if acted(sent)]:
            told = [(sent.request.verb, sent.request.resource, sent.request.name) for sent in late]
            raise Violation(f"I5: robbed, it still did {told}")


def asked_for(scene: scenes.Scene, meets: t.Callable[[Request], bool]) -> list[int]:
    """The numbers of such requests in an undisturbed run."""
    with scene.world() as world:
        play(world, world.process("me"), scene)
        return [sent.ordinal for sent in world.log if sent.process == "me" and meets(sent.request)]


def acted(sent: Sent) -> bool:
    """Whether it changed something of the users': what is its own it may take back."""
    mine = sent.request.resource in ("leases.coordination.k8s.io", "configmaps")
    return sent.request.writes and 200 <= sent.status < 300 and not mine


def begins(sent: Sent) -> bool:
    """Whether a run was stored by it."""
    return (sent.request.verb, sent.request.resource, sent.status) == ("create", "configmaps", 201)


def out(world: World) -> str:
    """The run whose tasks were at work on a host when it ended."""
    records = (record(raw) for raw in world.store.of(NODES).values())
    by_record = (str(found["run"]) for found in records if found and found["step"] == "out")
    leases = world.store.of(kinds.LEASES.resource).values()
    by_lock = (holder_of(lease).partition("/")[0] for lease in leases if run_leases.of_tasks(lease))
    return next(by_record, "") or next(by_lock, "")
