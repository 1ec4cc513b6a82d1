# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Values checked against Go types, as ``encoding/json`` would decode them.

koord-descheduler lists all PodMigrationJobs into Go types at once: one value of a wrong type in one
job, and the whole list cannot be decoded, so that no job is processed any more. An unknown field
would be dropped silently. Both are reported here, with their path.

Of a Reservation's pod counts what says where it has a place, and not what it runs: the rest, as
in a spec that was copied from a pod, is left out instead of checked. The types are those of
``k8s.io/api`` inside Koordinator v1.7.0 and v1.8.0, and of ``apis/scheduling/v1alpha1`` of both;
a field that one of them knows is valid.
"""

from __future__ import annotations

import datetime
import re
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import values
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import durations

_TABLE = """
DeleteOptions: kind apiVersion gracePeriodSeconds:int64 preconditions:Preconditions
  orphanDependents:bool propagationPolicy dryRun:[str]
  ignoreStoreReadErrorWithClusterBreakingPotential:bool
Preconditions: uid resourceVersion

ReservationTemplateSpec: metadata:ObjectMeta spec:ReservationSpec
ReservationSpec: template:PodTemplateSpec owners:[ReservationOwner] ttl:duration expires:time
  preAllocation:bool preAllocationPolicy:PreAllocationPolicy allocateOnce:bool allocatePolicy
  unschedulable:bool taints:[Taint]
PreAllocationPolicy: mode enableMultiple:bool
ReservationOwner: object:ObjectReference controller:ReservationControllerReference
  labelSelector:LabelSelector
ReservationControllerReference: apiVersion kind name uid controller:bool blockOwnerDeletion:bool
  namespace
OwnerReference: apiVersion kind name uid controller:bool blockOwnerDeletion:bool
ObjectReference: kind namespace name uid apiVersion resourceVersion fieldPath
ObjectMeta: name generateName namespace labels:{str} annotations:{str}
  ownerReferences:[OwnerReference] finalizers:[str] selfLink:- uid:- resourceVersion:- generation:-
  creationTimestamp:- deletionTimestamp:- deletionGracePeriodSeconds:- managedFields:-
Taint: key value effect timeAdded:time

PodTemplateSpec: metadata:ObjectMeta spec:PodSpec
PodSpec: containers:[Container] initContainers:[Container] volumes:[Volume] nodeName
  nodeSelector:{str} affinity:Affinity tolerations:[Toleration]
  topologySpreadConstraints:[TopologySpreadConstraint] schedulerName priorityClassName
  priority:int32 preemptionPolicy runtimeClassName overhead:{quantity}
  resources:ResourceRequirements resourceClaims:[PodResourceClaim] hostNetwork:bool
  activeDeadlineSeconds:- automountServiceAccountToken:- dnsConfig:- dnsPolicy:-
  enableServiceLinks:- ephemeralContainers:- hostAliases:- hostIPC:- hostPID:- hostUsers:-
  hostname:- hostnameOverride:- imagePullSecrets:- os:- readinessGates:- restartPolicy:-
  schedulingGates:- securityContext:- serviceAccount:- serviceAccountName:- setHostnameAsFQDN:-
  shareProcessNamespace:- subdomain:- terminationGracePeriodSeconds:- workloadRef:-
Container: name image resources:ResourceRequirements ports:[ContainerPort] restartPolicy
  args:- command:- env:- envFrom:- imagePullPolicy:- lifecycle:- livenessProbe:- readinessProbe:-
  resizePolicy:- restartPolicyRules:- securityContext:- startupProbe:- stdin:- stdinOnce:-
  terminationMessagePath:- terminationMessagePolicy:- tty:- volumeDevices:- volumeMounts:-
  workingDir:-
ContainerPort: name hostPort:int32 containerPort:int32 protocol hostIP
ResourceRequirements: limits:{quantity} requests:{quantity} claims:[ResourceClaim]
ResourceClaim: name request
PodResourceClaim: name resourceClaimName resourceClaimTemplateName source:-
Volume: name persistentVolumeClaim:PersistentVolumeClaimVolumeSource *:-
PersistentVolumeClaimVolumeSource: claimName readOnly:bool
Toleration: key operator value effect tolerationSeconds:int64
TopologySpreadConstraint: maxSkew:int32 topologyKey whenUnsatisfiable labelSelector:LabelSelector
  minDomains:int32 nodeAffinityPolicy nodeTaintsPolicy matchLabelKeys:[str]

Affinity: nodeAffinity:NodeAffinity podAffinity:PodAffinity podAntiAffinity:PodAffinity
NodeAffinity: requiredDuringSchedulingIgnoredDuringExecution:NodeSelector
  preferredDuringSchedulingIgnoredDuringExecution:[PreferredSchedulingTerm]
