# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Gives every pod on the leaving nodes its route, with the reason."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    node_taints,
    objects,
    selectors,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    disposition_rules,
    pod_facts,
    replacement,
    unreachable,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    causes,
    object_limiter,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    drain_policy,
    migration_controller,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import surge_records

# Which evictions are left to a PodMigrationJob, decided from the live MigrationController.
#
# A job evicts as well, once resources for the successor are reserved: so it replaces the route
# ``evict`` only, never that of pods that are surged, refused or skipped. A single replica that can
# be surged is surged with every backend, because a job deletes the old pod
# before the new one serves.
#
# ``koordinator`` uses a job wherever arbitration would admit it, and ``fallback`` for the rest.
# ``auto`` uses one only if it reserves resources (mode ReservationFirst) and the object limiter
# delays the pod for at most ``job_wait`` seconds. We evict all others.


JOBBED = frozenset({"replicas", "guarded", "interruption_allowed"})
"""Codes of evictions that a job could do. The others are of pods that do not serve,
or are not replaced.
"""

RESERVES = "ReservationFirst"
POLICY = "koordinator.sh/evict-policy"
"""A pod's label that overrides the policy of the job and of the controller."""


def by_job(facts: pod_facts.PodFacts, plan: drain_policy.PodPlan) -> drain_policy.PodPlan:
    """The plan, turned into a job if one is admitted, or refused if it has to be a job."""
    controller, choices = facts.choices.controller, facts.choices
    if controller is None or choices.disable_eviction:
        return plan
    if plan.route != "evict" or plan.code not in JOBBED or plan.tolerant:
        return plan
    why = _not_admitted(facts, controller) or (
        _not_worth(facts, controller) if choices.backend == "auto" else None
    )
    if why is None:
        reserves = controller.default_job_mode == RESERVES
        when = "once its resources are reserved" if reserves else "as soon as arbitration admits it"
        return replace(
            plan, route="job", reason=f"{plan.reason} A PodMigrationJob moves it {when}."
        )
    if choices.backend == "koordinator" and choices.fallback == "fail":
        reason = f"{why.message} So no PodMigrationJob can move it, and fallback is fail."
        remedy = (
            f"{why.remedy} Or allow an eviction: {reasons.options(fallback='eviction')}.".strip()
        )
        return replace(plan, route="refuse", code="no_job", reason=reason, remedy=remedy)
    return replace(
        plan, reason=f"{plan.reason} It is evicted without a PodMigrationJob: {why.message}"
    )


def without_job(plan: drain_policy.PodPlan, why: str) -> drain_policy.PodPlan:
    """The plan of a pod that is evicted because no job has moved it."""
    return replace(
        plan, route="evict", reason=f"{plan.reason} That did not happen: {why} So it is evicted."
    )


def _not_admitted(
    facts: pod_facts.PodFacts, controller: migration_controller.Controller
) -> reasons.Reason | None:
    policy = facts.pod.labels.get(POLICY, "Eviction")
    if policy != "Eviction":
        return reasons.Reason(
            "eviction_policy",
            f"Its label {POLICY} is {policy}: a job would not ask its budgets, or never evict it.",
            "Remove the label.",
        )
    reserves = controller.default_job_mode == RESERVES
    return causes.forbidden(facts.context.snapshot, facts.pod, controller) or (
        causes.unserved(facts.pod, controller) if reserves else None
    )


def _not_worth(
    facts: pod_facts.PodFacts, controller: migration_controller.Controller
) -> reasons.Reason | None:
    if controller.default_job_mode != RESERVES:
        return reasons.Reason(
            "mode",
            f"The MigrationController's mode is {controller.default_job_mode}: "
            "it reserves nothing.",
        )
    seconds = _limiter_wait(facts, controller)
    if seconds <= facts.choices.job_wait:
        return None
    return reasons.Reason(
        "object_limiter", f"The object limiter would delay it for {seconds:.0f} s."
    )


def _limiter_wait(facts: pod_facts.PodFacts, controller: migration_controller.Controller) -> float:
    """Seconds until the limiters admit this pod after its siblings on the leaving nodes,
    and after others before.
    """
    replicas = facts.workload.replicas if facts.workload else 0
    moment = decoding.moment(facts.context.now)
    waits = [0.0]
    for scope, key in object_limiter.keys_of(facts.pod):
        gap, burst = migration_controller.interval(controller, scope, replicas)
        if gap:
            taken = facts.context.evictions.get((scope, key), ()) if moment else ()
            count = facts.context.place_in_line(scope, key, facts.pod) + 1
            start = moment.timestamp() if moment else 0.0
            waits.append(object_limiter.departures(taken, gap, burst, count, start)[-1] - start)
    return max(waits)


# What becomes of a pod's route when its successor may come straight back,
# because the pod tolerates the maintenance.
#
# A successor whose template names the node itself does, too: no scheduler is asked where it goes.


