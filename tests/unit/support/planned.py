# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Simulated clusters for which maintenance is planned, and what the plan asked of them."""

from __future__ import annotations

import contextlib
import functools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_gates import ReadyOptions, check_ready
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning.run_plan import PlanOptions, make_plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Saved, World


@functools.cache
def begun(replicas: int, ours: bool = True) -> Saved:
    """Nodes n1, n2 and n3, and Deployment `web` with at least one pod on n1; `ours`: our namespace is there."""
    first = manifests.node("n1", labels={"pool": "a"})
    others = [manifests.node("n2"), manifests.node("n3")]
    web = [manifests.deployment("web", replicas)] if replicas else []
    with World([first, *(others if replicas > 1 else ()), *web]) as world:
        world.apply(*(() if replicas > 1 else others), *([manifests.namespace(names.NAMESPACE)] if ours else ()))
        assert not replicas or world.pods(on="n1")
        return world.saved()


Build = t.Callable[..., World]


@contextlib.contextmanager
def building() -> t.Iterator[Build]:
    """Makes clusters with so many pods of `web`, to which objects are added; they end together."""
    with contextlib.ExitStack() as stack:

        def made(replicas: int = 0, *more: Raw, ours: bool = True) -> World:
            world = stack.enter_context(World.of(begun(replicas, ours)))
            world.apply(*more)
            if more:
                world.settle()
            return world

        yield made


def plan(world: World, run: str = "", **options: t.Any) -> Result:
    options.setdefault("nodes", ("n1",))
    options.setdefault("choices", DrainPolicy(method="replace"))
    return world.process("ann").run(lambda ctx: make_plan(ctx, PlanOptions(**options)), run)


def ready(world: World, run: str = "", **options: t.Any) -> Result:
    """What ``node_ready`` says."""
    options.setdefault("nodes", ("n1",))
    return world.process("ann").run(lambda ctx: check_ready(ctx, ReadyOptions(**options)), run)


def asked(world: World) -> list[str]:
    """Verb and resource of lists, verb and path of other requests, and for reviews `may` and what they ask for."""
    found = []
    for request in (sent.request for sent in world.log):
        if request.resource == kinds.SELF_SUBJECT_ACCESS_REVIEWS.resource:
            wanted = dict(request.body or {})["spec"]["resourceAttributes"]
            found.append(f"may {wanted['verb']} {wanted['resource']}")
        else:
            found.append(f"{request.verb} {request.resource if request.verb == 'list' else request.path}")
    return found


def codes(result: Result) -> list[str]:
    return [finding["code"] for finding in result.data["findings"]]
