# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes, pods, claims and volumes for tests of placement, and the filters over them."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.index_keys import PARSERS
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import filters, storage, world

Raw = dict[str, t.Any]
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def node(name: str, zone: str = "a", **more: t.Any) -> Raw:
    room_ = {"cpu": "2", "memory": "4Gi", "pods": "10", **more.get("room", {})}
    return {
        "metadata": {"name": name, "uid": name, "labels": {HOST: name, ZONE: zone, **more.get("labels", {})}},
        "spec": {"taints": more.get("taints", []), "unschedulable": more.get("closed", False)},
        "status": {"allocatable": room_, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(name: str, on: str = "", app: str = "web", cpu: str = "500m", **more: t.Any) -> Raw:
    container: Raw = {"name": "c", "resources": {"requests": {"cpu": cpu}}, "ports": more.pop("ports", [])}
    meta = {"name": name, "uid": name, "namespace": more.pop("namespace", "shop"), "labels": {"app": app}}
    return {"metadata": meta, "spec": {"nodeName": on, "containers": [container], **more}, "status": {}}


def scheduler(*raws: Raw, **kinds: list[Raw]) -> filters.Filters:
    listed = {"nodes": [r for r in raws if "allocatable" in r["status"]], **kinds}
    listed["pods"] = [r for r in raws if "allocatable" not in r["status"]]
    found = {kind: [PARSERS[kind](raw) for raw in given] for kind, given in listed.items()}
    return filters.Filters(world.World(Snapshot.of(found)))


def guest(raw: Raw) -> world.PodInfo:
    return world.PodInfo.successor(Pod.of(raw), {})


def claim(name: str, volume: str = "", mode: str = "ReadWriteOnce", cls: str = "") -> Raw:
    notes = {storage.BOUND: "yes"} if volume else {}
    meta = {"name": name, "namespace": "shop", "uid": name, "annotations": notes}
    return {"metadata": meta, "spec": {"volumeName": volume, "accessModes": [mode], "storageClassName": cls}}


def mounts(name: str) -> Raw:
    return {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": name}}]}


def volume(name: str, zone: str = "", on: str = "") -> Raw:
    spec: Raw = {"csi": {"driver": "csi.example.com", "volumeHandle": name}, "capacity": {"storage": "1Gi"}}
    if on:
        expressions = [{"key": HOST, "operator": "In", "values": [on]}]
        spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [{"matchExpressions": expressions}]}}
    return {"metadata": {"name": name, "labels": {ZONE: zone} if zone else {}}, "spec": spec, "status": {}}
