# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``DeschedulerConfiguration`` of koord-descheduler, read in the sources of v1.7.0 and v1.8.0.

ACK's ack-koord-descheduler takes the same document; where ACK's own pages say something else, the
differences are here too.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import classic
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler.schemas import (
    FLOAT32,
    INCLUDE_TYPO,
    INT32,
    LABEL_SELECTOR,
    NAMESPACES,
    PRIORITY_VALUE,
    UINT32,
    Field,
    Plugin,
    Schema,
    boolean,
    by_name,
    count,
    duration,
    percents,
    record,
    selector_text,
    several,
    text,
    whole,
)

VERSIONS = ("1.7.0", "1.8.0")

_LEADER_ELECTION = record(
    {
        "leaderElect": boolean("true"),
        "leaseDuration": duration("15s", "longer than renewDeadline", minimum=0, nullable=False),
        "renewDeadline": duration("10s", "longer than 1.2 times retryPeriod", minimum=0, nullable=False),
        "retryPeriod": duration("2s", minimum=0, nullable=False),
        "resourceLock": text("leases", enum=("leases",), real="crashes"),
        "resourceName": text("koord-descheduler"),
        "resourceNamespace": text("koordinator-system"),
    },
    "checked only while leaderElect is true",
)

_CONNECTION = record(
    {
        "kubeconfig": text(note="without it, the pod's own account; there is no flag for it"),
        "acceptContentTypes": text(),
        "contentType": text("application/vnd.kubernetes.protobuf"),
        "qps": Field(type="float", default="50", width=FLOAT32),
        "burst": whole("100", minimum=0, width=INT32),
    }
)

_PLUGIN_SET = record(
    {
        "enabled": several(record({"name": text(required=True)})),
        "disabled": several(
            record({"name": text(required=True, real="starts")}), '"*" clears what is enabled by default at this point'
        ),
    }
)

_PROFILE = record(
    {
        "name": text(note="needed where there are several profiles, each name once"),
        "plugins": record(dict.fromkeys(("deschedule", "balance", "evict", "filter"), _PLUGIN_SET)),
        "pluginConfig": several(
            record({"name": text(required=True, real="drops"), "args": Field(type="args")}), unique="name"
        ),
        "nodeSelector": replace(
            LABEL_SELECTOR, note="the profile's nodes; not checked at the start", malformed="starts"
        ),
    }
)

ROOT = record(
    {
        "leaderElection": _LEADER_ELECTION,
        "clientConnection": _CONNECTION,
        "enableProfiling": boolean("true"),
        "enableContentionProfiling": boolean("true", "by default only with enableProfiling"),
        "healthzBindAddress": Field(type="address", default="0.0.0.0:10251"),
        "metricsBindAddress": Field(type="address", default="0.0.0.0:10251"),
        "deschedulingInterval": duration("0s", "0 runs the plugins once", minimum=0, real="starts", nullable=False),
        "dryRun": boolean(note="stops evictions by plugins; PodMigrationJobs made by hand are still carried out"),
        "profiles": several(_PROFILE, "without one, a default profile", unique="name"),
        "nodeSelector": replace(LABEL_SELECTOR, note="the nodes that are looked at; a label selector, no text"),
        "maxNoOfPodsToEvictPerNode": count(note="without it, no limit"),
        "maxNoOfPodsToEvictPerNamespace": count(note="without it, no limit"),
        "maxNoOfPodsToEvictTotal": count(note="without it, no limit"),
    }
)

_LIMIT = "without it or 0: 1 below 4 replicas, 2 up to 10, else 10 %"

_PER_WORKLOAD = Field(type="int_or_percent", minimum=0, width=INT32, real="starts", note=_LIMIT)

_GATES = (
    *("MaxUnavailablePerWorkload", "MaxMigratingPerWorkload", "MaxMigratingPerNode", "MaxMigratingPerNamespace"),
    *("MaxMigratingGlobally", "ExpectedReplicas", "PVC", "BarePods", "LocalStorage", "SystemCritical"),
    *("PriorityThreshold", "LabelSelector", "Namespaces", "NodeFit"),
)

_LIMITER = record(
    {
        "duration": duration("", "0s switches the limiter off", minimum=0, real="starts", nullable=False),
        "maxMigrating": Field(
            type="int_or_percent",
            minimum=0,
            width=INT32,
            real="starts",
            malformed="starts",
            note="without it, maxMigratingPerWorkload; for namespace a number",
        ),
        "burst": whole("1", "0 means 1", minimum=0, real="starts"),
    }
)

