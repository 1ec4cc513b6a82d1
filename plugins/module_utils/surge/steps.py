# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The steps of a surge, each decided from the current state of the cluster.

Raise (deletion costs, then the replicas), wait until the new pods serve, lower, give back. A step
that is already done yields no change, so an interrupted surge is continued or undone by asking the
same questions again. Every field follows the three-way rule: a value that is neither the original
one nor ours belongs to somebody else.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
    serving,
    snapshots,
    unready,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import surge_records
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import eligibility

# The two things a surge writes: a pod's deletion cost and a workload's replicas.


def template_cost(workload: objects.Workload) -> str | None:
    """The deletion cost that the workload's template gives to every new pod."""
    meta = workload.template.get("metadata") or {}
    return t.cast("str | None", (meta.get("annotations") or {}).get(names.DELETION_COST))


def cost(pod: objects.Pod, value: str | None) -> api_changes.Change:
    """Set or (``None``) remove the pod's deletion cost."""
    before = pod.annotations.get(names.DELETION_COST)
    sentence = f"Remove the deletion cost of {pod.ref}"
    if value:
        sentence = f"Set the deletion cost of {pod.ref} to {value}"
    return api_changes.patch(
        pod,
        sentence,
        {"metadata": {"annotations": {names.DELETION_COST: value}}},
        {names.DELETION_COST: before} if before is not None else {},
        {names.DELETION_COST: value} if value is not None else {},
    )


def scale(workload: objects.Workload, replicas: int) -> api_changes.Change:
    """Set the replicas through the scale subresource."""
    before, after = {"replicas": workload.replicas}, {"replicas": replicas}
    verb = "Raise" if replicas > workload.replicas else "Lower"
    sentence = f"{verb} {workload.ref} from {workload.replicas} to {replicas} replicas"
    return api_changes.patch(workload, sentence, {"spec": after}, before, after, verb="scale")


@dataclass(frozen=True, slots=True)
class Undo:
    """The next step of giving a surge back.

    ``waiting`` says what the step after it waits for; if it is empty, only the lease is left once
    ``changes`` are made. ``kept`` names the values that somebody else wrote,
    which are not restored.
    """

    changes: tuple[api_changes.Change, ...] = ()
    waiting: str = ""
    kept: tuple[str, ...] = ()


def surges(
    snapshot: snapshots.Snapshot,
    plans: t.Iterable[drain_policy.PodPlan],
    *,
    run: str,
    by: str,
    since: str,
) -> tuple[surge_records.Surge, ...]:
    """One surge for each workload with a pod that leaves by surge.

    It is the only one, once the workload is at rest (``not_at_rest``).
    """
    leaving: dict[str, objects.Pod] = {}
    for plan in plans:
        if plan.route == "surge" and plan.workload is not None:
            leaving.setdefault(plan.workload.uid, plan.pod)
    found = []
    for uid, pod in leaving.items():
        workload = snapshot.workload(uid)
        node = snapshot.nodes.get(pod.node)
        if workload is None or node is None:
            continue
        surge = surge_records.Surge(
            api_version=workload.api_version,
            kind=workload.kind,
            namespace=workload.namespace,
            name=workload.name,
            uid=uid,
            prior_replicas=workload.replicas,
            target=workload.replicas + 1,
            node=node.name,
            node_uid=node.uid,
            pod=pod.name,
            pod_uid=pod.uid,
            cost=pod.annotations.get(names.DELETION_COST),
            run=run,
            by=by,
            since=since,
        )
        found.append(surge)
    return tuple(found)


def not_at_rest(snapshot: snapshots.Snapshot, uid: str) -> str:
    """Why the workload is not at rest, empty where it is or where it is gone."""
    workload = snapshot.workload(uid)
    if workload is None:
        return ""
    if workload.observed and (missing := _count_differs(snapshot, workload)):
        return missing
    why = eligibility.rollout(snapshot, workload)
    return f"{workload.ref} to come to rest: {why}" if why else ""


