# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a node that is being drained is still as the run took it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, node_taints
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import outcomes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import ownership
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import Record
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import Raw, node

OURS: Raw = {"key": names.TAINT_KEY, "value": "r1", "effect": "NoSchedule"}
OTHER: Raw = {"key": "node.kubernetes.io/out-of-service", "effect": "NoExecute"}
TAKEN = Record("r1", "n", "ann", "", "", "cordoned", "uid-n1", "", {}, (OURS, OTHER))
FELL = outcomes.DrainOutcome


def seen(record: Record | str = TAKEN, taints: tuple[Raw, ...] = (OURS, OTHER), cordoned: bool = True) -> Node:
    annotations = {names.RECORD: record if isinstance(record, str) else record.dump()} if record else {}
    return Node.of(node("n1", annotations=annotations, taints=list(taints), unschedulable=cordoned))


@pytest.mark.parametrize(
    ("found", "outcome"),
    [
        pytest.param(seen(), None, id="as it was"),
        pytest.param(None, FELL.GONE, id="deleted"),
        pytest.param(replace(seen(), uid="uid-other"), FELL.REPLACED, id="another one of the name"),
        pytest.param(seen("{"), FELL.FAILED, id="its record is broken"),
        pytest.param(seen(""), FELL.ADOPTED_BY, id="given back"),
        pytest.param(seen(replace(TAKEN, nonce="m")), FELL.ADOPTED_BY, id="taken over"),
        pytest.param(seen(TAKEN.at("drained")), None, id="a step further"),
        pytest.param(seen(cordoned=False), FELL.UNCORDONED, id="uncordoned"),
        pytest.param(seen(taints=(OTHER,)), FELL.UNTAINTED, id="our taint is gone"),
        pytest.param(seen(taints=(OURS,)), None, id="another taint of the record is gone"),
        pytest.param(seen(replace(TAKEN, added=()), taints=()), None, id="taken without a taint"),
        pytest.param(seen(taints=({**OURS, "effect": "NoExecute"},)), FELL.UNTAINTED, id="its effect was changed"),
    ],
)
def test_a_drain_stops_once_somebody_else_decides(found: Node | None, outcome: outcomes.DrainOutcome | None) -> None:
    why = ownership.node_lost(found, TAKEN)
    assert (why.outcome if why else None) == outcome


def test_the_taint_is_named() -> None:
    why = ownership.node_lost(seen(taints=()), TAKEN)
    assert why is not None
    assert names.TAINT_KEY in why.message
    assert node_taints.in_words(OTHER) not in why.message
