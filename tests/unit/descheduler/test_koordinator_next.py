# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The same for what is new in Koordinator 1.8.0."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.check import errors
from ansible_collections.kubeops.node_maintenance.tests.unit.descheduler.documents import GONE, Raw, found

PROFILE = "profiles[0]"
MC, LNL = "MigrationController", "LowNodeLoad"
POOL = "[3].args.nodePools[0]"


def test_what_the_newer_version_takes() -> None:
    pools = {f"{LNL}/nodePools[0].anomalyCondition": GONE, f"{MC}/skipEvictionGates": ["ExpectedReplicas"]}
    assert found(pools, "1.8.0") == ()
    levels = [{"name": name, "nodeSelector": {"matchLabels": {"level": name}}} for name in ("spot", "reserved")]
    custom = {
        f"{PROFILE}.plugins.balance.enabled[2]": {"name": "CustomPriority"},
        "CustomPriority/evictionOrder": levels,
    }
    assert found(custom, "1.8.0") == ()
    assert {fault.code for fault in found(custom)} == {"too_new"}
    one = errors(found({**custom, "CustomPriority/evictionOrder": levels[:1]}, "1.8.0"))
    assert [fault.code for fault in one] == ["out_of_range"]
    for level, told in ((None, 1), ({"name": "spot"}, 1), ({"name": "spot", "nodeSelector": {}}, 0)):
        wrong = errors(found({**custom, "CustomPriority/evictionOrder": [levels[0], level]}, "1.8.0"))
        of_selector = [fault.code for fault in wrong if fault.path.endswith(".args.evictionOrder[1].nodeSelector")]
        assert of_selector == ["required"] * told


LOW, HIGH = (f"{LNL}/nodePools[0].{key}" for key in ("lowThresholds", "highThresholds"))


@pytest.mark.parametrize(
    ("changes", "path"),
    [
        ({HIGH: GONE, LOW: {"cpu": 51}}, f"{POOL}.lowThresholds.cpu"),
        ({HIGH: None, LOW: {"cpu": 51}}, f"{POOL}.lowThresholds.cpu"),
        ({LOW: GONE, HIGH: {"cpu": 19}}, f"{POOL}.highThresholds.cpu"),
        ({f"{LNL}/prodHighThresholds": {"cpu": 50}, HIGH: {"cpu": 49}}, f"{POOL}.highThresholds.cpu"),
        ({f"{LNL}/nodePools[0].prodHighThresholds": {"cpu": 51}, HIGH: GONE}, f"{POOL}.prodHighThresholds.cpu"),
    ],
)
def test_since_1_8_0_a_pool_inherits_thresholds_before_they_are_validated(changes: Raw, path: str) -> None:
    (fault,) = errors(found(changes, "1.8.0"))
    assert (fault.path, fault.code, fault.real) == (f"{PROFILE}.pluginConfig{path}", "order", "refuses")
    assert "inherits" in fault.message
    assert path not in {fault.path for fault in errors(found(changes))}


def test_since_1_8_0_accepted_types_need_a_content_type() -> None:
    accepted = {"clientConnection.acceptContentTypes": "text/plain"}
    (said,) = found({"clientConnection": {}, **accepted}, "1.8.0")
    assert (said.code, said.severity) == ("never_read", "warning")
    (fault,) = found({"clientConnection": {"contentType": "application/json"}, **accepted}, "1.8.0")
    assert (fault.code, fault.real) == ("not_in_list", "refuses")


def test_what_a_pool_inherits_is_not_missing_in_it() -> None:
    assert found({LOW: GONE, HIGH: {"cpu": 40, "memory": 50}}, "1.8.0") == ()
    assert found({HIGH: {}, LOW: {"cpu": 70}}, "1.8.0") == ()
    (gap,) = found({LOW: GONE, HIGH: {"cpu": 40}}, "1.8.0")
    assert (gap.code, gap.path) == ("different_keys", f"{PROFILE}.pluginConfig{POOL}.highThresholds")


