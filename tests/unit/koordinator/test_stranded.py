# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a job that runs is one that no process looks at, and what evictions took from the object limiters."""

from __future__ import annotations

import json

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    causes,
    migration_jobs,
    object_limiter,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import Job
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import Raw, owned, pod

BORN = "2026-01-01T00:00:00Z"
START = 1767225600.0
"""The same in seconds."""


def job(ttl: str = "5m0s", by: str = "", evicting: bool = False, reservation: str = "", **spec: object) -> Job:
    conditions = [{"type": "Eviction", "status": "False"}] if evicting else []
    reserved = {"reservationOptions": {"reservationRef": {"name": reservation}}} if reservation else {}
    raw: Raw = {
        "metadata": {"name": "j", "creationTimestamp": BORN, "annotations": {causes.CREATED_BY: by} if by else {}},
        "spec": {"podRef": {"namespace": "shop", "name": "p", "uid": "u"}, "ttl": ttl, **reserved, **spec},
        "status": {"phase": "Running", "conditions": conditions},
    }
    return Job.of(raw)


@pytest.mark.parametrize(
    ("age", "gone", "controllers", "made", "why"),
    [
        (310.0, 0.0, [], job(), ""),
        (310.1, 0.0, [], job(), "has outlived its ttl of 300 s"),
        (10.0, 7.0, [], job(), ""),
        (10.0, 7.1, [], job(), "its pod shop/p is gone"),
        (10.0, 7.1, [], job(evicting=True), "its pod shop/p is gone"),
        (10.0, 0.0, ["2026-01-01T00:00:01Z"], job(by="x"), "created by an earlier process"),
        (10.0, 0.0, ["2026-01-01T00:00:01Z"], job(), ""),
        (10.0, 0.0, [BORN], job(by="x"), ""),
        (10.0, 0.0, ["2026-01-01T00:00:01Z", "2025-01-01T00:00:00Z"], job(by="x"), ""),
        (10.0, 0.0, [], job(by="x"), ""),
    ],
)
def test_a_job_is_stranded_when_nobody_would_end_it(
    age: float, gone: float, controllers: list[str], made: Job, why: str
) -> None:
    found = causes.why(made, START + age, controllers, gone)
    assert (why in found) if why else not found


def test_a_job_without_a_ttl_has_the_time_for_which_such_jobs_are_kept() -> None:
    kept = migration_jobs.KEPT_WITHOUT_TTL
    assert not causes.why(job(ttl="0s"), START + kept + 10, [], 0.0)
    assert "has outlived" in causes.why(job(ttl="0s"), START + kept + 10.1, [], 0.0)


def test_a_paused_job_is_not_running() -> None:
    assert causes.running(job())
    assert not causes.running(job(paused=True))


def evicted(name: str, at: str, reservation: str = "", **metadata: object) -> Job:
    reserved = {"reservationOptions": {"reservationRef": {"name": reservation}}} if reservation else {}
    return Job.of(
        {
            "metadata": {"name": name, "creationTimestamp": BORN, **metadata},
            "spec": {"podRef": {"namespace": "shop", "name": "p", "uid": "uid-p"}, **reserved},
            "status": {"conditions": [{"type": "Eviction", "status": "True", "lastTransitionTime": at}] if at else []},
        }
    )


WORKLOAD, NAMESPACE = ("workload", "uid-ReplicaSet-web"), ("namespace", "shop")


def successor(taken: str | None) -> Pod:
    notes = {} if taken is None else {object_limiter.ALLOCATED: taken}
    return Pod.of(pod("new", owner=owned("ReplicaSet", "web"), annotations=notes, created="2026-01-01T00:00:30Z"))


@pytest.mark.parametrize(
    ("taken", "counts"),
    [(json.dumps({"name": "r"}), True), (json.dumps({}), False), ("{", False), ("[]", False), (None, False)],
)
def test_a_pod_that_took_a_reservation_tells_of_an_eviction(taken: str | None, counts: bool) -> None:
    found = object_limiter.by_key(object_limiter.evictions([], [successor(taken)]))
    assert found == ({WORKLOAD: [START + 30], NAMESPACE: [START + 30]} if counts else {})


def test_the_earliest_time_of_an_eviction_counts_whoever_tells_it() -> None:
    told = [evicted("j", "2026-01-01T00:00:20Z", "r"), evicted("j", "2026-01-01T00:00:40Z", "r")]
    found = object_limiter.evictions(told, [successor(json.dumps({"name": "r"}))])
    assert found == {"r": object_limiter.Eviction(frozenset({WORKLOAD, NAMESPACE}), START + 20)}
    assert object_limiter.evictions([], [], found) == found
    assert object_limiter.evictions([evicted("k", "")], []) == {}


def test_a_job_counts_for_the_owner_of_a_pod_that_is_still_there() -> None:
    leaving = Pod.of(pod("p", owner=owned("ReplicaSet", "web")))
    told = [evicted("j", "2026-01-01T00:00:20Z")]
    assert object_limiter.by_key(object_limiter.evictions(told, [leaving])).keys() == {WORKLOAD, NAMESPACE}
    assert object_limiter.by_key(object_limiter.evictions(told, [])).keys() == {NAMESPACE}


@pytest.mark.parametrize(
    ("taken", "burst", "count", "departures"),
    [
        ([], 1, 0, []),
        ([], 1, 1, [1000.0]),
        ([], 1, 3, [1000.0, 1060.0, 1120.0]),
        ([990.0], 1, 2, [1050.0, 1110.0]),
        ([900.0], 1, 1, [1000.0]),
        ([], 2, 3, [1000.0, 1000.0, 1060.0]),
    ],
)
def test_departures_are_as_soon_as_the_limiter_lets_them(
    taken: list[float], burst: int, count: int, departures: list[float]
) -> None:
    assert object_limiter.departures(taken, 60.0, burst, count, 1000.0) == pytest.approx(departures)
