# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``maintenance_state``."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import details, specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.runs import state


def _prepared(params: specs.Params, environ: t.Mapping[str, str]) -> specs.Params:
    del environ
    return {**params, "results": tuple(map(details.whole, params["results"] or ()))}


SPEC = specs.ClusterModuleSpec(
    name="maintenance_state",
    steps=("locks", "runs"),
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
    engine=lambda ctx, params: state.state(ctx, specs.from_params(state.StateOptions, params)),
)
