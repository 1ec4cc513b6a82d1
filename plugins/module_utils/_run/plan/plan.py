# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``maintenance_plan``: what a maintenance would do and what stands against it; with ``gates``: whether
nodes that come back may take pods. Reads only.
"""

from __future__ import annotations

import contextlib
import difflib
import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import estimate
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    hooks,
    names,
    node_records,
    objects,
    outcomes,
    pod_plan,
    reasons,
    selectors,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.nodes import verify
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.placement import findings as placement
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.placement import forecast
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.preflight import (
    gang_findings,
    node_order,
    permissions,
    preflight,
    waves,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import (
    dead,
    devices,
    migrate,
    volumes,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import (
    act,
    context,
    life,
    observe,
    owners,
    rights,
    stored_runs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.drain import dead_nodes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import job_view, koordinator
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.nodes import gates
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.plan import access

BAD_INPUT = frozenset({"unknown_node", "selector_matches_nothing", "unknown_zone_key"})
"""Findings that make the call fail: its input names something that does not exist."""

Goal = t.Literal["maintained", "evacuated"]


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options of the module; times in seconds, ``None`` without a limit.

    With ``goal`` ``evacuated``, nodes that are out and empty already join no wave. ``settle`` and ``planned_notice``
    are for the estimate. With ``gates`` nothing is planned; ``expected`` is for them.
    """

    nodes: tuple[str, ...] = ()
    node_selector: str = ""
    choices: pod_plan.Choices = field(default_factory=pod_plan.Choices)
    goal: Goal = "maintained"
    order: node_order.Order = "given"
    max_parallel: int = 1
    zone_key: str = "topology.kubernetes.io/zone"
    max_per_zone: int | None = None
    settle: float = 0.0
    node_conditions: bool = False
    planned_notice: float | None = None
    gates: tuple[str, ...] = ()
    expected: verify.Expected = verify.NOTHING
    stable: float = 10.0
    wait: bool = False
    timeout: float | None = None
    before_pod: tuple[hooks.Rule, ...] = ()
    announce_events: bool = False
    not_rebooted: tuple[str, ...] = ()
    soak: float | None = None
    soak_since: str | None = None


def make_plan(ctx: context.Context, options: PlanOptions) -> context.Result:
    """The plan, or the answer of the gates.

    Raises:
        StopRun: a selector that cannot be parsed.
        ClusterError: the API server cannot be reached.
    """
    try:
        nodes = observe.gather(ctx.cluster, ("nodes",))
        wanted = _wanted(nodes, options)
        if options.gates:
            times = (options.stable, options.wait, options.timeout)
            soak = (options.soak, options.soak_since)
            asked = gates.Asked(wanted, options.gates, *times, options.expected, options.not_rebooted, *soak)
            return gates.judge(ctx, nodes, asked)
        return _plan(ctx, nodes, wanted, options)
    except errors.Forbidden as error:
        return _forbidden(ctx, options, error)


def _wanted(nodes: snapshots.Snapshot, options: PlanOptions) -> tuple[str, ...]:
    if options.nodes:
        return tuple(dict.fromkeys(options.nodes))
    if not options.node_selector.strip():
        raise context.StopRun("no_nodes", "Neither nodes nor node_selector say what to plan for.", "Give one of them.")
    try:
        selector = selectors.parse(options.node_selector)
    except ValueError as error:
        raise context.StopRun("bad_selector", f"node_selector: {error}.", "", options.node_selector) from error
    return tuple(sorted(node.name for node in nodes.nodes.values() if selectors.matches(selector, node.labels)))


