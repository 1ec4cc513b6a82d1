# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines that tell of a wait, held back until it has lasted.

Everything that Ansible prints goes through the ``display`` of one ``Display``. While this is in
place, another method takes its place on the object, which sees our lines before they are printed.
Nothing else of Ansible is replaced, and in a process without it our lines are plain text.
"""

from __future__ import annotations

import atexit
import os
import threading
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.plugin_utils import _output, _progress

SECOND = 1.0


class HeldBack:
    """``holds`` is given each line of progress and says whether to hold it back;
    what it has held may come back later, as a line of ``due``.
    """

    def __init__(
        self,
        display: t.Any,
        holds: t.Callable[[_progress.Line], bool],
        due: t.Callable[[], list[str]],
    ) -> None:
        self._display = display
        self._holds = holds
        self._due = due
        _output.outlast(display)
        self._print = display.display
        self._pid = os.getpid()
        self._ended = threading.Event()

    def begin(self) -> None:
        """Hold back until ``end`` or the end of the process."""
        self._display.display = self._show
        atexit.register(self.end)
        threading.Thread(target=self._tick, daemon=True).start()

    def end(self) -> None:
        """Print everything as Ansible does from now on."""
        if os.getpid() == self._pid and not self._ended.is_set():
            self._ended.set()
            self._display.display = self._print

    def _show(self, msg: str, *args: t.Any, **more: t.Any) -> None:
        # In a worker, Display itself passes the line on to the main process.
        if os.getpid() == self._pid and isinstance(msg, _progress.Line) and self._holds(msg):
            self._print(msg, log_only=True)
        else:
            self._print(msg, *args, **more)

    def _tick(self) -> None:
        # The process may fork meanwhile: Display's own lock keeps a child from inheriting a stream
        # that is locked.
        while not self._ended.wait(SECOND):
            for line in self._due():
                self._print(line)
