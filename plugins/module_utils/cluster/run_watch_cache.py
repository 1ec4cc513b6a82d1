# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A snapshot of the cluster that watches keep fresh."""

from __future__ import annotations

import functools
import threading
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    index_keys,
    indexes,
    node_affinity,
    objects,
    run_context,
    run_listing,
    run_requests,
    run_targeted_reads,
    scopes,
    sharing,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    client,
    kinds,
    verbs,
    watch,
)

# A snapshot that is kept up to date: by what changes of the kinds that are followed,
# and by lists of others.


ObjectKey = tuple[str, str, str]
"""What tells of an object, its namespace and its name."""


class View:
    """What is known of a cluster. Of one thread; the snapshots that it gives are anybody's."""

    def __init__(self) -> None:
        self._followed: dict[str, indexes.Store[ObjectKey, t.Any]] = {}
        self._listed: dict[str, list[t.Any]] = {}
        self._anew: set[str] = set()
        self._snapshot = snapshots.Snapshot()

    def follow(self, wanted: t.Iterable[str]) -> None:
        """Begin with kinds of which each change will be told;
        what lists said of them is forgotten.
        """
        for name in wanted:
            self._followed[name] = indexes.Store()
            self._listed.pop(name, None)
            self._anew.add(name)

    def follows(self, name: str) -> bool:
        return name in self._followed

    @property
    def listed(self) -> t.Mapping[str, list[t.Any]]:
        """What lists said last."""
        return self._listed

    def list(self, found: t.Mapping[str, list[t.Any]]) -> None:
        """Take in what lists say of some kinds; of one that is followed, too,
        these are objects beside.
        """
        changed = {name: those for name, those in found.items() if those != self._listed.get(name)}
        self._listed.update(changed)
        self._anew.update(changed)

    def after(self, changed: t.Mapping[str, t.Mapping[ObjectKey, t.Any]]) -> snapshots.Snapshot:
        """The snapshot when these objects of kinds that are followed have changed,
        ``None`` where one is gone.
        """
        anew = self._anew
        self._anew = set()
        changes = {name: self._followed[name].take(found) for name, found in changed.items()}
        touched = anew.union(name for name, found in changes.items() if found)
        if touched.intersection(snapshots.SCALED):
            touched.update(snapshots.SCALED)
        if touched:
            known = {name: changes.get(name, []) for name in touched if name not in anew}
            self._snapshot = self._snapshot.after(
                {name: self._all(name) for name in touched}, known
            )
        return self._snapshot

    def _all(self, name: str) -> t.Sequence[t.Any]:
        listed, shelf = self._listed.get(name, ()), self._followed.get(name)
        if shelf is None:
            return listed
        return (*listed, *shelf.table()) if listed else shelf.table()


LEAST_WAIT_SECONDS = 0.01
"""Seconds that a wait for changes lasts at least, if there is none."""
BURST_SECONDS = 0.02
"""Seconds at least between two snapshots: changes come in bursts."""
LOOK_EVERY_SECONDS = 1.0
"""Seconds at most between two looks at watches that begin."""


