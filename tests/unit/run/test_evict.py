# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the evictor does with each answer an API server can give, also those no lab gives on demand."""

from __future__ import annotations

import threading
import time
import typing as t
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.clock import Clock
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.migrate import PodPlan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.objects import Budget, Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.snapshot import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.evict import Evictor, Move
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.lease import LostLockError
from ansible_collections.kubeops.node_maintenance.tests.unit.plan import objects


@dataclass
class Time(Clock):
    present: float = 100.0

    def now(self) -> float:
        return self.present


@dataclass
class Server:
    """Answers evictions from a script, in order; without a script it accepts."""

    script: list[Exception] = field(default_factory=list)
    asked: list[Request] = field(default_factory=list)
    gate: threading.Event = field(default_factory=threading.Event)
    patience: list[float] = field(default_factory=list)

    def send(self, request: Request, *, patience: float, fence: t.Callable[[], None] | None = None) -> dict[str, t.Any]:
        self.patience.append(patience)
        if fence is not None:
            fence()
        self.asked.append(request)
        self.gate.wait(5)
        if self.script:
            raise self.script.pop(0)
        return {}


@pytest.fixture
def server() -> Server:
    made = Server()
    made.gate.set()
    return made


@pytest.fixture
def clock() -> Time:
    return Time()


@pytest.fixture
def evictor(server: Server, clock: Time) -> Iterator[Evictor]:
    made = Evictor(Context(t.cast("t.Any", server), clock=clock), lambda node: None, lambda: None, 8, None, False)
    yield made
    server.gate.set()
    made.close()


def pods(count: int) -> list[Pod]:
    return [Pod.of(objects.pod(f"p{n}")) for n in range(count)]


def moves(found: list[Pod]) -> list[Move]:
    return [Move(PodPlan(p, "evict", "replicas", "", None), "waiting", 100.0) for p in found]


def budget(allowed: int, version: str = "5", name: str = "web", healthy: int = 5) -> Budget:
    return Budget.of(
        {
            "metadata": {"name": name, "namespace": "shop", "uid": name, "resourceVersion": version, "generation": 1},
            "spec": {"maxUnavailable": 3, "selector": {"matchLabels": {"app": "web"}}},
            "status": {
                "observedGeneration": 1,
                "disruptionsAllowed": allowed,
                "currentHealthy": healthy,
                "desiredHealthy": healthy - allowed,
                "expectedPods": healthy,
            },
        }
    )


def snapshot(found: list[Pod], *budgets: Budget) -> Snapshot:
    return Snapshot(pods=tuple(found), budgets=budgets)


def settled(evictor: Evictor) -> None:
    until = time.monotonic() + 5
    while not evictor.idle and time.monotonic() < until:
        evictor.settle()
        time.sleep(0.005)
    assert evictor.idle


def test_one_budget_has_one_request_in_flight(evictor: Evictor, server: Server) -> None:
    server.gate.clear()
    found = pods(5)
    line = moves(found)
    evictor.step(line, snapshot(found, budget(3)))
    evictor.step(line, snapshot(found, budget(3)))
    assert [m.state for m in line] == ["asked", "waiting", "waiting", "waiting", "waiting"]
    server.gate.set()
    settled(evictor)
    assert len(server.asked) == 1


def test_a_reactive_budget_is_asked_though_it_allows_nothing(evictor: Evictor, server: Server, clock: Time) -> None:
    """Its owner lifts it only when somebody tries; which budgets are such ones, the plan has decided."""
    (found,) = pods(1)
    spent = budget(0, healthy=3)
    move = Move(PodPlan(found, "evict", "reactive_budget", "", None), "waiting", 100.0)
    server.script = [errors.BudgetSpent("not yet", status=429)]
    evictor.step([move], snapshot([found], spent))
    settled(evictor)
    assert (len(server.asked), move.state, move.refusals) == (1, "waiting", 1)
    evictor.step([move], snapshot([found], spent))
    assert len(server.asked) == 1, "not again at once"
    clock.present += 60
    evictor.step([move], snapshot([found], spent))
    settled(evictor)
    assert (len(server.asked), move.state) == (2, "leaving")


def test_no_more_are_asked_than_a_budget_allows_until_its_status_changes(evictor: Evictor, server: Server) -> None:
    found = pods(5)
    line = moves(found)
    for _turn in range(5):
        evictor.step(line, snapshot(found, budget(2, healthy=4)))
        settled(evictor)
    assert len(server.asked) == 2
    evictor.step(line, snapshot(found, budget(1, version="6", healthy=3)))
    settled(evictor)
    assert len(server.asked) == 3


def test_pods_without_a_budget_go_in_parallel(evictor: Evictor, server: Server) -> None:
    server.gate.clear()
    found = pods(12)
    line = moves(found)
    evictor.step(line, snapshot(found))
    until = time.monotonic() + 5
    while len(server.asked) < 8 and time.monotonic() < until:
        time.sleep(0.005)
    time.sleep(0.05)
    assert len(server.asked) == 8
    server.gate.set()
    settled(evictor)


