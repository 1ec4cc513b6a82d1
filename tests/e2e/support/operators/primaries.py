# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Operators of databases with one primary: a budget holds it until they have handed over to a replica."""

from __future__ import annotations

import abc
import time
from dataclasses import dataclass
from typing import ClassVar

from witness import objects as o
from witness.log import Json

from support.operators.base import Denial, Kind, Operator

HAND_OVER = 2.0
"""Seconds from a cordon to the new primary."""
GAP = 0.5
"""Seconds of them in which there is none."""
EMPTY_DIRS: Json = {"volumes": [{"name": "scratch-data", "emptyDir": {}}, {"name": "shm", "emptyDir": {}}]}


@dataclass
class Primary(Operator):
    """Three instances; `role` is the label that tells the primary, with the values `roles`."""

    role: ClassVar[str]
    roles: ClassVar[tuple[str, str]] = ("primary", "replica")

    @property
    @abc.abstractmethod
    def members(self) -> Json:
        """The labels that all its pods have."""

    def elect(self) -> None:
        """At first the instance on `home` is the primary."""
        for pod in self.settle(self.members, 3):
            self.label(pod, **{self.role: self.roles[pod["spec"]["nodeName"] != self.home]})

    def primary(self, pods: list[Json]) -> Json | None:
        return next((pod for pod in pods if o.labels(pod).get(self.role) == self.roles[0]), None)

    def candidate(self, pods: list[Json]) -> Json | None:
        """A replica that is ready on a node that takes pods."""
        return next(
            (
                pod
                for pod in pods
                if o.ready(pod)
                and not pod["metadata"].get("deletionTimestamp")
                and o.labels(pod).get(self.role) != self.roles[0]
                and not self.cordoned(pod["spec"]["nodeName"])
            ),
            None,
        )

    def move_primary(self, pods: list[Json]) -> None:
        """Hand over where the primary's node is cordoned; a pod without a role becomes a replica."""
        for pod in pods:
            if self.role not in o.labels(pod):
                self.label(pod, **{self.role: self.roles[1]})
        old, new = self.primary(pods), self.candidate(pods)
        if old is None or new is None or not self.cordoned(old["spec"]["nodeName"]):
            return
        time.sleep(HAND_OVER - GAP)
        with self.switch():
            self.label(old, **{self.role: self.roles[1]})
            time.sleep(GAP)
            self.label(new, **{self.role: self.roles[0]})


@dataclass
class CloudNativePG(Primary):
    """Pods of the custom resource itself, and a budget for the primary alone."""

    title = "CloudNativePG"
    source = (
        "cloudnative-pg v1.27.0: pkg/specs/poddisruptionbudget.go, pkg/specs/pods.go, internal/controller/replicas.go"
    )
    kinds = (Kind("postgresql.cnpg.io", "v1", "Cluster", "clusters"),)
    role = "cnpg.io/instanceRole"

    @property
    def members(self) -> Json:
        return {"cnpg.io/cluster": self.name}

    @property
    def service(self) -> str:
        return f"{self.name}-rw"

    def start(self) -> None:
        self.owner = self.resource(self.kinds[0], self.name, {"instances": 3})
        self.budget(f"{self.name}-primary", {**self.members, self.role: "primary"}, 1, self.owner)
        self.budget(self.name, {**self.members, self.role: "replica"}, 1, self.owner)
        self.serve({**self.members, self.role: "primary"})
        self.fill([])
        self.elect()

    def fill(self, pods: list[Json]) -> None:
        known = {o.name(pod) for pod in pods}
        for number in (1, 2, 3):
            name = f"{self.name}-{number}"
            if name not in known:
                own = {**self.members, "cnpg.io/instanceName": name, "cnpg.io/podRole": "instance"}
                self.pod(name, own, self.owner, EMPTY_DIRS)

    def step(self) -> None:
        pods = self.pods(self.members)
        self.fill(pods)
        self.move_primary(pods)


