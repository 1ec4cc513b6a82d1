# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The policy of the sigs descheduler: one word changed, and what is said of it."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.check import check, errors, schema_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.schemas import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.descheduler.documents import (
    GONE,
    Raw,
    changed,
    sigs,
    spoiled,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.descheduler.rules import RULES

PROFILE = "profiles[0]"
EVICTOR, EXTRA = "DefaultEvictor", "[0].args.podProtections.extraEnabled"
USE = "LowNodeUtilization/metricsUtilization"


def found(changes: t.Mapping[str, t.Any]) -> tuple[Fault, ...]:
    return check(changed(sigs(), changes), schema_of("sigs"))


def test_a_whole_policy_is_right() -> None:
    assert check(sigs(), schema_of("sigs")) == ()


ERRORS: list[tuple[Raw, str, str, str]] = [
    ({"kind": "DeschedulerConfiguration"}, "kind", "wrong_document", "refuses"),
    ({"dryRun": True}, "dryRun", "unknown_key", "drops"),
    ({"NodeSelector": "a=b"}, "NodeSelector", "look_alike", "drops"),
    ({"nodeSelector": {"matchLabels": {}}}, "nodeSelector", "wrong_type", "refuses"),
    ({"nodeSelector": "a=b=c"}, "nodeSelector", "malformed", "refuses"),
    ({"gracePeriodSeconds": -1}, "gracePeriodSeconds", "out_of_range", "starts"),
    ({"prometheus": {}}, "prometheus", "unknown_key", "drops"),
    ({f"{PROFILE}.plugins.preEvictionFilter": {}}, f"{PROFILE}.plugins.preEvictionFilter", "look_alike", "drops"),
    ({f"{PROFILE}.plugins.evict": {}}, f"{PROFILE}.plugins.evict", "unknown_key", "drops"),
    ({f"{PROFILE}.pluginConfig[0].nodeFit": True}, f"{PROFILE}.pluginConfig[0].nodeFit", "unknown_key", "drops"),
    (
        {f"{PROFILE}.plugins.deschedule.enabled": [{"name": "PodLifeTime"}]},
        f"{PROFILE}.plugins.deschedule.enabled[0]",
        "wrong_type",
        "refuses",
    ),
    (
        {f"{PROFILE}.plugins.deschedule.enabled[2]": "RemoveDuplicates"},
        f"{PROFILE}.plugins.deschedule.enabled[2]",
        "wrong_point",
        "refuses",
    ),
    (
        {f"{PROFILE}.plugins.deschedule.enabled[2]": "RemoveFailedPod"},
        f"{PROFILE}.plugins.deschedule.enabled[2]",
        "look_alike",
        "refuses",
    ),
    (
        {f"{PROFILE}.plugins.deschedule.enabled[2]": "RemoveFailedPods"},
        f"{PROFILE}.plugins.deschedule.enabled[2]",
        "no_config",
        "refuses",
    ),
    (
        {f"{PROFILE}.pluginConfig[5]": {"name": "LowNodeLoad"}},
        f"{PROFILE}.pluginConfig[5]",
        "unknown_plugin",
        "refuses",
    ),
    ({"metricsProviders[2]": {"source": "KubernetesMetrics"}}, "metricsProviders[2]", "duplicate", "refuses"),
    ({"metricsProviders[1].prometheus": GONE}, "metricsProviders[1].prometheus", "required", "refuses"),
    ({"metricsProviders[1].prometheus.url": ""}, "metricsProviders[1].prometheus.url", "required", "refuses"),
    (
        {"metricsProviders[1].prometheus.authToken": {}},
        "metricsProviders[1].prometheus.authToken.secretReference",
        "required",
        "refuses",
    ),
    ({"metricsCollector": {"enabled": True}}, "metricsProviders[0]", "exclusive", "refuses"),
    ({f"{EVICTOR}/minReplica": 2}, "[0].args.minReplica", "look_alike", "refuses"),
    ({f"{EVICTOR}/minPodAge": 5}, "[0].args.minPodAge", "wrong_type", "refuses"),
    ({f"{EVICTOR}/noEvictionPolicy": "Never"}, "[0].args.noEvictionPolicy", "not_in_list", "refuses"),
    (
        {f"{EVICTOR}/priorityThreshold": {"value": 1, "name": "high"}},
        "[0].args.priorityThreshold",
        "exclusive",
        "refuses",
    ),
    (
        {f"{EVICTOR}/podProtections.extraEnabled[0]": "PVC"},
        f"{EXTRA}[0]",
        "not_in_list",
        "refuses",
    ),
    (
        {f"{EVICTOR}/podProtections.extraEnabled[1]": "PodsWithPVC"},
        f"{EXTRA}[1]",
        "duplicate",
        "refuses",
    ),
    (
        {f"{EVICTOR}/podProtections.config.PodsWithPVC.protectedStorageClasses": [{"name": ""}]},
        "[0].args.podProtections.config.PodsWithPVC.protectedStorageClasses[0].name",
        "required",
        "refuses",
    ),
    ({f"{EVICTOR}/evictLocalStoragePods": True}, "[0].args.evictLocalStoragePods", "exclusive", "refuses"),
    (
        {"RemovePodsViolatingNodeTaints/includedTaints": ["a"]},
        "[1].args",
        "exclusive",
        "refuses",
    ),
    (
        {"PodLifeTime/maxPodLifeTimeSeconds": GONE, "PodLifeTime/states": []},
        "[2].args",
        "required",
        "refuses",
    ),
    ({"PodLifeTime/states": ["Sleeping"]}, "[2].args.states[0]", "not_in_list", "refuses"),
    ({"PodLifeTime/conditions": [{}]}, "[2].args.conditions[0]", "required", "refuses"),
    ({"PodLifeTime/ownerKinds": {"include": ["a"], "exclude": ["b"]}}, "[2].args.ownerKinds", "exclusive", "refuses"),
    ({f"{USE}.prometheus": {}}, "[3].args.metricsUtilization.prometheus.query", "required", "refuses"),
    ({"LowNodeUtilization/thresholds": {"cpu": 20}}, "[3].args.thresholds", "unknown_key", "refuses"),
    ({f"{USE}.source": "KubernetesMetrics"}, "[3].args.metricsUtilization.prometheus", "forbidden", "refuses"),
    (
        {USE: {"source": "KubernetesMetrics", "metricsServer": True}},
        "[3].args.metricsUtilization.metricsServer",
        "exclusive",
        "refuses",
    ),
    ({f"{USE}.source": "Graphite"}, "[3].args.metricsUtilization.source", "not_in_list", "starts"),
    ({"HighNodeUtilization/thresholds": {}}, "[5].args.thresholds", "required", "refuses"),
    (
        {"HighNodeUtilization/thresholds": {"cpu": 1}, "HighNodeUtilization/evictionModes": ["All"]},
        "[5].args.evictionModes[0]",
        "not_in_list",
        "refuses",
    ),
]


