# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The only writer of ``run-<id>``: what is stored of a run, so that the same command resumes it.

Whatever reads or writes here raises ClusterError if the API server refuses or cannot be reached.
"""

from __future__ import annotations

import contextlib
import functools
import typing as t
from dataclasses import asdict, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    commands,
    decoding,
    names,
    node_records,
    objects,
    outcomes,
    phases,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.nodes import waiting as marks
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.report import build, earlier
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.runs import state
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import (
    context,
    heartbeats,
    holders,
    life,
    locking,
    observe,
    stored_runs,
    writing,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.runs import waiting


def _nodes(ctx: context.Context) -> list[objects.Node]:
    return observe.lists(ctx.cluster, ("nodes",))["nodes"]


def _out(ctx: context.Context) -> tuple[dict[str, node_records.Record], dict[str, str]]:
    """``stored_runs.records`` of all nodes of the cluster."""
    return stored_runs.records(_nodes(ctx))


def resumable(ctx: context.Context, given: t.Mapping[str, t.Any] | None) -> dict[str, t.Any] | None:
    """The run that ``started`` with the same input would resume, ``None`` without input or such a run."""
    if given is None:
        return None
    mark, now = state.fingerprint(given), ctx.clock.server()
    for run in stored_runs.stored(ctx):
        if run.id == ctx.run.id if ctx.run else run.fingerprint == mark and run.resumable(now):
            # After a failure nodes have to prove themselves anew.
            finished = {"finished": list(run.finished), "noted": max(run.noted, run.ended)}
            return {"run": run.id, **finished, "waves_done": run.waves_done, "by": run.by, "since": run.since}
    return None


def started(
    ctx: context.Context,
    given: dict[str, t.Any],
    waves: t.Sequence[t.Sequence[str]],
    seconds: float = locking.IDLE,
    *,
    mark: bool = False,
) -> context.Result:
    """Store a run of this input, or resume the stored one; it then counts as alive for ``seconds``.

    ``mark``: the nodes of all waves but the first are marked as waiting, so that pods prefer other nodes.

    Raises:
        StopRun: the run that the caller names is not stored, a run that is too old to be resumed is still alive,
            or our namespace is missing and may not be created.
    """
    same, known, now = state.fingerprint(given), stored_runs.stored(ctx), ctx.clock.server()
    going = functools.partial(_going, ctx, seconds=seconds, waves=waves if mark else ())
    if ctx.run:
        run = _named(ctx.run.id, known)
        return going(run, f"Resuming run {run.id} by its name.")
    message = ""
    for run in known:
        if run.fingerprint != same:
            continue
        if run.resumable(now):
            return going(run, f"Resuming run {run.id} of {run.by}, started {run.since} by the same command.")
        _refuse_alive(ctx, run)
        message = f"Run {run.id} of the same command, started {run.since}, is too old to be resumed. "
        forget(ctx, run.id)
    for run in _outlived(ctx, known, same, now):
        # Nobody needs it, and it is in nobody's way: if it cannot be deleted, that stops no other run.
        with contextlib.suppress(errors.ClusterError):
            forget(ctx, run.id, run.resource_version)
    plan = tuple(tuple(wave) for wave in waves)
    fresh = state.StoredRun(ctx.clock.token(), ctx.by, since=now, fingerprint=same, given=given, plan=plan)
    target, after = stored_runs.run_ref(fresh.id), {"input": given, "plan": waves}
    change = api_changes.Change("create", target, f"Store run {fresh.id}", fresh.to_config_map(), {}, after)
    # The id is random, so whatever has this name is our own write whose answer was lost.
    writing.write(ctx, target, lambda raw: change if raw is None else None, known=None)
    return going(fresh, f"{message}Starting run {fresh.id}.", resumed=False)


def _named(run_id: str, known: t.Sequence[state.StoredRun]) -> state.StoredRun:
    found = next((run for run in known if run.id == run_id), None)
    if found is None:
        raise context.StopRun(
            "unknown_run",
            f"There is no run {run_id}.",
            f"Known runs: {', '.join(run.id for run in known) or 'none'}. Without maintain_run a new one starts.",
            str(stored_runs.run_ref(run_id)),
        )
    return found


def _refuse_alive(ctx: context.Context, run: state.StoredRun) -> None:
    """Stop if somebody renews the run's sign of life or the lock of one of its nodes; watches for a minute at most."""
    found, _bad = _out(ctx)
    places = {record.lease.partition("/")[0] for record in found.values() if record.lease}
    leases = holders.leases_in(ctx, {*places, names.NAMESPACE, locking.lease_namespace(ctx, None)})
    its = [lease for lease in leases if holders.holder_of(lease) == run.id]
    if len(life.silent(ctx, its)) < len(its):
        raise context.StopRun(
            "run_alive",
            f"Run {run.id} of {run.by}, started {run.since} by the same command, is still at work.",
            f"Wait until it ends. If it was killed: {commands.resume(run.id)} resumes it, and "
            f"`{commands.undo(run.id)}` undoes it.",
            str(stored_runs.run_ref(run.id)),
        )


