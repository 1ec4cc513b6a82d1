# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a drain tells of each node while it waits: how many pods are left, and what holds them."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.drain import node_sites

AT_LEAST = 2.0
"""Seconds between two different things that are told of one node."""


class Progress:
    """One line for each node, when it has changed."""

    def __init__(self, ctx: context.Context) -> None:
        self._ctx = ctx
        self._told: dict[str, tuple[str, float]] = {}

    def tell(self, sites: t.Iterable[node_sites.Site], swaps: t.Collection[str], missing: t.Collection[str]) -> None:
        """Tell of the open sites; ``swaps`` and ``missing`` say what is waited for beside the pods."""
        now = self._ctx.clock.now()
        for site in sites:
            if not site.open:
                continue
            text = _words(site, swaps, missing)
            last, at = self._told.get(site.name, ("", 0.0))
            if text != last and (not last or now - at >= AT_LEAST):
                self._told[site.name] = (text, now)
                self._ctx.tell(phases.What.PROGRESS, text, node=site.name)


def _words(site: node_sites.Site, swaps: t.Collection[str], missing: t.Collection[str]) -> str:
    left = site.left()
    total = sum(1 for move in site.moves.values() if move.state != "skipped")
    leaving = sum(1 for move in left if move.state == "leaving")
    text = f"{len(left)} of {total} pods left, {leaving} ending"
    blocked = {move.blocked_by["message"] for move in left if move.blocked_by} | set(swaps)
    if not left:
        text = f"all {total} pods gone"
        blocked |= set(missing)
    if blocked:
        return text + "; waiting: " + "; ".join(sorted(blocked)[:3])
    return text if left else f"{text}, making sure"
