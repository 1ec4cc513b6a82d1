# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the Eviction API would say, in the order of its handler, and what it would not say."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import budgets, operators
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Budget
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.behaviours import budgeting, every
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    budget,
    deployment,
    owned,
    pod,
    snapshot,
)

SPENT: dict[str, t.Any] = {"allowed": 0, "healthy": 2, "desired": 2, "expected": 3}
ROOM: dict[str, t.Any] = {"allowed": 1, "healthy": 3, "desired": 2}


def over(name: str = "b", **changes: t.Any) -> Raw:
    return budget(name, changes.pop("allowed"), **changes)


def verdict(leaving: Raw, *laid: Raw, peers: int = 3, reactive: tuple[str, ...] = ()) -> budgets.Verdict:
    owner = owned("ReplicaSet", "web")
    pods = [leaving, *(pod(f"peer-{i}", "n2", owner) for i in range(peers - 1))]
    seen = snapshot(deployment("web", peers), pods=pods, budgets=list(laid))
    return budgets.diagnose(seen, seen.pods[0], operators.selectors_of(reactive))


@pytest.mark.parametrize(
    ("state", "laid", "code", "allowed"),
    [
        ({}, [], "no_budget", True),
        ({"phase": "Pending", "ready": False}, [over(**SPENT)], "bypass", True),
        ({"phase": "Succeeded", "ready": False}, [over(**SPENT)], "bypass", True),
        ({"phase": "Failed", "ready": False}, [over(**SPENT)], "bypass", True),
        ({"deleting": "2026-01-01T00:00:00Z"}, [over(**SPENT)], "bypass", True),
        ({"deleting": "2026-01-01T00:00:00Z"}, [over("a", **ROOM), over("b", **ROOM)], "bypass", True),
        ({}, [over("a", **ROOM), over("b", **ROOM)], "two_budgets", False),
        ({"ready": False}, [over("a", **ROOM, policy="AlwaysAllow"), over("b", **ROOM)], "two_budgets", False),
        ({}, [over(**ROOM)], "room", True),
        ({}, [over(**ROOM, observed=False)], "not_observed", False),
        ({}, [over(**SPENT)], "spent", False),
        ({"ready": False}, [over(**SPENT)], "unhealthy_allowed", True),
        ({"ready": False}, [over(allowed=0, healthy=1, desired=2, expected=3)], "unhealthy_blocked", False),
        ({"ready": False}, [over(allowed=0, healthy=0, desired=0, expected=3)], "unhealthy_blocked", False),
        (
            {"ready": False},
            [over(allowed=0, healthy=1, desired=2, expected=3, policy="AlwaysAllow")],
            "unhealthy_allowed",
            True,
        ),
        ({"ready": False}, [over(**SPENT, observed=False)], "unhealthy_allowed", True),
        ({}, [over(allowed=-1, healthy=1, desired=2)], "refused_by_server", False),
    ],
)
def test_verdicts_follow_the_order_of_the_eviction_handler(
    state: dict[str, t.Any], laid: list[Raw], code: str, allowed: bool
) -> None:
    found = verdict(pod("leaving", "n1", owned("ReplicaSet", "web"), **state), *laid)
    assert (found.code, found.allowed) == (code, allowed)
    assert found.allowed or (found.message and found.remedy and found.budget)


@pytest.mark.parametrize(
    ("rule", "numbers", "blocking"),
    [
        ({"maxUnavailable": 0}, {"allowed": 0, "healthy": 2, "expected": 3}, True),
        ({"maxUnavailable": "0%"}, {"allowed": 0, "healthy": 3, "expected": 3}, True),
        ({"minAvailable": "100%"}, {"allowed": 0, "healthy": 2, "expected": 3}, True),
        ({"minAvailable": 3}, {"allowed": 0, "healthy": 3, "desired": 3, "expected": 3}, True),
        ({"minAvailable": 5}, {"allowed": 0, "healthy": 2, "desired": 5, "expected": 3}, True),
        ({"minAvailable": "90%"}, {"allowed": 0, "healthy": 3, "desired": 3, "expected": 3}, True),
        ({"minAvailable": 3}, {"allowed": 0, "healthy": 2, "desired": 3, "expected": 3}, True),
        ({"minAvailable": 2}, {"allowed": 0, "healthy": 2, "expected": 3}, False),
        ({"minAvailable": 3}, {"allowed": 0, "healthy": 0, "expected": 0}, False),
        ({"minAvailable": 2}, {"allowed": 1, "healthy": 3, "expected": 3}, False),
        ({"minAvailable": 3}, {"allowed": 0, "healthy": 3, "desired": 3, "expected": 3, "observed": False}, False),
    ],
)
def test_a_budget_that_can_never_allow_anything_is_told_from_one_that_is_spent(
    rule: dict[str, t.Any], numbers: dict[str, t.Any], blocking: bool
) -> None:
    assert budgets.fully_blocking(snapshot(), Budget.of(over(rule=rule, **numbers))) is blocking


