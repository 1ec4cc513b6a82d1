# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How a drain watches for silent kubelets and evacuates fenced nodes: when it looks, what counts, what it says."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node, Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import run_unreachable
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.outcomes import DrainOutcome
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import nodes
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects
from ansible_collections.kubeops.node_maintenance.tests.unit.support.still_drain import Bench

Make = t.Callable[..., Bench]


@pytest.fixture
def bench() -> t.Iterator[Make]:
    """Nobody but a test deletes pods of lost nodes."""
    made: list[Bench] = []

    def make(*lost: str, **options: t.Any) -> Bench:
        one = Bench(**options)
        made.append(one)
        one.world.controller(nodes.TaintEvictions).stop()
        for name in lost:
            one.world.set_node_ready(name, "Unknown")
        return one

    yield make
    for one in made:
        one.world.close()


def looks(one: Bench, verb: str = "list", resource: str = "nodes") -> int:
    return sum((sent.request.verb, sent.request.resource) == (verb, resource) for sent in one.world.log)


def watched(one: Bench) -> None:
    """What the watch says of the node."""
    raw, node = one.world.find(kinds.NODES, "n1"), one.node_drain.node
    if raw is not None and (node is None or raw["metadata"]["resourceVersion"] != node.resource_version):
        one.node_drain.node = Node.of(raw)


# -- silence -------------------------------------------------------------------------------------------


def given_up(one: Bench) -> str:
    found = one.do(lambda: one.node_outcomes._kubelets.given_up(one.node_drain))
    one.world.machine.run_for(0.01)
    return found


@pytest.mark.parametrize(("seconds", "looked"), [(35.0, 0), (35.1, 1)])
def test_a_node_that_is_ready_is_looked_at_when_a_pod_is_five_seconds_over_its_grace(
    bench: Make, seconds: float, looked: int
) -> None:
    one = bench()
    one.move("p0", "leaving", left_at=one.ctx.clock.now())
    one.move("p1", "waiting")
    one.world.machine.run_for(seconds)
    before = looks(one)
    assert (given_up(one), looks(one) - before) == ("", looked)


@pytest.mark.parametrize("known", ["nothing", "Unknown", "True"])
def test_a_node_that_is_not_known_to_be_ready_is_looked_at_at_once(bench: Make, known: str) -> None:
    one = bench()
    one.move("p0", "waiting")
    conditions = {"conditions": {"Ready": known}}
    one.node_drain.node = (
        None if known == "nothing" else objects.snapshot(nodes=[objects.node("n1", **conditions)]).nodes["n1"]
    )
    before = looks(one)
    assert (given_up(one), looks(one) - before) == ("", known != "True")


@pytest.mark.parametrize("state", ["gone", "asked"])
def test_without_pods_and_while_an_answer_is_awaited_nobody_looks(bench: Make, state: t.Any) -> None:
    one = bench("n1")
    one.node_drain.node = None
    one.move("p0", state)
    if state == "asked":
        one.move("p1", "leaving")
    before = looks(one)
    assert (given_up(one), looks(one) - before) == ("", 0)


def test_all_nodes_are_listed_at_once_and_every_fifteen_seconds(bench: Make) -> None:
    one = bench()
    for name, node_drain in one.node_drains.items():
        one.move(f"of-{name}", "leaving", on=name, left_at=one.ctx.clock.now() - 60)
        assert node_drain.node is not None
    before = len(one.world.log)
    for _turn in range(64):
        one.do(lambda: [one.node_outcomes._kubelets.given_up(node_drain) for node_drain in one.node_drains.values()])
        one.world.machine.run_for(0.5)
    sent = [(each.request.verb, each.request.resource) for each in one.world.log[before:]]
    assert sent == [("list", "nodes")] * 3


def test_a_list_that_fails_is_not_heeded_and_sent_again(bench: Make) -> None:
    one = bench("n1")
    one.move("p0", "leaving")
    one.me.faults.when(lambda request: request.resource == "nodes", Fault("error"))
    assert given_up_after(one) == run_unreachable.ALL_ENDING_SECONDS + 0.5


@pytest.mark.parametrize("hangs", [True, False])
def test_a_list_counts_more_than_a_watch_that_has_told_nothing_since(bench: Make, hangs: bool) -> None:
    """One that hangs shows a node as ready that is lost; one that does not tells that it is back."""
    one = bench()
    one.move("p0", "leaving", left_at=one.ctx.clock.now() - 60)
    one.world.set_node_ready("n1", "Unknown")
    given_up(one)
    if not hangs:
        one.world.set_node_ready("n1")
        watched(one)
    for _turn in range(6):
        one.world.machine.run_for(0.5)
        why = given_up(one)
    assert bool(why) is hangs


def test_a_node_that_is_back_behind_a_watch_that_hangs_is_not_given_up(bench: Make) -> None:
    one = bench("n1")
    one.move("p0", "leaving")
    one.move("p1", "waiting")
    watched(one)
    given_up(one)
    one.world.set_node_ready("n1")
    one.node_drains["n1"].moves.popitem()
    for _turn in range(60):
        one.world.machine.run_for(0.5)
        assert given_up(one) == ""


