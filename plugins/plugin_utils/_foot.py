# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Lines at the foot of a terminal that are drawn anew, below what Ansible prints.

Everything that Ansible prints goes through the ``display`` of one ``Display``. While a ``Foot``
stands, it takes the place of that method on the object: it removes its lines, lets Ansible print,
and draws them again. Nothing else of Ansible is replaced, and in a process without it our lines of
progress are plain text.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import threading
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.plugin_utils import _output, _progress

ERASE = "\r\x1b[K"
UP = "\x1b[1A\x1b[K"
SECOND = 1.0
PLAIN = ("AWX_ISOLATED_DATA_DIR", "CI", "JENKINS_URL", "TF_BUILD")
"""Set where a log is kept of what looks like a terminal: by AWX and ansible-runner,
and by services that build.
"""


def on_a_terminal(environ: t.Mapping[str, str], stream: t.TextIO | None = None) -> bool:
    """Whether the output is a terminal that somebody looks at."""
    if environ.get("TERM", "dumb") in ("", "dumb"):
        return False
    if any(environ.get(name, "") not in ("", "0", "false") for name in PLAIN):
        return False
    return (stream or sys.stdout).isatty()


class Foot:
    """``lines`` gives the lines for a width in columns; ``told`` is given each line of
    progress, and may keep it.

    What it has kept it may give back later, as a line of ``due``.
    Without ``live`` nothing is drawn.
    """

    def __init__(
        self,
        display: t.Any,
        lines: t.Callable[[int], list[str]],
        told: t.Callable[[_progress.Line], bool],
        due: t.Callable[[], list[str]],
        *,
        live: bool,
    ) -> None:
        self._display, self._lines, self._told, self._due = display, lines, told, due
        self._live = live
        _output.outlast(display)
        self._print = display.display
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._ended = threading.Event()
        self._drawn = 0

    def stand(self) -> None:
        """Begin, until ``fall`` or the end of the process."""
        self._display.display = self._show
        atexit.register(self.fall)
        threading.Thread(target=self._tick, daemon=True).start()

    def fall(self) -> None:
        """Leave the terminal as if there had been no lines, with the cursor at the
        beginning of a line.
        """
        if os.getpid() != self._pid or self._ended.is_set():
            return
        self._ended.set()
        with self._lock:
            self._write(self._erased())
        self._display.display = self._print

    def draw(self) -> None:
        """Draw the lines as they are now."""
        with self._lock:
            lines = self._lines(self._width()) if self._live and not self._ended.is_set() else []
            erased = self._erased()
            self._drawn = len(lines)
            self._write(erased + "\n".join(lines))

    def _show(self, msg: str, *args: t.Any, **more: t.Any) -> None:
        if os.getpid() != self._pid:
            # A worker: Display itself passes the line on to the main process.
            self._print(msg, *args, **more)
            return
        with self._lock:
            if isinstance(msg, _progress.Line) and self._told(msg):
                self._print(msg, log_only=True)
                self.draw()
            else:
                self._put(msg, *args, **more)

    def _put(self, msg: str, *args: t.Any, **more: t.Any) -> None:
        with self._lock:
            self._write(self._erased())
            self._print(msg, *args, **more)
            self.draw()

    def _tick(self) -> None:
        # The process may fork meanwhile: Display's own lock keeps a child from inheriting a stream
        # that is locked, and what is drawn goes past the streams.
        while not self._ended.wait(SECOND):
            for line in self._due():
                self._put(line)
            self.draw()

    def _erased(self) -> str:
        drawn, self._drawn = self._drawn, 0
        return ERASE + UP * (drawn - 1) if drawn else ""

    @staticmethod
    def _width() -> int:
        return shutil.get_terminal_size().columns - 1

    @staticmethod
    def _write(text: str) -> None:
        if text:
            with _output.tolerated():
                os.write(
                    sys.stdout.fileno(), text.encode(sys.stdout.encoding or "utf-8", "replace")
                )
