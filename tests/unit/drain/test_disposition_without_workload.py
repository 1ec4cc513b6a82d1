# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The route of pods of which no replica count is known."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.dispositions import routes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    TOLERATES_ALL,
    Raw,
    budget,
    claim,
    mounts,
    on_hosts,
    owned,
    pod,
    snapshot,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import (
    CONSENT,
    NEVER,
    SCRATCH,
    on_its_own,
    only,
)


def daemon(**changes: t.Any) -> Raw:
    return pod("p", owner=owned("DaemonSet", "agent"), **changes)


AGENT: Raw = {"metadata": {"name": "agent", "namespace": "shop", "uid": "uid-DaemonSet-agent"}, "spec": {}}
LOCAL: Raw = {"metadata": {"name": "pv"}, "spec": {"local": {"path": "/disk"}, "nodeAffinity": on_hosts("n1")}}
MIRROR = {names.MIRROR: "hash"}
JOB = owned("Job", "import", "batch/v1")
OPERATOR = owned("Database", "main", "example.org/v1")


@pytest.mark.parametrize(
    ("found", "choices", "route", "code"),
    [
        pytest.param(on_its_own(annotations=MIRROR), DrainPolicy(), "skip", "mirror", id="mirror"),
        pytest.param(
            on_its_own(annotations=MIRROR, volumes=SCRATCH, tolerations=[TOLERATES_ALL]),
            DrainPolicy(pod_selector="app=other"),
            "skip",
            "mirror",
            id="a mirror is a mirror whatever else it is",
        ),
        pytest.param(
            snapshot(pods=[daemon()], daemon_sets=[AGENT]), DrainPolicy(), "skip", "daemonset", id="daemonset"
        ),
        pytest.param(
            snapshot(pods=[daemon(volumes=SCRATCH)], daemon_sets=[AGENT]),
            DrainPolicy(),
            "skip",
            "daemonset",
            id="daemonset with emptyDir",
        ),
        pytest.param(
            snapshot(pods=[daemon(tolerations=[TOLERATES_ALL])], daemon_sets=[AGENT]),
            DrainPolicy(),
            "skip",
            "daemonset",
            id="a tolerant daemonset is a daemonset",
        ),
        pytest.param(
            snapshot(pods=[daemon()], daemon_sets=[AGENT]),
            DrainPolicy(ignore_daemonsets=False, force=True),
            "refuse",
            "daemonset",
            id="daemonset not ignored",
        ),
        pytest.param(snapshot(pods=[daemon()]), DrainPolicy(), "refuse", "daemonset_gone", id="daemonset gone"),
        pytest.param(
            snapshot(pods=[daemon()]), DrainPolicy(force=True), "evict", "daemonset_gone", id="daemonset gone, force"
        ),
        pytest.param(
            snapshot(pods=[daemon(volumes=SCRATCH)]),
            DrainPolicy(force=True),
            "refuse",
            "emptydir",
            id="daemonset gone with emptyDir, force",
        ),
        pytest.param(
            snapshot(pods=[daemon(volumes=SCRATCH)]),
            DrainPolicy(force=True, delete_emptydir_data=True),
            "evict",
            "daemonset_gone",
            id="daemonset gone with emptyDir, both",
        ),
        pytest.param(
            snapshot(pods=[daemon(volumes=mounts("data"))], claims=[claim("data", "pv")], volumes=[LOCAL]),
            DrainPolicy(force=True),
            "refuse",
            "local_volume",
            id="daemonset gone with a local volume, force",
        ),
        pytest.param(
            snapshot(pods=[daemon(phase="Failed", ready=False)], daemon_sets=[AGENT]),
            DrainPolicy(ignore_daemonsets=False),
            "evict",
            "finished",
            id="finished pod of a daemonset not ignored",
        ),
        pytest.param(
            snapshot(pods=[daemon(phase="Failed", ready=False)]),
            DrainPolicy(),
            "evict",
            "finished",
            id="finished pod of a daemonset that is gone",
        ),
        pytest.param(on_its_own(), DrainPolicy(namespaces=("bank",)), "skip", "not_selected", id="other namespace"),
        pytest.param(on_its_own(), DrainPolicy(namespaces=("shop",)), "refuse", "bare_pod", id="its namespace"),
        pytest.param(on_its_own(), DrainPolicy(pod_selector="app!=web"), "skip", "not_selected", id="not matched"),
        pytest.param(on_its_own(), DrainPolicy(pod_selector="app in (web)"), "refuse", "bare_pod", id="matched"),
        pytest.param(
            on_its_own(deleting="2026-01-03T00:00:00Z"), DrainPolicy(), "wait", "terminating", id="terminating"
        ),
        pytest.param(
            on_its_own(deleting="2026-01-01T00:00:00Z"), DrainPolicy(force=True), "wait", "stuck_terminating", id="late"
        ),
        pytest.param(
            on_its_own(deleting="2026-01-03T00:00:00Z", finalizers=["example.org/hold"]),
            DrainPolicy(force=True),
            "wait",
            "stuck_terminating",
            id="held by a finalizer",
        ),
        pytest.param(
            on_its_own(deleting="2026-01-03T00:00:00Z", finalizers=["batch.kubernetes.io/job-tracking"], owner=JOB),
            DrainPolicy(),
            "wait",
            "terminating",
            id="the Job controller's finalizer goes by itself",
        ),
        pytest.param(
            on_its_own(phase="Succeeded", ready=False, volumes=SCRATCH),
            DrainPolicy(),
            "evict",
            "finished",
            id="finished bare pod with emptyDir",
        ),
        pytest.param(
            on_its_own(phase="Failed", ready=False, owner=JOB), DrainPolicy(), "evict", "finished", id="finished job"
        ),
        pytest.param(on_its_own(owner=JOB), DrainPolicy(), "wait", "job", id="job"),
        pytest.param(
            on_its_own(owner=JOB, phase="Pending", ready=False), DrainPolicy(), "wait", "job", id="job to start"
        ),
        pytest.param(on_its_own(owner=JOB, volumes=SCRATCH), DrainPolicy(), "wait", "job", id="job with emptyDir"),
        pytest.param(
            on_its_own(owner=JOB),
            DrainPolicy(allow_interruption=True),
            "evict",
            "interruption_allowed",
            id="job, allowed",
        ),
        pytest.param(
            on_its_own(owner=JOB, annotations=CONSENT),
            DrainPolicy(),
            "evict",
            "interruption_allowed",
            id="job, allowed by its own annotation",
        ),
        pytest.param(
            on_its_own(owner=JOB, volumes=SCRATCH),
            DrainPolicy(allow_interruption=True),
            "wait",
            "job",
            id="job with emptyDir, allowed",
        ),
        pytest.param(
            on_its_own(owner=JOB, volumes=SCRATCH),
            DrainPolicy(allow_interruption=True, delete_emptydir_data=True),
            "evict",
            "interruption_allowed",
            id="job with emptyDir, both allowed",
        ),
        pytest.param(
            snapshot(pods=[pod("p", owner=JOB)], budgets=[budget("b", 0, **NEVER)]),
            DrainPolicy(allow_interruption=True),
            "wait",
            "job",
            id="consent does not override a job's budget",
        ),
        pytest.param(on_its_own(), DrainPolicy(), "refuse", "bare_pod", id="bare"),
        pytest.param(on_its_own(), DrainPolicy(force=True), "evict", "bare_pod", id="bare, force"),
        pytest.param(on_its_own(phase="Pending", ready=False), DrainPolicy(), "refuse", "bare_pod", id="bare to start"),
        pytest.param(on_its_own(volumes=SCRATCH), DrainPolicy(), "refuse", "bare_pod", id="bare with emptyDir"),
        pytest.param(
            on_its_own(volumes=SCRATCH), DrainPolicy(force=True), "refuse", "emptydir", id="bare with emptyDir, force"
        ),
        pytest.param(
            on_its_own(volumes=SCRATCH),
            DrainPolicy(delete_emptydir_data=True),
            "refuse",
            "bare_pod",
            id="bare with emptyDir, data may go",
        ),
        pytest.param(
            on_its_own(volumes=SCRATCH),
            DrainPolicy(force=True, delete_emptydir_data=True),
            "evict",
            "bare_pod",
            id="bare with emptyDir, both",
        ),
        pytest.param(
            on_its_own(owner=OPERATOR, phase="Pending", ready=False, volumes=SCRATCH),
            DrainPolicy(),
            "evict",
            "pending",
            id="not started",
        ),
        pytest.param(on_its_own(owner=OPERATOR), DrainPolicy(), "refuse", "not_surgeable", id="unknown owner, alone"),
        pytest.param(
            on_its_own(owner=OPERATOR, annotations=CONSENT),
            DrainPolicy(),
            "evict",
            "interruption_allowed",
            id="unknown owner, alone, allowed on the pod",
        ),
        pytest.param(
            snapshot(pods=[pod("p", owner=OPERATOR), pod("q", "n2", OPERATOR)]),
            DrainPolicy(),
            "evict",
            "replicas",
            id="unknown owner, another serves",
        ),
        pytest.param(
            snapshot(pods=[pod("p", owner=OPERATOR), pod("q", "n2", OPERATOR, ready=False)]),
            DrainPolicy(),
            "refuse",
            "not_surgeable",
            id="unknown owner, another does not serve",
        ),
        pytest.param(
            on_its_own(owner=OPERATOR, ready=False), DrainPolicy(), "evict", "not_ready", id="unknown owner, not ready"
        ),
    ],
)
def test_pods_without_a_known_workload(found: Snapshot, choices: DrainPolicy, route: str, code: str) -> None:
    plan = only(found, choices)
    assert (plan.route, plan.code) == (route, code)
    assert plan.reason.endswith(".")
    assert bool(plan.remedy) or plan.route != "refuse"


