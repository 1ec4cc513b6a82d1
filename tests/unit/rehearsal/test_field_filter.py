# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a snapshot keeps of each kind of object, and which it does without."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.rehearsal import field_filter

Raw = dict[str, t.Any]
META: Raw = {"name": "x", "namespace": "shop", "uid": "u"}


def kept(plural: str, /, **parts: t.Any) -> Raw | None:
    return field_filter.slim(plural, {"metadata": {**META, **parts.pop("metadata", {})}, **parts})


@pytest.mark.parametrize(
    ("kind", "spec", "status", "stays"),
    [
        ("replica_sets", {"replicas": 0}, {}, False),
        ("replica_sets", {"replicas": 0}, {"replicas": 1}, True),
        ("replica_sets", {"replicas": 1}, {}, True),
        ("replica_sets", {}, {}, True),
        ("deployments", {"replicas": 0}, {}, True),
        ("jobs", {}, {}, False),
        ("jobs", {}, {"active": 1}, True),
    ],
)
def test_old_replica_sets_and_jobs_that_have_ended_are_left_out(kind: str, spec: Raw, status: Raw, stays: bool) -> None:
    assert (kept(kind, spec=spec, status=status) is not None) == stays


@pytest.mark.parametrize(
    ("phase", "stays"), [("Running", True), ("Pending", True), ("Succeeded", False), ("Failed", False)]
)
def test_pods_that_have_ended_are_left_out(phase: str, stays: bool) -> None:
    assert (kept("pods", spec={}, status={"phase": phase}) is not None) == stays


def test_what_is_being_deleted_and_what_is_ours_is_left_out() -> None:
    assert kept("deployments", spec={}) is not None
    assert kept("deployments", metadata={"deletionTimestamp": "2026-01-01T00:00:00Z"}, spec={}) is None
    ours = {"labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY}}
    assert kept("budgets", metadata=ours, spec={}) is None
    assert kept("pods", metadata=ours, kind="Pod", status={"phase": "Running"}) is not None, "of our own template"
    assert field_filter.slim("namespaces", {"metadata": {"name": names.NAMESPACE}}) is None
    assert kept("budgets", metadata={"namespace": names.NAMESPACE}, spec={}) is None


def test_templates_of_claims_are_kept_by_name_and_by_what_they_ask_for() -> None:
    asked = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    claims = [{"metadata": {"name": "data", "labels": {"a": "b"}}, "spec": asked}, {"metadata": {"name": "bare"}}]
    found = kept("stateful_sets", spec={"volumeClaimTemplates": claims})
    assert found is not None
    assert [(one["metadata"], one["spec"]) for one in found["spec"]["volumeClaimTemplates"]] == [
        ({"name": "data"}, asked),
        ({"name": "bare"}, {}),
    ]
    assert "volumeClaimTemplates" not in (kept("stateful_sets", spec={}) or {})["spec"]


def test_labels_of_a_namespace_are_kept_but_for_those_of_pod_security() -> None:
    labels = {"team": "a", "pod-security.kubernetes.io/enforce": "restricted"}
    assert field_filter.slim("namespaces", {"metadata": {"name": "shop", "labels": labels}}) == {
        "metadata": {"name": "shop", "labels": {"team": "a"}}
    }


def test_classes_are_kept_without_their_labels() -> None:
    found = kept("priority_classes", metadata={"labels": {"team": "a"}}, value=7, description="x")
    assert found is not None
    assert "labels" not in found["metadata"]
    assert {key: value for key, value in found.items() if key != "metadata"} == {"value": 7}


@pytest.mark.parametrize(("phase", "bound"), [("Bound", True), ("Pending", False), (None, False)])
def test_whether_a_claim_is_bound_is_kept(phase: str | None, bound: bool) -> None:
    found = kept("claims", spec={}, **({"status": {"phase": phase}} if phase else {}))
    assert found is not None
    assert found["bound"] is bound


@pytest.mark.parametrize("scratch", [{}, {"medium": "Memory", "sizeLimit": "1Gi"}])
def test_scratch_space_is_kept_with_what_it_takes(scratch: Raw) -> None:
    found = kept("pods", spec={"volumes": [{"name": "tmp", "emptyDir": scratch}]}, status={"phase": "Running"})
    assert found is not None
    assert found["spec"]["volumes"] == [{"name": "tmp", "emptyDir": scratch}]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({}, {"local": False}),
        ({"csi": {"driver": "d", "volumeHandle": "h"}}, {"driver": "d", "local": False}),
        ({"csi": {"volumeHandle": "h"}}, {"driver": "", "local": False}),
        ({"local": {"path": "/x"}}, {"local": True}),
        (
            {"claimRef": {"name": "data", "uid": "u"}},
            {"local": False, "claim": {"namespace": "", "name": "data"}},
        ),
    ],
)
def test_a_volume_keeps_its_driver_its_claim_and_whether_it_is_local(spec: Raw, told: Raw) -> None:
    found = kept("volumes", spec=spec)
    assert found is not None
    assert {key: value for key, value in found.items() if key not in ("metadata", "spec")} == told


def test_only_services_that_select_pods_are_kept_with_numbered_ports() -> None:
    assert kept("services", spec={}) is None
    assert kept("services") is None
    ports = [{"name": "http", "port": 80}, {"port": 53, "protocol": "UDP"}]
    found = kept("services", spec={"selector": {"app": "web"}, "ports": ports, "clusterIP": "None"})
    assert found is not None
    assert found["spec"] == {
        "selector": {"app": "web"},
        "headless": True,
        "publishNotReadyAddresses": False,
        "ports": [
            {"name": "p0", "port": 80, "protocol": "TCP"},
            {"name": "p1", "port": 53, "protocol": "UDP"},
        ],
    }
    other = kept("services", spec={"selector": {"app": "web"}, "publishNotReadyAddresses": True})
    assert other is not None
    assert (other["spec"]["headless"], other["spec"]["publishNotReadyAddresses"]) == (False, True)


@pytest.mark.parametrize(
    ("kind", "status", "phase", "codes"),
    [
        ("pods", {}, "Succeeded", ["finished"]),
        ("pods", {}, "Running", []),
        ("deployments", {}, "Failed", []),
    ],
)
def test_what_the_copy_lacks_of_an_object_is_noted(kind: str, status: Raw, phase: str, codes: list[str]) -> None:
    assert field_filter.notes(kind, {"metadata": META, "status": {**status, "phase": phase}}) == codes
