# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Snapshots of the cluster: once by lists, or kept fresh by watches."""

from __future__ import annotations

import contextlib
import functools
import threading
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import client, errors, kinds, watch
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    names,
    objects,
    parsers,
    scopes,
    sharing,
    snapshots,
    views,
    virtual_machines,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import surge_records
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, by_name, context

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
    "device_claims": kinds.RESOURCE_CLAIMS,
    "device_slices": kinds.RESOURCE_SLICES,
    "device_classes": kinds.DEVICE_CLASSES,
    "pod_groups": kinds.POD_GROUPS,
    "eviction_requests": kinds.EVICTION_REQUESTS,
    "csi_nodes": kinds.CSI_NODES,
    "storage_classes": kinds.STORAGE_CLASSES,
    "virtual_machines": kinds.VIRTUAL_MACHINES,
    "kubevirts": kinds.KUBEVIRTS,
}

OPTIONAL = frozenset({"pod_groups", *virtual_machines.KINDS})
"""What may be refused to be read: it then counts as empty."""

OWNER_KINDS: t.Mapping[str, tuple[str, ...]] = {
    "ReplicaSet": ("replica_sets", "deployments"),
    "StatefulSet": ("stateful_sets",),
    "DaemonSet": ("daemon_sets",),
}
"""Which lists show a pod's controller; read only if such a controller appears."""

SURGED_KINDS = {
    "Deployment": ("deployments", "replica_sets"),
    "ReplicaSet": ("replica_sets",),
    "Rollout": ("rollouts", "replica_sets"),
    "CloneSet": ("clone_sets",),
}
"""What is watched to follow the surge of a workload of this kind."""


SOON = 0.01
"""Seconds that a wait for changes lasts at least, if there is none."""
BURST = 0.02
"""Seconds at least between two snapshots: changes come in bursts."""
LOOK_EVERY = 1.0
"""Seconds at most between two looks at watches that begin."""


def _spaces(name: str, part: scopes.Part) -> tuple[str, ...]:
    return (names.NAMESPACE,) if name == "leases" else part.namespaces


def _namespace_of(parsed: t.Any) -> str:
    return str(parsed["metadata"]["namespace"] if isinstance(parsed, dict) else parsed.namespace)


def lists(
    cluster: client.Cluster,
    wanted: t.Collection[str],
    scope: scopes.Scope | None = None,
    versions: dict[str, str] | None = None,
) -> dict[str, list[t.Any]]:
    """Parsed objects by kind, of what is in scope: one list request (in pages) for each kind, or each part of it.

    ``versions`` takes in the resourceVersions of the whole lists, which there are without a scope.
    """
    found: dict[str, list[t.Any]] = {name: [] for name in wanted}
    share = sharing.Shared()
    for name in wanted:
        with contextlib.suppress(errors.NotFound, *((errors.Forbidden,) if name in OPTIONAL else ())):
            for part in scope.parts(name) if scope else (scopes.ALL,):
                found[name] += listed(cluster, name, part, scope, share, versions=None if scope else versions)
    return found


def listed(
    cluster: client.Cluster,
    name: str,
    part: scopes.Part,
    scope: scopes.Scope | None = None,
    share: sharing.Shared | None = None,
    labels: str = "",
    versions: dict[str, str] | None = None,
) -> list[t.Any]:
    """Parsed objects of one part of a kind, or of those with certain ``labels``; ``versions`` as in ``lists``."""
    keep, found = parsers.parser(name, share or sharing.Shared()), list[t.Any]()
    for space in _spaces(name, part) or ("",):
        kind, wanted = KINDS[name], labels or part.labels
        listing = cluster.items(
            kind, namespace=space, labels=wanted, fields=part.fields, patience=act.PATIENCE, keep=keep
        )
        found += listing.items
        if versions is not None:
            versions[name] = listing.resource_version
    return [one for one in found if scope.takes(part, one)] if scope and name == "pods" else found


def pods_of(cluster: client.Cluster, nodes: t.Collection[str], among: int) -> list[objects.Pod]:
    """The pods on these nodes, ``among`` so many nodes of the cluster."""
    return [pod for pod in lists(cluster, ("pods",), scopes.apart(nodes, among))["pods"] if pod.node in nodes]


