# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The only writer of ``run-<id>``: what is stored of a run, so that the same command resumes it.

Whatever reads or writes here raises ClusterError if the API server refuses or cannot be reached.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import typing as t
from dataclasses import asdict, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    decoding,
    names,
    objects,
    run_context,
    run_listing,
    run_reconcile,
    run_requests,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    commands,
    outcomes,
    phases,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import build
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    node_records,
    queue_marks,
    run_heartbeats,
    run_lease,
    run_leases,
    run_locks,
    run_stored,
    stored_objects,
)

# Marks nodes that wait for their wave, and takes the marks back; nothing of it stops a run.
#
# These nodes are nobody's yet: no lock is taken for the mark. It is set by whoever has just shown
# that the run is alive, for as long as that holds; what a process sets that was frozen meanwhile
# goes with the run, or with ``recover``.


PATIENCE_SECONDS = 10.0
"""Seconds for which a request is repeated while the API server is away or overloaded."""


class TooLateError(errors.ClusterError):
    """The process stood still for so long that the run may be another's by now."""

    rule = "the run's sign of life has expired meanwhile"
    remedy = "Nothing needs to be done."


Rule = t.Callable[[objects.Node, str], "api_changes.Change | None"]


def mark_waiting(
    ctx: run_context.Context, run_id: str, nodes: t.Collection[str], until: float
) -> None:
    """Mark these nodes; ``until``, by the context's clock, the run's lease holds."""

    def prove_lock() -> None:
        if ctx.clock.now() >= until:
            raise TooLateError(f"run {run_id} may be another's by now")

    if nodes:
        wanted = [node for node in _listed(ctx) if node.name in nodes]
        _all(ctx, wanted, run_id, queue_marks.set_on, prove_lock)


def clear(
    ctx: run_context.Context, run_id: str, nodes: t.Iterable[objects.Node] | None = None
) -> None:
    """Take the run's marks back; ``nodes`` are all nodes of the cluster where they
    have just been read.
    """
    nodes = _listed(ctx) if nodes is None else nodes
    wanted = [node for node in nodes if run_id in queue_marks.runs_of(node)]
    _all(ctx, wanted, run_id, queue_marks.removed_from)


def _listed(ctx: run_context.Context) -> list[objects.Node]:
    try:
        return _nodes(ctx)
    except errors.ClusterError as error:
        _tell(ctx, str(error))
        return []


def _all(
    ctx: run_context.Context,
    nodes: t.Sequence[objects.Node],
    run_id: str,
    rule: Rule,
    prove_lock: run_requests.ProveLock | None = None,
) -> None:
    hopeless: list[str] = []

    def one(node: objects.Node) -> str:
        if hopeless:
            return hopeless[0]

        def decide(raw: objects.Raw | None) -> api_changes.Change | None:
            return rule(objects.Node.of(raw), run_id) if raw else None

        change = rule(node, run_id)
        if change is None:
            return ""
        target = objects.Ref("Node", node.name, api_version="v1")
        try:
            first = run_reconcile.at_first(change, decide)
            run_reconcile.reconcile(
                ctx, target, first, known=None, prove_lock=prove_lock, patience=PATIENCE_SECONDS
            )
        except errors.ClusterError as error:
            message = f"Node {node.name}: {error}"
            hopeless.extend(
                [message] if isinstance(error, (errors.Forbidden, errors.Unreachable)) else []
            )
            return message
        return ""

    if not nodes:
        return
    with ctx.clock.pool(run_requests.MAX_PARALLEL, "waiting") as pool:
        wrong = [message for message in pool.map(one, nodes) if message]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        _tell(ctx, f"{wrong[0]}{more}")


def _tell(ctx: run_context.Context, why: str) -> None:
    """Note that marks are not as they should be; ``recover`` tells which are left."""
    ctx.tell(
        phases.What.NOTE,
        f"nodes that wait for their wave are not all marked as they should be: {why}",
    )


def _nodes(ctx: run_context.Context) -> list[objects.Node]:
    return run_listing.lists(ctx.cluster, ("nodes",))["nodes"]


