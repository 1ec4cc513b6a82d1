# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import node_affinity
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import Raw, node

HOST = Node.of(node("n1", labels={"zone": "a", "cores": "8"}))


def required(*expressions: Raw, fields: tuple[Raw, ...] = ()) -> Raw:
    term = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}}
    }


def expression(key: str, operator: str, *values: str) -> Raw:
    return {"key": key, "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("spec", "selected"),
    [
        ({}, True),
        ({"nodeName": "n1"}, True),
        ({"nodeName": "n2"}, False),
        ({"nodeSelector": {"zone": "a"}}, True),
        ({"nodeSelector": {"zone": "b"}}, False),
        (required(expression("zone", "In", "a", "b")), True),
        (required(expression("zone", "In", "b")), False),
        (required(expression("zone", "NotIn", "b")), True),
        (required(expression("disk", "NotIn", "b")), True),
        (required(expression("zone", "NotIn", "a")), False),
        (required(expression("zone", "Exists")), True),
        (required(expression("disk", "Exists")), False),
        (required(expression("disk", "DoesNotExist")), True),
        (required(expression("zone", "DoesNotExist")), False),
        (required(expression("cores", "Gt", "4")), True),
        (required(expression("cores", "Gt", "8")), False),
        (required(expression("cores", "Gt", "7")), True),
        (required(expression("cores", "Lt", "16")), True),
        (required(expression("cores", "Lt", "9")), True),
        (required(expression("cores", "Lt", "8")), False),
        (required(expression("cores", "Gt", "4", "5")), False),
        (required(expression("cores", "Lt")), False),
        (required(expression("zone", "Gt", "4")), False),
        (required(expression("disk", "Lt", "4")), False),
        (required(expression("zone", "Like", "a")), False),
        (required(expression("zone", "In", "a"), expression("cores", "In", "4")), False),
        (required(fields=(expression("metadata.name", "In", "n1"),)), True),
        (required(fields=(expression("metadata.name", "In", "n2"),)), False),
        (required(), False),
    ],
)
def test_a_pod_spec_selects_a_node(spec: Raw, selected: bool) -> None:
    assert node_affinity.selects(spec, HOST) == selected


def test_one_term_of_a_node_selector_is_enough() -> None:
    terms = [{"matchExpressions": [expression("zone", "In", zone)]} for zone in ("b", "a")]
    assert node_affinity.node_matches({"nodeSelectorTerms": terms}, HOST)
    assert not node_affinity.node_matches({"nodeSelectorTerms": terms[:1]}, HOST)
    assert not node_affinity.node_matches({"nodeSelectorTerms": []}, HOST)
    assert node_affinity.node_matches(None, HOST)