def active(snapshot: snapshots.Snapshot, surge: surge_records.Surge) -> tuple[objects.Pod, ...]:
    """The workload's pods that its controller counts: neither terminating nor finished."""
    workload = snapshot.workload(surge.uid)
    return tuple(pod for pod in snapshot.pods_of(workload) if not pod.deleting) if workload else ()


def leaving(snapshot: snapshots.Snapshot, surge: surge_records.Surge) -> objects.Pod | None:
    """The pod that leaves, if it still runs."""
    return next((pod for pod in active(snapshot, surge) if pod.uid == surge.pod_uid), None)


def not_applied(snapshot: snapshots.Snapshot, surge: surge_records.Surge) -> str:
    """Why the controller has not applied the replica count yet, empty once it has."""
    workload = snapshot.workload(surge.uid)
    if workload is None:
        return ""
    if not workload.observed:
        return f"the controller of {workload.ref} has not seen its count of {workload.replicas} yet"
    return _count_differs(snapshot, workload)


def _count_differs(snapshot: snapshots.Snapshot, workload: objects.Workload) -> str:
    there = sum(1 for pod in snapshot.pods_of(workload) if not pod.deleting)
    if there == workload.replicas:
        return ""
    return (
        f"{workload.ref} has {there} of {workload.replicas} "
        f"pods{unready.in_brackets(unready.rejected(snapshot, workload))}"
    )


def raising(
    snapshot: snapshots.Snapshot, surge: surge_records.Surge
) -> tuple[api_changes.Change, ...]:
    """The changes still missing until the workload wants ``target`` replicas,
    in the protocol's order.

    The costs come first: if anybody resets the replicas, a leaving pod is the one that is deleted.
    """
    workload = snapshot.workload(surge.uid)
    if workload is None:
        return ()
    pods = active(snapshot, surge)
    changes = _lowest(pod for pod in pods if pod.uid == surge.pod_uid)
    # An interrupted undo may have left it on another one.
    changes += _costs_back([pod for pod in pods if pod.uid != surge.pod_uid], surge, workload)
    if workload.replicas == surge.prior_replicas:
        changes.append(scale(workload, surge.target))
    return tuple(changes)


def raised(snapshot: snapshots.Snapshot, surge: surge_records.Surge) -> bool:
    """Whether the workload's specification wants the target in this snapshot."""
    workload = snapshot.workload(surge.uid)
    return workload is not None and workload.replicas == surge.target


def _lowest(pods: t.Iterable[objects.Pod]) -> list[api_changes.Change]:
    wanted = names.LOWEST_COST
    return [cost(pod, wanted) for pod in pods if pod.annotations.get(names.DELETION_COST) != wanted]


def waiting_for(
    snapshot: snapshots.Snapshot,
    surge: surge_records.Surge,
    endpoints: serving.Endpoints,
    leaving_nodes: t.Collection[str],
    *,
    lowering: bool = False,
) -> str:
    """What is missing until the new pods serve; empty when the leaving pods may be deleted.

    Before the drain, pods on the leaving nodes that take no part in the surge do not count: one
    that is not ready is evicted there. ``lowering`` counts all, because a pod that is not ready is
    deleted before any other, whatever the costs.
    """
    workload = snapshot.workload(surge.uid)
    if workload is None:
        return f"{surge.workload} is gone"
    why = not_applied(snapshot, surge) or eligibility.rollout(snapshot, workload)
    if why:
        return why
    pods = active(snapshot, surge)
    counted = [p for p in pods if lowering or p.uid == surge.pod_uid or p.node not in leaving_nodes]
    for pod in counted:
        if not pod.ready:
            phase = pod.phase if pod.phase != "Running" else ""
            why = unready.of(snapshot, pod) or snapshot.warning_of(pod.uid) or phase
            return f"{pod.ref} is not ready{unready.in_brackets(why)}"
    if workload.available < workload.replicas - (len(pods) - len(counted)):
        seconds = workload.spec.get("minReadySeconds") or 0
        return (
            f"{workload.available} of {workload.replicas} pods are available "
            f"(minReadySeconds {seconds})"
        )
    for pod in counted:
        if pod.uid != surge.pod_uid and (missing := endpoints.missing(pods, pod)):
            return f"{pod.ref} is not ready in {missing}"
    return ""


