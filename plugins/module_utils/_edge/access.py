# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``maintenance_access``."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.faces import ClusterFace, built
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.plan.access import AccessOptions, install

FACE = ClusterFace(
    name="maintenance_access",
    options={"state": {"type": "str", "choices": ["present", "absent"], "default": "present"}},
    engine=lambda ctx, own: install(ctx, built(AccessOptions, own)),
)
