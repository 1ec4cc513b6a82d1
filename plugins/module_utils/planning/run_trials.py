# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Asks the API server by dry runs whether webhooks or policies would refuse a maintenance."""

from __future__ import annotations

import functools
import re
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import plan_needs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    admission,
    api_changes,
    names,
    objects,
    operators,
    run_context,
    run_requests,
    snapshots,
    virtual_machines,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    released,
    replacement,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    guard_budgets,
    run_lock_policy,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import steps

# What a maintenance is going to write where webhooks or admission policies may refuse it:
# tried before it begins.
#
# For each namespace one change of each kind, as a dry run: an eviction, a guard, the patches of a
# pod (for a surge, for a hook), and the count of a surge; and for each workload those that let a
# pod of it go. None ends a pod of which an operator or a virtual machine answers an eviction: there
# a refusal is how the move begins.


MAX_TRIALS = 300
"""So many trials at most."""
_WHO = re.compile(r"""webhook "[^"]+"|\w*AdmissionPolicy '[^']+'""")

Make = functools.partial[t.Any]
"""What makes a change, or ``None``; its function says of which kind."""
Request = tuple[str, str, str]
"""API group, resource and operation, as rules of webhooks name them."""
ENDING: t.Mapping[bool, Request] = {
    False: ("", "pods/eviction", "CREATE"),
    True: ("", "pods", "DELETE"),
}
"""How pods are ended: by an eviction, or by a deletion."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One change, and the pods of its namespace that need such a change.

    ``lets_go``: the pods are let go by their ReplicaSet; where that is refused, they have another
    way. ``by_others``: a controller writes it after that.
    """

    namespace: str
    change: api_changes.Change
    lets_go: bool = False
    by_others: bool = False
    plans: list[drain_policy.PodPlan] = field(default_factory=list)


def trials(
    snapshot: snapshots.Snapshot,
    plans: t.Iterable[drain_policy.PodPlan],
    choices: drain_policy.DrainPolicy,
    judges: t.Sequence[admission.Judge],
    rules: t.Iterable[hook_definitions.Rule] = (),
) -> list[Trial]:
    """What is to be tried; empty where nobody is asked. ``rules`` are those of hooks."""
    handshakes = [rule for rule in rules if rule.action == "annotation"]
    metas = [raw["metadata"] for raw in snapshot.namespaces]
    labels = {meta["name"]: meta.get("labels") or {} for meta in metas}
    wanted = operators.selectors_of(choices.reactive_budgets)

    @functools.cache
    def judged(request: Request, namespace: str) -> bool:
        return any(judge.judges(*request, labels.get(namespace)) for judge in judges)

    found: dict[t.Any, Trial] = {}
    for plan in plans:
        space = plan.pod.namespace
        for request, make in _changes(snapshot, plan, choices, handshakes):
            if not judged(request, space):
                continue
            if request in ENDING.values() and _answered(snapshot, plan.pod, wanted):
                continue
            lets_go = make.func is released.trial
            by_others = make.keywords.get("gone", False)
            about = plan.workload if lets_go else None
            key = (request, make.func, space, about, by_others)
            if key not in found and (change := make()):
                found[key] = Trial(space, change, lets_go, by_others)
            if key in found:
                found[key].plans.append(plan)
    return list(found.values())


def _changes(
    snapshot: snapshots.Snapshot,
    plan: drain_policy.PodPlan,
    choices: drain_policy.DrainPolicy,
    handshakes: t.Sequence[hook_definitions.Rule],
) -> t.Iterator[tuple[Request, Make]]:
    pod = plan.pod
    workload = snapshot.workload_of(plan.pod)
    if plan.route == "replace" and plan.code == replacement.FIRST and workload:
        yield ("", "pods", "UPDATE"), functools.partial(released.trial, pod, workload)
        yield ("", "pods", "UPDATE"), functools.partial(released.trial, pod, workload, gone=True)
    if plan.route in ("evict", "replace") and not pod.finished:
        delete = choices.disable_eviction
        yield ENDING[delete], functools.partial(api_changes.eviction, pod, delete=delete)
    if hook_definitions.calls_for(handshakes, plan):
        announced = functools.partial(hook_definitions.announcement, pod, pod.created)
        yield ("", "pods", "UPDATE"), announced
    if plan.guarded:
        guard = functools.partial(_guard, snapshot, plan)
        yield ("policy", "poddisruptionbudgets", "CREATE"), guard
    if plan.route == "surge" and workload and workload.kind in plan_needs.PLURALS:
        yield ("", "pods", "UPDATE"), functools.partial(steps.cost, pod, names.LOWEST_COST)
        group, plural = plan_needs.PLURALS[workload.kind]
        raised = functools.partial(steps.scale, workload, workload.replicas + 1)
        yield (group, f"{plural}/scale", "UPDATE"), raised