@pytest.mark.parametrize("empty", [{}, {"type": ""}, {"reason": None}, None])
def test_a_condition_needs_a_key_that_is_known_and_set(empty: Raw | None) -> None:
    said = found({"PodLifeTime/conditions": [empty, {"minTimeSinceLastTransitionSeconds": 0}]}, "1.8.0")
    assert [(fault.code, fault.path) for fault in errors(said)] == [
        ("required", f"{PROFILE}.pluginConfig[2].args.conditions[0]")
    ]


def by_default(args: Raw) -> Raw:
    """The changes with which DefaultEvictor evicts and filters."""
    alone = {"disabled": [{"name": "*"}], "enabled": [{"name": "DefaultEvictor"}]}
    named = {f"{PROFILE}.pluginConfig[1].name": "DefaultEvictor", f"{PROFILE}.pluginConfig[1].args": args}
    return {f"{PROFILE}.plugins.evict": alone, f"{PROFILE}.plugins.filter": alone, **named}


def test_the_evictor_of_1_8_0_takes_what_that_of_sigs_takes() -> None:
    args = {
        "minReplicas": 2,
        "minPodAge": "5m",
        "namespaceLabelSelector": {"matchLabels": {"team": "a"}},
        "noEvictionPolicy": "Mandatory",
        "podProtections": {"extraEnabled": ["PodsWithPVC"], "defaultDisabled": ["PodsWithLocalStorage"]},
    }
    assert found(by_default(args), "1.8.0") == ()
    assert {(fault.code, fault.real) for fault in found(by_default(args))} == {("unknown_key", "drops")}
    old = found(by_default({"evictDaemonSetPods": True, "ignorePodsWithoutPDB": True}), "1.8.0")
    assert {(fault.code, fault.severity) for fault in old} == {("deprecated", "warning")}


@pytest.mark.parametrize(
    ("args", "path", "rule"),
    [
        ({"noEvictionPolicy": "Sometimes"}, "noEvictionPolicy", "not_in_list"),
        ({"podProtections": {"extraEnabled": ["PodsWithVolumes"]}}, "podProtections.extraEnabled[0]", "not_in_list"),
        (
            {"podProtections": {"extraEnabled": ["PodsWithPVC"]}, "evictDaemonSetPods": True},
            "evictDaemonSetPods",
            "exclusive",
        ),
        (
            {"namespaceLabelSelector": {"matchExpressions": [{"key": "a"}]}},
            "namespaceLabelSelector.matchExpressions[0].operator",
            "required",
        ),
        (
            {
                "podProtections": {"defaultDisabled": ["SystemCriticalPods"]},
                "priorityThreshold": {"value": 2_000_000_001},
            },
            "priorityThreshold.value",
            "out_of_range",
        ),
    ],
)
def test_koordinator_never_calls_the_validation_of_that_evictor(args: Raw, path: str, rule: str) -> None:
    (fault,) = errors(found(by_default(args), "1.8.0"))
    assert (fault.path, fault.code, fault.real) == (f"{PROFILE}.pluginConfig[1].args.{path}", rule, "starts")


def test_lists_of_protections_make_the_old_flag_of_critical_pods_unread() -> None:
    args = {"podProtections": {"extraEnabled": ["PodsWithPVC"]}, "evictSystemCriticalPods": True}
    wrong = errors(found(by_default({**args, "priorityThreshold": {"value": 2_000_000_001}}), "1.8.0"))
    assert ("out_of_range", "refuses") in {(fault.code, fault.real) for fault in wrong}


def test_a_namespace_selector_without_labels_is_not_read() -> None:
    selector = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    (said,) = found(by_default({"namespaceLabelSelector": selector}), "1.8.0")
    assert (said.code, said.severity) == ("never_read", "warning")


def test_several_migration_controllers_all_work_until_1_8_0_refuses_them() -> None:
    two: Raw = {"profiles": [{"name": name, "pluginConfig": []} for name in ("a", "b")]}
    (warned,) = [fault for fault in found(two) if fault.code == "several_controllers"]
    assert (warned.severity, warned.path) == ("warning", "profiles[1].plugins.evict")
    assert errors(found(two)) == ()
    (refused,) = errors(found(two, "1.8.0"))
    assert (refused.code, refused.path) == ("known_crash", "profiles[1].plugins.evict")
    assert refused.message.endswith("; profiles[0] has it.")
