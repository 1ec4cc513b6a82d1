# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``maintenance_plan``: what a maintenance would do and what stands against it. Reads only."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass, field, replace
from types import MappingProxyType

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import (
    permissions,
    plan_needs,
    run_access,
    run_permissions,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    admission,
    names,
    objects,
    related,
    run_context,
    run_listing,
    run_owners,
    run_targeted_reads,
    scopes,
    selectors,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    devices,
    replacement,
    unreachable,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    run_installed,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    collector,
    errors,
    kinds,
    verbs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import lookup
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import (
    advice,
    drafts,
    neighbours,
    preflight,
    queues,
    run_trials,
    service_findings,
    wave_times,
    waves,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import (
    forecast_findings as placement,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    lock_leases,
    node_records,
    run_leases,
)

BAD_INPUT = frozenset({"unknown_node", "selector_matches_nothing", "unknown_zone_key"})
"""Findings that make the call fail: its input names something that does not exist."""

Goal = t.Literal["maintained", "evacuated"]
OnBlocked = t.Literal["stop", "skip"]


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Options of the module; times in seconds, ``None`` without a limit.

    With ``goal`` ``evacuated``, nodes that are out and empty already join no wave, with
    ``on_blocked`` ``skip`` those with a blocker. ``settle`` and ``planned_notice`` are for the
    estimate, and ``timeout`` is what the calls of the run will have.
    """

    nodes: tuple[str, ...] = ()
    node_selector: str = ""
    choices: drain_policy.DrainPolicy = field(default_factory=drain_policy.DrainPolicy)
    goal: Goal = "maintained"
    on_blocked: OnBlocked = "stop"
    order: waves.Order = "given"
    max_parallel: int = 1
    zone_key: str = "topology.kubernetes.io/zone"
    max_per_zone: int | None = None
    kured: str = neighbours.KURED
    settle: float = 2.0
    node_conditions: bool = False
    planned_notice: float | None = None
    timeout: float | None = None
    before_pod: tuple[hook_definitions.Rule, ...] = ()
    announce_events: bool = False

    @property
    def has_task_files(self) -> bool:
        """Whether task files of hooks run before pods leave."""
        return any(rule.tasks for rule in self.before_pod)


def make_plan(ctx: run_context.Context, options: PlanOptions) -> run_context.Result:
    """The plan.

    Raises:
        CallAborted: a selector that cannot be parsed.
        ClusterError: the API server cannot be reached.
    """
    try:
        nodes = snapshots.Snapshot.of({"nodes": run_targeted_reads.all_nodes(ctx)})
        wanted = _wanted(nodes, options)
        with collector.paused():
            present = tuple(name for name in wanted if name in nodes.nodes)
            return _plan(ctx, _gather(ctx, nodes, present, options.choices), wanted, options)
    except errors.Forbidden as error:
        return _forbidden(ctx, options, error)


def _wanted(nodes: snapshots.Snapshot, options: PlanOptions) -> tuple[str, ...]:
    if options.nodes:
        return tuple(dict.fromkeys(options.nodes))
    if not options.node_selector.strip():
        raise run_context.CallAborted(
            "no_nodes", "Neither nodes nor node_selector say what to plan for.", "Give one of them."
        )
    try:
        selector = selectors.parse(options.node_selector)
    except ValueError as error:
        raise run_context.CallAborted(
            "bad_selector", f"node_selector: {error}.", "", options.node_selector
        ) from error
    all_nodes = nodes.nodes.values()
    return tuple(sorted(x.name for x in all_nodes if selectors.matches(selector, x.labels)))


def _plan(
    ctx: run_context.Context,
    gathered: snapshots.Snapshot,
    wanted: tuple[str, ...],
    options: PlanOptions,
    given_up: t.Mapping[str, str] = MappingProxyType({}),
    unreplaced_findings: tuple[reasons.Finding, ...] = (),
) -> run_context.Result:
    """The plan; ``given_up``: why pods of these workloads, by their UIDs,
    are not replaced first, as ``unreplaced_findings`` tells.
    """
    now = ctx.clock.server()
    choices, warned = run_installed.prepared(ctx, options.choices)
    asked = preflight.DraftOptions(
        nodes=wanted,
        choices=choices,
        run=ctx.run.id if ctx.run else "",
        now=now,
        evacuates=options.goal == "evacuated",
        order=options.order,
        max_parallel=options.max_parallel,
        zone_key=options.zone_key,
        max_per_zone=options.max_per_zone,
        kured=options.kured,
        unreplaced=given_up,
    )
    draft = drafts.draft(gathered, asked)
    snapshot, judges, unread, with_volumes = _completed(ctx, gathered, draft)
    asked = replace(asked, with_volumes=with_volumes)
    planned = drafts.judged(snapshot, asked, draft)
    skipped: tuple[reasons.Finding, ...] = ()
    if options.on_blocked == "skip":
        planned, skipped = drafts.fitting(snapshot, asked, planned)
    plans, todo = planned.draft.plans, planned.draft.todo
    groups = planned.draft.waves
    found = [*warned, *planned.findings, *unread, *unreplaced_findings]
    if any(plan.route == "job" for plan in plans):
        found += preflight.unapproved(run_installed.listed(ctx), plans, choices.job_wait)
    if not wanted:
        found.append(lookup.nothing_selected(options.node_selector))
    found += drafts.unknown_zone_key(snapshot.nodes.values(), asked)
    fence: run_access.Standing = "unknown"
    # A run that has started knew both before its first write, and looks again before each wave.
    if not (ctx.run and ctx.run.nonce):
        needs = _needs(snapshot, plans, choices, options, todo) if todo else ()
        lacking = run_permissions.ask(ctx, needs)
        found = [*lacking, *found]
        if not lacking:
            refused, unreplaced = run_trials.refused(
                ctx, snapshot, plans, choices, judges, options.before_pod
            )
            if unreplaced:
                # Their pods have another way, which is planned and tried anew.
                warnings = (one for one in refused if one.severity == "warning")
                unreplaced_findings = (*unreplaced_findings, *warnings)
                given_up = {**given_up, **unreplaced}
                return _plan(ctx, gathered, wanted, options, given_up, unreplaced_findings)
            found += refused
        fence = run_access.standing(ctx, found)
    known = {"settle": options.settle, "notice": options.planned_notice or 0.0}
    times = wave_times.wave_times(
        snapshot, plans, groups, **known, apart=options.has_task_files, choices=choices, now=now
    )
    found += wave_times.findings(groups, times, options.timeout)
    blockers = [finding for finding in found if finding.severity == "blocker"]
    pace = queues.Times(snapshot, choices.load_balancer_wait)
    wrong = [finding.message for finding in blockers if finding.code in BAD_INPUT]
    data = {
        "feasible": not blockers and bool(groups or not skipped),
        "findings": [finding.to_dict() for finding in reasons.merged((*skipped, *found))],
        "pods": [_pod(snapshot, planned, plan, pace, options.settle, now) for plan in plans],
        "waves": [list(wave) for wave in groups],
        "waits": [wait.to_dict() for wait in planned.draft.waits],
        **_lasting(times),
        "fence": fence,
        "advice": [one.to_dict() for one in advice.advice(snapshot, asked, planned)],
        "nodes": [_node(snapshot, name, draft.there, [*skipped, *blockers]) for name in wanted],
        "left_out": [name for name in wanted if any(name in finding.nodes for finding in skipped)],
    }
    return run_context.Result(data, failed=bool(wrong), message=" ".join(wrong))


def _completed(
    ctx: run_context.Context, snapshot: snapshots.Snapshot, draft: drafts.Draft
) -> tuple[snapshots.Snapshot, list[admission.Judge], list[reasons.Finding], bool]:
    """With what the plans need; who judges requests; what is unknown; if volumes are known."""
    plans, todo = draft.plans, draft.todo
    snapshot, unread = _room(ctx, snapshot, plans)
    snapshot, judges, unseen = _webhooks(ctx, snapshot) if todo else (snapshot, [], [])
    snapshot = _serving(ctx, _requested(ctx, snapshot, plans), plans)
    snapshot = _medik8s(ctx, replace(snapshot, namespaces=tuple(_namespaces(ctx) if todo else ())))
    snapshot, unknown = _volumes(ctx, snapshot, plans)
    return snapshot, judges, [*unread, *unseen, *unknown], not unknown


def _lasting(times: t.Sequence[wave_times.WaveTime]) -> dict[str, t.Any]:
    return {
        "wave_seconds": [wave.seconds for wave in times],
        "wave_ranges": [list(wave.range) for wave in times],
        "wave_parts": [wave.parts.to_dict() for wave in times],
        "budgets": [held.to_dict() for wave in times for held in wave.held],
        "estimate_seconds": sum(wave.seconds for wave in times),
        "estimate_range": wave_times.together(times),
    }


def _needs(
    snapshot: snapshots.Snapshot,
    plans: t.Sequence[drain_policy.PodPlan],
    choices: drain_policy.DrainPolicy,
    options: PlanOptions,
    todo: t.Sequence[objects.Node],
) -> t.Sequence[permissions.Need]:
    """The permissions that the maintenance needs, where our namespaces exist."""
    there = drafts.phases(snapshot)
    absent = bool(there) and names.NAMESPACE not in there
    locks = names.MEDIK8S_NAMESPACE if names.MEDIK8S_NAMESPACE in there else names.NAMESPACE
    conditions = options.node_conditions or any(record.conditions for record in _records(todo))
    return (
        *plan_needs.needs(
            snapshot, plans, choices, namespace_missing=absent, locks=locks, conditions=conditions
        ),
        *plan_needs.for_hooks(plans, options.before_pod),
        *(plan_needs.for_events(plans) if options.announce_events else ()),
    )


def _gather(
    ctx: run_context.Context,
    nodes: snapshots.Snapshot,
    present: tuple[str, ...],
    choices: drain_policy.DrainPolicy,
) -> snapshots.Snapshot:
    """The cluster as far as the pods on the nodes need it: one list for each kind."""
    if not present:
        return nodes
    found: dict[str, list[t.Any]] = {"nodes": list(nodes.nodes.values())}
    found.update(run_listing.lists(ctx.cluster, ("pods", "budgets", "leases")))
    leaving = frozenset(present)
    here = [pod for pod in found["pods"] if pod.node in leaving]
    more = related.owners_of(here)
    if set(more) - {"daemon_sets"}:
        more.append("autoscalers")
    if devices.attaching(here):
        more += ["claims", "volumes"]
    if devices.claimants(here):
        more += devices.KINDS
    elif devices.extended(here):
        with contextlib.suppress(errors.Forbidden):
            found.update(run_listing.lists(ctx.cluster, ("device_classes",)))
    more += [*related.groups_of(here), *related.machines_of(here)]
    owners = {pod.owner.uid for pod in found["pods"] if pod.owner}
    found.update(run_listing.lists(ctx.cluster, more, owners=owners))
    if found.get("device_claims"):
        found["device_rules"] = run_listing.device_rules(ctx.cluster)
    found["leases"] += _foreign_leases(ctx, [nodes.nodes[name] for name in present])
    if away := [name for name in present if unreachable.lost(nodes.nodes[name])]:
        leases, found["attachments"] = _vital_signs(ctx, away)
        found["leases"] += leases
    seen = snapshots.Snapshot.of(found)
    found["scales"] = run_owners.scales(ctx, seen, here)
    more = [name for name in replacement.kinds(seen, here, choices) if name not in found]
    found.update(run_listing.lists(ctx.cluster, more, recent=ctx.recent))
    return snapshots.Snapshot.of(found)


def _foreign_leases(ctx: run_context.Context, nodes: list[objects.Node]) -> list[objects.Raw]:
    """Locks in another namespace than ours, such as Medik8s'."""
    places = {
        tuple(record.lease.split("/", 1))
        for node in nodes
        if (record := _record(node)) and "/" in record.lease
    }
    others = {place[0] for place in places} - {names.NAMESPACE}
    found = run_leases.leases_in(ctx, others)
    return [lease for lease in found if lock_leases.place_of(lease) in places]


def _vital_signs(
    ctx: run_context.Context, nodes: t.Iterable[str]
) -> tuple[list[objects.Raw], list[objects.Raw]]:
    """The leases of these nodes' kubelets, and all VolumeAttachments, where they may be read."""
    leases: list[objects.Raw] = []
    try:
        for name in nodes:
            with contextlib.suppress(errors.NotFound):
                leases.append(ctx.cluster.send(verbs.get(kinds.LEASES, name, unreachable.LEASES)))
        return leases, run_listing.lists(ctx.cluster, ("attachments",))["attachments"]
    except errors.Forbidden:
        return leases, []


def _medik8s(ctx: run_context.Context, snapshot: snapshots.Snapshot) -> snapshots.Snapshot:
    """The snapshot with the leases of Medik8s; if they may not be read, the lock finds out."""
    if names.MEDIK8S_NAMESPACE not in drafts.phases(snapshot):
        return snapshot
    try:
        found = run_leases.leases_in(ctx, [names.MEDIK8S_NAMESPACE])
    except errors.Forbidden:
        return snapshot
    known = {lock_leases.place_of(lease) for lease in found}
    others = [lease for lease in snapshot.leases if lock_leases.place_of(lease) not in known]
    return replace(snapshot, leases=(*others, *found))


def _room(
    ctx: run_context.Context, snapshot: snapshots.Snapshot, plans: t.Iterable[drain_policy.PodPlan]
) -> tuple[snapshots.Snapshot, list[reasons.Finding]]:
    """Quotas and limit ranges, if there are replacement pods to fit in."""
    if not any(plan.route in ("surge", "replace") for plan in plans):
        return snapshot, []
    try:
        found = run_listing.lists(ctx.cluster, ("quotas", "limits"))
    except errors.Forbidden as error:
        what = "whether quotas and limit ranges have room for the replacement pods"
        return snapshot, [
            _not_checked(f"It is unknown {what}: {error}", "ResourceQuota, LimitRange")
        ]
    return replace(snapshot, quotas=tuple(found["quotas"]), limits=tuple(found["limits"])), []


def _not_checked(message: str, kind: str) -> reasons.Finding:
    return reasons.Finding("not_checked", message, severity="info", object=kind)


def _requested(
    ctx: run_context.Context, snapshot: snapshots.Snapshot, plans: t.Iterable[drain_policy.PodPlan]
) -> snapshots.Snapshot:
    """EvictionRequests, if pods have responders; a missing permission is found with the others."""
    if not any(plan.route == "evict" and plan.pod.responders for plan in plans):
        return snapshot
    with contextlib.suppress(errors.Forbidden):
        found = run_listing.lists(ctx.cluster, ("eviction_requests",))["eviction_requests"]
        return replace(snapshot, eviction_requests=tuple(found))
    return snapshot


def _webhooks(
    ctx: run_context.Context, snapshot: snapshots.Snapshot
) -> tuple[snapshots.Snapshot, list[admission.Judge], list[reasons.Finding]]:
    """Webhooks that fail closed, and who may refuse what, before a run begins."""
    if ctx.run and ctx.run.nonce:
        return snapshot, [], []
    hooks_ = list[admission.Webhook]()
    judges = list[admission.Judge]()
    unseen = list[reasons.Finding]()
    for kind in (kinds.VALIDATING_WEBHOOKS, kinds.MUTATING_WEBHOOKS, kinds.ADMISSION_POLICIES):
        try:
            raws = ctx.cluster.items(kind).items
        except errors.NotFound:
            continue
        except errors.Forbidden as error:
            what = "whether one of these would refuse pods, or what the maintenance writes"
            unseen.append(_not_checked(f"It is unknown {what}: {error}", kind.kind))
            continue
        for raw in raws:
            hooks_ += admission.webhooks(raw, kind.kind)
            judges += admission.judges(raw)
    return replace(snapshot, webhooks=tuple(hooks_)), judges, unseen


def _serving(
    ctx: run_context.Context, snapshot: snapshots.Snapshot, plans: t.Sequence[drain_policy.PodPlan]
) -> snapshots.Snapshot:
    """EndpointSlices, before a run begins: of pods that stay and may serve, of webhooks,
    of what may go dark.

    A missing right is found with the others.
    """
    spaces = {pod.namespace for pod in service_findings.might_serve(plans)}
    spaces |= {hook.service[0] for hook in snapshot.webhooks}
    spaces |= service_findings.might_darken(plans)
    if not spaces or (ctx.run and ctx.run.nonce):
        return snapshot
    large = len(snapshot.nodes) > scopes.PAGE_OF_NODES
    scope = scopes.ReadScope((), tuple(sorted(spaces))) if large else None
    with contextlib.suppress(errors.Forbidden):
        slices = run_listing.lists(ctx.cluster, ("slices",), scope)["slices"]
        return replace(snapshot, slices=tuple(slices))
    return snapshot


def _namespaces(ctx: run_context.Context) -> t.Sequence[objects.Raw]:
    """None if they may not be read."""
    at = ctx.clock.now()
    try:
        listing = ctx.cluster.items(kinds.NAMESPACES)
    except errors.Forbidden:
        return ()
    ctx.recent["namespaces"] = run_context.RecentList(listing.items, listing.resource_version, at)
    return listing.items


def _volumes(
    ctx: run_context.Context, snapshot: snapshots.Snapshot, plans: t.Iterable[drain_policy.PodPlan]
) -> tuple[snapshots.Snapshot, list[reasons.Finding]]:
    """The kinds that the forecast needs for pods with volumes, if such pods move."""
    if not devices.attaching(plan.pod for plan in plans if plan.route in drain_policy.MOVING):
        return snapshot, []
    wanted = ["csi_nodes", "storage_classes"]
    if not snapshot.attachments:
        wanted.append("attachments")
    try:
        found = run_listing.lists(ctx.cluster, wanted)
    except errors.Forbidden as error:
        message = f"It is not forecast where pods with volumes go: {error}"
        return snapshot, [_not_checked(message, "CSINode, StorageClass")]
    read: dict[str, t.Any] = {kind: tuple(items) for kind, items in found.items()}
    return replace(snapshot, **read), []


def _records(nodes: t.Iterable[objects.Node]) -> list[node_records.Record]:
    return list(node_records.records(nodes)[0].values())


def _record(node: objects.Node) -> node_records.Record | None:
    return node_records.records([node])[0].get(node.name)


def _node(
    snapshot: snapshots.Snapshot,
    name: str,
    there: t.Collection[str],
    blockers: list[reasons.Finding],
) -> dict[str, t.Any]:
    node = snapshot.nodes.get(name)
    record = _record(node) if node else None
    mine = [f for f in blockers if name in f.nodes or not f.nodes]
    against = ", ".join(f"{f.code} ({f.object})" for f in mine)
    outcome, message = outcomes.PlanOutcome.PLANNED, f"Node {name} can be taken out."
    if node is None:
        outcome, message = outcomes.PlanOutcome.UNKNOWN, f"There is no node {name}."
    elif name in there:
        outcome, message = outcomes.PlanOutcome.AT_GOAL, f"Node {name} is out and empty already."
    elif against:
        outcome = outcomes.PlanOutcome.BLOCKED
        message = f"Node {name} cannot be taken out: {against}."
    return {
        "name": name,
        "outcome": outcome.value,
        "failed": outcome.failed,
        "address": node.address if node else "",
        "message": message,
        "record": record.public() if record else None,
    }


def _pod(
    snapshot: snapshots.Snapshot,
    planned: drafts.Plan,
    plan: drain_policy.PodPlan,
    pace: queues.Times,
    settle: float,
    now: str,
) -> dict[str, t.Any]:
    fate = unreachable.after_node_loss(snapshot, plan.pod, now)
    placed = planned.placed.get(plan.pod.uid)
    seconds = pace.move(plan, settle)
    return {
        **{key: getattr(plan.pod, key) for key in ("namespace", "name", "uid", "node")},
        "owner": str(plan.workload) if plan.workload else "",
        **{key: getattr(plan, key) for key in ("route", "code", "reason", "remedy")},
        "rule": plan.policy.rule,
        "budgets": [str(budget) for budget in plan.budgets],
        "fits": placed.fits if placed else None,
        "target": placed.target if placed else None,
        "forecast": placement.described(placed) if placed else "",
        "seconds": None if seconds is None else round(seconds, 1),
        "fate": fate.to_dict() if fate else None,
    }


def _forbidden(
    ctx: run_context.Context, options: PlanOptions, error: errors.Forbidden
) -> run_context.Result:
    found = run_permissions.refused(ctx, error, plan_needs.of_every_run(options.choices))
    findings = [finding.to_dict() for finding in reasons.merged(found)]
    data = {"feasible": False, "waves": [], "findings": findings}
    message = "\n".join(finding.sentence for finding in found)
    return run_context.Result(data, failed=True, message=message)