def _plan(
    ctx: context.Context, nodes: snapshots.Snapshot, wanted: tuple[str, ...], options: PlanOptions
) -> context.Result:
    present = tuple(name for name in wanted if name in nodes.nodes)
    snapshot = _gather(ctx, nodes, present)
    now = ctx.clock.server()
    choices, said = koordinator.prepared(ctx, options.choices)
    plans = migrate.routes(snapshot, present, choices, now=now)
    there = {name for name in present if _at_goal(snapshot, name, options)}
    todo = [snapshot.nodes[name] for name in present if name not in there]
    todo = node_order.ordered(todo, plans, options.order, zone_key=options.zone_key)
    plans = tuple(plan for plan in plans if plan.pod.node not in there)
    groups = waves.waves(
        todo,
        options.max_parallel,
        zone_key=options.zone_key,
        max_per_zone=options.max_per_zone,
        together=gang_findings.together(snapshot, plans),
    )
    snapshot, unread = _room(ctx, snapshot, plans)
    snapshot = _requested(ctx, snapshot, plans)
    spaces = _namespaces(ctx) if todo else ()
    namespaces = {item["metadata"]["name"]: (item.get("status") or {}).get("phase", "") for item in spaces}
    snapshot = _medik8s(ctx, replace(snapshot, namespaces=tuple(spaces)), namespaces)
    placed, unknown = _forecasts(ctx, snapshot, plans, groups, options)
    asked = preflight.Asked(
        nodes=wanted,
        waves=groups,
        choices=choices,
        run=ctx.run.id if ctx.run else "",
        now=now,
        stay_out=options.goal == "evacuated",
        terminating=frozenset(name for name, phase in namespaces.items() if phase == "Terminating"),
    )
    found = [*said, *preflight.findings(snapshot, plans, asked), *placement.findings(plans, placed), *unread, *unknown]
    if any(plan.route == "job" for plan in plans):
        found += preflight.unapproved(job_view.listed(ctx), plans, choices.job_wait)
    if not wanted:
        found.append(_nothing_selected(options))
    found += _unknown_zone_key(nodes.nodes.values(), options)
    if todo:
        conditions = options.node_conditions or any(record.conditions for record in _records(todo))
        needs = _needs(snapshot, plans, choices, namespaces, conditions=conditions)
        needs = (*needs, *permissions.for_hooks(plans, options.before_pod))
        needs = (*needs, *(permissions.for_events(plans) if options.announce_events else ()))
        found = [*rights.ask(ctx, needs), *found]
    blockers = [finding for finding in found if finding.severity == "blocker"]
    wrong = [finding.message for finding in blockers if finding.code in BAD_INPUT]
    emptied = estimate.wave_seconds(snapshot, plans, groups, settle=options.settle, choices=choices, now=now)
    seconds = [int(options.planned_notice or 0) + each for each in emptied]
    data = {
        "feasible": not blockers,
        "findings": [finding.to_dict() for finding in found],
        "pods": [_pod(plan, dead.fate(snapshot, plan.pod, now), placed.get(plan.pod.uid)) for plan in plans],
        "waves": [list(wave) for wave in groups],
        "wave_seconds": seconds,
        "estimate_seconds": sum(seconds),
        "fence": access.standing(ctx),
        "nodes": [_node(snapshot, name, there, blockers) for name in wanted],
    }
    return context.Result(data, failed=bool(wrong), message=" ".join(wrong))


def _needs(
    snapshot: snapshots.Snapshot,
    plans: t.Sequence[pod_plan.PodPlan],
    choices: pod_plan.Choices,
    namespaces: t.Collection[str],
    *,
    conditions: bool,
) -> t.Sequence[permissions.Need]:
    """The permissions that the maintenance needs, where these namespaces exist; none are known if none may be read."""
    absent = bool(namespaces) and names.NAMESPACE not in namespaces
    locks = names.MEDIK8S_NAMESPACE if names.MEDIK8S_NAMESPACE in namespaces else names.NAMESPACE
    return permissions.needs(snapshot, plans, choices, namespace_missing=absent, locks=locks, conditions=conditions)


def _gather(ctx: context.Context, nodes: snapshots.Snapshot, present: tuple[str, ...]) -> snapshots.Snapshot:
    """The cluster as far as the pods on the nodes need it: one list for each kind."""
    if not present:
        return nodes
    found: dict[str, list[t.Any]] = {"nodes": list(nodes.nodes.values())}
    found.update(observe.lists(ctx.cluster, ("pods", "budgets", "leases")))
    here = [pod for pod in found["pods"] if pod.node in present]
    more = observe.owners_of(here)
    if set(more) - {"daemon_sets"}:
        more.append("autoscalers")
    if volumes.claimants(here):
        more += ["claims", "volumes"]
    if devices.claimants(here):
        more += devices.KINDS
    more += [*observe.groups_of(here), *observe.machines_of(here)]
    found.update(observe.lists(ctx.cluster, more))
    if found.get("device_claims"):
        found["device_rules"] = observe.device_rules(ctx.cluster)
    found["leases"] += _foreign_leases(ctx, [nodes.nodes[name] for name in present])
    if away := [name for name in present if dead.lost(nodes.nodes[name])]:
        leases, found["attachments"] = dead_nodes.vital_signs(ctx, away)
        found["leases"] += leases
    found["scales"] = owners.scales(ctx, snapshots.Snapshot.of(found), here)
    return snapshots.Snapshot.of(found)


