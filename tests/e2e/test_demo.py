# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`make demo`, as somebody calls it who did so before: on a lab whose sample an earlier demo has left elsewhere."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.lab import CACHE, Lab, ansible, environment, lab_playbook, started, variables

NODE = "node-001"
"""The sample prefers it."""
DARK = re.compile(r"^ *(shop/\S+) +([\d.]+) s dark +([\d.]+) s dark$", re.MULTILINE)


NAME = f"demo-{os.getpid()}"


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    """What the lab and the demo in it are both told; with another $HOME the folders have to be named."""
    return {"lab_kind": "kwok", "lab_nodes": 4, "lab_state_dir": str(tmp_path / "state"), "lab_cache_dir": str(CACHE)}


@pytest.fixture
def lab(tmp_path: Path, options: dict[str, Any]) -> Iterator[Lab]:
    try:
        yield started(tmp_path, NAME, **options, lab_sample="demo")
    finally:
        lab_playbook(tmp_path, NAME, "absent", **options)


def test_the_demo_shows_on_a_used_lab_what_kubectl_interrupts(
    lab: Lab, tmp_path: Path, options: dict[str, Any]
) -> None:
    emptied = lab.run_kubectl("drain", NODE, "--ignore-daemonsets", "--delete-emptydir-data")
    assert emptied.returncode == 0, emptied.stderr
    assert lab.run_kubectl("uncordon", NODE).returncode == 0
    home = tmp_path / "elsewhere"
    home.mkdir()
    told = variables(NAME, **options, demo_folder=str(tmp_path / "report"))
    # Of a user for whom $HOME is not what the user database says.
    more = {"HOME": str(home), "ANSIBLE_STDOUT_CALLBACK": "kubeops.node_maintenance.maintenance"}
    done = subprocess.run(
        [ansible("ansible-playbook"), "kubeops.node_maintenance.demo", "-e", json.dumps(told)],
        env=environment(tmp_path, more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Every one of them had a ready endpoint all the time: never dark." in done.stdout
    dark = {service: (float(ours), float(kubectls)) for service, ours, kubectls in DARK.findall(done.stdout)}
    assert dark.keys() == {"shop/cart", "shop/search", "shop/web"}, done.stdout
    assert all(ours == 0 < kubectls for ours, kubectls in dark.values()), dark
    assert (tmp_path / "report" / "report.html").exists()