@pytest.mark.parametrize(("replicas", "blocking"), [(2, True), (3, True), (4, False)])
def test_pods_that_are_not_there_yet_may_make_room(replicas: int, blocking: bool) -> None:
    """A controller counts three of four while the fourth is being replaced."""
    laid = over(allowed=0, healthy=3, desired=3, expected=3)
    peers = [pod(f"p{i}", "n2", owned("ReplicaSet", "web")) for i in range(3)]
    seen = snapshot(deployment("web", replicas), pods=peers, budgets=[laid])
    assert budgets.fully_blocking(seen, seen.budgets[0]) is blocking


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"maxUnavailable": 0}, "maxUnavailable: 0"),
        ({"minAvailable": "50%"}, "minAvailable: 50%"),
        ({}, "neither minAvailable nor maxUnavailable"),
    ],
)
def test_a_budget_is_shown_with_its_rule(spec: Raw, text: str) -> None:
    assert budgets.rule(Budget.of(budget("b", 1, rule=spec))) == text


@pytest.mark.parametrize(
    ("evictions", "said"),
    [
        pytest.param(
            {"a": "2026-01-01T00:00:00Z"},
            "; 1 more is being evicted, which counts until 00:02:00 UTC even if nothing is deleted.",
            id="one",
        ),
        pytest.param(
            {"a": "2026-01-01T00:00:00Z", "b": "2026-01-01T00:01:30Z"},
            "; 2 more are being evicted, which counts until 00:03:30 UTC even if nothing is deleted.",
            id="until the last",
        ),
        pytest.param({"a": ""}, "; 1 more is being evicted.", id="at a time that cannot be read"),
    ],
)
def test_a_disruption_under_way_means_that_waiting_helps(evictions: dict[str, str], said: str) -> None:
    raw = over(allowed=0, healthy=3, desired=3, expected=3)
    raw["status"]["disruptedPods"] = evictions
    assert not budgets.fully_blocking(snapshot(), Budget.of(raw))
    found = verdict(pod("leaving", "n1", owned("ReplicaSet", "web")), raw)
    assert found.code == "spent"
    assert found.message.endswith(said)


def test_an_autoscaler_at_its_minimum_is_named() -> None:
    scaler = {
        "metadata": {"name": "web", "namespace": "shop", "uid": "h"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 2, "maxReplicas": 5},
    }
    leaving = pod("leaving", "n1", owned("ReplicaSet", "web"))
    seen = snapshot(
        deployment("web", 2), pods=[leaving], budgets=[over(allowed=0, desired=2, healthy=2)], autoscalers=[scaler]
    )
    found = budgets.diagnose(seen, seen.pods[0])
    assert found.code == "misconfigured"
    assert found.lasting
    assert "HorizontalPodAutoscaler shop/web is at its minimum of 2" in found.message


TOLD = every.RECORDED["what_is_told_of_a_budget"]
OVER_A_JOB = every.RECORDED["a_budget_over_the_pod_of_a_job"]
UNTIL_A_JOB = every.RECORDED["a_budget_that_is_synced_until_a_job_comes"]


