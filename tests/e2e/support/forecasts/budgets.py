# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Generated workloads under generated budgets: what the plan of a node says of them, and what a real drain comes to."""

from __future__ import annotations

import collections
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from witness import objects as o
from witness.api import Api, ApiError
from witness.log import Json

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import run_drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import client
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import run_cordon, run_node_steps
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import run_plan as planning
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import run_guard
from support import nodes as fake
from support import shapes
from support.arena import Arena, arena_name
from support.waiting import until

AT_A_TIME = 16
PATIENCE = 90.0
LASTING = 300.0
"""Seconds for a drain that is foreseen to finish. The disruption controller knows evicted pods by their names: a pod of
a StatefulSet that ends at once can have its successor before it looks, which then counts as evicted for two minutes.
"""
LONG = 25.0
"""Seconds after which a drain that is not foreseen to finish is taken to wait for ever: these pods start at once."""
TIER = "tier"
RULES = ("minAvailable", "maxUnavailable")
AMOUNTS = (0, 1, 1, 1, 2, 2, 3, 4, 5, "0%", "1%", "34%", "50%", "67%", "99%", "100%")
SHAPES = (("Deployment", 1), ("Deployment", 2), ("Deployment", 3), ("Deployment", 4), ("StatefulSet", 2))
BY_RULE = ("budget_allows_nothing", "two_budgets")
"""Codes of pods that no budget of theirs lets go, not even when all pods are Ready."""


@dataclass(frozen=True)
class App:
    """A workload; `unready` of its pods stop serving before the maintenance."""

    name: str
    kind: str
    replicas: int
    unready: int


@dataclass(frozen=True)
class Case:
    """`together`: all pods are on the node that leaves; `room`: so many pods fit on the two other nodes, if not all."""

    seed: int
    apps: tuple[App, ...]
    budgets: Mapping[str, Json]
    together: bool
    room: int | None


def case(seed: int) -> Case:
    """The case of a seed; another one gives the same again."""
    dice = random.Random(seed)
    apps = []
    for name in ("a", "b")[: dice.randint(1, 2)]:
        kind, replicas = dice.choice((*SHAPES, ("StatefulSet", 3)))
        apps.append(App(name, kind, replicas, min(replicas, dice.choice((0, 0, 0, 1, replicas)))))
    budgets = {}
    for _number in range(dice.choice((0, 1, 1, 2, 2))):
        whose, rule = dice.choice((*(app.name for app in apps), TIER)), dice.choice(RULES)
        budget: Json = {"selector": {"matchLabels": {TIER: "shop"} if whose == TIER else {"app": whose}}}
        budget[rule] = dice.choice(AMOUNTS)
        if policy := dice.choice(("", "IfHealthyBudget", "AlwaysAllow")):
            budget["unhealthyPodEvictionPolicy"] = policy
        budgets[f"{whose}-{rule}".lower()] = budget
    pods = sum(app.replicas for app in apps)
    together = dice.random() < 0.5
    room = dice.randint(0, pods) if together and dice.random() < 0.3 else None
    return Case(seed, tuple(apps), budgets, together, room)


@dataclass(frozen=True)
class Verdict:
    """What becomes of a node: `finishes`, or it does not because of `objects`, for which it may only wait."""

    finishes: bool
    objects: frozenset[str] = frozenset()
    waits: bool = False


@dataclass(frozen=True)
class Compared:
    """A case with what its plan says, what came, and in which points that is not the same."""

    case: Case
    foreseen: Verdict
    finished: bool
    blocking: frozenset[str]
    faults: tuple[str, ...]

    @property
    def falsely_promised(self) -> bool:
        return self.foreseen.finishes and not self.finished


def foreseen(plan: Json) -> Verdict:
    """Read from the returns of maintenance_plan alone."""
    blocking = {held["name"] for held in plan["budgets"] if held["blocks"]}
    if blocking or not plan["feasible"]:
        return Verdict(False, frozenset(blocking))
    waiting = {held["name"] for held in plan["budgets"] if not held["allowed"]}
    if waiting:
        return Verdict(False, frozenset(waiting), waits=True)
    nowhere = {pod["owner"] for pod in plan["pods"] if pod["fits"] is False}
    return Verdict(not nowhere, frozenset(nowhere))


