# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What the Eviction API would answer for a pod, why, and what to do about it.

The order of the checks is that of kube-apiserver's eviction handler (v1.36,
``pkg/registry/core/pod/storage/eviction.go``): a pod that is pending, finished or terminating
bypasses every budget; two budgets are an error; a pod that is not ready may be evicted freely; then
the budget's status decides. No dry run is sent, because it does not consume the budget. The
diagnosis adds what the handler does not tell: whether waiting can help,
and whether the status can be trusted.
"""

from __future__ import annotations

import datetime
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    objects,
    operators,
    snapshots,
    unready,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons

Code = t.Literal[
    "no_budget",
    "bypass",
    "room",
    "unhealthy_allowed",
    "two_budgets",
    "not_observed",
    "refused_by_server",
    "sync_failed",
    "operator_budget",
    "unhealthy_blocked",
    "misconfigured",
    "stale",
    "spent",
]
"""The closed list of verdicts; those up to ``unhealthy_allowed`` allow the eviction."""

ADMITTED = datetime.timedelta(minutes=2)
"""For how long the disruption controller counts a pod as evicted that is not being deleted."""
MAX_DISRUPTED = 2000
"""With more unconfirmed evictions, the API server refuses with 403 (``MaxDisruptedPodSize``)."""

WAITED_FOR = frozenset({"misconfigured", "sync_failed", "unhealthy_blocked", "spent"})
"""Verdicts that an operator changes; the others pass without it."""


@dataclass(frozen=True, slots=True)
class Verdict(reasons.Reason):
    """Whether an eviction of a pod would be allowed now, and why; ``lasting``:
    waiting alone cannot change it.
    """

    code: Code
    budget: objects.Ref | None = None
    lasting: bool = False

    @property
    def allowed(self) -> bool:
        """Whether the Eviction API would allow the eviction now."""
        return self.code in ("no_budget", "bypass", "room", "unhealthy_allowed")


def diagnose(
    snapshot: snapshots.Snapshot, pod: objects.Pod, wanted: t.Sequence[objects.Raw] = ()
) -> Verdict:
    """The verdict on the pod by all of its budgets; ``wanted`` are the caller's selectors of
    pods with operators.
    """
    if pod.deleting or pod.phase in ("Succeeded", "Failed", "Pending"):
        return Verdict("bypass", f"{pod.ref} is {'terminating' if pod.deleting else pod.phase}.")
    budgets = snapshot.budgets_of(pod)
    if not budgets:
        return Verdict("no_budget")
    if len(budgets) > 1:
        named = " and ".join(str(b.ref) for b in budgets)
        message = f"{pod.ref} is selected by {named}; the Eviction API always refuses such a pod."
        remedy = "Delete all of them but one, or narrow their selectors."
        return Verdict("two_budgets", message, remedy, budgets[0].ref, lasting=True)
    budget, ref = budgets[0], budgets[0].ref
    if not pod.ready and unhealthy_may_go(budget):
        message = f"{pod.ref} is not ready ({budget.unhealthy_policy})."
        return Verdict("unhealthy_allowed", message, budget=ref)
    refused = _refused(snapshot, pod, budget)
    if refused is None:
        return Verdict("room", f"{ref} allows {budget.allowed} more disruptions.", budget=ref)
    operator = (
        operators.operator_of(snapshot, pod, budget, wanted) if refused.code in WAITED_FOR else None
    )
    return of_operator(pod, budget, operator) if operator else refused


def of_operator(
    pod: objects.Pod, budget: objects.Budget | None, operator: operators.Operator, answer: str = ""
) -> Verdict:
    """The verdict that the pod stays until its operator acts.

    Without a budget it is the operator's webhook that keeps it;
    ``answer`` is what that said to an eviction.
    """
    holder = f"{budget.ref} ({rule(budget)})" if budget else "A webhook"
    message = f"{holder} keeps {pod.ref} until its operator acts: {operator} {operator.acts}."
    if answer:
        message += f" The eviction was answered: {answer.rstrip('.')}."
    wait = reasons.options(operator_budget_wait="30m")
    remedy = (
        "The drain waits for that. If it takes too long, the node is given back: check that the "
        f"operator runs and has another node for the pod, or give it more time with {wait}."
    )
    return Verdict("operator_budget", message, remedy, budget.ref if budget else None)


def unhealthy_may_go(budget: objects.Budget) -> bool:
    """Whether the budget allows the eviction of a pod that is not ready,
    whatever disruptions it allows.
    """
    if budget.unhealthy_policy == "AlwaysAllow":
        return True
    return budget.healthy >= budget.desired > 0


def fully_blocking(snapshot: snapshots.Snapshot, budget: objects.Budget) -> bool:
    """Whether the budget never allows a disruption, not even when all of its pods are healthy.

    By its spec (maxUnavailable 0, minAvailable 100 %, or neither of them), because its controller
    expects none of its pods, or because it wants as many healthy pods as there are, and as their
    workloads want: its controller counts only pods that exist if minAvailable is a number. Not
    while a pod is being disrupted, because the numbers are about to change.
    """
    if _by_spec(budget):
        return True
    current = budget.observed and not budget.sync_failed
    if current and _expects_none(snapshot, budget):
        return True
    if (
        not current
        or budget.disrupted
        or not budget.desired >= budget.expected > 0 == budget.allowed
    ):
        return False
    return budget.desired >= snapshot.wanted_of(budget)


def _by_spec(budget: objects.Budget) -> bool:
    return (
        budget.unruled or budget.max_unavailable in (0, "0%", "0") or budget.min_available == "100%"
    )


def _expects_none(snapshot: snapshots.Snapshot, budget: objects.Budget) -> bool:
    """Whether it takes the number of its pods from their controllers, and these pods have none."""
    covered = snapshot.selected(budget.namespace, budget.selector)
    return budget.expected == 0 < budget.healthy and not any(map(snapshot.workload_of, covered))


def rule(budget: objects.Budget) -> str:
    """The budget's rule as its owner wrote it."""
    if budget.max_unavailable is not None:
        return f"maxUnavailable: {budget.max_unavailable}"
    if budget.min_available is not None:
        return f"minAvailable: {budget.min_available}"
    return "neither minAvailable nor maxUnavailable"


