# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long pods take to end, as far as anything tells it before."""

from __future__ import annotations

import dataclasses
import datetime
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import pod_specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import queues, wave_times
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    budget,
    deployment,
    owned,
    pod,
    snapshot,
    workload,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import WEB, planned, web

DB = owned("StatefulSet", "db")
NOT_RESTARTED, RESTARTED = 0, 1


def at(seconds: float) -> str:
    return (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(seconds=seconds)).isoformat()


def member(
    number: int, made: float, ready: float, restarts: int = NOT_RESTARTED, revision: str = "2", **changes: t.Any
) -> Raw:
    """A pod of the StatefulSet that was made, and became Ready, at these seconds."""
    labels = {"app": "db", "controller-revision-hash": f"db-{revision}"}
    raw = pod(f"db-{number}", owner=DB, labels=labels, created=at(made), **changes)
    raw["status"]["conditions"][0]["lastTransitionTime"] = at(ready)
    raw["status"]["containerStatuses"] = [{"restartCount": restarts}]
    return raw


def unready(raw: Raw) -> Raw:
    raw["status"]["conditions"][0]["status"] = "False"
    return raw


def stops(pods: list[Raw], generation: int = 2, **spec: t.Any) -> queues.StopTime:
    top = workload("StatefulSet", "db", len(pods), **spec)
    top["metadata"]["generation"] = top["status"]["observedGeneration"] = generation
    found = snapshot({"stateful_sets": [top]}, pods=pods)
    return queues.of(found, found.workloads[0], float(found.pods[0].grace_seconds))


UNKNOWN = queues.StopTime(2.0, 2.0, 30.0)


@pytest.mark.parametrize(
    ("grace", "expected"), [(0.0, (0.0, 0.0, 0.0)), (1.0, (1.0, 1.0, 1.0)), (29.0, (2.0, 29.0, 29.0)), (30.0, UNKNOWN)]
)
def test_of_a_pod_without_a_workload_its_grace_period_is_known(grace: float, expected: tuple[float, ...]) -> None:
    assert queues.of(snapshot(), None, grace) == expected


@pytest.mark.parametrize(
    ("pods", "spec", "expected"),
    [
        pytest.param([member(1, 0, 10), member(0, 17, 30)], {}, (7, 7, 7), id="one after the other"),
        pytest.param(
            [member(3, 0, 10), member(2, 14, 20), member(1, 29, 40), member(0, 45, 50)], {}, (4, 5, 9), id="the median"
        ),
        pytest.param(
            [member(1, 0, 10), member(0, 17, 30)], {"minReadySeconds": 5}, (2, 2, 2), id="once the one before settled"
        ),
        pytest.param([member(1, 0, 10), member(0, 43, 60)], {}, (30, 30, 30), id="no more than its grace period"),
        pytest.param([member(0, 0, 10), member(1, 12, 30)], {}, UNKNOWN, id="as it was made"),
        pytest.param([member(0, 0, 0), member(1, 0, 0)], {}, UNKNOWN, id="made at the same time"),
        pytest.param([member(1, 0, 10), member(0, 500, 510)], {}, UNKNOWN, id="long after"),
        pytest.param([member(2, 0, 10), member(0, 17, 30)], {}, UNKNOWN, id="not the next one"),
        pytest.param([member(1, 0, 10, RESTARTED), member(0, 17, 30)], {}, UNKNOWN, id="ready again since a restart"),
        pytest.param([unready(member(1, 0, 10)), member(0, 17, 30)], {}, UNKNOWN, id="not ready"),
        pytest.param([member(2, 0, 10), member(1, 10, 20), member(0, 24, 30)], {}, (4, 4, 4), id="one within a second"),
        pytest.param([member(1, 0, 10), member(0, 17, 30)], {"generation": 1}, UNKNOWN, id="never changed"),
        pytest.param([member(2, 0, 10), member(1, 17, 30), member(0, -900, 5)], {}, UNKNOWN, id="two were evicted"),
        pytest.param([member(2, -99, -90), member(1, 0, 10), member(0, 17, 30)], {}, UNKNOWN, id="the last two were"),
        pytest.param(
            [member(2, 0, 10), member(1, 17, 30), member(0, -900, 5, revision="1")], {}, (7, 7, 7), id="in a rollout"
        ),
        pytest.param([member(1, 0, 10), member(0, 17, 30, revision="1")], {}, UNKNOWN, id="of another revision"),
    ],
)
def test_a_rollout_tells_how_long_the_pods_of_a_stateful_set_took(
    pods: list[Raw], spec: Raw, expected: tuple[float, float, float]
) -> None:
    assert stops(pods, **spec) == expected