def resumable(
    ctx: run_context.Context, given: t.Mapping[str, t.Any] | None
) -> dict[str, t.Any] | None:
    """The run that ``started`` with the same input would resume,
    ``None`` without input or such a run.

    Raises:
        CallAborted: a run is named that is not stored.
    """
    if given is None:
        return None
    mark = stored_objects.fingerprint(given)
    now = ctx.clock.server()
    known = run_stored.stored(ctx)
    if ctx.run:
        found: stored_objects.StoredRun | None = _named(ctx.run.id, known)
    else:
        same = (run for run in known if run.fingerprint == mark and run.resumable(now))
        found = next(same, None)
    if found is None:
        return None
    return {
        "run": found.id,
        "finished": list(found.finished),
        # After a failure nodes have to prove themselves anew.
        "noted": max(found.noted, found.ended),
        "waves_done": found.waves_done,
        "by": found.by,
        "since": found.since,
    }


def started(
    ctx: run_context.Context,
    given: dict[str, t.Any],
    waves: t.Sequence[t.Sequence[str]],
    seconds: float = run_locks.IDLE,
    *,
    mark: bool = False,
) -> run_context.Result:
    """Store a run of this input, or resume the stored one; it then counts as alive for ``seconds``.

    ``mark``: the nodes of all waves but the first are marked as waiting,
    so that pods prefer other nodes.

    Raises:
        CallAborted: the run that the caller names is not stored, a run that is too old to be
            resumed is still alive, or our namespace is missing and may not be created.
    """
    same = stored_objects.fingerprint(given)
    known = run_stored.stored(ctx)
    now = ctx.clock.server()
    going = functools.partial(_going, ctx, seconds=seconds, waves=waves if mark else ())
    if ctx.run:
        run = _named(ctx.run.id, known)
        return going(run, f"Resuming run {run.id} by its name.")
    message = ""
    for run in known:
        if run.fingerprint != same:
            continue
        if run.resumable(now):
            return going(
                run, f"Resuming run {run.id} of {run.by}, started {run.since} by the same command."
            )
        _refuse_alive(ctx, run)
        message = (
            f"Run {run.id} of the same command, started {run.since}, is too old to be resumed. "
        )
        forget(ctx, run.id)
    for run in _outlived(ctx, known, same, now):
        # Nobody needs it, and it is in nobody's way: if it cannot be deleted,
        # that stops no other run.
        with contextlib.suppress(errors.ClusterError):
            forget(ctx, run.id, run.resource_version)
    plan = tuple(tuple(wave) for wave in waves)
    fresh = stored_objects.StoredRun(
        ctx.clock.token(), ctx.by, since=now, fingerprint=same, given=given, plan=plan
    )
    target = run_stored.run_ref(fresh.id)
    after = {"input": given, "plan": waves}
    change = api_changes.Change(
        "create", target, f"Store run {fresh.id}", fresh.to_config_map(), {}, after
    )
    # The id is random, so whatever has this name is our own write whose answer was lost.
    run_reconcile.reconcile(ctx, target, lambda raw: change if raw is None else None, known=None)
    return going(fresh, f"{message}Starting run {fresh.id}.", resumed=False)


def _named(run_id: str, known: t.Sequence[stored_objects.StoredRun]) -> stored_objects.StoredRun:
    found = next((run for run in known if run.id == run_id), None)
    if found is None:
        raise run_context.CallAborted(
            "unknown_run",
            f"There is no run {run_id}.",
            f"Known runs: {', '.join(run.id for run in known) or 'none'}. "
            "Without maintain_run a new one starts.",
            str(run_stored.run_ref(run_id)),
        )
    return found


def _refuse_alive(ctx: run_context.Context, run: stored_objects.StoredRun) -> None:
    """Stop if somebody renews the run's lease or the lock of one of its nodes;
    watches for a minute at most.
    """
    found, _bad = _out(ctx)
    leases = run_locks.all_leases(ctx, found.values())
    its = [lease for lease in leases if run_leases.holder_of(lease) == run.id]
    if len(run_lease.expired(ctx, its)) < len(its):
        raise run_context.CallAborted(
            "run_alive",
            f"Run {run.id} of {run.by}, started {run.since} by the same command, is still at work.",
            f"Wait until it ends. If it was killed: {commands.resume(run.id)} resumes it, and "
            f"`{commands.undo(run.id)}` undoes it.",
            str(run_stored.run_ref(run.id)),
        )


