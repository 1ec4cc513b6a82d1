# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Who writes to the same objects and has nothing to do with a maintenance.

Kubelets report the conditions of nodes and pods, network plugins and metrics leave annotations. None of it means
anything to us, but each write is a new resourceVersion: of ours that are on their way some meet a conflict, and lists
and watches tell of states from before them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.explore.judge import NOTE, REPORTED, Violation
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Action
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.object_rules import rfc3339
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

ONE_OF = 3
"""Beside one request of so many somebody writes."""
TIMES = dict(zip((kinds.NODES, kinds.PODS), REPORTED, strict=True))
"""The time in each condition that a kubelet writes without a change of the condition."""
NOTED = (
    kinds.NODES,
    kinds.PODS,
    kinds.DEPLOYMENTS,
    kinds.REPLICA_SETS,
    kinds.STATEFUL_SETS,
    kinds.BUDGETS,
    kinds.ENDPOINT_SLICES,
)
"""Kinds whose objects get an annotation; it stands for what their controllers write into a status, too."""


@dataclass
class Bystanders:
    """Write while requests are on their way, which and what as the world's choices pick.

    ``written`` is the last note on each object, by UID, and ``reported`` the last heartbeat of each node: nobody else
    may take them away.
    """

    world: World
    written: dict[str, str] = field(default_factory=dict)
    reported: dict[str, str] = field(default_factory=dict)
    _seen: int = 0
    _count: int = 0

    def __post_init__(self) -> None:
        self._action = Action(self._write, "bystanders")
        self._seen = len(self.world.log)
        self.world.machine.on_step.append(self._look)

    def nothing_lost(self) -> None:
        """What they wrote is still there.

        Raises:
            Violation: somebody wrote an older state over it.
        """
        for kind in NOTED:
            for raw in self.world.store.of(kind.resource).values():
                meta = raw["metadata"]
                note = (meta.get("annotations") or {}).get(NOTE)
                # A Deployment's annotations are written to its ReplicaSets.
                if kind is not kinds.REPLICA_SETS and note != self.written.get(meta["uid"]):
                    raise Violation(f"I3: {kind.kind} {meta['name']} has lost a note of somebody else")
        for raw in self.world.store.of(kinds.NODES.resource).values():
            told = self.reported.get(raw["metadata"]["uid"])
            if told not in (None, _heartbeat(raw)):
                raise Violation(f"I3: Node {raw['metadata']['name']} has lost what its kubelet wrote")

    def _look(self) -> None:
        """Called after each step."""
        sent = len(self.world.log)
        if sent == self._seen:
            return
        self._seen = sent
        # 0 is what counts where a list of choices ends: nobody writes then.
        if self.world.machine.choices.choose(ONE_OF) == 1:
            self.world.machine.post(self._action)

    def _write(self) -> None:
        choose = self.world.machine.choices.choose
        reports = choose(2) == 0
        kinds_ = tuple(TIMES) if reports else NOTED
        kind = kinds_[choose(len(kinds_))]
        found = list(self.world.store.of(kind.resource).values())
        if not found:
            return
        raw = found[choose(len(found))]
        self._count += 1
        if reports:
            self._report(kind, raw)
        else:
            self._note(kind, raw)

    def _note(self, kind: kinds.Kind, raw: Raw) -> None:
        meta = raw["metadata"]
        text = self.written[meta["uid"]] = str(self._count)
        self.world.patch(kind, meta["name"], {"metadata": {"annotations": {NOTE: text}}}, meta.get("namespace", ""))

    def _report(self, kind: kinds.Kind, raw: Raw) -> None:
        """The times only grow, and differ also where less than a second has passed."""
        moment = rfc3339(self._count)
        told = [{**condition, TIMES[kind]: moment} for condition in raw["status"].get("conditions") or ()]
        self.world.objects.replace(kind, raw, {**raw, "status": {**raw["status"], "conditions": told}}, "status")
        if kind is kinds.NODES:
            self.reported[raw["metadata"]["uid"]] = moment


def _heartbeat(node: Raw) -> str | None:
    """The latest of a node's kubelet."""
    ready = next(one for one in node["status"]["conditions"] if one["type"] == "Ready")
    found: str | None = ready.get(TIMES[kinds.NODES])
    return found
