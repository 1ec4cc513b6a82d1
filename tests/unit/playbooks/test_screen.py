# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The callback ``maintenance`` below a real ansible-playbook: in a pipe, on a terminal, interrupted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import commands
from ansible_collections.kubeops.node_maintenance.tests.unit.playbooks.played import (
    EVENTS,
    Terminal,
    furnished,
    on_terminal,
    piped,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return furnished(tmp_path)


TASKS = """
- name: Keep a fact
  ansible.builtin.set_fact: {answer: 42}
- name: Tell
  tell: {events: EVENTS}
- name: Say
  ansible.builtin.debug: {msg: [first, second]}
- name: Patch
  ansible.builtin.command: printf 'one\\ntwo'
- name: Write
  ansible.builtin.copy: {content: "new\\n", dest: "{{ playbook_dir }}/file", mode: "0644"}
- name: Hidden
  ansible.builtin.command: sh -c 'echo canary; exit 1'
  no_log: true
  ignore_errors: true
- name: Out of reach
  ansible.builtin.ping:
  delegate_to: far
  vars: {ansible_connection: ssh, ansible_host: 127.0.0.1, ansible_port: 1}
  ignore_unreachable: true
- name: Break
  ansible.builtin.shell: echo out; echo 'E cannot lock' >&2; exit 3
""".replace("EVENTS", json.dumps(EVENTS))


def test_in_a_pipe_the_news_are_plain_lines(folder: Path) -> None:
    (folder / "file").write_text("old\n")
    done = piped(folder, TASKS, "--diff")
    lines = [line.rstrip() for line in done.stdout.split("\n")]
    assert done.returncode == 2
    assert "\x1b" not in done.stdout + done.stderr
    assert "\r" not in done.stdout
    assert "Keep a fact" not in done.stdout
    assert "10:30:48  n1  cordoned" in lines
    assert "pods left" not in done.stdout, "a wait that is soon over is no news"
    assert lines[lines.index("[localhost] first") + 1] == "[localhost] second"
    at = lines.index("changed: [localhost]")
    assert lines[at + 1 : at + 3] == ["    one", "    two"]
    assert {"-old", "+new"} <= set(lines)
    assert "canary" not in done.stdout + done.stderr
    assert "failed: [localhost] Hidden" in lines
    [where] = [number for number, line in enumerate(lines) if line.startswith("unreachable: [localhost -> far")]
    assert lines[where].endswith("Out of reach")
    assert lines[where + 1].strip()
    broken = lines.index("failed: [localhost] Break")
    assert lines[broken + 2 : broken + 5] == [
        "  module  ansible.builtin.shell, return code 3",
        "  stderr  E cannot lock",
        "  stdout  out",
    ]
    assert lines[broken + 5].startswith(f"  task    {folder}/play.yml:")
    assert any(line.startswith("localhost ") and "failed=1" in line for line in lines)


def test_with_v_all_is_shown_as_by_ansible_itself(folder: Path) -> None:
    tasks = "- ansible.builtin.set_fact: {answer: 42}\n- name: Patch\n  ansible.builtin.command: echo done"
    ours = piped(folder, tasks, "-v")
    assert ours.returncode == 0
    assert "TASK [ansible.builtin.set_fact]" in ours.stdout
    theirs = piped(folder, tasks, "-v", ANSIBLE_STDOUT_CALLBACK="default")
    times = re.compile(r'"(start|end|delta)": "[^"]*"')
    assert times.sub("", ours.stdout) == times.sub("", theirs.stdout)


def test_warnings_of_silent_tasks_are_shown_and_check_mode_is_named(folder: Path) -> None:
    (folder / "library").mkdir()
    (folder / "library" / "warns.py").write_text(
        "from ansible.module_utils.basic import AnsibleModule\n"
        "module = AnsibleModule({}, supports_check_mode=True)\n"
        "module.exit_json(changed=True, warnings=['mind the gap'])\n"
    )
    done = piped(folder, "- name: Warn\n  warns:", "--check")
    assert done.returncode == 0
    assert "Check mode: nothing is changed." in done.stdout
    assert "mind the gap" in done.stdout + done.stderr
    assert "changed: [localhost]" in done.stdout


def test_colours_are_ansibles(folder: Path) -> None:
    tasks = "- name: Patch\n  ansible.builtin.command: echo done"
    assert "\x1b[0;33mchanged" in piped(folder, tasks, ANSIBLE_FORCE_COLOR="1").stdout


def test_a_callback_for_programs_gets_no_line_of_ours(folder: Path) -> None:
    (folder / "callback_plugins").mkdir()
    (folder / "callback_plugins" / "json.py").write_text(
        "from ansible.plugins.callback import CallbackBase\n"
        "class CallbackModule(CallbackBase):\n"
        "    CALLBACK_VERSION, CALLBACK_TYPE, CALLBACK_NAME = 2.0, 'stdout', 'json'\n"
        "    def v2_playbook_on_stats(self, stats):\n"
        "        self._display.display('{}')\n"
    )
    report = "- kubeops.node_maintenance.maintenance_report: {results: [], dest: '{{ playbook_dir }}/report'}"
    plugins = str(folder / "callback_plugins")
    machine = piped(folder, report, ANSIBLE_STDOUT_CALLBACK="json", ANSIBLE_CALLBACK_PLUGINS=plugins)
    assert (machine.returncode, machine.stdout.strip()) == (0, "{}")
    assert "Nothing to do." in piped(folder, report).stdout
    assert "Nothing to do." not in piped(folder, report, "-e", "kubeops_progress=false").stdout


def ended(folder: Path, stop: signal.Signals, tasks: str, awaited: str, **more: str) -> Terminal:
    """A terminal on which all processes of the command were given that signal once this file was there."""
    sent: list[float] = []

    def then(terminal: Terminal, process: subprocess.Popen[bytes]) -> None:
        if not sent and (folder / awaited).exists():
            sent.append(time.monotonic())
            os.killpg(process.pid, stop)

    terminal = on_terminal(folder, tasks, then, **more)
    assert sent
    assert time.monotonic() - sent[0] < 20
    assert terminal.code not in (0, None)
    return terminal


def tells(folder: Path, until: str, **args: object) -> str:
    return f"- name: Tell\n  tell: {json.dumps({'events': EVENTS, 'until': until and str(folder / until), **args})}\n"


def said(terminal: Terminal) -> None:
    """Once each: what is left of run r1, how to go on, how to undo it; and the terminal works as before."""
    assert sum(row.startswith("  n1  ") and "draining" in row for row in terminal.rows) == 1
    assert sum(row.startswith("To go on: ") for row in terminal.rows) == 1
    assert sum(row.endswith(commands.undo("r1")) for row in terminal.rows) == 1
    assert "n0nce" not in terminal.raw
    assert not [row for row in terminal.rows if "Traceback" in row]
    assert (terminal.rows[terminal.row], terminal.column) == ("", 0)


STOPS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.name)
def test_a_call_that_is_asked_to_end_does_so_and_says_how_to_go_on(stop: signal.Signals, folder: Path) -> None:
    tasks = tells(folder, "never", run="r1/n0nce")
    terminal = ended(folder, stop, tasks, "never.awaited", NO_COLOR="1")
    assert (folder / "never.ended").exists(), "the call ended by itself"
    said(terminal)
    assert any("User interrupted execution" in row for row in terminal.rows) is (stop == signal.SIGINT)
    assert "\x1b[?" not in terminal.raw, "the cursor was never hidden"
    assert not re.search(r"\x1b\[[\d;]*m", terminal.raw), "NO_COLOR"


