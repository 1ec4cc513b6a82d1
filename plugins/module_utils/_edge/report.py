# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``maintenance_report``, which needs no cluster."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import faces
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.report_page import files
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import calls


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFace(faces.Face):
    """The one module that writes files instead of objects."""

    def run(self, params: t.Mapping[str, t.Any], call: faces.Call) -> dict[str, t.Any]:
        try:
            written = files.write_report(params["results"], params["dest"], call.check)
        except files.ReportError as error:
            return calls.failure(str(error))
        return {"failed": False, "msg": "", **written}


FACE = ReportFace(
    name="maintenance_report",
    options={
        "results": {"type": "list", "elements": "dict", "required": True},
        "dest": {"type": "path", "required": True},
    },
    unshown=("results",),
)
