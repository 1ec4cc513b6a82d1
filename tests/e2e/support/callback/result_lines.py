# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Writes each task result as a line of JSON, for tests to read; nothing is shown."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from ansible.plugins.callback import CallbackBase

try:
    from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible.details import whole
except ImportError:
    # The benchmark runs other tools, too, in environments without us.
    def whole(result: Any) -> Any:
        return result


DOCUMENTATION = """
name: result_lines
type: notification
short_description: task results as JSON lines, for the tests
description:
  - Appends one line for each result to the file named by E(KUBEOPS_TEST_RESULTS).
requirements:
  - nothing
"""


class CallbackModule(CallbackBase):
    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "result_lines"
    CALLBACK_NEEDS_ENABLED = True

    def __init__(self) -> None:
        super().__init__()
        self._play = ""
        path = os.environ["KUBEOPS_TEST_RESULTS"]
        self._file = open(path, "a", encoding="utf-8")  # noqa: PTH123, SIM115

    def _write(self, **entry: Any) -> None:
        entry["mono"] = time.monotonic()
        self._file.write(json.dumps(entry, default=str) + "\n")
        self._file.flush()

    def _result(self, status: str, result: Any) -> None:
        task = getattr(result, "task", None) or result._task
        host = getattr(result, "host", None) or result._host
        found = getattr(result, "result", None) or result._result
        self._write(
            event="result",
            status=status,
            play=self._play,
            task=task.get_name(),
            action=task.resolved_action or task.action,
            host=host.get_name(),
            bytes=len(json.dumps(found, default=str)),
            result=whole(found),
        )

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self._play = play.get_name()

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        action = task.resolved_action or task.action
        self._write(event="start", play=self._play, task=task.get_name(), action=action)

    def v2_playbook_on_handler_task_start(self, task: Any) -> None:
        self.v2_playbook_on_task_start(task, False)

    def v2_runner_on_ok(self, result: Any) -> None:
        self._result("ok", result)

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self._result("ignored" if ignore_errors else "failed", result)

    def v2_runner_on_skipped(self, result: Any) -> None:
        self._result("skipped", result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self._result("unreachable", result)
