# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A drain by jobs of pods that are only told of, on a simulated cluster whose controller stands still."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.dispositions import routes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.run_dispatcher import JobDispatcher
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.outcomes import PodOutcome
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.migration_controller import Controller
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.run_pod_drain import PodDrain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_cluster import becomes, jobs_of

EVICTING = {"type": "Eviction", "status": "False"}
LIMITS = Controller(object_limiters={}, max_migrating_per_node=2, max_migrating_per_workload=2)


FOREVER = float("inf")


class Scene:
    """Deployment (or another kind) `web` of nine with pods on node n1, and the feed that is to empty it.

    Of those elsewhere `missing` are not there, and `unready` not Ready.
    """

    def __init__(self, world: World, count: int = 3, kind: str = "ReplicaSet", **choices: t.Any) -> None:
        self.world = world
        self.wanted, self.missing, self.unready = 9, 0, 0
        self.budgets: list[Raw] = []
        self.owner = objects.owned(kind, "web")
        self.pods = [objects.pod(f"web-{i}", owner=self.owner, requests={"cpu": "10m"}) for i in range(count)]
        for raw in self.pods:
            raw["spec"]["schedulerName"] = "koord-scheduler"
        self.choices = DrainPolicy(**{"backend": "koordinator", "controller": LIMITS, **choices})
        self.moves = [
            PodDrain(p, "waiting", 0.0, reason=p.reason) for p in routes(self.snapshot(), {"n1"}, self.choices)
        ]
        self.begin()

    def begin(self, grace: int | None = None, prior: t.Mapping[str, int] | None = None) -> None:
        """A process begins, and the one before it is dead."""
        if "me" in self.world.actors:
            self.world.actors["me"].process.kill()
        self.me = self.world.process("me")
        self.ctx = self.me.ctx()
        self.feed = JobDispatcher(
            self.ctx, self.choices, lambda: None, lambda: None, {"n1": "r1"}, grace, FOREVER, prior or {}
        )
        self.me.run(lambda _ctx: self.feed.start())

    def snapshot(self) -> Snapshot:
        numbers = range(9, 18 - len(self.pods) - self.missing)
        ready = [i >= 9 + self.unready for i in numbers]
        others = [
            objects.pod(f"web-{i}", owner=self.owner, on="n2", ready=up) for i, up in zip(numbers, ready, strict=True)
        ]
        web = objects.deployment("web", self.wanted)
        if self.owner[0]["kind"] == "StatefulSet":
            web = {"stateful_sets": [objects.workload("StatefulSet", "web", self.wanted)]}
        return objects.snapshot(web, pods=[*self.pods, *others], budgets=self.budgets)

    def step(self, seconds: float = 1.0) -> list[str]:
        """A tick of the loop; returns the pods that have jobs."""
        self.world.machine.run_for(seconds)
        self.me.run(lambda _ctx: self.feed.step(self.snapshot(), self.moves))
        return sorted(raw["spec"]["podRef"]["name"] for raw in jobs_of(self.world).values())

    def done_with(self, node: str) -> bool:
        return self.me.run(lambda _ctx: self.feed.done_with(node))

    def job(self, pod: str) -> str:
        return next(name for name, raw in jobs_of(self.world).items() if raw["spec"]["podRef"]["name"] == pod)

    def becomes(self, pod: str, passed: bool = False, **status: t.Any) -> None:
        """What the controller tells of the pod's job."""
        becomes(self.world, self.job(pod), passed, **status)

    def gone(self, pod: str) -> None:
        self.pods = [raw for raw in self.pods if raw["metadata"]["name"] != pod]
        next(m for m in self.moves if m.pod.name == pod).end("gone", PodOutcome.MIGRATED, self.world.machine.now)

    def sent(self, method: str) -> list[Request]:
        return [sent.request for sent in self.world.log if sent.request.method == method]
