# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What the scheduler reads of a pod's spec, kept as small as a snapshot of many
thousands of pods asks for.
"""

from __future__ import annotations

import re
import typing as t

Raw = t.Mapping[str, t.Any]

WHOLE = (
    "affinity",
    "nodeSelector",
    "overhead",
    "preemptionPolicy",
    "resourceClaims",
    "resources",
    "schedulingGates",
    "topologySpreadConstraints",
)
"""Fields of a pod's spec that are kept as they are, where they are not empty."""
GIVEN = frozenset({"configMap", "downwardAPI", "projected", "secret"})
"""Kinds of volumes with what the cluster has for a pod. Each pod has its token in one, which no
other pod has alike.
"""
TEMPORARY = tuple(f"{path}/" for path in ("/tmp", "/var/tmp", "/run", "/var/run", "/var/cache"))
"""Directories of what any program may lose (Filesystem Hierarchy Standard)."""
LONGEST = 1000
"""Characters of a command that are searched for what it sleeps."""
_SLEEP = re.compile(r"(?:^|[\s;&|/])sleep\s+(\d{1,6}(?:\.\d{1,3})?)s?(?=$|[\s;&|])")


def trimmed(spec: Raw, status: Raw) -> Raw:
    """The fields of the spec that decide where the pod fits; ``counted`` are its containers'
    resources of the status.

    Containers keep their name, requests, ports and restart policy. ``counted`` has, by container,
    the requests in force and those allocated, which differ from the spec during a resize;
    ``infeasible`` says that a resize cannot be done.
    ``declared`` are features that its node has to declare.
    """
    found: dict[str, t.Any] = {key: spec[key] for key in WHOLE if spec.get(key)}
    for key in ("containers", "initContainers"):
        if spec.get(key):
            found[key] = [_container(one) for one in spec[key]]
    if declared := _declared(spec):
        found["declared"] = declared
    return found | _of_status(status)


def _of_status(status: Raw) -> dict[str, t.Any]:
    """What the status adds to the spec: resources that a resize has changed, or could not."""
    found: dict[str, t.Any] = {}
    counted = {}
    for key in ("containerStatuses", "initContainerStatuses"):
        for one in status.get(key) or ():
            if one.get("resources"):
                counted[one.get("name", "")] = _counted(one)
    if counted:
        found["counted"] = counted
    if whole := _counted(status):
        found["countedWhole"] = whole
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodResizePending" and condition.get("reason") == "Infeasible":
            found["infeasible"] = True
    return found


def _counted(status: Raw) -> list[Raw]:
    """The requests in force and those allocated, of a container or of a pod with resources."""
    resources = status.get("resources")
    if not resources:
        return []
    requests = (resources.get("requests"), status.get("allocatedResources"))
    return [one for one in requests if one]


def _declared(spec: Raw) -> list[str]:
    """What the scheduler (NodeDeclaredFeatures, on by default since 1.36) asks of the features
    of a node, by fields.
    """
    found = []
    if spec.get("hostNetwork") and spec.get("hostUsers") is False:
        found.append("hostUsers: false with hostNetwork")
    rules, mounts = False, False
    for container in (*(spec.get("containers") or ()), *(spec.get("initContainers") or ())):
        for rule in container.get("restartPolicyRules") or ():
            rules = rules or rule.get("action") == "RestartAllContainers"
        for mount in container.get("volumeMounts") or ():
            mounts = mounts or bool(mount.get("bindMountOptions"))
    if rules:
        found.append("restartPolicyRules")
    if mounts:
        found.append("bindMountOptions")
    return found


def _container(raw: Raw) -> Raw:
    found: dict[str, t.Any] = {"name": raw.get("name", "")}
    if requests := (raw.get("resources") or {}).get("requests"):
        found["requests"] = requests
    if ports := [port for port in raw.get("ports") or () if port.get("hostPort")]:
        found["ports"] = ports
    if raw.get("restartPolicy"):
        found["restartPolicy"] = raw["restartPolicy"]
    return found


def volumes(spec: Raw) -> list[Raw]:
    """The volumes of a pod that decide something: those of ``GIVEN`` are made anew on
    whatever node it is.

    Definitions of custom resources allow volumes without a name or a claim:
    these are left out, too.
    """
    return [
        volume
        for volume in spec.get("volumes") or ()
        if GIVEN.isdisjoint(volume)
        and volume.get("name")
        and (volume.get("persistentVolumeClaim") or {"claimName": "-"}).get("claimName")
    ]


def scratch(spec: Raw) -> dict[str, str]:
    """The emptyDirs whose data seldom has to last, by their names, with what says so;
    of all others nothing is known.

    It is said of where they are mounted, and by whom: what an application keeps
    there nobody can know.
    """
    if not any("emptyDir" in volume for volume in spec.get("volumes") or ()):
        return {}
    empty = [volume for volume in volumes(spec) if "emptyDir" in volume]
    inits: list[Raw] = []
    sidecars: list[Raw] = []
    for container in spec.get("initContainers") or ():
        (sidecars if container.get("restartPolicy") == "Always" else inits).append(container)
    found = {}
    for volume in empty:
        main = _mounts(spec.get("containers") or (), volume["name"])
        beside, before = _mounts(sidecars, volume["name"]), _mounts(inits, volume["name"])
        if (volume["emptyDir"] or {}).get("medium") == "Memory":
            found[volume["name"]] = "in memory"
        elif (main or beside) and all(map(_temporary, (*main, *beside))):
            found[volume["name"]] = "temporary files"
        elif (beside or before) and not main:
            found[volume["name"]] = "sidecars" if beside else "init containers"
    return found


def _mounts(containers: t.Iterable[Raw], volume: str) -> list[str]:
    """The paths at which the containers mount the volume."""
    paths = []
    for container in containers:
        for mount in container.get("volumeMounts") or ():
            if mount.get("name") == volume:
                paths.append(mount.get("mountPath", ""))
    return paths


def _temporary(path: str) -> bool:
    return f"{path}/".startswith(TEMPORARY)


def sleeps(spec: Raw) -> float:
    """Seconds that a container sleeps before it is told to end: by its preStop hook,
    or a command in that.
    """
    hooks = (
        ((one.get("lifecycle") or {}).get("preStop") or {}) for one in spec.get("containers") or ()
    )
    return max(map(_slept, hooks), default=0.0)


def _slept(hook: Raw) -> float:
    command = " ".join(map(str, (hook.get("exec") or {}).get("command") or ()))
    found = _SLEEP.search(command[:LONGEST])
    return float((hook.get("sleep") or {}).get("seconds") or (found[1] if found else 0))