def blocked(
    snapshot: snapshots.Snapshot, surge: surge_records.Surge, leaving_nodes: t.Collection[str]
) -> reasons.Reason | None:
    """Why the surge cannot succeed, as far as is known; ``code`` is ``workload_gone`` or a
    ``WorkloadOutcome``.
    """
    workload = snapshot.workload(surge.uid)
    if workload is None:
        return reasons.Reason("workload_gone", f"{surge.workload} is gone.", "Nothing to do.")
    if workload.replicas < surge.target:
        return _reverted(workload, surge)
    newcomers = [
        p for p in active(snapshot, surge) if p.uid != surge.pod_uid and p.created >= surge.created
    ]
    return hindrance(snapshot, workload, newcomers, leaving_nodes)


def hindrance(
    snapshot: snapshots.Snapshot,
    workload: objects.Workload,
    newcomers: t.Iterable[objects.Pod],
    leaving_nodes: t.Collection[str],
) -> reasons.Reason | None:
    """Why more pods of the workload cannot come to serve, of which these
    ``newcomers`` are there already.
    """
    if rejected := unready.rejected(snapshot, workload):
        # Once the pod is gone, a quota has room for its successor; others reject that, too.
        remedy = "Correct what it names: after an eviction the successor would be rejected as well."
        if "exceeded quota" in rejected:
            remedy = f"Make room in the quota for one more pod, or {eligibility.ACCEPT}."
        return reasons.Reason("surge_refused", f"{rejected[0].upper()}{rejected[1:]}.", remedy)
    for pod in newcomers:
        if pod.nominated and pod.unschedulable and not pod.node:
            why = f"{pod.ref} would preempt other pods on {pod.nominated}."
            return reasons.Reason(
                "surge_preempts", why, f"Make room in the cluster, or {eligibility.ACCEPT}."
            )
        if not pod.node and pod.unschedulable:
            why = f"{pod.ref} cannot be scheduled: {pod.unschedulable.rstrip('.')}."
            remedy = (
                "Make room (add a node, remove something), or "
                f"{eligibility.ACCEPT}. {reasons.GROWN}"
            )
            return reasons.Reason("surge_unschedulable", why, remedy)
        if pod.overlooked:
            remedy = "Start that scheduler, or correct the schedulerName of the workload."
            return reasons.Reason("surge_not_scheduled", f"{pod.ref}: {pod.overlooked}.", remedy)
        node = snapshot.nodes.get(pod.node)
        if pod.node in leaving_nodes or (node and node.unschedulable):
            why = (
                f"{pod.ref} was scheduled to {pod.node} although that node is cordoned: "
                "the pod tolerates it."
            )
            remedy = f"Remove the toleration, or {eligibility.ACCEPT}."
            return reasons.Reason("surge_on_leaving_node", why, remedy)
        if pod.stuck:
            why = f"{pod.ref} does not start on {pod.node}: {pod.trouble.rstrip('.')}."
            remedy = f"Repair what keeps it from starting there, or {eligibility.ACCEPT}."
            return reasons.Reason("surge_not_starting", why, remedy)
    return None


