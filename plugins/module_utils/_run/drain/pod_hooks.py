# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The hooks of a drain's pods: what holds a pod back, and what follows once it has gone.

Every step is in the node's record before it is taken, so a call that is killed leaves at worst a hook that was begun
and never carried out; the next call carries it out, and says that it may be the second time. Task files run in the
playbook before the drain; here a pod whose task file has not run is not moved.
"""

from __future__ import annotations

import dataclasses
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    hooks,
    node_records,
    objects,
    outcomes,
    pod_plan,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.nodes import cordon, standing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import (
    context,
    hook_calls,
    pod_moves,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.drain import hook_actions, node_drains
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.protect import surge_lease

UNRUN = "its task file has not run to its end, or the pod came after it was time for that"


@dataclass
class PodHooks:
    """All hooks of a drain. ``fence`` proves the lock of nodes before a write."""

    ctx: context.Context
    rules: hooks.Rules
    sites: t.Mapping[str, node_drains.NodeDrain]
    calls: hook_calls.HttpCalls
    fence: surge_lease.NodesFence
    _before: dict[str, list[hook_actions.PodHook]] = field(default_factory=dict)
    _after: dict[str, list[hook_actions.PodHook]] = field(default_factory=dict)
    _lost: set[str] = field(default_factory=set)
    _closed: set[str] = field(default_factory=set)
    _starting: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._actions = hook_actions.Actions(self.ctx, self.calls, self.fence)
        self.close = self._actions.close

    def held(self, pods: t.Sequence[objects.Pod]) -> str:
        """What pods that are to leave still wait for; empty if nothing."""
        for pod in pods:
            for one in self._before.get(pod.uid, ()):
                if one.state != "done":
                    return f"{one.call.subject}: {one.call.what}"
        for pod in pods:
            new = self.rules and not pod.deleting and pod.uid not in self._before
            if new and pod.node in self.sites and self.sites[pod.node].open:
                return f"the hooks of {pod.ref}"
        return ""

    @property
    def idle(self) -> bool:
        """Whether nothing is owed for the pods of closed nodes; each of these was looked at once more."""
        closed = [site for site in self.sites.values() if not site.open]
        return not self.rules or not any(site.name not in self._closed or self._owed(site) for site in closed)

    def missing(self, node: str) -> list[str]:
        """What a node without pods still waits for."""
        return [f"{one.call.subject}: {one.call.what}" for one in self._owed(self.sites[node])]

    def failed_for(self, node: str) -> str:
        """Why hooks of the node's pods failed; empty if none did."""
        found = [*_on(self._before, node), *_on(self._after, node)]
        return "; ".join(f"{one.call.subject}: {one.failure}" for one in found if one.failure)

    def step(self, snapshot: snapshots.Snapshot) -> list[tuple[node_drains.NodeDrain, standing.Fallen]]:
        """Begin, follow and record what can be now; returns the nodes whose record could not be written."""
        if not self.rules:
            return []
        self._closed = {name for name, site in self.sites.items() if not site.open}
        fallen = []
        for name, site in self.sites.items():
            if site.record is None or name in self._lost:
                continue
            self._look(site, snapshot)
            if (why := self._record(site, snapshot)) is None:
                continue
            self._lost.add(name)
            if site.open:
                fallen.append((site, why))
        return fallen

    def to_dicts(self, site: node_drains.NodeDrain) -> list[dict[str, t.Any]]:
        """The hooks of the node's pods with their states, and the task files that are left to run."""
        shown = [one for found in (self._before, self._after) for one in _on(found, site.name)]
        told = [one.call.to_dict("failed" if one.failure else one.state, moved=one.moved) for one in shown]
        return told + [call.to_dict(state, moved=moved) for call, state, moved in self._tasks_after(site)]

    def predict(self, site: node_drains.NodeDrain) -> None:
        """Say which hooks the pods of the node have, for check mode."""
        entries: dict[str, dict[str, str]] = {}
        for move in site.left():
            found = [_recorded(site, call) for call in hooks.before(self.rules.before, move.plan)]
            self._before[move.pod.uid] = found
            after = [_recorded(site, call, moved=True) for call in hooks.before(self.rules.after, move.plan)]
            self._after.setdefault(site.name, []).extend(after)
            for one in (one for one in (*found, *after) if one.state != "done"):
                entries[one.call.key] = one.call.entry("done")
                self._actions.tell(one, "would be called")
        node = t.cast("objects.Node", site.node)
        if site.record and (change := cordon.with_hooks(node, site.record, entries, "Call the hooks")):
            self.ctx.changed(change)

    # -- what is to be done

    def _look(self, site: node_drains.NodeDrain, snapshot: snapshots.Snapshot) -> None:
        """Take in new pods, what was answered, and pods that have gone."""
        asked = self._before.keys() - self._starting
        new = [move for move in site.left() if site.open and move.pod.uid not in asked]
        for move in new:
            if move.state == "waiting" and not move.held and move.plan.route in hooks.MOVING:
                plan = _as_it_is(move, snapshot)
                self._before[move.pod.uid] = [_recorded(site, call) for call in hooks.before(self.rules.before, plan)]
                # It has nobody to ask yet, and may leave so; if it starts before its turn, it is asked.
                (self._starting.discard if plan.pod.phase == "Running" else self._starting.add)(move.pod.uid)
        record = site.taken
        known = {one.call.key for one in self._after.get(site.name, ())}
        http = [rule for rule in self.rules.after if rule.action == "http"]
        for call in hooks.left(http, site.name, record):
            if call.key in known:
                continue
            if (moved := self._over(site, call, snapshot)) is not None:
                self._after.setdefault(site.name, []).append(_recorded(site, call, moved=moved))
        for one in [*_on(self._before, site.name), *_on(self._after, site.name)]:
            if one.until and not one.over:
                self._actions.follow(one, record, snapshot)

    def _over(self, site: node_drains.NodeDrain, call: hooks.Call, snapshot: snapshots.Snapshot) -> bool | None:
        """Whether the pod has gone (``True``), or stays because its node was given up after it was asked to go."""
        if snapshot.pod(call.uid) is None:
            return True
        return False if not site.open and self._asked(call.uid) else None

    def _asked(self, uid: str) -> bool:
        """Whether the pod was asked to go, now or by an earlier call."""
        return any(one.until or one.again or one.state == "done" for one in self._before.get(uid, ()))

    # -- what is written

    def _record(self, site: node_drains.NodeDrain, snapshot: snapshots.Snapshot) -> standing.Fallen | None:
        """Write how far the hooks are, then begin those that are written as begun."""
        record = site.taken
        entries: dict[str, dict[str, str]] = {}
        if site.open:
            for move in site.left():
                _refuse(move, self._before.get(move.pod.uid, ()))
                for call in hooks.before(self.rules.after, _as_it_is(move, snapshot)):
                    if move.state == "waiting" and not hooks.state_of(record, call.key):
                        entries[call.key] = call.entry("due")
        begin = self._next(site)
        ended = []
        for one in [*_on(self._before, site.name), *_on(self._after, site.name)]:
            state: hooks.State = "failed" if one.failure else "done"
            if one.over and one.until and hooks.state_of(record, one.call.key) != state:
                entries[one.call.key] = one.call.entry(state)
                ended.append(one)
        entries |= {one.call.key: one.call.entry("begun") for one in begin}
        if entries and (why := self._write(site, entries, begin, ended)) is not None:
            return why
        for one in begin:
            self._actions.begin(one, site.taken, snapshot.pod(one.call.uid))
        for one in ended:
            self._actions.tell(one, one.failure or "done")
        self._fail(site)
        return None

    def _write(
        self,
        site: node_drains.NodeDrain,
        entries: t.Mapping[str, t.Mapping[str, str]],
        begin: t.Sequence[hook_actions.PodHook],
        ended: t.Sequence[hook_actions.PodHook],
    ) -> standing.Fallen | None:
        steps = [f"call {one.call.what} for {one.call.subject}" for one in begin]
        steps += [f"record it as {'failed' if one.failure else 'done'} for {one.call.subject}" for one in ended]
        sentence = "; ".join(steps) or f"record the hooks that are due on node {site.name}"

        def wanted(node: objects.Node, record: node_records.Record) -> api_changes.Change | None:
            return cordon.with_hooks(node, record, entries, sentence[0].upper() + sentence[1:])

        why, _made = site.write(self.ctx, wanted, self.fence)
        if why is None:
            site.record = cordon.hooked(site.taken, entries)
        return why

    def _next(self, site: node_drains.NodeDrain) -> list[hook_actions.PodHook]:
        """The hooks to begin: of each pod one after the other, HTTP calls only as many as can be sent at once."""
        going = site.open and not self.failed_for(site.name)
        lanes = [self._before.get(uid, []) for uid in site.moves] if going else []
        after: dict[str, list[hook_actions.PodHook]] = {}
        for one in self._after.get(site.name, ()):
            after.setdefault(one.call.uid, []).append(one)
        free, found = self.calls.free, []
        for lane in (*lanes, *after.values()):
            left = [one for one in lane if one.state != "done"]
            if not left or left[0].until:
                continue
            one = left[0]
            if one.call.rule.action == "http":
                free -= 1
            if free >= 0 or one.call.rule.action != "http":
                found.append(one)
        return found

    # -- what follows

    def _fail(self, site: node_drains.NodeDrain) -> None:
        for move in site.left():
            for one in self._before.get(move.pod.uid, ()):
                message = f"{one.call.subject}: {one.call.what}"
                if one.failure and move.state == "waiting":
                    move.end("failed", outcomes.PodOutcome.HOOK_FAILED, self.ctx.clock.now(), one.failure)
                elif not one.over and move.state == "waiting":
                    move.block("Pod", move.pod.namespace, move.pod.name, message)
                elif one.over and move.blocked_by and move.blocked_by["message"] == message:
                    # Whatever it waits for now says so itself.
                    move.blocked_by = None

    def _owed(self, site: node_drains.NodeDrain) -> list[hook_actions.PodHook]:
        if site.name in self._lost:
            return []
        return [one for one in self._after.get(site.name, ()) if not one.over]

    def _tasks_after(self, site: node_drains.NodeDrain) -> list[tuple[hooks.Call, str, bool]]:
        """The task files for pods that have gone, or stay although they were asked to go."""
        if site.record is None or self.ctx.check:
            return []
        tasks = [rule for rule in self.rules.after if rule.action == "tasks"]
        gone = {uid for uid, move in site.moves.items() if move.state == "gone"}
        found = []
        for call in hooks.left(tasks, site.name, site.record):
            stays = call.uid in site.moves and call.uid not in gone
            if not stays or self._asked(call.uid):
                found.append((call, hooks.state_of(site.record, call.key), not stays))
        return found


def _as_it_is(move: pod_moves.Move, snapshot: snapshots.Snapshot) -> pod_plan.PodPlan:
    """The plan of the move, with its pod as it is now."""
    return dataclasses.replace(move.plan, pod=snapshot.pod(move.pod.uid) or move.pod)


def _recorded(site: node_drains.NodeDrain, call: hooks.Call, *, moved: bool | None = None) -> hook_actions.PodHook:
    """The call, as far as it is according to the node's record."""
    state = hooks.state_of(site.record, call.key) if site.record else ""
    return hook_actions.PodHook(call, state or "due", state in ("begun", "failed"), moved)


def _on(found: t.Mapping[str, list[hook_actions.PodHook]], node: str) -> list[hook_actions.PodHook]:
    return [one for lane in found.values() for one in lane if one.call.node == node]


def _refuse(move: pod_moves.Move, found: t.Iterable[hook_actions.PodHook]) -> None:
    """A pod whose task file has not run is not moved."""
    for one in found:
        if move.state == "waiting" and one.call.rule.action == "tasks" and not one.over:
            one.failure = hook_calls.failure(one.call, UNRUN)
