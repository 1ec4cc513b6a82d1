# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning.waves import (
    Formed,
    Limit,
    Limits,
    Share,
    Wait,
    formed,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import node

ZONE = "topology.kubernetes.io/zone"
Groups = t.Sequence[t.Collection[str]]


def nodes_in(zones: t.Iterable[str]) -> list[Node]:
    """Nodes n0, n1 and so on, each in a zone; `.` is none."""
    return [Node.of(node(f"n{index}", labels={} if zone == "." else {ZONE: zone})) for index, zone in enumerate(zones)]


@pytest.mark.parametrize(
    ("zones", "options", "expected"),
    [
        pytest.param("", {}, (), id="none"),
        pytest.param("abc", {}, (("n0",), ("n1",), ("n2",)), id="one at a time"),
        pytest.param("abc", {"max_parallel": 2}, (("n0", "n1"), ("n2",)), id="two at a time"),
        pytest.param("abc", {"max_parallel": 5}, (("n0", "n1", "n2"),), id="all at once"),
        pytest.param(
            "aabb", {"max_parallel": 2, "max_per_zone": 1}, (("n0", "n2"), ("n1", "n3")), id="one of each zone"
        ),
        pytest.param(
            "aaab", {"max_parallel": 3, "max_per_zone": 2}, (("n0", "n1", "n3"), ("n2",)), id="two of each zone"
        ),
        pytest.param("..", {"max_parallel": 2, "max_per_zone": 1}, (("n0",), ("n1",)), id="no zone is one zone"),
        pytest.param(
            "aa",
            {"max_parallel": 2, "max_per_zone": 1, "zone_key": "kubernetes.io/hostname"},
            (("n0", "n1"),),
            id="key",
        ),
    ],
)
def test_waves(zones: str, options: dict[str, t.Any], expected: tuple[tuple[str, ...], ...]) -> None:
    assert formed(nodes_in(zones), Limits(**options)).waves == expected


@pytest.mark.parametrize(
    ("zones", "options", "together", "limits", "reason"),
    [
        pytest.param("ab", {}, [], "max_parallel", "wave 1 is full with 1 node", id="full"),
        pytest.param("abc", {"max_parallel": 2}, [], "max_parallel", "wave 1 is full with 2 nodes", id="full of two"),
        pytest.param(
            "aba",
            {"max_parallel": 3, "max_per_zone": 1},
            [],
            "max_per_zone",
            "wave 1 has n0 of the same zone",
            id="zone",
        ),
        pytest.param(
            "aaaaba",
            {"max_parallel": 9, "max_per_zone": 4},
            [],
            "max_per_zone",
            "wave 1 has n0, n1, n2 and 1 more of the same zone",
            id="zone of many",
        ),
        pytest.param(
            "aa",
            {"max_per_zone": 1},
            [],
            "max_parallel max_per_zone",
            "wave 1 is full with 1 node and has as many of the same zone as it may",
            id="both",
        ),
        pytest.param(
            "bcd",
            {"max_parallel": 2},
            [("n1", "n2")],
            "max_parallel",
            "wave 1 has no room for 2 nodes that leave together, as it has 1 node",
            id="gang",
        ),
        pytest.param(
            "aba",
            {"max_parallel": 3, "max_per_zone": 1},
            [("n1", "n2")],
            "max_per_zone",
            "wave 1 has no room for 2 nodes that leave together, as it has n0 of the same zone",
            id="gang in zones",
        ),
    ],
)
def test_the_last_node_waits_for_a_reason(
    zones: str, options: dict[str, t.Any], together: Groups, limits: str, reason: str
) -> None:
    wait = formed(nodes_in(zones), Limits(**options), together=together).waits[-1]
    last = f"n{len(zones) - 1}"
    assert (wait.node, wait.wave, " ".join(wait.limits), wait.reason) == (last, 2, limits, reason)
    told = wait.to_dict()
    assert (told["node"], told["reason"], told["together"]) == (last, reason, ["n1"] if together else [])


CONTROL = Share("control_plane", 1, {"n0": 1, "n2": 1}, "of the control plane")
ETCD = Share("budget", 2, {"n0": 1, "n1": 1, "n2": 1}, "with pods of PodDisruptionBudget a/etcd that are down")


@pytest.mark.parametrize(
    ("shares", "options", "expected", "reason"),
    [
        pytest.param((CONTROL,), {}, (("n0", "n1"), ("n2",)), "wave 1 has n0 of the control plane", id="control plane"),
        pytest.param(
            (ETCD,),
            {},
            (("n0", "n1"), ("n2",)),
            "wave 1 has n0, n1 with pods of PodDisruptionBudget a/etcd that are down",
            id="as many as the budget allows",
        ),
        pytest.param(
            (CONTROL,),
            {"max_parallel": 2},
            (("n0", "n1"), ("n2",)),
            "wave 1 is full with 2 nodes and has one of the control plane",
            id="full as well",
        ),
        pytest.param(
            (CONTROL,),
            {"max_per_zone": 1},
            (("n0",), ("n1",), ("n2",)),
            "wave 2 has n1 of the same zone",
            id="only what is in the wave before",
        ),
    ],
)
def test_what_a_wave_may_take_with_it(
    shares: tuple[Share, ...], options: dict[str, t.Any], expected: tuple[tuple[str, ...], ...], reason: str
) -> None:
    found = formed(nodes_in("aaa"), Limits(**{"max_parallel": 3, **options}, shares=shares))
    assert found.waves == expected
    assert found.waits[-1].reason == reason


