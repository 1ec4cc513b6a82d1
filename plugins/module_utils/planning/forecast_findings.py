# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a forecast means for the maintenance, as findings with the scheduler's words."""

from __future__ import annotations

import collections
import itertools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    serving,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import pending
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import (
    filters,
    forecast,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    drain_policy,
    readiness,
)


def findings(
    snapshot: snapshots.Snapshot,
    plans: t.Iterable[drain_policy.PodPlan],
    found: t.Mapping[str, forecast.Forecast],
    waves: t.Iterable[t.Collection[str]],
) -> list[reasons.Finding]:
    """Pods that fit nowhere, and those for which others would be preempted:
    one for each workload and reason.

    It is a blocker where too few would be left of them until their nodes are back, and for a surge,
    which needs a second pod, unless its interruption was allowed; else a warning: then the drain
    does not wait for them. Without ``waves`` all of them are waited for.
    """
    groups: dict[tuple[str, reasons.Severity, str, str], list[drain_policy.PodPlan]] = {}
    plans, waves = list(plans), list(waves)
    gaps: list[pending.Gap] = []
    for _wave, some in drain_policy.by_wave(unplaced(plans, found), waves):
        gaps += pending.gaps(snapshot, some)
    stalled: list[pending.Stalled] = []
    for _wave, some in drain_policy.by_wave(plans, waves):
        stalled += pending.stalled(snapshot, some)
    blocked, in_blockers, short = [], set[str](), set[str]()
    for gap in gaps:
        uids = {plan.pod.uid for plan in gap.plans}
        short |= uids
        if not gap.bearable:
            blocked.append(gap)
            in_blockers |= uids
    for plan in plans:
        one = found.get(plan.pod.uid)
        if one is None or plan.pod.uid in in_blockers:
            continue
        if one.fits is not False and not one.victims:
            continue
        if plan.code in readiness.ONLY_HERE and one.fits is False:
            # That it is down until the node is back is said of its volume or device already.
            continue
        subject = str(plan.workload or plan.pod.ref)
        stuck = bool(waves) and _needs_another(plan)
        severity: reasons.Severity = "blocker" if stuck else "warning"
        code = "no_room" if stuck else "fits_nowhere"
        if one.victims:
            code = "preempts"
        groups.setdefault((code, severity, subject, described(one)), []).append(plan)
    return [
        *(_blocker(snapshot, gap, found) for gap in blocked),
        *(_finding(snapshot, *key, group, found, short) for key, group in groups.items()),
        *_of_schedulers(plans, found),
        *map(_stalled, stalled),
    ]


def _needs_another(plan: drain_policy.PodPlan) -> bool:
    """Whether it stays where no other pod of its workload comes to serve."""
    if plan.route == "replace":
        return plan.interruption == "possible"
    return plan.route == "surge" and plan.interruption != "allowed"


def _of_schedulers(
    plans: t.Iterable[drain_policy.PodPlan], found: t.Mapping[str, forecast.Forecast]
) -> t.Iterator[reasons.Finding]:
    """Schedulers of which only these pods tell; the jobs of Koordinator ask for theirs."""
    groups: dict[str, list[drain_policy.PodPlan]] = {}
    for plan in plans:
        if plan.route != "job" and (one := found.get(plan.pod.uid)) and one.scheduler:
            groups.setdefault(one.scheduler, []).append(plan)
    for scheduler, group in groups.items():
        owners = dict.fromkeys(str(plan.workload or plan.pod.ref) for plan in group)
        message = (
            f"{len(group)} pods that move ({reasons.listed(owners)}) belong to the scheduler "
            f"{scheduler}: whether it runs, and where it puts their successors, is not known."
        )
        remedy = "Make sure that it runs: a successor that no scheduler looks at never starts."
        nodes = tuple(dict.fromkeys(plan.pod.node for plan in group))
        yield reasons.Finding(
            "unknown_scheduler", message, remedy, "warning", f"Scheduler {scheduler}", nodes
        )


def _stalled(one: pending.Stalled) -> reasons.Finding:
    """That successors are not created before an earlier pod of their StatefulSet is Ready."""
    subject = str(one.workload.ref)
    message = f"{_where(subject, one.plans)}: {one.why}, and before it is, no later pod of it is "
    message += "created. "
    message += f"{len(one.plans)} {'are' if len(one.plans) > 1 else 'is'} missing until then"
    message += "." if one.bearable else ", and then too few would be left."
    nodes = tuple(dict.fromkeys(plan.pod.node for plan in one.plans))
    remedy = "Repair that pod first, or wait until it is Ready."
    severity: reasons.Severity = "warning" if one.bearable else "blocker"
    return reasons.Finding("successor_waits", message, remedy, severity, subject, nodes)


def unplaced(
    plans: t.Iterable[drain_policy.PodPlan], found: t.Mapping[str, forecast.Forecast]
) -> t.Iterator[drain_policy.PodPlan]:
    """The pods for whose successors the scheduler would find no node."""
    for plan in plans:
        one = found.get(plan.pod.uid)
        if one and one.fits is False and one.reasons:
            yield plan


def described(one: forecast.Forecast) -> str:
    """The forecast of one pod as a sentence; empty if it simply fits."""
    if one.victims:
        text = f"It fits on {one.target} only if the scheduler preempts {', '.join(one.victims)}"
        if one.starved:
            return f"{text}, of which {', '.join(one.starved)} fit nowhere else."
        return f"{text}."
    if one.fits is False and one.first:
        return f"No room is left after the pods that are placed before it: {one.text}"
    return one.text


