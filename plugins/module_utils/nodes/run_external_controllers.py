# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Those who react to a node or its pods: load balancers, operators, Kubernetes' controllers."""

from __future__ import annotations

import itertools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    index_keys,
    names,
    objects,
    related,
    run_context,
    run_owners,
    run_watch_cache,
    scopes,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import pending
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    errors,
    kinds,
    watch,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import cordon as plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records

RUNS_AGAIN_SECONDS = 180.0
"""Seconds that successors of pods that waited for a node may take to be Ready once it is back."""
LOOK_EVERY_SECONDS = 1.0
"""Longest pause between two looks at them, in seconds."""

TAINT_SECONDS = 10.0
"""For how long the node lifecycle controller may take to remove the taint of a cordon."""


def await_notice(ctx: run_context.Context, waits: t.Mapping[str, float]) -> None:
    """Give others time to react to the maintenance that is planned; ``waits``: seconds by node."""
    nodes = ", ".join(name for name, wait in waits.items() if wait > 0)
    if nodes:
        longest = max(waits.values())
        what = f"{longest:.0f} s for others to react to MaintenancePlanned of {nodes}"
        ctx.tell(phases.What.WAITING, what)
        ctx.clock.sleep(longest)


def let_balancers_settle(
    ctx: run_context.Context, records: t.Mapping[str, node_records.Record]
) -> None:
    """Wait until external load balancers have removed the nodes, before work on their hosts."""
    now = ctx.clock.server()
    wait = max((plan.balanced_for(record, now) for record in records.values()), default=0.0)
    if not wait or not _has_balancers(ctx):
        return
    what = f"{wait:.0f} s for external load balancers to remove {', '.join(records)}"
    ctx.tell(phases.What.WAITING, what)
    ctx.clock.sleep(wait)


def _has_balancers(ctx: run_context.Context) -> bool:
    """Whether a Service has an external load balancer; if Services may not be listed, one may."""
    try:
        found = ctx.cluster.items(kinds.SERVICES, keep=index_keys.service).items
    except errors.Forbidden:
        return True
    return any((service.get("spec") or {}).get("type") == "LoadBalancer" for service in found)


def await_schedulable(
    ctx: run_context.Context, nodes: t.Mapping[str, objects.Raw]
) -> dict[str, str]:
    """Wait until the node lifecycle controller has removed the taint of a cordon, which it does
    some milliseconds after the cordon; before that no pod comes to the node, although it is
    uncordoned.

    ``nodes`` are as the API server answered when their cordons were removed, by name; one watch of
    all of them begins there. Returns a note on each that has the taint after ``TAINT_SECONDS``.
    """
    tainted = {name for name, raw in nodes.items() if _is_tainted(raw)}
    if not tainted:
        return {}
    until = ctx.clock.now() + TAINT_SECONDS
    wake = ctx.clock.condition()

    def see(what: str, raw: objects.Raw) -> None:
        if what == "DELETED" or not _is_tainted(raw):
            tainted.discard(raw["metadata"]["name"])

    fields = f"metadata.name={next(iter(tainted))}" if len(tainted) == 1 else ""
    reflector = watch.Reflector(
        ctx.cluster,
        kinds.NODES,
        fields=fields,
        wake=wake,
        keep=lambda raw: raw if raw["metadata"]["name"] in nodes else None,
        on_event=see,
    )
    versions = [nodes[name]["metadata"]["resourceVersion"] for name in tainted]
    # From the first of them on, so that the watch tells of each;
    # where their order is unknown, a list does.
    reflector.resource_version = min(versions, key=int) if all(map(str.isdigit, versions)) else ""
    reflector.start()
    try:
        with wake:
            while tainted and (left := until - ctx.clock.now()) > 0:
                if reflector.error or reflector.trouble:
                    # They were given back, even if they cannot be read now.
                    return {}
                wake.wait(left)
            late = sorted(tainted)
    finally:
        reflector.stop()
    taint = (
        f"the taint {names.UNSCHEDULABLE_TAINT} is still there, "
        "is the node lifecycle controller running?"
    )
    return dict.fromkeys(late, f"; {taint}")


def await_workloads(
    ctx: run_context.Context, waiting: t.Mapping[str, t.Collection[node_records.Awaited]]
) -> dict[str, list[str]]:
    """Wait until the workloads that waited for these nodes run again, for a while at most.

    Returns, by node, what still does not run, as texts.
    """
    workloads: dict[objects.Ref, None] = {}
    for some in waiting.values():
        workloads |= {awaited.workload: None for awaited in some}
    refs = list(workloads)
    spaces = tuple(dict.fromkeys(ref.namespace for ref in refs))
    until = ctx.clock.now() + RUNS_AGAIN_SECONDS
    last = ""
    short: dict[str, list[str]] = {}
    try:
        with run_watch_cache.WatchCache(
            ctx, ("pods", *related.kinds_of(refs)), scopes.ReadScope((), spaces)
        ) as live:
            live.seed({"scales": run_owners.named(ctx, live.snapshot(), refs)})
            seen = live.snapshot()
            known = [workload for ref in refs if (workload := seen.workload(ref.uid))]
            live.widen(related.pods(seen, (), known))
            while True:
                seen = live.snapshot()
                short = {name: _lacks(seen, some) for name, some in waiting.items()}
                text = "; ".join(dict.fromkeys(itertools.chain.from_iterable(short.values())))
                if not text or ctx.clock.now() >= until:
                    return short
                if text != last:
                    last = text
                    ctx.tell(phases.What.WAITING, f"{', '.join(waiting)} in service; {text}")
                live.wait(min(LOOK_EVERY_SECONDS, until - ctx.clock.now()))
    except (run_context.CallAborted, errors.ClusterError) as error:
        unseen = f"whether what waited for it runs again could not be watched: {error}"
        return {name: [*short.get(name, ()), unseen] for name in waiting}


def _lacks(snapshot: snapshots.Snapshot, waiting: t.Iterable[node_records.Awaited]) -> list[str]:
    found = (pending.lack(snapshot, awaited) for awaited in waiting)
    return [lack.text for lack in found if lack]


def _is_tainted(raw: objects.Raw) -> bool:
    """Whether a node that is not cordoned still has the taint of a cordon."""
    node = objects.Node.of(raw)
    keys = [taint.get("key") for taint in node.taints]
    return not node.unschedulable and names.UNSCHEDULABLE_TAINT in keys
