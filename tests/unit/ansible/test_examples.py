# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nothing in an example or a command of the documentation is refused: arguments, task keywords, variables."""

from __future__ import annotations

import importlib
import itertools
import os
import re
import shlex
import subprocess
import sys
import textwrap
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator
from ansible.parsing.splitter import parse_kv

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks import inputs
from ansible_collections.kubeops.node_maintenance.tests.unit.ansible.test_documentation import MODULES, PLUGINS, spec_of
from ansible_collections.kubeops.node_maintenance.tests.unit.playbooks.test_playbooks import REPOSITORY, TREE, play

OURS = "kubeops.node_maintenance."
OF_A_TYPE: t.Mapping[str, t.Any] = {"list": [], "dict": {}, "bool": True, "int": 1}
"""A value in place of a template, by the type of its option."""
COMMAND = re.compile(r"^\s*(?:\$ )?(ansible-playbook (?:[^\\\n]|\\\n|\\.)*)$", re.MULTILINE)
CONTINUED = re.compile(r"\\\n\s*(?:> )?")
"""The end of a line that goes on, and what a shell shows before the next."""
BLOCK = re.compile(
    r"^```console\n(.*?)^```|^\.\. code-block:: (?:console|shell|bash)\n\n((?: +[^\n]*\n|\n)+)", re.M | re.S
)
OWN_PLAYBOOK = REPOSITORY / "playbooks/files/own_playbook.yml"
INPUT = ("maintain", "evacuate", "plan", "release")
"""The playbooks that read ``maintain_*``."""
Task = dict[str, t.Any]


def examples(name: str, kind: str = "modules") -> list[Task]:
    """The tasks of a plugin's EXAMPLES."""
    tasks: list[Task] = yaml.safe_load(importlib.import_module(f"{PLUGINS}.{kind}.{name}").EXAMPLES)
    return tasks


def calls() -> list[tuple[str, str, Task]]:
    """Each call of a module of ours in the examples: where, of which module, with which arguments."""
    found = []
    for place in MODULES:
        for task in examples(place):
            (action,) = (key for key in task if "." in key)
            if action.startswith(OURS):
                found.append((f"{place}: {task['name']}", action.removeprefix(OURS), task[action] or {}))
    return found


def walked(tasks: t.Iterable[Task]) -> t.Iterator[Task]:
    """The tasks, with those in blocks."""
    for task in tasks:
        yield task
        for part in ("block", "rescue", "always"):
            yield from walked(task.get(part) or ())


def calls_of_the_own_playbook() -> list[tuple[str, str, Task]]:
    """As ``calls``, of the playbook in the guide."""
    plays = yaml.safe_load(OWN_PLAYBOOK.read_text(encoding="utf-8"))
    tasks = [task for play in plays for task in walked(play["tasks"])]
    ours = [(task, action) for task in tasks for action in task if action.startswith(OURS)]
    return [(task["name"], action.removeprefix(OURS), task[action]) for task, action in ours]


def untemplated(value: t.Any, option: t.Mapping[str, t.Any]) -> t.Any:
    """The value, or one of its option's type in place of a template."""
    return OF_A_TYPE.get(option.get("type", "str"), value) if isinstance(value, str) and "{{" in value else value


@pytest.mark.parametrize(("place", "module", "arguments"), [*calls(), *calls_of_the_own_playbook()])
def test_an_example_has_arguments_that_its_module_takes(place: str, module: str, arguments: Task) -> None:
    spec = spec_of(importlib.import_module(f"{PLUGINS}.modules.{module}"))
    known = spec.argument_spec
    given = {name: untemplated(value, known.get(name, {})) for name, value in arguments.items()}
    validation = ArgumentSpecValidator(known, **spec.rules).validate(given)
    assert validation.error_messages == [], place
    spec.converted(validation.validated_parameters)


def test_a_wrong_argument_in_an_example_is_noticed() -> None:
    spec = spec_of(importlib.import_module(f"{PLUGINS}.modules.node_drain"))
    validation = ArgumentSpecValidator(spec.argument_spec, **spec.rules).validate({"node": ["worker-1"]})
    assert validation.error_messages


