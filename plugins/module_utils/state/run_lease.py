# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Whether a run is alive: the locks of its nodes, and between two waves a lease of
its own, ``run-<id>``.

That lease is not a lock: it only keeps the stored run from being deleted. The calls that write the
stored run renew it, each for as long as the next one may take to come. As with locks, a lease is
dead only after it was watched unchanged for its duration on the watcher's own clock.
"""

from __future__ import annotations

import datetime
import functools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
    run_context,
    run_reconcile,
    run_requests,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    lock_leases,
    run_heartbeats,
    run_leases,
    run_lock_policy,
    run_locks,
    run_node_lock,
    surge_records,
)

PAUSES_SECONDS = (0.0, 1.0, 3.0)
"""Seconds before each try to delete a run's lease, which no later call would delete."""
TRY_SECONDS = 5.0
"""Seconds of patience of each try but the first."""

SURGE_WATCH_SECONDS = 1
"""Seconds for which a surge's lease has to be watched that nobody holds any more."""


def lease_ref(run_id: str) -> objects.Ref:
    """The lease that says that the run is alive."""
    return run_leases.ref(names.run_name(run_id), names.NAMESPACE)


def renew(ctx: run_context.Context, run: run_context.Run, seconds: float = run_locks.IDLE) -> None:
    """Renew the run's lease for so many seconds; a failure is only reported."""
    if ctx.check:
        return
    # By the server's clock, with which every reader compares it.
    target = lease_ref(run.id)
    stamp = surge_records.micro_time(ctx.clock.server())
    spec = {"holderIdentity": str(run), "leaseDurationSeconds": int(seconds), "renewTime": stamp}

    def decide(lease: objects.Raw | None) -> api_changes.Change | None:
        return run_leases.renewal(target, lease, f"Renew the lease of run {run.id}", ctx.by, spec)

    try:
        run_reconcile.go_on(ctx, target, decide, remember=False)
    except errors.ClusterError as error:
        text = (
            f"run {run.id} looks dead between two waves, as its lease could not be written: {error}"
        )
        ctx.tell(phases.What.NOTE, text)


def live_runs(ctx: run_context.Context, leases: t.Iterable[objects.Raw]) -> set[str]:
    """The runs whose own lease has not expired, by the API server's clock, which stamped it."""
    now = datetime.datetime.fromisoformat(ctx.clock.server())
    runs = set()
    for lease in leases:
        renewed = (lease.get("spec") or {}).get("renewTime")
        if renewed and is_run_lease(lease):
            silent_for = now - datetime.datetime.fromisoformat(renewed)
            if silent_for.total_seconds() <= lock_leases.duration_of(lease):
                runs.add(run_leases.holder_of(lease))
    return runs


def is_run_lease(lease: objects.Raw) -> bool:
    """Whether it is a run's own lease."""
    ours = not lock_leases.is_theirs(lease)
    return ours and str(lease["metadata"]["name"]).startswith(names.RUN_PREFIX)


def delete(ctx: run_context.Context, run_id: str, nonce: str = "") -> None:
    """Delete the run's lease; with a nonce only if that start of the run was
    the last to renew it.
    """
    if ctx.check:
        return

    def decide(lease: objects.Raw | None) -> api_changes.Change | None:
        holder = run_context.Run.parse((lease or {}).get("spec", {}).get("holderIdentity"))
        if lease is None or (nonce and holder != run_context.Run(run_id, nonce)):
            return None
        return run_leases.deletion(lease, f"Delete the lease of run {run_id}")

    trouble: errors.ClusterError | None = None
    for pause in PAUSES_SECONDS:
        ctx.clock.sleep(pause)
        try:
            run_reconcile.reconcile(
                ctx,
                lease_ref(run_id),
                decide,
                remember=False,
                patience=TRY_SECONDS if pause else run_requests.PATIENCE,
            )
            return
        except errors.ClusterError as error:
            trouble = error
            # A process that was frozen during a try has used up the patience of that try.
            if not isinstance(error, (*run_reconcile.PASSING, errors.ServerError)):
                break
    text = (
        f"{lease_ref(run_id)} could not be deleted, so run {run_id} looks alive until it "
        f"expires: {trouble}"
    )
    ctx.tell(phases.What.NOTE, text)


