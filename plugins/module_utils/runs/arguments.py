# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``maintenance_state``."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import (
    plan_needs,
    run_permissions,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import details, specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs import (
    run_recovery,
    run_runs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import run_locks

# ``maintenance_state``: what is stored of a run, and the recovery of what earlier runs left.


State = t.Literal["started", "noted", "ended", "listed", "finished", "undone"]


@dataclass(frozen=True, slots=True)
class StateOptions:
    """Options of the module. ``input`` is the playbook's, ``plan`` holds its ``waves``.

    ``results``, of ``noted``, are those of a wave that is over. ``lease_duration``: seconds for
    which the run counts as alive after ``started`` and ``noted``. ``mark_waiting``: whether pods
    are to prefer other nodes to those that wait for their wave.
    """

    state: State
    input: t.Mapping[str, t.Any] | None = None
    plan: t.Mapping[str, t.Any] | None = None
    nodes: tuple[str, ...] = ()
    results: tuple[t.Any, ...] = ()
    failed: bool = False
    parked: bool = False
    lease_duration: float = run_locks.IDLE
    mark_waiting: bool = False


def state(ctx: run_context.Context, options: StateOptions) -> run_context.Result:
    """Store what a run needs to be resumed, or list or undo what runs left.

    Raises:
        CallAborted: the run is unknown, or our namespace is missing and may not be created.
        ClusterError: the API server cannot be reached or refuses.
    """
    match options.state:
        case "started":
            waves = (options.plan or {}).get("waves") or []
            given = dict(options.input or {})
            return run_runs.started(
                ctx, given, waves, options.lease_duration, mark=options.mark_waiting
            )
        case "noted":
            return run_runs.noted(ctx, options.nodes, options.lease_duration, options.results)
        case "ended":
            return run_runs.ended(ctx, failed=options.failed)
        case "listed":
            return _listed(ctx, options)
    return run_recovery.recover(ctx, finished=options.state == "finished", parked=options.parked)


def _listed(ctx: run_context.Context, options: StateOptions) -> run_context.Result:
    """Every playbook begins with this, so all missing permissions are reported here at once."""
    try:
        found, alive = run_recovery.look(ctx)
        resumable = run_runs.resumable(ctx, options.input)
    except errors.Forbidden as error:
        lacking = run_permissions.refused(
            ctx, error, plan_needs.of_every_run(drain_policy.DrainPolicy())
        )
        findings = [finding.to_dict() for finding in lacking]
        return run_context.Result(
            {"findings": findings}, failed=True, message="\n".join(one.sentence for one in lacking)
        )
    shown = [trace.to_dict(alive=trace.run in alive) for trace in found]
    return run_context.Result({"traces": shown, "resumable": resumable, "nodes": []})


def _prepared(params: specs.Params) -> specs.Params:
    return {**params, "results": tuple(map(details.whole, params["results"] or ()))}


SPEC = specs.ClusterModuleSpec(
    name="maintenance_state",
    lacking=functools.partial(run_permissions.lacking, steps=("locks", "runs")),
    options={
        "state": {
            "type": "str",
            "choices": ["started", "noted", "ended", "listed", "finished", "undone"],
            "default": "listed",
        },
        "run": {"type": "str"},
        "input": {"type": "dict"},
        "plan": {"type": "dict"},
        "nodes": {"type": "list", "elements": "str"},
        "results": {"type": "list", "elements": "dict"},
        "failed": {"type": "bool", "default": False},
        "parked": {"type": "bool", "default": False},
        "lease_duration": {"type": "str"},
        "mark_waiting": {"type": "bool", "default": False},
    },
    durations=("lease_duration",),
    lists=("nodes",),
    prepare=_prepared,
    unshown=("results",),
    rules={
        "required_if": [
            ("state", "started", ["input"]),
            ("state", "noted", ["run", "nodes"]),
            ("state", "ended", ["run"]),
        ]
    },
    engine=specs.engine(state, StateOptions),
)
