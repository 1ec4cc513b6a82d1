# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An evictor in a process of its own, on a simulated cluster whose pods are on one node."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_listing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_evictor import Evictor, OperatorWaits
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import PodPlan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.run_pod_drain import PodDrain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault, What
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World


def nobody(node: str) -> None:
    """The lock of whatever node is ours."""
    del node


class Scene:
    """An evictor of a process of its own; `moves` are its pods in the order of their names."""

    def __init__(
        self,
        *objects: Raw,
        code: str = "replicas",
        prove_lock: t.Callable[[str], None] = nobody,
        grace: int | None = None,
        delete: bool = False,
        waits: OperatorWaits | None = None,
        **options: t.Any,
    ) -> None:
        self.world = World([manifests.node("n1", pods=60), *objects])
        self.me = self.world.process("me")
        waits = waits or OperatorWaits(600.0)
        self.evictor = Evictor(self.me.ctx(), prove_lock, lambda: None, 8, grace, delete, waits, **options)
        self.seen = self.look()
        self.moves = [PodDrain(PodPlan(pod, "evict", code, "", None), "waiting", 0.0) for pod in self.seen.pods]

    def look(self) -> Snapshot:
        wanted = ("nodes", "pods", "budgets", "deployments", "replica_sets")
        return self.me.run(lambda ctx: Snapshot.of(run_listing.lists(ctx.cluster, wanted)))

    def step(self, moves: t.Sequence[PodDrain] | None = None) -> None:
        """One turn on the cluster as it was seen last."""
        todo = self.moves if moves is None else moves
        self.me.run(lambda _ctx: self.evictor.step(todo, self.seen))

    def settle(self, seconds: float = 40.0) -> None:
        """Take in the answers as they come, until none is under way."""
        until = self.world.machine.now + seconds
        while not self.evictor.idle and self.world.machine.now < until:
            self.world.machine.run_for(0.02)
            self.me.run(lambda _ctx: self.evictor.settle())
        assert self.evictor.idle

    def turn(self) -> None:
        self.step()
        self.settle()

    @property
    def asked(self) -> list[Request]:
        """The evictions that came to the server."""
        return [sent.request for sent in self.world.log if of_evictions(sent.request) and sent.arrived]

    def states(self) -> list[str]:
        return [move.state for move in self.moves]

    def body(self) -> Raw:
        (request,) = self.asked
        return dict(request.body or {})

    def fails(self, what: What, times: int = 1) -> None:
        self.me.faults.when(of_evictions, Fault(what), times=times)

    def overtaken(self, by: t.Callable[[], t.Any]) -> None:
        self.me.faults.overtaken(of_evictions, by)


def of_evictions(request: Request) -> bool:
    return request.resource == "pods/eviction"


def pods(count: int, **options: t.Any) -> list[Raw]:
    """Pods of nobody, with label app=web."""
    made = manifests.template("web", **options)
    return [
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": f"p{number:02}", "namespace": manifests.SHOP, **made["metadata"]},
            "spec": made["spec"],
        }
        for number in range(count)
    ]


Make = t.Callable[..., Scene]


@contextlib.contextmanager
def scenes() -> t.Iterator[Make]:
    """Makes scenes, whose threads end together."""
    with contextlib.ExitStack() as stack:

        def make(*objects: Raw, **options: t.Any) -> Scene:
            made = Scene(*objects, **options)
            stack.enter_context(made.world)
            return made

        yield make
