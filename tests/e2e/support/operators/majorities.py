# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Operators of clusters that live by a majority: one member at a time, and only while the others are well."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from witness import objects as o
from witness.log import Json

from support import shapes
from support.operators.base import Denial, Kind, Operator


@dataclass
class Elastic(Operator):
    """The budget allows nothing while the cluster is not green: at first, and after each member that went."""

    title = "Elastic Cloud on Kubernetes"
    source = "cloud-on-k8s v3.5.0: pkg/controller/elasticsearch/pdb/reconcile_default.go, label/label.go"
    kinds = (Kind("elasticsearch.k8s.elastic.co", "v1", "Elasticsearch", "elasticsearches"),)
    least = 2
    moves_shards = 6.0
    """Seconds of yellow after the cluster is whole."""
    whole_since: float = field(default=0.0, init=False)

    @property
    def members(self) -> Json:
        return {"elasticsearch.k8s.elastic.co/cluster-name": self.name}

    @property
    def service(self) -> str:
        return f"{self.name}-es-http"

    @property
    def rewrites(self) -> tuple[str, ...]:
        return f"{self.name}-es-default", self.service

    def start(self) -> None:
        kind = self.kinds[0]
        owner = self.resource(kind, self.name, {"nodeSets": [{"name": "default", "count": 3}]})
        self.budget(f"{self.name}-es-default", self.members, 3, owner)
        self.serve(self.members)
        self.stateful(f"{self.name}-es-default", self.members, owner)
        self.whole_since = time.monotonic()

    def step(self) -> None:
        """Health is green some time after all members are there, and the budget follows it."""
        if sum(o.ready(pod) for pod in self.pods(self.members)) < 3:
            self.whole_since = time.monotonic()
        green = time.monotonic() > self.whole_since + self.moves_shards
        name = f"{self.name}-es-default"
        budget = self.arena.find("PodDisruptionBudget", name) or {}
        if budget and budget["spec"]["minAvailable"] != (wanted := 2 if green else 3):
            health = {"status": {"health": "green" if green else "yellow"}}
            self.api.patch(self.kinds[0].path(self.arena.namespace, self.name), health)
            self.arena.patch("PodDisruptionBudget", name, {"spec": {"minAvailable": wanted}})


@dataclass
class Strimzi(Operator):
    """Its Drain Cleaner refuses every eviction of a broker with 500 and has the operator roll the pod instead."""

    title = "Strimzi with its Drain Cleaner"
    source = (
        "drain-cleaner 1.6.0: ValidatingWebhook.java, 070-ValidatingWebhookConfiguration.yaml;"
        " its README: template.podDisruptionBudget.maxUnavailable 0, as minAvailable 3 over a StrimziPodSet"
    )
    kinds = (
        Kind("kafka.strimzi.io", "v1beta2", "Kafka", "kafkas"),
        Kind("core.strimzi.io", "v1beta2", "StrimziPodSet", "strimzipodsets"),
    )
    least = 2
    reconciles = 3.0
    """Seconds until the operator looks at the annotation (120 by default)."""
    asked = "strimzi.io/manual-rolling-update"

    @property
    def members(self) -> Json:
        return {"strimzi.io/cluster": self.name, "strimzi.io/kind": "Kafka", "strimzi.io/name": f"{self.name}-kafka"}

    @property
    def service(self) -> str:
        return f"{self.name}-kafka-bootstrap"

    def start(self) -> None:
        self.due: dict[str, float] = {}
        kafka = self.resource(self.kinds[0], self.name, {"kafka": {}})
        self.owner = self.resource(self.kinds[1], f"{self.name}-broker", {"pods": []}, kafka)
        self.budget(f"{self.name}-kafka", self.members, 3, kafka)
        self.serve(self.members)
        self.fill([])
        self.settle(self.members, 3)

    def fill(self, pods: list[Json]) -> None:
        known = {o.name(pod) for pod in pods}
        for number in (0, 1, 2):
            if (name := f"{self.name}-broker-{number}") not in known:
                self.pod(name, {**self.members, "strimzi.io/pod-name": name}, self.owner)

    def deny(self, pod: Json, dry_run: bool) -> Denial | None:
        if o.labels(pod).get("strimzi.io/name") != f"{self.name}-kafka":
            return None
        if not dry_run:
            self.arena.patch("Pod", o.name(pod), {"metadata": {"annotations": {self.asked: "true"}}})
        return Denial(500, "The pod will be rolled by the Strimzi Cluster Operator")

    def step(self) -> None:
        """One broker at a time, and only while all the others are ready."""
        pods = self.pods(self.members)
        self.fill(pods)
        for pod in pods:
            if o.notes(pod).get(self.asked) != "true" or pod["metadata"].get("deletionTimestamp"):
                continue
            due = self.due.setdefault(o.uid(pod), time.monotonic() + self.reconciles)
            if time.monotonic() >= due and sum(o.ready(each) for each in pods) == 3:
                self.arena.delete("Pod", o.name(pod))
                return


@dataclass
class RabbitMQ(Operator):
    """No budget at all: the pod's own preStop hook waits until a majority is online without it."""

    title = "RabbitMQ cluster operator"
    source = "cluster-operator v2.22.3: internal/resource/statefulset.go (preStop; grace period 604800 s)"
    kinds = (Kind("rabbitmq.com", "v1beta1", "RabbitmqCluster", "rabbitmqclusters"),)
    least = 2

    @property
    def members(self) -> Json:
        return {"app.kubernetes.io/name": self.name, "app.kubernetes.io/component": "rabbitmq"}

    def start(self) -> None:
        owner = self.resource(self.kinds[0], self.name, {"replicas": 3})
        self.serve(self.members)
        patient = {"terminationGracePeriodSeconds": 604800}
        self.stateful(f"{self.name}-server", self.members, owner, patient, {shapes.STOP: "6s"})

    def step(self) -> None:
        """Nothing: it is the hook that holds the pod."""
