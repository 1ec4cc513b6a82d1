# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab's real nodes: their power buttons, their hosts for Ansible, and servers that run on them."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from witness.api import Api
from witness.log import Json
from witness.traffic import Traffic, Way

from support import logind
from support.lab import Lab
from support.waiting import until

IMAGE = "lab.kubeops.io/web:1"


class Machines:
    """The nodes of one lab, and a namespace of a test on them."""

    def __init__(self, lab: Lab, namespace: str, folder: Path) -> None:
        self.lab = lab
        self.namespace = namespace
        self.folder = folder
        self.facts: Json = json.loads((lab.kubeconfig.parent / "lab.json").read_text(encoding="utf-8"))

    @property
    def api(self) -> Api:
        return self.lab.api

    @property
    def home(self) -> Path:
        """The lab's directory with the files of its nodes."""
        return Path(self.facts["logs"]).parent

    @property
    def prefix(self) -> list[str]:
        """What runs a command in the lab's network."""
        return [str(self.lab.programs / "lab-node"), "net"]

    def command(self, *words: str) -> str:
        """A command of `lab-node`; what it printed."""
        done = subprocess.run(
            [str(self.lab.programs / "lab-node"), *words], capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"lab-node {' '.join(words)}: {done.stderr}"
        return done.stdout

    def hosts(self, *names: str) -> dict[str, Json]:
        """Nodes as hosts of an inventory, by SSH."""
        known = json.loads(Path(self.facts["inventory"]).read_text(encoding="utf-8"))["all"]
        return {name: {**known["vars"], **known["hosts"][name]} for name in names}

    @contextlib.contextmanager
    def downtime(self, seconds: int) -> Iterator[None]:
        """For how long a node that reboots is off."""
        file = self.home / "downtime"
        before = file.read_text(encoding="utf-8")
        file.write_text(f"{seconds}\n", encoding="utf-8")
        try:
            yield
        finally:
            file.write_text(before, encoding="utf-8")

    @contextlib.contextmanager
    def ending_pods_first(self, name: str, normal: int, critical: int) -> Iterator[list[Json]]:
        """A node whose kubelet ends its pods before a shutdown, critical ones last, each group in so many seconds.

        There is no systemd to tell it of one: these tasks do.
        """
        folder = self.home / "nodes" / name
        config, boot = folder / "kubelet.yaml", folder / "boot"
        before, bus = config.read_text(encoding="utf-8"), "/run/dbus/system_bus_socket"
        more = f"shutdownGracePeriod: {normal + critical}s\nshutdownGracePeriodCriticalPods: {critical}s\n"
        config.write_text(before + more, encoding="utf-8")
        boot.write_text(f"#!/bin/sh\nexec {sys.executable} {logind.__file__} {bus}\n", encoding="utf-8")
        boot.chmod(0o755)
        try:
            self.restart(name)
            told = ["pkill", "-USR1", "-f", f"{logind.__file__} {bus}"]
            yield [
                {"name": "Say that it will shut down", "ansible.builtin.command": {"argv": told}},
                {"name": "Wait until it may", "ansible.builtin.wait_for": {"path": f"{bus}.released", "timeout": 60}},
            ]
        finally:
            config.write_text(before, encoding="utf-8")
            boot.unlink()
            self.restart(name)

    def restart(self, name: str) -> None:
        """Reboot a node, and wait until it is back."""
        before = self.node(name)["status"]["nodeInfo"]["bootID"]
        self.command("reboot", name)
        until(lambda: self.node(name)["status"]["nodeInfo"]["bootID"] != before and self.ready(name), 90, "it is back")

    def begin(self) -> None:
        """Make the namespace."""
        self.api.create("/api/v1/namespaces", {"metadata": {"name": self.namespace}})
        account = f"/api/v1/namespaces/{self.namespace}/serviceaccounts/default"
        until(lambda: self.api.find(account), 60, "the namespace has its account")

    def end(self) -> None:
        """Delete the namespace, and wait for it no longer than it takes to ask."""
        self.lab.run_kubectl("delete", "namespace", self.namespace, "--wait=false")

    def node(self, name: str) -> Json:
        found: Json = self.api.get(f"/api/v1/nodes/{name}")
        return found

    def ready(self, name: str) -> bool:
        conditions = self.node(name)["status"]["conditions"]
        return any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)

    def in_service(self, name: str) -> bool:
        """Whether a node is ready, takes pods, and nothing of ours is on it."""
        spec = self.node(name)["spec"]
        return self.ready(name) and not spec.get("unschedulable") and not spec.get("taints")

    def apply(self, *objects: Json) -> None:
        """Objects as YAML says them; those without a namespace get that of the test."""
        listed = {"apiVersion": "v1", "kind": "List", "items": list(objects)}
        file = self.folder / "objects.json"
        file.write_text(json.dumps(listed), encoding="utf-8")
        done = self.lab.run_kubectl("apply", f"--namespace={self.namespace}", f"--filename={file}")
        assert done.returncode == 0, done.stderr

    def pods(self, app: str = "") -> list[Json]:
        """The pods of the test, or of one of its workloads, but for those that are going."""
        query = f"?labelSelector=app%3D{app}" if app else ""
        found = self.api.items(f"/api/v1/namespaces/{self.namespace}/pods{query}")
        return [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]

    def settle(self, *apps: str, within: float = 180.0) -> None:
        """Wait until every pod of the test (or of these workloads) is ready or has succeeded."""

        def settled() -> bool:
            wanted = [pod for app in apps for pod in self.pods(app)] if apps else self.pods()
            states = [status_of(pod) for pod in wanted]
            return bool(states) and all(state in ("Ready", "Succeeded") for state in states)

        until(settled, within, f"the pods of {self.namespace} are ready", every=0.3)

    def traffic(self, ways: Sequence[Way], lagging: dict[str, Way] | None = None) -> Traffic:
        """Requests to all Services of the test, and to some in a way of their own, from the lab's network."""
        made = Traffic(self.lab.programs / "lab-web", self.folder, self.prefix)
        made.add_services(self.lab.kubeconfig, [self.namespace], ways)
        for name, way in (lagging or {}).items():
            made.add_service(self.lab.kubeconfig, f"{self.namespace}/{name}", way)
        return made


