# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""As ``locked``, for leases where Medik8s has its own: each of them is renewed, none has a heartbeat."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Raw
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_locks import Locks
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World
from ansible_collections.kubeops.node_maintenance.tests.unit.support import locked

WHERE = names.MEDIK8S_NAMESPACE


def locks(actor: Actor, run: str, *nodes: str) -> Locks:
    return locked.locks(actor, run, *nodes, where=WHERE)


def held(world: World, run: str, *nodes: str) -> None:
    locked.held(world, run, *nodes, where=WHERE)


def lease(world: World, node: str = "a") -> Raw:
    return locked.lease(world, node, where=WHERE)


def rewrite(world: World, node: str = "a", **spec: t.Any) -> None:
    locked.rewrite(world, node, where=WHERE, **spec)