NodeSelector: nodeSelectorTerms:[NodeSelectorTerm]
NodeSelectorTerm: matchExpressions:[Requirement] matchFields:[Requirement]
PreferredSchedulingTerm: weight:int32 preference:NodeSelectorTerm
PodAffinity: requiredDuringSchedulingIgnoredDuringExecution:[PodAffinityTerm]
  preferredDuringSchedulingIgnoredDuringExecution:[WeightedPodAffinityTerm]
PodAffinityTerm: labelSelector:LabelSelector namespaces:[str] topologyKey
  namespaceSelector:LabelSelector matchLabelKeys:[str] mismatchLabelKeys:[str]
WeightedPodAffinityTerm: weight:int32 podAffinityTerm:PodAffinityTerm
LabelSelector: matchLabels:{str} matchExpressions:[Requirement]
Requirement: key operator values:[str]
"""
"""Types and their fields: one without a kind is a text, ``[x]`` a list,
``{x}`` a map of texts. ``-``: it is left out; ``*`` stands for all others.
"""


def _read(table: str) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    fields: dict[str, str] = {}
    for word in table.split():
        name, colon, kind = word.partition(":")
        if colon and not kind:
            fields = found.setdefault(name, {})
        else:
            fields[name] = kind or "str"
    return found


TYPES: t.Mapping[str, t.Mapping[str, str]] = _read(_TABLE)
"""The fields of each type with their kinds."""

Fault = tuple[str, t.Any, str]
"""Path, value, and what would be valid."""

_QUANTITY = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+|[KMGTPE]i|[numkMGTPE])?", re.ASCII)
_RANGES = {"int32": 2**31, "int64": 2**63}
_SAID = {
    "str": "a text (numbers and true/false in quotes)",
    "bool": "true or false, without quotes",
    "int32": "a whole number",
    "int64": "a whole number",
    "quantity": "a quantity such as 500m, 2 or 4Gi",
    "time": "a moment such as 2026-11-21T05:30:00Z",
    "duration": "a duration as Go writes it, such as 90s, 5m or 1h30m",
}


def faults(kind: str, value: t.Any, path: str) -> t.Iterator[Fault]:
    """Everything that Go would not decode as this type, and every field it does not know."""
    if value is None or kind == "-":
        return
    if kind.startswith("["):
        if not isinstance(value, list):
            yield path, value, "a list"
            return
        for index, item in enumerate(value):
            yield from faults(kind[1:-1], item, f"{path}[{index}]")
    elif kind.startswith("{") or kind in TYPES:
        yield from _mapping(kind, value, path)
    elif not _fits(kind, value):
        yield path, value, _SAID[kind]


def _mapping(kind: str, value: t.Any, path: str) -> t.Iterator[Fault]:
    """Faults in an object of a known type, or in a map of texts to values of one kind."""
    fields = TYPES.get(kind)
    if not isinstance(value, t.Mapping):
        yield path, value, "names and values" if fields is None else f"the fields of a {kind}"
        return
    for key, item in value.items():
        if fields is None and not isinstance(key, str):
            yield path, key, "texts as names, in quotes where they look like something else"
        elif fields is None or key in fields:
            yield from faults(fields[key] if fields else kind[1:-1], item, f"{path}.{key}")
        elif "*" in fields:
            continue
        else:
            right = values.similar(str(key), fields)
            yield (
                f"{path}.{key}",
                item,
                f"no such field; it is called {right}" if right else "no such field",
            )


def used(value: t.Any, kind: str = "ReservationTemplateSpec") -> t.Any:
    """A value of this type without what is left out of it."""
    if isinstance(value, list):
        return [used(item, kind.strip("[]")) for item in value]
    fields = TYPES.get(kind)
    if fields is None or not isinstance(value, t.Mapping):
        return value
    kept = {key: item for key, item in value.items() if fields.get(key, fields.get("*")) != "-"}
    return {key: used(item, fields.get(key, "")) for key, item in kept.items()}


def _fits(kind: str, value: t.Any) -> bool:
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    whole = number and isinstance(value, int)
    match kind:
        case "str":
            return isinstance(value, str)
        case "bool":
            return isinstance(value, bool)
        case "int32" | "int64":
            return whole and -_RANGES[kind] <= value < _RANGES[kind]
        case "quantity":
            return number or (isinstance(value, str) and _QUANTITY.fullmatch(value) is not None)
        case "time":
            return isinstance(value, str) and _moment(value)
    return isinstance(value, str) and duration(value) is not None


def duration(text: str) -> float | None:
    """A duration in seconds, ``None`` where Go would not read it; only ASCII digits count."""
    return durations.go_seconds(text) if text.isascii() else None


def _moment(text: str) -> bool:
    """RFC 3339 with its zone, as Go wants it."""
    if not re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", text, re.ASCII):
        return False
    try:
        datetime.datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return False
    return True


# What is wrong with the options for a job, checked before any write.
#
# The CRD takes any text for ``ttl`` and ``mode`` and anything at all in the Reservation's template.
# A ttl or a template that cannot be decoded stops the controller for every job in the cluster, a
# misspelt mode is taken for ReservationFirst; so all of it is checked here.


TTL_WORDS = (
    'a duration as Go writes it, such as "90s", "5m" or "1h30m", or whole seconds; 0 for none'
)
SHORTEST_TTL = 1.0

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*", re.ASCII)
_NAME_WORDS = "a name of small letters, digits, '-' and '.', 253 characters at most"


def ttl(value: t.Any) -> float | str | None:
    """The ttl in seconds, ``None`` for none (0), or the text that says what would be right."""
    if isinstance(value, bool):
        return TTL_WORDS
    text = str(value).strip()
    length = float(text) if text.isascii() and text.isdigit() else duration(text)
    if length is None or length < 0 or 0 < length < SHORTEST_TTL:
        return TTL_WORDS
    return length or None


def name(option: str, value: str) -> t.Iterator[Fault]:
    """What is wrong with the name of a job or a Reservation."""
    if len(value) > 253 or not _NAME.fullmatch(value):
        yield option, value, _NAME_WORDS


def delete_options(value: t.Mapping[str, t.Any], path: str = "delete_options") -> t.Iterator[Fault]:
    """What is wrong with the options of the eviction."""
    yield from faults("DeleteOptions", value, path)
    grace = value.get("gracePeriodSeconds")
    if isinstance(grace, int) and grace < 0:
        yield f"{path}.gracePeriodSeconds", grace, "0 or more"
    policy = value.get("propagationPolicy")
    if isinstance(policy, str) and policy not in ("Orphan", "Background", "Foreground"):
        yield f"{path}.propagationPolicy", policy, "Orphan, Background or Foreground"
    preconditions = value.get("preconditions")
    if isinstance(preconditions, t.Mapping) and preconditions.get("uid"):
        yield (
            f"{path}.preconditions.uid",
            preconditions["uid"],
            "nothing: it is always the pod's own, see pods[].uid",
        )
    if value.get("dryRun"):
        yield (
            f"{path}.dryRun",
            value["dryRun"],
            "nothing: the job would wait for the pod's end until its ttl",
        )


def template(value: t.Mapping[str, t.Any], path: str = "reservation_template") -> t.Iterator[Fault]:
    """What is wrong with a Reservation's ``metadata`` and ``spec``, of a job or made beforehand."""
    rest = {key: item for key, item in value.items() if key not in ("apiVersion", "kind")}
    yield from faults("ReservationTemplateSpec", rest, path)
    spec = value.get("spec")
    if not spec:
        yield path, value, "metadata and spec of a Reservation; spec is missing"
    if not isinstance(spec, t.Mapping):
        return
    metadata = value.get("metadata")
    if isinstance(metadata, t.Mapping) and isinstance(metadata.get("name"), str):
        yield from name(f"{path}.metadata.name", metadata["name"])
    yield from _reservation(spec, f"{path}.spec")


