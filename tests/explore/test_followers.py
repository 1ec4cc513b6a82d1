# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""I16 in worlds in which it is broken on purpose."""

from __future__ import annotations

import json
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.explore import followers, people, scenes
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World


@pytest.fixture
def world() -> t.Iterator[World]:
    with scenes.waited_for().world() as found:
        yield found


def at_step(world: World, step: str | None) -> None:
    record = json.dumps({"step": step}) if step else None
    world.patch(kinds.NODES, "n1", {"metadata": {"annotations": {names.RECORD: record}}})


def test_what_is_drained_or_given_back_too_early_is_found(world: World) -> None:
    broken: list[str] = []
    followers.attend(world, broken)
    world.cordon("n1")
    at_step(world, "cordoned")
    people.delete_pod(world, "pair", on="n1")
    people.delete_pod(world, "apart", on="n1")
    world.machine.run_for(8.0)
    at_step(world, "drained")
    assert broken == ["I16: n1 is called drained while pair has 1 of 2 ready pods"], "apart fits nowhere"
    world.settle(30.0)
    world.cordon("n1", False)
    at_step(world, None)
    assert broken[1:] == ["I16: n1 is given back while apart has 2 of 3 ready pods"]


def test_who_waits_for_both_is_right(world: World) -> None:
    broken: list[str] = []
    followers.attend(world, broken)
    world.cordon("n1")
    at_step(world, "cordoned")
    people.delete_pod(world, "pair", on="n1")
    people.delete_pod(world, "apart", on="n1")
    world.settle(30.0)
    at_step(world, "drained")
    world.cordon("n1", False)
    world.settle(30.0)
    at_step(world, None)
    assert broken == []
