# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab cluster that the tests share: started once, or adopted when it runs already."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from witness.api import Api
from witness.log import Json

from support import rights
from support.rights import AGENT

ROOT = Path(__file__).resolve().parents[3]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kubeops-lab"
"""Where the lab keeps what it has built, and the tests what they have."""


@dataclass(frozen=True, slots=True)
class Lab:
    """A running cluster: its administrator's kubeconfig, the collection's own, its audit log, its kubectl."""

    name: str
    kubeconfig: Path
    operator: Path
    audit_log: Path
    kubectl: Path
    api: Api

    @property
    def programs(self) -> Path:
        """The folder with the lab's binaries."""
        return self.kubectl.parent

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
    config = tmp / "ansible.cfg"
    config.touch()
    return {
        **kept,
        "ANSIBLE_COLLECTIONS_PATH": collections_path(tmp),
        "ANSIBLE_CONFIG": str(config),
        "ANSIBLE_HOME": str(home),
        "ANSIBLE_LOCALHOST_WARNING": "False",
        "ANSIBLE_INVENTORY_UNPARSED_WARNING": "False",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_RETRY_FILES_ENABLED": "0",
        "PYTHONUNBUFFERED": "1",
        **(more or {}),
    }


def adopted(tmp: Path, kubeconfig: Path) -> Lab:
    """A lab that somebody else keeps: LAB_KUBECONFIG, with LAB_AUDIT_LOG and LAB_KUBECTL."""
    api = Api(kubeconfig, AGENT)
    operator = rights.granted(api, tmp / "operator")
    audit_log = Path(os.environ["LAB_AUDIT_LOG"])
    return Lab("", kubeconfig, operator, audit_log, Path(os.environ.get("LAB_KUBECTL", "kubectl")), api)


def variables(name: str, **more_vars: object) -> Json:
    """What a playbook is told of a lab: its name, one node, what LAB_BIN_DIR and LAB_KUBERNETES say, and more."""
    told: Json = {"lab_name": name, "lab_nodes": 1, **more_vars}
    for option in ("bin_dir", "kubernetes"):
        if given := os.environ.get(f"LAB_{option.upper()}"):
            told.setdefault(f"lab_{option}", given)
    return told


def lab_playbook(tmp: Path, name: str, state: str, **more_vars: object) -> Json:
    """Run the collection's own playbook for the lab; returns its `lab_result` (present only).

    What it says goes to the caller's terminal: a first start builds for minutes.
    """
    results = tmp / f"lab-{state}"
    told = variables(name, lab_state=state, **more_vars)
    more = {
        "ANSIBLE_CALLBACK_PLUGINS": str(Path(__file__).parent / "callback"),
        "ANSIBLE_CALLBACKS_ENABLED": "result_lines",
        "KUBEOPS_TEST_RESULTS": str(results),
    }
    command = [ansible("ansible-playbook"), "kubeops.node_maintenance.lab", "-e", json.dumps(told)]
    subprocess.run(command, env=environment(tmp, more), stdin=subprocess.DEVNULL, check=True)
    facts: Json = {}
    for line in results.read_text(encoding="utf-8").splitlines():
        facts |= (json.loads(line).get("result") or {}).get("ansible_facts") or {}
    found: Json = facts.get("lab_result") or {}
    return found


def started(tmp: Path, name: str, **more_vars: object) -> Lab:
    """The lab of this name: started, or adopted where it runs already."""
    found = lab_playbook(tmp, name, "present", **more_vars)
    kubeconfig = Path(found["kubeconfig"])
    kubectl = Path(found["bin"]) / "kubectl"
    api = Api(kubeconfig, AGENT)
    operator = rights.granted(api, tmp / "operator")
    return Lab(name, kubeconfig, operator, Path(found["audit_log"]), kubectl, api)
