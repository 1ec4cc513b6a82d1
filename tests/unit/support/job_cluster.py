# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated cluster with PodMigrationJobs whose controller stands still: what it would do, the test does."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import (
    API_VERSION,
    PASSED,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import koordinator, scheduling
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World


def still_world(*objects: Raw) -> World:
    """Koordinator's kinds are there, and nobody works on them."""
    world = World(objects, add_ons=[koordinator.GROUP])
    world.controller(koordinator.Migrations).stop()
    world.controller(scheduling.Reservations).stop()
    return world


def put(world: World, job: Raw, **status: t.Any) -> None:
    """A job that somebody made, as far as its status says."""
    world.apply(job)
    if status:
        becomes(world, job["metadata"]["name"], **status)


def becomes(world: World, name: str, passed: bool = False, annotations: Raw | None = None, **status: t.Any) -> None:
    """What the controller tells of a job; `passed`: it is through the arbitration."""
    noted = {**({PASSED: "true"} if passed else {}), **(annotations or {})}
    if noted:
        world.patch(kinds.PODMIGRATIONJOBS, name, {"metadata": {"annotations": noted}})
    if status:
        world.patch(kinds.PODMIGRATIONJOBS, name, {"status": status}, subresource="status")


def reserve(world: World, name: str) -> None:
    """A Reservation of that name that is there for somebody to use."""
    world.apply({"apiVersion": API_VERSION, "kind": "Reservation", "metadata": {"name": name}, "spec": {}})
    world.patch(kinds.RESERVATIONS, name, {"status": {"phase": "Available"}}, subresource="status")


def jobs_of(world: World) -> dict[str, Raw]:
    """All jobs by their names."""
    return {name: raw for (_namespace, name), raw in world.store.of(kinds.PODMIGRATIONJOBS.resource).items()}


def writes(world: World, by: str = "") -> list[str]:
    """Verb, resource and name of each write that processes of ours (or the one of that name) sent, refused or not."""
    return [
        " ".join((s.request.verb, s.request.resource.replace(f".{koordinator.GROUP}", ""), s.request.name))
        for s in world.log
        if s.request.writes and by in ("", s.process)
    ]
