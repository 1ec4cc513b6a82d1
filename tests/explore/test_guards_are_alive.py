# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Each guard is alive: with any one of them taken out, an exploration that is green with it goes red."""

from __future__ import annotations

import contextlib
import types
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_reconcile
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.client import Cluster
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import run_node_steps
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    run_heartbeats,
    run_node_lock,
    run_stored,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_locks import LeaseRenewer, Locks
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_node_lock import (
    LostLockError,
    NodeLock,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import run_guard_call, steps
from ansible_collections.kubeops.node_maintenance.tests.explore import (
    guards_of_replacements,
    guards_of_runs,
    scenes,
    stories,
)
from ansible_collections.kubeops.node_maintenance.tests.explore.guards import (
    SCENE,
    Guard,
    cut_off,
    faulty,
    holder,
    is_eviction,
    is_lock_patch,
    is_node_patch,
    is_renewal,
    locks,
    makes_budget,
    meanwhile,
    prepared,
    replaced_by,
    stood_still,
    takes_lock,
    undisturbed,
    without_version,
)
from ansible_collections.kubeops.node_maintenance.tests.explore.judge import Violation, record
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Task
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import maintain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World


def taints_survive() -> None:
    """Somebody taints the node while our patch of it is on its way."""
    mine = {"key": "person", "value": "", "effect": "PreferNoSchedule"}
    with SCENE.world() as world:
        me = world.process("me")
        me.faults.when(is_node_patch, Fault("late", 3.0))
        task = me.spawn(lambda: maintain(me, SCENE.given))
        world.machine.run_until(lambda: bool(me.faults.met))
        raw = world.get(kinds.NODES, "n1")
        world.patch(kinds.NODES, "n1", {"spec": {"taints": [*raw["spec"]["taints"], mine]}})
        world.machine.run_until(lambda: not task.alive)
        world.settle()
        taints = world.get(kinds.NODES, "n1")["spec"].get("taints") or []
        if not any(taint["key"] == "person" for taint in taints):
            raise Violation("a person's taint is gone")


def replaced_pod(world: World, request: verbs.Request) -> None:
    """The pod whose eviction is on its way is deleted by a person; another one gets its name elsewhere."""
    world.delete(kinds.PODS, request.name, request.namespace, gracePeriodSeconds=0)
    world.machine.run_for(3.0)


def late_taker() -> None:
    """Who takes a silent lock stands still before the write; its holder thaws and renews it meanwhile."""
    with prepared() as world:
        a, b = locks(world, "a", ["n1"]), locks(world, "b", ["n1"])
        holding = world.process("a").spawn(a.take)
        world.machine.run_until(lambda: not holding.alive)
        world.process("a").process.freeze(16.0)
        world.process("b").faults.when(is_lock_patch, Fault("late", 4.0))
        taking = world.process("b").spawn(b.take)
        world.machine.run_until(lambda: not taking.alive)
        taking.value()
        world.machine.run_for(1.0)
        if holder(world, "n1") != "a":
            raise Violation("I5: the lock of n1 was taken from somebody who renewed it")


def thawed_holder() -> None:
    """A holder of two nodes thaws after one of them was taken, and before it has seen that."""
    with prepared() as world:
        a, b = locks(world, "a", ["n1", "n2"]), locks(world, "b", ["n1"])
        holding = world.process("a").spawn(a.take)
        world.machine.run_until(lambda: not holding.alive)
        world.process("a").process.freeze()
        taking = world.process("b").spawn(b.take)
        world.machine.run_until(lambda: not taking.alive)
        assert taking.value() == {}
        world.process("a").process.thaw()
        world.machine.run_for(1.0)
        passed: list[bool] = []

        def pass_it() -> None:
            with contextlib.suppress(LostLockError):
                a.prove(["n1"])
                passed.append(True)

        passing = world.process("a").spawn(pass_it)
        world.machine.run_until(lambda: not passing.alive)
        if passed:
            raise Violation(f"I5: the lock of a was proven while {holder(world, 'n1')} held the lock of n1")
        kept = world.process("a").spawn(lambda: a.prove(["n2"]))
        world.machine.run_until(lambda: not kept.alive)
        kept.value()


def waiting_for_others() -> None:
    """While the lock of n2 is waited for, that of n1, which was taken, stays ours."""
    with prepared() as world:
        dead = locks(world, "a", ["n2"])

        def hold() -> None:
            dead.take()
            dead.leave()

        holding = world.process("a").spawn(hold)
        world.machine.run_until(lambda: not holding.alive)
        b, c = locks(world, "b", ["n1", "n2"]), locks(world, "c", ["n1"])
        taking = world.process("b").spawn(b.take)
        world.machine.run_for(2.0)
        third = world.process("c").spawn(c.take)
        world.machine.run_until(lambda: not third.alive and not taking.alive)
        if holder(world, "n1") != "b":
            raise Violation("I5: the lock of n1 was taken from somebody who waited for another")


def tasks_at_work() -> None:
    """A node that is out for tasks whose time is up is given back by nobody but who says that they are over."""
    with scenes.small(nodes=2).world() as world:
        a = world.process("a")
        for loop in (stories.to("cordoned"), stories.guarded("present"), stories.drained(), stories.to("out")):
            assert not a.run(loop, "a/a1").failed
        world.machine.run_for(120.0)
        world.process("b").run(stories.to("uncordoned"))
        found = record(world.get(kinds.NODES, "n1"))
        if found is None or found["step"] != "out":
            raise Violation("a node was given back whose tasks may be running")


# -- the guards ---------------------------------------------------------------------------------------------


def once(patch: pytest.MonkeyPatch) -> None:
    """The lock is proven before the first attempt of a request, and not before the others."""
    real = Cluster.send

    def send(self: Cluster, request: verbs.Request, *, before_send: t.Any = None, **options: t.Any) -> dict[str, t.Any]:
        if before_send:
            before_send()
        return real(self, request, **options)

    patch.setattr(Cluster, "send", send)


def without_uid(patch: pytest.MonkeyPatch) -> None:
    real = verbs.evict

    def evict(namespace: str, name: str, uid: str, **options: t.Any) -> verbs.Request:
        request = real(namespace, name, uid, **options)
        body = dict(request.body or {})
        body["deleteOptions"] = {k: v for k, v in body["deleteOptions"].items() if k != "preconditions"}
        return replace(request, body=body)

    patch.setattr(verbs, "evict", evict)


def renewed_late(patch: pytest.MonkeyPatch) -> None:
    """Locks are renewed only when all of them are taken."""
    take, keep = Locks.take, LeaseRenewer.start

    def taken(self: Locks, **options: bool) -> t.Any:
        found = take(self, **options)
        keep(self._keeper)
        return found

    patch.setattr(Locks, "take", taken)
    patch.setattr(LeaseRenewer, "start", lambda self: None)


def never_ended(patch: pytest.MonkeyPatch) -> None:
    """A lease is taken without an end of the heartbeat that it names."""
    patch.setattr(run_heartbeats, "end", lambda *args: True)


class _Never(Exception):
    """Nobody raises it."""


WITHOUT_UNKNOWN = types.SimpleNamespace(**{**vars(errors), "UnknownOutcome": _Never})
"""The errors, of which one is never met."""


def modules(me: Actor) -> Task:
    """A playbook of plain modules, each of which takes the locks for itself."""
    return stories.calls(me, "a/a1", stories.to("cordoned"), stories.guarded("present"), stories.drained())


GUARDS = (
    Guard(
        "the proof of the lock before a write",
        replaced_by(NodeLock, "prove", lambda self: None),
        cut_off(makes_budget, Fault("frozen", 600.0)),
    ),
    Guard("the proof of the lock inside each attempt", once, cut_off(makes_budget, Fault("frozen", 600.0))),
    Guard("resourceVersion of node patches", without_version("Node", "patch"), taints_survive),
    Guard("uid of evictions", without_uid, meanwhile(is_eviction, 8.0, replaced_pod)),
    Guard("resourceVersion of lock patches", without_version("Lease", "patch"), late_taker),
    Guard(
        "only the lease that was watched",
        replaced_by(run_node_lock, "_unchanged", lambda seen: lambda lease: True),
        late_taker,
    ),
    Guard("the end of the heartbeat before the taking", never_ended, thawed_holder),
    Guard("renewal while others are waited for", renewed_late, waiting_for_others),
    Guard(
        "read again after a lost answer",
        replaced_by(run_reconcile, "errors", WITHOUT_UNKNOWN),
        faulty(is_node_patch, Fault("lost")),
    ),
    Guard(
        "what is out is not taken over", replaced_by(run_node_steps, "_may_adopt", lambda *args: True), tasks_at_work
    ),
    Guard(
        "the record after the lock",
        replaced_by(run_guard_call.GuardCall, "_look_again", lambda self: None),
        cut_off(is_renewal, Fault("frozen", 600.0), modules),
    ),
    Guard(
        "what is kept of the run after the lock",
        replaced_by(run_stored, "not_to_do", lambda *args: {}),
        stood_still(takes_lock),
    ),
    Guard("deletion costs before raising", replaced_by(steps, "_lowest", lambda pods: []), undisturbed),
)


@pytest.mark.parametrize(
    "guard",
    [*GUARDS, *guards_of_runs.GUARDS, *guards_of_replacements.GUARDS],
    ids=lambda guard: guard.name.replace(" ", "-"),
)
def test_it_is_missed_when_it_is_taken_out(
    guard: Guard, monkeypatch: pytest.MonkeyPatch, record_property: t.Callable[[str, object], None]
) -> None:
    guard.notices()
    guard.out(monkeypatch)
    with pytest.raises(AssertionError):
        guard.notices()
    record_property("guards", 1)
