# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Snapshots of the cluster: once by lists, or kept fresh by watches."""

from __future__ import annotations

import functools
import types
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import client, errors, kinds, watch
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names, objects, snapshots
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import surge_records
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context, watching

KINDS: t.Mapping[str, kinds.Kind] = {
    "nodes": kinds.NODES,
    "pods": kinds.PODS,
    "budgets": kinds.BUDGETS,
    "deployments": kinds.DEPLOYMENTS,
    "replica_sets": kinds.REPLICA_SETS,
    "stateful_sets": kinds.STATEFUL_SETS,
    "rollouts": kinds.ROLLOUTS,
    "clone_sets": kinds.CLONE_SETS,
    "autoscalers": kinds.HPAS,
    "daemon_sets": kinds.DAEMON_SETS,
    "claims": kinds.PVCS,
    "volumes": kinds.PVS,
    "quotas": kinds.RESOURCE_QUOTAS,
    "limits": kinds.LIMIT_RANGES,
    "slices": kinds.ENDPOINT_SLICES,
    "leases": kinds.LEASES,
    "attachments": kinds.VOLUME_ATTACHMENTS,
}

OWNER_KINDS: t.Mapping[str, tuple[str, ...]] = {
    "ReplicaSet": ("replica_sets", "deployments"),
    "StatefulSet": ("stateful_sets",),
    "DaemonSet": ("daemon_sets",),
}
"""Which lists tell what a pod's controller is; asked for only where such a controller appears."""

SURGED_KINDS = {
    "Deployment": ("deployments", "replica_sets"),
    "ReplicaSet": ("replica_sets",),
    "Rollout": ("rollouts", "replica_sets"),
    "CloneSet": ("clone_sets",),
}
"""What has to be watched to follow the surge of a workload of this kind."""


BURST = 0.02
"""Seconds at least between two snapshots: changes come in bursts, and one look serves them all."""


def _namespace(name: str) -> str:
    return names.NAMESPACE if name == "leases" else ""


def lists(cluster: client.Cluster, wanted: t.Collection[str]) -> dict[str, list[t.Any]]:
    """Parsed objects by kind: one list request (in pages) for each kind."""
    found: dict[str, list[t.Any]] = {}
    for name in wanted:
        try:
            listing = cluster.items(KINDS[name], namespace=_namespace(name), patience=act.PATIENCE)
        except errors.NotFound:
            found[name] = []
            continue
        found[name] = [objects.PARSERS[name](item) for item in listing.items]
    return found


def gather(cluster: client.Cluster, wanted: t.Collection[str]) -> snapshots.Snapshot:
    """A snapshot of the wanted kinds, by lists."""
    return snapshots.Snapshot.of(lists(cluster, wanted))


def owners_of(pods: t.Iterable[t.Any]) -> list[str]:
    """The kinds to list so that the pods' controllers are known."""
    present = {pod.owner.kind for pod in pods if pod.owner}
    return [name for kind, lists_ in OWNER_KINDS.items() if kind in present for name in lists_]


def surged(surges: t.Collection[surge_records.Surge]) -> list[str]:
    """The kinds to watch while the workloads of these surges change their count."""
    found = [name for surge in surges for name in SURGED_KINDS.get(surge.kind, ())]
    found += ["autoscalers" for surge in surges if surge.bounds]
    return list(dict.fromkeys(found))


def _trimmed(raw: dict[str, t.Any]) -> dict[str, t.Any]:
    raw.get("metadata", {}).pop("managedFields", None)
    return raw


