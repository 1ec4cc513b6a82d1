# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``maintenance_hooks``."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    option_values,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import arguments
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    run_node_hooks as engine,
)

NEEDED = ("key", "node", "hook", "rule", "action", "tasks")


def _prepared(params: specs.Params) -> specs.Params:
    for index, one in enumerate(params["hooks"] or ()):
        if missing := [key for key in NEEDED if not one.get(key)]:
            raise option_values.BadOption(
                f"hooks[{index}]", sorted(one), f"{', '.join(missing)}, as in a listed hook"
            )
    rules = arguments.read("rules", params["rules"], params.pop("hook"))
    hooks = tuple(map(specs.plain, params["hooks"] or ()))
    return {**params, "rules": rules, "hooks": hooks, "send": arguments.send}


SPEC = specs.ClusterModuleSpec(
    name="maintenance_hooks",
    options={
        "state": {
            "type": "str",
            "choices": ["listed", "called", "begun", "done", "failed"],
            "default": "listed",
        },
        **specs.NODES,
        "hook": {"type": "str", "choices": ["before_node", "after_node"], "default": "before_node"},
        "rules": {"type": "list", "elements": "dict", "options": arguments.NODE_RULE},
        "hooks": {"type": "list", "elements": "dict"},
    },
    lists=("nodes",),
    engine=specs.engine(engine.call_hooks, engine.HookOptions),
    prepare=_prepared,
    unshown=("rules",),
)
