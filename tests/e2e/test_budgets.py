# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Budgets are kept, explained, and never laid one over the other."""

from __future__ import annotations

import shlex

import pytest
from support import sampling
from support.arena import Arena, Workload
from support.lab import Lab
from support.plays import Player
from support.waiting import until
from support.watching import Seen, Watch
from witness.log import Json


def agents_like(arena: Arena, app: str) -> None:
    """A DaemonSet whose pods have the labels of another app and one more, so that no budget over both is computed."""
    labels = {"app": app, "part": "agent"}
    arena.daemonset("agent", spec={"selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}}})


def make_sick(arena: Arena, workload: Workload, on: str) -> str:
    """One pod of the workload on that node loses its readiness; returns its name."""
    pod = arena.pods(workload.name, on=on)[0]["metadata"]["name"]
    arena.patch("Pod", pod, {"metadata": {"annotations": {"lab.kubeops.io/ready": "never"}}})
    wanted = workload.read()["spec"]["replicas"] - 1
    until(lambda: workload.read()["status"].get("readyReplicas", 0) == wanted, 30, f"{pod} is not ready")
    until(
        lambda: (
            (arena.find("PodDisruptionBudget", workload.name) or {"status": {}})["status"].get("currentHealthy")
            in (None, wanted)
        ),
        30,
        "its budget has noticed",
    )
    return str(pod)


@pytest.mark.whole
def test_a_budget_with_room_lets_several_go_at_once(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", 6, on=here, start="1s", budget={"maxUnavailable": 3})
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_method="surge")
        assert run.ok, run.text
        arena.settle()
    seen.all_held()
    assert 3 <= seen.least_ready(web) < 5, "the room was used, and no more"
    assert len(seen.evictions()) == 6
    assert seen.guards() == []


def test_a_budget_of_one_lets_one_go_at_a_time(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", 4, on=here, start="1s", budget={"minAvailable": 3})
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
        assert run.ok, run.text
        arena.settle()
    seen.all_held()
    assert seen.least_ready(web) == 3
    assert len(seen.evictions()) == 4
    assert len(seen.evictions(429)) <= 4, "room is waited for, not knocked for"


@pytest.mark.parametrize("rule", sampling.first(1, [{"minAvailable": 2}, {}, {"maxUnavailable": "50%"}]))
def test_doing_what_a_plan_advises_makes_it_feasible(
    arena: Arena, lab: Lab, play: Player, rule: dict[str, int | str]
) -> None:
    """Also where there is no rule, or none that can be computed over the pods of a DaemonSet."""
    here, there = arena.nodes(2)
    arena.deployment("web", 2, on=[here, there], budget=rule)
    if rule == {"maxUnavailable": "50%"}:
        agents_like(arena, "web")
    planned = play("plan", maintain_nodes=[here], maintain_method="surge")
    assert not planned.ok
    (refused,) = planned.of("maintenance_plan")
    told = {change["code"]: change["command"] for one in refused["advice"] for change in one["changes"]}
    assert "What would unblock it:" in planned.text
    assert told["relax_budget"].startswith("kubectl patch pdb web ")
    done = lab.run_kubectl(*shlex.split(told["relax_budget"])[1:])
    assert done.returncode == 0, done.stderr

    def allowed() -> int:
        return int((arena.find("PodDisruptionBudget", "web") or {"status": {}})["status"].get("disruptionsAllowed", 0))

    until(lambda: allowed() == 1, 30, "the budget has room")
    again = play("plan", maintain_nodes=[here], maintain_method="surge")
    assert again.ok, again.text
    (feasible,) = again.of("maintenance_plan")
    assert feasible["feasible"]
    assert feasible["advice"] == []


@pytest.mark.parametrize(
    "rule", sampling.first(1, [{"maxUnavailable": 0}, {"minAvailable": "100%"}, {"minAvailable": 2}])
)
def test_a_budget_that_allows_nothing_stops_before_any_write(
    arena: Arena, play: Player, watching: Watch, rule: dict[str, int | str]
) -> None:
    here, there = arena.nodes(2)
    arena.deployment("web", 2, on=[here, there], budget=rule)
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_method="surge")
    assert not run.ok
    finding = run.finding("budget_allows_nothing")
    key, value = next(iter(rule.items()))
    told = finding["message"] + finding["remedy"]
    assert "web" in told
    assert key in told
    assert str(value) in told
    assert "maintain_method=replace" in told
    assert seen.writes == []
    seen.all_held()


@pytest.mark.whole
def test_two_budgets_on_one_pod_are_named_and_never_tried(arena: Arena, play: Player, watching: Watch) -> None:
    here, there = arena.nodes(2)
    arena.deployment("web", 2, on=[here, there], budget={"maxUnavailable": 1})
    arena.budget("web-again", "web", maxUnavailable=1)
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
    assert not run.ok
    finding = run.finding("two_budgets")
    assert "web-again" in finding["message"] + finding["object"]
    assert [request for request in seen.requests if request.evicts] == []
    assert seen.writes == []


@pytest.mark.whole
def test_a_sick_pod_holds_up_its_budget_unless_the_budget_says_otherwise(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here, there, _unused = arena.nodes(3)
    strict = arena.deployment("strict", 3, on=[here, there, there], budget={"minAvailable": 3})
    arena.settle()
    make_sick(arena, strict, here)
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_timeout=15)
    assert not run.ok
    assert "strict" in run.text
    assert seen.least_ready(strict) == 2
    assert seen.evictions() == []
    seen.all_held(resumable=True)


@pytest.mark.whole
def test_a_sick_pod_under_always_allow_may_go(arena: Arena, play: Player, watching: Watch) -> None:
    here, there, _unused = arena.nodes(3)
    rule = {"minAvailable": 3, "unhealthyPodEvictionPolicy": "AlwaysAllow"}
    lenient = arena.deployment("lenient", 3, on=[here, there, there], budget=rule)
    arena.settle()
    sick = make_sick(arena, lenient, here)
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
        assert run.ok, run.text
        arena.settle()
    seen.all_held()
    assert seen.least_ready(lenient) == 2
    assert sick in [request.name for request in seen.evictions()]


@pytest.mark.whole
def test_a_guard_is_never_laid_over_an_existing_budget_nor_over_pods_that_are_not_counted(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here, _unused = arena.nodes(2)
    with arena.placing(here):
        arena.deployment("guarded", 3, budget={"maxUnavailable": 2})
        bare = arena.deployment("bare", 3)
    agents_like(arena, "bare")
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_method="surge")
        assert run.ok, run.text
        arena.settle()
    seen.all_held()
    uid = bare.read()["metadata"]["uid"]
    assert seen.guards() == [f"kubeops-guard-{uid}"]
    (guard,) = [b for b in seen.appeared("PodDisruptionBudget") if b["metadata"]["name"].startswith("kubeops-guard-")]
    assert guard["spec"]["maxUnavailable"] == 1
    own = {"key": "pod-template-hash", "operator": "Exists"}
    assert guard["spec"]["selector"] == {**bare.read()["spec"]["selector"], "matchExpressions": [own]}
    assert guard["metadata"]["labels"]["app.kubernetes.io/managed-by"] == "kubeops.node_maintenance"
    assert seen.least_ready(bare) == 2


@pytest.mark.whole
def test_a_guard_goes_when_a_budget_of_somebody_else_arrives(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", 3, on=here, start="2s", stop="1s")
    with watching() as seen:
        running = play.start("maintain", maintain_nodes=[here], maintain_method="surge")
        until(lambda: len(arena.all("PodDisruptionBudget")) == 1, 120, "the guard is there")
        arena.budget("theirs", "web", maxUnavailable=1)
        run = running.wait()
        assert run.ok, run.text
        arena.settle()
    seen.all_held()
    assert [b["metadata"]["name"] for b in arena.all("PodDisruptionBudget")] == ["theirs"]
    assert seen.least_ready(web) == 2


def test_budgets_of_operators_are_warned_of_and_asked_until_their_operator_lifts_them(
    arena: Arena, play: Player, watching: Watch
) -> None:
    """Longhorn's by its label, and one that only the caller knows; their owners act on an attempt alone."""
    here, _unused = arena.nodes(2)
    known = {"longhorn.io/component": "instance-manager"}
    with arena.placing(here):
        for name, labels in (("manager", known), ("own", {"tier": "own"})):
            template = {"metadata": {"labels": {"app": name, **labels}}}
            arena.deployment(name, 2, spec={"template": template}, budget={"maxUnavailable": 0})
    chosen: Json = {"nodes": [here], "reactive_budgets": ["tier=own"]}

    def refused(seen: Seen) -> bool:
        return {request.name.split("-")[0] for request in seen.until_now() if request.evicts} == {"manager", "own"}

    with watching() as seen:
        planned = play.module("maintenance_plan", **chosen)
        assert planned.answer["feasible"], planned.text
        told = [f for f in planned.findings if f["code"] == "operator_budget"]
        warned = {name: f["severity"] for f in told for name in f["objects"]}
        assert set(warned.values()) == {"warning"}
        assert {name.split("/")[1].split("-")[0] for name in warned} == {"manager", "own"}
        assert play.module("node_cordon", nodes=[here]).ok
        assert play.module("pdb_guard", **chosen).ok
        draining = play.module_start("node_drain", **chosen)
        until(lambda: refused(seen) or draining.over, 120, "both were asked for")
        assert len(arena.pods(on=here)) == 4, "nobody went under a budget"
        for name in ("manager", "own"):
            arena.patch("PodDisruptionBudget", name, {"spec": {"maxUnavailable": 1}})
        drained = draining.wait()
        assert drained.ok, drained.text
        assert play.module("pdb_guard", state="absent", nodes=[here]).ok
        assert play.module("node_cordon", state="uncordoned", nodes=[here]).ok
    assert len(seen.evictions(429)) >= 2
    assert len(seen.evictions()) == 4
    assert not arena.is_cordoned(here)


@pytest.mark.whole
def test_what_waits_for_an_operator_can_be_killed_resumed_and_given_up(
    arena: Arena, play: Player, watching: Watch
) -> None:
    """Nothing is stored for the wait; the operator, of a budget that allows nothing, is the test itself."""
    here, _unused = arena.nodes(2)
    template = {"metadata": {"labels": {"app": "vault", "tier": "own"}}}
    arena.deployment("vault", 2, on=here, spec={"template": template}, budget={"maxUnavailable": 0})
    asked: Json = {"maintain_nodes": [here], "maintain_reactive_budgets": "tier=own"}
    with watching() as seen:
        waiting = play.start("maintain", **asked)
        until(lambda: any(r.evicts for r in seen.until_now()) or waiting.over, 120, "an eviction was tried")
        waiting.kill_all()
        assert arena.step(here) == "cordoned"
        given_up = play("maintain", **asked, maintain_operator_budget_wait="5s")
        assert not given_up.ok
        assert "the operator named by reactive_budgets" in given_up.text
        assert not arena.is_cordoned(here)
        assert arena.record(here) is None
        assert len(arena.pods(on=here)) == 2
        again = play.start("maintain", **asked)
        until(lambda: arena.step(here) == "cordoned" or again.over, 120, "it waits again")
        arena.patch("PodDisruptionBudget", "vault", {"spec": {"maxUnavailable": 1}})
        moved = again.wait()
        assert moved.ok, moved.text
    assert len(seen.evictions()) == 2
    assert not arena.is_cordoned(here)