@dataclass
class Zalando(Primary):
    """A StatefulSet that belongs to nobody (enable_owner_references is off by default); Patroni labels the master."""

    title = "Zalando postgres-operator"
    source = "postgres-operator v2.0.1: pkg/cluster/k8sres.go, pkg/controller/node.go, pkg/cluster/pod.go"
    kinds = (Kind("acid.zalan.do", "v1", "postgresql", "postgresqls"),)
    role = "spilo-role"
    roles = ("master", "replica")

    @property
    def members(self) -> Json:
        return {"cluster-name": self.name, "application": "spilo"}

    def start(self) -> None:
        self.resource(self.kinds[0], self.name, {"numberOfInstances": 3, "teamId": "acid"})
        self.budget(f"postgres-{self.name}-pdb", {**self.members, self.role: "master"}, 1, None)
        critical = {"matchLabels": {**self.members, "critical-operation": "true"}}
        name = f"postgres-{self.name}-critical-op-pdb"
        spec = {"maxUnavailable": 0, "selector": critical}
        self.api.create(self.arena.path("PodDisruptionBudget"), {"metadata": {"name": name}, "spec": spec})
        self.serve({**self.members, self.role: "master"})
        self.stateful(self.name, self.members, None)
        self.elect()

    def step(self) -> None:
        self.move_primary(self.pods(self.members))


@dataclass
class Distributed(Primary):
    """Each instance is a Cluster of its own; a webhook holds evictions until the write leader is another one."""

    title = "EDB Postgres Distributed"
    source = (
        "EDB CloudNativePG Global Cluster 2.2.0, release notes (closed source): 429 while it hands over,"
        " at most 160 s (8 s here), or another pod of the group is down; the label of the leader is ours"
    )
    kinds = (
        Kind("pgd.k8s.enterprisedb.io", "v1beta1", "PGDGroup", "pgdgroups"),
        Kind("postgresql.k8s.enterprisedb.io", "v1", "Cluster", "clusters"),
    )
    role = "lab.kubeops.io/write-leader"
    roles = ("true", "false")
    held = 8.0

    @property
    def members(self) -> Json:
        return {"k8s.pgd.enterprisedb.io/group": self.name}

    def start(self) -> None:
        self.asked: dict[str, float] = {}
        group = self.resource(self.kinds[0], self.name, {"pgd": {}, "instances": 3})
        self.owners = {
            number: self.resource(self.kinds[1], f"{self.name}-{number}", {"instances": 1}, group)
            for number in (1, 2, 3)
        }
        self.budget(self.name, {**self.members, "k8s.enterprisedb.io/podRole": "instance"}, 2, group)
        self.serve({**self.members, self.role: "true"})
        self.fill([])
        self.elect()

    def fill(self, pods: list[Json]) -> None:
        known = {o.name(pod) for pod in pods}
        for number, owner in self.owners.items():
            name = f"{self.name}-{number}-1"
            if name not in known:
                own = {"k8s.enterprisedb.io/podRole": "instance", "k8s.enterprisedb.io/cluster": owner["name"]}
                self.pod(name, {**self.members, **own}, owner, EMPTY_DIRS)

    def deny(self, pod: Json, dry_run: bool) -> Denial | None:
        if o.labels(pod).get("k8s.pgd.enterprisedb.io/group") != self.name:
            return None
        others = [each for each in self.pods(self.members) if o.name(each) != o.name(pod)]
        if sum(o.ready(each) for each in others) < 2:
            return Denial(429, "another pod of the PGD group is unavailable")
        if o.labels(pod).get(self.role) != "true":
            return None
        if not dry_run:
            self.asked.setdefault(o.name(pod), time.monotonic())
        return Denial(429, f"handing over the write leadership of {o.name(pod)}")

    def step(self) -> None:
        pods = self.pods(self.members)
        self.fill(pods)
        for pod in pods:
            if self.role not in o.labels(pod):
                self.label(pod, **{self.role: "false"})
        old, new = self.primary(pods), self.candidate(pods)
        if old is None or new is None or time.monotonic() < self.asked.get(o.name(old), float("inf")) + self.held:
            return
        with self.switch():
            self.label(old, **{self.role: "false"})
            self.label(new, **{self.role: "true"})
        self.asked.clear()
