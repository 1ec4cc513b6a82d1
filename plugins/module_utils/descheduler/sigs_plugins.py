# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The ten plugins of ``sigs.k8s.io/descheduler`` that both deschedulers have.

Koordinator 1.7.0 builds them from v0.28.0, Koordinator 1.8.0 from v0.35.1, with the arguments of
v0.36.0. Source: ``types.go`` and ``validation.go`` of these tags.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import schemas

_CHOICE = {"namespaces": schemas.NAMESPACES, "labelSelector": schemas.LABEL_SELECTOR}

_THRESHOLDS = schemas.percents(
    "resource and percentage of requests; nodes below are underutilized",
    required=True,
    nonempty=True,
)

NUMBER_OF_NODES = schemas.whole("0", "acts only if more nodes than this are underutilized")

_UTILIZATION = {
    "numberOfNodes": NUMBER_OF_NODES,
    "evictableNamespaces": schemas.EXCLUDED_NAMESPACES,
}

_STATES = ("Running", "Pending", "PodInitializing", "ContainerCreating")

_MORE_STATES = (
    *("Running", "Pending", "Succeeded", "Failed", "Unknown"),
    *("NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError"),
    *(
        "PodInitializing",
        "ContainerCreating",
        "ImagePullBackOff",
        "CrashLoopBackOff",
        "CreateContainerConfigError",
    ),
    *("ErrImagePull", "CreateContainerError", "InvalidImageName"),
    *(
        "OOMKilled",
        "Error",
        "Completed",
        "DeadlineExceeded",
        "Evicted",
        "ContainerCannotRun",
        "StartError",
    ),
)

_AFFINITY = (
    "requiredDuringSchedulingIgnoredDuringExecution",
    "preferredDuringSchedulingIgnoredDuringExecution",
)


def _plugin(point: str, fields: t.Mapping[str, schemas.Field], **rules: t.Any) -> schemas.Plugin:
    return schemas.Plugin(points=(point,), args=schemas.record(fields, **rules))


V028: t.Mapping[str, schemas.Plugin] = {
    "HighNodeUtilization": _plugin("balance", {"thresholds": _THRESHOLDS, **_UTILIZATION}),
    "LowNodeUtilization": _plugin(
        "balance",
        {
            "useDeviationThresholds": schemas.boolean(
                note="thresholds are deviations from the mean"
            ),
            "thresholds": _THRESHOLDS,
            "targetThresholds": replace(
                _THRESHOLDS, note="resources as in thresholds; nodes above are overutilized"
            ),
            **_UTILIZATION,
        },
    ),
    "PodLifeTime": _plugin(
        "deschedule",
        {
            **_CHOICE,
            "maxPodLifeTimeSeconds": schemas.count(required=True),
            "states": schemas.several(
                schemas.text(enum=_STATES), "phases or waiting reasons; without it all pods"
            ),
        },
    ),
    "RemoveDuplicates": _plugin(
        "balance", {"namespaces": schemas.NAMESPACES, "excludeOwnerKinds": schemas.TEXTS}
    ),
    "RemoveFailedPods": _plugin(
        "deschedule",
        {
            **_CHOICE,
            "excludeOwnerKinds": schemas.TEXTS,
            "minPodLifetimeSeconds": schemas.count("3600", "younger pods stay"),
            "reasons": replace(
                schemas.TEXTS, note="only pods that failed for one of these reasons"
            ),
            "includingInitContainers": schemas.boolean(),
        },
    ),
    "RemovePodsHavingTooManyRestarts": _plugin(
        "deschedule",
        {
            **_CHOICE,
            "podRestartThreshold": schemas.whole(required=True, minimum=1, width=schemas.INT32),
            "includingInitContainers": schemas.boolean(),
            "states": schemas.several(schemas.text(enum=("Running", "CrashLoopBackOff"))),
        },
    ),
    "RemovePodsViolatingInterPodAntiAffinity": _plugin("deschedule", _CHOICE),
    "RemovePodsViolatingNodeAffinity": _plugin(
        "deschedule",
        {
            **_CHOICE,
            "nodeAffinityType": schemas.several(
                schemas.text(enum=_AFFINITY, real="starts"),
                "an unknown type is only logged at run time",
                required=True,
                nonempty=True,
            ),
        },
    ),
    "RemovePodsViolatingNodeTaints": _plugin(
        "deschedule",
        {
            **_CHOICE,
            "includePreferNoSchedule": schemas.boolean(
                note="also consider PreferNoSchedule taints"
            ),
            "excludedTaints": replace(schemas.TEXTS, note="taints to ignore, as key or key=value"),
        },
    ),
    "RemovePodsViolatingTopologySpreadConstraint": _plugin(
        "balance",
        {
            **_CHOICE,
            "constraints": schemas.several(
                schemas.text(enum=("DoNotSchedule", "ScheduleAnyway")), default="[DoNotSchedule]"
            ),
            "topologyBalanceNodeFit": schemas.boolean("true"),
        },
    ),
}


def _with(name: str, fields: t.Mapping[str, schemas.Field], **rules: t.Any) -> schemas.Plugin:
    """The plugin of v0.28.0 with additional or changed arguments."""
    old = V028[name]
    return replace(old, args=replace(old.args, fields={**old.args.fields, **fields}, **rules))


_CONDITION = schemas.record(
    {
        "type": schemas.text(),
        "status": schemas.text(),
        "reason": schemas.text(),
        "minTimeSinceLastTransitionSeconds": schemas.count(),
    },
    "at least one of these keys",
    nonempty=True,
)

_EXIT_CODES = schemas.several(schemas.whole(width=schemas.INT32))

V036: t.Mapping[str, schemas.Plugin] = {
    **V028,
    "HighNodeUtilization": _with(
        "HighNodeUtilization",
        {"evictionModes": schemas.several(schemas.text(enum=("OnlyThresholdingResources",)))},
    ),
    "LowNodeUtilization": _with(
        "LowNodeUtilization",
        {
            "metricsUtilization": schemas.record(
                {
                    "metricsServer": schemas.boolean(deprecated="source: KubernetesMetrics"),
                    "source": schemas.text(
                        enum=("KubernetesMetrics", "Prometheus"),
                        real="starts",
                        note="needs the same source in metricsProviders",
                    ),
                    "prometheus": schemas.record({"query": schemas.text()}),
                },
                "actual usage instead of requests",
            ),
            "evictionLimits": schemas.record({"node": schemas.count()}),
        },
    ),
    "PodLifeTime": _with(
        "PodLifeTime",
        {
            "ownerKinds": schemas.NAMESPACES,
            "maxPodLifeTimeSeconds": schemas.count(
                note="this, states, conditions or exitCodes is required"
            ),
            "states": schemas.several(schemas.text(enum=_MORE_STATES)),
            "conditions": schemas.several(_CONDITION),
            "exitCodes": _EXIT_CODES,
            "includingInitContainers": schemas.boolean(),
            "includingEphemeralContainers": schemas.boolean(),
        },
    ),
    "RemoveFailedPods": _with("RemoveFailedPods", {"exitCodes": _EXIT_CODES}),
    "RemovePodsViolatingNodeTaints": _with(
        "RemovePodsViolatingNodeTaints",
        {
            "includedTaints": replace(
                schemas.TEXTS, note="only these taints are considered, as key or key=value"
            )
        },
        exclusive=(("excludedTaints", "includedTaints"),),
    ),
}
