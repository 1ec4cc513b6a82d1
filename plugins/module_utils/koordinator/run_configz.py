# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The configuration with which a pod of a descheduler runs, as the pod or its log says."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import running
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    client,
    errors,
    verbs,
)

Parse = t.Callable[[str], t.Any]
"""Parses a configuration's text; ``None`` if it is not YAML."""


@dataclass(frozen=True, slots=True)
class RunningConfiguration:
    """The configuration that a pod runs with, by its own words. ``kind`` is where they are from;
    ``config`` is ``None`` if it says nothing, ``why`` is why /configz does not.
    """

    kind: t.Literal["configz", "log", ""]
    config: objects.Raw | None = None
    why: str = ""


def ask(cluster: client.Cluster, pod: objects.Raw, port: int, parse: Parse) -> RunningConfiguration:
    """Ask /configz at the port, then the logs of the pod's containers."""
    meta = pod["metadata"]
    try:
        page = cluster.page(verbs.port_forward(meta["namespace"], meta["name"], port), "/configz")
        if isinstance(page, dict) and isinstance(page.get("componentconfig"), dict):
            return RunningConfiguration("configz", page["componentconfig"])
        why = "/configz holds no componentconfig"
    except errors.ClusterError as error:
        why = f"/configz of {meta['name']} cannot be read: {error}"
    for container in (pod.get("spec") or {}).get("containers") or ():
        try:
            log = cluster.text(verbs.pod_log(meta["namespace"], meta["name"], container["name"]))
        except errors.ClusterError as error:
            why += f" Its log cannot be read either: {error}"
            continue
        config = parse(running.logged(log))
        if isinstance(config, dict):
            return RunningConfiguration("log", config, why)
    return RunningConfiguration("", None, why)