_DELETE_OPTIONS = record(
    {
        "apiVersion": text(),
        "kind": text(),
        "gracePeriodSeconds": whole(),
        "preconditions": record({"uid": text(), "resourceVersion": text()}),
        "orphanDependents": boolean(""),
        "propagationPolicy": text(enum=("Orphan", "Background", "Foreground"), real="starts"),
        "dryRun": several(text(enum=("All",), real="starts")),
    },
    "for each eviction",
)

MIGRATION_CONTROLLER = Plugin(
    points=("evict", "filter"),
    does="moves pods by PodMigrationJobs, with limits for each node, namespace and workload",
    args=record(
        {
            "dryRun": boolean(note="jobs made by hand are still carried out"),
            "maxConcurrentReconciles": whole("1", minimum=1, width=INT32),
            "evictFailedBarePods": boolean(),
            "evictAllBarePods": boolean(),
            "evictLocalStoragePods": boolean(note="pods with hostPath or emptyDir volumes"),
            "evictSystemCriticalPods": boolean(note="true also switches priorityThreshold off"),
            "ignorePvcPods": boolean(),
            "priorityThreshold": record(
                {"value": PRIORITY_VALUE, "name": text(note="an existing PriorityClass; the filter reads value alone")}
            ),
            "labelSelector": LABEL_SELECTOR,
            "namespaces": NAMESPACES,
            "nodeFit": boolean(note="only for pods that a plugin evicts"),
            "nodeSelector": selector_text("only with nodeFit"),
            "maxMigratingGlobally": count(note="without it or 0, no limit", width=INT32),
            "maxMigratingPerNode": count("2", "0: no limit", width=INT32),
            "maxMigratingPerNamespace": count(note="without it or 0, no limit", width=INT32),
            "maxMigratingPerWorkload": _PER_WORKLOAD,
            "maxUnavailablePerWorkload": _PER_WORKLOAD,
            "skipCheckExpectedReplicas": boolean(note="true admits single replicas"),
            "objectLimiters": by_name(
                _LIMITER,
                "evictions in a time; to switch it off, workload with a duration of 0s",
                default="{workload: {duration: 5m}}",
                keys=("workload", "namespace"),
                real="drops",
            ),
            "defaultJobMode": text("ReservationFirst", enum=("ReservationFirst", "EvictDirectly")),
            "defaultJobTTL": duration("5m", "0: no timeout; only for jobs that the controller makes", minimum=0),
            "schedulerNames": several(text(), "schedulers that know reservations", default="[koord-scheduler]"),
            "evictQPS": Field(type="float_or_string", default="10", above=0),
            "evictBurst": whole("1", minimum=1, width=INT32),
            "evictionPolicy": text(
                "Eviction",
                enum=("Eviction", "Delete", "SoftEviction"),
                alike={"Soft": "SoftEviction"},
            ),
            "defaultDeleteOptions": _DELETE_OPTIONS,
            "arbitrationArgs": record(
                {
                    "enabled": boolean("true", "read but without effect"),
                    "interval": duration("500ms", minimum=0, real="starts"),
                },
                default="{enabled: true, interval: 500ms}",
            ),
            "skipEvictionGates": several(text(enum=_GATES), since="1.8.0"),
        }
    ),
)

_THRESHOLDS = {
    "useDeviationThresholds": boolean(note="thresholds are distances from the mean"),
    "highThresholds": percents("nodes above are hot", maximum=None),
    "lowThresholds": percents("nodes below take pods; the same resources as highThresholds", maximum=None),
    "prodHighThresholds": percents("of production pods, at most highThresholds", maximum=None),
    "prodLowThresholds": percents("of production pods, at most prodHighThresholds", maximum=None),
    "resourceWeights": by_name(whole("1", zero_is_default=True), "0 and less mean 1", default="{cpu: 1, memory: 1}"),
    "anomalyCondition": record(
        {
            "timeout": duration("1m", "the default holds without anomalyCondition alone", minimum=0, real="starts"),
            "consecutiveAbnormalities": count(
                "5", "acts when the count is above it; 1 acts at once", width=UINT32, zero_is_default=True
            ),
            "consecutiveNormalities": count("3", width=UINT32, zero_is_default=True),
        }
    ),
}

_ORDER = (
    ("lowThresholds", "highThresholds"),
    ("prodHighThresholds", "highThresholds"),
    ("prodLowThresholds", "prodHighThresholds"),
)

_EVICTABLE = replace(NAMESPACES, alike=INCLUDE_TYPO)

