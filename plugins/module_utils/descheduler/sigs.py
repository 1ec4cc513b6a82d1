# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``DeschedulerPolicy`` of ``sigs.k8s.io/descheduler``, from the source of v0.36.0."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    schemas,
    sigs_plugins,
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

_PLUGIN_SET = schemas.record(
    {"enabled": schemas.TEXTS, "disabled": schemas.several(schemas.text(), "never read")}
)

_NEEDED = schemas.text(note="required")

_SECRET = schemas.record({"namespace": _NEEDED, "name": _NEEDED}, "required")

ROOT = schemas.record(
    {
        "nodeSelector": schemas.selector_text(
            "the nodes to consider; a string such as pool=a", "refuses"
        ),
        **schemas.EVICTION_LIMITS,
        "evictionFailureEventNotification": schemas.boolean(
            note="an Event for each pod that could not be evicted"
        ),
        "metricsCollector": schemas.record(
            {"enabled": schemas.boolean()},
            deprecated="metricsProviders with source KubernetesMetrics",
        ),
        "metricsProviders": schemas.several(
            schemas.record(
                {
                    "source": schemas.text(
                        required=True, enum=("KubernetesMetrics", "Prometheus"), real="starts"
                    ),
                    "prometheus": schemas.record(
                        {"url": _NEEDED, "authToken": schemas.record({"secretReference": _SECRET})},
                        "required with source Prometheus",
                    ),
                }
            ),
            unique="source",
        ),
        "gracePeriodSeconds": schemas.whole(
            note="default: the pod's own", minimum=0, real="starts"
        ),
        "profiles": schemas.several(
            schemas.record(
                {
                    "name": schemas.text(),
                    "pluginConfig": schemas.several(
                        schemas.record(
                            {
                                "name": schemas.text(required=True),
                                "args": schemas.Field(type="args"),
                            }
                        ),
                        unique="name",
                        real="starts",
                    ),
                    "plugins": schemas.record(
                        dict.fromkeys(POINTS, _PLUGIN_SET),
                        alike={"preEvictionFilter": "preevictionfilter", "preSort": "presort"},
                    ),
                }
            )
        ),
    }
)

DEFAULT_PROTECTIONS = (
    "PodsWithLocalStorage",
    "SystemCriticalPods",
    "FailedBarePods",
    "DaemonSetPods",
)
EXTRA_PROTECTIONS = ("PodsWithPVC", "PodsWithoutPDB", "PodsWithResourceClaims")

OLD_FLAGS: t.Mapping[str, str] = {
    "evictLocalStoragePods": "podProtections.defaultDisabled: [PodsWithLocalStorage]",
    "evictDaemonSetPods": "podProtections.defaultDisabled: [DaemonSetPods]",
    "evictSystemCriticalPods": "podProtections.defaultDisabled: [SystemCriticalPods]",
    "ignorePvcPods": "podProtections.extraEnabled: [PodsWithPVC]",
    "ignorePodsWithoutPDB": "podProtections.extraEnabled: [PodsWithoutPDB]",
    "evictFailedBarePods": "podProtections.defaultDisabled: [FailedBarePods]",
}
"""Flags that still work, but not together with the lists in podProtections."""

_STORAGE_CLASSES = schemas.record(
    {"protectedStorageClasses": schemas.several(schemas.record({"name": _NEEDED}))},
    "without it, every PVC protects",
)


def evictor_args(wrong: schemas.Real) -> schemas.Field:
    """The arguments of DefaultEvictor since v0.35; ``wrong`` is what becomes of what only
    its validation refuses.
    """
    return schemas.record(
        {
            "nodeSelector": schemas.selector_text("only with nodeFit"),
            "labelSelector": schemas.LABEL_SELECTOR,
            "namespaceLabelSelector": schemas.LABEL_SELECTOR,
            "priorityThreshold": replace(
                schemas.PRIORITY_THRESHOLD, note=f"default: {schemas.HIGHEST_PRIORITY}", real=wrong
            ),
            "nodeFit": schemas.boolean(),
            "minReplicas": schemas.count("0", "0 and 1: no check"),
            "minPodAge": schemas.duration(minimum=0, real="starts"),
            "noEvictionPolicy": schemas.text(
                "Preferred", enum=("", "Preferred", "Mandatory"), real=wrong
            ),
            "podProtections": schemas.record(
                {
                    key: schemas.several(
                        schemas.text(enum=words, real=wrong), unique="*", real=wrong
                    )
                    for key, words in (
                        ("defaultDisabled", DEFAULT_PROTECTIONS),
                        ("extraEnabled", EXTRA_PROTECTIONS),
                    )
                }
                | {"config": schemas.record({"PodsWithPVC": _STORAGE_CLASSES})}
            ),
            **{name: schemas.boolean(deprecated=instead) for name, instead in OLD_FLAGS.items()},
        }
    )


DEFAULT_EVICTOR = schemas.Plugin(
    points=("filter", "preevictionfilter"), args=evictor_args("refuses")
)


def schema(version: str = "0.36.0") -> schemas.Schema:
    """The schema of a version in ``VERSIONS``.

    Unknown keys of the policy are dropped; on unknown arguments of a plugin the descheduler exits.
    Every enabled plugin except DefaultEvictor needs an entry in pluginConfig.
    """
    return schemas.Schema(
        name="sigs",
        version=version,
        api_version="descheduler/v1alpha2",
        kind="DeschedulerPolicy",
        root=ROOT,
        strict=False,
        points=POINTS,
        plugins={
            "DefaultEvictor": DEFAULT_EVICTOR,
            **{
                name: replace(plugin, needs_config=True)
                for name, plugin in sigs_plugins.V036.items()
            },
        },
        plugin_type="string",
        alike={"RemoveFailedPod": "RemoveFailedPods"},
    )
