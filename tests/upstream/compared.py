# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the collection decides in the cases of upstream's tests, in the same words."""

from __future__ import annotations

import copy
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import node_affinity, pod_specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.index_keys import PARSERS
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import check, schemas
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import devices
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.dispositions import routes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import filters, forecast, storage, world
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import answers, evictions, manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.upstream.tapped import Record

Raw = dict[str, t.Any]

LISTS = {
    "Namespace": "namespaces",
    "PersistentVolume": "volumes",
    "PersistentVolumeClaim": "claims",
    "StorageClass": "storage_classes",
    "CSINode": "csi_nodes",
    "VolumeAttachment": "attachments",
}
VOLUMES = {
    "VolumeRestrictions": (storage.DISK, storage.ONE_POD),
    "NodeVolumeLimits": (storage.LIMIT,),
    "VolumeBinding": (storage.ELSEWHERE, storage.NONE_FREE, storage.GONE),
    "VolumeZone": (storage.OTHER_ZONE,),
}
"""By plugin, what keeps a pod off a node because of its volumes."""


def fits(record: Record) -> tuple[bool, bool]:
    """Whether the pod fits the node, by the plugin of the scheduler and by the forecast."""
    return record["fits"], not _refused(record)


def _refused(record: Record) -> bool:
    snapshot = _snapshot(record)
    around = world.World(snapshot)
    guest = world.PodInfo.successor(Pod.of(_named(record["pod"], "guest")), {})
    place = around.places[record["places"][0]["node"]["metadata"]["name"]]
    match record["kind"]:
        case "NodeUnschedulable":
            return filters.node_reason(guest, place) == filters.CLOSED
        case "TaintToleration":
            return filters.node_reason(guest, place) == filters.TAINTED
        case "NodeAffinity":
            return not node_affinity.selects(guest.spec, place.node)
        case "NodePorts":
            return world.ports_taken(guest, place)
        case "NodeResourcesFit":
            return bool(world.short(guest, place))
        case "PodTopologySpread":
            return bool(filters.spread_reason(filters.constraints(around, guest), place))
        case "InterPodAffinity":
            company = filters.company(around, guest)
            return bool(company and filters.affinity_reason(company, place))
    look = filters.Filters(around).look(guest)
    found = storage.reasons(look.filters.storage, look.needs, place)
    return bool(look.refusal or {*found} & {*VOLUMES[record["kind"]]})


Victims = tuple[list[tuple[int, str]], int]
"""Priorities and starts of pods that make room, and how many of them against budgets."""


def preempted(record: Record) -> tuple[Victims, Victims]:
    """Which pods of a node make room for another one. Of equally important ones it is any, as in the scheduler."""
    snapshot = _snapshot(record)
    around = world.World(snapshot)
    guest = world.PodInfo.successor(Pod.of(_named(record["pod"], "guest")), {})
    place = around.places[record["places"][0]["node"]["metadata"]["name"]]
    found = forecast.on_node(filters.Filters(around), guest, place, forecast.by_namespace(snapshot))
    known = {other.name: (other.priority, other.since) for other in place.guests.values()}
    theirs = sorted(known[name] for name in record["victims"])
    mine = sorted(known[victim.name] for victim in found.victims) if found else []
    return (theirs, record["against"]), (mine, found.against if found else 0)


def picked(record: Record) -> tuple[bool, bool]:
    """Whether the node on which pods are preempted costs no more than any other."""
    costs = {}
    for node, victims in record["found"].items():
        pods = [world.PodInfo.of(Pod.of(_named(pod, "victim"))) for pod in victims["Pods"]]
        costs[node] = forecast.Eviction("", tuple(pods), victims.get("NumPDBViolations", 0)).cost
    return True, costs[record["chosen"]] == min(costs.values())


def declared(record: Record) -> tuple[bool, bool]:
    """Whether the pod needs a node that declares something."""
    return record["needed"], bool(pod_specs.trimmed(record["spec"], {}).get("declared"))


def allocated(record: Record) -> tuple[bool, bool]:
    """Whether claims find devices on a node. Where ours is an estimate, more may seem to fit than does."""
    node = _named(record["node"], "node")
    taken = [{"driver": one[0], "pool": one[1], "device": one[2]} for one in record["taken"]]
    others = {"metadata": {"name": "others"}, "status": {"allocation": {"devices": {"results": taken}}}}
    claims = [_named(raw, "claim") for raw in record["claims"]]
    snapshot = _parsed(
        {
            "nodes": [node],
            "device_slices": [_named(raw, "slice") for raw in record.get("slices", [])],
            "device_classes": record.get("classes", []),
            "device_claims": [_named(others, "others")],
        }
    )
    theirs = record["got"] == len(claims) and not record["failed"]
    ours = devices.on_node(snapshot, snapshot.nodes[node["metadata"]["name"]], claims)
    if ours and any(devices.estimated(snapshot, claim) for claim in claims):
        return theirs, theirs
    return theirs, ours


