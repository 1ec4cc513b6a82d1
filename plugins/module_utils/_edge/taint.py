# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``node_taint``."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import errors, faces
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import node_taints
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.nodes import taint


def _prepared(own: faces.Own, environ: t.Mapping[str, str]) -> faces.Own:
    """The desired taints, read from the options.

    Raises:
        BadOptions: some of them are not valid; all of those are named.
    """
    del environ
    desired, faults = node_taints.read(own["taints"] or (), own["state"])
    if faults:
        raise errors.BadOptions(faults)
    return {**own, "taints": desired}


FACE = faces.ClusterFace(
    name="node_taint",
    options={
        "state": {"type": "str", "choices": ["present", "absent", "exact"], "default": "present"},
        "nodes": {"type": "list", "elements": "str", "required": True},
        "taints": {
            "type": "list",
            "elements": "dict",
            "required": True,
            "options": {
                "key": {"type": "str", "required": True, "no_log": False},
                "value": {"type": "raw"},
                "effect": {"type": "str", "choices": list(node_taints.EFFECTS)},
                "state": {"type": "str", "choices": ["present", "absent"]},
            },
        },
        "allow_no_execute": {"type": "bool", "default": False},
        "run": {"type": "str"},
    },
    lists=("nodes",),
    prepare=_prepared,
    engine=lambda ctx, own: taint.taint(ctx, faces.built(taint.TaintOptions, own)),
)
