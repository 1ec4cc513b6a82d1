# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From every state: whoever works dies at that moment, and one undisturbed command reaches the goal and stays there.

The states are those after every single write of anybody: of the run, of controllers, of people.
"""

from __future__ import annotations

import random
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.explore import followers, stories
from ansible_collections.kubeops.node_maintenance.tests.explore.judge import Judge, Violation, picture
from ansible_collections.kubeops.node_maintenance.tests.explore.orders import WITHIN, made_good
from ansible_collections.kubeops.node_maintenance.tests.explore.points import SCENES, foretold, looks, out, play, told
from ansible_collections.kubeops.node_maintenance.tests.explore.sample import SAMPLE, SEED
from ansible_collections.kubeops.node_maintenance.tests.explore.states import Collector, normal
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Choices
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.serving import Autoscalers
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Saved, World

PARTS = 4


def stays(world: World) -> None:
    """Nothing changes any more, however long one waits.

    Raises:
        Violation: something did.
    """
    before = normal(world)
    world.machine.run_for(300.0)
    if normal(world) != before:
        raise Violation("it does not stay there")


def forgets(world: World) -> None:
    """It settles, and wishes of autoscalers grow too old.

    The controllers began anew with a state. An autoscaler that does so takes the count that it finds for a wish of its
    own, until that wish is too old.
    """
    world.settle()
    world.machine.run_for(Autoscalers.window + 2 * Autoscalers.period)
    world.settle()


def goes_on(state: Saved, scene: str, before: dict[str, t.Any], owed: followers.Owed) -> None:
    """The same command, once; by the run's name where tasks may be at work on the host."""
    given = SCENES[scene].given
    with World.of(state) as world:
        judge = Judge(world, SCENES[scene].floors)
        judge.before = before
        followers.attend(world, judge.broken, owed)
        world.machine.run_for(5.0)
        for name in given.nodes:
            if world.find(kinds.NODES, name) is None:
                # Its tasks had taken it away and died; whoever repairs that brings it back.
                world.apply(manifests.node(name))
        given = replace(given, run=out(world))
        looks(world, SCENES[scene], given.run)
        outcome = play(world, world.process("again"), replace(SCENES[scene], given=given))
        assert outcome is not None
        if not outcome.ok:
            raise Violation(f"I8: one undisturbed run does not come through: {outcome.failed}, {outcome.wrong}")
        told(world, outcome)
        forgets(world)
        judge.all_as_before(but=SCENES[scene].touches)
        stays(world)


@pytest.mark.parametrize("scene", SCENES)
def test_check_mode_foretells_what_the_run_changes(scene: str) -> None:
    foretold(SCENES[scene])


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("scene", SCENES)
def test_one_undisturbed_run_reaches_the_goal_and_stays_there(
    scene: str, part: int, record_property: t.Callable[[str, object], None]
) -> None:
    known: set[str] = set()
    with SCENES[scene].world() as world:
        before, owed, states = picture(world), followers.at(world), Collector(world, known)
        first = play(world, world.process("me"), SCENES[scene])
        assert first is not None
        assert first.ok
    wrong = []
    mine = list(enumerate(states.found))[part * SAMPLE :: PARTS * SAMPLE]
    for number, state in mine:
        try:
            goes_on(state, scene, before, owed)
        except AssertionError as error:
            wrong.append(f"state {number}: {error}")
    record_property("states", len(mine))
    assert not wrong, f"{len(wrong)} of {len(mine)} states:\n" + "\n".join(wrong[:20])


@pytest.mark.parametrize("story", stories.ALL, ids=lambda story: story.name.replace(" ", "-"))
def test_from_every_state_of_a_story_there_is_a_way_back(
    story: stories.Story, record_property: t.Callable[[str, object], None]
) -> None:
    choices = Choices(chance=random.Random(f"{SEED} {story.name} states"))
    with story.scene.world(choices=choices, fine=True) as world:
        before, states = picture(world), Collector(world, set())
        tasks = story.begin(world)
        world.machine.run_until(lambda: not any(task.alive for task in tasks), within=WITHIN)
    wrong = []
    mine = list(enumerate(states.found))[::SAMPLE]
    for number, state in mine:
        with World.of(state) as world:
            judge = Judge(world, story.scene.floors)
            judge.before = before
            try:
                world.settle()
                made_good(world, judge, story, told=False)
                forgets(world)
                stays(world)
            except AssertionError as error:
                wrong.append(f"state {number}: {error}")
    record_property("states", len(mine))
    assert not wrong, f"{len(wrong)} of {len(mine)} states:\n" + "\n".join(wrong[:20])
