# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Filters by volumes: disks and ReadWriteOncePod (VolumeRestrictions), attach limits
(NodeVolumeLimits), node affinity of volumes and claims that are not bound yet
(VolumeBinding), zones (VolumeZone).

Not forecast: the storage that a CSI driver has left (CSIStorageCapacity), see ``provisioner``.
"""

from __future__ import annotations

import functools
import typing as t
from collections import Counter
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    node_affinity,
    objects,
    quantities,
    selectors,
    shapes,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import world

DISK = "node(s) had no available disk"
ONE_POD = (
    "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already "
    "in-use by another pod"
)
LIMIT = "node(s) exceed max volume count"
ELSEWHERE = "node(s) didn't match PersistentVolume's node affinity"
NONE_FREE = "node(s) didn't find available persistent volumes to bind"
GONE = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
OTHER_ZONE = "node(s) had no available volume zone"
UNBOUND = "pod has unbound immediate PersistentVolumeClaims"

BOUND = "pv.kubernetes.io/bind-completed"
SELECTED = "volume.kubernetes.io/selected-node"
ZONES = (
    *(f"failure-domain.beta.kubernetes.io/{key}" for key in ("zone", "region")),
    *(f"topology.kubernetes.io/{key}" for key in ("zone", "region")),
)
NEWER = dict(zip(ZONES[:2], ZONES[2:], strict=True))
NOT_PROVISIONED = ("", "kubernetes.io/no-provisioner")
MIGRATED = {
    "awsElasticBlockStore": ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    "azureDisk": ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    "cinder": ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    "gcePersistentDisk": ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    "portworxVolume": ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
}
"""Kinds of disks that a CSI driver serves by now: the provisioner of before, and the driver."""
DRIVERS = dict(MIGRATED.values())


Disk = tuple[str, frozenset[t.Any], bool]
"""What two pods of a node cannot share: its kind, what it is called, whether it is read only."""


class Storage:
    """Claims, volumes, classes and attach limits of a snapshot, by name."""

    def __init__(self, snapshot: snapshots.Snapshot) -> None:
        self.snapshot = snapshot
        self.volumes = {raw["metadata"]["name"]: raw for raw in snapshot.volumes}
        self.classes = {raw["metadata"]["name"]: raw for raw in snapshot.storage_classes}
        self.limits = {raw["metadata"]["name"]: _limits(raw) for raw in snapshot.csi_nodes}

    @functools.cached_property
    def attached(self) -> dict[str, set[tuple[str, str]]]:
        """The volumes that are attached to each node, by driver and handle."""
        found: dict[str, set[tuple[str, str]]] = {}
        for raw in self.snapshot.attachments:
            source = raw["spec"].get("source") or {}
            volume = self.volumes.get(source.get("persistentVolumeName") or "")
            if volume and (handle := _csi(volume["spec"])):
                found.setdefault(raw["spec"]["nodeName"], set()).add(handle)
        return found

    def by_class(self, name: str) -> list[objects.Raw]:
        """The volumes of a class, the smallest first."""
        volumes = self.volumes.values()
        inside = [raw for raw in volumes if (raw["spec"].get("storageClassName") or "") == name]
        return sorted(
            inside, key=lambda raw: (_size(raw["spec"].get("capacity")), raw["metadata"]["name"])
        )


@dataclass(frozen=True, slots=True)
class Needs:
    """What the pod's volumes ask of every node; ``refusal`` is why no node can take it at all.

    ``bound`` are raw volumes, ``waiting`` claims that the scheduler binds, ``new`` the classes of
    generic ephemeral volumes, whose claims do not exist yet. ``busy``:
    a ReadWriteOncePod claim is in use.
    """

    refusal: str = ""
    bound: tuple[objects.Raw, ...] = ()
    missing: bool = False
    waiting: tuple[objects.Raw, ...] = ()
    csi: frozenset[tuple[str, str]] = frozenset()
    busy: bool = False
    disks: tuple[Disk, ...] = ()


NOTHING = Needs()
"""The needs of a pod without claims."""


def needs(storage: Storage, around: world.World, guest: world.PodInfo) -> Needs:
    """What the volumes of a pod to be placed mean for it."""
    claims: list[objects.Raw] = []
    busy = False
    for volume in guest.volumes:
        if source := volume.get("persistentVolumeClaim"):
            claim = storage.snapshot.claim(guest.namespace, source["claimName"])
            refusal = _refusal(claim, source["claimName"])
            if claim is None or refusal:
                return Needs(refusal)
            claims.append(claim)
            once = "ReadWriteOncePod" in (claim["spec"].get("accessModes") or ())
            busy |= once and around.claims_used[guest.namespace, source["claimName"]] > 0
        elif source := volume.get("ephemeral"):
            # The claim of the successor is made anew, from the template.
            template: objects.Raw = source.get("volumeClaimTemplate") or {}
            meta = {"namespace": guest.namespace, "name": f"{guest.name}-{volume['name']}"}
            claims.append({"metadata": meta, "spec": template.get("spec") or {}})
    bound: list[objects.Raw] = []
    waiting: list[objects.Raw] = []
    missing = False
    for claim in claims:
        name = claim["spec"].get("volumeName")
        if name and BOUND in (claim["metadata"].get("annotations") or {}):
            if name in storage.volumes:
                bound.append(storage.volumes[name])
            else:
                missing = True
        elif not name and _delayed(storage, claim):
            waiting.append(claim)
        elif "uid" in claim["metadata"]:
            return Needs(UNBOUND)
    handles = [_disk_before_csi(volume) for volume in guest.volumes]
    handles += [_handle(storage, claim) for claim in claims]
    csi = frozenset(filter(None, handles))
    alone = tuple(disk for volume in guest.volumes if (disk := _disk(volume)))
    return Needs(
        "",
        bound=tuple(bound),
        missing=missing,
        waiting=tuple(waiting),
        csi=csi,
        busy=busy,
        disks=alone,
    )


def reasons(storage: Storage, found: Needs, place: world.NodeInfo) -> tuple[str, ...]:
    """Why the pod's volumes keep it off the node, of the first plugin that refuses it."""
    if found.disks and _disk_taken(found.disks, place):
        return (DISK,)
    if found.busy:
        return (ONE_POD,)
    if found.csi and _over_limit(storage, found, place):
        return (LIMIT,)
    if binding := _binding(storage, found, place):
        return binding
    return (OTHER_ZONE,) if _in_other_zone(found, place) else ()


