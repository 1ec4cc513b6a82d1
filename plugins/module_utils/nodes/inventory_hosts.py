# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Nodes as hosts of an inventory: their address, variables and groups.

What is kept of a node (``kept``) may be stored in a cache on the controller, so it is plain JSON
without secrets: of a record it has all but the nonce, which is the right to act. Groups and the age
of the last maintenance are computed from it at each use (``hosts``),
so a cache does not make them stale by itself.
"""

from __future__ import annotations

import dataclasses
import datetime
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    names,
    objects,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records

ADDRESS_TYPES = ("InternalIP", "ExternalIP", "Hostname", "InternalDNS", "ExternalDNS")
GROUPINGS = ("role", "region", "zone", "taint", "ready", "maintenance", "due")
EVERYONE = "cluster_nodes"
"""The group of all nodes."""

ROLE_LABEL = "node-role.kubernetes.io/"
ROLE_LABEL_OLD = "kubernetes.io/role"
WORKER = "worker"
"""The role of a node without a label for it, as kubeadm leaves those that are no control plane."""
ZONE_LABEL = "topology.kubernetes.io/zone"
REGION_LABEL = "topology.kubernetes.io/region"
LONG_AGO = datetime.datetime.min.replace(tzinfo=datetime.UTC)

INFO: t.Mapping[str, str] = {
    "kubelet": "kubeletVersion",
    "container_runtime": "containerRuntimeVersion",
    "kernel": "kernelVersion",
    "os_image": "osImage",
    "operating_system": "operatingSystem",
    "architecture": "architecture",
}
"""Names of ours for fields of a node's ``nodeInfo``."""

IN_SERVICE, WAITING, UNREADABLE = "none", "waiting", "unreadable"
"""States of a maintenance that no step of a record stands for: none, its wave has not come,
the record is broken.
"""


@dataclass(frozen=True, slots=True)
class InventoryOptions:
    """What the user wants of the inventory.

    ``address_types``: the first that a node has becomes its ``ansible_host``. ``label_groups``:
    keys of labels by which nodes are grouped. ``maintained_annotation``: the user's annotation with
    the time of the last maintenance (RFC 3339); ``maintain_every``:
    seconds after which the next one is due.
    """

    address_types: tuple[str, ...] = ("InternalIP", "Hostname")
    group_by: tuple[str, ...] = GROUPINGS
    label_groups: tuple[str, ...] = ()
    maintained_annotation: str = ""
    maintain_every: float | None = None


@dataclass(frozen=True, slots=True)
class Host:
    """A host: its name, its variables in JSON's types, and its groups,
    not yet as Ansible allows their names.

    ``fault`` says what is wrong with the node's annotations; empty if nothing is.
    """

    name: str
    variables: t.Mapping[str, t.Any]
    groups: tuple[str, ...]
    fault: str = ""


def kept(raw: objects.Raw, annotation: str = "") -> dict[str, t.Any]:
    """What is kept of a node, as plain JSON; ``annotation`` is the user's with
    the last maintenance.

    Keys: ``name``, ``labels``, ``taints``, ``unschedulable``, ``addresses`` (a list for each type),
    ``conditions`` (status by type), ``versions``, ``record`` (without nonce, ``None`` if there is
    none), ``unreadable`` (why the record cannot be read) and ``maintained`` (the annotation's
    value, empty if it is missing).
    """
    node = objects.Node.of(raw)
    status = raw.get("status") or {}
    addresses: dict[str, list[str]] = {}
    for one in status.get("addresses") or ():
        addresses.setdefault(str(one.get("type")), []).append(str(one.get("address") or ""))
    record, unreadable = None, ""
    try:
        found = node_records.record_of(node)
        record = found.public() if found else None
    except node_records.BadRecordError as error:
        unreadable = str(error)
    info = status.get("nodeInfo") or {}
    return {
        "name": node.name,
        "labels": dict(node.labels),
        "taints": list(map(_taint, node.taints)),
        "unschedulable": node.unschedulable,
        "addresses": addresses,
        "conditions": dict(node.conditions),
        "versions": {name: str(info.get(field) or "") for name, field in INFO.items()},
        "record": record,
        "unreadable": unreadable,
        "maintained": node.annotations.get(annotation, "") if annotation else "",
    }


def _taint(raw: objects.Raw) -> dict[str, str]:
    return {key: str(raw.get(key) or "") for key in ("key", "value", "effect")}


