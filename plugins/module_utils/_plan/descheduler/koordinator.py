# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``DeschedulerConfiguration`` of koord-descheduler, read in the sources of v1.7.0 and v1.8.0.

ACK's ack-koord-descheduler takes the same document; where ACK's own pages say something else, the
differences are here too.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import classic, schemas

VERSIONS = ("1.7.0", "1.8.0")

_LEADER_ELECTION = schemas.record(
    {
        "leaderElect": schemas.boolean("true"),
        "leaseDuration": schemas.duration("15s", "longer than renewDeadline", minimum=0, nullable=False),
        "renewDeadline": schemas.duration("10s", "longer than 1.2 times retryPeriod", minimum=0, nullable=False),
        "retryPeriod": schemas.duration("2s", minimum=0, nullable=False),
        "resourceLock": schemas.text("leases", enum=("leases",), real="crashes"),
        "resourceName": schemas.text("koord-descheduler"),
        "resourceNamespace": schemas.text("koordinator-system"),
    },
    "checked only while leaderElect is true",
)

_CONNECTION = schemas.record(
    {
        "kubeconfig": schemas.text(note="without it, the pod's own account; there is no flag for it"),
        "acceptContentTypes": schemas.text(),
        "contentType": schemas.text("application/vnd.kubernetes.protobuf"),
        "qps": schemas.Field(type="float", default="50", width=schemas.FLOAT32),
        "burst": schemas.whole("100", minimum=0, width=schemas.INT32),
    }
)

_PLUGIN_SET = schemas.record(
    {
        "enabled": schemas.several(schemas.record({"name": schemas.text(required=True)})),
        "disabled": schemas.several(
            schemas.record({"name": schemas.text(required=True, real="starts")}),
            '"*" clears what is enabled by default at this point',
        ),
    }
)

_PROFILE = schemas.record(
    {
        "name": schemas.text(note="needed where there are several profiles, each name once"),
        "plugins": schemas.record(dict.fromkeys(("deschedule", "balance", "evict", "filter"), _PLUGIN_SET)),
        "pluginConfig": schemas.several(
            schemas.record({"name": schemas.text(required=True, real="drops"), "args": schemas.Field(type="args")}),
            unique="name",
        ),
        "nodeSelector": replace(
            schemas.LABEL_SELECTOR, note="the profile's nodes; not checked at the start", malformed="starts"
        ),
    }
)

ROOT = schemas.record(
    {
        "leaderElection": _LEADER_ELECTION,
        "clientConnection": _CONNECTION,
        "enableProfiling": schemas.boolean("true"),
        "enableContentionProfiling": schemas.boolean("true", "by default only with enableProfiling"),
        "healthzBindAddress": schemas.Field(type="address", default="0.0.0.0:10251"),
        "metricsBindAddress": schemas.Field(type="address", default="0.0.0.0:10251"),
        "deschedulingInterval": schemas.duration(
            "0s", "0 runs the plugins once", minimum=0, real="starts", nullable=False
        ),
        "dryRun": schemas.boolean(
            note="stops evictions by plugins; PodMigrationJobs made by hand are still carried out"
        ),
        "profiles": schemas.several(_PROFILE, "without one, a default profile", unique="name"),
        "nodeSelector": replace(schemas.LABEL_SELECTOR, note="the nodes that are looked at; a label selector, no text"),
        "maxNoOfPodsToEvictPerNode": schemas.count(note="without it, no limit"),
        "maxNoOfPodsToEvictPerNamespace": schemas.count(note="without it, no limit"),
        "maxNoOfPodsToEvictTotal": schemas.count(note="without it, no limit"),
    }
)

_LIMIT = "without it or 0: 1 below 4 replicas, 2 up to 10, else 10 %"

_PER_WORKLOAD = schemas.Field(type="int_or_percent", minimum=0, width=schemas.INT32, real="starts", note=_LIMIT)

_GATES = (
    *("MaxUnavailablePerWorkload", "MaxMigratingPerWorkload", "MaxMigratingPerNode", "MaxMigratingPerNamespace"),
    *("MaxMigratingGlobally", "ExpectedReplicas", "PVC", "BarePods", "LocalStorage", "SystemCritical"),
    *("PriorityThreshold", "LabelSelector", "Namespaces", "NodeFit"),
)

_LIMITER = schemas.record(
    {
        "duration": schemas.duration("", "0s switches the limiter off", minimum=0, real="starts", nullable=False),
        "maxMigrating": schemas.Field(
            type="int_or_percent",
            minimum=0,
            width=schemas.INT32,
            real="starts",
            malformed="starts",
            note="without it, maxMigratingPerWorkload; for namespace a number",
        ),
        "burst": schemas.whole("1", "0 means 1", minimum=0, real="starts"),
    }
)