def _finding(
    snapshot: snapshots.Snapshot,
    code: str,
    severity: reasons.Severity,
    subject: str,
    text: str,
    group: t.Sequence[drain_policy.PodPlan],
    found: t.Mapping[str, forecast.Forecast],
    short: t.Container[str],
) -> reasons.Finding:
    nodes = tuple(dict.fromkeys(plan.pod.node for plan in group))
    where = _where(subject, group)
    one = found[group[0].pod.uid]
    about: tuple[str, ...] = (subject,)
    if code == "preempts" and severity == "warning":
        message = f"{where}: {text}"
        remedy = "Free room for them first, or accept that pods of lower priority are deleted."
        return reasons.Finding("preempts", message, remedy, "warning", subject, nodes, text)
    text += _rules(snapshot, group[0].pod, one)
    if severity == "blocker":
        return _stuck(code, subject, f"{where}: {text}", group, one, text)
    if all(plan.pod.uid in short for plan in group):
        text += f" {subject} serves without it until its node is back."
    elif group[0].code in readiness.CONSENTED or group[0].interruption == "allowed":
        text += " It is down until its node is back, which was allowed."
        down = serving.dark_without(snapshot, (plan.pod for plan in group))
        about += tuple(dict.fromkeys(itertools.chain.from_iterable(down.values())))
    whose = "each pod" if len(group) > 1 else "the pod"
    remedy = _remedy(one)
    message = f"{where}: the successor of {whose} fits on no other node. {text}"
    return reasons.Finding("fits_nowhere", message, remedy, "warning", subject, nodes, text, about)


RULES_NAMED = 5
"""How many rules of a pod are named."""


def _rules(snapshot: snapshots.Snapshot, pod: objects.Pod, one: forecast.Forecast) -> str:
    """The labels and taints that keep the pod off, which the scheduler's message only counts."""
    if {filters.TAINTED, filters.NOT_SELECTED}.isdisjoint(one.reasons or ()):
        return ""
    counts = collections.Counter[str]()
    for node in snapshot.nodes.values():
        if node.name != pod.node and not node.unschedulable:
            counts.update(filters.unmet(pod, node))
    most = counts.most_common(RULES_NAMED)
    named = [f"{word} ({count} node{'s' if count > 1 else ''})" for word, count in most]
    return f" Refused by: {', '.join(named)}." if named else ""


def _stuck(
    code: str,
    subject: str,
    message: str,
    group: t.Sequence[drain_policy.PodPlan],
    one: forecast.Forecast,
    like: str,
) -> reasons.Finding:
    """That no second pod would come to serve, without which the pod does not leave."""
    if code == "preempts":
        message += " No surge preempts others."
    else:
        message += " Without a second pod it is not deleted."
    remedy = _remedy(one, waited_for=True)
    if all(plan.interruption for plan in group):
        remedy += f" {_accept('it is then evicted, and down until it serves again')}"
    nodes = tuple(dict.fromkeys(plan.pod.node for plan in group))
    return reasons.Finding(code, message, remedy, "blocker", subject, nodes, like)


def _where(subject: str, group: t.Sequence[drain_policy.PodPlan]) -> str:
    nodes = reasons.listed(dict.fromkeys(plan.pod.node for plan in group))
    return f"{subject}, on {nodes} ({reasons.listed([plan.pod.name for plan in group])})"


def _blocker(
    snapshot: snapshots.Snapshot, gap: pending.Gap, found: t.Mapping[str, forecast.Forecast]
) -> reasons.Finding:
    """That too few would be left; a drain would wait for ever for the others to be back."""
    one = found[gap.plans[0].pod.uid]
    nodes = tuple(dict.fromkeys(plan.pod.node for plan in gap.plans))
    subject = str(gap.need.object)
    bound = f"{gap.need.most} may be missing"
    if gap.dark:
        bound = f"nothing would be left of {', '.join(str(workload.ref) for workload in gap.dark)}"
    fit = f"{len(gap.plans)} fit on no other node until theirs is back"
    message = f"{_where(subject, gap.plans)}: {fit}, and {bound}. "
    remedy = _remedy(one, waited_for=True)
    if not gap.need.budget and all(pending.only_its_node(snapshot, plan.pod) for plan in gap.plans):
        remedy += f" {_accept('they are then evicted, and down until their node is back')}"
    text = described(one) + _rules(snapshot, gap.plans[0].pod, one)
    return reasons.Finding("no_room", message + text, remedy, "blocker", subject, nodes, text)


def _accept(then: str) -> str:
    allow = reasons.options(allow_interruption=True)
    return f"Or accept the interruption with {allow}: {then}."


CORRECT = "Correct that first: until then its successor starts on no node at all."
"""What keeps the pod off is not of nodes: no scheduler runs, or a claim is not there."""


def _remedy(one: forecast.Forecast, *, waited_for: bool = False) -> str:
    """What helps; ``waited_for``: a node autoscaler may, too."""
    if not one.reasons:
        return CORRECT
    return f"{_room(one)} {reasons.GROWN}" if waited_for else _room(one)


def _room(one: forecast.Forecast) -> str:
    if one.first:
        return "Plan fewer nodes, or add room."
    if any(reason.startswith(("Insufficient", "Too many")) for reason in one.reasons or ()):
        return "Add a node, free room on another one, or lower the requests of the workload."
    return "Change the rule that keeps it off the other nodes, or add a node that satisfies it."