def let_go(ctx: run_context.Context) -> None:
    """Delete the locks, heartbeats and leases that this start of the run still holds. Called when
    the start is interrupted, so that nobody waits until they expire.

    A lock that was left for the duration of the user's tasks stays, because these may still be at
    work on their host.

    Raises:
        ClusterError: a lease may not be read or written, or the server could not be reached.
    """
    me = ctx.run
    if me is None or not me.nonce or ctx.check:
        return
    own, surges, locks = [], [], []
    for lease in run_locks.all_leases(ctx):
        if not _by(lease, me) or is_run_lease(lease) or lock_leases.is_heartbeat(lease):
            continue
        own.append(lease)
        if names.SURGE in (lease["metadata"].get("annotations") or {}):
            surges.append(lease)
        elif not lock_leases.is_left(lease):
            locks.append(lease)
    holders_of = {lease["metadata"]["name"]: lease["spec"]["holderIdentity"] for lease in locks}
    run_lock_policy.LockPolicy(ctx, there=True).leave(holders_of)
    jobs = [
        functools.partial(_let_go, ctx, lease, run_leases.deletion(lease, "Delete a lock"))
        for lease in locks
    ]
    for lease in surges:
        shortly = run_leases.patch(
            lease,
            "Leave a surge to whoever comes",
            {"spec": {"leaseDurationSeconds": SURGE_WATCH_SECONDS}},
        )
        jobs.append(functools.partial(_let_go, ctx, lease, shortly))
    with ctx.clock.pool(run_requests.MAX_PARALLEL, "let go") as pool:
        list(pool.map(lambda job: job(), jobs))
    for run_id in {me.id, *map(run_leases.holder_of, own)} - {""}:
        run_heartbeats.sweep(ctx, run_id)
    if me.id:
        delete(ctx, me.id, me.nonce)


def _let_go(ctx: run_context.Context, lease: objects.Raw, change: api_changes.Change) -> None:
    version = lease["metadata"]["resourceVersion"]

    def decide(found: objects.Raw | None) -> api_changes.Change | None:
        unchanged = found is not None and found["metadata"]["resourceVersion"] == version
        return change if unchanged else None

    run_reconcile.reconcile(ctx, change.target, decide, known=lease, remember=False)


def _by(lease: objects.Raw, me: run_context.Run) -> bool:
    """Whether this start holds the lease; it takes over nodes of runs whose
    ids it need not know.
    """
    holder = run_context.Run.parse((lease.get("spec") or {}).get("holderIdentity"))
    return holder is not None and holder.nonce == me.nonce and me.id in ("", holder.id)


def left_locks(
    ctx: run_context.Context, run: run_context.Run, nodes: t.Collection[str], namespace: str
) -> list[lock_leases.Seen]:
    """The leftover locks of nodes that are gone or have no record.

    Those of this start, and those that are not renewed: of other starts of the run, or, without a
    run's id, of all. Another start may be at work on a node that this one has just given back.

    Raises:
        ClusterError: they may not be read, or the server could not be reached.
    """
    wanted = {names.node_lease_name(node) for node in nodes}
    leases = run_leases.leases_in(ctx, [namespace])
    found = [lease for lease in leases if lease["metadata"]["name"] in wanted]
    if run.id:
        its = [lease for lease in found if run_leases.holder_of(lease) == run.id]
        own = [lease for lease in its if _by(lease, run)]
        others = expired(ctx, [lease for lease in its if lease not in own], over=run.id)
        return [*(lock_leases.Seen.among(lease, leases) for lease in own), *others.values()]
    ours = [lease for lease in found if not lock_leases.is_theirs(lease)]
    dead = expired(ctx, ours)
    for lease in ours:
        if run_leases.of_tasks(lease) and lock_leases.place_of(lease) not in dead:
            node = node_of(lease)
            ctx.tell(phases.What.KEPT, run_leases.held_by(f"Node {node}", lease), node=node)
    return list(dead.values())


