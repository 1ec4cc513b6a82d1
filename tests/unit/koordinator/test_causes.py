# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import causes, object_limiter
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import (
    EVICT,
    PASSED,
    Job,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.migration_controller import (
    Controller,
    Limiter,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    deployment,
    mounts,
    owned,
    pod,
    snapshot,
    workload,
)

WEB = owned("ReplicaSet", "web")
BATCH = owned("Job", "import", "batch/v1")
GATE = "MaxUnavailablePerWorkload"
GATES = frozenset({"ExpectedReplicas", "MaxMigratingPerWorkload", GATE})
NOW = "2026-01-01T00:10:00.000Z"


def code(controller: Controller | None = None, replicas: int = 3, **changes: t.Any) -> str:
    """The code for one pod of Deployment `web`."""
    changes.setdefault("owner", WEB)
    found = snapshot(deployment("web", replicas), pods=[pod("web-1", **changes)])
    why = causes.forbidden(found, found.pods[0], controller or Controller())
    return why.code if why else ""


SCRATCH: list[Raw] = [{"name": "scratch", "emptyDir": {}}]
HOST: list[Raw] = [{"name": "logs", "hostPath": {"path": "/var/log"}}]


@pytest.mark.parametrize(
    ("controller", "changes", "expected"),
    [
        (Controller(), {}, ""),
        (Controller(exclude=("shop",)), {}, "namespace_excluded"),
        (Controller(include=("other",)), {}, "namespace_excluded"),
        (Controller(include=("shop",)), {}, ""),
        (Controller(), {"annotations": {causes.EVICTION_COST: "2147483647"}}, "eviction_cost"),
        (Controller(), {"annotations": {causes.EVICTION_COST: "2147483646"}}, ""),
        (Controller(), {"owner": owned("DaemonSet", "agent")}, "daemonset"),
        (Controller(), {"annotations": {names.MIRROR: "x"}}, "mirror"),
        (Controller(), {"annotations": {causes.CONFIG_SOURCE: "file"}}, "mirror"),
        (Controller(), {"annotations": {causes.CONFIG_SOURCE: "api"}}, ""),
        (Controller(), {"deleting": NOW}, "terminating"),
        (Controller(), {"owner": []}, "bare_pod"),
        (Controller(evict_failed_bare_pods=True), {"owner": []}, "bare_pod"),
        (Controller(evict_failed_bare_pods=True), {"owner": [], "phase": "Failed"}, ""),
        (Controller(evict_all_bare_pods=True), {"owner": []}, ""),
        (Controller(), {"volumes": SCRATCH}, "local_storage"),
        (Controller(), {"volumes": HOST}, "local_storage"),
        (Controller(evict_local_storage_pods=True), {"volumes": SCRATCH}, ""),
        (Controller(), {"volumes": mounts("data")}, ""),
        (Controller(ignore_pvc_pods=True), {"volumes": mounts("data")}, "pvc"),
        (Controller(label_selector={"matchLabels": {"app": "other"}}), {}, "label_selector"),
        (Controller(label_selector={"matchLabels": {"app": "web"}}), {}, ""),
        (Controller(label_selector={}), {}, ""),
        (Controller(), {"replicas": 1}, "single_replica"),
        (Controller(skip_check_expected_replicas=True), {"replicas": 1}, ""),
        (Controller(max_unavailable_per_workload=3), {}, "all_replicas"),
        (Controller(max_migrating_per_workload="100%"), {}, "all_replicas"),
        (Controller(), {"owner": BATCH}, "unknown_workload"),
        (Controller(skip_check_expected_replicas=True), {"owner": BATCH}, "unknown_workload"),
        (Controller(skip_check_expected_replicas=True, skipped=GATES - {GATE}), {"owner": BATCH}, "unknown_workload"),
        (Controller(skip_check_expected_replicas=True, skipped=GATES), {"owner": BATCH}, ""),
        (Controller(skip_check_expected_replicas=True), {"replicas": 0}, "unknown_workload"),
        (Controller(exclude=("shop",)), {"annotations": {EVICT: "false"}, "replicas": 1}, ""),
    ],
)
def test_what_arbitration_refuses_at_once(controller: Controller, changes: t.Any, expected: str) -> None:
    assert code(controller, **changes) == expected


def test_the_remedy_for_a_pod_without_a_replica_count_is_none_that_makes_its_job_wait_for_ever() -> None:
    found = snapshot(pods=[pod("import-1", owner=BATCH)])
    skipping = Controller(skip_check_expected_replicas=True)
    for why in (
        causes.forbidden(found, found.pods[0], Controller()),
        causes.waiting(found, found.pods[0], skipping, []),
    ):
        assert why is not None
        assert why.code == "unknown_workload"
        assert "skipCheckExpectedReplicas does not help" in why.remedy
        assert "evict the pod without a job" in why.remedy


@pytest.mark.parametrize(
    ("controller", "priority", "expected"),
    [
        (Controller(), 1_999_999_999, ""),
        (Controller(), 2_000_000_000, "system_critical"),
        (Controller(priority_threshold=100), 100, "priority"),
        (Controller(priority_threshold=100), 99, ""),
        (Controller(priority_threshold=100, evict_system_critical_pods=True), 2_000_000_000, ""),
    ],
)
def test_priorities(controller: Controller, priority: int, expected: str) -> None:
    raw = pod("web-1", owner=WEB)
    raw["spec"]["priority"] = priority
    found = snapshot(deployment("web", 3), pods=[raw])
    why = causes.forbidden(found, found.pods[0], controller)
    assert (why.code if why else "") == expected


def test_a_scheduler_without_reservations_is_named() -> None:
    raw = pod("web-1", owner=WEB, requests={"cpu": "10m"})
    served = Pod.of({**raw, "spec": {**raw["spec"], "schedulerName": "koord-scheduler"}})
    assert causes.unserved(served, Controller()) is None
    why = causes.unserved(Pod.of({**raw, "spec": {**raw["spec"], "schedulerName": "default-scheduler"}}), Controller())
    assert why is not None
    assert "default-scheduler has no Reservation plugin" in why.message


def test_a_pod_that_requests_nothing_never_takes_its_reservation() -> None:
    raw = pod("web-1", owner=WEB)
    why = causes.unserved(Pod.of({**raw, "spec": {**raw["spec"], "schedulerName": "koord-scheduler"}}), Controller())
    assert why is not None
    assert why.code == "no_requests"


def job(name: str, *, phase: str = "Running", passed: bool = True, **changes: t.Any) -> Raw:
    """A job that moves pod `name` of namespace `shop`; `evicted` is when, `owner` whose it was."""
    conditions = []
    if "evicted" in changes:
        conditions = [{"type": "Eviction", "status": "True", "lastTransitionTime": changes["evicted"]}]
    owners = [{"controller": {"uid": changes.get("owner", "uid-ReplicaSet-web")}}]
    return {
        "metadata": {"name": f"job-{name}", "annotations": {PASSED: "true"} if passed else {}},
        "spec": {
            "podRef": {"namespace": changes.get("namespace", "shop"), "name": name, "uid": f"uid-{name}"},
            "reservationOptions": {"template": {"spec": {"owners": owners}}},
        },
        "status": {"phase": phase, "conditions": conditions},
    }


def held(jobs: list[Raw], controller: Controller | None = None, replicas: int = 3, **changes: t.Any) -> str:
    """What holds a job for pod `web-1`, one of two on node n1; another workload's pods are there too."""
    pods = [pod("web-1", owner=WEB, **changes.pop("own", {})), pod("web-2", owner=WEB, **changes.pop("other", {}))]
    pods += [pod(f"db-{i}", owner=owned("StatefulSet", "db"), labels={"app": "db"}) for i in range(3)]
    found = snapshot(deployment("web", replicas), stateful_sets=[workload("StatefulSet", "db", 3)], pods=pods)
    known = [Job.of(raw) for raw in jobs]
    why = causes.waiting(found, found.pods[0], controller or Controller(max_migrating_per_node=0), known, **changes)
    return why.code if why else ""


DB = [job("db-0"), job("db-1")]


def test_limits_count_jobs_that_run_or_have_passed() -> None:
    assert held(DB, Controller()) == "max_migrating_per_node"
    assert held(DB[:1], Controller()) == ""
    assert held([job("db-0"), job("db-1", phase="", passed=True)], Controller()) == "max_migrating_per_node"
    assert held([job("db-0"), job("db-1", phase="", passed=False)], Controller()) == ""
    assert held([job("db-0"), job("db-1", phase="Succeeded")], Controller()) == ""
    assert held(DB, Controller(max_migrating_per_node=0)) == ""
    assert held(DB, Controller(max_migrating_per_node=0, max_migrating_globally=2)) == "max_migrating_globally"
    by_namespace = Controller(max_migrating_per_node=0, max_migrating_per_namespace=2)
    assert held(DB, by_namespace) == "max_migrating_per_namespace"
    elsewhere = [job("x", namespace="other"), job("y", namespace="other")]
    assert held(elsewhere, by_namespace) == ""


def test_the_own_job_is_not_in_its_own_way() -> None:
    assert held([job("web-1")], Controller(max_migrating_per_node=1)) == ""
    assert held([job("web-1"), job("web-2")], Controller(max_migrating_per_node=1)) == "max_migrating_per_node"


def test_limits_of_the_workload() -> None:
    assert held([job("web-2")]) == "max_migrating_per_workload"
    assert held([job("web-2")], replicas=4) == ""
    assert held([], other={"ready": False}) == "max_unavailable_per_workload"
    assert held([], own={"ready": False}) == "max_unavailable_per_workload"
    assert held([], other={"phase": "Failed", "ready": False}) == "max_unavailable_per_workload"
    assert held([job("web-2")], replicas=4, own={"ready": False}) == "max_unavailable_per_workload"
    skipped = Controller(max_migrating_per_node=0, skipped=frozenset({"MaxMigratingPerWorkload"}))
    assert held([job("web-2")], skipped) == "max_unavailable_per_workload"


@pytest.mark.parametrize(
    ("times", "burst", "then"),
    [
        ([], 1, 0.0),
        ([100.0], 1, 160.0),
        ([160.0, 100.0], 1, 220.0),
        ([100.0, 130.0], 1, 220.0),
        ([100.0, 500.0], 1, 560.0),
        ([100.0], 2, 0.0),
        ([100.0, 100.0], 2, 160.0),
        ([100.0, 130.0], 2, 160.0),
        ([100.0, 160.0], 2, 0.0),
        ([100.0, 100.0, 100.0], 2, 220.0),
    ],
)
def test_a_token_comes_back_every_minute(times: list[float], burst: int, then: float) -> None:
    assert object_limiter.next_token(times, 60.0, burst) == pytest.approx(then)


@pytest.mark.parametrize(
    ("taken", "soon", "told"),
    [
        ([], 0, ""),
        ([0.0], 0, ""),
        ([0.1], 0, "goes at 00:05:00 UTC"),
        ([61.0], 0, "goes at 00:06:01 UTC"),
        ([], 1, "one is about to go"),
        ([0.0], 1, "one is about to go"),
        ([61.0], 1, "goes at 00:06:01 UTC"),
    ],
)
def test_the_limiter_tells_when_the_next_one_goes(taken: list[float], soon: int, told: str) -> None:
    """One of a workload goes in 300 s, and 300 s have passed."""
    found = snapshot(deployment("web", 3), pods=[pod("web-1", owner=WEB)])
    key = ("workload", "uid-ReplicaSet-web")
    why = object_limiter.limited(found, found.pods[0], Controller(), {key: taken}, 300.0, [key] * soon)
    assert (why is None) is (not told)
    assert why is None or told in why.message


def test_the_annotation_on_the_pod_passes_every_filter() -> None:
    assert held(DB, Controller(), own={"annotations": {EVICT: "true"}}) == ""


def test_the_object_limiter_counts_evictions_by_controller_and_namespace() -> None:
    ended = job("web-9", phase="Succeeded", evicted="2026-01-01T00:08:00Z")
    assert held([ended], now=NOW) == "object_limiter"
    assert held([ended], now="2026-01-01T00:13:00.000Z") == ""
    assert held([ended], replicas=4, now="2026-01-01T00:10:30.000Z") == ""
    assert held([ended]) == ""
    of_another = job("db-9", phase="Succeeded", evicted="2026-01-01T00:08:00Z", owner="uid-StatefulSet-db")
    assert held([of_another], now=NOW) == ""
    by_namespace = Controller(max_migrating_per_node=0, object_limiters={"namespace": Limiter(600.0, 1)})
    assert held([of_another], by_namespace, now=NOW) == "object_limiter"
    mine = job("web-1")
    mine["metadata"]["annotations"][EVICT] = "true"
    assert held([ended, mine], now=NOW) == ""


def test_a_token_bucket_is_full_at_first_and_fills_slowly() -> None:
    assert object_limiter.next_token([], 300.0, 1) == 0.0
    assert object_limiter.next_token([1000.0], 300.0, 1) == 1300.0
    assert object_limiter.next_token([1000.0, 1010.0], 300.0, 1) == pytest.approx(1600.0)
    assert object_limiter.next_token([1000.0], 300.0, 2) == 0.0
    assert object_limiter.next_token([1000.0, 1000.0], 300.0, 2) == 1300.0


def test_a_pod_that_names_no_scheduler_has_the_default_one() -> None:
    why = causes.unserved(Pod.of(pod("web-1", owner=WEB, requests={"cpu": "10m"})), Controller())
    assert why is not None
    assert why.message.startswith("Its schedulerName default-scheduler has no")
