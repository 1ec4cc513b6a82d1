# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kubeconfigs, and a credential plugin that counts how often it ran."""

from __future__ import annotations

import base64
import json
import sys
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.kubeops.node_maintenance.tests.unit.kube.api import CERTS

PLUGIN = """\
import json, os, pathlib, subprocess, sys, time
def written(path, text):
    unfinished = path.with_suffix(".new")
    unfinished.write_text(text)
    unfinished.rename(path)
runs = pathlib.Path(sys.argv[1])
number = int(runs.read_text()) + 1 if runs.exists() else 1
written(runs, str(number))
hang = runs.with_name("hang")
if hang.exists():
    child = subprocess.Popen(["sleep", "60"])
    written(runs.with_name("pids"), f"{os.getpid()} {child.pid}")
    time.sleep(60)
status = json.loads(sys.argv[2])
status.setdefault("token", f"token-{number}")
version = "client.authentication.k8s.io/v1"
print(json.dumps({"apiVersion": version, "kind": "ExecCredential", "status": status}))
"""
"""Hangs, with a child, as long as there is a file `hang` beside its counter. Its files are never seen half written."""


def config(server: str, user: dict[str, Any] | None = None, cluster: dict[str, Any] | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "lab",
        "contexts": [{"name": "lab", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server, **(cluster or {})}}],
        "users": [{"name": "u", "user": user or {}}],
    }


def data(name: str) -> str:
    """A file of the certificates, as a kubeconfig embeds it."""
    return base64.b64encode((CERTS / name).read_bytes()).decode()


def trusting(server: str, user: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    """A kubeconfig that knows the authority of the test's servers; `more` is of the cluster."""
    return config(server, user, {"certificate-authority-data": data("ca.pem"), **more})


def written(path: Path, content: dict[str, Any]) -> str:
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return str(path)


def plugin(folder: Path, status: dict[str, Any] | None = None) -> dict[str, Any]:
    (folder / "plugin.py").write_text(PLUGIN, encoding="utf-8")
    arguments = [str(folder / "plugin.py"), str(folder / "runs"), json.dumps(status or {})]
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": arguments,
        "interactiveMode": "Never",
    }
