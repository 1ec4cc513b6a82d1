# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Clusters for tests of advice: nodes with room, a Deployment on them, and what is wanted there."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import preflight
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import Raw, deployment, node, owned, pod

ROOM: Raw = {"cpu": "4", "memory": "8Gi", "pods": "10"}


def roomy(name: str, room: Raw | None = None, **more: t.Any) -> Raw:
    raw = node(name, **more)
    raw["status"]["allocatable"] = dict(room or ROOM)
    return raw


def nodes(*names: str, room: Raw | None = None) -> list[Raw]:
    return [roomy(name, room) for name in names or ("n1", "n2", "n3")]


def web(replicas: int, *, cpu: str = "100m", on: t.Sequence[str] = ("n1", "n2", "n3")) -> dict[str, list[Raw]]:
    """Deployment `web` with a pod on one node after the other."""
    spec = {"containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]}
    template = {"metadata": {"labels": {"app": "web"}}, "spec": spec}
    where = [on[number % len(on)] for number in range(replicas)]
    pods = [pod(f"web-{n}", name, owned("ReplicaSet", "web"), requests={"cpu": cpu}) for n, name in enumerate(where)]
    made = deployment("web", replicas, template=template)
    made["replica_sets"][0]["spec"]["template"] = template
    return {**made, "pods": pods}


def wanted(*names: str, **more: t.Any) -> preflight.DraftOptions:
    choices = DrainPolicy(**more.pop("choices", {}))
    return preflight.DraftOptions(names or ("n1",), choices, now="2026-01-02T00:00:00Z", **more)
