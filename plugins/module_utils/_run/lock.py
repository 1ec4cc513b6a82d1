# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The lock on a node: a short lease that says who works on it right now.

The lock never says what a node *is*; that is the record's. A lease that ran out may be taken over, and
the record tells the taker where to go on. A taker trusts only its own monotonic clock: it has to see a
lease unchanged for the lease's whole duration, because ``renewTime`` is written by somebody else's clock.
"""

from __future__ import annotations

import threading
import typing as t
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Forbidden,
    NotFound,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.change import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.objects import Raw, Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.act import PATIENCE
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context, Run, StopRun

WORKING = 15
"""Seconds a lease lasts while a call works."""
IDLE = 60
"""Seconds a lease lasts between two calls of one run."""
RENEW_EVERY = 5.0
DYING = 60.0
"""Seconds the same run, started again, waits for the holder that is about to die."""


@dataclass(frozen=True, slots=True)
class Held:
    """Why a node could not be locked: who holds it, since when, and what to do."""

    holder: str
    by: str
    since: str
    message: str


class LostLockError(StopRun):
    """Somebody took the node over; nothing more may be sent for it."""


def ensure_namespace(ctx: Context) -> None:
    """Make our namespace at first use.

    Raises:
        StopRun: the namespace is missing and may not be created.
    """
    body = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": names.NAMESPACE, "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY}},
    }
    try:
        ctx.cluster.send(verbs.create(kinds.NAMESPACES, body), patience=PATIENCE)
    except AlreadyExists:
        return
    except Forbidden as error:
        raise StopRun(
            "namespace_missing",
            f"Namespace {names.NAMESPACE}, which holds the locks, is missing and may not be created: {error}",
            f"Create it once: kubectl create namespace {names.NAMESPACE}",
            f"Namespace {names.NAMESPACE}",
        ) from error


def create_in_namespace(ctx: Context, kind: kinds.Kind, body: Raw) -> dict[str, t.Any]:
    """Create an object of ours; the namespace too, when it turns out to be missing."""
    namespace = body["metadata"]["namespace"]
    request = verbs.create(kind, dict(body), namespace=namespace)
    try:
        return ctx.cluster.send(request, patience=PATIENCE)
    except NotFound:
        if namespace != names.NAMESPACE:
            raise
        ensure_namespace(ctx)
        return ctx.cluster.send(request, patience=PATIENCE)


def lease_namespace(ctx: Context, wanted: str | None) -> str:
    """Where node leases live: as asked, else Medik8s' namespace where it exists, else ours."""
    if wanted:
        return wanted
    try:
        ctx.cluster.send(verbs.get(kinds.NAMESPACES, names.MEDIK8S_NAMESPACE), patience=PATIENCE)
    except (NotFound, Forbidden):
        return names.NAMESPACE
    return names.MEDIK8S_NAMESPACE


def locks_of(ctx: Context, run: Run, nodes: t.Collection[str], namespace: str) -> tuple[Change, ...]:
    """What deletes the run's locks on nodes that are gone or carry no record; without a nonce, of all its starts."""
    wanted = {names.node_lease_name(node): node for node in nodes}
    found = []
    for lease in ctx.cluster.items(kinds.LEASES, namespace=namespace, patience=PATIENCE).items:
        meta, holder = lease["metadata"], Run.parse((lease.get("spec") or {}).get("holderIdentity"))
        if meta["name"] in wanted and holder and holder.id == run.id and run.nonce in ("", holder.nonce):
            target = Ref("Lease", meta["name"], namespace, meta["uid"], "coordination.k8s.io/v1")
            sentence = f"Delete the lock that was left of node {wanted[meta['name']]}"
            found.append(Change("delete", target, sentence))
    return tuple(found)


