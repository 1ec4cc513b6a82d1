# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Running playbooks and modules as a user does, in a process of their own, and reading results."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml
from witness.log import Json

from support.lab import Lab, ansible, environment
from support.processes import alive, descendants, kill_tree
from support.waiting import until

HERE = Path(__file__).resolve().parent
NAMESPACE = "kubeops.node_maintenance"
STEPS = {
    "again": "maintenance_plan",
    **dict.fromkeys(("protect", "lost_guards", "over_guards", "guards"), "pdb_guard"),
    **dict.fromkeys(("migrate", "fenced"), "node_drain"),
    **dict.fromkeys(("before_node", "after_node", "lost_hooks"), "maintenance_hooks"),
    "verify": "node_ready",
    "taint": "node_taint",
    **dict.fromkeys(("noted", "end"), "maintenance_state"),
}
"""The module of each step of a wave; of all others it is node_cordon."""
REPORTING = ("maintain", "evacuate", "release", "plan")
"""Playbooks that take the one set of inputs, the folder of the report among them."""


@dataclass(frozen=True, slots=True)
class TaskResult:
    """One result of one task on one host; `mono` is when (monotonic seconds), `bytes` how long it is as JSON.

    Where the playbook has details apart, `result` has them, and `bytes` does not count them.
    """

    mono: float
    status: str
    play: str
    task: str
    action: str
    host: str
    bytes: int
    result: Json


@dataclass
class Run:
    """A run that has ended: what it returned, printed and answered."""

    rc: int
    folder: Path

    @property
    def ok(self) -> bool:
        return self.rc == 0

    @cached_property
    def text(self) -> str:
        """All that the user saw."""
        return (self.folder / "output").read_text(encoding="utf-8", errors="replace")

    @cached_property
    def words(self) -> str:
        """The text with its line breaks and indents made single spaces."""
        return " ".join(self.text.replace("\\n", " ").split())

    @cached_property
    def lines(self) -> list[Json]:
        return read_lines(self.folder / "results")

    @property
    def results(self) -> list[TaskResult]:
        return [
            TaskResult(**{key: value for key, value in entry.items() if key != "event"})
            for entry in self.lines
            if entry["event"] == "result"
        ]

    def of(self, module: str) -> list[Json]:
        """The answers of a module of ours, in order; skipped tasks left out. A wave's steps are such answers."""
        found: list[Json] = []
        for each in self.results:
            if each.status == "skipped":
                continue
            if each.action == f"{NAMESPACE}.{module}":
                found.append(each.result)
            steps = each.result.get("steps", []) if each.action == f"{NAMESPACE}.maintenance_wave" else []
            found += [step for step in steps if STEPS.get(step["step"], "node_cordon") == module]
        return found

    def ended_at(self, module: str) -> list[float]:
        """When each call of this module answered, in seconds of the wall clock."""
        ahead = time.time() - time.monotonic()
        return [each.mono + ahead for each in self.results if each.action == f"{NAMESPACE}.{module}"]

    @property
    def answer(self) -> Json:
        """The last answer of the run: that of a module that ran alone."""
        return self.results[-1].result

    @property
    def changed(self) -> bool:
        return any(found.result.get("changed") for found in self.results)

    @property
    def findings(self) -> list[Json]:
        """Findings of all plans and gates, each (code, object) once."""
        known: dict[tuple[str, str], Json] = {}
        for answer in (*self.of("maintenance_plan"), *self.of("node_ready")):
            for finding in answer.get("findings") or []:
                known[finding["code"], json.dumps(finding["object"])] = finding
        return list(known.values())

    def finding(self, code: str) -> Json:
        found = [finding for finding in self.findings if finding["code"] == code]
        assert found, f"no finding {code} among {[f['code'] for f in self.findings]}\n{self.text}"
        return found[0]

    def node(self, name: str, module: str) -> Json:
        """The last entry that a module returned for a node."""
        entries = [e for a in self.of(module) for e in a.get("nodes") or [] if e["name"] == name]
        assert entries, f"{module} says nothing of {name}\n{self.text}"
        last: Json = entries[-1]
        return last

    def pod(self, name: str) -> Json:
        """What node_drain did with a pod, else what the plan says of it."""
        for answer in reversed(self.of("node_drain")):
            for node in answer.get("nodes") or []:
                for pod in node.get("pods") or []:
                    if pod["name"] == name:
                        return dict(pod)
        for answer in reversed(self.of("maintenance_plan")):
            for pod in answer.get("pods") or []:
                if pod["name"] == name:
                    return dict(pod)
        raise AssertionError(f"nothing is said of pod {name}\n{self.text}")

    @property
    def report(self) -> Json:
        found: Json = json.loads((self.folder / "report" / "report.json").read_text("utf-8"))
        return found


