# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Virtual machines as KubeVirt 1.6 and later makes them, and what its webhook answers to an eviction of their pods.

The table is that of ``docs/handling-eviction-requests.md``, the objects are as ``virt-controller`` and ``virt-handler``
(``vm.go``, the condition LiveMigratable) write them: kubevirt d923fdb. A machine without a strategy of its own has that
of the KubeVirt object, which is None unless set (``pkg/virt-config/configuration.go``).
"""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import preflight
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy, PodPlan
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    budget,
    node,
    owned,
    pod,
    snapshot,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import CONSENT, NOW, only

NOT_SHARED = (
    "cannot migrate VMI: PVC disk is not shared, live migration requires that all PVCs must be shared (using "
    "ReadWriteMany access mode)"
)
SCRATCH: list[Raw] = [{"name": "private", "emptyDir": {}}, {"name": "sockets", "emptyDir": {}}]
EMPTIED = DrainPolicy(delete_emptydir_data=True)
CONSENTED = DrainPolicy(delete_emptydir_data=True, allow_interruption=True)


def machine(strategy: str | None, migratable: bool | None) -> Raw:
    """VirtualMachineInstance shop/vm; its condition is missing until virt-handler has looked."""
    no: Raw = {"status": "False", "reason": "DisksNotLiveMigratable", "message": NOT_SHARED}
    condition = {"type": "LiveMigratable", **({"status": "True"} if migratable else no)}
    return {
        "metadata": {"name": "vm", "namespace": "shop", "uid": "uid-VirtualMachineInstance-vm"},
        "spec": {"evictionStrategy": strategy} if strategy else {},
        "status": {"phase": "Running", "nodeName": "n1", "conditions": [] if migratable is None else [condition]},
    }


def settings(strategy: str = "") -> Raw:
    meta = {"name": "kubevirt", "namespace": "kubevirt", "uid": "uid-kubevirt"}
    return {"metadata": meta, "spec": {"configuration": {"evictionStrategy": strategy} if strategy else {}}}


def launcher(**changes: t.Any) -> Raw:
    labels = {
        "kubevirt.io": "virt-launcher",
        "kubevirt.io/created-by": "uid-VirtualMachineInstance-vm",
        "vm.kubevirt.io/name": "vm",
    }
    notes = {"kubevirt.io/domain": "vm", **changes.pop("annotations", {})}
    owner = owned("VirtualMachineInstance", "vm", "kubevirt.io/v1")
    return pod("virt-launcher-vm-x", owner=owner, labels=labels, annotations=notes, volumes=SCRATCH, **changes)


def planned(
    strategy: str | None,
    migratable: bool | None,
    choices: DrainPolicy = EMPTIED,
    default: Raw | None = None,
    changes: Raw | None = None,
    **kinds: list[Raw],
) -> PodPlan:
    machines, defaults = [machine(strategy, migratable)], [default] if default else []
    found = {"virtual_machines": machines, "kubevirts": defaults, **kinds}
    return only(snapshot(pods=[launcher(**(changes or {}))], **found), choices)


@pytest.mark.parametrize(
    ("strategy", "migratable", "answer", "route", "code"),
    [
        ("None", True, 200, "refuse", "not_surgeable"),
        ("None", False, 200, "refuse", "not_surgeable"),
        ("LiveMigrate", True, 429, "evict", "operator_budget"),
        ("LiveMigrate", False, None, "refuse", "not_migratable"),
        ("LiveMigrate", None, None, "refuse", "not_migratable"),
        ("LiveMigrateIfPossible", True, 429, "evict", "operator_budget"),
        ("LiveMigrateIfPossible", False, 200, "refuse", "not_surgeable"),
        ("LiveMigrateIfPossible", None, 200, "refuse", "not_surgeable"),
        ("External", True, 429, "evict", "operator_budget"),
        ("External", False, 429, "evict", "operator_budget"),
    ],
)
def test_the_plan_follows_the_answer_of_the_webhook(
    strategy: str, migratable: bool | None, answer: int | None, route: str, code: str
) -> None:
    """200: the machine is shut down. 429: it is evacuated, or, for None, never."""
    plan = planned(strategy, migratable)
    assert (plan.route, plan.code) == (route, code)
    assert "VirtualMachineInstance shop/vm" in plan.reason
    assert plan.remedy
    agreed = planned(strategy, migratable, CONSENTED)
    expected = {200: ("evict", "interruption_allowed"), 429: (route, code), None: ("refuse", "not_migratable")}
    assert (agreed.route, agreed.code) == expected[answer]
    on_the_pod = planned(strategy, migratable, changes={"annotations": CONSENT})
    assert (on_the_pod.route, on_the_pod.code) == expected[answer]


@pytest.mark.parametrize(
    ("default", "code"),
    [
        (settings("LiveMigrate"), "operator_budget"),
        (settings("None"), "not_surgeable"),
        (settings(), "not_surgeable"),
        (None, "not_surgeable"),
    ],
)
def test_a_machine_without_a_strategy_has_that_of_the_cluster(default: Raw | None, code: str) -> None:
    plan = planned(None, True, default=default)
    assert plan.code == code
    known = "is shut down by an eviction: its eviction strategy is None" in plan.reason
    assert known is (code == "not_surgeable" and default is not None), "unread, it is unknown"
    assert planned("LiveMigrate", True, default=settings("None")).code == "operator_budget", "its own comes first"


def test_why_a_machine_cannot_be_migrated_is_told() -> None:
    stays, stops = planned("LiveMigrate", False), planned("LiveMigrateIfPossible", False)
    for plan in (stays, stops):
        assert NOT_SHARED in plan.reason
    assert "LiveMigrateIfPossible" in stays.remedy
    assert "maintain_allow_interruption" in stays.remedy
    assert "maintain_allow_interruption" in stops.remedy


def test_what_is_denied_for_good_is_told_before_what_consent_could_change() -> None:
    assert planned("LiveMigrate", False, DrainPolicy()).code == "not_migratable"
    assert planned("LiveMigrate", True, DrainPolicy()).code == "emptydir"


@pytest.mark.parametrize("strategy", ["LiveMigrate", "None"])
def test_without_evictions_no_webhook_is_asked(strategy: str) -> None:
    deleted = DrainPolicy(delete_emptydir_data=True, disable_eviction=True, allow_interruption=True)
    assert planned(strategy, True, deleted).code == "disable_eviction"


def test_machines_that_cannot_be_read_are_judged_by_their_pods_and_the_remedy_says_what_is_missing() -> None:
    plan = only(snapshot(pods=[launcher()]), EMPTIED)
    assert (plan.route, plan.code) == ("refuse", "not_surgeable")
    assert "list on virtualmachineinstances.kubevirt.io" in plan.remedy
    assert only(snapshot(pods=[launcher()]), CONSENTED).code == "interruption_allowed"


def test_a_namesake_is_another_machine() -> None:
    other = machine("LiveMigrate", True)
    other["metadata"]["uid"] = "uid-of-an-older-one"
    assert only(snapshot(pods=[launcher()], virtual_machines=[other]), EMPTIED).code == "not_surgeable"


@pytest.mark.parametrize(("migratable", "code"), [(True, "operator_budget"), (False, "not_migratable")])
def test_the_budget_of_earlier_versions_changes_nothing(migratable: bool, code: str) -> None:
    """KubeVirt 1.5: minAvailable 1 over the pod, which its webhook does not ask."""
    selector = {"matchLabels": {"kubevirt.io/created-by": "uid-VirtualMachineInstance-vm"}}
    laid = budget("kubevirt-disruption-budget-x", 0, healthy=1, desired=1, expected=1, selector=selector)
    plan = planned("LiveMigrate", migratable, budgets=[laid])
    assert plan.code == code


@pytest.mark.parametrize(
    ("strategy", "migratable", "severity"),
    [("LiveMigrate", True, "warning"), ("LiveMigrate", False, "blocker"), ("None", True, "blocker")],
)
def test_before_the_first_write_it_is_a_finding(strategy: str, migratable: bool, severity: str) -> None:
    pods, machines = [launcher()], [machine(strategy, migratable)]
    seen = snapshot(pods=pods, virtual_machines=machines, nodes=[node("n1"), node("n2")])
    plan = only(seen, EMPTIED)
    found = preflight.findings(seen, [plan], preflight.DraftOptions(("n1",), EMPTIED, now=NOW), (("n1",),))
    (told,) = [one for one in found if one.code == plan.code]
    assert told.severity == severity
    assert told.object == "VirtualMachineInstance shop/vm"
