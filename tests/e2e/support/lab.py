# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab cluster that the tests share: started once, or adopted when it runs already."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from witness.api import Api

ROOT = Path(__file__).resolve().parents[3]
AGENT = "kubeops-test"


@dataclass(frozen=True, slots=True)
class Lab:
    """A running cluster: its kubeconfig, its audit log, its kubectl."""

    name: str
    kubeconfig: Path
    audit_log: Path
    kubectl: Path
    api: Api

    def run_kubectl(self, *words: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run the lab's kubectl; its return code is the caller's to judge."""
        return subprocess.run(
            [str(self.kubectl), "--kubeconfig", str(self.kubeconfig), *words],
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )


def collections_path(tmp: Path) -> str:
    """The tree in which this checkout is the collection: the caller's, or one of our own."""
    known = os.environ.get("ANSIBLE_COLLECTIONS_PATH", "")
    for entry in known.split(os.pathsep):
        home = Path(entry) / "ansible_collections" / "kubeops" / "node_maintenance"
        if entry and home.exists() and home.resolve() == ROOT:
            return known
    link = tmp / "ansible_collections" / "kubeops" / "node_maintenance"
    if not link.is_symlink():
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(ROOT)
    return str(tmp)


def ansible(command: str) -> str:
    """The command of the environment that runs the tests, or the one on PATH."""
    beside = Path(sys.executable).parent / command
    return str(beside) if beside.exists() else command


def environment(tmp: Path, more: Mapping[str, str] | None = None) -> dict[str, str]:
    """An environment in which nothing of the caller's cluster or Ansible takes part."""
    kept = {
        key: value for key, value in os.environ.items() if not key.startswith(("K8S_AUTH_", "KUBECONFIG", "ANSIBLE_"))
    }
    home = tmp / "home"
    home.mkdir(parents=True, exist_ok=True)
    return {
        **kept,
        "ANSIBLE_COLLECTIONS_PATH": collections_path(tmp),
        "ANSIBLE_CONFIG": os.devnull,
        "ANSIBLE_HOME": str(home),
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "False",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_RETRY_FILES_ENABLED": "0",
        "PYTHONUNBUFFERED": "1",
        **(more or {}),
    }


def adopted(kubeconfig: Path) -> Lab:
    """A lab that somebody else keeps: LAB_KUBECONFIG, with LAB_AUDIT_LOG and LAB_KUBECTL."""
    api = Api(kubeconfig, AGENT)
    api.get("/readyz?verbose=0")
    audit_log = Path(os.environ["LAB_AUDIT_LOG"])
    return Lab("", kubeconfig, audit_log, Path(os.environ.get("LAB_KUBECTL", "kubectl")), api)
