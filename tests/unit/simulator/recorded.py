# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a release leaves in a cluster when its runs are killed, as files that later versions have to read.

`python -m ansible_collections.kubeops.node_maintenance.tests.unit.simulator.recorded 0.1.0` writes those of the code
as it is. They are written once for each release whose records, leases or stored runs differ from those before, and
never changed afterwards.
"""

from __future__ import annotations

import json
import sys
import typing as t
from pathlib import Path

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import State
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, Outcome, maintain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, Saved, World

FOLDER = Path(__file__).parent / "recorded_states"
NODES = ("n1", "n2")


def work(actor: Actor, name: str) -> None:
    """The user's tasks."""
    actor.world.reboot(name)
    actor.clock.sleep(5.0)


def given(**changes: t.Any) -> Input:
    """The command of each scene."""
    return Input(NODES, **{"work": work, "node_conditions": True, **changes})


def run(world: World, **changes: t.Any) -> Outcome:
    """The command, until it ends or dies."""
    me = world.process("me")
    task = me.spawn(lambda: maintain(me, given(**changes)))
    world.machine.run_until(lambda: not task.alive)
    return Outcome(wrong=["killed"]) if me.process.dead else t.cast("Outcome", task.value())


def evicts(request: Request) -> bool:
    """Evictions begin once guards and surges are in place."""
    return request.resource.endswith("/eviction")


def hands_over(request: Request) -> bool:
    """The write of the record before the user's tasks."""
    annotations = dict((request.body or {}).get("metadata", {}).get("annotations") or {})
    return request.resource == kinds.NODES.resource and '"step":"out"' in annotations.get(names.RECORD, "")


SCENES: dict[str, t.Callable[[Request], bool]] = {"killed_in_the_drain": evicts, "killed_in_the_tasks": hands_over}


def scene(name: str) -> World:
    """A cluster after such a run; one that was not killed has left its nodes out of service (`evacuated`)."""
    world = World(manifests.usual())
    if name in SCENES:
        world.process("me").faults.when(SCENES[name], Fault("killed after"))
    outcome = run(world, evacuates=name not in SCENES)
    assert (outcome.wrong == ["killed"]) == (name in SCENES), (name, outcome)
    return world


def written(saved: Saved) -> str:
    """A state as text."""
    objects = {name: list(some.values()) for name, some in saved.state.objects.items()}
    state = {"version": saved.state.version, "count": saved.state.count, "now": saved.now, "objects": objects}
    return json.dumps(state, separators=(",", ":"), sort_keys=True) + "\n"


def read(text: str) -> Saved:
    """A state from text."""
    state = json.loads(text)
    found = {
        name: {(raw["metadata"].get("namespace") or "", raw["metadata"]["name"]): raw for raw in some}
        for name, some in state["objects"].items()
    }
    return Saved(State(state["version"], state["count"], found, {}), state["now"], frozenset())


def main(release: str) -> None:
    """Writes the files of a release."""
    FOLDER.mkdir(exist_ok=True)
    for name in (*SCENES, "evacuated"):
        with scene(name) as world:
            FOLDER.joinpath(f"{release}-{name}.json").write_text(written(world.saved()))


if __name__ == "__main__":
    main(sys.argv[1])