def provisioner(storage: Storage, guest: world.PodInfo) -> str:
    """Who makes a new volume for the pod, as for generic ephemeral ones; empty if nobody has to."""
    for volume in guest.volumes:
        spec = ((volume.get("ephemeral") or {}).get("volumeClaimTemplate") or {}).get("spec")
        if spec is None or spec.get("storageClassName") == "":
            continue
        made = (storage.classes.get(spec.get("storageClassName", "")) or {}).get(
            "provisioner", "the default class"
        )
        if made not in NOT_PROVISIONED:
            return str(made)
    return ""


def _refusal(claim: objects.Raw | None, name: str) -> str:
    if claim is None:
        return f'persistentvolumeclaim "{name}" not found'
    if (claim.get("status") or {}).get("phase") == "Lost":
        volume = claim["spec"].get("volumeName", "")
        return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{volume}"'
    if claim["metadata"].get("deletionTimestamp"):
        return f'persistentvolumeclaim "{name}" is being deleted'
    return ""


def _delayed(storage: Storage, claim: objects.Raw) -> bool:
    found = storage.classes.get(_class_of(claim)) or {}
    return found.get("volumeBindingMode") == "WaitForFirstConsumer"


def _class_of(claim: objects.Raw) -> str:
    annotations = claim["metadata"].get("annotations") or {}
    old = annotations.get("volume.beta.kubernetes.io/storage-class")
    return str(old or claim["spec"].get("storageClassName") or "")