@pytest.mark.parametrize(
    ("recorded", "code", "lasting"),
    [
        pytest.param(TOLD["new"], "not_observed", False, id="new"),
        pytest.param(TOLD["most"], "room", False, id="room"),
        pytest.param(TOLD["share"], "room", False, id="room by a share"),
        pytest.param(TOLD["spent"], "misconfigured", True, id="all of them"),
        pytest.param(every.RECORDED["a_budget_without_a_rule"][0], "misconfigured", True, id="no rule"),
        pytest.param(OVER_A_JOB[0], "sync_failed", True, id="a Job's pod"),
        pytest.param(OVER_A_JOB[2], "room", False, id="a Job's pod, and a number"),
        pytest.param(OVER_A_JOB[3], "sync_failed", True, id="a Job's pod, and a share"),
        pytest.param(
            every.RECORDED["a_budget_over_the_pod_of_a_daemon_set"][0], "sync_failed", True, id="a DaemonSet's"
        ),
        pytest.param(UNTIL_A_JOB[0], "sync_failed", True, id="synced before"),
        pytest.param(UNTIL_A_JOB[2], "sync_failed", True, id="changed since"),
        pytest.param(UNTIL_A_JOB[4], "room", False, id="synced again"),
    ],
)
def test_verdicts_on_what_the_controller_wrote(recorded: Raw, code: str, lasting: bool) -> None:
    """As kube-controller-manager wrote it for three ready pods."""
    found = verdict(pod("leaving", "n1", owned("ReplicaSet", "web")), budgeting.read(recorded))
    assert (found.code, found.lasting) == (code, lasting)


def test_a_budget_that_counts_none_of_its_pods_never_allows_anything() -> None:
    """They have no controller whose replicas it could count."""
    alone = pod("alone", labels={"app": "alone"})
    seen = snapshot(pods=[alone], budgets=[budgeting.read(TOLD["alone"])])
    found = budgets.diagnose(seen, seen.pods[0])
    assert (found.code, found.lasting) == ("misconfigured", True)


@pytest.mark.parametrize("changes", [{"healthy": 0}, {"expected": 1, "desired": 0}, {"observed": False}])
def test_what_is_not_yet_counted_is_waited_for(changes: Raw) -> None:
    numbers = {"healthy": 1, "desired": 0, "expected": 0, **changes}
    laid = over(allowed=0, rule={"maxUnavailable": 1}, **numbers)
    assert not verdict(pod("leaving"), laid, peers=1).lasting


def job_pod(on: str, phase: str) -> Raw:
    return pod("report", on, owned("Job", "report", "batch/v1"), phase=phase, ready=phase == "Running")


@pytest.mark.parametrize(
    ("others", "lasting"),
    [
        pytest.param([job_pod("n1", "Succeeded")], False, id="finished on this node"),
        pytest.param([job_pod("n2", "Succeeded")], True, id="finished elsewhere"),
        pytest.param([job_pod("n1", "Running")], True, id="running here"),
        pytest.param([job_pod("n1", "Succeeded"), job_pod("n2", "Running")], True, id="both"),
        pytest.param([], True, id="nobody that is known"),
    ],
)
def test_a_pod_that_cannot_be_counted_is_named_and_may_go_first(others: list[Raw], lasting: bool) -> None:
    leaving = pod("leaving", "n1", owned("ReplicaSet", "web"))
    named = [{**one, "metadata": {**one["metadata"], "uid": f"u{i}"}} for i, one in enumerate(others)]
    seen = snapshot(deployment("web", 1), pods=[leaving, *named], budgets=[budgeting.read(OVER_A_JOB[0])])
    found = budgets.diagnose(seen, seen.pods[0])
    assert (found.code, found.lasting) == ("sync_failed", lasting)
    assert "jobs.batch does not implement the scale subresource" in found.message
    assert ("Pod shop/report of Job" in found.message) is bool(others)


def test_a_status_that_is_ahead_of_its_pods_is_not_believed() -> None:
    """The disruption controller is down: it still says 3 healthy, and 2 are ready."""
    found = verdict(pod("leaving", "n1", owned("ReplicaSet", "web")), over(**ROOM), peers=2)
    assert (found.code, found.allowed) == ("stale", False)


