# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers every module's call as a cluster would where all goes well: in two waves, of one node and of the others."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        args = self._task.args
        names = list(args.get("nodes") or ())
        nodes = [{"name": name, "failed": False, "outcome": "ok", "message": "", "address": ""} for name in names]
        answer: dict[str, Any] = {"changed": False, "failed": False, "msg": "", "nodes": nodes}
        module = self._task.action.rpartition(".")[2]
        if module == "maintenance_plan":
            answer.update(feasible=True, findings=[], pods=[], waves=[names[:1], names[1:]], wave_seconds=[1, 1])
        if module == "maintenance_state":
            answer.update(traces=[], resumable=None, run="ab12/00000001", msg="Run ab12.")
        if module == "maintenance_report":
            answer.update(html="report.html", summary="")
        return answer