def _named(meta: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The part of the metadata by which a watch knows an object."""
    return {field: meta.get(field) for field in ("namespace", "name", "uid", "resourceVersion")}


def begin(
    ctx: run_context.Context, reflectors: t.Mapping[str, watch.Reflector], wake: threading.Condition
) -> None:
    """Start the watches, by what they watch, and wait until each has listed once;
    ``wake`` is their condition.

    Raises:
        ClusterError: the API server did not answer for ``PATIENCE`` seconds.
        CallAborted: something may not be watched.
    """
    until = ctx.clock.now() + run_requests.PATIENCE
    for reflector in reflectors.values():
        reflector.start()
    with wake:
        while not all(r.synced for r in reflectors.values()):
            raise_errors(reflectors)
            trouble = next((r.trouble for r in reflectors.values() if r.trouble), None)
            if trouble and ctx.clock.now() > until:
                raise trouble
            ctx.clock.look()
            wake.wait(LOOK_EVERY_SECONDS)


def raise_errors(reflectors: t.Mapping[str, watch.Reflector]) -> None:
    """Raises CallAborted if a watch has ended for good; the message names what was watched."""
    for name, reflector in reflectors.items():
        if reflector.error:
            raise run_context.CallAborted(
                "watch_failed",
                f"Watching {name} ended: {reflector.error}",
                "Fix what the message names, then run the same command again: it resumes.",
            ) from reflector.error


class WatchCache:
    """A snapshot that stays fresh: a reflector for each watched kind,
    plain lists for others. A context manager.

    With a ``scope`` it has nothing else: a reflector for each part of a kind. ``raws``: the nodes
    that are also kept as the API server sent them; ``None``: all. Kinds that a step before has just
    listed are not listed again.
    """

    def __init__(
        self,
        ctx: run_context.Context,
        watched: t.Collection[str],
        scope: scopes.ReadScope | None = None,
        raws: t.Container[str] | None = (),
    ) -> None:
        self._ctx = ctx
        self._raws = raws
        self._wake = ctx.clock.condition()
        self._share = sharing.Interner()
        self._view = View()
        self._view.follow(watched)
        self._seen: int | None = None
        self._looked = float("-inf")
        self.scope = scope
        self._changed: dict[str, dict[ObjectKey, t.Any]] = {name: {} for name in watched}
        self._reflectors: dict[str, watch.Reflector] = {}
        self._reflectors.update(self._watching(watched))

    def __enter__(self) -> WatchCache:
        """Start watching; raises as ``begin`` does."""
        self._take_recent(self._reflectors)
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

    def seed(self, known: t.Mapping[str, list[t.Any]]) -> None:
        """Take in kinds that were read already and need no watch."""
        self._view.list(
            {name: found for name, found in known.items() if not self._view.follows(name)}
        )

    def follow(self, wanted: t.Iterable[str]) -> None:
        """Watch these kinds, too, from now on; raises as ``begin`` does."""
        missing = [name for name in dict.fromkeys(wanted) if not self._view.follows(name)]
        self._begin(self._watching(missing), missing)

    def enter(self, namespaces: t.Iterable[str]) -> None:
        """Know these namespaces, too, if there is a scope; raises as ``begin`` does."""
        new = self.scope.enter(namespaces) if self.scope else ()
        if not (self.scope and new):
            return
        part = scopes.Slice(namespaces=new)
        self._begin(self._parts({name: [part] for name in self._changed if name in scopes.SPACED}))
        known = {name: those for name, those in self._view.listed.items() if name in scopes.SPACED}
        more = run_listing.lists(self._ctx.cluster, known, scopes.ReadScope((), new))
        self._view.list({name: those + more[name] for name, those in known.items()})

    def widen(self, related_pods: scopes.RelatedPods) -> bool:
        """Know these pods, too, if there is a scope: whether some are new;
        raises as ``begin`` does.
        """
        new = self.scope.widen(related_pods) if self.scope else []
        self._begin(self._parts({"pods": new}))
        return bool(new)

    def _begin(self, fresh: dict[str, watch.Reflector], kinds_: t.Collection[str] = ()) -> None:
        with self._wake:
            self._view.follow(kinds_)
            self._changed.update({name: {} for name in kinds_})
            self._reflectors.update(fresh)
        self._take_recent(fresh)
        if fresh:
            begin(self._ctx, fresh, self._wake)

    def _take_recent(self, fresh: t.Mapping[str, watch.Reflector]) -> None:
        """Let watches of whole kinds begin where the lists of a step before ended."""
        for name, reflector in fresh.items() if self.scope is None else ():
            recent = self._ctx.listed_recently(name)
            if recent is None or not recent.version:
                continue
            keep = self._keeping(name, scopes.ALL) if name == "nodes" else _kept_parsed
            listing = client.Listing(list(map(keep, recent.items)), recent.version)
            reflector.take(listing, recent.begun.pop() if recent.begun else None)

    def know_nodes(self, some: t.Iterable[objects.Node] | None = None) -> None:
        """Know of ``some`` other nodes, or of all, as they are now;
        without a scope all are known.
        """
        if self.scope:
            found = (
                run_listing.lists(self._ctx.cluster, ("nodes",))["nodes"] if some is None else some
            )
            known = {node.name: node for node in (*self._view.listed.get("nodes", ()), *found)}
            self._view.list(
                {"nodes": [node for name, node in known.items() if name not in self.scope.nodes]}
            )

    def raw_node(self, name: str) -> dict[str, t.Any] | None:
        """A node as the API server sent it; nodes have to be watched."""
        with self._wake:
            label = f"nodes of {name}" if self.scope else "nodes"
            if label not in self._reflectors:
                return None
            found = self._reflectors[label].objects.get(("", name))
            return found["raw"] if found else None

    def fetch(self, wanted: t.Collection[str], *, again: bool = False) -> None:
        """Read kinds that are not watched; those that were read already only with ``again``."""
        missing = [
            n for n in wanted if not self._view.follows(n) and (again or n not in self._view.listed)
        ]
        if again:
            found = run_listing.lists(self._ctx.cluster, missing, self.scope)
        else:
            found = run_listing.recent_lists(self._ctx, missing, self.scope)
        if refused := found.get("refused"):
            found["refused"] = [*refused, *self._view.listed.get("refused", ())]
        self._view.list(found)

    def fetch_claims(self, pods: t.Iterable[objects.Pod]) -> None:
        """Read the claims and volumes of these pods and nodes for these;
        without a scope those of all pods.
        """
        if self.scope is None:
            self.fetch(("claims", "volumes"), again=True)
            return
        for name, found in run_targeted_reads.claims_of(self._ctx.cluster, pods).items():
            known = {
                raw["metadata"]["uid"]: raw for raw in (*self._view.listed.get(name, ()), *found)
            }
            self._view.list({name: list(known.values())})
        self.know_nodes(_nodes_for(self._ctx.cluster, self._view.listed["volumes"]))

    def snapshot(self) -> snapshots.Snapshot:
        """The cluster as the watches show it now. It costs what has changed since the last one."""
        with self._wake:
            raise_errors(self._reflectors)
            self._seen = self._version()
            self._looked = self._ctx.clock.now()
            changed = {name: found for name, found in self._changed.items() if found}
            self._changed.update({name: {} for name in changed})
        return self._view.after(changed)

    def wait(self, seconds: float, pause: float = 0.0) -> bool:
        """Sleep ``pause``, and until something changed since the last snapshot; ``False`` if
        nothing did in time.

        It takes ``LEAST_WAIT_SECONDS`` at least: what is left of a time may be too little for
        the clock to move on.
        """
        self._ctx.clock.look()
        began = self._ctx.clock.now()
        deadline = began + max(seconds, LEAST_WAIT_SECONDS)
        with self._wake:
            while self._version() == self._seen:
                left = deadline - self._ctx.clock.now()
                if left <= 0:
                    return False
                raise_errors(self._reflectors)
                self._wake.wait(left)
        early = max(self._looked + BURST_SECONDS, began + pause) - self._ctx.clock.now()
        if early > 0:
            self._ctx.clock.sleep(early)
        return True

    def nudge(self) -> None:
        """Wake the waiting loop for another reason than a watch, such as a finished request."""
        with self._wake:
            self._seen = None
            self._wake.notify_all()

    def quiet_for(self, name: str) -> float:
        """Seconds for which the kind's watches have delivered nothing;
        0 while one is interrupted.
        """
        return min(
            reflector.quiet_for()
            for reflector in self._reflectors.values()
            if reflector.kind == run_listing.KINDS[name]
        )

    def _watching(self, wanted: t.Iterable[str]) -> dict[str, watch.Reflector]:
        scope = self.scope
        return self._parts({name: scope.parts(name) if scope else [scopes.ALL] for name in wanted})

    def _parts(
        self, wanted: t.Mapping[str, t.Iterable[scopes.Slice]]
    ) -> dict[str, watch.Reflector]:
        """Reflectors by what they watch, in words."""
        found: dict[str, watch.Reflector] = {}
        for name, parts in wanted.items():
            for part in parts:
                label = f"{name} of {part.words}" if part.words else name
                label += f" ({len(self._reflectors) + len(found)})" if part.key else ""
                found[label] = self._reflector(name, part, label)
        return found

    def _reflector(self, name: str, part: scopes.Slice, label: str) -> watch.Reflector:
        return watch.Reflector(
            self._ctx.cluster,
            run_listing.KINDS[name],
            namespaces=run_listing.spaces_of(name, part),
            labels=part.labels,
            fields=part.fields,
            wake=self._wake,
            keep=self._keeping(name, part),
            on_event=functools.partial(self._note, name, label),
        )

    def _keeping(
        self, name: str, part: scopes.Slice
    ) -> t.Callable[[objects.Raw], dict[str, t.Any] | None]:
        return functools.partial(_kept, name, self._share, self._raws, self._takes(name, part))

    def _takes(self, name: str, part: scopes.Slice) -> t.Callable[[t.Any], bool]:
        scope = self.scope
        if scope and name == "pods":
            return functools.partial(scope.takes, part)
        if len(part.namespaces) > 1:
            return lambda parsed: _namespace_of(parsed) in part.namespaces
        return lambda _parsed: True

    def _note(self, name: str, part: str, what: str, kept: dict[str, t.Any]) -> None:
        """Called by the reflectors, with the lock held.

        A pod that is gone from one part and a namesake in another are told by two
        watches, in any order.
        """
        meta = kept["metadata"]
        self._changed[name][part, meta["namespace"] or "", meta["name"]] = (
            None if what == "DELETED" else kept["parsed"]
        )

    def _version(self) -> int:
        return sum(r.version for r in self._reflectors.values())


def _kept_parsed(parsed: t.Any) -> dict[str, t.Any]:
    """What a watch keeps of an object that a list has parsed already."""
    if isinstance(parsed, dict):
        named = _named(parsed["metadata"])
    else:
        named = {"namespace": parsed.namespace, "name": parsed.name, "uid": parsed.uid}
        named["resourceVersion"] = parsed.resource_version
    return {"metadata": named, "parsed": parsed, "raw": None}


def _kept(
    name: str,
    share: sharing.Interner,
    raws: t.Container[str] | None,
    takes: t.Callable[[t.Any], bool],
    raw: objects.Raw,
) -> dict[str, t.Any] | None:
    """What a watch keeps of an object: what names it, its parsed form,
    and of nodes also what the API server sent.
    """
    meta = raw["metadata"]
    meta.pop("managedFields", None)
    parsed = index_keys.parser(name, share)(raw)
    if parsed is None or not takes(parsed):
        return None
    whole = name == "nodes" and (raws is None or meta["name"] in raws)
    return {"metadata": _named(meta), "parsed": parsed, "raw": raw if whole else None}


def _namespace_of(parsed: t.Any) -> str:
    return str(parsed["metadata"]["namespace"] if isinstance(parsed, dict) else parsed.namespace)


def _nodes_for(
    cluster: client.Cluster, volumes: t.Iterable[objects.Raw]
) -> list[objects.Node] | None:
    """Of the nodes that each of these volumes can be used on two, if there are so many;
    ``None``: only all tell it.
    """
    terms: list[objects.Raw] = []
    for raw in volumes:
        required = (raw["spec"].get("nodeAffinity") or {}).get("required") or {}
        terms += required.get("nodeSelectorTerms") or ()
    asked = dict.fromkeys(map(node_affinity.labels_of, terms))
    if None in asked:
        return None
    pages = [verbs.list_page(kinds.NODES, labels=text or "", limit=2) for text in asked]
    answers = [cluster.send(page) for page in pages]
    return [objects.Node.of(raw) for answer in answers for raw in answer.get("items") or ()]
