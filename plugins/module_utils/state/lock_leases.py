# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What tells whether a lock's holder is alive: the lock's lease itself,
or the heartbeat that it names.

A heartbeat is a lease of one start of a run, renewed on behalf of all nodes that the start holds.
The lease of each node names it by its UID in an annotation, and is not renewed. A lease that names
none tells by itself.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    names,
    objects,
)

WORKING = 15
"""Seconds a lease lasts while a call works."""
IDLE = 60
"""Seconds a lease lasts between two calls of one run."""


THEIR_REMEDY = (
    "Wait until that maintenance or remediation ends: "
    "`kubectl get nodemaintenances,nodehealthchecks`."
)
"""Of a node that an operator of Medik8s holds."""

NamespacedName = tuple[str, str]
"""Namespace and name of a lease."""


def place_of(lease: objects.Raw) -> NamespacedName:
    """Where the lease is."""
    return lease["metadata"]["namespace"], lease["metadata"]["name"]


def heartbeat_of(lease: objects.Raw) -> tuple[str, str]:
    """Name and UID of the heartbeat that the lease names; both are empty if it names
    none of its holder's.

    An earlier release that takes a lease leaves the annotation of the holder before.
    """
    annotation = ((lease.get("metadata") or {}).get("annotations") or {}).get(names.HEARTBEAT) or ""
    name, _slash, uid = annotation.partition("/")
    holder = (lease.get("spec") or {}).get("holderIdentity")
    return (name, uid) if holder and name == names.heartbeat_name(holder) else ("", "")


def duration_of(lease: objects.Raw) -> float:
    """For how many seconds the lease holds after its last renewal; 0 if it does not say."""
    return float((lease.get("spec") or {}).get("leaseDurationSeconds") or 0)


def is_left(lease: objects.Raw) -> bool:
    """Whether it was left for as long as somebody's tasks, or a descheduler,
    may take: nobody renews it.
    """
    return duration_of(lease) > IDLE and not heartbeat_of(lease)[1]


def is_theirs(lease: objects.Raw) -> bool:
    """Whether somebody else made it, such as an operator of Medik8s, and no run has taken it."""
    meta = lease.get("metadata") or {}
    ours = (meta.get("labels") or {}).get(names.MANAGED_BY_LABEL) == names.MANAGED_BY
    return not ours and names.LOCK_DETAILS not in (meta.get("annotations") or {})


def since_renewal(lease: objects.Raw, now: str) -> float | None:
    """Seconds since the lease was renewed, by its own text; ``now`` is the API server's time.
    ``None`` where one of the two is no time.
    """
    renewed = decoding.moment((lease.get("spec") or {}).get("renewTime"))
    today = decoding.moment(now)
    return (today - renewed).total_seconds() if renewed and today else None


def has_lapsed(lease: objects.Raw, now: str) -> bool:
    """Whether somebody else's lease is over by its own times, and has been for ``IDLE`` seconds.

    Operators of Medik8s judge each other's leases so (``isValidLease`` of its common library); one
    that was removed leaves them behind.
    """
    seconds = since_renewal(lease, now)
    return is_theirs(lease) and seconds is not None and seconds > duration_of(lease) + IDLE


def is_heartbeat(lease: objects.Raw) -> bool:
    """Whether it is a heartbeat of ours."""
    meta = lease["metadata"]
    ours = (meta.get("labels") or {}).get(names.MANAGED_BY_LABEL) == names.MANAGED_BY
    return bool(ours and meta["name"].startswith(names.HEARTBEAT_PREFIX))


@dataclass(frozen=True, slots=True)
class Seen:
    """A lease as it was read, with the ``heartbeat`` that it names (``None``: it names none,
    or one that is gone).
    """

    lease: objects.Raw
    heartbeat: objects.Raw | None = None

    @classmethod
    def among(cls, lease: objects.Raw, leases: t.Iterable[objects.Raw]) -> Seen:
        """The lease with its heartbeat, if that is one of ``leases``."""
        name, uid = heartbeat_of(lease)
        named = (one for one in leases if one["metadata"]["name"] == name)
        return cls(lease, next((one for one in named if one["metadata"].get("uid") == uid), None))

    @property
    def duration(self) -> float:
        """For how many seconds it has to stay as it is until its holder counts as dead.

        Where its heartbeat is gone, a holder that is alive makes a new one and names it, before it
        does anything else and within that time.
        """
        if self.heartbeat:
            return duration_of(self.heartbeat)
        return WORKING if heartbeat_of(self.lease)[1] else duration_of(self.lease)

    def differs(self, before: Seen) -> bool:
        """Whether anything has changed since."""
        return self._versions != before._versions

    def shows_life(self, before: Seen) -> bool:
        """Whether somebody has renewed it since. That its heartbeat was
        deleted is no sign of life.
        """
        (mine, beat), (older, older_beat) = self._versions, before._versions
        return mine != older or bool(beat and older_beat and beat != older_beat)

    @property
    def _versions(self) -> tuple[str, str]:
        found = (self.lease, self.heartbeat or {})
        mine, beat = (
            str((one.get("metadata") or {}).get("resourceVersion") or "") for one in found
        )
        return mine, beat
