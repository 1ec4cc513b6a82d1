# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""When a pod that was replaced has to leave its Services, and for how long that
lasts before it may end.

What was taken off and when is on the pod, so whoever goes on waits for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    objects,
    run_context,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import unserved
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import run_pod_drain

SERVICE_WAIT_SECONDS = 600.0
"""Seconds after which Services that do not drop the pod are waited for no longer."""


@dataclass
class Unserving:
    """``wait`` is the ``load_balancer_wait`` of the call. When a Service was last seen to have
    a pod is by its UID.
    """

    ctx: run_context.Context
    wait: float
    _listed: dict[str, float] = field(default_factory=dict)

    def out(
        self, move: run_pod_drain.PodDrain, pod: objects.Pod, snapshot: snapshots.Snapshot
    ) -> unserved.Unserved | None:
        """What takes the pod out of its Services; ``None`` where nobody wants that,
        it is done, or not possible.
        """
        deployment = snapshot.workload(move.plan.workload.uid) if move.plan.workload else None
        if (
            not move.plan.policy.balanced(self.wait)
            or deployment is None
            or names.UNSERVED in pod.annotations
        ):
            return None
        labels = unserved.chosen(snapshot, pod, deployment)
        if isinstance(labels, reasons.Reason) or not labels:
            return None
        return unserved.Unserved(self.ctx.clock.server(), labels)

    def waits_for(
        self, move: run_pod_drain.PodDrain, pod: objects.Pod, snapshot: snapshots.Snapshot
    ) -> str:
        """What a pod waits for that has left its Services; empty if it may end, or was in none."""
        out = unserved.of(pod)
        if out is None:
            return ""
        passed, now = out.passed(self.ctx.clock.server()), self.ctx.clock.now()
        if (found := unserved.listed(snapshot, pod)) and passed < SERVICE_WAIT_SECONDS:
            self._listed[pod.uid] = now
            return f"{found} to drop {pod.ref}"
        wait = move.plan.policy.balanced(self.wait)
        passed = min(passed, now - self._listed.get(pod.uid, float("-inf")))
        return f"{wait:g} s for load balancers to drop {pod.ref}" if passed < wait else ""
