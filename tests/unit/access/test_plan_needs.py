# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run has to be allowed, asked before its first write."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access.plan_needs import for_hooks, needs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import pod_selectors, selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    budget,
    deployment,
    mounts,
    owned,
    pod,
    snapshot,
    workload,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import WEB, planned, web


def words(found: Snapshot, *, namespace_missing: bool = False, **choices: t.Any) -> set[str]:
    plans = planned(found, **choices)
    return {need.words for need in needs(found, plans, DrainPolicy(**choices), namespace_missing=namespace_missing)}


@pytest.mark.parametrize(
    ("found", "choices", "more", "less"),
    [
        pytest.param(
            snapshot(),
            {},
            {
                *("get nodes", "watch nodes", "patch nodes", "get leases.coordination.k8s.io", "get configmaps"),
                *("list daemonsets.apps", "watch daemonsets.apps"),
            },
            {"create pods/eviction", "create namespaces", "watch leases.coordination.k8s.io"},
            id="always",
        ),
        pytest.param(
            web(3),
            {},
            {
                *("create pods/eviction", "get poddisruptionbudgets.policy"),
                *("create poddisruptionbudgets.policy", "delete poddisruptionbudgets.policy"),
            },
            {"patch pods", "delete pods"},
            id="guarded",
        ),
        pytest.param(
            web(3, budgets=[budget("b", 1)]),
            {},
            {"create pods/eviction"},
            {"create poddisruptionbudgets.policy"},
            id="under a budget",
        ),
        pytest.param(
            web(1),
            {},
            {
                *("patch deployments.apps/scale", "patch pods", "create pods/eviction"),
                *("get deployments.apps", "get pods"),
                "watch leases.coordination.k8s.io",
            },
            {"patch replicasets.apps/scale"},
            id="surged",
        ),
        pytest.param(
            web(3, pod_changes={"responders": ["acme.io/db"]}),
            {},
            {"list evictionrequests.lifecycle.k8s.io"},
            set(),
            id="with responders",
        ),
        pytest.param(web(3), {}, set(), {"list evictionrequests.lifecycle.k8s.io"}, id="without responders"),
        pytest.param(
            web(3), {"disable_eviction": True, "force": True}, {"delete pods"}, {"create pods/eviction"}, id="deleted"
        ),
        pytest.param(
            snapshot(replica_sets=[workload("ReplicaSet", "web", 1)], pods=[pod("p", owner=WEB)]),
            {},
            {"patch replicasets.apps/scale"},
            {"patch deployments.apps/scale"},
            id="a ReplicaSet of its own",
        ),
        pytest.param(
            snapshot(deployment("web", 2), pods=[pod("p", owner=WEB, volumes=mounts("data"))]),
            {},
            {"list volumeattachments.storage.k8s.io"},
            set(),
            id="with a claim",
        ),
    ],
)
def test_what_a_run_has_to_be_allowed(
    found: Snapshot, choices: dict[str, t.Any], more: set[str], less: set[str]
) -> None:
    assert more <= words(found, **choices)
    assert not less & words(found, **choices)


def test_our_namespace_is_made_only_where_it_is_missing() -> None:
    assert "create namespaces" in words(snapshot(), namespace_missing=True)


def test_locks_are_asked_for_where_they_are_kept_and_surges_in_our_namespace() -> None:
    found = web(1)
    asked = needs(found, planned(found), DrainPolicy(), namespace_missing=False, locks="medik8s-leases")
    places = {need.namespaces for need in asked if need.resource == "leases"}
    assert places == {("medik8s-leases",), ("kubeops-node-maintenance",)}
    alone = needs(snapshot(), (), DrainPolicy(), namespace_missing=False, locks="medik8s-leases")
    assert {need.namespaces for need in alone if need.resource == "leases"} == {("medik8s-leases",)}


@pytest.mark.parametrize("wanted", [True, False])
def test_conditions_are_written_only_where_they_are_asked_for(wanted: bool) -> None:
    asked = functools.partial(needs, snapshot(), (), DrainPolicy(), namespace_missing=False)
    found = asked(conditions=True) if wanted else asked()
    assert ("patch nodes/status" in {need.words for need in found}) == wanted


EVICT, DELETE, JOBS = "create pods/eviction", "delete pods", "create podmigrationjobs.scheduling.koordinator.sh"
ATTACHED, GUARDS = "list volumeattachments.storage.k8s.io", "create poddisruptionbudgets.policy"


@pytest.mark.parametrize(
    ("plan", "choices", "asked"),
    [
        ({"route": "evict"}, DrainPolicy(), {EVICT}),
        ({"route": "evict"}, DrainPolicy(disable_eviction=True), {DELETE}),
        ({"route": "evict", "guarded": True}, DrainPolicy(), {EVICT, GUARDS}),
        ({"route": "skip"}, DrainPolicy(), set()),
        ({"route": "refuse"}, DrainPolicy(), set()),
        ({"route": "wait"}, DrainPolicy(), set()),
        ({"route": "wait", "code": "out_of_service"}, DrainPolicy(), {ATTACHED}),
        ({"route": "surge"}, DrainPolicy(), {EVICT}),
        ({"route": "job"}, DrainPolicy(backend="koordinator", fallback="eviction"), {JOBS, EVICT}),
        ({"route": "job"}, DrainPolicy(backend="koordinator", fallback="fail"), {JOBS}),
        ({"route": "job", "guarded": True}, DrainPolicy(backend="koordinator", fallback="fail"), {JOBS, EVICT, GUARDS}),
        ({"route": "job"}, DrainPolicy(backend="auto", fallback="fail"), {JOBS, EVICT}),
    ],
)
def test_each_route_asks_for_what_it_writes(plan: dict[str, t.Any], choices: DrainPolicy, asked: set[str]) -> None:
    """A job that comes to nothing falls back to an eviction unless `fallback` rules that out."""
    found = web(3)
    plans = [replace(one, **{"code": "x", "guarded": False, **plan}) for one in planned(found)]
    words = {need.words for need in needs(found, plans, choices, namespace_missing=False)}
    assert words & {EVICT, DELETE, JOBS, ATTACHED, GUARDS} == asked


@pytest.mark.parametrize(
    ("kind", "watched", "not_watched"),
    [("ReplicaSet", "deployments.apps", "statefulsets.apps"), ("StatefulSet", "statefulsets.apps", "deployments.apps")],
)
def test_the_owners_of_what_is_moved_are_watched(kind: str, watched: str, not_watched: str) -> None:
    found = snapshot(pods=[pod("p", owner=owned(kind, "x"))])
    plans = [replace(one, route="evict") for one in planned(found)]
    words = {need.words for need in needs(found, plans, DrainPolicy(), namespace_missing=False)}
    assert f"watch {watched}" in words
    assert f"watch {not_watched}" not in words


@pytest.mark.parametrize(
    ("action", "labels", "asked"),
    [
        ("annotation", "app=web", {"get pods in shop", "patch pods in shop"}),
        ("annotation", "app=other", set()),
        ("http", "app=web", set()),
    ],
)
def test_only_a_handshake_writes_pods(action: t.Any, labels: str, asked: set[str]) -> None:
    rule = hook_definitions.Rule("before_pod", "x", action, selects=pod_selectors.PodSelector(selectors.parse(labels)))
    found = for_hooks(planned(web(3, pod_changes={"phase": "Running"})), [rule])
    assert {f"{need.words} in {', '.join(need.namespaces)}" for need in found} == asked
