# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Koordinator's programs in a cluster, found by what their pods run,
and where koord-descheduler's configuration is.

A release may have any name and namespace, and a mirror any image: a Deployment counts if an image
or a command of its containers is the program's, or if it is called as in
Koordinator's chart or by ACK.
"""

from __future__ import annotations

import contextlib
import posixpath
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    objects,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    installation,
    schemas,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy

DESCHEDULER = "koord-descheduler"
SCHEDULER = "koord-scheduler"
CHART = installation.DEFAULT_LOCATIONS["koordinator"]
CHARTS = (CHART, installation.DEFAULT_LOCATIONS["ack"])
ANYWHERE = installation.Location("", "", "", "")
"""A place of which nothing is given."""


@dataclass(frozen=True, slots=True)
class Installation:
    """A koord-descheduler: its names, and its Deployment (empty if it may not be read)."""

    place: installation.Location
    workload: objects.Raw

    @property
    def ready(self) -> bool:
        """Whether it has a ready pod; one that may not be read is believed."""
        return not self.workload or bool((self.workload.get("status") or {}).get("readyReplicas"))

    @property
    def name(self) -> str:
        """The Deployment, as messages name it."""
        return f"{self.place.namespace}/{self.place.deployment}"


def runs(workload: objects.Raw, program: str) -> bool:
    """Whether a container's image or command is the program; not of what cannot be read."""
    with contextlib.suppress(*decoding.MISREAD):
        return any(_is(container, program) for container in _containers(workload))
    return False


def _is(container: objects.Raw, program: str) -> bool:
    image = str(container.get("image") or "").rpartition("/")[2].partition("@")[0].partition(":")[0]
    words = " ".join(
        str(word) for word in (*(container.get("command") or ()), *(container.get("args") or ()))
    )
    return program in image or program in {
        posixpath.basename(w) for w in words.split() if not w.startswith("-")
    }


def installations(
    deployments: t.Iterable[objects.Raw], given: installation.Location
) -> tuple[Installation, ...]:
    """Those among the Deployments that run koord-descheduler, and the one that the options name.

    One that cannot be read is none of them.
    """
    charts = {chart.deployment for chart in CHARTS}
    found = []
    for raw in deployments:
        namespace, name = raw["metadata"]["namespace"], raw["metadata"]["name"]
        if given.namespace not in ("", namespace) or given.deployment not in ("", name):
            continue
        with contextlib.suppress(*decoding.MISREAD):
            if given.deployment or name in charts or runs(raw, DESCHEDULER):
                found.append(
                    Installation(
                        completed(replace(given, namespace=namespace, deployment=name), raw), raw
                    )
                )
    return tuple(found)


def completed(place: installation.Location, workload: objects.Raw) -> installation.Location:
    """The place with the ConfigMap and key that the containers read, or else the charts'."""
    config_map, key = _mounted(workload) if workload else ("", "")
    return replace(
        place,
        config_map=place.config_map or config_map or CHART.config_map,
        key=place.key or key or CHART.key,
    )


def _mounted(workload: objects.Raw) -> tuple[str, str]:
    """The ConfigMap and key behind the file of ``--config``; empty where no volume shows them."""
    volumes = {
        volume.get("name"): volume
        for volume in installation.template_of(workload)["spec"].get("volumes") or ()
    }
    path = installation.flags(workload).get("config") or ""
    for container in _containers(workload):
        for mount in container.get("volumeMounts") or ():
            folder = str(mount.get("mountPath") or "").rstrip("/")
            sub = str(mount.get("subPath") or "")
            inner = path
            if not sub:
                inner = path.removeprefix(f"{folder}/")
            elif path == folder:
                inner = sub
            if inner == path:
                continue
            for source in installation.sources(volumes.get(mount.get("name")) or {}):
                keys = {
                    str(item.get("path")): str(item.get("key"))
                    for item in source.get("items") or ()
                }
                if inner in keys or not keys:
                    return str(source.get("name") or ""), keys.get(inner, inner)
    return "", ""


def _containers(workload: objects.Raw) -> t.Sequence[objects.Raw]:
    return (installation.template_of(workload).get("spec") or {}).get("containers") or ()


def silent_scheduler(deployments: t.Iterable[objects.Raw], home: str) -> str:
    """The Deployment of koord-scheduler if none has a ready pod; ``home`` is Koordinator's."""
    first = ""
    for raw in deployments:
        place = raw["metadata"]["namespace"], raw["metadata"]["name"]
        if place != (home, SCHEDULER) and not runs(raw, SCHEDULER):
            continue
        if (raw.get("status") or {}).get("readyReplicas"):
            return ""
        first = first or "/".join(place)
    return first


def several(found: t.Sequence[Installation]) -> reasons.Finding:
    """More than one works on PodMigrationJobs."""
    names = " and ".join(one.name for one in found)
    namespace, deployment = drain_policy.KOORDINATOR[:2]
    options = namespace if len({one.place.namespace for one in found}) > 1 else deployment
    return reasons.Finding(
        "several_koordinators",
        f"The Deployments {names} each work on PodMigrationJobs.",
        f"Remove all but one, or set {options} to the one whose limits are to count.",
        "blocker",
        f"Deployment {found[0].name}",
    )


def beside(
    deployments: t.Iterable[objects.Raw], place: installation.Location
) -> list[schemas.Fault]:
    """A warning if another koord-descheduler is at work beside the one in this place."""
    found = [one for one in installations(deployments, ANYWHERE) if one.ready]
    mine = f"{place.namespace}/{place.deployment}"
    others = [one.name for one in found if one.name != mine]
    if not others:
        return []
    message = (
        f"Beside {mine}, {' and '.join(others)} is at work: each evicts, "
        "and each works on PodMigrationJobs."
    )
    return [
        schemas.warning(
            "several_deschedulers", message, "Remove all but one, or give each nodes of its own."
        )
    ]


def none(given: installation.Location, found: t.Sequence[Installation]) -> reasons.Finding:
    """Nothing works on PodMigrationJobs."""
    if found:
        names = " and of ".join(one.name for one in found)
        message = f"No pod of Deployment {names} is ready: nothing works on PodMigrationJobs."
        remedy = f"Check its pods and their log: kubectl -n {found[0].place.namespace} get pods."
        return reasons.Finding(
            "no_controller", message, remedy, "blocker", f"Deployment {found[0].name}"
        )
    where = f" in namespace {given.namespace}" if given.namespace else ""
    what = f"Deployment {given.deployment or f'that runs {DESCHEDULER}'}"
    message = f"There is no {what}{where}: nothing works on PodMigrationJobs."
    options = " and ".join(drain_policy.KOORDINATOR[:2])
    remedy = f"Install koord-descheduler, or set {options} to the ones it has."
    name = f"{given.namespace or CHART.namespace}/{given.deployment or CHART.deployment}"
    return reasons.Finding("no_controller", message, remedy, "blocker", f"Deployment {name}")


def idle(one: Installation, why: str) -> reasons.Finding:
    """It runs, and not for PodMigrationJobs."""
    message = f"In the configuration of {one.name} {why}."
    remedy = "Enable MigrationController at evict and at filter, or let node_drain evict the pods."
    return reasons.Finding("no_controller", message, remedy, "blocker", f"Deployment {one.name}")


def renewed(before: objects.Raw | None, after: objects.Raw | None) -> bool:
    """Whether somebody wrote the Lease in between."""
    if not before or not after:
        return False
    return bool(
        before["metadata"].get("resourceVersion") != after["metadata"].get("resourceVersion")
    )
