# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a drain makes of what the watch says of its pods: which are gone, which are new, and whose they are."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_owners
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.outcomes import DrainOutcome
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy, Route
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects
from ansible_collections.kubeops.node_maintenance.tests.unit.support.still_drain import Bench

Make = t.Callable[..., Bench]
ENDING: Raw = {"deleting": "2026-01-01T00:00:00Z"}


@pytest.fixture
def bench() -> t.Iterator[Make]:
    made: list[Bench] = []

    def make(**options: t.Any) -> Bench:
        made.append(Bench(**options))
        return made[-1]

    yield make
    for one in made:
        one.world.close()


def follow(one: Bench, *pods: Raw, **kinds_: list[Raw]) -> Snapshot:
    """A turn in which these are all pods; the nodes are the drain's."""
    nodes = [objects.node(name, unschedulable=True) for name in one.node_drains]
    seen = objects.snapshot(nodes=nodes, pods=list(pods), **kinds_)
    one.follow(seen)
    return seen


@pytest.mark.parametrize(
    ("pod", "state", "left"),
    [
        (objects.pod("p0"), "waiting", False),
        (objects.pod("p0", **ENDING), "leaving", True),
        (objects.pod("p0", on="n9"), "gone", False),
        (None, "gone", False),
    ],
)
def test_a_pod_leaves_when_it_is_told_to_end_and_is_gone_when_it_is_not_there(
    bench: Make, pod: Raw | None, state: str, left: bool
) -> None:
    one = bench()
    move = one.move("p0", "waiting")
    follow(one, *([pod] if pod else []))
    assert (move.state, move.left_at) == (state, one.ctx.clock.now() if left else None)


@pytest.mark.parametrize("state", ["asked", "gone", "failed", "skipped"])
def test_what_is_over_or_under_way_is_not_looked_at(bench: Make, state: t.Any) -> None:
    one = bench()
    move = one.move("p0", state)
    follow(one)
    assert (move.state, move.outcome) == (state, None)


def test_when_a_pod_began_to_leave_is_remembered(bench: Make) -> None:
    one = bench()
    move = one.move("p0", "leaving")
    move.left_at = 1.0
    follow(one, objects.pod("p0", **ENDING))
    assert move.left_at == 1.0


def test_pods_of_a_closed_node_are_nobodys(bench: Make) -> None:
    one = bench()
    closed, open_ = one.move("p0", "waiting"), one.move("p1", "waiting", on="n2")
    one.node_drain.outcome = DrainOutcome.FAILED
    follow(one)
    assert (closed.state, open_.state) == ("waiting", "gone")


@pytest.mark.parametrize(
    ("route", "changes", "delete", "outcome"),
    [
        ("evict", {"ours": True}, False, "evicted"),
        ("evict", {"ours": True}, True, "deleted"),
        ("evict", {}, False, "gone"),
        ("wait", {}, True, "gone"),
        ("surge", {}, False, "surged"),
        ("job", {}, False, "migrated"),
        ("job", {"ours": True}, False, "evicted"),
        ("evict", {"ours": True, "tolerant": True}, False, "tolerates_maintenance"),
        ("evict", {"tolerant": True}, True, "tolerates_maintenance"),
    ],
)
def test_how_a_pod_left_is_told_from_its_route_and_from_who_asked(
    bench: Make, route: Route, changes: Raw, delete: bool, outcome: str
) -> None:
    one = bench(choices=DrainPolicy(disable_eviction=delete))
    move = one.move("p0", "leaving", route, **changes)
    follow(one)
    assert (move.state, move.outcome, move.ended) == ("gone", outcome, one.ctx.clock.now())
    assert [(event.what, event.message, event.name) for event in one.ctx.timeline] == [("gone", outcome, "p0")]


def test_quiet_is_since_a_pod_came_or_one_went_that_may_come_back(bench: Make) -> None:
    one = bench()
    began = one.ctx.clock.now()
    agent = objects.pod("agent", owner=objects.owned("DaemonSet", "agent"))
    moves = one.move("agent", "skipped"), one.move("p0", "leaving")
    follow(one, agent, objects.pod("p0", **ENDING))
    one.world.machine.run_for(3.0)
    follow(one, agent, objects.pod("p0", **ENDING), objects.pod("far", on="n9"))
    assert one.node_drain.quiet_since == began
    follow(one, agent)
    assert one.node_drain.quiet_since == began + 3.0, "nobody knows who made p0"
    assert [move.state for move in moves] == ["skipped", "gone"]
    one.world.machine.run_for(3.0)
    follow(one)
    assert one.node_drain.quiet_since == began + 3.0, "an agent belongs here"
    follow(one, agent)
    assert one.node_drain.quiet_since == began + 6.0


