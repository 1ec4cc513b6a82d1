# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A PodMigrationJob as it is read and written."""

from __future__ import annotations

import re
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import (
    PASSED,
    POD_UID_LABEL,
    REASON,
    RUN_LABEL,
    TRIGGER,
    Job,
    JobSettings,
    go_duration,
    manifest,
    name_of,
)

POD = Ref("Pod", "web-5d4f-x7k2p", "shop", "8c6f", "v1")


def job(**changes: t.Any) -> Job:
    """A job of ours for POD as the controller has it; `status` and `annotations` replace those parts."""
    raw = manifest("move-it", POD, changes.get("settings", JobSettings()))
    raw["metadata"]["annotations"] = changes.get("annotations", {})
    raw["spec"].update(changes.get("spec", {}))
    raw["status"] = changes.get("status", {})
    return Job.of(raw)


def test_a_job_names_its_pod_by_uid_and_lets_nothing_else_be_evicted() -> None:
    raw = manifest("x", POD, JobSettings(delete_options={"gracePeriodSeconds": 0}))
    assert raw["spec"]["podRef"] == {"namespace": "shop", "name": "web-5d4f-x7k2p", "uid": "8c6f"}
    assert raw["spec"]["deleteOptions"] == {"gracePeriodSeconds": 0, "preconditions": {"uid": "8c6f"}}
    assert raw["metadata"]["labels"][POD_UID_LABEL] == "8c6f"


def test_a_wanted_resource_version_stays_beside_the_uid() -> None:
    raw = manifest("x", POD, JobSettings(delete_options={"preconditions": {"resourceVersion": "7"}}))
    assert raw["spec"]["deleteOptions"]["preconditions"] == {"resourceVersion": "7", "uid": "8c6f"}


def test_a_pod_without_uid_gets_no_job() -> None:
    with pytest.raises(ValueError, match="UID"):
        manifest("x", replace(POD, uid=""), JobSettings())


def test_what_is_not_wished_is_not_written() -> None:
    raw = manifest("x", POD, JobSettings(ttl=None))
    assert set(raw["spec"]) == {"paused", "mode", "podRef", "deleteOptions"}
    assert set(raw["metadata"]["annotations"]) == {TRIGGER}
    assert RUN_LABEL not in raw["metadata"]["labels"]


def test_all_of_a_wish_is_written() -> None:
    settings = JobSettings("ReservationFirst", True, 90, "r-0", None, {}, "kernel", "night shift", "2026-11")
    raw = manifest("x", POD, settings)
    assert raw["spec"]["ttl"] == "90s"
    assert raw["spec"]["paused"]
    assert raw["spec"]["reservationOptions"] == {"reservationRef": {"name": "r-0"}}
    assert raw["metadata"]["annotations"] == {REASON: "kernel", TRIGGER: "night shift"}
    assert raw["metadata"]["labels"][RUN_LABEL] == "2026-11"


def test_the_template_is_written() -> None:
    template = {"spec": {"ttl": "5m"}}
    assert manifest("x", POD, JobSettings(template=template))["spec"]["reservationOptions"] == {"template": template}


