# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""``maintain`` as it is, with modules that answer from a can: how often it sums up a wave, and what it calls."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

HERE = Path(__file__).resolve().parents[3]
CANNED = HERE / "tests/unit/ansible" / "canned"
RESULT = re.compile(r"^(?:(?:ok|changed|skipping|fatal): \[|included: .* for )([\w-]+)", re.MULTILINE)


def collection(folder: Path) -> Path:
    """A folder for ANSIBLE_COLLECTIONS_PATH: the collection with canned answers and a filter that counts."""
    here = folder / "collections/ansible_collections/kubeops/node_maintenance"
    (here / "plugins/action").mkdir(parents=True)
    (here / "plugins/filter").mkdir()
    for path in HERE.iterdir():
        if path.name not in ("plugins", ".git", ".build"):
            (here / path.name).symlink_to(path)
    for path in (HERE / "plugins").iterdir():
        if path.name not in ("action", "filter"):
            (here / "plugins" / path.name).symlink_to(path)
    for path in (HERE / "plugins/action").glob("*.py"):
        (here / "plugins/action" / path.name).symlink_to(CANNED / "action.py")
    (here / "plugins/filter/maintain_input.py").symlink_to(HERE / "plugins/filter/maintain_input.py")
    (here / "plugins/filter/maintain_summary.py").symlink_to(CANNED / "counting.py")
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
        "COUNTED": str(HERE / "plugins/filter/maintain_summary.py"),
        "SUMMED": str(folder / "summed"),
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


def test_a_wave_without_work_on_hosts_is_one_host_and_few_tasks(tmp_path: Path) -> None:
    done = played(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    play = done.stdout.partition("PLAY [Maintain]")[2].partition("PLAY [Report]")[0]
    waves = play.split("PLAY [Maintain]")
    assert len(waves) == 2, play
    starts = [wave.count("\nTASK [") for wave in waves]
    hosts = [set(RESULT.findall(wave)) for wave in waves]
    # The first two (meta) say whether the wave starts.
    assert starts == [8, 8], play
    assert hosts == [{"maintenance-wave-1"}, {"maintenance-wave-2"}], play
    assert [len(RESULT.findall(wave)) for wave in waves] == starts, play
    assert (tmp_path / "called").read_text().splitlines().count("maintenance_wave back") == 2


def test_where_nodes_are_blocked_the_run_fails_at_its_end(tmp_path: Path) -> None:
    done = played(tmp_path, "-e", "maintain_on_blocked=skip", failing={"maintenance_plan": "blocked"})
    assert done.returncode == 2, done.stdout + done.stderr
    calls = [json.loads(line) for line in (tmp_path / "arguments").read_text().splitlines()]
    assert [call["failed"] for module, call in calls if call.get("state") == "ended"] == [True]
    (failed,) = re.findall(r"^fatal: \[localhost\]: FAILED! => (.*)", done.stdout, re.MULTILINE)
    assert json.loads(failed)["msg"].split() == ["It", "was", "left", "out."], "said once"
