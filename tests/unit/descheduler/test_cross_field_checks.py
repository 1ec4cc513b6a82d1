# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Settings that are right alone and wrong together, each just below and at its bound."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.check import check, schema_of
from ansible_collections.kubeops.node_maintenance.tests.unit.descheduler.documents import (
    GONE,
    Raw,
    changed,
    koord,
    sigs,
)

MC, LNL, EVICTOR = "MigrationController", "LowNodeLoad", "DefaultEvictor"
ELECTION = "leaderElection"
USE = "LowNodeUtilization/metricsUtilization"


def koordinator(changes: t.Mapping[str, t.Any], version: str = "1.7.0") -> list[tuple[str, str]]:
    """The last word of each fault's path and what the descheduler does, or `warning`, in order."""
    found = check(changed(koord(), changes), schema_of("koordinator", version))
    return [(f.path.rpartition(".")[2], f.severity if f.severity == "warning" else f.real) for f in found]


def policy(changes: t.Mapping[str, t.Any]) -> list[tuple[str, str]]:
    found = check(changed(sigs(), changes), schema_of("sigs"))
    return [(f.path.rpartition(".")[2], f.severity if f.severity == "warning" else f.real) for f in found]


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        ({"leaseDuration": "11s"}, []),
        ({"leaseDuration": "10s"}, [("leaseDuration", "crashes")]),
        ({"leaseDuration": "9999ms"}, [("leaseDuration", "refuses")]),
        ({"renewDeadline": "14s"}, []),
        ({"renewDeadline": "15s"}, [("leaseDuration", "crashes")]),
        ({"retryPeriod": "8333ms"}, []),
        ({"retryPeriod": "8334ms"}, [("renewDeadline", "crashes")]),
        ({"renewDeadline": "2400ms"}, [("renewDeadline", "crashes")]),
        ({"renewDeadline": "2401ms"}, []),
        ({"retryPeriod": "0s"}, []),
        ({"leaderElect": False, "leaseDuration": "1s"}, []),
        ({"leaderElect": True, "leaseDuration": "1s"}, [("leaseDuration", "refuses")]),
        ({"retryPeriod": "-1s", "leaseDuration": "1s"}, [("retryPeriod", "refuses")]),
    ],
)
def test_a_lease_outlasts_its_renewal_and_that_its_retries(times: Raw, expected: list[tuple[str, str]]) -> None:
    assert koordinator({f"{ELECTION}.{key}": value for key, value in times.items()}) == expected


@pytest.mark.parametrize(
    ("changes", "version", "expected"),
    [
        ({"profiles[0].name": GONE}, "1.7.0", []),
        (
            {"profiles[0].name": GONE, "profiles[1]": {"name": "b"}},
            "1.7.0",
            [("name", "refuses"), ("evict", "warning")],
        ),
        ({"profiles[1]": {"name": "b"}}, "1.7.0", [("evict", "warning")]),
        ({"profiles[1]": {"name": "b"}}, "1.8.0", [("evict", "refuses")]),
        ({"profiles[1]": {"name": "b"}, "profiles[2]": {"name": "c"}}, "1.8.0", [("evict", "refuses")] * 2),
        (
            {"deschedulingInterval": "0s", f"{LNL}/detectorCacheTimeout": "1s"},
            "1.7.0",
            [("deschedulingInterval", "warning")],
        ),
        (
            {
                "deschedulingInterval": GONE,
                **{f"profiles[0].plugins.{point}.enabled": [] for point in ("deschedule", "balance")},
                "profiles[0].pluginConfig": [],
            },
            "1.7.0",
            [],
        ),
    ],
)
def test_profiles_together(changes: Raw, version: str, expected: list[tuple[str, str]]) -> None:
    assert koordinator(changes, version) == expected


POOL = f"{LNL}/nodePools[0]"


