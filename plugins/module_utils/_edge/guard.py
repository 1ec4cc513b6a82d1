# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``pdb_guard``."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.choices import reactive
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.faces import ClusterFace, Own, built
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.protect.guard import GuardOptions, guard


def _prepared(own: Own, environ: t.Mapping[str, str]) -> Own:
    del environ
    return {**own, "reactive_budgets": reactive(own["reactive_budgets"])}


FACE = ClusterFace(
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
    engine=lambda ctx, own: guard(ctx, built(GuardOptions, own)),
)