LOW_NODE_LOAD = Plugin(
    points=("balance",),
    does="moves pods from nodes of high real use to nodes of low use; needs NodeMetrics of koordlet",
    checked="enabled",
    args=record(
        {
            "paused": boolean(),
            "dryRun": boolean(),
            "numberOfNodes": count("0", "acts only when more nodes than this are underused", width=INT32),
            "nodeMetricExpirationSeconds": whole("180", minimum=1),
            "evictableNamespaces": _EVICTABLE,
            "nodeSelector": LABEL_SELECTOR,
            "podSelectors": several(record({"name": text(), "selector": LABEL_SELECTOR}), "one of them is enough"),
            "nodeFit": boolean("true"),
            **_THRESHOLDS,
            "detectorCacheTimeout": duration(
                "5m", "at least deschedulingInterval, else nothing is ever abnormal", minimum=0, real="starts"
            ),
            "nodePools": several(
                record({"name": text(), "nodeSelector": LABEL_SELECTOR, **_THRESHOLDS}, le=_ORDER),
                "before 1.8.0 each needs an anomalyCondition with consecutiveAbnormalities",
            ),
        },
        le=_ORDER,
    ),
)

DEFAULT_EVICTOR = Plugin(
    points=("evict", "filter"),
    does="evicts by the Eviction API, without limits for workloads",
    strict=False,
    checked="enabled",
    args=record(
        {
            "nodeSelector": selector_text("only with nodeFit"),
            "evictLocalStoragePods": boolean(),
            "evictSystemCriticalPods": boolean(note="true also switches priorityThreshold off"),
            "ignorePvcPods": boolean(),
            "evictFailedBarePods": boolean(),
            "labelSelector": LABEL_SELECTOR,
            "priorityThreshold": record(
                {"value": PRIORITY_VALUE, "name": text(note="an existing PriorityClass")},
                exclusive=(("value", "name"),),
                real="starts",
            ),
            "nodeFit": boolean(),
        }
    ),
)

_SHARES = by_name(Field(type="float", minimum=0, maximum=100, real="starts"))

_ORDER_ITEM = record(
    {
        "name": text(required=True),
        "nodeSelector": replace(LABEL_SELECTOR, note="needed; empty: all nodes", malformed="starts"),
        "keepThreshold": _SHARES,
        "rejectThreshold": _SHARES,
    }
)

CUSTOM_PRIORITY = Plugin(
    points=("balance",),
    does="moves pods from nodes of low priority to nodes of high priority",
    checked="enabled",
    since="1.8.0",
    args=record(
        {
            "paused": boolean(),
            "dryRun": boolean(),
            "evictableNamespaces": replace(_EVICTABLE, real="starts"),
            "nodeSelector": replace(LABEL_SELECTOR, malformed="starts"),
            "podSelectors": several(record({"name": text(required=True, real="starts"), "selector": LABEL_SELECTOR})),
            "nodeFit": boolean("true"),
            "evictionOrder": several(_ORDER_ITEM, "two or more", required=True, minimum=2, unique="name"),
            "mode": text("BestEffort", enum=("BestEffort", "DrainNode"), real="starts"),
            "autoCordon": boolean(),
        }
    ),
)


def schema(version: str = "1.7.0", *, ack: bool = False) -> Schema:
    """The schema of a version of ``VERSIONS``; ``ack`` is ACK's build of it.

    Of the plugins from sigs.k8s.io unknown keys are dropped, and both extension points are taken.
    """
    ported = classic.V028 if version == "1.7.0" else classic.V036
    plugins: dict[str, Plugin] = {
        "MigrationController": MIGRATION_CONTROLLER,
        "LowNodeLoad": LOW_NODE_LOAD,
        "DefaultEvictor": DEFAULT_EVICTOR,
        "CustomPriority": CUSTOM_PRIORITY,
        **{n: replace(p, strict=False, checked="enabled", stray="starts") for n, p in ported.items()},
    }
    return Schema(
        name="ack" if ack else "koordinator",
        version=version,
        api_version="descheduler/v1alpha2",
        kind="DeschedulerConfiguration",
        root=ROOT,
        strict=True,
        points={
            "deschedule": (),
            "balance": (),
            "evict": ("MigrationController",),
            "filter": ("MigrationController",),
        },
        plugins=plugins,
        plugin_type="object",
        alike=ALIKE,
    )


ALIKE: t.Mapping[str, str] = {
    "RemoveFailedPod": "RemoveFailedPods",
    "MirgrationController": "MigrationController",
}
"""Names on ACK's pages that no binary knows."""