def test_ansible_reads_the_examples_as_tasks(tmp_path: Path) -> None:
    filters = [path.stem for path in (REPOSITORY / "plugins/filter").glob("*.py")]
    sources = [(name, "modules") for name in MODULES] + [(name, "filter") for name in sorted(filters)]
    plays = [{"name": name, "hosts": "localhost", "tasks": examples(name, kind)} for name, kind in sources]
    (tmp_path / "examples.yml").write_text(yaml.safe_dump(plays, sort_keys=False))
    done = subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", "--syntax-check", "-i", "localhost,", "examples.yml"],
        cwd=tmp_path,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": TREE, "ANSIBLE_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_own_playbook_has_every_step_and_is_in_its_guide_as_it_is() -> None:
    steps = [(module, arguments.get("state", "")) for _name, module, arguments in calls_of_the_own_playbook()]
    assert steps == [
        ("maintenance_plan", ""),
        ("node_cordon", ""),
        ("pdb_guard", ""),
        ("node_drain", ""),
        ("node_cordon", "out"),
        ("node_cordon", "returning"),
        ("node_ready", ""),
        ("pdb_guard", "absent"),
        ("node_cordon", "uncordoned"),
    ]
    guide = (REPOSITORY / "docs/docsite/rst/guide_own_playbook.rst").read_text(encoding="utf-8")
    assert textwrap.indent(OWN_PLAYBOOK.read_text(encoding="utf-8").removeprefix("---\n"), "   ") in guide


def test_ansible_reads_the_own_playbook(tmp_path: Path) -> None:
    code, text = play(tmp_path, str(OWN_PLAYBOOK), "--syntax-check", "-i", "worker-1,")
    assert code == 0, text


def commands() -> list[tuple[str, str]]:
    """Each ``ansible-playbook`` in a block of commands, with the file it is in."""
    pages = [
        *REPOSITORY.glob("*.md"),
        *REPOSITORY.glob("roles/*/README.md"),
        *REPOSITORY.glob("docs/docsite/rst/*.rst"),
    ]
    found = []
    for page in sorted(pages):
        for console, shell in BLOCK.findall(page.read_text(encoding="utf-8")):
            found += [(page.name, CONTINUED.sub(" ", command)) for command in COMMAND.findall(console or shell)]
    return found


def wrong(command: str) -> list[str]:
    """What is wrong with the words of an ``ansible-playbook`` command of ours."""
    words = shlex.split(command, comments=True)[1:]
    named = next(word for word in words if word.startswith(OURS) or word == OWN_PLAYBOOK.name)
    playbook = named.removeprefix(OURS)
    file = OWN_PLAYBOOK if named == OWN_PLAYBOOK.name else REPOSITORY / f"playbooks/{playbook}.yml"
    if not file.is_file():
        return [f"there is no playbook {playbook}"]
    given: Task = {}
    for option, text in itertools.pairwise(words):
        # As Ansible tells them apart: a file, YAML or JSON, or words with an equals sign.
        if option == "-e" and not text.startswith("@"):
            given |= yaml.safe_load(text) if text[0] in "{[" else parse_kv(text)
    if "_raw_params" in given:
        return [f"{given['_raw_params']} belongs to no variable"]
    if playbook in INPUT:
        # What is in a file is not known here, but the nodes are, and who is told.
        found: list[str] = inputs.read(
            {"maintain_nodes": "a", "maintain_announce_events": True, **given} if "-e @" in command else given, playbook
        )["errors"]
        return found
    read = [file, *REPOSITORY.glob(f"roles/{playbook}/meta/*.yml")]
    text = "".join(path.read_text(encoding="utf-8") for path in read)
    return [f"{name} is no variable of {playbook}" for name in given if not re.search(rf"\b{name}\b", text)]


def test_commands_are_found() -> None:
    assert len(commands()) >= 25
    assert {page for page, _command in commands()} >= {"README.md", "guide_runbook.rst", "dead_nodes.rst"}


@pytest.mark.parametrize(("page", "command"), commands())
def test_a_documented_command_is_understood(
    page: str, command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "patch.yml").write_text("[]")
    assert wrong(command) == [], page


@pytest.mark.parametrize(
    "command",
    [
        "ansible-playbook kubeops.node_maintenance.evacuate -e maintain_nodes=a -e maintain_reason='new disk'",
        "ansible-playbook kubeops.node_maintenance.evacuate -e maintain_node=a",
        "ansible-playbook kubeops.node_maintenance.maintain -e maintain_nodes=a -e maintain_timeout=soon",
        "ansible-playbook kubeops.node_maintenance.recover -e recover_runs=a",
        "ansible-playbook kubeops.node_maintenance.evict -e maintain_nodes=a",
        "ansible-playbook own_playbook.yml -e labour=patch.yml",
    ],
)
def test_a_wrong_command_is_noticed(command: str) -> None:
    assert wrong(command) != []
