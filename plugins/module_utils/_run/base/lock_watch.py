# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Watching the locks that others hold until it is clear whether their holders are alive."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import lock_leases, objects, phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import (
    context,
    heartbeats,
    holders,
    node_locks,
)

DYING = 60.0
"""Seconds for which a restarted run waits for its earlier start to die."""
LOOK_EVERY = 1.0


def outwait(
    ctx: context.Context,
    locks: t.Mapping[str, node_locks.NodeLock],
    waiting: dict[str, lock_leases.Seen],
    patient: bool,
    read_all: t.Callable[[], t.Mapping[str, lock_leases.Seen]],
) -> dict[str, str]:
    """Watch held leases until each was unchanged for its duration (taken) or was renewed (refused)."""
    start = ctx.clock.now()
    refused: dict[str, str] = {}
    silent_since = dict.fromkeys(waiting, start)
    alive: set[str] = set()
    ended: set[str] = set()
    for node, seen in waiting.items():
        text = f"lock held by {holders.holder_of(seen.lease)}; watching whether it is alive"
        namespace, _slash, name = ("", "", "") if locks[node].kind == "Node" else node.partition("/")
        ctx.tell(phases.What.WAITING, text, node="" if name else node, namespace=namespace, name=name)

    def take(node: str, lease: objects.Raw | None, now: float) -> None:
        left = locks[node].take(_unchanged(lease), lease)
        if left is None:
            del waiting[node]
        else:
            waiting[node], silent_since[node] = as_now(left, waiting[node]), now
            alive.add(node)

    while True:
        for node, seen in list(waiting.items()):
            now = ctx.clock.now()
            if now - silent_since[node] >= seen.duration:
                if heartbeats.end_once(ctx, seen.heartbeat, ended):
                    take(node, seen.lease, now)
            elif seen.duration > lock_leases.IDLE or (node in alive and (not patient or now >= start + DYING)):
                refused[node] = holders.held(locks[node].what, seen.lease)
                del waiting[node]
        if not waiting:
            return refused
        ctx.clock.sleep(LOOK_EVERY)
        current = read_all()
        for node, seen in list(waiting.items()):
            fresh = current.get(node)
            if fresh is None:
                take(node, None, ctx.clock.now())
            elif fresh.differs(seen):
                waiting[node], silent_since[node] = fresh, ctx.clock.now()
                if fresh.shows_life(seen):
                    alive.add(node)


def as_now(lease: objects.Raw, seen: lock_leases.Seen | None) -> lock_leases.Seen:
    """The lease as it is now, with its heartbeat if that was ``seen`` a moment ago."""
    return lock_leases.Seen.among(lease, filter(None, [seen.heartbeat if seen else None]))


def _unchanged(seen: objects.Raw | None) -> t.Callable[[objects.Raw], bool]:
    """Only the lease as it was watched may be taken: any write of it was a renewal."""
    version = seen["metadata"].get("resourceVersion") if seen else None
    return lambda lease: bool(version and lease["metadata"].get("resourceVersion") == version)
