# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a job may not be, though its CRD takes it: told with its path before anything is written."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import typed
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.typed import TYPES, faults

Raw = dict[str, t.Any]

PRIMITIVE = {"str", "bool", "int32", "int64", "quantity", "time", "duration", "-"}


def paths(kind: str, value: t.Any) -> list[str]:
    return [path for path, _value, _words in faults(kind, value, "x")]


def test_pod_fields_that_only_the_newer_koordinator_knows_are_valid() -> None:
    spec = {"containers": [{"name": "web"}], "resources": {"requests": {"cpu": "1"}}}
    template = {"spec": {"template": {"spec": spec}, "owners": [{"labelSelector": {}}]}}
    assert list(typed.template(template)) == []
    assert paths("PodSpec", {"resources": {"requests": 1}}) == ["x.resources.requests"]


def test_what_a_pod_runs_is_left_out_of_a_template_whatever_it_is() -> None:
    runs = {"env": [{"name": 1}], "livenessProbe": {"exec": "x"}}
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    volumes = [claim, {"name": "conf", "configMap": 7}]
    spec = {"dnsPolicy": 1, "containers": [{"name": "web", **runs}], "volumes": volumes, "nodeSelector": {"a": "b"}}
    meta = {"labels": {"app": "web"}, "resourceVersion": 7}
    template = {"spec": {"ttl": "5m", "template": {"metadata": meta, "spec": spec}}}
    assert list(typed.template(template)) == []
    kept = {"containers": [{"name": "web"}], "volumes": [claim, {"name": "conf"}], "nodeSelector": {"a": "b"}}
    inner = {"metadata": {"labels": {"app": "web"}}, "spec": kept}
    assert typed.used(template) == {"spec": {"ttl": "5m", "template": inner}}


def test_every_type_that_is_named_is_known() -> None:
    for name, fields in TYPES.items():
        for field, kind in fields.items():
            assert kind.strip("[]{}") in PRIMITIVE | set(TYPES), f"{name}.{field}"


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("5m", 300),
        ("1h30m", 5400),
        ("90s", 90),
        (90, 90),
        ("90", 90),
        ("1.5m", 90),
        (1, 1),
        ("1s", 1),
        ("0", None),
        (0, None),
        ("0s", None),
    ],
)
def test_a_ttl(value: t.Any, seconds: float | None) -> None:
    assert typed.ttl(value) == seconds


@pytest.mark.parametrize("value", ["5 minutes", True, "-5m", "1d", "5m ago", "", "100ms", "999ms", [], "٣s"])
def test_no_ttl(value: t.Any) -> None:
    assert typed.ttl(value) == typed.TTL_WORDS


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("str", "1"),
        ("bool", False),
        ("int32", -(2**31)),
        ("int32", 2**31 - 1),
        ("int64", -(2**63)),
        ("int64", 2**63 - 1),
        ("quantity", "500m"),
        ("quantity", "4Gi"),
        ("quantity", "1e3"),
        ("quantity", 2),
        ("quantity", 0.5),
        ("time", "2026-11-21T05:30:00Z"),
        ("time", "2026-11-21T05:30:00.123+01:00"),
        ("duration", "1h30m"),
        ("[str]", ["a"]),
        ("{str}", {"a": "b"}),
        ("{quantity}", {"cpu": "1"}),
        ("PodSpec", None),
        ("PodSpec", {"containers": None}),
    ],
)
def test_go_decodes(kind: str, value: t.Any) -> None:
    assert paths(kind, value) == []


@pytest.mark.parametrize(
    ("kind", "value", "path"),
    [
        ("str", 1, "x"),
        ("str", True, "x"),
        ("bool", "true", "x"),
        ("bool", 0, "x"),
        ("int32", 2**31, "x"),
        ("int32", -(2**31) - 1, "x"),
        ("int64", 2**63, "x"),
        ("int64", -(2**63) - 1, "x"),
        ("int32", "60", "x"),
        ("int64", 1.0, "x"),
        ("int64", True, "x"),
        ("quantity", "4 Gi", "x"),
        ("quantity", "4gb", "x"),
        ("quantity", True, "x"),
        ("time", "2026-11-21", "x"),
        ("time", "2026-13-21T05:30:00Z", "x"),
        ("duration", 300, "x"),
        ("duration", "5 minutes", "x"),
        ("[str]", "a", "x"),
        ("[str]", ["a", 1], "x[1]"),
        ("{str}", ["a"], "x"),
        ("{str}", {"a": 1}, "x.a"),
        ("{str}", {1: "a"}, "x"),
        ("PodSpec", [], "x"),
        ("PodSpec", {"tolerations": [{"tolerationSeconds": "30"}]}, "x.tolerations[0].tolerationSeconds"),
        ("PodSpec", {"nodeName": "n1", "contaniers": []}, "x.contaniers"),
    ],
)
def test_go_does_not_decode(kind: str, value: t.Any, path: str) -> None:
    assert paths(kind, value) == [path]


