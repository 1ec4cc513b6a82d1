# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""In which order nodes are taken out, and that no order brings more nodes of a zone into a wave."""

from __future__ import annotations

import collections
import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node, Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning.waves import (
    ORDERS,
    Limits,
    Order,
    formed,
    ordered,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import PodPlan, Route
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import node, pod

ZONE = "topology.kubernetes.io/zone"
NAMES = ("worker-10", "worker-9", "worker-2")


def plan(on: str, priority: int = 0, route: Route = "evict") -> PodPlan:
    raw = pod("p", on)
    raw["spec"]["priority"] = priority
    return PodPlan(Pod.of(raw), route, "replicas", "", None)


def names(order: Order, *plans: PodPlan, zones: t.Mapping[str, str] | None = None, **options: t.Any) -> list[str]:
    labels = {name: {ZONE: zone} for name, zone in (zones or {}).items()}
    nodes = [Node.of(node(name, labels=labels.get(name, {}))) for name in NAMES]
    return [found.name for found in ordered(nodes, plans, order, **options)]


def test_by_default_the_order_is_the_one_given() -> None:
    assert names("given", plan("worker-10"), plan("worker-10")) == list(NAMES)


def test_numbers_in_a_name_count_by_their_value() -> None:
    assert names("name") == ["worker-2", "worker-9", "worker-10"]


@pytest.mark.parametrize(
    "names", [("9-b", "a"), ("a", "a1"), ("a1", "b"), ("r2-n10", "r10-n2"), ("a1", "a1b"), ("", "0")]
)
def test_numbers_are_before_letters_and_what_is_shorter_before_what_goes_on(names: tuple[str, str]) -> None:
    found = ordered([Node.of(node(name)) for name in reversed(names)], [], "name")
    assert [each.name for each in found] == list(names)


def test_the_node_with_the_fewest_pods_to_move_is_first() -> None:
    stays = [plan("worker-2", route="skip")] * 5
    assert names("pods", plan("worker-10"), plan("worker-10"), plan("worker-9"), *stays) == [
        "worker-2",
        "worker-9",
        "worker-10",
    ]


def test_the_node_with_the_most_important_pod_is_last() -> None:
    plans = [plan("worker-10", -5), plan("worker-10", 100), plan("worker-9", 50), plan("worker-2", 2**31, "skip")]
    assert names("priority", *plans, plan("worker-2", -1)) == ["worker-2", "worker-9", "worker-10"]


def test_zone_after_zone_in_the_order_given_within_a_zone() -> None:
    zones = {"worker-10": "b", "worker-9": "a", "worker-2": "a"}
    assert names("zone", zones=zones) == ["worker-9", "worker-2", "worker-10"]
    assert names("zone", zones={"worker-10": "b"}) == ["worker-9", "worker-2", "worker-10"]
    assert names("zone", zones=zones, zone_key="rack") == list(NAMES)


@settings(deadline=None)
@given(
    zones=st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=12),
    order=st.sampled_from(ORDERS),
    parallel=st.integers(1, 6),
    limit=st.one_of(st.none(), st.integers(1, 3)),
)
def test_whatever_the_order_each_node_is_in_one_wave_and_no_wave_has_too_many(
    zones: list[str], order: Order, parallel: int, limit: int | None
) -> None:
    nodes = [Node.of(node(f"n{i}", labels={ZONE: zone} if zone else {})) for i, zone in enumerate(zones)]
    found = formed(ordered(nodes, [], order), Limits(parallel, ZONE, limit)).waves
    assert sorted(name for wave in found for name in wave) == sorted(each.name for each in nodes)
    by_name = {each.name: each.labels.get(ZONE) for each in nodes}
    for wave in found:
        assert 0 < len(wave) <= parallel
        assert limit is None or max(collections.Counter(by_name[name] for name in wave).values()) <= limit


@pytest.mark.parametrize("order", ORDERS)
def test_nothing_has_an_order(order: Order) -> None:
    assert ordered([], [], order) == []
