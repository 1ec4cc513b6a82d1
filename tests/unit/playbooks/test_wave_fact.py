# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``maintain`` as it is, with modules that answer from a can: how many processes it starts, and what it calls."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

HERE = Path(__file__).resolve().parents[3]
CANNED = HERE / "tests/unit/ansible" / "canned"
RESULT = re.compile(r"^(?:(?:ok|changed|skipping|fatal): \[|included: .* for )([\w-]+)", re.MULTILINE)


def collection(folder: Path) -> Path:
    """A folder for ANSIBLE_COLLECTIONS_PATH: the collection with canned answers."""
    here = folder / "collections/ansible_collections/kubeops/node_maintenance"
    (here / "plugins/action").mkdir(parents=True)
    for path in HERE.iterdir():
        if path.name not in ("plugins", ".git", ".build"):
            (here / path.name).symlink_to(path)
    for path in (HERE / "plugins").iterdir():
        if path.name != "action":
            (here / "plugins" / path.name).symlink_to(path)
    for path in (HERE / "plugins/action").glob("*.py"):
        (here / "plugins/action" / path.name).symlink_to(CANNED / "action.py")
    return folder / "collections"


def played(
    folder: Path,
    *options: str,
    failing: Mapping[str, str] | None = None,
    playbook: str = "maintain",
    nodes: str = "a,b,c,d",
) -> subprocess.CompletedProcess[str]:
    """A run on nodes a (first wave) and the others (second wave); ``failing`` is as in the can."""
    environ = {
        **os.environ,
        "ANSIBLE_COLLECTIONS_PATH": str(collection(folder)),
        "ANSIBLE_HOME": str(folder / "home"),
        "ANSIBLE_CONFIG": str(folder / "ansible.cfg"),
        # What the caller's environment says of this must not change what is counted.
        "ANSIBLE_DISPLAY_SKIPPED_HOSTS": "true",
        "CALLED": str(folder / "called"),
        "ARGUMENTS": str(folder / "arguments"),
        "FAILING": json.dumps(failing or {}),
    }
    (folder / "ansible.cfg").touch()
    (folder / "work.yml").write_text("- ansible.builtin.meta: noop\n")
    command = [sys.executable, "-m", "ansible", "playbook", f"kubeops.node_maintenance.{playbook}", "-i", f"{nodes},"]
    command += ["-e", f"maintain_nodes={nodes}", "-e", "ansible_connection=local", *options]
    command += ["-e", f"ansible_python_interpreter={sys.executable}"]
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, timeout=300, check=False)


def metas(found: Any) -> Iterator[str]:
    """The names of the tasks that end plays and batches: the main process does that itself."""
    if isinstance(found, dict):
        if "ansible.builtin.meta" in found:
            yield found["name"]
        found = list(found.values())
    if isinstance(found, list):
        for each in found:
            yield from metas(each)


METAS = {
    name
    for path in (HERE / "playbooks").glob("**/*.yml")
    for name in metas(yaml.safe_load(path.read_text(encoding="utf-8")))
}


def processes(output: str) -> list[tuple[str, str]]:
    """Each task and host for which Ansible has started a process, skipped ones included."""
    tasks = output.split("\nTASK [")[1:]
    named = [(text.partition("]")[0], set(RESULT.findall(text))) for text in tasks]
    return [(name, host) for name, hosts in named if name not in METAS for host in sorted(hosts)]


@pytest.mark.parametrize(("nodes", "most"), [("a", 15), ("a,b", 19)])
def test_a_task_that_is_not_needed_costs_no_process(tmp_path: Path, nodes: str, most: int) -> None:
    done = played(tmp_path, nodes=nodes)
    assert done.returncode == 0, done.stdout + done.stderr
    found = processes(done.stdout)
    assert len(found) == most, "\n".join(f"{host}: {task}" for task, host in found)


def test_a_wave_without_work_on_hosts_is_one_host_and_few_tasks(tmp_path: Path) -> None:
    done = played(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    play = done.stdout.partition("PLAY [Maintain]")[2].partition("PLAY [Roll out")[0]
    waves = [processes(wave) for wave in play.split("PLAY [Maintain]")]
    assert [len(wave) for wave in waves] == [4, 4], play
    assert [{host for _task, host in wave} for wave in waves] == [{"maintenance-wave-1"}, {"maintenance-wave-2"}], play
    assert (tmp_path / "called").read_text().splitlines().count("maintenance_wave back") == 2


def test_where_nodes_are_blocked_the_run_fails_at_its_end(tmp_path: Path) -> None:
    done = played(tmp_path, "-e", "maintain_on_blocked=skip", failing={"maintenance_plan": "blocked"})
    assert done.returncode == 2, done.stdout + done.stderr
    calls = [json.loads(line) for line in (tmp_path / "arguments").read_text().splitlines()]
    assert [call["failed"] for module, call in calls if call.get("state") == "ended"] == [True]
    (failed,) = re.findall(r"^fatal: \[localhost\]: FAILED! => (.*)", done.stdout, re.MULTILINE)
    assert json.loads(failed)["msg"].split() == ["It", "was", "left", "out."], "said once"