def _out(ctx: run_context.Context) -> tuple[dict[str, node_records.Record], dict[str, str]]:
    """``node_records.records`` of all nodes of the cluster."""
    return node_records.records(_nodes(ctx))


def _outlived(
    ctx: run_context.Context, known: t.Sequence[stored_objects.StoredRun], mark: str, now: str
) -> list[stored_objects.StoredRun]:
    """Runs of other commands that nobody will resume: too old,
    without a lease that holds and without a node.

    One that still has a node is kept, because it can be resumed by its name.
    """
    old = [run for run in known if run.fingerprint != mark and not run.resumable(now)]
    if not old:
        return []
    found, bad = _out(ctx)
    if bad:
        # They may belong to any of the runs.
        return []
    kept = {record.run for record in found.values()}
    kept |= {run_leases.holder_of(lease) for lease in run_leases.leases_in(ctx, [names.NAMESPACE])}
    return [run for run in old if run.id not in kept]


def _going(
    ctx: run_context.Context,
    run: stored_objects.StoredRun,
    message: str,
    *,
    seconds: float,
    waves: t.Sequence[t.Sequence[str]],
    resumed: bool = True,
) -> run_context.Result:
    """The run goes on under a nonce of its own, and the nodes of all
    ``waves`` but the first wait.
    """
    me = run_context.Run(run.id, ctx.clock.token())
    since = ctx.clock.now()
    run_lease.renew(ctx, me, seconds)
    run = _resumed(ctx, run) if resumed else run
    mark_waiting(ctx, run.id, queue_marks.nodes_of(waves, run.finished), since + seconds)
    data = {
        "run": str(me),
        "run_id": run.id,
        "resumed": resumed,
        "finished_nodes": list(run.finished),
        "nodes": [],
    }
    return run_context.Result(
        {**data, "earlier": _earlier(ctx, run) if resumed else None}, message=message
    )


def _resumed(ctx: run_context.Context, run: stored_objects.StoredRun) -> stored_objects.StoredRun:
    """Remember that a start goes on, and whether the one before was killed:
    that has not said what it did.
    """
    wanted: dict[str, t.Any] = {"ended": "", "lost": run.lost or not run.ended}

    def decide(raw: objects.Raw | None) -> api_changes.Change | None:
        now = stored_objects.stored_run(raw) if raw else None
        if now is None:
            return None
        fields = {**wanted, "noted": max(now.noted, run.ended)}
        if replace(now, **fields) == now:
            return None
        return _rewrite(now, f"Note that run {now.id} is resumed", **fields)

    run_reconcile.reconcile(ctx, run_stored.run_ref(run.id), decide)
    return replace(run, **wanted)


def _earlier(ctx: run_context.Context, run: stored_objects.StoredRun) -> dict[str, t.Any]:
    """What earlier starts of a run have done, as the report of the next one reads it."""
    waves = []
    for wave in run.plan:
        waves.append([name for name in wave if name in run.finished])
    begun = decoding.moment(run.since)
    done = {
        "since": ctx.clock.here(begun.timestamp()) if begun else None,
        "waves": waves,
        "waves_done": run.waves_done,
    }
    return {**asdict(run.so_far), "whole": not run.lost, **done}


