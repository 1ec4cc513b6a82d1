# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The handshake of a pod's hook: we announce the maintenance on the pod, and its application agrees to it there.

Both write the same value, the time at which the node's maintenance began, so an agreement to an earlier one does not
count.
"""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    names,
    node_records,
    objects,
)


def announcing(raw: objects.Raw | None, uid: str, record: node_records.Record) -> api_changes.Change | None:
    """Announce the maintenance on the pod ``raw``; ``None`` if it is announced, or the pod is another one by now."""
    if raw is None or raw["metadata"].get("uid") != uid:
        return None
    pod = objects.Pod.of(raw)
    return None if pod.annotations.get(names.PLANNED) == record.since else announcement(pod, record.since)


def announcement(pod: objects.Pod, since: str) -> api_changes.Change:
    """Announce a maintenance that began ``since`` (RFC 3339)."""
    return _patch(pod, f"Announce the maintenance on {pod.ref}", pod.annotations.get(names.PLANNED), since)


def taking_back(raw: objects.Raw | None, uid: str, since: str) -> api_changes.Change | None:
    """Remove our announcement from a pod that stays; one of another maintenance, by its time, is not ours."""
    if raw is None or raw["metadata"].get("uid") != uid:
        return None
    pod = objects.Pod.of(raw)
    if pod.annotations.get(names.PLANNED) != since:
        return None
    return _patch(pod, f"Take back the announced maintenance of {pod.ref}", since, None)


def agreed(pod: objects.Pod, record: node_records.Record) -> bool:
    """Whether the application has agreed to this maintenance."""
    return pod.annotations.get(names.READY_TO_MOVE) == record.since


def _patch(pod: objects.Pod, sentence: str, before: str | None, after: str | None) -> api_changes.Change:
    body = {"metadata": {"annotations": {names.PLANNED: after}}}
    old, new = ({names.PLANNED: value} if value is not None else {} for value in (before, after))
    return api_changes.patch(pod, sentence, body, old, new)