def status_of(pod: Json) -> str:
    """Ready, or its phase."""
    conditions = pod["status"].get("conditions") or []
    ready = any((one["type"], one["status"]) == ("Ready", "True") for one in conditions)
    return "Ready" if ready else str(pod["status"]["phase"])


def container(*args: str, **more: object) -> Json:
    """A container of the lab's program."""
    return {
        "name": "main",
        "image": IMAGE,
        "args": list(args),
        "resources": {"requests": {"cpu": "10m", "memory": "16Mi"}},
        **more,
    }


def server(*args: str, **more: object) -> Json:
    """A container that serves, ready as soon as it answers."""
    probe = {"httpGet": {"path": "/ready", "port": 8080}, "periodSeconds": 1, "failureThreshold": 1}
    return container("serve", *args, readinessProbe=probe, **more)


def preferring(node: str) -> Json:
    """The affinity of pods that want to be there first."""
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}]}
    preferred = [{"weight": 100, "preference": term}]
    return {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}


def workload(kind: str, name: str, main: Json, *, replicas: int = 1, node: str = "node-001", **spec: object) -> Json:
    """A Deployment, StatefulSet or DaemonSet of one container."""
    labels = {"app": name}
    pod = {"affinity": preferring(node), "terminationGracePeriodSeconds": 30, **spec, "containers": [main]}
    if kind == "DaemonSet":
        del pod["affinity"]
    described: Json = {
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    if kind != "DaemonSet":
        described["replicas"] = replicas
    if kind == "StatefulSet":
        described["serviceName"] = name
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": described}


def service(name: str, **spec: object) -> Json:
    """The Service of a workload."""
    wanted = {"selector": {"app": name}, "ports": [{"port": 80, "targetPort": 8080}], **spec}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": wanted}


def budget(name: str, **limit: object) -> Json:
    """The PodDisruptionBudget of a workload."""
    spec = {"selector": {"matchLabels": {"app": name}}, **limit}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}, "spec": spec}


def servers(start: str, stop: str) -> dict[str, list[Json]]:
    """Servers that go on for a while once they were told to end, and an abrupt one: by name, each with its Service.

    `several` and what follows are of several replicas, the others of one.
    """
    begin, end = f"-start={start}", f"-stop={stop}"
    hook = {"preStop": {"exec": {"command": ["/lab-web", "sleep", stop]}}}
    made = [
        [workload("Deployment", "abrupt", server(begin))],
        [workload("Deployment", "stops", server(begin, end))],
        [workload("Deployment", "closes", server(begin, end, "-drain"))],
        [workload("Deployment", "sleeps", server(begin, lifecycle=hook))],
        [workload("Deployment", "several", server(begin, end), replicas=3)],
        [workload("Deployment", "bounded", server(begin, end), replicas=3), budget("bounded", maxUnavailable=1)],
        [workload("StatefulSet", "state", server(begin, end), replicas=2)],
    ]
    return {name: [*objects, service(name)] for objects in made for name in [objects[0]["metadata"]["name"]]}
