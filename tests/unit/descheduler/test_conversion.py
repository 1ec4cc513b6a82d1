# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A policy of the sigs descheduler, and what koord-descheduler takes of it."""

from __future__ import annotations

import typing as t

import pytest
import yaml
from support.verdicts.cases import chosen, judged, whole

from ansible_collections.kubeops.node_maintenance.plugins.filter.to_koordinator import FilterModule
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.check import check, errors, schema_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.conversion import Converted, convert
from ansible_collections.kubeops.node_maintenance.tests.unit.descheduler.documents import GONE, Raw, changed, sigs

VERSIONS = ("1.7.0", "1.8.0")

USAGE = {"LowNodeUtilization/metricsUtilization": GONE, "metricsProviders": GONE}
USAGE |= {f"LowNodeUtilization/{key}": {"cpu": 20} for key in ("thresholds", "targetThresholds")}
EVICTOR = "profiles[0].pluginConfig[0].args"


def converted(changes: t.Mapping[str, t.Any], version: str = "1.7.0") -> Converted:
    made = convert(changed(sigs(), changes), version, "5m")
    assert errors(check(made.config, schema_of("koordinator", version))) == ()
    return made


def args_of(made: Converted, plugin: str) -> Raw:
    (args,) = (
        entry["args"]
        for profile in made.config["profiles"]
        for entry in profile["pluginConfig"]
        if entry["name"] == plugin
    )
    return t.cast("Raw", args)


def test_what_both_have_is_taken_over() -> None:
    made = converted({"gracePeriodSeconds": 30, **USAGE}, "1.8.0")
    assert made.config["deschedulingInterval"] == "5m"
    assert made.config["maxNoOfPodsToEvictPerNode"] == 5
    assert made.config["nodeSelector"]["matchExpressions"] == [
        {"key": "pool", "operator": "In", "values": ["a"]},
        {"key": "tier", "operator": "NotIn", "values": ["db"]},
    ]
    (profile,) = made.config["profiles"]
    assert profile["plugins"]["deschedule"]["enabled"] == [
        {"name": "RemovePodsViolatingNodeTaints"},
        {"name": "PodLifeTime"},
    ]
    assert args_of(made, "RemovePodsViolatingNodeTaints") == {"excludedTaints": ["reserved"]}
    assert args_of(made, "MigrationController") == {
        "defaultJobMode": "EvictDirectly",
        "defaultDeleteOptions": {"gracePeriodSeconds": 30},
        "nodeFit": True,
        "nodeSelector": "pool=a",
        "ignorePvcPods": True,
    }
    assert [left.path for left in made.left_out] == [
        f"{EVICTOR}.podProtections.config",
        f"{EVICTOR}.minReplicas",
        f"{EVICTOR}.minPodAge",
    ]


def test_a_plugin_is_left_out_if_one_of_its_arguments_has_no_counterpart() -> None:
    made = converted({})
    lost = {left.value["name"]: left.reason for left in made.left_out if left.path.endswith("]")}
    assert set(lost) == {"PodLifeTime", "LowNodeUtilization"}
    assert "LowNodeLoad" in lost["LowNodeUtilization"]
    assert "ImagePullBackOff" in lost["PodLifeTime"]
    enabled = [entry["name"] for place in made.config["profiles"][0]["plugins"].values() for entry in place["enabled"]]
    assert enabled == ["RemovePodsViolatingNodeTaints", "RemoveDuplicates"]
    assert "metricsProviders" in {left.path for left in made.left_out}


