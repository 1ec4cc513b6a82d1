# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The ten plugins of ``sigs.k8s.io/descheduler`` as both deschedulers have them.

Koordinator 1.7.0 builds them in from v0.28.0, Koordinator 1.8.0 from v0.35.1, whose arguments are those of
v0.36.0. Read in the ``types.go`` and ``validation.go`` of these tags.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import schemas

_CHOICE = {"namespaces": schemas.NAMESPACES, "labelSelector": schemas.LABEL_SELECTOR}

_THRESHOLDS = schemas.percents(
    "resource and percentage of requests; all nodes below are underused", required=True, nonempty=True
)

_UTILIZATION = {
    "numberOfNodes": schemas.whole("0", "acts only when more nodes than this are underused"),
    "evictableNamespaces": schemas.EXCLUDED_NAMESPACES,
}

_STATES = ("Running", "Pending", "PodInitializing", "ContainerCreating")

_MORE_STATES = (
    *("Running", "Pending", "Succeeded", "Failed", "Unknown"),
    *("NodeAffinity", "NodeLost", "Shutdown", "UnexpectedAdmissionError"),
    *("PodInitializing", "ContainerCreating", "ImagePullBackOff", "CrashLoopBackOff", "CreateContainerConfigError"),
    *("ErrImagePull", "CreateContainerError", "InvalidImageName"),
    *("OOMKilled", "Error", "Completed", "DeadlineExceeded", "Evicted", "ContainerCannotRun", "StartError"),
)

_AFFINITY = ("requiredDuringSchedulingIgnoredDuringExecution", "preferredDuringSchedulingIgnoredDuringExecution")


def _plugin(point: str, does: str, fields: t.Mapping[str, schemas.Field], **rules: t.Any) -> schemas.Plugin:
    return schemas.Plugin(points=(point,), does=does, args=schemas.record(fields, **rules))


V028: t.Mapping[str, schemas.Plugin] = {
    "HighNodeUtilization": _plugin(
        "balance",
        "empties nodes of low utilization so that they can be scaled away",
        {"thresholds": _THRESHOLDS, **_UTILIZATION},
    ),
    "LowNodeUtilization": _plugin(
        "balance",
        "moves pods from nodes above targetThresholds to nodes below thresholds, by requests",
        {
            "useDeviationThresholds": schemas.boolean(note="thresholds are distances from the mean"),
            "thresholds": _THRESHOLDS,
            "targetThresholds": schemas.percents(
                "the same resources as thresholds; nodes above are overused", required=True, nonempty=True
            ),
            **_UTILIZATION,
        },
    ),
    "PodLifeTime": _plugin(
        "deschedule",
        "evicts pods that are older than a limit",
        {
            **_CHOICE,
            "maxPodLifeTimeSeconds": schemas.count(required=True),
            "states": schemas.several(
                schemas.text(enum=_STATES), "phases or reasons of waiting; without them all pods"
            ),
        },
    ),
    "RemoveDuplicates": _plugin(
        "balance",
        "spreads the pods of one owner over the nodes",
        {"namespaces": schemas.NAMESPACES, "excludeOwnerKinds": schemas.TEXTS},
    ),
    "RemoveFailedPods": _plugin(
        "deschedule",
        "removes pods of phase Failed",
        {
            **_CHOICE,
            "excludeOwnerKinds": schemas.TEXTS,
            "minPodLifetimeSeconds": schemas.count("3600", "pods younger than this stay"),
            "reasons": schemas.several(schemas.text(), "only pods that failed for one of these"),
            "includingInitContainers": schemas.boolean(),
        },
    ),
    "RemovePodsHavingTooManyRestarts": _plugin(
        "deschedule",
        "evicts pods whose containers restarted too often",
        {
            **_CHOICE,
            "podRestartThreshold": schemas.whole(required=True, minimum=1, width=schemas.INT32),
            "includingInitContainers": schemas.boolean(),
            "states": schemas.several(schemas.text(enum=("Running", "CrashLoopBackOff"))),
        },
    ),
    "RemovePodsViolatingInterPodAntiAffinity": _plugin(
        "deschedule", "evicts pods that break another pod's anti-affinity", _CHOICE
    ),
    "RemovePodsViolatingNodeAffinity": _plugin(
        "deschedule",
        "evicts pods whose node no longer fits their affinity",
        {
            **_CHOICE,
            "nodeAffinityType": schemas.several(
                schemas.text(enum=_AFFINITY, real="starts"),
                "an unknown type is only logged while it runs",
                required=True,
                nonempty=True,
            ),
        },
    ),
    "RemovePodsViolatingNodeTaints": _plugin(
        "deschedule",
        "evicts pods that do not tolerate a NoSchedule taint of their node",
        {
            **_CHOICE,
            "includePreferNoSchedule": schemas.boolean(note="PreferNoSchedule taints count as well"),
            "excludedTaints": schemas.several(schemas.text(), "taints that do not count, as key or key=value"),
        },
    ),
    "RemovePodsViolatingTopologySpreadConstraint": _plugin(
        "balance",
        "evicts pods until topology spread constraints hold",
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
    """The plugin of v0.28.0 with more, or other, arguments."""
    old = V028[name]
    return replace(old, args=replace(old.args, fields={**old.args.fields, **fields}, **rules))


_CONDITION = schemas.record(
    {
        "type": schemas.text(),
        "status": schemas.text(),
        "reason": schemas.text(),
        "minTimeSinceLastTransitionSeconds": schemas.count(),
    },
    "at least one of its keys",
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
                "real use instead of requests",
            ),
            "evictionLimits": schemas.record({"node": schemas.count()}),
        },
    ),
    "PodLifeTime": _with(
        "PodLifeTime",
        {
            "ownerKinds": schemas.NAMESPACES,
            "maxPodLifeTimeSeconds": schemas.count(note="one of this, states, conditions, exitCodes is needed"),
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
        {"includedTaints": schemas.several(schemas.text(), "only these taints count, as key or key=value")},
        exclusive=(("excludedTaints", "includedTaints"),),
    ),
}
