# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``maintenance_plan``."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.choices import CHOICES, checked, split
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.faces import ClusterFace, Own, built
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.nodes.verify import GATES
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.plan.plan import PlanOptions, make_plan


def _prepared(own: Own, environ: t.Mapping[str, str]) -> Own:
    checked("node_selector", own["node_selector"] or "")
    return split({**own, "gates": tuple(own["gates"] or ())}, environ)


FACE = ClusterFace(
    name="maintenance_plan",
    options={
        "nodes": {"type": "list", "elements": "str"},
        "node_selector": {"type": "str"},
        "run": {"type": "str"},
        **CHOICES,
        "goal": {"type": "str", "choices": ["maintained", "evacuated"], "default": "maintained"},
        "max_parallel": {"type": "int", "default": 1},
        "zone_key": {"type": "str", "no_log": False, "default": "topology.kubernetes.io/zone"},
        "max_per_zone": {"type": "int"},
        "settle": {"type": "str"},
        "gates": {"type": "list", "elements": "str", "choices": list(GATES)},
        "stable": {"type": "str", "default": "10s"},
        "wait": {"type": "bool", "default": False},
        "timeout": {"type": "str"},
    },
    rules={"required_one_of": [("nodes", "node_selector")], "mutually_exclusive": [("nodes", "node_selector")]},
    durations=("settle", "stable", "timeout"),
    lists=("nodes", "namespaces", "fenced"),
    prepare=_prepared,
    engine=lambda ctx, own: make_plan(ctx, built(PlanOptions, own)),
)
