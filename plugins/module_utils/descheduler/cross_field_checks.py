# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Faults between values that are valid on their own: crashes, and plugins that never act."""

from __future__ import annotations

import itertools
import re
import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    koordinator,
    profiles,
    schemas,
    sigs,
    values,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import durations

# Faults between the arguments of the plugins that evict: MigrationController,
# and DefaultEvictor of either kind.


def migration_controller(plugin: profiles.Args) -> schemas.Faults:
    """Faults in the arguments of Koordinator's MigrationController."""
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
        yield schemas.warning(
            "never_read", message, "Set value instead.", f"{path}.priorityThreshold.name"
        )
    yield from _evictor(plugin)


def _zero(limit: t.Any, path: str) -> schemas.Faults:
    """``GetMaxUnavailable``: what is given and comes to 0 becomes 1, whatever the replicas."""
    if limit == "0%" or (values.number(limit) == 0 and limit is not None):
        remedy = (
            "Write 1, or leave it out: then it is 1 below 4 replicas, 2 up to 10, otherwise 10 %."
        )
        yield schemas.warning(
            "misleading", f"{limit} means 1, not that there is no limit.", remedy, path
        )


def _namespace_limiter(plugin: profiles.Args) -> schemas.Faults:
    """``trackEvictedPod`` returns from its loop over a Go map at a namespace without a number."""
    limiters = plugin.record("objectLimiters")
    namespace = profiles.dict_at(limiters, "namespace")
    workload = profiles.dict_at(limiters, "workload")
    limit = namespace.get("maxMigrating")
    where = f"{plugin.path}.objectLimiters.namespace.maxMigrating"
    lasting = [
        limiter
        for limiter in (namespace, workload)
        if durations.go_seconds(limiter.get("duration"))
    ]
    skipped = ""
    if len(lasting) == 2:
        skipped = " Evictions are at random not counted for the workload's limiter either."
    if isinstance(limit, str):
        message = f"For a namespace a percentage means 0, which limits nothing.{skipped}"
        yield schemas.Fault("wrong_type", message, "Give a number.", where, "starts")
    elif not limit and namespace in lasting:
        message = f"Without a number the limiter of namespaces limits nothing.{skipped}"
        yield schemas.warning("never_read", message, "Give one, or remove the limiter.", where)


def _refused(limit: t.Any, path: str) -> schemas.Faults:
    """``expectedReplicas``: a workload with exactly as many replicas as its limit is refused."""
    if limit == "100%":
        sizes = "of any size"
    elif isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
        sizes = "with 1 replica" if limit == 1 else f"with 1 or {limit} replicas"
    else:
        return
    message = (
        f"Pods of workloads {sizes} are never moved, because the whole workload "
        "would be unavailable."
    )
    yield schemas.warning(
        "refused_workloads",
        message,
        "Set skipCheckExpectedReplicas: true to move them anyway.",
        path,
    )


def _evictor(plugin: profiles.Args) -> schemas.Faults:
    yield from _priority(plugin)
    if _evicts_critical(plugin) and plugin.has("priorityThreshold"):
        message = "Where system-critical pods may be evicted, priorityThreshold is not read."
        yield schemas.warning(
            "never_read", message, "Remove one of them.", f"{plugin.path}.priorityThreshold"
        )
    yield from _needs_node_fit(plugin)


def default_evictor(plugin: profiles.Args) -> schemas.Faults:
    """Faults in those of Koordinator's DefaultEvictor, which is that of v0.35 since 1.8.0."""
    yield from _evictor(plugin)
    yield from _protections(plugin) if plugin.schema.knows("1.8.0") else ()
    selector = plugin.record("namespaceLabelSelector")
    if (
        plugin.schema.knows("1.8.0")
        and values.is_set(selector)
        and not values.is_set(selector.get("matchLabels"))
    ):
        message = f"Version {plugin.schema.version} reads it only if it has matchLabels."
        yield schemas.warning(
            "never_read", message, "Add matchLabels.", f"{plugin.path}.namespaceLabelSelector"
        )


def _evicts_critical(plugin: profiles.Args) -> bool:
    """The old flags are read only without lists of protections (``getEffectivePodProtections``)."""
    protections = plugin.record("podProtections")
    listed = [
        *profiles.list_at(protections, "defaultDisabled"),
        *profiles.list_at(protections, "extraEnabled"),
    ]
    if listed and "podProtections" in plugin.schema.plugins["DefaultEvictor"].args.fields:
        return "SystemCriticalPods" in profiles.list_at(protections, "defaultDisabled")
    return plugin.args.get("evictSystemCriticalPods") is True


