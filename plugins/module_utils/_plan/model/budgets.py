# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What the Eviction API would say about a pod, why, and what to do about it.

The order of the questions is that of kube-apiserver's eviction handler (v1.36,
``pkg/registry/core/pod/storage/eviction.go``): a pod that is pending, finished or being deleted
bypasses every budget; two budgets are an error; a pod that is not ready may be free to go; then the
budget's status decides. A dry run is never asked: it does not consume the budget. The diagnosis
adds what the handler does not say: whether waiting can help, and whether the status can be trusted.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    objects,
    option,
    reasons,
    selectors,
    snapshots,
)

Code = t.Literal[
    "no_budget",
    "bypass",
    "room",
    "unhealthy_allowed",
    "two_budgets",
    "not_observed",
    "refused_by_server",
    "sync_failed",
    "reactive_budget",
    "unhealthy_blocked",
    "misconfigured",
    "stale",
    "spent",
]
"""The closed list of verdicts; all up to ``unhealthy_allowed`` let the pod go."""

MAX_DISRUPTED = 2000
"""More unconfirmed evictions than that are refused with 403 (``MaxDisruptedPodSize``)."""

REACTIVE: t.Mapping[str, objects.Raw] = {
    "longhorn": {"matchLabels": {"longhorn.io/component": "instance-manager"}},
    "kubevirt": {"matchLabels": {"kubevirt.io": "virt-launcher"}},
    "rook": {"matchLabels": {"app": "rook-ceph-osd"}},
}
"""Pods whose operators lift the budget only after a cordon or an eviction attempt, by label."""


@dataclass(frozen=True, slots=True)
class Verdict(reasons.Reason):
    """Whether an eviction of a pod would be let through now, and why (not).

    ``lasting`` says that waiting alone cannot change it: somebody has to act.
    """

    code: Code
    budget: objects.Ref | None = None
    lasting: bool = False

    @property
    def allowed(self) -> bool:
        """Whether the Eviction API would let the pod go now."""
        return self.code in ("no_budget", "bypass", "room", "unhealthy_allowed")


def diagnose(
    snapshot: snapshots.Snapshot, pod: objects.Pod, reactive: t.Sequence[objects.Raw] = tuple(REACTIVE.values())
) -> Verdict:
    """The verdict over the pod under all of its budgets; ``reactive`` are selectors of pods."""
    if pod.deleting or pod.phase in ("Succeeded", "Failed", "Pending"):
        return Verdict("bypass", f"{pod.ref} is {'being deleted' if pod.deleting else pod.phase}.")
    budgets = snapshot.budgets_of(pod)
    if not budgets:
        return Verdict("no_budget")
    if len(budgets) > 1:
        named = " and ".join(str(b.ref) for b in budgets)
        return Verdict(
            "two_budgets",
            f"{pod.ref} is selected by {named}; the Eviction API refuses such a pod for good.",
            "Delete all of them but one, or narrow their selectors.",
            budgets[0].ref,
            lasting=True,
        )
    budget = budgets[0]
    if not pod.ready and unhealthy_may_go(budget):
        policy = budget.unhealthy_policy
        return Verdict("unhealthy_allowed", f"{pod.ref} is not ready ({policy}).", budget=budget.ref)
    refused = _refused(snapshot, pod, budget)
    if refused is None:
        return Verdict("room", f"{budget.ref} lets {budget.allowed} more go.", budget=budget.ref)
    if not refused.allowed and any(selectors.matches(s, pod.labels) for s in reactive):
        return Verdict(
            "reactive_budget",
            f"{refused.message} Its operator lifts it once the node is cordoned or an eviction is tried.",
            "Nothing to do: the eviction is tried and waits. If it never ends, ask the operator of these pods.",
            budget.ref,
        )
    return refused


def unhealthy_may_go(budget: objects.Budget) -> bool:
    """Whether the budget lets a pod that is not ready go without being asked for room."""
    if budget.unhealthy_policy == "AlwaysAllow":
        return True
    return budget.healthy >= budget.desired > 0


