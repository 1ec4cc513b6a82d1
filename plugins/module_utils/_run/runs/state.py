# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``maintenance_state``: a run's memory, and the way back for what earlier runs left."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import pod_plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context, locking, rights
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.runs import recovery, runs

State = t.Literal["started", "noted", "ended", "listed", "finished", "undone"]


@dataclass(frozen=True, slots=True)
class StateOptions:
    """Options of the module.

    ``input`` is what the playbook was asked, ``plan`` holds its ``waves``; ``lease_duration``: seconds for which
    ``started`` and ``noted`` let the run count as alive.
    """

    state: State
    input: t.Mapping[str, t.Any] | None = None
    plan: t.Mapping[str, t.Any] | None = None
    nodes: tuple[str, ...] = ()
    failed: bool = False
    parked: bool = False
    lease_duration: float = locking.IDLE


def state(ctx: context.Context, options: StateOptions) -> context.Result:
    """Keep a run's memory, or look at and clean up what runs left.

    Raises:
        StopRun: an unknown run, or a namespace that is missing and may not be made.
        ClusterError: the API server cannot be reached or refuses.
    """
    match options.state:
        case "started":
            waves = (options.plan or {}).get("waves") or []
            return runs.started(ctx, dict(options.input or {}), waves, options.lease_duration)
        case "noted":
            return runs.noted(ctx, options.nodes, options.lease_duration)
        case "ended":
            return runs.ended(ctx, failed=options.failed)
        case "listed":
            return _listed(ctx, options)
    return recovery.recover(ctx, finished=options.state == "finished", parked=options.parked)


def _listed(ctx: context.Context, options: StateOptions) -> context.Result:
    """With this every playbook begins: so what its account may not do is told here, all at once."""
    try:
        found, alive = recovery.look(ctx)
        resumable = runs.resumable(ctx, options.input)
    except errors.Forbidden as error:
        lacking = rights.refused(ctx, error, pod_plan.Choices())
        raise context.StopRun(
            "missing_permission",
            " ".join(finding.message for finding in lacking),
            "Grant these verbs in roles that are bound to them: the collection brings such roles.",
        ) from error
    shown = [x.shown(alive=x.run in alive) for x in found]
    return context.Result({"traces": shown, "resumable": resumable, "nodes": []})
