# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Routes of pods that a rule, or an annotation of their workload, says something of."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import dispositions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import pod_rules
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    TOLERATES_ALL,
    Raw,
    deployment,
    owned,
    pod,
    snapshot,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import SCRATCH, WEB, on_its_own, only, web

AGENT = {"metadata": {"name": "agent", "namespace": "shop", "uid": "uid-DaemonSet-agent"}}
UNSCHEDULABLE: Raw = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}
JOB = owned("Job", "batch", "batch/v1")
SKIP, WAIT, LAST = ({"namespaces": "*", "skip": True}, {"wait": "finished"}, {"last": True})


def ruled(*raws: dict[str, t.Any], **choices: t.Any) -> DrainPolicy:
    rules, faults = pod_rules.read(raws)
    assert not faults
    return DrainPolicy(rules=rules, **choices)


@pytest.mark.parametrize(
    ("found", "choices", "route", "code"),
    [
        pytest.param(web(2), ruled(SKIP), "skip", "left_by_rule", id="skip"),
        pytest.param(on_its_own(volumes=SCRATCH), ruled(SKIP), "skip", "left_by_rule", id="skip of what is refused"),
        pytest.param(web(2), ruled({"pods": "app=db", **SKIP}), "evict", "guarded", id="another pod"),
        pytest.param(web(1), ruled({"owners": ["Deployment/web"], **SKIP}), "skip", "left_by_rule", id="by owner"),
        pytest.param(on_its_own(), ruled(WAIT), "wait", "waits_by_rule", id="wait for a bare pod"),
        pytest.param(on_its_own(owner=JOB), ruled(WAIT, allow_interruption=True), "wait", "waits_by_rule", id="a Job"),
        pytest.param(on_its_own(phase="Succeeded"), ruled(WAIT), "evict", "finished", id="finished"),
        pytest.param(web(2), ruled(WAIT), "refuse", "bad_rule", id="it never finishes"),
        pytest.param(web(1), ruled({"order": 3}), "surge", "single_replica", id="order changes no route"),
    ],
)
def test_a_rule_gives_the_route(found: t.Any, choices: DrainPolicy, route: str, code: str) -> None:
    plan = only(found, choices)
    assert (plan.route, plan.code) == (route, code)


def test_a_pod_that_runs_this_play_is_never_left_by_a_rule() -> None:
    me = on_its_own()
    assert only(me, ruled(SKIP, self_pod=me.pods[0].ref)).code == "self_on_node"


def test_the_owner_can_say_the_same_by_annotations_of_the_workload() -> None:
    found = web(1, spec={"annotations": {f"{names.PREFIX}/skip": "true"}})
    plan = only(found)
    assert (plan.code, plan.reason) == (
        "left_by_rule",
        "By the annotations of Deployment shop/web it stays on the node.",
    )
    assert only(found, ruled({"order": 1})).code == "single_replica", "a rule of the run decides all of it"


def test_an_annotation_that_cannot_be_read_leaves_the_pod_and_its_node() -> None:
    plan = only(web(2, spec={"annotations": {f"{names.PREFIX}/order": "first"}}))
    assert (plan.route, plan.code) == ("refuse", "bad_rule")
    assert "'first' of maintenance.kubeops.io/order is not an integer" in plan.reason


@pytest.mark.parametrize(
    ("tolerations", "choices", "route", "code"),
    [
        pytest.param([UNSCHEDULABLE], DrainPolicy(), "skip", "daemonset", id="without a rule"),
        pytest.param([UNSCHEDULABLE], ruled({"order": 9}), "skip", "daemonset", id="another rule"),
        pytest.param([UNSCHEDULABLE], ruled(LAST), "evict", "daemonset_last", id="last"),
        pytest.param(
            [UNSCHEDULABLE], ruled(LAST, ignore_daemonsets=False), "evict", "daemonset_last", id="all of them"
        ),
        pytest.param([TOLERATES_ALL], ruled(LAST), "skip", "daemonset", id="it would come back at once"),
    ],
)
def test_pods_of_daemonsets_leave_where_asked_unless_they_would_come_back(
    tolerations: list[Raw], choices: DrainPolicy, route: str, code: str
) -> None:
    agent = pod("agent-1", owner=owned("DaemonSet", "agent"), tolerations=tolerations)
    plan = only(snapshot(pods=[agent], daemon_sets=[AGENT]), choices)
    assert (plan.route, plan.code) == (route, code)


def test_a_node_counts_as_drained_without_what_rules_leave() -> None:
    found = snapshot(deployment("web", 1), pods=[pod("web-0", owner=WEB), pod("shell")])
    kept = ruled({"owners": "Deployment/web", **SKIP}, {"owners": "Pod", **SKIP})
    assert [p.name for p in dispositions.left_to_move(found, {"n1"}, DrainPolicy())] == ["web-0", "shell"]
    assert dispositions.left_to_move(found, {"n1"}, kept) == ()
