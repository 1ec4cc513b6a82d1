# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A simulated cluster whose pods are to be protected: two pods that are surged, and a workload without a budget."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_guard import GuardOptions, guard
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, Saved, World

ME = "r1/n1"


def home(world: World, app: str) -> str:
    """The node of the first pod of an app."""
    return str(world.pods(app=app)[0]["spec"]["nodeName"])


def cordoned_world() -> Saved:
    """Five nodes with `a`, `b` and `web`; the nodes of `a` and `b` are in maintenance by the run `ME`."""
    objects = [
        *(manifests.node(f"n{number}") for number in range(1, 6)),
        manifests.deployment("a", 1),
        manifests.deployment("b", 1),
        manifests.deployment("web", 8),
    ]
    with World(objects) as world:
        nodes = (home(world, "a"), home(world, "b"))
        assert len(set(nodes)) == 2
        done = world.process("first").run(lambda ctx: cordon(ctx, CordonOptions("cordoned", nodes)), ME)
        assert not done.failed, done.message
        world.machine.run_for(70.0)
        return world.saved()


def call(actor: Actor, state: t.Literal["present", "absent"] = "present", **options: t.Any) -> Result:
    world = actor.world
    nodes = options.pop("nodes", (home_of_record(world, "a"), home_of_record(world, "b")))
    wanted = GuardOptions(state, nodes, **{"method": "surge", **options})
    return actor.run(lambda ctx: guard(ctx, wanted), ME)


def home_of_record(world: World, app: str) -> str:
    """The cordoned node that the app was on at first; its newcomers are elsewhere."""
    found = {str(pod["spec"].get("nodeName")) for pod in world.pods(app=app)}
    return next(name for name in sorted(found) if world.get(kinds.NODES, name)["spec"].get("unschedulable"))


def outcomes(result: Result) -> dict[str, str]:
    return {node["name"]: node["outcome"] for node in result.data["nodes"]}


def asks(verb: str, resource: str, name: str = "") -> t.Callable[[Request], bool]:
    def fits(request: Request) -> bool:
        body = request.body if isinstance(request.body, dict) else {}
        named = request.name or (body.get("metadata") or {}).get("name", "")
        return (request.verb, request.resource) == (verb, resource) and name in named

    return fits


def uid(world: World, app: str) -> str:
    return str(world.get(kinds.DEPLOYMENTS, app)["metadata"]["uid"])
