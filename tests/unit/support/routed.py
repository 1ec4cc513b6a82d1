# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The route of one pod in a small cluster."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.dispositions import routes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning.wave_times import wave_times
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy, PodPlan
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    deployment,
    owned,
    pod,
    snapshot,
)

NOW = "2026-01-02T00:00:00.000Z"
SCRATCH: list[Raw] = [{"name": "scratch", "emptyDir": {}}]
CONSENT = {names.ALLOW_INTERRUPTION: "true"}
NEVER: Raw = {"rule": {"maxUnavailable": 0}, "desired": 3}
WEB = owned("ReplicaSet", "web")


def only(found: Snapshot, choices: DrainPolicy | None = None, nodes: tuple[str, ...] = ("n1",)) -> PodPlan:
    plans = routes(found, nodes, choices or DrainPolicy(), now=NOW)
    assert len(plans) == 1
    return plans[0]


def planned(found: Snapshot, nodes: tuple[str, ...] = ("n1",), **choices: t.Any) -> tuple[PodPlan, ...]:
    return routes(found, nodes, DrainPolicy(**choices), now=NOW)


def on_its_own(**changes: t.Any) -> Snapshot:
    """One pod, of nobody unless `owner` says so."""
    return snapshot(pods=[pod("p", **changes)])


def web(
    replicas: int, *, here: int = 1, pod_changes: Raw | None = None, spec: Raw | None = None, **kinds: list[Raw]
) -> Snapshot:
    """Deployment `web`, `here` of its pods on n1 (with `pod_changes`), the others on n2."""
    pods = [
        pod(f"web-{i}", "n1" if i < here else "n2", WEB, **(pod_changes or {} if i < here else {}))
        for i in range(replicas)
    ]
    return snapshot(deployment("web", replicas, **(spec or {})), pods=pods, **kinds)


def wave_seconds(
    found: Snapshot, plans: t.Sequence[PodPlan], waves: t.Iterable[t.Collection[str]], **options: t.Any
) -> list[int]:
    return [wave.seconds for wave in wave_times(found, plans, waves, **options)]
