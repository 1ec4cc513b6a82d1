# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""A local copy of all objects of a kind, kept current by a watch.

It costs one watch per 290 s or lost connection; where the server cannot begin one with a list, that
first.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    client,
    errors,
    kinds,
    retry,
    verbs,
)

Object = dict[str, Any]
Key = tuple[str, str]

_JOIN_SECONDS = 0.2
# After a connection that held this long, the backoff starts anew.
_LIVED_SECONDS = 10.0
REFUSED_SECONDS = 60.0
"""How long a watch that was allowed before may be refused until the reflector gives up."""
_REFUSAL = (errors.Forbidden, errors.Unauthorized, errors.Unrenewed)
_TRANSIENT = (errors.Unreachable, errors.Overloaded, errors.ServerError)


class Reflector:
    """Watches the objects of a kind, in a thread of its own.

    Everything below changes only under the lock of `wake`, which is notified after each change;
    hold it while reading more than one attribute.

    Attributes:
        kind: what it watches.
        objects: (namespace, name) -> object, trimmed by `keep`.
        version: grows with every change of `objects`; `synced`: the first list is in.
        error: why it gave up (no such kind, `guard` refused, no permission: at once if there never
            was one, otherwise after REFUSED_SECONDS); else None.
        trouble: why it is not connected at the moment; None while it is.
        resource_version: how far it has come in the server's history. Where it is set before
            `start`, `objects` has only what changed since, unless the server has forgotten that.
    """

    def __init__(
        self,
        cluster: client.Cluster,
        kind: kinds.Kind,
        *,
        namespaces: Sequence[str] = (),
        labels: str = "",
        fields: str = "",
        wake: threading.Condition,
        keep: Callable[[Object], Object | None] = lambda obj: obj,
        on_event: Callable[[str, Object], None] = lambda what, obj: None,
    ) -> None:
        """Prepares; nothing is sent before `start`. Without `namespaces` it watches all of them;
        `labels` and `fields` are selectors. Of several namespaces each is listed;
        one watch of all then tells of them.

        `wake` is notified on every change, and when `error` is set. `keep` trims an object on
        arrival to save memory; it must keep the metadata's name, namespace, uid and
        resourceVersion. What it makes None of is not watched. `on_event` is called with ADDED,
        MODIFIED or DELETED and the trimmed object, in order, in the reflector's thread with `wake`
        held; also for changes that only a new list reveals.
        """
        self._cluster = cluster
        self._clock = cluster.clock
        self.kind = kind
        self._namespaces = tuple(namespaces)
        self._labels = labels
        self._fields = fields
        self._wake = wake
        self._keep = keep
        self._on_event = on_event
        self._stopping = self._clock.event()
        self._stream: client.Stream | None = None
        self._begun: client.Stream | None = None
        self.resource_version = ""
        self._quiet_since = 0.0
        self._refusals = retry.Refusals(self._clock, REFUSED_SECONDS)
        self._thread = self._clock.thread(self._run, f"watch {kind.plural}")
        self.synced = False
        self.objects: dict[Key, Object] = {}
        self.version = 0
        self.error: Exception | None = None
        self.trouble: errors.ClusterError | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Ends the watch within 0.2 s and ignores a list that is under way.
        Nothing changes afterwards.
        """
        with self._wake:
            self._stopping.set()
            stream = self._stream
            self._stream = None
        if stream is not None:
            stream.close()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_JOIN_SECONDS)

    def quiet_for(self) -> float:
        """Seconds for which the watch has been connected without a change;
        0 while it is not connected.
        """
        with self._wake:
            return self._clock.now() - self._quiet_since if self._stream else 0.0

    def _run(self) -> None:
        backoff = retry.Backoff(self._clock, longest=5.0)
        while not self._stopping.is_set():
            began = self._clock.now()
            try:
                self._watch()
                if self._clock.now() - began > 1.0:
                    backoff.reset()
                    continue
                delay = backoff.delay()
            except errors.Expired:
                self.resource_version = ""
                delay = 0.0 if self._clock.now() - began > 1.0 else backoff.delay()
            except _REFUSAL as error:
                pause = self._refusals.delay(
                    error, error.request is not None and self._cluster.granted(error.request)
                )
                if pause is None:
                    self._ended(error)
                    return
                self._cut(error)
                delay = pause
            except _TRANSIENT as error:
                self._cut(error)
                if self._clock.now() - began > _LIVED_SECONDS:
                    backoff.reset()
                delay = backoff.delay(error)
            except Exception as error:  # whatever `guard` raises
                self._ended(error)
                return
            self._stopping.wait(delay)

    def _watch(self) -> None:
        """A list if nothing is known, then one watch."""
        if not self.resource_version:
            self.take(*self._listed())
        begun, self._begun = self._begun, None
        if not self._stopping.is_set():
            self._follow(begun or self._opened())

    def _listed(self) -> tuple[client.Listing, client.Stream | None]:
        if len(self._namespaces) > 1:
            return self._listed_each(), None
        listing, begun = self._cluster.begun(
            self.kind,
            namespace="".join(self._namespaces),
            labels=self._labels,
            fields=self._fields,
            patience=client.NO_PATIENCE,
            keep=self._keep,
        )
        kept = [obj for obj in listing.items if obj is not None]
        return client.Listing(kept, listing.resource_version), begun

    def _listed_each(self) -> client.Listing:
        found: list[Any] = []
        version = ""
        for where in self._namespaces:
            listing = self._cluster.items(
                self.kind,
                namespace=where,
                labels=self._labels,
                fields=self._fields,
                patience=client.NO_PATIENCE,
                keep=self._keep,
            )
            found += (obj for obj in listing.items if obj is not None)
            # The watch begins where the first list was: what has changed since is told,
            # of the others once more.
            version = version or listing.resource_version
        return client.Listing(found, version)

    def _opened(self) -> client.Stream:
        """A watch from the last resourceVersion on."""
        version, fields = self.resource_version, self._fields
        where = self._namespaces[0] if len(self._namespaces) == 1 else ""
        request = verbs.watch(self.kind, where, self._labels, version, fields=fields)
        return self._cluster.stream(request, read_timeout=client.SILENCE_SECONDS)

    def _follow(self, stream: client.Stream) -> None:
        """Takes in what a watch tells, until its end."""
        try:
            with self._wake:
                if self._stopping.is_set():
                    return
                self._stream = stream
                self.trouble = None
                self._refusals.reset()
                self._quiet_since = self._clock.now()
                self._wake.notify_all()
            for event in stream:
                if not self._see(str(event.get("type")), event.get("object") or {}):
                    return
        finally:
            with self._wake:
                self._stream = None
            stream.close()

    def _see(self, what: str, obj: Object) -> bool:
        """Takes in one event; False if the watch is to stop."""
        version = str((obj.get("metadata") or {}).get("resourceVersion") or "")
        kept = obj if what == "BOOKMARK" else self._keep(obj)
        with self._wake:
            if self._stopping.is_set():
                return False
            self.resource_version = version or self.resource_version
            known = self.objects.get(_key(obj)) if what != "BOOKMARK" else None
            if known and _is_past(version, known):
                return True
            if kept is None and known:
                what, kept = "DELETED", known
            if what != "BOOKMARK" and kept is not None:
                self._change(what, kept)
                self._quiet_since = self._clock.now()
                self._wake.notify_all()
        return True

    def take(self, listing: client.Listing, begun: client.Stream | None = None) -> None:
        """Takes in a list of trimmed objects, also before `start`, and the watch that goes on with
        it, if there is one; the list's differences from what is known become events.
        """
        with self._wake:
            if self._stopping.is_set():
                return
            self._begun = begun
            fresh = {_key(obj): obj for obj in listing.items}
            for key in [key for key in self.objects if key not in fresh]:
                self._change("DELETED", self.objects[key])
            for key, obj in fresh.items():
                known = self.objects.get(key)
                if known is not None and _meta(known, "uid") != _meta(obj, "uid"):
                    self._change("DELETED", known)
                    known = None
                if known is None:
                    self._change("ADDED", obj)
                elif _meta(known, "resourceVersion") != _meta(obj, "resourceVersion"):
                    self._change("MODIFIED", obj)
            self.resource_version = listing.resource_version
            self.synced = True
            self._wake.notify_all()

    def _change(self, what: str, obj: Object) -> None:
        if what == "DELETED":
            self.objects.pop(_key(obj), None)
        else:
            self.objects[_key(obj)] = obj
        self.version += 1
        self._on_event(what, obj)

    def _cut(self, error: errors.ClusterError) -> None:
        with self._wake:
            self.trouble = error
            self._wake.notify_all()

    def _ended(self, error: Exception) -> None:
        with self._wake:
            self.error = error
            self._wake.notify_all()


def _key(obj: Mapping[str, Any]) -> Key:
    metadata = obj["metadata"]
    return metadata.get("namespace") or "", metadata["name"]


def _is_past(version: str, known: Object) -> bool:
    """Whether the object is known as it was later: in the list with which the watch began may stand
    what a write has answered since.

    resourceVersions of a kind may be compared as numbers (KEP-5504, Kubernetes 1.35; those of etcd
    always could).
    """
    later = str(_meta(known, "resourceVersion"))
    return version.isdigit() and later.isdigit() and int(version) <= int(later)


def _meta(obj: Mapping[str, Any], field: str) -> Any:
    return (obj.get("metadata") or {}).get(field)
