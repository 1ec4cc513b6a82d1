# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What is wrong with how nodes were named."""

from __future__ import annotations

import difflib
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons


def unknown_nodes(
    nodes: t.Mapping[str, objects.Node], wanted: t.Iterable[str]
) -> list[reasons.Finding]:
    """Names that no node has, each with the names that may have been meant."""
    found = []
    for name in dict.fromkeys(wanted):
        if name in nodes:
            continue
        address = [node.name for node in nodes.values() if node.address == name]
        close = address or difflib.get_close_matches(name, nodes, n=3, cutoff=0.6)
        meant = f" Did you mean {' or '.join(close)}?" if close else ""
        remedy = "Name nodes as `kubectl get nodes` does, not by their addresses."
        found.append(
            reasons.Finding.of_node(
                name, "unknown_node", f"There is no node {name}.{meant}", remedy
            )
        )
    return found


def nothing_selected(selector: str) -> reasons.Finding:
    """The finding that ``node_selector`` selects no node."""
    return reasons.Finding(
        "selector_matches_nothing",
        f"No node matches node_selector {selector}.",
        "Look at `kubectl get nodes --show-labels`.",
        "blocker",
        f"node_selector {selector}",
    )