def _handle(storage: Storage, claim: objects.Raw) -> tuple[str, str] | None:
    """Driver and handle of the claim's CSI volume; an unbound one has a handle of its own."""
    volume = storage.volumes.get(claim["spec"].get("volumeName") or "")
    if volume is not None:
        return _csi(volume["spec"])
    driver = (storage.classes.get(_class_of(claim)) or {}).get("provisioner")
    if not driver:
        return None
    meta = claim["metadata"]
    return DRIVERS.get(driver) or str(driver), f"{meta.get('namespace')}/{meta['name']}"


def _csi(spec: objects.Raw) -> tuple[str, str] | None:
    """Driver and handle of a PersistentVolume, also from before CSI if a driver serves it."""
    if csi := spec.get("csi"):
        return csi["driver"], csi["volumeHandle"]
    return _disk_before_csi(spec)


def _disk_before_csi(volume: objects.Raw) -> tuple[str, str] | None:
    """Driver and handle of a disk in a PersistentVolume's spec, or among the volumes of a pod."""
    for kind, (_before, driver) in MIGRATED.items():
        if disk := volume.get(kind):
            (key,) = shapes.DISKS[kind]
            return driver, disk.get(key, "")
    return None


def _limits(raw: objects.Raw) -> dict[str, int]:
    drivers = raw["spec"].get("drivers") or ()
    counts = {one["name"]: (one.get("allocatable") or {}).get("count") for one in drivers}
    return {name: count for name, count in counts.items() if count is not None}


def _over_limit(storage: Storage, found: Needs, place: world.NodeInfo) -> bool:
    limits = storage.limits.get(place.name)
    attached = storage.attached.get(place.name, ())
    mounted = sum(len(guest.volumes) for guest in place.mounting.values())
    at_most = mounted + len(attached) + len(found.csi)
    if not limits or at_most <= min(limits.values()):
        return False
    there: set[tuple[str, str]] = set()
    for guest in place.mounting.values():
        for volume in guest.volumes:
            name = (volume.get("persistentVolumeClaim") or {}).get("claimName")
            name = name or (f"{guest.name}-{volume['name']}" if volume.get("ephemeral") else "")
            claim = storage.snapshot.claim(guest.namespace, name) if name else None
            if handle := _handle(storage, claim) if claim else _disk_before_csi(volume):
                there.add(handle)
    used = Counter(driver for driver, _handle in there.union(attached))
    new = Counter(driver for driver, _handle in found.csi - there)
    return any(
        driver in limits and used[driver] + count > limits[driver] for driver, count in new.items()
    )


def _binding(storage: Storage, found: Needs, place: world.NodeInfo) -> tuple[str, ...]:
    why: tuple[str, ...] = ()
    if not all(_on_node(volume, place) for volume in found.bound):
        why = (ELSEWHERE,)
    if found.waiting and not _bindable(storage, found.waiting, place):
        why += (NONE_FREE,)
    return (*why, GONE) if found.missing else why


def _on_node(volume: objects.Raw, place: world.NodeInfo) -> bool:
    required = (volume["spec"].get("nodeAffinity") or {}).get("required")
    return required is None or node_affinity.node_matches(required, place.node)


def _bindable(storage: Storage, claims: t.Sequence[objects.Raw], place: world.NodeInfo) -> bool:
    """Whether each claim finds a free volume for the node, or can be provisioned there."""
    chosen: set[str] = set()
    for claim in sorted(claims, key=_requested):
        selected = (claim["metadata"].get("annotations") or {}).get(SELECTED)
        if selected and selected != place.name:
            return False
        volume = None if selected else _volume_for(storage, claim, chosen, place)
        if volume is not None:
            chosen.add(volume["metadata"]["name"])
            continue
        how = storage.classes.get(_class_of(claim)) or {}
        if how.get("provisioner", "") in NOT_PROVISIONED:
            return False
        if not _allowed(how.get("allowedTopologies"), place):
            return False
    return True