class Live:
    """A snapshot that stays fresh: a reflector for each watched kind, plain lists for the others.

    Used as a context manager. ``extra`` are kinds that are read once, at entry or by ``fetch``.
    """

    def __init__(self, ctx: context.Context, watched: t.Collection[str]) -> None:
        self._ctx = ctx
        self._wake = ctx.clock.condition()
        self._still: dict[str, list[t.Any]] = {}
        self._seen = -1
        self._looked = float("-inf")
        self._parsed: dict[str, dict[tuple[str, str], t.Any]] = {name: {} for name in watched}
        self._changed: dict[str, dict[tuple[str, str], dict[str, t.Any] | None]] = {name: {} for name in watched}
        self._reflectors = {name: self._reflector(name) for name in watched}

    def __enter__(self) -> Live:
        """Start watching and wait until every kind was listed once.

        Raises:
            ClusterError: the API server did not answer for ``PATIENCE`` seconds.
            StopRun: a kind may not be watched.
        """
        try:
            watching.begin(self._ctx, self._reflectors, self._wake)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        """Stop watching."""
        for reflector in self._reflectors.values():
            reflector.stop()

    def seed(self, known: t.Mapping[str, list[t.Any]]) -> None:
        """Kinds that were read already and need no watch."""
        self._still.update({name: found for name, found in known.items() if name not in self._reflectors})

    def follow(self, wanted: t.Iterable[str]) -> None:
        """Watch these kinds, too, from now on, and wait until each was listed once.

        Raises:
            ClusterError: the API server did not answer for ``PATIENCE`` seconds.
            StopRun: a kind may not be watched.
        """
        missing = [name for name in dict.fromkeys(wanted) if name not in self._reflectors]
        if not missing:
            return
        fresh = {name: self._reflector(name) for name in missing}
        with self._wake:
            for name in missing:
                self._parsed[name], self._changed[name] = {}, {}
            self._reflectors.update(fresh)
        watching.begin(self._ctx, fresh, self._wake)

    def raw(self, name: str, key: str) -> dict[str, t.Any] | None:
        """An object of a watched kind that is in no namespace, as the API server sent it."""
        with self._wake:
            return self._reflectors[name].objects.get(("", key))

    def fetch(self, wanted: t.Collection[str], *, again: bool = False) -> None:
        """Read kinds once that are not watched; those that are there already only where they are wanted ``again``."""
        missing = [n for n in wanted if n not in self._reflectors and (again or n not in self._still)]
        self._still.update(lists(self._ctx.cluster, missing))

    def snapshot(self) -> snapshots.Snapshot:
        """The cluster as the watches have it now."""
        with self._wake:
            watching.raise_errors(self._reflectors)
            self._seen, self._looked = self._version(), self._ctx.clock.now()
            changed, self._changed = self._changed, {name: {} for name in self._reflectors}
        for name, found in changed.items():
            self._take_in(name, found)
        return snapshots.Snapshot.of({**self._still, **{name: known.values() for name, known in self._parsed.items()}})

    def wait(self, seconds: float) -> bool:
        """Sleep until something changed since the last snapshot; ``False`` when nothing did in time."""
        deadline = self._ctx.clock.now() + seconds
        with self._wake:
            while self._version() == self._seen:
                left = deadline - self._ctx.clock.now()
                if left <= 0:
                    return False
                watching.raise_errors(self._reflectors)
                self._wake.wait(left)
        early = self._looked + BURST - self._ctx.clock.now()
        if early > 0:
            self._ctx.clock.sleep(early)
        return True

    def nudge(self) -> None:
        """Wake the waiting loop for another reason than a watch, such as a finished request."""
        with self._wake:
            self._seen = -1
            self._wake.notify_all()

    def quiet_for(self, name: str) -> float:
        """Seconds for which the kind's living watch has brought nothing; 0 while it is cut."""
        return self._reflectors[name].quiet_for()

    def _reflector(self, name: str) -> watch.Reflector:
        return watch.Reflector(
            self._ctx.cluster,
            KINDS[name],
            namespace=_namespace(name),
            wake=self._wake,
            keep=_trimmed,
            on_event=functools.partial(self._note, name),
        )

    def _note(self, name: str, what: str, raw: dict[str, t.Any]) -> None:
        """Called by the reflectors, with the lock held."""
        meta = raw["metadata"]
        self._changed[name][meta.get("namespace") or "", meta["name"]] = None if what == "DELETED" else raw

    def _take_in(self, name: str, changed: t.Mapping[tuple[str, str], dict[str, t.Any] | None]) -> None:
        """Parse what changed since the last snapshot, and nothing else."""
        known, parser = self._parsed[name], objects.PARSERS[name]
        for key, raw in changed.items():
            if raw is None:
                known.pop(key, None)
            else:
                known[key] = parser(raw)

    def _version(self) -> int:
        return sum(r.version for r in self._reflectors.values())
