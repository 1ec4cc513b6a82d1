# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The rules that give a pod its route: the first in ``RULES`` that applies to the pod decides.

Where they follow the semantics of kubectl's drain filters or the API server's eviction handler,
so does their order.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    budgets,
    names,
    node_taints,
    objects,
    operators,
    selectors,
    virtual_machines,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    devices,
    pending,
    pod_facts,
    replacement,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import eligibility

# What is to be said of pods that run KubeVirt's virtual machines, by what their eviction leads to.


ASKS = (
    "sets evacuationNodeName of the machine once its eviction is tried, "
    "and another controller acts on that"
)
"""For the strategy External."""


def machine_of(facts: pod_facts.PodFacts) -> virtual_machines.Machine | None:
    """The machine, where its eviction is asked for and what that leads to can be known."""
    if facts.choices.disable_eviction:
        return None
    return virtual_machines.machine_of(facts.context.snapshot, facts.pod)


def eviction_denied(facts: pod_facts.PodFacts) -> reasons.Reason | None:
    """The reason where KubeVirt denies the eviction for good; no consent changes that."""
    machine = machine_of(facts)
    if machine is None or machine.on_eviction != "stays":
        return None
    message = (
        f"KubeVirt denies its eviction: {machine.ref} has the eviction strategy LiveMigrate and "
        f"cannot be migrated ({machine.why.rstrip('.')})."
    )
    remedy = (
        "Make it migratable, or stop it by hand, or set its evictionStrategy to "
        f"LiveMigrateIfPossible: then {reasons.options(allow_interruption=True)} shuts it down."
    )
    return reasons.Reason("not_migratable", message, remedy)


def waited_for(facts: pod_facts.PodFacts) -> budgets.Verdict | None:
    """That the pod stays until KubeVirt, or who acts on its behalf, has moved the machine."""
    machine = machine_of(facts)
    if machine is None or machine.on_eviction not in ("migrates", "external"):
        return None
    preset = operators.PRESETS["kubevirt"]
    acts = preset.acts if machine.on_eviction == "migrates" else ASKS
    return budgets.of_operator(
        facts.pod, None, operators.Operator(preset.project, acts, machine.ref)
    )


def shut_down(facts: pod_facts.PodFacts) -> str:
    """Why its eviction shuts the machine down; empty if it does not, or if that cannot be known."""
    machine = machine_of(facts)
    if machine is None or machine.on_eviction != "stops":
        return ""
    why = ""
    if machine.strategy != "None":
        why = f" and it cannot be migrated ({machine.why.rstrip('.')})"
    return (
        f"{machine.ref} is shut down by an eviction: its eviction strategy is "
        f"{machine.strategy}{why}."
    )


def unread(facts: pod_facts.PodFacts) -> str:
    """What would tell more of the pod, as the end of a remedy."""
    if (
        facts.choices.disable_eviction
        or not virtual_machines.runs_in(facts.pod)
        or machine_of(facts)
    ):
        return ""
    return (
        " Whether KubeVirt would migrate it instead is known where list on "
        "virtualmachineinstances.kubevirt.io and kubevirts.kubevirt.io is granted."
    )


REPLACE = f"let its pods be replaced first: {reasons.options(method='replace')}"
JOB_FINALIZER = "batch.kubernetes.io/job-tracking"
KRUISE = "apps.kruise.io"
"""The group of Kruise's DaemonSets, whose controller works as that of Kubernetes does."""


