# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The one writer of ``run-<id>``: what is kept of a run, so that the same command resumes it."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import Conflict, NotFound
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.change import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler.journal import (
    LABEL,
    BadJournalError,
    Journal,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.record import record_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.state import (
    StoredRun,
    fingerprint,
    stored_run,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.act import PATIENCE, apply
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context, Result, Run, StopRun
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.observe import lists
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.write import ensure_namespace

CONFLICTS = 5


def config_maps(ctx: Context) -> list[dict[str, t.Any]]:
    """Our ConfigMaps: stored runs, and journals of deschedulers."""
    try:
        listing = ctx.cluster.items(
            kinds.CONFIGMAPS,
            namespace=names.NAMESPACE,
            labels=f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY}",
            patience=PATIENCE,
        )
    except NotFound:
        return []
    return listing.items


def stored(ctx: Context) -> list[StoredRun]:
    """All stored runs that can be read."""
    return [run for run in map(stored_run, config_maps(ctx)) if run]


def journals(raws: t.Iterable[dict[str, t.Any]]) -> t.Iterator[Journal]:
    """Those that can be read; of the others ``descheduler_config`` tells."""
    for raw in raws:
        if LABEL in (raw["metadata"].get("labels") or {}):
            with contextlib.suppress(BadJournalError):
                yield Journal.of(raw)


def _caller(ctx: Context) -> Run:
    """The run that calls; the module asks for it before it comes here."""
    return t.cast("Run", ctx.run)


def _config_map(run_id: str) -> Ref:
    return Ref("ConfigMap", names.run_name(run_id), names.NAMESPACE, api_version="v1")


def resumable(ctx: Context, given: t.Mapping[str, t.Any] | None) -> dict[str, t.Any] | None:
    """The run that ``started`` with the same input would resume, ``None`` without input or such a run."""
    if given is None:
        return None
    mark, now = fingerprint(given), ctx.clock.wall()
    for run in stored(ctx):
        if run.id == ctx.run.id if ctx.run else run.fingerprint == mark and run.resumable(now):
            return {"run": run.id, "finished": list(run.finished), "by": run.by, "since": run.since}
    return None


def started(ctx: Context, given: dict[str, t.Any], waves: t.Sequence[t.Sequence[str]]) -> Result:
    """Store a run of this input, or resume the one that is stored.

    Raises:
        StopRun: the run that the caller names is not stored, or the namespace is missing and may not be made.
    """
    mark, known, now = fingerprint(given), stored(ctx), ctx.clock.wall()
    nonce = ctx.clock.token()
    if ctx.run:
        found = next((run for run in known if run.id == ctx.run.id), None)
        if found is None:
            raise StopRun(
                "unknown_run",
                f"There is no run {ctx.run.id}.",
                f"Known runs: {', '.join(run.id for run in known) or 'none'}. Without maintain_run a new one starts.",
                str(_config_map(ctx.run.id)),
            )
        return _resumed(found, nonce, f"Resuming run {found.id} by its name.")
    message = ""
    for run in known:
        if run.fingerprint != mark:
            continue
        if run.resumable(now):
            return _resumed(run, nonce, f"Resuming run {run.id} of {run.by}, begun {run.since}: the same command.")
        message = f"Run {run.id} of the same command is of {run.since}, too old to be resumed: starting anew. "
    for run in _outlived(ctx, known, mark, now):
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
        _config_map(fresh.id),
        f"Store run {fresh.id}",
        body=fresh.to_config_map(),
        before={},
        after={"input": given, "plan": waves},
    )
    try:
        apply(ctx, change)
    except NotFound:
        ensure_namespace(ctx)
        apply(ctx, change)
    return _resumed(fresh, nonce, f"{message}Run {fresh.id} begins.", resumed=False)


