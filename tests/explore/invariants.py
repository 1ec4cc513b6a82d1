# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What must hold of whole runs, asked when they have ended.

I9 each ends, I10 check mode writes nothing and foretells what is written, I11 a fault costs few more requests, I12 no
secret of the users is told or stored, I13 what was written is told, I14 a failure names what it is about.
"""

from __future__ import annotations

import json
import re
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.api_changes import diff_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.tests.explore import scenes
from ansible_collections.kubeops.node_maintenance.tests.explore.judge import Violation, holder_of
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Stuck
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Outcome
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.wire import Sent
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World

Target = tuple[str, str, str, str]
"""Verb, kind, namespace and name of a change."""

PRIVATE = frozenset(kind.resource for kind in (kinds.LEASES, kinds.CONFIGMAPS, kinds.NODE_FENCES, kinds.NAMESPACES))
"""Where runs keep locks, signs of life, memory and fences: none of it is a change of the users' cluster."""
DRAWN = ("ConfigMap",)
"""Kinds of ours whose objects are named by the run."""
VERBS = {"eviction": "evict", "scale": "scale", "status": "status"}
"""The words of changes for subresources that are written."""
BY_RESOURCE = {kind.resource: kind.kind for kind in kinds.KINDS.values()}
MORE, FEW = 1.2, 20
"""A run with one fault makes at most so many times as many requests as an undisturbed one, and so many more."""
NAMING = (kinds.NODES, kinds.PODS, kinds.BUDGETS, kinds.DEPLOYMENTS, kinds.STATEFUL_SETS, kinds.DAEMON_SETS)
"""Kinds of which a failure's message names an object."""


def ended(world: World, over: t.Callable[[], bool], within: float) -> None:
    """Let time pass until it is over (I9).

    Raises:
        Violation: it is not, within so many seconds; who waits for what, and who holds which lock.
    """
    try:
        world.machine.run_until(over, within=within)
    except Stuck as stuck:
        raise Violation(f"I9: no end: {stuck}; {'; '.join(_waiting(world))}") from stuck


def _waiting(world: World) -> t.Iterator[str]:
    for name, actor in world.actors.items():
        last = next((sent for sent in reversed(world.log) if sent.process == name), None)
        if last is not None:
            request = last.request
            said = f", and said {actor.told[-1].message!r}" if actor.told else ""
            yield f"{name} sent {request.verb} {request.resource} {request.object} at {last.left:.1f} s{said}"
    for (_namespace, name), lease in world.store.of(kinds.LEASES.resource).items():
        yield f"{holder_of(lease) or 'nobody'} holds {name}"


def writes(world: World, process: str) -> list[Sent]:
    """What a process sent that may change something; what the server only tried (`dryRun`) is no write."""
    return [
        sent
        for sent in world.log
        if sent.process == process and sent.request.writes and ("dryRun", "All") not in sent.request.query
    ]


def only_looked(world: World, process: str) -> None:
    """Check mode has written nothing (I10)."""
    if sent := writes(world, process):
        told = [f"{one.request.verb} {one.request.resource} {one.request.object}" for one in sent]
        raise Violation(f"I10: check mode sent {', '.join(told)}")


def foretold(checked: Actor, did: Actor) -> None:
    """What check mode foretold is what was changed, object by object (I10).

    It ends where nodes would be out; each object that is given back was changed before. The run's own memory has a
    name that is drawn anew at each start.
    """
    wanted, found = (_objects(actor) for actor in (checked, did))
    if wanted != found:
        only, more = sorted(wanted - found), sorted(found - wanted)
        raise Violation(f"I10: check mode alone told of {only}, the run alone of {more}")


def _objects(actor: Actor) -> set[tuple[str, str, str]]:
    return {
        (change.target.kind, change.target.namespace, change.target.name)
        for ctx in actor.contexts
        for change in ctx.changes
        if change.target.kind not in DRAWN
    }


