# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The smallest real use of each step, in a world that they share: what is wrong with it, and everything given back."""

from __future__ import annotations

import abc
import collections
import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

from witness.api import JSON_PATCH
from witness.log import Json

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import arguments as access
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import arguments as drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    arguments_cordon,
    arguments_ready,
    arguments_taint,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import arguments as plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.rehearsal import arguments as copies
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import arguments_event
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs import arguments as state
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import arguments as guard
from support import devices, rights, shapes
from support import nodes as fake
from support.ablation import calling
from support.ablation.accounts import Account
from support.arena import Arena
from support.lab import Lab
from support.waiting import until

OURS = "kubeops-node-maintenance"
LOST = "node.kubernetes.io/unreachable"


class World:
    """Four nodes, and on two of them pods of each kind that a right is for."""

    APART, MOVING = "apart", "moving"
    ASIDE = ("agent", MOVING)
    """Apps that are not moved with the others."""

    def __init__(self, lab: Lab, arena: Arena) -> None:
        self.lab, self.arena, self.api = lab, arena, arena.api
        self.nodes = arena.nodes(4)
        with arena.placing(self.nodes[0]):
            self.fill()
        selector = {"matchLabels": {"app": self.APART}}
        never_together = [{"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}]
        affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": never_together}}
        arena.deployment(self.APART, 2, service=False, pod={"affinity": affinity}, on=self.nodes[:2])
        arena.deployment(self.MOVING, 2, budget={"maxUnavailable": 1}, service=False)
        arena.settle()

    def fill(self) -> None:
        """Makes the pods."""
        arena = self.arena
        arena.deployment("single", notes={"maintenance.kubeops.io/method": "surge"})
        arena.workload("ReplicaSet", "set")
        arena.deployment("many", 2, budget={"maxUnavailable": 1})
        arena.deployment("bare", 2, service=False)
        arena.statefulset("ordered", 2, service=False)
        arena.daemonset("agent")
        arena.deployment("shared", 2, pod=arena.claim("ReadWriteMany"), service=False)
        self._replication_controller("old")

    def _replication_controller(self, name: str) -> None:
        path = f"/api/v1/namespaces/{self.arena.namespace}/replicationcontrollers"
        template = shapes.template(self.arena.name, name, "0s", "0s", None, None)
        self.api.create(path, {"metadata": {"name": name}, "spec": {"replicas": 2, "template": template}})
        until(lambda: len(self.arena.pods(name)) == 2, 30, f"the pods of {name} are there")

    @property
    def full(self) -> list[str]:
        """The two nodes that the pods are on, the fuller first."""
        pods = [pod for pod in self.arena.pods() if pod["metadata"]["labels"]["app"] not in self.ASIDE]
        return [node for node, _count in collections.Counter(pod["spec"]["nodeName"] for pod in pods).most_common()]


class Scene(abc.ABC):
    """One use of some steps. ``steps`` are the roles that the guide names for it."""

    steps: ClassVar[tuple[str, ...]]
    everywhere: ClassVar[tuple[str, ...]] = ()
    lacks: ClassVar[tuple[str, ...]] = ()

    def __init__(self, world: World, folder: Path) -> None:
        self.world, self.lab, self.api, self.arena = world, world.lab, world.api, world.arena
        self.folder = folder
        self.account = Account(world.lab, folder, self.name, self.steps, self.everywhere, self.lacks)

    def end(self) -> None:
        """Takes away what only this scene needs."""
        self.account.end()

    @property
    def name(self) -> str:
        """As the table calls it."""
        return type(self).__name__.lower()

    def go(self) -> list[str]:
        """What is wrong, in its words; empty where nothing is."""
        with self.given_back():
            try:
                self.use()
            except calling.LackingError as error:
                return error.said
        return []

    @abc.abstractmethod
    def use(self) -> None:
        """Do it as the account; raises LackingError where it does not what it should."""

    @contextlib.contextmanager
    def given_back(self) -> Iterator[None]:
        """Everything is as before afterwards, by an account with all rights."""
        yield

    def done(self, spec: specs.ModuleSpec, **arguments: Any) -> dict[str, Any]:
        return calling.done(spec, self.account.config, **arguments)

    def as_administrator(self, spec: specs.ModuleSpec, **arguments: Any) -> Json:
        result = calling.call(spec, str(self.lab.kubeconfig), **arguments)
        assert not result["failed"], result["msg"]
        return result

    def expect(self, good: object, otherwise: str) -> None:
        if not good:
            raise calling.LackingError([otherwise])

    def nodes_back(self, nodes: list[str], run: str) -> None:
        """The nodes as they were before the run."""
        mine: Json = {"nodes": nodes, "run": run}
        self.as_administrator(guard.SPEC, state="absent", **mine)
        self.as_administrator(arguments_cordon.SPEC, state="uncordoned", **mine)
        self.as_administrator(state.SPEC, state="ended", run=run)
        self.arena.settle()


class Plan(Scene):
    """``maintenance_plan``: what it says differs from what it says with all rights."""

    steps = ("read", "look")

    def __init__(self, world: World, folder: Path) -> None:
        super().__init__(world, folder)
        self._usual: list[str] = []
        self._usual = self._said()

    def use(self) -> None:
        said = self._said()
        new = [one for one in said if one not in self._usual]
        gone = [f"It does not say: {one}" for one in self._usual if one not in said]
        if new or gone:
            raise calling.LackingError([*new, *gone])

    def _said(self) -> list[str]:
        found = calling.call(plan.SPEC, str(self.account.config), nodes=self.world.full)
        listed = calling.call(state.SPEC, str(self.account.config), state="listed")
        said = [one["message"] for one in (*found["findings"], *listed.get("findings", ()))]
        said += [f"{one['name']}: {one['route']}, {one['code']}, {one['forecast']}" for one in found.get("pods", ())]
        return [*said, str(found.get("waves")), str(found.get("fence")), listed["msg"]]


class Maintain(Scene):
    """The whole way of two nodes, by the modules."""

    steps = ("read", "locks", "runs", "nodes", "conditions", "evict", "guard", "surge", "announce")

    def __init__(self, world: World, folder: Path) -> None:
        super().__init__(world, folder)
        self._run = ""
        self._nodes: list[str] = []
        self._planned: Json = {}

    def use(self) -> None:
        here, *beside = nodes = self._nodes
        asked: Json = {"max_parallel": len(nodes), "node_conditions": True, "announce_events": True}
        self._planned = self.done(plan.SPEC, nodes=nodes, **asked)
        blockers = [one["message"] for one in self._planned["findings"] if one["severity"] == "blocker"]
        self.expect(not blockers, " ".join(blockers))
        waves = {"waves": [nodes]}
        self._run = str(self.done(state.SPEC, state="started", input={"n": here}, plan=waves)["run"])
        mine: Json = {"nodes": nodes, "run": self._run}
        self.done(arguments_cordon.SPEC, state="cordoned", node_conditions=True, reason="ablation", **mine)
        self.done(guard.SPEC, state="present", settle="0s", **mine)
        self.done(drain.SPEC, wait_for=["gone", "replacement", "volumes"], timeout="120s", **mine)
        out = self.done(arguments_cordon.SPEC, state="out", **mine)
        waits = [one["message"] for one in out["timeline"] if "load balancers" in one["message"]]
        self.expect(not waits, f"No Service has a load balancer, and still: {' '.join(waits)}")
        self.done(arguments_cordon.SPEC, state="returning", **mine)
        self.done(arguments_ready.SPEC, nodes=nodes, gates=["ready", "daemonsets"], wait=True, timeout="30s")
        self.done(state.SPEC, state="noted", **mine)
        self.done(guard.SPEC, state="absent", **{**mine, "nodes": beside})
        self.done(guard.SPEC, state="absent", **mine)
        self._tainted(here)
        self.done(arguments_cordon.SPEC, state="uncordoned", **mine)
        self._announced()
        self.done(state.SPEC, state="ended", run=self._run)

    def _tainted(self, node: str) -> None:
        wanted: Json = {"nodes": [node], "taints": [{"key": "ablation", "effect": "PreferNoSchedule"}]}
        self.done(arguments_taint.SPEC, **wanted)
        self.done(arguments_taint.SPEC, **wanted, state="absent")

    def _announced(self) -> None:
        result = self.done(arguments_event.SPEC, moment="ended", events=True, results=[self._planned], run=self._run)
        self.expect(not result["warnings"], " ".join(result["warnings"]))
        path = f"/apis/events.k8s.io/v1/namespaces/{self.arena.namespace}/events"
        told = [one["regarding"] for one in self.api.items(path) if "maintenance" in one.get("reportingController", "")]
        nameless = sorted({one["kind"] for one in told if not one.get("uid")})
        self.expect(told and not nameless, f"kubectl describe shows no Event of a {', '.join(nameless)}")

    @contextlib.contextmanager
    def given_back(self) -> Iterator[None]:
        self._run, self._nodes = "", self.world.full
        try:
            yield
        finally:
            if self._run:
                self.nodes_back(self._nodes, self._run)
            base = f"/apis/events.k8s.io/v1/namespaces/{self.arena.namespace}/events"
            for one in self.api.items(base):
                self.api.delete(f"{base}/{one['metadata']['name']}")


class Draining(Scene):
    """One drain of one node, with other rights than those of ``maintain``."""

    steps: ClassVar[tuple[str, ...]] = ("read", "locks", "runs", "nodes")
    app = World.MOVING
    options: ClassVar[Json] = {}

    def use(self) -> None:
        mine: Json = {"nodes": [self._node], "run": self._run}
        self.done(arguments_cordon.SPEC, state="cordoned", **mine)
        asked: Json = {"pod_selector": f"app={self.app}", "timeout": "60s", **self.options}
        self._drained = self.done(drain.SPEC, **mine, **asked)["nodes"][0]["pods"]

    @contextlib.contextmanager
    def given_back(self) -> Iterator[None]:
        self._node = self._pods()[0]["spec"]["nodeName"]
        started = self.as_administrator(state.SPEC, state="started", input={}, plan={"waves": [[self._node]]})
        self._run = str(started["run"])
        try:
            yield
        finally:
            self.nodes_back([self._node], self._run)

    def _pods(self) -> list[Json]:
        return self.arena.pods(self.app)


class Delete(Draining):
    """``disable_eviction``."""

    steps = (*Draining.steps, "delete-pods")
    options: ClassVar[Json] = {"disable_eviction": True, "allow_interruption": True}


class Replaced(Draining):
    """Pods that are replaced before they leave; no count, no autoscaler and no budget may be changed."""

    steps = (*Draining.steps, "evict", "replace")
    options: ClassVar[Json] = {"method": "replace"}

    def use(self) -> None:
        super().use()
        mine = [one for one in self._drained if one["name"].startswith(self.app)]
        self.expect(all(one["route"] == "replace" for one in mine), " ".join(one["reason"] for one in mine))


class Hooks(Draining):
    """An application that agrees by annotations; it agrees beforehand to each maintenance of this node."""

    steps = (*Draining.steps, "evict", "hooks")
    options: ClassVar[Json] = {"before_pod": [{"pods": f"app={World.MOVING}", "annotation": True, "deadline": "20s"}]}
    PLANNED, READY = (f"maintenance.kubeops.io/{word}" for word in ("maintenance-planned", "ready-to-move"))

    def use(self) -> None:
        with agreeing(self.arena, self.app, self.PLANNED, self.READY):
            super().use()


class Dead(Scene):
    """A node whose kubelet is gone, which somebody fenced; in check mode, so it can be evacuated again."""

    steps = (*Draining.steps, "kubelets")

    def __init__(self, world: World, folder: Path) -> None:
        super().__init__(world, folder)
        (self._node,) = self.arena.nodes(1)
        self.arena.pod("lonely", on=self._node)
        fake.switch(self.api, self._node, "down")
        until(self._given_up, 90, f"{self._node} is given up", every=0.5)
        self._usual = self._fates()
        assert "None" not in self._usual, self._usual

    def use(self) -> None:
        fates = self._fates()
        self.expect(fates == self._usual, f"The plan says {fates} of the pods, not {self._usual}")
        self.done(drain.SPEC, nodes=[self._node], fenced=[self._node], force=True, check=True)

    def _given_up(self) -> bool:
        return LOST in [one["key"] for one in self.arena.node(self._node)["spec"].get("taints") or ()]

    def _fates(self) -> list[str]:
        found = self.done(plan.SPEC, nodes=[self._node], fenced=[self._node], force=True)
        said = " ".join(one["message"] for one in found["findings"] if one["code"] == "node_lost")
        self.expect("its lease was last renewed" in said, f"When the kubelet was last heard from is not said: {said}")
        return [str(one["fate"] and one["fate"]["reason"]) for one in found["pods"]]


class Copy(Scene):
    """``cluster_copy``, with which a rehearsal begins."""

    steps = ("read", "rehearse")

    def __init__(self, world: World, folder: Path) -> None:
        super().__init__(world, folder)
        self._usual = self._not_rehearsed()

    def use(self) -> None:
        new = [one for one in self._not_rehearsed() if one not in self._usual]
        self.expect(not new, " ".join(new))

    def _not_rehearsed(self) -> list[str]:
        found = self.done(copies.SPEC, path=str(self.folder / "copy.json"))
        return [str(one) for one in found["not_rehearsed"]]


class Devices(Plan):
    """The same where a pod has a device."""

    def __init__(self, world: World, folder: Path) -> None:
        with contextlib.ExitStack() as stack:
            made = stack.enter_context(devices.devices(world.arena, world.nodes))
            world.arena.deployment("device", on=world.full[:1], pod=made.own("gpu"), service=False)
            world.arena.settle()
            super().__init__(world, folder)
            self._end = stack.pop_all()

    def end(self) -> None:
        self.arena.delete("Deployment", "device")
        until(lambda: not self.arena.pods("device"), 30, "its pod is gone")
        self._end.close()
        super().end()


class Fence(Scene):
    """The fence in the API server: installed, corrected, removed."""

    steps = ("fence",)
    POLICY: ClassVar[str] = (
        "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/node-fence.maintenance.kubeops.io"
    )

    def use(self) -> None:
        wanted: Json = {"steps": [], "fence": True}
        self.done(access.SPEC, **wanted)
        self._changed_by_others()
        self.done(access.SPEC, **wanted)
        self.done(access.SPEC, **wanted, state="absent")

    def _changed_by_others(self) -> None:
        """Something of each object that its manifest decides."""
        definition = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/nodefences.maintenance.kubeops.io"
        version = "/spec/versions/0/schema/openAPIV3Schema/description"
        self.api.patch(definition, [{"op": "replace", "path": version, "value": "theirs"}], JSON_PATCH)
        self.api.patch(self.POLICY, {"spec": {"failurePolicy": "Fail"}})
        self.api.patch(self.POLICY.replace("policies/", "policybindings/"), {"spec": {"validationActions": ["Warn"]}})

    @contextlib.contextmanager
    def given_back(self) -> Iterator[None]:
        try:
            yield
        finally:
            self.as_administrator(access.SPEC, steps=[], fence=True, state="absent")


class Fenced(Draining):
    """A drain where the fence is installed."""

    steps = (*Draining.steps, "evict")

    @contextlib.contextmanager
    def given_back(self) -> Iterator[None]:
        self.as_administrator(access.SPEC, steps=[], fence=True)
        try:
            with super().given_back():
                yield
        finally:
            self.as_administrator(access.SPEC, steps=[], fence=True, state="absent")


class Namespace(Scene):
    """The first run of a cluster; its account has the rights of namespaces in all of them."""

    steps = ("read", "locks", "runs", "namespace")
    everywhere = ("locks", "runs")

    def use(self) -> None:
        started = self.done(state.SPEC, state="started", input={}, plan={"waves": [self.world.full]})
        self.done(state.SPEC, state="ended", run=started["run"])

    @contextlib.contextmanager
    def given_back(self) -> Iterator[None]:
        path = f"/api/v1/namespaces/{OURS}"
        self.api.delete(path)
        until(lambda: self.api.find(path) is None, 60, "our namespace is gone")
        try:
            yield
        finally:
            # With the namespace went the account of the other tests.
            rights.granted(self.api, self.lab.operator)


@contextlib.contextmanager
def agreeing(arena: Arena, app: str, asked: str, agreed: str) -> Iterator[None]:
    """The application copies what its pods are asked, as long as the block lasts."""
    over = threading.Event()

    def answer() -> None:
        while not over.wait(0.1):
            for pod in arena.pods(app):
                notes = pod["metadata"].get("annotations") or {}
                if asked in notes and notes.get(agreed) != notes[asked]:
                    arena.patch("Pod", pod["metadata"]["name"], {"metadata": {"annotations": {agreed: notes[asked]}}})

    thread = threading.Thread(target=answer, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
