# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Check mode of a drain: what the real run would write, and nothing else."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.api_changes import eviction
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.outcomes import (
    DrainOutcome,
    PodOutcome,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.act import apply
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.context import Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.pod_moves import Move
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.drain import proof
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.drain.drain_options import DrainOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.drain.node_sites import MOVED_BY, Site


def predict(ctx: Context, options: DrainOptions, sites: t.Iterable[Site], job: t.Callable[[Move], None]) -> None:
    """Note the changes of these sites and give each its outcome; ``job`` notes that of a PodMigrationJob."""
    for site in sites:
        for move in site.left():
            _predict(ctx, options, move, job)
        if site.node and site.record and not site.selected_only:
            change = proof.drained(site.node, site.record)
            if change:
                apply(ctx, change)
        site.outcome, site.message = DrainOutcome.DRAINED, f"Node {site.name} would be drained."
        if site.selected_only:
            site.outcome, site.message = DrainOutcome.SELECTED_GONE, f"Node {site.name} would lose the selected pods."


def _predict(ctx: Context, options: DrainOptions, move: Move, job: t.Callable[[Move], None]) -> None:
    if move.plan.route != "evict":
        move.outcome = MOVED_BY.get(move.plan.route, PodOutcome.GONE)
        if move.plan.route == "job":
            job(move)
        return
    change = eviction(move.pod, delete=options.choices.disable_eviction, grace_seconds=options.grace_period)
    apply(ctx, change)
    move.outcome = PodOutcome.DELETED if change.verb == "delete" else PodOutcome.EVICTED
