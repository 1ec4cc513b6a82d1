# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""I16: whatever was interrupted, a node is drained only when what had to follow its pods is there, or has no place.

And its return ends only when all of it runs again. Only where people leave workloads alone.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.evictions import is_ready
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

NODES, PODS = kinds.NODES.resource, kinds.PODS.resource
OWNERS = (kinds.DEPLOYMENTS, kinds.STATEFUL_SETS)


Owed = dict[str, dict[str, int]]
"""How many pods of a workload have to be ready, by the UID of the workload, for each node."""


def at(world: World) -> Owed:
    """What each node owes if it goes out now."""
    return {name: _ready_on(world, name) for _none, name in world.store.of(NODES)}


def attend(world: World, broken: list[str], begun: Owed | None = None) -> None:
    """Watch the world from now on; what is wrong is added to ``broken``. ``begun`` is of nodes that are out already."""
    owed: Owed = dict(begun or {})

    def changed(event: Event) -> None:
        if event.resource != NODES or event.what == "DELETED":
            return
        name, before, after = event.raw["metadata"]["name"], _step(event.before), _step(event.raw)
        if after and not before:
            owed[name] = _ready_on(world, name)
        if after == "drained" != before:
            short = _short(world, owed.get(name, {}), nowhere=True)
            broken.extend(f"I16: {name} is called drained while {text}" for text in short)
        elif before and not after:
            short = _short(world, owed.pop(name, {}))
            broken.extend(f"I16: {name} is given back while {text}" for text in short)

    world.on_event.append(changed)


def _step(node: Raw | None) -> str:
    notes = (node["metadata"].get("annotations") or {}) if node else {}
    return str(json.loads(notes[names.RECORD])["step"]) if names.RECORD in notes else ""


def _pods(world: World, owner: Raw) -> list[Raw]:
    """Those that its selector matches."""
    app, space = owner["metadata"]["name"], owner["metadata"]["namespace"]
    return [pod for pod in world.pods(app=app, namespace=space) if "deletionTimestamp" not in pod["metadata"]]


def _owners(world: World) -> t.Iterator[Raw]:
    for kind in OWNERS:
        yield from world.store.of(kind.resource).values()


def _ready_on(world: World, node: str) -> dict[str, int]:
    """How many pods of each workload are ready, of those that have one on the node."""
    found = ((owner, [pod for pod in _pods(world, owner) if is_ready(pod)]) for owner in _owners(world))
    here = ((owner, pods) for owner, pods in found if any(pod["spec"].get("nodeName") == node for pod in pods))
    return {owner["metadata"]["uid"]: len(pods) for owner, pods in here}


def _short(world: World, owed: t.Mapping[str, int], *, nowhere: bool = False) -> t.Iterator[str]:
    """The workloads with fewer ready pods than before; with ``nowhere`` but for those that have no place."""
    for owner in _owners(world):
        wanted = min(owed.get(owner["metadata"]["uid"], 0), owner["spec"]["replicas"])
        pods = _pods(world, owner)
        ready = sum(is_ready(pod) for pod in pods)
        placeless = sum(not pod["spec"].get("nodeName") and _refused(pod) for pod in pods) if nowhere else 0
        if ready + placeless < wanted:
            yield f"{owner['metadata']['name']} has {ready} of {wanted} ready pods"


def _refused(pod: Raw) -> bool:
    """Whether the scheduler has found no node for it."""
    told = {c["type"]: c["status"] for c in pod["status"].get("conditions") or ()}
    return told.get("PodScheduled") == "False"
