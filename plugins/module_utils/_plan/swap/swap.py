# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The steps of a swap, each decided anew from what is there now.

Raise (deletion costs, then the autoscaler's bounds, then the count), wait until the newcomers serve,
lower (the bounds first, then the count once), give back. A step that is done already yields nothing,
so a surge that was interrupted anywhere goes on, or back, by asking the same questions again. Every
field follows the three-way rule: what is neither as it was nor as we made it is somebody else's.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    names,
    objects,
    pod_plan,
    reasons,
    serving,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import (
    pins,
    protect,
    surge_changes,
    surge_records,
)


@dataclass(frozen=True, slots=True)
class Blocked(reasons.Reason):
    """Why a surge cannot succeed: ``code`` is a finding's, too."""

    code: t.Literal[
        "surge_refused",
        "surge_unschedulable",
        "surge_preempts",
        "surge_on_leaving_node",
        "surge_reverted",
        "workload_gone",
    ]


@dataclass(frozen=True, slots=True)
class Undo:
    """The next step of giving a surge back.

    ``waiting`` says for what the next step has to wait; without it, and once ``changes`` are made, only
    the lease is left. ``kept`` is what stays because somebody else wrote it.
    """

    changes: tuple[api_changes.Change, ...] = ()
    waiting: str = ""
    kept: tuple[str, ...] = ()


def surges(
    snapshot: snapshots.Snapshot,
    plans: t.Iterable[pod_plan.PodPlan],
    *,
    run: str,
    by: str,
    since: str,
    pin: bool = False,
) -> tuple[surge_records.Surge, ...]:
    """One surge for every workload with pods that leave by swap, however many of the nodes they are on."""
    leaving: dict[str, list[objects.Pod]] = {}
    for plan in plans:
        if plan.route == "swap" and plan.workload is not None:
            leaving.setdefault(plan.workload.uid, []).append(plan.pod)
    found = []
    for uid, pods in leaving.items():
        workload = snapshot.workload(uid)
        if workload is not None:
            found.append(_surge(snapshot, workload, pods, run=run, by=by, since=since, pin=pin))
    return tuple(found)


def _surge(
    snapshot: snapshots.Snapshot,
    workload: objects.Workload,
    pods: list[objects.Pod],
    *,
    run: str,
    by: str,
    since: str,
    pin: bool,
) -> surge_records.Surge:
    scaler, target = snapshot.autoscaler_of(workload), workload.replicas + len(pods)
    return surge_records.Surge(
        api_version=workload.api_version,
        kind=workload.kind,
        namespace=workload.namespace,
        name=workload.name,
        uid=workload.uid,
        prior_replicas=workload.replicas,
        target=target,
        nodes={name: snapshot.nodes[name].uid for name in sorted({pod.node for pod in pods}) if name in snapshot.nodes},
        leaving={pod.uid: surge_records.Leaver(pod.name, pod.annotations.get(names.DELETION_COST)) for pod in pods},
        run=run,
        by=by,
        since=since,
        bounds=_bounds(scaler, target) if scaler else None,
        pins=pins.wanted(snapshot, pods) if pin else (),
    )


def _bounds(scaler: objects.Autoscaler, target: int) -> surge_records.Bounds:
    return surge_records.Bounds(
        scaler.name, scaler.minimum, scaler.maximum, max(target, scaler.minimum), max(target, scaler.maximum)
    )


# -- what is there ----------------------------------------------------------------------------------


def restless(snapshot: snapshots.Snapshot, uid: str) -> str:
    """Why the workload is between two states, empty where it is at rest or gone."""
    workload = snapshot.workload(uid)
    if workload is None:
        return ""
    there = sum(1 for pod in snapshot.pods_of(workload) if not pod.deleting)
    if workload.observed and there != workload.replicas:
        return f"{there} of {workload.replicas} pods of {workload.ref} are there"
    why = protect.rollout(snapshot, workload)
    return f"{workload.ref} to come to rest: {why}" if why else ""


def active(snapshot: snapshots.Snapshot, surge: surge_records.Surge) -> tuple[objects.Pod, ...]:
    """The workload's pods that count for its controller: neither ending nor finished."""
    workload = snapshot.workload(surge.uid)
    return tuple(pod for pod in snapshot.pods_of(workload) if not pod.deleting) if workload else ()


def alive(snapshot: snapshots.Snapshot, surge: surge_records.Surge) -> tuple[objects.Pod, ...]:
    """The leaving pods that nothing has ended yet, by their UIDs."""
    return tuple(pod for pod in active(snapshot, surge) if pod.uid in surge.leaving)


def settled(snapshot: snapshots.Snapshot, surge: surge_records.Surge) -> str:
    """Why the controller is still at work on the count, empty once it has caught up."""
    workload = snapshot.workload(surge.uid)
    if workload is None:
        return ""
    pods = active(snapshot, surge)
    if not workload.observed:
        return f"the controller of {workload.ref} has not seen its count of {workload.replicas} yet"
    if len(pods) != workload.replicas:
        return f"{len(pods)} of {workload.replicas} pods of {workload.ref} are there"
    return ""


def scaler_of(snapshot: snapshots.Snapshot, surge: surge_records.Surge) -> objects.Autoscaler | None:
    """The autoscaler whose bounds the surge changed, as it is now."""
    if surge.bounds is None:
        return None
    return snapshot.autoscaler(surge.namespace, surge.bounds.name)


# -- raising ----------------------------------------------------------------------------------------


def raising(snapshot: snapshots.Snapshot, surge: surge_records.Surge) -> tuple[api_changes.Change, ...]:
    """What is still to do until the workload is asked for ``target`` pods, in the protocol's order.

    The costs go first: if anybody puts the count back, the pod that ends is one that leaves anyway.
    """
    workload = snapshot.workload(surge.uid)
    if workload is None:
        return ()
    changes = [*_costs(snapshot, surge, workload), *pins.pinning(snapshot, surge)]
    scaler, bounds = scaler_of(snapshot, surge), surge.bounds
    if scaler and bounds and (scaler.minimum, scaler.maximum) == (bounds.prior_min, bounds.prior_max):
        changes += surge_changes.bounds(scaler, bounds.minimum, bounds.maximum, "Raise")
    if workload.replicas == surge.prior_replicas:
        changes.append(surge_changes.scale(workload, surge.target))
    return tuple(changes)


def raised(snapshot: snapshots.Snapshot, surge: surge_records.Surge) -> bool:
    """Whether the workload's specification asks for the target, as far as this snapshot knows."""
    workload = snapshot.workload(surge.uid)
    return workload is not None and workload.replicas == surge.target


def _costs(
    snapshot: snapshots.Snapshot, surge: surge_records.Surge, workload: objects.Workload
) -> list[api_changes.Change]:
    """The lowest cost on every leaving pod, and on no other (an undo that was cut short put it there)."""
    changes = []
    for pod in active(snapshot, surge):
        now = pod.annotations.get(names.DELETION_COST)
        if pod.uid in surge.leaving:
            if now != names.LOWEST_COST:
                changes.append(surge_changes.cost(pod, names.LOWEST_COST))
        elif now == names.LOWEST_COST != surge_changes.template_cost(workload):
            changes.append(surge_changes.cost(pod, surge_changes.template_cost(workload)))
    return changes


# -- waiting ----------------------------------------------------------------------------------------


def waiting_for(
    snapshot: snapshots.Snapshot,
    surge: surge_records.Surge,
    endpoints: serving.Endpoints,
    leaving_nodes: t.Collection[str],
    *,
    lowering: bool = False,
) -> str:
    """What is missing until the newcomers serve; empty when the leaving pods may end.

    Before the drain, pods on the leaving nodes that are no part of the swap are left out: one that is
    not ready is evicted there. ``lowering`` leaves nobody out, because a pod that is not ready is
    ended before any other, whatever the costs say.
    """
    workload = snapshot.workload(surge.uid)
    if workload is None:
        return f"{surge.workload} is gone"
    why = settled(snapshot, surge) or protect.rollout(snapshot, workload)
    if why:
        return why
    pods = active(snapshot, surge)
    counted = [p for p in pods if lowering or p.uid in surge.leaving or p.node not in leaving_nodes]
    for pod in counted:
        if not pod.ready:
            return f"{pod.ref} is not ready" + (f" ({pod.phase})" if pod.phase != "Running" else "")
    if workload.available < workload.replicas - (len(pods) - len(counted)):
        seconds = workload.spec.get("minReadySeconds") or 0
        return f"{workload.available} of {workload.replicas} pods are available (minReadySeconds {seconds})"
    for pod in counted:
        if pod.uid not in surge.leaving and (missing := endpoints.missing(pods, pod)):
            return f"{pod.ref} is not ready in {missing}"
    return ""


def blocked(
    snapshot: snapshots.Snapshot, surge: surge_records.Surge, leaving_nodes: t.Collection[str]
) -> Blocked | None:
    """Why the surge cannot succeed, as far as anybody has said so yet."""
    workload = snapshot.workload(surge.uid)
    if workload is None:
        return Blocked("workload_gone", f"{surge.workload} is gone.", "Nothing to do.")
    if workload.replicas < surge.target:
        return Blocked(
            "surge_reverted",
            f"Somebody put {workload.ref} back to {workload.replicas} replicas while {surge.target} were needed.",
            "Pause what reverts it (GitOps self-heal, an operator) for the maintenance, or let it ignore replicas.",
        )
    for owner in (workload, *snapshot.owned_by(workload)):
        if owner.failure and owner.current < owner.replicas:
            return Blocked(
                "surge_refused",
                f"One more pod of {workload.ref} is refused: {owner.failure.rstrip('.')}.",
                "Make room for one more pod (quota, LimitRange, admission), or accept the interruption.",
            )
    newcomers = [p for p in active(snapshot, surge) if p.uid not in surge.leaving and p.created >= surge.created]
    for pod in newcomers:
        if pod.nominated:
            return Blocked(
                "surge_preempts",
                f"{pod.ref} would take its place on {pod.nominated} from other pods.",
                "Make room in the cluster, or accept the interruption.",
            )
        if not pod.node and pod.unschedulable:
            return Blocked(
                "surge_unschedulable",
                f"{pod.ref} has no place in the cluster: {pod.unschedulable.rstrip('.')}.",
                "Make room (add a node, end something), or accept the interruption.",
            )
        node = snapshot.nodes.get(pod.node)
        if pod.node in leaving_nodes or (node and node.unschedulable):
            return Blocked(
                "surge_on_leaving_node",
                f"{pod.ref} was placed on {pod.node}, which takes no pods: it tolerates that.",
                "Remove the toleration, or accept the interruption.",
            )
    return None


def rebased(
    snapshot: snapshots.Snapshot, surge: surge_records.Surge, *, lowered: bool = False
) -> surge_records.Surge | None:
    """The surge on the count that somebody else set meanwhile; ``None`` where the count is as it was or ours.

    What they set is what is wanted from now on, and the pods that leave come on top of it again. An
    autoscaler sets the count all the time, so there the bounds tell what is ours. ``lowered`` says that
    we put the count back already.
    """
    workload, leaving = snapshot.workload(surge.uid), alive(snapshot, surge)
    if workload is None or surge.bounds is not None or not leaving or workload.replicas == 0:
        return None
    ours = (surge.prior_replicas,) if lowered else (surge.prior_replicas, surge.target)
    if workload.replicas in ours:
        return None
    return replace(surge, prior_replicas=workload.replicas, target=workload.replicas + len(leaving), stage="raising")


# -- lowering and giving back -----------------------------------------------------------------------


def lowering(snapshot: snapshots.Snapshot, surge: surge_records.Surge) -> tuple[api_changes.Change, ...]:
    """End the leaving pods: the autoscaler's bounds as they were, then the count, once.

    Ask only when ``waiting_for`` has nothing to wait for. Without an autoscaler the count goes back to
    what it was, unless somebody else changed it; under one it goes down by the leaving pods still
    alive, for the count is the autoscaler's own.
    """
    workload = snapshot.workload(surge.uid)
    if workload is None:
        return ()
    changes, _kept = _bounds_back(snapshot, surge)
    count = lowered_count(snapshot, surge, workload)
    if count is not None and count < workload.replicas:
        changes.append(surge_changes.scale(workload, count))
    return tuple(changes)


def lowered_count(snapshot: snapshots.Snapshot, surge: surge_records.Surge, workload: objects.Workload) -> int | None:
    """The count after lowering; ``None`` where it is somebody else's now."""
    if workload.replicas == surge.target:
        return surge.prior_replicas
    leaving = len(alive(snapshot, surge))
    if surge.bounds is None or not leaving:
        return None
    return max(workload.replicas - leaving, surge.bounds.prior_min, 1)


def giving_back(snapshot: snapshots.Snapshot, surge: surge_records.Surge, *, lowered: bool = False) -> Undo:
    """The next step back to what was, from wherever the surge is.

    Where the count is still ours, the newcomers get the lowest cost and the leaving pods their own, so
    that those end which came last. Costs that remain are taken away after the controller has acted.
    A rollout that began meanwhile is left to end first: lowering would cost it a pod that serves.
    ``lowered`` says that the count was lowered already, so whatever it is now is not ours.
    """
    workload = snapshot.workload(surge.uid)
    changes, kept = _bounds_back(snapshot, surge)
    unpinned, kept_pins = pins.unpinning(snapshot, surge)
    kept = (*kept, *kept_pins)
    if workload is None:
        orphans = [pod for uid in surge.leaving if (pod := snapshot.pod(uid))]
        return Undo((*changes, *unpinned, *_costs_back(orphans, surge, None)), kept=kept)
    pods = active(snapshot, surge)
    if workload.replicas == surge.target and not lowered:
        if workload.observed and (why := protect.rollout(snapshot, workload)):
            return Undo(tuple(changes), why, kept)
        extra = surge.target - surge.prior_replicas
        newest = sorted((p for p in pods if p.uid not in surge.leaving), key=lambda p: (p.created, p.name))[-extra:]
        ending = [p for p in newest if p.created >= surge.created]
        changes += [
            surge_changes.cost(p, names.LOWEST_COST)
            for p in ending
            if p.annotations.get(names.DELETION_COST) != names.LOWEST_COST
        ]
        changes += _costs_back([p for p in pods if p not in ending], surge, workload)
        return Undo(
            (*changes, surge_changes.scale(workload, surge.prior_replicas)), f"{workload.ref} to lower its count", kept
        )
    if workload.replicas != surge.prior_replicas and surge.bounds is None and not lowered:
        kept = (*kept, f"somebody else set {workload.ref} to {workload.replicas} replicas; it stays so")
    costs = _costs_back(pods, surge, workload)
    waiting = settled(snapshot, surge) if costs else ""
    if waiting:
        return Undo((*changes, *unpinned), waiting, kept)
    return Undo((*changes, *unpinned, *costs), kept=kept)


def shrunk(snapshot: snapshots.Snapshot, surge: surge_records.Surge, nodes: t.Collection[str]) -> surge_records.Surge:
    """The surge as it serves these nodes only; its target stays, the end of the swap lowers it all."""
    gone = {uid for uid in surge.leaving if (pod := snapshot.pod(uid)) and pod.node not in nodes}
    return replace(
        surge,
        nodes={name: uid for name, uid in surge.nodes.items() if name in nodes},
        leaving={uid: leaver for uid, leaver in surge.leaving.items() if uid not in gone},
    )


def shrinking(
    snapshot: snapshots.Snapshot, surge: surge_records.Surge, smaller: surge_records.Surge
) -> tuple[api_changes.Change, ...]:
    """Give the pods that leave no more their own costs back; the record is written after that."""
    stay = [pod for pod in alive(snapshot, surge) if pod.uid not in smaller.leaving]
    return tuple(_costs_back(stay, surge, snapshot.workload(surge.uid)))


def whole_undo(
    snapshot: snapshots.Snapshot, surge: surge_records.Surge
) -> tuple[tuple[api_changes.Change, ...], tuple[str, ...]]:
    """Every change that giving back will make if nothing else happens, in order, and what is kept."""
    step = giving_back(snapshot, surge)
    unpinned, _kept = pins.unpinning(snapshot, surge)
    rest = [change for change in unpinned if change not in step.changes]
    return (*step.changes, *rest, surge.forgetting()), step.kept


def _bounds_back(
    snapshot: snapshots.Snapshot, surge: surge_records.Surge
) -> tuple[list[api_changes.Change], tuple[str, ...]]:
    """Both bounds as they were, each only where it is still ours."""
    scaler, bounds = scaler_of(snapshot, surge), surge.bounds
    if scaler is None or bounds is None:
        return [], ()
    kept = []
    minimum, maximum = scaler.minimum, scaler.maximum
    if minimum == bounds.minimum:
        minimum = bounds.prior_min
    elif minimum != bounds.prior_min:
        kept.append(f"somebody else set minReplicas of {scaler.ref} to {minimum}; it stays so")
    if maximum == bounds.maximum:
        maximum = bounds.prior_max
    elif maximum != bounds.prior_max:
        kept.append(f"somebody else set maxReplicas of {scaler.ref} to {maximum}; it stays so")
    return surge_changes.bounds(scaler, minimum, max(minimum, maximum), "Restore"), tuple(kept)


def _costs_back(
    pods: t.Iterable[objects.Pod], surge: surge_records.Surge, workload: objects.Workload | None
) -> list[api_changes.Change]:
    """What our cost replaced on the pods that stay; a cost that is not ours is left alone."""
    changes = []
    for pod in pods:
        leaver = surge.leaving.get(pod.uid)
        prior = leaver.cost if leaver else (surge_changes.template_cost(workload) if workload else None)
        if pod.annotations.get(names.DELETION_COST) == names.LOWEST_COST != prior:
            changes.append(surge_changes.cost(pod, prior))
    return changes