@pytest.mark.parametrize(
    ("changes", "template", "returns"),
    [
        pytest.param({}, {"containers": []}, False, id="the cordon keeps it off"),
        pytest.param({"tolerant": True}, {"containers": []}, True, id="it tolerates the maintenance"),
        pytest.param({}, {"containers": [], "nodeName": "n1"}, True, id="no scheduler is asked"),
        pytest.param({}, {}, True, id="its template is elsewhere"),
    ],
)
def test_the_end_of_a_pod_that_the_cordon_keeps_off_disturbs_nothing(
    bench: Make, changes: Raw, template: Raw, returns: bool
) -> None:
    one = bench()
    web = objects.deployment("web", 2, template={"spec": template})
    owner = objects.owned("ReplicaSet", "web")
    one.move("p0", "leaving", pod={"owner": owner}, **changes)
    began = one.ctx.clock.now()
    follow(one, objects.pod("p0", owner=owner, **ENDING), **web)
    one.world.machine.run_for(3.0)
    follow(one, **web)
    assert one.node_drain.moves["uid-p0"].state == "gone"
    assert one.node_drain.quiet_since == began + (3.0 if returns else 0.0)


def test_a_pod_that_came_late_is_moved_too(bench: Make) -> None:
    one = bench(choices=DrainPolicy(force=True))
    one.move("p0", "waiting")
    follow(one, objects.pod("p0"), objects.pod("late"), objects.pod("there", on="n2"), objects.pod("far", on="n9"))
    assert list(one.node_drain.moves) == ["uid-p0", "uid-late"]
    assert list(one.node_drains["n2"].moves) == ["uid-there"]
    late = one.node_drain.moves["uid-late"]
    assert (late.state, late.plan.route, late.reason) == ("waiting", "evict", late.plan.reason)


def test_what_keeps_its_job_holds_up_no_late_pod(bench: Make) -> None:
    one = bench(choices=DrainPolicy(force=True))
    one.move("p0", "waiting", "job")
    follow(one, objects.pod("p0"), objects.pod("late"))
    assert [move.plan.route for move in one.node_drain.moves.values()] == ["job", "evict"]


@pytest.mark.parametrize(
    ("pod", "state", "outcome"),
    [
        (objects.pod("late"), "failed", "refused"),
        (objects.pod("late", annotations={"kubernetes.io/config.mirror": "x"}), "skipped", "mirror"),
        (objects.pod("late", owner=objects.owned("Job", "j", "batch/v1"), phase="Succeeded"), "waiting", None),
        (objects.pod("late", owner=objects.owned("Job", "j", "batch/v1"), **ENDING), "leaving", None),
    ],
)
def test_a_pod_that_came_late_has_the_route_of_any_other(
    bench: Make, pod: Raw, state: str, outcome: str | None
) -> None:
    """One that may not be moved fails its node; alone it is not `force`d."""
    one = bench()
    follow(one, pod)
    move = one.node_drain.moves["uid-late"]
    assert (move.state, move.outcome) == (state, outcome)
    assert move.left_at == (one.ctx.clock.now() if state == "leaving" else None)
    assert state != "failed" or move.reason == move.plan.reason != ""


def test_a_pod_that_may_not_be_moved_and_was_planned_before_is_told_by_the_plan(bench: Make) -> None:
    one = bench()
    known, over = one.move("p0", "waiting", "refuse"), one.move("p1", "leaving", "refuse")
    follow(one, objects.pod("p0"), objects.pod("p1"), objects.pod("late", on="n2"))
    assert (known.state, over.state) == ("waiting", "leaving"), "nothing is new on their node"
    follow(one, objects.pod("p0"), objects.pod("p1"), objects.pod("new"), objects.pod("late", on="n2"))
    assert (known.state, known.outcome, over.state) == ("failed", "refused", "leaving")


@pytest.mark.parametrize(
    ("state", "before", "phase", "after"),
    [
        pytest.param("waiting", "wait", "Succeeded", "evict", id="what was waited for has ended"),
        pytest.param("waiting", "wait", "Running", "wait", id="it goes on"),
        pytest.param("leaving", "wait", "Succeeded", "wait", id="it leaves already"),
        pytest.param("waiting", "job", "Succeeded", "job", id="a job and an eviction end in the same"),
    ],
)
def test_a_route_is_decided_anew_while_nothing_was_begun(
    bench: Make, state: t.Any, before: Route, phase: str, after: str
) -> None:
    one = bench(choices=DrainPolicy(force=True))
    old = one.move("p0", state, before)
    follow(one, objects.pod("p0", phase=phase))
    new = one.node_drain.moves["uid-p0"]
    assert new.plan.route == after
    assert (new is old) == (before == after)