def noted(
    ctx: run_context.Context,
    nodes: t.Sequence[str],
    seconds: float = run_locks.IDLE,
    results: t.Sequence[t.Any] = (),
) -> run_context.Result:
    """Note nodes as finished in the caller's run, which then counts as alive for ``seconds``.

    ``results`` are those of a wave that is over, of which the report of a start that resumes the
    run has to know. A caller without a nonce released the run's nodes by hand; one without an id
    did so for the runs that the nodes' records name. Such a call deletes the stored run once none
    of its nodes is left, because nobody else will.
    """
    caller = t.cast("run_context.Run", ctx.run)  # the module requires it
    if caller.id:
        its = {caller.id: tuple(nodes)}
        if caller.nonce:
            run_lease.renew(ctx, caller, seconds)
    else:
        found, _bad = _out(ctx)
        its = {}
        for name in nodes:
            if name in found and not found[name].foreign_to(*ctx.caller):
                its[found[name].run] = (*its.get(found[name].run, ()), name)
    by_hand = not (caller.id and caller.nonce)
    over = build.sums_of_wave(build.build_report(results), ctx.clock.token()) if results else None
    finished: dict[str, None] = {}
    texts = []
    for run_id, some in its.items():
        of_run, text = _note(ctx, run_id, some, over, by_hand=by_hand)
        finished |= dict.fromkeys(of_run)
        if text:
            texts.append(text)
    entries = [outcomes.entry(name, outcomes.StateOutcome.NOTED) for name in nodes]
    data = {"nodes": entries, "finished_nodes": list(finished)}
    return run_context.Result(data, message=" ".join(texts))


def _note(
    ctx: run_context.Context,
    run_id: str,
    nodes: t.Sequence[str],
    over: stored_objects.Sums | None,
    *,
    by_hand: bool,
) -> tuple[tuple[str, ...], str]:
    """The run's finished nodes, and a message about the others;
    ``over`` is what a wave adds to what was done.
    """
    seen: list[stored_objects.StoredRun] = []

    def decide(raw: objects.Raw | None) -> api_changes.Change | None:
        run = stored_objects.stored_run(raw) if raw else None
        if run is None:
            return None
        seen.append(run)
        finished = _with(run, nodes)
        if by_hand and set(itertools.chain.from_iterable(run.plan)) <= set(finished):
            # No node is left that it could be resumed for.
            return _deletion(run)
        fields: dict[str, t.Any] = {}
        sentence = f"Note what a wave of run {run_id} came to"
        if finished != run.finished:
            fields |= {"finished": finished, "noted": ctx.clock.server()}
            sentence = f"Note {', '.join(nodes)} as finished in run {run_id}"
        if over and over.mark != run.so_far.mark:
            fields["so_far"] = run.so_far.plus(over)
        return _rewrite(run, sentence, **fields) if fields else None

    change = run_reconcile.go_on(ctx, run_stored.run_ref(run_id), decide).change
    if not seen:
        # Nodes that were parked by a run that has ended need no stored run.
        return (), f"Run {run_id} is not stored: nothing to note." if nodes else ""
    if change and change.verb == "delete":
        run_lease.delete(ctx, run_id)
    run = seen[-1]
    finished = _with(run, nodes)
    return finished, _to_do(run, finished)


def _rewrite(run: stored_objects.StoredRun, sentence: str, **fields: t.Any) -> api_changes.Change:
    """The change that gives the stored run these fields."""
    before, after = run.data(), replace(run, **fields).data()
    target = run_stored.run_ref(run.id)
    version = run.resource_version
    old = {key: before[key] for key in fields}
    new = {key: after[key] for key in fields}
    return api_changes.Change(
        "patch", target, sentence, {"data": new}, old, new, resource_version=version
    )


def _with(run: stored_objects.StoredRun, nodes: t.Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*run.finished, *nodes)))


def _to_do(run: stored_objects.StoredRun, finished: t.Collection[str]) -> str:
    planned = itertools.chain.from_iterable(run.plan)
    left = [name for name in planned if name not in finished]
    if not left:
        return ""
    return (
        f"Run {run.id} still has to maintain {', '.join(left)}: the same command resumes it. "
        f"To delete it: {commands.undo(run.id)}"
    )


