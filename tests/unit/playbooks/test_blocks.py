# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every block of commands or YAML in the READMEs and on the pages is carried out, or named here with who does it.

Carried out here, because they need no cluster: variables, tasks, and checks of configurations. The commands that need
nodes only are carried out by tests/e2e/test_documentation.py (see ``played``).
"""

from __future__ import annotations

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

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks import inputs
from ansible_collections.kubeops.node_maintenance.tests.unit.ansible import test_examples as documented
from ansible_collections.kubeops.node_maintenance.tests.unit.playbooks.test_playbooks import REPOSITORY, TREE

PAGES = [REPOSITORY / "README.md", REPOSITORY / "README.zh-CN.md", *sorted(REPOSITORY.glob("docs/docsite/rst/*.rst"))]
FENCED = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
DIRECTIVE = re.compile(r"^( *)\.\. code-block:: (\S+)\n(?:\1 +:[^\n]*\n)*\n((?:\1 +[^\n]*\n|\n)+)", re.MULTILINE)
OUTPUT = {"text", "diff"}
"""Kinds of blocks that show what is printed."""
COMMANDS = {"console", "shell"}
PLAYED = ("plan", "maintain", "evacuate", "release", "recover", "fence")
WHOLE_PAGES = {
    "dead_nodes.rst": "test_dead_nodes.py",
    "descheduler_rollout.rst": "test_descheduler_fleet.py",
    "playbook_descheduler.rst": "test_descheduler_fleet.py",
    "playbook_fence.rst": "test_fence.py",
    "guide_kernel.rst": "test_order_windows_reboots.py",
    "guide_own_playbook.rst": "test_own_playbook.py",
    "guide_rehearse.rst": "test_rehearsal.py",
    "playbook_rehearse.rst": "test_rehearsal.py",
    "playbook_lab.rst": "test_lab.py",
}
"""Pages whose commands are carried out by other tests, with clusters that they need."""
INSTALLING = "test_execution_environment.py: from the archive, as Galaxy is not there for a test"
START = "test_documentation.py: test_a_newcomer_grants_rights_plans_and_maintains"
KUBEADM = "needs a control plane of kubeadm; its variables are checked by test_inputs.py, its file by ansible-lint"
READMES = {
    "pip install ansible-core": f"{INSTALLING}; its plan and maintain by test_documentation.py",
    "$ make demo": "test_lab.py: the same sample, and the playbook demo",
    "make demo": "test_lab.py: the same sample; `make test` is what runs this",
    "ansible-playbook kubeops.node_maintenance.lab": "test_lab_koordinator.py, test_koordinator_backend.py",
}
NAMED: dict[str, dict[str, str]] = {
    "README.md": READMES,
    "README.zh-CN.md": READMES,
    "dead_nodes.rst": {"# fence.yml, for": "needs a machine with IPMI; test_fence.py has a task of the same kind"},
    "descheduler_ack.rst": {"- name: Roll out the": "test_examples_koordinator.py: the same task as in EXAMPLES"},
    "descheduler_rollout.rst": {
        "- name: Descheduler": "test_descheduler_config.py",
        "- kubeops.node_maintenance.descheduler_config:": "test_examples_koordinator.py: the same task as in EXAMPLES",
        "# clusters.yml": "test_descheduler_fleet.py",
    },
    "guide_awx.rst": {
        "$ ansible-builder build": "test_execution_environment.py: `create`, and an environment from what it names;"
        " an image needs a registry",
        "$ export CONTROLLER_HOST": "tests/awx: against a server that records what is asked",
    },
    "guide_cluster.rst": {
        "$ kubectl get nodes": "test_neighbours.py",
    },
    "guide_event_driven.rst": {
        "# inventory.yml": "test_event_driven.py",
        "# variables.yml": "test_event_driven.py: variables of the rulebook",
        "$ ansible-rulebook": "test_event_driven.py",
        "sources:": "test_event_driven.py, with the sources of EXAMPLES",
        "node: worker-1": "an event, not input",
        "receivers:": "a part of Alertmanager's configuration; test_event_driven.py sends what it sends",
    },
    "guide_input.rst": {
        "$ ansible-playbook -i inventory": "test_documentation.py has the same commands without a file"
    },
    "guide_inventory.rst": {
        "# lab.cluster_nodes.yml": "test_inventory.py",
        "$ ansible-inventory": "test_examples.py: test_the_inventory",
    },
    "guide_kubeadm.rst": {"$ ansible-playbook": KUBEADM},
    "guide_maintenance.rst": {
        "$ ansible-playbook kubeops.node_maintenance.plan -e @friday.yml": "test_documentation.py without a file",
        "$ ansible-playbook kubeops.node_maintenance.rehearse": "test_rehearsal.py",
        "$ export ANSIBLE_STDOUT_CALLBACK": "test_documentation.py without a file; test_screen.py",
    },
    "guide_promises.rst": {
        "$ make explore": "tests/explore, as in `make test`",
        "$ make chaos": "test_chaos.py",
    },
    "guide_release.rst": {"$ archive=": "test_signing.py", "$ signature=": "test_signing.py"},
    "guide_requests.rst": {
        "terminationGracePeriodSeconds:": "a part of a pod; tests/e2e/real has such servers",
        "{": "report/test_traffic.py: the guide's own file",
        "$ go build": "test_traffic.py builds it, and gives it such orders",
    },
    "guide_rights.rst": {
        "$ ansible-playbook kubeops.node_maintenance.access": "test_access.py",
        "$ cd ~/.ansible": "access/test_rights.py: the files are what the module installs",
    },
    "guide_runbook.rst": {
        "$ ansible-playbook kubeops.node_maintenance.maintain -e maintain_nodes=worker-1 -e maintain_tasks=patch.yml -e"
        " maintain_run": "test_killed.py",
        "$ ansible-playbook kubeops.node_maintenance.recover ": "test_killed.py; without a run test_documentation.py",
    },
    "guide_screen.rst": {
        "$ export ANSIBLE_STDOUT": "test_screen.py",
        "$ export ANSIBLE_DISPLAY": "test_plain_screen.py",
    },
    "guide_start.rst": {
        "$ python3 -m venv": INSTALLING,
        "$ ansible-playbook kubeops.node_maintenance.access": START,
        "$ export": START,
    },
    "guide_start_zh.rst": {
        "$ python3 -m venv": INSTALLING,
        "$ ansible-playbook kubeops.node_maintenance.access": START,
        "$ export": START,
    },
    "guide_taints.rst": {"# in the team's pods": "a part of a pod"},
    "playbook_access.rst": {"$ ansible-playbook": "test_access.py"},
    "playbook_recover.rst": {"$ ansible-playbook": "test_killed.py; without a run test_documentation.py"},
    "koordinator_jobs.rst": {"- name: Move pods once": "test_examples_koordinator.py: the same tasks as in EXAMPLES"},
}
"""By page and beginning of a block: the test that carries it out, or why none does."""


class Block(t.NamedTuple):
    page: str
    kind: str
    text: str

    @property
    def commands(self) -> list[str]:
        """What is typed: behind the prompts if there are any."""
        lines = [line.strip() for line in documented.CONTINUED.sub(" ", self.text).splitlines() if line.strip()]
        return [line[2:] for line in lines if line.startswith("$ ")] or lines

    @property
    def content(self) -> t.Any:
        return yaml.safe_load(self.text)

    def named(self) -> str:
        """What the table says of it."""
        known = NAMED.get(self.page, {})
        return next((said for start, said in known.items() if self.text.startswith(start)), "")


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = list(FENCED.findall(text))
    found += [(kind, textwrap.dedent(body).strip("\n") + "\n") for _indent, kind, body in DIRECTIVE.findall(text)]
    return [Block(page.name, kind, body) for kind, body in found]


BLOCKS = [block for page in PAGES for block in blocks_of(page)]


def played() -> dict[str, list[list[str]]]:
    """By page: the words behind ``ansible-playbook`` of the commands that need nodes only, in their order."""
    found: dict[str, list[list[str]]] = {}
    for page, command in documented.commands():
        if (words := needs_nodes_only(command)) and page not in WHOLE_PAGES:
            found.setdefault(page, []).append(words)
    return found


def needs_nodes_only(command: str) -> list[str]:
    """Its words; none if it needs a file of variables, a killed run or Koordinator."""
    words = shlex.split(command, comments=True)[1:]
    name = next((word for word in words if word.startswith(documented.OURS)), "")
    apart = "@" in command or "koordinator" in command or re.search(r"_run=[0-9a-f]{8}", command)
    return words if name.removeprefix(documented.OURS) in PLAYED and not apart else []


def variables(block: Block) -> bool:
    """Of the playbooks, with those of the user's own tasks."""
    return isinstance(block.content, dict) and bool(ours(block)) and not block.named()