def given_up_after(one: Bench, *events: tuple[float, t.Callable[[], object]], most: float = 60.0) -> float | None:
    """Seconds until the node is given up, while that happens at those times; looked at twice a second."""
    began, left = one.ctx.clock.now(), list(events)
    while (now := round(one.ctx.clock.now() - began, 2)) < most:
        if left and now >= left[0][0]:
            left.pop(0)[1]()
        watched(one)
        if given_up(one):
            return now
        one.world.machine.run_for(0.49)
    return None


def test_progress_on_a_lost_node_is_waited_for(bench: Make) -> None:
    one = bench("n1")
    moves = [one.move(name, "waiting") for name in ("p0", "p1")]

    def leaves(number: int) -> None:
        moves[number].state, moves[number].left_at = "leaving", one.ctx.clock.now()

    assert given_up_after(one, (10.0, lambda: leaves(0))) == 25.0
    assert given_up_after(one, (3.0, lambda: leaves(1))) == 0.0, "it has stalled"


@pytest.mark.parametrize(("last", "seconds"), [("waiting", 25.0), ("leaving", 12.5)])
def test_a_pod_that_is_gone_is_progress(bench: Make, last: t.Any, seconds: float) -> None:
    """Where all are terminating nothing can follow any more."""
    one = bench("n1")
    first = one.move("p0", "waiting")
    one.move("p1", last)

    def gone() -> None:
        first.state = "gone"

    assert given_up_after(one, (10.0, gone)) == seconds


def test_a_node_that_was_back_for_a_moment_begins_anew(bench: Make) -> None:
    one = bench("n1")
    one.move("p0", "waiting")
    back, away = (lambda status=status: one.world.set_node_ready("n1", status) for status in ("True", "Unknown"))
    assert given_up_after(one, (8.0, back), (12.0, away)) == 27.0


def test_the_last_known_state_of_a_deleted_node_counts(bench: Make) -> None:
    one = bench("n1")
    one.move("p0", "leaving")
    assert given_up_after(one, (1.0, lambda: one.world.delete(kinds.NODES, "n1"))) == 2.0


@pytest.mark.parametrize(
    ("ending", "waiting", "expected"),
    [
        (1, 0, "Pod shop/e0 is terminating. They end"),
        (2, 0, "Pod shop/e0, Pod shop/e1 are terminating. They end"),
        (5, 0, "Pod shop/e4 are terminating. They end"),
        (6, 0, "Pod shop/e4 and 1 more are terminating. They end"),
        (0, 1, "pods never end. Pod shop/w0 was not evicted (it is one of several.). They end"),
        (1, 2, "is terminating. Pod shop/w0 was not evicted (it is one of several.). Pod shop/w1 was not evicted"),
        (0, 6, "Pod shop/w4 was not evicted (it is one of several.). They end"),
    ],
)
def test_what_became_of_the_pods_is_said(bench: Make, ending: int, waiting: int, expected: str) -> None:
    one = bench("n1")
    for number in range(ending):
        one.move(f"e{number}", "leaving", left_at=0.0)
    for number in range(waiting):
        one.move(f"w{number}", "waiting")
    assert given_up_after(one) == (15.0 if waiting else 2.0)
    why = given_up(one)
    assert expected in why
    assert why.startswith("its kubelet has not responded since ")
    assert "set -e maintain_fenced=n1" in why


def test_what_blocked_a_pod_is_said_instead_of_its_route(bench: Make) -> None:
    one = bench("n1")
    one.move("p0", "waiting").block(Ref("PodDisruptionBudget", "web", "shop"), "It allows nothing.")
    given_up_after(one)
    assert "Pod shop/p0 was not evicted (It allows nothing.)" in given_up(one)


# -- evacuation ----------------------------------------------------------------------------------------


