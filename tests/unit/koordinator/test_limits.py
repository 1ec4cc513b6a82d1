# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import limits
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.limits import (
    UnreadableError,
    controller,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.migration_controller import (
    Controller,
    Limiter,
    interval,
    per_workload,
)


def document(*profiles: t.Any) -> dict[str, t.Any]:
    return {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerConfiguration", "profiles": list(profiles)}


def configured(**args: t.Any) -> Controller:
    return controller(document({"pluginConfig": [{"name": "MigrationController", "args": args}]}))


def test_without_arguments_the_defaults_of_the_source_hold() -> None:
    assert configured() == Controller()
    assert controller(document()) == Controller()
    assert Controller().object_limiters == {"workload": Limiter(300.0)}


def test_the_defaults_are_those_of_koordinator() -> None:
    """apis/config/v1alpha2/defaults.go of v1.7.0; a limit that it leaves out limits nothing."""
    found = configured()
    assert found.max_migrating_per_node == 2
    assert (found.max_migrating_globally, found.max_migrating_per_namespace, found.evict_qps) == (0, 0, 10.0)
    assert found.object_limiters == {"workload": Limiter(300.0, None, 1)}
    assert not any(getattr(found, name) for name in SWITCHES)


SWITCHES = (
    *("evict_local_storage_pods", "evict_failed_bare_pods", "evict_all_bare_pods", "evict_system_critical_pods"),
    *("ignore_pvc_pods", "skip_check_expected_replicas"),
)


@pytest.mark.parametrize("name", SWITCHES)
def test_each_switch_is_read(name: str) -> None:
    first, *rest = name.split("_")
    found = configured(**{first + "".join(word.capitalize() for word in rest): True})
    assert [switch for switch in SWITCHES if getattr(found, switch)] == [name]


@pytest.mark.parametrize(
    ("gate", "field", "off"),
    [
        ("Namespaces", "include", ()),
        ("LabelSelector", "label_selector", None),
        ("PriorityThreshold", "priority_threshold", None),
        ("MaxMigratingGlobally", "max_migrating_globally", 0),
        ("MaxMigratingPerNode", "max_migrating_per_node", 0),
        ("MaxMigratingPerNamespace", "max_migrating_per_namespace", 0),
        ("BarePods", "evict_failed_bare_pods", True),
        ("BarePods", "evict_all_bare_pods", True),
        ("SystemCritical", "evict_system_critical_pods", True),
        ("PVC", "ignore_pvc_pods", False),
        ("LocalStorage", "evict_local_storage_pods", True),
        ("ExpectedReplicas", "skip_check_expected_replicas", True),
    ],
)
def test_a_gate_that_is_skipped_limits_nothing(gate: str, field: str, off: t.Any) -> None:
    limited = {
        "namespaces": {"include": ["shop"]},
        "labelSelector": {"matchLabels": {"app": "web"}},
        "priorityThreshold": {"value": 1000},
        **dict.fromkeys(["maxMigratingGlobally", "maxMigratingPerNode", "maxMigratingPerNamespace"], 5),
        "ignorePvcPods": True,
    }
    assert getattr(configured(**limited), field) != off
    assert getattr(configured(**limited, skipEvictionGates=[gate]), field) == off


@pytest.mark.parametrize(
    ("given", "limiter"),
    [
        ({"duration": "10s"}, Limiter(10.0, None, 1)),
        ({"duration": "10s", "burst": 0}, Limiter(10.0, None, 1)),
        ({"duration": "10s", "burst": 1}, Limiter(10.0, None, 1)),
        ({"duration": "10s", "burst": 2}, Limiter(10.0, None, 2)),
        ({"maxMigrating": 3}, Limiter(0.0, 3, 1)),
    ],
)
def test_a_limiter_is_read(given: dict[str, t.Any], limiter: Limiter) -> None:
    assert configured(objectLimiters={"workload": given}).object_limiters == {"workload": limiter}


def test_what_is_configured_is_read() -> None:
    found = configured(
        namespaces={"exclude": ["kube-system"]},
        maxMigratingPerNode=6,
        maxMigratingPerWorkload="25%",
        objectLimiters={
            "workload": {"duration": "10s", "burst": 0},
            "namespace": {"duration": "1m", "maxMigrating": 2},
        },
        evictQPS="20",
        priorityThreshold={"value": 1000},
        schedulerNames=["other"],
    )
    assert found.exclude == ("kube-system",)
    assert found.max_migrating_per_node == 6
    assert found.max_migrating_per_workload == "25%"
    assert found.object_limiters == {"workload": Limiter(10.0), "namespace": Limiter(60.0, 2)}
    assert (found.evict_qps, found.priority_threshold) == (20.0, 1000)
    assert found.scheduler_names == ("other",)


@pytest.mark.parametrize(
    ("replicas", "amount", "limit"),
    [(1, None, 1), (3, None, 1), (4, None, 2), (10, None, 2), (11, None, 1), (100, None, 10), (0, None, 0)]
    # An explicit 0 and a percentage below one pod are 1, and nothing is more than all (GetMaxUnavailable).
    + [(10, 0, 1), (10, "5%", 1), (10, "35%", 3), (199, "50%", 99), (3, 8, 3)],
)
def test_limits_per_workload_are_derived_as_in_the_source(replicas: int, amount: t.Any, limit: int) -> None:
    found = Controller(max_migrating_per_workload=amount, max_unavailable_per_workload=amount)
    assert per_workload(found, replicas) == (limit, limit)


def test_the_object_limiter_gives_one_token_for_each_pod_that_may_migrate() -> None:
    assert interval(Controller(), "workload", 3) == (300.0, 1)
    assert interval(Controller(), "workload", 10) == (150.0, 1)
    assert interval(Controller(), "workload", 100) == (30.0, 1)
    assert interval(Controller(), "namespace", 3) == (0.0, 0)
    assert interval(configured(objectLimiters={"workload": {"duration": "0s"}}), "workload", 3) == (0.0, 0)
    by_namespace = configured(objectLimiters={"namespace": {"duration": "60s", "maxMigrating": 3, "burst": 2}})
    assert interval(by_namespace, "namespace", 1) == (20.0, 2)
    assert interval(by_namespace, "workload", 1) == (0.0, 0)
    assert interval(configured(objectLimiters={"workload": {"duration": "1s"}}), "workload", 1) == (1.0, 1)
    percent = configured(objectLimiters={"namespace": {"duration": "60s", "maxMigrating": "50%"}})
    assert interval(percent, "namespace", 1) == (0.0, 0)


def test_gates_that_are_skipped_filter_nothing() -> None:
    found = configured(
        skipEvictionGates=["Namespaces", "ExpectedReplicas", "MaxMigratingPerNode", "LocalStorage", "PVC", "BarePods"],
        namespaces={"exclude": ["kube-system"]},
        ignorePvcPods=True,
    )
    assert found.exclude == ()
    assert found.skip_check_expected_replicas
    assert found.evict_local_storage_pods
    assert found.evict_all_bare_pods
    assert found.max_migrating_per_node == 0
    assert not found.ignore_pvc_pods


def test_every_profile_with_a_controller_is_named_and_the_first_is_read() -> None:
    other = {"plugins": {"evict": {"enabled": [{"name": "DefaultEvictor"}], "disabled": [{"name": "*"}]}}}
    other["plugins"]["filter"] = {"disabled": [{"name": "*"}]}
    args = {"name": "MigrationController", "args": {"maxMigratingPerNode": 7}}
    found = controller(document({"name": "a", **other}, {"name": "b", "pluginConfig": [args]}, {"name": "c"}))
    assert found.profiles == ("b", "c")
    assert found.max_migrating_per_node == 7
    with pytest.raises(UnreadableError, match="nothing carries out"):
        controller(document({"name": "a", **other}))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        ({"maxMigratingPerNode": "two"}, "maxMigratingPerNode is 'two' and not a whole number"),
        ({"maxMigratingPerNode": True}, "not a whole number"),
        ({"maxMigratingPerWorkload": "many"}, "not a whole number or a percentage"),
        ({"objectLimiters": {"workload": {"duration": "5 minutes"}}}, r"workload\.duration is '5 minutes'"),
        ({"namespaces": ["a"]}, "not keys and values"),
        ({"evictQPS": "fast"}, "not a number"),
    ],
)
def test_what_no_running_descheduler_can_have_is_not_guessed(args: t.Any, words: str) -> None:
    with pytest.raises(UnreadableError, match=words):
        configured(**args)


@pytest.mark.parametrize("other", [None, [], "text", {"kind": "DeschedulerPolicy"}])
def test_another_document_is_told_from_it(other: t.Any) -> None:
    with pytest.raises(UnreadableError, match=f"it is no {limits.KIND}"):
        controller(other)
