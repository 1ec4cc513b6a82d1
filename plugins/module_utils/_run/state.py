# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``maintenance_state``: the one writer of ``run-<id>``, and the way back for what earlier runs left."""

from __future__ import annotations

import contextlib
import secrets
import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import (
    Conflict,
    NotFound,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import dead, names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.change import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler.journal import (
    LABEL,
    BadJournalError,
    Journal,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.record import record_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.snapshot import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.state import (
    StoredRun,
    Trace,
    fingerprint,
    stored_run,
    traces,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run import job_leftovers
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.act import PATIENCE, apply
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import (
    Context,
    Result,
    Run,
    StopRun,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.cordon import CordonOptions, cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.guard import GuardOptions, guard
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.lock import (
    IDLE,
    RENEW_EVERY,
    WORKING,
    ensure_namespace,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.observe import lists

State = t.Literal["started", "noted", "ended", "listed", "finished", "undone"]

CONFLICTS = 5


@dataclass(frozen=True, slots=True)
class StateOptions:
    """Options of the module; ``input`` is what the playbook was asked, ``plan`` holds its ``waves``."""

    state: State
    input: t.Mapping[str, t.Any] | None = None
    plan: t.Mapping[str, t.Any] | None = None
    nodes: tuple[str, ...] = ()
    failed: bool = False


def state(ctx: Context, options: StateOptions) -> Result:
    """Keep a run's memory, or look at and clean up what runs left.

    Raises:
        StopRun: an unknown run, or a namespace that is missing and may not be made.
        ClusterError: the API server cannot be reached or refuses.
    """
    match options.state:
        case "started":
            return _started(ctx, options)
        case "noted":
            return _noted(ctx, options)
        case "ended":
            return _ended(ctx, options)
        case "listed":
            found, alive = _look(ctx)
            shown = [x.shown(alive=x.run in alive) for x in found]
            return Result({"traces": shown, "resumable": _resumable(ctx, options), "nodes": []})
    return _recover(ctx, options)


def _kept(ctx: Context) -> list[dict[str, t.Any]]:
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


def _runs(ctx: Context) -> list[StoredRun]:
    return [run for run in map(stored_run, _kept(ctx)) if run]


def _journals(raws: t.Iterable[dict[str, t.Any]]) -> t.Iterator[Journal]:
    """Those that can be read; of the others ``descheduler_config`` tells."""
    for raw in raws:
        if LABEL in (raw["metadata"].get("labels") or {}):
            with contextlib.suppress(BadJournalError):
                yield Journal.of(raw)


def _config_map(run_id: str) -> Ref:
    return Ref("ConfigMap", names.run_name(run_id), names.NAMESPACE, api_version="v1")


def _resumable(ctx: Context, options: StateOptions) -> dict[str, t.Any] | None:
    """The run that ``started`` with the same input would resume, ``None`` without input or such a run."""
    if options.input is None:
        return None
    mark, now = fingerprint(options.input), ctx.clock.wall()
    for run in _runs(ctx):
        if run.id == ctx.run.id if ctx.run else run.fingerprint == mark and run.resumable(now):
            return {"run": run.id, "finished": list(run.finished), "by": run.by, "since": run.since}
    return None


def _started(ctx: Context, options: StateOptions) -> Result:
    given = dict(options.input or {})
    mark, known, now = fingerprint(given), _runs(ctx), ctx.clock.wall()
    nonce = secrets.token_hex(4)
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
        _forget(ctx, run.id, run.resource_version)
    waves = (options.plan or {}).get("waves") or []
    fresh = StoredRun(
        id=secrets.token_hex(4),
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


def _noted(ctx: Context, options: StateOptions) -> Result:
    caller = t.cast("Run", ctx.run)
    run_id = caller.id
    for _attempt in range(CONFLICTS):
        run = next((r for r in _runs(ctx) if r.id == run_id), None)
        shown = [{"name": name, "outcome": "noted", "failed": False, "message": ""} for name in options.nodes]
        if run is None:
            # Nodes that were parked by a run that ended have no stored run any more, and need none.
            return Result({"nodes": shown, "finished": []}, message=f"Run {run_id} is not stored: nothing to note.")
        finished = tuple(dict.fromkeys((*run.finished, *options.nodes)))
        if not caller.nonce and {name for wave in run.plan for name in wave} <= set(finished):
            # Somebody else finished the last of its nodes: nothing is left that it could be resumed for.
            _forget(ctx, run_id)
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
                    f"Note {', '.join(options.nodes)} as finished in run {run_id}",
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


def _ended(ctx: Context, options: StateOptions) -> Result:
    run_id = t.cast("Run", ctx.run).id
    run = next((r for r in _runs(ctx) if r.id == run_id), None)
    if run is None:
        return Result({"nodes": []}, message=f"Run {run_id} is not stored any more.")
    if not options.failed:
        _forget(ctx, run_id)
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


def _forget(ctx: Context, run_id: str, version: str = "") -> None:
    """Delete what is kept of a run; with a ``version`` only as it was read."""
    try:
        sentence = f"Forget the stored run {run_id}"
        apply(ctx, Change("delete", _config_map(run_id), sentence, resource_version=version))
    except (NotFound, Conflict):
        return


# -- recover -----------------------------------------------------------------------------------------


@dataclass
class _Recovery:
    """What came of each object; ``nodes`` has the shape of every bulk result."""

    nodes: list[dict[str, t.Any]] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)

    def add(self, name: str, outcome: str, message: str, *, failed: bool = False) -> None:
        self.nodes.append({"name": name, "outcome": outcome, "failed": failed, "message": message})
        if failed:
            self.failed.append(message)


def _look(ctx: Context) -> tuple[tuple[Trace, ...], set[str]]:
    """All traces, and the runs whose locks moved while we looked."""
    found = _everything(ctx)
    leases = {lease["metadata"]["name"]: lease for lease in found.leases}
    alive = set()
    if any((lease.get("spec") or {}).get("leaseDurationSeconds", 0) <= WORKING for lease in leases.values()):
        ctx.clock.sleep(RENEW_EVERY + 1.0)
        again = Snapshot.of(lists(ctx.cluster, ("leases",)))
        for lease in again.leases:
            before = leases.get(lease["metadata"]["name"])
            if before is None or before["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"]:
                alive.add(str((lease.get("spec") or {}).get("holderIdentity", "")).partition("/")[0])
    raws = _kept(ctx)
    kept = traces(found, [run for run in map(stored_run, raws) if run], _journals(raws))
    return (*kept, *job_leftovers.traces(ctx)), alive


def _everything(ctx: Context) -> Snapshot:
    found = lists(ctx.cluster, ("nodes", "budgets", "leases"))
    places = {r.lease.split("/", 1)[0] for r in map(record_of, found["nodes"]) if r and r.lease}
    for namespace in sorted(places - {names.NAMESPACE}):
        found["leases"] += ctx.cluster.items(kinds.LEASES, namespace=namespace, patience=PATIENCE).items
    return Snapshot.of(found)


def _recover(ctx: Context, options: StateOptions) -> Result:
    """Finish or undo what runs left; a run that is alive is not touched."""
    found = _everything(ctx)
    runs = {run.id: run for run in _runs(ctx)}
    wanted = ctx.run.id if ctx.run else None
    done = _Recovery()
    for node in found.nodes.values():
        record = record_of(node)
        if record is None or (wanted and record.run != wanted):
            continue
        run = runs.get(record.run)
        if options.state == "finished" and not (run and node.name in run.finished):
            done.add(
                node.name,
                "left",
                f"Node {node.name} is at step {record.step} of run {record.run}: its work is not finished. "
                "Run the same command again, release the node, or undo the run.",
            )
            continue
        if why := dead.stays_out(node, record):
            done.add(node.name, "still_dead", why)
            continue
        _give_back(ctx, node.name, record.run, done, explicit=wanted is not None)
    _orphans(ctx, found, wanted, done)
    out = {node.name: record for node in lists(ctx.cluster, ("nodes",))["nodes"] if (record := record_of(node))}
    job_leftovers.give_up(ctx, wanted, out)
    if not done.failed:
        still = {record.run for record in out.values() if not ctx.check}
        for run_id in runs:
            if wanted in (None, run_id) and run_id not in still and options.state == "undone":
                _forget(ctx, run_id)
    return Result({"nodes": done.nodes}, failed=bool(done.failed), message="; ".join(done.failed))


def _give_back(ctx: Context, node: str, run_id: str, done: _Recovery, *, explicit: bool) -> None:
    """One node's way back, under a nonce of our own. A live run's lock refuses us."""
    me = replace_run(ctx, Run(run_id, secrets.token_hex(4)))
    steps: list[t.Callable[[], Result]] = [
        lambda: guard(me, GuardOptions(state="absent", nodes=(node,))),
        lambda: cordon(me, CordonOptions("uncordoned", (node,))),
    ]
    if not ctx.check:
        steps.insert(0, lambda: cordon(me, CordonOptions("cordoned", (node,), adopt=explicit)))
    result = Result({"nodes": []})
    for step in steps:
        result = step()
        if result.failed:
            done.add(node, _outcome_of(result, "failed"), result.message, failed=True)
            return
    done.add(node, _outcome_of(result, "uncordoned"), f"Node {node} was given back.")


def _outcome_of(result: Result, otherwise: str) -> str:
    shown = result.data.get("nodes") or []
    return str(shown[0]["outcome"]) if shown else otherwise


def replace_run(ctx: Context, run: Run) -> Context:
    """The same call under another run's name; changes and events stay in one place."""
    return replace(ctx, run=run)


def _orphans(ctx: Context, found: Snapshot, wanted: str | None, done: _Recovery) -> None:
    """Locks whose node has no record, and surges and budgets whose nodes are gone or free."""
    recorded = {name for name, node in found.nodes.items() if record_of(node)}
    lonely = {
        name
        for trace in traces(replace(found, nodes={}), ())
        if not wanted or trace.run in ("", wanted)
        for name in trace.nodes
        if name not in recorded
    }
    if lonely:
        result = guard(ctx, GuardOptions(state="absent", nodes=tuple(sorted(lonely))))
        if result.failed:
            done.failed.append(result.message)
    for lease in found.leases:
        meta, spec = lease["metadata"], lease.get("spec") or {}
        name = meta["name"].removeprefix(names.NODE_LEASE_PREFIX)
        ours = (meta.get("labels") or {}).get(names.MANAGED_BY_LABEL) == names.MANAGED_BY
        run_id = str(spec.get("holderIdentity", "")).partition("/")[0]
        if not ours or not meta["name"].startswith(names.NODE_LEASE_PREFIX) or name in recorded:
            continue
        if wanted and run_id != wanted:
            continue
        if not ctx.check and not _silent(ctx, lease):
            done.add(name, "held", f"The lock of node {name} is alive, held by run {run_id}.", failed=True)
            continue
        ref = Ref("Lease", meta["name"], meta["namespace"], meta["uid"], "coordination.k8s.io/v1")
        try:
            apply(ctx, Change("delete", ref, f"Delete the left lock of node {name}"))
        except NotFound:
            continue


def _silent(ctx: Context, lease: t.Mapping[str, t.Any]) -> bool:
    """Watch one lease for as long as a renewal takes at most."""
    meta, spec = lease["metadata"], lease.get("spec") or {}
    ctx.clock.sleep(min(float(spec.get("leaseDurationSeconds") or 0), IDLE))
    try:
        now = ctx.cluster.send(verbs.get(kinds.LEASES, meta["name"], namespace=meta["namespace"]), patience=PATIENCE)
    except NotFound:
        return True
    return bool(now["metadata"]["resourceVersion"] == meta["resourceVersion"])