@pytest.mark.parametrize(
    ("seconds", "text"), [(300, "300s"), (0.5, "0.5s"), (86400.0, "86400s"), (1e6, "1000000s"), (5e6, "5000000s")]
)
def test_durations_are_written_as_go_reads_them(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text
    assert job(spec={"ttl": text}).ttl == seconds


@pytest.mark.parametrize(
    "other",
    [
        JobSettings(paused=True),
        JobSettings(ttl=None),
        JobSettings(reason="x"),
        JobSettings(trigger="x"),
        JobSettings(run="x"),
    ],
)
def test_patience_and_reasons_make_no_other_job(other: JobSettings) -> None:
    assert name_of(POD, other) == name_of(POD, JobSettings())


@pytest.mark.parametrize(
    "other",
    [
        JobSettings("EvictDirectly"),
        JobSettings(reservation="r"),
        JobSettings(template={"spec": {}}),
        JobSettings(delete_options={"gracePeriodSeconds": 1}),
    ],
)
def test_another_way_to_move_is_another_job(other: JobSettings) -> None:
    assert name_of(POD, other) != name_of(POD, JobSettings())


def test_another_pod_of_the_name_is_another_job() -> None:
    assert name_of(replace(POD, uid="other"), JobSettings()) != name_of(POD, JobSettings())


def test_a_further_attempt_has_a_name_of_its_own() -> None:
    first = name_of(POD, JobSettings())
    assert name_of(POD, JobSettings(), 1) == f"{first}-2"


def test_a_name_stays_a_name_for_the_longest_pod() -> None:
    found = name_of(replace(POD, name="a" * 39 + "-." + "b" * 200), JobSettings())
    assert found.startswith("a" * 39 + "-")
    assert re.fullmatch("b{40}-[0-9a-f]{10}", name_of(replace(POD, name="b" * 253), JobSettings()))


def test_the_order_of_keys_makes_no_other_job() -> None:
    options = {"gracePeriodSeconds": 1, "propagationPolicy": "Orphan"}
    turned = dict(reversed(options.items()))
    assert name_of(POD, JobSettings(delete_options=options)) == name_of(POD, JobSettings(delete_options=turned))


def test_a_job_waits_until_it_passed_or_runs_or_ended() -> None:
    assert job().waiting
    assert not job(annotations={PASSED: "true"}).waiting
    assert not job(status={"phase": "Running"}).waiting
    assert not job(status={"phase": "Failed"}).waiting


@pytest.mark.parametrize("phase", ["Succeeded", "Succeed"])
def test_both_words_for_success_are_understood(phase: str) -> None:
    assert job(status={"phase": phase}).succeeded
    assert job(status={"phase": phase}).ended


@pytest.mark.parametrize(("phase", "ended"), [("", False), ("Pending", False), ("Running", False), ("Aborted", True)])
def test_final_phases(phase: str, ended: bool) -> None:
    assert job(status={"phase": phase}).ended == ended
    assert not job(status={"phase": phase}).succeeded


def test_the_wanted_uid_counts_and_not_what_the_controller_filled_in() -> None:
    found = job(spec={"podRef": {"namespace": "shop", "name": "db-0", "uid": "successor"}})
    assert found.pod.uid == "8c6f"


def test_the_end_of_a_move_is_read() -> None:
    status = {
        "phase": "Succeeded",
        "status": "Complete",
        "nodeName": "n2",
        "podRef": {"namespace": "shop", "name": "web-5d4f-aaaaa", "uid": "9"},
        "conditions": [{"type": "Eviction", "status": "True", "reason": "EvictComplete"}],
    }
    found = job(status=status, spec={"reservationOptions": {"reservationRef": {"name": "r"}}})
    assert (found.status, found.node, found.reservation) == ("Complete", "n2", "r")
    assert found.new_pod == Ref("Pod", "web-5d4f-aaaaa", "shop", "9", "v1")
    assert found.evicting
    assert found.condition("Eviction")["reason"] == "EvictComplete"
    assert found.condition("BoundPodReady") == {}


def test_a_bare_job_of_somebody_else_is_read() -> None:
    found = Job.of({"metadata": {"name": "x"}, "spec": {"podRef": {}}})
    assert not found.ours
    assert found.pod == Ref("Pod", "", "", "", "v1")
    assert (found.ttl, found.mode, found.new_pod) == (0, "", None)


@pytest.mark.parametrize(
    ("meta", "maker"),
    [
        ({"ownerReferences": [{"kind": "Roll", "name": "r"}], "labels": {RUN_LABEL: "night"}}, "Roll r"),
        ({"labels": {RUN_LABEL: "night"}, "annotations": {TRIGGER: "descheduler"}}, "run night"),
        ({"annotations": {TRIGGER: "descheduler"}, "managedFields": [{"manager": "kubectl"}]}, "descheduler"),
        ({"labels": {"app.kubernetes.io/created-by": "koord-descheduler"}}, "koord-descheduler"),
        ({"labels": {"app.kubernetes.io/managed-by": "helm"}}, "helm"),
        (
            {"managedFields": [{"manager": "late", "time": "2026-01-02"}, {"manager": "early", "time": "2026-01-01"}]},
            "early",
        ),
        ({}, "an unknown client"),
    ],
)
def test_who_made_a_job(meta: dict[str, t.Any], maker: str) -> None:
    raw = manifest("x", POD, JobSettings())
    assert Job.of({**raw, "metadata": {"name": "x", **meta}}).made_by == maker
