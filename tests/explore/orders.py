# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One order of one story: told from a list of choices, brought back from where it ended, shrunk where it is wrong."""

from __future__ import annotations

import functools
import json
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.explore import invariants, people, stories
from ansible_collections.kubeops.node_maintenance.tests.explore.bystanders import Bystanders
from ansible_collections.kubeops.node_maintenance.tests.explore.judge import Judge, Violation, ours, record
from ansible_collections.kubeops.node_maintenance.tests.explore.states import difference
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Choices, Task
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Outcome, recover
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

WITHIN = 900.0


def tell(story: stories.Story, choices: Choices, ends: set[str] | None = None) -> None:
    """One order of one story; raises where an invariant does not hold, or where it cannot be undone afterwards.

    ``ends`` are the states from which this story is known to be undone; the one of this order is added.
    """
    with story.scene.world(choices=choices, fine=True) as world:
        judge = Judge(world, story.scene.floors)
        world.machine.on_step.append(judge.check)
        bystanders = Bystanders(world) if story.bystanders else None
        tasks = story.started(world)
        invariants.ended(world, ended(tasks), WITHIN)
        values = [task.value() for task in tasks]
        invariants.all_told(world)
        outcomes = [value for value in values if isinstance(value, Outcome)]
        if outcomes:
            invariants.no_secrets(world, outcomes)
        for outcome in outcomes:
            invariants.says_why(world, outcome)
        world.machine.on_step.clear()
        world.settle()
        if bystanders:
            bystanders.nothing_lost()
        if story.bystanders == "alone":
            invariants.undisturbed(outcomes)
        judge.check()
        judge.evicted_once()
        end = "" if ends is None else difference(world, story.scene.begins)
        if ends is None or end not in ends:
            made_good(world, judge, story)
        if ends is not None:
            ends.add(end)


def ended(tasks: t.Iterable[Task]) -> t.Callable[[], bool]:
    """Whether all of them have; cheap enough to be asked after each step."""
    left = list(tasks)

    def over() -> bool:
        while left and not left[-1].alive:
            left.pop()
        return not left

    return over


def made_good(world: World, judge: Judge, story: stories.Story, *, told: bool = True) -> None:
    """From wherever it has settled, undoing each run by its name brings all back; then nothing of ours is left.

    People have had their will, and a load is what it was at first, only in a story that was ``told`` to its end.
    """
    if not told:
        for name, _raw in nodes(world):
            for kind in names.LIFECYCLE:
                people.condition(world, name, kind, wanted=False)
    runs = {str(known["run"]) for _name, raw in nodes(world) if (known := record(raw))}
    # The last, without a name, is for what belongs to no node any more.
    for run in [*sorted(runs), ""]:
        if wrong := recovered(world, run):
            raise Violation(f"no way back for run {run or '(none)'}: {wrong}")
    world.settle()
    judge.check()
    judge.evicted_once()
    left = [what for what in ours(world) if not kept_on_purpose(world, what)]
    if left:
        raise Violation(f"I3: left behind: {left}")
    judge.unchanged(but=story.touches if told else (*story.touches, kinds.HPAS.kind))
    if told and (unwanted := story.unwanted(world)):
        raise Violation(f"I3: not as people wanted it: {unwanted}")


def recovered(world: World, run: str) -> list[str]:
    """What is wrong after ``recover``, with a run's name or without."""
    me = world.process("last")
    task = me.spawn(functools.partial(recover, me, run, ("ready",), 60.0))
    invariants.ended(world, lambda: not task.alive, WITHIN)
    return t.cast("list[str]", task.value())


def kept_on_purpose(world: World, what: tuple[str, str]) -> bool:
    """The memory of a run that ended with failures stays for a day, so that the same command resumes it."""
    resource, key = what
    return resource == "configmaps" and key.rpartition("/")[2].startswith("run-") and bool(world)


def nodes(world: World) -> list[tuple[str, dict[str, t.Any]]]:
    return [(name, raw) for (_none, name), raw in sorted(world.store.of("nodes").items())]


def broken_by(story: stories.Story, picked: list[int]) -> str:
    """What is wrong with this order; empty where nothing is."""
    try:
        tell(story, Choices(picked))
    except AssertionError as error:
        return str(error) or "an assertion failed"
    return ""


def shrunk(story: stories.Story, picked: list[int]) -> list[int]:
    """A shorter and plainer list of choices that is still wrong: what is cut off counts as 0."""
    low, high = 0, len(picked)
    while low < high:
        middle = (low + high) // 2
        if broken_by(story, picked[:middle]):
            high = middle
        else:
            low = middle + 1
    picked = picked[:high]
    for at in reversed([at for at, choice in enumerate(picked) if choice]):
        plainer = [*picked[:at], 0, *picked[at + 1 :]]
        if broken_by(story, plainer):
            picked = plainer
    return picked


def saved(story: stories.Story, picked: list[int], why: str) -> str:
    """The counterexample as a file of `found/` has it."""
    return json.dumps({"story": story.name, "bystanders": story.bystanders, "choices": picked, "was": why[:300]})
