# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A cluster that can be single-stepped: machine, API server, controllers, and the processes that work on it.

    world = World(manifests.usual())
    me = world.process("me")
    task = me.call(lambda ctx: drain(ctx, options), run="r1/n1")
    world.machine.run_until(lambda: not task.alive)
    task.value()

* **A run is a function of (objects, choices, faults).** `World(objects, choices=Choices([0, 2, 1]))` replays,
  `Choices(chance=random.Random(7))` draws, and `world.machine.choices.picked()` is what to save. Who does not choose
  gets the order in which things became ready. `fine=True` makes each watch event a choice of its own, and lets
  others in at every lock.
* **Processes** (`Actor`) have their own clocks (`skew`, `boot`), connection and faults, and can be killed, frozen
  and thawed: `me.process.kill()`. `world.process("me")` after that is the same person starting anew.
* **A person** is a process too: `ann.spawn(script)`, where the script sleeps (for how long may be a choice:
  `world.machine.choices.choose(5)`) and writes by `world.cordon`, `world.patch`, `world.delete`, at once.
  Without a thread: `world.machine.after(seconds, call, name)`.
* **Faults**: `me.faults.at(17, Fault("lost"))`, `me.faults.when(predicate, Fault("down", 40))`; see faults.py.
  `me.faults.overtaken(predicate, call)`: somebody else's write is carried out while that request is on its way.
* **Invariants**: append to `world.machine.on_step`; called after each step. `world.on_event` hears each change.
* **States**: `world.saved()` and `World.of(state)` begin any number of worlds where one has come to; settling anew
  for each would be dear.
* `world.log` are all requests, `world.endpoint` is the other end of HTTP hooks. `world.close()` ends what still runs:
  use the world as a context manager.
"""

from __future__ import annotations

import itertools
import random
import types
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context, Event, Run
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.client import Cluster
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import (
    applications,
    koordinator,
    manifests,
    nodes,
    ordered,
    scheduling,
    serving,
    workloads,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.apiserver import ApiServer
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.clocks import SimulatedClock
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.controllers import Controller, Index
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Faults
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Choices, Machine, Process, Task
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event as Change
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Key, Raw, State
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.wire import Link, Sent

T = t.TypeVar("T")

CONTROLLERS: tuple[type[Controller], ...] = (
    workloads.Deployments,
    workloads.ReplicaSets,
    ordered.StatefulSets,
    ordered.DaemonSets,
    ordered.Jobs,
    scheduling.Scheduler,
    nodes.Kubelets,
    nodes.Lifecycle,
    nodes.TaintEvictions,
    nodes.Collector,
    serving.EndpointSlices,
    serving.Budgets,
    serving.Autoscalers,
    scheduling.Reservations,
    koordinator.Migrations,
    applications.Applications,
    applications.StartupTaints,
    applications.Operators,
    applications.Leaders,
)

C = t.TypeVar("C", bound=Controller)


@dataclass
class Saved:
    """A state to begin worlds with.

    `alarms` are what each controller of a world at rest waits for; None where nobody knows what is left to do, so
    that each of them looks at everything once.
    """

    state: State
    now: float
    add_ons: frozenset[str]
    alarms: t.Mapping[str, tuple[Key, ...]] | None = None


@dataclass
class Actor:
    """Something that makes requests: a run of ours, another one, a script.

    `told` is its progress, `contexts` are its calls: what each has changed and noted.
    """

    world: World
    process: Process
    clock: SimulatedClock
    link: Link
    faults: Faults
    told: list[Event] = field(default_factory=list)
    contexts: list[Context] = field(default_factory=list)

    @property
    def name(self) -> str:
        return self.process.name

    def cluster(self) -> Cluster:
        return Cluster(self.link, clock=self.clock)

    def ctx(self, run: str = "", *, check: bool = False) -> Context:
        """What a loop is given, with a connection of its own."""
        ctx = Context(
            self.cluster(),
            check=check,
            run=Run.parse(run),
            progress=self.told.append,
            clock=self.clock,
            by=f"{self.name}@sim",
        )
        self.contexts.append(ctx)
        return ctx

    def call(self, loop: t.Callable[[Context], t.Any], run: str = "", *, name: str = "") -> Task:
        """A thread of this process that runs the loop; its `value()` is the loop's, once it has ended."""
        task = self.process.spawn(lambda: loop(self.ctx(run)), name or f"{self.name} calls")
        task.watched = True
        return task

    def spawn(self, target: t.Callable[[], t.Any], name: str = "") -> Task:
        """A thread of this process."""
        task = self.process.spawn(target, name or self.name)
        task.watched = True
        return task

    def run(self, loop: t.Callable[[Context], T], run: str = "", *, within: float = 3600.0) -> T:
        """The loop's value, from its call to its end."""
        task = self.call(loop, run)
        self.world.machine.run_until(lambda: not task.alive, within=within)
        return t.cast("T", task.value())


