# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Whether a pod serves: its readiness in the EndpointSlices of the Services of its workload.

These Services are read from the slices themselves: each with any pod of the workload.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    index_keys,
    objects,
    snapshots,
)

Family = tuple[str, str, str]
"""Namespace and name of a Service, and an address type."""


def dark_without(
    snapshot: snapshots.Snapshot, pods: t.Iterable[objects.Pod]
) -> dict[str, list[str]]:
    """The Services that have no ready endpoint but these pods,
    by the UIDs of those that are, as text.
    """
    found: dict[str, list[str]] = {}
    gone = {pod.uid: None for pod in pods}
    for uid in gone:
        services: dict[tuple[str, str], None] = {}
        for piece in snapshot.slices_with(uid):
            services |= dict.fromkeys(index_keys.service_of(piece))
        for place in services:
            ready = snapshot.endpoints(place)
            if uid in ready and ready <= gone.keys():
                found.setdefault(uid, []).append(f"Service {'/'.join(place)}")
    return found


class Endpoints:
    """The endpoints of all Services by pod UID; with two address types a pod has
    to be ready in both.
    """

    def __init__(self, snapshot: snapshots.Snapshot) -> None:
        self._snapshot = snapshot
        self._known: dict[str, dict[Family, bool]] = {}

    def missing(self, peers: t.Iterable[objects.Pod], pod: objects.Pod) -> str:
        """The first Service with a peer and without this pod among its ready endpoints,
        as text; empty if none.

        One that is known not to select this pod is not asked for it: it may select labels that
        somebody sets while pods run, as ``role=leader``.
        """
        known = self._snapshot.selectors_by_namespace.get(pod.namespace, {})
        wanted = set().union(*(self._of(peer.uid) for peer in peers))
        ready = {family for family, there in self._of(pod.uid).items() if there}
        for namespace, service, family in sorted(wanted - ready):
            if known.get((namespace, service), {}).items() <= pod.labels.items():
                return f"Service {namespace}/{service} ({family})"
        return ""

    def _of(self, uid: str) -> dict[Family, bool]:
        """The Services that list a pod, and whether it is ready there."""
        if uid in self._known:
            return self._known[uid]
        found = self._known[uid] = {}
        for piece in self._snapshot.slices_with(uid):
            for namespace, service in index_keys.service_of(piece):
                key = (namespace, service, piece.get("addressType", ""))
                found[key] = found.get(key, False) or index_keys.ready_in(piece, uid)
        return found
