# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What is wrong between several values, though each of them is right: crashes, and plugins that never act."""

from __future__ import annotations

import re
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import (
    profiles,
    rules,
    schemas,
    sigs,
    values,
)


def faults(config: profiles.Raw, schema: schemas.Schema) -> t.Iterator[rules.Fault]:
    """Everything that only shows when values are seen together."""
    parsed = profiles.profiles_of(config, schema)
    if schema.plugin_type == "object":
        yield from _leader_election(_dict(config, "leaderElection"))
        yield from _names(config)
        yield from _interval(config, parsed)
        yield from _controllers(parsed, schema)
    else:
        yield from _metrics(config, parsed)
    for profile in parsed:
        for name in dict.fromkeys((*profile.plugins, *profile.paths)):
            kind = (schema.plugin_type, name)
            checks = _CHECKS.get(kind, ()) if name in profile.plugins else ()
            for check in (*checks, *_ALWAYS.get(kind, ())) if name in schema.plugins else ():
                yield from check(config, profile.args.get(name, {}), profile.args_path(name), schema)


def _leader_election(raw: profiles.Raw) -> t.Iterator[rules.Fault]:
    """``NewLeaderElector`` of client-go; the configuration's own check lets renewDeadline equal leaseDuration."""
    if raw.get("leaderElect") is False:
        return
    lease, renew, retry = (
        values.seconds(raw.get(key) or default) or _GO_DEFAULTS[key]
        for key, default in (("leaseDuration", "15s"), ("renewDeadline", "10s"), ("retryPeriod", "2s"))
    )
    if min(lease, renew, retry) < 0:
        return
    if lease <= renew:
        yield rules.Fault(
            "order",
            f"leaseDuration ({lease:g} s) is not longer than renewDeadline ({renew:g} s).",
            "Give leaseDuration more.",
            "leaderElection.leaseDuration",
            "refuses" if lease < renew else "crashes",
        )
    if renew <= 1.2 * retry:
        yield rules.Fault(
            "order",
            f"renewDeadline ({renew:g} s) is not longer than 1.2 times retryPeriod ({retry:g} s).",
            "Give renewDeadline more, or retryPeriod less.",
            "leaderElection.renewDeadline",
            "crashes",
        )


_GO_DEFAULTS = {"leaseDuration": 15.0, "renewDeadline": 10.0, "retryPeriod": 2.0}
"""Seconds; a duration of 0 is as good as none (``RecommendedDefaultLeaderElectionConfiguration``)."""


def _names(config: profiles.Raw) -> t.Iterator[rules.Fault]:
    raws = _list(config, "profiles")
    for index, raw in enumerate(raws):
        if len(raws) > 1 and (raw is None or (isinstance(raw, dict) and not raw.get("name"))):
            yield rules.Fault("required", "Of several profiles each needs a name.", path=f"profiles[{index}].name")


def _interval(config: profiles.Raw, parsed: tuple[profiles.Profile, ...]) -> t.Iterator[rules.Fault]:
    busy = any(profile.enabled["deschedule"] or profile.enabled["balance"] for profile in parsed)
    if busy and not values.seconds(config.get("deschedulingInterval") or "0"):
        message = "Without deschedulingInterval the plugins run once after each start."
        yield rules.warning("runs_once", message, "Give it, for example 120s.", "deschedulingInterval")


def _low_node_load(
    config: profiles.Raw, args: profiles.Raw, path: str, schema: schemas.Schema
) -> t.Iterator[rules.Fault]:
    for index, given in enumerate(_list(args, "nodePools")):
        pool = {} if given is None else given
        if isinstance(pool, dict):
            yield from _pool(pool, f"{path}.nodePools[{index}]", schema)
            yield from _gaps(pool, f"{path}.nodePools[{index}]")
    yield from _gaps(args, path)
    yield from _normalities(args, path, schema)
    cache = values.seconds(args.get("detectorCacheTimeout") or "5m")
    interval = values.seconds(config.get("deschedulingInterval") or "0")
    at_once = _dict(args, "anomalyCondition").get("consecutiveAbnormalities") == 1
    if cache is not None and interval is not None and cache < interval and not at_once:
        message = (
            f"What was seen of a node is forgotten after {cache:g} s, before the next look after {interval:g} s: "
            "no node is ever found abnormal."
        )
        remedy = "Give detectorCacheTimeout at least deschedulingInterval."
        yield rules.warning("never_acts", message, remedy, f"{path}.detectorCacheTimeout")
    if not values.is_set(args.get("highThresholds")) and not values.is_set(args.get("nodePools")):
        yield rules.warning("never_acts", "Without highThresholds no node is ever hot.", path=f"{path}.highThresholds")


