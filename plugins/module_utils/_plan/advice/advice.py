# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What would remove each obstacle of a plan, from what the plan knows: only routes of refused pods are made again."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.advice import changes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    budgets,
    objects,
    pod_plan,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.preflight import planning
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import held, migrate, replacing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import guards

CROWDED = ("no_room", "preempts", "last_schedulable_node", "quota_forbids_surge")
"""Blockers that are about what a wave takes out at a time, not about a pod's route."""
OF_WAVES = ("last_schedulable_node", "quota_forbids_surge")
"""Those of them that no node has alone."""
FORCE = ("force", True, "Delete for good the pods that nothing recreates.")
ALLOW = ("allow_interruption", True, "Allow interruptions: what cannot be moved without one is down for a while.")
OPTIONS: t.Mapping[str, tuple[str, bool | str, str]] = {
    "bare_pod": FORCE,
    "daemonset_gone": FORCE,
    "daemonset": ("ignore_daemonsets", True, "Leave the pods of DaemonSets where they are."),
    "emptydir": ("delete_emptydir_data", True, "Allow that the data in emptyDir volumes is lost."),
    "no_job": ("fallback", "eviction", "Evict the pods that no PodMigrationJob can move."),
}
"""What may let refused pods go, by code; of others it is the consent. Whether it does is for their routes to tell."""
OBJECTS = 10
"""For how many objects of an obstacle changes of their own are told."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Changes against what is in the way of a plan: findings of these codes.

    An option is for all of the objects, any other change for the one that it names.
    """

    codes: tuple[str, ...]
    objects: tuple[str, ...]
    changes: tuple[changes.Change, ...]

    def to_dict(self) -> dict[str, t.Any]:
        """As modules return it."""
        listed = [change.to_dict() for change in self.changes]
        return {"codes": list(self.codes), "objects": list(self.objects), "changes": listed}


def advice(snapshot: snapshots.Snapshot, wanted: planning.Wanted, plan: planning.Plan) -> tuple[Advice, ...]:
    """What people can do against the blockers of the plan, and against those that stand behind a consent."""
    found, left = _refused(snapshot, wanted, plan)
    groups: dict[tuple[str, bool], list[pod_plan.PodPlan]] = {}
    for one in found:
        what = one.code if one.code in pod_plan.BUDGET_FORBIDS else _option(one.code)[0]
        groups.setdefault((what, _key(one) not in left), []).append(one)
    told = [_of_pods(snapshot, group, helps=helps) for (_what, helps), group in groups.items()]
    told += [_of_room(snapshot, wanted, plan, code) for code in CROWDED]
    return tuple(one for one in told if one.changes)


def _refused(
    snapshot: snapshots.Snapshot, wanted: planning.Wanted, plan: planning.Plan
) -> tuple[list[pod_plan.PodPlan], set[tuple[str, str]]]:
    """The pods that are not let go, also those for another reason once consents are given, and what is left then."""
    nodes = [name for name in wanted.nodes if name in snapshot.nodes]
    found: dict[tuple[str, str], pod_plan.PodPlan] = {}
    choices, left = wanted.choices, _kept(plan.draft.plans)
    while not left.keys() <= found.keys():
        found |= {key: one for key, one in left.items() if key not in found}
        given: dict[str, t.Any] = {name: value for name, value, _text in (_option(code) for code, _uid in found)}
        choices = replace(choices, **given)
        uids = {uid for _code, uid in left}
        left = _kept(migrate.routes(snapshot, nodes, choices, now=wanted.now, only=uids, unreplaced=wanted.unreplaced))
    return list(found.values()), set(left)


def _kept(plans: t.Iterable[pod_plan.PodPlan]) -> dict[tuple[str, str], pod_plan.PodPlan]:
    return {_key(plan): plan for plan in plans if plan.route == "refuse" or plan.code == "unhealthy_blocked"}


def _key(plan: pod_plan.PodPlan) -> tuple[str, str]:
    return plan.code, plan.pod.uid


def _option(code: str) -> tuple[str, bool | str, str]:
    return OPTIONS.get(code, ALLOW)


