# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What ``pdb_guard`` reads and watches beside nodes and leases: in large clusters only what its nodes need."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    names,
    objects,
    pod_plan,
    scopes,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes import devices, replacing, volumes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import guards, surge_records
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import (
    by_name,
    live_view,
    observe,
    owners,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.protect import guard_call

FRESH = 3.0
"""Seconds for which watches may begin with what the call has listed before its locks were taken."""


def around(work: guard_call.GuardCall, pods: t.Sequence[objects.Pod], choices: pod_plan.Choices) -> None:
    """What the routes of these pods depend on."""
    recorded = surge_records.surges_for(work.snapshot, work.nodes)
    if work.scope:
        # Which pods stay with their node is known by these alone.
        work.read(*(name for name in observe.owners_of(pods) if name == "daemon_sets"))
        spaces = {surge.workload.namespace for surge in recorded}
        work.enter(spaces | scopes.namespaces_of(work.snapshot, pods))
    devised = devices.KINDS if devices.claimants(pods) else ()
    work.read("budgets", *observe.owners_of(pods), *observe.groups_of(pods), *observe.machines_of(pods), *devised)
    work.read(*observe.surged(recorded) if work.scope else ())
    if volumes.claimants(pods):
        if work.scope:
            work.read(**by_name.claims_of(work.ctx.cluster, pods))
        work.read("claims", "volumes")
    if any(pod.owner for pod in pods):
        work.read("autoscalers")
    work.read(scales=owners.scales(work.ctx, work.snapshot, pods))
    work.widen(pods, recorded)
    work.read(*replacing.kinds(work.snapshot, pods, choices))


def absent(work: guard_call.GuardCall) -> None:
    """Read our guards, which say what nodes they serve, and what the surges need to be undone."""
    if work.scope is None:
        work.read("pods", "budgets")
        return
    found, labels = surges(work, frozenset(work.nodes)), f"{names.MANAGED_BY_LABEL}={names.MANAGED_BY}"
    ours = observe.listed(work.ctx.cluster, "budgets", scopes.ALL, labels=labels)
    nodes = set(work.nodes)
    serving = {budget.namespace for budget in ours if nodes & guards.nodes_of(budget).keys()}
    work.enter(serving | {surge.workload.namespace for surge in found})
    work.read("budgets", *(("pods", *observe.surged(found)) if found else ()))
    known = {budget.uid for budget in ours}
    work.read(budgets=[*ours, *(budget for budget in work.found["budgets"] if budget.uid not in known)])
    if found:
        work.widen((), found)


def surges(work: guard_call.GuardCall, nodes: frozenset[str]) -> list[surge_records.Surge]:
    """The surges that serve these nodes, and those whose nodes no longer exist."""
    found = list(surge_records.surges_for(work.snapshot, nodes))
    others = (one for one in surge_records.surges_in(work.snapshot) if one not in found)
    return found + [one for one in others if surge_records.orphaned(work.snapshot, one)]


def watching(work: guard_call.GuardCall, surges: t.Collection[surge_records.Surge], *wanted: str) -> live_view.Live:
    """What is wanted, and what shows how the workloads of these surges change; it begins with what was read."""
    live = live_view.Live(work.ctx, dict.fromkeys((*wanted, *observe.surged(surges))), work.scope)
    if work.scope is None and work.ctx.clock.now() - work.began <= FRESH:
        live.begin_with(work.found, work.versions)
    live.seed(work.found)
    return live
