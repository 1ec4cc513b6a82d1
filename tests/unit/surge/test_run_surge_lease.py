# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lease of a surge, which says whose it is: written once, renewed, proven, taken over, and forgotten."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.surge_records import Surge
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import run_surge_lease
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_surge_lease import LostSurgeError
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.support.halves import Caller, Play
from ansible_collections.kubeops.node_maintenance.tests.unit.support.play import recorded, wanted
from ansible_collections.kubeops.node_maintenance.tests.unit.support.world import World

LEASES = kinds.LEASES.resource


@pytest.fixture
def world() -> World:
    return World(["n1"])


class Keeper(Caller):
    """Who holds a surge's lease and does nothing else."""

    def __init__(self, world: World, run: str = "r1/n1", holder: str | None = None) -> None:
        super().__init__(world, run)
        self.leases = run_surge_lease.SurgeLeases(self.ctx, run if holder is None else holder, self.prove_locks)
        self.surge = wanted(world, "n1")

    def hold(self, surge: Surge | None = None) -> None:
        self.surge = self.me.run(lambda _ctx: self.leases.claim(surge or self.surge))

    def write(self) -> None:
        self.surge = self.me.run(lambda _ctx: self.leases.write(self.surge))

    def prove(self) -> None:
        self.does(lambda: self.leases.prove(self.surge))


@pytest.mark.parametrize(("lost", "writes"), [(False, [f"create {LEASES}"]), (True, [f"create {LEASES}"])])
def test_a_record_is_written_once(world: World, lost: bool, writes: list[str]) -> None:
    one = Keeper(world)
    if lost:
        one.loses(0)
    one.write()
    assert one.writes == writes
    assert (one.surge.holder, one.surge.lease_uid != "") == ("r1/n1", True)
    assert one.proven == [("n1",)] * len(one.writes)
    assert [change.verb for change in one.ctx.changes] == ["create"], "it is part of the call's result"


def test_a_record_of_somebody_else_is_not_written_over(world: World) -> None:
    Keeper(world, "other/n").write()
    one = Keeper(world)
    with pytest.raises(errors.AlreadyExists):
        one.write()
    assert recorded(world).holder == "other/n"


def test_holding_is_no_change_of_the_call(world: World) -> None:
    one = Keeper(world)
    one.write()
    one.hold()
    assert len(one.ctx.changes) == 1


@pytest.mark.parametrize(("seconds", "reads"), [(19.9, 0), (20.0, 1), (60.0, 3)])
def test_a_lease_is_renewed_every_twenty_seconds(world: World, seconds: float, reads: int) -> None:
    one = Keeper(world)
    one.write()
    world.act(seconds)
    assert one.writes == [f"create {LEASES}", *[f"patch {LEASES}"] * reads]


def test_after_the_end_nothing_is_renewed(world: World) -> None:
    one = Keeper(world)
    one.write()
    one.does(one.leases.close)
    world.act(70.0)
    assert one.writes == [f"create {LEASES}"]
    one.hold()
    world.act(70.0)
    assert one.writes == [f"create {LEASES}", f"patch {LEASES}"]


@pytest.mark.parametrize(("seconds", "held"), [(55.0, 0), (55.1, 1)])
def test_a_lease_proves_something_until_five_seconds_before_its_end(world: World, seconds: float, held: int) -> None:
    one = Keeper(world)
    one.write()
    one.does(one.leases.close)
    world.act(seconds)
    before = len(one.writes)
    one.prove()
    assert len(one.writes) - before == held
    assert one.proven[-1 - held] == ("n1",), "its nodes are proven first"


def test_what_was_never_held_proves_nothing(world: World) -> None:
    Keeper(world).write()
    one = Keeper(world, "r1/n2")
    one.surge = recorded(world)
    one.prove()
    assert one.writes == [f"patch {LEASES}"]
    assert recorded(world).holder == "r1/n2"


@pytest.mark.parametrize(
    ("theirs", "held"),
    [("r1/n9", True), ("other/n", False), ("", False)],
)
def test_a_lease_that_changed_is_held_only_where_it_is_still_our_runs(world: World, theirs: str, held: bool) -> None:
    one = Keeper(world)
    one.write()
    one.does(one.leases.close)
    world.apply(recorded(world).renewing(theirs, "2026-01-01T00:00:09.000Z"))
    if held:
        one.hold()
        assert recorded(world).holder == "r1/n1"
        return
    with pytest.raises(LostSurgeError, match="is held by run other now" if theirs else "is held by run nobody now"):
        one.hold()
    assert recorded(world).holder == theirs


def test_a_foreign_lease_is_taken_as_it_was_judged_and_not_otherwise(world: World) -> None:
    Keeper(world, "other/n").write()
    silent = recorded(world)
    one = Keeper(world)
    world.apply(silent.renewing("other/n", "2026-01-01T00:00:09.000Z"))
    with pytest.raises(LostSurgeError):
        one.hold(silent)
    one.hold(recorded(world))
    assert recorded(world).holder == "r1/n1"