def ours(block: Block) -> dict[str, t.Any]:
    return {name: value for name, value in block.content.items() if name.startswith("maintain_")}


def is_check(block: Block) -> bool:
    """A play that checks a configuration, which needs no cluster."""
    return "state: validated" in block.text and block.text.startswith("- name:")


def is_tasks(block: Block) -> bool:
    return isinstance(block.content, list) and not any("hosts" in task for task in block.content)


def is_configuration(block: Block) -> bool:
    """Of a descheduler; the check on its page reads it."""
    return isinstance(block.content, dict) and block.content.get("apiVersion") == "descheduler/v1alpha2"


def is_carried_out(block: Block) -> bool:
    if block.kind in COMMANDS:
        return block.page in WHOLE_PAGES or all(
            command.startswith("ansible-playbook") and needs_nodes_only(command) for command in block.commands
        )
    return any(kind(block) for kind in (variables, is_check, is_tasks, is_configuration)) or is_own_playbook(block)


def is_own_playbook(block: Block) -> bool:
    return block.page == "guide_own_playbook.rst" and block.text in documented.OWN_PLAYBOOK.read_text(encoding="utf-8")


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: f"{block.page}: {block.text[:40]!r}")
def test_a_block_is_carried_out_or_named(block: Block) -> None:
    assert block.kind in OUTPUT | COMMANDS | {"yaml"}, "a kind of blocks that nobody looks at"
    if block.kind not in OUTPUT:
        assert block.named() or is_carried_out(block), f"carry it out, or name it in {Path(__file__).name}"