class Locks:
    """The leases of the nodes one call works on: taken together, renewed by a thread, left or dropped.

    ``leases`` maps a node to ``<namespace>/<name>``.
    """

    def __init__(self, ctx: Context, me: Run, leases: t.Mapping[str, str]) -> None:
        self._ctx, self._me = ctx, me
        self._places = {node: tuple(lease.split("/", 1)) for node, lease in leases.items()}
        self._held: dict[str, dict[str, t.Any]] = {}
        self._renewed = 0.0
        self._lost: dict[str, str] = {}
        self._stop = threading.Event()
        self._one_at_a_time = threading.Lock()
        self._keeper: threading.Thread | None = None

    def take(self, *, patient: bool = False, borrowed: bool = False, adopt: bool = False) -> dict[str, Held]:
        """Take every lease; those that somebody else holds come back with the reason.

        ``patient``: the holder is an earlier start of the same run, so wait for it to die.
        ``borrowed``: the identity was read from the record, so a lease that a call is renewing at this
        moment belongs to that call and not to us.
        ``adopt``: the caller vouches that nobody works on the hosts any more, so a lease that was left for
        the duration of a run's tasks (and that nobody renews) is taken without waiting for its end.
        """
        current = self._read_all()
        waiting: dict[str, dict[str, t.Any]] = {}
        with ThreadPoolExecutor(8) as pool:
            for node, raced in pool.map(lambda n: (n, self._try(n, current.get(n), borrowed, adopt)), self._places):
                if raced is not None:
                    waiting[node] = raced
        refused = self._outwait(waiting, patient) if waiting else {}
        if self._held:
            self._renewed = self._ctx.clock.now()
            self._keeper = threading.Thread(target=self._keep, name="lease-keeper", daemon=True)
            self._keeper.start()
        return refused

    def fence(self) -> None:
        """Prove before a write that the locks are still ours, whatever time this process lost.

        Raises:
            LostLockError: somebody took a node over.
            StopRun: the API server has not let us find out for a minute.
        """
        until = self._ctx.clock.now() + PATIENCE
        while self._held and not self._lost and self._ctx.clock.now() - self._renewed > WORKING - 1:
            self._renew(WORKING)
            if self._ctx.clock.now() > until:
                raise StopRun(
                    "lock_unsure",
                    "The locks could not be renewed, so nobody knows whether they are still ours.",
                    "Run the same command again once the API server answers: it resumes.",
                )
            if self._ctx.clock.now() - self._renewed > WORKING - 1:
                self._ctx.clock.sleep(1.0)
        if self._lost:
            node, why = next(iter(self._lost.items()))
            raise LostLockError(
                "adopted_by",
                f"Node {node} was taken over: {why}. This run stops before its next change.",
                "Look at the other run; nothing of this one is lost, the node's record holds it all.",
                f"Node {node}",
            )

    def leave(self, seconds: float = IDLE) -> None:
        """Stop renewing and leave the leases with ``seconds`` for the next call of this run."""
        self._end_keeper()
        if self._held and not self._lost:
            self._renew(seconds)

    def drop(self, nodes: t.Collection[str]) -> None:
        """Delete these nodes' leases; the others stay."""
        with self._one_at_a_time:
            for node in nodes:
                lease = self._held.pop(node, None)
                if lease is not None:
                    self._delete(lease)

    def _read_all(self) -> dict[str, dict[str, t.Any]]:
        found = {}
        for namespace in sorted({namespace for namespace, _name in self._places.values()}):
            for item in self._ctx.cluster.items(kinds.LEASES, namespace=namespace, patience=PATIENCE).items:
                found[(namespace, item["metadata"]["name"])] = item
        return {node: found[place] for node, place in self._places.items() if place in found}

    def _try(self, node: str, lease: dict[str, t.Any] | None, borrowed: bool, adopt: bool) -> dict[str, t.Any] | None:
        """Take one lease if it is free or ours; else give it back as it is."""
        if lease is not None:
            spec = lease["spec"]
            holder = spec.get("holderIdentity") or ""
            duration = spec.get("leaseDurationSeconds", 0)
            left_for_tasks = adopt and duration > IDLE
            if holder and not left_for_tasks and (holder != str(self._me) or (borrowed and duration <= WORKING)):
                return lease
        return self._seize(node, lease)

    def _seize(self, node: str, lease: dict[str, t.Any] | None) -> dict[str, t.Any] | None:
        """Write our name into the lease; when somebody was faster, give theirs back."""
        namespace, name = self._places[node]
        now = self._ctx.clock.wall().replace("Z", "000Z")
        spec: dict[str, t.Any] = {
            "holderIdentity": str(self._me),
            "leaseDurationSeconds": WORKING,
            "renewTime": now,
        }
        annotations = {names.LOCK_DETAILS: self._ctx.by}
        try:
            if lease is None:
                self._held[node] = create_in_namespace(
                    self._ctx,
                    kinds.LEASES,
                    {
                        "apiVersion": "coordination.k8s.io/v1",
                        "kind": "Lease",
                        "metadata": {
                            "name": name,
                            "namespace": namespace,
                            "labels": {names.MANAGED_BY_LABEL: names.MANAGED_BY},
                            "annotations": annotations,
                        },
                        "spec": {**spec, "acquireTime": now},
                    },
                )
                return None
            if lease["spec"].get("holderIdentity") != str(self._me):
                spec["acquireTime"] = now
                spec["leaseTransitions"] = lease["spec"].get("leaseTransitions", 0) + 1
            self._held[node] = self._patch(lease, {"metadata": {"annotations": annotations}, "spec": spec})
        except (Conflict, AlreadyExists, NotFound):
            self._held.pop(node, None)
            return self._read_all().get(node) or {"metadata": {"name": name, "namespace": namespace}, "spec": {}}
        return None

    def _outwait(self, waiting: dict[str, dict[str, t.Any]], patient: bool) -> dict[str, Held]:
        """Watch held leases until each was silent for its duration (taken) or showed life (refused)."""
        ctx, start = self._ctx, self._ctx.clock.now()
        refused: dict[str, Held] = {}
        silent_since = dict.fromkeys(waiting, start)
        told = False
        while waiting:
            for node, lease in list(waiting.items()):
                duration = float(lease["spec"].get("leaseDurationSeconds") or 0)
                renewed = silent_since[node] > start
                patience = start + DYING if patient else start
                if ctx.clock.now() - silent_since[node] >= duration:
                    del waiting[node]
                    raced = self._seize(node, lease)
                    if raced is not None:
                        waiting[node], silent_since[node] = raced, ctx.clock.now()
                elif duration > IDLE or (renewed and ctx.clock.now() >= patience):
                    refused[node] = self._why(node, lease)
                    del waiting[node]
            if not waiting:
                break
            if not told:
                told = True
                for node, lease in waiting.items():
                    held = self._why(node, lease)
                    ctx.tell("waiting", f"lock held by {held.holder}; watching whether it is alive", node=node)
            ctx.clock.sleep(1.0)
            current = self._read_all()
            for node, lease in waiting.items():
                now = current.get(node)
                if now is None:
                    waiting[node] = {**lease, "spec": {}}
                    if self._seize(node, None) is None:
                        waiting[node] = {}
                elif now["metadata"].get("resourceVersion") != lease["metadata"].get("resourceVersion"):
                    waiting[node], silent_since[node] = now, ctx.clock.now()
            waiting = {node: lease for node, lease in waiting.items() if lease}
        return refused

    def _why(self, node: str, lease: Raw) -> Held:
        spec, meta = lease.get("spec") or {}, lease.get("metadata") or {}
        holder = spec.get("holderIdentity") or "nobody"
        by = (meta.get("annotations") or {}).get(names.LOCK_DETAILS, "")
        since = spec.get("acquireTime", "")
        return Held(
            holder.partition("/")[0],
            by,
            since,
            f"Node {node} is held by run {holder.partition('/')[0]}"
            + (f" of {by}" if by else "")
            + (f" since {since}" if since else "")
            + f" (Lease {meta.get('namespace')}/{meta.get('name')})",
        )

    def _patch(self, lease: Raw, body: dict[str, t.Any]) -> dict[str, t.Any]:
        meta = lease["metadata"]
        body = {**body, "metadata": {**body.get("metadata", {}), "resourceVersion": meta["resourceVersion"]}}
        request = verbs.merge_patch(kinds.LEASES, meta["name"], body, namespace=meta["namespace"])
        return self._ctx.cluster.send(request, patience=WORKING)

    def _delete(self, lease: Raw) -> None:
        meta = lease["metadata"]
        request = verbs.delete(kinds.LEASES, meta["name"], namespace=meta["namespace"], uid=meta["uid"])
        try:
            self._ctx.cluster.send(request, patience=PATIENCE)
        except (NotFound, Conflict):
            return

    def _keep(self) -> None:
        while not self._stop.wait(RENEW_EVERY):
            self._renew(WORKING)

    def _renew(self, seconds: float) -> None:
        with self._one_at_a_time:
            spec = {"leaseDurationSeconds": int(seconds), "renewTime": self._ctx.clock.wall().replace("Z", "000Z")}
            complete = True
            for node, lease in list(self._held.items()):
                try:
                    self._held[node] = self._patch(lease, {"spec": spec})
                except (Conflict, NotFound):
                    current = self._read_all().get(node)
                    if current is None:
                        self._lost[node] = "its lease was deleted"
                    elif current["spec"].get("holderIdentity") == str(self._me):
                        self._held[node] = current
                        complete = False
                    else:
                        self._lost[node] = self._why(node, current).message
                except ClusterError:
                    complete = False
            if complete:
                self._renewed = self._ctx.clock.now()

    def _end_keeper(self) -> None:
        self._stop.set()
        if self._keeper:
            self._keeper.join()
            self._keeper = None
