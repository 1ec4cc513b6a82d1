# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which toleration covers which taint, and what is left of a node's taints for a pod."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import taints
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.objects import Raw

TAINT: Raw = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@pytest.mark.parametrize(
    ("toleration", "covers"),
    [
        ({"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}, True),
        ({"key": "gpu", "operator": "", "value": "yes", "effect": ""}, True),
        ({"key": "gpu", "value": "yes"}, True),
        ({"key": "gpu", "value": "no"}, False),
        ({"key": "gpu"}, False),
        ({"key": "gpu", "operator": "Exists"}, True),
        ({"key": "gpu", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "gpu", "operator": "Exists", "effect": "PreferNoSchedule"}, False),
        ({"key": "cpu", "operator": "Exists"}, False),
        ({"operator": "Exists"}, True),
        ({"operator": "Exists", "effect": "NoSchedule"}, True),
        ({"operator": "Exists", "effect": "NoExecute"}, False),
        ({"value": "yes"}, False),
        ({"key": "gpu", "operator": "In", "value": "yes"}, False),
    ],
)
def test_a_toleration_covers_a_taint(toleration: Raw, covers: bool) -> None:
    assert taints.tolerates([toleration], TAINT) == covers


@pytest.mark.parametrize(
    ("operator", "wanted", "value", "covers"),
    [
        ("Gt", "950", "960", True),
        ("Gt", "950", "950", False),
        ("Lt", "950", "-3", True),
        ("Lt", "950", "950", False),
        ("Gt", "1", "007", False),
        ("Gt", "-1", "0", True),
        ("Gt", "1", "many", False),
        ("Lt", "", "1", False),
        ("Gt", "1", "99999999999999999999", False),
    ],
)
def test_a_toleration_compares_numbers(operator: str, wanted: str, value: str, covers: bool) -> None:
    toleration = {"key": "level", "operator": operator, "value": wanted}
    assert taints.tolerates([toleration], {"key": "level", "value": value, "effect": "NoSchedule"}) == covers


def test_a_toleration_of_no_value_covers_a_taint_of_no_value() -> None:
    assert taints.tolerates([{"key": "gpu"}], {"key": "gpu", "effect": "NoSchedule"})


@pytest.mark.parametrize("effect", EFFECTS)
def test_an_empty_effect_is_every_effect(effect: str) -> None:
    assert taints.tolerates([{"key": "gpu", "operator": "Exists"}], {**TAINT, "effect": effect})


@pytest.mark.parametrize(("effect", "keeps_out"), [("NoSchedule", 1), ("NoExecute", 1), ("PreferNoSchedule", 0)])
def test_the_effects_that_keep_a_pod_out(effect: str, keeps_out: int) -> None:
    assert len(taints.untolerated([], [{**TAINT, "effect": effect}])) == keeps_out


def test_one_taint_of_several_that_is_left_keeps_a_pod_out() -> None:
    three = [
        {"key": "key1", "value": "value1", "effect": "NoSchedule"},
        {"key": "key1", "value": "value1", "effect": "NoExecute"},
        {"key": "key2", "value": "value2", "effect": "NoSchedule"},
    ]
    two = [
        {"key": "key1", "operator": "Equal", "value": "value1", "effect": "NoSchedule"},
        {"key": "key1", "operator": "Equal", "value": "value1", "effect": "NoExecute"},
    ]
    assert taints.untolerated(two, three) == (three[2],)
    assert taints.untolerated([*two, {"key": "key2", "operator": "Exists"}], three) == ()


def test_the_first_toleration_that_covers_a_taint_counts() -> None:
    short, long = ({"key": "gpu", "operator": "Exists", "tolerationSeconds": s} for s in (5, 60))
    assert taints.first_match([{"key": "cpu", "operator": "Exists"}, long, short], TAINT) is long
