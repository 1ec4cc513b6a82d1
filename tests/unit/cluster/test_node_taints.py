# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which toleration covers which taint, and what is left of a node's taints for a pod."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import node_taints
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import Raw, node

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
    assert node_taints.tolerates([toleration], TAINT) == covers


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
        ("Gt", "1", str(2**63 - 1), True),
        ("Gt", "1", str(2**63), False),
        ("Lt", "1", str(-(2**63)), True),
        ("Lt", "1", str(-(2**63) - 1), False),
        ("Gt", "-2", "-1", True),
        ("Gt", "1", "10", True),
        ("Gt", "-1", "-0", False),
    ],
)
def test_a_toleration_compares_numbers(operator: str, wanted: str, value: str, covers: bool) -> None:
    toleration = {"key": "level", "operator": operator, "value": wanted}
    assert node_taints.tolerates([toleration], {"key": "level", "value": value, "effect": "NoSchedule"}) == covers


def test_a_toleration_of_no_value_covers_a_taint_of_no_value() -> None:
    assert node_taints.tolerates([{"key": "gpu"}], {"key": "gpu", "effect": "NoSchedule"})


@pytest.mark.parametrize("effect", EFFECTS)
def test_an_empty_effect_is_every_effect(effect: str) -> None:
    assert node_taints.tolerates([{"key": "gpu", "operator": "Exists"}], {**TAINT, "effect": effect})


@pytest.mark.parametrize(("effect", "keeps_out"), [("NoSchedule", 1), ("NoExecute", 1), ("PreferNoSchedule", 0)])
def test_the_effects_that_keep_a_pod_out(effect: str, keeps_out: int) -> None:
    assert len(node_taints.untolerated([], [{**TAINT, "effect": effect}])) == keeps_out


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
    assert node_taints.untolerated(two, three) == (three[2],)
    assert node_taints.untolerated([*two, {"key": "key2", "operator": "Exists"}], three) == ()


def test_the_first_toleration_that_covers_a_taint_counts() -> None:
    short, long = ({"key": "gpu", "operator": "Exists", "tolerationSeconds": s} for s in (5, 60))
    assert node_taints.first_match([{"key": "cpu", "operator": "Exists"}, long, short], TAINT) is long


def refused(*raws: Raw, state: str = "present") -> list[str]:
    return [fault.where for fault in node_taints.read(raws, state)[1]]


GOOD: Raw = {"key": "dedicated", "value": "db", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        ({**GOOD, "key": "example.com/gpu"}, []),
        ({**GOOD, "key": "a" * 63}, []),
        ({**GOOD, "key": "a" * 64}, ["key"]),
        ({**GOOD, "key": ""}, ["key"]),
        ({**GOOD, "key": "-gpu"}, ["key"]),
        ({**GOOD, "key": "gpu card"}, ["key"]),
        ({**GOOD, "key": "/gpu"}, ["key"]),
        ({**GOOD, "key": "example.com/"}, ["key"]),
        ({**GOOD, "key": "a/b/c"}, ["key"]),
        ({**GOOD, "key": "Example.com/gpu"}, ["key"]),
        ({**GOOD, "key": "a" * 253 + "/gpu"}, []),
        ({**GOOD, "key": "a" * 254 + "/gpu"}, ["key"]),
        ({**GOOD, "key": "example.com/" + "a" * 63}, []),
        ({**GOOD, "value": "a" * 63}, []),
        ({**GOOD, "key": "gpu\n"}, ["key"]),
        ({**GOOD, "key": "maintenance.kubeops.io/in-progress"}, ["key"]),
        ({**GOOD, "value": ""}, []),
        ({**GOOD, "value": None}, []),
        ({**GOOD, "value": "a" * 64}, ["value"]),
        ({**GOOD, "value": "a b"}, ["value"]),
        ({**GOOD, "value": "db="}, ["value"]),
        ({**GOOD, "effect": "noschedule"}, ["effect"]),
        ({**GOOD, "effect": ""}, ["effect"]),
        ({**GOOD, "effect": None}, ["effect"]),
        ({"key": "a b", "value": "c d", "effect": "Never"}, ["key", "value", "effect"]),
        ({"key": "dedicated", "state": "absent"}, []),
        ({"key": "dedicated", "effect": "Never", "state": "absent"}, ["effect"]),
    ],
)
def test_a_taint_is_valid_before_anything_is_asked(raw: Raw, where: list[str]) -> None:
    assert refused(raw) == [f"taints[0].{name}" for name in where]