def test_what_is_named_is_there() -> None:
    known = [(page, start, said) for page, blocks in NAMED.items() for start, said in blocks.items()]
    begun = {
        (block.page, start) for block in BLOCKS for start in NAMED.get(block.page, {}) if block.text.startswith(start)
    }
    assert [(page, start) for page, start, _said in known if (page, start) not in begun] == []
    files = {word for _page, _start, said in known for word in re.findall(r"test_\w+\.py", said)} | {
        *WHOLE_PAGES.values()
    }
    there = {path.name for path in (REPOSITORY / "tests").rglob("test_*.py")}
    assert files - there == set()


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("console", "$ ansible-playbook kubeops.node_maintenance.lab\n"),
        ("console", "$ kubectl delete node a\n"),
        ("yaml", "- hosts: all\n"),
        ("yaml", "a: 1\n"),
    ],
)
def test_a_block_that_nobody_carries_out_is_noticed(kind: str, text: str) -> None:
    block = Block("new.rst", kind, text)
    assert not block.named()
    assert not is_carried_out(block)


def of_kind(kind: t.Callable[[Block], bool]) -> list[Block]:
    return [block for block in BLOCKS if block.kind == "yaml" and kind(block)]


def brought(value: t.Any, name: str = "") -> t.Any:
    """The value, with something else where a template is."""
    if isinstance(value, dict):
        return {key: brought(part, key) for key, part in value.items()}
    if isinstance(value, list):
        return [brought(part) for part in value]
    if "{{" not in str(value):
        return value
    return of_kind(is_configuration)[0].content if name == "config" else "https://127.0.0.1/"


@pytest.mark.parametrize("block", of_kind(variables), ids=lambda block: f"{block.page}: {block.text[:40]!r}")
def test_variables_are_understood(block: Block, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the files that they name. What a template would bring is something else."""
    monkeypatch.chdir(tmp_path)
    for name in re.findall(r"[\w./]+\.yml", block.text):
        (tmp_path / name).write_text("[]", encoding="utf-8")
    given = {name: brought(value) for name, value in ours(block).items()}
    known = {} if "maintain_node_selector" in given else {"maintain_nodes": "a"}
    assert inputs.read({**known, **given}, "maintain")["errors"] == []


def played_in(folder: Path, playbook: object, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "block.yml").write_text(yaml.safe_dump(playbook, sort_keys=False), encoding="utf-8")
    return subprocess.run(
        [sys.executable, "-m", "ansible", "playbook", *words, "block.yml"],
        cwd=folder,
        env={**os.environ, "ANSIBLE_COLLECTIONS_PATH": TREE, "ANSIBLE_HOME": str(folder / "home")},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_ansible_reads_the_tasks(tmp_path: Path) -> None:
    """As tasks of one play; those of the user may be of collections that are not installed here."""
    here = [block for block in of_kind(is_tasks) if not re.search(r"^ +community\.", block.text, re.MULTILINE)]
    assert len(here) >= 10
    plays = [{"name": block.page, "hosts": "localhost", "tasks": block.content} for block in here]
    done = played_in(tmp_path, plays, "--syntax-check")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_checks_of_configurations_pass(tmp_path: Path) -> None:
    """One after another, each beside the configuration of its page, or the policy of the page about policies."""
    site, tasks = [], 0
    for number, block in enumerate(of_kind(is_check)):
        folder = tmp_path / str(number)
        folder.mkdir()
        own = any(one.page == block.page and is_configuration(one) for one in BLOCKS)
        for name in re.findall(r"'([\w-]+\.yaml)'", block.text):
            page = block.page if own and name != "policy.yaml" else "descheduler_sigs.rst"
            found = next(one for one in of_kind(is_configuration) if one.page == page)
            (folder / name).write_text(found.text, encoding="utf-8")
        (folder / "check.yml").write_text(block.text, encoding="utf-8")
        site.append({"ansible.builtin.import_playbook": f"{number}/check.yml"})
        tasks += sum(len(play["tasks"]) for play in block.content)
    done = played_in(tmp_path, site)
    assert done.returncode == 0, done.stdout + done.stderr
    assert len(site) >= 4
    assert re.findall(r"\bok=(\d+) .* failed=(\d+)", done.stdout) == [(str(tasks), "0")]
