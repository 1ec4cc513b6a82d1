# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``node_taint``."""

from __future__ import annotations

import functools

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import run_permissions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    kubernetes_core,
    option_values,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import node_taints
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    arguments_taints,
    run_taint,
)


def _prepared(params: specs.Params) -> specs.Params:
    """The desired taints, read from the options.

    Raises:
        BadOption: ``node_selector`` cannot be parsed, or taints are invalid; names all of them.
    """
    params["node_selector"] = option_values.label_selector(
        "node_selector", params["node_selector"] or ""
    )
    raws = arguments_taints.read("taints", params["taints"] or (), params["state"])
    return {**params, "taints": node_taints.read(raws, params["state"])[0]}


SPEC = specs.ClusterModuleSpec(
    name="node_taint",
    lacking=functools.partial(run_permissions.lacking, steps=("read", "nodes")),
    options={
        "state": {"type": "str", "choices": ["present", "absent", "exact"], "default": "present"},
        "nodes": {"type": "list", "elements": "str", "aliases": ["name"]},
        "node_selector": {"type": "str"},
        "run": {"type": "str"},
        "taints": {"type": "list", "elements": "raw", "required": True},
        "keep": {"type": "list", "elements": "str", "no_log": False, "default": []},
        "allow_no_execute": {"type": "bool", "default": False},
    },
    rules=specs.NODES_OR_SELECTOR,
    lists=("nodes", "keep"),
    prepare=_prepared,
    engine=specs.engine(run_taint.taint, run_taint.TaintOptions),
    foreign=kubernetes_core.of_taint,
)
