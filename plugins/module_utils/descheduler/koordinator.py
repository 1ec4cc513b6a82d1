# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``DeschedulerConfiguration`` of koord-descheduler, from the sources of v1.7.0 and v1.8.0.

ACK's ack-koord-descheduler takes the same document; deviations of ACK's
documentation are noted here too.
"""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    schemas,
    sigs,
    sigs_plugins,
)

VERSIONS = ("1.7.0", "1.8.0")

_LEADER_ELECTION = schemas.record(
    {
        "leaderElect": schemas.boolean("true"),
        "leaseDuration": schemas.duration(
            "15s", "longer than renewDeadline", minimum=0, nullable=False
        ),
        "renewDeadline": schemas.duration(
            "10s", "longer than 1.2 times retryPeriod", minimum=0, nullable=False
        ),
        "retryPeriod": schemas.duration("2s", minimum=0, nullable=False),
        "resourceLock": schemas.text("leases", enum=("leases",), real="crashes"),
        "resourceName": schemas.text("koord-descheduler"),
        "resourceNamespace": schemas.text("koordinator-system"),
    },
    "validated only if leaderElect is true",
)

CONTENT_TYPES = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
"""What an API server and its clients encode."""

_CONNECTION = schemas.record(
    {
        "kubeconfig": schemas.text(
            note="default: the pod's service account; there is no flag for it"
        ),
        "acceptContentTypes": schemas.text(
            note=f"at least one of */* and {', '.join(CONTENT_TYPES)}"
        ),
        "contentType": schemas.text(
            "application/vnd.kubernetes.protobuf", enum=CONTENT_TYPES, real="starts"
        ),
        "qps": schemas.Field(type="float", default="50", width=schemas.FLOAT32),
        "burst": schemas.whole("100", minimum=0, width=schemas.INT32),
    }
)

_PLUGIN_SET = schemas.record(
    {
        "enabled": schemas.several(schemas.record({"name": schemas.text(required=True)})),
        "disabled": schemas.several(
            schemas.record({"name": schemas.text(required=True, real="starts")}),
            '"*" removes the default plugins of this extension point',
        ),
    }
)

_PROFILE = schemas.record(
    {
        "name": schemas.text(note="required and unique if there are several profiles"),
        "plugins": schemas.record(
            dict.fromkeys(("deschedule", "balance", "evict", "filter"), _PLUGIN_SET)
        ),
        "pluginConfig": schemas.several(
            schemas.record(
                {
                    "name": schemas.text(required=True, real="drops"),
                    "args": schemas.Field(type="args"),
                }
            ),
            unique="name",
        ),
        "nodeSelector": replace(
            schemas.LABEL_SELECTOR,
            note="the profile's nodes; not validated at the start",
            malformed="starts",
        ),
    }
)

ROOT = schemas.record(
    {
        "leaderElection": _LEADER_ELECTION,
        "clientConnection": _CONNECTION,
        "enableProfiling": schemas.boolean("true"),
        "enableContentionProfiling": schemas.boolean("true", "default: only with enableProfiling"),
        "healthzBindAddress": schemas.Field(type="address", default="0.0.0.0:10251"),
        "metricsBindAddress": schemas.Field(type="address", default="0.0.0.0:10251"),
        "deschedulingInterval": schemas.duration(
            "0s", "0: runs once", minimum=0, real="starts", nullable=False
        ),
        "dryRun": schemas.boolean(
            note="no plugin evicts; PodMigrationJobs created by others are still processed"
        ),
        "profiles": schemas.several(
            _PROFILE, "default: one profile with the default plugins", unique="name"
        ),
        "nodeSelector": replace(
            schemas.LABEL_SELECTOR, note="the nodes to consider; a label selector, not a string"
        ),
        **schemas.EVICTION_LIMITS,
    }
)

_PER_WORKLOAD = schemas.Field(
    type="int_or_percent",
    minimum=0,
    width=schemas.INT32,
    real="starts",
    note=(
        "without it: 1 below 4 replicas, 2 up to 10, otherwise 10 %; 0 means 1, "
        "a percentage is at least 1"
    ),
)

_GATES = (
    *(
        "MaxUnavailablePerWorkload",
        "MaxMigratingPerWorkload",
        "MaxMigratingPerNode",
        "MaxMigratingPerNamespace",
    ),
    *(
        "MaxMigratingGlobally",
        "ExpectedReplicas",
        "PVC",
        "BarePods",
        "LocalStorage",
        "SystemCritical",
    ),
    *("PriorityThreshold", "LabelSelector", "Namespaces", "NodeFit"),
)

_LIMITER = schemas.record(
    {
        "duration": schemas.duration(
            "", "0s disables the limiter", minimum=0, real="starts", nullable=False
        ),
        "maxMigrating": replace(
            _PER_WORKLOAD,
            malformed="starts",
            note="default: maxMigratingPerWorkload; namespace needs a number",
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
        "propagationPolicy": schemas.text(
            enum=("Orphan", "Background", "Foreground"), real="starts"
        ),
        "dryRun": schemas.several(schemas.text(enum=("All",), real="starts")),
        "ignoreStoreReadErrorWithClusterBreakingPotential": schemas.boolean("", since="1.8.0"),
    },
    "for each eviction",
)

MIGRATION_CONTROLLER = schemas.Plugin(
    points=("evict", "filter"),
    args=schemas.record(
        {
            "dryRun": schemas.boolean(note="jobs created by others are still processed"),
            "maxConcurrentReconciles": schemas.whole("1", minimum=1, width=schemas.INT32),
            "evictFailedBarePods": schemas.boolean(),
            "evictAllBarePods": schemas.boolean(),
            "evictLocalStoragePods": schemas.boolean(note="pods with hostPath or emptyDir volumes"),
            "evictSystemCriticalPods": schemas.boolean(note="true also disables priorityThreshold"),
            "ignorePvcPods": schemas.boolean(),
            "priorityThreshold": replace(
                schemas.PRIORITY_THRESHOLD,
                exclusive=(),
                note="only value has an effect on the filter",
            ),
            "labelSelector": schemas.LABEL_SELECTOR,
            "namespaces": schemas.NAMESPACES,
            "nodeFit": schemas.boolean(note="only for pods evicted by a plugin"),
            "nodeSelector": schemas.selector_text("only with nodeFit"),
            "maxMigratingGlobally": schemas.count(
                note="without it or 0, no limit", width=schemas.INT32
            ),
            "maxMigratingPerNode": schemas.count("2", "0: no limit", width=schemas.INT32),
            "maxMigratingPerNamespace": schemas.count(
                note="without it or 0, no limit", width=schemas.INT32
            ),
            "maxMigratingPerWorkload": _PER_WORKLOAD,
            "maxUnavailablePerWorkload": _PER_WORKLOAD,
            "skipCheckExpectedReplicas": schemas.boolean(
                note="true also moves pods of workloads with one replica"
            ),
            "objectLimiters": schemas.by_name(
                _LIMITER,
                "evictions per duration; the default only if it is empty; a duration of 0s "
                "disables a limiter",
                default="{workload: {duration: 5m}}",
                keys=("workload", "namespace"),
                real="drops",
            ),
            "defaultJobMode": schemas.text(
                "ReservationFirst", enum=("ReservationFirst", "EvictDirectly")
            ),
            "defaultJobTTL": schemas.duration(
                "5m", "0: no timeout; only for jobs created by the controller", minimum=0
            ),
            "schedulerNames": replace(
                schemas.TEXTS,
                note="schedulers that support Reservations",
                default="[koord-scheduler]",
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
                    "enabled": schemas.boolean("true", "has no effect"),
                    "interval": schemas.duration("500ms", minimum=0, real="starts"),
                },
                default="{enabled: true, interval: 500ms}",
            ),
            "skipEvictionGates": schemas.several(schemas.text(enum=_GATES), since="1.8.0"),
        }
    ),
)

_THRESHOLDS = {
    "useDeviationThresholds": schemas.boolean(note="thresholds are deviations from the mean"),
    "highThresholds": schemas.percents("nodes above are hot", maximum=None),
    "lowThresholds": schemas.percents(
        "nodes below receive pods; the same resources as highThresholds", maximum=None
    ),
    "prodHighThresholds": schemas.percents(
        "of production pods, at most highThresholds", maximum=None
    ),
    "prodLowThresholds": schemas.percents(
        "of production pods, at most prodHighThresholds", maximum=None
    ),
    "resourceWeights": schemas.by_name(
        schemas.whole("1", zero_is_default=True),
        "0 and negative numbers mean 1",
        default="{cpu: 1, memory: 1}",
    ),
    "anomalyCondition": schemas.record(
        {
            "timeout": schemas.duration(
                "1m", "no default inside anomalyCondition", minimum=0, real="starts"
            ),
            "consecutiveAbnormalities": schemas.count(
                "5",
                "acts above this count; 1 acts at once",
                width=schemas.UINT32,
                zero_is_default=True,
            ),
            "consecutiveNormalities": schemas.count(
                "3", width=schemas.UINT32, zero_is_default=True
            ),
        }
    ),
}

THRESHOLD_ORDER = (
    ("lowThresholds", "highThresholds"),
    ("prodHighThresholds", "highThresholds"),
    ("prodLowThresholds", "prodHighThresholds"),
)
"""Of each pair, no percentage of the first may exceed the same resource's in the second."""