def read_lines(path: Path) -> list[Json]:
    """The whole lines of a file of JSON lines."""
    if not path.exists():
        return []
    text = path.read_text(encoding="utf-8")
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


# Gives the command a terminal that interrupts it, as a shell does.
ON_ITS_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


class Running:
    """A run under way, in its own process group; with ``terminal`` it has one, on which somebody may type."""

    def __init__(self, command: list[str], env: dict[str, str], folder: Path, *, terminal: bool = False) -> None:
        self.folder = folder
        self._out = (folder / "output").open("wb")
        self._screen, theirs = pty.openpty() if terminal else (-1, -1)
        self.process = subprocess.Popen(
            [sys.executable, "-c", ON_ITS_TERMINAL, *command] if terminal else command,
            env={**env, "TERM": "xterm"} if terminal else env,
            cwd=folder,
            stdin=theirs if terminal else subprocess.DEVNULL,
            stdout=theirs if terminal else self._out,
            stderr=subprocess.STDOUT,
            start_new_session=not terminal,
        )
        if terminal:
            os.close(theirs)
            self._reader = threading.Thread(target=self._read, daemon=True)
            self._reader.start()

    def _read(self) -> None:
        with contextlib.suppress(OSError):
            while found := os.read(self._screen, 65536):
                self._out.write(found)
                self._out.flush()

    def type(self, text: str) -> None:
        os.write(self._screen, text.encode())

    def interrupted(self, by: str, within: float = 20.0) -> Run:
        """Its end, once Ctrl-C was typed on its terminal or all of its group got this signal; nothing of it is left."""
        known = [self.process.pid, *descendants(self.process.pid)]
        if by == "Ctrl-C":
            self.type("\x03")
        else:
            os.killpg(self.process.pid, signal.Signals[by])
        run = self.wait(within)
        until(lambda: not any(map(alive, known)), 5, "no process is left")
        return run

    @property
    def text(self) -> str:
        return (self.folder / "output").read_text(encoding="utf-8", errors="replace")

    @property
    def over(self) -> bool:
        return self.process.poll() is not None

    def until_says(self, text: str, within: float = 120.0, after: int = 0) -> None:
        """Wait for a text in what the user sees (behind so many characters), while the run goes on."""

        def said() -> bool:
            assert text in self.text[after:] or not self.over, f"it never said {text!r}:\n{self.text}"
            return text in self.text[after:]

        until(said, within, f"the run says {text!r}")

    def has_started(self, module: str) -> bool:
        """Whether a task with this module of ours has begun, or a wave is where it makes its step."""
        lines = read_lines(self.folder / "results")
        begun = {entry["action"].rpartition(".")[2] for entry in lines if entry["event"] == "start"}
        if module in begun or "maintenance_wave" not in begun:
            return module in begun
        cordoned = any(f"  {line}\n" in self.text for line in ("cordoned", "maintenance resumed"))
        return module == "node_cordon" or (module in ("pdb_guard", "node_drain") and cordoned)

    def until_begun(self, module: str, within: float = 120.0) -> None:
        """Wait until a module of ours has begun; a run that ended before fails the test."""

        def begun() -> bool:
            assert self.has_started(module) or not self.over, self.text
            return self.has_started(module)

        until(begun, within, f"{module} has begun")

    def has_done(self, module: str, times: int = 1) -> bool:
        """Whether this module of ours has answered so many times."""
        done = [
            entry
            for entry in read_lines(self.folder / "results")
            if entry["event"] == "result"
            and entry["action"] == f"{NAMESPACE}.{module}"
            and entry["status"] != "skipped"
        ]
        return len(done) >= times

    def wait(self, within: float = 240.0) -> Run:
        """The end of the run; one that does not end in time is killed and fails the test."""
        try:
            rc = self.process.wait(within)
        except subprocess.TimeoutExpired:
            kill_tree(self.process.pid)
            self.process.wait()
            raise AssertionError(f"still running after {within:g} s:\n{self.text}") from None
        finally:
            self._close()
        return Run(rc, self.folder)

    def _close(self) -> None:
        if self._screen >= 0:
            self._reader.join(5)
            os.close(self._screen)
        self._out.close()

    def kill_group(self) -> list[int]:
        """SIGKILL to the process group alone; returns the processes that outlive it."""
        known = descendants(self.process.pid)
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._close()
        time.sleep(0.05)
        return [pid for pid in known if alive(pid)]

    def kill_all(self) -> None:
        """SIGKILL to every process of the run."""
        kill_tree(self.process.pid)
        self.process.wait()
        self._close()

    def stop_if_running(self) -> None:
        if not self.over:
            self.kill_all()


