# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The processes of a lab with Koordinator: which they are, restarted, or configured otherwise for a while."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import lab_place
import pytest
import yaml
from witness.api import ApiError
from witness.log import Json

from support.lab import Lab
from support.waiting import until

NAMESPACE = "koordinator-system"
DEPLOYMENT = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/koord-descheduler"
CONFIG = f"/api/v1/namespaces/{NAMESPACE}/configmaps/koord-descheduler-config"
KEY = "koord-descheduler-config"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/koord-descheduler"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
RESTART = 60.0


def chosen(request: pytest.FixtureRequest) -> Lab:
    """The cluster with the version of Koordinator that the mark of a test names; no other one is started for it."""
    found: Lab = request.getfixturevalue("koord" if request.param == "v1.7.0" else "koord_next")
    return found


def process(lab: Lab, program: str) -> int:
    """The process of the API server, `koord-scheduler` or the (only) `koord-descheduler`; 0 when there is none."""
    cluster = _folder(lab)
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            known_as = line.read_text(encoding="utf-8", errors="replace").split("\0")[0]
            if known_as.startswith(f"{cluster}/") and known_as.endswith(f"/{program}"):
                return int(line.parent.name)
    return 0


def _folder(lab: Lab) -> str:
    found = json.loads((lab.kubeconfig.parent / "lab.json").read_text(encoding="utf-8"))["logs"]
    return str(found).removesuffix("/logs")


def restart_api_server(lab: Lab) -> None:
    """Kills it, and starts it again as it was, so that the lab's end finds it; returns once it is ready.

    While it is down its port is free to see: so no other lab looks for ports meanwhile (the lock is the lab's own),
    and a server that ends because the port is not free yet is started once more.
    """
    pid = process(lab, "kube-apiserver")
    command = Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8").rstrip("\0").split("\0")
    cluster = Path(_folder(lab))
    log = cluster / "logs" / "kube-apiserver.log"
    server: subprocess.Popen[bytes] | None = None

    def ready() -> bool:
        nonlocal server
        if server is None or server.poll() is not None:
            with log.open("ab") as told:
                server = subprocess.Popen(command, cwd=cluster, stdout=told, stderr=told, start_new_session=True)
            (cluster / "pids" / "kube-apiserver.pid").write_text(str(server.pid), encoding="utf-8")
        try:
            lab.api.get("/readyz")
        except (OSError, http.client.HTTPException, ApiError):
            return False
        return True

    with lab_place.alone(lab_place.ports()):
        os.kill(pid, signal.SIGKILL)
        until(lambda: process(lab, "kube-apiserver") == 0, 10, "the API server has ended")
        until(ready, RESTART, f"the API server is ready again, see {log}", every=0.5)


def descheduler_pods(lab: Lab) -> list[Json]:
    return lab.api.items(PODS, labelSelector="koord-app=koord-descheduler")


def leads(lab: Lab) -> bool:
    """Whether the pod that is there, and no other, has been elected and is ready: only then it can be asked.

    It is that of the newest rollout: the one before it leads until the Deployment is looked at.
    """
    deployment, pods = lab.api.get(DEPLOYMENT), descheduler_pods(lab)
    status, lease = deployment.get("status") or {}, lab.api.find(LEASE)
    return (
        len(pods) == 1
        and status.get("observedGeneration") == deployment["metadata"]["generation"]
        and status.get("updatedReplicas") == 1
        and str((lease or {}).get("spec", {}).get("holderIdentity", "")).startswith(f"{pods[0]['metadata']['name']}_")
        and any(
            each["type"] == "Ready" and each["status"] == "True" for each in pods[0]["status"].get("conditions", [])
        )
    )


def restart_descheduler(lab: Lab) -> None:
    """Deletes the pod and waits until its successor leads: it forgets what it counted, and reads its configuration."""
    old = {pod["metadata"]["name"] for pod in descheduler_pods(lab)}
    for name in old:
        lab.api.delete(f"{PODS}/{name}")
    until(
        lambda: not old & {pod["metadata"]["name"] for pod in descheduler_pods(lab)},
        RESTART,
        "the old descheduler has ended",
    )
    until(lambda: leads(lab), RESTART, "the descheduler leads")


def migration_args(config: Json, profile: int = 0) -> Json:
    """The arguments of a profile's MigrationController in a descheduler's configuration, to be changed in place."""
    entries = config["profiles"][profile]["pluginConfig"]
    args: Json = next(entry["args"] for entry in entries if entry["name"] == "MigrationController")
    return args


def quickened(version: str, per_node: int, window: float) -> Callable[[Json], None]:
    """A change of the configuration: so many pods of a node at a time, one of a workload in so many seconds.

    Single replicas are admitted, each version in its own words.
    """

    def change(config: Json) -> None:
        args = migration_args(config)
        args["maxMigratingPerNode"] = per_node
        args["objectLimiters"] = {"workload": {"duration": f"{window:g}s"}}
        if version == "v1.7.0":
            args["skipCheckExpectedReplicas"] = True
        else:
            args["skipEvictionGates"] = ["ExpectedReplicas"]

    return change


@contextlib.contextmanager
def configured(lab: Lab, change: Callable[[Json], None]) -> Iterator[Lab]:
    """The descheduler with a changed configuration; restarted with it, and with the former one afterwards."""
    before = lab.api.get(CONFIG)["data"][KEY]
    config = yaml.safe_load(before)
    change(config)
    lab.api.patch(CONFIG, {"data": {KEY: yaml.safe_dump(config, sort_keys=False)}})
    restart_descheduler(lab)
    try:
        yield lab
    finally:
        lab.api.patch(CONFIG, {"data": {KEY: before}})
        restart_descheduler(lab)