def _priority(plugin: profiles.Args) -> schemas.Faults:
    """``GetPriorityValueFromPriorityThreshold``; koord-descheduler skips it with critical pods."""
    off = _evicts_critical(plugin) and plugin.schema.plugin_type == "object"
    threshold = plugin.record("priorityThreshold")
    where = f"{plugin.path}.priorityThreshold"
    value, name = threshold.get("value"), threshold.get("name")
    remedy = f"Give {schemas.HIGHEST_PRIORITY} or less."
    if (values.number(value) or 0) > schemas.HIGHEST_PRIORITY:
        real: schemas.Real = "starts" if off else "refuses"
        yield schemas.Fault(
            "out_of_range", f"{value} is too large.", remedy, f"{where}.value", real
        )
    elif value is None and name == "system-node-critical" and not off:
        yield schemas.Fault(
            "out_of_range", f"The priority of {name} is too large.", remedy, f"{where}.name"
        )


def _needs_node_fit(plugin: profiles.Args) -> schemas.Faults:
    if plugin.has("nodeSelector") and not plugin.args.get("nodeFit"):
        message = "nodeSelector has no effect without nodeFit."
        yield schemas.warning(
            "never_read", message, "Set nodeFit: true.", f"{plugin.path}.nodeSelector"
        )


def sigs_default_evictor(plugin: profiles.Args) -> schemas.Faults:
    """Faults in the arguments of the DefaultEvictor of the sigs descheduler."""
    yield from _needs_node_fit(plugin)
    yield from _priority(plugin)
    yield from _protections(plugin)
    extra = profiles.list_at(plugin.record("podProtections"), "extraEnabled")
    if "PodsWithoutPDB" in extra or plugin.args.get("ignorePodsWithoutPDB") is True:
        message = (
            f"Version {plugin.schema.version} then evicts no pod at all, "
            "because it does not read budgets (#1882)."
        )
        yield schemas.warning(
            "never_acts", message, "Remove it.", f"{plugin.path}.podProtections.extraEnabled"
        )


def _protections(plugin: profiles.Args) -> schemas.Faults:
    """``ValidateDefaultEvictorArgs``, which Koordinator does not call."""
    args, path = plugin.args, plugin.path
    refused: schemas.Real = "starts" if plugin.schema.plugin_type == "object" else "refuses"
    protections = plugin.record("podProtections")
    lists = [
        key for key in ("defaultDisabled", "extraEnabled") if values.is_set(protections.get(key))
    ]
    old = [key for key in sigs.OLD_FLAGS if args.get(key) is True]
    if lists and old:
        message = f"{', '.join(old)} cannot be combined with podProtections.{lists[0]}."
        yield schemas.Fault(
            "exclusive", message, f"Use {sigs.OLD_FLAGS[old[0]]}.", f"{path}.{old[0]}", refused
        )
    extra = profiles.list_at(protections, "extraEnabled")
    classes = profiles.dict_at(profiles.dict_at(protections, "config"), "PodsWithPVC")
    for index, given in enumerate(profiles.list_at(classes, "protectedStorageClasses")):
        if given is None or (isinstance(given, dict) and not values.is_set(given.get("name"))):
            where = (
                f"{path}.podProtections.config.PodsWithPVC.protectedStorageClasses[{index}].name"
            )
            yield schemas.required(where, refused if "PodsWithPVC" in extra else "starts")


def faults(config: profiles.Raw, schema: schemas.Schema) -> schemas.Faults:
    """The faults that depend on several values."""
    parsed = profiles.profiles_of(config, schema)
    for key in schemas.EVICTION_LIMITS:
        if config.get(key) is not None and values.number(config[key]) == 0:
            yield schemas.warning(
                "never_acts", "With 0 no pod is evicted.", "Without it there is no limit.", key
            )
    if schema.plugin_type == "object":
        yield from _connection(profiles.dict_at(config, "clientConnection"), schema)
        yield from _leader_election(profiles.dict_at(config, "leaderElection"))
        yield from _names(profiles.list_at(config, "profiles"))
        yield from _interval(config, parsed)
        yield from _controllers(parsed, schema)
    else:
        yield from _metrics(config, parsed)
    for profile in parsed:
        args = profile.args
        for name in dict.fromkeys((*profile.plugins, *profile.paths)):
            plugin = profiles.Args(args.get(name, {}), profile.args_path(name), config, schema)
            kind = (schema.plugin_type, name)
            checks = _ENABLED.get(kind, ()) if name in profile.plugins else ()
            for check in (*checks, *_CONFIGURED.get(kind, ())) if name in schema.plugins else ():
                yield from check(plugin)