def wave_of(found: Formed, name: str) -> int:
    (number,) = [number for number, wave in enumerate(found.waves, start=1) if name in wave]
    return number


def _gathered(nodes: t.Sequence[Node], group: t.Collection[str]) -> list[Node]:
    """In the order in which each has its turn: those of a group where its first one is."""
    names = [each.name for each in nodes]
    first = min(map(names.index, group))
    return sorted(nodes, key=lambda each: first if each.name in group else names.index(each.name))


@st.composite
def rolls(draw: st.DrawFn) -> tuple[list[Node], Limits, list[tuple[str, ...]]]:
    """Nodes with limits, and groups of them that leave together."""
    nodes = nodes_in(draw(st.lists(st.sampled_from("abc."), max_size=14)))
    takes = {each.name: draw(st.sampled_from([0, 0, 1, 2])) for each in nodes}
    members = {name: 1 for name in takes if draw(st.booleans())} if draw(st.booleans()) else {}
    shares = (
        Share("control_plane", 1, members, "of the control plane"),
        Share("budget", draw(st.integers(1, 4)), {name: count for name, count in takes.items() if count}, "with pods"),
    )
    limits = Limits(draw(st.integers(1, 5)), ZONE, draw(st.none() | st.integers(1, 3)), shares)
    marks = draw(st.lists(st.sampled_from("xy----"), min_size=len(nodes), max_size=len(nodes)))
    groups = [tuple(n.name for n, mark in zip(nodes, marks, strict=True) if mark == group) for group in "xy"]
    return nodes, limits, [group for group in groups if group]


@settings(deadline=None, derandomize=True, max_examples=300)
@given(rolls())
def test_without_those_it_waits_for_a_node_is_in_an_earlier_wave(
    roll: tuple[list[Node], Limits, list[tuple[str, ...]]],
) -> None:
    """A wave depends on the nodes that are in none before it, so waves after it can be left out."""
    nodes, limits, groups = roll
    found, by_name = formed(nodes, limits, together=groups), {each.name: each for each in nodes}
    for wave in found.waves:
        assert not limits.taken([by_name[name] for name in wave])
    assert [(wait.node, wait.wave) for wait in found.waits] == [
        (name, number) for number, wave in enumerate(found.waves, start=1) for name in wave if number > 1
    ]
    whole = [group for group in groups if len({wave_of(found, name) for name in group}) == 1]
    for group in groups:
        if group not in whole:
            # Parted by its zones, and each of it where the first has its turn.
            nodes = _gathered(nodes, group)
    for wait in found.waits:
        assert wait.limits
        assert wait.behind
        before = found.waves[wait.wave - 2]
        assert set(wait.behind) <= set(before)
        assert set(wait.together) <= set(found.waves[wait.wave - 1])
        unit = {wait.node, *wait.together}
        here = {name for wave in found.waves[: wait.wave - 1] for name in wave} | unit
        assert wave_of(formed([n for n in nodes if n.name in here], limits, together=whole), wait.node) == wait.wave
        gone = {*wait.behind, *(name for group in whole if {*group} & {*wait.behind} for name in group)}
        fewer = formed([n for n in nodes if n.name in here - gone], limits, together=whole)
        assert wave_of(fewer, wait.node) < wait.wave


@settings(deadline=None, derandomize=True, max_examples=200)
@given(rolls())
def test_a_limit_that_is_not_named_is_not_in_the_way(roll: tuple[list[Node], Limits, list[tuple[str, ...]]]) -> None:
    """One node fewer is enough, of any zone, or of the same one where the zone's limit is named."""
    nodes, limits = roll[0], replace(roll[1], shares=())
    found, by_name = formed(nodes, limits), {each.name: each for each in nodes}
    for wait in found.waits:
        before, zone = found.waves[wait.wave - 2], by_name[wait.node].labels.get(ZONE)
        early = {name for wave in found.waves[: wait.wave - 1] for name in wave}
        # As the decision was made: later nodes are not there yet.
        come = [n for n in nodes[: nodes.index(by_name[wait.node]) + 1] if n.name in early or n.name == wait.node]
        for name in (each.name for each in come if each.name in before):
            fewer = formed([n for n in come if n.name != name], limits)
            same = by_name[name].labels.get(ZONE) == zone
            assert (wave_of(fewer, wait.node) < wait.wave) == (same or "max_per_zone" not in wait.limits)


@pytest.mark.parametrize(("shared", "named"), [(1, 1), (2, 2), (3, 2), (500, 2)])
@pytest.mark.parametrize("limits", [("budget",), ("max_parallel", "budget")])
def test_a_reason_to_wait_is_short_however_much_is_shared(limits: tuple[Limit, ...], shared: int, named: int) -> None:
    words = tuple(f"with pods of Budget{number}" for number in range(shared))
    reason = Wait("n9", 2, limits, ("n1", "n2", "n3", "n4"), shared=words).reason
    assert reason.count("Budget") == named
    assert (f"{shared - 2} others" in reason) is (shared > 2 and limits == ("budget",))