def test_a_lease_that_is_another_one_or_gone_is_lost(world: World) -> None:
    one = Keeper(world)
    one.write()
    one.does(one.leases.close)
    with pytest.raises(LostSurgeError, match="is gone"):
        one.hold(replace(one.surge, lease_uid="another"))
    world.sim.delete(kinds.LEASES, names.surge_name(world.uid), names.NAMESPACE)
    with pytest.raises(LostSurgeError, match="is gone"):
        one.hold()


def test_a_lease_is_forgotten_by_its_uid_and_never_renewed_again(world: World) -> None:
    one = Keeper(world)
    one.write()
    one.does(lambda: one.leases.forget(replace(one.surge, lease_uid="another")))
    assert world.leases
    one.hold(recorded(world))
    one.does(lambda: one.leases.forget(one.surge))
    assert not world.leases
    before = len(one.writes)
    world.act(70.0)
    assert len(one.writes) == before


def test_a_renewal_that_fails_is_tried_once_and_again_at_its_next_time(world: World) -> None:
    one = Keeper(world)
    one.write()
    one.me.faults.when(lambda request: request.writes, Fault("unreachable"), times=1)
    world.act(21.0)
    assert recorded(world).holder == "r1/n1"
    assert one.sent.count(f"patch {LEASES}") == 1
    world.act(20.0)
    assert one.sent.count(f"patch {LEASES}") == 2


def test_an_answer_is_waited_for_half_a_minute(world: World) -> None:
    one = Keeper(world)
    one.me.faults.when(lambda request: request.writes, Fault("hang"))
    began = world.sim.machine.now
    one.write()
    assert 30.0 <= world.sim.machine.now - began < 30.9


def test_eight_leases_are_renewed_at_once(world: World) -> None:
    one = Keeper(world)
    for number in range(10):
        wider = replace(one.surge, uid=f"uid-{number}")
        one.does(lambda wider=wider: one.leases.write(wider))  # type: ignore[misc]
    one.me.faults.when(lambda request: request.verb == "patch", Fault("late", 1.0), times=10)
    world.act(20.5)
    assert one.sent.count(f"patch {LEASES}") == 8
    world.act(1.0)
    assert one.sent.count(f"patch {LEASES}") == 10


@pytest.mark.parametrize(
    ("changes", "same"),
    [
        ({}, True),
        ({"holderIdentity": "r1/n2"}, False),
        ({"renewTime": "2026-01-01T00:00:01.000000Z"}, False),
    ],
)
def test_our_own_write_is_known_by_name_time_and_record(world: World, changes: dict[str, str], same: bool) -> None:
    one, now = wanted(world, "n1"), "2026-01-01T00:00:00.000Z"
    world.apply(one.writing("r1/n1", now))
    (raw,) = world.leases
    lease = {**raw, "spec": {**raw["spec"], **changes}}
    assert run_surge_lease._is_as(lease, one, "r1/n1", now) is same
    assert not run_surge_lease._is_as(lease, replace(one, stage="ready"), "r1/n1", now)


# -- what the writer of both halves does with it -------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "lowered", "prior"), [(2, False, None), (1, False, None), (2, True, 2), (3, False, 3)]
)
def test_a_surge_begins_anew_on_somebody_elses_count(
    world: World, count: int, lowered: bool, prior: int | None
) -> None:
    """One replica and our count of two are ours; once it was lowered only the one is."""
    Play(world).rounds()
    one = Caller(world, "r1/n1")
    leases = run_surge_lease.SurgeLeases(one.ctx, "r1/n1", one.prove_locks)
    writer = run_surge_lease.SurgeWriter(one.ctx, leases)
    tracked = run_surge_lease.TrackedSurge(surge=recorded(world), claimed=True, serving_since=1.0)
    world.scale(count)
    assert one.me.run(lambda _ctx: writer.rebase(tracked, world.snapshot(), lowered=lowered)) is (prior is not None)
    assert (recorded(world).prior_replicas, recorded(world).target) == (prior or 1, (prior or 1) + 1)
    assert tracked.serving_since == (None if prior else 1.0)
    assert [event.message for event in one.me.told] == (
        [f"scaled to {prior} replicas by somebody else: surge continued from there"] if prior else []
    )


def test_what_serves_without_a_break_is_counted_from_its_first_second() -> None:
    tracked = run_surge_lease.TrackedSurge()
    assert [tracked.served(now) for now in (0.0, 3.0)] == [0.0, 3.0]
    tracked.serving_since = None
    assert [tracked.served(now) for now in (5.0, 6.5)] == [0.0, 1.5]
