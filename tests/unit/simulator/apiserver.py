# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Requests as they arrive and what is answered: paths, verbs, lists in pages, reviews, discovery, watches."""

from __future__ import annotations

import base64
import collections
import functools
import typing as t
from dataclasses import dataclass, field
from urllib.parse import unquote

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.kinds import Kind
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import answers, evictions
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.clocks import EPOCH
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import FOREVER, Machine
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.object_rules import SCALED, Objects
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.programs import Forward, Program
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import (
    Event,
    Raw,
    Store,
    encoded,
    field_of,
    merged,
)

_BY_PATH: t.Mapping[tuple[str, str, str], Kind] = {
    (kind.group, kind.version, kind.plural): kind for kind in kinds.KINDS.values()
}
ADD_ONS = frozenset({"argoproj.io", "apps.kruise.io", "kubevirt.io", "scheduling.koordinator.sh"})
"""Groups that are there only where somebody installed them."""
_FIELDS = {
    "pods": {"spec.nodeName", "spec.schedulerName", "status.phase", "spec.restartPolicy"},
    "nodes": {"spec.unschedulable"},
    "namespaces": {"status.phase"},
    "events": {"involvedObject.kind", "involvedObject.name", "involvedObject.uid", "reason", "type"},
}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a path points: `kind` None is the discovery of `group`/`version`."""

    kind: Kind | None
    group: str
    version: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""


@functools.lru_cache(maxsize=4096)
def place_of(path: str) -> Place | None:
    """What a path means; None where the server has nothing."""
    parts = [unquote(part) for part in path.strip("/").split("/")]
    if parts[0] == "api" and len(parts) >= 2:
        group, version, rest = "", parts[1], parts[2:]
    elif parts[0] == "apis" and len(parts) >= 3:
        group, version, rest = parts[1], parts[2], parts[3:]
    else:
        return None
    if not rest:
        return Place(None, group, version)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) >= 3 and (group, version, rest[2]) in _BY_PATH:
        namespace, rest = rest[1], rest[2:]
    kind = _BY_PATH.get((group, version, rest[0]))
    if kind is None or len(rest) > 3:
        return None
    return Place(kind, group, version, namespace, *rest[1:])


@dataclass
class Watcher:
    """One open watch: `events` are ready to be read, `queue` are on their way to the client."""

    kind: Kind
    namespace: str
    labels: Raw
    fields: tuple[tuple[str, str], ...]
    version: int
    bookmarks: bool
    seconds: float
    queue: collections.deque[bytes] = field(default_factory=collections.deque)
    filled: t.Callable[[], None] = lambda: None

    def selects(self, raw: Raw) -> bool:
        meta = raw["metadata"]
        return (
            self.namespace in ("", meta.get("namespace", ""))
            and (not self.labels or selectors.matches(self.labels, meta.get("labels") or {}))
            and all(field_of(raw, path) == value for path, value in self.fields)
        )

    def take(self, event: Event, store: Store) -> None:
        """Queue an event as this watch sees it: what leaves its selection is DELETED for it, as it was before."""
        now = event.what != "DELETED" and self.selects(event.raw)
        before = event.before is not None and self.selects(event.before)
        if not now and not before:
            return
        what = ("MODIFIED" if before else "ADDED") if now else "DELETED"
        if now or event.what == "DELETED":
            shown = store.encoded(event.raw)
        else:
            last = t.cast("Raw", event.before)
            version = event.raw["metadata"]["resourceVersion"]
            shown = encoded({**last, "metadata": {**last["metadata"], "resourceVersion": version}})
        self.queue.append(b'{"type":"%s","object":%s}\n' % (what.encode(), shown))
        self.filled()


class ApiServer:
    """The one API server of a world. `skew` is its clock's difference to the machine's.

    `denied` are (verb, resource with subresource) that nobody may, except in the namespaces where a role permits it:
    `permitted`, with the namespace. `add_ons` are the groups that are installed, `absent` the resources that
    nevertheless are not: somebody removed their CustomResourceDefinition, or the server is too old for them.
    The fence's kind is served `established_after` seconds after its definition was made; one that somebody put
    into the store without a definition is served too.
    """

    def __init__(self, machine: Machine, *, skew: float = 0.0, add_ons: t.Collection[str] = ()) -> None:
        self.machine, self.skew = machine, skew
        self.store = Store()
        self.objects = Objects(self.store, lambda: machine.now + self.skew)
        self.add_ons = frozenset(add_ons)
        self.denied: set[tuple[str, str]] = set()
        self.git_version = "v1.36.3"
        self.lists_by_watches = True
        self.permitted: set[tuple[str, str, str]] = set()
        self.established_after = 0.5
        self._established: dict[str, float] = {}
        self.absent: set[str] = set()
        self.program = Program()
        self.watchers: list[Watcher] = []
        self._pages: dict[str, tuple[str, list[Raw]]] = {}
        self.store.listeners.append(self._spread)
        self.store.listeners.append(self._define)

    def answer(self, request: Request) -> tuple[int, bytes]:
        """The status and the body.

        Raises:
            Refused: an answer of 300 and above.
        """
        if request.path == "/version":
            return 200, encoded({"gitVersion": self.git_version})
        place = self._place(request)
        if place.kind is None:
            return 200, encoded(self._discovery(place))
        self._authorise(request, place, place.kind)
        if "All" in (_body(request).get("dryRun") or ()) or (
            request.method != "DELETE" and ("dryRun", "All") in request.query
        ):
            if request.method == "PATCH" and place.kind is kinds.PODS:
                raw = self.objects.read(place.kind, place.namespace, place.name)
                self.objects.judge(place.kind, merged(raw, _body(request)))
            return 200, encoded(_body(request))
        match request.method:
            case "GET" if place.subresource == "log":
                return 200, self.program.log(self.objects.read(place.kind, place.namespace, place.name)).encode()
            case "GET" if place.name:
                return 200, self._get(place, place.kind)
            case "GET":
                return 200, self._list(place, place.kind, dict(request.query))
            case "POST":
                return 201, self._post(place, place.kind, _body(request))
            case "PATCH":
                raw = self.objects.patch(place.kind, place.name, _body(request), place.namespace, place.subresource)
                return 200, self._shown(place, place.kind, raw)
            case "PUT":
                return 200, self._put(place, place.kind, _body(request))
            case "DELETE":
                body = _body(request)
                return 200, encoded(self.objects.delete(place.kind, place.name, place.namespace, body))
        raise answers.refused(
            405, "MethodNotAllowed", "the server does not allow this method on the requested resource"
        )

    def forward(self, request: Request) -> Forward:
        """Opens a port of a pod.

        Raises:
            Refused: an answer of 300 and above.
        """
        place = self._place(request)
        kind = t.cast("Kind", place.kind)
        self._authorise(request, place, kind)
        return Forward(self.program.page(self.objects.read(kind, place.namespace, place.name)))

    def watch(self, request: Request) -> Watcher:
        """Opens a watch.

        Raises:
            Refused: an answer of 300 and above; a version that is too old is told inside of the watch.
        """
        place = self._place(request)
        kind = t.cast("Kind", place.kind)
        self._authorise(request, place, kind)
        query = dict(request.query)
        listing = query.get("sendInitialEvents") == "true"
        if listing and not self.lists_by_watches:
            raise answers.no_watch_lists()
        watcher = Watcher(
            kind,
            place.namespace,
            selectors.parse(query.get("labelSelector", "")),
            self._fields(kind, query.get("fieldSelector", "")),
            int(query.get("resourceVersion") or self.store.version),
            query.get("allowWatchBookmarks") == "true",
            float(query.get("timeoutSeconds") or 1800),
        )
        if watcher.version < self.store.compacted:
            gone = answers.too_old(watcher.version, self.store.compacted)
            watcher.queue.append(encoded({"type": "ERROR", "object": gone.body}) + b"\n")
            return watcher
        if listing:
            self._send_all(watcher)
        for event in self.store.since(kind.resource, watcher.version):
            watcher.take(event, self.store)
        self.watchers.append(watcher)
        return watcher

    def _send_all(self, watcher: Watcher) -> None:
        """Begin a watch with what there is (KEP-3157)."""
        for _key, raw in sorted(self.store.of(watcher.kind.resource).items()):
            watcher.take(Event("ADDED", watcher.kind.resource, self.store.version, raw, None), self.store)
        watcher.queue.append(self.bookmark(watcher, {"k8s.io/initial-events-end": "true"}))

    def bookmark(self, watcher: Watcher, annotations: Raw | None = None) -> bytes:
        """The event that only tells how far the watch has come."""
        meta: Raw = {"resourceVersion": str(self.store.version), "creationTimestamp": None}
        if annotations:
            meta["annotations"] = annotations
        raw = {"kind": watcher.kind.kind, "apiVersion": watcher.kind.api_version, "metadata": meta}
        return encoded({"type": "BOOKMARK", "object": raw}) + b"\n"

    def _define(self, event: Event) -> None:
        """Remember from when on a kind that is defined in the cluster is served."""
        if event.resource == kinds.DEFINITIONS.resource:
            group = event.raw["spec"]["group"]
            if event.what == "ADDED":
                self._established[group] = self.machine.now + self.established_after
            elif event.what == "DELETED":
                del self._established[group]

    def _serves(self, kind: Kind) -> bool:
        if kind.group == kinds.NODE_FENCES.group and not self.store.of(kind.resource):
            return self.machine.now >= self._established.get(kind.group, FOREVER)
        return kind.resource not in self.absent

    def _spread(self, event: Event) -> None:
        for watcher in self.watchers:
            if watcher.kind.resource == event.resource:
                watcher.take(event, self.store)

    def _place(self, request: Request) -> Place:
        place = place_of(request.path)
        if place is None or (place.group in ADD_ONS and place.group not in self.add_ons):
            raise answers.no_such_path()
        return place

    def _authorise(self, request: Request, place: Place, kind: Kind) -> None:
        """Rights are looked at before the server looks whether it has such a path."""
        resource = f"{kind.resource}/{place.subresource}" if place.subresource else kind.resource
        if not self._may(request.verb, resource, place.namespace):
            raise answers.forbidden(request.verb, kind, place.subresource, place.namespace, place.name)
        if not self._serves(kind):
            raise answers.no_such_path()

    def _may(self, verb: str, resource: str, namespace: str) -> bool:
        return (verb, resource) not in self.denied or (verb, resource, namespace) in self.permitted

    def _get(self, place: Place, kind: Kind) -> bytes:
        return self._shown(place, kind, self.objects.read(kind, place.namespace, place.name))

    def _shown(self, place: Place, kind: Kind, raw: Raw) -> bytes:
        if place.subresource == "scale":
            if kind.resource not in SCALED:
                raise answers.no_such_path()
            return encoded(self.objects.scale(kind, raw))
        return self.store.encoded(raw)

    def _list(self, place: Place, kind: Kind, query: t.Mapping[str, str]) -> bytes:
        token, limit = query.get("continue", ""), int(query.get("limit") or 0)
        if token:
            if token not in self._pages:
                raise answers.refused(410, "Expired", "The provided continue parameter is too old.")
            version, items = self._pages[token]
        else:
            version, items = (
                str(self.store.version),
                self.select(kind, place.namespace, query.get("labelSelector", ""), query.get("fieldSelector", "")),
            )
        more = ""
        if limit and len(items) > limit:
            more = f"page-{self.store.number()}"
            self._pages[more] = (version, items[limit:])
            items = items[:limit]
        meta: Raw = {"resourceVersion": version} | ({"continue": more} if more else {})
        if more and not {"labelSelector", "fieldSelector"}.intersection(query):
            meta["remainingItemCount"] = len(self._pages[more][1])
        head = {"kind": f"{kind.kind}List", "apiVersion": kind.api_version, "metadata": meta}
        return b'%s,"items":[%s]}' % (encoded(head)[:-1], b",".join(map(self.store.encoded, items)))

    def select(self, kind: Kind, namespace: str = "", labels: str = "", fields: str = "") -> list[Raw]:
        """The objects that are asked for, by namespace and name."""
        wanted, pairs = selectors.parse(labels), self._fields(kind, fields)
        return [
            raw
            for (where, _name), raw in sorted(self.store.of(kind.resource).items())
            if namespace in ("", where)
            and (not wanted or selectors.matches(wanted, raw["metadata"].get("labels") or {}))
            and all(field_of(raw, path) == value for path, value in pairs)
        ]

    def _post(self, place: Place, kind: Kind, body: Raw) -> bytes:
        if kind is kinds.SELF_SUBJECT_ACCESS_REVIEWS:
            asked = body["spec"]["resourceAttributes"]
            resource = asked["resource"] + (f".{asked['group']}" if asked.get("group") else "")
            resource += f"/{asked['subresource']}" if asked.get("subresource") else ""
            allowed = self._may(asked["verb"], resource, asked.get("namespace", ""))
            return encoded({**body, "status": {"allowed": allowed}})
        if kind is kinds.SELF_SUBJECT_REVIEWS:
            return encoded({**body, "status": {"userInfo": {"username": "somebody", "groups": []}}})
        if place.subresource == "token":
            return encoded({"status": {"token": self.issue(place, body["spec"]["expirationSeconds"])}})
        if place.subresource == "eviction":
            return encoded(evictions.evict(self.objects, place.namespace, place.name, body))
        return self.store.encoded(self.objects.create(kind, body, place.namespace))

    def issue(self, place: Place, seconds: int) -> str:
        """A token that says what a real one says, without a signature."""
        raw = self.objects.read(kinds.SERVICE_ACCOUNTS, place.namespace, place.name)
        made = int(EPOCH) + int(self.machine.now + self.skew)
        claims = {
            "sub": f"system:serviceaccount:{place.namespace}:{place.name}",
            "kubernetes.io": {"serviceaccount": {"uid": raw["metadata"]["uid"]}},
            "iat": made,
            "exp": made + seconds,
            "jti": str(self.store.number()),
        }
        return f"head.{base64.urlsafe_b64encode(encoded(claims)).decode('ascii').rstrip('=')}.signature"

    def _put(self, place: Place, kind: Kind, body: Raw) -> bytes:
        raw = self.objects.read(kind, place.namespace, place.name)
        given = body.get("metadata") or {}
        if given.get("uid") not in (None, raw["metadata"]["uid"]):
            raise answers.immutable_uid(kind, place.name, given["uid"])
        if given.get("resourceVersion") not in (None, "", raw["metadata"]["resourceVersion"]):
            raise answers.modified(kind, place.name)
        return self.store.encoded(self.objects.replace(kind, raw, body, place.subresource))

    def _fields(self, kind: Kind, text: str) -> tuple[tuple[str, str], ...]:
        pairs = tuple(t.cast("tuple[str, str]", tuple(part.split("=", 1))) for part in text.split(",") if part)
        known = {"metadata.name", "metadata.namespace"} | _FIELDS.get(kind.resource, set())
        for path, _value in pairs:
            if path not in known:
                raise answers.refused(400, "BadRequest", f"field label not supported: {path}")
        return pairs

    def _discovery(self, place: Place) -> Raw:
        found = [
            kind
            for (group, version, _plural), kind in _BY_PATH.items()
            if (group, version) == (place.group, place.version) and self._serves(kind)
        ]
        if not found:
            raise answers.no_such_path()
        resources = [{"name": kind.plural, "kind": kind.kind, "namespaced": kind.namespaced} for kind in found]
        resources += [
            {
                "name": f"{kind.plural}/scale",
                "kind": "Scale",
                "group": "autoscaling",
                "version": "v1",
                "namespaced": True,
            }
            for kind in found
            if kind.resource in SCALED
        ]
        return {"kind": "APIResourceList", "groupVersion": found[0].api_version, "resources": resources}


def _body(request: Request) -> Raw:
    """What the server makes of the bytes: nothing of it is shared with the client."""
    return t.cast("Raw", _copied(request.body or {}))


def _copied(value: t.Any) -> t.Any:
    """As it comes out of JSON, which knows dictionaries and lists alone."""
    if isinstance(value, dict):
        return {key: _copied(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_copied(inner) for inner in value]
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise TypeError(f"{type(value).__name__} is nothing that JSON has")
