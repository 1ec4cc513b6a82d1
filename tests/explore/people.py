# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What people with kubectl, and the load of their applications, do while runs are at work."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import (
    evictions,
    manifests,
    nodes,
    serving,
    workloads,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.answers import Refused
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.controllers import Controller, key_of
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.evictions import is_ready
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Task
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.nodes import Kubelets
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.object_rules import DENIES
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.serving import LOAD
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Key, Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

PERSON = "person"
"""The name of the process that all people are."""
THEIRS: Raw = {"key": "person", "value": "", "effect": "NoSchedule"}
"""The taint that a person puts on a node."""
WHEN = (0.0, 0.05, 0.3, 1.0, 2.5, 6.0, 16.0, 61.0)
"""Seconds that somebody may let pass before acting; one of them is chosen."""
OF_THE_MANAGER: tuple[type[Controller], ...] = (
    workloads.Deployments,
    workloads.ReplicaSets,
    nodes.Lifecycle,
    nodes.TaintEvictions,
    nodes.Collector,
    serving.EndpointSlices,
    serving.Budgets,
    serving.Autoscalers,
)
"""What kube-controller-manager runs, of what these worlds have."""

Act = Callable[[], object]


def some_time(world: World) -> float:
    """A pause that the choices pick."""
    return WHEN[world.machine.choices.choose(len(WHEN))]


def person(world: World, *acts: Act) -> Task:
    """Somebody does this in this order; what is refused to them they let be."""
    actor = world.process(PERSON)

    def work() -> None:
        for act in acts:
            actor.clock.sleep(some_time(world))
            try:
                act()
            except Refused:
                continue

    return actor.spawn(work)


def room(world: World, node: str, pods: int) -> None:
    """The node takes so many pods."""
    world.patch(kinds.NODES, node, {"status": {"allocatable": {"pods": str(pods)}}}, subresource="status")


def deny(world: World, app: str) -> None:
    """A webhook denies new pods of this app from now on; of none where it is empty."""
    world.patch(kinds.NAMESPACES, manifests.SHOP, {"metadata": {"annotations": {DENIES: app or None}}})


def any_of(world: World, *acts: Act) -> Act:
    """One of these, as the choices pick."""

    def act() -> None:
        acts[world.machine.choices.choose(len(acts))]()

    return act


def scale(world: World, name: str, replicas: int) -> None:
    """`kubectl scale`."""
    world.patch(kinds.DEPLOYMENTS, name, {"spec": {"replicas": replicas}}, subresource="scale")


def roll_out(world: World, name: str) -> None:
    """`kubectl rollout restart`."""
    body = {"template": {"metadata": {"annotations": {"restarted": f"{world.machine.now:.3f}"}}}}
    world.patch(kinds.DEPLOYMENTS, name, {"spec": body})


def again(world: World, name: str) -> None:
    """The node is deleted, and registers again under the same name."""
    world.delete(kinds.NODES, name)
    world.apply(manifests.node(name))


def taint(world: World, name: str, wanted: bool = True) -> None:
    """`kubectl taint` with a taint of their own, or with a dash behind it."""
    others = [found for found in taints(world, name) if found["key"] != THEIRS["key"]]
    _tainted(world, name, [*others, dict(THEIRS)] if wanted else others)


def untaint(world: World, name: str) -> None:
    """Takes our taint away, as somebody who knows better."""
    _tainted(world, name, [found for found in taints(world, name) if found["key"] != names.TAINT_KEY])


def condition(world: World, name: str, kind: str, wanted: bool = True) -> None:
    """Another tool that shows what it does with a node: sets a condition to True, or takes its own away."""
    raw = world.get(kinds.NODES, name)
    now = raw["status"]["conditions"]
    others = [found for found in now if found["type"] != kind or found.get("reason") != PERSON]
    if wanted and not any(found["type"] == kind for found in others):
        others.append({"type": kind, "status": "True", "reason": PERSON, "lastTransitionTime": world.objects.wall()})
    if others != now:
        world.objects.replace(kinds.NODES, raw, {**raw, "status": {**raw["status"], "conditions": others}}, "status")


def taints(world: World, name: str) -> list[Raw]:
    return list(world.get(kinds.NODES, name)["spec"].get("taints") or ())


def delete_pod(world: World, app: str, *, on: str = "", now: bool = False) -> None:
    """`kubectl delete pod`, of the first of an app that is not ending yet; `now` is `--grace-period=0 --force`."""
    for pod in world.pods(app=app, on=on):
        meta = pod["metadata"]
        if "deletionTimestamp" not in meta:
            options: dict[str, t.Any] = {"gracePeriodSeconds": 0} if now else {}
            world.delete(kinds.PODS, meta["name"], meta["namespace"], **options)
            return


def drain(world: World, node: str, *, force: bool = False) -> None:
    """`kubectl drain`, once over all pods: what a budget refuses stays.

    Without `--force` it refuses a node with a pod that has no controller.
    """
    world.cordon(node)
    pods = [raw["metadata"] for raw in world.pods(on=node) if "deletionTimestamp" not in raw["metadata"]]
    bare = [meta for meta in pods if not any(owner.get("controller") for owner in meta.get("ownerReferences") or ())]
    for meta in [] if bare and not force else pods:
        try:
            evictions.evict(world.objects, meta["namespace"], meta["name"], {})
        except Refused:
            continue


def stop_controllers(world: World, stopped: bool = True) -> None:
    """kube-controller-manager is down, or comes up again."""
    for kind in OF_THE_MANAGER:
        controller = world.controller(kind)
        (controller.stop if stopped else controller.go_on)()


def fail(world: World, app: str, seconds: float) -> None:
    """The pods of an app that run elsewhere than on n1 are not ready for so many seconds, as their probes say."""
    kubelets, keys = world.controller(Kubelets), set[Key]()

    def say(ready: bool) -> None:
        running = {key for key in keys if key in world.store.of(kinds.PODS.resource)}
        for key in sorted(running):
            kubelets.set_ready(key, ready)

    for pod in world.pods(app=app):
        if pod["spec"].get("nodeName", "n1") != "n1" and is_ready(pod):
            keys.add(key_of(pod))
    say(False)
    world.machine.after(seconds, lambda: say(True), "probes")


def load(world: World, name: str, pods: int) -> None:
    """So many pods are asked for by the load of what an HPA scales."""
    world.patch(kinds.HPAS, name, {"metadata": {"annotations": {LOAD: str(pods)}}})


def _tainted(world: World, name: str, wanted: list[Raw]) -> None:
    world.patch(kinds.NODES, name, {"spec": {"taints": wanted or None}})
