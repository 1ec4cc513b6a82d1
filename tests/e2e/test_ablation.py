# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""No right is granted for nothing: without any one of them something fails, on the API server's own RBAC.

`make ablation` runs all of it: each right that is granted is taken away, and the smallest real use of its step fails.
It does so on an API server that gives lists to those alone who may list.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.ablation import koordinated, proof, scenes
from support.arena import Arena, arena_name
from support.koordinator import configured, quickened
from support.lab import Lab

pytestmark = pytest.mark.whole

ALONE = (
    *(scenes.Copy, scenes.Delete, scenes.Replaced, scenes.Hooks),
    *(scenes.Plan, scenes.Devices, scenes.Fence, scenes.Fenced, scenes.Maintain, scenes.Dead, scenes.Namespace),
)
WITH_KOORDINATOR = (
    *(koordinated.Limits, koordinated.Limitslog, koordinated.Limitsmap),
    *(koordinated.Several, koordinated.Moved),
    *(koordinated.Descheduler, koordinated.Deschedulerlog, koordinated.Deschedulerlease),
    *(koordinated.Created, koordinated.Cron, koordinated.Preview),
)


@pytest.fixture(scope="module")
def lab(koord_that_lists: Lab) -> Lab:
    return koord_that_lists


@pytest.fixture(scope="module")
def world(lab: Lab) -> Iterator[scenes.World]:
    arena = Arena(lab.api, arena_name("ablation"))
    try:
        yield scenes.World(lab, arena)
    finally:
        arena.clear()


@pytest.fixture(scope="module")
def movable(lab: Lab) -> Iterator[scenes.World]:
    arena = Arena(lab.api, arena_name("ablation-jobs"))
    try:
        with configured(lab, quickened("v1.7.0", 6, 3.0)):
            yield koordinated.Movable(lab, arena)
    finally:
        arena.clear()


@pytest.mark.parametrize("kind", ALONE, ids=lambda kind: kind.__name__)
def test_each_right_is_missed(kind: type[scenes.Scene], world: scenes.World, tmp_path: Path) -> None:
    judged(kind(world, tmp_path))


@pytest.mark.parametrize("kind", WITH_KOORDINATOR, ids=lambda kind: kind.__name__)
def test_each_right_is_missed_with_koordinator(kind: type[scenes.Scene], movable: scenes.World, tmp_path: Path) -> None:
    judged(kind(movable, tmp_path))


def judged(scene: scenes.Scene) -> None:
    try:
        if proof.NEW:
            proof.record(scene)
            return
        assert scene.go() == [], "with all rights"
        wanted = dict(proof.of_scene(scene.name))
        assert wanted, scene.name
        told = {right: proof.missed(scene, right) for right in wanted}
        for right, said in told.items():
            print(f"{right.step:12} {right.words}: {said[0] if said else 'NOTHING FAILS'}")
        assert [right for right, said in told.items() if not said] == [], "nothing fails without it"
        unnamed = [right for right, named in wanted.items() if named and not right.named_in(" ".join(told[right]))]
        assert unnamed == []
    finally:
        scene.end()
