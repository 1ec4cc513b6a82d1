# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``DeschedulerPolicy`` of ``sigs.k8s.io/descheduler``, read in the source of v0.36.0."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import classic
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler.schemas import (
    LABEL_SELECTOR,
    PRIORITY_VALUE,
    TEXTS,
    Field,
    Plugin,
    Schema,
    boolean,
    count,
    duration,
    record,
    selector_text,
    several,
    text,
    whole,
)

VERSIONS = ("0.36.0",)

POINTS: t.Mapping[str, tuple[str, ...]] = {
    "presort": (),
    "sort": (),
    "deschedule": (),
    "balance": (),
    "filter": ("DefaultEvictor",),
    "preevictionfilter": ("DefaultEvictor",),
}

_PLUGIN_SET = record({"enabled": TEXTS, "disabled": several(text(), "never read")})

_SECRET = record({"namespace": text(note="needed"), "name": text(note="needed")}, "needed")

ROOT = record(
    {
        "nodeSelector": selector_text("a text such as pool=a; the nodes that are looked at", "refuses"),
        "maxNoOfPodsToEvictPerNode": count(note="without it, no limit"),
        "maxNoOfPodsToEvictPerNamespace": count(note="without it, no limit"),
        "maxNoOfPodsToEvictTotal": count(note="without it, no limit"),
        "evictionFailureEventNotification": boolean(note="an Event on each pod that could not be evicted"),
        "metricsCollector": record({"enabled": boolean()}, deprecated="metricsProviders with source KubernetesMetrics"),
        "metricsProviders": several(
            record(
                {
                    "source": text(required=True, enum=("KubernetesMetrics", "Prometheus"), real="starts"),
                    "prometheus": record(
                        {"url": text(note="needed"), "authToken": record({"secretReference": _SECRET})},
                        "needed with source Prometheus",
                    ),
                }
            ),
            unique="source",
        ),
        "gracePeriodSeconds": whole(note="without it, the pod's own", minimum=0, real="starts"),
        "profiles": several(
            record(
                {
                    "name": text(),
                    "pluginConfig": several(
                        record({"name": text(required=True), "args": Field(type="args")}), unique="name", real="starts"
                    ),
                    "plugins": record(
                        dict.fromkeys(POINTS, _PLUGIN_SET),
                        alike={"preEvictionFilter": "preevictionfilter", "preSort": "presort"},
                    ),
                }
            )
        ),
    }
)

DEFAULT_PROTECTIONS = ("PodsWithLocalStorage", "SystemCriticalPods", "FailedBarePods", "DaemonSetPods")
EXTRA_PROTECTIONS = ("PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims")

OLD_FLAGS: t.Mapping[str, str] = {
    "evictLocalStoragePods": "podProtections.defaultDisabled: [PodsWithLocalStorage]",
    "evictDaemonSetPods": "podProtections.defaultDisabled: [DaemonSetPods]",
    "evictSystemCriticalPods": "podProtections.defaultDisabled: [SystemCriticalPods]",
    "ignorePvcPods": "podProtections.extraEnabled: [PodsWithPVC]",
    "ignorePodsWithoutPDB": "podProtections.extraEnabled: [PodsWithoutPDB]",
    "evictFailedBarePods": "podProtections.defaultDisabled: [FailedBarePods]",
}
"""Flags that still work, but not together with the lists of podProtections."""

DEFAULT_EVICTOR = Plugin(
    points=("filter", "preevictionfilter"),
    does="says which pods may be evicted; always enabled",
    args=record(
        {
            "nodeSelector": selector_text("only with nodeFit"),
            "labelSelector": LABEL_SELECTOR,
            "namespaceLabelSelector": LABEL_SELECTOR,
            "priorityThreshold": record(
                {"value": PRIORITY_VALUE, "name": text(note="an existing PriorityClass")},
                "without it 2000000000",
                exclusive=(("value", "name"),),
            ),
            "nodeFit": boolean(),
            "minReplicas": count("0", "0 and 1: not checked"),
            "minPodAge": duration(minimum=0, real="starts"),
            "noEvictionPolicy": text("Preferred", enum=("", "Preferred", "Mandatory")),
            "podProtections": record(
                {
                    "defaultDisabled": several(text(enum=DEFAULT_PROTECTIONS), unique="*"),
                    "extraEnabled": several(text(enum=EXTRA_PROTECTIONS), unique="*"),
                    "config": record(
                        {
                            "PodsWithPVC": record(
                                {"protectedStorageClasses": several(record({"name": text(note="needed")}))},
                                "without it all claims protect",
                            )
                        }
                    ),
                }
            ),
            **{name: boolean(deprecated=instead) for name, instead in OLD_FLAGS.items()},
        }
    ),
)


def schema(version: str = "0.36.0") -> Schema:
    """The schema of a version of ``VERSIONS``.

    Keys of the policy are dropped when unknown, arguments of plugins end the descheduler. Every enabled
    plugin but DefaultEvictor needs an entry in pluginConfig.
    """
    return Schema(
        name="sigs",
        version=version,
        api_version="descheduler/v1alpha2",
        kind="DeschedulerPolicy",
        root=ROOT,
        strict=False,
        points=POINTS,
        plugins={
            "DefaultEvictor": DEFAULT_EVICTOR,
            **{name: replace(plugin, needs_config=True) for name, plugin in classic.V036.items()},
        },
        plugin_type="string",
        alike={"RemoveFailedPod": "RemoveFailedPods"},
    )
