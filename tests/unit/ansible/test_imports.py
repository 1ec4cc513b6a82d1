# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What runs on hosts can be imported where only Python and what Ansible sends are there.

As `ansible-test sanity --test import` says, in a process for each file; that is left to `make lint`.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
COLLECTION = "ansible_collections.kubeops.node_maintenance"
SENT = ("plugins/modules", "plugins/module_utils")

ALONE = """
import importlib, json, sys
import ansible

class Alone:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        sent = name.startswith(("ansible.module_utils", "ansible_collections", "_sysconfigdata"))
        if not sent and top not in sys.stdlib_module_names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Alone())
failed = {}
for name in json.load(sys.stdin):
    try:
        importlib.import_module(name)
    except Exception as error:
        failed[name] = f"{type(error).__name__}: {error}"
json.dump(failed, sys.stdout)
"""


def failed(names: list[str]) -> dict[str, str]:
    """Which of these modules cannot be imported, and why."""
    command = [sys.executable, "-c", ALONE]
    done = subprocess.run(command, input=json.dumps(names), capture_output=True, text=True, check=True)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def test_what_is_sent_to_hosts_needs_no_package_to_be_imported() -> None:
    paths = [path.relative_to(ROOT) for folder in SENT for path in sorted((ROOT / folder).rglob("*.py"))]
    names = [".".join((COLLECTION, *path.with_suffix("").parts)).removesuffix(".__init__") for path in paths]
    assert len(names) > 100
    assert failed(names) == {}


@pytest.mark.parametrize("name", ["kubernetes", "yaml", "ansible.errors"])
def test_a_package_that_is_not_sent_is_noticed(name: str) -> None:
    assert list(failed([name])) == [name]