def _outlived(ctx: Context, known: t.Sequence[StoredRun], mark: str, now: str) -> list[StoredRun]:
    """Runs that no command resumes any more: too old, and of this command or with no node out of service.

    One that still has a node is kept for whoever names it.
    """
    old = [run for run in known if not run.resumable(now)]
    if not any(run.fingerprint != mark for run in old):
        return old
    out = {record.run for record in map(record_of, lists(ctx.cluster, ("nodes",))["nodes"]) if record}
    return [run for run in old if run.fingerprint == mark or run.id not in out]


def _resumed(run: StoredRun, nonce: str, message: str, *, resumed: bool = True) -> Result:
    return Result(
        {
            "run": f"{run.id}/{nonce}",
            "run_id": run.id,
            "resumed": resumed,
            "finished": list(run.finished),
            "nodes": [],
        },
        message=message,
    )


def noted(ctx: Context, nodes: t.Sequence[str]) -> Result:
    """Remember that the caller's run is done with these nodes; it is forgotten with the last of them.

    Raises:
        StopRun: somebody else writes the run all the time.
    """
    caller = _caller(ctx)
    run_id = caller.id
    for _attempt in range(CONFLICTS):
        run = next((r for r in stored(ctx) if r.id == run_id), None)
        shown = [{"name": name, "outcome": "noted", "failed": False, "message": ""} for name in nodes]
        if run is None:
            # Nodes that were parked by a run that ended have no stored run any more, and need none.
            return Result({"nodes": shown, "finished": []}, message=f"Run {run_id} is not stored: nothing to note.")
        finished = tuple(dict.fromkeys((*run.finished, *nodes)))
        if not caller.nonce and {name for wave in run.plan for name in wave} <= set(finished):
            # Somebody else finished the last of its nodes: nothing is left that it could be resumed for.
            forget(ctx, run_id)
            return Result({"nodes": shown, "finished": list(finished)})
        answer = Result({"nodes": shown, "finished": list(finished)}, message=_to_do(run, finished))
        if finished == run.finished:
            return answer
        try:
            apply(
                ctx,
                Change(
                    "patch",
                    _config_map(run_id),
                    f"Note {', '.join(nodes)} as finished in run {run_id}",
                    body={"data": {"finished": replace(run, finished=finished).data()["finished"]}},
                    before={"finished": list(run.finished)},
                    after={"finished": list(finished)},
                    resource_version=run.resource_version,
                ),
            )
        except Conflict:
            continue
        return answer
    raise StopRun("conflict", f"Run {run_id} is written by somebody else all the time.", "Run the command again.")


def _to_do(run: StoredRun, finished: t.Collection[str]) -> str:
    left = [name for wave in run.plan for name in wave if name not in finished]
    if not left:
        return ""
    return (
        f"Run {run.id} still has {', '.join(left)} to do: the same command goes on with that. "
        f"To forget it: ansible-playbook kubeops.node_maintenance.recover -e recover_run={run.id}"
    )


def ended(ctx: Context, *, failed: bool) -> Result:
    """Forget the caller's run, or with failures keep it to be resumed."""
    run_id = _caller(ctx).id
    run = next((r for r in stored(ctx) if r.id == run_id), None)
    if run is None:
        return Result({"nodes": []}, message=f"Run {run_id} is not stored any more.")
    if not failed:
        forget(ctx, run_id)
        return Result({"nodes": []}, message=f"Run {run_id} ended.")
    if not run.ended:
        apply(
            ctx,
            Change(
                "patch",
                _config_map(run_id),
                f"Note that run {run_id} ended with failures",
                body={"data": {"ended": ctx.clock.wall()}},
                before={"ended": ""},
                after={"ended": "with failures"},
            ),
        )
    return Result({"nodes": []}, message=f"Run {run_id} ended with failures; the same command resumes it.")


def forget(ctx: Context, run_id: str, version: str = "") -> None:
    """Delete what is kept of a run; with a ``version`` only as it was read."""
    try:
        sentence = f"Forget the stored run {run_id}"
        apply(ctx, Change("delete", _config_map(run_id), sentence, resource_version=version))
    except (NotFound, Conflict):
        return
