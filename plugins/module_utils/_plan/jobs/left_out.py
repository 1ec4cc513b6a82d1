# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The pods that a configuration of koord-descheduler never moves, whatever its plugins find.

The MigrationController refuses the jobs of such pods one by one, and says so in the descheduler's log alone.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import (
    koordinator,
    profiles,
    rules,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import causes, limits
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects, reasons, snapshots

RESERVES = "ReservationFirst"
DIRECTLY: t.Mapping[str, str] = dict.fromkeys(
    ("scheduler", "no_requests"),
    "Set defaultJobMode: EvictDirectly in the MigrationController, which reserves nothing, if these pods are to move.",
)
"""What helps where no place can be reserved, by the code of the cause."""


def left_out(snapshot: snapshots.Snapshot, config: t.Any) -> list[rules.Fault]:
    """A warning with their number, by cause; none where the configuration moves nothing, or every pod."""
    parsed = profiles.profiles_of(config, koordinator.schema(koordinator.VERSIONS[0]))
    moves = [
        profile
        for profile in parsed
        if limits.PLUGIN in profile.enabled.get("evict", ())
        and (profile.enabled.get("deschedule") or profile.enabled.get("balance"))
    ]
    try:
        controller = limits.controller(config)
    except limits.UnreadableError:
        return []
    found: dict[str, list[reasons.Reason]] = {}
    pods = [pod for pod in snapshot.pods if _movable(pod)] if moves else []
    for pod in pods:
        why = causes.forbidden(snapshot, pod, controller)
        if controller.default_job_mode == RESERVES:
            why = why or causes.unserved(pod, controller)
        if why:
            found.setdefault(why.code, []).append(why)
    if not found:
        return []
    groups = sorted(found.items(), key=lambda group: -len(group[1]))
    parts = [f"{len(group)} {code} ({group[0].message.rstrip('.')})" for code, group in groups]
    number = sum(len(group) for _code, group in groups)
    message = f"Of {len(pods)} pods that controllers own, {number} are never moved: {'; '.join(parts)}."
    code, first = groups[0]
    return [rules.warning("left_out", message, DIRECTLY.get(code, first[0].remedy), moves[0].args_path(limits.PLUGIN))]


def _movable(pod: objects.Pod) -> bool:
    """Whether a plugin may want to move it."""
    owned = pod.owner is not None and pod.owner.kind not in ("DaemonSet", "Job", "Node")
    return owned and bool(pod.node) and not (pod.mirror or pod.finished or pod.deleting)
