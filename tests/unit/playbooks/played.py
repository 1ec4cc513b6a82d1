# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Runs tasks below a real ansible-playbook, in a pipe or on a terminal, with an action that tells of a drain."""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import ansible_collections.kubeops.node_maintenance as collection

TREE = next(iter(collection.__path__)).removesuffix("/ansible_collections/kubeops/node_maintenance")
PLAY = "- hosts: localhost\n  connection: local\n  gather_facts: false\n  tasks:\n"
ESCAPE = re.compile(r"\x1b\[[\d;]*([A-Za-z])")
# An action that tells what a drain tells, as one of ours does, and then waits for a file. Its class is read in the main
# process, too, so what is shown of a wait after seconds may be shown at once.
TELLER = """
import dataclasses, os, time
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks import screen_waits as waits
from ansible_collections.kubeops.node_maintenance.plugins.plugin_utils import _in_process, _left, _waits

if "TELL_QUICKLY" in os.environ:
    waits.LASTS, waits.AGAIN, _waits.SECOND, _left.OVERDUE = 0.3, 0.3, 0.1, 2

class Tell(specs.ModuleSpec):
    def run(self, arguments, call):
        until, told = arguments["until"], self.tell(arguments["events"], call)
        if until:
            open(until + ".awaited", "w").close()
        while until and not os.path.exists(until) and not call.interruption.asked:
            time.sleep(0.05)
        if call.interruption.asked:
            open(until + ".ended", "w").close()
        told += self.tell(arguments["then"], call)
        return {"changed": False, "failed": False, "timeline": [dataclasses.asdict(event) for event in told]}

    def tell(self, events, call):
        told = []
        for what, message in events or ():
            phase = "drained" if what == "drained" else "draining"
            told.append(specs.Event("2026-11-21T10:30:48.123Z", "n1", what, message, phase=phase))
            call.progress(told[-1])
        return told

class ActionModule(_in_process.InProcess):
    spec = Tell(
        name="tell",
        options={
            "events": {"type": "list"},
            "until": {"type": "path"},
            "then": {"type": "list"},
            "run": {"type": "str"},
        },
    )
"""
# A task of somebody's that is ended while it hands on a result: the results of workers share one lock.
HOLDER = """
import time
from ansible.plugins.action import ActionBase
from ansible.utils.display import Display

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        Display()._final_q._wlock.acquire()
        open(self._task.args["awaited"], "w").close()
        time.sleep(60)
"""
DEFENCELESS = """
import signal
import subprocess
from ansible.plugins.action import ActionBase

class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        subprocess.run(self._task.args["argv"])
"""
EVENTS = [
    ["cordoned", "cordoned"],
    ["progress", "5 of 7 pods left, 2 ending; waiting: budget web allows no disruption"],
]


def furnished(folder: Path) -> Path:
    """The folder, with the actions ``tell``, ``hold`` and ``defenceless``."""
    (folder / "action_plugins").mkdir()
    (folder / "action_plugins" / "tell.py").write_text(TELLER)
    (folder / "action_plugins" / "hold.py").write_text(HOLDER)
    (folder / "action_plugins" / "defenceless.py").write_text(DEFENCELESS)
    (folder / "ansible.cfg").touch()
    return folder


def written(folder: Path, tasks: str) -> list[str]:
    """The command that runs the tasks."""
    (folder / "play.yml").write_text(PLAY + "".join(f"    {line}\n" for line in tasks.strip().split("\n")))
    return [sys.executable, "-m", "ansible", "playbook", str(folder / "play.yml")]


def environ(folder: Path, **more: str) -> dict[str, str]:
    foreign = ("ANSIBLE_", "KUBEOPS_", "CI", "PYTHONUNBUFFERED")
    mine = {key: value for key, value in os.environ.items() if not key.startswith(foreign)}
    return {
        **mine,
        "ANSIBLE_COLLECTIONS_PATH": TREE,
        "PYTHONPATH": TREE,
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        "ANSIBLE_LOCALHOST_WARNING": "0",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "0",
        "ANSIBLE_STDOUT_CALLBACK": "kubeops.node_maintenance.maintenance",
        **more,
    }


