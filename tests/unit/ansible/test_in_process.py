# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import dataclasses
import multiprocessing
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ansible import constants
from ansible.parsing.dataloader import DataLoader
from ansible.playbook.task import Task
from ansible.template import Templar

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import details, specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible.specs import Call, Event, ModuleSpec
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import run_lease
from ansible_collections.kubeops.node_maintenance.plugins.plugin_utils import _in_process, _interrupts
from ansible_collections.kubeops.node_maintenance.plugins.plugin_utils._in_process import (
    InProcess,
    runs_here,
    task_environment,
)


class Asked(ModuleSpec):
    """Says what it was called with, and tells one event."""

    def run(self, arguments: Any, call: Call) -> dict[str, Any]:
        call.progress(Event("2026-11-21T10:30:48.123Z", "n1", "told", "something happened"))
        return {
            "changed": False,
            "failed": False,
            "where": "here",
            "check": call.check,
            "seen": {key: call.environ.get(key) for key in ("K8S_AUTH_HOST", "EXTRA")},
            "nodes": arguments["nodes"],
            "lets_go": call.let_go is run_lease.let_go,
        }


class Action(InProcess):
    spec = Asked(name="node_cordon", options={"nodes": {"type": "list", "elements": "str", "required": True}})

    def _execute_module(self, **given: Any) -> dict[str, Any]:
        return {"where": "module", **given}


class Connection:
    """As much of a connection as an action looks at."""

    def __init__(self, transport: str) -> None:
        self.transport = transport
        self.become = None
        self._shell = SimpleNamespace(tmpdir=None, env_prefix=lambda **more: "")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    lines: list[str] = []
    monkeypatch.setattr(_in_process.display, "display", lines.append)
    return lines


def run(
    *,
    transport: str = "local",
    become: bool = False,
    variables: dict[str, Any] | None = None,
    args: dict[str, Any] | None = None,
    **task: Any,
) -> dict[str, Any]:
    loaded = Task.load({"name": "x", "kubeops.node_maintenance.node_cordon": args or {"nodes": "a,b"}, **task})
    loader = DataLoader()
    action = Action(
        loaded,
        Connection(transport),
        SimpleNamespace(become=become, check_mode=False),
        loader,
        Templar(loader, variables=variables or {}),
        None,
    )
    return action.run(task_vars=variables or {})


