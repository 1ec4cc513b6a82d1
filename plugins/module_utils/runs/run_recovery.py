# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Undoing what earlier runs left: nodes, surges, budgets, locks, jobs, and stored runs.

The nodes of a run are given back together and all runs in parallel, so that expired locks are
waited for once. If a node, run or object refuses, that is reported and does not affect the others.
"""

from __future__ import annotations

import contextlib
import functools
import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    objects,
    run_context,
    run_listing,
    run_requests,
    scopes,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    rollback_record,
    run_preview_leftovers,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import unreachable
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import run_handshakes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    run_leftovers,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    commands,
    outcomes,
    phases,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    run_cordon,
    run_node_steps,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs import run_runs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    lock_leases,
    node_records,
    queue_marks,
    run_heartbeats,
    run_lease,
    run_leases,
    run_locks,
    run_stored,
    stored_objects,
    surge_records,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import run_guard

REFUSALS = (
    errors.ClusterError,
    run_context.CallAborted,
    node_records.BadRecordError,
    surge_records.BadSurgeError,
)
"""Errors that end the work on one node or object only."""


@dataclass
class _Found:
    """What runs left, as it was read; ``bad`` are the nodes whose record
    cannot be parsed, and why.
    """

    snapshot: snapshots.Snapshot
    records: dict[str, node_records.Record]
    bad: dict[str, str]
    maps: t.Sequence[objects.Raw]

    @property
    def runs(self) -> dict[str, stored_objects.StoredRun]:
        return {run.id: run for run in run_stored.readable(self.maps)}


@dataclass
class _Recovery:
    """The result of a call: an entry for each object, and what failed."""

    nodes: list[dict[str, t.Any]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def add(self, entry: dict[str, t.Any]) -> None:
        self.nodes.append(entry)
        if entry["failed"]:
            self.failed.append(entry["message"])

    @contextlib.contextmanager
    def telling(self, about: str) -> t.Iterator[None]:
        """Report what is refused inside, and go on."""
        try:
            yield
        except REFUSALS as error:
            self.failed.append(f"{about}: {error}")


def look(ctx: run_context.Context) -> tuple[tuple[stored_objects.Trace, ...], set[str]]:
    """All traces, and the runs that are alive: their locks were renewed meanwhile,
    or their own lease holds.
    """
    found = _everything(ctx)
    leases = {lock_leases.place_of(lease): lease for lease in found.snapshot.leases}
    alive = run_lease.live_runs(ctx, found.snapshot.leases)
    if any(lock_leases.duration_of(lease) <= lock_leases.WORKING for lease in leases.values()):
        ctx.clock.sleep(run_locks.RENEW_EVERY_SECONDS + 1.0)
        for lease in run_leases.leases_in(ctx, {namespace for namespace, _name in leases}):
            before = leases.get(lock_leases.place_of(lease))
            if (
                before is None
                or before["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"]
            ):
                alive.add(run_leases.holder_of(lease))
    return (
        *stored_objects.traces(found.snapshot, found.runs.values()),
        *map(_of_journal, rollback_record.readable(found.maps)),
        *_unreadable(found.maps),
        *run_leftovers.traces(ctx),
        *run_preview_leftovers.traces(ctx),
    ), alive


def _of_journal(journal: rollback_record.Journal) -> stored_objects.Trace:
    place = objects.Ref("ConfigMap", journal.name, names.NAMESPACE)
    return stored_objects.Trace(place, journal.sentence, by=journal.by, since=journal.since)


def _unreadable(raws: t.Iterable[objects.Raw]) -> t.Iterator[stored_objects.Trace]:
    for raw in raws:
        try:
            stored_objects.stored_run(raw)
        except node_records.BadRecordError as error:
            name = raw["metadata"]["name"]
            place = objects.Ref("ConfigMap", name, names.NAMESPACE)
            yield stored_objects.Trace(place, str(error), run=name.removeprefix(names.RUN_PREFIX))


def _everything(ctx: run_context.Context) -> _Found:
    found = run_listing.lists(ctx.cluster, ("nodes", "budgets"))
    found["pods"] = run_listing.listed(ctx.cluster, "pods", scopes.ALL, labels=names.RELEASED)
    known, bad = node_records.records(found["nodes"])
    found["leases"] = run_locks.all_leases(ctx, known.values())
    return _Found(snapshots.Snapshot.of(found), known, bad, run_stored.config_maps(ctx))


def recover(ctx: run_context.Context, *, finished: bool, parked: bool) -> run_context.Result:
    """Undo what runs left, or with ``finished`` only give back the nodes whose work was done.

    Runs that are alive are not touched, nor is a node that was evacuated as dead and has not come
    back. A node that is parked, or on whose host tasks were running, has to pass the gates first,
    and only if its run is named or ``parked`` is set. Raises ClusterError if the
    cluster cannot be read.
    """
    found = _everything(ctx)
    wanted = ctx.run.id if ctx.run else None
    done = _Recovery()
    for name, why in found.bad.items():
        if wanted is None:
            done.add(outcomes.entry(name, outcomes.StateOutcome.BAD_RECORD, why))
    by_run: dict[str, list[str]] = {}
    staying: set[str] = set()
    for name, record in found.records.items():
        if wanted not in (None, record.run):
            continue
        node = found.snapshot.nodes[name]
        run = found.runs.get(record.run)
        is_done = bool(run and name in run.finished)
        chosen, message = way(
            node, record, is_done=is_done, finished=finished, named=bool(wanted), parked=parked
        )
        if chosen is None:
            by_run.setdefault(record.run, []).append(name)
        else:
            staying.add(record.run)
            done.add(outcomes.entry(name, chosen, message))
    loose = [lease for lease in found.snapshot.leases if _is_loose(found, lease, wanted)]
    # Whether a run is alive matters only if its stored run may be deleted,
    # and takes a minute to find out.
    loose = [
        lease
        for lease in loose
        if _is_lock(lease) or not (finished or run_leases.holder_of(lease) in staying)
    ]
    in_service = {name for name, record in found.records.items() if record.step == "back"}
    silent = _side_by_side(ctx, by_run, loose, done, named=wanted, in_service=in_service)
    _orphans(ctx, found, wanted, done)
    _loose_locks(ctx, [x for x in loose if _is_lock(x)], silent, done)
    run_heartbeats.sweep(ctx, wanted or "")
    still, bad = node_records.records(run_listing.lists(ctx.cluster, ("nodes",))["nodes"])
    with done.telling("PodMigrationJobs"):
        run_leftovers.give_up(ctx, wanted, {*still, *bad})
    if wanted is None and not finished:
        run_preview_leftovers.sweep(ctx)
    if not finished:
        predicted = set[str]().union(*by_run.values()) if ctx.check else set[str]()
        holding = staying | {record.run for name, record in still.items() if name not in predicted}
        alive = {
            run_leases.holder_of(lease)
            for lease in loose
            if lock_leases.place_of(lease) not in silent
        }
        left = {run_leases.holder_of(lease) for lease in loose if not _is_lock(lease)}
        marked = set[str]().union(*map(queue_marks.runs_of, found.snapshot.nodes.values()))
        left |= {run for run in {*found.runs, *marked} if wanted in (None, run)}
        _memories(ctx, sorted(left), holding, alive, done)
    return run_context.Result(
        {"nodes": done.nodes}, failed=bool(done.failed), message="; ".join(done.failed)
    )


def way(
    node: objects.Node,
    record: node_records.Record,
    *,
    is_done: bool,
    finished: bool,
    named: bool,
    parked: bool,
) -> tuple[outcomes.StateOutcome | None, str]:
    """Why a node is left as it is or has to pass the gates first;
    ``None`` if it is to be given back.
    """
    name, of = node.name, f"run {record.run} of {record.by} (since {record.since})"
    release, by_name = f"`{commands.release([name])}`", f"`{commands.undo(record.run)}`"
    if finished and not is_done:
        return outcomes.StateOutcome.LEFT, (
            f"Node {name} is at step {record.step} of run {record.run}, so its work is not "
            "finished. Run the same command again, release the node, or undo the run."
        )
    if why := unreachable.stays_out(node, record):
        return outcomes.StateOutcome.STILL_DEAD, why
    if record.step == "parked" and not (named or parked):
        why = f" ({record.reason})" if record.reason else ""
        text = f"Node {name} was left out of service on purpose by {of}{why}."
        return (
            outcomes.StateOutcome.LEFT,
            f"{text} To give it back: {release}, or by its run's name: {by_name}.",
        )
    if record.step == "out" and not named:
        text = (
            f"Node {name} is out of service for the tasks of {of}, "
            "which may still be running on the host."
        )
        return outcomes.StateOutcome.LEFT, f"{text} {node_records.once_over(record.run)}"
    if record.step in ("parked", "out") or (record.step == "returning" and not is_done):
        text = (
            f"Node {name} is at step {record.step} of {of}, so it has to pass the gates "
            f"first: {release}."
        )
        return outcomes.StateOutcome.TO_VERIFY, text
    return None, ""


def _side_by_side(
    ctx: run_context.Context,
    by_run: t.Mapping[str, t.Sequence[str]],
    loose: t.Sequence[objects.Raw],
    done: _Recovery,
    *,
    named: str | None,
    in_service: t.Collection[str],
) -> dict[lock_leases.NamespacedName, lock_leases.Seen]:
    """Give the nodes of all runs back and watch the loose leases meanwhile;
    returns those that nobody renews.
    """
    silent: dict[lock_leases.NamespacedName, lock_leases.Seen] = {}
    if ctx.check:
        for lease in loose:
            silent[lock_leases.place_of(lease)] = lock_leases.Seen.among(lease, loose)
    with ctx.clock.pool(run_requests.MAX_PARALLEL, "recover") as pool:
        watching = None if ctx.check else pool.submit(run_lease.expired, ctx, loose, named)
        back = functools.partial(_give_back, ctx, explicit=bool(named), in_service=in_service)
        for entries in pool.map(lambda item: back(*item), by_run.items()):
            for entry in entries:
                done.add(entry)
        if watching:
            with done.telling("Locks"):
                silent = watching.result()
    return silent


def _give_back(
    ctx: run_context.Context,
    run_id: str,
    nodes: t.Sequence[str],
    *,
    explicit: bool,
    in_service: t.Collection[str],
) -> list[dict[str, t.Any]]:
    """Give one run's nodes back, under a nonce of our own; a lock that is renewed refuses this.

    Those that are ``in_service`` again are not taken over by a cordon.
    """
    me = replace(ctx, run=run_context.Run(run_id, ctx.clock.token()))
    steps: list[t.Callable[[tuple[str, ...]], run_context.Result]] = [
        lambda some: run_guard.guard(me, run_guard.GuardOptions(state="absent", nodes=some)),
        lambda some: run_cordon.cordon(me, run_node_steps.CordonOptions("uncordoned", some)),
    ]
    if not ctx.check:
        steps.insert(
            0,
            lambda some: run_cordon.cordon(
                me, run_node_steps.CordonOptions("cordoned", some, adopt=explicit)
            ),
        )
    entries: dict[str, dict[str, t.Any]] = {}
    todo = tuple(name for name in nodes if name not in in_service)
    for step in steps:
        if step is steps[-1]:
            todo += tuple(name for name in nodes if name in in_service)
        for name, entry in _each(step, todo).items():
            message = entry["message"] if entry["failed"] else f"Node {name} was given back."
            entries[name] = {**entry, "message": message}
        todo = tuple(name for name in todo if not entries[name]["failed"])
    return [entries[name] for name in nodes]


def _each(
    step: t.Callable[[tuple[str, ...]], run_context.Result], nodes: tuple[str, ...]
) -> dict[str, dict[str, t.Any]]:
    """The entry of each node in the step's result. A step that fails as a whole is repeated for
    each node alone, so that the failure is said of the node that it is about.
    """
    if not nodes:
        return {}
    try:
        found = step(nodes).data["nodes"]
    except REFUSALS as error:
        if len(nodes) > 1:
            entries: dict[str, dict[str, t.Any]] = {}
            for node in nodes:
                entries |= _each(step, (node,))
            return entries
        found = [
            outcomes.entry(nodes[0], outcomes.StateOutcome.FAILED, f"Node {nodes[0]}: {error}")
        ]
    keys = ("name", "outcome", "failed", "message")
    return {entry["name"]: {key: entry[key] for key in keys} for entry in found}


def _is_lock(lease: objects.Raw) -> bool:
    return bool(
        lease["metadata"]["name"].startswith((names.NODE_LEASE_PREFIX, names.DESCHEDULER_PREFIX))
    )


def _is_loose(found: _Found, lease: objects.Raw, wanted: str | None) -> bool:
    """Whether it is our lock of a node without a record or of a descheduler,
    or a run's sign of life.
    """
    if lock_leases.is_theirs(lease) or wanted not in (None, run_leases.holder_of(lease)):
        return False
    if _is_lock(lease):
        return _node_of(lease) not in {*found.records, *found.bad}
    return run_lease.is_run_lease(lease)


def _node_of(lock: objects.Raw) -> str:
    """The node that it locks, empty if it locks a descheduler."""
    if lock["metadata"]["name"].startswith(names.DESCHEDULER_PREFIX):
        return ""
    return run_lease.node_of(lock)


def _orphans(ctx: run_context.Context, found: _Found, wanted: str | None, done: _Recovery) -> None:
    """Give back surges and budgets whose nodes are gone or have no record."""
    lonely = set[str]()
    for trace in stored_objects.traces(replace(found.snapshot, nodes={}), ()):
        if not wanted or trace.run in ("", wanted):
            lonely.update(trace.nodes)
    lonely -= {*found.records, *found.bad}
    if not lonely:
        return
    with done.telling("Surges and budgets of nodes without a record"):
        result = run_guard.guard(
            ctx, run_guard.GuardOptions(state="absent", nodes=tuple(sorted(lonely)))
        )
        if result.failed:
            done.failed.append(result.message)


def _loose_locks(
    ctx: run_context.Context,
    locks: t.Sequence[objects.Raw],
    silent: t.Mapping[lock_leases.NamespacedName, lock_leases.Seen],
    done: _Recovery,
) -> None:
    """Delete locks of nodes without a record and of deschedulers, unless somebody renews them."""
    ended: set[str] = set()
    for lease in locks:
        node = _node_of(lease)
        what = f"node {node}" if node else f"a descheduler (Lease {lease['metadata']['name']})"
        if seen := silent.get(lock_leases.place_of(lease)):
            with done.telling(f"The lock of {what}"):
                if node:
                    run_handshakes.take_back_on(ctx, node)
                run_lease.release(ctx, seen, ended, what)
        elif not node:
            text = f"the lock of {what} is still renewed by run {run_leases.holder_of(lease)}"
            ctx.tell(phases.What.WAITING, f"{text}, so it stays")
        elif run_leases.of_tasks(lease):
            done.add(
                outcomes.entry(
                    node,
                    outcomes.StateOutcome.LEFT,
                    f"{run_leases.held_by(f'Node {node}', lease)}.",
                )
            )
        else:
            text = f"The lock of node {node} is still renewed by run {run_leases.holder_of(lease)}."
            done.add(outcomes.entry(node, outcomes.StateOutcome.HELD, text))


def _memories(
    ctx: run_context.Context,
    ids: t.Sequence[str],
    holding: t.Collection[str],
    alive: t.Collection[str],
    done: _Recovery,
) -> None:
    """Delete stored runs that have no node left and are not alive,
    and their marks of waiting nodes.
    """
    for run_id in ids:
        if run_id in alive:
            ctx.tell(
                phases.What.WAITING,
                f"run {run_id} is alive between two of its nodes, so it stays stored",
            )
        elif run_id not in holding:
            with done.telling(f"Run {run_id}"):
                run_runs.forget(ctx, run_id)
                run_lease.delete(ctx, run_id)
