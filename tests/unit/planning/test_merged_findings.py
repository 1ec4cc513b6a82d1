# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Findings that say the same of different objects are told as one."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import drafts
from ansible_collections.kubeops.node_maintenance.tests.unit.support.advised import nodes, wanted, web
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import owned, pod, snapshot, workload


def of_node(name: str, text: str = "Node {} is not Ready.", code: str = "node_not_ready") -> reasons.Finding:
    return reasons.Finding.of_node(name, code, text.format(name), f"Look at {name}.", "warning")


@pytest.mark.parametrize("many", [2, 16, 1000])
def test_any_number_of_equal_findings_is_one_paragraph(many: int) -> None:
    (one,) = reasons.merged(of_node(f"node-{number:05}") for number in range(many))
    assert one.objects == tuple(f"Node node-{number:05}" for number in range(many))
    assert one.nodes == tuple(f"node-{number:05}" for number in range(many))
    assert one.object == f"Node node-00000 and {many - 1} more"
    assert one.message.startswith("Node node-00000 is not Ready. ")
    assert len(one.message) < 300
    assert one.to_dict()["objects"] == list(one.objects)


@pytest.mark.parametrize(
    "other",
    [
        of_node("b", "Node {} is on fire."),
        of_node("b", code="foreign_cordon"),
        reasons.Finding.of_node("b", "node_not_ready", "Node b is not Ready.", "Look at b.", "blocker"),
    ],
    ids=["another text", "another code", "another severity"],
)
def test_others_stay_what_they_are(other: reasons.Finding) -> None:
    found = reasons.merged([of_node("a"), other])
    assert [one.objects for one in found] == [("Node a",), ("Node b",)]
    assert [one.message for one in found] == ["Node a is not Ready.", other.message]


def test_a_name_within_another_word_is_not_taken_for_it() -> None:
    first, second = (reasons.Finding("c", text, object=f"Pod x/{name}") for name, text in (("a", "at"), ("t", "aa")))
    assert len(reasons.merged([first, second])) == 2


def test_the_same_finding_about_the_same_object_is_told_once() -> None:
    (one,) = reasons.merged([of_node("a"), of_node("a")])
    assert (one.object, one.message) == ("Node a", "Node a is not Ready.")


def test_workloads_with_the_same_reason_and_remedy_are_one() -> None:
    """Whatever their pods, nodes and volumes are called, and however many pods each has."""
    on = ("n1", "n2", "n3")
    parts = [
        {
            "stateful_sets": [workload("StatefulSet", name, 1)],
            "pods": [pod(f"{name}-0", on[number % 3], owned("StatefulSet", name))],
        }
        for number, name in enumerate(("red", "green", "blue", "ochre"))
    ]
    asked = wanted(*on)
    seen = snapshot(*parts, web(2), nodes=nodes(*on, "n4"))
    plan = drafts.judged(seen, asked, drafts.draft(seen, asked))
    blockers = [one for one in plan.findings if one.severity == "blocker"]
    assert [one.nodes for one in blockers] == [("n1",), ("n2",), ("n3",), ("n1",)]
    (one,) = reasons.merged(blockers)
    assert one.objects == tuple(f"StatefulSet shop/{name}" for name in ("red", "green", "blue", "ochre"))
    assert set(one.nodes) == set(on)


def test_what_findings_are_about_besides_is_among_the_objects_of_one() -> None:
    of = [
        reasons.Finding("c", "Down.", object=f"Pod x/{name}", objects=(f"Pod x/{name}", f"Service x/{name}"))
        for name in "ab"
    ]
    (one,) = reasons.merged(of)
    assert one.object == "Pod x/a and 1 more"
    assert one.objects == ("Pod x/a", "Service x/a", "Pod x/b", "Service x/b")
    assert "Service" not in one.message


def test_names_are_listed_up_to_a_number() -> None:
    assert reasons.listed(["a"]) == "a"
    assert reasons.listed("abcde") == "a, b, c, d, e"
    assert reasons.listed("abcdefg") == "a, b, c, d, e and 2 more"
    assert reasons.listed({"x": 1, "y": 2}, 1) == "x and 1 more"