def _snapshot(record: Record) -> Snapshot:
    listed: dict[str, list[Raw]] = {"nodes": [], "pods": []}
    listed["budgets"] = [_named(raw, "budget") for raw in record.get("budgets", [])]
    for place in record["places"]:
        node = _named(place["node"], "node")
        listed["nodes"].append(node)
        for pod in place["pods"]:
            known = _named(pod, f"pod-{len(listed['pods'])}")
            known["spec"]["nodeName"] = node["metadata"]["name"]
            listed["pods"].append(known)
    for kind, raws in record.get("objects", {}).items():
        if kind in LISTS:
            listed[LISTS[kind]] = [_named(raw, kind) for raw in raws]
    if record["kind"] != "VolumeBinding":
        for claim in listed.get("claims", []):
            if claim["spec"].get("volumeName"):
                claim["metadata"].setdefault("annotations", {})[storage.BOUND] = "yes"
    return _parsed(listed)


def _parsed(listed: t.Mapping[str, t.Iterable[Raw]]) -> Snapshot:
    return Snapshot.of({kind: [PARSERS[kind](raw) for raw in raws] for kind, raws in listed.items()})


def _named(raw: Raw, name: str) -> Raw:
    """As an API server would have it: tables leave out names and UIDs."""
    meta = raw["metadata"]
    meta["name"] = meta.get("name") or name
    meta["uid"] = f"{meta.get('uid') or 'uid'}-{name}"
    for number, volume in enumerate((raw.get("spec") or {}).get("volumes") or ()):
        volume["name"] = volume["name"] or f"volume-{number}"
    return raw


def leaves(record: Record) -> tuple[str, str]:
    """Whether a pod stays, goes or stops the drain, by kubectl and by the routes."""
    theirs = "goes" if record["goes"] else "stops" if record["status"] == "Error" else "stays"
    pod = _named(copy.deepcopy(record["pod"]), "guest")
    pod["spec"]["nodeName"] = "node"
    listed: dict[str, list[Raw]] = {"nodes": [manifests.node("node")], "pods": [pod]}
    for owner in pod["metadata"].get("ownerReferences") or ():
        owner["uid"] = "uid-owner"
        meta = {"name": owner["name"], "namespace": pod["metadata"].get("namespace", ""), "uid": "uid-owner"}
        if owner["kind"] == "DaemonSet":
            listed["daemon_sets"] = [{"metadata": meta}] if record["there"] else []
        elif owner["kind"] != "Job":
            selector = {"matchLabels": pod["metadata"].get("labels") or {}}
            scale = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "metadata": meta}
            listed["scales"] = [{**scale, "spec": {"replicas": 2, "selector": selector}, "status": {}}]
    asked = {key: record[key] for key in ("force", "ignore_daemonsets", "delete_emptydir_data")}
    plan = routes(
        _parsed(listed), ("node",), DrainPolicy(**asked, allow_interruption=True), now="2000-01-01T00:00:00Z"
    )[0]
    return theirs, {"skip": "stays", "refuse": "stops"}.get(plan.route, "goes")


def evicted(record: Record) -> tuple[tuple[int, str], tuple[int, str]]:
    """Code and cause of an eviction's answer, by the API server and by the simulator."""
    failed = record.get("failed", {}).get("ErrStatus") or record["answer"]
    theirs = (failed.get("code") or 201, _cause(failed))
    asked = record["asked"]
    pod = record["pod"]
    place, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
    with World([manifests.node("n1"), manifests.namespace(place)]) as around:
        for kind, raws in ((kinds.PODS, [pod]), (kinds.BUDGETS, record.get("budgets", []))):
            for raw in raws:
                version = raw["metadata"].get("resourceVersion", "")
                raw["metadata"] = {"generation": 0, "uid": "uid", **raw["metadata"]}
                around.objects.store.put(kind.resource, raw)
                raw["metadata"]["resourceVersion"] = version
        try:
            options = {"deleteOptions": asked.get("DeleteOptions") or {}}
            answer = evictions.evict(around.objects, place, name, options)
        except answers.Refused as refused:
            answer = t.cast("Raw", refused.body)
    return theirs, (answer["code"], _cause(answer))


def _cause(status: Raw) -> str:
    causes = (status.get("details") or {}).get("causes") or [{}]
    return str(causes[0].get("message", ""))


def document(record: Record) -> tuple[bool, bool]:
    """Whether koord-descheduler refuses a document, by its own validation and by ours."""
    schema = check.schema_of("koordinator", record["version"])
    given = {**record["document"], "apiVersion": schema.api_version, "kind": schema.kind}
    return record["refused"], any(fault.real in ("refuses", "crashes") for fault in check.check(given, schema))