@pytest.mark.parametrize(("length", "valid"), [(1, True), (253, True), (254, False)])
def test_a_name_has_253_characters_at_most(length: int, valid: bool) -> None:
    assert (not list(typed.name("name", "a" * length))) is valid


@pytest.mark.parametrize(
    ("options", "path"),
    [
        ({"gracePeriodSeconds": 0}, ""),
        ({"gracePeriodSeconds": -1}, "o.gracePeriodSeconds"),
        ({"propagationPolicy": "Orphan"}, ""),
        ({"propagationPolicy": "orphan"}, "o.propagationPolicy"),
        ({"preconditions": {"resourceVersion": "7"}}, ""),
        ({"preconditions": {"uid": "u"}}, "o.preconditions.uid"),
        ({"dryRun": []}, ""),
        ({"dryRun": ["All"]}, "o.dryRun"),
    ],
)
def test_the_options_of_the_eviction(options: Raw, path: str) -> None:
    assert [found for found, _value, _words in typed.delete_options(options, "o")] == ([path] if path else [])


def test_a_misspelt_field_is_told_with_the_right_one() -> None:
    [(path, _value, words)] = faults("ReservationSpec", {"allocateonce": True}, "spec")
    assert path == "spec.allocateonce"
    assert "allocateOnce" in words


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({}, "reservation_template"),
        ({"metadata": {"name": "r"}}, "reservation_template"),
        ({"spec": []}, "reservation_template"),
        ({"spec": {"ttl": "5 minutes"}}, "reservation_template.spec.ttl"),
        ({"spec": {"ttl": "5m", "expires": "2026-11-21T05:30:00Z"}}, "reservation_template.spec.expires"),
        ({"spec": {"ttl": "5m", "allocateOnce": False}}, "reservation_template.spec.allocateOnce"),
        ({"spec": {"ttl": "5m", "allocatePolicy": "aligned"}}, "reservation_template.spec.allocatePolicy"),
        ({"spec": {"ttl": "5m"}, "metadata": {"name": "Not_A_Name"}}, "reservation_template.metadata.name"),
        ({"spec": {"ttl": "5m"}, "status": {}}, "reservation_template.status"),
        ({"spec": {"owners": [{}]}}, "reservation_template.spec.owners[0]"),
        ({"spec": {"owners": [{"object": {"name": "a"}}]}}, "reservation_template.spec.owners[0]"),
        (
            {"spec": {"owners": [{"controller": {"kind": "ReplicaSet", "name": "a", "apiVersion": "apps/v1"}}]}},
            "reservation_template.spec.owners[0].controller",
        ),
        (
            {"spec": {"template": {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "x"}}}]}}}},
            "reservation_template.spec.template.spec.containers[0].resources.requests.cpu",
        ),
    ],
)
def test_no_template(value: Raw, path: str) -> None:
    assert path in [found for found, _value, _words in typed.template(value)]


def test_a_template() -> None:
    value = {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Reservation",
        "metadata": {"name": "r-0", "labels": {"a": "b"}},
        "spec": {
            "ttl": "10m",
            "owners": [{"controller": {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "a", "uid": "1"}}],
            "template": {"spec": {"nodeSelector": {"pool": "new"}, "containers": [{"name": "c"}]}},
        },
    }
    assert list(typed.template(value)) == []


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ({"gracePeriodSeconds": -1}, "delete_options.gracePeriodSeconds"),
        ({"gracePeriodSeconds": "60"}, "delete_options.gracePeriodSeconds"),
        ({"gracePeriod": 60}, "delete_options.gracePeriod"),
        ({"propagationPolicy": "background"}, "delete_options.propagationPolicy"),
        ({"preconditions": {"uid": "x"}}, "delete_options.preconditions.uid"),
        ({"preconditions": "x"}, "delete_options.preconditions"),
        ({"dryRun": ["All"]}, "delete_options.dryRun"),
    ],
)
def test_no_delete_options(value: Raw, path: str) -> None:
    assert [found for found, _value, _words in typed.delete_options(value)] == [path]


def test_delete_options() -> None:
    assert list(typed.delete_options({"gracePeriodSeconds": 0, "preconditions": {"resourceVersion": "7"}})) == []


@pytest.mark.parametrize("name", ["Job", "a_b", "-a", "a-", "a..b", "", "a" * 254, "ä"])
def test_no_name(name: str) -> None:
    assert len(list(typed.name("name", name))) == 1


@pytest.mark.parametrize("name", ["a", "migrationjob-demo", "a.b", "1"])
def test_a_name(name: str) -> None:
    assert not list(typed.name("name", name))
