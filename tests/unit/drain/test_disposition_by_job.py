# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import dispositions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.dispositions import routes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import causes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.feed import Pace
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.object_limiter import ALLOCATED
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy, PodPlan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.migration_controller import (
    Controller,
    Limiter,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    TOLERATES_ALL,
    Raw,
    budget,
    deployment,
    owned,
    pod,
    snapshot,
    workload,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import wave_seconds

FREE = Controller(object_limiters={})


def web(count: int = 1, replicas: int = 3, *, scheduler: str = "koord-scheduler", **changes: t.Any) -> list[Raw]:
    """So many pods of Deployment `web` on node n1."""
    found = [pod(f"web-{i}", owner=changes.pop("owner", owned("ReplicaSet", "web")), **changes) for i in range(count)]
    for raw in found:
        raw["spec"]["schedulerName"] = scheduler
        raw["spec"]["containers"][0]["resources"]["requests"] = changes.get("requests", {"cpu": "10m"})
    return found


def planned(found: Snapshot, **choices: t.Any) -> list[PodPlan]:
    return list(routes(found, {"n1"}, DrainPolicy(**{"controller": FREE, "backend": "koordinator", **choices})))


def one(pods: list[Raw], replicas: int = 3, **choices: t.Any) -> tuple[str, str]:
    plan = planned(snapshot(deployment("web", replicas), pods=pods), **choices)[0]
    return plan.route, plan.code


BACKENDS = pytest.mark.parametrize("backend", ["auto", "koordinator"])


@BACKENDS
def test_what_arbitration_admits_goes_by_job_under_its_guard(backend: str) -> None:
    plan = planned(snapshot(deployment("web", 3), pods=web()), backend=backend)[0]
    assert (plan.route, plan.code, plan.guarded) == ("job", "guarded", True)
    assert plan.reason.endswith("A PodMigrationJob moves it once its resources are reserved.")


@BACKENDS
def test_a_budget_stays_with_the_pod(backend: str) -> None:
    found = snapshot(deployment("web", 3), pods=web(), budgets=[budget("web", 1)])
    plan = planned(found, backend=backend)[0]
    assert (plan.route, plan.code, [b.name for b in plan.budgets]) == ("job", "replicas", ["web"])


@BACKENDS
def test_single_replicas_are_surged_under_every_backend(backend: str) -> None:
    allowed = Controller(object_limiters={}, skip_check_expected_replicas=True)
    assert one(web(), 1, backend=backend, controller=allowed) == ("surge", "single_replica")


@BACKENDS
@pytest.mark.parametrize(("skip", "route"), [(True, "job"), (False, "evict")])
def test_what_cannot_be_surged_and_may_be_interrupted_goes_by_job_where_it_is_admitted(
    backend: str, skip: bool, route: str
) -> None:
    db = web(owner=owned("StatefulSet", "db"))
    found = snapshot(stateful_sets=[workload("StatefulSet", "db", 1)], pods=db)
    controller = Controller(object_limiters={}, skip_check_expected_replicas=skip)
    plan = planned(found, backend=backend, controller=controller, allow_interruption=True)[0]
    assert (plan.route, plan.code) == (route, "interruption_allowed")
    refused = planned(found, backend=backend, controller=controller)[0]
    assert refused.route == "refuse"


@pytest.mark.parametrize(
    ("pods", "why"),
    [
        (web(scheduler="default-scheduler"), "default-scheduler has no Reservation plugin"),
        (web(requests={}), "a Reservation of nothing is never taken"),
        (web(volumes=[{"name": "logs", "hostPath": {"path": "/var/log"}}]), "It has local volumes"),
        (web(labels={"app": "web", dispositions.POLICY: "SoftEviction"}), "would not ask its budgets"),
    ],
)
def test_the_others_are_evicted_or_refused_as_fallback_says(pods: list[Raw], why: str) -> None:
    found = snapshot(deployment("web", 3), pods=pods)
    evicted = planned(found)[0]
    assert (evicted.route, evicted.code) == ("evict", "guarded")
    assert why in evicted.reason
    refused = planned(found, fallback="fail")[0]
    assert (refused.route, refused.code) == ("refuse", "no_job")
    assert why in refused.reason
    assert "fallback: eviction" in refused.remedy
    # The fallback of the backend auto is eviction.
    assert planned(found, backend="auto", fallback="fail")[0].route == "evict"


@pytest.mark.parametrize(
    ("pods", "replicas", "choices"),
    [
        (web(phase="Succeeded", ready=False), 3, {}),
        (web(phase="Pending", ready=False), 3, {}),
        (web(ready=False), 3, {}),
        (web(), 0, {}),
        (web(tolerations=[TOLERATES_ALL]), 3, {}),
        (web(), 3, {"disable_eviction": True}),
        (web(), 3, {"controller": None}),
    ],
)
def test_pods_for_which_nothing_would_be_reserved_are_evicted_even_without_fallback(
    pods: list[Raw], replicas: int, choices: dict[str, t.Any]
) -> None:
    assert one(pods, replicas, fallback="fail", **choices)[0] == "evict"


def test_jobs_reserve_nothing_where_the_controller_evicts_directly() -> None:
    direct = Controller(object_limiters={}, default_job_mode="EvictDirectly")
    pods = web(scheduler="default-scheduler")
    assert one(pods, controller=direct) == ("job", "guarded")
    assert one(pods, controller=direct, backend="auto") == ("evict", "guarded")


def test_auto_does_not_wait_for_the_object_limiter() -> None:
    found = snapshot(deployment("web", 9), pods=web(3))
    limited = Controller()
    assert [p.route for p in planned(found, controller=limited)] == ["job", "job", "job"]
    by_auto = planned(found, controller=limited, backend="auto")
    assert [p.route for p in by_auto] == ["job", "evict", "evict"]
    assert "would delay it for 300 s" in by_auto[2].reason
    patient = planned(found, controller=limited, backend="auto", job_wait=300.0)
    assert [p.route for p in patient] == ["job", "job", "job"]
    short = Controller(object_limiters={"workload": Limiter(40.0, burst=1)})
    assert [p.route for p in planned(found, controller=short, backend="auto")] == ["job", "job", "job"]
    by_namespace = Controller(object_limiters={"namespace": Limiter(100.0, 1, burst=2)})
    assert [p.route for p in planned(found, controller=by_namespace, backend="auto")] == ["job", "job", "evict"]


@pytest.mark.parametrize(("gap", "route"), [(59.0, "job"), (60.0, "job"), (61.0, "evict")])
def test_auto_waits_a_minute_for_the_object_limiter(gap: float, route: str) -> None:
    found = snapshot(deployment("web", 3), pods=web(2))
    limited = Controller(object_limiters={"workload": Limiter(gap)})
    assert [plan.route for plan in planned(found, controller=limited, backend="auto")] == ["job", route]


def test_an_owner_without_a_known_count_is_not_limited() -> None:
    """The limiter does not track a workload whose replicas it cannot read, where arbitration admits its pods."""
    found = snapshot(pods=web(2, owner=owned("Database", "main", "example.org/v1")))
    controller = Controller(skip_check_expected_replicas=True, skipped=frozenset(causes.UNCOUNTED_GATES))
    plans = planned(found, controller=controller, backend="auto", allow_interruption=True)
    assert [(plan.route, plan.code) for plan in plans] == [("job", "interruption_allowed")] * 2


def test_the_estimate_follows_the_limits() -> None:
    found = snapshot(deployment("web", 3), pods=web(2, grace=0))

    def seconds(controller: Controller, **choices: t.Any) -> int:
        plans = planned(found, controller=controller)
        return sum(wave_seconds(found, plans, [("n1",)], choices=DrainPolicy(controller=controller, **choices)))

    each = 5 + 10
    assert seconds(Controller(object_limiters={})) == 3 + 2 * each
    assert seconds(Controller()) == 3 + 60 + 21, "with backend auto they are evicted after a minute"
    assert seconds(Controller(), job_wait=10.0) == 3 + 10 + 21
    assert seconds(Controller(), backend="koordinator") == 3 + each + 300
    wide = Controller(object_limiters={}, max_migrating_per_workload=2, max_unavailable_per_workload=2)
    assert seconds(wide) == 3 + each
    narrow = Controller(
        object_limiters={}, max_migrating_per_workload=2, max_unavailable_per_workload=2, max_migrating_per_node=1
    )
    assert seconds(narrow) == 3 + 2 * each
    plans = planned(found, controller=Controller())
    assert Pace(found, Controller()).limited(plans) == {"uid-Deployment-web": 300.0}
    assert Pace(found, FREE).limited(plans) == {}


def test_each_wave_waits_for_what_the_limiter_remembers_of_those_before() -> None:
    pods = [*web(1, grace=0), *web(1, grace=0, on="n2")]
    pods[1]["metadata"].update(name="web-1", uid="uid-web-1")
    found, choices = (
        snapshot(deployment("web", 3), pods=pods),
        DrainPolicy(controller=Controller(), backend="koordinator"),
    )
    plans = routes(found, {"n1", "n2"}, choices)
    alone = 3 + 5 + 10
    assert sum(wave_seconds(found, plans, [("n1",), ("n2",)], choices=choices)) == 2 * alone + 300 - alone


def test_the_plan_counts_the_evictions_that_the_limiter_remembers() -> None:
    taken = pod("web-9", on="n2", owner=owned("ReplicaSet", "web"))
    taken["metadata"]["creationTimestamp"] = "2026-01-01T00:08:00Z"
    taken["metadata"]["annotations"] = {ALLOCATED: '{"name":"r-1","uid":"u-1"}'}
    found, now = snapshot(deployment("web", 3), pods=[*web(grace=0), taken]), "2026-01-01T00:10:00.000Z"
    [plan] = planned(found, controller=Controller())
    assert Pace(found, Controller(), now).limited([plan]) == {"uid-Deployment-web": 180.0}
    choices = DrainPolicy(controller=Controller(), backend="koordinator")
    assert sum(wave_seconds(found, [plan], [("n1",)], choices=choices, now=now)) == 3 + 15 + 180
    assert sum(wave_seconds(found, [plan], [("n1",)], choices=choices)) == 3 + 15, "nobody knows when that was"

    def routed(when: str) -> str:
        by_auto = DrainPolicy(controller=Controller())
        return next(iter(routes(found, {"n1"}, by_auto, now=when))).route

    assert routed(now) == "evict", "it would wait for three minutes"
    assert routed("2026-01-01T00:12:10.000Z") == "job", "the window is over in less than a minute"
