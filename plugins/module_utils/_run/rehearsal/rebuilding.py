# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Creates the copy of a cluster in an empty one, which is a lab: its nodes are simulated."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import api_changes, objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.rehearsal import (
    copies,
    notes,
    snapshot_files,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.rehearsal import settling

Made = dict[str, t.Any]

ATTEMPTS = 20
"""How often the conditions of a node are patched while its simulated kubelet writes, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rebuilding:
    """``stop``: seconds a pod takes to stop if nothing better is known; ``timeout``: for the whole copy."""

    snapshot: snapshot_files.Snapshot
    stop: float
    timeout: float


def rebuild(ctx: context.Context, options: Rebuilding) -> copies.Copy:
    """Create the copy and wait until it is as far as the cluster was.

    Raises:
        ClusterError: the API server did not answer.
        StopRun: the cluster is not empty, or the copy did not settle in time.
    """
    if nodes := ctx.cluster.items(kinds.NODES, patience=act.PATIENCE, limit=1).items:
        raise context.StopRun(
            "not_empty",
            f"This cluster has nodes ({nodes[0]['metadata']['name']}, …), and a copy is only created in an empty lab.",
            "Start a lab with lab_nodes=0, and give its kubeconfig.",
            f"Node {nodes[0]['metadata']['name']}",
        )
    made = copies.copy(options.snapshot, stop=options.stop)
    if version := options.snapshot.kubernetes:
        here = str(ctx.cluster.send(verbs.server_version(), patience=act.PATIENCE).get("gitVersion") or "")
        if version.split(".")[:2] != here.split(".")[:2]:
            made.notes.append(notes.note("version", detail=f"{here}, not {version}"))
    _Builder(ctx, made, ctx.clock.now() + options.timeout).build()
    return made


class _Builder:
    """One copy on its way."""

    def __init__(self, ctx: context.Context, made: copies.Copy, deadline: float) -> None:
        self._ctx, self._made = ctx, made
        self._settling = settling.Settling(ctx, deadline)

    def build(self) -> None:
        steps = self._made.steps
        self._create(steps["ground"])
        self._create(steps["nodes"])
        if self._ctx.check:
            for step in copies.STEPS[2:]:
                self._create(steps[step])
            return
        self._settling.nodes(steps["nodes"])
        self._settling.accounts(steps["ground"])
        for name, conditions in self._made.conditions.items():
            self._set_conditions(name, conditions)
        self._create(steps["storage"])
        self._create(steps["daemons"])
        self._settling.placed(steps["daemons"])
        self._mark_members(steps)
        self._own_mirrors(steps["pods"])
        self._create(steps["pods"])
        self._settling.ready(self._made.ready)
        # A controller adopts the pods that it has seen, so each kind follows when what it adopts is there.
        for kinds_ in (("ReplicaSet", "StatefulSet", "Job"), ("Deployment",)):
            owners = [raw for raw in steps["owners"] if raw["kind"] in kinds_]
            self._create(owners)
            self._settling.counted(owners)
        self._create(steps["rules"])
        self._settling.counted([*steps["daemons"], *steps["owners"]], ready=True)
        self._settling.budgets(copies.expected(self._made))

    def _create(self, raws: t.Sequence[Made]) -> None:
        with self._ctx.clock.pool(act.AT_ONCE, "copies") as pool:
            list(pool.map(self._create_one, raws))

    def _create_one(self, raw: Made) -> None:
        kind, meta = kinds.KINDS[raw["apiVersion"], raw["kind"]], raw["metadata"]
        target = objects.Ref(raw["kind"], meta["name"], meta.get("namespace", ""), api_version=raw["apiVersion"])
        try:
            if not self._ctx.check:
                self._ctx.cluster.send(verbs.create(kind, raw), patience=act.PATIENCE)
        except errors.AlreadyExists:
            # What each cluster has from the beginning: its namespaces, its priority classes, its first Service.
            return
        except (errors.Invalid, errors.Forbidden) as error:
            self._made.notes.append(notes.note("refused", str(target), error.message))
            return
        self._ctx.changed(api_changes.Change("create", target, f"Create {target}"))

    def _set_conditions(self, name: str, conditions: t.Sequence[Made]) -> None:
        for _attempt in range(ATTEMPTS):
            node = self._ctx.cluster.send(verbs.get(kinds.NODES, name), patience=act.PATIENCE)
            known = {one["type"]: one for one in (node.get("status") or {}).get("conditions") or ()}
            now = self._ctx.clock.wall()
            for one in conditions:
                known[one["type"]] = {**one, "lastHeartbeatTime": now, "lastTransitionTime": now}
            body = {
                "metadata": {"resourceVersion": node["metadata"]["resourceVersion"]},
                "status": {"conditions": list(known.values())},
            }
            with contextlib.suppress(errors.Conflict):
                self._ctx.cluster.send(verbs.merge_patch(kinds.NODES, name, body, subresource="status"))
                return

    def _mark_members(self, steps: t.Mapping[str, t.Sequence[Made]]) -> None:
        """Give pods of StatefulSets the hash of the revision that their controller will compute, or it replaces them.

        Only the controller knows it, so each StatefulSet exists for a moment without pods.
        """
        sets = [raw for raw in steps["owners"] if raw["kind"] == "StatefulSet"]
        empty = [{**raw, "spec": {**raw["spec"], "replicas": 0}} for raw in sets]
        for raw in empty:
            self._ctx.cluster.send(verbs.create(kinds.STATEFUL_SETS, raw), patience=act.PATIENCE)
        revisions = self._settling.revisions(empty)
        for namespace, name in revisions:
            self._ctx.cluster.send(verbs.delete(kinds.STATEFUL_SETS, name, namespace), patience=act.PATIENCE)
        of_pod = {
            (namespace, pod): revisions[namespace, name]
            for (namespace, name), pods in self._made.members.items()
            for pod in pods
            if (namespace, name) in revisions
        }
        for raw in steps["pods"]:
            if revision := of_pod.get((raw["metadata"]["namespace"], raw["metadata"]["name"])):
                raw["metadata"].setdefault("labels", {})["controller-revision-hash"] = revision

    def _own_mirrors(self, pods: t.Sequence[Made]) -> None:
        nodes = self._ctx.cluster.items(kinds.NODES, patience=act.PATIENCE).items
        uids = {raw["metadata"]["name"]: raw["metadata"]["uid"] for raw in nodes}
        for raw in pods:
            for owner in raw["metadata"].get("ownerReferences") or ():
                owner["uid"] = uids.get(owner["name"], "")