TOLERATES = "tolerates_maintenance"

WHATEVER_IT_TOLERATES = frozenset(
    {
        "mirror",
        "daemonset",
        "not_selected",
        "self_on_node",
        "left_by_rule",
        "terminating",
        "stuck_terminating",
        "finished",
    }
)
"""Codes that apply to a pod whatever it tolerates."""


def rerouted(facts: pod_facts.PodFacts, plan: drain_policy.PodPlan) -> drain_policy.PodPlan:
    """A pod that tolerates both cordon and taint, or whose template names its node, comes straight
    back: it moves once.

    One that was not there when the drain began has come back, and so has every one on a node that
    was emptied before. (Timestamps cannot tell: a pod's are by the API server's clock, and ours by
    our own.) If it cannot simply be evicted it stays, because a surge's new pod may be scheduled to
    the same node. What would lose data or needs consent is refused as for any other pod.
    """
    holding, emptied = facts.context.keeps_out(facts.pod.node)
    named = facts.workload is not None and facts.workload.pod_spec.get("nodeName") == facts.pod.node
    if not named and node_taints.untolerated(facts.pod.tolerations, holding):
        return plan
    why = "its template names this node" if named else "it tolerates the cordon and our taint"
    plan = replace(plan, tolerant=True)
    if plan.route not in ("evict", "surge") or facts.surge or plan.code == "unhealthy_blocked":
        return plan
    known = facts.context.known
    if emptied or (known is not None and facts.pod.uid not in known):
        reason = f"It came back after it was moved: {why}."
        return replace(plan, route="skip", code=TOLERATES, reason=reason, budgets=(), guarded=False)
    if plan.route == "surge":
        reason = f"A new pod might come to the same node, as {why}: it stays."
        what = "nodeName from the template" if named else "the toleration"
        remedy = f"Remove {what} if it should leave nodes in maintenance."
        return replace(plan, route="skip", code=TOLERATES, reason=reason, remedy=remedy)
    return replace(plan, code=TOLERATES, reason=f"{plan.reason} It is moved only once, as {why}.")


def routes(
    snapshot: snapshots.Snapshot,
    nodes: t.Collection[str],
    choices: drain_policy.DrainPolicy,
    *,
    now: str = "",
    known: frozenset[str] | None = None,
    only: t.Container[str] | None = None,
    unreplaced: t.Mapping[str, str] | None = None,
) -> tuple[drain_policy.PodPlan, ...]:
    """Every pod on the nodes with its route; of ``only`` these, by UID.

    ``now`` (RFC 3339, UTC, the API server's clock) tells which pods are past their grace period.
    ``known`` are the UIDs of the pods that were there when the drain began; ``None``: it begins
    now. ``unreplaced``: why no replacement of pods of these workloads came to serve, by their UIDs.
    The snapshot needs nodes, pods, budgets, leases and the kinds of the pods' controllers; claims
    and volumes if ``devices.volume_claimants`` says so, others if ``replacement.kinds``.

    Raises:
        ValueError: ``pod_selector`` is not a label selector.
    """
    context = pod_facts.RoutingContext(
        snapshot,
        choices=choices,
        leaving=frozenset(nodes),
        now=now,
        selector=selectors.parse(choices.pod_selector),
        surges={s.uid: s for s in surge_records.surges_in(snapshot)},
        unreadable=surge_records.unreadable(snapshot),
        known=known,
        unreplaced=unreplaced or {},
    )
    pods = snapshot.pods_on(context.leaving)
    return tuple(
        _plan(pod_facts.PodFacts(context, pod)) for pod in pods if only is None or pod.uid in only
    )


def left_to_move(
    snapshot: snapshots.Snapshot, nodes: t.Collection[str], choices: drain_policy.DrainPolicy
) -> tuple[objects.Pod, ...]:
    """The pods because of which the nodes are not drained.

    These include pods that were not selected, but no pods that tolerate the maintenance
    and would come back.
    """
    plans = routes(snapshot, nodes, choices)
    return tuple(
        p.pod for p in plans if p.code == "not_selected" or (p.route != "skip" and not p.tolerant)
    )


def _plan(facts: pod_facts.PodFacts) -> drain_policy.PodPlan:
    plan = next(found for found in (rule(facts) for rule in disposition_rules.RULES) if found)
    if facts.pod.node in facts.choices.fenced and unreachable.lost(
        facts.context.snapshot.nodes.get(facts.pod.node)
    ):
        return unreachable.fenced(plan)
    if facts.bad_surge and plan.route in ("surge", "replace", "evict"):
        return facts.plan("refuse", "bad_surge", str(facts.bad_surge))
    if plan.code in WHATEVER_IT_TOLERATES:
        return plan
    return by_job(facts, replacement.rerouted(facts, rerouted(facts, plan)))
