# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What stands against a plan, and for each such problem the changes that might remove it: the gentlest first."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.advice import changes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    budgets,
    objects,
    pod_plan,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.placement import findings as placement
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.preflight import planning
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import held
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import guards, protect

NEEDS_ROOM = frozenset({"fits_nowhere", "no_room", "last_schedulable_node"})
CROWDED = frozenset({"no_room", "last_schedulable_node", "quota_forbids_surge"})
"""Problems that fewer nodes at a time may remove; by the room for pods the waves are formed already."""
BY_OPTION: t.Mapping[str, tuple[str, bool | str, str]] = {
    "bare_pod": ("force", True, "Delete for good the pods that nothing recreates."),
    "daemonset_gone": ("force", True, "Delete for good the pods that nothing recreates."),
    "emptydir": ("delete_emptydir_data", True, "Allow that the data in emptyDir volumes is lost."),
    "no_job": ("fallback", "eviction", "Evict the pods that no PodMigrationJob can move."),
}
"""The option that removes a problem: its name, its value, and what it means."""
LASTING = frozenset(
    {
        *pod_plan.BUDGET_FORBIDS,
        *BY_OPTION,
        "self_on_node",
        "not_migratable",
        "bad_rule",
        "bad_surge",
        "unreadable",
        "daemonset",
    }
)
"""Refusals that no consent to an interruption overrides."""
MOST_OTHERS = 2
"""Cordoned nodes that are tried for room."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A finding that makes the plan infeasible, or pods that fit nowhere; ``plans`` are of the pods it is about."""

    code: str
    object: str
    nodes: tuple[str, ...]
    plans: tuple[pod_plan.PodPlan, ...]


def problems(plan: planning.Plan) -> tuple[Problem, ...]:
    """All of them, blockers first; not the pods that may be down until their node is back."""
    found = [finding for finding in plan.findings if finding.severity == "blocker"]
    found += [finding for finding in plan.findings if finding.code == "fits_nowhere"]
    told = [Problem(one.code, one.object, one.nodes, _plans(plan, one)) for one in found]
    return tuple(one for one in told if not one.plans or any(p.interruption != "allowed" for p in one.plans))


def _plans(plan: planning.Plan, finding: reasons.Finding) -> tuple[pod_plan.PodPlan, ...]:
    if finding.code in ("fits_nowhere", "no_room", "preempts"):
        foreseen = ((one, plan.placed.get(one.pod.uid)) for one in plan.draft.plans)
        unplaced = [one for one, f in foreseen if f and (f.fits is False or f.victims)]
        return tuple(one for one in unplaced if placement.described(plan.placed[one.pod.uid]) in finding.message)
    same = (one for one in plan.draft.plans if one.code == finding.code)
    return tuple(
        one
        for one in same
        if finding.code in ("gang", "emptydir") or finding.object == str(one.workload or one.pod.ref)
    )


def against(now: changes.Situation, plan: planning.Plan, problem: Problem) -> list[changes.Change]:
    """The changes that may remove the problem. That they do is for the planning to tell."""
    found = [*_room(now, plan, problem), *_budgets(now, problem), *_consent(now, problem)]
    if problem.code in BY_OPTION:
        found.append(changes.set_option(*BY_OPTION[problem.code]))
    if not found and problem.code != "fits_nowhere" and (left := changes.leave_out(now, problem.nodes)):
        found.append(left)
    return found


def _room(now: changes.Situation, plan: planning.Plan, problem: Problem) -> list[changes.Change]:
    found = []
    if problem.code in CROWDED and any(len(wave) > 1 for wave in plan.draft.waves):
        found.append(changes.one_at_a_time())
    if problem.code not in NEEDS_ROOM:
        return found
    nodes = now.snapshot.nodes
    idle = [node for node in nodes.values() if node.unschedulable and node.ready and not held.recorded(node)]
    found += [changes.uncordon(node) for node in idle if node.name not in now.wanted.nodes][:MOST_OTHERS]
    if not problem.nodes:
        return found
    # The pod runs on a node of this shape, so that the same satisfies its rules.
    shape = changes.shape(nodes[problem.nodes[0]])
    like = next(node for name in now.wanted.nodes if (node := nodes.get(name)) and changes.shape(node) == shape)
    return [*found, changes.add_node(now, like)]


def _budgets(now: changes.Situation, problem: Problem) -> list[changes.Change]:
    if problem.code not in pod_plan.BUDGET_FORBIDS or not problem.plans:
        return []
    first = problem.plans[0]
    over = [one for one in now.snapshot.budgets_of(first.pod) if not guards.is_one(now.snapshot, one)]
    # An operator would write its own budget again.
    free = [one for one in over if not one.owners]
    if problem.code == "two_budgets":
        # The one that allows the most is missed the least.
        loosest = sorted(free, key=lambda one: (-one.allowed, one.name))
        return [changes.delete_budget(one, next(x for x in over if x is not one)) for one in loosest]
    found = []
    if (workload := now.snapshot.workload_of(first.pod)) and not protect.refusal(now.snapshot, workload):
        more = changes.add_replica(now, first)
        found += [more] if more else []
    found += [changes.relax_budget(now.snapshot, one) for one in free if _blocks(now, one)]
    if problem.code == "budget_allows_nothing":
        text = "Swap the pods that their budgets do not let go: a new pod serves before the old one is deleted."
        found.append(changes.set_option("swap_blocked", True, text))
    return found


def _blocks(now: changes.Situation, budget: objects.Budget) -> bool:
    return bool(budgets.fully_blocking(now.snapshot, budget) or budget.sync_failed)


def _consent(now: changes.Situation, problem: Problem) -> list[changes.Change]:
    refused = [plan for plan in problem.plans if plan.route == "refuse" or plan.interruption == "possible"]
    if problem.code in LASTING or not refused:
        return []
    text = "Allow interruptions: what cannot be moved without one is down until it serves elsewhere."
    for_all = changes.set_option("allow_interruption", True, text)
    owners = {str(plan.workload or plan.pod.ref): plan for plan in refused}
    if len(owners) > 1:
        return [for_all]
    return [changes.allow_interruption(now.snapshot, refused[0]), for_all]