def hosts(
    nodes: t.Iterable[t.Mapping[str, t.Any]], wanted: InventoryOptions, now: datetime.datetime
) -> list[Host]:
    """The hosts of these nodes, as ``kept`` made them.

    They are ordered by name; with ``maintained_annotation`` those that were maintained least
    recently come first, and those that never were before all others.
    Ansible keeps this order within each group.
    """
    found = [(decoding.moment(node["maintained"]), _host(node, wanted, now)) for node in nodes]
    found.sort(key=lambda pair: (pair[0] or LONG_AGO, pair[1].name))
    return [host for _last, host in found]


def _host(node: t.Mapping[str, t.Any], wanted: InventoryOptions, now: datetime.datetime) -> Host:
    labels = node["labels"]
    last = decoding.moment(node["maintained"])
    # A clock that is ahead must not make an age negative.
    age = max(int((now - last).total_seconds()), 0) if last else None
    due = wanted.maintain_every is not None and (age is None or age >= wanted.maintain_every)
    facts = _Facts(
        _roles(labels), labels.get(ZONE_LABEL, ""), labels.get(REGION_LABEL, ""), _state(node), due
    )
    variables = {
        "node_name": node["name"],
        "node_roles": list(facts.roles),
        "node_zone": facts.zone,
        "node_region": facts.region,
        "node_labels": labels,
        "node_taints": node["taints"],
        "node_schedulable": not node["unschedulable"],
        "node_ready": _ready(node),
        "node_conditions": node["conditions"],
        "node_addresses": node["addresses"],
        "node_versions": node["versions"],
        "node_maintenance": facts.state,
        "node_record": node["record"] or {},
    }
    if wanted.maintained_annotation:
        variables |= {
            "node_maintained": node["maintained"] if last else "",
            "node_maintained_ago": age,
        }
    if wanted.maintain_every is not None:
        variables["node_maintenance_due"] = due
    faults = [node["unreadable"]]
    known = [node["addresses"].get(one) for one in wanted.address_types]
    if addresses := [some[0] for some in known if some]:
        # Its kubelet reports it, and SSH gets it.
        if good := next(filter(None, map(decoding.host, addresses)), ""):
            variables["ansible_host"] = good
        else:
            text = f"Node {node['name']}: its address {addresses[0][:60]!r}"
            faults.append(f"{text} is neither an IP address nor a DNS name, so it is not used.")
    if node["maintained"] and not last:
        text = f"Node {node['name']}: annotation {wanted.maintained_annotation} is"
        wrong = f"{node['maintained']!r}, which is no RFC 3339 time such as 2026-11-21T05:30:00Z."
        faults.append(f"{text} {wrong}")
    fault = " ".join(filter(None, faults))
    return Host(node["name"], variables, (EVERYONE, *_groups(node, facts, wanted)), fault)


@dataclasses.dataclass(frozen=True, slots=True)
class _Facts:
    """What a node's groups and its variables are both made of."""

    roles: tuple[str, ...]
    zone: str
    region: str
    state: str
    due: bool


def _groups(
    node: t.Mapping[str, t.Any], facts: _Facts, wanted: InventoryOptions
) -> t.Iterator[str]:
    groups = {
        "role": [f"role_{role}" for role in facts.roles],
        "region": [f"region_{facts.region}"] if facts.region else [],
        "zone": [f"zone_{facts.zone}"] if facts.zone else [],
        "taint": [f"taint_{taint['key']}_{taint['effect']}" for taint in node["taints"]],
        "ready": ["ready" if _ready(node) else "not_ready"],
        "maintenance": [f"maintenance_{facts.state}"],
        "due": ["maintenance_due" if facts.due else "maintenance_not_due"],
    }
    groups["ready"] += ["unschedulable"] if node["unschedulable"] else []
    for name in wanted.group_by:
        if name != "due" or wanted.maintain_every is not None:
            yield from groups[name]
    for key in wanted.label_groups:
        if key in node["labels"]:
            yield f"label_{key}_{node['labels'][key]}"


def _ready(node: t.Mapping[str, t.Any]) -> bool:
    return bool(node["conditions"].get("Ready") == "True")


def _roles(labels: t.Mapping[str, str]) -> tuple[str, ...]:
    """As kubectl shows them: by the labels with the prefix, and the value of the older one."""
    found = {key.removeprefix(ROLE_LABEL) for key in labels if key.startswith(ROLE_LABEL)}
    found.add(labels.get(ROLE_LABEL_OLD, ""))
    return tuple(sorted(found - {""})) or (WORKER,)


def _state(node: t.Mapping[str, t.Any]) -> str:
    if node["unreadable"]:
        return UNREADABLE
    if node["record"]:
        return str(node["record"]["step"])
    return WAITING if any(taint["key"] == names.WAITING for taint in node["taints"]) else IN_SERVICE