def _connection(raw: profiles.Raw, schema: schemas.Schema) -> schemas.Faults:
    """What an API server answers with 406, and what ``setDefaults`` of 1.8.0 replaces."""
    given = raw.get("acceptContentTypes")
    path = "clientConnection.acceptContentTypes"
    if not isinstance(given, str) or not given:
        return
    if schema.knows("1.8.0") and not raw.get("contentType"):
        message = f"Version {schema.version} replaces it unless contentType is set."
        yield schemas.warning("never_read", message, "Set contentType, or remove it.", path)
    elif not {part.partition(";")[0].strip() for part in given.split(",")} & {
        "*/*",
        *koordinator.CONTENT_TYPES,
    }:
        remedy = f"Add one of {', '.join(koordinator.CONTENT_TYPES)}."
        yield schemas.Fault(
            "not_in_list", f"An API server has no answer in {values.shown(given)}.", remedy, path
        )


def _leader_election(raw: profiles.Raw) -> schemas.Faults:
    """``NewLeaderElector`` of client-go; the validation lets renewDeadline equal leaseDuration."""
    if raw.get("leaderElect") is False:
        return
    # A duration of 0 means the default (``RecommendedDefaultLeaderElectionConfiguration``).
    lease, renew, retry = (
        durations.go_seconds(raw.get(key)) or default
        for key, default in (("leaseDuration", 15.0), ("renewDeadline", 10.0), ("retryPeriod", 2.0))
    )
    if min(lease, renew, retry) < 0:
        return
    path = "leaderElection"
    if lease <= renew:
        message = f"leaseDuration ({lease:g} s) is not longer than renewDeadline ({renew:g} s)."
        real: schemas.Real = "refuses" if lease < renew else "crashes"
        yield schemas.Fault(
            "order", message, "Increase leaseDuration.", f"{path}.leaseDuration", real
        )
    if renew <= 1.2 * retry:
        message = (
            f"renewDeadline ({renew:g} s) is not longer than 1.2 times retryPeriod ({retry:g} s)."
        )
        remedy = "Increase renewDeadline, or decrease retryPeriod."
        yield schemas.Fault("order", message, remedy, f"{path}.renewDeadline", "crashes")


def _names(raws: t.Sequence[t.Any]) -> schemas.Faults:
    for index, raw in enumerate(raws):
        if len(raws) > 1 and (raw is None or (isinstance(raw, dict) and not raw.get("name"))):
            message = "Each of several profiles needs a name."
            yield schemas.Fault("required", message, path=f"profiles[{index}].name")


def _interval(config: profiles.Raw, parsed: tuple[profiles.Profile, ...]) -> schemas.Faults:
    busy = any(profile.enabled["deschedule"] or profile.enabled["balance"] for profile in parsed)
    if busy and not durations.go_seconds(config.get("deschedulingInterval") or "0"):
        message = "Without deschedulingInterval the plugins run once after each start."
        yield schemas.warning(
            "runs_once", message, "Set it, for example to 120s.", "deschedulingInterval"
        )


def _controllers(parsed: tuple[profiles.Profile, ...], schema: schemas.Schema) -> schemas.Faults:
    """Since 1.8.0 controller names must be unique, and every MigrationController has the same name.

    Before, all of them run.
    """
    movers = [profile.path for profile in parsed if "MigrationController" in profile.plugins]
    remedy = (
        "Put all plugins into one profile, or let DefaultEvictor evict and filter in the others."
    )
    if schema.knows("1.8.0"):
        for path in movers[1:]:
            message = (
                f"In version {schema.version} only one profile can have MigrationController; "
                f"{movers[0]} has it."
            )
            yield schemas.Fault("known_crash", message, remedy, f"{path}.plugins.evict")
    elif len(movers) > 1:
        message = (
            f"{' and '.join(movers)} each have a MigrationController: each works on every job, and "
            "each can refuse it."
        )
        yield schemas.warning("several_controllers", message, remedy, f"{movers[1]}.plugins.evict")