def device_rules(cluster: client.Cluster) -> list[t.Any]:
    """The DeviceTaintRules, of the first version that the cluster has; empty where it has none."""
    for kind in (kinds.DEVICE_TAINT_RULES, kinds.DEVICE_TAINT_RULES_BETA):
        with contextlib.suppress(errors.NotFound):
            return list(cluster.items(kind, patience=act.PATIENCE).items)
    return []


def gather(cluster: client.Cluster, wanted: t.Collection[str]) -> snapshots.Snapshot:
    """A snapshot of the wanted kinds, by lists."""
    return snapshots.Snapshot.of(lists(cluster, wanted))


def owners_of(pods: t.Iterable[t.Any]) -> list[str]:
    """The kinds to list so that the pods' controllers are known."""
    present = {pod.owner.kind for pod in pods if pod.owner}
    return [name for kind, lists_ in OWNER_KINDS.items() if kind in present for name in lists_]


def groups_of(pods: t.Iterable[objects.Pod]) -> list[str]:
    """The kinds to list so that it is known which pods are disrupted together; unread, each PodGroup is a gang."""
    return ["pod_groups"] if any(pod.group for pod in pods) else []


def machines_of(pods: t.Iterable[objects.Pod]) -> list[str]:
    """The kinds to list so that it is known what an eviction makes of KubeVirt's virtual machines."""
    return [*virtual_machines.KINDS] if any(virtual_machines.runs_in(pod) for pod in pods) else []


def surged(surges: t.Collection[surge_records.Surge]) -> list[str]:
    """The kinds to watch while the workloads of these surges change their count."""
    found = [name for surge in surges for name in SURGED_KINDS.get(surge.kind, ())]
    found += ["autoscalers" for surge in surges if surge.bounds]
    return list(dict.fromkeys(found))


def _kept(
    name: str, share: sharing.Shared, raws: t.Container[str] | None, takes: t.Callable[[t.Any], bool], raw: objects.Raw
) -> dict[str, t.Any] | None:
    """What a watch keeps of an object: what names it, its parsed form, and of nodes also what the API server sent."""
    meta = raw["metadata"]
    meta.pop("managedFields", None)
    named = {field: meta.get(field) for field in ("namespace", "name", "uid", "resourceVersion")}
    parsed = parsers.parser(name, share)(raw)
    if not takes(parsed):
        return None
    whole = name == "nodes" and (raws is None or meta["name"] in raws)
    return {"metadata": named, "parsed": parsed, "raw": raw if whole else None}


def _kept_before(parsed: t.Any) -> dict[str, t.Any]:
    """What a watch keeps of an object that a list has parsed already; the raw form of nodes is not known any more."""
    if isinstance(parsed, dict):
        meta = parsed["metadata"]
        named = {field: meta.get(field) for field in ("namespace", "name", "uid", "resourceVersion")}
    else:
        named = {"namespace": parsed.namespace, "name": parsed.name, "uid": parsed.uid}
        named["resourceVersion"] = parsed.resource_version
    return {"metadata": named, "parsed": parsed, "raw": None}


def begin(ctx: context.Context, reflectors: t.Mapping[str, watch.Reflector], wake: threading.Condition) -> None:
    """Start the watches, by what they watch, and wait until each has listed once; ``wake`` is their condition.

    Raises:
        ClusterError: the API server did not answer for ``PATIENCE`` seconds.
        StopRun: something may not be watched.
    """
    until = ctx.clock.now() + act.PATIENCE
    for reflector in reflectors.values():
        reflector.start()
    with wake:
        while not all(r.synced for r in reflectors.values()):
            raise_errors(reflectors)
            trouble = next((r.trouble for r in reflectors.values() if r.trouble), None)
            if trouble and ctx.clock.now() > until:
                raise trouble
            wake.wait(LOOK_EVERY)


def raise_errors(reflectors: t.Mapping[str, watch.Reflector]) -> None:
    """Raises StopRun if a watch has ended for good; the message names what was watched."""
    for name, reflector in reflectors.items():
        if reflector.error:
            raise context.StopRun(
                "watch_failed",
                f"Watching {name} ended: {reflector.error}",
                "Fix what the message names, then run the same command again: it resumes.",
            ) from reflector.error


