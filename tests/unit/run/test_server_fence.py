# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who is written into the server's fence, and when; what its policy makes of that is shown on the lab."""

from __future__ import annotations

import copy
import typing as t
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import (
    Conflict,
    Forbidden,
    NotFound,
    UnknownOutcome,
    from_answer,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.change import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.act import request_for
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context, Run
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.lease import LostLockError
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.lock import Locks
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.server_fence import by_the_fence, forget
from ansible_collections.kubeops.node_maintenance.tests.unit.run.test_lock import Store, Time

PLACES = {"a": "ns/node-a", "b": "ns/node-b"}


@dataclass
class Fenced(Store):
    """With a map of the fence beside the leases; ``map`` is ``None`` where it is not installed."""

    map: dict[str, t.Any] | None = None
    denied: set[str] = field(default_factory=set)
    cut: set[str] = field(default_factory=set)
    reads: int = 0
    before_write: Callable[[], None] = lambda: None

    def install(self) -> None:
        self.map = {"metadata": {"name": names.FENCE_MAP, "resourceVersion": "m0"}}

    @property
    def entries(self) -> dict[str, str]:
        return dict((self.map or {}).get("held") or {})

    def send(self, request: Request, *, fence: Callable[[], None] | None = None, **times: float) -> dict[str, t.Any]:
        if request.resource != "nodefences.maintenance.kubeops.io":
            return super().send(request, fence=fence, **times)
        if request.method == "PATCH":
            happen, self.before_write = self.before_write, lambda: None
            happen()
        if fence is not None:
            fence()
        if request.verb in self.denied:
            raise Forbidden("may not", request=request, status=403)
        if self.map is None:
            raise NotFound("gone", request=request, status=404)
        if request.method == "GET":
            self.reads += 1
            return copy.deepcopy(self.map)
        body = dict(request.body or {})
        if body["metadata"]["resourceVersion"] != self.map["metadata"]["resourceVersion"]:
            raise Conflict("changed", request=request, status=409)
        self.put(body["held"])
        if "PATCH" in self.cut:
            self.cut.clear()
            raise UnknownOutcome("cut", request=request)
        return copy.deepcopy(self.map)

    def put(self, held: t.Mapping[str, str | None]) -> None:
        assert self.map is not None
        self.version += 1
        left = {key: value for key, value in {**self.entries, **held}.items() if value is not None}
        self.map = {"metadata": {"name": names.FENCE_MAP, "resourceVersion": f"m{self.version}"}, "held": left}


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def store() -> Fenced:
    made = Fenced()
    made.install()
    return made


def locks(store: Fenced, run: str, clock: Time, told: list[str] | None = None) -> Locks:
    def progress(event: t.Any) -> None:
        if told is not None:
            told.append(event.message)

    ctx = Context(t.cast("t.Any", store), clock=clock, by=f"{run}@here", progress=progress)
    return Locks(ctx, t.cast("Run", Run.parse(run)), PLACES)


def stopped(mine: Locks) -> Locks:
    """As in a process that is frozen: it renews nothing."""
    mine._stop.set()
    return mine


def test_who_takes_a_lock_is_written_in_and_who_drops_it_is_taken_out(store: Fenced, clock: Time) -> None:
    mine = locks(store, "r1/n1", clock)
    assert mine.take() == {}
    assert store.entries == {"node-a": "r1/n1", "node-b": "r1/n1"}
    mine.drop(["a"])
    assert store.entries == {"node-b": "r1/n1"}
    mine.leave()
    assert store.entries == {"node-b": "r1/n1"}, "the next call of the run goes on with it"


def test_without_a_map_nothing_is_written_and_it_is_asked_for_once(clock: Time) -> None:
    store = Fenced()
    mine = locks(store, "r1/n1", clock)
    mine.take()
    store.install()
    mine.drop(["a", "b"])
    mine.leave()
    assert store.entries == {}
    assert store.reads == 0, "a map that came later is nothing to give back to"


def test_the_next_call_of_a_run_only_reads(store: Fenced, clock: Time) -> None:
    first = locks(store, "r1/n1", clock)
    first.take()
    first.leave()
    was = (store.map or {})["metadata"]["resourceVersion"]
    second = locks(store, "r1/n1", clock)
    second.take()
    second.leave()
    assert (store.map or {})["metadata"]["resourceVersion"] == was


def test_who_takes_a_node_over_stands_in_the_fence_before_it_acts(store: Fenced, clock: Time) -> None:
    stopped(locks(store, "r1/n1", clock)).take()
    taker = locks(store, "r2/n2", clock)
    assert taker.take() == {}
    assert set(store.entries.values()) == {"r2/n2"}
    taker.leave()


def test_a_refused_lock_is_not_written_in(store: Fenced, clock: Time) -> None:
    stopped(locks(store, "r1/n1", clock)).take()
    clock.at = [(1005.0, lambda: store.renew("node-a"))]
    other = locks(store, "r2/n2", clock)
    assert set(other.take()) == {"a"}
    assert store.entries == {"node-a": "r1/n1", "node-b": "r2/n2"}
    other.leave()


def test_a_process_that_was_frozen_before_its_entry_does_not_write_over_the_taker(store: Fenced, clock: Time) -> None:
    frozen = locks(store, "r1/n1", clock)

    def taken_over_meanwhile() -> None:
        stopped(frozen)
        taker = locks(store, "r2/n2", clock)
        clock.present += 1200.0
        assert taker.take() == {}
        taker.leave()

    store.before_write = taken_over_meanwhile
    frozen.take()
    assert set(store.entries.values()) == {"r2/n2"}
    with pytest.raises(LostLockError):
        frozen.fence()


def test_entries_of_others_written_meanwhile_stay(store: Fenced, clock: Time) -> None:
    store.before_write = lambda: store.put({"node-z": "r9/n9"})
    mine = locks(store, "r1/n1", clock)
    mine.take()
    assert store.entries == {"node-a": "r1/n1", "node-b": "r1/n1", "node-z": "r9/n9"}
    mine.drop(["a", "b"])
    mine.leave()
    assert store.entries == {"node-z": "r9/n9"}


def test_a_lost_answer_of_the_map_is_looked_up(store: Fenced, clock: Time) -> None:
    store.cut = {"PATCH"}
    mine = locks(store, "r1/n1", clock)
    mine.take()
    mine.leave()
    assert set(store.entries.values()) == {"r1/n1"}


def test_a_map_that_may_not_be_written_is_told_and_no_failure(store: Fenced, clock: Time) -> None:
    store.denied = {"patch"}
    told: list[str] = []
    mine = locks(store, "r1/n1", clock, told)
    assert mine.take() == {}
    mine.drop(["a", "b"])
    mine.leave()
    assert store.leases == {}
    assert any("fence in the server could not be written" in text for text in told)


def test_a_map_that_may_not_be_read_is_as_good_as_none(store: Fenced, clock: Time) -> None:
    store.denied = {"get", "patch"}
    told: list[str] = []
    mine = locks(store, "r1/n1", clock, told)
    assert mine.take() == {}
    mine.leave()
    assert told == []


def test_who_is_refused_and_holds_the_lock_is_written_in_again(clock: Time) -> None:
    store = Fenced()
    mine = locks(store, "r1/n1", clock)
    mine.take()
    store.install()
    mine.regain("a")
    assert store.entries == {"node-a": "r1/n1"}
    mine.drop(["a"])
    assert store.entries == {}
    mine.leave()


def test_who_is_refused_and_lost_the_lock_learns_who_has_it_and_writes_nothing(store: Fenced, clock: Time) -> None:
    mine = stopped(locks(store, "r1/n1", clock))
    mine.take()
    # Against the protocol, so that the lease still looks fresh to its first holder.
    store.leases["node-a"]["spec"]["holderIdentity"] = "r2/n2"
    store.renew("node-a")
    store.put({"node-a": "r2/n2"})
    with pytest.raises(LostLockError, match="r2"):
        mine.regain("a")
    assert store.entries == {"node-a": "r2/n2", "node-b": "r1/n1"}
    mine.regain("b")


def test_who_is_refused_and_may_not_write_the_map_hears_that(store: Fenced, clock: Time) -> None:
    mine = locks(store, "r1/n1", clock)
    mine.take()
    store.put({"node-a": None})
    store.denied = {"patch"}
    with pytest.raises(Forbidden):
        mine.regain("a")
    mine.leave()


def test_what_a_killed_start_left_is_taken_out_with_its_lock_and_nothing_of_others(store: Fenced, clock: Time) -> None:
    store.put({"node-a": "r1/n1", "node-b": "r2/n1"})
    ctx = Context(t.cast("t.Any", store), clock=clock)
    forget(ctx, ["node-a", "node-b", "node-c"], Run("r1", "n2"))
    assert store.entries == {"node-b": "r2/n1"}


def test_an_eviction_names_its_lock_and_nothing_else_does() -> None:
    pod = Ref("Pod", "web-1", "shop", "u1", "v1")
    body = request_for(Change("evict", pod, "", fence="node-a=r1/n1")).body
    assert body is not None
    assert body["metadata"]["annotations"] == {"maintenance.kubeops.io/fence": "node-a=r1/n1"}
    plain = request_for(Change("evict", pod, "")).body
    assert plain is not None
    assert "annotations" not in plain["metadata"]


def denied(policy: str) -> t.Any:
    words = f"pods \"web\" is forbidden: ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: x"
    status = {"kind": "Status", "reason": "Forbidden", "code": 403, "message": words}
    return from_answer(None, 403, status)


def test_our_policy_is_told_from_others() -> None:
    assert by_the_fence(denied(names.FENCE_POLICY))
    assert not by_the_fence(denied("no-evictions-on-fridays"))
    assert not by_the_fence(Forbidden(f"pods/eviction is forbidden '{names.FENCE_POLICY}'", status=403))
