# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is demanded after a fault and what followed it, by the witness's log and the audit log."""

from __future__ import annotations

from collections.abc import Iterable

from support.jobs import left_behind
from support.watching import Seen
from witness import objects as o
from witness.audit import Request
from witness.invariants import Violation
from witness.kinds import OWN_NAMESPACE, SHARED_LEASES
from witness.log import Log

from chaos.scenes import Stage

GRACE = 0.5
"""Seconds in which what was on its way when a run lost its node may still arrive."""


class Blind(Exception):
    """The witness missed something, on a busy machine: there is no verdict."""


def objections(stage: Stage, seen: Seen) -> list[str]:
    """Whatever is not as it has to be; empty when all is well.

    The invariants of the witness (all as before, nothing of ours left, no service dark, no budget broken, no pod
    moved twice, a drained node stays empty), and no eviction from a node that was not out of service.

    Raises:
        Blind: there is no verdict.
    """
    violations = seen.violations()
    if missed := [violation for violation in violations if violation.rule == "W"]:
        raise Blind(str(missed[0]))
    found = [str(violation) for violation in violations if _is_here(stage, seen, violation)]
    here = [request for request in seen.requests if request.namespace in stage.arena.namespaces]
    found += evicted_in_service(seen.log, here)
    if stage.backend == "koordinator":
        found += [f"left behind: {name}" for name in left_behind(stage.arena)]
    return found


def _is_here(stage: Stage, seen: Seen, violation: Violation) -> bool:
    """Whether it is about this stage: runs on other stages of the lab keep leases and memories in our namespace too."""
    if violation.namespace not in (OWN_NAMESPACE, SHARED_LEASES):
        return True
    left = seen.log.after.get(violation.kind, violation.namespace, violation.name)
    return stage.arena.name in str(left)


def evicted_in_service(log: Log, requests: Iterable[Request]) -> list[str]:
    """Evictions and deletions that were accepted for a pod of a node that carried no record of ours."""
    held: dict[str, list[tuple[float, bool]]] = {}
    places: dict[tuple[str, str], list[tuple[float, str]]] = {}
    for event in log.events:
        if event.type not in ("BEFORE", "ADDED", "MODIFIED"):
            continue
        if event.kind == "Node":
            held.setdefault(o.name(event.obj), []).append((event.wall, o.record(event.obj) is not None))
        elif event.kind == "Pod" and event.obj["spec"].get("nodeName"):
            known = places.setdefault((o.namespace(event.obj), o.name(event.obj)), [])
            known.append((event.wall, event.obj["spec"]["nodeName"]))
    return [
        f"{request.namespace}/{request.name} was ended on {node} while that was in service ({request.agent})"
        for request in requests
        if request.ends_a_pod and request.accepted
        for node in [_at(places.get((request.namespace, request.name), []), request.at)]
        if node and not _held_lately(held.get(node, []), request.at)
    ]


def _at(known: list[tuple[float, str]], at: float) -> str:
    """Where a pod of this name was; the witness may hear of it after the request did its work."""
    return next((node for since, node in reversed(known) if since <= at), known[0][1] if known else "")


def _held_lately(known: list[tuple[float, bool]], at: float) -> bool:
    """Whether there was a record at any moment between shortly before and shortly after `at`."""
    before = [held for since, held in known if since <= at - GRACE]
    return any(before[-1:]) or any(held for since, held in known if at - GRACE < since <= at + GRACE)
