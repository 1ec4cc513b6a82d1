# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who may be evicted by what serves, whatever the Eviction API would say."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.readiness import last, short
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    budget,
    deployment,
    owned,
    pod,
    snapshot,
)

WEB = owned("ReplicaSet", "web")
DB = owned("Database", "db", "db.example/v1")
ALONE = frozenset[str]()


def web(ready: int, replicas: int, unready: int = 0, **more: t.Any) -> Snapshot:
    """A Deployment with so many ready pods, p0 first, of the replicas that are wanted now."""
    pods = [pod(f"p{n}", owner=WEB) for n in range(ready)] + [
        pod(f"u{n}", owner=WEB, ready=False) for n in range(unready)
    ]
    return snapshot(deployment("web", replicas), pods=pods, **more)


def held(found: Snapshot, leaving: frozenset[str] = ALONE, name: str = "p0", **prior: int) -> str:
    asked = found.pod(f"uid-{name}")
    assert asked is not None
    why = short(found, asked, leaving, {f"uid-Deployment-{key}": count for key, count in prior.items()})
    return why.message if why else ""


def test_without_a_budget_one_at_most_may_be_missing() -> None:
    assert not held(web(4, 4))
    assert "Deployment shop/web needs 3 ready pods beside this one and has 2" in held(web(3, 4, unready=1))


def test_evictions_under_way_count_before_anybody_sees_them() -> None:
    assert held(web(4, 4), frozenset({"uid-p1"}))
    assert not held(web(5, 4), frozenset({"uid-p1"}))


def test_pods_that_are_ending_count_as_gone() -> None:
    pods = [pod("p0", owner=WEB), pod("p1", owner=WEB), pod("p2", owner=WEB, deleting="2026-01-01T00:00:00Z")]
    assert held(snapshot(deployment("web", 3), pods=pods))


@pytest.mark.parametrize(("replicas", "waits"), [(1, False), (2, False), (3, True), (6, True)])
def test_what_is_wanted_now_counts(replicas: int, waits: bool) -> None:
    assert bool(held(web(2, replicas))) == waits


def test_the_last_that_is_wanted_is_told_from_one_of_several() -> None:
    def of(found: Snapshot, name: str = "p0") -> tuple[bool, str] | None:
        asked = found.pod(f"uid-{name}")
        assert asked is not None
        why = last(found, asked)
        return (why.alone, why.message) if why else None

    assert of(web(2, 2)) is None
    assert of(web(1, 2)) is None
    assert of(web(1, 0)) is None
    assert of(web(2, 1)) == (False, "Deployment shop/web was scaled down to one, and has not ended the others yet.")
    told = "Deployment shop/web was scaled down to one meanwhile, and nothing would serve without this pod."
    assert of(web(1, 1)) == (True, told)
    assert of(web(0, 1, unready=1), "u0") is None
    assert of(web(1, 1, unready=1)) == (False, of(web(2, 1))[1])  # type: ignore[index]


def test_a_surge_is_not_what_is_wanted() -> None:
    assert held(web(3, 5))
    assert not held(web(3, 5), web=3)


def test_a_pod_that_serves_nobody_may_go() -> None:
    assert not held(web(1, 4, unready=3), name="u0")


def test_a_budget_says_how_many_may_be_missing() -> None:
    assert not held(web(4, 6, budgets=[budget("b", 2, healthy=4, desired=3)]))
    assert "PodDisruptionBudget shop/b" in held(web(3, 6, budgets=[budget("b", 2, healthy=4, desired=3)]))


@pytest.mark.parametrize(
    ("rule", "waits"),
    [
        ({"maxUnavailable": 1}, True),
        ({"maxUnavailable": "50%"}, False),
        ({"minAvailable": "80%"}, True),
        ({"minAvailable": 3}, False),
    ],
)
def test_a_budget_that_has_not_seen_a_larger_count_yet_is_not_believed(rule: Raw, waits: bool) -> None:
    """Four were wanted, eight are now, and the status is that of before."""
    found = web(5, 8, budgets=[budget("b", 1, healthy=4, desired=3, rule=rule)])
    assert bool(held(found)) == waits


def test_of_an_unknown_owner_one_leaves_at_a_time_while_another_serves() -> None:
    pods = [pod(f"p{n}", owner=DB) for n in range(3)]
    assert not held(snapshot(pods=pods))
    assert "is being evicted" in held(snapshot(pods=pods), frozenset({"uid-p2"}))
    pods = [pod("p0", owner=DB), pod("p1", owner=DB, ready=False), pod("web", owner=owned("ReplicaSet", "web"))]
    assert "No other pod of Database shop/db is ready" in held(snapshot(pods=pods))


