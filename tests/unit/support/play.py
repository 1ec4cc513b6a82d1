# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Playing a surge in a world: each half from wherever it is, and a hand that can be stopped."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.api_changes import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.serving import Endpoints
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.surge_records import Surge, surges_in
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import steps
from ansible_collections.kubeops.node_maintenance.tests.unit.support.world import World

NOW = "2026-01-01T00:00:00.000Z"
ROUNDS = 40


class Cut(Exception):
    """The process was killed."""


class Hand:
    """Applies changes until it is cut."""

    def __init__(self, world: World, cut: int = 10**6) -> None:
        self.world, self.left, self.made = world, cut, 0

    def do(self, changes: t.Iterable[Change]) -> None:
        for change in changes:
            if not self.left:
                raise Cut
            self.left -= 1
            self.made += 1
            self.world.apply(change)


def wanted(world: World, *nodes: str) -> Surge:
    """The surge of a pod that is Ready; of several replicas as if others had been wanted since it began."""
    plans = [replace(plan, route="surge") for plan in world.plans(*nodes) if plan.pod.ready]
    found = steps.surges(world.snapshot(), plans, run="r1", by="me@here", since=NOW)
    assert len(found) == 1
    return found[0]


def recorded(world: World) -> Surge:
    (found,) = surges_in(world.snapshot())
    return found


def prepare(world: World, hand: Hand, *nodes: str) -> None:
    """The first half, from wherever it is."""
    if not world.leases:
        hand.do([wanted(world, *nodes).writing("r1/x", NOW)])
    for _round in range(ROUNDS):
        surge, seen = recorded(world), world.snapshot()
        hand.do(steps.raising(seen, surge))
        world.act()
        seen = world.snapshot()
        if not steps.waiting_for(seen, surge, Endpoints(seen), nodes):
            return
    pytest.fail("the newcomers never served")


def finish(world: World, hand: Hand) -> None:
    """The second half, from wherever it is."""
    for _round in range(ROUNDS):
        if not world.leases:
            return
        surge, seen = recorded(world), world.snapshot()
        if steps.leaving(seen, surge) or steps.raised(seen, surge):
            endpoints = Endpoints(seen)
            if not steps.waiting_for(seen, surge, endpoints, (surge.node,), lowering=True):
                hand.do(steps.lowering(seen, surge))
        else:
            undo = steps.giving_back(seen, surge, lowered=True)
            hand.do(undo.changes)
            if not undo.changes and not undo.waiting:
                hand.do([surge.forgetting()])
        world.act()
    pytest.fail("the surge never ended")


def undo_all(world: World, hand: Hand) -> tuple[str, ...]:
    """Back, from wherever it is; what was kept of others."""
    kept: tuple[str, ...] = ()
    for _round in range(ROUNDS):
        if not world.leases:
            return kept
        surge = recorded(world)
        undo = steps.giving_back(world.snapshot(), surge)
        kept = tuple(dict.fromkeys((*kept, *undo.kept)))
        hand.do(undo.changes)
        if not undo.changes and not undo.waiting:
            hand.do([surge.forgetting()])
        world.act()
    pytest.fail("the surge was never given back")
