# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lock protocol on a store of leases in memory, with a clock that only sleeps move.

What the real API server does with leases is shown on the lab; here time has to stand still, run ahead
and belong to two processes at once, which no cluster can be made to do.
"""

from __future__ import annotations

import copy
import typing as t
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.client import Listing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.clock import Clock
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import (
    AlreadyExists,
    Conflict,
    NotFound,
    UnknownOutcome,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context, Run
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.lease import WORKING, LostLockError
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.lock import (
    IDLE,
    Locks,
)

PLACE = {"a": "ns/node-a"}


@dataclass
class Time(Clock):
    """Moves only when somebody sleeps; ``at`` holds what happens on the way."""

    present: float = 1000.0
    wall_ahead: float = 0.0
    at: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def now(self) -> float:
        return self.present

    def epoch(self) -> float:
        return self.present + self.wall_ahead

    def sleep(self, seconds: float) -> None:
        self.present += seconds
        due = [event for event in self.at if event[0] <= self.present]
        self.at = [event for event in self.at if event[0] > self.present]
        for _when, happen in due:
            happen()


@dataclass
class Store:
    """Just enough of an API server: leases with resourceVersions."""

    leases: dict[str, dict[str, t.Any]] = field(default_factory=dict)
    version: int = 0
    writes: int = 0
    lose: set[str] = field(default_factory=set)
    late: Callable[[], None] = lambda: None

    def items(self, kind: t.Any, *, namespace: str, patience: float) -> Listing:
        del kind, namespace, patience
        return Listing([copy.deepcopy(lease) for lease in self.leases.values()], "")

    def send(self, request: Request, *, fence: Callable[[], None] | None = None, **_times: float) -> dict[str, t.Any]:
        if fence is not None:
            fence()
        if request.method == "GET":
            if request.name not in self.leases:
                raise NotFound("gone", request=request, status=404)
            return copy.deepcopy(self.leases[request.name])
        answer = self._written(request)
        self.late()
        if request.method in self.lose:
            self.lose.discard(request.method)
            raise UnknownOutcome("cut", request=request)
        return answer

    def _written(self, request: Request) -> dict[str, t.Any]:
        self.writes += 1
        self.version += 1
        body = copy.deepcopy(dict(request.body or {}))
        if request.method == "POST":
            name = body["metadata"]["name"]
            if name in self.leases:
                raise AlreadyExists("there", request=request, status=409)
            body["metadata"] |= {"uid": f"u{self.version}", "resourceVersion": str(self.version)}
            self.leases[name] = body
            return copy.deepcopy(body)
        lease = self.leases.get(request.name)
        if lease is None:
            raise NotFound("gone", request=request, status=404)
        wanted = body.get("preconditions") or body["metadata"]
        if wanted.get("resourceVersion") != lease["metadata"]["resourceVersion"]:
            raise Conflict("changed", request=request, status=409)
        if request.method == "DELETE":
            del self.leases[request.name]
            return {}
        lease["metadata"].setdefault("annotations", {}).update(body["metadata"].get("annotations") or {})
        lease["spec"].update(body.get("spec") or {})
        lease["metadata"]["resourceVersion"] = str(self.version)
        return copy.deepcopy(lease)

    def renew(self, name: str = "node-a") -> None:
        self.version += 1
        self.leases[name]["metadata"]["resourceVersion"] = str(self.version)


def locks(store: Store, run: str, clock: Time) -> Locks:
    ctx = Context(t.cast("t.Any", store), clock=clock, by=f"{run}@here")
    return Locks(ctx, t.cast("Run", Run.parse(run)), PLACE)


@pytest.fixture
def clock() -> Time:
    return Time()


def test_a_free_lock_is_taken_and_dropped(clock: Time) -> None:
    store = Store()
    mine = locks(store, "r1/n1", clock)
    assert mine.take() == {}
    lease = store.leases["node-a"]
    assert lease["spec"]["holderIdentity"] == "r1/n1"
    assert lease["spec"]["leaseDurationSeconds"] == WORKING
    mine.drop(["a"])
    mine.leave()
    assert store.leases == {}


def test_between_two_calls_of_a_run_the_lock_waits_a_minute(clock: Time) -> None:
    store = Store()
    first = locks(store, "r1/n1", clock)
    first.take()
    first.leave()
    assert store.leases["node-a"]["spec"]["leaseDurationSeconds"] == IDLE
    assert locks(store, "r1/n1", clock).take() == {}
    assert clock.present == 1000.0


def held(store: Store, clock: Time) -> None:
    holder = locks(store, "r1/n1", clock)
    holder.take()
    holder._stop.set()


def test_a_silent_lock_is_taken_over_after_its_own_duration_and_not_before(clock: Time) -> None:
    store = Store()
    held(store, clock)
    assert locks(store, "r2/n2", clock).take() == {}
    assert clock.present - 1000.0 == pytest.approx(WORKING)
    assert store.leases["node-a"]["spec"]["holderIdentity"] == "r2/n2"
    assert store.leases["node-a"]["spec"]["leaseTransitions"] == 1


def test_a_lock_that_is_renewed_refuses_another_run_and_names_its_holder(clock: Time) -> None:
    store = Store()
    held(store, clock)
    clock.at = [(1005.0, store.renew)]
    refused = locks(store, "r2/n2", clock).take()
    assert refused["a"].holder == "r1"
    assert "r1/n1@here" in refused["a"].message
    assert clock.present <= 1006.0
    assert store.leases["node-a"]["spec"]["holderIdentity"] == "r1/n1"


def test_the_same_run_waits_for_its_dying_predecessor(clock: Time) -> None:
    store = Store()
    held(store, clock)
    clock.at = [(1005.0, store.renew), (1010.0, store.renew), (1015.0, store.renew)]
    assert locks(store, "r1/n2", clock).take(patient=True) == {}
    assert clock.present - 1015.0 == pytest.approx(WORKING)


def test_the_same_run_refuses_after_a_minute_of_renewals(clock: Time) -> None:
    store = Store()
    held(store, clock)
    clock.at = [(1000.0 + 5 * n, store.renew) for n in range(1, 40)]
    assert "a" in locks(store, "r1/n2", clock).take(patient=True)
    assert 1060.0 <= clock.present <= 1062.0


def test_an_identity_read_from_the_record_does_not_enter_a_working_call(clock: Time) -> None:
    store = Store()
    held(store, clock)
    clock.at = [(1004.0, store.renew)]
    assert "a" in locks(store, "r1/n1", clock).take(borrowed=True)


def test_a_lock_for_hours_is_refused_at_once(clock: Time) -> None:
    store = Store()
    held(store, clock)
    store.leases["node-a"]["spec"]["leaseDurationSeconds"] = 3600
    assert "a" in locks(store, "r1/n2", clock).take(patient=True)
    assert clock.present == 1000.0


def test_a_lock_left_for_hours_goes_to_the_one_who_vouches_that_nobody_works(clock: Time) -> None:
    store = Store()
    held(store, clock)
    store.leases["node-a"]["spec"]["leaseDurationSeconds"] = 3600
    start = clock.now()
    mine = locks(store, "r1/new", clock)
    assert mine.take(adopt=True) == {}
    assert clock.now() == start
    assert store.leases["node-a"]["spec"]["holderIdentity"] == "r1/new"
    mine.drop(["a"])
    mine.leave()


def test_a_lock_that_vanishes_while_we_watch_is_ours(clock: Time) -> None:
    store = Store()
    held(store, clock)
    clock.at = [(1003.0, store.leases.clear)]
    assert locks(store, "r2/n2", clock).take() == {}
    assert store.leases["node-a"]["spec"]["holderIdentity"] == "r2/n2"


def test_a_thawed_run_is_fenced_before_its_next_write(clock: Time) -> None:
    store = Store()
    frozen = locks(store, "r1/n1", clock)
    frozen.take()
    frozen._stop.set()
    locks(store, "r2/n2", clock).take()
    clock.present += 1200.0
    with pytest.raises(LostLockError, match="r2"):
        frozen.fence()
    before = store.writes
    with pytest.raises(LostLockError):
        frozen.fence()
    assert store.writes == before


def test_a_thawed_run_that_nobody_replaced_goes_on(clock: Time) -> None:
    store = Store()
    frozen = locks(store, "r1/n1", clock)
    frozen.take()
    frozen._stop.set()
    clock.present += 1200.0
    frozen.fence()
    assert store.leases["node-a"]["spec"]["holderIdentity"] == "r1/n1"


def test_a_deleted_lock_is_lost(clock: Time) -> None:
    store = Store()
    mine = locks(store, "r1/n1", clock)
    mine.take()
    mine._stop.set()
    store.leases.clear()
    clock.present += 100.0
    with pytest.raises(LostLockError, match="deleted"):
        mine.fence()


@pytest.mark.parametrize("verb", ["POST", "PATCH", "DELETE"])
def test_a_lost_answer_is_looked_up_and_not_an_error(clock: Time, verb: str) -> None:
    store = Store(lose={verb})
    mine = locks(store, "r1/n1", clock)
    assert mine.take() == {}
    assert store.leases["node-a"]["spec"]["holderIdentity"] == "r1/n1"
    clock.present += 60.0
    mine.fence()
    mine.drop(["a"])
    mine.leave()
    assert store.leases == {}
    assert store.lose == set()


def test_freshness_counts_from_when_the_renewal_was_sent(clock: Time) -> None:
    store = Store()
    mine = locks(store, "r1/n1", clock)
    store.late = lambda: clock.sleep(40.0)
    mine.take()
    mine._stop.set()
    store.late = lambda: None
    writes = store.writes
    mine.fence()
    assert store.writes == writes + 1, "the answer was young, but what it answered was not"


def test_a_machine_that_slept_has_to_renew_although_its_clock_stood_still(clock: Time) -> None:
    store = Store()
    mine = locks(store, "r1/n1", clock)
    mine.take()
    mine._stop.set()
    writes = store.writes
    mine.fence()
    assert store.writes == writes
    clock.wall_ahead += 3600.0
    mine.fence()
    assert store.writes == writes + 1


def test_a_lock_that_somebody_else_holds_by_now_is_not_deleted(clock: Time) -> None:
    store = Store()
    mine = locks(store, "r1/n1", clock)
    mine.take()
    mine._stop.set()
    store.leases["node-a"]["spec"]["holderIdentity"] = "r2/n2"
    store.renew()
    mine.drop(["a"])
    assert store.leases["node-a"]["spec"]["holderIdentity"] == "r2/n2"


def test_a_long_lease_of_somebody_else_is_not_adopted(clock: Time) -> None:
    store = Store()
    held(store, clock)
    store.leases["node-a"]["spec"] |= {"leaseDurationSeconds": 3600, "holderIdentity": "node-healthcheck"}
    assert "a" in locks(store, "r1/n2", clock).take(adopt=True)
    assert store.leases["node-a"]["spec"]["holderIdentity"] == "node-healthcheck"


def test_a_lock_that_was_renewed_while_it_was_taken_stays_with_its_holder(clock: Time) -> None:
    store = Store()
    held(store, clock)
    clock.at = [(1015.0, store.renew)]
    assert "a" in locks(store, "r2/n2", clock).take()
    assert store.leases["node-a"]["spec"]["holderIdentity"] == "r1/n1"