def _foreign_leases(ctx: context.Context, nodes: list[objects.Node]) -> list[objects.Raw]:
    """Locks in another namespace than ours, such as Medik8s'."""
    places = {tuple(record.lease.split("/", 1)) for node in nodes if (record := _record(node)) and "/" in record.lease}
    others = {place[0] for place in places} - {names.NAMESPACE}
    return [lease for lease in life.leases_in(ctx, others) if life.place_of(lease) in places]


def _medik8s(ctx: context.Context, snapshot: snapshots.Snapshot, namespaces: t.Collection[str]) -> snapshots.Snapshot:
    """With the leases of Medik8s, where its namespace exists; if they may not be read, the lock finds out."""
    if names.MEDIK8S_NAMESPACE not in namespaces:
        return snapshot
    try:
        found = life.leases_in(ctx, [names.MEDIK8S_NAMESPACE])
    except errors.Forbidden:
        return snapshot
    known = {life.place_of(lease) for lease in found}
    return replace(snapshot, leases=(*(x for x in snapshot.leases if life.place_of(x) not in known), *found))


def _room(
    ctx: context.Context, snapshot: snapshots.Snapshot, plans: t.Iterable[pod_plan.PodPlan]
) -> tuple[snapshots.Snapshot, list[reasons.Finding]]:
    """Quotas and limit ranges, if there are replacement pods to fit in."""
    if not any(plan.route == "swap" for plan in plans):
        return snapshot, []
    try:
        found = observe.lists(ctx.cluster, ("quotas", "limits"))
    except errors.Forbidden as error:
        message = f"It is unknown whether quotas and limit ranges have room for the replacement pods: {error}"
        return snapshot, [reasons.Finding("not_checked", message, severity="info", object="ResourceQuota, LimitRange")]
    return replace(snapshot, quotas=tuple(found["quotas"]), limits=tuple(found["limits"])), []


def _requested(
    ctx: context.Context, snapshot: snapshots.Snapshot, plans: t.Iterable[pod_plan.PodPlan]
) -> snapshots.Snapshot:
    """EvictionRequests, if pods to be evicted have responders; a missing permission is found with the others."""
    if not any(plan.route == "evict" and plan.pod.responders for plan in plans):
        return snapshot
    with contextlib.suppress(errors.Forbidden):
        found = observe.lists(ctx.cluster, ("eviction_requests",))["eviction_requests"]
        return replace(snapshot, eviction_requests=tuple(found))
    return snapshot


def _namespaces(ctx: context.Context) -> t.Sequence[objects.Raw]:
    """All namespaces; empty if they may not be read."""
    try:
        return ctx.cluster.items(kinds.NAMESPACES, patience=act.PATIENCE).items
    except errors.Forbidden:
        return ()


def _forecasts(
    ctx: context.Context,
    snapshot: snapshots.Snapshot,
    plans: t.Sequence[pod_plan.PodPlan],
    groups: t.Sequence[t.Collection[str]],
    options: PlanOptions,
) -> tuple[dict[str, forecast.Forecast], list[reasons.Finding]]:
    """Where the pods go; the kinds that only pods with volumes need are read only for those."""
    unread: list[reasons.Finding] = []
    if any(plan.pod.claims for plan in plans if plan.route in forecast.MOVED):
        wanted = ["csi_nodes", "storage_classes", *(() if snapshot.attachments else ("attachments",))]
        try:
            listed = observe.lists(ctx.cluster, wanted)
            found: dict[str, t.Any] = {kind: tuple(items) for kind, items in listed.items()}
            snapshot = replace(snapshot, **found)
        except errors.Forbidden as error:
            message = f"It is not forecast where pods with volumes go: {error}"
            unread = [reasons.Finding("not_checked", message, severity="info", object="CSINode, StorageClass")]
    stay_out = options.goal == "evacuated"
    return forecast.forecasts(snapshot, plans, groups, stay_out=stay_out, with_volumes=not unread), unread


