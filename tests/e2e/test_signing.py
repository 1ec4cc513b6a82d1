# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The commands of the guide to releases, with a key that is thrown away. They need gpg (Debian: gnupg)."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.lab import ROOT, ansible

pytestmark = pytest.mark.whole

GUIDE = ROOT / "docs/docsite/rst/guide_release.rst"
WHO = "Nobody <nobody@example.com>"


def printed() -> list[str]:
    """The commands of each block."""
    blocks = re.findall(r"code-block:: console\n\n((?:   .*\n)+)", GUIDE.read_text(encoding="utf-8"))
    return ["".join(line.removeprefix("   $ ") + "\n" for line in block.splitlines()) for block in blocks]


class Shell:
    """Where the commands are typed: by default with a keyring and collections of their own."""

    def __init__(self, folder: Path, keys: str) -> None:
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ANSIBLE_", "PYTHON"))}
        self.env = {
            **kept,
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "GNUPGHOME": keys,
            "ANSIBLE_HOME": str(folder / "home"),
            "ANSIBLE_COLLECTIONS_PATH": str(folder / "collections"),
            "ANSIBLE_NOCOLOR": "1",
        }

    def __call__(self, script: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-euc", script],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """Beside the archive of this checkout. The sockets of gpg need a short path."""
    with tempfile.TemporaryDirectory(prefix="keys-") as keys:
        made = Shell(tmp_path, keys)
        build = [ansible("ansible-galaxy"), "collection", "build", "--output-path", str(tmp_path), str(ROOT)]
        subprocess.run(build, check=True, capture_output=True, timeout=600)
        new = f"gpg --batch --passphrase '' --quick-generate-key '{WHO}' default default never"
        assert made(new).returncode == 0, "gpg is needed (Debian: gnupg)"
        yield made
        made("gpgconf --kill all")


def test_a_signed_release_is_installed_and_verified_and_a_changed_one_is_not(shell: Shell) -> None:
    (archive,) = shell.folder.glob("*.tar.gz")
    sign, install, verify = printed()
    assert f"archive={archive.name}\n" in sign
    for script in (sign, install, verify):
        done = shell(script)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "Successfully verified that checksums for 'kubeops.node_maintenance:" in done.stdout

    home = shell.folder / "collections/ansible_collections/kubeops/node_maintenance"
    readme = home / "README.md"
    readme.write_text(readme.read_text(encoding="utf-8") + "changed\n", encoding="utf-8")
    changed = shell(verify)
    assert changed.returncode == 1
    assert "README.md" in changed.stdout

    assert (
        shell("echo another > other && gpg --yes --detach-sign --armor --output MANIFEST.json.asc other").returncode
        == 0
    )
    refused = shell(install)
    assert refused.returncode != 0
    assert "BAD signature" in refused.stderr
    unsigned = shell(verify)
    assert unsigned.returncode == 1
    assert "verification failed" in unsigned.stdout + unsigned.stderr
