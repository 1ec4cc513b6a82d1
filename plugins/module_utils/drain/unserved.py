# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""How a pod that was let go leaves its Services before it is told to end.

The labels by which they select it come off, and its annotation says which these were and when. What
serves until it is told to end then loses no request: those that forward hear of it before.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    index_keys,
    names,
    objects,
    selectors,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    replacement_conditions,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons

Labels = t.Mapping[str, str]
CODE = "stays_in_services"


@dataclass(frozen=True, slots=True)
class Unserved:
    """Since when, by the API server's clock, a pod has been without these labels."""

    since: str
    labels: Labels

    @property
    def text(self) -> str:
        """The annotation. No label has a comma or an equals sign in it."""
        return ",".join(
            [self.since, *(f"{key}={value}" for key, value in sorted(self.labels.items()))]
        )

    def passed(self, now: str) -> float:
        """Seconds for which that is so."""
        since, today = decoding.moment(self.since), decoding.moment(now)
        return (today - since).total_seconds() if since and today else 0.0


def of(pod: objects.Pod) -> Unserved | None:
    """What the annotation says; ``None`` without one, and where it cannot be read."""
    since, *pairs = pod.annotations.get(names.UNSERVED, "").split(",")
    found = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
    return Unserved(since, found) if found and len(found) == len(pairs) else None


def services(
    snapshot: snapshots.Snapshot, pod: objects.Pod
) -> dict[index_keys.NamespacedName, Labels]:
    """The Services that select the pod, or did until it left them, with their selectors."""
    out = of(pod)
    labels = {**pod.labels, **(out.labels if out else {})}
    known = snapshot.selectors_by_namespace.get(pod.namespace, {})
    return {
        place: chosen
        for place, chosen in known.items()
        if chosen and chosen.items() <= labels.items()
    }


def chosen(
    snapshot: snapshots.Snapshot, pod: objects.Pod, deployment: objects.Workload
) -> Labels | reasons.Reason:
    """The labels without which no Service selects the pod; empty if none does.
    Or why it has to keep them.

    They are as few as possible, and one of them is of the Deployment's selector, if that is
    possible: an autoscaler counts the pods that this selects.
    """
    selecting = {place: frozenset(keys) for place, keys in services(snapshot, pod).items()}
    counted = frozenset((deployment.selector or {}).get("matchLabels") or {})
    taken: set[str] = set()
    for keys in (*selecting.values(), *([counted] if selecting else [])):
        if taken & keys:
            continue
        needed_by = {key: next(_needing(snapshot, pod, {*taken, key}), "") for key in sorted(keys)}
        if free := [key for key in needed_by if not needed_by[key]]:
            taken.add(
                max(
                    free,
                    key=lambda key: (key in counted, sum(key in one for one in selecting.values())),
                )
            )
        elif keys is not counted:
            key, needed = next(iter(needed_by.items()))
            return reasons.Reason(
                CODE, f"{needed} would change what it does about it without its label {key}."
            )
    return {key: pod.labels[key] for key in taken}


def listed(snapshot: snapshots.Snapshot, pod: objects.Pod) -> str:
    """The first of its Services that has it among its endpoints still,
    as text; empty if none has.
    """
    places = (place for place in services(snapshot, pod) if pod.uid in snapshot.listed(place))
    return next((f"Service {namespace}/{name}" for namespace, name in places), "")


def _needing(
    snapshot: snapshots.Snapshot, pod: objects.Pod, keys: t.Collection[str]
) -> t.Iterator[str]:
    """What would select the pod without these labels and does not now, or the other way round."""
    kept = {key: value for key, value in pod.labels.items() if key not in keys}
    for raw in snapshot.policies_reaching(pod.namespace):
        meta = raw["metadata"]
        for selector in _selecting(raw.get("spec") or {}, here=meta["namespace"] == pod.namespace):
            if selectors.matches(selector, pod.labels) != selectors.matches(selector, kept):
                yield f"NetworkPolicy {meta['namespace']}/{meta['name']}"
    yield from map(str, replacement_conditions.takers(snapshot, pod, kept))


def _selecting(spec: objects.Raw, *, here: bool) -> t.Iterator[objects.Raw]:
    """The selectors of a NetworkPolicy for pods of a namespace, which may be its own (``here``)."""
    if here:
        yield spec.get("podSelector") or {}
    for peer in index_keys.peers(spec):
        if here or "namespaceSelector" in peer:
            yield peer.get("podSelector") or {}
