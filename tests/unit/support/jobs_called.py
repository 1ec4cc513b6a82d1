# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Calls of `pod_migration_job` in simulated clusters with Koordinator and a Deployment `web`."""

from __future__ import annotations

import contextlib
import functools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import (
    JobSettings,
    manifest,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.run_module import JobOptions, jobs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.targets import Selection
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import koordinator, manifests, workloads
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Saved, World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_cluster import becomes

SPACE = koordinator.HOME
CONFIG = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
profiles:
  - name: koord-descheduler
    pluginConfig:
      - name: MigrationController
        args:
          namespaces: {exclude: [kube-system]}
"""

Build = t.Callable[..., World]


@functools.cache
def begun(replicas: int, scheduler: str) -> Saved:
    """Koordinator at work, and Deployment `web` with so many pods."""
    web = manifests.deployment("web", replicas, schedulerName=scheduler)
    objects = [manifests.node("n1"), manifests.node("n2"), *manifests.koordinator(), web]
    with World(objects, add_ons=[koordinator.GROUP]) as world:
        return world.saved()


@contextlib.contextmanager
def worlds() -> t.Iterator[Build]:
    """Makes clusters; unless Koordinator works, the statuses of jobs and Deployments are what the test says."""
    with contextlib.ExitStack() as stack:

        def made(replicas: int = 2, scheduler: str = "koord-scheduler", works: bool = False) -> World:
            world = stack.enter_context(World.of(begun(replicas, scheduler)))
            if not works:
                world.controller(koordinator.Migrations).stop()
                world.controller(workloads.Deployments).stop()
            return world

        yield made


def ref(name: str, uid: str = "") -> Ref:
    return Ref("Pod", name, "shop", uid, "v1")


def first(world: World) -> Ref:
    """A pod of `web`."""
    meta = world.pods(app="web")[0]["metadata"]
    return ref(meta["name"], meta["uid"])


def run(world: World, check: bool = False, **options: t.Any) -> tuple[Raw, Context]:
    me = world.process("me")
    ctx = me.ctx("night", check=check)
    options = {"selection": Selection((ref(first(world).name),)), "wait": False, **options}
    return me.run(lambda _ctx: jobs(ctx, JobOptions(**options))).shaped(ctx), ctx


def codes(result: Raw) -> list[str]:
    return [finding["code"] for finding in result["findings"]]


def bodies(world: World) -> list[Raw]:
    """What was written, in its order."""
    return [dict(sent.request.body or {}) for sent in world.log if sent.request.writes]


def unready(world: World, name: str) -> None:
    world.patch(kinds.DEPLOYMENTS, name, {"status": {"readyReplicas": None}}, SPACE, "status")


def elsewhere(world: World, namespace: str, name: str) -> None:
    """The descheduler and its configuration are in this namespace; it is called so."""
    for kind, old, new in (
        (kinds.DEPLOYMENTS, "koord-descheduler", name),
        (kinds.CONFIGMAPS, koordinator.CONFIG, koordinator.CONFIG),
    ):
        raw = world.get(kind, old, SPACE)
        world.delete(kind, old, SPACE)
        world.apply({**raw, "metadata": {"name": new, "namespace": namespace}})
    world.patch(kinds.DEPLOYMENTS, name, {"status": {"readyReplicas": 1}}, namespace, "status")


def put(world: World, **status: t.Any) -> None:
    """Job `j`, paused, for the first pod."""
    world.apply(manifest("j", first(world), JobSettings(paused=True, run="night")))
    becomes(world, "j", **status)
