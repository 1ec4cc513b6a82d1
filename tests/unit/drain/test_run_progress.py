# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a drain that waits says, and how often."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod, Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_drain import Progress
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_node_drain import NodeDrain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.object_limiter import limited
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import PodPlan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.migration_controller import Controller
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.run_pod_drain import PodDrain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects


def told(seconds: float, why: t.Callable[[float], str]) -> list[str]:
    """The lines of a drain whose only pod is held for so long; the reason is looked at twice a second."""
    with World() as world:
        me = world.process("me")
        progress, pod = Progress(me.ctx()), Pod.of(objects.pod("web-0"))
        move = PodDrain(PodPlan(pod, "job", "guarded", "", None), "waiting", 0.0)
        node_drain = NodeDrain("n1", moves={pod.uid: move})
        began = world.machine.now
        while (now := world.machine.now - began) < seconds:
            move.block(Ref("PodMigrationJob", "web-0", "shop"), why(now))
            progress.tell([node_drain], [], [])
            world.machine.run_for(0.5)
        return [event.message for event in me.told]


def test_the_same_is_said_once() -> None:
    assert told(120.0, lambda now: "room") == ["1 of 1 pods left, 0 ending; waiting: room"]


def test_what_changes_is_said_and_what_flaps_not_more_than_every_two_seconds() -> None:
    assert len(told(20.0, lambda now: f"{now // 4:g}")) == 5
    assert len(told(20.0, lambda now: f"{now:g}")) == 10


def test_the_seconds_for_which_a_limiter_holds_a_pod_are_no_news() -> None:
    web = objects.snapshot(
        objects.deployment("web", 3), pods=[objects.pod("web-0", owner=objects.owned("ReplicaSet", "web"))]
    )

    def why(now: float) -> str:
        found = limited(web, web.pods[0], Controller(), {("workload", "uid-ReplicaSet-web"): [0.0]}, now)
        return found.message if found else ""

    [line] = told(299.0, why)
    assert line.endswith("lets one pod of Deployment shop/web go in 300 s: the next one goes at 00:05:00 UTC.")


def test_pods_that_rules_hold_are_counted() -> None:
    with World() as world:
        me = world.process("me")
        moves = {
            name: PodDrain(
                PodPlan(Pod.of(objects.pod(name)), "evict", "replicas", "", None), "waiting", 0.0, waits_for_turn=held
            )
            for name, held in (("a", True), ("b", False), ("c", True))
        }
        Progress(me.ctx()).tell([NodeDrain("n1", moves=moves)], [], [])
        assert [event.message for event in me.told] == ["3 of 3 pods left, 0 ending, 2 held until it is their turn"]


def evicted(
    after: dict[float, list[str]], left: str = "", before: dict[float, list[str]] | None = None
) -> list[tuple[float, str]]:
    """What is told of pods that were evicted after so many seconds, and when; ``left``: one that is never.

    Those in ``before`` were let go.
    """
    with World() as world:
        me = world.process("me")
        ctx = me.ctx()
        progress, moves = Progress(ctx), {}
        for name in sorted([*(name for pods in after.values() for name in pods), *([left] if left else [])]):
            moves[name] = PodDrain(PodPlan(Pod.of(objects.pod(name)), "evict", "replicas", "", None), "waiting", 0.0)
        node_drain, began, found = NodeDrain("n1", moves=moves), world.machine.now, list[tuple[float, str]]()
        while (now := world.machine.now - began) < 10.0:
            for name in (before or {}).get(now, ()):
                moves[name].let_go = True
            for name in after.get(now, ()):
                moves[name].state, moves[name].ours = "leaving", True
            progress.tell_moved([node_drain])
            found += [(now, event.message) for event in me.told[len(found) :]]
            world.machine.run_for(0.5)
        assert not ctx.timeline, "the report lists each of them"
        return found


def test_evicted_pods_are_named_and_many_are_counted() -> None:
    many = [f"p{number}" for number in range(12)]
    assert evicted({1.0: ["a"]}) == [(1.0, "evicted shop/a")]
    assert evicted({1.0: many}) == [(1.0, "evicted shop/p0, shop/p1, shop/p10 and 9 more pods")]


def test_evicted_pods_share_a_line_every_two_seconds_unless_no_other_is_left() -> None:
    singly = {number / 2: [f"p{number}"] for number in range(8)}
    assert [at for at, _message in evicted(singly, left="q")] == [0.0, 2.0, 4.0]
    assert [at for at, _message in evicted(singly)] == [0.0, 2.0, 3.5]
    assert evicted({0.0: ["c"], 3.0: ["b"], 6.0: ["a"]}, left="q") == [
        (at, f"evicted shop/{name}") for at, name in ((0.0, "c"), (3.0, "b"), (6.0, "a"))
    ]


def test_pods_that_are_replaced_are_named_once_when_they_are_let_go_and_once_when_they_are_evicted() -> None:
    two = ["a", "b"]
    assert evicted({4.0: two}, before={1.0: two}) == [
        (1.0, "replacing shop/a, shop/b"),
        (4.0, "evicted shop/a, shop/b"),
    ]
    assert evicted({4.5: ["a"], 5.0: ["b"]}, left="q", before={0.0: ["a"], 0.5: ["b"]}) == [
        (0.0, "replacing shop/a"),
        (2.0, "replacing shop/b"),
        (4.5, "evicted shop/a"),
        (6.5, "evicted shop/b"),
    ]
