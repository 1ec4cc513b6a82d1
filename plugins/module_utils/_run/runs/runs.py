# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The one writer of ``run-<id>``: what is kept of a run, so that the same command resumes it."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import ClusterError
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.api_changes import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.node_records import Record
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.objects import Raw
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.outcomes import StateOutcome
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.runs.state import (
    StoredRun,
    fingerprint,
    stored_run,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import life
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.context import (
    Context,
    Result,
    Run,
    StopRun,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.holders import holder_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.locking import IDLE, lease_namespace
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.observe import lists
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.stored_runs import (
    records,
    run_ref,
    stored,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.writing import read, write


def _out(ctx: Context) -> tuple[dict[str, Record], dict[str, str]]:
    """As ``records``, of all nodes of the cluster."""
    return records(lists(ctx.cluster, ("nodes",))["nodes"])


def _caller(ctx: Context) -> Run:
    """The run that calls; the module asks for it before it comes here."""
    return t.cast("Run", ctx.run)


def resumable(ctx: Context, given: t.Mapping[str, t.Any] | None) -> dict[str, t.Any] | None:
    """The run that ``started`` with the same input would resume, ``None`` without input or such a run."""
    if given is None:
        return None
    mark, now = fingerprint(given), ctx.clock.server()
    for run in stored(ctx):
        if run.id == ctx.run.id if ctx.run else run.fingerprint == mark and run.resumable(now):
            return {"run": run.id, "finished": list(run.finished), "by": run.by, "since": run.since}
    return None


def started(ctx: Context, given: dict[str, t.Any], waves: t.Sequence[t.Sequence[str]], seconds: float = IDLE) -> Result:
    """Store a run of this input, or resume the one that is stored; for ``seconds`` it counts as alive then.

    Raises:
        StopRun: the run that the caller names is not stored, one that is too old to be resumed is still alive,
            or the namespace is missing and may not be made.
        ClusterError: the API server cannot be reached or refuses.
    """
    mark, known, now = fingerprint(given), stored(ctx), ctx.clock.server()
    if ctx.run:
        found = next((run for run in known if run.id == ctx.run.id), None)
        if found is None:
            raise StopRun(
                "unknown_run",
                f"There is no run {ctx.run.id}.",
                f"Known runs: {', '.join(run.id for run in known) or 'none'}. Without maintain_run a new one starts.",
                str(run_ref(ctx.run.id)),
            )
        return _going(ctx, found, f"Resuming run {found.id} by its name.", seconds)
    message = ""
    for run in known:
        if run.fingerprint != mark:
            continue
        if run.resumable(now):
            text = f"Resuming run {run.id} of {run.by}, begun {run.since}: the same command."
            return _going(ctx, run, text, seconds)
        if _lives(ctx, run.id):
            raise StopRun(
                "run_alive",
                f"Run {run.id} of {run.by}, begun {run.since} by the same command, is still at work.",
                f"Wait until it ends. If it was killed: -e maintain_run={run.id} goes on with it, and "
                f"`ansible-playbook kubeops.node_maintenance.recover -e recover_run={run.id}` undoes it.",
                str(run_ref(run.id)),
            )
        message = f"Run {run.id} of the same command is of {run.since}, too old to be resumed: starting anew. "
        forget(ctx, run.id)
    for run in _outlived(ctx, known, mark, now):
        # It is nobody's any more, and in nobody's way: that it cannot be deleted stops no other run.
        with contextlib.suppress(ClusterError):
            forget(ctx, run.id, run.resource_version)
    fresh = StoredRun(
        id=ctx.clock.token(),
        by=ctx.by,
        since=now,
        fingerprint=mark,
        given=given,
        plan=tuple(tuple(wave) for wave in waves),
    )
    change = Change(
        "create",
        run_ref(fresh.id),
        f"Store run {fresh.id}",
        body=fresh.to_config_map(),
        before={},
        after={"input": given, "plan": waves},
    )
    # The id is of our own drawing: what is there under it is our own work, whose answer was lost.
    write(ctx, change.target, lambda raw: change if raw is None else None, known=None)
    return _going(ctx, fresh, f"{message}Run {fresh.id} begins.", seconds, resumed=False)


def _lives(ctx: Context, run_id: str) -> bool:
    """Whether somebody renews the run's sign of life or the lock of one of its nodes; asked for a minute at most."""
    found, _bad = _out(ctx)
    places = {record.lease.partition("/")[0] for record in found.values() if record.lease}
    leases = life.leases_in(ctx, {*places, names.NAMESPACE, lease_namespace(ctx, None)})
    its = [lease for lease in leases if holder_of(lease) == run_id]
    return len(life.silent(ctx, its)) < len(its)


def _outlived(ctx: Context, known: t.Sequence[StoredRun], mark: str, now: str) -> list[StoredRun]:
    """Runs of other commands that nobody resumes any more: too old, without a sign of life or a node.

    One that still has a node is kept for whoever names it.
    """
    old = [run for run in known if run.fingerprint != mark and not run.resumable(now)]
    if not old:
        return []
    found, bad = _out(ctx)
    if bad:
        # Nobody can say whose they are.
        return []
    kept = {record.run for record in found.values()}
    kept |= {holder_of(lease) for lease in life.leases_in(ctx, [names.NAMESPACE])}
    return [run for run in old if run.id not in kept]


def _going(ctx: Context, run: StoredRun, message: str, seconds: float, *, resumed: bool = True) -> Result:
    me = Run(run.id, ctx.clock.token())
    life.show(ctx, me, seconds)
    return Result(
        {
            "run": str(me),
            "run_id": run.id,
            "resumed": resumed,
            "finished": list(run.finished),
            "nodes": [],
        },
        message=message,
    )


def noted(ctx: Context, nodes: t.Sequence[str], seconds: float = IDLE) -> Result:
    """Note nodes as finished in the caller's run, which counts as alive for ``seconds`` then.

    A caller without a nonce is somebody who released the run's nodes; one without an id did so for whatever
    runs the nodes' records name. It forgets the run when none of its nodes is left to do, because nobody
    else will.

    Raises:
        ClusterError: the API server cannot be reached or refuses.
    """
    caller = _caller(ctx)
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
    told = [_note(ctx, run_id, some, by_hand=by_hand) for run_id, some in its.items()]
    finished = tuple(dict.fromkeys(name for known, _text in told for name in known))
    entries = [shown(name, StateOutcome.NOTED) for name in nodes]
    text = " ".join(text for _known, text in told if text)
    return Result({"nodes": entries, "finished": list(finished)}, message=text)


def shown(name: str, outcome: StateOutcome, message: str = "") -> dict[str, t.Any]:
    """A node as results have it."""
    return {"name": name, "outcome": outcome.value, "failed": outcome.failed, "message": message}


def _note(ctx: Context, run_id: str, nodes: t.Sequence[str], *, by_hand: bool) -> tuple[tuple[str, ...], str]:
    """The run's finished nodes, and what is to be said of the others."""
    seen: list[StoredRun] = []

    def decide(raw: Raw | None) -> Change | None:
        run = stored_run(raw) if raw else None
        if run is None:
            return None
        seen.append(run)
        finished = _with(run, nodes)
        if by_hand and {name for wave in run.plan for name in wave} <= set(finished):
            # Somebody else finished the last of its nodes: nothing is left that it could be resumed for.
            return _deletion(run)
        if finished == run.finished:
            return None
        return Change(
            "patch",
            run_ref(run_id),
            f"Note {', '.join(nodes)} as finished in run {run_id}",
            body={"data": {"finished": replace(run, finished=finished).data()["finished"]}},
            before={"finished": list(run.finished)},
            after={"finished": list(finished)},
            resource_version=run.resource_version,
        )

    change = write(ctx, run_ref(run_id), decide).change
    if not seen:
        # Nodes that were parked by a run that ended have no stored run any more, and need none.
        return (), f"Run {run_id} is not stored: nothing to note." if nodes else ""
    if change and change.verb == "delete":
        life.hide(ctx, run_id)
    finished = _with(seen[-1], nodes)
    return finished, _to_do(seen[-1], finished)


def _with(run: StoredRun, nodes: t.Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys((*run.finished, *nodes)))


def _to_do(run: StoredRun, finished: t.Collection[str]) -> str:
    left = [name for wave in run.plan for name in wave if name not in finished]
    if not left:
        return ""
    return (
        f"Run {run.id} still has {', '.join(left)} to do: the same command goes on with that. "
        f"To forget it: ansible-playbook kubeops.node_maintenance.recover -e recover_run={run.id}"
    )


def ended(ctx: Context, *, failed: bool) -> Result:
    """Forget the caller's run, or with failures keep it to be resumed where there is something to go on with.

    Raises:
        ClusterError: the API server cannot be reached or refuses.
    """
    me = _caller(ctx)
    run = next((r for r in stored(ctx) if r.id == me.id), None)
    if run is None:
        life.hide(ctx, me.id, me.nonce)
        return Result({"nodes": []}, message=f"Run {me.id} is not stored any more.")
    found, bad = _out(ctx)
    _drop_left_locks(ctx, run, {*found, *bad})
    if not failed:
        forget(ctx, run.id)
        return Result({"nodes": []}, message=f"Run {run.id} ended.")
    if not run.finished and not bad and run.id not in {record.run for record in found.values()}:
        forget(ctx, run.id)
        text = "with failures and nothing to go on with; the same command starts anew."
        return Result({"nodes": []}, message=f"Run {run.id} ended {text}")

    def decide(raw: Raw | None) -> Change | None:
        now = stored_run(raw) if raw else None
        if now is None or now.ended:
            return None
        return Change(
            "patch",
            run_ref(now.id),
            f"Note that run {now.id} ended with failures",
            body={"data": {"ended": ctx.clock.wall()}},
            before={"ended": ""},
            after={"ended": "with failures"},
            resource_version=now.resource_version,
        )

    write(ctx, run_ref(run.id), decide)
    life.hide(ctx, me.id, me.nonce)
    return Result({"nodes": []}, message=f"Run {run.id} ended with failures; the same command resumes it.")


def _drop_left_locks(ctx: Context, run: StoredRun, out: t.Collection[str]) -> None:
    """A start that was killed between a node's last patch and the end of its lock has left that lock."""
    back = [name for name in run.finished if name not in out]
    if not back:
        return
    try:
        for place in dict.fromkeys((names.NAMESPACE, lease_namespace(ctx, None))):
            for lock in life.left_locks(ctx, Run(run.id), back, place):
                life.drop(ctx, lock)
    except ClusterError as error:
        # The nodes are back in service: this fails nobody's run, and whoever locks them next waits for a minute.
        ctx.tell("note", f"a lock of {', '.join(back)} may be left, and recover removes it: {error}")


def _deletion(run: StoredRun) -> Change:
    sentence = f"Forget the stored run {run.id}"
    return Change("delete", run_ref(run.id), sentence, resource_version=run.resource_version)


def forget(ctx: Context, run_id: str, version: str = "") -> None:
    """Delete a run's sign of life, and then what is kept of it; with a ``version`` only as it was read.

    In this order, because a caller who dies in between is followed by the same command, which resumes what is kept.

    One that cannot be read is left to people.

    Raises:
        ClusterError: the API server cannot be reached or refuses.
    """

    def decide(raw: Raw | None) -> Change | None:
        now = stored_run(raw) if raw else None
        return _deletion(now) if now and version in ("", now.resource_version) else None

    target = run_ref(run_id)
    found = read(ctx, target)
    if found is None or decide(found) is not None:
        life.hide(ctx, run_id)
    write(ctx, target, decide, known=found)