def _outlived(ctx: context.Context, known: t.Sequence[state.StoredRun], mark: str, now: str) -> list[state.StoredRun]:
    """Runs of other commands that nobody will resume: too old, without a sign of life and without a node.

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
    kept |= {holders.holder_of(lease) for lease in holders.leases_in(ctx, [names.NAMESPACE])}
    return [run for run in old if run.id not in kept]


def _going(
    ctx: context.Context,
    run: state.StoredRun,
    message: str,
    *,
    seconds: float,
    waves: t.Sequence[t.Sequence[str]],
    resumed: bool = True,
) -> context.Result:
    """The run goes on under a nonce of its own, and the nodes of all ``waves`` but the first wait."""
    me, since = context.Run(run.id, ctx.clock.token()), ctx.clock.now()
    life.show(ctx, me, seconds)
    run = _resumed(ctx, run) if resumed else run
    waiting.mark(ctx, run.id, marks.nodes_of(waves, run.finished), since + seconds)
    data = {"run": str(me), "run_id": run.id, "resumed": resumed, "finished_nodes": list(run.finished), "nodes": []}
    return context.Result({**data, "earlier": _earlier(ctx, run) if resumed else None}, message=message)


def _resumed(ctx: context.Context, run: state.StoredRun) -> state.StoredRun:
    """Remember that a start goes on, and whether the one before was killed: that has not said what it did."""
    wanted: dict[str, t.Any] = {"ended": "", "lost": run.lost or not run.ended}

    def decide(raw: objects.Raw | None) -> api_changes.Change | None:
        now = state.stored_run(raw) if raw else None
        fresh = replace(now, **wanted, noted=max(now.noted, run.ended)) if now else None
        if now is None or fresh == now:
            return None
        return _rewrite(now, f"Note that run {now.id} is resumed", **wanted, noted=max(now.noted, run.ended))

    writing.write(ctx, stored_runs.run_ref(run.id), decide)
    return replace(run, **wanted)


def _earlier(ctx: context.Context, run: state.StoredRun) -> dict[str, t.Any]:
    """What earlier starts of a run have done, as the report of the next one reads it."""
    waves, begun = [[name for name in wave if name in run.finished] for wave in run.plan], decoding.moment(run.since)
    done = {"since": ctx.clock.here(begun.timestamp()) if begun else None, "waves": waves, "waves_done": run.waves_done}
    return {**asdict(run.so_far), "whole": not run.lost, **done}


def noted(
    ctx: context.Context, nodes: t.Sequence[str], seconds: float = locking.IDLE, results: t.Sequence[t.Any] = ()
) -> context.Result:
    """Note nodes as finished in the caller's run, which then counts as alive for ``seconds``.

    ``results`` are those of a wave that is over, of which the report of a start that resumes the run has to know.
    A caller without a nonce released the run's nodes by hand; one without an id did so for the runs that the nodes'
    records name. Such a call deletes the stored run once none of its nodes is left, because nobody else will.
    """
    caller = t.cast("context.Run", ctx.run)  # the module requires it
    if caller.id:
        its = {caller.id: tuple(nodes)}
        if caller.nonce:
            life.show(ctx, caller, seconds)
    else:
        found, _bad = _out(ctx)
        its = {}
        for name in nodes:
            if name in found and not found[name].foreign_to(*ctx.caller):
                its[found[name].run] = (*its.get(found[name].run, ()), name)
    by_hand = not (caller.id and caller.nonce)
    over = earlier.of_wave(build.build_report(results), ctx.clock.token()) if results else None
    told = [_note(ctx, run_id, some, over, by_hand=by_hand) for run_id, some in its.items()]
    finished = tuple(dict.fromkeys(name for known, _text in told for name in known))
    entries = [outcomes.entry(name, outcomes.StateOutcome.NOTED) for name in nodes]
    text = " ".join(text for _known, text in told if text)
    return context.Result({"nodes": entries, "finished_nodes": list(finished)}, message=text)


def _note(
    ctx: context.Context, run_id: str, nodes: t.Sequence[str], over: earlier.Sums | None, *, by_hand: bool
) -> tuple[tuple[str, ...], str]:
    """The run's finished nodes, and a message about the others; ``over`` is what a wave adds to what was done."""
    seen: list[state.StoredRun] = []

    def decide(raw: objects.Raw | None) -> api_changes.Change | None:
        run = state.stored_run(raw) if raw else None
        if run is None:
            return None
        seen.append(run)
        finished = _with(run, nodes)
        if by_hand and {name for wave in run.plan for name in wave} <= set(finished):
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

    change = writing.write(ctx, stored_runs.run_ref(run_id), decide).change
    if not seen:
        # Nodes that were parked by a run that has ended need no stored run.
        return (), f"Run {run_id} is not stored: nothing to note." if nodes else ""
    if change and change.verb == "delete":
        life.hide(ctx, run_id)
    run = seen[-1]
    finished = _with(run, nodes)
    return finished, _to_do(run, finished)