LOW_NODE_LOAD = schemas.Plugin(
    points=("balance",),
    checked="enabled",
    args=schemas.record(
        {
            "paused": schemas.boolean(),
            "dryRun": schemas.boolean(),
            "numberOfNodes": replace(sigs_plugins.NUMBER_OF_NODES, width=schemas.INT32, minimum=0),
            "nodeMetricExpirationSeconds": schemas.whole("180", minimum=1),
            "evictableNamespaces": schemas.NAMESPACES,
            "nodeSelector": schemas.LABEL_SELECTOR,
            "podSelectors": schemas.several(
                schemas.record({"name": schemas.text(), "selector": schemas.LABEL_SELECTOR}),
                "one match is enough",
            ),
            "nodeFit": schemas.boolean("true"),
            **_THRESHOLDS,
            "detectorCacheTimeout": schemas.duration(
                "5m",
                "at least deschedulingInterval, otherwise no node is ever abnormal",
                minimum=0,
                real="starts",
            ),
            "nodePools": schemas.several(
                schemas.record(
                    {"name": schemas.text(), "nodeSelector": schemas.LABEL_SELECTOR, **_THRESHOLDS},
                    le=THRESHOLD_ORDER,
                ),
                "before 1.8.0 each needs an anomalyCondition with consecutiveAbnormalities",
            ),
        },
        le=THRESHOLD_ORDER,
    ),
)

