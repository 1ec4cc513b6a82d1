# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Bringing the conditions of a node to a phase of its maintenance."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    node_records,
    objects,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.nodes import lifecycle
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context, writing


class Own(t.Protocol):
    """From the node as it was read to its record."""

    def __call__(self, raw: objects.Raw, /) -> node_records.Record | None:
        """``None`` if it is no longer the caller's."""


def show(
    ctx: context.Context,
    name: str,
    phase: lifecycle.Phase,
    own: Own,
    fence: act.Fence,
    *,
    known: objects.Raw | writing.Unread | None = writing.UNREAD,
) -> objects.Raw | None:
    """Write the node's status, if a condition of it is to change; gives the node as it is now.

    ``known`` is the node as it was read just now. Raises what ``writing.write`` raises.
    """

    def decide(raw: objects.Raw | None) -> api_changes.Change | None:
        record = own(raw) if raw else None
        return lifecycle.change(raw, record, phase, ctx.clock.server()) if raw and record else None

    target = objects.Ref("Node", name, api_version="v1")
    return writing.write(ctx, target, decide, known=known, fence=fence).object
