# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`make demo`, as somebody calls it who did so before: on a lab whose sample an earlier demo has left elsewhere.

It takes real nodes where there can be some, and so does the sample of these tests.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lab_network
import pytest
from support.lab import CACHE, Lab, ansible, environment, lab_playbook, started, variables

NODE = "node-001"
"""The sample prefers it."""
CELL = r" +(?:([\d,]+) failed, )?([\d.]+) s dark"
ROW = re.compile(rf"^ *(shop/\S+){CELL}{CELL}", re.MULTILINE)
"""Of `maintain` and of `kubectl drain`."""


NAME = f"demo-{os.getpid()}"


OBSTACLE = lab_network.obstacle(os.uname().sysname, os.getuid(), 4)
REAL = pytest.param("real", marks=pytest.mark.skipif(bool(OBSTACLE), reason=f"no real nodes here: {OBSTACLE}"))
KWOK = pytest.param("kwok", marks=[] if OBSTACLE else pytest.mark.whole)


@pytest.fixture(params=[REAL, KWOK])
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def home() -> Iterator[str]:
    """A folder whose path is short enough for the sockets of SSH in it."""
    with tempfile.TemporaryDirectory(prefix="home-") as made:
        yield made


@pytest.fixture
def options(tmp_path: Path, kind: str) -> dict[str, Any]:
    """What the lab and the demo in it are both told; with another $HOME the folders have to be named."""
    return {"lab_kind": kind, "lab_nodes": 4, "lab_state_dir": str(tmp_path / "state"), "lab_cache_dir": str(CACHE)}


@pytest.fixture
def lab(tmp_path: Path, options: dict[str, Any]) -> Iterator[Lab]:
    try:
        yield started(tmp_path, NAME, **options, lab_sample="demo")
    finally:
        lab_playbook(tmp_path, NAME, "absent", **options)


def test_the_demo_shows_on_a_used_lab_what_kubectl_interrupts(
    lab: Lab, tmp_path: Path, options: dict[str, Any], kind: str, home: str
) -> None:
    emptied = lab.run_kubectl("drain", NODE, "--ignore-daemonsets", "--delete-emptydir-data")
    assert emptied.returncode == 0, emptied.stderr
    assert lab.run_kubectl("uncordon", NODE).returncode == 0
    told = variables(NAME, **options, demo_folder=str(tmp_path / "report"))
    # Of a user for whom $HOME is not what the user database says.
    more = {"HOME": home, "ANSIBLE_STDOUT_CALLBACK": "kubeops.node_maintenance.maintenance"}
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
    assert f"Its nodes are {'real' if kind == 'real' else 'simulated'}." in done.stdout
    assert "Every one of them had a ready endpoint all the time: never dark." in done.stdout
    rows = {service: cells for service, *cells in ROW.findall(done.stdout)}
    assert rows.keys() >= {"shop/cart", "shop/search", "shop/web"}, done.stdout
    lost = 0
    for service in ("shop/cart", "shop/search", "shop/web"):
        failed, dark, failed_by_kubectl, dark_by_kubectl = rows[service]
        assert float(dark) == 0 < float(dark_by_kubectl), rows
        assert int(failed or "0") == 0, rows
        lost += int((failed_by_kubectl or "0").replace(",", ""))
    # Where the old pod serves for longer than the new one starts, kube-proxy sends requests to the old one.
    assert (lost > 0) == (kind == "real"), rows
    report = json.loads((tmp_path / "report" / "report.json").read_text(encoding="utf-8"))
    asked = [line for line in report["traffic"] if line["sent"] > 500]
    # Ten services, by new connections and by kept ones.
    assert len(asked) == (20 if kind == "real" else 0), report["traffic"]
    # `mail` dies at once when it is told to end; what it is answering just then over a kept connection is lost.
    of_others = [line for line in asked if (line["service"], line["kind"]) != ("shop/mail", "keep")]
    assert sum(line["failed"] for line in of_others) == 0, report["traffic"]
