# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A drain that stands still between its turns: n1 and n2 are in maintenance by run r1/x, and nothing is on them."""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_watch_cache import WatchCache
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import run_drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_dispositions import Routing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_node_drain import NodeDrain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_replacement_wait import ReplacementWait
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import (
    DrainPolicy,
    PodPlan,
    Route,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.run_pod_drain import PodDrain, State
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import Record, Step
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Saved, World
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects

T = t.TypeVar("T")
RUN = "r1/x"
NODES = ("n1", "n2")


@functools.cache
def begun(step: Step = "cordoned") -> Saved:
    with World([*map(manifests.node, (*NODES, "n9")), manifests.namespace(names.NAMESPACE)]) as world:
        for name in NODES:
            world.cordon(name)
            uid, lease = world.get(kinds.NODES, name)["metadata"]["uid"], f"{names.NAMESPACE}/node-{name}"
            record = Record("r1", "x", "me", "", "2026-01-01T00:00:00Z", step, uid, lease, {"unschedulable": False})
            world.patch(kinds.NODES, name, {"metadata": {"annotations": {names.RECORD: record.dump()}}})
        return world.saved()


class Shown(WatchCache):
    """Watches, unless a test says what they would show."""

    seen: Snapshot | None = None

    def snapshot(self) -> Snapshot:
        return self.seen or super().snapshot()

    def follow(self, wanted: t.Iterable[str]) -> None:
        if self.seen is None:
            super().follow(wanted)


class Bench:
    """The parts of a drain in a process of their own. The watches begin with `watch`."""

    def __init__(self, *, step: Step = "cordoned", check: bool = False, run: str = RUN, **options: t.Any) -> None:
        self.world = World.of(begun(step))
        self.me = self.world.process("me")
        self.ctx = self.me.ctx(run, check=check)
        self.options = run_drain.DrainOptions(NODES, options.pop("choices", DrainPolicy()), **options)
        self.live = Shown(self.ctx, ("nodes", "pods"))
        seen = objects.snapshot(nodes=[self.world.get(kinds.NODES, name) for name in NODES]).nodes
        self.node_drains = {name: NodeDrain(name, seen[name]) for name in NODES}
        self.replacements = ReplacementWait(self.ctx, self.options.wait_for)
        self.routing = Routing(self.ctx, self.options.choices, self.live, self.node_drains, {}, self.replacements)
        for node_drain in self.node_drains.values():
            node_drain.read_record(self.ctx)
        until = self.ctx.clock.now() + (self.options.timeout or float("inf"))
        self.work = self.do(lambda: run_drain._Drain(self.ctx, self.options, self.routing, until))
        self.node_outcomes, self.node_drain = self.work.node_outcomes, self.node_drains["n1"]

    def do(self, call: t.Callable[[], T]) -> T:
        """By a thread of the process."""
        return self.me.run(lambda _ctx: call())

    def watch(self) -> Bench:
        self.do(self.live.__enter__)
        self.world.machine.run_for(5.0)
        return self

    def move(self, name: str, state: State, route: Route = "evict", *, on: str = "n1", **changes: t.Any) -> PodDrain:
        """A move of a pod that nobody has but this drain."""
        plan = PodPlan(
            Pod.of(objects.pod(name, on, **changes.pop("pod", {}))),
            route,
            changes.pop("code", "replicas"),
            changes.pop("reason", "it is one of several."),
            None,
            guarded=changes.pop("guarded", False),
            tolerant=changes.pop("tolerant", False),
        )
        made = PodDrain(plan, state, self.ctx.clock.now(), reason=plan.reason, **changes)
        self.node_drains[on].moves[made.pod.uid] = made
        return made

    def follow(self, seen: Snapshot) -> None:
        """A turn of the routes in which the watches show this."""
        self.live.seen = seen
        self.do(lambda: self.routing.follow(seen))
        self.live.seen = None

    def decide(self, seen: Snapshot | None = None, node_drain: NodeDrain | None = None) -> str:
        """The outcome of n1 after a look; empty while it goes on."""
        here = node_drain or self.node_drain
        self.do(lambda: self.node_outcomes.decide(here, seen or objects.snapshot()))
        if here.open and self.node_outcomes._proofs.going(here.name):
            while not self.node_outcomes._proofs.done(here.name):
                self.world.machine.run_for(0.01)
            self.do(lambda: self.node_outcomes.decide(here, seen or objects.snapshot()))
        return here.outcome.value if here.outcome else ""

    def writes(self, resource: str = "") -> list[str]:
        """Verb and resource of what was written, of one resource where it is named."""
        found = [sent.request for sent in self.world.log if sent.request.writes]
        return [f"{one.verb} {one.resource}" for one in found if resource in ("", one.resource)]

    def step_of(self, node: str) -> str:
        """How far the node's record says that it has come."""
        raw = self.world.get(kinds.NODES, node)
        found = objects.snapshot(nodes=[raw]).nodes[node].annotations.get(names.RECORD, "")
        return next((word for word in ("cordoned", "drained") if f'"step":"{word}"' in found), "")