def _normalities(args: profiles.Raw, path: str, schema: schemas.Schema) -> t.Iterator[rules.Fault]:
    """Since 1.8.0 the default of one counter keeps the other one from its own."""
    condition = args.get("anomalyCondition")
    if not isinstance(condition, dict) or not schema.knows("1.8.0"):
        return
    if not condition.get("consecutiveAbnormalities") and not condition.get("consecutiveNormalities"):
        message = f"Version {schema.version} has no default for it where consecutiveAbnormalities is not given either."
        where = f"{path}.anomalyCondition.consecutiveNormalities"
        yield rules.Fault("required", message, "Give one of the two, 1 or more.", where)


def _pool(pool: profiles.Raw, path: str, schema: schemas.Schema) -> t.Iterator[rules.Fault]:
    """Before 1.8.0 a pool inherits nothing (koordinator#2816)."""
    if schema.knows("1.8.0"):
        return
    condition = pool.get("anomalyCondition")
    if condition is None:
        message = f"A pool without anomalyCondition ends version {schema.version} with a panic."
        remedy = "Give each pool its anomalyCondition with consecutiveAbnormalities."
        yield rules.Fault("known_crash", message, remedy, f"{path}.anomalyCondition", "crashes")
    elif isinstance(condition, dict) and not condition.get("consecutiveAbnormalities"):
        where = f"{path}.anomalyCondition.consecutiveAbnormalities"
        yield rules.Fault("required", "A pool has no default for it; it has to be 1 or more.", path=where)


def _gaps(args: profiles.Raw, path: str) -> t.Iterator[rules.Fault]:
    low, high = _dict(args, "lowThresholds"), _dict(args, "highThresholds")
    for name in sorted(high.keys() ^ low.keys()) if high else ():
        where = "lowThresholds" if name in high else "highThresholds"
        message = f"{name} is missing in {where}: for it every node counts as neither hot nor idle."
        yield rules.warning("different_keys", message, "Give both maps the same resources.", f"{path}.{where}")
    for key in ("highThresholds", "prodHighThresholds"):
        for name, given in _dict(args, key).items():
            percent = values.number(given)
            if percent is not None and percent > 100 and not args.get("useDeviationThresholds"):
                where = f"{path}.{key}.{name}"
                yield rules.warning("never_acts", f"No node is ever above {percent:g} %.", "Give 100 or less.", where)


def _custom_priority(
    config: profiles.Raw, args: profiles.Raw, path: str, schema: schemas.Schema
) -> t.Iterator[rules.Fault]:
    del config, schema
    for index, given in enumerate(_list(args, "evictionOrder")):
        if given is None or (isinstance(given, dict) and given.get("nodeSelector") is None):
            yield rules.Fault(
                "required", "nodeSelector has to be given.", path=f"{path}.evictionOrder[{index}].nodeSelector"
            )


def _no_metrics(config: profiles.Raw, args: profiles.Raw, path: str, schema: schemas.Schema) -> t.Iterator[rules.Fault]:
    """Koordinator hands the plugin no client for metrics; before 1.8.0 it drops the key."""
    del config
    if schema.knows("1.8.0") and args.get("metricsUtilization") is not None:
        message = "Koordinator has no metrics for this plugin; LowNodeLoad goes by real use."
        yield rules.Fault("forbidden", message, "Remove it.", f"{path}.metricsUtilization")


def _koord_life_time(
    config: profiles.Raw, args: profiles.Raw, path: str, schema: schemas.Schema
) -> t.Iterator[rules.Fault]:
    if schema.knows("1.8.0"):
        yield from _pod_life_time(config, args, path, schema)


def _controllers(parsed: tuple[profiles.Profile, ...], schema: schemas.Schema) -> t.Iterator[rules.Fault]:
    """Since 1.8.0 a name is taken by one controller alone, and every MigrationController has the same."""
    movers = [profile.path for profile in parsed if "MigrationController" in profile.plugins]
    for path in movers[1:] if schema.knows("1.8.0") else ():
        message = f"In version {schema.version} only one profile can have MigrationController; {movers[0]} has it."
        remedy = "Put all plugins into one profile, or let DefaultEvictor evict and filter in the others."
        yield rules.Fault("known_crash", message, remedy, f"{path}.plugins.evict")


