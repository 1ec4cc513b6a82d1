# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Whether a run lives: the locks of its nodes, and between two waves a lease of its own, ``run-<id>``.

The lease is no lock: it keeps nobody from anything but from throwing the run's memory away. The calls that
write that memory renew it, each for as long as the next one may take to come. As with locks, only silence
that was watched on one's own clock says that nobody renews it.
"""

from __future__ import annotations

import contextlib
import datetime
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    names,
    objects,
    phases,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import surge_records
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import (
    act,
    context,
    holders,
    locking,
    server_fence,
    writing,
)

PAUSES = (0.0, 1.0, 3.0)
"""Seconds before each try to take a sign of life away: nobody comes back for one that is left."""
SHORTLY = 5.0
"""Seconds in which each try but the first asks a server again that is away."""

Place = tuple[str, str]
"""Namespace and name of a lease."""


def sign(run_id: str) -> objects.Ref:
    """The lease that says that the run lives."""
    return holders.ref(names.run_name(run_id), names.NAMESPACE)


def show(ctx: context.Context, run: context.Run, seconds: float = locking.IDLE) -> None:
    """Say that the run lives, for so many seconds. That it could not be said ends nobody's work."""
    if ctx.check:
        return
    # By the server's clock: whoever looks at it compares it with the same one, not with a runner's.
    target, stamp = sign(run.id), surge_records.micro_time(ctx.clock.server())
    spec = {"holderIdentity": str(run), "leaseDurationSeconds": int(seconds), "renewTime": stamp}

    def decide(lease: objects.Raw | None) -> api_changes.Change | None:
        sentence = f"Say that run {run.id} lives"
        if lease is None:
            return holders.creation(target, sentence, ctx.by, {**spec, "acquireTime": stamp})
        if spec.items() <= (lease.get("spec") or {}).items():
            return None
        return api_changes.Change(
            "patch", target, sentence, body={"spec": spec}, resource_version=lease["metadata"]["resourceVersion"]
        )

    try:
        writing.write(ctx, target, decide, remember=False)
    except errors.ClusterError as error:
        ctx.tell(
            phases.What.NOTE, f"that run {run.id} lives could not be said, and between two waves it looks dead: {error}"
        )


def shown(ctx: context.Context, leases: t.Iterable[objects.Raw]) -> set[str]:
    """The runs whose sign of life still holds, by the API server's clock, which stamped it."""
    now, runs = datetime.datetime.fromisoformat(ctx.clock.server()), set()
    for lease in leases:
        spec = lease.get("spec") or {}
        renewed = spec.get("renewTime")
        if renewed and is_sign(lease):
            silent_for = now - datetime.datetime.fromisoformat(renewed)
            if silent_for.total_seconds() <= (spec.get("leaseDurationSeconds") or 0):
                runs.add(holders.holder_of(lease))
    return runs


def is_sign(lease: objects.Raw) -> bool:
    """Whether it is a run's sign of life."""
    return is_ours(lease) and bool(lease["metadata"]["name"].startswith(names.RUN_PREFIX))


def hide(ctx: context.Context, run_id: str, nonce: str = "") -> None:
    """Take the sign of life away; with a nonce only where that start of the run was the last to renew it."""
    if ctx.check:
        return

    def decide(lease: objects.Raw | None) -> api_changes.Change | None:
        holder = context.Run.parse((lease or {}).get("spec", {}).get("holderIdentity"))
        if lease is None or (nonce and holder != context.Run(run_id, nonce)):
            return None
        return holders.deletion(lease, f"Take the sign of life of run {run_id} away")

    trouble: errors.ClusterError | None = None
    for pause in PAUSES:
        ctx.clock.sleep(pause)
        try:
            writing.write(ctx, sign(run_id), decide, remember=False, patience=SHORTLY if pause else act.PATIENCE)
        except (*writing.PASSING, errors.ServerError) as error:
            # Also the patience of a try that a process was frozen in is over.
            trouble = error
            continue
        except errors.ClusterError as error:
            trouble = error
            break
        return
    ctx.tell(
        phases.What.NOTE, f"{sign(run_id)} could not be deleted, so run {run_id} looks alive until it is: {trouble}"
    )


