# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""States that a cluster passes through while somebody works on it, each once.

Two states are the same where they differ only in versions, times and drawn names.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import typing as t

from ansible_collections.kubeops.node_maintenance.tests.explore.judge import NOTE, REPORTED
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Saved, World

TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z")
DRAWN = re.compile(
    r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|\b[0-9a-f]{8,}\b|(?<=-)[a-z0-9]{5}\b|\b10\.1\.\d+\.\d+"
)
"""UIDs, a run's id and nonce, the ends of generated names, addresses of pods."""


class Collector:
    """Keeps every state of a world after its last write, if it is another one than those that are ``known``."""

    def __init__(self, world: World, known: set[str]) -> None:
        self.world, self.known = world, known
        self.found: list[Saved] = []
        world.on_event.append(self._event)

    def _event(self, event: Event) -> None:
        del event
        mark = normal(self.world)
        if mark not in self.known:
            self.known.add(mark)
            self.found.append(self.world.saved())


def normal(world: World) -> str:
    """One text for all states that are the same."""
    return _mark(
        [resource, key, _without_versions(raw)]
        for resource, objects in sorted(world.store.objects.items())
        for key, raw in sorted(objects.items())
    )


def difference(world: World, begun: Saved) -> str:
    """One text for all states that differ in the same from where their worlds have begun."""
    found: list[list[t.Any]] = []
    for resource, objects in sorted(world.store.objects.items()):
        before = begun.state.objects.get(resource, {})
        for key, raw in objects.items():
            first = before.get(key)
            if first is raw:
                continue
            shown = _without_versions(raw)
            if first is None or shown != _without_versions(first):
                found.append([resource, key, shown])
        found += [[resource, key] for key in before if key not in objects]
    return _mark(sorted(found, key=lambda one: one[:2]))


def _mark(parts: t.Iterable[list[t.Any]]) -> str:
    names: dict[str, str] = {}
    count = itertools.count()

    def named(match: re.Match[str]) -> str:
        found = names.get(match.group())
        if found is None:
            found = names[match.group()] = f"#{next(count)}"
        return found

    text = DRAWN.sub(named, TIME.sub("T", "\n".join(json.dumps(part, sort_keys=True) for part in parts)))
    return hashlib.sha256(text.encode()).hexdigest()


def _without_versions(raw: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    meta = {key: value for key, value in raw["metadata"].items() if key not in ("resourceVersion", "generation")}
    status = {key: value for key, value in (raw.get("status") or {}).items() if key != "observedGeneration"}
    # Nothing that bystanders have written makes a difference.
    meta["annotations"] = {key: value for key, value in (meta.get("annotations") or {}).items() if key != NOTE}
    status["conditions"] = [
        {key: value for key, value in condition.items() if key not in REPORTED}
        for condition in status.get("conditions") or ()
    ]
    return {**raw, "metadata": meta, "status": status}
