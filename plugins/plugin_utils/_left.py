# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is left of a run whose playbook does not get to its end: noted by its calls, told as
``ansible-playbook`` ends.

The notes are files in the folder that Ansible makes for this one ``ansible-playbook`` and deletes
at its end. Only the main process has a terminal then. A playbook that ends without an interrupt may
leave its run to another one.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import multiprocessing
import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
import typing as t

from ansible import constants

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs import arguments_left
from ansible_collections.kubeops.node_maintenance.plugins.plugin_utils import _interrupts

PREFIX = "kubeops-note-"
TREE = str(pathlib.Path(__file__).parents[5])
"""The folder with ``ansible_collections``."""
LET_GO_WITHIN_SECONDS = 15.0
"""Seconds that the main process waits for what was held to be let go."""
OVERDUE = 15.0
"""Seconds until a process that was asked to end is cut off: Ansible gives its workers ten."""
SOON = 0.01
"""Seconds after which what was raised in vain is raised again."""
# Python that is about to end starts no threads, so this is a process of its own.
LETS_GO = """
import json, os, sys
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs import arguments as state
given = json.load(sys.stdin)
specs.run_call(state.SPEC, {**given, "state": "ended", "failed": True}, specs.Call(environ=dict(os.environ)))
"""  # noqa: E501


def keep(noted: arguments_left.Note | None) -> None:
    """Keep the note of a call for the main process."""
    if noted is None or multiprocessing.parent_process() is None:
        return
    path = pathlib.Path(constants.DEFAULT_LOCAL_TMP) / f"{PREFIX}{time.time_ns()}-{os.getpid()}"
    # Without it, less is told at the end.
    with (
        contextlib.suppress(OSError),
        os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file,
    ):
        json.dump(noted, file)


def tell(display: t.Any) -> None:
    """If this process is asked to end, let go of what unended runs hold, and say how to go on."""
    if (
        multiprocessing.parent_process() is None
        and threading.current_thread() is threading.main_thread()
    ):
        _End(display)


class _End:
    """The end of ``ansible-playbook`` by a signal.

    A SIGTERM ends the process as Ctrl-C does: by itself it would end it at once, or only the
    process and no worker.
    """

    def __init__(self, display: t.Any) -> None:
        self._display = display
        self._pid = os.getpid()
        self._asked = False
        self._latest = 0.0
        self._telling = threading.Lock()
        self._groups: list[int] = []
        self._before = {one: signal.getsignal(one) for one in _interrupts.SIGNALS}
        for number, handler in self._before.items():
            if handler != signal.SIG_IGN:
                signal.signal(number, self._heed)
        atexit.register(self._tell)

    def _heed(self, number: int, frame: t.Any) -> None:
        before = self._before[signal.Signals(number)]
        if os.getpid() != self._pid or (self._asked and not callable(before)):
            # Also a worker that has just been forked: an exception may be lost there,
            # and then it would go on.
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)
            return
        if not self._asked:
            self._asked = True
            self._latest = time.monotonic() + _interrupts.CUT_OFF_AFTER_SECONDS
            self._groups = _groups(multiprocessing.active_children())
            sys.unraisablehook = _raise_again
            threading.Thread(target=self._cut_off, args=(128 + number,), daemon=True).start()
            if number != signal.SIGINT:
                for worker in multiprocessing.active_children():
                    worker.terminate()
                raise SystemExit(128 + number)
        if callable(before):
            before(number, frame)

    def _cut_off(self, code: int) -> None:
        """A worker that dies handing on a result leaves a lock for which main waits for ever."""
        time.sleep(OVERDUE)
        if self._tell():
            os._exit(code)

    def _tell(self) -> bool:
        """Tell it, unless that is being done."""
        if os.getpid() != self._pid or not self._asked or not self._telling.acquire(blocking=False):
            return False
        for worker in multiprocessing.active_children():
            worker.join(max(0.0, self._latest - time.monotonic()))
            worker.kill()
        for group in self._groups:
            with contextlib.suppress(OSError):
                os.killpg(group, signal.SIGTERM)
        for one in arguments_left.of(_notes()):
            for line in one.lines():
                self._display.display(line, stderr=True)
            if not one.let_go and one.target is not None:
                _let_go(one.run, one.target)
        return True


def _groups(workers: t.Iterable[t.Any]) -> list[int]:
    """The process groups that these workers lead, which they do since ansible-core 2.19.

    A worker ends its group when it is terminated, but main terminates it twice, and the second
    time it may die before it has done so: a module would go on without it.
    """
    groups = []
    for worker in workers:
        with contextlib.suppress(ProcessLookupError):
            if os.getpgid(worker.pid) == worker.pid:
                groups.append(worker.pid)
    return groups


def _raise_again(lost: t.Any) -> None:
    """A signal may come in a finalizer: Python only prints what is raised there."""
    error = lost.exc_value
    if not isinstance(error, (SystemExit, KeyboardInterrupt)):
        sys.__unraisablehook__(lost)
        return

    def again(_number: int, _frame: object) -> t.NoReturn:
        raise error

    signal.signal(signal.SIGALRM, again)
    signal.setitimer(signal.ITIMER_REAL, SOON)


def _notes() -> t.Iterator[arguments_left.Note]:
    for path in sorted(pathlib.Path(constants.DEFAULT_LOCAL_TMP).glob(f"{PREFIX}*")):
        with contextlib.suppress(OSError, ValueError):
            yield json.loads(path.read_text(encoding="utf-8"))


def _let_go(run: str, target: t.Mapping[str, t.Any]) -> None:
    environ = {
        **os.environ,
        **target["environment"],
        "PYTHONPATH": os.pathsep.join([TREE, *sys.path]),
    }
    given = json.dumps({**target["arguments"], "run": run})
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        command = [sys.executable, "-c", LETS_GO]
        subprocess.run(
            command,
            input=given,
            env=environ,
            text=True,
            capture_output=True,
            timeout=LET_GO_WITHIN_SECONDS,
            check=False,
        )
