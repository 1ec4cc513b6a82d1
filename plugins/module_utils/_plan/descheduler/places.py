# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Where a descheduler lives in its cluster, and whether its workload reads the configuration that we write."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import check, values
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects


@dataclass(frozen=True, slots=True)
class Place:
    """The names of a descheduler's objects; ``deployment`` may be a CronJob's where the flavor is ``sigs``."""

    namespace: str
    deployment: str
    config_map: str
    key: str


PLACES: t.Mapping[check.Flavor, Place] = {
    "koordinator": Place(
        "koordinator-system", "koord-descheduler", "koord-descheduler-config", "koord-descheduler-config"
    ),
    "ack": Place("kube-system", "ack-koord-descheduler", "koord-descheduler-config", "koord-descheduler-config"),
    "sigs": Place("kube-system", "descheduler", "descheduler-policy-configmap", "policy.yaml"),
}
"""The names of Koordinator's chart, of ACK's add-on, and of the plain manifests of sigs.k8s.io/descheduler."""


def template_of(workload: objects.Raw) -> objects.Raw:
    """The pod template of a Deployment or CronJob."""
    spec: objects.Raw = workload["spec"]
    found: objects.Raw = spec["jobTemplate"]["spec"]["template"] if "jobTemplate" in spec else spec["template"]
    return found


def is_cron(workload: objects.Raw) -> bool:
    """Whether each run of the descheduler is a new pod, which mounts what the ConfigMap holds then."""
    return "jobTemplate" in workload["spec"]


def unread(workload: objects.Raw, place: Place) -> str:
    """Why the workload would not read what is written to the ConfigMap; the empty text where it reads it."""
    mounted: dict[str, list[str] | None] = {}
    for source in _sources(template_of(workload)):
        items = source.get("items")
        keys = [str(item.get("key")) for item in items] if items else None
        mounted[str(source.get("name"))] = keys
    if place.config_map not in mounted:
        said = f"mounts the ConfigMaps {', '.join(sorted(mounted))}" if mounted else "mounts no ConfigMap"
        right = values.similar(place.config_map, mounted) or (next(iter(mounted)) if len(mounted) == 1 else "")
        hint = f" Did you mean config_map: {right}?" if right else ""
        return f"{place.deployment} {said}, not {place.config_map}.{hint}"
    keys = mounted[place.config_map]
    if keys is not None and place.key not in keys:
        hint = f" Did you mean key: {keys[0]}?" if len(keys) == 1 else ""
        return f"{place.deployment} mounts of {place.config_map} the keys {', '.join(keys)}, not {place.key}.{hint}"
    return ""


def _sources(template: objects.Raw) -> t.Iterator[objects.Raw]:
    """The ConfigMaps that are volumes, alone or projected."""
    for volume in (template.get("spec") or {}).get("volumes") or ():
        if volume.get("configMap"):
            yield volume["configMap"]
        for source in (volume.get("projected") or {}).get("sources") or ():
            if source.get("configMap"):
                yield source["configMap"]


def unknown_name(place: Place, found: t.Iterable[str], kinds: str) -> str:
    """What to say where there is no such workload: the one that was probably meant, or all that are there."""
    names = sorted(found)
    right = values.similar(place.deployment, names) or next((name for name in names if "descheduler" in name), "")
    if right:
        return f"Did you mean deployment: {right}?"
    there = f"There are {', '.join(names[:20])}." if names else "There is none at all: is this the right namespace?"
    return f"Look for {kinds} in namespace {place.namespace}. {there}"


@dataclass(frozen=True, slots=True)
class Election:
    """The Lease of a descheduler's leader; without ``name`` there is no election."""

    namespace: str = ""
    name: str = ""


def election(config: t.Mapping[str, t.Any] | None, workload: objects.Raw, flavor: check.Flavor) -> Election:
    """Which Lease tells who leads: by the configuration, for ``sigs`` by the container's flags."""
    if flavor == "sigs":
        flags = _flags(template_of(workload))
        if flags.get("leader-elect", "false") not in ("true", ""):
            return Election()
        return Election(
            flags.get("leader-elect-resource-namespace") or "kube-system",
            flags.get("leader-elect-resource-name") or "descheduler",
        )
    elects = (config or {}).get("leaderElection") or {}
    if not isinstance(elects, dict) or elects.get("leaderElect") is False:
        return Election()
    return Election(
        elects.get("resourceNamespace") or "koordinator-system", elects.get("resourceName") or "koord-descheduler"
    )


def _flags(template: objects.Raw) -> dict[str, str]:
    found: dict[str, str] = {}
    for container in (template.get("spec") or {}).get("containers") or ():
        words = [str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))]
        for index, word in enumerate(words):
            name, equals, value = word.lstrip("-").partition("=")
            if word.startswith("-"):
                following = words[index + 1] if index + 1 < len(words) else "-"
                found[name] = value if equals or following.startswith("-") else following
    return found


def port_of(config: t.Mapping[str, t.Any] | None) -> int:
    """The port of ``/configz``: that of ``healthzBindAddress``."""
    text = str((config or {}).get("healthzBindAddress") or "")
    port = text.rpartition(":")[2]
    return int(port) if port.isdigit() and ":" in text else 10251