def ended(ctx: run_context.Context, *, failed: bool) -> run_context.Result:
    """Delete the caller's stored run, or after failures keep it if there is
    something left to resume.

    After failures nothing stays locked in the name of this start.
    """
    me = t.cast("run_context.Run", ctx.run)  # the module requires it
    if failed:
        run_lease.let_go(ctx)
    run = next((r for r in run_stored.stored(ctx) if r.id == me.id), None)
    if run is None:
        run_lease.delete(ctx, me.id, me.nonce)
        run_heartbeats.sweep(ctx, me.id)
        return run_context.Result({"nodes": []}, message=f"Run {me.id} is no longer stored.")
    nodes = _nodes(ctx)
    found, bad = node_records.records(nodes)
    _drop_left_locks(ctx, me, run, {*found, *bad})
    run_heartbeats.sweep(ctx, run.id)
    clear(ctx, run.id, nodes)
    if not failed:
        forget(ctx, run.id, marked=False)
        return run_context.Result({"nodes": []}, message=f"Run {run.id} ended.")
    unused = (
        not run.finished and not bad and run.id not in {record.run for record in found.values()}
    )
    if unused and not _left_to_tasks(ctx, run.id):
        forget(ctx, run.id, marked=False)
        text = "with failures and nothing to resume; the same command starts a new run."
        return run_context.Result({"nodes": []}, message=f"Run {run.id} ended {text}")

    def decide(raw: objects.Raw | None) -> api_changes.Change | None:
        now = stored_objects.stored_run(raw) if raw else None
        if now is None or now.ended:
            return None
        return _rewrite(
            now, f"Note that run {now.id} ended with failures", ended=ctx.clock.server()
        )

    run_reconcile.reconcile(ctx, run_stored.run_ref(run.id), decide)
    run_lease.delete(ctx, me.id, me.nonce)
    return run_context.Result(
        {"nodes": []}, message=f"Run {run.id} ended with failures; the same command resumes it."
    )


def _left_to_tasks(ctx: run_context.Context, run_id: str) -> bool:
    """Whether the run has left a lock for tasks, of a node that lost its record:
    only under its name it goes on.
    """
    return any(
        run_leases.of_tasks(one)
        for one in run_locks.all_leases(ctx)
        if run_leases.holder_of(one) == run_id
    )


def _drop_left_locks(
    ctx: run_context.Context,
    me: run_context.Run,
    run: stored_objects.StoredRun,
    out: t.Collection[str],
) -> None:
    """A start that was killed between a node's last patch and the deletion of its
    lock has left that lock.
    """
    back = [name for name in run.finished if name not in out]
    if not back:
        return
    ended: set[str] = set()
    try:
        for place in dict.fromkeys((names.NAMESPACE, run_locks.lease_namespace(ctx, None))):
            for lock in run_lease.left_locks(ctx, me, back, place):
                run_lease.release(ctx, lock, ended)
    except errors.ClusterError as error:
        # The nodes are back in service: the run does not fail,
        # and whoever locks them next waits for a minute.
        ctx.tell(
            phases.What.NOTE,
            f"a leftover lock of {', '.join(back)} may remain; recover removes it: {error}",
        )


def _deletion(run: stored_objects.StoredRun) -> api_changes.Change:
    sentence = f"Delete the stored run {run.id}"
    return api_changes.Change(
        "delete", run_stored.run_ref(run.id), sentence, resource_version=run.resource_version
    )


def forget(
    ctx: run_context.Context, run_id: str, version: str = "", *, marked: bool = True
) -> None:
    """Delete a run's lease and then the stored run; with a ``version`` only
    if it still has that.

    In this order: if the caller is killed in between, the same command resumes what is stored. A
    stored run that cannot be parsed is left for a person to delete. The marks of nodes that wait
    for their wave go first, unless they are known to be gone (``marked``).
    """

    def decide(raw: objects.Raw | None) -> api_changes.Change | None:
        now = stored_objects.stored_run(raw) if raw else None
        return _deletion(now) if now and version in ("", now.resource_version) else None

    target = run_stored.run_ref(run_id)
    found = run_reconcile.read(ctx, target)
    if found is None or decide(found) is not None:
        if marked:
            clear(ctx, run_id)
        run_lease.delete(ctx, run_id)
    run_reconcile.reconcile(ctx, target, decide, known=found)