def _rewrite(run: state.StoredRun, sentence: str, **fields: t.Any) -> api_changes.Change:
    """What gives the stored run these fields."""
    before, after = run.data(), replace(run, **fields).data()
    target, version = stored_runs.run_ref(run.id), run.resource_version
    old, new = ({key: data[key] for key in fields} for data in (before, after))
    return api_changes.Change("patch", target, sentence, {"data": new}, old, new, resource_version=version)


def _with(run: state.StoredRun, nodes: t.Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*run.finished, *nodes)))


def _to_do(run: state.StoredRun, finished: t.Collection[str]) -> str:
    left = [name for wave in run.plan for name in wave if name not in finished]
    if not left:
        return ""
    return (
        f"Run {run.id} still has to maintain {', '.join(left)}: the same command resumes it. "
        f"To delete it: {commands.undo(run.id)}"
    )


def ended(ctx: context.Context, *, failed: bool) -> context.Result:
    """Delete the caller's stored run, or after failures keep it if there is something left to resume.

    After failures nothing stays locked in the name of this start.
    """
    me = t.cast("context.Run", ctx.run)  # the module requires it
    if failed:
        life.let_go(ctx)
    run = next((r for r in stored_runs.stored(ctx) if r.id == me.id), None)
    if run is None:
        life.hide(ctx, me.id, me.nonce)
        heartbeats.sweep(ctx, me.id)
        return context.Result({"nodes": []}, message=f"Run {me.id} is no longer stored.")
    found, bad = stored_runs.records(nodes := _nodes(ctx))
    _drop_left_locks(ctx, run, {*found, *bad})
    heartbeats.sweep(ctx, run.id)
    waiting.clear(ctx, run.id, nodes)
    if not failed:
        forget(ctx, run.id, marked=False)
        return context.Result({"nodes": []}, message=f"Run {run.id} ended.")
    unused = not run.finished and not bad and run.id not in {record.run for record in found.values()}
    if unused and not _left_to_tasks(ctx, run.id):
        forget(ctx, run.id, marked=False)
        text = "with failures and nothing to resume; the same command starts a new run."
        return context.Result({"nodes": []}, message=f"Run {run.id} ended {text}")

    def decide(raw: objects.Raw | None) -> api_changes.Change | None:
        now = state.stored_run(raw) if raw else None
        if now is None or now.ended:
            return None
        return _rewrite(now, f"Note that run {now.id} ended with failures", ended=ctx.clock.server())

    writing.write(ctx, stored_runs.run_ref(run.id), decide)
    life.hide(ctx, me.id, me.nonce)
    return context.Result({"nodes": []}, message=f"Run {run.id} ended with failures; the same command resumes it.")


def _left_to_tasks(ctx: context.Context, run_id: str) -> bool:
    """Whether the run has left a lock for tasks, of a node that lost its record: only under its name it goes on."""
    places = (names.NAMESPACE, locking.lease_namespace(ctx, None))
    return any(holders.of_tasks(one) for one in holders.leases_in(ctx, places) if holders.holder_of(one) == run_id)


def _drop_left_locks(ctx: context.Context, run: state.StoredRun, out: t.Collection[str]) -> None:
    """A start that was killed between a node's last patch and the deletion of its lock has left that lock."""
    back = [name for name in run.finished if name not in out]
    if not back:
        return
    ended: set[str] = set()
    try:
        for place in dict.fromkeys((names.NAMESPACE, locking.lease_namespace(ctx, None))):
            for lock in life.left_locks(ctx, context.Run(run.id), back, place):
                life.drop(ctx, lock, ended)
    except errors.ClusterError as error:
        # The nodes are back in service: the run does not fail, and whoever locks them next waits for a minute.
        ctx.tell(phases.What.NOTE, f"a leftover lock of {', '.join(back)} may remain; recover removes it: {error}")


def _deletion(run: state.StoredRun) -> api_changes.Change:
    sentence = f"Delete the stored run {run.id}"
    return api_changes.Change("delete", stored_runs.run_ref(run.id), sentence, resource_version=run.resource_version)


def forget(ctx: context.Context, run_id: str, version: str = "", *, marked: bool = True) -> None:
    """Delete a run's sign of life and then the stored run; with a ``version`` only if it still has that.

    In this order: if the caller is killed in between, the same command resumes what is stored. A stored run that
    cannot be parsed is left for a person to delete. The marks of nodes that wait for their wave go first, unless
    they are known to be gone (``marked``).
    """

    def decide(raw: objects.Raw | None) -> api_changes.Change | None:
        now = state.stored_run(raw) if raw else None
        return _deletion(now) if now and version in ("", now.resource_version) else None

    target = stored_runs.run_ref(run_id)
    found = writing.read(ctx, target)
    if found is None or decide(found) is not None:
        if marked:
            waiting.clear(ctx, run_id)
        life.hide(ctx, run_id)
    writing.write(ctx, target, decide, known=found)