def _guard(snapshot: snapshots.Snapshot, plan: drain_policy.PodPlan) -> api_changes.Change | None:
    guards = guard_budgets.guards(snapshot, [plan])
    return next((guard.change for guard in guards if not guard.instead), None)


def _answered(
    snapshot: snapshots.Snapshot, pod: objects.Pod, wanted: t.Sequence[objects.Raw]
) -> bool:
    if virtual_machines.runs_in(pod):
        return True
    budget = next(iter(snapshot.budgets_of(pod)), None)
    return operators.operator_of(snapshot, pod, budget, wanted) is not None


def findings(refused: t.Iterable[tuple[Trial, str]]) -> list[reasons.Finding]:
    """One for each webhook or policy and kind of change, in the words of the first refusal."""
    groups: dict[tuple[str, str, bool], list[tuple[Trial, str]]] = {}
    for trial, words in refused:
        who = _WHO.search(words)
        key = (who.group() if who else "admission", trial.change.verb, trial.lets_go)
        groups.setdefault(key, []).append((trial, words))
    return [_finding(key[0], group) for key, group in groups.items()]


def unreplaced(refused: t.Iterable[tuple[Trial, str]]) -> dict[str, str]:
    """Why pods of these workloads, by their UIDs, may not be let go."""
    found = {}
    for trial, words in refused:
        for plan in trial.plans:
            if trial.lets_go and plan.workload:
                found[plan.workload.uid] = words
    return found


def _finding(who: str, group: t.Sequence[tuple[Trial, str]]) -> reasons.Finding:
    trial, words = group[0]
    plans: list[drain_policy.PodPlan] = []
    places: list[str] = []
    for one, _words in group:
        plans += one.plans
        places += [str(plan.workload) for plan in one.plans] if trial.lets_go else [one.namespace]
    where = reasons.listed(list(dict.fromkeys(places)))
    message = f"A dry run in {where} is refused ({trial.change.sentence}): {words.rstrip('.')}."
    remedy = "Comply with it, or ask its owner to let the maintenance pass."
    if trial.lets_go:
        message = f"{message} So its pods are not replaced first."
        remedy = f"{remedy} Or choose another way by the annotation {names.METHOD} of the workload."
    nodes = tuple(dict.fromkeys(plan.pod.node for plan in plans))
    severity: reasons.Severity = "warning" if trial.lets_go else "blocker"
    return reasons.Finding("webhook_refuses", message, remedy, severity, who, nodes)


def untried(count: int) -> list[reasons.Finding]:
    """A finding if there were more dry runs to make than are made."""
    if count <= MAX_TRIALS:
        return []
    who = "admission webhooks and policies"
    message = f"Of {count} dry runs of what {who} may refuse, {MAX_TRIALS} were made."
    return [reasons.Finding("not_checked", message, severity="info", object=who)]


def refused(
    ctx: run_context.Context,
    snapshot: snapshots.Snapshot,
    plans: t.Iterable[drain_policy.PodPlan],
    choices: drain_policy.DrainPolicy,
    judges: t.Sequence[admission.Judge],
    rules: t.Iterable[hook_definitions.Rule],
) -> tuple[list[reasons.Finding], t.Mapping[str, str]]:
    """The refusals, and why pods of workloads, by their UIDs, may not be let go.

    What budgets, quotas or missing rights refuse is found elsewhere.
    """
    wanted = trials(snapshot, plans, choices, judges, rules) if judges else []
    some = wanted[:MAX_TRIALS]
    with ctx.clock.pool(run_requests.MAX_PARALLEL, "dry runs") as pool:
        words = pool.map(functools.partial(_refusal, ctx), some)
        refusals = [(trial, text) for trial, text in zip(some, words, strict=True) if text]
    return [*findings(refusals), *untried(len(wanted))], unreplaced(refusals)


def _refusal(ctx: run_context.Context, trial: Trial) -> str:
    """What a webhook or policy says against the change; empty where none does."""
    error = run_lock_policy.refusal(ctx, trial.change, by_others=trial.by_others)
    return error.message if error else ""
