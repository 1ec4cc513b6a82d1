# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Waits until the copy of a cluster is as far as the cluster was."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    run_context,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.rehearsal import copies

Json = dict[str, t.Any]
NamespacedName = tuple[str, str]

LOOK_EVERY_SECONDS = 0.5
"""Seconds between two looks."""


def place(raw: objects.Raw) -> NamespacedName:
    """Namespace and name."""
    return raw["metadata"].get("namespace", ""), raw["metadata"]["name"]


def ref(raw: objects.Raw) -> objects.Ref:
    """The reference to an object of a copy, without its UID."""
    namespace, name = place(raw)
    return objects.Ref(raw["kind"], name, namespace, api_version=raw["apiVersion"])


class Settling:
    """Waits of one copy; they raise CallAborted at the deadline, with what has not settled."""

    def __init__(self, ctx: run_context.Context, deadline: float) -> None:
        self._ctx = ctx
        self._deadline = deadline

    def nodes(self, wanted: t.Iterable[Json]) -> None:
        """Wait until the nodes that have to be ready are, and take pods."""
        metas = [raw["metadata"] for raw in wanted]
        names = {one["name"] for one in metas if copies.NODE_SWITCH not in one["annotations"]}

        def missing() -> list[str]:
            seen = {node.name: node for node in map(objects.Node.of, self._all(kinds.NODES))}
            starting = "node.kubernetes.io/not-ready"
            found = []
            for name in sorted(names):
                node = seen.get(name)
                keys = [taint["key"] for taint in node.taints] if node else []
                if node is None or not node.ready or starting in keys:
                    found.append(f"Node {name}")
            return found

        self._until(missing)

    def accounts(self, ground: t.Iterable[Json]) -> None:
        """Until each namespace has its service account, without which it takes no pods."""
        wanted = {raw["metadata"]["name"] for raw in ground if raw["kind"] == "Namespace"}

        def missing() -> list[str]:
            accounts = map(place, self._all(kinds.SERVICE_ACCOUNTS))
            seen = {namespace for namespace, name in accounts if name == "default"}
            return [f"Namespace {name}" for name in sorted(wanted - seen)]

        self._until(missing)

    def placed(self, wanted: t.Sequence[Json]) -> None:

        def missing() -> list[str]:
            seen = {place(raw): raw for raw in self._all(kinds.DAEMON_SETS)} if wanted else {}
            return [str(ref(raw)) for raw in wanted if not _is_placed(seen.get(place(raw)) or {})]

        self._until(missing)

    def revisions(self, sets: t.Sequence[Json]) -> dict[NamespacedName, str]:
        """The revision of each StatefulSet, once its controller has computed it."""
        found: dict[NamespacedName, str] = {}

        def missing() -> list[str]:
            for raw in self._all(kinds.STATEFUL_SETS) if sets else ():
                if revision := (raw.get("status") or {}).get("updateRevision"):
                    found[place(raw)] = revision
            return [str(ref(raw)) for raw in sets if place(raw) not in found]

        self._until(missing)
        return found

    def ready(self, wanted: t.Collection[NamespacedName]) -> None:

        def missing() -> list[str]:
            seen = {pod.ref for pod in map(objects.Pod.of, self._all(kinds.PODS)) if pod.ready}
            places = {(ref.namespace, ref.name) for ref in seen}
            return [f"Pod {'/'.join(one)}" for one in sorted(set(wanted) - places)]

        self._until(missing)

    def counted(self, wanted: t.Sequence[Json]) -> None:
        """Until controllers have the pods that they want, and ready ones count as available."""
        kinds_ = {raw["kind"] for raw in wanted} - {"Job"}

        def missing() -> list[str]:
            seen = {}
            for kind in kinds_:
                for raw in self._all(kinds.KINDS["apps/v1", kind]):
                    seen[kind, place(raw)] = raw
            found = []
            for raw in wanted:
                real = seen.get((raw["kind"], place(raw))) or {}
                if raw["kind"] in kinds_ and not _is_counted(real):
                    found.append(str(ref(raw)))
            return found

        self._until(missing)

    def budgets(self, wanted: t.Mapping[NamespacedName, int]) -> None:
        """Wait until each budget counts at least so many ready pods."""

        def missing() -> list[str]:
            budgets = map(objects.Budget.of, self._all(kinds.BUDGETS))
            seen = {(budget.namespace, budget.name): budget for budget in budgets}
            found = []
            for key, count in wanted.items():
                budget = seen.get(key)
                if budget is None or budget.sync_failed:
                    continue
                if not budget.observed or budget.healthy < count:
                    found.append(f"PodDisruptionBudget {'/'.join(key)}")
            return found

        self._until(missing)

    def _all(self, kind: kinds.Kind) -> list[Json]:
        return self._ctx.cluster.items(kind).items

    def _until(self, missing: t.Callable[[], list[str]]) -> None:
        for late in self._ctx.poll(LOOK_EVERY_SECONDS, self._deadline - self._ctx.clock.now()):
            left = missing()
            if not left:
                return
            if late:
                raise run_context.CallAborted(
                    "not_settled",
                    f"The copy did not get as far as the cluster was: {reasons.listed(left)}.",
                    "Look at these objects in the lab, or give a longer timeout.",
                    left[0],
                )


def _is_placed(raw: objects.Raw) -> bool:
    status = raw.get("status") or {}
    wanted = status.get("desiredNumberScheduled", -1)
    return _observed(raw) and bool(status.get("currentNumberScheduled") == wanted)


def _observed(raw: objects.Raw) -> bool:
    seen = (raw.get("status") or {}).get("observedGeneration") or 0
    return bool(raw) and seen >= (raw["metadata"].get("generation") or 0)


def _is_counted(raw: objects.Raw) -> bool:
    if raw.get("kind") == "DaemonSet" or "desiredNumberScheduled" in (raw.get("status") or {}):
        return _is_placed(raw)
    workload = objects.Workload.of(raw) if raw else None
    if workload is None or not workload.observed or workload.current != workload.replicas:
        return bool(workload and workload.failure)
    return workload.ready == workload.available
