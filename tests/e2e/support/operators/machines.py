# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Operators of what a node itself holds: volumes attached to it, virtual machines that run on it."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import ClassVar

from witness import objects as o
from witness.log import Json

from support.operators.base import Denial, Kind, Operator


@dataclass
class Longhorn(Operator):
    """The budget over the node's instance manager goes once no volume is attached to the node."""

    title = "Longhorn"
    source = "longhorn-manager 5ddaa369f: controller/instance_manager_controller.go, types/types.go"
    kinds = (Kind("longhorn.io", "v1beta2", "InstanceManager", "instancemanagers"),)
    detaches = 2.0
    """Seconds from the end of the last pod with a volume to the end of its engine."""

    @property
    def manager(self) -> str:
        return f"instance-manager-{self.name}"

    @property
    def rewrites(self) -> tuple[str, ...]:
        return (self.manager,)

    @property
    def labels(self) -> Json:
        return {
            "longhorn.io/node": self.home,
            "longhorn.io/managed-by": "longhorn-manager",
            "longhorn.io/component": "instance-manager",
            "longhorn.io/instance-manager-type": "aio",
            "longhorn.io/data-engine": "v1",
        }

    def start(self) -> None:
        """The instance manager of `home`, and an application with a volume there."""
        self.detached_since: float | None = None
        self.owner = self.resource(self.kinds[0], self.manager, {"nodeID": self.home, "type": "aio"})
        self.fill()
        self.budget(self.manager, self.labels, 1, None)
        self.serve({"app": self.name})
        self.stateful(self.name, {"app": self.name}, None)
        self.settle(self.labels, 1)

    def fill(self) -> None:
        """Longhorn binds the pod itself, so a cordon would not keep it away: it waits for the node to be open."""
        if not self.pods(self.labels) and not self.cordoned(self.home):
            own: Json = {"nodeName": self.home, "restartPolicy": "Never", "affinity": None}
            self.pod(self.manager, self.labels, self.owner, own)

    def step(self) -> None:
        self.fill()
        attached = any(pod["spec"].get("nodeName") == self.home for pod in self.pods({"app": self.name}))
        self.detached_since = None if attached else self.detached_since or time.monotonic()
        budget = self.arena.find("PodDisruptionBudget", self.manager)
        if not self.cordoned(self.home):
            if budget is None:
                self.budget(self.manager, self.labels, 1, None)
        elif budget and self.detached_since and time.monotonic() > self.detached_since + self.detaches:
            self.arena.delete("PodDisruptionBudget", self.manager)


@dataclass
class KubeVirt(Operator):
    """An eviction makes the machine migrate: its webhook answers 429, and the budget protects both pods meanwhile."""

    title = "KubeVirt"
    source = (
        "kubevirt v1.5.0: drain/disruptionbudget/disruptionbudget.go, migration/migration.go, pod-eviction-admitter.go"
        " (from v1.6.0 on without the budget)"
    )
    kinds = (Kind("kubevirt.io", "v1", "VirtualMachineInstance", "virtualmachineinstances"),)
    migrates = 3.0
    """Seconds from the readiness of the target to the end of the source."""
    with_budget: ClassVar[bool] = True

    @property
    def machine(self) -> str:
        return self.kinds[0].path(self.arena.namespace, self.name)

    @property
    def members(self) -> Json:
        return {"kubevirt.io/created-by": self.owner["uid"]}

    def start(self) -> None:
        self.protection = f"kubevirt-disruption-budget-{secrets.token_hex(3)}"
        self.migrating: tuple[str, float] | None = None
        self.owner = self.resource(self.kinds[0], self.name, {"evictionStrategy": "LiveMigrate"})
        if self.with_budget:
            self.budget(self.protection, self.members, 1, self.owner)
        self.serve({"vm.kubevirt.io/name": self.name})
        self.launch(self.home)
        self.settle(self.members, 1)
        conditions = [{"type": "LiveMigratable", "status": "True"}, {"type": "Ready", "status": "True"}]
        running = {"nodeName": self.home, "phase": "Running", "conditions": conditions}
        self.api.patch(self.machine, {"status": running})

    def launch(self, node: str = "") -> str:
        name = f"virt-launcher-{self.name}-{secrets.token_hex(3)}"
        labels = {**self.members, "kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": self.name}
        volumes = {"volumes": [{"name": "private", "emptyDir": {}}, {"name": "sockets", "emptyDir": {}}]}
        self.pod(name, labels, self.owner, {**volumes, **({"nodeName": node} if node else {})})
        return name

    def deny(self, pod: Json, dry_run: bool) -> Denial | None:
        if o.labels(pod).get("vm.kubevirt.io/name") != self.name or o.finished(pod):
            return None
        told = f'Eviction triggered evacuation of VMI "{self.arena.namespace}/{self.name}"'
        status = self.api.get(self.machine).get("status") or {}
        if status.get("evacuationNodeName"):
            return Denial(429, f"Evacuation in progress: {told}")
        if status.get("nodeName") != pod["spec"]["nodeName"]:
            return Denial(429, "Eviction request for target Pod")
        if not dry_run:
            self.api.patch(self.machine, {"status": {"evacuationNodeName": pod["spec"]["nodeName"]}})
        return Denial(429, told)

    def step(self) -> None:
        status = self.api.get(self.machine).get("status") or {}
        leaving = status.get("evacuationNodeName")
        if not leaving:
            return
        if self.migrating is None:
            self.protect(2)
            self.migrating = (self.launch(), 0.0)
            return
        target, since = self.migrating
        pod = self.arena.find("Pod", target) or {}
        if not pod or not o.ready(pod):
            return
        self.migrating = (target, since or time.monotonic())
        if since and time.monotonic() > since + self.migrates:
            self.finish(pod, leaving)

    def finish(self, target: Json, leaving: str) -> None:
        """The machine runs on the target; the pod on the source has succeeded, and stays."""
        self.api.patch(self.machine, {"status": {"nodeName": target["spec"]["nodeName"], "evacuationNodeName": None}})
        for pod in self.pods(self.members):
            if pod["spec"].get("nodeName") == leaving and not o.finished(pod):
                kinds = ("Ready", "ContainersReady")
                no = [{"type": kind, "status": "False", "reason": "PodCompleted"} for kind in kinds]
                done = {"status": {"phase": "Succeeded", "conditions": no}}
                self.api.patch(f"{self.arena.path('Pod', o.name(pod))}/status", done)
        self.protect(1)
        self.migrating = None

    def protect(self, least: int) -> None:
        if self.with_budget:
            self.arena.patch("PodDisruptionBudget", self.protection, {"spec": {"minAvailable": least}})


class KubeVirtByWebhook(KubeVirt):
    """Only its webhook keeps the pod of a machine."""

    source = "kubevirt d923fdb: pod-eviction-admitter.go, migration/migration.go"
    with_budget = False