DEFAULT_EVICTOR = schemas.Plugin(
    points=("evict", "filter"),
    strict=False,
    checked="enabled",
    args=schemas.record(
        {
            "nodeSelector": schemas.selector_text("only with nodeFit"),
            "evictLocalStoragePods": schemas.boolean(),
            "evictSystemCriticalPods": schemas.boolean(note="true also disables priorityThreshold"),
            "ignorePvcPods": schemas.boolean(),
            "evictFailedBarePods": schemas.boolean(),
            "labelSelector": schemas.LABEL_SELECTOR,
            "priorityThreshold": replace(schemas.PRIORITY_THRESHOLD, real="starts"),
            "nodeFit": schemas.boolean(),
        }
    ),
)

_NEWER_ARGS = sigs.evictor_args("starts")

NEWER_EVICTOR = replace(
    DEFAULT_EVICTOR,
    args=replace(
        _NEWER_ARGS,
        fields={
            **_NEWER_ARGS.fields,
            "namespaceLabelSelector": replace(schemas.LABEL_SELECTOR, by_labels=True),
        },
    ),
)
"""DefaultEvictor of v0.35.1, whose validation Koordinator 1.8.0 does not call."""

_SHARES = schemas.by_name(schemas.Field(type="float", minimum=0, maximum=100, real="starts"))

_ORDER_ITEM = schemas.record(
    {
        "name": schemas.text(required=True),
        "nodeSelector": replace(
            schemas.LABEL_SELECTOR, note="required; empty: all nodes", malformed="starts"
        ),
        "keepThreshold": _SHARES,
        "rejectThreshold": _SHARES,
    }
)

CUSTOM_PRIORITY = schemas.Plugin(
    points=("balance",),
    checked="enabled",
    since="1.8.0",
    args=schemas.record(
        {
            "paused": schemas.boolean(),
            "dryRun": schemas.boolean(),
            "evictableNamespaces": replace(schemas.NAMESPACES, real="starts"),
            "nodeSelector": replace(schemas.LABEL_SELECTOR, malformed="starts"),
            "podSelectors": schemas.several(
                schemas.record(
                    {
                        "name": schemas.text(required=True, real="starts"),
                        "selector": schemas.LABEL_SELECTOR,
                    }
                )
            ),
            "nodeFit": schemas.boolean("true"),
            "evictionOrder": schemas.several(
                _ORDER_ITEM, "two or more", required=True, minimum=2, unique="name"
            ),
            "mode": schemas.text("BestEffort", enum=("BestEffort", "DrainNode"), real="starts"),
            "autoCordon": schemas.boolean(),
        }
    ),
)


_EVICTOR = ("MigrationController",)


def schema(version: str = "1.7.0", *, ack: bool = False) -> schemas.Schema:
    """The schema of a version in ``VERSIONS``; ``ack`` is ACK's build of it.

    Plugins from sigs.k8s.io drop unknown keys and start at the wrong one of deschedule and balance.
    """
    older = version == "1.7.0"
    ported = sigs_plugins.V028 if older else sigs_plugins.V036
    return schemas.Schema(
        name="ack" if ack else "koordinator",
        version=version,
        api_version="descheduler/v1alpha2",
        kind="DeschedulerConfiguration",
        root=ROOT,
        strict=True,
        points={"deschedule": (), "balance": (), "evict": _EVICTOR, "filter": _EVICTOR},
        plugins={
            "MigrationController": MIGRATION_CONTROLLER,
            "LowNodeLoad": LOW_NODE_LOAD,
            "DefaultEvictor": DEFAULT_EVICTOR if older else NEWER_EVICTOR,
            "CustomPriority": CUSTOM_PRIORITY,
            **{
                n: replace(p, strict=False, checked="enabled", stray="starts")
                for n, p in ported.items()
            },
        },
        plugin_type="object",
        # Misspellings in ACK's documentation.
        alike={
            "RemoveFailedPod": "RemoveFailedPods",
            "MirgrationController": "MigrationController",
        },
    )