def _reverted(workload: objects.Workload, surge: surge_records.Surge) -> reasons.Reason:
    """Names the custom resource whose operator sets the replicas of the Deployment that it made."""
    why = (
        f"Somebody reset {workload.ref} to {workload.replicas} replicas while "
        f"{surge.target} were needed."
    )
    remedy = (
        "Pause what reverts it (GitOps self-heal, an operator) for the maintenance, "
        "or make it ignore replicas"
    )
    if owner := workload.owner:
        why += (
            f" It belongs to {owner} ({owner.api_version}), whose operator probably sets its count."
        )
        remedy = (
            f"Set {surge.target} replicas in {owner} for the maintenance, or pause its operator"
        )
    return reasons.Reason("surge_reverted", why, f"{remedy}; or {eligibility.ACCEPT}.")


def rebased(
    snapshot: snapshots.Snapshot, surge: surge_records.Surge, *, lowered: bool = False
) -> surge_records.Surge | None:
    """The surge on top of the replicas that somebody else set meanwhile;
    ``None`` if they are as before or ours.

    Their count is the wanted one from now on, and one more for the leaving pod. ``lowered``: we
    have restored the count already.
    """
    workload = snapshot.workload(surge.uid)
    if workload is None or leaving(snapshot, surge) is None or workload.replicas == 0:
        return None
    ours = (surge.prior_replicas,) if lowered else (surge.prior_replicas, surge.target)
    if workload.replicas in ours:
        return None
    return replace(
        surge, prior_replicas=workload.replicas, target=workload.replicas + 1, stage="raising"
    )


def lowering(
    snapshot: snapshots.Snapshot, surge: surge_records.Surge
) -> tuple[api_changes.Change, ...]:
    """Delete the leaving pods: restore the original count, unless somebody else changed it.

    Call it only when ``waiting_for`` returns nothing.
    """
    workload = snapshot.workload(surge.uid)
    if workload is None or workload.replicas != surge.target:
        return ()
    return (scale(workload, surge.prior_replicas),)


def giving_back(
    snapshot: snapshots.Snapshot, surge: surge_records.Surge, *, lowered: bool = False
) -> Undo:
    """The next step back to the original state, from whatever state the surge is in.

    While the count is ours, the new pods get the lowest cost and the leaving ones their own, so
    that the newest pods are deleted. Remaining costs are removed after the controller has acted. A
    rollout that began meanwhile is completed first: lowering could delete a pod that serves.
    ``lowered``: the count was lowered already, so its present value is not ours.
    """
    workload = snapshot.workload(surge.uid)
    if workload is None:
        orphan = snapshot.pod(surge.pod_uid)
        return Undo(tuple(_costs_back([orphan] if orphan else (), surge, None)))
    pods = active(snapshot, surge)
    if workload.replicas == surge.target and not lowered:
        if workload.observed and (why := eligibility.rollout(snapshot, workload)):
            return Undo(waiting=why)
        newest = sorted(
            (p for p in pods if p.uid != surge.pod_uid), key=lambda p: (p.created, p.name)
        )[-1:]
        ending = [p for p in newest if p.created >= surge.created]
        changes = _lowest(ending) + _costs_back(
            [p for p in pods if p not in ending], surge, workload
        )
        changes.append(scale(workload, surge.prior_replicas))
        return Undo(tuple(changes), f"{workload.ref} to lower its count")
    kept = tuple[str, ...]()
    if workload.replicas != surge.prior_replicas and not lowered:
        kept = (f"somebody else set {workload.ref} to {workload.replicas} replicas; left as is",)
    costs = _costs_back(pods, surge, workload)
    waiting = not_applied(snapshot, surge) if costs else ""
    return Undo(() if waiting else tuple(costs), waiting, kept)


def _costs_back(
    pods: t.Iterable[objects.Pod], surge: surge_records.Surge, workload: objects.Workload | None
) -> list[api_changes.Change]:
    """The cost that ours replaced, or that of the template; a cost that is
    not ours is left alone.
    """
    changes = []
    of_template = template_cost(workload) if workload else None
    for pod in pods:
        prior = surge.cost if pod.uid == surge.pod_uid else of_template
        if pod.annotations.get(names.DELETION_COST) == names.LOWEST_COST != prior:
            changes.append(cost(pod, prior))
    return changes
