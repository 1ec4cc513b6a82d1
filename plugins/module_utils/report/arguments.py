# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``maintenance_report``."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    calls,
    details,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import run_files


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportSpec(specs.ModuleSpec):
    """Writes files and needs no cluster."""

    def run(self, arguments: specs.Arguments, call: specs.Call) -> dict[str, t.Any]:
        try:
            results = map(details.whole, arguments["results"])
            written = run_files.write_report(
                results, arguments["dest"], check=call.check, requests=arguments["traffic"]
            )
        except run_files.ReportError as error:
            return calls.failure(str(error))
        return {"failed": False, "msg": "", **written}


SPEC = ReportSpec(
    name="maintenance_report",
    options={
        "results": {"type": "list", "elements": "dict", "required": True},
        "dest": {"type": "path", "required": True},
        "traffic": {"type": "list", "elements": "path", "default": []},
    },
    unshown=("results",),
    documents=("summary",),
)