def fully_blocking(budget: objects.Budget) -> bool:
    """Whether the budget can never allow a disruption as it stands, all pods being healthy.

    By its spec (maxUnavailable 0, minAvailable 100 %), or as the machine-controller-manager tells
    it: observed, pods expected, all of them healthy, none being disrupted, still nothing allowed.
    """
    if budget.max_unavailable in (0, "0%", "0") or budget.min_available == "100%":
        return True
    return (
        budget.observed
        and not budget.sync_failed
        and budget.expected > 0
        and budget.healthy >= budget.expected
        and not budget.disrupted
        and budget.allowed == 0
    )


def rule(budget: objects.Budget) -> str:
    """The budget's rule as its owner wrote it."""
    if budget.max_unavailable is not None:
        return f"maxUnavailable: {budget.max_unavailable}"
    return f"minAvailable: {1 if budget.min_available is None else budget.min_available}"


def reactive_selectors(wanted: t.Iterable[str]) -> tuple[objects.Raw, ...]:
    """Selectors of pods from preset names (``longhorn``, ``kubevirt``, ``rook``) and texts.

    Raises:
        ValueError: one of them is neither.
    """
    return tuple(REACTIVE[text] if text in REACTIVE else selectors.parse(text) for text in wanted)


def _refused(snapshot: snapshots.Snapshot, pod: objects.Pod, budget: objects.Budget) -> Verdict | None:
    """Why the budget's status does not let the pod go, ``None`` where it does."""
    name, ref = str(budget.ref), budget.ref
    if not budget.observed:
        return Verdict(
            "not_observed",
            f"{name} has just been changed and its status is not computed yet.",
            "Wait; if it lasts, look at kube-controller-manager.",
            ref,
        )
    if budget.allowed < 0 or len(budget.disrupted) > MAX_DISRUPTED:
        return Verdict(
            "refused_by_server",
            f"{name} has {len(budget.disrupted)} unconfirmed evictions and {budget.allowed} allowed.",
            "Look at kube-controller-manager: it does not confirm evictions.",
            ref,
        )
    if budget.allowed > 0:
        return _stale(snapshot, budget) if pod.ready else None
    if budget.sync_failed:
        return Verdict(
            "sync_failed",
            f"The status of {name} cannot be computed: {budget.sync_failed}",
            "Give the pods a controller with a scale, or use an absolute minAvailable.",
            ref,
            lasting=True,
        )
    if fully_blocking(budget):
        return _misconfigured(snapshot, pod, budget)
    needs = f"{name} ({rule(budget)}) needs {budget.desired} healthy pods and has {budget.healthy}"
    if not pod.ready:
        return Verdict(
            "unhealthy_blocked",
            f"{needs}; {pod.ref} is not ready, and under IfHealthyBudget it may only go while the others are.",
            "Repair the pods, or set unhealthyPodEvictionPolicy: AlwaysAllow on the budget.",
            ref,
        )
    if budget.disrupted:
        needs += f"; {len(budget.disrupted)} more are on their way out"
    return Verdict("spent", f"{needs}.", "Wait until its other pods are healthy again.", ref)


def _stale(snapshot: snapshots.Snapshot, budget: objects.Budget) -> Verdict | None:
    """Room by the status, none by the pods themselves: its controller is down or behind."""
    covered = snapshot.selected(budget.namespace, budget.selector)
    ready = sum(1 for p in covered if p.ready and not p.deleting and not p.finished)
    if ready > budget.desired or ready >= budget.healthy:
        return None
    return Verdict(
        "stale",
        f"{budget.ref} says {budget.healthy} of its pods are healthy, but {ready} are ready "
        f"and {budget.desired} must be.",
        "Wait for kube-controller-manager to catch up; if it does not, look whether it runs.",
        budget.ref,
    )


def _misconfigured(snapshot: snapshots.Snapshot, pod: objects.Pod, budget: objects.Budget) -> Verdict:
    workload = snapshot.workload_of(pod)
    scaler = snapshot.autoscaler_of(workload) if workload else None
    message = f"{budget.ref} ({rule(budget)}, {budget.expected} pods) can never let a pod go."
    if scaler and workload and workload.replicas <= scaler.minimum:
        message += f" {scaler.ref} is at its minimum of {scaler.minimum}."
    return Verdict(
        "misconfigured",
        message,
        "Give the budget room (maxUnavailable: 1), add a replica"
        + (" (minReplicas of the autoscaler)" if scaler else "")
        + f", or let a Deployment be moved with {option.options(swap_blocked=True)}.",
        budget.ref,
        lasting=True,
    )
