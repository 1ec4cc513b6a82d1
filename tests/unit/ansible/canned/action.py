# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Answers every module's call as a cluster would where all goes well: in two waves, of one node and of the others.

Each call is noted in the file that ``CALLED`` names, as module and state, and with its arguments in ``ARGUMENTS``.
``FAILING`` are those that fail, in JSON: with "call" it fails as a whole, with another word all its nodes fail, with
this outcome. A plan that fails leaves its last node out.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        super().run(tmp, task_vars)
        args = self._task.args
        module = self._task.action.rpartition(".")[2]
        call = f"{module} {self._templar.template(args.get('state', ''))}".strip()
        with Path(os.environ["CALLED"]).open("a") as file:
            file.write(f"{call}\n")
        with Path(os.environ["ARGUMENTS"]).open("a") as file:
            file.write(json.dumps([module, args], default=str) + "\n")
        failing = json.loads(os.environ.get("FAILING", "{}")).get(call)
        if failing == "call":
            return {"changed": False, "failed": True, "msg": f"{call} failed."}
        names = list(args.get("nodes") or ())
        failed = {"failed": True, "outcome": failing} if failing else {"failed": False, "outcome": "ok"}
        nodes = [{"name": name, **failed, "message": "", "address": ""} for name in names]
        answer: dict[str, Any] = {"changed": False, "failed": False, "msg": "", "nodes": nodes}
        if module == "maintenance_plan":
            left = names[-1:] if failing else []
            waves = [names[:1], [name for name in names[1:] if name not in left]]
            answer.update(feasible=True, findings=[], pods=[], waves=waves, wave_seconds=[1, 1], left_out=left)
        if module == "maintenance_wave":
            done = [] if failing else names
            answer.update(ready=done, back=done, stop="", left_out=[], due=False, hooks=[], to_fence=[], answers={})
        if module == "maintenance_state":
            answer.update(traces=[], resumable=None, run="ab12/00000001", msg="Run ab12.")
            answer.update(cluster={"context": "lab", "server": ""})
        if module == "maintenance_report":
            answer.update(html="report.html", summary="")
        return answer