@pytest.mark.parametrize(
    ("grace", "expected"),
    [(0, (0, 0, 0)), (1, (1, 1, 1)), (10, (2, 10, 10)), (29, (2, 29, 29)), (30, (2, 2, 30)), (600, (2, 2, 600))],
)
def test_of_others_the_grace_period_is_the_limit_and_a_short_one_is_used(
    grace: int, expected: tuple[float, float, float]
) -> None:
    found = web(2, pod_changes={"grace": grace})
    [plan] = planned(found)
    times = queues.Times(found)
    assert tuple(times.at(bound).stop(plan) for bound in ("least", "expected", "most")) == expected


@pytest.mark.parametrize(
    ("hook", "seconds"),
    [
        ({"sleep": {"seconds": 15}}, 15.0),
        ({"exec": {"command": ["sleep", "5"]}}, 5.0),
        ({"exec": {"command": ["/bin/sh", "-c", "sleep 7.5; nginx -s quit"]}}, 7.5),
        ({"exec": {"command": ["/web", "sleep", "5s"]}}, 5.0),
        ({"exec": {"command": ["sh", "-c", "touch /tmp/sleep 5m && asleep 3"]}}, 0.0),
        ({"exec": {"command": ["nodetool", "drain"]}}, 0.0),
        ({"httpGet": {"path": "/quit", "port": 80}}, 0.0),
        ({}, 0.0),
    ],
)
def test_what_a_hook_sleeps_is_the_least(hook: Raw, seconds: float) -> None:
    containers = [{"name": "a"}, {"name": "b", "lifecycle": {"preStop": hook}}]
    assert pod_specs.sleeps({"containers": containers}) == seconds
    found = snapshot(
        deployment("web", 2, template={"spec": {"containers": containers}}),
        pods=[pod("web-0", owner=WEB), pod("web-1", "n2", WEB)],
    )
    assert queues.Times(found).stop(planned(found)[0]) == seconds + queues.ENDS_SOON_SECONDS


def test_a_rule_that_shortens_the_grace_period_shortens_the_end() -> None:
    found = web(2, pod_changes={"grace": 600})
    [plan] = planned(found)
    shorter = dataclasses.replace(plan, policy=dataclasses.replace(plan.policy, grace_period=4))
    assert queues.Times(found).at("most").stop(shorter) == 4.0


@pytest.mark.parametrize(
    ("found", "expected", "range_"),
    [
        pytest.param(web(1), 3 + 10 + 2, (15, 43), id="a surge"),
        pytest.param(web(1, pod_changes={"grace": 20}), 3 + 10 + 20, (15, 33), id="a short grace period"),
        pytest.param(web(1, pod_changes={"grace": 1}), 14, (14, 14), id="no room for a range"),
        pytest.param(snapshot(), 3, (3, 3), id="nothing leaves"),
        pytest.param(
            web(2, here=2, budgets=[budget("b", 1, expected=2)]), 24, (24, 44), id="a queue, and the last one lingers"
        ),
    ],
)
def test_a_wave_has_a_range(found: t.Any, expected: int, range_: tuple[int, int]) -> None:
    [wave] = wave_times.wave_times(found, planned(found), [("n1",)])
    assert (wave.seconds, wave.range) == (expected, range_)
