# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a run has to be allowed to do, so that a missing right is named before the first write."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    names,
    pod_plan,
    reasons,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import dead


@dataclass(frozen=True, slots=True)
class Need:
    """One verb on one resource.

    ``namespaces`` empty: it has to be allowed everywhere; else it is enough in each of them.
    ``resource`` is a plural with its subresource, ``pods/eviction``.
    """

    verb: str
    group: str
    resource: str
    namespaces: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """As RBAC has it: ``patch deployments.apps/scale``."""
        plural, slash, subresource = self.resource.partition("/")
        return f"{self.verb} {plural}{'.' + self.group if self.group else ''}{slash}{subresource}"


LOCK_VERBS = ("list", "get", "create", "patch", "delete")
KOORDINATOR = "scheduling.koordinator.sh"
JOB_VERBS = ("list", "watch", "get", "create", "patch", "delete")
STATE_VERBS = ("list", "get", "create", "patch", "delete")
PLURALS: t.Mapping[str, tuple[str, str]] = {
    "Deployment": ("apps", "deployments"),
    "ReplicaSet": ("apps", "replicasets"),
    "Rollout": ("argoproj.io", "rollouts"),
    "CloneSet": ("apps.kruise.io", "clonesets"),
}


READS = tuple(
    Need("list", group, resource)
    for group, resource in (
        ("", "nodes"),
        ("", "pods"),
        ("", "persistentvolumeclaims"),
        ("", "persistentvolumes"),
        ("policy", "poddisruptionbudgets"),
        ("apps", "deployments"),
        ("apps", "replicasets"),
        ("apps", "statefulsets"),
        ("apps", "daemonsets"),
        ("autoscaling", "horizontalpodautoscalers"),
    )
)
"""What a plan may have to list; asked only after one of the lists was refused."""


def needs(
    snapshot: snapshots.Snapshot,
    plans: t.Sequence[pod_plan.PodPlan],
    choices: pod_plan.Choices,
    *,
    namespace_missing: bool,
    locks: str = names.NAMESPACE,
) -> tuple[Need, ...]:
    """What taking these pods' nodes out and giving them back needs beside the lists that a plan reads.

    ``locks`` is the namespace of the nodes' leases.
    """
    moved = [plan for plan in plans if plan.route in ("evict", "swap", "job")]
    swapped = [plan for plan in moved if plan.route == "swap"]
    guarded = [plan for plan in moved if plan.guarded]
    found = [
        *(Need(verb, "", "nodes") for verb in ("get", "watch", "patch")),
        Need("watch", "", "pods"),
        *(Need(verb, "apps", "daemonsets") for verb in ("list", "watch")),
        Need("watch", "policy", "poddisruptionbudgets"),
        *(Need(verb, "discovery.k8s.io", "endpointslices") for verb in ("list", "watch")),
        *(Need(verb, "coordination.k8s.io", "leases", (locks,)) for verb in LOCK_VERBS),
        *(Need(verb, "", "configmaps", (names.NAMESPACE,)) for verb in STATE_VERBS),
    ]
    if namespace_missing:
        found.append(Need("create", "", "namespaces"))
    if any(plan.code == dead.FENCED for plan in plans):
        found.append(Need("list", "coordination.k8s.io", "leases", (dead.LEASES,)))
        found.append(Need("list", "storage.k8s.io", "volumeattachments"))
    if any(plan.pod.claims for plan in moved):
        found.append(Need("list", "storage.k8s.io", "volumeattachments"))
    jobs = [plan for plan in moved if plan.route == "job"]
    # A pod whose job comes to nothing is evicted after all, unless that was ruled out.
    alone = jobs if choices.fallback == "eviction" or choices.backend == "auto" else []
    if alone or any(plan.route == "evict" or plan.guarded for plan in moved):
        verb, resource = ("delete", "pods") if choices.disable_eviction else ("create", "pods/eviction")
        found.append(Need(verb, "", resource, _namespaces(moved)))
    if jobs:
        found += [Need(verb, KOORDINATOR, "podmigrationjobs") for verb in JOB_VERBS]
        found.append(Need("patch", KOORDINATOR, "podmigrationjobs/status"))
        found += [Need(verb, KOORDINATOR, "reservations") for verb in ("list", "get", "delete")]
    owners = {plan.pod.owner.kind for plan in moved if plan.pod.owner}
    if "ReplicaSet" in owners:
        found += [Need("watch", "apps", plural) for plural in ("deployments", "replicasets")]
    if "StatefulSet" in owners:
        found.append(Need("watch", "apps", "statefulsets"))
    if guarded:
        verbs = ("get", "create", "patch", "delete")
        found += [Need(v, "policy", "poddisruptionbudgets", _namespaces(guarded)) for v in verbs]
    if swapped:
        # A leaving pod that turns NotReady is evicted after all.
        found.append(Need("create", "", "pods/eviction", _namespaces(swapped)))
        found += _for_swaps(snapshot, swapped)
    return tuple(dict.fromkeys(found))


def _for_swaps(snapshot: snapshots.Snapshot, swapped: list[pod_plan.PodPlan]) -> list[Need]:
    # A write whose answer was lost is looked at before it is done again: so what is patched is read, too.
    found = [Need(verb, "", "pods", _namespaces(swapped)) for verb in ("get", "patch")]
    verbs = (*LOCK_VERBS, "watch")
    found += [Need(verb, "coordination.k8s.io", "leases", (names.NAMESPACE,)) for verb in verbs]
    found += [Need("watch", "apps", plural) for plural in ("deployments", "replicasets")]
    scaled: dict[str, list[pod_plan.PodPlan]] = {}
    scalers: list[pod_plan.PodPlan] = []
    for plan in swapped:
        workload = snapshot.workload_of(plan.pod)
        if workload is None:
            continue
        scaled.setdefault(workload.kind, []).append(plan)
        if snapshot.autoscaler_of(workload):
            scalers.append(plan)
    for kind, group in scaled.items():
        if kind in PLURALS:
            api_group, plural = PLURALS[kind]
            found.append(Need("get", api_group, plural, _namespaces(group)))
            found.append(Need("patch", api_group, f"{plural}/scale", _namespaces(group)))
    if scalers:
        found.append(Need("watch", "autoscaling", "horizontalpodautoscalers"))
        places = _namespaces(scalers)
        found += [Need(verb, "autoscaling", "horizontalpodautoscalers", places) for verb in ("get", "patch")]
    return found


def missing(need: Need, refused: t.Sequence[str]) -> reasons.Finding:
    """The finding for a need that is not met in the ``refused`` namespaces (empty: anywhere)."""
    where = f"in namespace {', '.join(refused)}" if refused else "in the whole cluster"
    return reasons.Finding(
        "missing_permission",
        f"These credentials may not {need.words} {where}.",
        f"Grant the verb {need.verb} on {need.words.partition(' ')[2]} in a role that is bound to them.",
        "blocker",
        need.words,
    )


def _namespaces(plans: t.Iterable[pod_plan.PodPlan]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(plan.pod.namespace for plan in plans))
