# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A module's engine inside the controller's process, for live progress and for cheap calls
that change nothing.

The module itself runs instead with ``become``, over a connection,
with another interpreter and in the background.
"""

from __future__ import annotations

import contextlib
import os
import sys
import typing as t
from pathlib import Path

from ansible import constants
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.module_utils.errors import UnsupportedError
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import details, specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs import arguments_left
from ansible_collections.kubeops.node_maintenance.plugins.plugin_utils import (
    _interrupts,
    _left,
    _output,
    _progress,
)

COLLECTION = "kubeops.node_maintenance"

display = Display()
# Before the first task with an action of ours, the main process reads its class here.
_output.outlast(display)
_left.tell(display)


class InProcess(ActionBase):
    """Base class of the action plugins; a subclass sets ``spec``."""

    spec: t.ClassVar[specs.ModuleSpec]
    _supports_async = True
    _supports_check_mode = True

    def run(
        self, tmp: str | None = None, task_vars: dict[str, t.Any] | None = None
    ) -> dict[str, t.Any]:
        variables = task_vars or {}
        result: dict[str, t.Any] = super().run(tmp, variables)
        if instead := self.spec.foreign(specs.plain(self._task.args)):
            return {**result, **specs.failure(instead)}
        if self._elsewhere(variables):
            ran: dict[str, t.Any] = self._execute_module(
                module_name=f"{COLLECTION}.{self.spec.name}",
                module_args=self._task.args,
                task_vars=variables,
                wrap_async=self._task.async_val,
            )
            self._keep(specs.plain(self._task.args), {}, ran)
            return {**result, **ran}
        ran = self._run_here(self.shows(variables))
        if self.spec.detailed and variables.get(details.VARIABLE):
            # A folder that the main process deletes at its end.
            ran = details.apart(ran, constants.DEFAULT_LOCAL_TMP)
        return {**result, **ran}

    def shows(self, variables: t.Mapping[str, t.Any]) -> bool:
        """Whether this task may print lines of its own between those of the stdout callback."""
        asked = self._templar.template(variables.get(_progress.VARIABLE))
        callback = str(constants.DEFAULT_STDOUT_CALLBACK)
        return not self._task.no_log and _progress.wanted(
            asked, {**os.environ, **self._environment()}, callback
        )

    def _environment(self) -> dict[str, t.Any]:
        found: dict[str, t.Any] = {}
        self._compute_environment_string(found)
        return found

    def _late_header(self) -> str:
        """What the stdout callback prints above this task only once it has ended;
        empty if it is there already.

        That is so where results without a change, or skipped ones, are hidden: Ansible's own
        callback then waits for what comes of a task.
        """
        known = constants.config.has_configuration_definition("callback", "default")
        if not known or str(constants.DEFAULT_STDOUT_CALLBACK).rpartition(".")[2] != "default":
            return ""
        for option in ("display_ok_hosts", "display_skipped_hosts"):
            place = {"plugin_type": "callback", "plugin_name": "default"}
            if not constants.config.get_config_value(option, **place):
                return f"TASK [{self._task.get_name()}]"
        return ""

    def _elsewhere(self, variables: t.Mapping[str, t.Any]) -> bool:
        if self._task.async_val or self._play_context.become:
            return True
        if self._connection.transport.rpartition(".")[2] != "local":
            return True
        if self._task.delegate_to:
            variables = variables.get("ansible_delegated_vars", {}).get(
                self._task.delegate_to, variables
            )
        interpreter = self._templar.template(variables.get("ansible_python_interpreter"))
        return not (interpreter is None or runs_here(str(interpreter)))

    def _run_here(self, shows: bool) -> dict[str, t.Any]:
        environment = self._environment()
        validation = ArgumentSpecValidator(self.spec.argument_spec, **self.spec.rules).validate(
            specs.plain(self._task.args)
        )
        if validation.error_messages:
            return specs.failure("; ".join(map(self._worded, validation.errors.errors)))
        arguments = validation.validated_parameters
        with task_environment(environment) as environ, _interrupts.heeded() as interruption:
            call = specs.Call(
                check=bool(self._task.check_mode),
                diff=bool(self._task.diff),
                progress=_Shown(self._late_header(), interruption) if shows else _silent,
                environ=environ,
                guard=_interrupts.orphan_guard(interruption),
                interruption=interruption,
                let_go=arguments_left.let_go,
            )
            ran = specs.run_call(self.spec, arguments, call)
        self._keep(arguments, environment, ran, let_go=interruption.asked)
        if interruption.asked:
            # Nobody reads results any more.
            raise KeyboardInterrupt
        return ran

    def _keep(
        self,
        arguments: specs.Arguments,
        environment: dict[str, str],
        ran: dict[str, t.Any],
        *,
        let_go: bool = False,
    ) -> None:
        """Keep what the call changed for the case that the playbook does not get to its end."""
        if not self._task.check_mode:
            _left.keep(
                arguments_left.note(self.spec.name, arguments, environment, ran, let_go=let_go)
            )

    def _worded(self, error: Exception) -> str:
        text = str(error)
        if isinstance(error, UnsupportedError):
            return f"Unsupported parameters for ({COLLECTION}.{self.spec.name}) module: {text}"
        return text


class _Shown:
    """Prints progress, below this header if there is one, until the call is interrupted."""

    def __init__(self, header: str, interruption: specs.Interruption) -> None:
        self._header = header
        self._interruption = interruption

    def __call__(self, event: specs.Event) -> None:
        # Display passes a worker's lines to the main process, so they reach the terminal and the
        # job's log. After an interrupt nobody takes them, and who waited for that would never end.
        if self._interruption.asked:
            return
        header = self._header
        self._header = ""
        if header:
            display.banner(header)
        display.display(_progress.Line.of(event))


def _silent(event: specs.Event) -> None:
    del event


def runs_here(interpreter: str) -> bool:
    """Whether the interpreter is the one of this process; the discovery modes
    leave the choice to us.

    Directory and target are compared separately: two virtual environments may have the same target,
    and ``python`` and ``python3`` of one environment have the same directory.
    """
    if interpreter.startswith("auto"):
        return True
    mine, other = Path(sys.executable), Path(interpreter)
    return mine.parent.resolve() == other.parent.resolve() and mine.resolve() == other.resolve()


@contextlib.contextmanager
def task_environment(wanted: t.Mapping[str, t.Any]) -> t.Iterator[dict[str, str]]:
    """The task's ``environment`` while the engine runs, for exec plugins and proxies too."""
    before = dict(os.environ)
    os.environ.update({key: str(value) for key, value in wanted.items()})
    try:
        yield dict(os.environ)
    finally:
        # A task in a loop uses one worker for all its items.
        for key in wanted:
            os.environ.pop(key, None)
            if key in before:
                os.environ[key] = before[key]