@pytest.mark.parametrize(
    "owner", [None, owned("DaemonSet", "agent"), owned("DaemonSet", "x", "apps.kruise.io/v1alpha1")]
)
def test_pods_that_do_not_stand_in_for_each_other_are_not_counted(owner: list[Raw] | None) -> None:
    pods = [pod("p0", owner=owner), pod("p1", "n2", owner=owner, ready=False)]
    assert not held(snapshot(pods=pods))


@pytest.mark.parametrize(
    ("state", "waits"),
    [
        ({}, True),
        ({"ready": False}, False),
        ({"deleting": "2026-01-01T00:00:00Z"}, False),
        ({"phase": "Failed"}, False),
        ({"phase": "Pending"}, False),
    ],
)
def test_only_a_pod_that_serves_has_to_stay(state: Raw, waits: bool) -> None:
    """Whatever its condition Ready still says."""
    pods = [pod("p0", owner=WEB, **state), pod("p1", owner=WEB)]
    assert bool(held(snapshot(deployment("web", 4), pods=pods))) is waits


def test_a_workload_that_is_being_deleted_wants_no_pods() -> None:
    parts = deployment("web", 4)
    parts["deployments"][0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not held(snapshot(parts, pods=[pod("p0", owner=WEB), pod("p1", owner=WEB)]))


@pytest.mark.parametrize(
    ("rule", "wanted", "needed"),
    [
        pytest.param({"maxUnavailable": "1%"}, 100, 99, id="a whole number"),
        pytest.param({"maxUnavailable": "1%"}, 101, 99, id="rounded up"),
        pytest.param({"minAvailable": "50%"}, 3, 2, id="half rounded up"),
        pytest.param({"minAvailable": "100%"}, 3, 3, id="all"),
        pytest.param({"minAvailable": 9}, 3, 3, id="not more than there are"),
        pytest.param({"maxUnavailable": 9}, 3, 0, id="not less than none"),
        pytest.param({"maxUnavailable": "many"}, 3, 3, id="not a number"),
        pytest.param({"minAvailable": "many"}, 3, 0, id="not a number of those that stay"),
        pytest.param({}, 3, 1, id="what the server takes without a rule"),
    ],
)
def test_percentages_of_a_budget_are_rounded_up(rule: Raw, wanted: int, needed: int) -> None:
    """As by the disruption controller (GetScaledValueFromIntOrPercent with roundUp)."""
    laid = budget("b", 1, healthy=0, desired=0, rule=rule)
    if needed:
        assert f"needs {needed} ready pods beside this one and has {needed - 1}" in held(
            web(needed, wanted, budgets=[laid])
        )
    assert not held(web(needed + 1, wanted, budgets=[laid]))


def test_a_budget_over_pods_of_unknown_owners_is_as_its_status_says() -> None:
    pods = [pod("p0", owner=DB), pod("p1", owner=DB)]
    assert not held(snapshot(pods=pods[:1], budgets=[budget("b", 1, healthy=1, desired=0)]))
    assert not held(snapshot(pods=pods, budgets=[budget("b", 1, healthy=2, desired=1)]))
    assert held(snapshot(pods=pods, budgets=[budget("b", 1, healthy=2, desired=2)]))


@pytest.mark.parametrize(
    ("state", "waits"),
    [
        ({}, False),
        ({"ready": False}, True),
        ({"deleting": "2026-01-01T00:00:00Z"}, True),
        ({"phase": "Succeeded"}, True),
    ],
)
def test_what_serves_is_ready_and_neither_ending_nor_finished(state: Raw, waits: bool) -> None:
    pods = [pod("p0"), pod("p1", **state)]
    assert bool(held(snapshot(pods=pods, budgets=[budget("b", 1, healthy=2, desired=1)]))) is waits


def test_finished_pods_of_an_unknown_owner_are_no_peers() -> None:
    pods = [pod("p0", owner=DB), pod("p1", owner=DB, phase="Succeeded", ready=False)]
    assert not held(snapshot(pods=pods))
    assert not held(snapshot(pods=pods), frozenset({"uid-p1"}))


@pytest.mark.parametrize(
    "state", [{"ready": False}, {"deleting": "2026-01-01T00:00:00Z"}, {"phase": "Succeeded"}], ids=str
)
def test_a_pod_that_does_not_serve_is_not_the_last(state: Raw) -> None:
    found = snapshot(deployment("web", 1), pods=[pod("p0", owner=WEB, **state)])
    assert last(found, found.pods[0]) is None


def test_the_last_of_a_workload_that_is_being_deleted_may_go() -> None:
    parts = deployment("web", 1)
    parts["deployments"][0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    found = snapshot(parts, pods=[pod("p0", owner=WEB)])
    assert last(found, found.pods[0]) is None


def test_finished_pods_do_not_stand_beside_the_last() -> None:
    found = snapshot(deployment("web", 1), pods=[pod("p0", owner=WEB), pod("p1", owner=WEB, phase="Failed")])
    why = last(found, found.pods[0])
    assert why is not None
    assert why.alone
