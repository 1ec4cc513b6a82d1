# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Waves are as large as the room for their pods."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import drafts, forecast, waves
from ansible_collections.kubeops.node_maintenance.tests.unit.support.advised import ROOM, nodes, roomy, wanted, web
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import owned, pod, snapshot

FOUR = ("n1", "n2", "n3", "n4")


def planned(seen: Snapshot, *names: str, most: int = 4, **more: t.Any) -> drafts.Plan:
    asked = wanted(*names, max_parallel=most, **more)
    return drafts.judged(seen, asked, drafts.draft(seen, asked))


def full(spare: int) -> Snapshot:
    """Four nodes, each filled by one pod of web, with so many spare ones."""
    names = (*FOUR, *(f"s{number}" for number in range(spare)))
    return snapshot(web(4, cpu="3", on=FOUR), nodes=nodes(*names))


@pytest.mark.parametrize(
    ("spare", "formed"),
    [
        pytest.param(4, (FOUR,), id="room for all"),
        pytest.param(3, (("n1", "n2"), ("n3", "n4")), id="room for three: halves"),
        pytest.param(2, (("n1", "n2"), ("n3", "n4")), id="room for two"),
        pytest.param(1, (("n1",), ("n2",), ("n3",), ("n4",)), id="room for one"),
        pytest.param(0, (("n1",), ("n2",), ("n3",), ("n4",)), id="no room: one waits at a time"),
    ],
)
def test_as_many_nodes_leave_together_as_their_pods_find_room(spare: int, formed: tuple[tuple[str, ...], ...]) -> None:
    plan = planned(full(spare), *FOUR)
    assert plan.draft.waves == formed
    assert [one.fits for one in plan.placed.values()].count(False) == (0 if spare else 1)


def test_a_node_that_waits_says_for_what() -> None:
    waits = planned(full(2), *FOUR).draft.waits
    assert [(wait.node, wait.wave, wait.limits, wait.behind) for wait in waits] == [
        ("n3", 2, ("room",), ("n1", "n2")),
        ("n4", 2, ("room",), ("n1", "n2")),
    ]
    assert waits[0].reason == "wave 1 has n1, n2 with pods that need the same room"


def test_only_the_nodes_that_need_the_room_wait_for_each_other() -> None:
    narrow = [roomy(name, {**ROOM, "cpu": "1"}) for name in ("e1", "e2")]
    seen = snapshot(web(2, cpu="3", on=("n1", "n2")), nodes=[*nodes("n1", "n2", "s0"), *narrow])
    assert planned(seen, "n1", "e1", "n2", "e2").draft.waves == (("n1", "e1"), ("n2", "e2"))


def test_nodes_that_stay_out_make_no_room_one_after_the_other() -> None:
    assert planned(full(1), *FOUR, evacuates=True).draft.waves == (FOUR,)


def test_a_pod_that_fits_nowhere_anyway_changes_no_wave() -> None:
    lost = pod("lost", "n1", owned("ReplicaSet", "web"))
    lost["spec"]["nodeSelector"] = {"disk": "none"}
    seen = snapshot(web(4, cpu="3", on=FOUR), pods=[lost], nodes=nodes(*FOUR, "s0", "s1", "s2", "s3"))
    plan = planned(seen, *FOUR)
    assert plan.draft.waves == (FOUR,)
    assert [uid for uid, one in plan.placed.items() if not one.fits] == ["uid-lost"]


def foreseeing(room: int, together: tuple[str, ...] = ()) -> tuple[waves.Foreseen, int]:
    """Four nodes with a pod each, of which `room` fit at a time; and how many forecasts it took."""
    seen, asked = full(0), 0
    plans = drafts.draft(seen, wanted(*FOUR)).plans
    todo = [seen.nodes[name] for name in FOUR]
    gangs = [together] if together else []

    def form(more: tuple[waves.Share, ...]) -> waves.Formed:
        return waves.formed(todo, waves.Limits(max_parallel=4, shares=more), together=gangs)

    def foresee(some: t.Sequence[t.Collection[str]]) -> dict[str, forecast.Forecast]:
        nonlocal asked
        asked += 1
        size = {name: len(wave) for wave in some for name in wave}
        return {plan.pod.uid: forecast.Forecast(fits=size[plan.pod.node] <= room) for plan in plans}

    found = waves.Shaping(plans, gangs, form, foresee).shaped(form(()))
    return found, asked


@pytest.mark.parametrize(("room", "asked"), [(4, 1), (2, 3), (1, 4)])
def test_where_all_fit_one_forecast_is_made_else_one_for_each_half(room: int, asked: int) -> None:
    found, took = foreseeing(room)
    assert not found.lost
    assert max(map(len, found.formed.waves)) == room
    assert took == asked


def test_nodes_that_leave_together_stay_together() -> None:
    found, _asked = foreseeing(2, together=("n1", "n4"))
    assert found.formed.waves == (("n1", "n4"), ("n2",), ("n3",))
