# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether the calls of a run have as much time as its forecast says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import wave_times
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.migration_controller import (
    Controller,
    Limiter,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import deployment, owned, pod, snapshot
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import planned, wave_seconds, web

WAVES = [("n1",), ("n2",)]


def found(seen: Snapshot, timeout: float | None) -> list[tuple[str, tuple[str, ...]]]:
    times = wave_times.wave_times(seen, planned(seen, ("n1", "n2")), WAVES)
    told = wave_times.findings(WAVES, times, timeout)
    assert {(one.code, one.severity) for one in told} <= {("timeout_too_short", "warning")}
    return [(one.object, one.nodes) for one in told]


@pytest.mark.parametrize(
    ("seen", "timeout", "expected"),
    [
        pytest.param(web(5, here=3), 30.7, [], id="as long as it takes"),
        pytest.param(web(5, here=3), 30.5, [("node_drain", ("n1",))], id="three pods, one after the other"),
        pytest.param(web(5, here=3), 5, [("node_drain", ("n1", "n2"))], id="both waves"),
        pytest.param(web(1), 5, [("pdb_guard", ("n1",))], id="a surge that takes 10 s to start"),
        pytest.param(web(1), 1, [("pdb_guard", ("n1",)), ("node_drain", ("n1",))], id="both calls"),
        pytest.param(
            web(1, spec={"minReadySeconds": 591}), None, [("pdb_guard", ("n1",))], id="ten minutes of its own"
        ),
        pytest.param(web(1, spec={"minReadySeconds": 590}), None, [], id="just in ten minutes"),
        pytest.param(web(1, spec={"minReadySeconds": 591}), 7200, [], id="two hours"),
    ],
)
def test_a_call_that_takes_longer_than_its_limit_is_told(
    seen: Snapshot, timeout: float | None, expected: list[tuple[str, tuple[str, ...]]]
) -> None:
    assert found(seen, timeout) == expected


def test_a_drain_by_jobs_that_their_limiter_slows_down_is_told() -> None:
    seen = web(9, here=4)
    plans = [replace(plan, route="job") for plan in planned(seen)]
    slow = Controller(object_limiters={"workload": Limiter(400.0, 1, burst=1)}, max_migrating_per_node=0)
    times = wave_times.wave_times(seen, plans, [("n1",)], choices=DrainPolicy(controller=slow, backend="koordinator"))
    [one] = wave_times.findings([("n1",)], times, 100.0)
    assert one.object == "node_drain"
    assert "maintain_timeout=31m" in one.remedy


def test_where_task_files_run_before_pods_none_leaves_before_all_surges_have_taken_over() -> None:
    api = [
        pod(f"api-{number}", on, owned("ReplicaSet", "api"), labels={"app": "api"})
        for number, on in enumerate(("n1", "n1", "n1", "n2", "n2"))
    ]
    both = (deployment("web", 1), deployment("api", 5))
    seen = snapshot(*both, pods=[pod("web-0", owner=owned("ReplicaSet", "web")), *api])
    plans = planned(seen)
    assert {plan.route for plan in plans} == {"surge", "evict"}
    seconds = [wave_seconds(seen, plans, [("n1",)], apart=apart)[0] for apart in (False, True)]
    assert seconds[1] - seconds[0] == 10


@pytest.mark.parametrize(
    ("grace", "apart", "parts"),
    [
        pytest.param(0, False, {"starts": 10.0, "stops": 2.0}, id="the surge is waited for"),
        pytest.param(4, False, {"starts": 6.0, "stops": 6.0}, id="while others leave first"),
        pytest.param(10, False, {"starts": 0.0, "stops": 12.0}, id="it has taken over when they are gone"),
        pytest.param(20, False, {"starts": 0.0, "stops": 22.0}, id="long before they are gone"),
        pytest.param(20, True, {"starts": 10.0, "stops": 22.0}, id="they do not leave before it"),
    ],
)
def test_surges_are_made_while_what_leaves_before_them_ends(grace: int, apart: bool, parts: dict[str, float]) -> None:
    api = [pod(f"api-{on}", on, owned("ReplicaSet", "api"), labels={"app": "api"}) for on in ("n1", "n2", "n3")]
    parts_of_api = deployment("api", 3)
    seen = snapshot(deployment("web", 1), parts_of_api, pods=[pod("web-0", owner=owned("ReplicaSet", "web")), *api])
    first, last = sorted(planned(seen), key=lambda plan: plan.route)
    assert (first.route, last.route) == ("evict", "surge")
    first = replace(first, pod=replace(first.pod, grace_seconds=grace))
    last = replace(last, policy=replace(last.policy, order=1))
    [found] = wave_times.wave_times(seen, [first, last], [("n1",)], apart=apart)
    assert found.surges == 10.0
    assert {name: value for name, value in found.parts.to_dict().items() if value and name != "steps"} == {
        name: value for name, value in parts.items() if value
    }
