# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Faults between values that are valid on their own: crashes, and plugins that never act."""

from __future__ import annotations

import re
import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import (
    evictors,
    koordinator,
    profiles,
    rules,
    schemas,
    values,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import selectors


def faults(config: profiles.Raw, schema: schemas.Schema) -> rules.Faults:
    """The faults that depend on several values."""
    parsed = profiles.profiles_of(config, schema)
    for key in schemas.EVICTION_LIMITS:
        if config.get(key) is not None and values.number(config[key]) == 0:
            yield rules.warning("never_acts", "With 0 no pod is evicted.", "Without it there is no limit.", key)
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


def _connection(raw: profiles.Raw, schema: schemas.Schema) -> rules.Faults:
    """What an API server answers with 406, and what ``setDefaults`` of 1.8.0 replaces."""
    given, path = raw.get("acceptContentTypes"), "clientConnection.acceptContentTypes"
    if not isinstance(given, str) or not given:
        return
    if schema.knows("1.8.0") and not raw.get("contentType"):
        message = f"Version {schema.version} replaces it unless contentType is set."
        yield rules.warning("never_read", message, "Set contentType, or remove it.", path)
    elif not {part.partition(";")[0].strip() for part in given.split(",")} & {"*/*", *koordinator.CONTENT_TYPES}:
        remedy = f"Add one of {', '.join(koordinator.CONTENT_TYPES)}."
        yield rules.Fault("not_in_list", f"An API server has no answer in {values.shown(given)}.", remedy, path)


def _leader_election(raw: profiles.Raw) -> rules.Faults:
    """``NewLeaderElector`` of client-go; the configuration's own validation lets renewDeadline equal leaseDuration."""
    if raw.get("leaderElect") is False:
        return
    # A duration of 0 means the default (``RecommendedDefaultLeaderElectionConfiguration``).
    lease, renew, retry = (
        values.seconds(raw.get(key)) or default
        for key, default in (("leaseDuration", 15.0), ("renewDeadline", 10.0), ("retryPeriod", 2.0))
    )
    if min(lease, renew, retry) < 0:
        return
    path = "leaderElection"
    if lease <= renew:
        message = f"leaseDuration ({lease:g} s) is not longer than renewDeadline ({renew:g} s)."
        real: schemas.Real = "refuses" if lease < renew else "crashes"
        yield rules.Fault("order", message, "Increase leaseDuration.", f"{path}.leaseDuration", real)
    if renew <= 1.2 * retry:
        message = f"renewDeadline ({renew:g} s) is not longer than 1.2 times retryPeriod ({retry:g} s)."
        remedy = "Increase renewDeadline, or decrease retryPeriod."
        yield rules.Fault("order", message, remedy, f"{path}.renewDeadline", "crashes")


def _names(raws: t.Sequence[t.Any]) -> rules.Faults:
    for index, raw in enumerate(raws):
        if len(raws) > 1 and (raw is None or (isinstance(raw, dict) and not raw.get("name"))):
            message = "Each of several profiles needs a name."
            yield rules.Fault("required", message, path=f"profiles[{index}].name")


def _interval(config: profiles.Raw, parsed: tuple[profiles.Profile, ...]) -> rules.Faults:
    busy = any(profile.enabled["deschedule"] or profile.enabled["balance"] for profile in parsed)
    if busy and not values.seconds(config.get("deschedulingInterval") or "0"):
        message = "Without deschedulingInterval the plugins run once after each start."
        yield rules.warning("runs_once", message, "Set it, for example to 120s.", "deschedulingInterval")


def _controllers(parsed: tuple[profiles.Profile, ...], schema: schemas.Schema) -> rules.Faults:
    """Since 1.8.0 controller names must be unique, and every MigrationController has the same name.

    Before, all of them run.
    """
    movers = [profile.path for profile in parsed if "MigrationController" in profile.plugins]
    if len(movers) > 1 and not schema.knows("1.8.0"):
        message = (
            f"{' and '.join(movers)} each have a MigrationController: each works on every job, and each can refuse it."
        )
        remedy = "Put all plugins into one profile, or let DefaultEvictor evict and filter in the others."
        yield rules.warning("several_controllers", message, remedy, f"{movers[1]}.plugins.evict")
    for path in movers[1:] if schema.knows("1.8.0") else ():
        message = f"In version {schema.version} only one profile can have MigrationController; {movers[0]} has it."
        remedy = "Put all plugins into one profile, or let DefaultEvictor evict and filter in the others."
        yield rules.Fault("known_crash", message, remedy, f"{path}.plugins.evict")


def _low_node_load(plugin: profiles.Args) -> rules.Faults:
    path, config = plugin.path, plugin.config
    for index, given in enumerate(plugin.entries("nodePools")):
        if given is None or isinstance(given, dict):
            pool = replace(plugin, args=given or {}, path=f"{path}.nodePools[{index}]")
            yield from _heir(pool, plugin.args) if plugin.schema.knows("1.8.0") else _pool(pool)
            yield from _unreachable(pool)
    yield from _gaps(plugin)
    yield from _unreachable(plugin)
    yield from _normalities(plugin)
    cache = values.seconds(plugin.args.get("detectorCacheTimeout") or "5m")
    interval = values.seconds(config.get("deschedulingInterval") or "0")
    at_once = plugin.record("anomalyCondition").get("consecutiveAbnormalities") == 1
    if cache is not None and interval is not None and cache < interval and not at_once:
        message = f"Observations of a node expire after {cache:g} s, before the next one after {interval:g} s:"
        remedy = "Set detectorCacheTimeout to at least deschedulingInterval."
        where = f"{path}.detectorCacheTimeout"
        yield rules.warning("never_acts", f"{message} no node is ever abnormal.", remedy, where)
    if not plugin.has("highThresholds") and not plugin.has("nodePools"):
        yield rules.warning("never_acts", "Without highThresholds no node is ever hot.", path=f"{path}.highThresholds")


def _normalities(plugin: profiles.Args) -> rules.Faults:
    """Since 1.8.0 the default of one counter suppresses the other's."""
    condition = plugin.args.get("anomalyCondition")
    if not isinstance(condition, dict) or not plugin.schema.knows("1.8.0"):
        return
    if not condition.get("consecutiveAbnormalities") and not condition.get("consecutiveNormalities"):
        message = f"Version {plugin.schema.version} has no default for it unless consecutiveAbnormalities is set."
        where = f"{plugin.path}.anomalyCondition.consecutiveNormalities"
        yield rules.Fault("required", message, "Set one of the two to 1 or more.", where)


def _pool(pool: profiles.Args) -> rules.Faults:
    """Before 1.8.0 a pool inherits nothing (koordinator#2816)."""
    yield from _gaps(pool)
    condition, path = pool.args.get("anomalyCondition"), f"{pool.path}.anomalyCondition"
    if condition is None:
        message = f"Version {pool.schema.version} panics if a pool has no anomalyCondition."
        remedy = "Give each pool an anomalyCondition with consecutiveAbnormalities."
        yield rules.Fault("known_crash", message, remedy, path, "crashes")
    elif isinstance(condition, dict) and not condition.get("consecutiveAbnormalities"):
        message = "It has no default in a pool, and must be 1 or more."
        yield rules.Fault("required", message, path=f"{path}.consecutiveAbnormalities")


def _heir(pool: profiles.Args, above: profiles.Raw) -> rules.Faults:
    """Since 1.8.0 a pool inherits the thresholds that it does not set (``SetDefaults_LowNodeLoadNodePools``)."""
    thresholds = {key for pair in koordinator.THRESHOLD_ORDER for key in pair}
    inherited = {key: above.get(key) for key in thresholds if pool.args.get(key) is None}
    whole = replace(pool, args={**pool.args, **inherited})
    for low, high in koordinator.THRESHOLD_ORDER:
        if (low in inherited) != (high in inherited):
            heirloom, own = (low, high) if low in inherited else (high, low)
            for fault in values.ordered(whole.args, low, high, pool.path):
                where = f"{pool.path}.{own}.{fault.path.rpartition('.')[2]}"
                message = f"{fault.message} The pool inherits {heirloom}."
                yield replace(fault, message=message, path=where)
    if len(inherited) < len(thresholds):
        yield from _gaps(whole)


def _gaps(plugin: profiles.Args) -> rules.Faults:
    low, high = plugin.record("lowThresholds"), plugin.record("highThresholds")
    for name in sorted(high.keys() ^ low.keys()) if high else ():
        where = "lowThresholds" if name in high else "highThresholds"
        message = f"{name} is missing in {where}: with respect to it, no node is hot or idle."
        yield rules.warning("different_keys", message, _SAME_RESOURCES, f"{plugin.path}.{where}")


def _unreachable(plugin: profiles.Args) -> rules.Faults:
    for key in ("highThresholds", "prodHighThresholds"):
        for name, given in plugin.record(key).items():
            percent = values.number(given)
            if percent is not None and percent > 100 and not plugin.args.get("useDeviationThresholds"):
                message = f"No node is ever above {percent:g} %."
                yield rules.warning("never_acts", message, "Give 100 or less.", f"{plugin.path}.{key}.{name}")


_SAME_RESOURCES = "Give both maps the same resources."


def _custom_priority(plugin: profiles.Args) -> rules.Faults:
    for index, given in enumerate(plugin.entries("evictionOrder")):
        if given is None or (isinstance(given, dict) and given.get("nodeSelector") is None):
            yield rules.required(f"{plugin.path}.evictionOrder[{index}].nodeSelector")


def _node_taints(plugin: profiles.Args) -> rules.Faults:
    """The plugin compares with the key of a taint, and with key=value where that has a value."""
    for name in ("excludedTaints", "includedTaints"):
        for index, given in enumerate(plugin.entries(name)):
            if not isinstance(given, str):
                continue
            key, equals, value = given.partition("=")
            if not selectors.is_key(key) or (equals and not (value and selectors.is_value(value))):
                means = values.shown(given.rpartition(":")[0]) if ":" in given else "a key, or key=value"
                message = f"No taint is called {values.shown(given)}, so this entry has no effect."
                remedy = f"Write {means}: an entry is for every effect."
                yield rules.warning("never_matches", message, remedy, f"{plugin.path}.{name}[{index}]")


def _no_metrics(plugin: profiles.Args) -> rules.Faults:
    """Koordinator gives the plugin no metrics client; before 1.8.0 it drops the key."""
    if plugin.schema.knows("1.8.0") and plugin.args.get("metricsUtilization") is not None:
        message = "Koordinator has no metrics for this plugin."
        remedy = "Remove it, and use LowNodeLoad to balance by actual usage."
        yield rules.Fault("forbidden", message, remedy, f"{plugin.path}.metricsUtilization")


def _low_node_utilization(plugin: profiles.Args) -> rules.Faults:
    path, low, high = plugin.path, plugin.record("thresholds"), plugin.record("targetThresholds")
    if low and high and low.keys() != high.keys():
        message = "thresholds and targetThresholds list different resources."
        yield rules.Fault("different_keys", message, _SAME_RESOURCES, f"{path}.targetThresholds")
    if not plugin.args.get("useDeviationThresholds"):
        yield from values.ordered(plugin.args, "thresholds", "targetThresholds", path)


def _metric_use(plugin: profiles.Args) -> rules.Faults:
    use, where = plugin.record("metricsUtilization"), f"{plugin.path}.metricsUtilization"
    if use.get("source") == "KubernetesMetrics":
        if use.get("metricsServer") is True:
            message = "It cannot be combined with source."
            yield rules.Fault("exclusive", message, "Remove metricsServer.", f"{where}.metricsServer")
        if use.get("prometheus") is not None:
            yield rules.Fault("forbidden", "It requires source: Prometheus.", "Remove it.", f"{where}.prometheus")
    if use.get("source") == "Prometheus" and not values.is_set(profiles.dict_at(use, "prometheus").get("query")):
        yield rules.Fault("required", "source: Prometheus requires a query.", path=f"{where}.prometheus.query")


def _metric_source(plugin: profiles.Args) -> rules.Faults:
    """What fails when the plugin is built, not before."""
    source = plugin.record("metricsUtilization").get("source")
    if source == "Prometheus":
        for key in ("thresholds", "targetThresholds"):
            if plugin.record(key).keys() - {"MetricResource"}:
                message = "With source: Prometheus the only resource is MetricResource."
                remedy = "Write MetricResource: <percentage>."
                yield rules.Fault("unknown_key", message, remedy, f"{plugin.path}.{key}")
    providers = profiles.list_at(plugin.config, "metricsProviders")
    sources = [provider.get("source") for provider in providers if isinstance(provider, dict)]
    if source in ("KubernetesMetrics", "Prometheus") and source not in sources:
        message = f"No entry of metricsProviders has source {source}: every cycle fails."
        where = f"{plugin.path}.metricsUtilization.source"
        yield rules.warning("never_acts", message, f"Add {{source: {source}}} to metricsProviders.", where)


def _pod_life_time(plugin: profiles.Args) -> rules.Faults:
    """Koordinator before 1.8.0 builds a PodLifeTime that requires maxPodLifeTimeSeconds alone."""
    keys = ("maxPodLifeTimeSeconds", "states", "conditions", "exitCodes")
    older = plugin.schema.plugin_type == "object" and not plugin.schema.knows("1.8.0")
    if not any(plugin.has(key) for key in keys) and not older:
        yield rules.Fault("required", f"At least one of {', '.join(keys)} is required.", path=plugin.path)


def _metrics(config: profiles.Raw, parsed: tuple[profiles.Profile, ...]) -> rules.Faults:
    if not parsed:
        yield rules.warning("never_acts", "Without a profile the descheduler does nothing.", path="profiles")
    for index, provider in enumerate(profiles.list_at(config, "metricsProviders")):
        if not isinstance(provider, dict):
            continue
        path = f"metricsProviders[{index}]"
        if provider.get("source") == "Prometheus":
            yield from _prometheus(provider, f"{path}.prometheus")
        elif values.is_set(provider.get("prometheus")):
            message = "It has no effect without source: Prometheus."
            yield rules.warning("never_read", message, "Remove it.", f"{path}.prometheus")
        collects = profiles.dict_at(config, "metricsCollector").get("enabled") is True
        if provider.get("source") == "KubernetesMetrics" and collects:
            yield rules.Fault(
                "exclusive", "It cannot be combined with metricsCollector.", "Remove metricsCollector.", path
            )


def _prometheus(provider: profiles.Raw, path: str) -> rules.Faults:
    if provider.get("prometheus") is None:
        yield rules.Fault("required", "source: Prometheus requires prometheus.url.", path=path)
        return
    given = profiles.dict_at(provider, "prometheus")
    url, token = given.get("url"), given.get("authToken")
    if not values.is_set(url):
        yield rules.required(f"{path}.url")
    elif isinstance(url, str) and not _URL.fullmatch(url):
        real: schemas.Real = "refuses" if _NO_URL.search(url) else "starts"
        yield rules.Fault("malformed", f"{values.shown(url)} is not an http or https URL.", "", f"{path}.url", real)
    if isinstance(token, dict):
        secret, where = token.get("secretReference"), f"{path}.authToken.secretReference"
        if secret is None:
            yield rules.required(where)
        for key in ("namespace", "name") if isinstance(secret, dict) else ():
            if not values.is_set(profiles.dict_at(token, "secretReference").get(key)):
                yield rules.required(f"{where}.{key}")


_URL = re.compile(r"https?://(?:[\w.~-]+|\[[0-9A-Fa-f:.]+\])(?::\d+)?(?:[/?#](?:[^\s%]|%[0-9A-Fa-f]{2})*)?", re.ASCII)
_NO_URL = re.compile(
    r"[\x00-\x20\x7f]|^:|^[^A-Za-z/?#][^/?#]*:|^[\w+.-]+://[^/?#]*:[^0-9/?#]|%(?![0-9A-Fa-f]{2})", re.ASCII
)
"""What ``url.Parse`` rejects; it accepts much that is no URL of a server."""

_Check = t.Callable[[profiles.Args], rules.Faults]

_ENABLED: t.Mapping[tuple[str, str], tuple[_Check, ...]] = {
    ("object", "LowNodeLoad"): (_low_node_load,),
    ("object", "MigrationController"): (evictors.migration_controller,),
    ("object", "DefaultEvictor"): (evictors.default_evictor,),
    ("object", "LowNodeUtilization"): (_low_node_utilization, _no_metrics),
    ("object", "PodLifeTime"): (_pod_life_time,),
    ("object", "CustomPriority"): (_custom_priority,),
    ("string", "DefaultEvictor"): (evictors.sigs_default_evictor,),
    ("string", "LowNodeUtilization"): (_metric_source,),
}
"""The checks of enabled plugins, by the schema's ``plugin_type`` and the plugin's name."""

_CONFIGURED: t.Mapping[tuple[str, str], tuple[_Check, ...]] = {
    ("string", "LowNodeUtilization"): (_low_node_utilization, _metric_use),
    ("string", "PodLifeTime"): (_pod_life_time,),
    **{(kind, "RemovePodsViolatingNodeTaints"): (_node_taints,) for kind in ("object", "string")},
}
"""The checks of plugins that are enabled or configured."""