@pytest.fixture(autouse=True)
def no_module_lookup(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loading a task wants to know its module; the plugin loader is not set up in a unit test."""
    monkeypatch.setattr(
        "ansible.parsing.mod_args.ModuleArgsParser.parse",
        lambda self, *_args, **_more: (
            "kubeops.node_maintenance.node_cordon",
            self._task_ds["kubeops.node_maintenance.node_cordon"],
            self._task_ds.get("delegate_to"),
        ),
    )


def test_on_the_controller_the_engine_runs_inside(shown: list[str]) -> None:
    result = run()
    assert result["where"] == "here"
    assert result["nodes"] == ["a", "b"]
    assert shown == ["10:30:48  n1  something happened"]


def test_a_call_that_is_interrupted_knows_how_to_let_go_of_what_its_run_holds(shown: list[str]) -> None:
    assert run()["lets_go"]


@pytest.mark.parametrize(
    "case",
    [
        {"transport": "ssh"},
        {"become": True},
        {"async": 60},
        {"variables": {"ansible_python_interpreter": "/opt/other/bin/python3"}},
    ],
)
def test_as_somebody_else_or_elsewhere_the_module_runs(case: dict[str, Any], shown: list[str]) -> None:
    result = run(**case)
    assert result["where"] == "module"
    assert result["module_name"] == "kubeops.node_maintenance.node_cordon"
    assert result["module_args"] == {"nodes": "a,b"}
    assert shown == []


@pytest.mark.parametrize(("asked", "detailed"), [(True, True), (True, False), (False, True)])
def test_details_are_apart_where_a_playbook_asks_for_that(
    asked: bool, detailed: bool, tmp_path: Path, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = dataclasses.replace(Action.spec, detailed=detailed)
    monkeypatch.setattr(spec.__class__, "run", lambda *_call: {"nodes": [], "failed": False, "pods": ["p"] * 9})
    monkeypatch.setattr(Action, "spec", spec)
    monkeypatch.setattr(constants, "DEFAULT_LOCAL_TMP", str(tmp_path))
    result = run(variables={details.VARIABLE: True} if asked else {})
    both = asked and detailed
    assert ("pods" in result, "details" in result) == (not both, both)
    assert details.whole(result)["pods"] == ["p"] * 9
    assert len(list(tmp_path.iterdir())) == both


@pytest.mark.parametrize("transport", ["local", "ssh"])
def test_a_task_for_a_module_of_another_collection_runs_nowhere(
    transport: str, shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign = dataclasses.replace(Action.spec, foreign=lambda arguments: f"Write nodes: [{arguments['node']}]")
    monkeypatch.setattr(Action, "spec", foreign)
    result = run(transport=transport, args={"node": "a"})
    assert result["failed"] is True
    assert result["msg"] == "Write nodes: [a]"
    assert "where" not in result


@pytest.mark.parametrize("interpreter", [None, sys.executable, "auto_silent", "auto"])
def test_the_controllers_own_interpreter_is_no_reason(interpreter: str | None, shown: list[str]) -> None:
    variables = {} if interpreter is None else {"ansible_python_interpreter": interpreter}
    assert run(variables=variables)["where"] == "here"


def test_a_delegated_task_looks_at_the_other_hosts_interpreter(shown: list[str]) -> None:
    variables = {"ansible_delegated_vars": {"far": {"ansible_python_interpreter": "/opt/other/bin/python3"}}}
    assert run(variables=variables, delegate_to="far")["where"] == "module"


def test_the_tasks_environment_is_merged_templated_and_taken_back(
    shown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EXTRA", "of the process")
    inherited = [{"K8S_AUTH_HOST": "https://outer", "EXTRA": "outer"}, {"K8S_AUTH_HOST": "https://{{ name }}"}]
    result = run(environment=trusted(inherited), variables={"name": "inner"})
    assert result["seen"] == {"K8S_AUTH_HOST": "https://inner", "EXTRA": "outer"}
    assert os.environ["EXTRA"] == "of the process"
    assert "K8S_AUTH_HOST" not in os.environ


def trusted(value: Any) -> Any:
    """As a playbook's file is trusted; cores before 2.19 trust all texts."""
    try:
        from ansible.template import trust_as_template
    except ImportError:
        return value
    if isinstance(value, str):
        return trust_as_template(value)
    if isinstance(value, dict):
        return {key: trusted(inner) for key, inner in value.items()}
    return [trusted(inner) for inner in value]


def test_check_mode_reaches_the_engine(shown: list[str]) -> None:
    assert run(check_mode=True)["check"] is True


def test_no_log_silences_the_progress(shown: list[str]) -> None:
    run(no_log=True)
    assert shown == []


def test_the_variable_silences_the_progress(shown: list[str]) -> None:
    run(variables={"kubeops_progress": "false"})
    assert shown == []


def test_a_machine_that_reads_stdout_gets_no_progress(shown: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ansible.constants.DEFAULT_STDOUT_CALLBACK", "ansible.posix.json")
    run()
    assert shown == []
    run(environment=trusted([{"KUBEOPS_PROGRESS": "1"}]))
    assert shown == ["10:30:48  n1  something happened"]


def test_unknown_and_missing_options_are_named_together(shown: list[str]) -> None:
    result = run(args={"node": "a"})
    assert result["failed"] is True
    assert "Unsupported parameters for (kubeops.node_maintenance.node_cordon) module: node" in result["msg"]
    assert "missing required arguments: nodes" in result["msg"]


def test_two_environments_of_one_python_are_different(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "python3").symlink_to(Path(sys.executable).resolve())
    assert not runs_here(str(tmp_path / "one" / "python3"))
    assert runs_here(str(Path(sys.executable).parent / ".." / "bin" / Path(sys.executable).name))


def test_a_variable_that_was_not_there_is_gone_afterwards() -> None:
    with task_environment({"KUBEOPS_TEST_NUMBER": 7}) as environ:
        assert environ["KUBEOPS_TEST_NUMBER"] == "7"
    assert "KUBEOPS_TEST_NUMBER" not in os.environ


def _worker(pipe: Any, lives: Any) -> None:
    guard = _interrupts.orphan_guard(specs.Interruption())
    assert guard is not None
    guard()
    pipe.send(os.getpid())
    lives.set()
    pipe.recv()
    guard()
    pipe.send("went on without its parent")


def _parent(pipe: Any, lives: Any) -> None:
    multiprocessing.get_context("fork").Process(target=_worker, args=(pipe, lives)).start()
    lives.wait()
    os._exit(0)


def test_a_worker_ends_before_its_next_request_once_its_parent_is_gone() -> None:
    fork = multiprocessing.get_context("fork")
    mine, theirs = fork.Pipe()
    parent = fork.Process(target=_parent, args=(theirs, fork.Event()))
    parent.start()
    theirs.close()
    assert isinstance(mine.recv(), int)
    parent.join()
    mine.send("go on")
    with pytest.raises(EOFError):
        mine.recv()


def test_outside_of_a_worker_there_is_nobody_to_outlive() -> None:
    assert _interrupts.orphan_guard(specs.Interruption()) is None


LOST = """
import os, signal, time, types, weakref
from ansible_collections.kubeops.node_maintenance.plugins.plugin_utils import _left
_left.tell(types.SimpleNamespace(display=print))
class Queue: pass
def finalize(_reference):
    os.kill(os.getpid(), signal.{stop})
    time.sleep(0.01)
queue = Queue()
kept = weakref.ref(queue, finalize)
del queue
time.sleep(5.0)
print("went on")
"""


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda stop: stop.name)
def test_a_signal_in_a_finalizer_ends_the_process_too(stop: signal.Signals) -> None:
    """Python only prints what is raised there; Ansible's workers have queues with finalizers."""
    command = [sys.executable, "-c", LOST.format(stop=stop.name)]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert found.returncode == (-stop if stop == signal.SIGINT else 128 + stop)
    assert "went on" not in found.stdout
    assert "ignored" not in found.stderr