def _refused(
    snapshot: snapshots.Snapshot, pod: objects.Pod, budget: objects.Budget
) -> Verdict | None:
    """Why the budget's status does not allow the eviction, ``None`` if it does."""
    if budget.sync_failed:
        # Before all else: where its controller has failed from the start,
        # no generation is observed either.
        return _not_synced(snapshot, pod, budget)
    if budget.observed and budget.allowed > 0 and len(budget.disrupted) <= MAX_DISRUPTED:
        return _stale(snapshot, budget) if pod.ready else None
    name = str(budget.ref)
    ref = budget.ref
    if not budget.observed:
        message = f"{name} has just been changed and its status is not computed yet."
        return Verdict(
            "not_observed",
            message,
            "Wait; if that does not help, check kube-controller-manager.",
            ref,
        )
    if budget.allowed < 0 or len(budget.disrupted) > MAX_DISRUPTED:
        message = (
            f"{name} has {len(budget.disrupted)} unconfirmed evictions and "
            f"{budget.allowed} allowed."
        )
        remedy = "Check kube-controller-manager: it does not confirm evictions."
        return Verdict("refused_by_server", message, remedy, ref)
    # A pod that is not ready may still go when the others are healthy, or by the policy.
    if _by_spec(budget) or (pod.ready and fully_blocking(snapshot, budget)):
        return _misconfigured(snapshot, pod, budget)
    needs = f"{name} ({rule(budget)}) needs {budget.desired} healthy pods and has {budget.healthy}"
    if not pod.ready:
        message = (
            f"{needs}; {pod.ref} is not ready, and IfHealthyBudget allows its eviction only "
            "while the others are."
        )
        beside = unready.beside(snapshot, pod)
        if beside:
            message += f" {beside}."
        remedy = "Repair the pods, or set unhealthyPodEvictionPolicy: AlwaysAllow on the budget."
        return Verdict("unhealthy_blocked", message, remedy, ref)
    if budget.disrupted:
        needs += f"; {_admitted(budget)}"
    message = f"{needs}{unready.in_brackets(unready.beside(snapshot, pod))}."
    return Verdict("spent", message, "Wait until its other pods are healthy again.", ref)


