# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which pods may be let go by their ReplicaSets: those of which nothing selects by the label that
is taken off, and that nothing else would take for its own without it.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    objects,
    selectors,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import eligibility

KINDS = (
    *(
        "selecting_services",
        "network_policies",
        "replication_controllers",
        "daemon_sets",
        "kruise_daemon_sets",
    ),
    "selecting_jobs",
)
"""What is read to know it, beside the workloads and budgets."""
CODE = "not_replaceable"
PROTECTED = "kruise.io/related-pub"
"""The annotation of a pod that names its PodUnavailableBudget of Kruise."""


def refusal(
    snapshot: snapshots.Snapshot, pod: objects.Pod, workload: objects.Workload | None
) -> reasons.Reason | None:
    """Why the pod may not be let go, and what its owner can do."""
    if (
        workload is None
        or workload.kind != "Deployment"
        or not workload.api_version.startswith("apps/")
    ):
        return reasons.Reason(
            CODE, f"Only pods of Deployments are replaced, and it is of {_of(pod, workload)}."
        )
    if (workload.spec.get("strategy") or {}).get("type") == "Recreate":
        return reasons.Reason(
            "recreate", f"{workload.ref} has the strategy Recreate: two of its pods may never run."
        )
    if pod.owner is None or pod.owner.kind != "ReplicaSet" or not pod.labels.get(names.HASH):
        return reasons.Reason(CODE, f"It has no label {names.HASH} of a ReplicaSet.")
    if pod.responders:
        return reasons.Reason(CODE, "It names responders that act before it leaves.")
    if budget := pod.annotations.get(PROTECTED):
        # One that names the workload refused the eviction and, once it was given back,
        # the end of the new pod.
        why = (
            f"PodUnavailableBudget {pod.namespace}/{budget} may not count it any more, "
            "and refuse its eviction."
        )
        return reasons.Reason(CODE, why, "Use a PodDisruptionBudget for it.")
    if found := eligibility.volumes(snapshot, workload):
        return found
    if snapshot.refused:
        kinds = ", ".join(snapshot.refused)
        return reasons.Reason(
            CODE,
            f"It is unknown what selects it: the account may not list {kinds}.",
            f"Allow to list {kinds}.",
        )
    needed = next(_needing(snapshot, pod, workload), "")
    if needed:
        return reasons.Reason(
            CODE,
            f"{needed} selects by its label {names.HASH}.",
            f"Select by other labels in {needed}.",
        )
    if taker := next(takers(snapshot, pod, pod.labels), None):
        why = f"{taker} selects it without its label {names.HASH}, and would take it for its own."
        return reasons.Reason(
            CODE, why, f"Give {taker} a selector that no pod of {workload.ref} matches."
        )
    return None


def _of(pod: objects.Pod, workload: objects.Workload | None) -> str:
    return str((workload and workload.ref) or pod.owner or "no controller")


def _needing(
    snapshot: snapshots.Snapshot, pod: objects.Pod, workload: objects.Workload
) -> t.Iterator[str]:
    """What selects the pod by the label; of NetworkPolicies also those that name
    it for others' pods.
    """
    for place, chosen in snapshot.services_of_revisions.get(pod.namespace, ()):
        if chosen.items() <= pod.labels.items():
            yield f"Service {'/'.join(place)}"
    for budget in snapshot.budgets_of_revisions(pod.namespace):
        if not budget.ours and budget.covers(pod):
            yield str(budget.ref)
    for raw in snapshot.policies_of_revisions:
        yield f"NetworkPolicy {raw['metadata']['namespace']}/{raw['metadata']['name']}"
    if snapshot.places_by_revisions(workload):
        yield f"the affinity of {workload.ref}"


def takers(
    snapshot: snapshots.Snapshot, pod: objects.Pod, labels: t.Mapping[str, str]
) -> t.Iterator[objects.Ref]:
    """The controllers that adopt pods without one, and would adopt this one with these
    labels, but the hash.

    StatefulSets do so by name, and Kruise's CloneSets not at all.
    """
    labels = {key: value for key, value in labels.items() if key != names.HASH}
    yield from (found.ref for found in snapshot.adopting(pod.namespace, labels))
    for kind, raws in (
        ("DaemonSet", (*snapshot.daemon_sets, *snapshot.kruise_daemon_sets)),
        ("Job", snapshot.selecting_jobs),
        ("ReplicationController", snapshot.replication_controllers),
    ):
        for raw in (raw for raw in raws if raw["metadata"].get("namespace") == pod.namespace):
            found: objects.Raw = (raw.get("spec") or {}).get("selector") or {}
            chosen = {"matchLabels": found} if kind == "ReplicationController" else found
            if found and selectors.matches(chosen, labels):
                yield objects.Ref(kind, raw["metadata"]["name"], pod.namespace)
