# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import arguments
from ansible_collections.kubeops.node_maintenance.plugins.plugin_utils import _in_process


class ActionModule(_in_process.InProcess):
    spec = arguments.SPEC

    def run(
        self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None
    ) -> dict[str, t.Any]:
        """Write the report and show its summary with line breaks."""
        result = super().run(tmp, task_vars)
        if result.get("summary") and self.shows(task_vars or {}):
            self._display.display(result["summary"])
        return result