def test_evictions_carry_the_uid_of_the_pod(evictor: Evictor, server: Server) -> None:
    found = pods(1)
    evictor.step(moves(found), snapshot(found))
    settled(evictor)
    body = server.asked[0].body
    assert body is not None
    assert body["deleteOptions"]["preconditions"] == {"uid": "uid-p0"}


def spent() -> errors.ClusterError:
    cause = errors.Cause("DisruptionBudget", "needs 5 healthy pods and has 4 currently")
    return errors.BudgetSpent("no", status=429, causes=(cause,))


def test_a_refused_budget_is_asked_again_when_it_changes_and_not_before(
    evictor: Evictor, server: Server, clock: Time
) -> None:
    server.script = [spent()]
    found = pods(5)
    line = moves(found[:1])
    evictor.step(line, snapshot(found, budget(1)))
    settled(evictor)
    assert line[0].state == "waiting"
    assert line[0].blocked_by is not None
    assert "has 4" in line[0].blocked_by["message"]
    evictor.step(line, snapshot(found, budget(1)))
    assert len(server.asked) == 1
    clock.present += 1
    evictor.step(line, snapshot(found, budget(1, version="6")))
    settled(evictor)
    assert [m.state for m in line] == ["leaving"]
    assert line[0].blocked_by is None


def test_a_pod_that_is_not_there_any_more_has_left(evictor: Evictor, server: Server) -> None:
    server.script = [errors.NotFound("gone", status=404)]
    found = pods(1)
    line = moves(found)
    evictor.step(line, snapshot(found))
    settled(evictor)
    assert (line[0].state, line[0].outcome) == ("gone", "already_gone")


def test_a_conflict_does_not_say_that_a_pod_has_left(evictor: Evictor, server: Server, clock: Time) -> None:
    server.script = [errors.Conflict("somebody wrote the budget", status=409)]
    found = pods(1)
    line = moves(found)
    evictor.step(line, snapshot(found))
    settled(evictor)
    assert (line[0].state, line[0].blocked_by) == ("waiting", None)
    evictor.step(line, snapshot(found))
    assert line[0].state == "waiting"
    clock.present += 1
    evictor.step(line, snapshot(found))
    settled(evictor)
    assert (line[0].state, line[0].tries) == ("leaving", 2)


@pytest.mark.parametrize(
    "error",
    [
        errors.DeniedByWebhook("not now", status=403),
        errors.NamespaceTerminating("ends", status=403),
        errors.ServerError("oops", status=500),
        errors.UnknownOutcome("cut"),
        errors.Unreachable("away"),
    ],
)
def test_what_may_pass_is_tried_again_after_a_growing_pause(
    evictor: Evictor, server: Server, clock: Time, error: Exception
) -> None:
    server.script = [error, error]
    found = pods(1)
    line = moves(found)
    for pause in (1.0, 2.0):
        evictor.step(line, snapshot(found))
        settled(evictor)
        assert line[0].state == "waiting"
        assert line[0].not_before - clock.present == pause
        clock.present = line[0].not_before
    evictor.step(line, snapshot(found))
    settled(evictor)
    assert line[0].state == "leaving"


def test_a_missing_permission_ends_the_move(evictor: Evictor, server: Server) -> None:
    server.script = [errors.Forbidden("no", status=403)]
    found = pods(1)
    line = moves(found)
    evictor.step(line, snapshot(found))
    settled(evictor)
    assert line[0].state == "failed"


def test_two_foreign_budgets_are_never_asked(evictor: Evictor, server: Server) -> None:
    found = pods(1)
    line = moves(found)
    evictor.step(line, snapshot(found, budget(1), budget(1, name="other")))
    assert server.asked == []
    assert line[0].outcome == "two_budgets"
    assert "shop/web" in line[0].reason
    assert "shop/other" in line[0].reason


def test_a_status_that_the_pods_contradict_is_not_believed(evictor: Evictor, server: Server) -> None:
    found = [Pod.of(objects.pod(f"p{n}", ready=n == 0)) for n in range(5)]
    evictor.step(moves(found[:1]), snapshot(found, budget(3)))
    assert server.asked == []


def web(ready: int, replicas: int) -> Snapshot:
    """A Deployment without a budget."""
    made = [objects.pod(f"p{n}", owner=objects.owned("ReplicaSet", "web")) for n in range(ready)]
    return objects.snapshot(objects.deployment("web", replicas), pods=made)


def test_without_a_budget_no_more_than_one_is_missing(evictor: Evictor, server: Server) -> None:
    found = web(4, 4)
    line = moves(list(found.pods))
    for _turn in range(3):
        evictor.step(line, found)
        settled(evictor)
    assert len(server.asked) == 1
    assert line[1].blocked_by == {
        "kind": "Deployment",
        "namespace": "shop",
        "name": "web",
        "message": "Deployment shop/web needs 3 ready pods beside this one and has 2. "
        "It has no budget, so one goes at a time.",
    }