class Played:
    """A case on the lab, in an arena of its own; `compare` drains its node."""

    def __init__(self, api: Api, cluster: client.Cluster, chosen: Case) -> None:
        self.arena = Arena(api, arena_name(f"budgets {chosen.seed}"))
        self.cluster = cluster
        self.case = chosen
        self.faults: list[str] = []

    def compare(self) -> Compared:
        node = self._build()
        plan = self._run(lambda ctx: planning.make_plan(ctx, planning.PlanOptions(nodes=(node,))))
        verdict = foreseen(plan)
        stuck = [pod for pod in plan["pods"] if pod["code"] in drain_policy.BUDGET_FORBIDS]
        nowhere = any(pod["fits"] is False for pod in plan["pods"])
        roomless = any(finding["code"] == "no_room" for finding in plan["findings"])
        feasible = not stuck and not roomless
        self._expect(verdict.waits or plan["feasible"] == feasible, f"feasible: {plan['feasible']}, stuck: {stuck}")
        result = self._drained(node, LASTING if verdict.finishes else LONG)
        finished = result["outcome"] in ("drained", "already_drained")
        left = [
            pod for pod in result["pods"] if pod["outcome"] in ("not_moved", "moved_not_ready", "refused", "failed")
        ]
        blocking = frozenset(pod["blocked_by"]["name"] for pod in left if pod.get("blocked_by"))
        self._refused(stuck)
        if finished:
            self._expect(not stuck, f"drained in spite of {verdict.objects}")
            self._expect(self._all_ready() != nowhere, "all Ready, but not foreseen" if nowhere else "one is not Ready")
        elif not stuck:
            self._expect(not verdict.finishes, f"{result['outcome']}: {result['message']}")
            if verdict.waits:
                others = blocking - verdict.objects - self._counting()
                self._expect(not others, f"waited for {set(blocking)}, not for {set(verdict.objects)}")
        if verdict.waits or (stuck and not finished):
            self._heal()
            self._refused([pod for pod in stuck if pod["code"] in BY_RULE])
            again = self._drained(node, LASTING)["outcome"] if not (stuck or nowhere) else "drained"
            self._expect(again in ("drained", "already_drained"), f"{again}, even with all pods Ready")
        return Compared(self.case, verdict, finished, blocking, tuple(self.faults))

    def _expect(self, holds: object, fault: str) -> None:
        if not holds:
            self.faults.append(fault)

    # -- the lab

    def _build(self) -> str:
        """The node to be drained."""
        arena, chosen = self.arena, self.case
        node, *others = arena.nodes(3)
        if chosen.room is not None:
            for number, other in enumerate(others):
                room = {"pods": str((chosen.room + number) // 2)}
                arena.api.patch(f"{fake.path(other)}/status", {"status": {"allocatable": room, "capacity": room}})
        if chosen.together:
            with arena.placing(node):
                self._workloads()
        else:
            self._workloads()
        until(self._is_ready, PATIENCE, f"the pods of case {chosen.seed} are Ready")
        for app in chosen.apps:
            for pod in arena.pods(app.name)[: app.unready]:
                arena.patch("Pod", o.name(pod), {"metadata": {"annotations": {"lab.kubeops.io/ready": "never"}}})
        until(self._is_counted, PATIENCE, f"the budgets of case {chosen.seed} have counted")
        return node

    def _workloads(self) -> None:
        for name, spec in self.case.budgets.items():
            self.arena.create(
                "PodDisruptionBudget", {"apiVersion": "policy/v1", "metadata": {"name": name}, "spec": spec}
            )
        for app in self.case.apps:
            made = shapes.template(self.arena.name, app.name, "0s", "0s", None, None)
            made["metadata"]["labels"][TIER] = "shop"
            self.arena.create(app.kind, shapes.workload(app.kind, app.name, made, app.replicas, None))

    def _is_ready(self) -> bool:
        pods = self.arena.pods()
        return len(pods) == sum(app.replicas for app in self.case.apps) and all(o.ready(pod) for pod in pods)

    def _is_counted(self) -> bool:
        """The workloads and budgets have seen which pods are Ready.

        Of the budgets of a pod only one is counted anew when the pod changes. The others are not waited for.
        """
        pods = self.arena.pods()
        for app in self.case.apps:
            ready = sum(o.ready(pod) for pod in pods if o.labels(pod)["app"] == app.name)
            status = (self.arena.find(app.kind, app.name) or {})["status"]
            if {ready, status.get("readyReplicas", 0)} != {app.replicas - app.unready}:
                return False
        budgets = self.arena.all("PodDisruptionBudget")
        covered = [[pod for pod in pods if o.matches(one["spec"]["selector"], o.labels(pod))] for one in budgets]
        times = collections.Counter(o.name(pod) for matched in covered for pod in matched)
        for budget, matched in zip(budgets, covered, strict=True):
            status = budget.get("status") or {}
            seen = status.get("currentHealthy", 0), status.get("expectedPods", 0)
            alone = all(times[o.name(pod)] == 1 for pod in matched)
            if status.get("observedGeneration") != budget["metadata"]["generation"]:
                return False
            if alone and seen != (sum(map(o.ready, matched)), len(matched)):
                return False
        return True

    def _counting(self) -> set[str]:
        """The budgets that count a pod as evicted for two minutes, see ``LASTING``."""
        budgets = self.arena.all("PodDisruptionBudget")
        return {o.name(one) for one in budgets if (one.get("status") or {}).get("disruptedPods")}

    def _all_ready(self) -> bool:
        """All pods are Ready again but those that do not serve on the other nodes."""

        def ready() -> bool:
            pods = [pod for pod in self.arena.pods() if "lab.kubeops.io/ready" not in o.notes(pod)]
            return all(o.ready(pod) for pod in pods) and len(self.arena.pods()) + self._held_back() == self._wanted()

        try:
            return until(ready, 20, "all successors are Ready")
        except AssertionError:
            return False

    def _wanted(self) -> int:
        return sum(app.replicas for app in self.case.apps)

    def _held_back(self) -> int:
        """How many pods the StatefulSets do not create, because one before them does not serve on another node."""
        held = 0
        for app in self.case.apps:
            if app.kind != "StatefulSet":
                continue
            pods = {o.name(pod): o.ready(pod) for pod in self.arena.pods(app.name)}
            names = [f"{app.name}-{number}" for number in range(app.replicas)]
            unready = [number for number, name in enumerate(names) if pods.get(name) is False]
            held += sum(name not in pods for name in names[min(unready, default=app.replicas) :])
        return held

    def _heal(self) -> None:
        """All pods serve, wherever they are, but those that fit nowhere."""
        for pod in self.arena.pods():
            if "lab.kubeops.io/ready" in o.notes(pod):
                self.arena.patch("Pod", o.name(pod), {"metadata": {"annotations": {"lab.kubeops.io/ready": None}}})

        def ready() -> bool:
            return all(o.ready(pod) for pod in self.arena.pods() if pod["spec"].get("nodeName"))

        until(ready, PATIENCE, "the pods serve again")

    # -- the collection, and the API server's own word

    def _run(self, loop: object) -> Json:
        assert callable(loop)
        result: run_context.Result = loop(
            run_context.Context(self.cluster, run=run_context.Run(self.arena.name, "first"))
        )
        return dict(result.data)

    def _drained(self, node: str, timeout: float) -> Json:
        self._run(lambda ctx: run_cordon.cordon(ctx, run_node_steps.CordonOptions("cordoned", (node,))))
        self._run(lambda ctx: run_guard.guard(ctx, run_guard.GuardOptions("present", (node,), timeout=timeout)))
        options = run_drain.DrainOptions((node,), drain_policy.DrainPolicy(), timeout=timeout)
        (found,) = self._run(lambda ctx: run_drain.drain(ctx, options))["nodes"]
        return dict(found)

    def _refused(self, pods: Sequence[Json]) -> None:
        """They are still there, and the API server refuses their evictions for the budget that the plan names."""
        for pod in pods:
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": {"name": pod["name"], "namespace": pod["namespace"]},
                "deleteOptions": {"preconditions": {"uid": pod["uid"]}, "dryRun": ["All"]},
            }
            said = f"evicted {pod['name']}"
            try:
                self.arena.api.request(
                    "POST", f"{self.arena.path('Pod', pod['name'])}/eviction", body, query={"dryRun": "All"}
                )
            except ApiError as error:
                said = str(error.body)
            names = [budget.rpartition("/")[2] for budget in pod["budgets"]]
            wanted = "more than one PodDisruptionBudget" if len(names) > 1 else f"disruption budget {names[0]} "
            self._expect(wanted in said, f"{pod['name']} ({pod['code']}, {names}): {said}")


def played(api: Api, connect: Callable[[], client.Cluster], seeds: Sequence[int]) -> Iterator[Compared]:
    """Some cases at once, each in a corner of the lab and with connections of its own, of which a cluster has 32."""

    def one(seed: int) -> Compared:
        cluster = connect()
        case_here = Played(api, cluster, case(seed))
        try:
            return case_here.compare()
        finally:
            case_here.arena.clear(alone=False)
            cluster.close()

    with ThreadPoolExecutor(AT_A_TIME) as pool:
        yield from pool.map(one, seeds)


def told(one: Compared) -> str:
    """A disagreement, as the test prints it."""
    return f"{one.case}\n  foreseen: {one.foreseen}\n  finished: {one.finished}, by {set(one.blocking)}\n  {one.faults}"


def report(compared: Sequence[Compared]) -> str:
    """The numbers of a comparison."""
    wrong = [one for one in compared if one.faults]
    blocked = sum(1 for one in compared if not one.foreseen.finishes and not one.foreseen.waits)
    waits = [one for one in compared if one.foreseen.waits]
    return (
        f"{len(compared)} nodes: {len(compared) - len(wrong)} agree, "
        f"{sum(one.falsely_promised for one in compared)} promised in vain; "
        f"{sum(one.foreseen.finishes for one in compared)} foreseen to finish, {blocked} to be blocked, "
        f"{len(waits)} to wait for a budget ({sum(not one.finished for one in waits)} did)"
    )
