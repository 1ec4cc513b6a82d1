# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long a maintenance will take, told before it begins."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs.estimate import (
    limiter_seconds,
    wave_seconds,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.migration_controller import (
    Controller,
    Limiter,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.pod_plan import Choices
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.preflight import preflight
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.objects import (
    budget,
    deployment,
    owned,
    pod,
    snapshot,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.routed import WEB, planned, web

OPERATOR = owned("Database", "main", "example.org/v1")


@pytest.mark.parametrize(
    ("found", "waves", "settle", "seconds"),
    [
        pytest.param(snapshot(), (("n1",),), 0.0, 5, id="nothing to move"),
        pytest.param(web(1), (("n1",),), 0.0, 5 + 10 + 30, id="a swap"),
        pytest.param(web(1), (("n1",),), 15.0, 5 + 10 + 15 + 30, id="a swap that settles"),
        pytest.param(web(3, here=3), (("n1",),), 0.0, 5 + 3 * 40, id="a guard lets go one by one"),
        pytest.param(web(3, here=3, budgets=[budget("b", 2)]), (("n1",),), 0.0, 5 + 2 * 40, id="a budget lets go two"),
        pytest.param(web(3, here=3, budgets=[budget("b", 3)]), (("n1",),), 0.0, 5 + 40, id="a budget lets go all"),
        pytest.param(
            web(3, here=3, budgets=[budget("b", 0, healthy=2, desired=2, expected=3)]),
            (("n1",),),
            0.0,
            5 + 3 * 40,
            id="a budget that is spent lets go one by one",
        ),
        pytest.param(web(3), (("n1",), ("n2",)), 0.0, 2 * 5 + 40 + 2 * 40, id="wave after wave"),
        pytest.param(web(1), (("n2",),), 0.0, 5, id="another wave"),
        pytest.param(web(1), (("n1",),), 0.4, 5 + 41, id="rounded up"),
        pytest.param(web(1, pod_changes={"grace": 29}), (("n1",),), 0.0, 5 + 10 + 29, id="a short grace"),
        pytest.param(web(1, pod_changes={"grace": 0}), (("n1",),), 0.0, 5 + 10, id="no grace"),
        pytest.param(web(1, pod_changes={"grace": 31}), (("n1",),), 0.0, 5 + 10 + 30, id="most end early"),
        pytest.param(
            snapshot(deployment("web", 1), pods=[pod("web-0", owner=WEB), pod("p", owner=OPERATOR, ready=False)]),
            (("n1",),),
            0.0,
            5 + 40,
            id="an unknown owner's pod is not waited for to start",
        ),
    ],
)
def test_the_estimate(found: Snapshot, waves: preflight.Waves, settle: float, seconds: int) -> None:
    nodes = tuple(name for wave in waves for name in wave)
    assert sum(wave_seconds(found, planned(found, nodes), waves, settle=settle)) == seconds


SMALL = {"object_limiters": {}, "max_migrating_per_node": 0, "max_migrating_per_workload": 9}


@pytest.mark.parametrize(
    ("controller", "count", "seconds"),
    [
        pytest.param({}, 1, 45, id="one"),
        pytest.param({"max_unavailable_per_workload": 9}, 4, 45, id="all at once"),
        pytest.param({"max_unavailable_per_workload": 2}, 4, 2 * 45, id="two of the workload"),
        pytest.param({"max_unavailable_per_workload": 2}, 5, 3 * 45, id="two of the workload, one left"),
        pytest.param({"max_unavailable_per_workload": 9, "max_migrating_per_node": 2}, 4, 2 * 45, id="two of the node"),
        pytest.param({"max_unavailable_per_workload": 9, "max_migrating_per_namespace": 1}, 2, 2 * 45, id="namespace"),
        pytest.param({"max_unavailable_per_workload": 9, "max_migrating_globally": 1}, 3, 3 * 45, id="cluster"),
        pytest.param(
            {"max_unavailable_per_workload": 9, "object_limiters": {"namespace": Limiter(100.0, 1, burst=2)}},
            4,
            45 + 2 * 100,
            id="the limiter of the namespace",
        ),
        pytest.param(
            {"max_unavailable_per_workload": 9, "object_limiters": {"workload": Limiter(100.0, 1, burst=1)}},
            4,
            45 + 3 * 100,
            id="the limiter of the workload",
        ),
    ],
)
def test_jobs_go_as_fast_as_their_controller_lets_them(controller: dict[str, t.Any], count: int, seconds: int) -> None:
    """Each takes 5 s for its steps, 10 s to start and 30 s to end, in as many rounds as the tightest limit needs."""
    found = web(9, here=count)
    plans = [replace(plan, route="job") for plan in planned(found)]
    choices = Choices(controller=Controller(**{**SMALL, **controller}), backend="koordinator")
    assert sum(wave_seconds(found, plans, [("n1",)], choices=choices)) == 5 + seconds
    assert sum(wave_seconds(found, plans, [("n2",)], choices=choices)) == 5


@pytest.mark.parametrize(
    ("count", "burst", "seconds"), [(1, 1, None), (2, 2, None), (2, 1, 60.0), (4, 1, 180.0), (4, 2, 120.0)]
)
def test_the_object_limiter_stretches_what_exceeds_its_burst(count: int, burst: int, seconds: float | None) -> None:
    found = web(9, here=count)
    controller = Controller(object_limiters={"workload": Limiter(60.0, 1, burst=burst)})
    assert limiter_seconds(found, planned(found), controller).get("uid-Deployment-web") == seconds


def test_the_estimate_reads_probes_and_grace() -> None:
    template = {"spec": {"containers": [{"name": "c", "readinessProbe": {"initialDelaySeconds": 20}}]}}
    top = deployment("web", 1, template=template, minReadySeconds=5)
    top["replica_sets"][0]["spec"]["template"] = template
    found = snapshot(top, pods=[pod("web-0", owner=WEB, grace=600)])
    assert sum(wave_seconds(found, planned(found), (("n1",),))) == 5 + 10 + 20 + 5 + 30