def _at_goal(snapshot: snapshots.Snapshot, name: str, options: PlanOptions) -> bool:
    record = _record(snapshot.nodes[name])
    if options.goal != "evacuated" or record is None or record.step != "parked":
        return False
    return not migrate.left_to_move(snapshot, {name}, options.choices)


def _records(nodes: t.Iterable[objects.Node]) -> list[node_records.Record]:
    return list(stored_runs.records(nodes)[0].values())


def _record(node: objects.Node) -> node_records.Record | None:
    return stored_runs.records([node])[0].get(node.name)


def _nothing_selected(options: PlanOptions) -> reasons.Finding:
    return reasons.Finding(
        "selector_matches_nothing",
        f"No node matches node_selector {options.node_selector}.",
        "Look at `kubectl get nodes --show-labels`.",
        "blocker",
        f"node_selector {options.node_selector}",
    )


def _unknown_zone_key(nodes: t.Iterable[objects.Node], options: PlanOptions) -> list[reasons.Finding]:
    """A limit or an order by a label that no node of the cluster has would silently mean one zone for all."""
    key, labels = options.zone_key, {label for node in nodes for label in node.labels}
    if key in labels or (options.max_per_zone is None and options.order != "zone"):
        return []
    close = difflib.get_close_matches(key, labels, n=3, cutoff=0.75)
    close = close or sorted(label for label in labels if "zone" in label)
    hint = f" Similar labels are {', '.join(close)}." if close else ""
    remedy = "Name the label with the zones in maintain_zone_key (zone_key of maintenance_plan)."
    return [reasons.Finding("unknown_zone_key", f"No node has the label {key}.{hint}", remedy, "blocker", key)]


def _node(
    snapshot: snapshots.Snapshot, name: str, there: t.Collection[str], blockers: list[reasons.Finding]
) -> dict[str, t.Any]:
    """One node of the result."""
    node = snapshot.nodes.get(name)
    record = _record(node) if node else None
    against = ", ".join(f"{f.code} ({f.object})" for f in blockers if name in f.nodes or not f.nodes)
    outcome, message = outcomes.PlanOutcome.PLANNED, f"Node {name} can be taken out."
    if node is None:
        outcome, message = outcomes.PlanOutcome.UNKNOWN, f"There is no node {name}."
    elif name in there:
        outcome, message = outcomes.PlanOutcome.AT_GOAL, f"Node {name} is out and empty already."
    elif against:
        outcome, message = outcomes.PlanOutcome.BLOCKED, f"Node {name} cannot be taken out: {against}."
    return {
        "name": name,
        "outcome": outcome.value,
        "failed": outcome.failed,
        "address": node.address if node else "",
        "message": message,
        "record": record.public() if record else None,
    }


def _pod(plan: pod_plan.PodPlan, fate: dead.Fate | None, placed: forecast.Forecast | None) -> dict[str, t.Any]:
    return {
        **{key: getattr(plan.pod, key) for key in ("namespace", "name", "uid", "node")},
        "owner": str(plan.workload) if plan.workload else "",
        **{key: getattr(plan, key) for key in ("route", "code", "reason", "remedy")},
        "rule": plan.manner.rule,
        "budgets": [str(budget) for budget in plan.budgets],
        "fits": placed.fits if placed else None,
        "target": placed.target if placed else None,
        "forecast": placement.said(placed) if placed else "",
        "fate": fate.to_dict() if fate else None,
    }


def _forbidden(ctx: context.Context, options: PlanOptions, error: errors.Forbidden) -> context.Result:
    """A list was refused: report that with all other missing permissions."""
    found = rights.refused(ctx, error, options.choices)
    data = {"feasible": False, "findings": [finding.to_dict() for finding in found]}
    return context.Result(data, failed=True, message=" ".join(finding.message for finding in found))