class World:
    """See the module."""

    def __init__(
        self,
        objects: t.Iterable[Raw] = (),
        *,
        choices: Choices | None = None,
        fine: bool = False,
        skew: float = 0.0,
        chance: random.Random | None = None,
        add_ons: t.Collection[str] = (),
        more: t.Iterable[type[Controller]] = (),
        settle: bool = True,
        saved: Saved | None = None,
    ) -> None:
        """Begins with these objects (or where another world was `saved`) and lets it come to rest.

        Args:
            objects: as in manifests.py; namespaces are made as they are named.
            choices: who is next; see machine.py. They count from when the world has come to rest.
            fine: every event and lock is a choice.
            skew: seconds that the server's clock is ahead.
            chance: for jitter; without it there is none.
            add_ons: API groups that are installed beyond Kubernetes' own.
            more: controllers beside the usual ones, which hear of each change before those.
            settle: wait until nothing changes any more.
            saved: the state of another world.
        """
        self.machine = Machine(now=saved.now if saved else 0.0)
        self.server = ApiServer(self.machine, skew=skew, add_ons=saved.add_ons if saved else add_ons)
        self.store, self.objects = self.server.store, self.server.objects
        self.log: list[Sent] = []
        self.on_event: list[t.Callable[[Change], None]] = []
        self.actors: dict[str, Actor] = {}
        self.endpoint = applications.Endpoint()
        self._tokens, self._chance, self._fine = itertools.count(1), chance, fine
        self._index = Index()
        self.controllers = [kind(self.server, self._index) for kind in (*more, *CONTROLLERS)]
        self._interested: dict[str, list[Controller]] = {}
        for controller in self.controllers:
            for resource in controller.watches:
                self._interested.setdefault(resource, []).append(controller)
        self.store.listeners.insert(0, self._changed)
        if saved is not None:
            self.store.restore(saved.state)
            self._index.begin(saved.state)
            self._wake_up(saved.alarms)
        self.apply(*objects)
        if settle and saved is None:
            self.settle()
        self.machine.choices = choices or Choices()
        self.machine.fine = fine

    @classmethod
    def of(cls, saved: Saved, **options: t.Any) -> World:
        """Another world that begins there; options as those of `World`."""
        return cls(saved=saved, **options)

    def __enter__(self) -> World:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: types.TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End what still runs."""
        self.machine.close()

    def saved(self, *, at_rest: bool = False) -> Saved:
        """What is now, for other worlds; what processes and controllers remember beyond the store is not in it.

        `at_rest`: it has settled, so that nobody need look at everything again.
        """
        alarms = {controller.name: controller.alarms() for controller in self.controllers} if at_rest else None
        return Saved(self.store.state(), self.machine.now, self.server.add_ons, alarms)

    def process(self, name: str, *, skew: float = 0.0, boot: float = 0.0) -> Actor:
        """A process of that name: the one there is while it lives, else a new one (the same person starts anew).

        `skew` is how far its wall clock is ahead, `boot` its steady clock.
        """
        found = self.actors.get(name)
        if found is not None and not found.process.dead:
            return found
        process = self.machine.process(name, skew=skew, boot=boot)
        clock = SimulatedClock(process, self._tokens, self._chance)
        faults = Faults()
        link = Link(self.server, process, faults, self.log)
        link.one_by_one = self._fine
        actor = self.actors[name] = Actor(self, process, clock, link, faults)
        return actor

    def controller(self, kind: type[C]) -> C:
        """The controller of that class, to stop it, to let it lag, or to tell it something."""
        return next(controller for controller in self.controllers if isinstance(controller, kind))

    # -- what people do ----------------------------------------------------------------------------------

    def apply(self, *objects: Raw) -> None:
        """Create objects, with the namespaces they are in."""
        for raw in objects:
            kind = kinds.KINDS[raw["apiVersion"], raw["kind"]]
            namespace = raw["metadata"].get("namespace", "")
            if namespace and not self.store.get(kinds.NAMESPACES.resource, "", namespace):
                self.objects.create(kinds.NAMESPACES, manifests.namespace(namespace))
            self.objects.create(kind, raw)

    def get(self, kind: kinds.Kind, name: str, namespace: str = manifests.SHOP) -> Raw:
        """An object as it is now; `namespace` counts where the kind has one."""
        return self.objects.read(kind, namespace if kind.namespaced else "", name)

    def find(self, kind: kinds.Kind, name: str, namespace: str = manifests.SHOP) -> Raw | None:
        return self.store.get(kind.resource, namespace if kind.namespaced else "", name)

    def patch(
        self, kind: kinds.Kind, name: str, body: Raw, namespace: str = manifests.SHOP, subresource: str = ""
    ) -> Raw:
        """A person's write, carried out at once."""
        return self.objects.patch(kind, name, body, namespace if kind.namespaced else "", subresource)

    def delete(self, kind: kinds.Kind, name: str, namespace: str = manifests.SHOP, **options: t.Any) -> Raw:
        return self.objects.delete(kind, name, namespace if kind.namespaced else "", options)

    def pods(self, *, on: str = "", app: str = "", namespace: str = "") -> list[Raw]:
        """Pods by node, label `app` or namespace, in the order of their names."""
        return [
            raw
            for (where, _name), raw in sorted(self.store.of(kinds.PODS.resource).items())
            if on in ("", raw["spec"].get("nodeName"))
            and app in ("", (raw["metadata"].get("labels") or {}).get("app"))
            and namespace in ("", where)
        ]

    def serving(self, service: str, namespace: str = manifests.SHOP) -> int:
        """How many endpoints of a Service are ready."""
        found = self.find(kinds.ENDPOINT_SLICES, f"{service}-slice", namespace)
        return sum(bool(e["conditions"]["ready"]) for e in (found or {}).get("endpoints") or ())

    def cordon(self, name: str, wanted: bool = True) -> None:
        self.patch(kinds.NODES, name, {"spec": {"unschedulable": wanted or None}})

    def reboot(self, name: str) -> None:
        """The node has another boot ID, and is Ready."""
        raw = self.get(kinds.NODES, name)
        number = self.store.number()
        info = {**raw["status"]["nodeInfo"], "bootID": f"boot-{name}-{number}"}
        self.objects.replace(kinds.NODES, raw, {**raw, "status": {**raw["status"], "nodeInfo": info}}, "status")

    def set_node_ready(self, name: str, status: str = "True") -> None:
        """What the Ready condition says; with anything but True its kubelet does nothing either."""
        raw = self.get(kinds.NODES, name)
        told = {"type": "Ready", "status": status, "lastTransitionTime": self.objects.wall()}
        others = [c for c in raw["status"]["conditions"] if c["type"] != "Ready"]
        body = {**raw, "status": {**raw["status"], "conditions": [*others, told]}}
        kubelets = self.controller(nodes.Kubelets)
        (kubelets.dead.discard if status == "True" else kubelets.dead.add)(name)
        self.objects.replace(kinds.NODES, raw, body, "status")
        for pod in self.pods(on=name):
            kubelets.queue((pod["metadata"]["namespace"], pod["metadata"]["name"]))

    # -- time --------------------------------------------------------------------------------------------

    def settle(self, quiet: float = 6.0, within: float = 600.0) -> None:
        """Let time pass until the store has not changed for so many seconds."""
        last, until = self.store.version, self.machine.now + within
        while True:
            self.machine.run_for(quiet)
            if self.store.version == last or self.machine.now >= until:
                return
            last = self.store.version

    def _wake_up(self, alarms: t.Mapping[str, tuple[Key, ...]] | None) -> None:
        """Every controller looks at everything once, as after its own start, or at what it was waiting for."""
        if alarms is not None:
            for controller in self.controllers:
                for key in alarms[controller.name]:
                    controller.queue(key)
            return
        for resource, objects in self.store.objects.items():
            for raw in objects.values():
                event = Change("ADDED", resource, self.store.version, raw, None)
                for controller in self._interested.get(resource, ()):
                    controller.take(event)

    def _changed(self, event: Change) -> None:
        self._index.take(event)
        for controller in self._interested.get(event.resource, ()):
            controller.take(event)
        for listener in self.on_event:
            listener(event)
