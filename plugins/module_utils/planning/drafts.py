# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A whole plan from a snapshot alone: routes, waves, forecasts and findings.

In two halves, because the routes tell which further kinds have to be read before
the rest can be judged.
"""

from __future__ import annotations

import difflib
import itertools
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import dispositions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import (
    forecast,
    neighbours,
    preflight,
    waves,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import (
    forecast_findings as placement,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records

Waits = tuple[waves.Wait, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """What waves are formed of, see ``waves.formed``."""

    nodes: tuple[objects.Node, ...]
    limits: waves.Limits
    together: t.Sequence[t.Collection[str]]
    lines: tuple[waves.Line, ...]

    def sharing(self, more: tuple[waves.Share, ...]) -> Shape:
        """The same where nodes always share ``more`` as well."""
        return replace(self, limits=replace(self.limits, shares=(*self.limits.shares, *more)))

    def formed(self, more: tuple[waves.Share, ...] = ()) -> waves.Formed:
        """The waves, where nodes share ``more`` as well."""
        return waves.formed(
            self.nodes, self.sharing(more).limits, together=self.together, lines=self.lines
        )


@dataclass(frozen=True, slots=True)
class Draft:
    """The first half: ``there`` are nodes at their goal, ``todo`` the others in order;
    ``plans`` are of their pods.

    ``waits`` say why nodes are not in the first wave. What room is left has no
    part in the waves yet.
    """

    plans: tuple[drain_policy.PodPlan, ...]
    there: frozenset[str]
    todo: tuple[objects.Node, ...]
    waves: preflight.Waves
    shape: Shape
    waits: Waits = ()


@dataclass(frozen=True, slots=True)
class Plan:
    """``placed`` has the forecast of each pod that moves, by UID."""

    draft: Draft
    placed: t.Mapping[str, forecast.Forecast]
    findings: tuple[reasons.Finding, ...]


def draft(snapshot: snapshots.Snapshot, wanted: preflight.DraftOptions) -> Draft:
    """Routes and waves.

    Raises:
        ValueError: ``pod_selector`` is not a label selector.
    """
    present = [name for name in wanted.nodes if name in snapshot.nodes]
    plans = dispositions.routes(
        snapshot, present, wanted.choices, now=wanted.now, unreplaced=wanted.unreplaced
    )
    there = frozenset(name for name in present if _at_goal(snapshot, name, wanted))
    todo = [snapshot.nodes[name] for name in present if name not in there]
    todo = waves.ordered(todo, plans, wanted.order, zone_key=wanted.zone_key)
    plans = tuple(plan for plan in plans if plan.pod.node not in there)
    shared = waves.shares(snapshot, todo, plans)
    limits = waves.Limits(wanted.max_parallel, wanted.zone_key, wanted.max_per_zone, shared)
    lines = waves.lines(snapshot, plans) if wanted.max_parallel > 1 else ()
    shape = Shape(tuple(todo), limits, neighbours.together(snapshot, plans), lines)
    formed = shape.formed()
    return Draft(plans, there, shape.nodes, formed.waves, shape, formed.waits)


def judged(snapshot: snapshots.Snapshot, wanted: preflight.DraftOptions, drafted: Draft) -> Plan:
    """The plan with forecasts and findings; the snapshot has what the routes need besides."""
    plans = drafted.plans

    def foresee(some: t.Sequence[t.Collection[str]]) -> dict[str, forecast.Forecast]:
        return forecast.forecasts(
            snapshot, plans, some, stay_out=wanted.evacuates, with_volumes=wanted.with_volumes
        )

    def shaped(shape: Shape, formed: waves.Formed) -> waves.Foreseen:
        return waves.Shaping(plans, shape.together, shape.formed, foresee).shaped(formed)

    seen = shaped(drafted.shape, waves.Formed(drafted.waves, drafted.waits))
    # Nodes that stay out are out together, whatever their waves are.
    apart = not (wanted.evacuates or wanted.choices.node_autoscaler)
    shape = drafted.shape.sharing(waves.nowhere(snapshot, plans, seen.placed) if apart else ())
    if shape != drafted.shape:
        formed = shape.formed()
        if formed.waves != drafted.waves:
            seen = shaped(shape, formed)
    drafted = replace(drafted, waves=seen.formed.waves, waits=seen.formed.waits)
    terminating = [name for name, phase in phases(snapshot).items() if phase == "Terminating"]
    out: t.Sequence[t.Collection[str]] = drafted.waves
    if wanted.choices.node_autoscaler:
        out = ()
    elif wanted.evacuates:
        out = [list(itertools.chain.from_iterable(drafted.waves))]
    found = (
        *preflight.findings(snapshot, drafted.plans, wanted, drafted.waves, terminating),
        *placement.findings(snapshot, drafted.plans, seen.placed, out),
    )
    return Plan(drafted, seen.placed, found)


def fitting(
    snapshot: snapshots.Snapshot, wanted: preflight.DraftOptions, whole: Plan
) -> tuple[Plan, tuple[reasons.Finding, ...]]:
    """The plan without the nodes that are blocked, and the blockers of these.

    It is the whole one where a blocker is not about nodes of the plan alone,
    or about a name that is no node's.
    """
    plan, all_blockers = whole, dict[reasons.Finding, None]()
    while blockers := [finding for finding in plan.findings if finding.severity == "blocker"]:
        blocked = {name for finding in blockers for name in finding.nodes}
        of_nodes = all(finding.nodes for finding in blockers)
        if not of_nodes or not blocked <= {*wanted.nodes} & snapshot.nodes.keys():
            return whole, ()
        all_blockers |= dict.fromkeys(blockers)
        wanted = replace(wanted, nodes=tuple(name for name in wanted.nodes if name not in blocked))
        plan = judged(snapshot, wanted, draft(snapshot, wanted))
    return plan, tuple(all_blockers)


def phases(snapshot: snapshots.Snapshot) -> dict[str, str]:
    """Each namespace with its phase; none if they may not be read."""
    return {
        item["metadata"]["name"]: (item.get("status") or {}).get("phase", "")
        for item in snapshot.namespaces
    }


def _at_goal(snapshot: snapshots.Snapshot, name: str, wanted: preflight.DraftOptions) -> bool:
    if not wanted.evacuates:
        return False
    try:
        record = node_records.record_of(snapshot.nodes[name])
    except node_records.BadRecordError:
        return False
    if record is None or record.step != "parked":
        return False
    return not dispositions.left_to_move(snapshot, {name}, wanted.choices)


def unknown_zone_key(
    nodes: t.Iterable[objects.Node], wanted: preflight.DraftOptions
) -> list[reasons.Finding]:
    """A limit or an order by a label that no node has would silently mean one zone for all."""
    key, labels = wanted.zone_key, set[str]()
    for node in nodes:
        labels.update(node.labels)
    if key in labels or (wanted.max_per_zone is None and wanted.order != "zone"):
        return []
    close = difflib.get_close_matches(key, labels, n=3, cutoff=0.75)
    close = close or sorted(label for label in labels if "zone" in label)
    hint = f" Similar labels are {', '.join(close)}." if close else ""
    message = f"No node has the label {key}.{hint}"
    remedy = "Name the label with the zones in maintain_zone_key (zone_key of maintenance_plan)."
    return [reasons.Finding("unknown_zone_key", message, remedy, "blocker", key)]
