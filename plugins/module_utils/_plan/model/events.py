# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Events as controllers and kubelets write them."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    decoding,
    objects,
    pod_status,
    printable,
)


def told(raw: objects.Raw) -> tuple[str, str]:
    """When the Event was seen last, and what it says; empty where it cannot be read."""
    try:
        series = (raw.get("series") or {}).get("lastObservedTime")
        at = series or raw.get("lastTimestamp") or raw.get("eventTime") or raw["metadata"]["creationTimestamp"]
        return str(at)[:19], printable.line(f"{raw['reason']}: {raw['message']}", pod_status.LONGEST)
    except decoding.MISREAD:
        return "", ""