def _migration_controller(
    config: profiles.Raw, args: profiles.Raw, path: str, schema: schemas.Schema
) -> t.Iterator[rules.Fault]:
    del config
    skipped = _list(args, "skipEvictionGates") if schema.knows("1.8.0") else []
    if not args.get("skipCheckExpectedReplicas") and "ExpectedReplicas" not in skipped:
        for key in ("maxMigratingPerWorkload", "maxUnavailablePerWorkload"):
            yield from _refused(args.get(key), f"{path}.{key}")
    limiter = _dict(_dict(args, "objectLimiters"), "namespace").get("maxMigrating")
    if isinstance(limiter, str):
        where = f"{path}.objectLimiters.namespace.maxMigrating"
        yield rules.Fault("wrong_type", "For a namespace a percentage is read as 0.", "Give a number.", where, "starts")
    yield from _threshold(args, path)
    threshold = _dict(args, "priorityThreshold")
    if values.is_set(threshold.get("name")):
        message = "Only priorityThreshold.value keeps pods; the name is looked up and then not used."
        yield rules.warning("never_read", message, "Give value instead.", f"{path}.priorityThreshold.name")
    yield from _needs_node_fit(args, path)


def _refused(limit: t.Any, path: str) -> t.Iterator[rules.Fault]:
    """``expectedReplicas``: a workload whose replicas equal the limit that holds for it is refused."""
    if limit == "100%":
        sizes = "of every size"
    elif isinstance(limit, int) and not isinstance(limit, bool) and limit > 0:
        sizes = "with 1 replica" if limit == 1 else f"with 1 or {limit} replicas"
    else:
        return
    message = f"Pods of workloads {sizes} are never moved: the whole workload would be away at once."
    yield rules.warning(
        "refused_workloads", message, "Say skipCheckExpectedReplicas: true to move them all the same.", path
    )


def _threshold(args: profiles.Raw, path: str) -> t.Iterator[rules.Fault]:
    yield from _priority(args, path)
    if args.get("evictSystemCriticalPods") is True and values.is_set(args.get("priorityThreshold")):
        message = "evictSystemCriticalPods switches priorityThreshold off."
        yield rules.warning("never_read", message, "Remove one of them.", f"{path}.priorityThreshold")


def _priority(args: profiles.Raw, path: str) -> t.Iterator[rules.Fault]:
    """``GetPriorityValueFromPriorityThreshold``; koord-descheduler asks it unless the threshold is switched off."""
    off = args.get("evictSystemCriticalPods") is True
    threshold = _dict(args, "priorityThreshold")
    value, name = threshold.get("value"), threshold.get("name")
    where, remedy = f"{path}.priorityThreshold", f"Give {schemas.HIGHEST_PRIORITY} or less."
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value > schemas.HIGHEST_PRIORITY:
        yield rules.Fault(
            "out_of_range", f"{value} is too large.", remedy, f"{where}.value", "starts" if off else "refuses"
        )
    elif value is None and name == "system-node-critical" and not off:
        yield rules.Fault("out_of_range", f"The priority of {name} is too large.", remedy, f"{where}.name")


def _needs_node_fit(args: profiles.Raw, path: str) -> t.Iterator[rules.Fault]:
    if values.is_set(args.get("nodeSelector")) and not args.get("nodeFit"):
        yield rules.warning(
            "never_read", "nodeSelector is used with nodeFit alone.", "Set nodeFit.", f"{path}.nodeSelector"
        )


def _default_evictor(
    config: profiles.Raw, args: profiles.Raw, path: str, schema: schemas.Schema
) -> t.Iterator[rules.Fault]:
    del config, schema
    yield from _threshold(args, path)
    yield from _needs_node_fit(args, path)