def _low_node_load(plugin: profiles.Args) -> schemas.Faults:
    path, config = plugin.path, plugin.config
    for index, given in enumerate(plugin.entries("nodePools")):
        if given is None or isinstance(given, dict):
            pool = replace(plugin, args=given or {}, path=f"{path}.nodePools[{index}]")
            yield from (
                _inheriting_pool(pool, plugin.args) if plugin.schema.knows("1.8.0") else _pool(pool)
            )
            yield from _unreachable(pool)
    yield from _gaps(plugin)
    yield from _unreachable(plugin)
    yield from _normalities(plugin)
    cache = durations.go_seconds(plugin.args.get("detectorCacheTimeout") or "5m")
    interval = durations.go_seconds(config.get("deschedulingInterval") or "0")
    at_once = plugin.record("anomalyCondition").get("consecutiveAbnormalities") == 1
    if cache is not None and interval is not None and cache < interval and not at_once:
        message = (
            f"Observations of a node expire after {cache:g} s, "
            f"before the next one after {interval:g} s:"
        )
        remedy = "Set detectorCacheTimeout to at least deschedulingInterval."
        where = f"{path}.detectorCacheTimeout"
        yield schemas.warning("never_acts", f"{message} no node is ever abnormal.", remedy, where)
    if not plugin.has("highThresholds") and not plugin.has("nodePools"):
        yield schemas.warning(
            "never_acts",
            "Without highThresholds no node is ever hot.",
            path=f"{path}.highThresholds",
        )


def _normalities(plugin: profiles.Args) -> schemas.Faults:
    """Since 1.8.0 the default of one counter suppresses the other's."""
    condition = plugin.args.get("anomalyCondition")
    if not isinstance(condition, dict) or not plugin.schema.knows("1.8.0"):
        return
    if not condition.get("consecutiveAbnormalities") and not condition.get(
        "consecutiveNormalities"
    ):
        message = (
            f"Version {plugin.schema.version} has no default for it unless "
            "consecutiveAbnormalities is set."
        )
        where = f"{plugin.path}.anomalyCondition.consecutiveNormalities"
        yield schemas.Fault("required", message, "Set one of the two to 1 or more.", where)


def _pool(pool: profiles.Args) -> schemas.Faults:
    """Faults in a pool before 1.8.0, which inherits nothing (koordinator#2816)."""
    yield from _gaps(pool)
    condition = pool.args.get("anomalyCondition")
    path = f"{pool.path}.anomalyCondition"
    if condition is None:
        message = f"Version {pool.schema.version} panics if a pool has no anomalyCondition."
        remedy = "Give each pool an anomalyCondition with consecutiveAbnormalities."
        yield schemas.Fault("known_crash", message, remedy, path, "crashes")
    elif isinstance(condition, dict) and not condition.get("consecutiveAbnormalities"):
        message = "It has no default in a pool, and must be 1 or more."
        yield schemas.Fault("required", message, path=f"{path}.consecutiveAbnormalities")


def _inheriting_pool(pool: profiles.Args, above: profiles.Raw) -> schemas.Faults:
    """Since 1.8.0 a pool inherits what it does not set (``SetDefaults_LowNodeLoadNodePools``)."""
    thresholds = set(itertools.chain.from_iterable(koordinator.THRESHOLD_ORDER))
    inherited = {key: above.get(key) for key in thresholds if pool.args.get(key) is None}
    whole = replace(pool, args={**pool.args, **inherited})
    for low, high in koordinator.THRESHOLD_ORDER:
        if (low in inherited) != (high in inherited):
            other, own = (low, high) if low in inherited else (high, low)
            for fault in values.ordered(whole.args, low, high, pool.path):
                where = f"{pool.path}.{own}.{fault.path.rpartition('.')[2]}"
                message = f"{fault.message} The pool inherits {other}."
                yield replace(fault, message=message, path=where)
    if len(inherited) < len(thresholds):
        yield from _gaps(whole)


def _gaps(plugin: profiles.Args) -> schemas.Faults:
    low, high = plugin.record("lowThresholds"), plugin.record("highThresholds")
    for name in sorted(high.keys() ^ low.keys()) if high else ():
        where = "lowThresholds" if name in high else "highThresholds"
        message = f"{name} is missing in {where}: with respect to it, no node is hot or idle."
        yield schemas.warning("different_keys", message, _SAME_RESOURCES, f"{plugin.path}.{where}")