def _not_synced(snapshot: snapshots.Snapshot, pod: objects.Pod, budget: objects.Budget) -> Verdict:
    """That its controller cannot count its pods, as it cannot where one of them is of
    a Job or a DaemonSet.

    That does not last where each such pod has finished on the node of this one:
    no budget keeps those there.
    """
    covered = snapshot.selected(budget.namespace, budget.selector)
    uncounted = [one for one in covered if one.owner and snapshot.workload_of(one) is None]
    passing = bool(uncounted) and all(one.finished and one.node == pod.node for one in uncounted)
    message = (
        f"The status of {budget.ref} cannot be computed, so it allows no eviction: "
        f"{budget.sync_failed}."
    )
    remedy = (
        "Let its selector match only pods of controllers with a replica count, "
        "or use an absolute minAvailable."
    )
    if uncounted:
        message += f" It also selects {uncounted[0].ref} of {uncounted[0].owner}."
    return Verdict("sync_failed", message, remedy, budget.ref, lasting=not passing)


def _admitted(budget: objects.Budget) -> str:
    """How many evictions were admitted, and until when they count even if the deletion was lost."""
    evicted = (
        f"{len(budget.disrupted)} more "
        f"{'is' if len(budget.disrupted) == 1 else 'are'} being evicted"
    )
    times = [at for text in budget.disrupted.values() if (at := decoding.moment(text))]
    if not times:
        return evicted
    return (
        f"{evicted}, which counts until {max(times) + ADMITTED:%H:%M:%S} UTC even if "
        "nothing is deleted"
    )


def _stale(snapshot: snapshots.Snapshot, budget: objects.Budget) -> Verdict | None:
    """Disruptions allowed by the status, not by the pods: the disruption
    controller is down or behind.
    """
    ready = snapshot.ready_of(budget)
    if ready > budget.desired or ready >= budget.healthy:
        return None
    counts = (
        f"counts {budget.healthy} of its pods as healthy, but {ready} are ready and "
        f"{budget.desired} must be"
    )
    remedy = "Wait for kube-controller-manager to catch up; if it does not, check whether it runs."
    return Verdict("stale", f"{budget.ref} {counts}.", remedy, budget.ref)


def _misconfigured(
    snapshot: snapshots.Snapshot, pod: objects.Pod, budget: objects.Budget
) -> Verdict:
    workload = snapshot.workload_of(pod)
    scaler = snapshot.autoscaler_of(workload) if workload else None
    message = f"{budget.ref} ({rule(budget)}, {budget.expected} pods) can never allow an eviction."
    if _expects_none(snapshot, budget):
        message += " Its pods have no controller with a replica count."
        return Verdict(
            "misconfigured", message, "Use an absolute minAvailable.", budget.ref, lasting=True
        )
    if scaler and workload and workload.replicas <= scaler.minimum:
        message += f" {scaler.ref} is at its minimum of {scaler.minimum}."
    add = "add a replica (minReplicas of the autoscaler)" if scaler else "add a replica"
    remedy = f"Relax the budget (maxUnavailable: 1), or {add}."
    return Verdict("misconfigured", message, remedy, budget.ref, lasting=True)
