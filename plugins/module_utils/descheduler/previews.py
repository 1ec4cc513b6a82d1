# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The dry run of a configuration: a pod of the descheduler's own program that may only read,
and what its log says.

With ``dryRun: true`` koord-descheduler's plugins log each pod that they would evict
(``evictor_proxy.go`` of v1.7.0 and v1.8.0). Its MigrationController still works on PodMigrationJobs
that others created, so the pod's service account must not be able to write. ``--dry-run`` of
sigs.k8s.io/descheduler v0.36.0 works on a copy, and logs in the same words.
"""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    names,
    objects,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    installation,
    profiles,
    schemas,
)

PREFIX = "descheduler-preview-"
ACCOUNT = "kubeops-node-maintenance-dry-run"
"""The dry runs' service account beside the descheduler, bound to the ClusterRole of that name."""

_LAST_FLAGS: t.Mapping[str, tuple[str, ...]] = {
    "koordinator": ("--leader-elect=false", "--v=1"),
    "sigs": ("--leader-elect=false", "--v=1", "--dry-run=true", "--descheduling-interval=5s"),
}
_DROPPED = ("readinessProbe", "livenessProbe", "startupProbe", "lifecycle")
_SAID = "Evicted pod in dry run mode"
_FAILED = "Error descheduling pods: "
_FORBIDDEN = re.compile(r"failed to list .*?: (.* is forbidden: .*)")
_ENDED = "Number of evictions/requests"
_CYCLES = 2
"""The cycle of sigs.k8s.io/descheduler that counts. The first one may begin before its copy of the
cluster is filled: ``deschedulerInitFnc`` does not wait until what it has read has reached the copy.
"""
_STARTED = "Starting workers"
_BEGUN, _VERBOSE = "Starting Koordinator Descheduler", "FLAG: --v="
"""What each process logs, and what of its flags before that,
with the verbosity that the evictions need.

koord-descheduler (v1.7.0) has two flags of this name, registered in the order of a map, and one of
them has no effect: about every fourth process logs nothing of what it would evict.
"""


