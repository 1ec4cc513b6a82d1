# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One argument at a time: as it is wanted, and as it runs."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import running
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.check import schema_of

Raw = dict[str, t.Any]
SCHEMA = schema_of("koordinator")
EVICTS = {point: {"enabled": [{"name": "MigrationController"}]} for point in ("evict", "filter")}
BALANCES = {**EVICTS, "balance": {"enabled": [{"name": "LowNodeLoad"}]}}


def compared(plugin: str, wanted: Raw, runs: Raw) -> tuple[int, int]:
    """How many conflicts and extras there are."""
    points = BALANCES if plugin == "LowNodeLoad" else EVICTS

    def document(args: Raw) -> Raw:
        config = [{"name": plugin, "args": args}]
        return {"profiles": [{"name": "koord-descheduler", "plugins": points, "pluginConfig": config}]}

    found = running.compare(document(wanted), document(runs), SCHEMA)
    return len(found.conflicts), len(found.extras)


SAME, CONFLICT, EXTRA = (0, 0), (1, 0), (0, 1)


def limiter(duration: str, **more: t.Any) -> Raw:
    return {"objectLimiters": {"workload": {"duration": duration, **more}}}


@pytest.mark.parametrize(
    ("wanted", "runs", "found"),
    [
        ({}, {}, SAME),
        ({"dryRun": False}, {}, SAME),
        ({"dryRun": True}, {"dryRun": True}, SAME),
        ({"dryRun": True}, {}, CONFLICT),
        ({}, {"dryRun": True}, EXTRA),
        ({"dryRun": None}, {"dryRun": False}, SAME),
        ({}, {"maxMigratingPerNode": 2}, SAME),
        ({}, {"maxMigratingPerNode": 3}, EXTRA),
        ({"maxMigratingPerNode": 3}, {"maxMigratingPerNode": 3.0}, SAME),
        ({"maxMigratingPerNode": 0}, {"maxMigratingPerNode": 2}, CONFLICT),
        ({"evictQPS": "10"}, {"evictQPS": 10}, SAME),
        ({"evictQPS": "10"}, {"evictQPS": 11}, CONFLICT),
        (limiter("5m"), limiter("300s"), SAME),
        (limiter("5m"), limiter("301s"), CONFLICT),
        (limiter("5m"), limiter("5m", burst=2), EXTRA),
        (limiter("5m"), {}, CONFLICT),
        ({}, limiter("5m0s"), SAME),
        ({}, limiter("6m"), EXTRA),
        ({"schedulerNames": ["a", "b"]}, {"schedulerNames": ["a", "b"]}, SAME),
        ({"schedulerNames": ["a", "b"]}, {"schedulerNames": ["b", "a"]}, (2, 0)),
        ({"schedulerNames": ["a"]}, {"schedulerNames": ["a", "b"]}, CONFLICT),
        ({"schedulerNames": ["a"]}, {}, CONFLICT),
        ({}, {"schedulerNames": ["koord-scheduler"]}, SAME),
        ({}, {"schedulerNames": ["a"]}, EXTRA),
        ({"evictionPolicy": ""}, {"evictionPolicy": "Eviction"}, SAME),
        ({"evictionPolicy": ""}, {"evictionPolicy": "Delete"}, CONFLICT),
        ({"evictionPolicy": "Delete"}, {"evictionPolicy": "Delete"}, SAME),
        ({"namespaces": {"include": ["a"]}}, {"namespaces": {"include": ["a"]}}, SAME),
        ({"namespaces": {"include": ["a"]}}, {"namespaces": {"exclude": ["a"]}}, (1, 1)),
        ({"namespaces": {}}, {}, SAME),
        ({}, {"arbitrationArgs": {"enabled": True, "interval": "0.5s"}}, SAME),
        ({}, {"defaultDeleteOptions": {"gracePeriodSeconds": 0}}, SAME),
        ({}, {"defaultDeleteOptions": {"gracePeriodSeconds": 1}}, EXTRA),
    ],
)
def test_an_argument_of_the_migration_controller(wanted: Raw, runs: Raw, found: tuple[int, int]) -> None:
    assert compared("MigrationController", wanted, runs) == found


