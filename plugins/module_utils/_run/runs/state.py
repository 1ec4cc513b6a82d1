# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``maintenance_state``: what is stored of a run, and the recovery of what earlier runs left."""

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
    """Options of the module. ``input`` is the playbook's, ``plan`` holds its ``waves``.

    ``results``, of ``noted``, are those of a wave that is over. ``lease_duration``: seconds for which the run counts as
    alive after ``started`` and ``noted``. ``mark_waiting``: whether pods are to prefer other nodes to those that wait
    for their wave.
    """

    state: State
    input: t.Mapping[str, t.Any] | None = None
    plan: t.Mapping[str, t.Any] | None = None
    nodes: tuple[str, ...] = ()
    results: tuple[t.Any, ...] = ()
    failed: bool = False
    parked: bool = False
    lease_duration: float = locking.IDLE
    mark_waiting: bool = False


def state(ctx: context.Context, options: StateOptions) -> context.Result:
    """Store what a run needs to be resumed, or list or undo what runs left.

    Raises:
        StopRun: the run is unknown, or our namespace is missing and may not be created.
        ClusterError: the API server cannot be reached or refuses.
    """
    match options.state:
        case "started":
            waves = (options.plan or {}).get("waves") or []
            given = dict(options.input or {})
            return runs.started(ctx, given, waves, options.lease_duration, mark=options.mark_waiting)
        case "noted":
            return runs.noted(ctx, options.nodes, options.lease_duration, options.results)
        case "ended":
            return runs.ended(ctx, failed=options.failed)
        case "listed":
            return _listed(ctx, options)
    return recovery.recover(ctx, finished=options.state == "finished", parked=options.parked)


def _listed(ctx: context.Context, options: StateOptions) -> context.Result:
    """Every playbook begins with this, so all missing permissions are reported here at once."""
    try:
        found, alive = recovery.look(ctx)
        resumable = runs.resumable(ctx, options.input)
    except errors.Forbidden as error:
        lacking = rights.refused(ctx, error, pod_plan.Choices())
        told = [finding.to_dict() for finding in lacking]
        return context.Result({"findings": told}, failed=True, message="\n".join(one.sentence for one in lacking))
    shown = [trace.to_dict(alive=trace.run in alive) for trace in found]
    return context.Result({"traces": shown, "resumable": resumable, "nodes": []})
