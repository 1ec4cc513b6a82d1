# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A policy of the sigs descheduler as a configuration of koord-descheduler, and what it lacks."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    check,
    profiles,
    schemas,
    sigs,
    values,
)

_EVICTOR, _MOVER = "DefaultEvictor", "MigrationController"

_SAME = ("labelSelector", "nodeSelector", "nodeFit")
"""Arguments that both evictors have."""

_FLAGS: t.Mapping[str, str] = {
    "PodsWithLocalStorage": "evictLocalStoragePods",
    "SystemCriticalPods": "evictSystemCriticalPods",
    "FailedBarePods": "evictFailedBarePods",
    "PodsWithPVC": "ignorePvcPods",
}
"""MigrationController's flag for a protection that is off, of PodsWithPVC for one that is on."""

_BY_USAGE = "To balance by actual usage Koordinator has LowNodeLoad, which reads NodeMetrics."

_INSTEAD: t.Mapping[str, str] = {"LowNodeUtilization": _BY_USAGE}

_NONE: t.Mapping[str, str] = {
    "evictionFailureEventNotification": "The Events of the PodMigrationJobs tell it.",
    "metricsCollector": _BY_USAGE,
    "metricsProviders": _BY_USAGE,
    "gracePeriodSeconds": "DefaultEvictor has no such setting in Koordinator: the pod's own holds.",
    "disabled": "It has no effect in the policy either.",
    "namespaceLabelSelector": "Name the namespaces in MigrationController's namespaces.",
    "minReplicas": (
        "MigrationController refuses workloads whose every replica would be away, "
        "such as those with one."
    ),
    "minPodAge": "MigrationController has no such limit.",
    "noEvictionPolicy": (
        'Annotate the pods with scheduling.koordinator.sh/eviction-cost: "2147483647".'
    ),
    "name": "Only value protects pods there: write the number of the PriorityClass.",
    "config": "ignorePvcPods protects pods with any volume claim.",
    "DaemonSetPods": "MigrationController never evicts pods of DaemonSets.",
    "PodsWithoutPDB": "MigrationController does not ask for a budget.",
    "PodsWithResourceClaims": "MigrationController does not look at resource claims.",
}
"""Why a setting has no counterpart, and what there is instead; by its key or word."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A setting of the policy without a counterpart: path, value, and what there is instead."""

    path: str
    value: t.Any
    reason: str


@dataclass(slots=True)
class Converted:
    """The configuration, which koord-descheduler takes, and what it lacks."""

    config: dict[str, t.Any] = field(default_factory=dict)
    left_out: list[LeftOut] = field(default_factory=list)

    def leave(self, path: str, value: t.Any, key: str = "") -> None:
        """Record a setting without a counterpart; ``key`` has the reason,
        by default the last key of the path.
        """
        self.left_out.append(LeftOut(path, value, _NONE[key or path.rpartition(".")[2]]))


def convert(policy: t.Any, version: str, interval: str = "") -> Converted:
    """The configuration for a version of Koordinator; ``interval`` stands for the flag
    --descheduling-interval.

    A plugin is taken over whole or not at all: without one of its arguments it
    would evict other pods.

    Raises:
        ValueError: the policy has errors.
        KeyError: the version is not supported.
    """
    wrong = check.errors(check.check(policy, sigs.schema()))
    if wrong:
        message = "; ".join(
            f"{fault.path}: {fault.message} {fault.remedy}".strip() for fault in wrong
        )
        raise ValueError(f"the policy has errors: {message}")
    made = Converted()
    schema = check.schema_of("koordinator", version)
    made.config |= {"apiVersion": schema.api_version, "kind": schema.kind}
    if interval:
        made.config["deschedulingInterval"] = interval
    if policy.get("nodeSelector"):
        made.config["nodeSelector"] = selectors.parse(policy["nodeSelector"])
    made.config |= {
        key: policy[key] for key in schemas.EVICTION_LIMITS if policy.get(key) is not None
    }
    for key in ("evictionFailureEventNotification", "metricsCollector", "metricsProviders"):
        if policy.get(key):
            made.leave(key, policy[key])
    moving: dict[str, t.Any] = {"defaultJobMode": "EvictDirectly"}
    if policy.get("gracePeriodSeconds") is not None:
        moving["defaultDeleteOptions"] = {"gracePeriodSeconds": policy["gracePeriodSeconds"]}
    found = [raw or {} for raw in policy.get("profiles") or ()]
    made.config["profiles"] = [
        _profile(made, raw, index, moving, schema) for index, raw in enumerate(found)
    ]
    names = set[str]()
    for index, profile in enumerate(made.config["profiles"]):
        profile["name"] = (
            f"{profile['name']}-{index}" if profile["name"] in names else profile["name"]
        )
        names.add(profile["name"])
    _drop_refused(made, schema)
    return made


