# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many requests a surge costs, and how many the calls send beside it."""

from __future__ import annotations

import typing as t
from collections import Counter

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_drain import DrainOptions, drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_guard import GuardOptions, guard
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.wire import Sent
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.guarded import ME

SURGE = {
    "guard": {"create leases": 1, "patch pods": 1, "patch deployments/scale": 1, "patch leases": 1},
    "drain": {"patch leases": 1, "patch deployments/scale": 1, "delete leases": 1},
}
"""What one more surge adds: record, deletion cost, raise and "it serves"; then take up, lower and forget."""
REPLACED = {"drain": {"patch pods": 1, "create pods/eviction": 1}}
"""What one more pod adds that is replaced."""


def crowd(pods: int) -> World:
    """So many single replicas on n1, and an empty n2; a pod takes a second to start."""
    apps = [f"single-{number}" for number in range(pods)]
    world = World(
        [manifests.node("n1"), *(manifests.deployment(app, 1) for app in apps), *map(manifests.service, apps)]
    )
    world.apply(manifests.node("n2"), manifests.namespace(names.NAMESPACE))
    assert len(world.pods(on="n1")) == pods
    return world


def scales(request: Request) -> bool:
    return request.verb == "patch" and request.resource.endswith("/scale")


def notes(request: Request) -> bool:
    """Whether it writes into the record of a surge that is there."""
    return request.verb == "patch" and request.name.startswith(names.SURGE_PREFIX)


def moved(world: World, settle: float = 2.0, method: t.Literal["surge", "replace"] = "surge") -> None:
    """The three calls, each in a process of its own."""
    nodes = ("n1",)
    calls = {
        "cordon": lambda ctx: cordon(ctx, CordonOptions("cordoned", nodes)),
        "guard": lambda ctx: guard(ctx, GuardOptions("present", nodes, method=method, settle=settle)),
        "drain": lambda ctx: drain(ctx, DrainOptions(nodes, DrainPolicy(method=method), timeout=120.0)),
    }
    for name, call in calls.items():
        done = world.process(name).run(call, ME)
        assert not done.failed, done.message


def words(sent: Sent) -> str:
    resource, _slash, part = sent.request.resource.partition("/")
    verb = "list+watch" if "sendInitialEvents" in dict(sent.request.query) else sent.request.verb
    return f"{verb} {resource.partition('.')[0]}{'/' if part else ''}{part}"


def counted(world: World, call: str) -> Counter[str]:
    """The requests of a call, without the renewals of locks, which follow its length."""
    beat = ("patch", names.heartbeat_name(ME))
    own = (s for s in world.log if s.process == call and (s.request.verb, s.request.name) != beat)
    return Counter(map(words, own))


@pytest.mark.parametrize(("method", "adds"), [("surge", SURGE), ("replace", REPLACED)])
@pytest.mark.parametrize("call", ["cordon", "guard", "drain"])
def test_one_more_pod_adds_few_requests(
    call: str, method: t.Literal["surge", "replace"], adds: dict[str, dict[str, int]]
) -> None:
    found = []
    for pods in (2, 5):
        with crowd(pods) as world:
            moved(world, method=method)
            assert {len(world.pods(on="n1")), len(world.pods(on="n2"))} == {0, pods}
            found.append(counted(world, call))
    fewer, more = found
    assert more - fewer == Counter({what: 3 * count for what, count in adds.get(call, {}).items()})
    assert not fewer - more


def test_what_is_needed_once_to_replace_pods() -> None:
    with crowd(5) as world:
        moved(world, method="replace")
        found = [counted(world, call).total() for call in ("cordon", "guard", "drain")]
    assert all(count <= most for count, most in zip(found, (7, 13, 22 + 2 * 5), strict=True)), found


def test_what_was_listed_is_not_listed_again_to_be_watched() -> None:
    with crowd(5) as world:
        moved(world)
        found = counted(world, "guard")
    watched = {what.split()[1] for what in found if what.startswith("watch ")}
    assert watched == {"pods", "deployments", "replicasets"}
    assert {found[f"list {kind}"] for kind in watched} == {1}
    assert found["list+watch endpointslices"] == 1
    assert sum(found.values()) - 4 * 5 <= 15


def test_what_was_listed_before_a_long_wait_is_listed_anew() -> None:
    with crowd(1) as world:
        world.process("guard").faults.when(
            lambda request: (request.verb, request.name) == ("patch", names.heartbeat_name(ME)), Fault("late", 3.5)
        )
        moved(world)
        found = counted(world, "guard")
    assert {found[f"list+watch {kind}"] for kind in ("pods", "deployments", "replicasets")} == {1}


@pytest.mark.parametrize("call", ["guard", "drain"])
def test_the_counts_of_all_workloads_are_changed_at_once(call: str) -> None:
    with crowd(5) as world:
        world.process(call).faults.when(scales, Fault("late", 0.5), times=5)
        moved(world)
        left = [sent.left for sent in world.log if sent.process == call and scales(sent.request)]
    assert len(left) == 5
    assert max(left) - min(left) < 0.5, "none waits for the answer to another one"


def test_a_surge_is_ready_as_soon_as_its_pods_have_served_for_long_enough() -> None:
    seconds = []
    for settle in (2.0, 1.7):
        with crowd(1) as world:
            moved(world, settle)
            raised, noted = (
                s.left for s in world.log if s.process == "guard" and (scales(s.request) or notes(s.request))
            )
        seconds.append(noted - raised)
    assert seconds[0] - seconds[1] == pytest.approx(0.3, abs=0.02)
