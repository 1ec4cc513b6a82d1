# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A behaviour as the simulated cluster shows it."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests, nodes
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.behaviours.every import BEHAVIOURS
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.behaviours.here import ARENA, Here, plain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

NAMESPACE = "arena"


def seen_in_simulator(name: str) -> t.Any:
    """What the behaviour gives there, made plain."""
    with World() as world:
        world.objects.create(kinds.NAMESPACES, manifests.namespace(NAMESPACE))
        world.controller(nodes.Kubelets).start_seconds = 0.0
        made: list[str] = []

        def more(count: int) -> list[str]:
            names = [f"{NAMESPACE}-n{len(made) + number + 1}" for number in range(count)]
            made.extend(names)
            world.apply(*(manifests.node(name, labels={ARENA: NAMESPACE}, pods=110) for name in names))
            return names

        here = Here(world.process("somebody").cluster(), NAMESPACE, more)
        seen = world.process("somebody").run(lambda ctx: BEHAVIOURS[name](here))
        return plain(seen, here)
