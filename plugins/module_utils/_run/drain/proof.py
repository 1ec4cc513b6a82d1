# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Writing into a node's record what the drain has come to, on the condition that the node is still ours and out."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    node_records,
    objects,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.nodes import cordon, standing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context, writing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.drain import node_sites

Wanted = t.Callable[[objects.Node, node_records.Record], "api_changes.Change | None"]
"""From a node that is out, with its record as it is now, to the change; ``None`` where nothing is to be done."""


def write_node(
    ctx: context.Context,
    site: node_sites.Site,
    wanted: Wanted,
    fence: t.Callable[[], None],
    *,
    known: objects.Raw | None = None,
) -> standing.Fallen | None:
    """Make a change to the site's node, whose state and record are fresh in the site afterwards.

    ``known`` is the node as it was read a moment ago. Returns why the node is no longer to be emptied; nothing is
    written then.

    Raises:
        LostLockError: somebody took the node over.
        ClusterError: the server refused, or could not be reached.
    """
    taken = t.cast("node_records.Record", site.record)
    why: standing.Fallen | None = None

    def decide(raw: objects.Raw | None) -> api_changes.Change | None:
        nonlocal why
        site.node = objects.Node.of(raw) if raw else None
        why = standing.fallen(site.node, taken)
        if why or site.node is None:
            return None
        site.record = node_records.record_of(site.node)
        return wanted(site.node, t.cast("node_records.Record", site.record))

    target = objects.Ref("Node", site.name, api_version="v1")
    found = writing.write(ctx, target, decide, known=known or writing.UNREAD, fence=fence).object
    if found is not None and not why:
        site.node = objects.Node.of(found)
        site.record = node_records.record_of(site.node)
    return why


def drained(node: objects.Node, record: node_records.Record) -> api_changes.Change | None:
    """The proof that nothing is left on the node that had to go."""
    return cordon.at_step(node, record, "drained")