def _profile(
    made: Converted, raw: profiles.Raw, index: int, moving: profiles.Raw, schema: schemas.Schema
) -> dict[str, t.Any]:
    """One profile. Since 1.8.0 only one of several can have MigrationController:
    the others keep DefaultEvictor.
    """
    path = f"profiles[{index}]"
    points = _points(made, profiles.dict_at(raw, "plugins"), f"{path}.plugins")
    configs = [dict(entry) for entry in profiles.list_at(raw, "pluginConfig")]
    position = next(
        (at for at, entry in enumerate(configs) if entry["name"] == _EVICTOR), len(configs)
    )
    if index > 0 and schema.knows("1.8.0"):
        points |= {
            p: {"enabled": [{"name": _EVICTOR}], "disabled": [{"name": "*"}]}
            for p in ("evict", "filter")
        }
        message = (
            f"Version {schema.version} has {_MOVER} in one profile only: here DefaultEvictor "
            "evicts, without jobs."
        )
        made.left_out.append(LeftOut(path, raw.get("name"), message))
        if "defaultDeleteOptions" in moving:
            made.leave("gracePeriodSeconds", moving["defaultDeleteOptions"]["gracePeriodSeconds"])
    else:
        given = next((entry.get("args") or {} for entry in configs[position:]), {})
        args = {**moving, **_moving(made, given, f"{path}.pluginConfig[{position}].args")}
        configs[position : position + 1] = [{"name": _MOVER, "args": args}]
    return {
        "name": raw.get("name") or f"profile-{index}",
        "plugins": points,
        "pluginConfig": configs,
    }


def _points(made: Converted, plugins: profiles.Raw, path: str) -> dict[str, t.Any]:
    """The plugins at deschedule and balance; at the other points there is only DefaultEvictor."""
    points: dict[str, t.Any] = {}
    for point in sigs.POINTS:
        there = profiles.dict_at(plugins, point)
        enabled = [name for name in profiles.list_at(there, "enabled") if name != _EVICTOR]
        if enabled:
            points[point] = {"enabled": [{"name": name} for name in enabled]}
        if there.get("disabled"):
            made.leave(f"{path}.{point}.disabled", there["disabled"])
    return points


def _moving(made: Converted, given: profiles.Raw, path: str) -> dict[str, t.Any]:
    """MigrationController's arguments instead of DefaultEvictor's."""
    args: dict[str, t.Any] = {
        key: given[key] for key in (*_SAME, *_FLAGS.values()) if values.is_set(given.get(key))
    }
    threshold = given.get("priorityThreshold") or {}
    if threshold.get("value") is not None:
        args["priorityThreshold"] = {"value": threshold["value"]}
    elif threshold.get("name"):
        made.leave(f"{path}.priorityThreshold.name", threshold["name"])
    args |= _unprotected(made, given.get("podProtections") or {}, f"{path}.podProtections")
    for flag, word in (
        ("evictDaemonSetPods", "DaemonSetPods"),
        ("ignorePodsWithoutPDB", "PodsWithoutPDB"),
    ):
        if given.get(flag):
            made.leave(f"{path}.{flag}", True, word)
    for key in ("namespaceLabelSelector", "minReplicas", "minPodAge", "noEvictionPolicy"):
        if given.get(key) not in (None, {}, 0, 1, "", "Preferred"):
            made.leave(f"{path}.{key}", given[key])
    return args


def _unprotected(made: Converted, protections: profiles.Raw, path: str) -> dict[str, bool]:
    """The arguments that say which pods may be moved after all."""
    flags: dict[str, bool] = {}
    for key in ("defaultDisabled", "extraEnabled"):
        for index, word in enumerate(protections.get(key) or ()):
            if word in _FLAGS:
                flags[_FLAGS[word]] = True
            else:
                made.leave(f"{path}.{key}[{index}]", word, word)
    if protections.get("config"):
        made.leave(f"{path}.config", protections["config"])
    return flags


_CONFIG = re.compile(r"profiles\[(\d+)\]\.pluginConfig\[(\d+)\].*")


def _drop_refused(made: Converted, schema: schemas.Schema) -> None:
    """Leave out the plugins whose arguments this version does not take."""
    refused: dict[tuple[int, int], str] = {}
    for fault in check.errors(check.check(made.config, schema)):
        if found := _CONFIG.fullmatch(fault.path):
            refused.setdefault(
                (int(found[1]), int(found[2])), f"{fault.path.rpartition('.')[2]}: {fault.message}"
            )
    for (index, position), message in sorted(refused.items(), reverse=True):
        profile = made.config["profiles"][index]
        entry = profile["pluginConfig"].pop(position)
        for place in profile["plugins"].values():
            place["enabled"] = [each for each in place["enabled"] if each["name"] != entry["name"]]
        reason = (
            f"Koordinator {schema.version} does not take it: {message} "
            f"{_INSTEAD.get(entry['name'], '')}"
        ).strip()
        made.left_out.append(LeftOut(f"profiles[{index}].pluginConfig[{position}]", entry, reason))