def node_of(lock: objects.Raw) -> str:
    """The node that it locks."""
    return str(lock["metadata"]["name"]).removeprefix(names.NODE_LEASE_PREFIX)


def release(
    ctx: run_context.Context, seen: lock_leases.Seen, ended: set[str], what: str = ""
) -> None:
    """Delete the leftover lock of a node (or of ``what``), unless it was renewed since,
    and its entry in the fence.

    The heartbeat of another start goes first, which makes that start look at all its leases before
    its next change. ``ended`` has the UIDs of those that went with an earlier lock.

    Raises:
        ClusterError: it may not be deleted, or the server could not be reached.
    """
    lock = seen.lease
    holder = run_context.Run.parse(lock["spec"].get("holderIdentity"))
    is_own = ctx.run is not None and holder == ctx.run
    if not is_own and not run_heartbeats.end_once(ctx, seen.heartbeat, ended):
        return
    sentence = f"Delete the leftover lock of {what or f'node {node_of(lock)}'}"
    # Of its own locks a start tells nothing.
    done = run_reconcile.remove(ctx, run_leases.deletion(lock, sentence), remember=not is_own)
    if done and not ctx.check and run_leases.holder_of(lock):
        run_lock_policy.forget(ctx, lock["metadata"]["name"], run_leases.holder_of(lock))


def expired(
    ctx: run_context.Context, leases: t.Iterable[objects.Raw], over: str | None = None
) -> dict[lock_leases.NamespacedName, lock_leases.Seen]:
    """Which of the leases are not renewed: all are watched together,
    each for its own duration or its heartbeat's.

    Any write counts as a renewal, a deletion too, but not that of a heartbeat. A lease that was
    left for the duration of somebody's tasks counts as alive, unless it is of the run whose tasks
    are ``over``. So does a run's own one until it has expired on the server's clock; then it is
    watched for a minute.

    Raises:
        ClusterError: they may not be read, or the server could not be reached.
    """
    leases = list(leases)
    dead = {}
    watched = {
        lock_leases.place_of(lease): lock_leases.Seen.among(lease, leases) for lease in leases
    }
    since = dict.fromkeys(watched, ctx.clock.now())
    needed = {place: _silence(ctx, seen, over) for place, seen in watched.items()}
    while watched:
        for place, seen in list(watched.items()):
            unchanged_for = ctx.clock.now() - since[place]
            if not run_leases.holder_of(seen.lease) or unchanged_for >= needed[place]:
                dead[place] = watched.pop(place)
            elif needed[place] > run_locks.IDLE:
                del watched[place]
        if not watched:
            break
        ctx.clock.sleep(run_node_lock.LOOK_EVERY_SECONDS)
        listed = run_leases.leases_in(ctx, {namespace for namespace, _name in watched})
        now = {lock_leases.place_of(lease): lease for lease in listed}
        for place, before in list(watched.items()):
            lease = now.get(place)
            fresh = lock_leases.Seen.among(lease, now.values()) if lease else None
            if fresh is None or fresh.shows_life(before):
                del watched[place]
            elif fresh.differs(before):
                watched[place] = fresh
                since[place] = ctx.clock.now()
                needed[place] = _silence(ctx, fresh, over)
    return dead


def _silence(ctx: run_context.Context, seen: lock_leases.Seen, over: str | None) -> float:
    """Seconds for which the lease has to stay unchanged until its holder counts as dead."""
    if run_leases.of_tasks(seen.lease) and run_leases.holder_of(seen.lease) == over:
        return 0.0
    ran_out = (
        seen.duration > run_locks.IDLE
        and is_run_lease(seen.lease)
        and not live_runs(ctx, [seen.lease])
    )
    return run_locks.IDLE if ran_out else seen.duration