def _mirror(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    if facts.pod.mirror:
        return facts.plan("skip", "mirror", "A static pod: only its kubelet can stop it.")
    return None


def _daemon_set(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    if (
        _daemon_set_of(facts) == "there"
        and facts.choices.ignore_daemonsets
        and not _stays_away(facts)
    ):
        return facts.plan("skip", "daemonset", "Its DaemonSet would recreate it at once: it stays.")
    return None


def _daemon_set_of(facts: pod_facts.PodFacts) -> str:
    """``there``, ``gone``, or ``""`` for a pod of something else."""
    owner = facts.pod.owner
    if owner is None or owner.kind != "DaemonSet":
        return ""
    group = owner.api_version.partition("/")[0]
    if group == KRUISE:
        # They are not read: the garbage collector ends the pods of one that is gone.
        return "there"
    if group != "apps":
        return ""
    return "there" if facts.context.snapshot.daemon_set(owner.uid) else "gone"


def _stays_away(facts: pod_facts.PodFacts) -> bool:
    """Whether a rule wants a DaemonSet's pod to leave, and its controller does not recreate it
    before our taint goes.

    DaemonSet pods tolerate a cordon, but few tolerate our taint
    (``NodeShouldRunDaemonPod``, Kubernetes 1.36).
    """
    holding, _emptied = facts.context.keeps_out(facts.pod.node)
    return facts.policy.last and bool(node_taints.untolerated(facts.pod.tolerations, holding))


def _not_selected(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    pod, choices = facts.pod, facts.choices
    if choices.namespaces and pod.namespace not in choices.namespaces:
        return facts.plan(
            "skip", "not_selected", f"Namespace {pod.namespace} is not one of the selected ones."
        )
    if not selectors.matches(facts.context.selector, pod.labels):
        return facts.plan(
            "skip", "not_selected", f"pod_selector {choices.pod_selector} does not match it."
        )
    return None


def _self(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    me, pod = facts.choices.self_pod, facts.pod
    same_place = me and me.name == pod.name and me.namespace in ("", pod.namespace)
    if me is None or not (me.uid == pod.uid if me.uid else same_place):
        return None
    return facts.plan(
        "refuse",
        "self_on_node",
        "This play runs in it: evicting it would abort the maintenance.",
        "Run the play from a pod on another node (for AWX: an instance group or pod spec that "
        f"keeps its job pods off {pod.node}), or leave {pod.node} for another run.",
    )


def _left_by_rule(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    policy = facts.policy
    if policy.fault:
        remedy = "Correct or remove the annotation."
        return facts.plan(
            "refuse",
            "bad_rule",
            f"What {policy.rule} ask for cannot be read: {policy.fault}.",
            remedy,
        )
    if not policy.skip:
        return None
    if facts.surge:
        why = f"By {policy.rule} it stays on the node, but its surge is prepared already."
        return facts.plan(
            "refuse",
            "bad_rule",
            why,
            "Call pdb_guard with state=absent, and again with the same rules.",
        )
    return facts.plan("skip", "left_by_rule", f"By {policy.rule} it stays on the node.")


def _daemon_set_in_the_way(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    if _daemon_set_of(facts) == "there" and not _stays_away(facts) and not facts.pod.finished:
        why = "A pod of a DaemonSet cannot be moved, and ignore_daemonsets is false."
        return facts.plan(
            "refuse",
            "daemonset",
            why,
            "Set ignore_daemonsets: true to leave such pods where they are.",
        )
    return None


def _evictable(facts: pod_facts.PodFacts, code: str, reason: str) -> drain_policy.PodPlan:
    """Evicted under its budget, unless that can never allow it;
    consent does not override a budget.
    """
    if facts.choices.disable_eviction:
        return facts.plan(
            "evict", "disable_eviction", f"{reason} It is deleted without checking its budgets."
        )
    verdict = budgets.diagnose(facts.context.unguarded, facts.pod, facts.context.with_operators)
    match verdict.code:
        case "two_budgets":
            return facts.plan("refuse", "two_budgets", verdict.message, verdict.remedy)
        case "operator_budget" | "unhealthy_blocked":
            return facts.plan("evict", verdict.code, verdict.message, verdict.remedy)
    if verdict.lasting:
        return facts.plan("refuse", "budget_allows_nothing", verdict.message, verdict.remedy)
    return facts.plan("evict", code, reason)


def _terminating(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    pod = facts.pod
    if not pod.deleting:
        return None
    if holders := [f for f in pod.finalizers if f != JOB_FINALIZER]:
        why = f"It is terminating, and held by finalizers {', '.join(holders)}."
        remedy = "Whoever set the finalizers has to remove them; it is never force-deleted."
    elif facts.context.now[:19] > pod.deadline[:19]:
        why = f"It is still there although its grace period ended at {pod.deadline}."
        remedy = f"Check the kubelet of {pod.node}; it is never force-deleted."
    else:
        return facts.plan("wait", "terminating", "It is terminating already.")
    return facts.plan("wait", "stuck_terminating", why, remedy)


def _finished(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    if facts.pod.finished:
        return facts.plan(
            "evict", "finished", f"It has finished ({facts.pod.phase}): no budget applies to it."
        )
    return None


def _unreadable(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    found = facts.context.snapshot.unreadable_for(facts.pod)
    if not found:
        return None
    why = (
        "It is unknown how it may leave: "
        f"{'; '.join(f'{parts} of {ref} cannot be read' for ref, parts in found)}."
    )
    return facts.plan(
        "refuse",
        "unreadable",
        why,
        "Look at what is named with `kubectl get -o yaml`, and correct it.",
    )


def _daemon_set_gone(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    if _daemon_set_of(facts) != "gone" or facts.choices.force:
        return None
    remedy = f"Delete the pod if nobody needs it, or set {_forced(facts)}."
    return facts.plan(
        "refuse", "daemonset_gone", "Its DaemonSet is gone: nothing would recreate it.", remedy
    )


def _forced(facts: pod_facts.PodFacts) -> str:
    """The options without which a pod that nothing recreates is not evicted."""
    return reasons.options(
        force=True, **({"delete_emptydir_data": True} if facts.pod.empty_dirs else {})
    )


def _waits_by_rule(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    policy = facts.policy
    if not policy.wait:
        return None
    if facts.workload is not None:
        why = (
            f"By {policy.rule} it is left to finish, but pods of {facts.workload.ref} never finish."
        )
        return facts.plan(
            "refuse",
            "bad_rule",
            why,
            "Let the rule select pods of Jobs or without a controller only.",
        )
    return facts.plan("wait", "waits_by_rule", f"By {policy.rule} it is left to finish.")


def _job(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    owner = facts.pod.owner
    if owner is None or owner.kind != "Job":
        return None
    waiting = facts.plan(
        "wait",
        "job",
        f"It runs for {owner} and is left to finish: an eviction would count "
        "against the backoffLimit.",
        f"Wait, or set {reasons.options(allow_interruption=True)}.",
    )
    if not facts.consent:
        return waiting
    if facts.pod.empty_dirs and not facts.choices.delete_emptydir_data:
        remedy = (
            f"Wait, or set {reasons.options(delete_emptydir_data=True, allow_interruption=True)}."
        )
        reason = f"{waiting.reason} The data of its emptyDir would be lost as well."
        return replace(waiting, reason=reason, remedy=remedy)
    evicted = _evictable(facts, "interruption_allowed", f"{owner} may be interrupted.")
    return waiting if evicted.route == "refuse" else evicted


def _bare(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    if facts.pod.owner is not None or facts.choices.force:
        return None
    remedy = f"Move it by hand, or set {_forced(facts)}."
    return facts.plan(
        "refuse", "bare_pod", "No controller owns it: nothing would recreate it.", remedy
    )


def _pending(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    if facts.pod.phase == "Pending":
        return facts.plan(
            "evict",
            "pending",
            "It has not started: there is nothing to interrupt, and no budget applies.",
        )
    return None


def _denied_machine(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    """A denied eviction; this rule comes before all that consent could change."""
    denied = eviction_denied(facts)
    return facts.plan("refuse", denied.code, denied.message, denied.remedy) if denied else None


def _empty_dir(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    if not facts.pod.empty_dirs or facts.choices.delete_emptydir_data:
        return None
    use = {name: f" ({why})" for name, why in facts.pod.scratch.items()}
    named = ", ".join(f"{name}{use.get(name, '')}" for name in facts.pod.empty_dirs)
    why = f"The data of its emptyDir {named} would be lost."
    remedy = f"Set {reasons.options(delete_emptydir_data=True)} if that data may be deleted."
    return facts.plan("refuse", "emptydir", why, remedy)


def _local_volume(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    why = devices.bound_here(facts.context.snapshot, facts.pod)
    if not why:
        return None
    if facts.consent:
        return _evictable(
            facts, "local_volume", f"{why}. It is down until the node is back, which was allowed."
        )
    return facts.plan(
        "refuse",
        "local_volume",
        f"{why}. It cannot run on another node and would be down until the node is back.",
        f"Move the data, or set {reasons.options(allow_interruption=True)}; "
        "the volume itself stays as it is.",
    )


def _daemon_set_last(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    if _daemon_set_of(facts) != "there":
        return None
    why = (
        f"By {facts.policy.rule} it leaves after all other pods. "
        "Its DaemonSet recreates it once the node returns."
    )
    return _evictable(facts, "daemonset_last", why)


def _forced_out(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    if _daemon_set_of(facts) == "gone":
        return _evictable(
            facts, "daemonset_gone", "Its DaemonSet is gone; force allows its eviction."
        )
    if facts.pod.owner is not None:
        return None
    return _evictable(
        facts, "bare_pod", "No controller owns it; force allows its eviction for good."
    )


def _two_budgets(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    """Also for pods that would be surged: a new pod of theirs that fails
    could never be evicted.
    """
    if len(facts.budgets) < 2:
        return None
    plan = _evictable(facts, "two_budgets", "")
    return plan if plan.code == "two_budgets" else None


def _scaled_down(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    if facts.workload is None or facts.replicas > 0:
        return None
    return _evictable(
        facts, "scaled_down", f"{facts.workload.ref} is scaled to 0: none of its pods should run."
    )


def _not_ready(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    if facts.pod.ready:
        return None
    return _evictable(
        facts, "not_ready", "It does not serve (it is not Ready), so it is evicted and not surged."
    )


def _prepared(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    if facts.surge is None:
        return None
    if facts.surge.stage == "reverted":
        why = f"A second pod of {facts.owner} was started, and did not come to serve."
        remedy = f"Remove what keeps it from serving, or {eligibility.ACCEPT}."
        return _unless_allowed(facts, "surge_reverted", why, remedy)
    return _surge(
        facts, "The surge of its workload is prepared: it is deleted once a new pod serves."
    )


def _unless_allowed(
    facts: pod_facts.PodFacts,
    code: str,
    why: str,
    remedy: str,
    allowed: str = "interruption_allowed",
) -> drain_policy.PodPlan:
    """Refused, or evicted with the code ``allowed`` where its interruption is allowed."""
    if facts.consent:
        return _evictable(facts, allowed, f"{why} Its interruption was allowed.")
    return facts.plan("refuse", code, why, remedy)


def _surge(facts: pod_facts.PodFacts, why: str) -> drain_policy.PodPlan:
    plan = facts.plan("surge", "single_replica", why)
    if facts.replicas != 1 or _evictable(facts, "interruption_allowed", why).route == "refuse":
        return plan
    return replace(plan, interruption="allowed" if facts.consent else "possible")


def _gang(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    """Before all that relies on other pods to serve: the others of its gang do
    not work without it.
    """
    gang = facts.context.gang_by_pod.get(facts.pod.uid)
    if gang is None or not any(pod.ready for pod in gang.pods):
        return None
    why = f"It is of {gang.words}, which works only as a whole."
    remedy = (
        f"Wait until it has ended, or set {reasons.options(allow_interruption=True)}: its pods "
        "then leave together."
    )
    return _unless_allowed(facts, "gang", why, remedy, allowed="gang")


def _machine(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    if verdict := waited_for(facts):
        plan = _evictable(facts, verdict.code, verdict.message)
        return plan if plan.remedy else replace(plan, remedy=verdict.remedy)
    why = shut_down(facts)
    if not why:
        return None
    return _unless_allowed(
        facts, "not_surgeable", why, f"Stop it by hand, or {eligibility.ACCEPT}."
    )


def _unknown_owner(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    """A controller without a known replica count: judged by the pods it has."""
    if facts.workload is not None:
        return None
    uid = facts.pod.owner.uid if facts.pod.owner else ""
    peers = [p for p in facts.context.snapshot.owned_pods(uid) if p.ready and not p.deleting]
    if any(p.node not in facts.context.leaving for p in peers) or (
        len(peers) > 1 and facts.budgets
    ):
        return _evictable(facts, "replicas", f"Other pods of {facts.pod.owner} serve meanwhile.")
    if facts.consent:
        return _evictable(facts, "interruption_allowed", f"{facts.pod.owner} may be interrupted.")
    if found := _by_operator(facts):
        return found
    why = (
        f"{facts.pod.owner} has no replica count that could be read and raised, and no other pod "
        "of it serves meanwhile."
    )
    allow = reasons.options(allow_interruption=True)
    remedy = (
        f'Set {allow}, or annotate the pod with {names.ALLOW_INTERRUPTION}: "true".{unread(facts)}'
    )
    return facts.plan("refuse", "not_surgeable", why, remedy)


def _by_operator(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    """A pod that nothing could replace by its workload alone, where its operator sees to it.

    It goes by the operator's budget: at once if that has room and other pods of it serve, else when
    the operator acts, unless the pod is known to be the only one, so that nothing could take over.
    """
    operator, seen = facts.operator, facts.context.snapshot
    if operator is None:
        return None
    budget = facts.budgets[0]
    owner = operators.owner_of(seen, facts.pod)
    others = [
        p
        for p in seen.selected(budget.namespace, budget.selector)
        if p.uid != facts.pod.uid and not p.finished
    ]
    plan = _evictable(
        facts,
        "replicas",
        f"Other pods of {budget.ref} serve meanwhile: {operator} {operator.acts}.",
    )
    if plan.code == "replicas":
        serving = any(p.ready and not p.deleting for p in others)
        # Not as one of several: its workload may want no other.
        return replace(plan, code="operator_budget") if serving else None
    others += [
        p
        for p in seen.pods
        if owner and p.uid != facts.pod.uid and operators.owner_of(seen, p) == owner
    ]
    only = facts.workload is not None and not others and not operator.asked_for
    return plan if plan.code == "operator_budget" and not only else None


def _single(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    if facts.workload is None or facts.replicas > 1:
        return None
    refusal = _no_surge(facts, facts.workload)
    if refusal is None and facts.method == "evict":
        why = (
            f"{facts.workload.ref} has one replica, and its method is evict: "
            "no second pod is started before."
        )
        remedy = f"Choose another method, or {eligibility.ACCEPT}."
        return _unless_allowed(facts, "method_evict", why, remedy)
    if refusal is None:
        why = f"{facts.workload.ref} has one replica: a new pod serves before this one is deleted."
        return _surge(facts, why)
    if facts.consent and devices.nowhere(facts.context.snapshot, facts.pod):
        why = f"{refusal.message} It is down until the node is back, which was allowed."
        return _evictable(facts, devices.NOWHERE, why)
    found = None if facts.consent else _by_operator(facts)
    return found or _unless_allowed(facts, refusal.code, refusal.message, refusal.remedy)


def _no_surge(facts: pod_facts.PodFacts, workload: objects.Workload) -> reasons.Reason | None:
    """Why no second pod may run for a while, or could run nowhere."""
    return eligibility.refusal(facts.context.snapshot, workload) or devices.refusal(
        facts.context.snapshot, facts.pod
    )


def _sharing(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    """Replicas that share devices of one node: none of their successors can start before
    all of them are gone.
    """
    shared = devices.single_node(facts.context.snapshot, facts.pod)
    if shared is None or facts.replicas < 2:
        return None
    if facts.consent:
        return _evictable(
            facts, "interruption_allowed", f"{shared.message} Their interruption was allowed."
        )
    return facts.plan("refuse", shared.code, shared.message, shared.remedy)


def _only_its_node(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    """Several replicas that no other node takes: a guard of ours would keep all but one of them."""
    if facts.budgets or not facts.consent:
        return None
    if not pending.only_its_node(facts.context.snapshot, facts.pod):
        return None
    why = (
        f"{facts.owner} has {facts.replicas} replicas, and no other node takes this one. "
        "It is down until the node is back, which was allowed."
    )
    return _evictable(facts, "only_its_node", why)


def _several(facts: pod_facts.PodFacts) -> drain_policy.PodPlan | None:
    count = f"{facts.owner} has {facts.replicas} replicas"
    if not facts.budgets and not facts.choices.disable_eviction:
        why = f"{count} and no budget: they are evicted one at a time, under a guard of ours."
        return replace(facts.plan("evict", "guarded", why), guarded=True)
    plan = _evictable(facts, "replicas", f"{count}; it is evicted when its budget allows it.")
    replaceable = facts.workload and facts.workload.kind == "Deployment" and facts.method == "surge"
    if plan.code == "budget_allows_nothing" and replaceable:
        return replace(plan, remedy=f"{plan.remedy} Or {REPLACE}.")
    return plan


RULES: tuple[t.Callable[[pod_facts.PodFacts], drain_policy.PodPlan | None], ...] = (
    _mirror,
    _daemon_set,
    _not_selected,
    _self,
    _left_by_rule,
    _daemon_set_in_the_way,
    _terminating,
    _finished,
    _unreadable,
    replacement.let_go,
    _daemon_set_gone,
    _waits_by_rule,
    _job,
    _bare,
    _pending,
    _denied_machine,
    _empty_dir,
    _two_budgets,
    _local_volume,
    _daemon_set_last,
    _gang,
    _forced_out,
    _scaled_down,
    _not_ready,
    _prepared,
    _machine,
    _unknown_owner,
    _single,
    _sharing,
    _only_its_node,
    _several,
)
"""In order; the last one applies to every pod that is left."""
