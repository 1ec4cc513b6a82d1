# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Arguments of ``maintenance_report``, which needs no cluster."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.faces import Call, Face
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.report_page.files import (
    ReportError,
    write_report,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.calls import failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportFace(Face):
    """The one module that writes files instead of objects."""

    def run(self, params: t.Mapping[str, t.Any], call: Call) -> dict[str, t.Any]:
        try:
            written = write_report(params["results"], params["dest"], call.check)
        except ReportError as error:
            return failure(str(error))
        return {"failed": False, "msg": "", **written}


FACE = ReportFace(
    name="maintenance_report",
    options={
        "results": {"type": "list", "elements": "dict", "required": True},
        "dest": {"type": "path", "required": True},
    },
    unshown=("results",),
)
