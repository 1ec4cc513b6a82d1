# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The objects of a descheduler, and whether its workload reads the ConfigMap that we write."""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    profiles,
    schemas,
    values,
)


@dataclass(frozen=True, slots=True)
class Location:
    """A descheduler's objects by name; with flavor ``sigs``, ``deployment`` may be a CronJob."""

    namespace: str
    deployment: str
    config_map: str
    key: str

    @property
    def map_name(self) -> str:
        """The ConfigMap, as messages name it."""
        return f"ConfigMap {self.namespace}/{self.config_map}"


_KOORD = ("koord-descheduler-config", "koord-descheduler-config")

DEFAULT_LOCATIONS: t.Mapping[schemas.Flavor, Location] = {
    "koordinator": Location("koordinator-system", "koord-descheduler", *_KOORD),
    "ack": Location("kube-system", "ack-koord-descheduler", *_KOORD),
    "sigs": Location("kube-system", "descheduler", "descheduler-policy-configmap", "policy.yaml"),
}
"""The names in Koordinator's chart, ACK's add-on, and the manifests of sigs.k8s.io/descheduler."""


def template_of(workload: objects.Raw) -> objects.Raw:
    """The pod template of a Deployment or CronJob."""
    spec: objects.Raw = workload["spec"]
    found: objects.Raw = (
        spec["jobTemplate"]["spec"]["template"] if "jobTemplate" in spec else spec["template"]
    )
    return found


def container_of(workload: objects.Raw) -> objects.Raw:
    """The descheduler's container: the one whose image or name says so, else the first."""
    containers = t.cast(
        "list[objects.Raw]", template_of(workload)["spec"].get("containers") or [{}]
    )
    likely = [
        each for each in containers if "descheduler" in f"{each.get('image')} {each.get('name')}"
    ]
    return (likely or containers)[0]


def is_cron(workload: objects.Raw) -> bool:
    """Whether each run is a new pod, which mounts the ConfigMap as it is then."""
    return "jobTemplate" in workload["spec"]


def appliers(found: objects.Raw | None, *path: str) -> tuple[str, ...]:
    """Who applies the field on the server's side: their next apply fails, or reverts ours."""
    managers = []
    for entry in ((found or {}).get("metadata") or {}).get("managedFields") or ():
        fields = entry.get("fieldsV1") or {}
        for part in path:
            fields = fields.get(f"f:{part}") if fields is not None else None
        if fields is not None and entry.get("operation") == "Apply":
            managers.append(str(entry.get("manager") or ""))
    return tuple(managers)


_HELM = "meta.helm.sh/"
_MANAGED_BY = "app.kubernetes.io/managed-by"


def release_of(workload: objects.Raw) -> dict[str, dict[str, str]]:
    """The labels and annotations by which Helm knows an object as part of the workload's
    release; empty without one.

    An upgrade refuses an object that exists without all three (``checkOwnership`` in Helm's
    pkg/action/validate.go).
    """
    meta = workload["metadata"]
    owner = {
        key: value
        for key, value in (meta.get("annotations") or {}).items()
        if key.startswith(f"{_HELM}release-")
    }
    if (meta.get("labels") or {}).get(_MANAGED_BY) != "Helm" or len(owner) != 2:
        return {}
    return {"labels": {_MANAGED_BY: "Helm"}, "annotations": owner}


def unread(workload: objects.Raw, place: Location) -> str:
    """Why the workload does not read the ConfigMap's key; the empty string if it does."""
    mounted: dict[str, list[str]] = {}
    volumes = (template_of(workload).get("spec") or {}).get("volumes") or ()
    for source in itertools.chain.from_iterable(map(sources, volumes)):
        mounted[str(source.get("name"))] = [
            str(item.get("key")) for item in source.get("items") or ()
        ]
    if place.config_map not in mounted:
        what = "mounts no ConfigMap"
        if mounted:
            what = f"mounts the ConfigMaps {', '.join(sorted(mounted))}"
        right = values.similar(place.config_map, mounted) or (
            next(iter(mounted)) if len(mounted) == 1 else ""
        )
        hint = f" Did you mean config_map: {right}?" if right else ""
        return f"{place.deployment} {what}, not {place.config_map}.{hint}"
    keys = mounted[place.config_map]
    if keys and place.key not in keys:
        hint = f" Did you mean key: {keys[0]}?" if len(keys) == 1 else ""
        return (
            f"{place.deployment} mounts only {', '.join(keys)} of {place.config_map}, not "
            f"{place.key}.{hint}"
        )
    return ""


def sources(volume: objects.Raw) -> t.Iterator[objects.Raw]:
    """The ConfigMaps of a volume, mounted directly or projected."""
    for source in (volume, *((volume.get("projected") or {}).get("sources") or ())):
        if source.get("configMap"):
            yield source["configMap"]


def unknown_name(place: Location, found: t.Iterable[str], kinds: str) -> str:
    """The remedy if the workload does not exist: the one probably meant, or all that exist."""
    names = sorted(found)
    right = values.similar(place.deployment, names) or next(
        (name for name in names if "descheduler" in name), ""
    )
    if right:
        return f"Did you mean deployment: {right}?"
    if not names:
        return f"Namespace {place.namespace} has no {kinds}: set the right namespace."
    return (
        f"Set deployment to one of the {kinds} in namespace {place.namespace}: "
        f"{', '.join(names[:20])}."
    )


def election(
    config: t.Mapping[str, t.Any], workload: objects.Raw, flavor: schemas.Flavor
) -> objects.Ref | None:
    """The leader's Lease, ``None`` without election. Flags override the configuration."""
    given = flags(workload)
    settings = {}
    defaults = ("true", "koordinator-system", "koord-descheduler")
    if flavor == "sigs":
        defaults = ("false", "kube-system", "descheduler")
    else:
        settings = profiles.dict_at(config, "leaderElection")
    elects = given.get(
        "leader-elect", "false" if settings.get("leaderElect") is False else defaults[0]
    )
    namespace = (
        given.get("leader-elect-resource-namespace")
        or settings.get("resourceNamespace")
        or defaults[1]
    )
    name = given.get("leader-elect-resource-name") or settings.get("resourceName") or defaults[2]
    known = objects.Ref("Lease", name, namespace, api_version="coordination.k8s.io/v1")
    return known if elects in ("true", "") else None


def flags(workload: objects.Raw) -> dict[str, str]:
    """The flags of the containers by name, without dashes."""
    found: dict[str, str] = {}
    for container in (template_of(workload).get("spec") or {}).get("containers") or ():
        words = [
            str(word)
            for word in (*(container.get("command") or ()), *(container.get("args") or ()))
        ]
        for index, word in enumerate(words):
            name, equals, value = word.lstrip("-").partition("=")
            if word.startswith("-"):
                following = words[index + 1] if index + 1 < len(words) else "-"
                found[name] = value if equals or following.startswith("-") else following
    return found


def port_of(config: t.Mapping[str, t.Any]) -> int:
    """The port of ``/configz``, which is the one of ``healthzBindAddress``."""
    _host, colon, port = str(config.get("healthzBindAddress") or "").rpartition(":")
    return int(port) if colon and port.isdigit() else 10251
