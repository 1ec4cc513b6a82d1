# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a run leaves that does not get to its end: what each of its calls notes,
and what that comes to in words.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import (
    connection_options,
    specs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    commands,
    phases,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import run_lease

# What plugin_utils needs of the loops, of which it may import this kind only.
let_go = run_lease.let_go

Note = dict[str, t.Any]

BACK = frozenset({phases.Phase.BACK.value, phases.Phase.GONE.value})
SURGED = frozenset({phases.What.RAISED.value, phases.What.READY.value, phases.What.LOWERED.value})
RESTORED = frozenset({phases.What.RESTORED.value, phases.What.GIVEN_BACK.value})
WORDS = ("at", "node", "what", "message", "namespace", "name", "phase")


def note(
    call: str,
    arguments: specs.Arguments,
    environment: t.Mapping[str, str],
    result: specs.Params,
    *,
    let_go: bool,
) -> Note | None:
    """What one call adds, as plain data; ``None`` for a call that belongs to no start of a run.

    ``let_go``: it was interrupted, and has let go of what the run holds. In the note, ``target`` is
    how to reach the cluster once more, ``None`` where that would take a secret.
    """
    run = str(result.get("run") or arguments.get("run") or "")
    if not run.partition("/")[2]:
        return None
    given = connection_options.given(arguments)
    secret = connection_options.credentials(given, environment) or isinstance(
        given.get("kubeconfig"), t.Mapping
    )
    ends = call == "maintenance_state" and arguments.get("state") == "ended"
    return {
        "run": run,
        "ended": ends and not result["failed"],
        "let_go": let_go,
        "target": None if secret else {"arguments": given, "environment": dict(environment)},
        "events": [
            [event.get(word, "") for word in WORDS] for event in result.get("timeline") or ()
        ],
    }


@dataclass(slots=True)
class Left:
    """What one start of a run leaves: ``nodes`` by phase, ``surged`` workloads; whether it
    ``ended`` or ``let_go``.
    """

    run: str
    ended: bool = False
    let_go: bool = False
    target: dict[str, t.Any] | None = None
    nodes: dict[str, str] = field(default_factory=dict)
    surged: dict[str, None] = field(default_factory=dict)

    def add(self, noted: Note) -> None:
        """What a later call noted."""
        self.ended = self.ended or noted["ended"]
        self.target = noted["target"] or self.target
        self.let_go = noted["let_go"]
        for event in (dict(zip(WORDS, words, strict=True)) for words in noted["events"]):
            if event["name"]:
                self._workload(f"{event['namespace']}/{event['name']}", event["what"])
            elif event["node"] and event["phase"]:
                self.nodes[event["node"]] = event["phase"]

    def _workload(self, place: str, what: str) -> None:
        if what in SURGED:
            self.surged[place] = None
        elif what in RESTORED:
            self.surged.pop(place, None)

    def lines(self) -> list[str]:
        """What to say of it."""
        run = self.run.partition("/")[0]
        out = {node: phase for node, phase in self.nodes.items() if phase not in BACK}
        lines = [f"Run {run} has not ended." if run else "The nodes are not back in service."]
        lines += [f"  {node}  out of service, {phase}" for node, phase in out.items()]
        lines += [f"  {place}  with more pods than usual" for place in self.surged]
        if not run:
            return [*lines, "To go on: the same command."] if out else []
        at_work = [node for node, phase in out.items() if phase == phases.Phase.OUT]
        sure = f", once your tasks are no longer at work on {', '.join(at_work)}" if at_work else ""
        again = (
            f"the same command with {commands.resume(run)}{sure}" if at_work else "the same command"
        )
        return [*lines, f"To go on: {again}.", f"To undo it: {commands.undo(run)}"]


def of(notes: t.Iterable[Note]) -> list[Left]:
    """What each run leaves whose end was not noted, and that has written something."""
    found: dict[str, Left] = {}
    for noted in notes:
        found.setdefault(noted["run"], Left(noted["run"])).add(noted)
    return [left for left in found.values() if not left.ended]