def _unreachable(plugin: profiles.Args) -> schemas.Faults:
    for key in ("highThresholds", "prodHighThresholds"):
        for name, given in plugin.record(key).items():
            percent = values.number(given)
            if (
                percent is not None
                and percent > 100
                and not plugin.args.get("useDeviationThresholds")
            ):
                message = f"No node is ever above {percent:g} %."
                yield schemas.warning(
                    "never_acts", message, "Give 100 or less.", f"{plugin.path}.{key}.{name}"
                )


_SAME_RESOURCES = "Give both maps the same resources."


def _custom_priority(plugin: profiles.Args) -> schemas.Faults:
    for index, given in enumerate(plugin.entries("evictionOrder")):
        if given is None or (isinstance(given, dict) and given.get("nodeSelector") is None):
            yield schemas.required(f"{plugin.path}.evictionOrder[{index}].nodeSelector")


def _node_taints(plugin: profiles.Args) -> schemas.Faults:
    """The plugin compares with the key of a taint, and with key=value where that has a value."""
    for name in ("excludedTaints", "includedTaints"):
        for index, given in enumerate(plugin.entries(name)):
            if not isinstance(given, str):
                continue
            key, equals, value = given.partition("=")
            if not selectors.is_key(key) or (equals and not (value and selectors.is_value(value))):
                means = "a key, or key=value"
                if ":" in given:
                    means = values.shown(given.rpartition(":")[0])
                message = f"No taint is called {values.shown(given)}, so this entry has no effect."
                remedy = f"Write {means}: an entry is for every effect."
                yield schemas.warning(
                    "never_matches", message, remedy, f"{plugin.path}.{name}[{index}]"
                )


def _no_metrics(plugin: profiles.Args) -> schemas.Faults:
    """Koordinator gives the plugin no metrics client; before 1.8.0 it drops the key."""
    if plugin.schema.knows("1.8.0") and plugin.args.get("metricsUtilization") is not None:
        message = "Koordinator has no metrics for this plugin."
        remedy = "Remove it, and use LowNodeLoad to balance by actual usage."
        yield schemas.Fault("forbidden", message, remedy, f"{plugin.path}.metricsUtilization")


def _low_node_utilization(plugin: profiles.Args) -> schemas.Faults:
    path = plugin.path
    low = plugin.record("thresholds")
    high = plugin.record("targetThresholds")
    if low and high and low.keys() != high.keys():
        message = "thresholds and targetThresholds list different resources."
        yield schemas.Fault("different_keys", message, _SAME_RESOURCES, f"{path}.targetThresholds")
    if not plugin.args.get("useDeviationThresholds"):
        yield from values.ordered(plugin.args, "thresholds", "targetThresholds", path)


def _metric_use(plugin: profiles.Args) -> schemas.Faults:
    use = plugin.record("metricsUtilization")
    where = f"{plugin.path}.metricsUtilization"
    if use.get("source") == "KubernetesMetrics":
        if use.get("metricsServer") is True:
            message = "It cannot be combined with source."
            yield schemas.Fault(
                "exclusive", message, "Remove metricsServer.", f"{where}.metricsServer"
            )
        if use.get("prometheus") is not None:
            yield schemas.Fault(
                "forbidden", "It requires source: Prometheus.", "Remove it.", f"{where}.prometheus"
            )
    if use.get("source") == "Prometheus" and not values.is_set(
        profiles.dict_at(use, "prometheus").get("query")
    ):
        yield schemas.Fault(
            "required", "source: Prometheus requires a query.", path=f"{where}.prometheus.query"
        )


def _metric_source(plugin: profiles.Args) -> schemas.Faults:
    """What fails when the plugin is built, not before."""
    source = plugin.record("metricsUtilization").get("source")
    if source == "Prometheus":
        for key in ("thresholds", "targetThresholds"):
            if plugin.record(key).keys() - {"MetricResource"}:
                message = "With source: Prometheus the only resource is MetricResource."
                remedy = "Write MetricResource: <percentage>."
                yield schemas.Fault("unknown_key", message, remedy, f"{plugin.path}.{key}")
    providers = profiles.list_at(plugin.config, "metricsProviders")
    sources = [provider.get("source") for provider in providers if isinstance(provider, dict)]
    if source in ("KubernetesMetrics", "Prometheus") and source not in sources:
        message = f"No entry of metricsProviders has source {source}: every cycle fails."
        where = f"{plugin.path}.metricsUtilization.source"
        yield schemas.warning(
            "never_acts", message, f"Add {{source: {source}}} to metricsProviders.", where
        )


