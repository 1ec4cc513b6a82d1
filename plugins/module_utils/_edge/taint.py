# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``node_taint``."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import (
    choices,
    kubernetes_core,
    specs,
    taint_input,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import node_taints
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.nodes import taint


def _prepared(params: specs.Params, environ: t.Mapping[str, str]) -> specs.Params:
    """The desired taints, read from the options.

    Raises:
        BadOption: ``node_selector`` cannot be parsed, or taints are invalid; names all of them.
    """
    del environ
    params["node_selector"] = choices.label_selector("node_selector", params["node_selector"] or "")
    raws = taint_input.read("taints", params["taints"] or (), params["state"])
    return {**params, "taints": node_taints.read(raws, params["state"])[0]}


SPEC = specs.ClusterModuleSpec(
    name="node_taint",
    steps=("read", "nodes"),
    options={
        "state": {"type": "str", "choices": ["present", "absent", "exact"], "default": "present"},
        "nodes": {"type": "list", "elements": "str", "aliases": ["name"]},
        "node_selector": {"type": "str"},
        "run": {"type": "str"},
        "taints": {"type": "list", "elements": "raw", "required": True},
        "keep": {"type": "list", "elements": "str", "no_log": False, "default": []},
        "allow_no_execute": {"type": "bool", "default": False},
    },
    rules={
        "required_one_of": [("nodes", "node_selector")],
        "mutually_exclusive": [("nodes", "node_selector")],
    },
    lists=("nodes", "keep"),
    prepare=_prepared,
    engine=lambda ctx, params: taint.taint(ctx, specs.from_params(taint.TaintOptions, params)),
    foreign=kubernetes_core.of_taint,
)
