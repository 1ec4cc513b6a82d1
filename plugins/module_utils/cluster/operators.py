# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Whose operator decides when a pod may leave its node.

An operator makes a budget that allows no eviction, and acts once the node is cordoned or an
eviction is tried: it promotes another instance, migrates a virtual machine, waits until data are
replicated. Such a budget is waited for. It is told by what owns the pod or the budget, a custom
resource, or by labels of the pod.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    selectors,
    snapshots,
)

PLAIN = frozenset(
    {
        "apps.kruise.io",
        "apps.openshift.io",
        "argoproj.io",
        "jobset.x-k8s.io",
        "leaderworkerset.x-k8s.io",
        "operators.coreos.com",
        "serving.knative.dev",
    }
)
"""Groups of custom resources that manage pods as a Deployment does:
their users make the budgets, and nobody acts.
"""


@dataclass(frozen=True, slots=True)
class Preset:
    """A project whose budgets are its operator's.

    ``groups`` are the API groups of its resources that own pods or budgets. ``selector`` tells its
    pods by their labels where they may have no such owner. ``budget`` is the budget as the operator
    makes it, ``acts`` goes on "its operator ...", ``source`` is where both were read (a commit of a
    repository, where known).
    """

    project: str
    groups: frozenset[str]
    budget: str
    acts: str
    source: str
    selector: objects.Raw = field(default_factory=dict)


PRESETS: t.Mapping[str, Preset] = {
    "cloudnative-pg": Preset(
        "CloudNativePG",
        frozenset({"postgresql.cnpg.io"}),
        "``<cluster>-primary``: minAvailable 1 over the primary",
        "promotes a replica on another node once this node is cordoned",
        "cloudnative-pg a95a534 ``pkg/specs/poddisruptionbudget.go``, "
        "``internal/controller/replicas.go``",
        {"matchExpressions": [{"key": "cnpg.io/cluster", "operator": "Exists"}]},
    ),
    "zalando": Preset(
        "Zalando postgres-operator",
        frozenset({"acid.zalan.do"}),
        "``postgres-<cluster>-pdb``: minAvailable 1 over ``spilo-role=master``",
        "moves the master to another node once this node is cordoned",
        "zalando/postgres-operator ``pkg/cluster/k8sres.go``, ``pkg/controller/node.go``",
        {"matchLabels": {"application": "spilo"}},
    ),
    "eck": Preset(
        "Elastic Cloud on Kubernetes",
        frozenset({"elasticsearch.k8s.elastic.co"}),
        "``<name>-es-default``: minAvailable is the number of pods while the cluster is not "
        "green, or has one master, data or ingest node alone; else one less",
        "allows an eviction again once the cluster is green",
        "cloud-on-k8s 131af37 ``pkg/controller/elasticsearch/pdb/reconcile_default.go``",
        {"matchLabels": {"common.k8s.elastic.co/type": "elasticsearch"}},
    ),
    "strimzi": Preset(
        "Strimzi",
        frozenset({"core.strimzi.io", "kafka.strimzi.io"}),
        "``<cluster>-kafka``: maxUnavailable 0 beside the Drain Cleaner, whose webhook answers "
        "an eviction with 500",
        "restarts the pod itself after the Drain Cleaner has seen the eviction",
        "drain-cleaner 321ea70 ``ValidatingWebhook.java``",
        {"matchExpressions": [{"key": "strimzi.io/cluster", "operator": "Exists"}]},
    ),
    "pgd": Preset(
        "EDB Postgres Distributed",
        frozenset({"pgd.k8s.enterprisedb.io", "postgresql.k8s.enterprisedb.io"}),
        "one for each PGD group; its webhook answers an eviction with 429 meanwhile",
        "hands the leaderships over first, in up to 160 s",
        "release notes of 2.2.0",
    ),
    "longhorn": Preset(
        "Longhorn",
        frozenset({"longhorn.io"}),
        "one for each instance manager: minAvailable 1 over one pod",
        "deletes it once no volume needs the node any more",
        "longhorn-manager 4d61704 ``controller/instance_manager_controller.go``",
        {"matchLabels": {"longhorn.io/component": "instance-manager"}},
    ),
    "rook": Preset(
        "Rook",
        frozenset({"ceph.rook.io"}),
        "``rook-ceph-osd``: maxUnavailable 1; while one domain is drained, maxUnavailable 0 "
        "for each other one",
        "allows it once all placement groups are clean",
        "rook 969fe3f ``pkg/operator/ceph/disruption/clusterdisruption/osd.go``",
        {"matchLabels": {"app": "rook-ceph-osd"}},
    ),
    "kubevirt": Preset(
        "KubeVirt",
        frozenset({"kubevirt.io"}),
        "``kubevirt-disruption-budget-<id>``: minAvailable 1 over the pod of one virtual machine",
        "migrates the virtual machine once its eviction is tried",
        "kubevirt 67fb579 ``pkg/virt-controller/watch/drain/disruptionbudget/disruptionbudget.go``",
        {"matchLabels": {"kubevirt.io": "virt-launcher"}},
    ),
    "crunchy": Preset(
        "Crunchy Postgres for Kubernetes",
        frozenset({"postgres-operator.crunchydata.com"}),
        "``<cluster>-set-<set>``: minAvailable 1 over the instances of a set, each a "
        "StatefulSet of one",
        "lets one instance go at a time, while another one is ready",
        "CrunchyData/postgres-operator 1c7be5d "
        "``internal/controller/postgrescluster/pod_disruption_budget.go``",
    ),
    "mongodb": Preset(
        "MongoDB: Percona's operator and MongoDB's own",
        frozenset({"psmdb.percona.com", "mongodbcommunity.mongodb.com", "mongodb.com"}),
        "maxUnavailable 1 over the members of a replica set",
        "lets one member go at a time, while the others are ready",
        "percona-server-mongodb-operator ``deploy/cr.yaml``",
    ),
    "redis": Preset(
        "Redis: Redis Enterprise and OT-CONTAINER-KIT",
        frozenset({"app.redislabs.com", "redis.redis.opstreelabs.in"}),
        "minAvailable or maxUnavailable over the members, as its custom resource says",
        "lets one member go at a time, while the others are ready",
        "OT-CONTAINER-KIT/redis-operator ``RedisCluster.spec.redisLeader.pdb``",
    ),
    "rabbitmq": Preset(
        "RabbitMQ Cluster Operator",
        frozenset({"rabbitmq.com"}),
        "none of its own; users make maxUnavailable 1 over the nodes of a cluster",
        "lets a node stop only while its queues keep their quorum",
        "rabbitmq/cluster-operator, the preStop hook of its pods",
    ),
}
"""By the names that ``reactive_budgets`` takes as well. All of them always apply."""


