# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Everything that blocks a maintenance, or is worth knowing,
before the first write: all of it at once.

A blocker stops the run, a warning names what will happen, an info explains what might surprise.
"""

from __future__ import annotations

import collections
import itertools
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    admission,
    budgets,
    node_taints,
    objects,
    quantities,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    devices,
    eviction_requests,
    other_runs,
    unreachable,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    feed,
    migration_jobs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import lookup
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import (
    neighbours,
    newcomers,
    queues,
    service_findings,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import (
    waves as ordering,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    drain_policy,
    migration_controller,
    readiness,
)

# Webhooks that fail closed, and what becomes of new pods while their own pods are away.
#
# Where such a webhook does not answer, no successor is created: of pods that were evicted there is
# none, and surges wait.


OBJECTS_NAMED = 5
Waves = tuple[tuple[str, ...], ...]


def webhook_findings(
    snapshot: snapshots.Snapshot,
    plans: t.Iterable[drain_policy.PodPlan],
    waves: t.Iterable[t.Collection[str]],
) -> t.Iterator[reasons.Finding]:
    """Webhooks that are down already, and those whose last pods leave with a wave."""
    if not snapshot.webhooks:
        return
    metas = [raw["metadata"] for raw in snapshot.namespaces]
    labels = {meta["name"]: meta.get("labels") or {} for meta in metas}
    moving = [plan for plan in plans if plan.route in drain_policy.MOVING and not plan.pod.finished]
    by_wave = list(drain_policy.by_wave(moving, waves))
    for hook in snapshot.webhooks:
        asked = [plan for plan in moving if _asks(hook, plan.pod, labels) and plan.workload]
        serving = snapshot.endpoints(hook.service)
        if asked and not serving:
            yield _down(hook, asked, sure=bool(labels) and not hook.conditional)
        for wave, beside in by_wave if serving else ():
            mine = [plan for plan in beside if plan.pod.uid in serving]
            if len(mine) == len(serving) and not any(_serves_on(snapshot, plan) for plan in mine):
                others = [plan for plan in asked if plan.pod.node in wave and plan not in mine]
                own = any(_asks(hook, plan.pod, labels) for plan in mine)
                if own or others:
                    yield _leaves(hook, mine, others, own=own)


def _asks(
    hook: admission.Webhook, pod: objects.Pod, labels: t.Mapping[str, t.Mapping[str, str]]
) -> bool:
    # Every namespace has its name as a label; others are unknown where namespaces may not be read.
    known = labels.get(pod.namespace, {"kubernetes.io/metadata.name": pod.namespace})
    return hook.asks_for(pod.labels, known)


def _serves_on(snapshot: snapshots.Snapshot, plan: drain_policy.PodPlan) -> bool:
    """Whether other pods, or a new one first, serve while this one leaves."""
    if plan.route in ("surge", "replace"):
        return True
    need = readiness.need(snapshot, plan.pod) if plan.code in readiness.OF_SEVERAL else None
    return need is not None and need.least > 0


def _down(
    hook: admission.Webhook, asked: t.Sequence[drain_policy.PodPlan], *, sure: bool
) -> reasons.Finding:
    owners = list(dict.fromkeys(str(plan.workload) for plan in asked))
    shown = reasons.listed(owners, OBJECTS_NAMED)
    message = (
        f"{_called(hook)} fails closed, and Service {'/'.join(hook.service)} has no ready "
        f"endpoint: no successor of {len(asked)} {'pod' if len(asked) == 1 else 'pods'} ({shown}) "
        f"{'can' if sure else 'may'} be created."
    )
    remedy = f"Repair the pods of the Service, or set failurePolicy: Ignore in {hook.config}."
    nodes = tuple(dict.fromkeys(plan.pod.node for plan in asked))
    return reasons.Finding(
        "webhook_down", message, remedy, "blocker" if sure else "warning", str(hook.config), nodes
    )


def _called(hook: admission.Webhook) -> str:
    return f"Webhook {hook.name} ({hook.config})"


def _leaves(
    hook: admission.Webhook,
    mine: t.Sequence[drain_policy.PodPlan],
    others: t.Sequence[drain_policy.PodPlan],
    *,
    own: bool,
) -> reasons.Finding:
    owner = mine[0].workload or mine[0].pod.ref
    names = ", ".join(f"{plan.pod.namespace}/{plan.pod.name}" for plan in mine[:OBJECTS_NAMED])
    message = (
        f"{_called(hook)} fails closed, and all pods that answer it ({names}) leave with one wave."
    )
    rule = f"{{owners: [{owner.kind}/{owner.name}], namespaces: [{owner.namespace}], last: true}}"
    remedy = "Give it a second replica on another node, or a budget that keeps one of its pods"
    if own:
        message += " It is asked for its own pods, too: none of their successors could be created."
        remedy += f"; or exclude its namespace in {hook.config}."
    else:
        message += (
            f" Until one of them serves again, no successor of {len(others)} other pods is created."
        )
        remedy += f"; or let its pods leave after the others: maintain_rules: [{rule}]."
    nodes = tuple(dict.fromkeys(plan.pod.node for plan in mine))
    return reasons.Finding(
        "webhook_leaves", message, remedy, "blocker" if own else "warning", str(owner), nodes
    )


@dataclass(frozen=True, slots=True)
class DraftOptions:
    """What is planned: ``nodes`` as named, unknown ones too; the others are options of
    ``maintenance_plan``.

    ``run`` is the id of the run or ``""``, ``now`` is RFC 3339. ``evacuates``: the nodes stay out,
    and those that are out and empty already are at their goal. Without ``with_volumes`` the
    snapshot lacks what volumes of pods need. ``unreplaced`` as in ``dispositions.routes``.
    """

    nodes: tuple[str, ...]
    choices: drain_policy.DrainPolicy = field(default_factory=drain_policy.DrainPolicy)
    run: str = ""
    now: str = ""
    evacuates: bool = False
    order: ordering.Order = "given"
    max_parallel: int = 1
    zone_key: str = "topology.kubernetes.io/zone"
    max_per_zone: int | None = None
    with_volumes: bool = True
    kured: str = neighbours.KURED
    unreplaced: t.Mapping[str, str] = field(default_factory=dict)


def findings(
    snapshot: snapshots.Snapshot,
    plans: t.Sequence[drain_policy.PodPlan],
    asked: DraftOptions,
    waves: Waves,
    terminating: t.Collection[str] = (),
) -> tuple[reasons.Finding, ...]:
    """All findings: blockers first, then warnings, then infos.

    ``terminating`` are the namespaces that are being deleted.
    """
    found = [
        *lookup.unknown_nodes(snapshot.nodes, asked.nodes),
        *_options(asked),
        *_nodes(snapshot, asked),
        *neighbours.findings(snapshot, asked.nodes, asked.now, asked.kured),
        *unreachable.findings(snapshot, plans, asked.nodes, asked.choices.fenced, asked.now),
        *_last_schedulable(snapshot, waves, stay_out=asked.evacuates),
        *_pods(snapshot, plans, asked, waves),
        *devices.findings(snapshot, plans, waves),
        *neighbours.gang_findings(snapshot, plans, waves),
        *eviction_requests.findings(snapshot, plans),
        *service_findings.findings(snapshot, plans),
        *service_findings.member_findings(snapshot, plans),
        *webhook_findings(snapshot, plans, waves),
        *newcomers.findings(snapshot, plans, waves, terminating),
    ]
    order = t.get_args(reasons.Severity)
    return tuple(sorted(found, key=lambda finding: order.index(finding.severity)))


def _options(asked: DraftOptions) -> t.Iterator[reasons.Finding]:
    if asked.choices.disable_eviction and not asked.choices.force:
        code = "disable_eviction"
        message = f"{code} deletes pods without regard to any budget."
        yield reasons.Finding(code, message, "Omit it, or set force as well.", "blocker", code)


def _nodes(snapshot: snapshots.Snapshot, asked: DraftOptions) -> t.Iterator[reasons.Finding]:
    for name in asked.nodes:
        node = snapshot.nodes.get(name)
        if node is None:
            continue
        if node.unreadable:
            message = f"{node.unreadable} of node {name} cannot be read."
            remedy = f"Look at it with `kubectl get node {name} -o yaml`, and correct it."
            yield reasons.Finding.of_node(name, "unreadable", message, remedy)
        yield from other_runs.findings(node, snapshot.leases, run=asked.run, now=asked.now)
        if node.unschedulable and not other_runs.recorded(node):
            message = f"Node {name} was cordoned by somebody else."
            remedy = (
                "It stays cordoned after the maintenance; uncordon it by hand if nobody needs that."
            )
            yield reasons.Finding.of_node(name, "foreign_cordon", message, remedy, "warning")
        if not node.ready and not other_runs.recorded(node) and not unreachable.lost(node):
            message = (
                f"Node {name} is not Ready: its pods may not terminate until its kubelet is back."
            )
            remedy = "Check its kubelet first, unless that is what the maintenance is for."
            yield reasons.Finding.of_node(name, "node_not_ready", message, remedy, "warning")


def _last_schedulable(
    snapshot: snapshots.Snapshot, waves: Waves, *, stay_out: bool
) -> t.Iterator[reasons.Finding]:
    """Whether each wave leaves a node that takes pods; all together if their nodes stay out."""
    together = tuple(dict.fromkeys(itertools.chain.from_iterable(waves)))
    for wave in (together,) if stay_out and together else waves:
        leaving = [snapshot.nodes[name] for name in wave]
        others = [node for node in snapshot.nodes.values() if node.name not in wave]
        if any(_takes_pods_of(node, leaving) for node in others):
            continue
        message = (
            f"With {', '.join(wave)} out of service no Ready and schedulable node is "
            "left for the pods."
        )
        remedy = "Take fewer nodes at a time, uncordon another node, or add one."
        yield reasons.Finding(
            "last_schedulable_node", message, remedy, "blocker", f"Node {wave[-1]}", wave
        )
        return


def _takes_pods_of(node: objects.Node, leaving: t.Iterable[objects.Node]) -> bool:
    """Ready, schedulable, in service; a taint that a leaving node has too keeps nothing away."""
    if not node.ready or node.unschedulable or other_runs.recorded(node):
        return False
    known = {_identity(taint) for other in leaving for taint in other.taints}
    return all(_identity(taint) in known for taint in node.taints if node_taints.hard(taint))


def _identity(taint: objects.Raw) -> tuple[t.Any, t.Any, t.Any]:
    return taint.get("key"), taint.get("value"), taint.get("effect")


WARNED = frozenset(
    {
        *("interruption_allowed", "daemonset_gone", "bare_pod", "local_volume", "no_free_device"),
        *("only_its_node", "disable_eviction", "operator_budget", "stuck_terminating", "job"),
        *("tolerates_maintenance", "left_by_rule", "waits_by_rule", "daemonset_last"),
    }
)
"""Codes that do not stop a run but have to be reported."""


def _pods(
    snapshot: snapshots.Snapshot,
    plans: t.Sequence[drain_policy.PodPlan],
    asked: DraftOptions,
    waves: Waves,
) -> list[reasons.Finding]:
    groups: dict[tuple[str, reasons.Severity, str, str], list[drain_policy.PodPlan]] = {}
    for plan in plans:
        severity: reasons.Severity | None = "warning" if plan.code in WARNED else None
        if plan.route == "refuse" or plan.code == "unhealthy_blocked":
            # A gang has one finding for all of its pods.
            severity = None if plan.code == "gang" else "blocker"
        if plan.code == "unhealthy_blocked" and unreachable.lost(snapshot.nodes.get(plan.pod.node)):
            # The drain does not wait for pods of a lost node: it ends as unreachable or, with a
            # proof, ignores budgets.
            severity = "warning"
        if severity:
            # About the workload that somebody has to act on, else about the pod.
            subject = str(plan.workload or plan.pod.ref)
            groups.setdefault((plan.code, severity, subject, plan.pod.namespace), []).append(plan)
    asked_once = [key for key in groups if key[0] == "emptydir"]
    found = _emptied([groups.pop(key) for key in asked_once]) if len(asked_once) > 1 else []
    dark = service_findings.dark(snapshot, plans, waves)
    found += [
        _grouped(code, severity, subject, group, dark)
        for (code, severity, subject, _namespace), group in groups.items()
    ]
    return [
        *found,
        *_spent(snapshot, plans),
        *_pace(snapshot, plans, asked),
        *_not_selected(plans, asked),
    ]


def _grouped(
    code: str,
    severity: reasons.Severity,
    subject: str,
    group: t.Sequence[drain_policy.PodPlan],
    dark: t.Mapping[str, t.Sequence[str]],
) -> reasons.Finding:
    nodes = tuple(dict.fromkeys(plan.pod.node for plan in group))
    pods = reasons.listed([plan.pod.name for plan in group])
    first = group[0]
    who = str(first.pod.ref)
    if len(group) > 1:
        who = f"{len(group)} pods in {first.pod.namespace} ({pods})"
    where = f"{who} on {reasons.listed(nodes)}"
    # A reason may begin with the pod itself.
    own = first.reason.startswith(f"{who} ")
    message = f"{where}{first.reason.removeprefix(who)}" if own else f"{where}: {first.reason}"
    services: dict[str, None] = {}
    for plan in group:
        services |= dict.fromkeys(dark.get(plan.pod.uid, ()))
    if services:
        message += f" Dark meanwhile: {reasons.listed(services)}."
    about = (subject, *services) if services else ()
    # The reason of each pod is in its plan.
    return reasons.Finding(
        code, message, first.remedy, severity, subject, nodes, first.remedy or code, about
    )


def _emptied(groups: t.Sequence[t.Sequence[drain_policy.PodPlan]]) -> list[reasons.Finding]:
    """Pods of several workloads that lose emptyDir volumes, as one: they need the same consent."""
    mine = list(itertools.chain.from_iterable(groups))
    owners = list(dict.fromkeys(str(plan.workload or plan.pod.ref) for plan in mine))
    nodes = tuple(dict.fromkeys(plan.pod.node for plan in mine))
    minor = [plan.pod for plan in mine if len(plan.pod.scratch) == len(plan.pod.empty_dirs)]
    uses = collections.Counter[str]()
    for pod in minor:
        uses.update(pod.scratch.values())
    limits: list[str] = []
    for plan in mine:
        for volume in plan.pod.volumes:
            limit = (volume.get("emptyDir") or {}).get("sizeLimit")
            if quantities.readable(limit):
                limits.append(str(limit))
    whose = f"{len(mine)} pods of {len(owners)} workloads ({reasons.listed(owners)})"
    message = f"{whose} would lose the data of their emptyDir volumes."
    if minor:
        listed = ", ".join(f"{count} {use}" for use, count in uses.most_common())
        message += f" Of {len(minor)} pods it is data that seldom has to last: {listed}."
    if limits:
        largest = max(limits, key=quantities.quantity)
        message += f" {len(limits)} of the volumes have a size limit, of {largest} at most."
    subject = f"{len(mine)} pods with emptyDir"
    about = tuple(owners)
    remedy = mine[0].remedy
    return [reasons.Finding("emptydir", message, remedy, "blocker", subject, nodes, objects=about)]


def _spent(
    snapshot: snapshots.Snapshot, plans: t.Iterable[drain_policy.PodPlan]
) -> list[reasons.Finding]:
    """Budgets and guards that allow no eviction at the moment; the drain waits for them."""
    found: dict[objects.Ref, reasons.Finding] = {}
    for plan in plans:
        if plan.route not in ("evict", "job"):
            continue
        what = _spent_guard(snapshot, plan) if plan.guarded else _spent_budget(snapshot, plan)
        if what and what[0] not in found:
            subject, why, remedy = what
            message, nodes = f"{why} The drain waits for it.", (plan.pod.node,)
            found[subject] = reasons.Finding(
                "budget_spent", message, remedy, "warning", str(subject), nodes
            )
    return list(found.values())


def _spent_budget(
    snapshot: snapshots.Snapshot, plan: drain_policy.PodPlan
) -> tuple[objects.Ref, str, str] | None:
    said_already = plan.code in ("unhealthy_blocked", "operator_budget")
    verdict = budgets.diagnose(snapshot, plan.pod) if plan.budgets and not said_already else None
    if verdict is None or verdict.allowed or verdict.lasting or not verdict.budget:
        return None
    return verdict.budget, verdict.message, verdict.remedy


def _spent_guard(
    snapshot: snapshots.Snapshot, plan: drain_policy.PodPlan
) -> tuple[objects.Ref, str, str] | None:
    short = queues.guard_spent(snapshot, plan)
    if not short or plan.workload is None:
        return None
    message = f"{short}, so the guard of it (maxUnavailable: 1) allows no eviction of the others."
    return plan.workload, message, "Wait until its other pods are ready, or repair them."


def _pace(
    snapshot: snapshots.Snapshot, plans: t.Iterable[drain_policy.PodPlan], asked: DraftOptions
) -> t.Iterator[reasons.Finding]:
    """Workloads that Koordinator's object limiter keeps on their nodes for a long time."""
    controller = asked.choices.controller
    if controller is None:
        return
    jobs = [plan for plan in plans if plan.route == "job"]
    for uid, seconds in feed.Pace(snapshot, controller, asked.now).limited(jobs).items():
        workload = snapshot.workload(uid)
        if workload is None or seconds <= asked.choices.job_wait:
            continue
        mine = [plan for plan in jobs if plan.workload and plan.workload.uid == uid]
        gap, _burst = migration_controller.interval(controller, "workload", workload.replicas)
        message = (
            f"{len(mine)} pods of {workload.ref} are moved by PodMigrationJobs, and the object "
            f"limiter allows one every {gap:g} s: that alone takes {seconds:.0f} s."
        )
        remedy = (
            "Nothing to do if there is time. objectLimiters.workload of the MigrationController "
            f"sets the pace; {reasons.options(backend='auto')} evicts instead of waiting for it."
        )
        nodes = tuple(dict.fromkeys(plan.pod.node for plan in mine))
        yield reasons.Finding("job_pace", message, remedy, "info", str(workload.ref), nodes)