_DELETE_OPTIONS = schemas.record(
    {
        "apiVersion": schemas.text(),
        "kind": schemas.text(),
        "gracePeriodSeconds": schemas.whole(),
        "preconditions": schemas.record({"uid": schemas.text(), "resourceVersion": schemas.text()}),
        "orphanDependents": schemas.boolean(""),
        "propagationPolicy": schemas.text(enum=("Orphan", "Background", "Foreground"), real="starts"),
        "dryRun": schemas.several(schemas.text(enum=("All",), real="starts")),
    },
    "for each eviction",
)

MIGRATION_CONTROLLER = schemas.Plugin(
    points=("evict", "filter"),
    does="moves pods by PodMigrationJobs, with limits for each node, namespace and workload",
    args=schemas.record(
        {
            "dryRun": schemas.boolean(note="jobs made by hand are still carried out"),
            "maxConcurrentReconciles": schemas.whole("1", minimum=1, width=schemas.INT32),
            "evictFailedBarePods": schemas.boolean(),
            "evictAllBarePods": schemas.boolean(),
            "evictLocalStoragePods": schemas.boolean(note="pods with hostPath or emptyDir volumes"),
            "evictSystemCriticalPods": schemas.boolean(note="true also switches priorityThreshold off"),
            "ignorePvcPods": schemas.boolean(),
            "priorityThreshold": schemas.record(
                {
                    "value": schemas.PRIORITY_VALUE,
                    "name": schemas.text(note="an existing PriorityClass; the filter reads value alone"),
                }
            ),
            "labelSelector": schemas.LABEL_SELECTOR,
            "namespaces": schemas.NAMESPACES,
            "nodeFit": schemas.boolean(note="only for pods that a plugin evicts"),
            "nodeSelector": schemas.selector_text("only with nodeFit"),
            "maxMigratingGlobally": schemas.count(note="without it or 0, no limit", width=schemas.INT32),
            "maxMigratingPerNode": schemas.count("2", "0: no limit", width=schemas.INT32),
            "maxMigratingPerNamespace": schemas.count(note="without it or 0, no limit", width=schemas.INT32),
            "maxMigratingPerWorkload": _PER_WORKLOAD,
            "maxUnavailablePerWorkload": _PER_WORKLOAD,
            "skipCheckExpectedReplicas": schemas.boolean(note="true admits single replicas"),
            "objectLimiters": schemas.by_name(
                _LIMITER,
                "evictions in a time; to switch it off, workload with a duration of 0s",
                default="{workload: {duration: 5m}}",
                keys=("workload", "namespace"),
                real="drops",
            ),
            "defaultJobMode": schemas.text("ReservationFirst", enum=("ReservationFirst", "EvictDirectly")),
            "defaultJobTTL": schemas.duration(
                "5m", "0: no timeout; only for jobs that the controller makes", minimum=0
            ),
            "schedulerNames": schemas.several(
                schemas.text(), "schedulers that know reservations", default="[koord-scheduler]"
            ),
            "evictQPS": schemas.Field(type="float_or_string", default="10", above=0),
            "evictBurst": schemas.whole("1", minimum=1, width=schemas.INT32),
            "evictionPolicy": schemas.text(
                "Eviction",
                enum=("Eviction", "Delete", "SoftEviction"),
                alike={"Soft": "SoftEviction"},
            ),
            "defaultDeleteOptions": _DELETE_OPTIONS,
            "arbitrationArgs": schemas.record(
                {
                    "enabled": schemas.boolean("true", "read but without effect"),
                    "interval": schemas.duration("500ms", minimum=0, real="starts"),
                },
                default="{enabled: true, interval: 500ms}",
            ),
            "skipEvictionGates": schemas.several(schemas.text(enum=_GATES), since="1.8.0"),
        }
    ),
)

_THRESHOLDS = {
    "useDeviationThresholds": schemas.boolean(note="thresholds are distances from the mean"),
    "highThresholds": schemas.percents("nodes above are hot", maximum=None),
    "lowThresholds": schemas.percents("nodes below take pods; the same resources as highThresholds", maximum=None),
    "prodHighThresholds": schemas.percents("of production pods, at most highThresholds", maximum=None),
    "prodLowThresholds": schemas.percents("of production pods, at most prodHighThresholds", maximum=None),
    "resourceWeights": schemas.by_name(
        schemas.whole("1", zero_is_default=True), "0 and less mean 1", default="{cpu: 1, memory: 1}"
    ),
    "anomalyCondition": schemas.record(
        {
            "timeout": schemas.duration(
                "1m", "the default holds without anomalyCondition alone", minimum=0, real="starts"
            ),
            "consecutiveAbnormalities": schemas.count(
                "5", "acts when the count is above it; 1 acts at once", width=schemas.UINT32, zero_is_default=True
            ),
            "consecutiveNormalities": schemas.count("3", width=schemas.UINT32, zero_is_default=True),
        }
    ),
}

