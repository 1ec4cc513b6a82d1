# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Faults between the arguments of the plugins that evict: MigrationController, and DefaultEvictor of either kind."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import (
    profiles,
    rules,
    schemas,
    sigs,
    values,
)


def migration_controller(plugin: profiles.Args) -> rules.Faults:
    """Of Koordinator's MigrationController."""
    args, path = plugin.args, plugin.path
    skipped = plugin.entries("skipEvictionGates") if plugin.schema.knows("1.8.0") else []
    if not args.get("skipCheckExpectedReplicas") and "ExpectedReplicas" not in skipped:
        for key in ("maxMigratingPerWorkload", "maxUnavailablePerWorkload"):
            yield from _refused(args.get(key), f"{path}.{key}")
    workload = profiles.dict_at(plugin.record("objectLimiters"), "workload").get("maxMigrating")
    for key in ("maxMigratingPerWorkload", "maxUnavailablePerWorkload"):
        yield from _zero(args.get(key), f"{path}.{key}")
    yield from _zero(workload, f"{path}.objectLimiters.workload.maxMigrating")
    yield from _namespace_limiter(plugin)
    if values.is_set(plugin.record("priorityThreshold").get("name")):
        message = "Only priorityThreshold.value protects pods; name is looked up but not used."
        yield rules.warning("never_read", message, "Set value instead.", f"{path}.priorityThreshold.name")
    yield from _evictor(plugin)


def _zero(limit: t.Any, path: str) -> rules.Faults:
    """``GetMaxUnavailable``: what is given and comes to 0 becomes 1, whatever the number of replicas."""
    if limit == "0%" or (values.number(limit) == 0 and limit is not None):
        remedy = "Write 1, or leave it out: then it is 1 below 4 replicas, 2 up to 10, otherwise 10 %."
        yield rules.warning("misleading", f"{limit} means 1, not that there is no limit.", remedy, path)


def _namespace_limiter(plugin: profiles.Args) -> rules.Faults:
    """``trackEvictedPod`` returns from its loop over the limiters, a Go map, at a namespace without a number."""
    limiters = plugin.record("objectLimiters")
    namespace, workload = profiles.dict_at(limiters, "namespace"), profiles.dict_at(limiters, "workload")
    limit, where = namespace.get("maxMigrating"), f"{plugin.path}.objectLimiters.namespace.maxMigrating"
    lasting = [limiter for limiter in (namespace, workload) if values.seconds(limiter.get("duration"))]
    skipped = ""
    if len(lasting) == 2:
        skipped = " Evictions are at random not counted for the workload's limiter either."
    if isinstance(limit, str):
        message = f"For a namespace a percentage means 0, which limits nothing.{skipped}"
        yield rules.Fault("wrong_type", message, "Give a number.", where, "starts")
    elif not limit and namespace in lasting:
        message = f"Without a number the limiter of namespaces limits nothing.{skipped}"
        yield rules.warning("never_read", message, "Give one, or remove the limiter.", where)


def _refused(limit: t.Any, path: str) -> rules.Faults:
    """``expectedReplicas``: a workload with exactly as many replicas as its limit is refused."""
    if limit == "100%":
        sizes = "of any size"
    elif isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
        sizes = "with 1 replica" if limit == 1 else f"with 1 or {limit} replicas"
    else:
        return
    message = f"Pods of workloads {sizes} are never moved, because the whole workload would be unavailable."
    yield rules.warning("refused_workloads", message, "Set skipCheckExpectedReplicas: true to move them anyway.", path)


def _evictor(plugin: profiles.Args) -> rules.Faults:
    yield from _priority(plugin)
    if _evicts_critical(plugin) and plugin.has("priorityThreshold"):
        message = "Where system-critical pods may be evicted, priorityThreshold is not read."
        yield rules.warning("never_read", message, "Remove one of them.", f"{plugin.path}.priorityThreshold")
    yield from _needs_node_fit(plugin)