def _reservation(spec: t.Mapping[str, t.Any], path: str) -> t.Iterator[Fault]:
    if spec.get("ttl") is not None and spec.get("expires") is not None:
        yield f"{path}.expires", spec["expires"], "ttl or expires, not both"
    if spec.get("allocateOnce") is False:
        yield f"{path}.allocateOnce", False, "true: the job would take an earlier owner for its pod"
    policy = spec.get("allocatePolicy")
    if isinstance(policy, str) and policy not in ("", "Aligned", "Restricted"):
        yield f"{path}.allocatePolicy", policy, "Aligned or Restricted"
    owners = spec.get("owners")
    for index, owner in enumerate(owners if isinstance(owners, list) else ()):
        here = f"{path}.owners[{index}]"
        if isinstance(owner, t.Mapping):
            yield from _owner(owner, here)


def _owner(owner: t.Mapping[str, t.Any], path: str) -> t.Iterator[Fault]:
    if not owner:
        yield path, dict(owner), "controller or labelSelector"
    if set(owner) == {"object"}:
        yield (
            path,
            dict(owner),
            "controller or labelSelector; with an object alone the job ends without moving it",
        )
    controller = owner.get("controller")
    if isinstance(controller, t.Mapping):
        missing = [key for key in ("apiVersion", "kind", "name", "uid") if not controller.get(key)]
        if missing:
            yield f"{path}.controller", dict(controller), f"{', '.join(missing)} as well"
