# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Both halves of a surge as calls in a world, each in a process of its own."""

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import dispositions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.surge_records import Surge
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import steps
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_lower import Surges
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_raise import Surging, WorkloadSurge
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.support.play import recorded
from ansible_collections.kubeops.node_maintenance.tests.unit.support.world import World

_NUMBERS = itertools.count(1)


class Caller:
    """A process of a run; what was asked for is told since it began."""

    def __init__(self, world: World, run: str) -> None:
        self.world = world
        self.me = world.sim.process(f"{run} {next(_NUMBERS)}")
        self.ctx = self.me.ctx(run)
        self.proven: list[tuple[str, ...]] = []

    def prove_locks(self, nodes: t.Collection[str] = ()) -> None:
        self.proven.append(tuple(nodes))

    @property
    def sent(self) -> list[str]:
        """Verb and resource of each request, refused or not."""
        return [f"{s.request.verb} {s.request.resource}" for s in self.world.sim.log if s.process == self.me.name]

    @property
    def writes(self) -> list[str]:
        return [sent for sent in self.sent if not sent.startswith("get")]

    def loses(self, number: int) -> None:
        """The answer to this write (from 0) is lost."""
        count = itertools.count()
        self.me.faults.when(lambda request: request.writes and next(count) == number, Fault("lost"))

    def does(self, call: t.Callable[[], t.Any]) -> None:
        """Made by a thread of the process, as all of its calls are."""
        self.me.run(lambda _ctx: call())


class Play(Caller):
    """One call of ``pdb_guard`` on node n1 in this world."""

    def __init__(self, world: World, run: str = "r1/n1", state: t.Any = "plan") -> None:
        super().__init__(world, run)
        me = self.ctx.run
        assert me is not None
        self.case = WorkloadSurge(Ref("Deployment", "web", "shop", world.uid, "apps/v1"), "n1", state)
        self.surging = Surging(self.ctx, me, 2.0, self.plan, self.prove_locks, ["n1"], [self.case])

    def plan(self, seen: Snapshot) -> dict[str, Surge]:
        plans = dispositions.routes(seen, ["n1"], DrainPolicy(method="surge"))
        run = self.ctx.run.id if self.ctx.run else ""
        found = steps.surges(seen, plans, run=run, by="me@here", since=self.ctx.clock.server())
        return {surge.uid: surge for surge in found}

    def step(self, seen: Snapshot | None = None) -> None:
        """One step, on the cluster as it is or as it was seen."""
        self.does(lambda: self.surging.step(seen or self.world.snapshot()))

    def rounds(self, count: int = 30, seconds: float = 1.0) -> WorkloadSurge:
        """So many steps; a call that has come to its end ends."""
        for _round in range(count):
            self.step()
            if self.surging.done:
                self.does(self.surging.close)
                break
            self.world.act(seconds)
        return self.case


class End(Caller):
    """One drain's surges in this world, its first half done by another process."""

    def __init__(self, world: World, run: str = "r1/n1") -> None:
        super().__init__(world, run)
        self.surges = Surges(self.ctx, [recorded(world)], self.prove_locks)

    def step(self, seen: Snapshot | None = None) -> None:
        self.does(lambda: self.surges.step(seen or self.world.snapshot()))

    def rounds(self, count: int = 20) -> Surges:
        for _round in range(count):
            if self.surges.done:
                self.does(self.surges.close)
                break
            self.step()
            self.world.act()
        return self.surges
