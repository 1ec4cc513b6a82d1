# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What runs held against what is wanted, with answers of the real koord-descheduler v1.7.0.

``told/`` holds a configuration, and what that descheduler said of it at ``/configz`` and in its log.
"""

from __future__ import annotations

import copy
import json
import typing as t
from pathlib import Path

import pytest
import yaml

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.check import check, schema_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.running import (
    Comparison,
    compare,
    document,
    logged,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import limits

TOLD = Path(__file__).parent / "told"
SCHEMA = schema_of("koordinator")
WANTED: dict[str, t.Any] = yaml.safe_load((TOLD / "wanted.yaml").read_text("utf-8"))
POOLS = "profiles.0.pluginConfig.0.args"
CONFIGZ: dict[str, t.Any] = json.loads((TOLD / "configz.json").read_text("utf-8"))["componentconfig"]
LOG = (TOLD / "log.txt").read_text("utf-8")


def loaded(name: str) -> t.Any:
    return yaml.safe_load((TOLD / name).read_text("utf-8"))


def changed(path: str, value: t.Any, config: t.Any = WANTED) -> dict[str, t.Any]:
    """The configuration with another value; ``None`` removes the key."""
    config = copy.deepcopy(config)
    *way, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    place: t.Any = config
    for step in way:
        place = place[step]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return dict(config)


def same(found: Comparison) -> bool:
    """Whether both mean the same, apart from what flags may override."""
    return not found.conflicts and not found.extras


def test_the_sample_is_a_valid_configuration() -> None:
    assert [fault for fault in check(WANTED, SCHEMA) if fault.severity == "error"] == []


@pytest.mark.parametrize("running", [CONFIGZ, yaml.safe_load(logged(LOG))], ids=["configz", "log"])
def test_what_runs_is_what_was_asked_for(running: dict[str, t.Any]) -> None:
    found = compare(WANTED, running, SCHEMA)
    assert (found.conflicts, found.extras) == ((), ())


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("deschedulingInterval", "121s", "deschedulingInterval"),
        ("dryRun", True, "dryRun"),
        ("nodeSelector.matchLabels.deschedule", "Allow", "nodeSelector.matchLabels.deschedule"),
        ("maxNoOfPodsToEvictPerNamespace", 3, "maxNoOfPodsToEvictPerNamespace"),
        ("profiles.0.name", "other", "profiles[0].name"),
        ("profiles.0.plugins.deschedule.enabled", [{"name": "PodLifeTime"}], "profiles[0].plugins.deschedule.enabled"),
        ("profiles.0.pluginConfig.0.args.excludedTaints", ["deschedule"], "excludedTaints[0]"),
        ("profiles.0.pluginConfig.0.args.namespaces.include", ["a"], "namespaces.include"),
        ("profiles.0.pluginConfig.1.args.maxPodLifeTimeSeconds", 3600, "maxPodLifeTimeSeconds"),
        ("profiles.0.pluginConfig.2.args.maxMigratingPerWorkload", "10%", "maxMigratingPerWorkload"),
        ("profiles.0.pluginConfig.2.args.objectLimiters.workload.maxMigrating", 2, "objectLimiters.workload"),
        ("profiles.0.pluginConfig.2.args.evictBurst", 2, "evictBurst"),
    ],
)
def test_each_difference_is_seen(path: str, value: t.Any, said: str) -> None:
    found = compare(changed(path, value), CONFIGZ, SCHEMA)
    assert len(found.conflicts) == 1
    assert said in found.conflicts[0]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("deschedulingInterval", "2m"),
        ("maxNoOfPodsToEvictPerNode", 10.0),
        ("enableProfiling", True),
        ("profiles.0.plugins.filter", {"enabled": [{"name": "MigrationController"}]}),
        ("profiles.0.plugins.evict", {"disabled": [{"name": "*"}], "enabled": [{"name": "MigrationController"}]}),
        ("profiles.0.pluginConfig.2.args.evictQPS", 10),
        ("profiles.0.pluginConfig.2.args.defaultJobTTL", "5m0s"),
        ("profiles.0.pluginConfig.2.args.schedulerNames", ["koord-scheduler"]),
        ("profiles.0.pluginConfig.2.args.nodeFit", False),
        # LowNodeLoad is configured and not enabled: the descheduler drops its arguments.
        ("profiles.0.pluginConfig.3.args.paused", True),
    ],
)
def test_the_same_in_other_words(path: str, value: t.Any) -> None:
    found = compare(changed(path, value), CONFIGZ, SCHEMA)
    assert same(found), found


@pytest.mark.parametrize(
    "path",
    [
        "maxNoOfPodsToEvictPerNode",
        "deschedulingInterval",
        "profiles.0.pluginConfig.2.args.maxMigratingPerNode",
        "profiles.0.pluginConfig.0.args.excludedTaints",
    ],
)
def test_what_nobody_asks_for_any_more_is_no_conflict_but_not_the_same(path: str) -> None:
    found = compare(changed(path, None), CONFIGZ, SCHEMA)
    assert not found.conflicts
    assert len(found.extras) == 1


@pytest.mark.parametrize("version", ["1.7.0", "1.8.0"])
def test_the_pools_of_low_node_load(version: str) -> None:
    """Its own rules run as the first pool, and from v1.8.0 pools inherit them."""
    wanted, running, schema = loaded("pools.yaml"), loaded(f"pools_{version}.yaml"), schema_of("koordinator", version)
    assert same(compare(wanted, running, schema))
    for path, value in (
        ("highThresholds.cpu", 61),
        ("nodeSelector.matchLabels.pool", "special"),
        ("anomalyCondition.consecutiveAbnormalities", 3),
        ("nodePools.0.highThresholds.cpu", 41),
        ("nodePools.1.nodeSelector.matchLabels.pool", "special"),
        ("nodePools.1.lowThresholds", {"cpu": 31}),
    ):
        found = compare(changed(f"{POOLS}.{path}", value, wanted), running, schema)
        assert len(found.conflicts) == 1, path
    found = compare(changed(f"{POOLS}.nodePools.1", None, wanted), running, schema)
    assert "nodePools" in found.conflicts[0]


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("resourceWeights", {}),
        ("resourceWeights", {"cpu": 0, "memory": -1}),
        ("resourceWeights", {"memory": 1}),
        ("anomalyCondition.consecutiveNormalities", None),
    ],
)
def test_what_says_nothing_is_left_to_the_default(path: str, value: t.Any) -> None:
    running = loaded("pools_1.7.0.yaml")
    running["profiles"][0]["pluginConfig"][0]["args"]["nodePools"][0]["anomalyCondition"]["consecutiveNormalities"] = 3
    wanted = changed(f"{POOLS}.anomalyCondition.consecutiveNormalities", 0, loaded("pools.yaml"))
    assert same(compare(wanted, running, SCHEMA))
    assert same(compare(changed(f"{POOLS}.{path}", value, wanted), running, SCHEMA))


def test_what_flags_may_override_is_not_compared() -> None:
    assert same(compare(changed("healthzBindAddress", "0.0.0.0:10251"), CONFIGZ, SCHEMA))


def test_a_bare_configuration_gets_the_default_profile() -> None:
    running = copy.deepcopy(CONFIGZ)
    profile = running["Profiles"][0]
    profile["PluginConfig"] = []
    profile["Plugins"]["Deschedule"]["Enabled"] = None
    bare = {key: value for key, value in WANTED.items() if key != "profiles"}
    assert same(compare(bare, running, SCHEMA))
    two = {**bare, "profiles": [{"name": "a"}, {"name": "b"}]}
    assert compare(two, running, SCHEMA).conflicts[0] == "profiles: wanted 2, running 1"


def test_logs_of_other_formats() -> None:
    text = "apiVersion: descheduler/v1alpha2\ndryRun: true\n"
    assert logged(json.dumps({"ts": 1, "msg": "Using component config", "config": text})) == text
    assert logged(f'I1121 configfile.go:93] "Using component config" config={json.dumps(text)}') == text
    assert logged("nothing\nof it\n") == ""
    assert logged('I1121 configfile.go:93] "Using component config" config=<\n\tcut: off\n') == ""


@pytest.mark.parametrize("told", [CONFIGZ, yaml.safe_load(logged(LOG))])
def test_what_runs_as_a_document_means_the_same_and_is_valid(told: dict[str, t.Any]) -> None:
    found = document(told, SCHEMA)
    assert same(compare(found, told, SCHEMA))
    assert [fault for fault in check(found, SCHEMA) if fault.severity == "error"] == []
    assert limits.controller(found) == limits.controller(WANTED)
