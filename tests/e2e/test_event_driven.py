# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The rulebooks under the real ansible-rulebook: an unhealthy node is planned at once, and maintained if wanted."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.arena import Arena
from support.lab import ROOT, Lab, collections_path
from support.processes import descendants, kill_tree
from support.waiting import until
from witness.log import Json

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.names import NAMESPACE

pytestmark = pytest.mark.whole

RULEBOOK = "ansible-rulebook==1.3.2"
CONDITION = "KernelDeadlock"
ACCOUNT = f"/api/v1/namespaces/{NAMESPACE}/configmaps/events-node-conditions"
TOKEN = "canary-of-the-webhook"


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with ansible-rulebook and what the collection needs: RULEBOOK_BIN where that is set."""
    if given := os.environ.get("RULEBOOK_BIN"):
        return Path(given)
    folder = tmp_path_factory.mktemp("rulebook") / "venv"
    venv.create(folder, with_pip=True)
    wanted = [RULEBOOK, "ansible-runner", "-r", str(ROOT / "requirements.txt")]
    install = [str(folder / "bin/python"), "-m", "pip", "install", "--quiet", "--progress-bar=off", *wanted]
    subprocess.run(install, check=True, timeout=900)
    return folder / "bin"


class Rulebook:
    """A rulebook of the collection, or a file, under way."""

    def __init__(self, programs: Path, lab: Lab, folder: Path, name: str, **variables: object) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.output = folder / "output"
        given = {"maintain_automatically": False, "maintain_window": "", **variables}
        (folder / "variables.yml").write_text(yaml.safe_dump(given), encoding="utf-8")
        hosts = {"all": {"hosts": {"localhost": {"ansible_connection": "local"}}}}
        (folder / "inventory.yml").write_text(yaml.safe_dump(hosts), encoding="utf-8")
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("ANSIBLE", "K8S_", "PYTHON"))}
        env = {
            **kept,
            "PATH": f"{programs}:{os.environ['PATH']}",
            "ANSIBLE_COLLECTIONS_PATH": collections_path(folder),
            "ANSIBLE_HOME": str(folder / "home"),
            "K8S_AUTH_KUBECONFIG": str(lab.operator),
            # Else what it printed last stays in its buffer until it prints more.
            "PYTHONUNBUFFERED": "1",
        }
        rulebook = name if name.startswith("/") else f"kubeops.node_maintenance.{name}"
        words = [f"--rulebook={rulebook}", "--inventory=inventory.yml", "--vars=variables.yml"]
        with self.output.open("wb") as out:
            self.process = subprocess.Popen(
                [str(programs / "ansible-rulebook"), *words, "--print-events"],
                cwd=folder,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    @property
    def text(self) -> str:
        return self.output.read_text(encoding="utf-8", errors="replace")

    def playing(self) -> list[str]:
        """The playbooks that run at the moment, by the processes below this one."""
        found: list[str] = []
        for pid in descendants(self.process.pid):
            with contextlib.suppress(OSError):
                words = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").split("\0")
                found += [word for word in words if word.startswith("kubeops.node_maintenance.")]
        return found

    def ended(self, playbook: str) -> int:
        """How many runs of a playbook have come to their end."""
        last = {"plan": "TASK [Fail if there are blockers]", "maintain": "TASK [Pass the result on]"}[playbook]
        return self.text.count(last)

    def until_ended(self, playbook: str, count: int) -> None:
        def over() -> bool:
            assert self.process.poll() is None, self.text
            return self.ended(playbook) >= count

        until(over, 180, f"{playbook} has been played {count} times")

    def kill(self) -> None:
        if self.process.poll() is None:
            kill_tree(self.process.pid)
            self.process.wait()


@pytest.fixture
def rulebooks(programs: Path, lab: Lab, tmp_path: Path) -> Iterator[list[Rulebook]]:
    lab.api.delete(ACCOUNT)
    started: list[Rulebook] = []
    try:
        yield started
    finally:
        for one in started:
            one.kill()
        lab.api.delete(ACCOUNT)


def flip(lab: Lab, node: str, status: str) -> float:
    """Sets the condition; returns when, by the monotonic clock."""
    stamp = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    told = {"type": CONDITION, "status": status, "reason": "Test", "message": "", "lastTransitionTime": stamp}
    done = lab.run_kubectl(
        "patch", "node", node, "--subresource=status", "--type=strategic",
        f"--patch={json.dumps({'status': {'conditions': [told]}})}",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return time.monotonic()


def follows(lab: Lab) -> bool:
    """Whether the source has begun to follow the nodes."""
    return lab.api.find(ACCOUNT) is not None


def test_an_unhealthy_node_is_planned_within_seconds_and_maintained_once(
    programs: Path, lab: Lab, arena: Arena, rulebooks: list[Rulebook], tmp_path: Path
) -> None:
    here, there = arena.nodes(2)
    web = arena.deployment("web", on=here)
    arena.settle()
    book = Rulebook(programs, lab, tmp_path / "book", "node_conditions", maintain_automatically=True)
    rulebooks.append(book)
    until(lambda: follows(lab), 120, "the source follows the nodes")
    flipped = flip(lab, here, "True")
    until(lambda: "kubeops.node_maintenance.plan" in book.playing(), 60, "the plan starts", every=0.1)
    took = time.monotonic() - flipped
    print(f"from the condition to the plan: {took:.1f} s")
    assert took <= 5
    book.until_ended("maintain", 1)
    assert web.nodes() == [there]
    assert not arena.is_cordoned(here)
    assert arena.node(here)["metadata"]["annotations"].get("maintenance.kubeops.io/record") is None

    # Not twice for one node, however often its condition changes.
    flip(lab, here, "False")
    flip(lab, here, "True")
    flip(lab, there, "True")
    book.until_ended("plan", 2)
    assert book.text.count("'condition': 'KernelDeadlock'") >= 3
    assert book.ended("plan") == 2
    flip(lab, here, "False")
    flip(lab, there, "False")


def test_a_rulebook_that_was_killed_tells_what_it_missed_and_only_plans_unless_told_otherwise(
    programs: Path, lab: Lab, arena: Arena, rulebooks: list[Rulebook], tmp_path: Path
) -> None:
    (here,) = arena.nodes(1)
    first = Rulebook(programs, lab, tmp_path / "first", "node_conditions")
    rulebooks.append(first)
    until(lambda: follows(lab), 120, "the source follows the nodes")
    first.kill()
    flip(lab, here, "True")
    second = Rulebook(programs, lab, tmp_path / "second", "node_conditions")
    rulebooks.append(second)
    second.until_ended("plan", 1)
    assert f"'node': '{here}'" in second.text
    until(lambda: "'verdict': 'feasible'" in second.text, 60, "the plan is passed on")
    assert second.ended("maintain") == 0
    assert not arena.is_cordoned(here)
    flip(lab, here, "False")


def test_an_alert_about_a_node_is_planned_and_others_are_left_alone(
    programs: Path, lab: Lab, arena: Arena, rulebooks: list[Rulebook], tmp_path: Path
) -> None:
    here, other = arena.nodes(2)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    variables = {"webhook_port": port, "webhook_token": TOKEN}
    book = Rulebook(programs, lab, tmp_path / "book", "alertmanager", **variables)
    rulebooks.append(book)

    def alert(node: str, status: str, **labels: str) -> Json:
        return {"status": status, "labels": {"alertname": "Disk", "node": node, **labels}, "annotations": {}}

    def posted() -> bool:
        alerts = [alert(other, "firing"), alert(other, "resolved", maintenance="plan")]
        body = {"status": "firing", "alerts": [*alerts, *[alert(here, "firing", maintenance="plan")] * 2]}
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"http://127.0.0.1:{port}/alerts", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return bool(answer.status == 200)
        except OSError:
            assert book.process.poll() is None, book.text
            return False

    until(posted, 120, "the webhook listens", every=0.5)
    book.until_ended("plan", 1)
    until(lambda: book.playing() == [], 60, "the plan has ended")
    time.sleep(2)
    assert (book.ended("plan"), book.ended("maintain"), book.playing()) == (1, 0, [])
    assert here in book.text
    assert TOKEN not in book.text


def test_the_rulebook_of_the_examples(
    programs: Path, lab: Lab, arena: Arena, rulebooks: list[Rulebook], tmp_path: Path
) -> None:
    """As it is printed: it plans a node that is not healthy."""
    (here,) = arena.nodes(1)
    printed = tmp_path / "examples.yml"
    source = ROOT / "extensions/eda/plugins/event_source/node_conditions.py"
    printed.write_text(source.read_text(encoding="utf-8").partition('EXAMPLES = r"""')[2].partition('"""')[0], "utf-8")
    book = Rulebook(programs, lab, tmp_path / "book", str(printed))
    rulebooks.append(book)
    until(lambda: follows(lab), 120, "the source follows the nodes")
    flip(lab, here, "True")
    book.until_ended("plan", 1)
    assert f"'node': '{here}'" in book.text
    flip(lab, here, "False")
