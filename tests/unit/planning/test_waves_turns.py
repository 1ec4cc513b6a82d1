# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes whose pods would queue behind each other leave with other nodes, where that shortens the plan."""

from __future__ import annotations

import math
import typing as t
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import drafts, preflight
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning.waves import Limits, Line, formed
from ansible_collections.kubeops.node_maintenance.tests.unit.planning.test_waves import nodes_in, rolls
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    budget,
    deployment,
    node,
    owned,
    pod,
    snapshot,
    workload,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import wave_seconds

Waves = tuple[tuple[str, ...], ...]
FOUR = ("n1", "n2", "n3", "n4")
PAIRS = {"a": ("n1", "n2"), "b": ("n3", "n4")}


def shop(places: t.Mapping[str, t.Sequence[str]], allowed: int | None = 1, kind: str = "Deployment") -> Snapshot:
    """Workloads with a pod on each of these nodes and two on n9, each with a budget that allows so many, if any."""
    parts: list[dict[str, list[t.Any]]] = []
    for name, leaving in places.items():
        on, selector = (*leaving, "n9", "n9"), {"matchLabels": {"app": name}}
        owner = owned("ReplicaSet" if kind == "Deployment" else kind, name)
        pods = [
            pod(f"{name}-{number}", where, owner, labels={"app": name}, grace=29) for number, where in enumerate(on)
        ]
        made = deployment(name, len(on)) if kind == "Deployment" else {"stateful_sets": [workload(kind, name, len(on))]}
        parts.append({**made, "pods": pods})
        if allowed is not None:
            rule, desired = {"maxUnavailable": allowed}, len(on) - allowed
            made_for = budget(name, allowed, healthy=len(on), desired=desired, rule=rule, selector=selector)
            parts.append({"budgets": [made_for]})
    return snapshot(*parts, nodes=[node(name) for name in (*FOUR, "n9")])


def drafted(seen: Snapshot, most: int = 2) -> drafts.Draft:
    return drafts.draft(seen, preflight.DraftOptions(FOUR, max_parallel=most))


LONGER = shop({"a": ("n1",), "b": ("n2", "n2", "n2"), "c": ("n3",), "d": ("n4", "n4")})


@pytest.mark.parametrize(
    ("seen", "most", "expected"),
    [
        pytest.param(shop(PAIRS), 2, (("n1", "n3"), ("n2", "n4")), id="two budgets"),
        pytest.param(shop(PAIRS, None), 2, (("n1", "n3"), ("n2", "n4")), id="guards of two workloads"),
        pytest.param(shop(PAIRS, 2), 2, (("n1", "n2"), ("n3", "n4")), id="budgets that let both go"),
        pytest.param(shop(PAIRS), 1, (("n1",), ("n2",), ("n3",), ("n4",)), id="one node at a time"),
        pytest.param(shop(PAIRS), 3, (("n1", "n2", "n3"), ("n4",)), id="if it is no shorter, the order stays"),
        pytest.param(shop(PAIRS), 4, (FOUR,), id="all at once"),
        pytest.param(shop({"a": FOUR}), 2, (("n1", "n2"), ("n3", "n4")), id="one budget for all"),
        pytest.param(shop({"a": ("n1", "n2")}), 2, (("n1", "n2"), ("n3", "n4")), id="apart they end twice"),
        pytest.param(LONGER, 2, (("n1", "n3"), ("n2", "n4")), id="longer by themselves"),
    ],
)
def test_nodes_of_different_budgets_leave_together(seen: Snapshot, most: int, expected: Waves) -> None:
    assert drafted(seen, most).waves == expected


def test_the_plan_gets_shorter_by_it() -> None:
    seen = shop({"a": ("n1", "n1", "n2", "n2"), "b": ("n3", "n3", "n4", "n4")})
    plan = drafted(seen)
    given_order = (("n1", "n2"), ("n3", "n4"))
    assert plan.waves == (("n1", "n3"), ("n2", "n4"))
    assert wave_seconds(seen, plan.plans, given_order) == [math.ceil(3 + 3 * 10.3 + 29)] * 2
    assert wave_seconds(seen, plan.plans, plan.waves) == [math.ceil(3 + 1 * 10.3 + 29)] * 2


@pytest.mark.parametrize(
    ("seen", "limits", "behind", "reason"),
    [
        pytest.param(
            shop(PAIRS),
            ("queue",),
            ("n1",),
            "wave 1 has n1 with pods of PodDisruptionBudget shop/a, of which 1 may leave at a time",
            id="a budget",
        ),
        pytest.param(
            shop(PAIRS, None),
            ("queue",),
            ("n1",),
            "wave 1 has n1 with pods of Deployment shop/a, of which 1 may leave at a time",
            id="a guard",
        ),
        pytest.param(
            LONGER,
            ("max_parallel", "queue"),
            ("n1", "n3"),
            "wave 1 is full with 2 nodes whose pods need fewer turns",
            id="longer by itself",
        ),
    ],
)
def test_a_node_that_gives_way_says_to_whom(
    seen: Snapshot, limits: tuple[str, ...], behind: tuple[str, ...], reason: str
) -> None:
    wait = drafted(seen).waits[0]
    assert (wait.node, wait.wave, wait.limits, wait.behind, wait.reason) == ("n2", 2, limits, behind, reason)


def test_a_node_that_had_no_turn_yet_waits_because_the_wave_is_full() -> None:
    assert drafted(shop(PAIRS)).waits[1].reason == "wave 1 is full with 2 nodes"


