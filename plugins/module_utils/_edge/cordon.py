# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``node_cordon``."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.nodes import cordon

SPEC = specs.ClusterModuleSpec(
    name="node_cordon",
    options={
        "state": {
            "type": "str",
            "choices": ["cordoned", "out", "returning", "parked", "uncordoned"],
            "default": "cordoned",
        },
        **specs.NODES,
        "reason": {"type": "str"},
        "taint": {"type": "bool", "default": True},
        "lease_namespace": {"type": "str"},
        "lease_duration": {"type": "str"},
        "adopt": {"type": "bool", "default": False},
        "stored": {"type": "bool", "default": False},
    },
    durations=("lease_duration",),
    lists=("nodes",),
    engine=lambda ctx, params: cordon.cordon(ctx, specs.from_params(cordon.CordonOptions, params)),
)