class Hesitant:
    """The lock of a node, which is proven only when the test says so."""

    def __init__(self) -> None:
        self.asked, self.proven = threading.Event(), threading.Event()

    def __call__(self, node: str) -> None:
        self.asked.set()
        self.proven.wait(5)


@pytest.mark.parametrize(
    ("what", "sent"),
    [
        pytest.param(lambda evictor, clock: None, 1, id="nothing"),
        pytest.param(lambda evictor, clock: evictor.step([], web(3, 4)), 0, id="another pod is not ready any more"),
        pytest.param(lambda evictor, clock: evictor.withdraw("n1"), 0, id="the node is in service again"),
        pytest.param(
            lambda evictor, clock: setattr(clock, "present", clock.present + 5), 0, id="nobody has looked since"
        ),
    ],
)
def test_what_was_decided_has_to_hold_when_the_first_byte_would_leave(
    server: Server, clock: Time, what: t.Callable[[Evictor, Time], None], sent: int
) -> None:
    fence = Hesitant()
    server.gate.set()
    evictor = Evictor(Context(t.cast("t.Any", server), clock=clock), fence, lambda: None, 8, None, False)
    found = web(4, 4)
    line = moves(list(found.pods[:1]))
    evictor.step(line, found)
    assert fence.asked.wait(5)
    what(evictor, clock)
    fence.proven.set()
    settled(evictor)
    evictor.close()
    assert len(server.asked) == sent
    assert line[0].state == ("leaving" if sent else "waiting")


def test_a_request_is_sent_once_and_then_decided_anew(evictor: Evictor, server: Server) -> None:
    found = web(4, 4)
    evictor.step(moves(list(found.pods[:1])), found)
    settled(evictor)
    assert server.patience == [0.0]


def test_a_lost_lock_stops_everything(server: Server, clock: Time) -> None:
    def fence(node: str) -> None:
        raise LostLockError(node, "by somebody")

    evictor = Evictor(Context(t.cast("t.Any", server), clock=clock), fence, lambda: None, 8, None, False)
    found = pods(1)
    evictor.step(moves(found), snapshot(found))
    evictor.close()
    with pytest.raises(LostLockError, match="n1 was taken over"):
        evictor.settle()
    assert server.asked == []


def test_grace_period_zero_is_zero(server: Server, clock: Time) -> None:
    evictor = Evictor(Context(t.cast("t.Any", server), clock=clock), lambda node: None, lambda: None, 8, 0, False)
    found = pods(1)
    evictor.step(moves(found), snapshot(found))
    settled(evictor)
    evictor.close()
    body = server.asked[0].body
    assert body is not None
    assert body["deleteOptions"]["gracePeriodSeconds"] == 0


def fenced_off() -> errors.ClusterError:
    words = f"ValidatingAdmissionPolicy '{names.FENCE_POLICY}' with binding '{names.FENCE_POLICY}' denied request: gone"
    return errors.DeniedByWebhook(words, status=403)


def test_evictions_name_the_lock_of_their_node(evictor: Evictor, server: Server) -> None:
    found = pods(1)
    evictor.fenced = {found[0].node: "node-a=r1/n1"}
    evictor.step(moves(found), snapshot(found))
    settled(evictor)
    body = server.asked[0].body
    assert body is not None
    assert body["metadata"]["annotations"] == {names.FENCE: "node-a=r1/n1"}


def test_the_servers_fence_is_asked_again_once_where_the_lock_is_ours(evictor: Evictor, server: Server) -> None:
    found = pods(1)
    todo = moves(found)
    regained: list[str] = []
    evictor.regain = regained.append
    server.script = [fenced_off()]
    evictor.step(todo, snapshot(found))
    settled(evictor)
    assert regained == [found[0].node]
    assert todo[0].state == "leaving"
    assert len(server.asked) == 2


def test_the_servers_fence_ends_a_run_whose_lock_is_lost(evictor: Evictor, server: Server) -> None:
    def regain(node: str) -> None:
        raise LostLockError(node, "run r2 has it")

    found = pods(1)
    evictor.regain = regain
    server.script = [fenced_off()]
    evictor.step(moves(found), snapshot(found))
    with pytest.raises(LostLockError) as stopped:
        settled(evictor)
    assert stopped.value.code == "adopted_by"
    assert len(server.asked) == 1, "it is not sent again"


def test_a_fence_that_refuses_its_own_holder_fails_the_pod_and_says_so(evictor: Evictor, server: Server) -> None:
    found = pods(1)
    todo = moves(found)
    server.script = [fenced_off(), fenced_off()]
    evictor.step(todo, snapshot(found))
    settled(evictor)
    assert todo[0].state == "failed"
    assert names.FENCE_POLICY in todo[0].reason
