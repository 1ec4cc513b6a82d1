# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What would remove each obstacle of a plan: only routes of refused pods are made again."""

from __future__ import annotations

import json
import typing as t
from dataclasses import asdict, dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    budgets,
    names,
    objects,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    dispositions,
    other_runs,
    replacement,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import (
    drafts,
    preflight,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import guard_budgets

# Changes that people can make to a cluster or to a call, each with the command that makes
# it and its way back.


@dataclass(frozen=True, slots=True)
class Change:
    """One change: ``code`` is what is done, to the object of ``kind``, ``namespace`` and ``name``
    (empty: to the call).

    ``command`` does it, or is the argument that does. ``back`` takes it back after the maintenance,
    empty where nothing is left.
    """

    code: str
    text: str
    command: str
    kind: str = ""
    namespace: str = ""
    name: str = ""
    back: str = ""

    def to_dict(self) -> dict[str, str]:
        return asdict(self)

    @classmethod
    def of(cls, code: str, ref: objects.Ref, text: str, command: str, back: str) -> Change:
        return cls(code, text, command, ref.kind, ref.namespace, ref.name, back)


def delete_budget(budget: objects.Budget, other: objects.Budget) -> Change:
    """Two budgets select the same pods, and the API server then evicts none of them."""
    text = f"Delete {budget.ref}, or narrow its selector: {other.ref} selects the same pods."
    what = f"pdb {budget.name} {_in(budget)}"
    command = f"kubectl get {what} -o yaml > {budget.name}.yaml && kubectl delete {what}"
    back = f"kubectl apply -f {budget.name}.yaml"
    return Change.of("delete_budget", budget.ref, text, command, back)


def relax_budget(snapshot: snapshots.Snapshot, budget: objects.Budget) -> Change:
    """The budget allows one disruption.

    By a maxUnavailable where its pods have a controller with a scale subresource, which its
    controller requires, else by a lower minAvailable.
    """
    selected = list(snapshot.selected(budget.namespace, budget.selector))
    covered = [pod for pod in selected if not pod.finished]
    # Of finished pods the controller has to exist, too. A status that could not be computed says
    # nothing of its pods.
    scaled = bool(covered) and not budget.sync_failed and all(map(snapshot.workload_of, selected))
    expected = len(covered) if budget.sync_failed else budget.expected or len(covered)
    rule = {"maxUnavailable": 1, "minAvailable": None}
    if not scaled:
        rule = {"maxUnavailable": None, "minAvailable": max(0, expected - 1)}
    pairs = {key: "none" if value is None else value for key, value in rule.items()}
    shown = " and ".join(f"{key}: {value}" for key, value in pairs.items())
    text = f"Let {budget.ref} allow one disruption ({shown})."
    before = {"maxUnavailable": budget.max_unavailable, "minAvailable": budget.min_available}
    command, back = (
        f"kubectl patch pdb {budget.name} {_in(budget)} --type=merge -p '{_compact(each)}'"
        for each in (rule, before)
    )
    return Change.of("relax_budget", budget.ref, text, command, back)


def allow_interruption(ref: objects.Ref) -> Change:
    """The consent of the workload's owner, or of the pod's if it has no workload that is known."""
    text = f"Allow that {ref} is interrupted: it is down until its pod serves again."
    what = f"{_resource(ref)} {ref.name} -n {ref.namespace} {names.ALLOW_INTERRUPTION}"
    annotate = f"kubectl annotate {what}"
    return Change.of("allow_interruption", ref, text, f"{annotate}=true", f"{annotate}-")


def choose_surge(workload: objects.Workload) -> Change:
    """Its owner chooses that it is surged, where its pods may not be let go."""
    text = (
        f"Surge {workload.ref} instead of replacing its pod first: "
        "that changes its replicas for a while."
    )
    before = workload.annotations.get(names.METHOD)
    what = f"{_resource(workload.ref)} {workload.name} {_in(workload)} {names.METHOD}"
    annotate = f"kubectl annotate --overwrite {what}"
    back = f"{annotate}={before}" if before else f"{annotate}-"
    return Change.of("choose_method", workload.ref, text, f"{annotate}=surge", back)


def add_replica(snapshot: snapshots.Snapshot, workload: objects.Workload) -> Change | None:
    """``None`` where it would be another member, or somebody else sets the count."""
    scaler = snapshot.autoscaler_of(workload)
    wanted = workload.replicas + 1
    if workload.owner or workload.kind == "StatefulSet":
        return None
    if scaler and (scaler.owner or scaler.maximum < wanted):
        return None
    text = f"Give {workload.ref} {wanted} replicas, if there is room for one more pod."
    scale = f"kubectl scale {_resource(workload.ref)} {workload.name} {_in(workload)} --replicas="
    command, back = f"{scale}{wanted}", f"{scale}{workload.replicas}"
    if scaler:
        text = f"Raise the minimum of {scaler.ref} to {wanted}, if there is room for one more pod."
        patch = f"kubectl patch hpa {scaler.name} {_in(scaler)} --type=merge -p"
        command, back = (
            f"{patch} '{_compact({'minReplicas': number})}'" for number in (wanted, scaler.minimum)
        )
    return Change.of("add_replica", workload.ref, text, command, back)


def uncordon(node: objects.Node) -> Change:
    """A node that somebody else keeps out of service takes pods again."""
    text = f"Uncordon {node.ref}, if nobody needs it out of service any more."
    command, back = f"kubectl uncordon {node.name}", f"kubectl cordon {node.name}"
    return Change.of("uncordon", node.ref, text, command, back)


def set_option(name: str, value: bool | int | str, text: str) -> Change:
    """An option of the plan, ``maintain_<name>`` in the playbooks."""
    shown = str(value).lower() if isinstance(value, bool) else value
    return Change("set_option", text, f"-e maintain_{name}={shown}", name=name)


def _compact(spec: objects.Raw) -> str:
    return json.dumps({"spec": spec}, separators=(",", ":"))


def _in(thing: objects.Object) -> str:
    return f"-n {thing.namespace}"


def _resource(ref: objects.Ref) -> str:
    """The kind as kubectl takes it, with its group where another one may have the same kind."""
    group = ref.api_version.partition("/")[0] if "/" in ref.api_version else ""
    return ref.kind.lower() if group in ("", "apps") else f"{ref.kind.lower()}.{group}"


CROWDED = ("no_room", "preempts", "last_schedulable_node", "quota_forbids_surge")
"""Blockers that are about what a wave takes out at a time, not about a pod's route."""
OF_WAVES = ("last_schedulable_node", "quota_forbids_surge")
"""Those of them that no node has alone."""
FORCE = ("force", True, "Delete for good the pods that nothing recreates.")
ALLOW = (
    "allow_interruption",
    True,
    "Allow interruptions: what cannot be moved without one is down for a while.",
)
OPTIONS: t.Mapping[str, tuple[str, bool | str, str]] = {
    "bare_pod": FORCE,
    "daemonset_gone": FORCE,
    "daemonset": ("ignore_daemonsets", True, "Leave the pods of DaemonSets where they are."),
    "emptydir": ("delete_emptydir_data", True, "Allow that the data in emptyDir volumes is lost."),
    "no_job": ("fallback", "eviction", "Evict the pods that no PodMigrationJob can move."),
    "budget_allows_nothing": (
        "method",
        "replace",
        "Replace pods of Deployments first, whatever their budgets allow.",
    ),
}
"""What may let refused pods go, by code; of others it is the consent. Their routes tell."""
MAX_OBJECTS = 10
"""For how many objects of one obstacle a change of its own is advised."""


@dataclass(frozen=True, slots=True)
class Advice:
    """Changes against what is in the way of a plan: findings of these codes.

    An option is for all of the objects, any other change for the one that it names.
    """

    codes: tuple[str, ...]
    objects: tuple[str, ...]
    changes: tuple[Change, ...]

    def to_dict(self) -> dict[str, t.Any]:
        listed = [change.to_dict() for change in self.changes]
        return {"codes": list(self.codes), "objects": list(self.objects), "changes": listed}


def advice(
    snapshot: snapshots.Snapshot, wanted: preflight.DraftOptions, plan: drafts.Plan
) -> tuple[Advice, ...]:
    """What people can do against the blockers, and those that stand behind a consent."""
    found, left = _refused(snapshot, wanted, plan)
    groups: dict[tuple[str, bool], list[drain_policy.PodPlan]] = {}
    for one in found:
        what = one.code if one.code in drain_policy.BUDGET_FORBIDS else _option(one.code)[0]
        groups.setdefault((what, _key(one) not in left), []).append(one)
    every = [_of_pods(snapshot, group, helps=helps) for (_what, helps), group in groups.items()]
    every += [_of_room(snapshot, wanted, plan, code) for code in CROWDED]
    return tuple(one for one in every if one.changes)


def _refused(
    snapshot: snapshots.Snapshot, wanted: preflight.DraftOptions, plan: drafts.Plan
) -> tuple[list[drain_policy.PodPlan], set[tuple[str, str]]]:
    """The pods that are not let go, also once consents are given, and what is left then."""
    nodes = [name for name in wanted.nodes if name in snapshot.nodes]
    found: dict[tuple[str, str], drain_policy.PodPlan] = {}
    choices = wanted.choices
    left = _kept(plan.draft.plans)
    while not left.keys() <= found.keys():
        found |= {key: one for key, one in left.items() if key not in found}
        consents: dict[str, t.Any] = {}
        for code, _uid in found:
            name, value, _text = _option(code)
            consents[name] = value
        choices = replace(choices, **consents)
        uids = {uid for _code, uid in left}
        plans = dispositions.routes(
            snapshot, nodes, choices, now=wanted.now, only=uids, unreplaced=wanted.unreplaced
        )
        left = _kept(plans)
    return list(found.values()), set(left)


def _kept(plans: t.Iterable[drain_policy.PodPlan]) -> dict[tuple[str, str], drain_policy.PodPlan]:
    kept = (one for one in plans if one.route == "refuse" or one.code == "unhealthy_blocked")
    return {_key(plan): plan for plan in kept}


def _key(plan: drain_policy.PodPlan) -> tuple[str, str]:
    return plan.code, plan.pod.uid


def _option(code: str) -> tuple[str, bool | str, str]:
    return OPTIONS.get(code, ALLOW)


def _of_pods(
    snapshot: snapshots.Snapshot, group: t.Sequence[drain_policy.PodPlan], *, helps: bool
) -> Advice:
    owners = {str(one.workload or one.pod.ref): one for one in group}
    own: list[Change] = []
    if group[0].code in drain_policy.BUDGET_FORBIDS:
        for plan in list(owners.values())[:MAX_OBJECTS]:
            own += _budgets(snapshot, plan)
    elif helps and _option(group[0].code) == ALLOW:
        own = _consents(snapshot, owners.values())
    option = _option(group[0].code) if helps else None
    return _advice([one.code for one in group], owners, own, option)


def _advice(
    codes: t.Iterable[str],
    subjects: t.Collection[str],
    own: t.Iterable[Change],
    option: tuple[str, bool | str, str] | None,
) -> Advice:
    """What concerns its owner alone comes first, unless that is asked of many."""
    of_all = [set_option(*option)] if option else []
    each = list(dict.fromkeys(own))
    ordered = [*each, *of_all] if len(subjects) == 1 else [*of_all, *each]
    return Advice(tuple(dict.fromkeys(codes)), tuple(subjects), tuple(ordered))


def _consents(
    snapshot: snapshots.Snapshot, plans: t.Collection[drain_policy.PodPlan]
) -> list[Change]:
    found: list[Change] = []
    for one in list(plans)[:MAX_OBJECTS]:
        workload = snapshot.workload_of(one.pod)
        if workload and one.code == replacement.NOT_REPLACED:
            found.append(choose_surge(workload))
        found.append(allow_interruption((workload or one.pod).ref))
    return found


def _budgets(snapshot: snapshots.Snapshot, plan: drain_policy.PodPlan) -> list[Change]:
    over = [one for one in snapshot.budgets_of(plan.pod) if not guard_budgets.is_one(snapshot, one)]
    # An operator would write its own budget again.
    free = [one for one in over if not one.owners]
    if plan.code == "two_budgets":
        # The one that allows the most is missed the least.
        changes = []
        for budget in sorted(free, key=lambda one: (-one.allowed, one.name)):
            other = next(other for other in over if other is not budget)
            changes.append(delete_budget(budget, other))
        return changes
    found = []
    workload = snapshot.workload_of(plan.pod)
    if workload and any(map(_by_count, over)) and (more := add_replica(snapshot, workload)):
        found.append(more)
    for budget in free:
        if budgets.fully_blocking(snapshot, budget) or budget.sync_failed:
            found.append(relax_budget(snapshot, budget))
    return found


def _by_count(budget: objects.Budget) -> bool:
    """Whether one more healthy pod is one more that may be missing: not of a share."""
    return isinstance(budget.min_available, int) and not budget.sync_failed


def _of_room(
    snapshot: snapshots.Snapshot, wanted: preflight.DraftOptions, plan: drafts.Plan, code: str
) -> Advice:
    mine = [one for one in plan.findings if (one.code, one.severity) == (code, "blocker")]
    subjects = dict.fromkeys(finding.object for finding in mine)
    found: list[Change] = []
    # Nodes that stay out are out together, whatever their waves are.
    several = mine and not wanted.evacuates and any(len(wave) > 1 for wave in plan.draft.waves)
    if several and (code in OF_WAVES or any(one.first for one in plan.placed.values())):
        found.append(set_option("serial", 1, "Take out one node at a time."))
    if mine and code == "last_schedulable_node":
        idle = [one for one in snapshot.nodes.values() if one.unschedulable and one.ready]
        idle = [one for one in idle if one.name not in wanted.nodes]
        found += [uncordon(one) for one in idle if not other_runs.recorded(one)][:MAX_OBJECTS]
    stuck = {str(one.workload): one for one in plan.draft.plans if one.interruption == "possible"}
    stuck = {name: one for name, one in stuck.items() if name in subjects}
    found += _consents(snapshot, stuck.values())
    return _advice([code], subjects, found, ALLOW if stuck else None)
