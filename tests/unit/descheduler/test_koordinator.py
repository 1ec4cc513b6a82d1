# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""koord-descheduler's configuration: one word changed, and what is said of it."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    cross_field_checks,
    schemas,
    values,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.check import check, errors, schema_of
from ansible_collections.kubeops.node_maintenance.tests.unit.descheduler.documents import (
    GONE,
    Raw,
    changed,
    found,
    koord,
    spoiled,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.descheduler.rules import RULES

PROFILE = "profiles[0]"
MC, LNL = "MigrationController", "LowNodeLoad"
LIMITERS, POOL = "[1].args.objectLimiters", "[3].args.nodePools[0]"


def test_a_whole_configuration_is_right() -> None:
    assert check(koord(), schema_of("koordinator")) == ()
    assert check(koord(), schema_of("ack")) == ()
    assert check(koord(), schema_of("koordinator", "1.8.0")) == ()


def test_the_shortest_configuration_is_right() -> None:
    shortest = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerConfiguration"}
    assert check(shortest, schema_of("koordinator")) == ()


ERRORS: list[tuple[Raw, str, str, str]] = [
    # the document
    ({"kind": "DeschedulerPolicy"}, "kind", "wrong_document", "refuses"),
    ({"kind": GONE}, "kind", "wrong_document", "refuses"),
    ({"apiVersion": "descheduler/v1alpha1"}, "apiVersion", "look_alike", "refuses"),
    ({"Profiles": []}, "Profiles", "look_alike", "refuses"),
    ({"tracing": {}}, "tracing", "unknown_key", "refuses"),
    ({"nodeSelector": {"deschedule": "allow"}}, "nodeSelector.deschedule", "unknown_key", "refuses"),
    ({"nodeSelector": "deschedule=allow"}, "nodeSelector", "wrong_type", "refuses"),
    ({"nodeSelector.matchLabels": {"a b": "c"}}, "nodeSelector.matchLabels.a b", "malformed", "refuses"),
    ({"nodeSelector.matchLabels": {"a": 1}}, "nodeSelector.matchLabels.a", "wrong_type", "refuses"),
    (
        {"nodeSelector.matchExpressions": [{"key": "a", "operator": "In"}]},
        "nodeSelector.matchExpressions[0].values",
        "required",
        "refuses",
    ),
    (
        {"nodeSelector.matchExpressions": [{"key": "a", "operator": "Exists", "values": ["b"]}]},
        "nodeSelector.matchExpressions[0].values",
        "forbidden",
        "refuses",
    ),
    (
        {"nodeSelector.matchExpressions": [{"key": "a", "operator": "Equals", "values": ["b"]}]},
        "nodeSelector.matchExpressions[0].operator",
        "not_in_list",
        "refuses",
    ),
    ({"dryRun": "true"}, "dryRun", "wrong_type", "refuses"),
    ({"deschedulingInterval": 120}, "deschedulingInterval", "wrong_type", "refuses"),
    ({"deschedulingInterval": "2 minutes"}, "deschedulingInterval", "wrong_type", "refuses"),
    ({"deschedulingInterval": "-1s"}, "deschedulingInterval", "out_of_range", "starts"),
    ({"maxNoOfPodsToEvictPerNode": -1}, "maxNoOfPodsToEvictPerNode", "out_of_range", "refuses"),
    ({"maxNoOfPodsToEvictPerNode": "10"}, "maxNoOfPodsToEvictPerNode", "wrong_type", "refuses"),
    ({"maxNoOfPodsToEvictTotal": 1.5}, "maxNoOfPodsToEvictTotal", "wrong_type", "refuses"),
    ({"healthzBindAddress": "localhost:10251"}, "healthzBindAddress", "malformed", "refuses"),
    ({"healthzBindAddress": "0.0.0.0:0"}, "healthzBindAddress", "malformed", "refuses"),
    ({"metricsBindAddress": "10251"}, "metricsBindAddress", "malformed", "refuses"),
    ({"clientConnection": {"burst": -1}}, "clientConnection.burst", "out_of_range", "refuses"),
    ({"clientConnection": {"contentType": "json"}}, "clientConnection.contentType", "not_in_list", "starts"),
    (
        {"clientConnection": {"acceptContentTypes": "text/plain, json"}},
        "clientConnection.acceptContentTypes",
        "not_in_list",
        "refuses",
    ),
    ({"leaderElection.leaseDuration": "5s"}, "leaderElection.leaseDuration", "order", "refuses"),
    ({"leaderElection.leaseDuration": "10s"}, "leaderElection.leaseDuration", "order", "crashes"),
    ({"leaderElection.retryPeriod": "9s"}, "leaderElection.renewDeadline", "order", "crashes"),
    ({"leaderElection.renewDeadline": "-1s"}, "leaderElection.renewDeadline", "out_of_range", "refuses"),
    ({"leaderElection.resourceLock": "endpoints"}, "leaderElection.resourceLock", "not_in_list", "crashes"),
    # profiles
    ({"profiles[1]": {"name": "koord-descheduler"}}, "profiles[1]", "duplicate", "refuses"),
    ({"profiles[1]": {}}, "profiles[1].name", "required", "refuses"),
    ({f"{PROFILE}.pluginConfigs": []}, f"{PROFILE}.pluginConfigs", "look_alike", "refuses"),
    ({f"{PROFILE}.plugins.preEvictionFilter": {}}, f"{PROFILE}.plugins.preEvictionFilter", "unknown_key", "refuses"),
    ({f"{PROFILE}.plugins.evict.enabled": ["x"]}, f"{PROFILE}.plugins.evict.enabled[0]", "wrong_type", "refuses"),
    (
        {f"{PROFILE}.plugins.deschedule.enabled[2]": {"name": "RemoveFailedPod"}},
        f"{PROFILE}.plugins.deschedule.enabled[2]",
        "look_alike",
        "refuses",
    ),
    (
        {f"{PROFILE}.plugins.deschedule.enabled[2]": {"name": "DeletePods"}},
        f"{PROFILE}.plugins.deschedule.enabled[2]",
        "unknown_plugin",
        "refuses",
    ),
    (
        {f"{PROFILE}.plugins.deschedule.enabled[2]": {"name": "RemoveDuplicates"}},
        f"{PROFILE}.plugins.deschedule.enabled[2]",
        "wrong_point",
        "starts",
    ),
    (
        {f"{PROFILE}.plugins.balance.enabled[2]": {"name": "RemoveFailedPods"}},
        f"{PROFILE}.plugins.balance.enabled[2]",
        "wrong_point",
        "starts",
    ),
    (
        {f"{PROFILE}.plugins.deschedule.enabled[2]": {"name": LNL}},
        f"{PROFILE}.plugins.deschedule.enabled[2]",
        "wrong_point",
        "refuses",
    ),
    (
        {f"{PROFILE}.plugins.deschedule.enabled[2]": {"name": "PodLifeTime"}},
        f"{PROFILE}.plugins.deschedule.enabled[2]",
        "duplicate",
        "refuses",
    ),
    (
        {f"{PROFILE}.plugins.evict.enabled": [{"name": "MirgrationController"}]},
        f"{PROFILE}.plugins.evict.enabled[0]",
        "look_alike",
        "refuses",
    ),
    (
        {f"{PROFILE}.plugins.evict.enabled": [{"name": "DefaultEvictor"}]},
        f"{PROFILE}.plugins.evict",
        "one_evictor",
        "refuses",
    ),
    (
        {f"{PROFILE}.plugins.evict": {"disabled": [{"name": "*"}]}},
        f"{PROFILE}.plugins.evict",
        "one_evictor",
        "refuses",
    ),
    (
        {f"{PROFILE}.plugins.filter.enabled[1]": {"name": "DefaultEvictor"}},
        f"{PROFILE}.plugins.filter",
        "one_evictor",
        "starts",
    ),
    (
        {f"{PROFILE}.plugins.evict": {"disabled": [{"name": "*"}], "enabled": [{"name": "DefaultEvictor"}]}},
        f"{PROFILE}.plugins.filter",
        "one_evictor",
        "starts",
    ),
    ({f"{PROFILE}.pluginConfig[5]": {"name": "PodLifeTime"}}, f"{PROFILE}.pluginConfig[5]", "duplicate", "refuses"),
    ({f"{PROFILE}.pluginConfig[5]": {"name": "Mine"}}, f"{PROFILE}.pluginConfig[5]", "unknown_plugin", "drops"),
    ({f"{PROFILE}.pluginConfig[5]": {"args": {}}}, f"{PROFILE}.pluginConfig[5].name", "required", "drops"),
    ({f"{PROFILE}.pluginConfig[0].args": []}, f"{PROFILE}.pluginConfig[0].args", "wrong_type", "refuses"),
    # arguments that are decoded strictly
    ({f"{MC}/evictLocalStorage": True}, "[1].args.evictLocalStorage", "look_alike", "refuses"),
    ({f"{MC}/skipEvictionGates": ["PVC"]}, "[1].args.skipEvictionGates", "too_new", "refuses"),
    ({f"{MC}/kind": "LowNodeLoadArgs"}, "[1].args.kind", "wrong_document", "refuses"),
    ({f"{MC}/maxConcurrentReconciles": 0}, "[1].args.maxConcurrentReconciles", "out_of_range", "refuses"),
    ({f"{MC}/maxMigratingPerNode": -1}, "[1].args.maxMigratingPerNode", "out_of_range", "refuses"),
    ({f"{MC}/maxMigratingPerNode": 2**31}, "[1].args.maxMigratingPerNode", "out_of_range", "refuses"),
    ({f"{MC}/maxMigratingPerWorkload": "10"}, "[1].args.maxMigratingPerWorkload", "malformed", "refuses"),
    ({f"{MC}/maxMigratingPerWorkload": "ten%"}, "[1].args.maxMigratingPerWorkload", "malformed", "refuses"),
    ({f"{MC}/maxMigratingPerWorkload": -1}, "[1].args.maxMigratingPerWorkload", "out_of_range", "starts"),
    ({f"{MC}/maxUnavailablePerWorkload": 1.5}, "[1].args.maxUnavailablePerWorkload", "wrong_type", "refuses"),
    ({f"{MC}/evictQPS": 0}, "[1].args.evictQPS", "out_of_range", "refuses"),
    ({f"{MC}/evictQPS": "fast"}, "[1].args.evictQPS", "malformed", "refuses"),
    ({f"{MC}/evictBurst": 0}, "[1].args.evictBurst", "out_of_range", "refuses"),
    ({f"{MC}/evictionPolicy": "Soft"}, "[1].args.evictionPolicy", "look_alike", "refuses"),
    ({f"{MC}/evictionPolicy": "Kill"}, "[1].args.evictionPolicy", "not_in_list", "refuses"),
    ({f"{MC}/defaultJobMode": "Evict"}, "[1].args.defaultJobMode", "not_in_list", "refuses"),
    ({f"{MC}/defaultJobTTL": "-5m"}, "[1].args.defaultJobTTL", "out_of_range", "refuses"),
    ({f"{MC}/namespaces": {"include": ["a"], "exclude": ["b"]}}, "[1].args.namespaces", "exclusive", "refuses"),
    ({f"{MC}/labelSelector": {"app": "web"}}, "[1].args.labelSelector.app", "unknown_key", "refuses"),
    ({f"{MC}/objectLimiters": {"node": {}}}, "[1].args.objectLimiters.node", "unknown_key", "drops"),
    (
        {f"{MC}/objectLimiters.workload.duration": 300},
        "[1].args.objectLimiters.workload.duration",
        "wrong_type",
        "refuses",
    ),
    (
        {f"{MC}/objectLimiters.namespace": {"maxMigrating": "10%"}},
        f"{LIMITERS}.namespace.maxMigrating",
        "wrong_type",
        "starts",
    ),
    ({f"{MC}/priorityThreshold": {"value": 2000000001}}, "[1].args.priorityThreshold.value", "out_of_range", "refuses"),
    ({f"{LNL}/numberOfNodes": -1}, "[3].args.numberOfNodes", "out_of_range", "refuses"),
    ({f"{LNL}/nodeMetricExpirationSeconds": 0}, "[3].args.nodeMetricExpirationSeconds", "out_of_range", "refuses"),
    ({f"{LNL}/lowThresholds.cpu": -1}, "[3].args.lowThresholds.cpu", "out_of_range", "refuses"),
    ({f"{LNL}/lowThresholds.cpu": "20"}, "[3].args.lowThresholds.cpu", "wrong_type", "refuses"),
    ({f"{LNL}/lowThresholds.cpu": 51}, "[3].args.lowThresholds.cpu", "order", "refuses"),
    ({f"{LNL}/prodHighThresholds": {"cpu": 51}}, "[3].args.prodHighThresholds.cpu", "order", "refuses"),
    (
        {f"{LNL}/prodHighThresholds": {"cpu": 40}, f"{LNL}/prodLowThresholds": {"cpu": 41}},
        "[3].args.prodLowThresholds.cpu",
        "order",
        "refuses",
    ),
    ({f"{LNL}/evictableNamespaces.include": ["a"]}, "[3].args.evictableNamespaces", "exclusive", "refuses"),
    (
        {f"{LNL}/evictableNamespaces": {"include the following:": ["a"]}},
        "[3].args.evictableNamespaces.include the following:",
        "look_alike",
        "refuses",
    ),
    (
        {f"{LNL}/nodePools[0].anomalyCondition": GONE},
        "[3].args.nodePools[0].anomalyCondition",
        "known_crash",
        "crashes",
    ),
    (
        {f"{LNL}/nodePools[0].anomalyCondition": {"timeout": "1m"}},
        f"{POOL}.anomalyCondition.consecutiveAbnormalities",
        "required",
        "refuses",
    ),
    ({f"{LNL}/nodePools[0].lowThresholds.cpu": 60}, "[3].args.nodePools[0].lowThresholds.cpu", "order", "refuses"),
    # arguments that are decoded leniently
    (
        {"RemovePodsViolatingNodeTaints/labelSelector": {"accelerator": "p100"}},
        "[0].args.labelSelector.accelerator",
        "unknown_key",
        "drops",
    ),
    ({"RemovePodsViolatingNodeTaints/excludeTaints": ["a"]}, "[0].args.excludeTaints", "look_alike", "drops"),
    ({"RemovePodsViolatingNodeTaints/includedTaints": ["a"]}, "[0].args.includedTaints", "look_alike", "drops"),
    ({"RemovePodsViolatingNodeTaints/excludedTaints": "a=b"}, "[0].args.excludedTaints", "wrong_type", "refuses"),
    (
        {"RemovePodsViolatingNodeTaints/namespaces.exclude": ["c"]},
        "[0].args.namespaces",
        "exclusive",
        "refuses",
    ),
    ({"PodLifeTime/maxPodLifeTimeSeconds": GONE}, "[2].args.maxPodLifeTimeSeconds", "required", "refuses"),
    ({f"{PROFILE}.pluginConfig[2].args": GONE}, "[2].args.maxPodLifeTimeSeconds", "required", "refuses"),
    ({"PodLifeTime/maxPodLifeTimeSeconds": -1}, "[2].args.maxPodLifeTimeSeconds", "out_of_range", "refuses"),
    ({"PodLifeTime/states": ["Failed"]}, "[2].args.states[0]", "not_in_list", "refuses"),
    ({"LowNodeUtilization/thresholds": {}}, "[4].args.thresholds", "required", "refuses"),
    ({"LowNodeUtilization/thresholds.cpu": 60}, "[4].args.thresholds.cpu", "order", "refuses"),
    ({"LowNodeUtilization/targetThresholds.cpu": 101}, "[4].args.targetThresholds.cpu", "out_of_range", "refuses"),
    ({"LowNodeUtilization/targetThresholds.pods": 50}, "[4].args.targetThresholds", "different_keys", "refuses"),
    (
        {"LowNodeUtilization/evictableNamespaces": {"include": ["a"]}},
        "[4].args.evictableNamespaces.include",
        "forbidden",
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
    # A mistake may have a consequence at evict and filter, but says one thing of one path.
    assert len({(fault.path, fault.code) for fault in wrong}) == len(wrong)


def test_labels_beside_a_selectors_own_keys_are_shown_where_they_belong() -> None:
    (fault,) = errors(found({f"{MC}/labelSelector": {"app": "web"}}))
    assert fault.remedy == "Write labels under matchLabels: {app: …}."
    (other,) = errors(found({f"{MC}/objectLimiters": {"node": {}}}))
    assert "matchLabels" not in other.remedy


WARNINGS: list[tuple[Raw, str, str]] = [
    ({"deschedulingInterval": GONE}, "deschedulingInterval", "runs_once"),
    ({f"{LNL}/detectorCacheTimeout": "60s"}, "[3].args.detectorCacheTimeout", "never_acts"),
    ({"deschedulingInterval": "10m"}, "[3].args.detectorCacheTimeout", "never_acts"),
    ({f"{LNL}/highThresholds.cpu": 120}, "[3].args.highThresholds.cpu", "never_acts"),
    ({f"{LNL}/lowThresholds": {"cpu": 20}}, "[3].args.lowThresholds", "different_keys"),
    ({f"{MC}/maxMigratingPerWorkload": 0}, "[1].args.maxMigratingPerWorkload", "misleading"),
    ({f"{MC}/maxUnavailablePerWorkload": "0%"}, "[1].args.maxUnavailablePerWorkload", "misleading"),
    ({f"{MC}/objectLimiters.workload.maxMigrating": 0}, f"{LIMITERS}.workload.maxMigrating", "misleading"),
    ({f"{MC}/objectLimiters.namespace": {"duration": "5m"}}, f"{LIMITERS}.namespace.maxMigrating", "never_read"),
    ({"maxNoOfPodsToEvictTotal": 0}, "maxNoOfPodsToEvictTotal", "never_acts"),
    *(
        (
            {"RemovePodsViolatingNodeTaints/excludedTaints": ["deschedule", entry]},
            "[0].args.excludedTaints[1]",
            "never_matches",
        )
        for entry in ("deschedule=not-allow:NoSchedule", "deschedule:NoExecute", "", "a=b=c", "a=", "=b", "a b")
    ),
    ({f"{MC}/maxMigratingPerWorkload": 1}, "[1].args.maxMigratingPerWorkload", "refused_workloads"),
    ({f"{MC}/maxUnavailablePerWorkload": 2}, "[1].args.maxUnavailablePerWorkload", "refused_workloads"),
    ({f"{MC}/maxUnavailablePerWorkload": "100%"}, "[1].args.maxUnavailablePerWorkload", "refused_workloads"),
    ({f"{MC}/nodeSelector": "a=b"}, "[1].args.nodeSelector", "never_read"),
    ({f"{MC}/priorityThreshold": {"name": "high"}}, "[1].args.priorityThreshold.name", "never_read"),
    (
        {f"{MC}/priorityThreshold": {"value": 1}, f"{MC}/evictSystemCriticalPods": True},
        "[1].args.priorityThreshold",
        "never_read",
    ),
    ({f"{PROFILE}.plugins.filter": {"disabled": [{"name": "*"}]}}, f"{PROFILE}.plugins.filter", "unfiltered"),
    ({f"{PROFILE}.plugins.deschedule.enabled": []}, "[2]", "not_enabled"),
    (
        {f"{PROFILE}.plugins.deschedule.disabled": [{"name": "RemoveFailedPod"}]},
        f"{PROFILE}.plugins.deschedule.disabled[0]",
        "unknown_plugin",
    ),
]


@pytest.mark.parametrize(
    ("changes", "path", "rule"), [pytest.param(*case, id=f"{case[1]}-{case[2]}") for case in WARNINGS]
)
def test_what_is_worth_knowing_stops_nobody(changes: Raw, path: str, rule: str) -> None:
    path = f"{PROFILE}.pluginConfig{path}" if path.startswith("[") else path
    said = found(changes)
    assert (path, rule, "warning") in [(fault.path, fault.code, fault.severity) for fault in said]
    assert errors(said) == ()


RIGHT: list[Raw] = [
    {"profiles": GONE},
    {"profiles": []},
    {f"{PROFILE}.name": GONE},
    {"dryRun": None},
    {"deschedulingInterval": "1h30m", f"{LNL}/detectorCacheTimeout": "1.5h"},
    {"clientConnection": {"acceptContentTypes": "text/plain, application/json;q=0.9", "contentType": ""}},
    {"maxNoOfPodsToEvictPerNode": 10.0},
    {"healthzBindAddress": ":10251"},
    {"healthzBindAddress": "127.0.0.1"},
    {"healthzBindAddress": "[::]:10251"},
    {"leaderElection.leaseDuration": "0s"},
    {"leaderElection.leaderElect": False, "leaderElection.leaseDuration": "1s"},
    {"LowNodeUtilization/thresholds.cpu": 60, "LowNodeUtilization/useDeviationThresholds": True},
    {f"{LNL}/detectorCacheTimeout": "60s", f"{LNL}/anomalyCondition": {"consecutiveAbnormalities": 1}},
    {f"{LNL}/anomalyCondition": {"timeout": "1m"}},
    {f"{MC}/maxMigratingPerWorkload": 1, f"{MC}/skipCheckExpectedReplicas": True},
    {f"{MC}/objectLimiters": {"workload": {"duration": "0s"}}},
    {f"{MC}/objectLimiters": {"namespace": {"duration": "5m", "maxMigrating": 3}}},
    {f"{MC}/objectLimiters": {"namespace": {"duration": "0s"}}},
    {f"{MC}/maxMigratingPerNode": 0, f"{MC}/maxMigratingPerNamespace": 0, f"{MC}/maxMigratingGlobally": 0},
    {f"{MC}/evictQPS": 0.5},
    {"RemovePodsViolatingNodeTaints/namespaces": {"include": ["a"], "exclude": []}},
    {f"{PROFILE}.nodeSelector": {"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["b"]}]}},
    {
        f"{PROFILE}.plugins.evict": {"disabled": [{"name": "*"}], "enabled": [{"name": "DefaultEvictor"}]},
        f"{PROFILE}.plugins.filter": {"disabled": [{"name": "*"}], "enabled": [{"name": "DefaultEvictor"}]},
        f"{PROFILE}.pluginConfig[1].name": "DefaultEvictor",
        f"{PROFILE}.pluginConfig[1].args": {"nodeFit": True},
    },
]


@pytest.mark.parametrize("changes", RIGHT)
def test_nothing_is_said_of_what_is_right(changes: Raw) -> None:
    assert found(changes) == ()


def test_a_namespace_limiter_without_a_number_costs_the_workloads_limiter_too() -> None:
    alone = {"namespace": {"duration": "5m"}}
    both = {**alone, "workload": {"duration": "5m", "maxMigrating": 1}}
    (one,), (two,) = (found({f"{MC}/objectLimiters": given}) for given in (alone, both))
    assert ("at random" in one.message, "at random" in two.message) == (False, True)


def test_a_plugin_that_is_not_enabled_is_only_decoded() -> None:
    off: Raw = {f"{PROFILE}.plugins.balance.enabled": [], f"{PROFILE}.plugins.deschedule.enabled": []}
    assert errors(found({**off, f"{LNL}/lowThresholds.cpu": 99})) == ()
    assert errors(found({**off, "PodLifeTime/maxPodLifeTimeSeconds": GONE})) == ()
    assert len(errors(found({**off, f"{LNL}/lowThreshold": {}}))) == 1


def test_ack_may_call_the_policy_soft() -> None:
    (said,) = check(changed(koord(), {f"{MC}/evictionPolicy": "Soft"}), schema_of("ack"))
    assert (said.severity, said.code) == ("warning", "look_alike")


@pytest.mark.parametrize("config", [None, [], "text", 7])
def test_what_is_no_document_at_all(config: object) -> None:
    assert [fault.code for fault in check(config, schema_of("koordinator"))] == ["wrong_type"]


def test_a_number_beyond_every_float_is_of_the_wrong_type() -> None:
    (fault,) = errors(found({f"{LNL}/lowThresholds.cpu": 10**400}))
    assert (fault.path, fault.code) == (f"{PROFILE}.pluginConfig[3].args.lowThresholds.cpu", "wrong_type")


def test_nothing_that_yaml_can_hold_breaks_the_check() -> None:
    for document in spoiled(koord()):
        assert all(fault.code in RULES for fault in check(document, schema_of("koordinator")))


@pytest.mark.parametrize(
    ("limit", "sizes"),
    [
        (1, "with 1 replica are"),
        (2, "with 1 or 2 replicas are"),
        (7, "with 1 or 7 replicas are"),
        ("100%", "of any size are"),
        (0, ""),
        (-1, ""),
        (True, ""),
        ("50%", ""),
        (None, ""),
    ],
)
def test_the_sizes_of_workloads_that_are_never_moved_are_told(limit: object, sizes: str) -> None:
    told = [fault.message for fault in cross_field_checks._refused(limit, "x")]
    assert [sizes in message for message in told] == ([True] if sizes else [])


def test_the_range_of_a_number_is_told_from_its_least_to_its_largest() -> None:
    (fault,) = (fault for fault in found({"maxNoOfPodsToEvictPerNode": -1}) if fault.code == "out_of_range")
    assert fault.remedy == "Give a number from 0 to 18446744073709551615."


def test_the_ranges_of_numbers_are_those_of_their_types() -> None:
    assert schemas.INT32 == (-2147483648, 2147483647)
    assert schemas.UINT32 == (0, 4294967295)
    assert schemas.INT64 == (-9223372036854775808, 9223372036854775807)
    assert schemas.UINT64 == (0, 18446744073709551615)


def test_values_are_shown_in_forty_characters() -> None:
    assert values.shown("a" * 38) == f"'{'a' * 38}'"
    assert values.shown("a" * 39) == f"'{'a' * 36}..."
    assert values.shown({"a": None}) == '{"a": null}'