@pytest.mark.parametrize("what", ["known", "unseen", "not there", "of nobody", "of another kind"])
def test_a_late_pod_waits_until_its_owner_is_known(bench: Make, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """A watch of owners may be behind the one of pods; whether an owner exists is asked every 3 s."""
    asked: list[float] = []

    def there(_ctx: t.Any, _owner: t.Any) -> bool:
        asked.append(one.ctx.clock.now())
        return what == "unseen"

    monkeypatch.setattr(run_owners, "there", there)
    monkeypatch.setattr(run_owners, "scales", lambda *_all: [])
    owner = {"of nobody": [], "of another kind": objects.owned("Game", "g", "example.org/v1")}.get(
        what, objects.owned("ReplicaSet", "web")
    )
    parts = objects.deployment("web", 3) if what == "known" else {}
    one = bench(choices=DrainPolicy(force=True))
    began, late = one.ctx.clock.now(), objects.pod("late", owner=owner)
    seen = objects.snapshot(parts, pods=[late], nodes=[objects.node("n1"), objects.node("n2")])
    for _turn in range(8):
        one.follow(seen)
        one.world.machine.run_for(0.5)
    assert ("uid-late" in one.node_drain.moves) == (what != "unseen")
    assert [at - began for at in asked] == {"unseen": [0.0, 3.0], "not there": [0.0]}.get(what, [])


def test_a_daemon_set_is_an_owner_that_is_known(bench: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_owners, "there", lambda _ctx, _owner: True)
    one = bench()
    agent = {"kind": "DaemonSet", "apiVersion": "apps/v1", "metadata": {"name": "agent", "uid": "uid-DaemonSet-agent"}}
    late = objects.pod("late", owner=objects.owned("DaemonSet", "agent"))
    seen = objects.snapshot(pods=[late], daemon_sets=[agent])
    one.follow(seen)
    assert one.node_drain.moves["uid-late"].outcome == "daemonset", "it was not waited for"


def test_owners_that_cannot_be_watched_are_read_every_three_seconds(
    bench: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, read = bench(), list[float]()

    def again(_ctx: t.Any, known: list[t.Any]) -> list[t.Any]:
        read.append(one.ctx.clock.now())
        return list(known)

    monkeypatch.setattr(run_owners, "again", again)
    for _turn in range(14):
        follow(one)
        one.world.machine.run_for(0.5)
    assert read == [], "there are none"
    game = objects.snapshot(objects.deployment("web", 1)).workloads[0]
    one.routing._scales, one.routing._scaled_at = [game], one.ctx.clock.now()
    began = one.ctx.clock.now()
    for _turn in range(14):
        follow(one)
        one.world.machine.run_for(0.5)
    assert [at - began for at in read] == [3.0, 6.0]
    assert one.live.snapshot().workload(game.uid) is game


@pytest.mark.parametrize(("volumes", "lists"), [(objects.mounts("data"), 2), ([], 0)])
def test_claims_are_read_anew_for_each_late_pod_that_has_one(bench: Make, volumes: list[Raw], lists: int) -> None:
    one = bench()
    pods = [Pod.of(objects.pod("late", volumes=volumes))]
    for _time in range(2):
        one.do(lambda: one.routing._with_owners(pods))
    read = [sent.request.resource for sent in one.world.log if sent.request.verb == "list"]
    assert read.count("persistentvolumeclaims") == lists
    assert len(read) == 2 * lists


@pytest.mark.parametrize(("codes", "ended"), [([], True), (["single"], True), (["not_selected"], False)])
def test_a_surge_is_ended_unless_its_pod_was_not_selected(bench: Make, codes: list[str], ended: bool) -> None:
    """A later drain ends it then."""
    one = bench()
    surge: t.Any = type("Surge", (), {"pod_uid": "uid-p0"})()
    one.routing.surges = {"uid-web": surge}
    for code in codes:
        one.move("p0", "waiting", "surge", code=code)
    one.move("other", "skipped", code="not_selected")
    assert one.routing.ended() == ([surge] if ended else [])


def test_why_a_pod_does_not_end_is_looked_up_anew(bench: Make) -> None:
    one = bench()
    ending = objects.pod("p0", finalizers=["example.org/held"], **ENDING)
    leaving, waiting = one.move("p0", "leaving"), one.move("p1", "waiting")
    nodes = [objects.node("n1", unschedulable=True)]
    seen = objects.snapshot(pods=[ending, objects.pod("p1"), objects.pod("unknown")], nodes=nodes)
    one.do(lambda: one.routing.look_again(one.node_drain, seen))
    assert "example.org/held" in leaving.reason
    assert leaving.reason == leaving.plan.reason
    assert leaving.plan.route == "evict"
    assert waiting.reason == "it is one of several."
