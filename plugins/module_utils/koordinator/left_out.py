# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The pods that a configuration of koord-descheduler never moves, whatever its plugins find.

The MigrationController refuses the jobs of such pods one by one,
and says so in the descheduler's log alone.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    koordinator,
    profiles,
    schemas,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    causes,
    limits,
    migration_jobs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    migration_controller,
)

RESERVES = "ReservationFirst"
DIRECTLY: t.Mapping[str, str] = dict.fromkeys(
    ("scheduler", "no_requests"),
    "Set defaultJobMode: EvictDirectly in the MigrationController, which reserves nothing, if "
    "these pods are to move.",
)
"""What helps where no place can be reserved, by the code of the cause."""


@dataclass(frozen=True, slots=True)
class Stay:
    """A pod that stays whatever the plugins find, and why."""

    pod: objects.Pod
    why: reasons.Reason

    def to_dict(self) -> dict[str, str]:
        """As the module returns it."""
        named = {"namespace": self.pod.namespace, "pod": self.pod.name, "node": self.pod.node}
        return {
            **named,
            "code": self.why.code,
            "reason": self.why.message,
            "remedy": self.why.remedy,
        }


def staying(
    snapshot: snapshots.Snapshot, config: t.Any, jobs: t.Collection[migration_jobs.Job]
) -> list[Stay]:
    """The pods that stay now: never moved ones, and those that limits hold. ``jobs`` are all."""
    found = _moving(config)
    if found is None:
        return []
    _profile, controller = found
    # For a plugin a job counts even before arbitration (forEachAvailableMigrationJobs of the
    # arbitrator's filter.go).
    jobs = [replace(job, phase="Running") for job in jobs if not job.ended]
    judged = (
        (pod, _never(snapshot, pod, controller) or causes.waiting(snapshot, pod, controller, jobs))
        for pod in snapshot.pods
        if _movable(pod)
    )
    return [Stay(pod, why) for pod, why in judged if why]


def left_out(snapshot: snapshots.Snapshot, config: t.Any) -> list[schemas.Fault]:
    """A warning with their number, by cause; none where nothing is moved, or every pod."""
    moving = _moving(config)
    if moving is None:
        return []
    profile, controller = moving
    pods = [pod for pod in snapshot.pods if _movable(pod)]
    found: dict[str, list[reasons.Reason]] = {}
    for pod in pods:
        if why := _never(snapshot, pod, controller):
            found.setdefault(why.code, []).append(why)
    if not found:
        return []
    groups = sorted(found.items(), key=lambda group: -len(group[1]))
    parts = [f"{len(group)} {code} ({group[0].message.rstrip('.')})" for code, group in groups]
    number = sum(len(group) for _code, group in groups)
    message = (
        f"Of {len(pods)} pods that controllers own, {number} are never moved: {'; '.join(parts)}."
    )
    code, first = groups[0]
    return [
        schemas.warning(
            "left_out",
            message,
            DIRECTLY.get(code, first[0].remedy),
            profile.args_path(limits.PLUGIN),
        )
    ]


def _moving(config: t.Any) -> tuple[profiles.Profile, migration_controller.Controller] | None:
    """The first profile that moves pods by jobs, and its controller; ``None`` without one."""
    parsed = profiles.profiles_of(config, koordinator.schema(koordinator.VERSIONS[0]))
    for profile in parsed:
        enabled = profile.enabled
        at_work = enabled.get("deschedule") or enabled.get("balance")
        if at_work and limits.PLUGIN in enabled.get("evict", ()):
            try:
                return profile, limits.controller(config)
            except limits.UnreadableError:
                return None
    return None


def _never(
    snapshot: snapshots.Snapshot, pod: objects.Pod, controller: migration_controller.Controller
) -> reasons.Reason | None:
    """Why it is never moved."""
    why = causes.forbidden(snapshot, pod, controller)
    return why or (
        causes.unserved(pod, controller) if controller.default_job_mode == RESERVES else None
    )


def _movable(pod: objects.Pod) -> bool:
    """Whether a plugin may want to move it."""
    owned = pod.owner is not None and pod.owner.kind not in ("DaemonSet", "Job", "Node")
    return owned and bool(pod.node) and not (pod.mirror or pod.finished or pod.deleting)
