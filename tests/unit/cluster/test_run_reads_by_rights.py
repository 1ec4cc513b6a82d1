# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Of a large cluster only the pods of the few nodes that a call is about are asked for; requests are counted."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    run_listing,
    run_watch_cache,
    scopes,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.node_taints import DesiredTaint
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import run_taint
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.tests.unit.nodes.test_run_cordon import drained
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.planned import ready

MANY = 2 * scopes.SPARSE
"""So many nodes have two that may be asked for one by one."""
ALL = ["list pods"]


def of(verb: str, *nodes: str) -> list[str]:
    return [f"{verb} pods spec.nodeName={node}" for node in nodes]


@pytest.fixture
def world() -> t.Iterator[World]:
    nodes = [manifests.node(f"n{number:02}") for number in range(MANY)]
    with World([*nodes, manifests.namespace(names.NAMESPACE), manifests.deployment("web", 2 * MANY)]) as made:
        yield made


def asked(world: World) -> list[str]:
    """The requests for more than one pod, with their field selector."""
    sent = [one.request for one in world.log if one.request.resource == "pods" and not one.request.name]
    return [f"{each.verb} pods {dict(each.query).get('fieldSelector', '')}".strip() for each in sent]


def on(world: World, *nodes: str) -> set[str]:
    return {pod["metadata"]["name"] for node in nodes for pod in world.pods(on=node)}


@pytest.mark.parametrize(
    ("nodes", "among", "sent"),
    [
        pytest.param(["n00", "n01"], MANY, of("list", "n00", "n01"), id="few"),
        pytest.param(["n01", "n01"], MANY, of("list", "n01"), id="each once"),
        pytest.param(["n00", "n01", "n02"], MANY, ALL, id="too large a part of the cluster"),
        pytest.param([f"n{x:02}" for x in range(scopes.FEW + 1)], 10_000, ALL, id="too many"),
        pytest.param(["n00"], scopes.SPARSE - 1, ALL, id="a small cluster"),
    ],
)
def test_the_pods_of_few_nodes_are_listed_node_by_node(
    world: World, nodes: list[str], among: int, sent: list[str]
) -> None:
    world.log.clear()
    found = world.process("me").run(lambda ctx: run_listing.pods_of(ctx.cluster, nodes, among))
    assert {pod.name for pod in found} == on(world, *nodes)
    assert len(found) == len(on(world, *nodes)) > 0
    assert asked(world) == sent


def live(world: World, look: t.Callable[[Context, run_watch_cache.WatchCache], t.Any], *nodes: str) -> t.Any:
    def run(ctx: Context) -> t.Any:
        with run_watch_cache.WatchCache(ctx, ("nodes", "pods"), scopes.apart(nodes, MANY)) as watching:
            return look(ctx, watching)

    world.log.clear()
    return world.process("me").run(run)


def test_the_pods_of_few_nodes_are_watched_node_by_node(world: World) -> None:
    def look(ctx: Context, watching: run_watch_cache.WatchCache) -> list[set[str]]:
        before = {pod.name for pod in watching.snapshot().pods}
        for name in sorted(on(world, "n00")):
            world.delete(kinds.PODS, name, "shop", grace_seconds=0)
        for name in sorted(on(world, "n05")):
            world.delete(kinds.PODS, name, "shop", grace_seconds=0)
        ctx.clock.sleep(5.0)
        return [before, {pod.name for pod in watching.snapshot().pods}]

    began = on(world, "n00", "n01")
    before, after = live(world, look, "n00", "n01")
    assert before == began
    assert after == on(world, "n00", "n01") != began
    assert sorted(asked(world)) == of("watch", "n00", "n01")


def test_a_pod_that_went_from_one_watched_node_to_another_is_there_once(world: World) -> None:
    """Its end is told by one watch and its namesake by another, which may be faster."""
    one = next(iter(world.pods(on="n00")))
    name = one["metadata"]["name"]

    def look(ctx: Context, watching: run_watch_cache.WatchCache) -> list[str]:
        watching.snapshot()
        # As the watches tell it if that of the new node is the first.
        other = {**one["metadata"], "uid": "new"}
        for node, what, meta in (("n01", "ADDED", other), ("n00", "DELETED", one["metadata"])):
            raw = {**one, "metadata": dict(meta), "spec": {**one["spec"], "nodeName": node}}
            kept = run_watch_cache._kept("pods", watching._share, (), lambda _pod: True, raw)
            watching._note("pods", f"pods of {node}", what, t.cast("dict[str, t.Any]", kept))
        return [pod.node for pod in watching.snapshot().pods if pod.name == name]

    assert live(world, look, "n00", "n01") == ["n01"]


def test_how_long_several_watches_were_quiet_is_told_by_the_last_of_them(world: World) -> None:
    def look(ctx: Context, watching: run_watch_cache.WatchCache) -> float:
        ctx.clock.sleep(3.0)
        for name in sorted(on(world, "n01")):
            world.patch(kinds.PODS, name, {"metadata": {"labels": {"seen": "yes"}}}, "shop")
        ctx.clock.sleep(2.0)
        return watching.quiet_for("pods")

    assert live(world, look, "n00", "n01") == pytest.approx(2.0, abs=0.1)


@pytest.mark.parametrize("wait", [False, True])
def test_gates_read_the_pods_of_their_nodes(world: World, wait: bool) -> None:
    world.log.clear()
    gates = ("ready", "daemonsets", "stable") if wait else ("ready", "daemonsets")
    result = ready(world, nodes=("n00", "n03"), gates=gates, wait=wait, stable=1.0)
    assert not result.failed
    assert set(asked(world)) == {*of("list", "n00", "n03"), *(of("watch", "n00", "n03") if wait else ())}


def test_gates_that_need_no_pods_read_none(world: World) -> None:
    world.log.clear()
    assert not ready(world, nodes=("n00",), gates=("ready",)).failed
    assert asked(world) == []


def test_a_soak_watches_the_pods_of_its_nodes(world: World) -> None:
    world.log.clear()
    result = ready(world, nodes=("n00", "n03"), gates=("ready", "daemonsets"), soak=5.0)
    assert not result.failed
    assert set(asked(world)) == set(of("watch", "n00", "n03"))


def test_the_toll_of_a_no_execute_taint_is_of_the_pods_of_its_node(world: World) -> None:
    wanted = (DesiredTaint("away", "", "NoExecute"),)
    world.log.clear()
    options = run_taint.TaintOptions("present", ("n02",), wanted)
    result = world.process("me").run(lambda ctx: run_taint.taint(ctx, options))
    assert {one["name"] for one in result.data["evicts"]} == on(world, "n02")
    assert asked(world) == of("list", "n02")


def test_the_proof_before_the_tasks_reads_the_pods_of_its_node() -> None:
    others = [manifests.node(f"n{number:02}") for number in range(MANY)]
    pods = manifests.deployment("web", MANY)
    with World([drained(), *others, pods]) as world:
        world.log.clear()
        options = CordonOptions("out", ("a",))
        result = world.process("me").run(lambda ctx: cordon(ctx, options), "r1/n1")
        assert [node["outcome"] for node in result.data["nodes"]] == ["not_drained" if on(world, "a") else "out"]
        assert of("list", "a") == asked(world)