def condition(**counts: t.Any) -> Raw:
    return {"anomalyCondition": counts}


@pytest.mark.parametrize(
    ("wanted", "runs", "found"),
    [
        (condition(consecutiveAbnormalities=0), condition(consecutiveAbnormalities=5), SAME),
        (condition(consecutiveAbnormalities=0), condition(consecutiveAbnormalities=4), CONFLICT),
        (condition(consecutiveAbnormalities=1), condition(consecutiveAbnormalities=1), SAME),
        (condition(consecutiveAbnormalities=1), condition(consecutiveAbnormalities=5), CONFLICT),
        ({}, condition(consecutiveAbnormalities=5, consecutiveNormalities=3, timeout="1m"), SAME),
        ({}, condition(consecutiveAbnormalities=4), EXTRA),
        ({"resourceWeights": {"cpu": -1}}, {"resourceWeights": {"cpu": 1}}, SAME),
        ({"resourceWeights": {"cpu": 2}}, {"resourceWeights": {"cpu": 1}}, CONFLICT),
        ({"highThresholds": {"cpu": 50}}, {"highThresholds": {"cpu": 50.0, "memory": 1}}, EXTRA),
        ({"highThresholds": {"cpu": 50, "memory": 1}}, {"highThresholds": {"cpu": 50}}, CONFLICT),
        ({"nodeFit": True}, {"nodeFit": True}, SAME),
        ({}, {"nodeFit": True}, SAME),
        ({"nodeFit": False}, {"nodeFit": True}, CONFLICT),
    ],
)
def test_an_argument_of_low_node_load(wanted: Raw, runs: Raw, found: tuple[int, int]) -> None:
    assert compared("LowNodeLoad", wanted, runs) == found


@pytest.mark.parametrize(
    ("wanted", "runs", "conflicts"),
    [
        ([{}], [{"name": "koord-descheduler", "plugins": EVICTS}], 0),
        ([{"name": "a"}], [{"name": "a", "plugins": EVICTS}], 0),
        ([{"name": "a"}], [{"name": "b", "plugins": EVICTS}], 1),
        ([{}], [{"name": "koord-descheduler", "plugins": BALANCES}], 1),
        ([{}], [{"name": "koord-descheduler", "plugins": EVICTS}, {"name": "b", "plugins": EVICTS}], 1),
        ([{"name": "a"}, {"name": "b"}], [{"name": "a", "plugins": EVICTS}], 1),
    ],
)
def test_profiles_are_compared_in_their_order(wanted: list[Raw], runs: list[Raw], conflicts: int) -> None:
    assert len(running.compare({"profiles": wanted}, {"profiles": runs}, SCHEMA).conflicts) == conflicts


@pytest.mark.parametrize(
    ("one", "other", "comparable"),
    [
        ({}, {}, True),
        ({"dryRun": True}, {}, True),
        ({"leaderElection": {"leaderElect": False}}, {}, False),
        ({"healthzBindAddress": ":1"}, {"healthzBindAddress": ":1"}, True),
        ({"healthzBindAddress": ":1"}, {"healthzBindAddress": ":2"}, False),
        ({}, None, False),
    ],
)
def test_what_flags_override_makes_a_comparison_blind(one: Raw, other: t.Any, comparable: bool) -> None:
    assert running.comparable(one, other) is comparable


def test_differences_of_several_pods_are_told_once() -> None:
    one, other = running.Comparison(("a", "b"), ("x",)), running.Comparison(("b", "c"), ())
    assert running.Comparison.of_all([one, other]) == running.Comparison(("a", "b", "c"), ("x",))
