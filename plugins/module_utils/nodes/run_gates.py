# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``node_ready``: the gates of nodes that come back, evaluated once or until all are passed.

During the watch the locks of the caller's own nodes are renewed: a run that waits for a node is not
dead. A soak watches nodes that are back already; there the caller's run is shown to be alive.
"""

from __future__ import annotations

import contextlib
import itertools
import typing as t
from dataclasses import dataclass, replace
from types import MappingProxyType

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    objects,
    run_context,
    run_listing,
    run_services,
    run_watch_cache,
    scopes,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    gate_checks,
    run_lookup,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    node_records,
    run_lease,
    run_locks,
)

LOOP_PAUSE_SECONDS = 1.0
"""Longest pause of the loop, in seconds; any change in what is watched ends it early."""

SOAK_LINES = 10
"""A soak tells about so many times how it stands."""
MIN_BETWEEN_LINES_SECONDS = 10.0
MAX_BETWEEN_LINES_SECONDS = 300.0
"""Seconds between two of these lines, at least and at most."""

Missing = t.Mapping[str, tuple[reasons.Finding, ...]]
"""What each node lacks to pass its gates; empty for one that passes them."""
Nodes = t.Mapping[str, objects.Node]
Before = t.Mapping[str, node_records.Record]
"""What stands for the records of nodes that have none."""


@dataclass(frozen=True, slots=True)
class ReadyOptions:
    """Options of the module, times in seconds.

    Exactly one of ``nodes`` and ``node_selector`` says which nodes. ``stable`` is for how long the
    gates have to hold, ``timeout`` ``None`` without a limit. ``not_rebooted`` are nodes to which
    the gate ``rebooted`` does not apply. ``soak`` is for how long the gates have to hold from
    ``soak_since`` (RFC 3339, by the API server's clock) or, if that is ``None``, from now;
    ``None`` without a soak.
    """

    nodes: tuple[str, ...] = ()
    node_selector: str = ""
    gates: tuple[str, ...] = gate_checks.USUAL
    expected: gate_checks.Expected = gate_checks.NOTHING
    stable: float = 10.0
    wait: bool = False
    timeout: float | None = None
    not_rebooted: tuple[str, ...] = ()
    soak: float | None = None
    soak_since: str | None = None


def check_ready(ctx: run_context.Context, options: ReadyOptions) -> run_context.Result:
    """Whether each node passes its gates; the call fails if one of them does not.

    Without ``wait``, and in check mode, they are evaluated once and ``stable`` is ignored.

    Raises:
        CallAborted: there is no such node, except for a soak; or none that the selector matches.
        ClusterError: the API server cannot be reached, or refuses to list what the gates need.
    """
    if options.soak is not None and not options.node_selector:
        raws, among = run_lookup.nodes(ctx, options.nodes)
    else:
        raws, among = run_lookup.selected(ctx, options.nodes, options.node_selector)
    nodes = {name: objects.Node.of(raw) for name, raw in raws.items()}
    asked = replace(options, nodes=tuple(nodes if options.node_selector else options.nodes))
    if asked.soak is not None:
        return _result(nodes, _soak(ctx, nodes, among, asked, asked.soak))
    seen = _gathered(ctx, nodes, among, asked)
    if not asked.wait or ctx.check:
        return _result(nodes, _look(seen, asked, {}))
    # Where there is nothing to wait for, there is no lock to keep meanwhile.
    found = _look(seen, asked, dict.fromkeys(asked.nodes, asked.stable))
    if not any(found.values()):
        return _result(nodes, found)
    locks = run_locks.Locks(ctx)
    try:
        refused = locks.take_recorded(_own(ctx, nodes, asked.nodes))
        services = run_services.Services(ctx, {})
        with run_watch_cache.WatchCache(
            ctx, [*_watched(asked), "slices"], scopes.apart(asked.nodes, among)
        ) as live:
            found = _watch(ctx, asked, live, lambda: {**refused, **locks.lost()}, services)
        return _result(nodes, found, services)
    finally:
        locks.leave()


def _watched(asked: ReadyOptions) -> list[str]:
    return ["nodes", *(("pods", "daemon_sets") if "daemonsets" in asked.gates else ())]


def _gathered(
    ctx: run_context.Context, nodes: Nodes, among: int, asked: ReadyOptions
) -> snapshots.Snapshot:
    """Lists what the gates look at; the nodes have just been read."""
    found: dict[str, list[t.Any]] = {"nodes": list(nodes.values())}
    for name in _watched(asked):
        if name not in found:
            scope = scopes.apart(asked.nodes, among) if name == "pods" else None
            found |= run_listing.lists(ctx.cluster, (name,), scope, ctx.recent, follows=ctx.follows)
    return snapshots.Snapshot.of(found)


def _soak(
    ctx: run_context.Context, nodes: Nodes, among: int, asked: ReadyOptions, seconds: float
) -> Missing:
    """Evaluate the gates for the rest of the soak, once at least, and only once in check mode;
    ends at once when one of them fails.

    Nodes that are gone before it begins are left out: an autoscaler may have removed them
    since they came back.
    """
    names = tuple(name for name in asked.nodes if name in nodes)
    if gone := [name for name in asked.nodes if name not in nodes]:
        ctx.tell(phases.What.NOTE, f"not watched, because no longer there: {', '.join(gone)}")
    since = decoding.moment(asked.soak_since or "")
    if since and (now := decoding.moment(ctx.clock.server())):
        seconds -= (now - since).total_seconds()
    start = ctx.clock.now()
    every = min(max(seconds / SOAK_LINES, MIN_BETWEEN_LINES_SECONDS), MAX_BETWEEN_LINES_SECONDS)
    announced = shown = start - MAX_BETWEEN_LINES_SECONDS
    # Of a node in service there is no record, and so no bootID from before.
    gates = tuple(gate for gate in asked.gates if gate != "rebooted")
    there = replace(asked, nodes=names, gates=gates or ("ready",))
    with run_watch_cache.WatchCache(ctx, _watched(there), scopes.apart(names, among)) as live:
        seen = live.snapshot()
        before = {name: _as_it_is(seen, nodes[name]) for name in names}
        while True:
            found = _look(live.snapshot(), there, {}, before)
            at = ctx.clock.now()
            left = seconds - (at - start)
            if left <= 0 or ctx.check or any(found.values()):
                return found
            if at - announced >= every:
                announced = at
                text = f"the gates hold; nodes watched: {len(found)}, {left:.0f} s left"
                ctx.tell(phases.What.SOAKING, text)
            if ctx.run and ctx.run.nonce and at - shown >= run_locks.IDLE / 3:
                shown = at
                run_lease.renew(ctx, ctx.run)
            live.wait(min(LOOP_PAUSE_SECONDS, left))


def _as_it_is(seen: snapshots.Snapshot, node: objects.Node) -> node_records.Record:
    """Stands for the record, which is gone, so that what was bad before fails no gate."""
    before: node_records.Prior = {
        "conditions": gate_checks.state_before(node)["conditions"],
        "daemonsets": list(gate_checks.lacking(seen, node)),
    }
    return node_records.Record(
        "",
        nonce="",
        by="",
        reason="",
        since="",
        step="returning",
        node_uid=node.uid,
        lease="",
        prior=before,
    )


def _own(
    ctx: run_context.Context, nodes: Nodes, wanted: t.Iterable[str]
) -> dict[str, node_records.Record]:
    """The records of the caller's nodes whose locks have to be renewed while it waits.

    The lock of a node whose tasks are running lasts as long as they may;
    nobody works on a parked node.
    """
    found = {}
    for name in wanted:
        with contextlib.suppress(node_records.BadRecordError):
            record = node_records.record_of(nodes[name])
            if record is None or record.step in ("out", "parked"):
                continue
            if not record.foreign_to(*ctx.caller):
                found[name] = record
    return found


def _watch(
    ctx: run_context.Context,
    asked: ReadyOptions,
    live: run_watch_cache.WatchCache,
    lost: t.Callable[[], t.Mapping[str, str]],
    seen: run_services.Services,
) -> Missing:
    """Evaluate the gates until all are passed or time is up.

    ``lost`` gives the nodes whose locks are not ours, and why; they are not waited for. Meanwhile
    Services are watched (``seen``), except in large clusters.
    """
    start = ctx.clock.now()
    said = False
    holds_since: dict[str, float] = {}
    while True:
        snapshot = live.snapshot()
        now = ctx.clock.now()
        seen.sample(snapshot)
        bare = _look(snapshot, asked, {})
        for name, missing in bare.items():
            if missing:
                holds_since.pop(name, None)
            else:
                holds_since.setdefault(name, now)
        left = {name: asked.stable - (now - since) for name, since in holds_since.items()}
        taken = {name: (_taken_over(name, why),) for name, why in lost().items()}
        found = {**_look(snapshot, asked, left), **taken}
        late = asked.timeout is not None and now - start >= asked.timeout
        if late or not any(missing for name, missing in found.items() if name not in taken):
            return found
        lacking = itertools.chain.from_iterable(found.values())
        text = " ".join(one.message for one in lacking if one.code != "unstable")
        said = said or bool(text)
        if said:
            # What was said last must not stand while it is true no more.
            hold = f"the gates hold; they have to for {asked.stable:g} s"
            ctx.tell_changed(phases.What.WAITING, text or hold)
        live.wait(min([LOOP_PAUSE_SECONDS, *(seconds for seconds in left.values() if seconds > 0)]))


def _taken_over(name: str, why: str) -> reasons.Finding:
    message = f"Node {name} is no longer ours: {why}."
    return reasons.Finding.of_node(name, "adopted_by", message, "Check the run that has it now.")


def _look(
    snapshot: snapshots.Snapshot,
    asked: ReadyOptions,
    left: t.Mapping[str, float],
    before: Before = MappingProxyType({}),
) -> Missing:
    """``left``: how much longer the gates have to hold."""
    return {
        name: _gates(snapshot, name, asked, left.get(name, 0.0), before.get(name))
        for name in asked.nodes
    }


def _gates(
    snapshot: snapshots.Snapshot,
    name: str,
    asked: ReadyOptions,
    left: float,
    before: node_records.Record | None,
) -> tuple[reasons.Finding, ...]:
    node = snapshot.nodes.get(name)
    if node is None:
        gone, remedy = f"Node {name} no longer exists.", "Check whether it registers again."
        return (reasons.Finding.of_node(name, "unknown_node", gone, remedy),)
    try:
        record = node_records.record_of(node) or before
    except node_records.BadRecordError as error:
        return (reasons.Finding.of_node(name, "bad_record", str(error), "Repair it by hand."),)
    wanted = [gate for gate in asked.gates if gate != "rebooted" or name not in asked.not_rebooted]
    return gate_checks.gates(
        snapshot, node, record, wanted, expected=asked.expected, missing_seconds=left
    )


def _result(
    nodes: Nodes, found: Missing, services: run_services.Services | None = None
) -> run_context.Result:
    failed = list(itertools.chain.from_iterable(found.values()))
    data = {
        "findings": [finding.to_dict() for finding in reasons.merged(failed)],
        "nodes": [_node(nodes.get(name), name, missing) for name, missing in found.items()],
        **(services.result() if services and services.watched else {}),
    }
    message = " ".join(finding.message for finding in failed)
    return run_context.Result(data, failed=bool(failed), message=message)


def _node(
    node: objects.Node | None, name: str, missing: tuple[reasons.Finding, ...]
) -> dict[str, t.Any]:
    outcome = outcomes.GateOutcome.FAILED if missing else outcomes.GateOutcome.PASSED
    message = " ".join(finding.message for finding in missing) or f"Node {name} passed its gates."
    return {**outcomes.entry(name, outcome, message), "address": node.address if node else ""}
