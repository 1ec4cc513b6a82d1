# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is said of names that no node has."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import lookup
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import node


@pytest.mark.parametrize(
    ("listed", "asked", "meant"),
    [
        (["worker-1", "worker-2", "worker-3", "worker-4"], "worker-9", 3),
        (["worker-1", "worker-2"], "worker-9", 2),
        (["database"], "worker-9", 0),
    ],
)
def test_three_similar_names_are_offered_at_most(listed: list[str], asked: str, meant: int) -> None:
    (told,) = lookup.unknown_nodes({name: Node.of(node(name)) for name in listed}, [asked])
    assert sum(name in told.message for name in listed) == meant