def unapproved(
    jobs: t.Iterable[migration_jobs.Job], plans: t.Iterable[drain_policy.PodPlan], seconds: float
) -> t.Iterator[reasons.Finding]:
    """Paused jobs of pods planned to leave by a job: the drain leaves them for ``seconds``."""
    paused = [job for job in jobs if job.paused and not job.ended]
    remedy = (
        "Approve or reject it with the module pod_migration_job. The drain does "
        f"neither: after {seconds:g} s it goes on without the job."
    )
    for plan in plans:
        if plan.route != "job":
            continue
        pod = plan.pod
        for job in paused:
            named = (job.pod.namespace, job.pod.name) == (pod.namespace, pod.name)
            if not named or job.pod.uid not in ("", pod.uid):
                continue
            message = (
                f"{pod.ref} has PodMigrationJob {job.name}, which is paused: "
                f"{job.made_by} created it."
            )
            yield reasons.Finding(
                "job_paused", message, remedy, "warning", str(job.ref), (pod.node,)
            )


def _not_selected(
    plans: t.Sequence[drain_policy.PodPlan], asked: DraftOptions
) -> t.Iterator[reasons.Finding]:
    left = [plan for plan in plans if plan.code == "not_selected"]
    if not left:
        return
    nodes = tuple(dict.fromkeys(plan.pod.node for plan in left))
    selector = asked.choices.pod_selector
    stay = f"{len(left)} pods on {reasons.listed(nodes)} are not selected and stay"
    message = f"{stay}, so these nodes will not be reported as drained."
    remedy = "Omit pod_selector and namespaces."
    subject = f"pod_selector {selector}" if selector else "namespaces"
    yield reasons.Finding("not_selected", message, remedy, "info", subject, nodes)
