# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Check mode of a drain: what the real run would write, and nothing else."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import api_changes, outcomes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context, pod_moves
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.drain import (
    drain_options,
    node_sites,
    proof,
)


def predict(
    ctx: context.Context,
    options: drain_options.DrainOptions,
    sites: t.Iterable[node_sites.Site],
    job: t.Callable[[pod_moves.Move], None],
) -> None:
    """Note the changes of these sites and give each its outcome; ``job`` notes that of a PodMigrationJob."""
    for site in sites:
        for move in site.left():
            _predict(ctx, options, move, job)
        if site.node and site.record and not site.selected_only:
            change = proof.drained(site.node, site.record)
            if change:
                act.apply(ctx, change)
        site.outcome, site.message = outcomes.DrainOutcome.DRAINED, f"Node {site.name} would be drained."
        if site.selected_only:
            site.outcome, site.message = (
                outcomes.DrainOutcome.SELECTED_GONE,
                f"Node {site.name} would lose the selected pods.",
            )


def _predict(
    ctx: context.Context,
    options: drain_options.DrainOptions,
    move: pod_moves.Move,
    job: t.Callable[[pod_moves.Move], None],
) -> None:
    if move.plan.route != "evict":
        move.outcome = node_sites.MOVED_BY.get(move.plan.route, outcomes.PodOutcome.GONE)
        if move.plan.route == "job":
            job(move)
        return
    change = api_changes.eviction(move.pod, delete=options.choices.disable_eviction, grace_seconds=options.grace_period)
    act.apply(ctx, change)
    move.outcome = outcomes.PodOutcome.DELETED if change.verb == "delete" else outcomes.PodOutcome.EVICTED