def _of_pods(snapshot: snapshots.Snapshot, group: t.Sequence[pod_plan.PodPlan], *, helps: bool) -> Advice:
    owners = {str(one.workload or one.pod.ref): one for one in group}
    own: list[changes.Change] = []
    if group[0].code in pod_plan.BUDGET_FORBIDS:
        own = [change for one in list(owners.values())[:OBJECTS] for change in _budgets(snapshot, one)]
    elif helps and _option(group[0].code) == ALLOW:
        own = _consents(snapshot, owners.values())
    option = _option(group[0].code) if helps else None
    return _advice([one.code for one in group], owners, own, option)


def _advice(
    codes: t.Iterable[str],
    subjects: t.Collection[str],
    own: t.Iterable[changes.Change],
    option: tuple[str, bool | str, str] | None,
) -> Advice:
    """What concerns its owner alone comes first, unless that is asked of many."""
    of_all = [changes.set_option(*option)] if option else []
    each = list(dict.fromkeys(own))
    ordered = [*each, *of_all] if len(subjects) == 1 else [*of_all, *each]
    return Advice(tuple(dict.fromkeys(codes)), tuple(subjects), tuple(ordered))


def _consents(snapshot: snapshots.Snapshot, plans: t.Collection[pod_plan.PodPlan]) -> list[changes.Change]:
    found: list[changes.Change] = []
    for one in list(plans)[:OBJECTS]:
        workload = snapshot.workload_of(one.pod)
        found += [changes.choose_surge(workload)] if workload and one.code == replacing.NOT_REPLACED else []
        found.append(changes.allow_interruption((workload or one.pod).ref))
    return found


def _budgets(snapshot: snapshots.Snapshot, plan: pod_plan.PodPlan) -> list[changes.Change]:
    over = [one for one in snapshot.budgets_of(plan.pod) if not guards.is_one(snapshot, one)]
    # An operator would write its own budget again.
    free = [one for one in over if not one.owners]
    if plan.code == "two_budgets":
        # The one that allows the most is missed the least.
        loosest = sorted(free, key=lambda one: (-one.allowed, one.name))
        return [changes.delete_budget(one, next(other for other in over if other is not one)) for one in loosest]
    found = []
    workload = snapshot.workload_of(plan.pod)
    if workload and any(_by_count(one) for one in over):
        more = changes.add_replica(snapshot, workload)
        found += [more] if more else []
    blocking = (one for one in free if budgets.fully_blocking(snapshot, one) or one.sync_failed)
    return found + [changes.relax_budget(snapshot, one) for one in blocking]


def _by_count(budget: objects.Budget) -> bool:
    """Whether one more healthy pod is one more that may be missing: not of a share, nor of a rule that allows none."""
    return isinstance(budget.min_available, int) and not budget.sync_failed


def _of_room(snapshot: snapshots.Snapshot, wanted: planning.Wanted, plan: planning.Plan, code: str) -> Advice:
    mine = [finding for finding in plan.findings if (finding.code, finding.severity) == (code, "blocker")]
    subjects = dict.fromkeys(finding.object for finding in mine)
    found: list[changes.Change] = []
    # Nodes that stay out are out together, whatever their waves are.
    several = mine and not wanted.evacuates and any(len(wave) > 1 for wave in plan.draft.waves)
    if several and (code in OF_WAVES or any(one.first for one in plan.placed.values())):
        found.append(changes.set_option("serial", 1, "Take out one node at a time."))
    if mine and code == "last_schedulable_node":
        idle = (one for one in snapshot.nodes.values() if one.unschedulable and one.ready and not held.recorded(one))
        found += [changes.uncordon(node) for node in idle if node.name not in wanted.nodes][:OBJECTS]
    stuck = {str(one.workload): one for one in plan.draft.plans if one.interruption == "possible"}
    stuck = {name: one for name, one in stuck.items() if name in subjects}
    return _advice([code], subjects, [*found, *_consents(snapshot, stuck.values())], ALLOW if stuck else None)