def _requested(claim: objects.Raw) -> int:
    return _size((claim["spec"].get("resources") or {}).get("requests"))


def _volume_for(
    storage: Storage, claim: objects.Raw, chosen: t.Collection[str], place: world.NodeInfo
) -> objects.Raw | None:
    volumes = storage.by_class(_class_of(claim))
    return next((one for one in volumes if _serves(one, claim, chosen, place)), None)


def _serves(
    volume: objects.Raw, claim: objects.Raw, chosen: t.Collection[str], place: world.NodeInfo
) -> bool:
    spec, wanted = volume["spec"], claim["spec"]
    holder = spec.get("claimRef")
    meta = claim["metadata"]
    place_of_claim = (meta.get("namespace"), meta["name"])
    mine = bool(holder) and (holder.get("namespace"), holder["name"]) == place_of_claim
    if volume["metadata"]["name"] in chosen or volume["metadata"].get("deletionTimestamp"):
        return False
    if (holder and not mine) or _size(spec.get("capacity")) < _requested(claim):
        return False
    modes = [one.get("volumeMode", "Filesystem") for one in (spec, wanted)]
    if modes[0] != modes[1] or not _on_node(volume, place):
        return False
    if mine:
        return True
    if (volume.get("status") or {}).get("phase") != "Available":
        return False
    labels = volume["metadata"].get("labels") or {}
    if wanted.get("selector") and not selectors.matches(wanted["selector"], labels):
        return False
    return set(wanted.get("accessModes") or ()) <= set(spec.get("accessModes") or ())


def _allowed(terms: t.Sequence[objects.Raw] | None, place: world.NodeInfo) -> bool:
    for term in terms or ():
        wanted = term.get("matchLabelExpressions") or ()
        if all(place.labels.get(one["key"]) in one["values"] for one in wanted):
            return True
    return not terms


def _in_other_zone(found: Needs, place: world.NodeInfo) -> bool:
    if not any(key in place.labels for key in ZONES):
        return False
    for volume in found.bound:
        labels = volume["metadata"].get("labels") or {}
        for key in ZONES:
            if key not in labels:
                continue
            here = place.labels.get(key, place.labels.get(NEWER.get(key, key)))
            if here not in labels[key].split("__"):
                return True
    return False


def _disk_taken(mine: t.Iterable[Disk], place: world.NodeInfo) -> bool:
    for other in place.mounting.values():
        for volume in other.volumes:
            theirs = _disk(volume)
            if theirs and any(_exclude(theirs, disk) for disk in mine):
                return True
    return False


def _exclude(one: Disk, other: Disk) -> bool:
    kind, names, read_only = one
    other_kind, other_names, other_read_only = other
    both_read = read_only and other_read_only
    return kind == other_kind and not names.isdisjoint(other_names) and not both_read


def _disk(volume: objects.Raw) -> Disk | None:
    """A disk that two pods of a node cannot share."""
    if disk := volume.get("gcePersistentDisk"):
        return "gce", frozenset({disk.get("pdName")}), bool(disk.get("readOnly"))
    if disk := volume.get("awsElasticBlockStore"):
        return "aws", frozenset({disk.get("volumeID")}), False
    if disk := volume.get("iscsi"):
        return "iscsi", frozenset({disk.get("iqn")}), bool(disk.get("readOnly"))
    if disk := volume.get("rbd"):
        image = (disk.get("pool", "rbd"), disk.get("image"))
        monitors = disk.get("monitors") or ()
        images = ((monitor, *image) for monitor in monitors)
        return "rbd", frozenset(images), bool(disk.get("readOnly"))
    return None


def _size(amounts: objects.Raw | None) -> int:
    return quantities.counted("storage", (amounts or {}).get("storage", 0))
