# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The way back for what earlier runs left: nodes, surges, budgets, locks, jobs."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import NotFound
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import dead, names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.change import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.record import record_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.snapshot import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.state import Trace, stored_run, traces
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run import job_leftovers
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.act import PATIENCE, apply
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context, Result, Run
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.cordon import CordonOptions, cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.guard import GuardOptions, guard
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.lease import WORKING
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.lock import IDLE, RENEW_EVERY
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.observe import lists
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.runs import (
    config_maps,
    forget,
    journals,
    stored,
)


@dataclass
class _Recovery:
    """What came of each object; ``nodes`` has the shape of every bulk result. ``kept`` are runs with a node left."""

    nodes: list[dict[str, t.Any]] = field(default_factory=list)
    kept: set[str] = field(default_factory=set)
    failed: list[str] = field(default_factory=list)

    def add(self, name: str, outcome: str, message: str, *, failed: bool = False) -> None:
        self.nodes.append({"name": name, "outcome": outcome, "failed": failed, "message": message})
        if failed:
            self.failed.append(message)


def look(ctx: Context) -> tuple[tuple[Trace, ...], set[str]]:
    """All traces, and the runs whose locks moved while we looked."""
    found = _everything(ctx)
    leases = {lease["metadata"]["name"]: lease for lease in found.leases}
    alive = set()
    if any((lease.get("spec") or {}).get("leaseDurationSeconds", 0) <= WORKING for lease in leases.values()):
        ctx.clock.sleep(RENEW_EVERY + 1.0)
        again = Snapshot.of(lists(ctx.cluster, ("leases",)))
        for lease in again.leases:
            before = leases.get(lease["metadata"]["name"])
            if before is None or before["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"]:
                alive.add(str((lease.get("spec") or {}).get("holderIdentity", "")).partition("/")[0])
    raws = config_maps(ctx)
    kept = traces(found, [run for run in map(stored_run, raws) if run], journals(raws))
    return (*kept, *job_leftovers.traces(ctx)), alive


def _everything(ctx: Context) -> Snapshot:
    found = lists(ctx.cluster, ("nodes", "budgets", "leases"))
    places = {r.lease.split("/", 1)[0] for r in map(record_of, found["nodes"]) if r and r.lease}
    for namespace in sorted(places - {names.NAMESPACE}):
        found["leases"] += ctx.cluster.items(kinds.LEASES, namespace=namespace, patience=PATIENCE).items
    return Snapshot.of(found)


def recover(ctx: Context, *, finished: bool) -> Result:
    """Undo what runs left, or with ``finished`` only give back where the work was done.

    A run that is alive is not touched, nor a node that was evacuated as dead and is silent.
    """
    found = _everything(ctx)
    runs = {run.id: run for run in stored(ctx)}
    wanted = ctx.run.id if ctx.run else None
    done = _Recovery()
    for node in found.nodes.values():
        record = record_of(node)
        if record is None or (wanted and record.run != wanted):
            continue
        run = runs.get(record.run)
        if finished and not (run and node.name in run.finished):
            done.add(
                node.name,
                "left",
                f"Node {node.name} is at step {record.step} of run {record.run}: its work is not finished. "
                "Run the same command again, release the node, or undo the run.",
            )
            continue
        if why := dead.stays_out(node, record):
            done.add(node.name, "still_dead", why)
            done.kept.add(record.run)
            continue
        _give_back(ctx, node.name, record.run, done, explicit=wanted is not None)
    _orphans(ctx, found, wanted, done)
    out = {node.name: record for node in lists(ctx.cluster, ("nodes",))["nodes"] if (record := record_of(node))}
    job_leftovers.give_up(ctx, wanted, out)
    if not done.failed:
        still = done.kept | {record.run for record in out.values() if not ctx.check}
        for run_id in runs:
            if wanted in (None, run_id) and run_id not in still and not finished:
                forget(ctx, run_id)
    return Result({"nodes": done.nodes}, failed=bool(done.failed), message="; ".join(done.failed))


def _give_back(ctx: Context, node: str, run_id: str, done: _Recovery, *, explicit: bool) -> None:
    """One node's way back, under a nonce of our own. A live run's lock refuses us."""
    me = replace(ctx, run=Run(run_id, ctx.clock.token()))
    steps: list[t.Callable[[], Result]] = [
        lambda: guard(me, GuardOptions(state="absent", nodes=(node,))),
        lambda: cordon(me, CordonOptions("uncordoned", (node,))),
    ]
    if not ctx.check:
        steps.insert(0, lambda: cordon(me, CordonOptions("cordoned", (node,), adopt=explicit)))
    result = Result({"nodes": []})
    for step in steps:
        result = step()
        if result.failed:
            done.add(node, _outcome_of(result, "failed"), result.message, failed=True)
            return
    done.add(node, _outcome_of(result, "uncordoned"), f"Node {node} was given back.")


def _outcome_of(result: Result, otherwise: str) -> str:
    shown = result.data.get("nodes") or []
    return str(shown[0]["outcome"]) if shown else otherwise


def _orphans(ctx: Context, found: Snapshot, wanted: str | None, done: _Recovery) -> None:
    """Locks whose node has no record, and surges and budgets whose nodes are gone or free."""
    recorded = {name for name, node in found.nodes.items() if record_of(node)}
    lonely = {
        name
        for trace in traces(replace(found, nodes={}), ())
        if not wanted or trace.run in ("", wanted)
        for name in trace.nodes
        if name not in recorded
    }
    if lonely:
        result = guard(ctx, GuardOptions(state="absent", nodes=tuple(sorted(lonely))))
        if result.failed:
            done.failed.append(result.message)
    for lease in found.leases:
        meta, spec = lease["metadata"], lease.get("spec") or {}
        name = meta["name"].removeprefix(names.NODE_LEASE_PREFIX)
        ours = (meta.get("labels") or {}).get(names.MANAGED_BY_LABEL) == names.MANAGED_BY
        run_id = str(spec.get("holderIdentity", "")).partition("/")[0]
        if not ours or not meta["name"].startswith(names.NODE_LEASE_PREFIX) or name in recorded:
            continue
        if wanted and run_id != wanted:
            continue
        if not ctx.check and not _silent(ctx, lease):
            done.add(name, "held", f"The lock of node {name} is alive, held by run {run_id}.", failed=True)
            continue
        ref = Ref("Lease", meta["name"], meta["namespace"], meta["uid"], "coordination.k8s.io/v1")
        try:
            apply(ctx, Change("delete", ref, f"Delete the left lock of node {name}"))
        except NotFound:
            continue


def _silent(ctx: Context, lease: t.Mapping[str, t.Any]) -> bool:
    """Watch one lease for as long as a renewal takes at most."""
    meta, spec = lease["metadata"], lease.get("spec") or {}
    ctx.clock.sleep(min(float(spec.get("leaseDurationSeconds") or 0), IDLE))
    try:
        now = ctx.cluster.send(verbs.get(kinds.LEASES, meta["name"], namespace=meta["namespace"]), patience=PATIENCE)
    except NotFound:
        return True
    return bool(now["metadata"]["resourceVersion"] == meta["resourceVersion"])