@pytest.mark.parametrize(
    ("changes", "version", "expected"),
    [
        ({f"{LNL}/detectorCacheTimeout": "120s"}, "1.7.0", []),
        ({f"{LNL}/detectorCacheTimeout": "119s"}, "1.7.0", [("detectorCacheTimeout", "warning")]),
        ({"deschedulingInterval": "5m"}, "1.7.0", []),
        ({"deschedulingInterval": "301s"}, "1.7.0", [("detectorCacheTimeout", "warning")]),
        ({"deschedulingInterval": "301s", f"{LNL}/anomalyCondition.consecutiveAbnormalities": 1}, "1.7.0", []),
        (
            {"deschedulingInterval": "301s", f"{LNL}/anomalyCondition.consecutiveAbnormalities": 2},
            "1.7.0",
            [("detectorCacheTimeout", "warning")],
        ),
        ({f"{LNL}/highThresholds": {}, f"{LNL}/lowThresholds": {}}, "1.7.0", []),
        (
            {f"{LNL}/highThresholds": {}, f"{LNL}/lowThresholds": {}, f"{LNL}/nodePools": []},
            "1.7.0",
            [("highThresholds", "warning")],
        ),
        ({f"{LNL}/nodePools": []}, "1.7.0", []),
        ({f"{LNL}/highThresholds.cpu": 100}, "1.7.0", []),
        ({f"{LNL}/highThresholds.cpu": 100.5}, "1.7.0", [("cpu", "warning")]),
        ({f"{LNL}/highThresholds.cpu": 100.5, f"{LNL}/useDeviationThresholds": True}, "1.7.0", []),
        ({f"{LNL}/highThresholds.disk": 50}, "1.7.0", [("lowThresholds", "warning")]),
        ({f"{LNL}/lowThresholds.disk": 50}, "1.7.0", [("highThresholds", "warning")]),
        ({f"{POOL}.highThresholds.cpu": 101}, "1.7.0", [("cpu", "warning")]),
        ({f"{POOL}.anomalyCondition": GONE}, "1.7.0", [("anomalyCondition", "crashes")]),
        (
            {f"{POOL}.anomalyCondition": {"consecutiveAbnormalities": 0}},
            "1.7.0",
            [("consecutiveAbnormalities", "refuses")],
        ),
        ({f"{POOL}.anomalyCondition": {"consecutiveAbnormalities": 1}}, "1.7.0", []),
        ({f"{POOL}.anomalyCondition": GONE}, "1.8.0", []),
        ({f"{LNL}/anomalyCondition": {"timeout": "1m"}}, "1.8.0", [("consecutiveNormalities", "refuses")]),
        ({f"{LNL}/anomalyCondition": {"consecutiveNormalities": 1}}, "1.8.0", []),
        ({f"{LNL}/anomalyCondition": {"consecutiveAbnormalities": 1}}, "1.8.0", []),
        ({f"{LNL}/anomalyCondition": {"timeout": "1m"}}, "1.7.0", []),
    ],
)
def test_low_node_load(changes: Raw, version: str, expected: list[tuple[str, str]]) -> None:
    assert koordinator(changes, version) == expected


PER, UNAVAILABLE = "maxMigratingPerWorkload", "maxUnavailablePerWorkload"


@pytest.mark.parametrize(
    ("changes", "version", "expected"),
    [
        ({f"{MC}/{PER}": 0}, "1.7.0", [(PER, "warning")]),
        ({f"{MC}/{PER}": "0%"}, "1.7.0", [(PER, "warning")]),
        ({f"{MC}/{PER}": "1%"}, "1.7.0", []),
        ({f"{MC}/{PER}": GONE}, "1.7.0", []),
        ({f"{MC}/{PER}": 1}, "1.7.0", [(PER, "warning")]),
        ({f"{MC}/{PER}": 2, f"{MC}/{UNAVAILABLE}": 2}, "1.7.0", [(PER, "warning"), (UNAVAILABLE, "warning")]),
        ({f"{MC}/{PER}": "100%"}, "1.7.0", [(PER, "warning")]),
        ({f"{MC}/{PER}": "99%"}, "1.7.0", []),
        ({f"{MC}/{PER}": 1, f"{MC}/skipCheckExpectedReplicas": True}, "1.7.0", []),
        ({f"{MC}/{PER}": 1, f"{MC}/skipEvictionGates": ["ExpectedReplicas"]}, "1.8.0", []),
        ({f"{MC}/{PER}": 1, f"{MC}/skipEvictionGates": ["PVC"]}, "1.8.0", [(PER, "warning")]),
        ({f"{MC}/objectLimiters.namespace": {"maxMigrating": 3}}, "1.7.0", []),
        ({f"{MC}/objectLimiters.namespace": {"maxMigrating": "3%"}}, "1.7.0", [("maxMigrating", "starts")]),
        ({f"{MC}/objectLimiters.namespace": {"duration": "1m"}}, "1.7.0", [("maxMigrating", "warning")]),
        ({f"{MC}/objectLimiters.namespace": {"duration": "0s"}}, "1.7.0", []),
        ({f"{MC}/objectLimiters.workload.maxMigrating": 0}, "1.7.0", [("maxMigrating", "warning")]),
        ({f"{MC}/objectLimiters.workload.maxMigrating": "3%"}, "1.7.0", []),
        ({f"{MC}/priorityThreshold": {"value": 2_000_000_000}}, "1.7.0", []),
        ({f"{MC}/priorityThreshold": {"value": 2_000_000_001}}, "1.7.0", [("value", "refuses")]),
        (
            {f"{MC}/priorityThreshold": {"value": 2_000_000_001}, f"{MC}/evictSystemCriticalPods": True},
            "1.7.0",
            [("value", "starts"), ("priorityThreshold", "warning")],
        ),
        (
            {f"{MC}/priorityThreshold": {"name": "system-node-critical"}},
            "1.7.0",
            [("name", "warning"), ("name", "refuses")],
        ),
        (
            {f"{MC}/priorityThreshold": {"name": "system-node-critical"}, f"{MC}/evictSystemCriticalPods": True},
            "1.7.0",
            [("name", "warning"), ("priorityThreshold", "warning")],
        ),
        ({f"{MC}/priorityThreshold": {"name": ""}}, "1.7.0", []),
        ({f"{MC}/evictSystemCriticalPods": True}, "1.7.0", []),
        ({f"{MC}/nodeSelector": "a=b", f"{MC}/nodeFit": True}, "1.7.0", []),
        ({f"{MC}/nodeSelector": "a=b"}, "1.7.0", [("nodeSelector", "warning")]),
        ({"LowNodeUtilization/metricsUtilization": {}}, "1.8.0", [("metricsUtilization", "refuses")]),
    ],
)
def test_the_migration_controller(changes: Raw, version: str, expected: list[tuple[str, str]]) -> None:
    assert koordinator(changes, version) == expected


