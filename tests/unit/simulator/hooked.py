# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hooks while a node is drained: a world with one node, the application's side of its hooks, and what it saw."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.pod_selectors import PodSelector
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_drain import DrainOptions, drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_guard import GuardOptions, guard
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Task
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World

RUN = "r1/first"
NODES = kinds.NODES.resource


def pods(labels: str) -> PodSelector:
    return PodSelector(selectors.parse(labels))


def rule(
    hook: hook_definitions.Hook,
    action: hook_definitions.Action,
    app: str = "web",
    deadline: float = 60.0,
    **more: t.Any,
) -> hook_definitions.Rule:
    http = hook_definitions.Http("http://{name}.example/drain", **more) if action == "http" else None
    tasks = "/tasks.yml" if action == "tasks" else ""
    return hook_definitions.Rule(hook, f"{app}-{action}", action, deadline, pods(f"app={app}"), http=http, tasks=tasks)


BEFORE, AFTER = rule("before_pod", "http"), rule("after_pod", "http")
HANDSHAKE = rule("before_pod", "annotation")


def sorted_by_hook(rules: t.Iterable[hook_definitions.Rule]) -> hook_definitions.Rules:
    """Those of pods, as a drain takes them."""
    before, after = (tuple(one for one in rules if one.hook == hook) for hook in ("before_pod", "after_pod"))
    return hook_definitions.Rules(before, after)


@dataclass
class Scene:
    """A world with one node to drain, the application's side of its hooks, and what it saw."""

    world: World
    rules: hook_definitions.Rules
    answer: t.Callable[[int], int] = lambda count: 200
    calls: list[tuple[float, str, t.Mapping[str, t.Any]]] = field(default_factory=list)
    asked: set[str] = field(default_factory=set)

    def send(self, http: hook_definitions.Http, variables: t.Mapping[str, t.Any], timeout: float) -> int:
        assert timeout > 0
        self.calls.append((self.world.machine.now, http.url, dict(variables)))
        return self.answer(len(self.calls))

    def begin(self) -> Actor:
        me = self.world.process("me")
        assert not me.run(lambda ctx: cordon(ctx, CordonOptions("cordoned", ("n1",))), RUN).failed
        assert not me.run(lambda ctx: guard(ctx, GuardOptions("present", ("n1",))), RUN).failed
        return me

    def drain(self, me: Actor, *, check: bool = False) -> Task:
        options = DrainOptions(("n1",), DrainPolicy(), hooks=self.rules, send=self.send)
        if check:
            return me.spawn(lambda: drain(me.ctx(RUN, check=True), options))
        return me.call(lambda ctx: drain(ctx, options), RUN)

    def ended(self, task: Task) -> Result:
        self.world.machine.run_until(lambda: not task.alive, within=900)
        assert not task.alive, "the call does not end"
        return t.cast("Result", task.value())

    def record(self) -> str:
        return str(self.world.get(kinds.NODES, "n1")["metadata"]["annotations"][names.RECORD])

    def evicted(self) -> list[tuple[float, str]]:
        found = [s for s in self.world.log if s.request.resource == "pods/eviction" and s.status == 201]
        return [(sent.arrived, sent.request.name) for sent in found]

    def agree(self, after: float) -> None:
        """The application: it agrees so long after the announcement, with its value."""

        def look() -> None:
            for pod in self.world.pods(app="web"):
                self._answer(pod, after)
            self.world.machine.after(1.0, look, "look")

        self.world.machine.after(1.0, look, "look")

    def _answer(self, pod: t.Any, after: float) -> None:
        notes, name = pod["metadata"].get("annotations") or {}, pod["metadata"]["name"]
        if names.PLANNED not in notes or name in self.asked:
            return
        self.asked.add(name)
        ready = {"metadata": {"annotations": {names.READY_TO_MOVE: notes[names.PLANNED]}}}

        def patch() -> None:
            if self.world.find(kinds.PODS, name):
                self.world.patch(kinds.PODS, name, ready)

        self.world.machine.after(after, patch, "agree")


Make = t.Callable[..., Scene]


@contextlib.contextmanager
def scenes() -> t.Iterator[Make]:
    """Makes worlds with pods of `web`, for which the rules are, and of `other`; all are closed at the end."""
    made: list[World] = []

    def make(*rules: hook_definitions.Rule, replicas: int = 2, **more: t.Any) -> Scene:
        world = World([manifests.node("n1"), manifests.deployment("web", replicas), manifests.deployment("other", 2)])
        world.apply(manifests.service("web"), manifests.node("n8"), manifests.node("n9"))
        made.append(world)
        return Scene(world, sorted_by_hook(rules), **more)

    try:
        yield make
    finally:
        for world in made:
            world.close()


def outcome(result: Result) -> tuple[str, str]:
    """Of the node, with the message."""
    (node,) = result.data["nodes"]
    return node["outcome"], node["message"]


def states(result: Result) -> set[tuple[str, str]]:
    """Each hook with its state, as the result of a drain names them."""
    (node,) = result.data["nodes"]
    return {(hook["hook"], hook["state"]) for hook in node.get("hooks", [])}