def _pod_life_time(plugin: profiles.Args) -> schemas.Faults:
    """Koordinator before 1.8.0 builds a PodLifeTime that requires maxPodLifeTimeSeconds alone."""
    keys = ("maxPodLifeTimeSeconds", "states", "conditions", "exitCodes")
    older = plugin.schema.plugin_type == "object" and not plugin.schema.knows("1.8.0")
    if not any(plugin.has(key) for key in keys) and not older:
        yield schemas.Fault(
            "required", f"At least one of {', '.join(keys)} is required.", path=plugin.path
        )


def _metrics(config: profiles.Raw, parsed: tuple[profiles.Profile, ...]) -> schemas.Faults:
    if not parsed:
        yield schemas.warning(
            "never_acts", "Without a profile the descheduler does nothing.", path="profiles"
        )
    for index, provider in enumerate(profiles.list_at(config, "metricsProviders")):
        if not isinstance(provider, dict):
            continue
        path = f"metricsProviders[{index}]"
        if provider.get("source") == "Prometheus":
            yield from _prometheus(provider, f"{path}.prometheus")
        elif values.is_set(provider.get("prometheus")):
            message = "It has no effect without source: Prometheus."
            yield schemas.warning("never_read", message, "Remove it.", f"{path}.prometheus")
        collects = profiles.dict_at(config, "metricsCollector").get("enabled") is True
        if provider.get("source") == "KubernetesMetrics" and collects:
            yield schemas.Fault(
                "exclusive",
                "It cannot be combined with metricsCollector.",
                "Remove metricsCollector.",
                path,
            )


def _prometheus(provider: profiles.Raw, path: str) -> schemas.Faults:
    if provider.get("prometheus") is None:
        yield schemas.Fault("required", "source: Prometheus requires prometheus.url.", path=path)
        return
    given = profiles.dict_at(provider, "prometheus")
    url, token = given.get("url"), given.get("authToken")
    if not values.is_set(url):
        yield schemas.required(f"{path}.url")
    elif isinstance(url, str) and not _URL.fullmatch(url):
        real: schemas.Real = "refuses" if _NO_URL.search(url) else "starts"
        yield schemas.Fault(
            "malformed",
            f"{values.shown(url)} is not an http or https URL.",
            "",
            f"{path}.url",
            real,
        )
    if isinstance(token, dict):
        secret = token.get("secretReference")
        where = f"{path}.authToken.secretReference"
        if secret is None:
            yield schemas.required(where)
        for key in ("namespace", "name") if isinstance(secret, dict) else ():
            if not values.is_set(profiles.dict_at(token, "secretReference").get(key)):
                yield schemas.required(f"{where}.{key}")


_URL = re.compile(
    r"https?://(?:[\w.~-]+|\[[0-9A-Fa-f:.]+\])(?::\d+)?(?:[/?#](?:[^\s%]|%[0-9A-Fa-f]{2})*)?",
    re.ASCII,
)
_NO_URL = re.compile(
    r"[\x00-\x20\x7f]|^:|^[^A-Za-z/?#][^/?#]*:|^[\w+.-]+://[^/?#]*:[^0-9/?#]|%(?![0-9A-Fa-f]{2})",
    re.ASCII,
)
"""What ``url.Parse`` rejects; it accepts much that is no URL of a server."""

_Check = t.Callable[[profiles.Args], schemas.Faults]

_ENABLED: t.Mapping[tuple[str, str], tuple[_Check, ...]] = {
    ("object", "LowNodeLoad"): (_low_node_load,),
    ("object", "MigrationController"): (migration_controller,),
    ("object", "DefaultEvictor"): (default_evictor,),
    ("object", "LowNodeUtilization"): (_low_node_utilization, _no_metrics),
    ("object", "PodLifeTime"): (_pod_life_time,),
    ("object", "CustomPriority"): (_custom_priority,),
    ("string", "DefaultEvictor"): (sigs_default_evictor,),
    ("string", "LowNodeUtilization"): (_metric_source,),
}
"""The checks of enabled plugins, by the schema's ``plugin_type`` and the plugin's name."""

_CONFIGURED: t.Mapping[tuple[str, str], tuple[_Check, ...]] = {
    ("string", "LowNodeUtilization"): (_low_node_utilization, _metric_use),
    ("string", "PodLifeTime"): (_pod_life_time,),
    **{(kind, "RemovePodsViolatingNodeTaints"): (_node_taints,) for kind in ("object", "string")},
}
"""The checks of plugins that are enabled or configured."""