class Live:
    """A snapshot that stays fresh: a reflector for each watched kind, plain lists for others. A context manager.

    With a ``scope`` it has nothing else: a reflector for each part of a kind. ``raws``: the nodes that are also kept as
    the API server sent them; ``None``: all. ``known``: lists that are not asked for again, of kinds watched whole.
    """

    def __init__(
        self,
        ctx: context.Context,
        watched: t.Collection[str],
        scope: scopes.Scope | None = None,
        raws: t.Container[str] | None = (),
        known: t.Mapping[str, client.Listing] | None = None,
    ) -> None:
        self._ctx, self._raws = ctx, raws
        self._wake = ctx.clock.condition()
        self._share = sharing.Shared()
        self._view = views.View()
        self._view.follow(watched)
        self._seen: int | None = None
        self._looked = float("-inf")
        self.scope = scope
        self._changed: dict[str, dict[views.Place, t.Any]] = {name: {} for name in watched}
        self._reflectors: dict[str, watch.Reflector] = {}
        self._reflectors.update(self._watching(watched))
        for name, listing in (known or {}).items():
            keep = functools.partial(_kept, name, self._share, self._raws, self._takes(name, scopes.ALL))
            kept = [one for one in map(keep, listing.items) if one is not None]
            self._reflectors[name].take(client.Listing(kept, listing.resource_version))

    def __enter__(self) -> Live:
        """Start watching; raises as ``begin`` does."""
        try:
            begin(self._ctx, self._reflectors, self._wake)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_error: object) -> None:
        """Stop"""
        for reflector in self._reflectors.values():
            reflector.stop()

    def begin_with(self, known: t.Mapping[str, list[t.Any]], versions: t.Mapping[str, str]) -> None:
        """Before it starts: let the watches of these kinds begin where lists of a moment ago ended.

        ``known`` and ``versions`` are from ``lists``. Only without a scope, and not for nodes.
        """
        for name in self._reflectors.keys() & versions.keys():
            before = [_kept_before(parsed) for parsed in known[name]]
            self._reflectors[name].take(client.Listing(before, versions[name]))

    def seed(self, known: t.Mapping[str, list[t.Any]]) -> None:
        """Take in kinds that were read already and need no watch."""
        self._view.list({name: found for name, found in known.items() if not self._view.follows(name)})

    def follow(self, wanted: t.Iterable[str]) -> None:
        """Watch these kinds, too, from now on; raises as ``begin`` does."""
        missing = [name for name in dict.fromkeys(wanted) if not self._view.follows(name)]
        self._begin(self._watching(missing), missing)

    def enter(self, namespaces: t.Iterable[str]) -> None:
        """Know these namespaces, too, if there is a scope; raises as ``begin`` does."""
        new = self.scope.enter(namespaces) if self.scope else ()
        if not (self.scope and new):
            return
        part = scopes.Part(namespaces=new)
        self._begin(self._parts({name: [part] for name in self._changed if name in scopes.SPACED}))
        known = {name: those for name, those in self._view.listed.items() if name in scopes.SPACED}
        self._view.list({name: those + listed(self._ctx.cluster, name, part) for name, those in known.items()})

    def widen(self, beside: scopes.Beside) -> bool:
        """Know these pods, too, if there is a scope: whether some are new; raises as ``begin`` does."""
        new = self.scope.widen(beside) if self.scope else []
        self._begin(self._parts({"pods": new}))
        return bool(new)

    def _begin(self, fresh: dict[str, watch.Reflector], kinds_: t.Collection[str] = ()) -> None:
        with self._wake:
            self._view.follow(kinds_)
            self._changed.update({name: {} for name in kinds_})
            self._reflectors.update(fresh)
        if fresh:
            begin(self._ctx, fresh, self._wake)

    def know_nodes(self, some: t.Iterable[objects.Node] | None = None) -> None:
        """Know of ``some`` other nodes, or of all, as they are now; without a scope all are known."""
        if self.scope:
            found = lists(self._ctx.cluster, ("nodes",))["nodes"] if some is None else some
            known = {node.name: node for node in (*self._view.listed.get("nodes", ()), *found)}
            self._view.list({"nodes": [node for name, node in known.items() if name not in self.scope.nodes]})

    def raw_node(self, name: str) -> dict[str, t.Any] | None:
        """A node as the API server sent it; nodes have to be watched."""
        with self._wake:
            label = f"nodes of {name}" if self.scope else "nodes"
            found = self._reflectors[label].objects.get(("", name)) if label in self._reflectors else None
            return found["raw"] if found else None

    def fetch(self, wanted: t.Collection[str], *, again: bool = False) -> None:
        """Read kinds that are not watched; those that were read already only with ``again``."""
        missing = [n for n in wanted if not self._view.follows(n) and (again or n not in self._view.listed)]
        self._view.list(lists(self._ctx.cluster, missing, self.scope))

    def fetch_claims(self, pods: t.Iterable[objects.Pod]) -> None:
        """Read the claims and volumes of these pods and nodes for these; without a scope those of all pods."""
        if self.scope is None:
            self.fetch(("claims", "volumes"), again=True)
            return
        for name, found in by_name.claims_of(self._ctx.cluster, pods).items():
            known = {raw["metadata"]["uid"]: raw for raw in (*self._view.listed.get(name, ()), *found)}
            self._view.list({name: list(known.values())})
        self.know_nodes(by_name.nodes_for(self._ctx.cluster, self._view.listed["volumes"]))

    def snapshot(self) -> snapshots.Snapshot:
        """The cluster as the watches show it now. It costs what has changed since the last one."""
        with self._wake:
            raise_errors(self._reflectors)
            self._seen, self._looked = self._version(), self._ctx.clock.now()
            changed = {name: found for name, found in self._changed.items() if found}
            self._changed.update({name: {} for name in changed})
        return self._view.after(changed)

    def wait(self, seconds: float, pause: float = 0.0) -> bool:
        """Sleep ``pause``, and until something changed since the last snapshot; ``False`` if nothing did in time.

        It takes ``SOON`` at least: what is left of a time may be too little for the clock to move on.
        """
        began = self._ctx.clock.now()
        deadline = began + max(seconds, SOON)
        with self._wake:
            while self._version() == self._seen:
                left = deadline - self._ctx.clock.now()
                if left <= 0:
                    return False
                raise_errors(self._reflectors)
                self._wake.wait(left)
        early = max(self._looked + BURST, began + pause) - self._ctx.clock.now()
        if early > 0:
            self._ctx.clock.sleep(early)
        return True

    def nudge(self) -> None:
        """Wake the waiting loop for another reason than a watch, such as a finished request."""
        with self._wake:
            self._seen = None
            self._wake.notify_all()

    def quiet_for(self, name: str) -> float:
        """Seconds for which the kind's watches have delivered nothing; 0 while one is interrupted."""
        return min(reflector.quiet_for() for label, reflector in self._reflectors.items() if label.split()[0] == name)

    def _watching(self, wanted: t.Iterable[str]) -> dict[str, watch.Reflector]:
        scope = self.scope
        return self._parts({name: scope.parts(name) if scope else [scopes.ALL] for name in wanted})

    def _parts(self, wanted: t.Mapping[str, t.Iterable[scopes.Part]]) -> dict[str, watch.Reflector]:
        """Reflectors by what they watch, in words of which the first is the kind."""
        found: dict[str, watch.Reflector] = {}
        for name, parts in wanted.items():
            for part in parts:
                label = f"{name} of {part.words}" if part.words else name
                label += f" ({len(self._reflectors) + len(found)})" if part.key else ""
                found[label] = self._reflector(name, part, label)
        return found

    def _reflector(self, name: str, part: scopes.Part, label: str) -> watch.Reflector:
        return watch.Reflector(
            self._ctx.cluster,
            KINDS[name],
            namespaces=_spaces(name, part),
            labels=part.labels,
            fields=part.fields,
            wake=self._wake,
            keep=functools.partial(_kept, name, self._share, self._raws, self._takes(name, part)),
            on_event=functools.partial(self._note, name, label),
        )

    def _takes(self, name: str, part: scopes.Part) -> t.Callable[[t.Any], bool]:
        scope = self.scope
        if scope and name == "pods":
            return functools.partial(scope.takes, part)
        if len(part.namespaces) > 1:
            return lambda parsed: _namespace_of(parsed) in part.namespaces
        return lambda _parsed: True

    def _note(self, name: str, part: str, what: str, kept: dict[str, t.Any]) -> None:
        """Called by the reflectors, with the lock held.

        A pod that is gone from one part and a namesake in another are told by two watches, in any order.
        """
        meta = kept["metadata"]
        self._changed[name][part, meta["namespace"] or "", meta["name"]] = None if what == "DELETED" else kept["parsed"]

    def _version(self) -> int:
        return sum(r.version for r in self._reflectors.values())
