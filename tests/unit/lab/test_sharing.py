# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When the clusters end that several end-to-end tests share, in runs of pytest with files of two groups."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from support import sharing

CONFTEST = """
import contextlib, pathlib, pytest
from support import sharing

HERE = pathlib.Path(__file__).parent
sharing.E2E = HERE
CLUSTERS = sharing.Clusters()

def pytest_configure(config):
    config.pluginmanager.register(CLUSTERS)

def told(what):
    with (HERE / "told").open("a") as file:
        file.write(what + " ")

@contextlib.contextmanager
def started(name):
    told(name)
    yield name
    told(name + "-ends")

@pytest.fixture(scope="module")
def koord():
    return CLUSTERS.get("koord", lambda: started("koord"))

@pytest.fixture(scope="module")
def labs():
    return CLUSTERS.get("labs", lambda: started("labs"))
"""
FILES = {
    "test_a.py": """
from conftest import told

def test_first(koord: str):
    told("first")
""",
    "test_b.py": """
from conftest import told

attempts = []

def test_last(koord: str):
    told("last")
    attempts.append(koord)
    assert len(attempts) == 2
""",
    "test_c.py": """
from conftest import told

def test_other(labs: str):
    told("other")
""",
}


def test_they_end_after_the_last_attempt_of_their_last_test(tmp_path: Path) -> None:
    for name, code in {**FILES, "conftest.py": CONFTEST, "pytest.ini": "[pytest]\n"}.items():
        (tmp_path / name).write_text(code, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--reruns", "1", "."]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "3 passed, 1 rerun" in run.stdout, run.stdout
    told = (tmp_path / "told").read_text(encoding="utf-8").split()
    assert told == ["koord", "first", "last", "last", "koord-ends", "labs", "other", "labs-ends"]


def test_what_the_conftest_of_a_folder_asks_for_its_tests_do() -> None:
    files = [path.relative_to(sharing.E2E).as_posix() for path in (sharing.E2E / "real").glob("test_*.py")]
    assert len(files) > 1
    assert {sharing.group(file) for file in files} == {"real"}
    assert sharing.group("test_bad_input.py") == ""


def test_files_that_choose_a_koordinator_go_where_its_clusters_are() -> None:
    for file in ("test_koordinator_backend.py", "test_koordinator_plugins.py"):
        assert sharing.group(file) == sharing.SHARED["koord_next"]