@pytest.mark.parametrize(("kind", "turn", "ends"), [("Deployment", 10.3, 29.0), ("StatefulSet", 39.3, 39.0)])
def test_a_turn_takes_until_the_successor_is_ready(kind: str, turn: float, ends: float) -> None:
    """That of a StatefulSet comes when the pod is gone."""
    (line,) = drafted(shop({"a": FOUR}, kind=kind)).shape.lines
    assert (line.allowed, dict(line.takes)) == (1, dict.fromkeys(FOUR, 1))
    assert [line.turn, line.ends] == pytest.approx([turn, ends])


def test_slow_pods_count_for_more() -> None:
    """Two slow pods take 200 s one after the other, six fast ones 6 s."""
    slow = Line(1, {"n0": 1, "n3": 1}, "slow", 100.0, 100.0)
    fast = Line(1, {"n1": 3, "n2": 3}, "fast", 1.0, 1.0)
    found = formed(nodes_in("...."), Limits(max_parallel=2), lines=(slow, fast))
    assert found.waves == (("n0", "n1"), ("n2", "n3"))


def first_fit(nodes: t.Sequence[Node], limits: Limits, groups: t.Iterable[tuple[str, ...]]) -> list[list[str]]:
    """Each group in turn goes into the first wave with room for it."""
    first = {name: next(group for group in groups if name in group) for group in groups for name in group}
    by_name, units = {each.name: each for each in nodes}, dict[tuple[str, ...], list[Node]]()
    for each in nodes:
        units.setdefault(first.get(each.name, (each.name,)), []).append(by_name[each.name])
    found: list[list[Node]] = []
    for whole in units.values():
        for unit in [[each] for each in whole] if limits.crowded(whole) or limits.taken(whole) else [whole]:
            open_to = (wave for wave in found if not limits.exceeded([*wave, *unit]))
            wave = next(open_to, None)
            if wave is None:
                found.append(wave := [])
            wave += unit
    return [[each.name for each in wave] for wave in found]


def longest(wave: t.Iterable[str], lines: t.Iterable[Line]) -> float:
    """Seconds of the longest line of a wave, counted in the plainest way."""
    names = [*wave]
    counts = ((line, sum(line.takes.get(name, 0) for name in names)) for line in lines)
    rounds = ((line, math.ceil(count / line.allowed)) for line, count in counts if count)
    return max(((number - 1) * line.turn + line.ends for line, number in rounds), default=0.0)


@st.composite
def queued(draw: st.DrawFn) -> tuple[list[Node], Limits, list[tuple[str, ...]], tuple[Line, ...]]:
    """Nodes with limits and groups, and lines in which they have pods."""
    nodes, limits, groups = draw(rolls())
    lines = []
    for number in range(draw(st.integers(0, 4))):
        takes = {each.name: draw(st.sampled_from([0, 0, 1, 1, 2, 5])) for each in nodes}
        turn, ends = draw(st.sampled_from([0.5, 1.0, 1.0, 7.0])), draw(st.sampled_from([0.5, 1.0, 3.0]))
        taken = {name: pods for name, pods in takes.items() if pods}
        lines.append(Line(draw(st.integers(1, 3)), taken, str(number), turn, ends))
    return nodes, limits, groups, tuple(lines)


@settings(derandomize=True, max_examples=200)
@given(queued())
def test_lines_change_which_nodes_leave_together_and_nothing_else(
    roll: tuple[list[Node], Limits, list[tuple[str, ...]], tuple[Line, ...]],
) -> None:
    nodes, limits, groups, lines = roll
    by_name = {each.name: each for each in nodes}
    plain = formed(nodes, limits, together=groups)
    found = formed(nodes, limits, together=groups, lines=lines)
    assert [list(wave) for wave in plain.waves] == first_fit(nodes, limits, groups)
    assert sorted(name for wave in found.waves for name in wave) == sorted(by_name)
    assert len(found.waves) <= len(plain.waves)
    before, after = (sum(longest(wave, lines) for wave in one.waves) for one in (plain, found))
    assert after < before or found == plain
    assert found.waves == formed(nodes, limits, together=groups, lines=tuple(reversed(lines))).waves
    for wave in found.waves:
        those = [by_name[name] for name in wave]
        whole = any(set(wave) == set(group) for group in groups)
        assert not set(limits.exceeded(those)) - ({"max_parallel"} if whole else set())
    for group in groups:
        together = [sum(name in wave for name in group) for wave in plain.waves]
        if len(group) in together:
            assert any(set(group) <= set(wave) for wave in found.waves)


@settings(derandomize=True, max_examples=100)
@given(queued())
def test_with_one_node_at_a_time_the_order_stays(
    roll: tuple[list[Node], Limits, list[tuple[str, ...]], tuple[Line, ...]],
) -> None:
    nodes, limits, groups, lines = roll
    limits = replace(limits, max_parallel=1)
    assert formed(nodes, limits, together=groups, lines=lines) == formed(nodes, limits, together=groups)


@settings(derandomize=True, max_examples=200)
@given(queued())
def test_who_gives_way_would_have_made_the_wave_longer(
    roll: tuple[list[Node], Limits, list[tuple[str, ...]], tuple[Line, ...]],
) -> None:
    nodes, limits, groups, lines = roll
    found = formed(nodes, limits, together=groups, lines=lines)
    for wait in found.waits:
        before = found.waves[wait.wave - 2]
        assert wait.behind
        assert set(wait.behind) <= set(before)
        if "queue" in wait.limits:
            assert longest([*before, wait.node, *wait.together], lines) > longest(before, lines)
            held = [line for line in lines if line.words in wait.shared]
            assert all(any(name in line.takes for line in held) for name in wait.behind) == bool(held)
            later = {each.name for each in nodes[[each.name for each in nodes].index(wait.node) :]}
            assert later & set(before) or wait.together
