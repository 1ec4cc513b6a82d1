# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a forecast means for the maintenance, as findings with the scheduler's words."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import pod_plan, reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.placement import forecast


def findings(plans: t.Iterable[pod_plan.PodPlan], found: t.Mapping[str, forecast.Forecast]) -> list[reasons.Finding]:
    """Pods that fit nowhere, and those for which others would be preempted: one warning for each workload and reason.

    No blocker: the cluster may have room by the time, a swap without room is given back, and budgets pace evictions.
    """
    groups: dict[tuple[str, str, str], list[pod_plan.PodPlan]] = {}
    for plan in plans:
        one = found.get(plan.pod.uid)
        if one is None or (one.fits is not False and not one.victims):
            continue
        subject = str(plan.workload or plan.pod.ref)
        code = "preempts" if one.victims else "fits_nowhere"
        groups.setdefault((code, subject, described(one)), []).append(plan)
    return [_finding(*key, group, found) for key, group in groups.items()]


def described(one: forecast.Forecast) -> str:
    """The forecast of one pod as a sentence; empty if it simply fits."""
    if one.victims:
        text = f"It fits on {one.target} only if the scheduler preempts {', '.join(one.victims)}"
        return f"{text}, of which {', '.join(one.starved)} fit nowhere else." if one.starved else f"{text}."
    if one.fits is False and one.first:
        return f"No room is left after the pods that are placed before it: {one.text}"
    return one.text


def _finding(
    code: str,
    subject: str,
    text: str,
    group: t.Sequence[pod_plan.PodPlan],
    found: t.Mapping[str, forecast.Forecast],
) -> reasons.Finding:
    nodes = tuple(dict.fromkeys(plan.pod.node for plan in group))
    pods = ", ".join(plan.pod.name for plan in group[:5]) + (f" and {len(group) - 5} more" if len(group) > 5 else "")
    where = f"{subject}, on {', '.join(nodes)} ({pods})"
    if code == "preempts":
        remedy = "Free room for them first, or accept that pods of lower priority are deleted."
        return reasons.Finding("preempts", f"{where}: {text}", remedy, "warning", subject, nodes)
    one = found[group[0].pod.uid]
    message = f"{where}: the successor of {'each pod' if len(group) > 1 else 'the pod'} fits on no other node. {text}"
    return reasons.Finding("fits_nowhere", message, _remedy(one), "warning", subject, nodes)


def _remedy(one: forecast.Forecast) -> str:
    if one.first:
        return "Plan fewer nodes, or add room."
    if any(reason.startswith(("Insufficient", "Too many")) for reason in one.reasons or ()):
        return "Add a node, free room on another one, or lower the requests of the workload."
    return "Change the rule that keeps it off the other nodes, or add a node that satisfies it."