_ORDER = (
    ("lowThresholds", "highThresholds"),
    ("prodHighThresholds", "highThresholds"),
    ("prodLowThresholds", "prodHighThresholds"),
)

_EVICTABLE = replace(schemas.NAMESPACES, alike=schemas.INCLUDE_TYPO)

LOW_NODE_LOAD = schemas.Plugin(
    points=("balance",),
    does="moves pods from nodes of high real use to nodes of low use; needs NodeMetrics of koordlet",
    checked="enabled",
    args=schemas.record(
        {
            "paused": schemas.boolean(),
            "dryRun": schemas.boolean(),
            "numberOfNodes": schemas.count(
                "0", "acts only when more nodes than this are underused", width=schemas.INT32
            ),
            "nodeMetricExpirationSeconds": schemas.whole("180", minimum=1),
            "evictableNamespaces": _EVICTABLE,
            "nodeSelector": schemas.LABEL_SELECTOR,
            "podSelectors": schemas.several(
                schemas.record({"name": schemas.text(), "selector": schemas.LABEL_SELECTOR}), "one of them is enough"
            ),
            "nodeFit": schemas.boolean("true"),
            **_THRESHOLDS,
            "detectorCacheTimeout": schemas.duration(
                "5m", "at least deschedulingInterval, else nothing is ever abnormal", minimum=0, real="starts"
            ),
            "nodePools": schemas.several(
                schemas.record(
                    {"name": schemas.text(), "nodeSelector": schemas.LABEL_SELECTOR, **_THRESHOLDS}, le=_ORDER
                ),
                "before 1.8.0 each needs an anomalyCondition with consecutiveAbnormalities",
            ),
        },
        le=_ORDER,
    ),
)

DEFAULT_EVICTOR = schemas.Plugin(
    points=("evict", "filter"),
    does="evicts by the Eviction API, without limits for workloads",
    strict=False,
    checked="enabled",
    args=schemas.record(
        {
            "nodeSelector": schemas.selector_text("only with nodeFit"),
            "evictLocalStoragePods": schemas.boolean(),
            "evictSystemCriticalPods": schemas.boolean(note="true also switches priorityThreshold off"),
            "ignorePvcPods": schemas.boolean(),
            "evictFailedBarePods": schemas.boolean(),
            "labelSelector": schemas.LABEL_SELECTOR,
            "priorityThreshold": schemas.record(
                {"value": schemas.PRIORITY_VALUE, "name": schemas.text(note="an existing PriorityClass")},
                exclusive=(("value", "name"),),
                real="starts",
            ),
            "nodeFit": schemas.boolean(),
        }
    ),
)

_SHARES = schemas.by_name(schemas.Field(type="float", minimum=0, maximum=100, real="starts"))

_ORDER_ITEM = schemas.record(
    {
        "name": schemas.text(required=True),
        "nodeSelector": replace(schemas.LABEL_SELECTOR, note="needed; empty: all nodes", malformed="starts"),
        "keepThreshold": _SHARES,
        "rejectThreshold": _SHARES,
    }
)

CUSTOM_PRIORITY = schemas.Plugin(
    points=("balance",),
    does="moves pods from nodes of low priority to nodes of high priority",
    checked="enabled",
    since="1.8.0",
    args=schemas.record(
        {
            "paused": schemas.boolean(),
            "dryRun": schemas.boolean(),
            "evictableNamespaces": replace(_EVICTABLE, real="starts"),
            "nodeSelector": replace(schemas.LABEL_SELECTOR, malformed="starts"),
            "podSelectors": schemas.several(
                schemas.record({"name": schemas.text(required=True, real="starts"), "selector": schemas.LABEL_SELECTOR})
            ),
            "nodeFit": schemas.boolean("true"),
            "evictionOrder": schemas.several(_ORDER_ITEM, "two or more", required=True, minimum=2, unique="name"),
            "mode": schemas.text("BestEffort", enum=("BestEffort", "DrainNode"), real="starts"),
            "autoCordon": schemas.boolean(),
        }
    ),
)


def schema(version: str = "1.7.0", *, ack: bool = False) -> schemas.Schema:
    """The schema of a version of ``VERSIONS``; ``ack`` is ACK's build of it.

    Of the plugins from sigs.k8s.io unknown keys are dropped, and both extension points are taken.
    """
    ported = classic.V028 if version == "1.7.0" else classic.V036
    plugins: dict[str, schemas.Plugin] = {
        "MigrationController": MIGRATION_CONTROLLER,
        "LowNodeLoad": LOW_NODE_LOAD,
        "DefaultEvictor": DEFAULT_EVICTOR,
        "CustomPriority": CUSTOM_PRIORITY,
        **{n: replace(p, strict=False, checked="enabled", stray="starts") for n, p in ported.items()},
    }
    return schemas.Schema(
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