def piped(folder: Path, tasks: str, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
    command = [*written(folder, tasks), *words]
    settings = environ(folder, **more)
    return subprocess.run(
        command, cwd=folder, env=settings, capture_output=True, text=True, encoding="utf-8", timeout=180, check=False
    )


def read(
    folder: Path,
    tasks: str,
    then: Callable[[str, subprocess.Popen[bytes]], bool],
    *,
    terminal: bool = False,
    **more: str,
) -> tuple[int, str]:
    """Run with the output in a pipe or on a terminal, and call ``then`` with what was read so far.

    It says whether to read on. Returns the exit code and what was read.
    """
    mine, theirs = pty.openpty() if terminal else os.pipe()
    settings = environ(folder, **{"TERM": "xterm", **more})
    text, latest = "", time.monotonic() + 60
    with subprocess.Popen(
        written(folder, tasks), cwd=folder, env=settings, stdout=theirs, stderr=theirs, start_new_session=True
    ) as process:
        os.close(theirs)
        reads = True
        while reads and time.monotonic() < latest:
            if select.select([mine], [], [], 0.2)[0]:
                found = _some(mine)
                text += found.decode("utf-8", "ignore")
                reads = bool(found) and then(text, process)
        os.close(mine)
        try:
            return process.wait(max(latest - time.monotonic(), 0)), text
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise AssertionError(f"it does not end:\n{text}") from None


def _some(source: int) -> bytes:
    """What is there to read; nothing at the end, which a terminal tells by an error."""
    try:
        return os.read(source, 65536)
    except OSError:
        return b""


class Terminal:
    """A terminal's screen: what is seen after all that was written to it, and the exit ``code`` of the command."""

    def __init__(self) -> None:
        self.code = 0
        self.rows, self.row, self.column, self.raw = [""], 0, 0, ""

    def write(self, text: str) -> None:
        self.raw += text
        while text:
            if found := ESCAPE.match(text):
                assert found[1] == "m", f"a command that lines do not need: {found[1]}"
                text = text[found.end() :]
                continue
            self._letter(text[0])
            text = text[1:]

    def _letter(self, letter: str) -> None:
        if letter == "\r":
            self.column = 0
        elif letter == "\n":
            self.row += 1
            self.rows += [""] * (self.row + 1 - len(self.rows))
        else:
            line = self.rows[self.row].ljust(self.column)
            self.rows[self.row] = line[: self.column] + letter + line[self.column + 1 :]
            self.column += 1


def on_terminal(
    folder: Path, tasks: str, then: Callable[[Terminal, subprocess.Popen[bytes]], None], **more: str
) -> Terminal:
    """Run on a terminal, calling ``then`` again and again; the terminal as it is left."""
    mine, theirs = pty.openpty()
    before = termios.tcgetattr(theirs)
    settings = environ(folder, TERM="xterm", COLUMNS="120", PYTHONIOENCODING="utf-8", **more)
    command = written(folder, tasks)
    terminal = Terminal()
    # A shell that starts tests in the background has SIGINT ignored, nohup SIGHUP, and what they start inherits that.
    ours = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP)}
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        process = subprocess.Popen(
            command, cwd=folder, env=settings, stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
        )
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)
    latest = time.monotonic() + 120
    with process:
        decoder = codecs.getincrementaldecoder("utf-8")("ignore")
        while process.poll() is None or select.select([mine], [], [], 0.2)[0]:
            if time.monotonic() > latest:
                os.killpg(process.pid, signal.SIGKILL)
                raise AssertionError(f"it does not end:\n{terminal.raw}")
            if select.select([mine], [], [], 0.2)[0]:
                terminal.write(decoder.decode(os.read(mine, 65536)))
            then(terminal, process)
        terminal.code = process.wait(timeout=60)
    assert termios.tcgetattr(theirs) == before, "the terminal works as before"
    os.close(theirs)
    os.close(mine)
    return terminal