@pytest.mark.parametrize(
    ("raws", "state", "wrong"),
    [
        ([GOOD, {**GOOD, "effect": "NoExecute"}], "present", False),
        ([GOOD, GOOD], "present", True),
        ([GOOD, {**GOOD, "value": "web"}], "exact", True),
        ([{"key": "dedicated"}, GOOD], "absent", False),
        ([GOOD, {"key": "dedicated", "state": "absent"}], "present", True),
        ([{"key": "dedicated", "effect": "NoSchedule", "state": "absent"}, GOOD], "present", True),
        ([{"key": "dedicated", "effect": "NoExecute", "state": "absent"}, GOOD], "present", False),
        ([{"key": "dedicated", "state": "absent"}, {**GOOD, "key": "other"}], "present", False),
        ([{**GOOD, "state": "absent"}], "exact", True),
        ([{**GOOD, "state": "present"}, {"key": "other"}], "absent", False),
    ],
)
def test_no_taint_is_asked_for_twice_or_both_ways(raws: list[Raw], state: str, wrong: bool) -> None:
    assert bool(refused(*raws, state=state)) == wrong


def test_a_taint_that_is_asked_for_twice_is_told_with_both_places() -> None:
    faults = node_taints.read([{**GOOD, "key": "other"}, GOOD, {**GOOD, "value": "web"}], "present")[1]
    assert [(fault.where, fault.value) for fault in faults] == [("taints[2]", "dedicated=web:NoSchedule")]
    assert "see taints[1]" in faults[0].expected


@pytest.mark.parametrize(("value", "text"), [(True, "true"), (False, "false"), (1, "1"), (None, ""), ("True", "True")])
def test_a_value_is_what_a_manifest_would_say(value: object, text: str) -> None:
    ((wish,), faults) = node_taints.read([{**GOOD, "value": value}], "present")
    assert (wish.value, faults) == (text, ())


def raw(text: str, **more: str) -> Raw:
    """``key=value:effect`` as the API server has it."""
    stem, _colon, effect = text.partition(":")
    key, _equals, value = stem.partition("=")
    return {"key": key, **({"value": value} if value else {}), "effect": effect, **more}


ON_NODE = (
    raw("node-role.kubernetes.io/control-plane:NoSchedule"),
    raw("node.kubernetes.io/unreachable:NoExecute", timeAdded="2026-01-01T00:00:00Z"),
    raw("dedicated=db:NoSchedule"),
    raw("dedicated=db:NoExecute", timeAdded="2026-01-02T00:00:00Z"),
    raw("maintenance.kubeops.io/in-progress=abc:NoSchedule"),
    raw("node.cloudprovider.kubernetes.io/uninitialized=true:NoSchedule"),
)
ROLE, LOST, DB, DB_HARD, OURS, CLOUD = (node_taints.in_words(x) for x in ON_NODE)


@pytest.mark.parametrize(
    ("state", "asked", "after"),
    [
        ("present", ["dedicated=db:NoSchedule"], [ROLE, LOST, DB, DB_HARD, OURS, CLOUD]),
        ("present", ["dedicated=web:NoSchedule"], [ROLE, LOST, "dedicated=web:NoSchedule", DB_HARD, OURS, CLOUD]),
        ("present", ["dedicated:NoSchedule"], [ROLE, LOST, "dedicated:NoSchedule", DB_HARD, OURS, CLOUD]),
        (
            "present",
            ["b:NoSchedule", "a:NoExecute"],
            [*map(node_taints.in_words, ON_NODE), "b:NoSchedule", "a:NoExecute"],
        ),
        ("present", [], [ROLE, LOST, DB, DB_HARD, OURS, CLOUD]),
        ("absent", ["dedicated:NoSchedule"], [ROLE, LOST, DB_HARD, OURS, CLOUD]),
        ("absent", ["dedicated=other:NoSchedule"], [ROLE, LOST, DB_HARD, OURS, CLOUD]),
        ("absent", ["dedicated"], [ROLE, LOST, OURS, CLOUD]),
        ("absent", ["dedicated:PreferNoSchedule", "gone"], [ROLE, LOST, DB, DB_HARD, OURS, CLOUD]),
        ("absent", ["node.kubernetes.io/unreachable"], [ROLE, DB, DB_HARD, OURS, CLOUD]),
        ("exact", ["dedicated=db:NoExecute", "x:NoSchedule"], [LOST, DB_HARD, OURS, CLOUD, "x:NoSchedule"]),
        ("exact", [], [LOST, OURS, CLOUD]),
    ],
)
def test_what_becomes_of_a_nodes_taints(state: str, asked: list[str], after: list[str]) -> None:
    wishes, faults = node_taints.read([raw(text) for text in asked], state)
    found = node_taints.desired_taints(ON_NODE, wishes, exact=state == "exact")
    assert not faults
    assert [node_taints.in_words(taint) for taint in found] == after
    # Whatever was not changed is sent back with all of its fields.
    assert all(taint in ON_NODE for taint in found if node_taints.in_words(taint) in map(node_taints.in_words, ON_NODE))
    assert node_taints.desired_taints(found, wishes, exact=state == "exact") == found