def default_evictor(plugin: profiles.Args) -> rules.Faults:
    """Of DefaultEvictor in Koordinator, since 1.8.0 that of v0.35."""
    yield from _evictor(plugin)
    yield from _protections(plugin) if plugin.schema.knows("1.8.0") else ()
    selector = plugin.record("namespaceLabelSelector")
    if plugin.schema.knows("1.8.0") and values.is_set(selector) and not values.is_set(selector.get("matchLabels")):
        message = f"Version {plugin.schema.version} reads it only if it has matchLabels."
        yield rules.warning("never_read", message, "Add matchLabels.", f"{plugin.path}.namespaceLabelSelector")


def _evicts_critical(plugin: profiles.Args) -> bool:
    """The old flags are read only without lists of protections (``getEffectivePodProtections`` of v0.35)."""
    protections = plugin.record("podProtections")
    listed = [*profiles.list_at(protections, "defaultDisabled"), *profiles.list_at(protections, "extraEnabled")]
    if listed and "podProtections" in plugin.schema.plugins["DefaultEvictor"].args.fields:
        return "SystemCriticalPods" in profiles.list_at(protections, "defaultDisabled")
    return plugin.args.get("evictSystemCriticalPods") is True


def _priority(plugin: profiles.Args) -> rules.Faults:
    """``GetPriorityValueFromPriorityThreshold``; koord-descheduler skips it with evictSystemCriticalPods."""
    off = _evicts_critical(plugin) and plugin.schema.plugin_type == "object"
    threshold, where = plugin.record("priorityThreshold"), f"{plugin.path}.priorityThreshold"
    value, name = threshold.get("value"), threshold.get("name")
    remedy = f"Give {schemas.HIGHEST_PRIORITY} or less."
    if (values.number(value) or 0) > schemas.HIGHEST_PRIORITY:
        real: schemas.Real = "starts" if off else "refuses"
        yield rules.Fault("out_of_range", f"{value} is too large.", remedy, f"{where}.value", real)
    elif value is None and name == "system-node-critical" and not off:
        yield rules.Fault("out_of_range", f"The priority of {name} is too large.", remedy, f"{where}.name")


def _needs_node_fit(plugin: profiles.Args) -> rules.Faults:
    if plugin.has("nodeSelector") and not plugin.args.get("nodeFit"):
        message = "nodeSelector has no effect without nodeFit."
        yield rules.warning("never_read", message, "Set nodeFit: true.", f"{plugin.path}.nodeSelector")


def sigs_default_evictor(plugin: profiles.Args) -> rules.Faults:
    """Of DefaultEvictor in the sigs descheduler."""
    yield from _needs_node_fit(plugin)
    yield from _priority(plugin)
    yield from _protections(plugin)
    extra = profiles.list_at(plugin.record("podProtections"), "extraEnabled")
    if "PodsWithoutPDB" in extra or plugin.args.get("ignorePodsWithoutPDB") is True:
        message = (
            f"Version {plugin.schema.version} then evicts no pod at all, because it does not read budgets (#1882)."
        )
        yield rules.warning("never_acts", message, "Remove it.", f"{plugin.path}.podProtections.extraEnabled")


def _protections(plugin: profiles.Args) -> rules.Faults:
    """``ValidateDefaultEvictorArgs``, which Koordinator does not call."""
    args, path = plugin.args, plugin.path
    refused: schemas.Real = "starts" if plugin.schema.plugin_type == "object" else "refuses"
    protections = plugin.record("podProtections")
    lists = [key for key in ("defaultDisabled", "extraEnabled") if values.is_set(protections.get(key))]
    old = [key for key in sigs.OLD_FLAGS if args.get(key) is True]
    if lists and old:
        message = f"{', '.join(old)} cannot be combined with podProtections.{lists[0]}."
        yield rules.Fault("exclusive", message, f"Use {sigs.OLD_FLAGS[old[0]]}.", f"{path}.{old[0]}", refused)
    extra = profiles.list_at(protections, "extraEnabled")
    classes = profiles.dict_at(profiles.dict_at(protections, "config"), "PodsWithPVC")
    for index, given in enumerate(profiles.list_at(classes, "protectedStorageClasses")):
        if given is None or (isinstance(given, dict) and not values.is_set(given.get("name"))):
            where = f"{path}.podProtections.config.PodsWithPVC.protectedStorageClasses[{index}].name"
            yield rules.required(where, refused if "PodsWithPVC" in extra else "starts")