@dataclass(frozen=True, slots=True, order=True)
class Eviction:
    """A pod that a plugin would evict. ``plugin`` and ``reason`` may be empty: not all say both."""

    namespace: str
    pod: str
    node: str
    plugin: str
    reason: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What a log says: the evictions, whether the cycle is over, its failure, and how many lines
    are about the cycle.

    ``started``: the caches are filled. Only a process of sigs.k8s.io says that the cycle is over.
    ``mute``: it does not log evictions.
    """

    evictions: tuple[Eviction, ...]
    over: bool
    started: bool
    failure: str
    lines: int
    mute: bool = False


def sandboxed(config: t.Mapping[str, t.Any], flavor: schemas.Flavor) -> dict[str, t.Any]:
    """The configuration for one dry run of one cycle, without leader election.

    LowNodeLoad waits for several cycles in which a node is overloaded; here the first one counts.
    """
    if flavor == "sigs":
        return dict(config)
    changed: dict[str, t.Any] = {
        **config,
        "dryRun": True,
        "deschedulingInterval": "0s",
        "leaderElection": {"leaderElect": False},
    }
    if "profiles" in config:
        changed["profiles"] = [
            _at_once(profile) for profile in profiles.list_at(config, "profiles")
        ]
    return changed


def _at_once(profile: t.Any) -> t.Any:
    if not isinstance(profile, dict):
        return profile
    entries = [_first_counts(entry) for entry in profiles.list_at(profile, "pluginConfig")]
    return {**profile, "pluginConfig": entries} if entries else profile


def _first_counts(entry: t.Any) -> t.Any:
    if not isinstance(entry, dict) or entry.get("name") != "LowNodeLoad":
        return entry
    args = profiles.dict_at(entry, "args")
    first = {"anomalyCondition": {"consecutiveAbnormalities": 1}}
    pools = [
        {**pool, **first} for pool in profiles.list_at(args, "nodePools") if isinstance(pool, dict)
    ]
    return {**entry, "args": {**args, **first, **({"nodePools": pools} if pools else {})}}


def manifests(
    name: str,
    text: str,
    workload: objects.Raw,
    place: installation.Location,
    flavor: schemas.Flavor,
    lasts: int,
) -> tuple[dict[str, t.Any], dict[str, t.Any]]:
    """The pod of a dry run, which ends after ``lasts`` seconds at the latest,
    and the ConfigMap that it mounts.

    The pod has the volumes, the node and the security settings of the workload's template, but not
    its labels, which would make it one of the workload's pods.
    """
    labels = {names.MANAGED_BY_LABEL: names.MANAGED_BY, names.PREVIEW: workload["metadata"]["uid"]}
    meta = {"name": name, "namespace": place.namespace, "labels": labels}
    spec = dict(installation.template_of(workload)["spec"])
    spec |= {
        "containers": [_container(installation.container_of(workload), flavor)],
        "volumes": [
            _volume(volume, place.config_map, name) for volume in spec.get("volumes") or ()
        ],
        "serviceAccountName": ACCOUNT,
        "restartPolicy": "Never",
        "activeDeadlineSeconds": lasts,
        "hostNetwork": False,
    }
    spec.pop("serviceAccount", None)
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
    return pod, {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": meta,
        "data": {place.key: text},
    }


def _container(container: objects.Raw, flavor: schemas.Flavor) -> dict[str, t.Any]:
    chosen = {key: value for key, value in container.items() if key not in _DROPPED}
    flags = _LAST_FLAGS["sigs" if flavor == "sigs" else "koordinator"]
    # Of a flag that occurs twice, the last one counts.
    return {**chosen, "args": [*(chosen.get("args") or ()), *flags]}


def _volume(volume: objects.Raw, old: str, new: str) -> dict[str, t.Any]:
    def renamed(source: objects.Raw) -> dict[str, t.Any]:
        found = source.get("configMap")
        if found and found.get("name") == old:
            return {**source, "configMap": {**found, "name": new}}
        return dict(source)

    changed = renamed(volume)
    projected = volume.get("projected")
    if projected:
        changed["projected"] = {
            **projected,
            "sources": [renamed(each) for each in projected.get("sources") or ()],
        }
    return changed


_PAIR = re.compile(r'(\w+)=("(?:[^"\\]|\\.)*"|\S+)')


def read(log: str) -> Reading:
    """What the log says so far; klog's text and its JSON are both understood."""
    found: dict[Eviction, None] = {}
    over, started, failure, lines, ended = False, False, "", 0, 0
    for line in log.splitlines():
        started = started or _STARTED in line
        if _ENDED in line:
            ended += 1
            if ended == _CYCLES:
                over = True
                break
            found.clear()
        if _FAILED in line:
            failure = _unquoted(line.partition(_FAILED)[2])
            over = True
        if forbidden := _FORBIDDEN.search(line):
            failure, over = forbidden[1], True
        # Errors and warnings of the MigrationController, which may not write, never end.
        lines += not line.startswith(("E", "W"))
        if _SAID in line:
            found[_eviction(line)] = None
    return Reading(
        tuple(found), over, started, failure, lines, mute=_BEGUN in log and _VERBOSE not in log
    )


def _eviction(line: str) -> Eviction:
    if line.startswith("{"):
        fields = _json(line)
        pod = fields.get("pod")
        where = pod
        if not isinstance(pod, dict):
            where = dict(zip(("namespace", "name"), str(pod).split("/"), strict=False))
    else:
        fields = {key: _unquoted(value) for key, value in _PAIR.findall(line)}
        namespace, _slash, name = fields.get("pod", "").partition("/")
        where = {"namespace": namespace, "name": name}
    words = (str(fields.get(key) or "") for key in ("node", "strategy", "reason"))
    return Eviction(str(where.get("namespace", "")), str(where.get("name", "")), *words)


def _unquoted(text: str) -> str:
    return str(_json(text, text)) if text.startswith('"') else text.strip().removesuffix('"')


def _json(text: str, otherwise: t.Any = None) -> t.Any:
    try:
        return decoding.json_of(text)
    except decoding.UnreadableError:
        return {} if otherwise is None else otherwise


def added(new: t.Sequence[Eviction], old: t.Sequence[Eviction]) -> tuple[Eviction, ...]:
    """The evictions of pods that the present configuration does not evict."""
    before = {(each.namespace, each.pod) for each in old}
    return tuple(each for each in new if (each.namespace, each.pod) not in before)
