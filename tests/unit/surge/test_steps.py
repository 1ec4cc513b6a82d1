# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A surge played to its end, and cut short at every change."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import steps
from ansible_collections.kubeops.node_maintenance.tests.unit.support.play import (
    Cut,
    Hand,
    finish,
    prepare,
    recorded,
    undo_all,
    wanted,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.world import WAVE, World

WORLDS: dict[str, t.Callable[[], World]] = {
    "single": lambda: World(["n1"]),
    "three are wanted by now": lambda: World(["n1", "n9", "n9"]),
    "its budget allows nothing": lambda: World(["n1"], rule={"maxUnavailable": 0}),
}


@pytest.fixture(params=WORLDS)
def world(request: pytest.FixtureRequest) -> World:
    return WORLDS[request.param]()


def build(world: World) -> World:
    """The same world once more, untouched."""
    return World(again=world)


def test_exactly_the_leaving_pods_end_and_everything_is_as_before(world: World) -> None:
    leaving = world.leaving()
    count, hand = len(world.pods), Hand(world)
    prepare(world, hand, *WAVE)
    assert len(world.pods) == count + len(leaving)
    finish(world, hand)
    assert sorted(world.ended) == sorted(leaving)
    assert world.least_ready == count
    assert world.kept() == world.at_first


def test_the_costs_go_first_then_the_count() -> None:
    world = World(["n1"])
    asked = [(c.verb, c.target.kind) for c in steps.raising(world.snapshot(), wanted(world, "n1"))]
    assert asked == [("patch", "Pod"), ("scale", "Deployment")]


def cuts(world: World, *acts: t.Callable[[World, Hand], object]) -> int:
    probe, hand = build(world), Hand(world)
    hand.world = probe
    for step in acts:
        step(probe, hand)
    return hand.made


def first_half(world: World, hand: Hand) -> None:
    prepare(world, hand, *WAVE)


def whole(world: World, hand: Hand) -> None:
    first_half(world, hand)
    finish(world, hand)


@pytest.mark.parametrize("act_after_death", [False, True])
def test_killed_anywhere_the_same_run_goes_on(world: World, act_after_death: bool) -> None:
    total = cuts(world, whole)
    for cut in range(total):
        here = build(world)
        leaving = here.leaving()
        hand = Hand(here, cut)
        with pytest.raises(Cut):
            whole(here, hand)
        if act_after_death:
            here.act()
        again = Hand(here)
        if here.leaving():
            first_half(here, again)
        finish(here, again)
        assert sorted(here.ended) == sorted(leaving), cut
        assert here.least_ready == len(here.pods), cut
        assert here.kept() == here.at_first, cut


@pytest.mark.parametrize("act_after_death", [False, True])
def test_killed_anywhere_it_can_be_given_back(world: World, act_after_death: bool) -> None:
    total = cuts(world, whole)
    for cut in range(total):
        here = build(world)
        count, hand = len(here.pods), Hand(here, cut)
        with pytest.raises(Cut):
            whole(here, hand)
        if act_after_death:
            here.act()
        undo_all(here, Hand(here))
        here.act()
        assert here.least_ready == count, cut
        assert here.kept() == here.at_first, cut


def test_giving_back_can_be_killed_anywhere_too(world: World) -> None:
    total = cuts(world, first_half, undo_all) - cuts(world, first_half)
    for cut in range(total):
        here = build(world)
        first_half(here, Hand(here))
        with pytest.raises(Cut):
            undo_all(here, Hand(here, cut))
        undo_all(here, Hand(here))
        here.act()
        assert here.least_ready == len(here.pods), cut
        assert here.kept() == here.at_first, cut


def test_given_back_the_newcomers_end_and_the_first_pods_stay(world: World) -> None:
    before = world.names()
    prepare(world, Hand(world), *WAVE)
    undo_all(world, Hand(world))
    assert world.names() == before


def test_a_surge_whose_undo_was_cut_short_can_be_taken_up_again(world: World) -> None:
    """The undo that was cut short left the lowest cost on newcomers; they must not end for it."""
    prepare(world, Hand(world), *WAVE)
    with pytest.raises(Cut):
        undo_all(world, Hand(world, 2))
    leaving = set(world.leaving())
    prepare(world, Hand(world), *WAVE)
    finish(world, Hand(world))
    assert leaving <= set(world.ended)
    assert world.kept() == world.at_first


@pytest.mark.parametrize("cost", ["100", "-5", names.LOWEST_COST])
def test_a_foreign_cost_comes_back_on_a_pod_that_stays(cost: str) -> None:
    world = World(["n1"])
    world.annotate("web-0", cost)
    world.at_first = world.kept()
    prepare(world, Hand(world), "n1")
    assert world.annotations("web-0")[names.DELETION_COST] == names.LOWEST_COST
    undo_all(world, Hand(world))
    assert world.kept() == world.at_first


def test_a_cost_that_somebody_else_sets_meanwhile_stays() -> None:
    world = World(["n1"])
    prepare(world, Hand(world), "n1")
    world.annotate("web-0", "7")
    undo_all(world, Hand(world))
    assert world.annotations("web-0") == {names.DELETION_COST: "7"}


def test_the_template_s_own_cost_is_what_newcomers_get_back() -> None:
    world = World(["n1"])
    template = {"metadata": {"annotations": {names.DELETION_COST: "3"}}}
    world.sim.patch(kinds.DEPLOYMENTS, "web", {"spec": {"template": template}})
    world.sim.cordon("n9")
    world.sim.cordon("n1", False)
    world.act(30.0)
    world.first = [raw["metadata"]["name"] for raw in world.pods]
    world.sim.cordon("n9", False)
    world.sim.cordon("n1")
    prepare(world, Hand(world), "n1")
    world.annotate(world.newcomer()["metadata"]["name"], names.LOWEST_COST)
    (change,) = steps.raising(world.snapshot(), recorded(world))
    assert change.body == {"metadata": {"annotations": {names.DELETION_COST: "3"}}}