PROVIDER = "metricsProviders[1].prometheus"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({f"{EVICTOR}/priorityThreshold": {"value": 2_000_000_000}}, []),
        ({f"{EVICTOR}/priorityThreshold": {"value": 2_000_000_001}}, [("value", "refuses")]),
        ({f"{EVICTOR}/priorityThreshold": {"name": "system-node-critical"}}, [("name", "refuses")]),
        ({f"{EVICTOR}/podProtections.config.PodsWithPVC.protectedStorageClasses": [{}]}, [("name", "refuses")]),
        (
            {
                f"{EVICTOR}/podProtections.extraEnabled": [],
                f"{EVICTOR}/podProtections.config.PodsWithPVC.protectedStorageClasses": [None],
            },
            [("name", "starts")],
        ),
        ({"LowNodeUtilization/thresholds": {"MetricResource": 51}}, [("MetricResource", "refuses")]),
        (
            {
                "LowNodeUtilization/thresholds": {"MetricResource": 51},
                "LowNodeUtilization/useDeviationThresholds": True,
            },
            [],
        ),
        ({f"{PROVIDER}.url": GONE}, [("url", "refuses")]),
        ({f"{PROVIDER}.url": "prometheus"}, [("url", "starts")]),
        ({f"{PROVIDER}.url": "http://a b"}, [("url", "refuses")]),
        ({f"{PROVIDER}.url": "http://[::1]:9090/x?y=%20"}, []),
        ({f"{PROVIDER}.authToken": {}}, [("secretReference", "refuses")]),
        ({f"{PROVIDER}.authToken.secretReference": {"name": "token"}}, [("namespace", "refuses")]),
        ({PROVIDER: GONE}, [("prometheus", "refuses")]),
        ({"metricsProviders[0].prometheus": {"url": "http://a"}}, [("prometheus", "warning")]),
        (
            {"metricsCollector": {"enabled": True}},
            [("metricsCollector", "warning"), ("metricsProviders[0]", "refuses")],
        ),
        ({"metricsCollector": {"enabled": False}}, [("metricsCollector", "warning")]),
        (
            {"metricsProviders[1]": {"source": "KubernetesMetrics"}},
            [("metricsProviders[1]", "refuses"), ("source", "warning")],
        ),
        ({"PodLifeTime/maxPodLifeTimeSeconds": GONE}, []),
        (
            {"PodLifeTime/maxPodLifeTimeSeconds": GONE, "PodLifeTime/states": GONE},
            [("args", "refuses")],
        ),
    ],
)
def test_a_policy_of_the_sigs_descheduler(changes: Raw, expected: list[tuple[str, str]]) -> None:
    assert policy(changes) == expected