def test_one_call_may_set_one_taint_and_remove_another() -> None:
    wishes, faults = node_taints.read([raw("pool=a:NoSchedule"), {"key": "dedicated", "state": "absent"}], "present")
    found = node_taints.desired_taints(ON_NODE, wishes, exact=False)
    assert not faults
    assert [node_taints.in_words(x) for x in found] == [ROLE, LOST, OURS, CLOUD, "pool=a:NoSchedule"]


@pytest.mark.parametrize(
    ("key", "keep", "stays"),
    [
        ("readiness.k8s.io/NetworkReady", (), True),
        ("node.cilium.io/agent-not-ready", (), True),
        ("node.cloudprovider.kubernetes.io/uninitialized", (), True),
        ("karpenter.sh/disrupted", (), True),
        ("node.cluster.x-k8s.io/uninitialized", (), True),
        ("ToBeDeletedByClusterAutoscaler", (), True),
        ("DeletionCandidateOfClusterAutoscaler", (), True),
        ("startup-taint.cluster-autoscaler.kubernetes.io/gpu", (), True),
        ("ebs.csi.aws.com/agent-not-ready", (), True),
        ("maintenance.kubeops.io/in-progress", (), True),
        ("ToBeDeletedByClusterAutoscaler2", (), False),
        ("node-role.kubernetes.io/control-plane", (), False),
        ("example.com/a", (), False),
        ("example.com/a", ("example.com/*",), True),
        ("example.com/a", ("example.com/b",), False),
        ("example.com/b", ("example.com/b",), True),
    ],
)
def test_exact_keeps_what_belongs_to_controllers_and_what_it_is_told_to(
    key: str, keep: tuple[str, ...], stays: bool
) -> None:
    taint = {"key": key, "effect": "NoSchedule"}
    assert bool(node_taints.desired_taints((taint,), (), exact=True, keep=keep)) is stays


def test_the_change_replaces_the_list_as_it_was_read() -> None:
    host = Node.of(node("n1", taints=list(ON_NODE)))
    change = node_taints.rewrite(host, (*ON_NODE[:2], raw("a:NoExecute")))
    assert change is not None
    assert change.resource_version == host.resource_version
    assert change.body == {"spec": {"taints": [*ON_NODE[:2], raw("a:NoExecute")]}}
    assert change.sentence == f"On node n1: set a:NoExecute; remove {DB}, {DB_HARD}, {OURS}, {CLOUD}"
    assert node_taints.rewrite(host, ON_NODE) is None
    emptied = node_taints.rewrite(host, ())
    assert emptied is not None
    assert emptied.body == {"spec": {"taints": None}}


@pytest.mark.parametrize(
    ("before", "after", "new"),
    [
        ([], ["a:NoExecute"], 1),
        (["a:NoExecute"], ["a:NoExecute"], 0),
        (["a=1:NoExecute"], ["a=2:NoExecute"], 1),
        (["a:NoSchedule"], ["a:NoSchedule", "a:NoExecute", "b:PreferNoSchedule"], 1),
        (["a:NoExecute"], [], 0),
    ],
)
def test_which_taints_end_running_pods_anew(before: list[str], after: list[str], new: int) -> None:
    assert len(node_taints.new_no_execute([raw(x) for x in before], [raw(x) for x in after])) == new


@pytest.mark.parametrize(
    ("word", "raw_taint"),
    [
        ("a=b:NoSchedule", {"key": "a", "value": "b", "effect": "NoSchedule", "state": "present"}),
        ("a:NoExecute-", {"key": "a", "effect": "NoExecute", "state": "absent"}),
        ("example.com/a-", {"key": "example.com/a", "state": "absent"}),
        ("a=x:y:z", {"key": "a", "value": "x", "effect": "y:z", "state": "present"}),
        ("", {"key": "", "state": "present"}),
    ],
)
def test_a_taint_in_kubectls_words(word: str, raw_taint: dict[str, str]) -> None:
    assert node_taints.parse(word) == raw_taint
