# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which pods are replaced before they leave, as their owner or the caller wants;
the others keep their way.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    objects,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    devices,
    pod_facts,
    released,
    replacement_conditions,
    unserved,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    drain_policy,
    pod_rules,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import eligibility

FIRST, NOT_REPLACED = "replaced_first", "not_replaced"
INSTEAD = frozenset(
    {
        *("single_replica", "replicas", "guarded", "budget_allows_nothing", "interruption_allowed"),
        *("autoscaler_owned", "rollout_in_progress"),
    }
)
"""Codes of plans of pods that serve, instead of which they may be replaced."""


def kinds(
    snapshot: snapshots.Snapshot, pods: t.Iterable[objects.Pod], choices: drain_policy.DrainPolicy
) -> tuple[str, ...]:
    """What is read to know whether these pods may be replaced;
    nothing if nobody wants it or none is a Deployment's.
    """
    wanted = choices.method == "replace" or any(
        rule.policy.method == "replace" for rule in choices.rules
    )
    found = any(
        names.RELEASED in pod.labels or _asked(snapshot.workload_of(pod), wanted) for pod in pods
    )
    return replacement_conditions.KINDS if found else ()


def _asked(workload: objects.Workload | None, wanted: bool) -> bool:
    if workload is None or workload.kind != "Deployment":
        return False
    return wanted or workload.annotations.get(names.METHOD) == "replace"


def rerouted(facts: pod_facts.PodFacts, plan: drain_policy.PodPlan) -> drain_policy.PodPlan:
    """The plan of a pod that is replaced before it leaves, or why it keeps its way."""
    wanted = (
        facts.method == "replace"
        and plan.code in INSTEAD
        and facts.workload is not None
        and facts.pod.ready
    )
    if (
        not wanted
        or plan.tolerant
        or facts.surge
        or facts.choices.disable_eviction
        or facts.workload is None
    ):
        return plan
    if facts.workload.uid in facts.context.unreplaced:
        return _otherwise(facts, plan, facts.context.unreplaced[facts.workload.uid])
    seen = facts.context.snapshot
    refusal = replacement_conditions.refusal(seen, facts.pod, facts.workload) or devices.refusal(
        seen, facts.pod
    )
    if refusal := refusal or devices.single_node(seen, facts.pod):
        return replace(plan, reason=f"{plan.reason} It is not replaced first: {refusal.message}")
    reason = f"{facts.workload.ref} starts another pod, and this one is evicted when that serves."
    if facts.load_balancer_wait:
        reason = f"{reason} {_leaving(facts, facts.workload)}".strip()
    reason = f"{reason} {released.shown(facts.workload)}".strip()
    if plan.route == "surge":
        reason = (
            f"{reason} If none comes to serve, it "
            f"{'is interrupted, which was allowed' if facts.consent else 'stays'}."
        )
    elif plan.route != "refuse":
        # What it would be otherwise is what it is if its replacement does not come to serve.
        reason = f"{reason} If none comes to serve: {plan.reason}"
    return replace(
        plan, route="replace", code=FIRST, reason=reason, remedy="", budgets=(), guarded=False
    )


def _leaving(facts: pod_facts.PodFacts, workload: objects.Workload) -> str:
    """Whether it leaves its Services before it ends, as text."""
    found = unserved.chosen(facts.context.snapshot, facts.pod, workload)
    if isinstance(found, reasons.Reason):
        return f"It stays in its Services until then: {found.message}"
    return f"It leaves its Services {facts.load_balancer_wait:g} s before it ends." if found else ""


def _otherwise(
    facts: pod_facts.PodFacts, plan: drain_policy.PodPlan, why: str
) -> drain_policy.PodPlan:
    """No replacement comes to serve, or it may not be let go: a surge was not prepared,
    and may wait for the same.
    """
    if plan.route != "surge":
        return replace(plan, reason=f"{plan.reason} It cannot be replaced first: {why}")
    reason = f"It cannot be replaced first: {why}"
    if facts.consent:
        return facts.plan(
            "evict", "interruption_allowed", f"{reason} Its interruption was allowed."
        )
    return facts.plan(
        "refuse", NOT_REPLACED, reason, f"Remove what prevents that, or {eligibility.ACCEPT}."
    )


def let_go(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    """A rule: a pod that this run or another one let go is evicted when others are enough.

    One that was given back has no controller until its ReplicaSet has seen that,
    and is no bare pod meanwhile.
    """
    mark = released.mark_of(facts.pod)
    if mark is None and (taker := released.taken_by(facts.context.snapshot, facts.pod)):
        return facts.plan(
            "replace", released.CODE, f"It has no controller: {taker} takes it for its own."
        )
    deployment = facts.context.snapshot.workload(mark.deployment) if mark else None
    if mark is None or deployment is None:
        # Anybody can write a mark; with its Deployment such a pod ends by itself.
        return None
    owner = mark.owner(facts.pod.namespace)
    policy = pod_rules.policy_of(facts.choices.rules, facts.pod, owner, deployment.annotations)
    reason = (
        f"It was let go by run {mark.run}: it is evicted when other pods of {owner} are "
        "enough without it."
    )
    return replace(facts.plan("replace", released.CODE, reason), workload=owner, policy=policy)