@pytest.mark.parametrize("stop", STOPS, ids=lambda stop: stop.name)
@pytest.mark.parametrize("action", ["ansible.builtin.command", "defenceless"])
def test_between_two_calls_it_is_the_same(action: str, stop: signal.Signals, folder: Path) -> None:
    """While a task of somebody's runs, which ends with it: also when its worker dies at once, as
    one does that is terminated again before it has handed on the first time.
    """
    script = f"echo $$ > {folder}/new; mv {folder}/new {folder}/pid; exec sleep 60"
    theirs = f"- name: Patch\n  {action}: {{argv: [sh, -c, {json.dumps(script)}]}}\n"
    said(ended(folder, stop, tells(folder, "", run="r1/n0nce") + theirs, "pid"))
    pid = int((folder / "pid").read_text())
    latest = time.monotonic() + 5
    while (there := Path(f"/proc/{pid}").exists()) and time.monotonic() < latest:
        time.sleep(0.05)
    assert not there


def test_it_ends_although_ansible_waits_for_a_worker_that_is_gone(folder: Path) -> None:
    hold = f"- name: Hold\n  hold: {{awaited: {folder}/held}}"
    said(ended(folder, signal.SIGINT, tells(folder, "", run="r1/n0nce") + hold, "held", TELL_QUICKLY="1"))
