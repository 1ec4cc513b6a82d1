# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The questions that the rules of a route ask about one pod."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, node_taints, selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.pod_facts import PodFacts, RoutingContext
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import Record, Step
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    budget,
    deployment,
    guard,
    node,
    owned,
    pod,
    snapshot,
    workload,
)

WEB = owned("ReplicaSet", "web")
GUARD = names.guard_name("uid-ReplicaSet-web")
CONSENT = {names.ALLOW_INTERRUPTION: "true"}


def asking(found: Snapshot, choices: DrainPolicy | None = None) -> RoutingContext:
    return RoutingContext(found, choices or DrainPolicy(), frozenset({"n1"}), "", selectors.parse(""), {})


def case(found: Snapshot, choices: DrainPolicy | None = None) -> PodFacts:
    """Of its first pod."""
    return PodFacts(asking(found, choices), found.pods[0])


@pytest.mark.parametrize(
    ("state", "choices", "laid", "asked"),
    [
        pytest.param({}, DrainPolicy(), ["b"], ["b"], id="serving"),
        pytest.param({"phase": "Succeeded"}, DrainPolicy(), ["b"], [], id="finished"),
        pytest.param({"phase": "Pending"}, DrainPolicy(), ["b"], [], id="pending"),
        pytest.param({"deleting": "2026-01-01T00:00:00Z"}, DrainPolicy(), ["b"], [], id="terminating"),
        pytest.param({}, DrainPolicy(disable_eviction=True), ["b"], [], id="deleted, not evicted"),
        pytest.param({}, DrainPolicy(), ["b", GUARD], ["b"], id="our guard is removed beside another"),
        pytest.param({}, DrainPolicy(), [GUARD], [GUARD], id="our guard alone"),
    ],
)
def test_which_budgets_the_api_server_checks(
    state: Raw, choices: DrainPolicy, laid: list[str], asked: list[str]
) -> None:
    web = workload("ReplicaSet", "web", 1)
    budgets = [guard("ReplicaSet", "web", 1) if name == GUARD else budget(name, 1) for name in laid]
    found = snapshot(pods=[pod("p", owner=WEB, **state)], replica_sets=[web], budgets=budgets)
    assert [ref.name for ref in case(found, choices).asked] == asked


@pytest.mark.parametrize(
    ("on_pod", "on_workload", "choices", "consent"),
    [
        pytest.param({}, {}, DrainPolicy(), False, id="nobody"),
        pytest.param({}, {}, DrainPolicy(allow_interruption=True), True, id="the run"),
        pytest.param({}, CONSENT, DrainPolicy(), True, id="the workload"),
        pytest.param(CONSENT, {}, DrainPolicy(), False, id="a pod does not speak for its workload"),
        pytest.param({}, {names.ALLOW_INTERRUPTION: "yes"}, DrainPolicy(), False, id="another value"),
    ],
)
def test_who_allows_an_interruption(
    on_pod: dict[str, str], on_workload: dict[str, str], choices: DrainPolicy, consent: bool
) -> None:
    found = snapshot(deployment("web", 1, annotations=on_workload), pods=[pod("p", owner=WEB, annotations=on_pod)])
    assert case(found, choices).consent is consent


def test_a_pod_without_a_known_workload_has_no_replicas_and_its_own_owner() -> None:
    found = case(snapshot(pods=[pod("p", owner=owned("Database", "main", "example.org/v1"))]))
    assert (found.workload, found.replicas, found.surge, found.bad_surge) == (None, 0, None, None)
    assert str(found.owner) == "Database shop/main"


def test_the_place_in_line_counts_leaving_pods_of_the_owner_and_of_the_namespace() -> None:
    other = pod("other", owner=owned("ReplicaSet", "other"))
    stays = pod("stays", "n2", owner=WEB)
    found = snapshot(pods=[stays, pod("a", owner=WEB), other, pod("b", owner=WEB), pod("c", namespace="bank")])
    context, pods = asking(found), {raw.name: raw for raw in found.pods}
    assert [context.place_in_line("workload", "uid-ReplicaSet-web", pods[name]) for name in "ab"] == [0, 1]
    assert [context.place_in_line("namespace", "shop", pods[name]) for name in ("a", "other", "b")] == [0, 1, 2]
    assert context.place_in_line("namespace", "bank", pods["c"]) == 0


@pytest.mark.parametrize(
    ("step", "emptied"), [("cordoned", False), ("drained", True), ("out", True), ("parked", True), ("returning", True)]
)
def test_a_node_in_maintenance_is_held_by_what_its_record_says(step: Step, emptied: bool) -> None:
    taint: Raw = {"key": names.TAINT_KEY, "value": "r1", "effect": "NoSchedule"}
    record = Record("r1", "n", "ann", "", "2026-01-01T00:00:00Z", step, "uid-n1", "", {}, (taint,))
    found = snapshot(nodes=[node("n1", annotations={names.RECORD: record.dump()})])
    assert asking(found).keeps_out("n1") == ((node_taints.CORDON, taint), emptied)


@pytest.mark.parametrize("annotations", [{}, {names.RECORD: "{"}])
def test_a_node_without_a_record_that_can_be_read_is_taken_to_be_held_by_our_taint(annotations: dict[str, str]) -> None:
    context = asking(snapshot(nodes=[node("n1", annotations=annotations)]))
    ours: Raw = {"key": names.TAINT_KEY, "effect": "NoSchedule"}
    assert context.keeps_out("n1") == context.keeps_out("n9") == ((node_taints.CORDON, ours), False)
