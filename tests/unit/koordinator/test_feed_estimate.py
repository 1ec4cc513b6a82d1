# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long a maintenance will take, told before it begins."""

from __future__ import annotations

import datetime
import functools
import math
import typing as t
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import objects, start_times
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.feed import Pace
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import preflight, queues, wave_times
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.migration_controller import (
    Controller,
    Limiter,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    budget,
    deployment,
    owned,
    pod,
    snapshot,
    workload,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import (
    WEB,
    planned,
    wave_seconds,
    web,
)

OPERATOR = owned("Database", "main", "example.org/v1")


STEPS, TURN, SOON = 3.0, 0.3, 2.0
WHOLE: Raw = {"pod_changes": {"grace": 29}}
"""So short that it is expected to be used."""


@pytest.mark.parametrize(
    ("found", "waves", "settle", "seconds"),
    [
        pytest.param(snapshot(), (("n1",),), 0.0, STEPS, id="nothing to move"),
        pytest.param(web(1, **WHOLE), (("n1",),), 0.0, STEPS + 10 + 29, id="a surge"),
        pytest.param(web(1, **WHOLE), (("n1",),), 15.0, STEPS + 10 + 15 + 29, id="a surge that settles"),
        pytest.param(
            web(3, here=3, **WHOLE),
            (("n1",),),
            0.0,
            STEPS + 2 * (10 + TURN) + 29,
            id="a guard: the next goes as one is ready",
        ),
        pytest.param(
            web(3, here=3, **WHOLE, budgets=[budget("b", 2)]),
            (("n1",),),
            0.0,
            STEPS + 10 + TURN + 29,
            id="a budget of two",
        ),
        pytest.param(
            web(3, here=3, **WHOLE, budgets=[budget("b", 3)]), (("n1",),), 0.0, STEPS + 29, id="a budget of all"
        ),
        pytest.param(
            web(3, here=3, **WHOLE, budgets=[budget("b", 0, healthy=2, desired=2, expected=3)]),
            (("n1",),),
            0.0,
            STEPS + 2 * (10 + TURN) + 29,
            id="a budget that is spent lets go one by one",
        ),
        pytest.param(web(3), (("n1",), ("n2",)), 0.0, 2 * STEPS + 10 + 10 + TURN + 10, id="wave after wave"),
        pytest.param(web(1, **WHOLE), (("n2",),), 0.0, STEPS, id="another wave"),
        pytest.param(web(1, **WHOLE), (("n1",),), 0.4, STEPS + 10.4 + 29, id="rounded up"),
        pytest.param(web(1, pod_changes={"grace": 29}), (("n1",),), 0.0, STEPS + 10 + 29, id="a short grace"),
        pytest.param(web(1, pod_changes={"grace": 0}), (("n1",),), 0.0, STEPS + 10, id="no grace"),
        *(
            pytest.param(web(1, pod_changes={"grace": each}), (("n1",),), 0.0, STEPS + 10 + SOON, id=f"early of {each}")
            for each in (30, 31, 3600)
        ),
        pytest.param(
            web(3, here=3, pod_changes={"grace": 1}), (("n1",),), 0.0, STEPS + 2 * (10 + TURN) + 10, id="they end fast"
        ),
        pytest.param(
            snapshot(deployment("web", 1), pods=[pod("web-0", owner=WEB), pod("p", owner=OPERATOR, ready=False)]),
            (("n1",),),
            0.0,
            STEPS + 10 + SOON,
            id="an unknown owner's pod is not waited for to start",
        ),
    ],
)
def test_the_estimate(found: Snapshot, waves: preflight.Waves, settle: float, seconds: float) -> None:
    nodes = tuple(name for wave in waves for name in wave)
    assert sum(wave_seconds(found, planned(found, nodes), waves, settle=settle)) == math.ceil(seconds)


SMALL = {"object_limiters": {}, "max_migrating_per_node": 0, "max_migrating_per_workload": 9}


@pytest.mark.parametrize(
    ("controller", "count", "seconds"),
    [
        pytest.param({}, 1, 40, id="one"),
        pytest.param({"max_unavailable_per_workload": 9}, 4, 40, id="all at once"),
        pytest.param({"max_unavailable_per_workload": 2}, 4, 2 * 40, id="two of the workload"),
        pytest.param({"max_unavailable_per_workload": 2}, 5, 3 * 40, id="two of the workload, one left"),
        pytest.param({"max_unavailable_per_workload": 9, "max_migrating_per_node": 2}, 4, 2 * 40, id="two of the node"),
        pytest.param({"max_unavailable_per_workload": 9, "max_migrating_per_namespace": 1}, 2, 2 * 40, id="namespace"),
        pytest.param({"max_unavailable_per_workload": 9, "max_migrating_globally": 1}, 3, 3 * 40, id="cluster"),
        pytest.param(
            {"max_unavailable_per_workload": 9, "object_limiters": {"namespace": Limiter(100.0, 1, burst=2)}},
            4,
            40 + 2 * 100,
            id="the limiter of the namespace",
        ),
        pytest.param(
            {"max_unavailable_per_workload": 9, "object_limiters": {"workload": Limiter(100.0, 1, burst=1)}},
            4,
            40 + 3 * 100,
            id="the limiter of the workload",
        ),
    ],
)
def test_jobs_go_as_fast_as_their_controller_lets_them(controller: dict[str, t.Any], count: int, seconds: int) -> None:
    """Each takes 5 s for its steps, 10 s to start and 25 s to end, in as many rounds as the tightest limit needs."""
    found = web(9, here=count, pod_changes={"grace": 25})
    plans = [replace(plan, route="job") for plan in planned(found)]
    choices = DrainPolicy(controller=Controller(**{**SMALL, **controller}), backend="koordinator")
    assert sum(wave_seconds(found, plans, [("n1",)], choices=choices)) == STEPS + seconds
    assert sum(wave_seconds(found, plans, [("n2",)], choices=choices)) == STEPS


@pytest.mark.parametrize(
    ("count", "burst", "seconds"), [(1, 1, None), (2, 2, None), (2, 1, 60.0), (4, 1, 180.0), (4, 2, 120.0)]
)
def test_the_object_limiter_stretches_what_exceeds_its_burst(count: int, burst: int, seconds: float | None) -> None:
    found = web(9, here=count)
    controller = Controller(object_limiters={"workload": Limiter(60.0, 1, burst=burst)})
    assert Pace(found, controller).limited(planned(found)).get("uid-Deployment-web") == seconds


def test_the_estimate_reads_probes_and_grace() -> None:
    template = {"spec": {"containers": [{"name": "c", "readinessProbe": {"initialDelaySeconds": 20}}]}}
    top = deployment("web", 1, template=template, minReadySeconds=5)
    top["replica_sets"][0]["spec"]["template"] = template
    found = snapshot(top, pods=[pod("web-0", owner=WEB, grace=600)])
    assert sum(wave_seconds(found, planned(found), (("n1",),))) == STEPS + 10 + 20 + 5 + SOON


def ready_after(seconds: float, name: str = "web-0", on: str = "n1", **changes: t.Any) -> Raw:
    """A pod that became Ready so long after it got its node."""
    raw = pod(name, on, WEB, **changes)
    raw["status"]["conditions"] = [
        {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:10:00Z"},
        {"type": "Ready", "status": "True", "lastTransitionTime": at(600 + seconds)},
    ]
    return raw


def at(seconds: float) -> str:
    return (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=seconds)).isoformat()


def restarted(raw: Raw) -> Raw:
    raw["status"]["containerStatuses"] = [{"restartCount": 1}]
    return raw


@pytest.mark.parametrize(
    ("pods", "ready"),
    [
        pytest.param([ready_after(7)], 7.0, id="of one"),
        pytest.param([ready_after(x, f"web-{x}") for x in (3, 8, 500)], 8.0, id="the median"),
        pytest.param([restarted(ready_after(500)), ready_after(4, "web-1")], 4.0, id="not of one that was restarted"),
        pytest.param([ready_after(86400), ready_after(4, "web-1")], 4.0, id="not of one that was unready for a while"),
        pytest.param([ready_after(86400)], 10.0, id="none tells"),
        pytest.param([ready_after(-1)], 10.0, id="ready before it had its node"),
        pytest.param([pod("web-0", owner=WEB)], 10.0, id="no conditions"),
    ],
)
def test_a_start_takes_as_long_as_it_took_the_running_pods(pods: list[Raw], ready: float) -> None:
    found = snapshot(deployment("web", len(pods), minReadySeconds=5), pods=pods)
    start = start_times.of(found, found.workload_of(found.pods[0]))
    assert (start.ready, start.available) == (ready, ready + 5)


def test_a_pod_that_waited_for_room_is_measured_from_when_it_had_it() -> None:
    raw = ready_after(7)
    raw["status"]["conditions"][0]["type"] = "Initialized"
    found = snapshot(deployment("web", 1), pods=[raw])
    assert start_times.of(found, found.workloads[0]).ready != 7.0
    assert start_times.took(snapshot(pods=[ready_after(7)]).pods[0]) == 7.0


def test_a_stateful_set_starts_a_pod_when_the_one_before_is_gone_and_the_next_one_is_ready() -> None:
    def seconds(policy: str) -> float:
        kind = {"stateful_sets": [workload("StatefulSet", "db", 3, podManagementPolicy=policy)]}
        pods = [pod(f"db-{i}", owner=owned("StatefulSet", "db"), labels={"app": "db"}, grace=4) for i in range(3)]
        covered = budget("b", 3, healthy=3, desired=0, expected=3, selector={"matchLabels": {"app": "db"}})
        found = snapshot(kind, pods=pods, budgets=[covered])
        return sum(wave_seconds(found, planned(found), [("n1",)]))

    assert seconds("OrderedReady") == STEPS + 4 + 3 * 10
    assert seconds("Parallel") == STEPS + 4 + 10


STEP_LISTS = st.lists(
    st.builds(
        queues.Step,
        stop=st.integers(0, 60).map(float),
        start=st.integers(0, 60).map(float),
        after=st.booleans(),
        ordered=st.sampled_from(["", "a", "b"]),
    ),
    max_size=12,
)


@given(steps=STEP_LISTS, allowed=st.integers(0, 12))
def test_a_queue_is_as_fast_as_its_budget_allows(steps: list[queues.Step], allowed: int) -> None:
    played, at_once = queues.play(steps, allowed), queues.play(steps, len(steps))
    assert 0.0 <= played.waits <= played.lasts
    assert at_once.waits == 0.0
    assert (played.waits > 0) is (len(steps) > max(1, allowed))
    assert played.lasts <= sum(step.stop + step.start + queues.TURN_SECONDS for step in steps)
    assert played.lasts >= max((step.stop for step in steps), default=0.0)
    if not any(step.after for step in steps):
        assert at_once.lasts <= played.lasts


@given(
    parts=st.lists(st.builds(wave_times.Parts, *[st.integers(0, 99).map(float)] * 6), min_size=1, max_size=5),
)
def test_parts_add_up(parts: list[wave_times.Parts]) -> None:
    whole = functools.reduce(wave_times.Parts.plus, parts)
    assert whole.seconds == sum(one.seconds for one in parts) == sum(whole.to_dict().values())


def test_the_parts_of_a_wave() -> None:
    found = web(3, here=3, pod_changes={"grace": 4})
    [wave] = wave_times.wave_times(found, planned(found), [("n1",)], notice=60.0)
    shown = {"steps": 3.0, "notice": 60.0, "starts": 6.0, "stops": 4.0, "budgets": 20.6, "jobs": 0.0}
    assert wave.parts.to_dict() == shown
    [surged] = wave_times.wave_times(web(1), planned(web(1)), [("n1",)], settle=2.0)
    assert surged.parts == wave_times.Parts(starts=12.0, stops=SOON)


@pytest.mark.parametrize(
    ("found", "wait", "seconds"),
    [
        pytest.param(web(1, **WHOLE), 0.0, 10 + 2 + TURN + 29, id="it serves for two seconds"),
        pytest.param(web(1, spec={"minReadySeconds": 12}, **WHOLE), 0.0, 10 + 12 + TURN + 29, id="or for longer"),
        pytest.param(web(1, **WHOLE), 15.0, 10 + 2 + TURN + 15 + 29, id="load balancers drop the old one"),
        pytest.param(web(4, here=4, **WHOLE), 0.0, 4 * (10 + 2 + TURN) + 29, id="one of four at a time"),
        pytest.param(web(8, here=8, **WHOLE), 0.0, 4 * (10 + 2 + TURN) + 29, id="two of eight at a time"),
    ],
)
def test_a_replaced_pod_waits_for_others_to_serve(found: Snapshot, wait: float, seconds: float) -> None:
    plans = [replace(plan, route="replace") for plan in planned(found)]
    choices = DrainPolicy(load_balancer_wait=wait)
    [wave] = wave_times.wave_times(found, plans, [("n1",)], settle=60.0, choices=choices)
    assert wave.parts.seconds == pytest.approx(STEPS + seconds)


@pytest.mark.parametrize(
    ("found", "seconds"),
    [
        pytest.param(web(1), 10 + 2 + SOON, id="a surge: it starts, settles, and the old one ends"),
        pytest.param(web(3, pod_changes={"grace": 4}), 10, id="an eviction: both at the same time"),
        pytest.param(web(1, pod_changes={"annotations": {"kubernetes.io/config.mirror": "x"}}), None, id="it stays"),
        pytest.param(web(3, pod_changes={"phase": "Succeeded", "ready": False}), None, id="it has finished"),
    ],
)
def test_how_long_one_pod_takes_once_it_is_its_turn(found: Snapshot, seconds: float | None) -> None:
    assert queues.Times(found).move(planned(found)[0], 2.0) == seconds


def test_pods_that_have_finished_take_a_wave_no_time() -> None:
    found = web(3, here=3, pod_changes={"phase": "Failed", "ready": False})
    assert {plan.code for plan in planned(found)} == {"finished"}
    assert wave_seconds(found, planned(found), [("n1",)]) == [STEPS]


def held(found: Snapshot, **choices: t.Any) -> list[dict[str, t.Any]]:
    waves = wave_times.wave_times(found, planned(found, ("n1", "n2"), **choices), [("n1",), ("n2",)])
    return [one.to_dict() for wave in waves for one in wave.held]


def test_a_guard_of_ours_holds_all_but_one() -> None:
    guard = "kubeops-guard-uid-Deployment-web"
    shared = {"namespace": "shop", "name": guard, "workload": "Deployment shop/web", "guard": True, "blocks": False}
    assert held(web(5, here=3)) == [
        {**shared, "wave": 1, "pods": 3, "allowed": 1, "seconds": 20.6},
        {**shared, "wave": 2, "pods": 2, "allowed": 1, "seconds": 10.3},
    ]
    assert held(web(2)) == [], "one of each node goes at once"


def test_a_budget_that_allows_nothing_at_the_moment_or_for_good() -> None:
    def told(**rule: t.Any) -> list[tuple[t.Any, ...]]:
        found = held(web(3, budgets=[budget("b", 0, **rule)]))
        return [(one["wave"], one["pods"], one["allowed"], one["blocks"], one["seconds"]) for one in found]

    spent = told(healthy=2, desired=2, expected=3)
    assert spent == [(1, 1, 0, False, 0.0), (2, 2, 0, False, 10.3)]
    blocks = told(rule={"maxUnavailable": 0}, healthy=3, desired=3)
    assert blocks == [(1, 1, 0, True, 0.0), (2, 2, 0, True, 0.0)]


def test_seconds_are_told_to_a_tenth() -> None:
    one = wave_times.Held(1, objects.Ref("PodDisruptionBudget", "b", "shop"), None, 3, 1, 10.26)
    assert one.to_dict()["seconds"] == 10.3
    assert wave_times.Parts(stops=4.26).to_dict()["stops"] == 4.3


def missing(*ready: bool) -> Snapshot:
    """Three replicas, of which these pods exist, one on each node."""
    pods = [pod(f"web-{i}", f"n{i + 1}", WEB, ready=each) for i, each in enumerate(ready)]
    return snapshot(deployment("web", 3), pods=pods)


@pytest.mark.parametrize(
    ("ready", "guarded", "spent"),
    [
        pytest.param((True, True, True), True, False, id="all are ready"),
        pytest.param((True, True, False), True, True, id="one is not"),
        pytest.param((True, True), True, True, id="one is missing"),
        pytest.param((True, False, False), False, False, id="no guard of ours"),
        pytest.param((False, True, True), True, False, id="the one that is not ready goes itself"),
        pytest.param((True, True, True, False), True, False, id="one too many"),
    ],
)
def test_a_guard_is_spent_while_a_pod_of_its_workload_is_missing(
    ready: tuple[bool, ...], guarded: bool, spent: bool
) -> None:
    found = missing(*ready)
    [plan] = planned(found)
    plan = replace(plan, guarded=guarded)
    why = queues.guard_spent(found, plan)
    assert bool(why) is spent
    if spent:
        assert why == f"Deployment shop/web has {sum(ready)} of 3 pods ready"
    if guarded and plan.pod.ready:
        assert [queue.allowed for queue in queues.queues(found, [plan])] == [0 if spent else 1]


def test_a_pod_that_is_deleted_is_missing_and_one_of_no_known_workload_has_no_guard() -> None:
    found = snapshot(
        deployment("web", 2), pods=[pod("web-0", owner=WEB), pod("web-1", "n2", WEB, deleting="2026-01-01T00:00:00Z")]
    )
    plans = [replace(plan, guarded=True) for plan in planned(found)]
    assert queues.guard_spent(found, plans[0])
    bare = snapshot(pods=[pod("bare")])
    assert not queues.guard_spent(bare, replace(planned(bare, force=True)[0], guarded=True))


@pytest.mark.parametrize(
    ("changes", "rule", "expected"),
    [
        pytest.param({}, {}, ["b", 2], id="as many as the budget allows"),
        pytest.param({"ready": False}, {}, [None, 3], id="what is not ready takes nothing of it"),
        pytest.param({}, {"observed": False}, ["b", 0], id="a status that is not computed allows nothing"),
    ],
)
def test_pods_of_a_budget_queue_for_it(changes: Raw, rule: Raw, expected: list[t.Any]) -> None:
    found = web(5, here=3, pod_changes=changes, budgets=[budget("b", 2, **rule)])
    plans = [replace(plan, route="evict") for plan in planned(found)]
    queued = queues.queues(found, plans)
    assert {queue.budget.name if queue.budget else None for queue in queued} == {expected[0]}
    assert sum(queue.allowed for queue in queued) == expected[1]


@pytest.mark.parametrize(("exact", "told"), [(0.0, 0), (1.0, 1), (1.0004, 1), (1.0006, 2), (1.5, 2)])
def test_the_time_of_a_wave_is_rounded_up_from_a_thousandth(exact: float, told: int) -> None:
    assert wave_times.WaveTime(wave_times.Parts(steps=exact)).seconds == told