class Empties:
    """An evacuation of n1 between its looks; `volumes` are attached there."""

    def __init__(self, one: Bench, *volumes: str) -> None:
        self.one = one
        self.all = run_unreachable.Evacuation(one.ctx, one.live, lambda nodes: None, float("inf"))
        self.all._volumes = {"n1": set(volumes)}
        for volume in volumes:
            spec = {"attacher": "csi.example", "nodeName": "n1", "source": {"persistentVolumeName": volume}}
            meta = {"name": f"on-n1-{volume}"}
            one.world.apply(
                {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": meta, "spec": spec}
            )

    def look(self, seconds: float = 0.0) -> None:
        self.one.world.machine.run_for(seconds)
        self.one.do(lambda: self.all._look([self.one.node_drain], self.one.ctx.clock.now()))

    def told(self) -> list[str]:
        return [event.message for event in self.one.me.told]


def test_a_fenced_node_is_looked_at_every_two_seconds(bench: Make) -> None:
    one = bench("n1")
    empties = Empties(one, "pv")
    found = []
    for seconds in (0.0, 1.9, 0.1, 1.9, 0.1):
        empties.look(seconds)
        found.append((looks(one, "get"), looks(one, "list", kinds.VOLUME_ATTACHMENTS.resource)))
    assert found == [(1, 1), (1, 1), (2, 2), (2, 2), (3, 3)]


def test_who_waits_for_no_volume_lists_none(bench: Make) -> None:
    one = bench("n1")
    empties = Empties(one)
    empties.look()
    assert looks(one, "list", kinds.VOLUME_ATTACHMENTS.resource) == 0
    assert empties.told() == ["0 pods left, volumes attached: none"]


def test_what_is_left_is_told_when_it_changes(bench: Make) -> None:
    one = bench("n1")
    empties = Empties(one, "pv-b", "pv-a")
    one.move("p0", "waiting")
    for _look in range(2):
        empties.look(2.0)
    one.world.delete(kinds.VOLUME_ATTACHMENTS, "on-n1-pv-b")
    empties.look(2.0)
    assert empties.told() == [f"1 pods left, volumes attached: {left}" for left in ("pv-a, pv-b", "pv-a")]


@pytest.mark.parametrize(("count", "more"), [(5, ""), (6, " and 1 more"), (8, " and 3 more")])
def test_five_volumes_are_named(bench: Make, count: int, more: str) -> None:
    one = bench("n1")
    empties = Empties(one, *(f"pv{number}" for number in range(count)))
    empties.look()
    assert empties.told() == [f"0 pods left, volumes attached: pv0, pv1, pv2, pv3, pv4{more}"]


@pytest.mark.parametrize(
    ("what", "outcome"),
    [("uncordoned", "uncordoned"), ("back", "came_back"), ("lost", None)],
)
def test_a_fenced_node_is_looked_at_as_it_is_now(bench: Make, what: str, outcome: str | None) -> None:
    one = bench("n1")
    empties = Empties(one)
    if what == "uncordoned":
        one.world.cordon("n1", False)
    if what == "back":
        one.world.set_node_ready("n1")
    empties.look()
    assert one.node_drain.outcome == outcome
    assert ("0 pods left, volumes attached: none" in empties.told()) == (outcome is None)


@pytest.mark.parametrize(
    ("pod", "state", "after", "outcome"),
    [
        (None, "waiting", "gone", "let_go"),
        (None, "leaving", "gone", "let_go"),
        (objects.pod("p0"), "waiting", "waiting", None),
        (objects.pod("p0", deleting="2026-01-01T00:00:00Z"), "waiting", "leaving", None),
        (objects.pod("p0"), "leaving", "leaving", None),
        (None, "skipped", "skipped", None),
    ],
)
def test_a_pod_is_let_go_when_it_is_not_there_any_more(
    bench: Make, pod: Raw | None, state: t.Any, after: str, outcome: str | None
) -> None:
    one = bench()
    move = one.move("p0", state)
    empties = Empties(one)
    one.live.seen = objects.snapshot(pods=[pod] if pod else [])
    one.world.machine.run_for(7.0)
    now = one.ctx.clock.now()
    one.do(lambda: empties.all._follow([one.node_drain], now))
    assert (move.state, move.outcome) == (after, outcome)
    assert move.left_at == (now if (state, after) == ("waiting", "leaving") else None)
    assert len(one.ctx.timeline) == (outcome is not None)


def test_only_the_fenced_nodes_of_a_call_are_evacuated(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    one = bench(choices=DrainPolicy(fenced=("n1", "n2", "n8")))
    one.node_drains["n2"].outcome = DrainOutcome.FAILED
    worked: list[list[str]] = []
    proven: list[str] = []

    def work(_self: object, node_drains: list[t.Any]) -> list[t.Any]:
        worked.append([node_drain.name for node_drain in node_drains])
        return node_drains

    monkeypatch.setattr(run_unreachable.Evacuation, "work", work)
    monkeypatch.setattr(one.node_outcomes, "prove", lambda node_drain: proven.append(node_drain.name))
    todo = list(one.node_drains.values())
    one.do(lambda: one.work._evacuate(todo))
    assert (worked, proven) == ([["n1"]], ["n1"])
    one.node_drain.outcome = DrainOutcome.DRAINED
    one.do(lambda: one.work._evacuate(todo))
    assert worked == [["n1"]], "nobody is left to listen to"


def test_a_fenced_node_that_is_no_longer_out_keeps_nobody_from_looking_at_the_next(bench: Make) -> None:
    one = bench("n1", "n2")
    empties = Empties(one)
    empties.all._volumes["n2"] = set()
    one.world.cordon("n1", False)
    one.do(lambda: empties.all._look(list(one.node_drains.values()), one.ctx.clock.now()))
    assert (one.node_drain.outcome, one.node_drains["n2"].outcome) == ("uncordoned", None)
    assert [event.message for event in one.me.told if event.node == "n2"] == ["0 pods left, volumes attached: none"]