@pytest.mark.parametrize(
    ("labels", "wanted", "code"),
    [
        ({"longhorn.io/component": "instance-manager"}, ("longhorn",), "operator_budget"),
        ({"app": "rook-ceph-osd"}, (), "operator_budget"),
        ({"role": "osd"}, ("role in (osd,mon)",), "operator_budget"),
        ({"role": "mgr"}, ("rook", "role in (osd,mon)"), "misconfigured"),
    ],
)
def test_budgets_of_operators_are_told_by_preset_and_by_selector(
    labels: dict[str, str], wanted: tuple[str, ...], code: str
) -> None:
    laid = over(allowed=0, healthy=1, desired=1, expected=1, selector={"matchLabels": labels})
    assert verdict(pod("leaving", "n1", labels=labels), laid, reactive=wanted).code == code


def test_a_selector_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="not part of a label selector"):
        operators.selectors_of(["!!"])


@pytest.mark.parametrize(
    ("unconfirmed", "code"), [(0, "room"), (budgets.MAX_DISRUPTED, "room"), (2001, "refused_by_server")]
)
def test_the_server_refuses_above_two_thousand_unconfirmed_evictions(unconfirmed: int, code: str) -> None:
    raw = over(**ROOM)
    raw["status"]["disruptedPods"] = {f"p{n}": "2026-01-01T00:00:00Z" for n in range(unconfirmed)}
    found = verdict(pod("leaving", "n1", owned("ReplicaSet", "web")), raw)
    assert found.code == code
    assert code == "room" or "2001 unconfirmed" in found.message


@pytest.mark.parametrize(
    ("ready", "healthy", "code"),
    [
        pytest.param(3, 3, "room", id="as the status says"),
        pytest.param(3, 4, "room", id="fewer, and still more than must be"),
        pytest.param(2, 2, "room", id="just as many"),
        pytest.param(2, 3, "stale", id="fewer, and none to spare"),
    ],
)
def test_a_status_is_stale_when_its_pods_are_not_enough(ready: int, healthy: int, code: str) -> None:
    found = verdict(
        pod("leaving", "n1", owned("ReplicaSet", "web")), over(allowed=1, healthy=healthy, desired=2), peers=ready
    )
    assert found.code == code
    assert code == "room" or f"counts {healthy} of its pods as healthy, but {ready} are ready" in found.message


@pytest.mark.parametrize("gone", [{"deleting": "2026-01-01T00:00:00Z"}, {"phase": "Succeeded"}, {"ready": False}])
def test_a_pod_that_is_on_its_way_out_holds_up_no_budget(gone: Raw) -> None:
    """Two are ready beside it, the status says three, and two must be."""
    owner = owned("ReplicaSet", "web")
    pods = [pod("leaving", "n1", owner), pod("peer", "n2", owner), pod("going", "n2", owner, **gone)]
    seen = snapshot(deployment("web", 3), pods=pods, budgets=[over(allowed=1, healthy=3, desired=2)])
    assert budgets.diagnose(seen, seen.pods[0]).code == "stale"


@pytest.mark.parametrize(("replicas", "told"), [(1, True), (2, True), (3, False)])
def test_an_autoscaler_above_its_minimum_is_not_blamed(replicas: int, told: bool) -> None:
    scaler = {
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 2, "maxReplicas": 5},
    }
    leaving = pod("leaving", "n1", owned("ReplicaSet", "web"))
    laid = over(allowed=0, rule={"maxUnavailable": 0})
    seen = snapshot(deployment("web", replicas), pods=[leaving], budgets=[laid], autoscalers=[scaler])
    assert ("is at its minimum" in budgets.diagnose(seen, seen.pods[0]).message) is told


@pytest.mark.parametrize(
    ("numbers", "never"),
    [
        ({"allowed": 0, "healthy": 3, "expected": 3}, True),
        ({"allowed": 0, "healthy": 4, "expected": 3}, True),
        ({"allowed": 0, "healthy": 1, "expected": 1}, True),
        ({"allowed": 1, "healthy": 3, "expected": 3}, False),
        ({"allowed": 0, "healthy": 2, "expected": 3}, True),
        ({"allowed": 0, "healthy": 2, "expected": 4}, False),
    ],
)
def test_a_budget_is_judged_by_its_numbers_where_its_rule_does_not_tell(numbers: dict[str, t.Any], never: bool) -> None:
    assert (
        budgets.fully_blocking(snapshot(), Budget.of(over(rule={"minAvailable": "90%"}, desired=3, **numbers))) is never
    )
