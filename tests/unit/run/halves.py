# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Both halves of a swap as calls in a world, with the server between them."""

from __future__ import annotations

import threading
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.clock import Clock
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    NotFound,
    UnknownOutcome,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import migrate, swap
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.change import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.snapshot import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.surge import Surge
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context, Run
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.surge_case import Case
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.surging import Surging
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.swaps import Swaps
from ansible_collections.kubeops.node_maintenance.tests.unit.plan import world as worlds
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.play import recorded
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.world import World

KINDS = {
    "deployments.apps": "Deployment",
    "deployments.apps/scale": "Deployment",
    "horizontalpodautoscalers.autoscaling": "HorizontalPodAutoscaler",
    "leases.coordination.k8s.io": "Lease",
    "pods": "Pod",
    "poddisruptionbudgets.policy": "PodDisruptionBudget",
}

NEWCOMERS = [f"web-{number}-1" for number in range(100, 200)]
"""Names that the second pod may get in a world; while they are down it never serves."""


class Thread(threading.Thread):
    """Runs only when a test calls its target."""

    def start(self) -> None:
        """Nothing happens by itself here."""

    def join(self, timeout: float | None = None) -> None:
        """Nothing runs."""


@dataclass
class Time(Clock):
    """Moves when a test moves it or somebody sleeps; ``background`` are the threads that were started."""

    present: float = 1000.0
    background: list[t.Callable[[], None]] = field(default_factory=list)

    def now(self) -> float:
        return self.present

    def epoch(self) -> float:
        return self.present

    def sleep(self, seconds: float) -> None:
        self.present += seconds

    def thread(self, target: t.Callable[[], None], name: str) -> threading.Thread:
        self.background.append(target)
        return Thread(target=target, name=name)

    def event(self) -> threading.Event:
        return Minute(self)

    def wall(self) -> str:
        return "2026-01-01T00:00:00.000Z"


class Minute(threading.Event):
    """For whoever waits on it again and again a minute passes, and then it is set."""

    def __init__(self, clock: Time) -> None:
        super().__init__()
        self.clock, self.left = clock, 60.0

    def wait(self, timeout: float | None = None) -> bool:
        self.left -= timeout or 0.0
        self.clock.present += timeout or 0.0
        return self.left < 0


@dataclass
class Server:
    """Requests as the engine sends them, made to the world.

    ``deny`` names a resource that is refused, ``lose`` the write (from 0) whose answer is lost. ``before``
    is called before a request passes its fence.
    """

    world: World
    deny: str = ""
    lose: int | None = None
    sent: list[str] = field(default_factory=list)
    before: t.Callable[[Request], None] = lambda request: None

    @property
    def writes(self) -> list[str]:
        return [sent for sent in self.sent if not sent.startswith("get")]

    def send(self, request: Request, *, fence: t.Callable[[], None] | None = None, **_times: float) -> dict[str, t.Any]:
        self.before(request)
        if fence is not None:
            fence()
        answer = self.answer(request)
        if request.method != "GET" and len(self.writes) - 1 == self.lose:
            raise UnknownOutcome("cut", request=request)
        return answer

    def answer(self, request: Request) -> dict[str, t.Any]:
        self.sent.append(f"{request.verb} {request.resource}")
        if request.resource == self.deny:
            raise Forbidden("no", request=request, status=403)
        kind = KINDS[request.resource]
        here = self.world.objects[worlds.LISTS[kind]]
        found = next((x for x in here if x["metadata"]["name"] == request.name), None)
        if request.method == "POST" and found:
            raise AlreadyExists("there", request=request, status=409)
        if request.method != "POST" and found is None:
            raise NotFound("gone", request=request, status=404)
        if request.method != "GET":
            body = dict(request.body or {})
            version = (body.get("preconditions") or body.get("metadata") or {}).get("resourceVersion", "")
            verb = {"POST": "create", "PATCH": "patch", "DELETE": "delete"}[request.method]
            try:
                self.world.apply(
                    Change(t.cast("t.Any", verb), Ref(kind, request.name), "", body, resource_version=version)
                )
            except worlds.Conflict as error:
                raise Conflict("changed", request=request, status=409) from error
        return dict(next((x for x in here if x["metadata"]["name"] == request.name), {}))


class Play:
    """One call of ``pdb_guard`` on node n1 in this world."""

    def __init__(self, world: World, run: str = "r1/n1", state: t.Any = "plan") -> None:
        self.world, self.server, self.clock = world, Server(world), Time()
        self.fenced: list[tuple[str, ...]] = []
        me = t.cast("Run", Run.parse(run))
        self.ctx = Context(t.cast("t.Any", self.server), clock=self.clock, by="me@here", run=me)
        self.case = Case(Ref("Deployment", "web", "shop", "uid-Deployment-web", "apps/v1"), ("n1",), state)
        self.surging = Surging(self.ctx, me, 2.0, self.plan, self.fence, ["n1"], [self.case])

    def fence(self, nodes: t.Collection[str] = ()) -> None:
        self.fenced.append(tuple(nodes))

    def plan(self, seen: Snapshot) -> dict[str, Surge]:
        plans = migrate.routes(seen, ["n1"], migrate.Choices(swap_blocked=True))
        found = swap.surges(seen, plans, run=self.ctx.run.id if self.ctx.run else "", by="me@here", since="now")
        return {surge.uid: surge for surge in found}

    def rounds(self, count: int = 30, seconds: float = 1.0) -> Case:
        for _round in range(count):
            self.surging.step(self.world.snapshot())
            if self.surging.done:
                break
            self.world.act()
            self.clock.present += seconds
        return self.case


class End:
    """One drain's swaps in this world, its first half done by another process."""

    def __init__(self, world: World, run: str = "r1/n1") -> None:
        self.world, self.server, self.clock = world, Server(world), Time()
        ctx = Context(t.cast("t.Any", self.server), clock=self.clock, run=Run.parse(run))
        self.ctx, self.swaps = ctx, Swaps(ctx, [recorded(world)])

    def rounds(self, count: int = 20) -> Swaps:
        for _round in range(count):
            if self.swaps.done:
                break
            self.swaps.step(self.world.snapshot())
            self.world.act()
            self.clock.present += 1.0
        return self.swaps