@pytest.mark.parametrize(
    ("others", "budgeted", "expected"),
    [
        pytest.param([pod("q", "n1", OPERATOR)], True, ("evict", "replicas"), id="one beside it, and a budget"),
        pytest.param([pod("q", "n1", OPERATOR)], False, ("refuse", "not_surgeable"), id="one beside it, no budget"),
        pytest.param([], True, ("refuse", "not_surgeable"), id="alone under a budget"),
        pytest.param([pod("q", "n2", OPERATOR)], False, ("evict", "replicas"), id="one that stays"),
        pytest.param(
            [pod("q", "n2", OPERATOR, deleting="2026-01-01T00:00:00Z")],
            False,
            ("refuse", "not_surgeable"),
            id="one that ends",
        ),
        pytest.param([pod("q", "n2")], False, ("refuse", "not_surgeable"), id="one of nobody"),
    ],
)
def test_pods_of_an_unknown_owner_are_judged_by_each_other(
    others: list[Raw], budgeted: bool, expected: tuple[str, str]
) -> None:
    laid = [budget("b", 1, healthy=2, desired=1)] if budgeted else []
    plans = routes(snapshot(pods=[pod("p", owner=OPERATOR), *others], budgets=laid), ["n1"], DrainPolicy())
    assert (plans[0].route, plans[0].code) == expected