def refused(record: Record) -> tuple[bool, bool]:
    """Whether a descheduler's plugin refuses its arguments, by its own validation and by ours."""
    flavor = t.cast("schemas.Flavor", record["kind"])
    schema = check.schema_of(flavor, record["version"])
    name = record["plugin"]
    enabled = {"enabled": [{"name": name} if schema.plugin_type == "object" else name]}
    profile: Raw = {"name": "p", "plugins": dict.fromkeys(schema.plugins[name].points, enabled)}
    profile["pluginConfig"] = [{"name": name, "args": record["args"]}]
    document = {"apiVersion": schema.api_version, "kind": schema.kind, "profiles": [profile]}
    path = "profiles[0].pluginConfig[0].args"
    faults = [fault for fault in check.check(document, schema) if fault.path.startswith(path)]
    return record["refused"], any(fault.real in ("refuses", "crashes") for fault in faults)


ANSWERS: t.Mapping[str, t.Callable[[Record], tuple[object, object]]] = {
    "DefaultPreemption": preempted,
    "candidates": picked,
    "NodeDeclaredFeatures": declared,
    "devices": allocated,
    "document": document,
    "drain": leaves,
    "eviction": evicted,
    "sigs": refused,
    "koordinator": refused,
}
"""By kind; all others are plugins of the scheduler."""


@dataclass(frozen=True, slots=True)
class Known:
    """Cases of a kind, and of a version if one is named, in which the collection decides otherwise, and why."""

    kind: str
    reason: str
    applies: t.Callable[[Record], bool]
    version: str = ""


def _volumes(record: Record) -> list[Raw]:
    pods = [record["pod"], *record["places"][0]["pods"]]
    return [volume for pod in pods for volume in pod["spec"].get("volumes") or ()]


def _failed(record: Record) -> str:
    return str(record.get("failed", {}).get("ErrStatus", {}).get("message", ""))


def _features(record: Record, name: str, field: str) -> bool:
    """Whether a feature gate is off in a test that has its field."""
    return not record["features"][name] and field in str(record["slices"])


KNOWN = (
    Known(
        "DefaultPreemption",
        "A filter of the test's own refuses the node.",
        lambda record: "FakeFilter" in record["filters"] and not record["victims"],
    ),
    Known(
        "devices",
        "An API server refuses such claims, classes or slices.",
        lambda record: bool(record["failed"]),
    ),
    Known(
        "devices",
        "What administrators look at is taken from nobody, and not looked for.",
        lambda record: "adminAccess" in str(record["claims"]),
    ),
    Known(
        "devices",
        "These feature gates are on by default.",
        lambda record: (
            _features(record, "DeviceTaints", "taints")
            or _features(record, "PartitionableDevices", "perDeviceNodeSelection")
        ),
    ),
    Known(
        "devices",
        "While a driver replaces the slices of a pool, the scheduler goes on with older ones of a node.",
        lambda record: len({raw["spec"]["pool"]["generation"] for raw in record["slices"]}) > 1,
    ),
    Known(
        "NodeAffinity",
        "The scheduler's own configuration adds an affinity; no client can read that.",
        lambda record: "addedNodeSelector" in record["fields"],
    ),
    Known(
        "NodeAffinity",
        "The value is no label's: an API server refuses the pod.",
        lambda record: "___@#$%^" in str(record["pod"]),
    ),
    Known(
        "NodeResourcesFit",
        "The scheduler's own configuration ignores a resource; no client can read that.",
        lambda record: "example.com" in record["fields"]["ignoredResources"],
    ),
    Known(
        "NodeResourcesFit",
        "A DeviceClass serves the resource. It is not in the record: another plugin looks at it.",
        lambda record: "enableDRAExtendedResource" in record["fields"],
    ),
    Known(
        "NodeVolumeLimits",
        "An ephemeral volume without a template is refused by an API server, and its claim is made with the pod.",
        lambda record: any(volume.get("ephemeral") == {} for volume in _volumes(record)),
    ),
    Known(
        "NodeVolumeLimits",
        "The feature gate VolumeLimitScaling is off by default.",
        lambda record: "enableVolumeLimitScaling" in record["fields"],
    ),
    Known(
        "TaintToleration",
        "With the feature gate off, an API server stores no toleration that compares numbers.",
        lambda record: any(each.get("operator") in ("Gt", "Lt") for each in record["pod"]["spec"]["tolerations"]),
    ),
    Known(
        "eviction",
        "The store of the test changes the pod while its eviction is under way.",
        lambda record: record["after"]["metadata"].get("resourceVersion") in ("999", "1000"),
    ),
    Known(
        "eviction",
        "The store of the test fails.",
        lambda record: _failed(record).endswith((": message", "test designed to error")),
    ),
    Known(
        "eviction",
        "Options of a deletion that the collection never sets.",
        lambda record: "can not be set for pod eviction" in _failed(record),
    ),
    Known(
        "koordinator",
        "Zero is left out where it is written, and the default takes its place.",
        lambda record: "anomalyCondition" in str(record["args"]),
        version="1.8.0",
    ),
)
