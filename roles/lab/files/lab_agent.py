# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The kubelet of one node, `agent`, whose pods are real processes of this machine.

A container whose command names a program of the lab runs it; one without a command is only
simulated. ConfigMaps are written to files, readiness is probed over HTTP, crashes and restarts are
reported as a kubelet does, and KWOK shows logs and ports. Everything is below HOME/pods; the
processes terminate with the agent.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import http.client
import os
import shutil
import signal
import sys
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from lab_api import APPLY, MERGE, Api, Refused
from lab_container import Container, stamp

Json = dict[str, Any]
NODE = "agent"
TAINT = "lab.kubeops.io/agent"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
KWOK = "/apis/kwok.x-k8s.io/v1alpha1"
HEARTBEAT, NODE_CHECK, TICK = 3.0, 15.0, 0.5
OURS = ("Initialized", "Ready", "ContainersReady")
NO_ANSWER = (OSError, http.client.HTTPException, ValueError)


class NotYet(Exception):
    """Something that a pod needs does not exist; the message is for the pod's status."""


@dataclass(slots=True)
class Sandbox:
    """One pod and its containers."""

    raw: Json
    folder: Path
    containers: list[Container]
    since: float
    reported: Json = field(default_factory=dict)
    transitions: dict[str, tuple[str, str]] = field(default_factory=dict)
    shown: Json = field(default_factory=dict)
    end_by: float | None = None

    @property
    def path(self) -> str:
        meta = self.raw["metadata"]
        return f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"

    def condition(self, kind: str, good: bool, now: float) -> Json:
        value = "True" if good else "False"
        if self.transitions.get(kind, ("", ""))[0] != value:
            self.transitions[kind] = (value, stamp(now))
        return {"type": kind, "status": value, "lastTransitionTime": self.transitions[kind][1]}

    def status(self, now: float) -> Json:
        """The pod's status for the API."""
        ready = all(container.ready for container in self.containers)
        phase = "Running" if any(container.begun for container in self.containers) else "Pending"
        if all(container.finished for container in self.containers):
            failed = any(c.exited and c.exited["exitCode"] for c in self.containers)
            phase = "Failed" if failed else "Succeeded"
        others = [c for c in self.raw["status"].get("conditions", []) if c["type"] not in OURS]
        states = {"Initialized": True, "Ready": ready, "ContainersReady": ready}
        return {
            "phase": phase,
            "startTime": stamp(self.since),
            "hostIP": "127.0.0.1",
            "podIP": "127.0.0.1",
            "podIPs": [{"ip": "127.0.0.1"}],
            "conditions": others
            + [self.condition(kind, good, now) for kind, good in states.items()],
            "containerStatuses": [container.status(now) for container in self.containers],
        }