def place_of(lease: objects.Raw) -> Place:
    """Where the lease is."""
    return lease["metadata"]["namespace"], lease["metadata"]["name"]


def is_ours(lease: objects.Raw) -> bool:
    """Whether this collection made it."""
    labels = lease["metadata"].get("labels") or {}
    return bool(labels.get(names.MANAGED_BY_LABEL) == names.MANAGED_BY)


def leases_in(ctx: context.Context, namespaces: t.Iterable[str]) -> list[objects.Raw]:
    """All leases of these namespaces; one that does not exist has none.

    Raises:
        ClusterError: they may not be read, or the server could not be reached.
    """
    found: list[objects.Raw] = []
    for namespace in sorted(set(namespaces)):
        with contextlib.suppress(errors.NotFound):
            found += ctx.cluster.items(kinds.LEASES, namespace=namespace, patience=act.PATIENCE).items
    return found


def left_locks(ctx: context.Context, run: context.Run, nodes: t.Collection[str], namespace: str) -> list[objects.Raw]:
    """The locks that were left of nodes that are gone or carry no record.

    Those of any start of the run; where it stands for whatever run, those that nobody renews.

    Raises:
        ClusterError: they may not be read, or the server could not be reached.
    """
    wanted = {names.node_lease_name(node) for node in nodes}
    found = [lease for lease in leases_in(ctx, [namespace]) if lease["metadata"]["name"] in wanted]
    if run.id:
        return [lease for lease in found if holders.holder_of(lease) == run.id]
    ours = [lease for lease in found if is_ours(lease)]
    dead = silent(ctx, ours)
    return [lease for lease in ours if place_of(lease) in dead]


def drop(ctx: context.Context, lock: objects.Raw) -> None:
    """Delete a node's lock that was left, unless somebody has written it since, and its entry in the server's fence.

    Raises:
        ClusterError: it may not be deleted, or the server could not be reached.
    """
    name, version = lock["metadata"]["name"], lock["metadata"]["resourceVersion"]
    sentence = f"Delete the lock that was left of node {name.removeprefix(names.NODE_LEASE_PREFIX)}"
    change = holders.deletion(lock, sentence)

    def decide(lease: objects.Raw | None) -> api_changes.Change | None:
        return change if lease is not None and lease["metadata"]["resourceVersion"] == version else None

    done = writing.write(ctx, change.target, decide, known=lock).change
    if done and not ctx.check and holders.holder_of(lock):
        server_fence.forget(ctx, name, holders.holder_of(lock))


def silent(ctx: context.Context, leases: t.Iterable[objects.Raw]) -> set[Place]:
    """Which of the leases nobody renews: all are watched together, each for its own duration.

    Any write is a sign of life, a deletion too. One that was left for work that nobody renews it for counts
    as alive: its silence says nothing. A run's sign of life does so until it has run out on the server's clock,
    and is watched for a minute then.

    Raises:
        ClusterError: they may not be read, or the server could not be reached.
    """
    start, dead = ctx.clock.now(), set()
    watched = {place_of(lease): lease for lease in leases}
    needed = {place: _silence(ctx, lease) for place, lease in watched.items()}
    while watched:
        passed = ctx.clock.now() - start
        for place, lease in list(watched.items()):
            if not holders.holder_of(lease) or passed >= needed[place]:
                dead.add(place)
                del watched[place]
            elif needed[place] > locking.IDLE:
                del watched[place]
        if not watched:
            break
        ctx.clock.sleep(locking.LOOK_EVERY)
        now = {place_of(lease): lease for lease in leases_in(ctx, {namespace for namespace, _name in watched})}
        for place, lease in list(watched.items()):
            seen = now.get(place)
            if seen is None or seen["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"]:
                del watched[place]
    return dead


def _silence(ctx: context.Context, lease: objects.Raw) -> float:
    """For how many seconds the lease has to stay as it is until nobody renews it."""
    duration = float((lease.get("spec") or {}).get("leaseDurationSeconds") or 0)
    ran_out = duration > locking.IDLE and is_sign(lease) and not shown(ctx, [lease])
    return locking.IDLE if ran_out else duration
