# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The write-ahead record of a surge, kept in a lease named after the workload's UID.

Creating the lease locks the workload and comes before every other change: whoever finds it later
knows the original state, what was changed and for whom. The lock lasts ``LEASE_SECONDS`` seconds
after the last renewal; a call that works on the surge renews it every ``RENEW_EVERY_SECONDS``
seconds, often enough for a reader with another clock.
"""

from __future__ import annotations

import json
import typing as t
from dataclasses import asdict, dataclass, field, fields, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    decoding,
    names,
    objects,
    snapshots,
)

VERSION = 1
LEASE_SECONDS = 60
RENEW_EVERY_SECONDS = 20.0

Stage = t.Literal["raising", "ready", "reverted"]


class BadSurgeError(decoding.BadStateError):
    """The annotation of a surge lease cannot be parsed, and must not be guessed.

    ``node`` is the node it names, empty where that cannot be read.
    """

    def __init__(self, message: str, node: str = "") -> None:
        super().__init__(message)
        self.node = node


@dataclass(frozen=True, slots=True)
class Surge:
    """One workload that runs one more pod for a while, so that the one on a leaving
    node can be deleted.

    ``cost`` is the deletion cost that this pod had (``None``: no annotation). ``run`` is a run's id
    without its nonce; ``holder`` is ``<run>/<nonce>`` from the lease. ``stage`` ``ready``: the new
    pod has served for the settle time; ``reverted``: somebody reset the count, and the leaving pod
    may be interrupted instead. The fields that are not compared are the lease's and empty before
    it is written.
    """

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    prior_replicas: int
    target: int
    node: str
    node_uid: str
    pod: str
    pod_uid: str
    cost: str | None
    run: str
    by: str
    since: str
    stage: Stage = "raising"
    holder: str = field(default="", compare=False)
    duration: int = field(default=LEASE_SECONDS, compare=False)
    created: str = field(default="", compare=False)
    resource_version: str = field(default="", compare=False)
    lease_uid: str = field(default="", compare=False)

    @property
    def workload(self) -> objects.Ref:
        return objects.Ref(self.kind, self.name, self.namespace, self.uid, self.api_version)

    @property
    def lease(self) -> objects.Ref:
        return objects.Ref(
            "Lease",
            names.surge_name(self.uid),
            names.NAMESPACE,
            self.lease_uid,
            "coordination.k8s.io/v1",
        )

    def dump(self) -> str:
        data = {
            one.name: value
            for one, value in zip(fields(self), asdict(self).values(), strict=True)
            if one.compare
        }
        return json.dumps({"v": VERSION, **data}, sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_lease(cls, raw: objects.Raw) -> Surge | None:
        """From a lease; ``None`` where it belongs to no surge.

        Raises:
            BadSurgeError: its record is of a version or shape this code does not know.
        """
        meta = raw["metadata"]
        spec = raw.get("spec") or {}
        text = (meta.get("annotations") or {}).get(names.SURGE)
        if text is None or not meta["name"].startswith(names.SURGE_PREFIX):
            return None
        try:
            data = decoding.json_of(text)
            if data.pop("v") != VERSION:
                raise decoding.UnreadableError("an unknown version")
            return decoding.shaped(
                cls,
                data,
                holder=spec.get("holderIdentity") or "",
                duration=spec.get("leaseDurationSeconds") or LEASE_SECONDS,
                created=meta.get("creationTimestamp", ""),
                resource_version=meta.get("resourceVersion", ""),
                lease_uid=meta.get("uid", ""),
            )
        except decoding.MISREAD as error:
            raise BadSurgeError(
                f"Lease {names.NAMESPACE}/{meta['name']}: annotation {names.SURGE} cannot be "
                f"read ({error}). It is the only record of the original state: repair it, or "
                "restore the workload's replicas by hand and delete the lease.",
                _node_named(text),
            ) from error

    def writing(self, holder: str, now: str) -> api_changes.Change:
        """Create the lease: the intent, and the lock on the workload. ``now`` is RFC 3339 (ms)."""
        body = {
            "apiVersion": self.lease.api_version,
            "kind": "Lease",
            "metadata": {
                "name": self.lease.name,
                "namespace": names.NAMESPACE,
                "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY},
                "annotations": {names.SURGE: self.dump()},
            },
            "spec": {"holderIdentity": holder, **self._times(now), "acquireTime": micro_time(now)},
        }
        sentence = (
            f"Record the surge of {self.workload}: {self.prior_replicas} -> {self.target} replicas"
        )
        return api_changes.Change("create", self.lease, sentence, body, {}, self._shown())

    def _times(self, now: str) -> dict[str, t.Any]:
        return {"leaseDurationSeconds": LEASE_SECONDS, "renewTime": micro_time(now)}

    def _shown(self) -> dict[str, t.Any]:
        return {"workload": str(self.workload), "replicas": self.target}

    def renewing(self, holder: str, now: str) -> api_changes.Change:
        """Renew the lease for ``holder``, and write this record into it."""
        spec = self._times(now)
        if holder != self.holder:
            spec |= {"holderIdentity": holder, "acquireTime": micro_time(now)}
        body = {"metadata": {"annotations": {names.SURGE: self.dump()}}, "spec": spec}
        sentence = f"Hold the surge of {self.workload}"
        return api_changes.Change(
            "patch", self.lease, sentence, body, resource_version=self.resource_version
        )

    def forgetting(self) -> api_changes.Change:
        """Delete the lease, in the version that was read only."""
        sentence = f"Forget the surge of {self.workload}"
        return api_changes.Change(
            "delete", self.lease, sentence, None, self._shown(), {}, self.resource_version
        )

    def with_record_of(self, other: Surge) -> Surge:
        """The other's record in this version of the lease."""
        own = {one.name: getattr(self, one.name) for one in fields(self) if not one.compare}
        return replace(other, **own)


def surges_in(snapshot: snapshots.Snapshot) -> tuple[Surge, ...]:
    """Every recorded surge that can be read."""
    return tuple(one for one in recorded(snapshot).values() if isinstance(one, Surge))


def unreadable(snapshot: snapshots.Snapshot) -> dict[str, BadSurgeError]:
    """Records of surges that cannot be parsed, by the UID of their workload."""
    return {uid: one for uid, one in recorded(snapshot).items() if isinstance(one, BadSurgeError)}


def recorded(snapshot: snapshots.Snapshot) -> dict[str, Surge | BadSurgeError]:
    """The recorded surges, or why they cannot be parsed, by the UID of their workload."""
    found: dict[str, Surge | BadSurgeError] = {}
    for raw in snapshot.leases:
        try:
            if surge := Surge.from_lease(raw):
                found[surge.uid] = surge
        except BadSurgeError as error:
            found[raw["metadata"]["name"].removeprefix(names.SURGE_PREFIX)] = error
    return found


def surges_for(snapshot: snapshots.Snapshot, nodes: t.Collection[str]) -> tuple[Surge, ...]:
    """The recorded surges that serve one of the nodes."""
    return tuple(surge for surge in surges_in(snapshot) if surge.node in nodes)


def _node_named(text: str) -> str:
    try:
        node = decoding.json_of(text)["node"]
        return node if isinstance(node, str) else ""
    except decoding.MISREAD:
        return ""


def micro_time(text: str) -> str:
    """RFC 3339 with milliseconds as the MicroTime of leases."""
    return text.replace("Z", "000Z") if "." in text else text
