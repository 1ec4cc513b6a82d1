# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The archive that users install holds what they can use, and nothing that needs a checkout."""

from __future__ import annotations

import re
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

HERE = Path(__file__).parents[3]
OURS = {"LICENSE", "LICENSES", "README.md", "README.zh-CN.md", "CHANGELOG.rst", "CODE_OF_CONDUCT.md"}
OURS |= {"bindep.txt", "requirements.txt"}
FOLDERS = {"changelogs", "docs", "extensions", "meta", "playbooks", "plugins", "roles", "tests"}
MADE = {"FILES.json", "MANIFEST.json"}
STRAY = (
    ".venv/lib/python3.11/site-packages/yaml/__init__.py",
    ".idea/workspace.xml",
    "operator.kubeconfig",
    "rehearsal/cluster.json",
    "vault.yml",
    "plugins/modules/operator.kubeconfig",
    "playbooks/report.json",
    "roles/lab/files/ca.key",
    "playbooks/.vault.yml",
    "tests/unit/secret.py",
)
"""What lies in a checkout in use, and is nobody else's business."""


@pytest.fixture(scope="module")
def kept() -> list[str]:
    """The files of the sources."""
    listed = subprocess.run(["git", "ls-files"], cwd=HERE, check=True, capture_output=True, text=True, timeout=60)
    return [name for name in listed.stdout.splitlines() if (HERE / name).exists()]


@pytest.fixture(scope="module")
def archived(kept: list[str], tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """Its files, where the sources are in use."""
    used, to = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("archive")
    for name in kept:
        (used / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / name, used / name, follow_symlinks=False)
    for name in STRAY:
        (used / name).parent.mkdir(parents=True, exist_ok=True)
        (used / name).write_text("secret", encoding="utf-8")
    subprocess.run(["ansible-galaxy", "collection", "build", "--output-path", to, used], check=True, timeout=600)
    (path,) = to.iterdir()
    with tarfile.open(path) as archive:
        return {member.name for member in archive if member.isfile()}


def test_it_holds_these_files_and_folders_only(archived: set[str]) -> None:
    assert {name.partition("/")[0] for name in archived} == OURS | FOLDERS | MADE
    assert {name for name in archived if name.startswith("tests/")} == {"tests/config.yml"}
    assert {name.split("/")[1] for name in archived if name.startswith("docs/")} == {"docsite"}
    assert {name.split("/")[1] for name in archived if name.startswith("extensions/")} == {"eda"}


def test_it_holds_nothing_that_is_not_of_the_sources(archived: set[str], kept: list[str]) -> None:
    assert archived - MADE - {*kept} == set()


def test_it_holds_all_of_the_collection(archived: set[str], kept: list[str]) -> None:
    ours = re.compile("(changelogs|docs/docsite|extensions/eda|meta|playbooks|plugins|roles)/")
    wanted = {name for name in kept if ours.match(name) and "/." not in name}
    assert len(wanted) > 400
    assert wanted <= archived


def test_its_readme_shows_pictures_without_the_sources() -> None:
    pictures = re.findall(r"!\[[^]]*\]\(([^)]*)\)", (HERE / "README.md").read_text(encoding="utf-8"))
    assert pictures
    assert all(address.startswith("https://") for address in pictures)
