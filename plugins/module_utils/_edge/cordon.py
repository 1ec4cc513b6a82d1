# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``node_cordon``."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import faces
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.nodes import cordon

FACE = faces.ClusterFace(
    name="node_cordon",
    options={
        "state": {
            "type": "str",
            "choices": ["cordoned", "out", "returning", "parked", "uncordoned"],
            "default": "cordoned",
        },
        "nodes": {"type": "list", "elements": "str", "required": True},
        "run": {"type": "str"},
        "reason": {"type": "str"},
        "taint": {"type": "bool", "default": True},
        "lease_namespace": {"type": "str"},
        "lease_duration": {"type": "str"},
        "adopt": {"type": "bool", "default": False},
        "stored": {"type": "bool", "default": False},
    },
    durations=("lease_duration",),
    lists=("nodes",),
    engine=lambda ctx, own: cordon.cordon(ctx, faces.built(cordon.CordonOptions, own)),
)
