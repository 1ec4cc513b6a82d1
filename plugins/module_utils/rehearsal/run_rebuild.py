# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Creates the copy of a cluster in an empty one, which is a lab: its nodes are simulated."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
    run_context,
    run_reconcile,
    run_requests,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    errors,
    kinds,
    verbs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.rehearsal import (
    copies,
    notes,
    run_read,
    run_settle,
    snapshot_files,
)

Json = dict[str, t.Any]


def rebuild(
    ctx: run_context.Context, snapshot: snapshot_files.Snapshot, stop: float, timeout: float
) -> copies.Copy:
    """Create the copy and wait until it is as far as the cluster was.

    ``stop`` are the seconds a pod takes to stop if nothing better is known, ``timeout`` those for
    the whole copy.

    Raises:
        ClusterError: the API server did not answer.
        CallAborted: the cluster is not empty, or the copy did not settle in time.
    """
    if there := ctx.cluster.send(verbs.list_page(kinds.NODES, limit=1)).get("items"):
        name = there[0]["metadata"]["name"]
        raise run_context.CallAborted(
            "not_empty",
            f"This cluster has nodes ({name}, …), and a copy is only created in an empty lab.",
            "Start a lab with lab_nodes=0, and give its kubeconfig.",
            f"Node {name}",
        )
    made = copies.copy(snapshot, stop=stop)
    if version := snapshot.kubernetes:
        here = run_read.version(ctx)
        if version.split(".")[:2] != here.split(".")[:2]:
            made.notes.append(notes.note("version", detail=f"{here}, not {version}"))
    _Builder(ctx, made, ctx.clock.now() + timeout).build()
    return made


class _Builder:
    """One copy on its way. What the API server refuses is noted, and not waited for."""

    def __init__(self, ctx: run_context.Context, made: copies.Copy, deadline: float) -> None:
        self._ctx = ctx
        self._made = made
        self._settling = run_settle.Settling(ctx, deadline)

    def build(self) -> None:
        steps = self._made.steps
        ground = self._create(steps["ground"])
        nodes = self._create(steps["nodes"])
        if self._ctx.check:
            for step in copies.STEPS[2:]:
                self._create(steps[step])
            return
        self._settling.nodes(nodes)
        self._settling.accounts(ground)
        for raw in nodes:
            self._set_conditions(raw["metadata"]["name"])
        self._create(steps["storage"])
        daemons = self._create(steps["daemons"])
        self._settling.placed(daemons)
        self._mark_members(steps)
        self._own_mirrors(steps["pods"])
        ready = self._made.ready & set(map(run_settle.place, self._create(steps["pods"])))
        self._settling.ready(ready)
        # A controller adopts the pods that it has seen, so each kind follows when
        # what it adopts is there.
        owners: list[Json] = []
        for kinds_ in (("ReplicaSet", "StatefulSet", "Job"), ("Deployment",)):
            created = self._create([raw for raw in steps["owners"] if raw["kind"] in kinds_])
            self._settling.counted(created)
            owners += created
        self._create(steps["rules"])
        self._settling.counted([*daemons, *owners])
        self._settling.budgets(copies.expected(replace(self._made, ready=ready)))

    def _create(self, raws: t.Sequence[Json]) -> list[Json]:
        """Create the objects; those that exist afterwards."""
        with self._ctx.clock.pool(run_requests.MAX_PARALLEL, "copies") as pool:
            created = pool.map(self._create_one, raws)
            return [raw for raw, is_there in zip(raws, created, strict=True) if is_there]

    def _create_one(self, raw: Json, *, remember: bool = True) -> bool:
        target = run_settle.ref(raw)
        change = api_changes.Change("create", target, f"Create {target}", raw)

        def decide(found: objects.Raw | None) -> api_changes.Change | None:
            # Each cluster has some from the beginning: namespaces,
            # priority classes, its first Service.
            return None if found else change

        known = run_reconcile.UNREAD if self._ctx.check else None
        try:
            run_reconcile.reconcile(self._ctx, target, decide, known=known, remember=remember)
        except (errors.Invalid, errors.Forbidden, errors.NotFound) as error:
            self._made.notes.append(notes.note("refused", str(target), error.message))
            return False
        return True

    def _set_conditions(self, name: str) -> None:
        wanted = self._made.conditions.get(name, [])
        target = objects.Ref("Node", name, api_version="v1")

        def decide(found: objects.Raw | None) -> api_changes.Change | None:
            if not found:
                return None
            known = {
                one["type"]: one for one in (found.get("status") or {}).get("conditions") or ()
            }
            now = self._ctx.clock.wall()
            for one in wanted:
                known[one["type"]] = {**one, "lastHeartbeatTime": now, "lastTransitionTime": now}
            body = {"status": {"conditions": list(known.values())}}
            return api_changes.patch(
                objects.Node.of(found), f"Set conditions of {target}", body, verb="status"
            )

        if wanted:
            run_reconcile.reconcile(self._ctx, target, decide, remember=False)

    def _mark_members(self, steps: t.Mapping[str, t.Sequence[Json]]) -> None:
        """Give pods of StatefulSets the hash of the revision that their controller will compute,
        or it replaces them.

        Only the controller knows it, so each StatefulSet exists for a moment without pods.
        """
        sets = [raw for raw in steps["owners"] if raw["kind"] == "StatefulSet"]
        empty = [{**raw, "spec": {**raw["spec"], "replicas": 0}} for raw in sets]
        revisions = self._settling.revisions(
            [raw for raw in empty if self._create_one(raw, remember=False)]
        )
        for namespace, name in revisions:
            target = objects.Ref("StatefulSet", name, namespace, api_version="apps/v1")
            run_reconcile.remove(
                self._ctx, api_changes.Change("delete", target, f"Delete {target}"), remember=False
            )
        of_pod: dict[tuple[str, str], str] = {}
        for (namespace, name), pods in self._made.members.items():
            if (namespace, name) in revisions:
                revision = revisions[namespace, name]
                of_pod |= {(namespace, pod): revision for pod in pods}
        for raw in steps["pods"]:
            if of_it := of_pod.get(run_settle.place(raw)):
                raw["metadata"].setdefault("labels", {})[names.REVISION] = of_it

    def _own_mirrors(self, pods: t.Sequence[Json]) -> None:
        nodes = self._ctx.cluster.items(kinds.NODES).items
        uids = {raw["metadata"]["name"]: raw["metadata"]["uid"] for raw in nodes}
        for raw in pods:
            for owner in raw["metadata"].get("ownerReferences") or ():
                owner["uid"] = uids.get(owner["name"], "")
