# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Locks of nodes in a simulated cluster, for the tests of what is done under them."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Raw
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Run
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_locks import Locks
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World

T = t.TypeVar("T")


def locks(actor: Actor, run: str, *nodes: str, where: str = names.NAMESPACE) -> Locks:
    """The locks of these nodes (of `a` where none is named), in the name of the run."""
    places = {node: f"{where}/node-{node}" for node in nodes or ("a",)}
    return Locks(actor.ctx(), t.cast("Run", Run.parse(run)), places)


def done(actor: Actor, call: t.Callable[[], T]) -> T:
    """What the call gives back, made by a thread of that process."""
    return actor.run(lambda _ctx: call())


def held(world: World, run: str, *nodes: str, where: str = names.NAMESPACE) -> None:
    """A process takes the locks and dies."""
    holder = world.process("holder")
    assert done(holder, locks(holder, run, *nodes, where=where).take) == {}
    world.machine.kill(holder.process)


def leases(world: World) -> set[str]:
    """The names of all leases."""
    return {name for _namespace, name in world.store.of(kinds.LEASES.resource)}


def lease(world: World, node: str = "a", *, where: str = names.NAMESPACE) -> Raw:
    """The spec of a node's lock."""
    return t.cast("Raw", world.get(kinds.LEASES, f"node-{node}", where)["spec"])


def rewrite(world: World, node: str = "a", *, where: str = names.NAMESPACE, **spec: t.Any) -> None:
    """Somebody writes the lease of a node; without more it is renewed by whoever holds it."""
    stamp = f"2026-02-02T00:00:00.{int(world.machine.now * 1000) % 1_000_000:06}Z"
    world.patch(kinds.LEASES, f"node-{node}", {"spec": {"renewTime": stamp, **spec}}, where)


def of_leases(method: str) -> t.Callable[[Request], bool]:
    """Chooses requests of a method about leases, for faults."""
    return lambda request: request.method == method and request.resource == kinds.LEASES.resource