def _sigs_default_evictor(
    config: profiles.Raw, args: profiles.Raw, path: str, schema: schemas.Schema
) -> t.Iterator[rules.Fault]:
    del config
    yield from _needs_node_fit(args, path)
    yield from _priority({"priorityThreshold": args.get("priorityThreshold")}, path)
    protections = _dict(args, "podProtections")
    lists = [key for key in ("defaultDisabled", "extraEnabled") if values.is_set(protections.get(key))]
    old = [key for key in sigs.OLD_FLAGS if args.get(key) is True]
    if lists and old:
        message = f"{', '.join(old)} cannot be used together with podProtections.{lists[0]}."
        yield rules.Fault("exclusive", message, f"Use {sigs.OLD_FLAGS[old[0]]}.", f"{path}.{old[0]}")
    yield from _storage_classes(protections, f"{path}.podProtections")
    if "PodsWithoutPDB" in _list(protections, "extraEnabled") or args.get("ignorePodsWithoutPDB") is True:
        message = f"In version {schema.version} this keeps every pod: the budgets are never looked at (#1882)."
        yield rules.warning("never_acts", message, "Leave it out.", f"{path}.podProtections.extraEnabled")


def _storage_classes(protections: profiles.Raw, path: str) -> t.Iterator[rules.Fault]:
    classes = _list(_dict(_dict(protections, "config"), "PodsWithPVC"), "protectedStorageClasses")
    real: schemas.Real = "refuses" if "PodsWithPVC" in _list(protections, "extraEnabled") else "starts"
    for index, given in enumerate(classes):
        if given is None or (isinstance(given, dict) and not values.is_set(given.get("name"))):
            where = f"{path}.config.PodsWithPVC.protectedStorageClasses[{index}].name"
            yield rules.Fault("required", "name has to be given.", "", where, real)


def _low_node_utilization(
    config: profiles.Raw, args: profiles.Raw, path: str, schema: schemas.Schema
) -> t.Iterator[rules.Fault]:
    del config, schema
    low, high = _dict(args, "thresholds"), _dict(args, "targetThresholds")
    if low and high and low.keys() != high.keys():
        message = "thresholds and targetThresholds name different resources."
        yield rules.Fault("different_keys", message, "Give both maps the same resources.", f"{path}.targetThresholds")
    for name in sorted(low.keys() & high.keys()):
        one, other = values.number(low[name]), values.number(high[name])
        if one is not None and other is not None and one > other and not args.get("useDeviationThresholds"):
            message = f"thresholds of {name} is {one:g}, targetThresholds is {other:g}."
            yield rules.Fault(
                "order", message, "Keep thresholds at or below targetThresholds.", f"{path}.thresholds.{name}"
            )


def _metric_use(config: profiles.Raw, args: profiles.Raw, path: str, schema: schemas.Schema) -> t.Iterator[rules.Fault]:
    del config, schema
    use, where = _dict(args, "metricsUtilization"), f"{path}.metricsUtilization"
    source = use.get("source")
    if source == "KubernetesMetrics":
        if use.get("metricsServer") is True:
            yield rules.Fault(
                "exclusive", "Not together with source.", "Remove metricsServer.", f"{where}.metricsServer"
            )
        if use.get("prometheus") is not None:
            yield rules.Fault("forbidden", "Only with source: Prometheus.", "Remove it.", f"{where}.prometheus")
    if source == "Prometheus" and not values.is_set(_dict(use, "prometheus").get("query")):
        yield rules.Fault("required", "source: Prometheus needs a query.", path=f"{where}.prometheus.query")


def _metric_source(
    config: profiles.Raw, args: profiles.Raw, path: str, schema: schemas.Schema
) -> t.Iterator[rules.Fault]:
    """What shows when the plugin is built, not before."""
    del schema
    source = _dict(args, "metricsUtilization").get("source")
    if source == "Prometheus":
        for key in ("thresholds", "targetThresholds"):
            if _dict(args, key).keys() - {"MetricResource"}:
                message = "With source: Prometheus the one resource is called MetricResource."
                yield rules.Fault("unknown_key", message, "Write MetricResource: <percentage>.", f"{path}.{key}")
    sources = [p.get("source") for p in _list(config, "metricsProviders") if isinstance(p, dict)]
    if source in ("KubernetesMetrics", "Prometheus") and source not in sources:
        message = f"No entry of metricsProviders has source {source}: every cycle fails."
        where = f"{path}.metricsUtilization.source"
        yield rules.warning("never_acts", message, f"Add {{source: {source}}} to metricsProviders.", where)


