# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
name: maintenance
type: stdout
short_description: Shows the news of a maintenance, and your own tasks
version_added: 1.0.0
author:
  - kubeops contributors (@kubeops)
description:
  - Shows the plan as a table, a heading for each wave, the progress of each node, your own tasks with their output,
    warnings, failures with their causes, and the summary.
  - All of it are plain lines without control characters. A wait has one once it has lasted 10 seconds, and then at
    least every 15.
  - Tasks of the playbooks and roles of this collection are shown only by their news. V(set_fact), V(include_tasks),
    the validation of arguments and others that keep books are not shown if they went well, whoever wrote them.
  - Failures and unreachable hosts are shown whatever the task is. With C(-v) and more, all tasks are shown as by
    P(ansible.builtin.default#callback).
options:
  output_lines:
    description: How many lines to show of what a task printed to its stdout, and how many of its stderr; the last ones.
    type: int
    default: 20
    env:
      - name: KUBEOPS_SCREEN_OUTPUT_LINES
    ini:
      - section: callback_maintenance
        key: output_lines
extends_documentation_fragment:
  - default_callback
  - result_format_callback
requirements:
  - Set as stdout callback in the configuration, for example by E(ANSIBLE_STDOUT_CALLBACK).
seealso:
  - ref: ansible_collections.kubeops.node_maintenance.docsite.guide_screen
    description: What the screen shows, with an example.
"""

EXAMPLES = r"""
ansible.cfg: |
  [defaults]
  stdout_callback = kubeops.node_maintenance.maintenance

environment: |
  ANSIBLE_STDOUT_CALLBACK=kubeops.node_maintenance.maintenance ansible-playbook \
    kubeops.node_maintenance.maintain -e maintain_nodes=worker-1
"""

import datetime
import pathlib
import time
import types
import typing as t

from ansible import constants, context
from ansible.plugins.callback.default import CallbackModule as Default

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import details
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks import (
    screen_waits,
    screen_words,
)
from ansible_collections.kubeops.node_maintenance.plugins.plugin_utils import _progress, _waits

HOME = str(pathlib.Path(__file__).parents[2])
REPORT = f"{screen_words.COLLECTION}.maintenance_report"
CONTROLLERS = "_maintain_controllers"


class CallbackModule(Default):
    """The news of a maintenance; with -v everything, as the callback of ansible-core shows it."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "stdout"
    CALLBACK_NAME = "kubeops.node_maintenance.maintenance"

    def __init__(self) -> None:
        super().__init__()
        self._waits = screen_waits.Waits()
        self._held_back: _waits.HeldBack | None = None
        self._said: list[str] = []
        self._shown: list[str] = []
        self._headed: t.Any = None
        # Waves that earlier starts of the run had finished, and that this one has.
        self._before = 0
        self._index = 0
        self._starting = False
        self._theirs = False

    # The playbook and its plays

    def v2_playbook_on_start(self, playbook: t.Any) -> None:
        super().v2_playbook_on_start(playbook)
        if self._all:
            return
        self._held_back = _waits.HeldBack(self._display, self._told, self._due)
        self._held_back.begin()
        if context.CLIARGS.get("check") and not self.get_option("check_mode_markers"):
            self._say(["Check mode: nothing is changed."], constants.COLOR_VERBOSE)

    def v2_playbook_on_play_start(self, play: t.Any) -> None:
        self._headed = None
        if self._all or not screen_words.own(play.get_path(), HOME):
            super().v2_playbook_on_play_start(play)
            self._theirs = True
        else:
            self._play = play

    def v2_playbook_on_include(self, included_file: t.Any) -> None:
        if self._all:
            super().v2_playbook_on_include(included_file)

    def v2_playbook_on_stats(self, stats: t.Any) -> None:
        if self._held_back:
            self._held_back.end()
        if self._all:
            super().v2_playbook_on_stats(stats)
            return
        hosts = {host: stats.summarize(host) for host in sorted(stats.processed)}
        troubled = [host for host, n in hosts.items() if n["failures"] or n["unreachable"]]
        # The summary of our own playbooks says how they ended.
        listed = dict.fromkeys(hosts if self._theirs else troubled)
        custom = stats.custom and self.get_option("show_custom_stats")
        marked = context.CLIARGS.get("check") and self.get_option("check_mode_markers")
        if listed or custom or marked:
            known = {"summarize": stats.summarize, "custom": stats.custom}
            shown = types.SimpleNamespace(processed=listed, **known)
            super().v2_playbook_on_stats(shown)

    # Tasks

    def _task_start(self, task: t.Any, prefix: str | None = None) -> None:
        self._waits.clear()
        self._said = []
        self._starting = not self._all and self._kind(task) is not screen_words.Kind.THEIRS
        super()._task_start(task, prefix)
        self._starting = False
        reports = (REPORT, screen_words.Kind.ENGINE)
        if not self._all and (task.resolved_action, self._kind(task)) == reports:
            self._say([""])

    def _print_task_banner(self, task: t.Any) -> None:
        if self._starting:
            return
        if self._all or self._kind(task) is screen_words.Kind.THEIRS:
            super()._print_task_banner(task)
        else:
            self._say([f"{task.name or task.action}:"])
            self._last_task_banner = task._uuid

    def v2_runner_on_start(self, host: t.Any, task: t.Any) -> None:
        super().v2_runner_on_start(host, task)
        if self._all:
            return
        self._waits.begin(task.name or task.action, time.monotonic())
        if screen_words.own(task.get_path() or "", HOME):
            self._head(host)

    def v2_runner_on_ok(self, result: t.Any) -> None:
        task = _task(result)
        answer = _answer(result)
        kind = self._kind(task)
        debug = _debugs(task, answer)
        if self._all:
            super().v2_runner_on_ok(result)
            return
        if kind is screen_words.Kind.THEIRS and not debug:
            super().v2_runner_on_ok(result)
            if not task.loop:
                self._say(screen_words.output_lines(answer, self.get_option("output_lines")))
        else:
            self._handle_warnings(answer)
            self._news(kind, result, debug)
        if task.resolved_action and task.resolved_action.startswith(f"{screen_words.COLLECTION}."):
            self._answered(answer)

    def v2_runner_item_on_ok(self, result: t.Any) -> None:
        task = _task(result)
        answer = _answer(result)
        debug = _debugs(task, answer)
        if self._all or (self._kind(task) is screen_words.Kind.THEIRS and not debug):
            super().v2_runner_item_on_ok(result)
            return
        self._handle_warnings(answer)
        if debug:
            self._message(result)

    def v2_runner_on_skipped(self, result: t.Any) -> None:
        if self._all or self._kind(_task(result)) is screen_words.Kind.THEIRS:
            super().v2_runner_on_skipped(result)
        else:
            self._handle_warnings(_answer(result))

    def v2_runner_item_on_skipped(self, result: t.Any) -> None:
        if self._all or self._kind(_task(result)) is screen_words.Kind.THEIRS:
            super().v2_runner_item_on_skipped(result)

    def v2_runner_retry(self, result: t.Any) -> None:
        if self._all or self._kind(_task(result)) is screen_words.Kind.THEIRS:
            super().v2_runner_retry(result)

    def v2_runner_on_failed(self, result: t.Any, ignore_errors: bool = False) -> None:
        if self._all:
            super().v2_runner_on_failed(result, ignore_errors)
            return
        task = _task(result)
        answer = _answer(result)
        if task.loop and "results" in answer:
            self._handle_warnings(answer)
        else:
            self._failed("failed", result)
        if ignore_errors:
            self._say(["...ignoring"], constants.COLOR_SKIP)

    def v2_runner_item_on_failed(self, result: t.Any) -> None:
        if self._all:
            super().v2_runner_item_on_failed(result)
        else:
            self._failed("failed", result, f" (item={self._get_item_label(_answer(result))})")

    def v2_runner_on_unreachable(self, result: t.Any) -> None:
        if self._all:
            super().v2_runner_on_unreachable(result)
            return
        self._failed("unreachable", result)
        if _task(result).ignore_unreachable:
            self._say(["...ignoring"], constants.COLOR_SKIP)

    # What is shown

    @property
    def _all(self) -> bool:
        return bool(self._display.verbosity)

    def _say(self, lines: t.Iterable[str], color: str | None = None, stderr: bool = False) -> None:
        for line in lines:
            self._display.display(line, color=color, stderr=stderr)

    def _kind(self, task: t.Any) -> screen_words.Kind:
        return screen_words.kind(task.resolved_action or task.action, task.get_path() or "", HOME)

    def _news(self, kind: screen_words.Kind, result: t.Any, debug: bool) -> None:
        task = _task(result)
        answer = _answer(result)
        if debug:
            if not task.loop:
                self._message(result)
        elif kind is screen_words.Kind.OURS and answer.get("changed"):
            host = self.host_label(result)
            self._say([task.name if host == "localhost" else f"{host}  {task.name}"])

    def _message(self, result: t.Any) -> None:
        ours = self._kind(_task(result)) is not screen_words.Kind.THEIRS
        place = "" if ours else f"[{self.host_label(result)}] "
        shown = self._shown if ours else ()
        lines = screen_words.message_lines(_answer(result))
        self._say(f"{place}{line}" for line in lines if line not in shown)

    def _answered(self, answer: t.Mapping[str, t.Any]) -> None:
        """A module of ours has answered."""
        answer = details.whole(answer)
        if "resumable" in answer:
            self._before = (answer["resumable"] or {}).get("waves_done", 0)
            self._index = 0
        if screen_words.planned(answer):
            # The playbook `plan` says some of it once more, for those who have another callback.
            self._shown = screen_words.plan_lines(answer, self._before + self._index + 1)
            self._say(["", *self._shown, ""])
        shown = "\n".join(self._said)
        troubles = screen_words.troubles(answer)
        news = (line for message, line in troubles if message not in shown)
        self._say(news, constants.COLOR_ERROR)

    def _failed(self, how: str, result: t.Any, item: str = "") -> None:
        task = _task(result)
        answer = _answer(result)
        self._waits.clear()
        if self._kind(task) is screen_words.Kind.THEIRS and self._last_task_banner != task._uuid:
            self._print_task_banner(task)
        self._handle_warnings(answer)
        stderr = self.get_option("display_failed_stderr")
        color = constants.COLOR_ERROR if how == "failed" else constants.COLOR_UNREACHABLE
        head = f"{how}: [{self.host_label(result)}]{item} {task.name or task.action}"
        self._say([head.rstrip()], color, stderr)
        told = screen_words.short(task.action) in ("fail", "assert")
        if told and self._kind(task) is screen_words.Kind.OURS:
            self._say((f"  {line}" for line in screen_words.message_lines(answer)), color, stderr)
            return
        action, path = task.resolved_action or task.action, task.get_path() or ""
        most = self.get_option("output_lines")
        lines = screen_words.failure_lines(answer, action=action, path=path, most=most)
        self._say(lines, color, stderr)
        self._say((line for _message, line in screen_words.troubles(answer)), color, stderr)

    def _head(self, host: t.Any) -> None:
        """The heading of a wave, when the first task on its controller host starts."""
        nodes = host.get_vars().get("_maintain_nodes")
        groups = {group.name: group for group in host.get_groups()}
        waves = groups[CONTROLLERS].get_hosts() if CONTROLLERS in groups else []
        if self._headed is self._play or not nodes or host not in waves:
            return
        self._headed = self._play
        self._index = waves.index(host)
        number = f"Wave {self._before + self._index + 1} of {self._before + len(waves)}"
        self._say(["", f"{number}: {', '.join(map(str, nodes))}"], constants.COLOR_HIGHLIGHT)

    # What is waited for

    def _told(self, line: _progress.Line) -> bool:
        """A line of progress has come; whether it is a wait, which is shown if it lasts."""
        self._said.append(line.event["message"])
        self._waits.see(line.event, time.monotonic())
        return screen_waits.waits(line.event)

    def _due(self) -> list[str]:
        return self._waits.due(time.monotonic(), datetime.datetime.now(datetime.UTC).isoformat())


def _task(result: t.Any) -> t.Any:
    return result.task if hasattr(result, "task") else result._task


def _answer(result: t.Any) -> dict[str, t.Any]:
    # Before ansible-core 2.19 there is only the second name.
    answer: dict[str, t.Any] = result.result if hasattr(result, "result") else result._result
    return answer


def _debugs(task: t.Any, answer: t.Mapping[str, t.Any]) -> bool:
    return screen_words.short(task.action) == "debug" and ("msg" in answer or "results" in answer)
