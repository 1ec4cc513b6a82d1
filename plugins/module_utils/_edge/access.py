# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``maintenance_access``."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.plan import access

SPEC = specs.ClusterModuleSpec(
    name="maintenance_access",
    options={"state": {"type": "str", "choices": ["present", "absent"], "default": "present"}},
    engine=lambda ctx, params: access.install(ctx, specs.from_params(access.AccessOptions, params)),
)