@pytest.mark.parametrize(
    ("args", "flags", "lost"),
    [
        ({"podProtections": {"defaultDisabled": ["PodsWithLocalStorage"]}}, {"evictLocalStoragePods": True}, []),
        ({"podProtections": {"defaultDisabled": ["SystemCriticalPods"]}}, {"evictSystemCriticalPods": True}, []),
        ({"podProtections": {"defaultDisabled": ["FailedBarePods"]}}, {"evictFailedBarePods": True}, []),
        ({"podProtections": {"extraEnabled": ["PodsWithPVC"]}}, {"ignorePvcPods": True}, []),
        (
            {"ignorePvcPods": True, "evictFailedBarePods": False},
            {"ignorePvcPods": True, "evictFailedBarePods": False},
            [],
        ),
        ({"priorityThreshold": {"value": 5}}, {"priorityThreshold": {"value": 5}}, []),
        ({"priorityThreshold": {"name": "high"}}, {}, ["priorityThreshold.name"]),
        ({"podProtections": {"defaultDisabled": ["DaemonSetPods"]}}, {}, ["podProtections.defaultDisabled[0]"]),
        ({"podProtections": {"extraEnabled": ["PodsWithResourceClaims"]}}, {}, ["podProtections.extraEnabled[0]"]),
        ({"evictDaemonSetPods": True}, {}, ["evictDaemonSetPods"]),
        ({"ignorePodsWithoutPDB": True}, {}, ["ignorePodsWithoutPDB"]),
        ({"noEvictionPolicy": "Mandatory"}, {}, ["noEvictionPolicy"]),
        ({"noEvictionPolicy": "Preferred", "minReplicas": 1}, {}, []),
        ({"namespaceLabelSelector": {"matchLabels": {"a": "b"}}}, {}, ["namespaceLabelSelector"]),
        ({"labelSelector": {"matchLabels": {"a": "b"}}}, {"labelSelector": {"matchLabels": {"a": "b"}}}, []),
    ],
)
def test_what_becomes_of_the_evictors_arguments(args: Raw, flags: Raw, lost: list[str]) -> None:
    made = converted({EVICTOR: args, **USAGE}, "1.8.0")
    assert args_of(made, "MigrationController") == {"defaultJobMode": "EvictDirectly", **flags}
    assert [left.path for left in made.left_out] == [f"{EVICTOR}.{path}" for path in lost]
    assert all(left.reason.endswith(".") for left in made.left_out)


def test_of_several_profiles_only_one_gets_jobs_since_1_8_0() -> None:
    changes = {"profiles[1]": {"name": "default"}, "gracePeriodSeconds": 5}
    old, new = (converted(changes, version) for version in VERSIONS)
    assert [[entry["name"] for entry in made.config["profiles"][1]["pluginConfig"]] for made in (old, new)] == [
        ["MigrationController"],
        [],
    ]
    assert new.config["profiles"][1]["plugins"]["evict"]["enabled"] == [{"name": "DefaultEvictor"}]
    assert [profile["name"] for profile in new.config["profiles"]] == ["default", "default-1"]
    assert {"profiles[1]", "gracePeriodSeconds"} <= {left.path for left in new.left_out}
    assert "profiles[1]" not in {left.path for left in old.left_out}


@pytest.mark.parametrize("version", VERSIONS)
def test_whatever_is_valid_here_is_valid_there(version: str) -> None:
    source = schema_of("sigs")
    some = [case for case in chosen(tuple(whole(source)), 200) if errors(judged(case.text, source)) == ()]
    assert len(some) > 20
    for case in some:
        made = convert(yaml.safe_load(case.text), version)
        assert errors(check(made.config, schema_of("koordinator", version))) == (), case.name


def test_the_filter_takes_text_and_names_errors() -> None:
    to_koordinator = FilterModule().filters()["to_koordinator"]
    assert to_koordinator(yaml.dump(sigs())) == to_koordinator(sigs())
    for policy, version, said in (
        ("a: b: c", "1.7.0", "not valid YAML"),
        ({"kind": "DeschedulerConfiguration"}, "1.7.0", "apiVersion: apiVersion is missing"),
        (sigs(), "1.6.0", "use one of 1.7.0, 1.8.0"),
    ):
        with pytest.raises(ValueError, match=said):
            to_koordinator(policy, version)
