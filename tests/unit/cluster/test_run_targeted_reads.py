# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a turn of a drain looks at: its own pods and what has changed, however large the cluster is."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    index_keys,
    indexes,
    run_watch_cache,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import run_drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.outcomes import DrainOutcome
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import ownership
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import Record
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import WEB
from ansible_collections.kubeops.node_maintenance.tests.unit.support.still_drain import NODES, Bench


class Untouched(indexes.Items[t.Any]):
    """Objects of which nobody may look at all."""

    def __iter__(self) -> t.Iterator[t.Any]:
        raise AssertionError("somebody looks at all of them")


def shop(bench: Bench) -> Snapshot:
    """Two pods on each node that is emptied, under a budget that allows nothing, and a Service."""
    pods = [objects.pod(f"{name}-{n}", name, owner=WEB) for name in NODES for n in range(2)]
    uids = [{"targetRef": {"uid": pod["metadata"]["uid"]}} for pod in pods]
    meta = {"name": "web", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}}
    return objects.snapshot(
        objects.deployment("web", 4),
        pods=pods,
        nodes=[bench.world.get(kinds.NODES, name) for name in NODES],
        budgets=[objects.budget("web", 0)],
        slices=[{"metadata": meta, "addressType": "IPv4", "endpoints": uids}],
    )


def test_a_turn_looks_at_none_of_the_objects_that_have_not_changed() -> None:
    bench = Bench().watch()
    try:
        first = shop(bench)
        bench.live.seen = first
        for name in NODES:
            for number in range(2):
                bench.move(f"{name}-{number}", "waiting", on=name)
        bench.do(lambda: bench.work.services.sample(first))
        bench.do(lambda: bench.work._turn(first))
        kinds_ = ("pods", "budgets", "workloads", "slices", "autoscalers", "daemon_sets")
        second = first.with_fields({kind: Untouched() for kind in kinds_}, {kind: [] for kind in kinds_})
        bench.live.seen = second
        bench.do(lambda: bench.work._turn(second))
        bench.do(lambda: bench.work.services.sample(second))
        states = {move.state for node_drain in bench.node_drains.values() for move in node_drain.moves.values()}
        assert states == {"waiting"}, "the budget allows nothing"
    finally:
        bench.world.close()


@pytest.mark.parametrize(("took", "pause"), [(0.0, 0.0), (0.05, 0.15), (20.0, run_drain.MAX_REST_SECONDS)])
def test_looks_leave_most_of_the_time_to_those_who_send_requests(
    took: float, pause: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, pauses = Bench(), list[float]()
    monkeypatch.setattr(bench.work, "_turn", lambda _seen: bench.ctx.clock.sleep(took))

    def waited(_seconds: float, pause: float) -> None:
        pauses.append(pause)
        for node_drain in bench.node_drains.values():
            node_drain.outcome = DrainOutcome.DRAINED

    monkeypatch.setattr(bench.live, "wait", waited)
    bench.do(bench.work._loop)
    assert pauses == [pytest.approx(pause, abs=0.01)]


def test_whether_a_node_is_still_ours_is_judged_again_only_after_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[str] = []
    fallen = ownership.node_lost

    def counted(node: Node | None, taken: Record) -> ownership.NodeLost | None:
        judged.append(node.name if node else "")
        return fallen(node, taken)

    monkeypatch.setattr(ownership, "node_lost", counted)
    bench = Bench()
    nodes = {name: node for name, node_drain in bench.node_drains.items() if (node := node_drain.node)}
    for _look in range(3):
        bench.do(lambda: bench.node_outcomes.check_ours(nodes))
    assert sorted(judged) == sorted(NODES)
    bench.world.patch(kinds.NODES, "n1", {"spec": {"unschedulable": None}})
    nodes |= objects.snapshot(nodes=[bench.world.get(kinds.NODES, "n1")]).nodes
    bench.do(lambda: bench.node_outcomes.check_ours(nodes))
    assert judged[len(NODES) :] == ["n1"]
    assert bench.node_drain.outcome is DrainOutcome.UNCORDONED


@pytest.mark.parametrize("many", [3, 30])
def test_a_look_after_one_pod_has_changed_costs_the_same_however_many_there_are(
    many: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[str] = []

    def counted(name: str) -> tuple[str, index_keys.Keys]:
        field, keys = index_keys._KEYS[name]

        def looking(one: t.Any) -> t.Iterable[t.Any]:
            looks.append(name)
            return keys(one)

        return field, looking

    monkeypatch.setattr(index_keys, "keys", counted)

    def run(ctx: Context) -> list[int]:
        with run_watch_cache.WatchCache(ctx, ("nodes", "pods")) as live:
            asked = live.snapshot()
            assert len(asked.pods_on(["n1"])) == many
            assert asked.pod(asked.pods[0].uid)
            before = len(looks)
            world.patch(kinds.PODS, "p1", {"metadata": {"labels": {"app": "new"}}}, manifests.SHOP)
            ctx.clock.sleep(0.1)
            seen = live.snapshot()
            assert {pod.labels["app"] for pod in seen.pods_on(["n1"]) if pod.name == "p1"} == {"new"}
            assert live.snapshot() is seen, "nothing has changed since"
            return [before, len(looks) - before]

    with World([manifests.node("n1", pods=60), manifests.namespace(manifests.SHOP)]) as world:
        for number in range(many):
            raw = objects.pod(f"p{number}", "n1", annotations={})
            world.apply({"apiVersion": "v1", "kind": "Pod", **raw})
        world.settle()
        assert world.process("me").run(run) == [2 * many, 2 * 2]
