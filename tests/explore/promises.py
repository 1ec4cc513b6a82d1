# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""I15: hooks are called by who has the node, once it is recorded; no pod is evicted before those that are for it.

A hook that is done is not begun again, one that is repeated is told so, and a node is finished only without the taint
that its controller sets at each boot.
"""

from __future__ import annotations

import json
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import applications
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.wire import Sent
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

NODES, PODS = kinds.NODES.resource, kinds.PODS.resource


def attend(world: World, broken: list[str]) -> None:
    """Watch the world from now on; what is wrong is added to ``broken``."""
    seen: set[tuple[str, str]] = set()

    def called(call: applications.Call) -> None:
        broken.extend(_called(world, call, seen))

    def changed(event: Event) -> None:
        if event.resource == NODES and event.before is not None:
            broken.extend(_not_again(event))
        elif event.resource == kinds.CONFIGMAPS.resource and event.before is not None:
            broken.extend(_finished(world, event))
        elif event.resource == PODS and event.before is not None:
            broken.extend(_evicted(world, event))

    world.endpoint.listeners.append(called)
    world.on_event.append(changed)


def _record(raw: Raw | None) -> dict[str, t.Any]:
    notes = (raw["metadata"].get("annotations") or {}) if raw else {}
    return dict(json.loads(notes[names.RECORD])) if names.RECORD in notes else {}


def _called(world: World, call: applications.Call, seen: set[tuple[str, str]]) -> t.Iterator[str]:
    told, node = call.told, str(call.told["node"])
    record = _record(world.store.get(NODES, "", node))
    what = f"I15: {call.process} called {told['hook']} of {told.get('name') or node} at {call.at:.2f} s"
    subject = str(told.get("uid", ""))
    states = {
        entry["state"]
        for key, entry in (record.get("hooks") or {}).items()
        if key.startswith(f"{told['hook']}/") and key.endswith(subject) and entry.get("rule") == told["rule"]
    }
    if states != {"begun"}:
        yield f"{what}, which its record calls {', '.join(states) or 'nothing'}"
        return
    nonces = {ctx.run.nonce for ctx in world.actors[call.process].contexts if ctx.run}
    if record["nonce"] not in nonces:
        yield f"{what}, which run {record['run']}/{record['nonce']} has taken over"
    key = (f"{told['hook']} {told['rule']} {node} {subject}", str(record["since"]))
    if key in seen and not told["again"]:
        yield f"{what} once more, and did not say so"
    seen.add(key)


def _not_again(event: Event) -> t.Iterator[str]:
    """What is done stays so as long as the node is out."""
    before, after = _record(event.before), _record(event.raw)
    if before.get("since") != after.get("since") or before.get("node_uid") != after.get("node_uid"):
        return
    for key, entry in (before.get("hooks") or {}).items():
        now = (after.get("hooks") or {}).get(key, {}).get("state")
        if entry["state"] == "done" and now != "done":
            yield f"I15: {key} of {event.raw['metadata']['name']} was done, and is {now} now"


def _evicted(world: World, event: Event) -> t.Iterator[str]:
    """A pod that others are to be asked about does not leave by an eviction before they have agreed."""
    before, meta = event.before or {}, event.raw["metadata"]
    if "deletionTimestamp" in before["metadata"] or (event.what != "DELETED" and "deletionTimestamp" not in meta):
        return
    hooks = _record(world.store.get(NODES, "", before["spec"].get("nodeName") or "")).get("hooks") or {}
    mine = {key: entry["state"] for key, entry in hooks.items() if key.endswith(meta["uid"])}
    unasked = applications.AGREES in (before["metadata"].get("annotations") or {}) and not mine
    waits = [key for key, state in mine.items() if key.startswith("before_pod/") and state != "done"]
    if (waits or unasked) and (sent := _eviction(world, meta)):
        yield f"I15: {sent.process} evicted {meta['name']} before its hooks were done: {', '.join(waits) or 'unasked'}"


def _eviction(world: World, meta: Raw) -> Sent | None:
    """Our eviction of the pod that is being carried out."""
    about = ("pods/eviction", meta["namespace"], meta["name"], world.machine.now, 0)
    for sent in reversed(world.log[-100:]):
        request = sent.request
        if (request.resource, request.namespace, request.name, sent.arrived, sent.status) == about:
            return sent
    return None


def _finished(world: World, event: Event) -> t.Iterator[str]:
    """A node that its run has finished takes pods again."""
    before, after = (
        json.loads((raw.get("data") or {}).get("finished") or "[]") for raw in (event.before or {}, event.raw)
    )
    for name in set(after) - set(before):
        node = world.store.get(NODES, "", name)
        taints = (node["spec"].get("taints") or ()) if node else ()
        if any(taint["key"] == applications.STARTUP_TAINT["key"] for taint in taints):
            yield f"I15: {name} is finished, and nothing may run there yet"