@dataclass(frozen=True, slots=True)
class Operator:
    """Whose operator it is, as messages name it, and what it does; ``asked_for``: only the caller
    says that it is one.

    ``owner`` is the custom resource, ``None`` where the pod is told by its labels alone.
    """

    name: str
    acts: str
    owner: objects.Ref | None = None
    asked_for: bool = False

    def __str__(self) -> str:
        """``CloudNativePG (Cluster shop/pg)``."""
        return f"{self.name} ({self.owner})" if self.owner else self.name


def selectors_of(wanted: t.Iterable[str]) -> tuple[objects.Raw, ...]:
    """Selectors of pods from texts; names of presets are left out, because these always apply.

    Raises:
        ValueError: a text is neither.
    """
    return tuple(selectors.parse(text) for text in wanted if text not in PRESETS)


def operator_of(
    snapshot: snapshots.Snapshot,
    pod: objects.Pod,
    budget: objects.Budget | None,
    wanted: t.Sequence[objects.Raw] = (),
) -> Operator | None:
    """The operator of the pod or of its budget, ``None`` if nobody is known to act;
    ``wanted`` as ``selectors_of``.
    """
    of_budget = budget.owners if budget else ()
    owner = owner_of(snapshot, pod) or next((ref for ref in of_budget if _custom(ref)), None)
    for preset in PRESETS.values():
        labelled = bool(preset.selector) and selectors.matches(preset.selector, pod.labels)
        if labelled or (owner and _group(owner) in preset.groups):
            return Operator(preset.project, preset.acts, owner)
    if owner:
        return Operator(
            f"the operator of {_group(owner)}", "may allow it once the node is cordoned", owner
        )
    if any(selectors.matches(selector, pod.labels) for selector in wanted):
        return Operator(
            "the operator named by reactive_budgets",
            "may allow it once the node is cordoned",
            None,
            True,
        )
    return None


def owner_of(snapshot: snapshots.Snapshot, pod: objects.Pod) -> objects.Ref | None:
    """The custom resource that the pod belongs to, directly or by its workload."""
    workload = snapshot.workload_of(pod)
    refs = (pod.owner, workload.ref if workload else None, workload.owner if workload else None)
    return next((ref for ref in refs if ref and _custom(ref)), None)


def _group(ref: objects.Ref) -> str:
    return ref.api_version.rpartition("/")[0]


def _custom(ref: objects.Ref) -> bool:
    """Whether its group is of a custom resource: those of Kubernetes have no
    dot, or end with k8s.io.
    """
    group = _group(ref)
    return "." in group and not group.endswith(".k8s.io") and group not in PLAIN
