# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Small sets of workloads on a lab whose nodes a maintain takes out of service, over and over."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from support.arena import PATIENCE, Arena, Workload, arena_name
from support.jobs import RESERVED
from support.lab import Lab
from support.plays import Player
from support.waiting import until
from witness.log import Json

BACKENDS = ("eviction", "koordinator")
TAINTS: tuple[Json, ...] = (
    {"key": "dedicated", "value": "chaos", "effect": "NoSchedule"},
    {"key": "chaos.example.org/keep", "value": "me", "effect": "PreferNoSchedule"},
)
"""Of somebody else: they, their order and their times stay as they are."""
TOLERANT: Json = {"tolerations": [{"key": "dedicated", "operator": "Exists"}]}
CPU: Json = {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m"}}}]}
GATES = ["ready", "daemonsets", "pressure"]
"""All but the one that waits for 10 s."""

Homes = Mapping[str, list[Workload]]
"""Which workloads have their pods on which node when a run begins."""


@dataclass(frozen=True, slots=True)
class Scene:
    """`build` makes the workloads for pods of this kind; the first `out` of `nodes` nodes are maintained.

    `requests` and `writes` are about what an undisturbed run needs: among them a fault is placed.
    """

    name: str
    nodes: int
    out: int
    tasks: bool
    build: Callable[[Arena, list[str], Json], Homes]
    requests: int
    writes: int


def _node(arena: Arena, nodes: list[str], pod: Json) -> Homes:
    """One node with a surge, a budget, a guard, a StatefulSet, a DaemonSet, and taints of others."""
    here = nodes[0]
    pod = {**pod, **TOLERANT}
    with arena.placing(here):
        web = arena.deployment("web", start="1s", pod=pod)
        pair = arena.deployment("pair", 2, start="1s", pod=pod, budget={"maxUnavailable": 1})
        bare = arena.deployment("bare", 2, start="1s", pod=pod)
        state = arena.statefulset("state", 2, start="1s", pod=pod)
    arena.daemonset("agent", pod=TOLERANT)
    arena.taint(here, *TAINTS)
    return {here: [web, pair, bare, state]}


def _scaled(arena: Arena, nodes: list[str], pod: Json) -> Homes:
    """One node with workloads under autoscalers, of one pod and of two."""
    pod = {**pod, **CPU}
    # Two pods would use twice as much as one, and the autoscaler keep both.
    notes = {"lab.kubeops.io/cpu": "1m"}
    with arena.placing(nodes[0]):
        one = arena.deployment("one", start="1s", pod=pod, pod_notes=notes)
        two = arena.deployment("two", 2, start="1s", pod=pod, pod_notes=notes, budget={"minAvailable": 1})
    arena.hpa("one", 1, 3)
    arena.hpa("two", 2, 4)
    for scaler in ("one", "two"):
        arena.wait_for_autoscaler(scaler)
    return {nodes[0]: [one, two]}


def _roll(arena: Arena, nodes: list[str], pod: Json) -> Homes:
    """Two nodes, one wave each."""
    first, second = nodes[0], nodes[1]
    one = arena.deployment("one", on=first, start="1s", pod=pod)
    pair = arena.deployment("pair", 2, on=first, start="1s", pod=pod, budget={"maxUnavailable": 1})
    two = arena.deployment("two", on=second, start="1s", pod=pod)
    return {first: [one, pair], second: [two]}


SCENES = {
    scene.name: scene
    for scene in (
        Scene("node", nodes=3, out=1, tasks=True, build=_node, requests=200, writes=45),
        Scene("scaled", nodes=2, out=1, tasks=True, build=_scaled, requests=185, writes=36),
        Scene("roll", nodes=3, out=2, tasks=False, build=_roll, requests=320, writes=65),
    )
}


def credentials(lab: Lab) -> Path:
    """The kubeconfig that the runs use: that of the account with the documented rights."""
    return lab.operator


class Stage:
    """A scene set up on a lab. After each run its pods are brought home, so that all runs begin alike."""

    def __init__(self, lab: Lab, scene: Scene, backend: str) -> None:
        self.lab, self.scene, self.backend = lab, scene, backend
        self.arena = Arena(lab.api, arena_name(f"chaos {scene.name}"))
        try:
            self._nodes = self.arena.nodes(scene.nodes)
            self._homes = scene.build(self.arena, self._nodes, RESERVED if backend == "koordinator" else {})
            self.arena.settle()
        except BaseException:
            self.clear()
            raise

    @property
    def out(self) -> list[str]:
        """The nodes that are maintained."""
        return self._nodes[: self.scene.out]

    def gather(self) -> None:
        """Brings every pod to the node on which it belongs when a run begins."""
        for home, workloads in self._homes.items():
            if all(set(workload.nodes()) == {home} for workload in workloads):
                continue
            others = [node for node in self._nodes if node != home]
            for node in others:
                self.arena.cordon(node)
            for workload in workloads:
                until(lambda w=workload, h=home: self._is_home(w, h), PATIENCE, f"{workload.name} is home")  # type: ignore[misc]
            for node in others:
                self.arena.cordon(node, False)
        self.arena.settle()

    def _is_home(self, workload: Workload, home: str) -> bool:
        strays = [pod for pod in workload.pods() if pod["spec"].get("nodeName", home) != home]
        for pod in strays:
            self.arena.delete("Pod", pod["metadata"]["name"], gracePeriodSeconds=0)
        return not strays and set(workload.nodes()) == {home}

    def arguments(self, play: Player, marker: Path) -> Json:
        """Those of the maintain; its tasks add a line to `marker`, each time and for each node that they run."""
        known: Json = {"maintain_nodes": self.out, "maintain_backend": self.backend, "maintain_gates": GATES}
        if self.scene.out > 1:
            known["maintain_serial"] = 1
        if self.scene.tasks:
            command = f"echo {{{{ inventory_hostname }}}} >> {marker}"
            known["maintain_tasks"] = play.tasks({"name": "Work", "ansible.builtin.shell": command})
            known["inventory"] = play.hosts(self.out)
        return known

    def clear(self) -> None:
        self.arena.clear(alone=False)
