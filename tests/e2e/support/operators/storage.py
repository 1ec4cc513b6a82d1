# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Rook: storage daemons that stay with their node, and budgets that change while one failure domain is drained."""

from __future__ import annotations

import time
from dataclasses import dataclass

from witness import objects as o
from witness.log import Json

from support import shapes
from support.operators.base import Kind, Operator
from support.waiting import until

APP = "rook-ceph-osd"


@dataclass
class Rook(Operator):
    """Two OSDs on `home` and one on each of two other nodes.

    One OSD of all may go. Once it is down, the budget over all is exchanged for budgets that allow nothing over the
    other failure domains, so that the rest of this one may go; all is as before when the data are clean again.
    """

    title = "Rook"
    source = "rook d0c3b9ce6: disruption/clusterdisruption/osd.go, cluster/osd/spec.go of pkg/operator/ceph"
    kinds = (Kind("ceph.rook.io", "v1", "CephCluster", "cephclusters"),)
    least = 2
    """Two failure domains of three."""
    looks = 2.0
    """Seconds from an OSD that is down, or all up again, to other budgets (up to 30 and more)."""

    @property
    def rewrites(self) -> tuple[str, ...]:
        return (APP, self.service)

    def start(self) -> None:
        self.changed_at: float | None = None
        self.owner = self.resource(self.kinds[0], self.name, {})
        nodes = self.api.items("/api/v1/nodes", labelSelector=f"{shapes.ARENA}={self.arena.name}")
        others = [o.name(node) for node in nodes if o.name(node) != self.home and not node["spec"].get("unschedulable")]
        self.hosts = [self.home, *others[:2]]
        for number, host in enumerate([self.home, *self.hosts]):
            self.daemon(number, host)
        self.serve({"app": APP})
        self.settle({"app": APP}, 4)
        self.protect(APP, 1, {"app": APP})

    def clear(self) -> None:
        """Its names are the same in every cluster, so they have to be free for the next one in this namespace."""
        self.api.delete(self.kinds[0].path(self.arena.namespace, self.name))
        until(lambda: not self.arena.all("Deployment"), 60, "the OSDs are gone")
        until(lambda: not self.pods({"app": APP}), 60, "the pods of the OSDs are gone")
        until(lambda: self.arena.find("PodDisruptionBudget", APP) is None, 60, "their budget is gone")
        self.arena.delete("Service", self.service)

    def daemon(self, number: int, host: str) -> None:
        labels = {"app": APP, "ceph-osd-id": str(number), "topology-location-host": host, "rook_cluster": self.name}
        spec = shapes.pod_spec(self.arena.name, {"nodeSelector": {"kubernetes.io/hostname": host}})
        times = {shapes.START: "1s", shapes.STOP: "1s"}
        made: Json = {
            "metadata": {"name": f"{APP}-{number}", "labels": labels, "ownerReferences": [self.owner]},
            "spec": {
                "replicas": 1,
                "strategy": {"type": "Recreate"},
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels, "annotations": times}, "spec": spec},
            },
        }
        self.api.create(self.arena.path("Deployment"), made)

    def protect(self, name: str, may_go: int, labels: Json) -> None:
        """A budget with maxUnavailable, which works over Deployments; one that is there stays."""
        if self.arena.find("PodDisruptionBudget", name) is None:
            spec = {"maxUnavailable": may_go, "selector": {"matchLabels": labels}}
            meta = {"name": name, "ownerReferences": [self.owner]}
            self.api.create(self.arena.path("PodDisruptionBudget"), {"metadata": meta, "spec": spec})

    def step(self) -> None:
        down = [d for d in self.arena.all("Deployment") if not d["status"].get("readyReplicas")]
        domains = {o.labels(d)["topology-location-host"] for d in down}
        drained = next((host for host in self.hosts if host in domains and self.cordoned(host)), "")
        as_wanted = (self.arena.find("PodDisruptionBudget", APP) is None) is bool(drained)
        if as_wanted or (down and not drained):
            self.changed_at = None
            return
        self.changed_at = self.changed_at or time.monotonic()
        if time.monotonic() < self.changed_at + self.looks:
            return
        for host in self.hosts:
            if drained and host != drained:
                self.protect(f"{APP}-host-{host}", 0, {"topology-location-host": host})
        if drained:
            self.arena.delete("PodDisruptionBudget", APP)
            return
        self.protect(APP, 1, {"app": APP})
        for host in self.hosts:
            self.arena.delete("PodDisruptionBudget", f"{APP}-host-{host}")