class Player:
    """Starts playbooks and modules against a lab; `player(...)` runs one to its end.

    `may_be_refused` is for a test in which the account is refused what it has a right to, or lacks one on purpose.
    """

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.may_be_refused = False
        self.folder = folder
        self._runs: list[Running] = []

    def __call__(self, playbook: str, *, within: float = 240.0, **more: Any) -> Run:
        return self.start(playbook, **more).wait(within)

    def start(
        self,
        playbook: str,
        *,
        inventory: Mapping[str, Json] | None = None,
        check: bool = False,
        diff: bool = False,
        survey: Mapping[str, str] | None = None,
        args: Sequence[str] = (),
        env: Mapping[str, str] | None = None,
        terminal: bool = False,
        **extra_vars: Any,
    ) -> Running:
        """`extra_vars` keep their types; `survey` goes as `-e k=v`, as strings."""
        name = f"{NAMESPACE}.{playbook}"
        return self._start([name, *args], inventory, check, diff, survey, env, extra_vars, terminal=terminal)

    def file(
        self,
        playbook: Path,
        groups: Mapping[str, Sequence[str]],
        *,
        within: float = 240.0,
        env: Mapping[str, str] | None = None,
        **extra_vars: Any,
    ) -> Run:
        """A playbook of the user's own, with the nodes as hosts of these groups."""
        inventory = {group: {"hosts": self.hosts(nodes)} for group, nodes in groups.items()}
        words = [str(playbook), "-i", self._file("inventory.yml", inventory)]
        return self._start(words, None, False, False, None, env, extra_vars).wait(within)

    def module(
        self, name: str, /, *, check: bool = False, diff: bool = False, within: float = 240.0, **arguments: Any
    ) -> Run:
        """One task with a module of ours, on localhost."""
        return self.module_start(name, check=check, diff=diff, **arguments).wait(within)

    def module_start(
        self,
        name: str,
        /,
        *,
        check: bool = False,
        diff: bool = False,
        env: Mapping[str, str] | None = None,
        **arguments: Any,
    ) -> Running:
        return self._modules([(name, arguments, {})], check=check, diff=diff, env=env)

    def modules(self, calls: Sequence[tuple[str, Json, Json]], *, within: float = 240.0) -> Run:
        """Tasks with modules of ours, one after the other: of each its name, its arguments and its other keywords."""
        return self._modules(calls).wait(within)

    def _modules(
        self,
        calls: Sequence[tuple[str, Json, Json]],
        *,
        check: bool = False,
        diff: bool = False,
        env: Mapping[str, str] | None = None,
    ) -> Running:
        tasks = [{"name": name, f"{NAMESPACE}.{name}": given, **more} for name, given, more in calls]
        play = [{"name": "Modules", "hosts": "localhost", "gather_facts": False, "tasks": tasks}]
        return self._start([self._file("module.yml", play)], None, check, diff, None, env, {})

    def hosts_of(self, config: Json) -> Json:
        """What ``ansible-inventory --list`` says of the cluster's nodes; ``config`` are options of `cluster_nodes`."""
        words = [ansible("ansible-inventory"), "--list", "-i", self.nodes_file(config)]
        done = subprocess.run(
            words, env=self._environment(self.folder, None), capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done.stderr
        found: Json = json.loads(done.stdout, object_hook=lambda one: one.get("__ansible_unsafe", one))
        return found

    def nodes_file(self, config: Json) -> str:
        """A configuration file of `cluster_nodes`."""
        return self._file("lab.cluster_nodes.yml", {"plugin": f"{NAMESPACE}.cluster_nodes", **config})

    def _file(self, name: str, content: object) -> str:
        path = self.folder / f"{time.monotonic_ns()}-{name}"
        path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")
        return str(path)

    def impersonating(self, user: str) -> dict[str, str]:
        """The environment of a run as a user whose rights are the test's subject."""
        return {"K8S_AUTH_KUBECONFIG": str(self.lab.kubeconfig), "K8S_AUTH_IMPERSONATE_USER": user}

    def kubectl_task(self, words: str) -> Json:
        """A task of a user that does something to the cluster while the node is out."""
        command = f"{self.lab.kubectl} --kubeconfig {self.lab.kubeconfig} {words}"
        return {"name": "Meanwhile", "ansible.builtin.command": command}

    def tasks(self, *tasks: Json) -> str:
        """A file with tasks of a user, for `maintain_tasks`."""
        return self._file("tasks.yml", list(tasks))

    def hosts(self, nodes: Sequence[str], **more: Any) -> dict[str, Json]:
        """An inventory in which the nodes are hosts that live, reboot and die with their Node."""
        known = {"ansible_connection": "fake_node", "ansible_python_interpreter": sys.executable}
        # Its own name too, because a task that is delegated to it has that of the delegating host.
        return {name: {**known, "fake_node_name": name, **more} for name in nodes}

    def _start(
        self,
        words: list[str],
        inventory: Mapping[str, Json] | None,
        check: bool,
        diff: bool,
        survey: Mapping[str, str] | None,
        env: Mapping[str, str] | None,
        extra_vars: Json,
        *,
        terminal: bool = False,
    ) -> Running:
        folder = self.folder / f"run-{time.monotonic_ns()}"
        folder.mkdir()
        playbook = words[0].rpartition(".")[2]
        if playbook in REPORTING:
            extra_vars = {"maintain_report_dir": str(folder / "report"), **extra_vars}
        command = [ansible("ansible-playbook"), *words]
        if inventory is not None:
            known = {"all": {"hosts": dict(inventory)}}
            command += ["-i", self._file("inventory.yml", known)]
        if extra_vars:
            command += ["-e", f"@{self._file('vars.yml', extra_vars)}"]
        for key, value in (survey or {}).items():
            command += ["-e", f"{key}={value!r}"]
        command += ["--check"] * check + ["--diff"] * diff
        running = Running(command, self._environment(folder, env), folder, terminal=terminal)
        self._runs.append(running)
        return running

    def _environment(self, folder: Path, more: Mapping[str, str] | None) -> dict[str, str]:
        known = {
            "K8S_AUTH_KUBECONFIG": str(self.lab.operator),
            "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "callback"),
            "ANSIBLE_CALLBACKS_ENABLED": "result_lines",
            "ANSIBLE_CONNECTION_PLUGINS": str(HERE / "connection"),
            "KUBEOPS_TEST_RESULTS": str(folder / "results"),
            "KUBEOPS_TEST_KUBECONFIG": str(self.lab.kubeconfig),
            "XDG_CACHE_HOME": os.environ.get("XDG_CACHE_HOME", str(Path.home() / ".cache")),
        }
        return environment(self.folder.parent, {**known, **(more or {})})

    def stop_all(self) -> None:
        for running in self._runs:
            running.stop_if_running()