@pytest.mark.parametrize(
    ("now", "code"),
    [
        ("", "terminating"),
        ("2026-01-02T00:00:04.999Z", "terminating"),
        ("2026-01-02T00:00:05.000Z", "terminating"),
        ("2026-01-02T00:00:05.900Z", "terminating"),
        ("2026-01-02T00:00:06.000Z", "stuck_terminating"),
    ],
)
def test_a_pod_is_stuck_a_second_after_its_grace_period(now: str, code: str) -> None:
    found = on_its_own(deleting="2026-01-02T00:00:05Z")
    assert routes(found, ["n1"], DrainPolicy(), now=now)[0].code == code


@pytest.mark.parametrize(
    ("kind", "api_version", "code"),
    [
        ("DaemonSet", "apps/v1", "daemonset_gone"),
        ("DaemonSet", "apps.kruise.io/v1beta1", "daemonset"),
        ("DaemonSet", "apps.example.com/v1", "not_surgeable"),
        ("Database", "apps/v1", "not_surgeable"),
    ],
)
def test_a_daemon_set_is_one_of_kubernetes_or_kruise(kind: str, api_version: str, code: str) -> None:
    assert only(on_its_own(owner=owned(kind, "agent", api_version))).code == code


@pytest.mark.parametrize("owner", [None, owned("DaemonSet", "agent")])
@pytest.mark.parametrize(("volumes", "named"), [([], False), (SCRATCH, True)])
def test_a_pod_that_nothing_recreates_is_told_all_that_its_eviction_needs(
    volumes: list[Raw], named: bool, owner: list[Raw] | None
) -> None:
    plan = only(on_its_own(volumes=volumes, owner=owner))
    assert "force: true" in plan.remedy
    assert ("delete_emptydir_data: true" in plan.remedy) is named


@pytest.mark.parametrize(("choices", "more"), [(DrainPolicy(), False), (DrainPolicy(allow_interruption=True), True)])
def test_a_job_with_data_of_its_own_is_told_both_that_its_eviction_needs(choices: DrainPolicy, more: bool) -> None:
    plan = only(on_its_own(owner=JOB, volumes=[{"name": "scratch", "emptyDir": {}}]), choices)
    assert (plan.route, plan.code) == ("wait", "job")
    assert ("delete_emptydir_data: true" in plan.remedy) is more
    assert "allow_interruption: true" in plan.remedy
