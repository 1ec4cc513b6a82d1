# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""How long the pods of a wave queue, because those that share a budget leave only so many at a time.

Budgets are a vector: each has a line of its own, and the pods of all lines leave at the same time. So a wave takes as
long as its longest line, and nodes whose pods stand in different lines go well together.
"""

from __future__ import annotations

import collections
import math
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects, pod_plan, snapshots
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.timing import queues


@dataclass(frozen=True, slots=True)
class Line:
    """Pods that leave ``allowed`` at a time; ``takes`` is how many of them each node has.

    The next turn comes after ``turn`` seconds, and the last one takes ``ends`` seconds. ``words`` tell what a node with
    such pods is; no other line has the same.
    """

    allowed: int
    takes: t.Mapping[str, int]
    words: str
    turn: float
    ends: float

    def lasts(self, pods: int) -> float:
        """Seconds for so many of them, at least one."""
        return (math.ceil(pods / self.allowed) - 1) * self.turn + self.ends


class Lines:
    """The lines by the nodes that have pods in them."""

    def __init__(self, lines: t.Iterable[Line]) -> None:
        self._of = collections.defaultdict[str, list[Line]](list)
        for line in lines:
            for name in line.takes:
                self._of[name].append(line)

    def __bool__(self) -> bool:
        return bool(self._of)

    def of(self, nodes: t.Iterable[objects.Node]) -> dict[str, Line]:
        """Those with pods of the nodes, by their words."""
        return {line.words: line for node in nodes for line in self._of.get(node.name, ())}


class Turns:
    """The lines of one wave while it is filled; ``longest`` of them in seconds."""

    def __init__(self, lines: Lines, nodes: t.Iterable[objects.Node]) -> None:
        self.longest = 0.0
        self._lines = lines
        self._pods = collections.Counter[str]()
        self.add(list(nodes))

    def add(self, nodes: t.Sequence[objects.Node]) -> None:
        """The nodes are in the wave."""
        for line, pods in self._with(nodes):
            self._pods[line.words] = pods
            self.longest = max(self.longest, line.lasts(pods))

    def longer(self, nodes: t.Sequence[objects.Node]) -> t.Iterator[Line]:
        """The lines that would be longer than the longest one if the nodes were in the wave, too."""
        return (line for line, pods in self._with(nodes) if line.lasts(pods) > self.longest)

    def _with(self, nodes: t.Sequence[objects.Node]) -> t.Iterator[tuple[Line, int]]:
        """Each line of the nodes with how many pods of it the wave would have with them."""
        for words, line in self._lines.of(nodes).items():
            yield line, self._pods[words] + sum(line.takes.get(node.name, 0) for node in nodes)


def lines(snapshot: snapshots.Snapshot, plans: t.Iterable[pod_plan.PodPlan]) -> tuple[Line, ...]:
    """Those of the pods that are evicted under a budget, or under the guard of their workload."""
    times, found = queues.Times(snapshot), list[Line]()
    for queue in queues.queues(snapshot, plans):
        if queue.budget is None:
            continue
        allowed, holder = max(1, queue.allowed), queue.workload if queue.guard else queue.budget
        takes = collections.Counter(plan.pod.node for plan in queue.plans)
        steps, words = [times.step(plan) for plan in queue.plans], f"with pods of {holder}, of which {allowed} may"
        turn, ends = max(step.turn for step in steps), max(step.lasts for step in steps)
        found.append(Line(allowed, takes, f"{words} leave at a time", turn, ends))
    return tuple(found)