def _pod_life_time(
    config: profiles.Raw, args: profiles.Raw, path: str, schema: schemas.Schema
) -> t.Iterator[rules.Fault]:
    del config, schema
    keys = ("maxPodLifeTimeSeconds", "states", "conditions", "exitCodes")
    if not any(values.is_set(args.get(key)) for key in keys):
        yield rules.Fault("required", f"At least one of {', '.join(keys)} has to be given.", path=path)


def _metrics(config: profiles.Raw, parsed: tuple[profiles.Profile, ...]) -> t.Iterator[rules.Fault]:
    if not parsed:
        yield rules.warning("never_acts", "Without a profile nothing is done.", path="profiles")
    for index, provider in enumerate(_list(config, "metricsProviders")):
        if not isinstance(provider, dict):
            continue
        path = f"metricsProviders[{index}]"
        if provider.get("source") == "Prometheus":
            yield from _prometheus(provider, f"{path}.prometheus")
        elif values.is_set(provider.get("prometheus")):
            yield rules.warning("never_read", "Read with source: Prometheus alone.", "Remove it.", f"{path}.prometheus")
        if provider.get("source") == "KubernetesMetrics" and _dict(config, "metricsCollector").get("enabled") is True:
            yield rules.Fault("exclusive", "Not together with metricsCollector.", "Remove metricsCollector.", path)


def _prometheus(provider: profiles.Raw, path: str) -> t.Iterator[rules.Fault]:
    if provider.get("prometheus") is None:
        yield rules.Fault("required", "source: Prometheus needs prometheus.url.", path=path)
        return
    given = _dict(provider, "prometheus")
    url, token = given.get("url"), given.get("authToken")
    if not values.is_set(url):
        yield rules.Fault("required", "url has to be given.", path=f"{path}.url")
    elif isinstance(url, str) and not _URL.fullmatch(url):
        real: schemas.Real = "refuses" if _NO_URL.search(url) else "starts"
        yield rules.Fault("malformed", f"{url!r} is no http or https URL.", "", f"{path}.url", real)
    if isinstance(token, dict):
        secret, where = token.get("secretReference"), f"{path}.authToken.secretReference"
        if secret is None:
            yield rules.Fault("required", "secretReference has to be given.", path=where)
        for key in ("namespace", "name") if isinstance(secret, dict) else ():
            if not values.is_set(_dict(token, "secretReference").get(key)):
                yield rules.Fault("required", f"{key} has to be given.", path=f"{where}.{key}")


_URL = re.compile(r"https?://(?:[\w.~-]+|\[[0-9A-Fa-f:.]+\])(?::\d+)?(?:[/?#](?:[^\s%]|%[0-9A-Fa-f]{2})*)?", re.ASCII)
_NO_URL = re.compile(
    r"[\x00-\x20\x7f]|^:|^[^A-Za-z/?#][^/?#]*:|^[\w+.-]+://[^/?#]*:[^0-9/?#]|%(?![0-9A-Fa-f]{2})", re.ASCII
)
"""What ``url.Parse`` cannot read; it reads much that leads nowhere."""


def _dict(raw: profiles.Raw, key: str) -> dict[str, t.Any]:
    """The object under the key; empty where there is none, or something else."""
    found = raw.get(key)
    return found if isinstance(found, dict) else {}


def _list(raw: profiles.Raw, key: str) -> list[t.Any]:
    """The list under the key; empty where there is none, or something else."""
    found = raw.get(key)
    return found if isinstance(found, list) else []


Check = t.Callable[[profiles.Raw, profiles.Raw, str, schemas.Schema], t.Iterator[rules.Fault]]

Checks = t.Mapping[tuple[str, str], tuple[Check, ...]]

_CHECKS: Checks = {
    ("object", "LowNodeLoad"): (_low_node_load,),
    ("object", "MigrationController"): (_migration_controller,),
    ("object", "DefaultEvictor"): (_default_evictor,),
    ("object", "LowNodeUtilization"): (_low_node_utilization, _no_metrics),
    ("object", "PodLifeTime"): (_koord_life_time,),
    ("object", "CustomPriority"): (_custom_priority,),
    ("string", "DefaultEvictor"): (_sigs_default_evictor,),
    ("string", "LowNodeUtilization"): (_metric_source,),
}
"""Of plugins that are enabled."""

_ALWAYS: Checks = {
    ("string", "LowNodeUtilization"): (_low_node_utilization, _metric_use),
    ("string", "PodLifeTime"): (_pod_life_time,),
}
"""Of plugins that are configured."""
