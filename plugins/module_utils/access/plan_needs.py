# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which permissions a run needs, so that a missing one is reported before the first write."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import permissions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import unreachable
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy

KOORDINATOR = "scheduling.koordinator.sh"
COORDINATION = "coordination.k8s.io"
KEEP = "list get create patch delete"
"""Verbs for what the collection keeps in its own namespace, and for nodes' locks."""
PLURALS: t.Mapping[str, tuple[str, str]] = {
    "Deployment": ("apps", "deployments"),
    "ReplicaSet": ("apps", "replicasets"),
    "Rollout": ("argoproj.io", "rollouts"),
    "CloneSet": ("apps.kruise.io", "clonesets"),
}
_all = permissions.rights

READS = (
    *_all("list", "", "nodes pods persistentvolumeclaims persistentvolumes"),
    *_all("list", "policy", "poddisruptionbudgets"),
    *_all("list", "apps", "deployments replicasets statefulsets daemonsets"),
    *_all("list", "autoscaling", "horizontalpodautoscalers"),
)
"""What a plan may have to list; checked only after one of the lists was refused."""


def needs(
    snapshot: snapshots.Snapshot,
    plans: t.Sequence[drain_policy.PodPlan],
    choices: drain_policy.DrainPolicy,
    *,
    namespace_missing: bool,
    locks: str = names.NAMESPACE,
    conditions: bool = False,
) -> tuple[permissions.Need, ...]:
    """What cordoning, draining and giving back these pods' nodes needs,
    apart from the lists that a plan reads.

    ``locks`` is the namespace of the nodes' leases; ``conditions``:
    the nodes' conditions are set, too.
    """
    moved = [plan for plan in plans if plan.route in drain_policy.MOVING]
    surged = [plan for plan in moved if plan.route == "surge"]
    guarded = [plan for plan in moved if plan.guarded]
    found = [
        *_all("get watch patch", "", "nodes"),
        *_all("get", "", "namespaces"),
        *_all("watch", "", "pods"),
        *_all("list watch", "apps", "daemonsets"),
        *_all("watch", "policy", "poddisruptionbudgets"),
        *_all("list watch", "discovery.k8s.io", "endpointslices"),
        *_all(KEEP, COORDINATION, "leases", (locks,)),
        *_all(KEEP, "", "configmaps", (names.NAMESPACE,)),
    ]
    if conditions:
        found += _all("patch", "", "nodes/status")
    if namespace_missing:
        found += _all("create", "", "namespaces")
    fenced = any(plan.code == unreachable.FENCED for plan in plans)
    if fenced:
        found += _all("list", COORDINATION, "leases", (unreachable.LEASES,))
    if fenced or any(plan.pod.claims for plan in moved):
        found += _all("list", "storage.k8s.io", "volumeattachments")
    found += _for_evictions(moved, choices)
    if any(plan.route == "job" for plan in moved):
        found += _all(f"watch {KEEP}", KOORDINATOR, "podmigrationjobs")
        found += _all("patch", KOORDINATOR, "podmigrationjobs/status")
        found += _all("list get delete", KOORDINATOR, "reservations")
    owners = {plan.pod.owner.kind for plan in moved if plan.pod.owner}
    if "ReplicaSet" in owners:
        found += _all("watch", "apps", "deployments replicasets")
    if "StatefulSet" in owners:
        found += _all("watch", "apps", "statefulsets")
    if guarded:
        found += _all(
            "get create patch delete", "policy", "poddisruptionbudgets", _namespaces(guarded)
        )
    found += _for_replacements([plan for plan in moved if plan.route == "replace"])
    if surged:
        # A leaving pod that turns NotReady is evicted after all.
        found += _all("create", "", "pods/eviction", _namespaces(surged))
        found += _for_surges(snapshot, surged)
    return tuple(dict.fromkeys(found))


def for_hooks(
    plans: t.Sequence[drain_policy.PodPlan], rules: t.Sequence[hook_definitions.Rule]
) -> tuple[permissions.Need, ...]:
    """What the handshakes of these pods' hooks need, which announce the maintenance on the pods."""
    asked = [rule for rule in rules if rule.action == "annotation"]
    announced = [plan for plan in plans if hook_definitions.calls_for(asked, plan)]
    return tuple(_all("get patch", "", "pods", _namespaces(announced))) if announced else ()


def for_events(plans: t.Sequence[drain_policy.PodPlan]) -> tuple[permissions.Need, ...]:
    """What Events about nodes (in ``default``) and about these pods' workloads need."""
    concerned = _namespaces(plan for plan in plans if plan.route != "skip" and plan.pod.owner)
    return tuple(
        _all("get create", "events.k8s.io", "events", tuple(dict.fromkeys(("default", *concerned))))
    )


def _for_evictions(
    moved: list[drain_policy.PodPlan], choices: drain_policy.DrainPolicy
) -> list[permissions.Need]:
    found: list[permissions.Need] = []
    if any(plan.route == "evict" and plan.pod.responders for plan in moved):
        found += _all("list", "lifecycle.k8s.io", "evictionrequests")
    evicted = any(plan.route == "evict" or plan.guarded for plan in moved)
    if choices.fallback == "eviction" or choices.backend == "auto":
        # A pod whose job comes to nothing is evicted after all.
        evicted = evicted or any(plan.route == "job" for plan in moved)
    if evicted and choices.disable_eviction:
        found += _all("delete", "", "pods", _namespaces(moved))
    elif evicted:
        found += _all("create", "", "pods/eviction", _namespaces(moved))
    return found


def _for_replacements(replaced: list[drain_policy.PodPlan]) -> list[permissions.Need]:
    if not replaced:
        return []
    places = _namespaces(replaced)
    found = [*_all("get patch", "", "pods", places), *_all("create", "", "pods/eviction", places)]
    return [*found, *_all("watch", "apps", "deployments replicasets")]


def _for_surges(
    snapshot: snapshots.Snapshot, surged: list[drain_policy.PodPlan]
) -> list[permissions.Need]:
    # A write whose answer was lost is read before it is repeated,
    # so whatever is patched needs get as well.
    found = _all("get patch", "", "pods", _namespaces(surged))
    found += _all(f"watch {KEEP}", COORDINATION, "leases", (names.NAMESPACE,))
    found += _all("watch", "apps", "deployments replicasets")
    scaled: dict[str, list[drain_policy.PodPlan]] = {}
    for plan in surged:
        if workload := snapshot.workload_of(plan.pod):
            scaled.setdefault(workload.kind, []).append(plan)
    for kind, group in scaled.items():
        if kind in PLURALS:
            api_group, plural = PLURALS[kind]
            found += _all("get", api_group, plural, _namespaces(group))
            found += _all("patch", api_group, f"{plural}/scale", _namespaces(group))
    return found


def _namespaces(plans: t.Iterable[drain_policy.PodPlan]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(plan.pod.namespace for plan in plans))


def of_every_run(choices: drain_policy.DrainPolicy) -> tuple[permissions.Need, ...]:
    """What a run needs, whatever its plan is."""
    return tuple(
        dict.fromkeys((*READS, *needs(snapshots.Snapshot(), (), choices, namespace_missing=False)))
    )
