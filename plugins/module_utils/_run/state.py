# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``maintenance_state``: a run's memory, and the way back for what earlier runs left."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run import recovery, runs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context, Result

State = t.Literal["started", "noted", "ended", "listed", "finished", "undone"]


@dataclass(frozen=True, slots=True)
class StateOptions:
    """Options of the module; ``input`` is what the playbook was asked, ``plan`` holds its ``waves``."""

    state: State
    input: t.Mapping[str, t.Any] | None = None
    plan: t.Mapping[str, t.Any] | None = None
    nodes: tuple[str, ...] = ()
    failed: bool = False


def state(ctx: Context, options: StateOptions) -> Result:
    """Keep a run's memory, or look at and clean up what runs left.

    Raises:
        StopRun: an unknown run, or a namespace that is missing and may not be made.
        ClusterError: the API server cannot be reached or refuses.
    """
    match options.state:
        case "started":
            return runs.started(ctx, dict(options.input or {}), (options.plan or {}).get("waves") or [])
        case "noted":
            return runs.noted(ctx, options.nodes)
        case "ended":
            return runs.ended(ctx, failed=options.failed)
        case "listed":
            found, alive = recovery.look(ctx)
            shown = [x.shown(alive=x.run in alive) for x in found]
            return Result({"traces": shown, "resumable": runs.resumable(ctx, options.input), "nodes": []})
    return recovery.recover(ctx, finished=options.state == "finished")
