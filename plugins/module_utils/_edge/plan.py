# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``maintenance_plan``."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import choices, faces
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.nodes import verify
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.plan import plan


def _prepared(own: faces.Own, environ: t.Mapping[str, str]) -> faces.Own:
    choices.checked("node_selector", own["node_selector"] or "")
    return choices.split({**own, "gates": tuple(own["gates"] or ())}, environ)


FACE = faces.ClusterFace(
    name="maintenance_plan",
    options={
        "nodes": {"type": "list", "elements": "str"},
        "node_selector": {"type": "str"},
        "run": {"type": "str"},
        **choices.CHOICES,
        "goal": {"type": "str", "choices": ["maintained", "evacuated"], "default": "maintained"},
        "max_parallel": {"type": "int", "default": 1},
        "zone_key": {"type": "str", "no_log": False, "default": "topology.kubernetes.io/zone"},
        "max_per_zone": {"type": "int"},
        "settle": {"type": "str"},
        "gates": {"type": "list", "elements": "str", "choices": list(verify.GATES)},
        "stable": {"type": "str", "default": "10s"},
        "wait": {"type": "bool", "default": False},
        "timeout": {"type": "str"},
    },
    rules={"required_one_of": [("nodes", "node_selector")], "mutually_exclusive": [("nodes", "node_selector")]},
    durations=("settle", "stable", "timeout"),
    lists=("nodes", "namespaces", "fenced"),
    prepare=_prepared,
    engine=lambda ctx, own: plan.make_plan(ctx, faces.built(plan.PlanOptions, own)),
)
