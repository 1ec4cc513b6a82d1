# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``pdb_guard``."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import choices, faces
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.protect import guard


def _prepared(own: faces.Own, environ: t.Mapping[str, str]) -> faces.Own:
    del environ
    return {**own, "reactive_budgets": choices.reactive(own["reactive_budgets"])}


FACE = faces.ClusterFace(
    name="pdb_guard",
    options={
        "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
        "nodes": {"type": "list", "elements": "str", "required": True},
        "run": {"type": "str"},
        "surge": {"type": "bool", "default": True},
        "swap_blocked": {"type": "bool", "default": False},
        "pin_budgets": {"type": "bool", "default": False},
        "reactive_budgets": {"type": "list", "elements": "str"},
        "settle": {"type": "str"},
        "timeout": {"type": "str"},
    },
    durations=("settle", "timeout"),
    lists=("nodes",),
    prepare=_prepared,
    engine=lambda ctx, own: guard.guard(ctx, faces.built(guard.GuardOptions, own)),
)
