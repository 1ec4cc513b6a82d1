# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The smallest sets of changes under which a maintenance becomes feasible, each proven by planning again with it.

Every set that works removes the first problem that is left, so the sets grow by the changes that may remove that one;
those with the fewest changes and remaining problems are looked at first. Each set that was found is then planned again
without each of its changes, so that none is in it for nothing.
"""

from __future__ import annotations

import heapq
import itertools
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.advice import candidates, changes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import snapshots
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.preflight import planning

MOST = 3
"""Sets that are told, besides that of leaving nodes out."""
TRIES, FEWEST_TRIES = 48, 12
"""How often is planned again at most. With more than ``POD_LOOKS / TRIES`` pods it is less often, to take seconds."""
POD_LOOKS = 60_000

Set: t.TypeAlias = "tuple[changes.Change, ...]"
Key: t.TypeAlias = "frozenset[tuple[str, str, str, str, int]]"


@dataclass(frozen=True, slots=True)
class Advice:
    """Changes that together make the plan feasible, and what it is then.

    ``unplaced`` is how many pods would still fit nowhere, where no change helps those.
    """

    chosen: Set
    situation: changes.Situation
    plan: planning.Plan
    unplaced: int = 0

    def to_dict(self) -> dict[str, t.Any]:
        """As modules return it."""
        return {"changes": [change.to_dict() for change in self._told()], "unplaced": self.unplaced}

    def _told(self) -> list[changes.Change]:
        """With nodes of one shape as one change."""
        found: dict[t.Any, changes.Change] = {}
        for change in self.chosen:
            if change.code == "add_node":
                number = sum(other.code == change.code and other.name == change.name for other in self.chosen)
                node = self.situation.snapshot.nodes[change.name]
                found[change.code, change.name] = replace(change, text=changes.nodes_like(node, number))
            else:
                found[change.key] = change
        return list(found.values())


@dataclass(frozen=True, slots=True)
class Trial:
    """What the plan is with some changes made."""

    chosen: Set
    situation: changes.Situation
    plan: planning.Plan
    problems: tuple[candidates.Problem, ...]
    blockers: int
    unplaced: int

    @property
    def key(self) -> Key:
        return key_of(self.chosen)

    @property
    def solved(self) -> bool:
        return not self.problems

    @property
    def weight(self) -> tuple[int, int, int]:
        """The smallest is looked at first."""
        return (len(self.chosen) + self.blockers + bool(self.unplaced), self.blockers, self.unplaced)


def key_of(changed: Set) -> Key:
    """Equal for sets of equal changes, in any order."""
    return frozenset(change.key for change in changed)


class Trials:
    """Plans again, each set of changes once, and at most ``most`` times."""

    def __init__(self, situation: changes.Situation, most: int) -> None:
        self.situation = situation
        self.left = most
        self._known: dict[Key, Trial] = {}

    def of(self, changed: Set) -> Trial | None:
        """The plan with these changes; ``None`` if it is not known and no more may be planned."""
        key = key_of(changed)
        found = self._known.get(key)
        if found is None and self.left > 0:
            self.left -= 1
            found = self._known[key] = self._planned(changed)
        return found

    def _planned(self, changed: Set) -> Trial:
        now = self.situation
        for change in changed:
            now = change.made(now)
        plan = planning.judged(now.snapshot, now.wanted, planning.draft(now.snapshot, now.wanted))
        found = candidates.problems(plan)
        blockers = sum(problem.code != "fits_nowhere" for problem in found)
        unplaced = sum(placed.fits is False for placed in plan.placed.values())
        return Trial(changed, now, plan, found, blockers, unplaced)


def advice(snapshot: snapshots.Snapshot, wanted: planning.Wanted, *, most: int | None = None) -> tuple[Advice, ...]:
    """The smallest sets of changes that were found, the best first; empty if nothing is wrong or none helps.

    The last one is to leave out the nodes that are blocked, where others are left.

    ``most`` limits how often is planned again; by default the number of pods does. The snapshot needs quotas and limit
    ranges, and what volumes need, whatever the routes are.
    """
    trials = Trials(changes.Situation(snapshot, wanted), tries(len(snapshot.pods)) if most is None else most)
    others = _others(trials)
    found = [less for one in _search(trials) if (less := _least(trials, one))]
    sets = {one.key: one for one in found}
    least = [one for key, one in sets.items() if not any(other < key for other in sets)]
    least.sort(key=lambda one: len(one.chosen))
    least = least[:MOST]
    least += [one for one in others if one.key not in sets]
    return tuple(Advice(one.chosen, one.situation, one.plan, one.unplaced) for one in least)


def tries(pods: int) -> int:
    """How often a cluster with so many pods is planned again at most."""
    return min(TRIES, max(FEWEST_TRIES, POD_LOOKS // max(pods, 1)))


def _search(trials: Trials) -> list[Trial]:
    """Sets of changes that work; without any, those that leave only pods that fit nowhere."""
    first = trials.of(())
    if first is None or first.solved:
        return []
    order, queue = itertools.count(), [(first.weight, -1, first)]
    seen = {first.key: first}
    solved: list[Trial] = []
    # What is left is for leaving out changes again.
    reserve = trials.left // 3
    while queue and len(solved) < MOST and trials.left > reserve:
        weight, _number, trial = heapq.heappop(queue)
        if solved and weight[0] > len(solved[0].chosen):
            break
        for change in candidates.against(trial.situation, trial.plan, trial.problems[0]):
            if trials.left <= reserve or any(change.key == made.key for made in trial.chosen):
                continue
            after = trials.of((*trial.chosen, change))
            if after is None or after.key in seen:
                continue
            seen[after.key] = after
            if after.solved:
                solved.append(after)
            elif _changed(trial, after):
                heapq.heappush(queue, (after.weight, next(order), after))
    if solved or not first.blockers:
        return solved
    without = [trial for trial in seen.values() if not trial.blockers]
    return sorted(without, key=lambda trial: (trial.unplaced, len(trial.chosen)))[:1]


def _others(trials: Trials) -> list[Trial]:
    """The plan for the nodes that are not blocked; none where all are, or where something else is in the way."""
    out: set[str] = set()
    trial = first = trials.of(())
    while trial and trial.blockers:
        blockers = [problem for problem in trial.problems if problem.code != "fits_nowhere"]
        out |= {name for problem in blockers for name in problem.nodes}
        change = changes.leave_out(trials.situation, out)
        if change is None or not all(problem.nodes for problem in blockers) or change in trial.chosen:
            return []
        trial = trials.of((change,))
    return [trial] if trial and trial is not first else []


def _changed(before: Trial, after: Trial) -> bool:
    """Whether the change did anything about what stands against the plan."""
    told = [[(one.code, one.object, one.nodes) for one in trial.problems] for trial in (before, after)]
    return told[0] != told[1] or after.unplaced < before.unplaced


def _least(trials: Trials, found: Trial) -> Trial | None:
    """The set without the changes that it does not need; ``None`` if there are no tries left to tell."""
    index = 0
    while index < len(found.chosen):
        fewer = trials.of((*found.chosen[:index], *found.chosen[index + 1 :]))
        if fewer is None:
            return None
        if fewer.blockers or fewer.unplaced > found.unplaced:
            index += 1
        else:
            # Another one may be needless now.
            found, index = fewer, 0
    return found
