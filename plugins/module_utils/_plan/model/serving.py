# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Whether a pod serves: its readiness in the EndpointSlices of the Services of its workload.

These Services are read from the slices themselves: each with any pod of the workload.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects

SERVICE_LABEL = "kubernetes.io/service-name"


class Endpoints:
    """The endpoints of all Services by pod UID; with two address types a pod has to be ready in both."""

    def __init__(self, slices: t.Iterable[objects.Raw]) -> None:
        self._ready: dict[tuple[str, str, str], dict[str, bool]] = {}
        self._of_pod: dict[str, set[tuple[str, str, str]]] = {}
        for piece in slices:
            meta = piece["metadata"]
            service = (meta.get("labels") or {}).get(SERVICE_LABEL)
            if not service:
                continue
            key = (meta.get("namespace", ""), service, piece.get("addressType", ""))
            known = self._ready.setdefault(key, {})
            for endpoint in piece.get("endpoints") or ():
                uid = (endpoint.get("targetRef") or {}).get("uid")
                if uid:
                    # A condition that is not given means ready (discovery/v1).
                    ready = (endpoint.get("conditions") or {}).get("ready") is not False
                    known[uid] = known.get(uid, False) or ready
                    self._of_pod.setdefault(uid, set()).add(key)

    def missing(self, peers: t.Iterable[objects.Pod], pod: objects.Pod) -> str:
        """The first Service with a peer and without this pod among its ready endpoints, as text; empty if none."""
        wanted = set().union(*(self._of_pod.get(peer.uid, set()) for peer in peers))
        for namespace, service, family in sorted(wanted):
            if not self._ready[(namespace, service, family)].get(pod.uid):
                return f"Service {namespace}/{service} ({family})"
        return ""
