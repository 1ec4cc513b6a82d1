# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many endpoints served over time, of drains that wait for long."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Raw
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_services import (
    MAX_STEPS,
    Services,
    merged,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects


def serving(count: int) -> list[Raw]:
    meta = {"namespace": "shop", "name": "web-1", "labels": {"kubernetes.io/service-name": "web"}}
    return [{"metadata": meta, "endpoints": [{"addresses": [f"10.0.0.{n}"]} for n in range(count)]}]


def sampled(counts: t.Iterable[int]) -> tuple[str, list[list[t.Any]]]:
    """When it began, and what is kept of these counts, of which there is one in each second."""
    with World() as world:
        me = world.process("me")
        began, services = me.clock.wall(), Services(me.ctx(), {})
        for count in counts:
            services.sample(Snapshot(slices=tuple(serving(count))))
            world.machine.run_for(1.0)
        (shown,) = services.to_dicts()
        return began, shown["samples"]


def test_a_service_that_flaps_for_days_stays_small_and_its_low_points_are_kept() -> None:
    began, samples = sampled([5, 4] * 3000 + [0] + [5, 4] * 3000)
    assert len(samples) <= MAX_STEPS + 1
    assert min(count for _at, count in samples) == 0
    assert samples[0] == [began, 5]
    times = [at for at, _count in samples]
    assert times == sorted(times)
    assert samples[-2][1] == samples[-1][1] == 4


def test_two_hundred_steps_are_kept_and_one_more_halves_them() -> None:
    """The end of the time is one more sample; of 201 steps the 199 between the first and the last are paired."""
    assert len(sampled([1, 2] * 100)[1]) == 200 + 1
    assert len(sampled([1, 2] * 100 + [1])[1]) == 1 + 100 + 1 + 1


@pytest.mark.parametrize(
    ("steps", "fewer"),
    [
        ("a1 b2", "a1 b2"),
        ("a1 b2 c3", "a1 b2 c3"),
        ("a1 b2 c3 d4", "a1 b2 d4"),
        ("a1 b3 c2 d4 e5", "a1 b2 d4 e5"),
        ("a0 b3 c2 d4 e5 f0", "a0 b2 d4 f0"),
    ],
)
def test_steps_are_merged_in_pairs_to_the_earlier_time_and_the_lower_count(steps: str, fewer: str) -> None:
    assert merged([(step[0], int(step[1])) for step in steps.split()]) == [(x[0], int(x[1])) for x in fewer.split()]


def piece(service: str, *endpoints: Raw, namespace: str = "shop") -> Raw:
    labels = {"kubernetes.io/service-name": service} if service else None
    return {"metadata": {"namespace": namespace, "name": "x", "labels": labels}, "endpoints": list(endpoints) or None}


def endpoint(uid: str = "", ready: bool | None = True, *addresses: str) -> Raw:
    conditions = {} if ready is None else {"ready": ready}
    return {"targetRef": {"uid": uid} if uid else None, "conditions": conditions, "addresses": list(addresses)}


def counts(*rounds: list[Raw]) -> dict[str, list[int]]:
    """What is kept of each Service after these looks at the slices."""
    with World(settle=False) as world:
        services = Services(world.process("me").ctx(), {})
        for slices in rounds:
            services.sample(Snapshot(slices=tuple(slices)))
        found = services.to_dicts()
        assert [(one["namespace"], one["name"]) for one in found] == sorted((x["namespace"], x["name"]) for x in found)
        return {f"{one['namespace']}/{one['name']}": [count for _at, count in one["samples"]] for one in found}


@pytest.mark.parametrize(
    ("slices", "count"),
    [
        pytest.param([piece("web", endpoint("a"), endpoint("b"))], 2, id="two pods"),
        pytest.param([piece("web", endpoint("a")), piece("web", endpoint("b"))], 2, id="in two slices"),
        pytest.param([piece("web", endpoint("a")), piece("web", endpoint("a"))], 1, id="a pod with two addresses"),
        pytest.param([piece("web", endpoint("", True, "10.0.0.1"), endpoint("", True, "10.0.0.2"))], 2, id="no pods"),
        pytest.param([piece("web", endpoint("a", False), endpoint("b", None))], 1, id="unknown counts as ready"),
        pytest.param([piece("web")], 0, id="none at all"),
        pytest.param([piece("", endpoint("a")), piece("web")], 0, id="a slice of no Service"),
        pytest.param([piece("web", endpoint("a"), namespace="other"), piece("web")], 0, id="another namespace's"),
    ],
)
def test_each_pod_that_is_not_said_to_be_unready_counts_once(slices: list[Raw], count: int) -> None:
    gone: list[Raw] = [piece("web", *[endpoint(str(number)) for number in range(9)])]
    assert counts(gone, slices)["shop/web"] == [9, count, count]


def test_only_what_changed_or_never_served_is_shown() -> None:
    same, never, went = (
        piece(name, *[endpoint("a")] * many) for name, many in (("same", 1), ("never", 0), ("went", 1))
    )
    assert counts([same, never, went], [same, never]) == {"shop/never": [0, 0], "shop/went": [1, 0, 0]}


def test_how_many_were_watched_counts_also_those_that_are_not_shown() -> None:
    with World(settle=False) as world:
        services = Services(world.process("me").ctx(), {})
        services.sample(Snapshot(slices=(piece("one", endpoint("a")), piece("two"))))
        assert services.watched == 2


def test_few_steps_are_kept_as_they_were() -> None:
    assert [count for _at, count in sampled([3, 3, 2, 2, 3])[1]] == [3, 2, 3, 3]


@pytest.mark.parametrize(
    ("prior", "uid", "replicas"),
    [
        pytest.param({}, "uid-p", 3, id="as its workload wants"),
        pytest.param({"uid-Deployment-web": 1}, "uid-p", 1, id="without its surge"),
        pytest.param({}, "uid-other", 0, id="unknown"),
    ],
)
def test_what_the_workloads_behind_a_service_want_is_told(prior: dict[str, int], uid: str, replicas: int) -> None:
    pods = [objects.pod("p", owner=objects.owned("ReplicaSet", "web"))]
    with World(settle=False) as world:
        services = Services(world.process("me").ctx(), prior)
        for slices in ([piece("web", endpoint(uid))], [piece("web")]):
            seen = objects.snapshot(objects.deployment("web", 3), pods=pods)
            services.sample(replace(seen, slices=tuple(slices)))
        (shown,) = services.to_dicts()
    assert (shown["replicas"], [count for _at, count in shown["samples"]]) == (replicas, [1, 0, 0])


ROLES = {"a": True, "b": True, "c": False}


@pytest.mark.parametrize(
    ("looks", "replicas"),
    [
        pytest.param([["a", "b"]], 3, id="a pod that is not Ready is missed"),
        pytest.param([["a", "b", "-c"]], 3, id="although it is listed"),
        pytest.param([["a"]], 1, id="a pod that is Ready and not listed is not selected: the primary alone"),
        pytest.param([["a", "-b"]], 3, id="one that is listed only comes late"),
        pytest.param([["a", "b"], ["a"]], 2, id="the most of those that are selected"),
        pytest.param([["a"], [], ["b"]], 1, id="another primary"),
    ],
)
def test_a_service_wants_all_pods_of_its_workload_unless_it_selects_some(looks: list[list[str]], replicas: int) -> None:
    pods = [objects.pod(name, owner=objects.owned("ReplicaSet", "web"), ready=ready) for name, ready in ROLES.items()]
    with World(settle=False) as world:
        services = Services(world.process("me").ctx(), {})
        for look in [*looks, []]:
            seen = objects.snapshot(objects.deployment("web", 3), pods=pods)
            listed = [endpoint(f"uid-{name.lstrip('-')}", not name.startswith("-")) for name in look]
            services.sample(replace(seen, slices=(piece("web", *listed),)))
        (shown,) = services.to_dicts()
    assert shown["replicas"] == replicas