class Volumes:
    """The volumes of containers, as directories with the files of ConfigMaps."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def mount(self, sandbox: Sandbox, container: Container) -> dict[str, Path]:
        """Writes the current content of a container's volumes;
        returns the directories by their mount paths.
        """
        namespace = sandbox.raw["metadata"]["namespace"]
        volumes = {volume["name"]: volume for volume in sandbox.raw["spec"].get("volumes", [])}
        found = {}
        for mount in container.spec.get("volumeMounts", []):
            volume = volumes.get(mount["name"], {})
            if "projected" in volume:
                continue
            folder = container.folder / "volumes" / mount["name"]
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            if source := volume.get("configMap"):
                self.write(
                    f"/api/v1/namespaces/{namespace}/configmaps/{source['name']}", source, folder
                )
            found[mount["mountPath"]] = folder
        container.folder.mkdir(parents=True, exist_ok=True)
        return found

    def write(self, path: str, source: Json, folder: Path) -> None:
        """Writes the files of a ConfigMap.

        Raises:
            NotYet: the ConfigMap or one of its keys does not exist, and is not optional.
        """
        name = source["name"]
        try:
            held = self.api.send("GET", path)
        except Refused as error:
            if error.status == 404 and source.get("optional"):
                return
            if error.status == 404:
                raise NotYet(f'configmap "{name}" not found') from error
            raise
        data = {key: value.encode() for key, value in (held.get("data") or {}).items()}
        data |= {
            key: base64.b64decode(value) for key, value in (held.get("binaryData") or {}).items()
        }
        items = source.get("items") or [{"key": key, "path": key} for key in data]
        for item in items:
            if item["key"] in data:
                (folder / item["path"]).parent.mkdir(parents=True, exist_ok=True)
                (folder / item["path"]).write_bytes(data[item["key"]])
            elif not source.get("optional"):
                raise NotYet(
                    f'configmap "{name}" references non-existent config key: {item["key"]}'
                )


class KwokView:
    """What KWOK shows of pods: their logs and forwarded ports."""

    def __init__(self, api: Api) -> None:
        self.api = api

    def show(self, sandbox: Sandbox) -> None:
        """Makes KWOK show the logs and forward the ports of a pod."""
        logs = [
            {
                "containers": [container.name],
                "logsFile": str(container.log),
                "previousLogsFile": str(container.previous_log),
                "follow": True,
            }
            for container in sandbox.containers
            if container.process
        ]
        forwards = [
            {"ports": [inside], "target": {"address": "127.0.0.1", "port": outside}}
            for container in sandbox.containers
            for inside, outside in container.ports.items()
        ]
        wanted: Json = {"Logs": {"logs": logs}, "PortForward": {"forwards": forwards}}
        if not logs or wanted == sandbox.shown:
            return
        for kind, spec in wanted.items():
            meta = {"name": sandbox.raw["metadata"]["name"]}
            thing = {
                "apiVersion": "kwok.x-k8s.io/v1alpha1",
                "kind": kind,
                "metadata": meta,
                "spec": spec,
            }
            path = self.path(sandbox, kind)
            self.api.send("PATCH", f"{path}?fieldManager=lab-agent&force=true", thing, APPLY)
        sandbox.shown = wanted

    def hide(self, sandbox: Sandbox) -> None:
        """Deletes what `show` created."""
        for kind in sandbox.shown:
            with contextlib.suppress(Refused):
                self.api.send("DELETE", self.path(sandbox, kind))

    def path(self, sandbox: Sandbox, kind: str) -> str:
        meta = sandbox.raw["metadata"]
        plural = "logs" if kind == "Logs" else "portforwards"
        return f"{KWOK}/namespaces/{meta['namespace']}/{plural}/{meta['name']}"


class Agent:
    """Runs the pods that are bound to the node."""

    def __init__(self, home: Path, credentials: Path, programs: Path, kubelet_port: int) -> None:
        self.api = Api(credentials, "lab-agent")
        self.volumes, self.view = Volumes(self.api), KwokView(self.api)
        self.pods_folder = home / "pods"
        self.credentials, self.programs, self.kubelet_port = credentials, programs, kubelet_port
        self.changed = threading.Condition()
        self.wanted: dict[str, Json] = {}
        self.synced = False
        self.running: dict[str, Sandbox] = {}
        self.heartbeat_due = self.node_due = 0.0

    def run(self) -> None:
        """Runs forever."""
        self.sweep()
        threading.Thread(target=self.follow, daemon=True).start()
        while True:
            with self.changed:
                self.changed.wait(TICK)
                wanted, synced = dict(self.wanted), self.synced
            now = time.time()
            try:
                if now >= self.heartbeat_due:
                    self.heartbeat(now)
                    self.heartbeat_due = now + HEARTBEAT
                if synced:
                    self.step(wanted, now)
            except (Refused, *NO_ANSWER) as error:
                print(f"{stamp(now)} {type(error).__name__}: {error}", flush=True)

    def sweep(self) -> None:
        """Terminates processes that an earlier agent left."""
        mine = f"{self.pods_folder}/"
        for entry in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if entry.read_text(encoding="utf-8", errors="replace").startswith(mine):
                    os.kill(int(entry.parent.name), signal.SIGKILL)

    def follow(self) -> None:
        """Keeps `wanted` equal to the pods bound to the node."""
        while True:
            fresh: dict[str, Json] = {}
            try:
                for event, pod in self.api.watch("/api/v1/pods", f"spec.nodeName={NODE}"):
                    if event == "BOOKMARK":
                        continue
                    with self.changed:
                        if event == "SYNCED":
                            self.wanted, self.synced = fresh, True
                        elif event == "DELETED":
                            fresh.pop(pod["metadata"]["uid"], None)
                        else:
                            fresh[pod["metadata"]["uid"]] = pod
                        self.changed.notify()
            except (Refused, *NO_ANSWER) as error:
                print(f"{stamp(time.time())} watch: {type(error).__name__}: {error}", flush=True)
            time.sleep(1)

    def heartbeat(self, now: float) -> None:
        """Renews the node's lease; creates the node if it is missing,
        and makes it ready if it is not.
        """
        micro = stamp(now).replace("Z", ".000000Z")
        spec = {"holderIdentity": NODE, "leaseDurationSeconds": 40, "renewTime": micro}
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": NODE},
            "spec": spec,
        }
        self.api.send("PATCH", f"{LEASES}/{NODE}?fieldManager=lab-agent&force=true", lease, APPLY)
        if now < self.node_due:
            return
        self.node_due = now + NODE_CHECK
        try:
            node = self.api.send("GET", f"/api/v1/nodes/{NODE}")
        except Refused as error:
            if error.status != 404:
                raise
            node = self.api.send("POST", "/api/v1/nodes", new_node())
        if not any(
            c["type"] == "Ready" and c["status"] == "True"
            for c in node["status"].get("conditions", [])
        ):
            self.api.send(
                "PATCH", f"/api/v1/nodes/{NODE}/status", node_status(now, self.kubelet_port), MERGE
            )

    def step(self, wanted: Mapping[str, Json], now: float) -> None:
        """One round over all pods; a refused request for one does not affect the others."""
        for uid in set(self.running) - set(wanted):
            sandbox = self.running.pop(uid)
            for container in sandbox.containers:
                container.stop(hard=True)
            self.view.hide(sandbox)
        for uid, raw in wanted.items():
            if uid not in self.running:
                if raw["metadata"].get("deletionTimestamp") or raw["status"].get("phase") in (
                    "Succeeded",
                    "Failed",
                ):
                    self.forget(raw)
                    continue
                self.running[uid] = self.sandbox(raw, now)
            sandbox = self.running[uid]
            sandbox.raw = raw
            try:
                self.attend(sandbox, now)
            except Refused as error:
                print(f"{stamp(now)} {sandbox.path}: {error}", flush=True)

    def sandbox(self, raw: Json, now: float) -> Sandbox:
        """The directory and the containers of a new pod."""
        meta, spec = raw["metadata"], raw["spec"]
        folder = self.pods_folder / f"{meta['namespace']}_{meta['name']}"
        shutil.rmtree(folder, ignore_errors=True)
        kubeconfig = str(self.kubeconfig(raw, folder))
        before = {s["name"]: s["restartCount"] for s in raw["status"].get("containerStatuses", [])}
        containers = [
            Container(
                spec=container,
                folder=folder / container["name"],
                pod=meta["name"],
                restart_policy=spec.get("restartPolicy", "Always"),
                programs=self.programs,
                kubeconfig=kubeconfig,
                restarts=before.get(container["name"], 0),
                begun=container["name"] in before,
            )
            for container in spec["containers"]
        ]
        return Sandbox(raw, folder, containers, now)

    def kubeconfig(self, raw: Json, folder: Path) -> Path:
        """The credentials of a pod: those of its service account if a ClusterRole is bound
        to it, else the lab's.
        """
        namespace, account = (
            raw["metadata"]["namespace"],
            raw["spec"].get("serviceAccountName", "default"),
        )
        subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
        bindings = self.api.send("GET", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings")[
            "items"
        ]
        if not any(subject in (binding.get("subjects") or ()) for binding in bindings):
            return self.credentials
        asked = {"spec": {"expirationSeconds": 86400}}
        given = self.api.send(
            "POST", f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token", asked
        )
        config = yaml.safe_load(self.credentials.read_text(encoding="utf-8"))
        config["users"][0]["user"] = {"token": given["status"]["token"]}
        folder.mkdir(parents=True)
        path = folder / "kubeconfig"
        path.touch(0o600)
        path.write_text(yaml.safe_dump(config), encoding="utf-8")
        return path

    def attend(self, sandbox: Sandbox, now: float) -> None:
        """One round for one pod."""
        for container in sandbox.containers:
            container.look(now)
        meta = sandbox.raw["metadata"]
        if meta.get("deletionTimestamp"):
            self.finish(sandbox, now)
            return
        for container in sandbox.containers:
            if not container.running and not container.finished and now >= container.due:
                try:
                    container.start(self.volumes.mount(sandbox, container), now)
                except NotYet as error:
                    container.waiting = {"reason": "ContainerCreating", "message": str(error)}
        self.view.show(sandbox)
        self.report(sandbox, now)

    def report(self, sandbox: Sandbox, now: float) -> None:
        """Writes the status if it has changed."""
        status = sandbox.status(now)
        if status != sandbox.reported:
            self.api.send("PATCH", f"{sandbox.path}/status", {"status": status}, MERGE)
            sandbox.reported = status

    def finish(self, sandbox: Sandbox, now: float) -> None:
        """Terminates the processes of a deleted pod within its grace period,
        then deletes the pod.
        """
        if sandbox.end_by is None:
            sandbox.end_by = now + float(
                sandbox.raw["metadata"].get("deletionGracePeriodSeconds") or 0
            )
            for container in sandbox.containers:
                container.stop(hard=False)
        if any(container.process for container in sandbox.containers):
            if now >= sandbox.end_by:
                for container in sandbox.containers:
                    container.stop(hard=True)
            return
        self.view.hide(sandbox)
        self.forget(sandbox.raw)

    def forget(self, raw: Json) -> None:
        """Removes a deleted pod that no longer runs from the API."""
        meta = raw["metadata"]
        if not meta.get("deletionTimestamp"):
            return
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}}
        try:
            self.api.send(
                "DELETE", f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}", options
            )
        except Refused as error:
            if error.status not in (404, 409):
                raise


def new_node() -> Json:
    """The node as it is registered; its taint keeps other pods away."""
    labels = {
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": NODE,
        "kubernetes.io/os": "linux",
        TAINT: "",
    }
    spec = {"taints": [{"key": TAINT, "effect": "NoSchedule"}]}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": NODE, "labels": labels},
        "spec": spec,
    }


def node_status(now: float, kubelet_port: int) -> Json:
    """The status of a healthy node. KWOK answers the requests to its kubelet."""
    size = {"cpu": "8", "memory": "16Gi", "pods": "30"}
    reasons = {
        "Ready": ("True", "KubeletReady", "the agent of the lab is posting ready status"),
        "MemoryPressure": ("False", "KubeletHasSufficientMemory", ""),
        "DiskPressure": ("False", "KubeletHasNoDiskPressure", ""),
        "PIDPressure": ("False", "KubeletHasSufficientPID", ""),
    }
    conditions = [
        {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastHeartbeatTime": stamp(now),
            "lastTransitionTime": stamp(now),
        }
        for kind, (status, reason, message) in reasons.items()
    ]
    addresses = [
        {"type": "InternalIP", "address": "127.0.0.1"},
        {"type": "Hostname", "address": "localhost"},
    ]
    return {
        "status": {
            "addresses": addresses,
            "allocatable": size,
            "capacity": size,
            "conditions": conditions,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": kubelet_port}},
        }
    }


def main() -> int:
    """Reads the command line."""
    parser = argparse.ArgumentParser(description="The kubelet of the lab's node `agent`.")
    for name, kind in (
        ("home", Path),
        ("credentials", Path),
        ("programs", Path),
        ("kubelet-port", int),
    ):
        parser.add_argument(f"--{name}", type=kind, required=True)
    given = parser.parse_args()
    Agent(given.home, given.credentials, given.programs, given.kubelet_port).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