@pytest.mark.parametrize(
    ("changes", "path", "rule", "real"), [pytest.param(*case, id=f"{case[1]}-{case[2]}") for case in ERRORS]
)
def test_one_wrong_word_is_one_error(changes: Raw, path: str, rule: str, real: str) -> None:
    path = f"{PROFILE}.pluginConfig{path}" if path.startswith("[") else path
    wrong = errors(found(changes))
    assert (path, rule, real) in [(fault.path, fault.code, fault.real) for fault in wrong]
    assert all(fault.code in RULES for fault in wrong)
    assert len({(fault.path, fault.code) for fault in wrong}) == len(wrong)


WARNINGS: list[tuple[Raw, str, str]] = [
    ({"profiles": []}, "profiles", "never_acts"),
    ({f"{PROFILE}.plugins.balance.disabled": ["*"]}, f"{PROFILE}.plugins.balance.disabled[0]", "never_read"),
    ({f"{PROFILE}.plugins.balance.enabled": ["RemoveDuplicates"]}, "[3]", "not_enabled"),
    ({f"{EVICTOR}/podProtections": {}, f"{EVICTOR}/ignorePvcPods": True}, "[0].args.ignorePvcPods", "deprecated"),
    (
        {f"{EVICTOR}/podProtections.extraEnabled": ["PodsWithoutPDB"]},
        "[0].args.podProtections.extraEnabled",
        "never_acts",
    ),
    ({f"{EVICTOR}/nodeFit": False}, "[0].args.nodeSelector", "never_read"),
    ({"metricsProviders": GONE}, "[3].args.metricsUtilization.source", "never_acts"),
]


@pytest.mark.parametrize(
    ("changes", "path", "rule"),
    [pytest.param(*case, id=f"{case[1]}-{case[2]}") for case in WARNINGS],
)
def test_what_is_worth_knowing_stops_nobody(changes: Raw, path: str, rule: str) -> None:
    path = f"{PROFILE}.pluginConfig{path}" if path.startswith("[") else path
    said = found(changes)
    assert (path, rule, "warning") in [(fault.path, fault.code, fault.severity) for fault in said]
    assert errors(said) == ()


RIGHT: list[Raw] = [
    {},
    {f"{PROFILE}.plugins.filter": {"enabled": [EVICTOR]}},
    {f"{EVICTOR}/noEvictionPolicy": ""},
    {f"{EVICTOR}/priorityThreshold": {"value": 0}},
    {"RemoveDuplicates/excludeOwnerKinds": ["ReplicaSet"]},
    {"PodLifeTime/maxPodLifeTimeSeconds": GONE, "PodLifeTime/exitCodes": [137]},
    {"PodLifeTime/conditions": [{"type": "Ready", "minTimeSinceLastTransitionSeconds": 60}]},
    {"PodLifeTime/kind": "PodLifeTimeArgs", "PodLifeTime/apiVersion": "descheduler/v1alpha2"},
    {USE: {"source": "KubernetesMetrics"}},
]


@pytest.mark.parametrize("changes", RIGHT)
def test_nothing_is_said_of_what_is_right(changes: Raw) -> None:
    assert found(changes) == ()


def test_every_argument_is_checked_although_its_plugin_is_not_enabled() -> None:
    off: Raw = {f"{PROFILE}.plugins.deschedule.enabled": []}
    assert len(errors(found({**off, "PodLifeTime/states": ["Sleeping"]}))) == 1


def test_nobody_read_that_version() -> None:
    with pytest.raises(KeyError):
        schema_of("sigs", "0.20.0")


def test_nothing_that_yaml_can_hold_breaks_the_check() -> None:
    for document in spoiled(sigs()):
        assert all(fault.code in RULES for fault in check(document, schema_of("sigs")))