def undisturbed(outcomes: t.Iterable[Outcome]) -> None:
    """A run beside which others only write what means nothing to it has succeeded (I9)."""
    for outcome in outcomes:
        if not outcome.ok:
            raise Violation(f"I9: nobody disturbed the run, and it failed: {outcome.failed} {outcome.wrong}")


def few_requests(count: int, undisturbed: int) -> None:
    """One fault does not make a run ask without end (I11)."""
    if count > MORE * undisturbed + FEW:
        raise Violation(f"I11: {count} requests, and {undisturbed} without the fault")


def no_secrets(world: World, outcomes: t.Iterable[Outcome] = ()) -> None:
    """Nothing that was told or sent to be stored has in it what users keep in their pods (I12)."""
    for where, what in _texts(world, outcomes):
        if scenes.CANARY in what:
            at = what.index(scenes.CANARY)
            raise Violation(f"I12: a secret is in {where}: {what[max(at - 80, 0) : at + 40]}")


def _texts(world: World, outcomes: t.Iterable[Outcome]) -> t.Iterator[tuple[str, str]]:
    for actor in world.actors.values():
        for ctx in actor.contexts:
            yield f"the timeline of {actor.name}", repr(ctx.timeline)
            yield f"the changes of {actor.name}", repr(([one.sentence for one in ctx.changes], diff_of(ctx.changes)))
        yield f"what {actor.name} told", repr(actor.told)
    for sent in world.log:
        if sent.request.writes:
            yield f"{sent.request.verb} {sent.request.resource}", repr(sent.request.body)
    for outcome in outcomes:
        yield "an outcome", repr((outcome.failed, outcome.wrong, outcome.calls))


def all_told(world: World) -> None:
    """Whatever a process wrote and the server carried out is among the changes it tells of; evictions are events too.

    (I13.) A process that was killed tells nothing any more.
    """
    for actor in world.actors.values():
        if actor.process.dead:
            continue
        told = {
            (change.verb, change.target.kind, change.target.namespace, change.target.name)
            for ctx in actor.contexts
            for change in ctx.changes
        }
        events = {(event.namespace, event.name) for ctx in actor.contexts for event in ctx.timeline}
        for sent in writes(world, actor.name):
            resource = sent.request.resource.partition("/")[0]
            if resource in PRIVATE or not 200 <= sent.status < 300:
                continue
            made = _target(sent.request)
            if made not in told:
                raise Violation(f"I13: {actor.name} did {made}, and does not tell of it")
            if made[0] == "evict" and made[2:] not in events:
                raise Violation(f"I13: {actor.name} evicted {made[3]}, and no event says so")


def _target(request: Request) -> Target:
    resource, _slash, subresource = request.resource.partition("/")
    name = request.name or ((request.body or {}).get("metadata") or {}).get("name", "")
    return VERBS.get(subresource, request.verb), BY_RESOURCE[resource], request.namespace, name


def says_why(world: World, outcome: Outcome) -> None:
    """Each message of a failure names something, and is written for people (I14).

    That is a node, a workload, a budget or a pod. Where the server did not answer, none of them stands in the way, and
    the message begins with what was asked: `list nodes`, `get configmaps kubeops-node-maintenance/run-1`.
    """
    said = [*outcome.failed.values(), *outcome.wrong]
    known = {name for kind in NAMING for _namespace, name in world.store.of(kind.resource)}
    known |= {event.raw["metadata"]["name"] for kind in NAMING for event in world.store.history.get(kind.resource, ())}
    asked = {f"{sent.request.verb} {sent.request.resource} {sent.request.object}".rstrip() for sent in world.log}
    for message in said:
        named = known & set(re.findall(r"[\w.-]*\w", message)) or any(message.startswith(what) for what in asked)
        if "Traceback" in message or not named:
            raise Violation(f"I14: the message of a failure names nothing: {json.dumps(message)}")
