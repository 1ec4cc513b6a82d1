# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The API server's rules for one object: creating, changing, deleting, evicting. Controllers call them directly."""

from __future__ import annotations

import datetime
import functools
import math
import re
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.kinds import Kind
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import answers
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.clocks import EPOCH
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw, Store, merged

MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}(Z|[+-]\d\d:\d\d)")

COUNTED = frozenset(
    kind.resource
    for kind in (
        kinds.PODS,
        kinds.DEPLOYMENTS,
        kinds.REPLICA_SETS,
        kinds.STATEFUL_SETS,
        kinds.DAEMON_SETS,
        kinds.JOBS,
        kinds.CRON_JOBS,
        kinds.BUDGETS,
        kinds.PODMIGRATIONJOBS,
        kinds.RESERVATIONS,
        kinds.ROLLOUTS,
        kinds.CLONE_SETS,
    )
)
"""Kinds whose generation counts the changes of their spec."""
WITH_STATUS = COUNTED | {kind.resource for kind in (kinds.NODES, kinds.NAMESPACES, kinds.HPAS, kinds.PODS)}
"""Kinds whose status is written through its subresource only."""
SCALED = {
    kind.resource
    for kind in (kinds.DEPLOYMENTS, kinds.REPLICA_SETS, kinds.STATEFUL_SETS, kinds.ROLLOUTS, kinds.CLONE_SETS)
}
ANSWERS_WITH_OBJECT = frozenset({kinds.PODS.resource, kinds.PODMIGRATIONJOBS.resource, kinds.RESERVATIONS.resource})
"""Kinds that give back the object that was deleted, instead of a Status, where it is gone at once."""

_SUFFIX = "bcdfghjklmnpqrstvwxz2456789"


DENIES = "sim.example/denies"
"""An annotation of a namespace: somebody's admission webhook denies new pods of the app that it names."""
OWNED = "sim.example/owned"
"""The same: one denies that pods of the app that it names are without a controller."""


class Objects:
    """Reads and writes of single objects in a store; `time` is the server's own, in seconds."""

    def __init__(self, store: Store, time: t.Callable[[], float]) -> None:
        self.store, self.time = store, time

    def wall(self, later: float = 0.0) -> str:
        """The server's time as in a `creationTimestamp`."""
        return rfc3339(self.time() + later)

    def read(self, kind: Kind, namespace: str, name: str) -> Raw:
        raw = self.store.get(kind.resource, namespace, name)
        if raw is None:
            raise answers.not_found(kind, name)
        return raw

    def create(self, kind: Kind, body: Raw, namespace: str = "") -> Raw:
        """A new object; `generateName` works.

        Raises:
            Refused: it is there already, or its namespace is not there or ends.
        """
        given = body.get("metadata") or {}
        namespace = (namespace or given.get("namespace") or "") if kind.namespaced else ""
        number = self.store.number()
        name = given.get("name") or f"{given.get('generateName', '')}{suffix(number)}"
        if kind.namespaced:
            around = self.store.get(kinds.NAMESPACES.resource, "", namespace)
            if around is None:
                raise answers.not_found(kinds.NAMESPACES, namespace)
            if "deletionTimestamp" in around["metadata"]:
                raise answers.terminating(kind, name, namespace)
            app = (given.get("labels") or {}).get("app", "")
            if kind is kinds.PODS and app and (around["metadata"].get("annotations") or {}).get(DENIES) == app:
                raise answers.denied_by_webhook()
        if self.store.get(kind.resource, namespace, name) is not None:
            raise answers.exists(kind, name)
        _parsed(kind, body)
        meta: Raw = {**given, "name": name}
        for unsettable in ("uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "generation"):
            meta.pop(unsettable, None)
        if namespace:
            meta["namespace"] = namespace
        meta["uid"] = f"{number:08x}-0000-4000-8000-{number:012x}"
        meta["creationTimestamp"] = self.wall()
        if kind.resource in COUNTED:
            meta["generation"] = 1
        raw = {**body, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta}
        if kind.resource in WITH_STATUS and kind.resource != kinds.NODES.resource:
            raw["status"] = {}
        return self.store.put(kind.resource, _defaulted(kind, raw))

    def patch(self, kind: Kind, name: str, body: Raw, namespace: str = "", subresource: str = "") -> Raw:
        """A merge patch; what changes nothing is no new version.

        Raises:
            Refused: not there, another version or UID than the patch names, or invalid.
        """
        raw = self.read(kind, namespace, name)
        _parsed(kind, body)
        meta = raw["metadata"]
        given = body.get("metadata") or {}
        if given.get("uid") not in (None, meta["uid"]):
            raise answers.immutable_uid(kind, name, given["uid"])
        if given.get("resourceVersion") not in (None, "", meta["resourceVersion"]):
            raise answers.modified(kind, name)
        if subresource == "scale":
            body = {"spec": {"replicas": (body.get("spec") or {}).get("replicas", raw["spec"].get("replicas"))}}
        wanted = merged(raw, body)
        self.judge(kind, wanted)
        return self.replace(kind, raw, wanted, subresource)

    def judge(self, kind: Kind, raw: Raw) -> None:
        """What an admission webhook says to a change.

        Raises:
            Refused: it denies it.
        """
        if kind is not kinds.PODS:
            return
        meta = raw["metadata"]
        around = self.read(kinds.NAMESPACES, "", meta["namespace"])["metadata"].get("annotations") or {}
        controlled = any(owner.get("controller") for owner in meta.get("ownerReferences") or ())
        if OWNED in around and around[OWNED] == (meta.get("labels") or {}).get("app") and not controlled:
            raise answers.denied_by_webhook()

    def replace(self, kind: Kind, raw: Raw, wanted: Raw, subresource: str = "") -> Raw:
        """Bring an object to a wanted state as far as the (sub)resource may."""
        after = dict(wanted)
        old, new = raw["metadata"], dict(wanted.get("metadata") or {})
        if subresource == "status":
            after = {**raw, "status": wanted.get("status", {})}
            new = dict(old)
        elif kind.resource in WITH_STATUS:
            after.pop("status", None)
            if "status" in raw:
                after["status"] = raw["status"]
        for kept in (
            "uid",
            "name",
            "namespace",
            "creationTimestamp",
            "deletionTimestamp",
            "deletionGracePeriodSeconds",
        ):
            new.pop(kept, None)
            if kept in old:
                new[kept] = old[kept]
        new["resourceVersion"] = old["resourceVersion"]
        for emptied in ("labels", "annotations", "finalizers", "ownerReferences"):
            if not new.get(emptied):
                new.pop(emptied, None)
        if "generation" in old:
            new["generation"] = old["generation"]
        after["metadata"] = new
        if kind is kinds.ADMISSION_POLICIES:
            after = _policy(after)
        if after == raw:
            return raw
        if subresource != "status" and kind.resource in COUNTED and after.get("spec") != raw.get("spec"):
            new["generation"] = old["generation"] + 1
        _check(kind, after)
        released = "deletionTimestamp" in new and not new.get("finalizers") and old.get("finalizers")
        if released and new.get("deletionGracePeriodSeconds", 0) == 0:
            return self.store.remove(kind.resource, after)
        return self.store.put(kind.resource, after)

    def delete(self, kind: Kind, name: str, namespace: str = "", options: Raw | None = None) -> Raw:
        """Delete, or begin to: what the server answers.

        Raises:
            Refused: not there, or another one than the preconditions name.
        """
        raw = self.read(kind, namespace, name)
        options = options or {}
        self.check_preconditions(kind, raw, options.get("preconditions") or {})
        meta = raw["metadata"]
        grace = self._grace(kind, raw, options.get("gracePeriodSeconds"))
        if "deletionTimestamp" in meta:
            left = meta.get("deletionGracePeriodSeconds", 0)
            if kind is kinds.PODS and grace < left:
                if grace == 0 and not meta.get("finalizers"):
                    return self.store.remove(kind.resource, self._ending(raw, 0))
                return self.store.put(kind.resource, self._ending(raw, grace))
            if kind is kinds.PODS and grace == 0 and left == 0 and not meta.get("finalizers"):
                return self.store.remove(kind.resource, raw)
            return raw
        if kind is kinds.NAMESPACES:
            ending = self._ending(raw, 0)
            return self.store.put(kind.resource, {**ending, "status": {"phase": "Terminating"}})
        if grace > 0 or meta.get("finalizers"):
            return self.store.put(kind.resource, self._ending(raw, grace))
        last = self.store.remove(kind.resource, raw)
        return last if kind.resource in ANSWERS_WITH_OBJECT else answers.done(kind, last)

    def check_preconditions(self, kind: Kind, raw: Raw, conditions: Raw) -> None:
        meta = raw["metadata"]
        uid, version = conditions.get("uid"), conditions.get("resourceVersion")
        if uid not in (None, meta["uid"]):
            raise answers.other_uid(kind, meta["name"], uid, meta["uid"])
        if version not in (None, meta["resourceVersion"]):
            raise answers.other_version(kind, meta["name"], version, meta["resourceVersion"])

    def scale(self, kind: Kind, raw: Raw) -> Raw:
        """The Scale of something with replicas."""
        meta = raw["metadata"]
        kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
        selector = (raw["spec"].get("selector") or {}).get("matchLabels") or {}
        return {
            "kind": "Scale",
            "apiVersion": "autoscaling/v1",
            "metadata": {key: meta[key] for key in kept},
            "spec": {"replicas": replicas} if (replicas := raw["spec"].get("replicas", 1)) else {},
            "status": {
                "replicas": (raw.get("status") or {}).get("replicas", 0),
                "selector": ",".join(f"{key}={value}" for key, value in sorted(selector.items())),
            },
        }

    def _ending(self, raw: Raw, grace: int) -> Raw:
        meta = {**raw["metadata"], "deletionTimestamp": self.wall(grace), "deletionGracePeriodSeconds": grace}
        if raw.get("kind") == "Namespace":
            del meta["deletionGracePeriodSeconds"]
        if "generation" in meta and "deletionTimestamp" not in raw["metadata"]:
            meta["generation"] += 1
        return {**raw, "metadata": meta}

    @staticmethod
    def _grace(kind: Kind, raw: Raw, asked: int | None) -> int:
        """Seconds; only what a kubelet has to end is given any."""
        if kind is not kinds.PODS:
            return 0
        if not raw["spec"].get("nodeName") or (raw.get("status") or {}).get("phase") in ("Succeeded", "Failed"):
            return 0
        grace = raw["spec"].get("terminationGracePeriodSeconds", 30) if asked is None else asked
        return int(grace)


def _parsed(kind: Kind, body: Raw) -> None:
    """Times of leases have microseconds, or the server cannot read them."""
    for name in ("acquireTime", "renewTime") if kind.resource == kinds.LEASES.resource else ():
        text = (body.get("spec") or {}).get(name)
        if text is not None and not MICRO_TIME.fullmatch(text):
            raise answers.refused(400, "BadRequest", f'parsing time "{text}" as "2006-01-02T15:04:05.000000Z07:00"')


def rfc3339(seconds: float) -> str:
    """A moment of the machine's time, as the server writes it: whole seconds."""
    return _text_of(math.floor(EPOCH + seconds))


@functools.lru_cache(maxsize=4096)
def _text_of(epoch: int) -> str:
    return datetime.datetime.fromtimestamp(epoch, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@functools.lru_cache(maxsize=4096)
def seconds_of(text: str) -> float:
    """The machine's time of such a text."""
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp() - EPOCH


def suffix(number: int) -> str:
    """Five letters as behind a generated name; another one for each number below 14 million."""
    number = (number * 7_368_787) % 27**5
    letters = ""
    for _place in range(5):
        number, rest = divmod(number, 27)
        letters += _SUFFIX[rest]
    return letters


def _defaulted(kind: Kind, raw: Raw) -> Raw:
    spec = raw.get("spec")
    if kind.resource in SCALED:
        raw["spec"] = {"replicas": 1, **{key: value for key, value in (spec or {}).items() if value is not None}}
    if kind is kinds.PODS:
        raw["spec"] = {
            "terminationGracePeriodSeconds": 30,
            "schedulerName": "default-scheduler",
            "restartPolicy": "Always",
            **(spec or {}),
        }
        raw["spec"]["tolerations"] = _tolerations(raw["spec"].get("tolerations") or ())
        raw["status"] = {"phase": "Pending"}
    if kind is kinds.NAMESPACES:
        raw["status"] = {"phase": "Active"}
    if kind is kinds.BUDGETS:
        raw["status"] = dict.fromkeys(("currentHealthy", "desiredHealthy", "disruptionsAllowed", "expectedPods"), 0)
    if kind is kinds.ADMISSION_POLICIES:
        raw = _policy(raw)
    _check(kind, raw)
    return raw


def _policy(raw: Raw) -> Raw:
    """With what the server fills in of an admission policy's matches."""
    spec = raw["spec"]
    given = spec["matchConstraints"]
    rules = [{"scope": "*", **rule} for rule in given.get("resourceRules") or ()]
    filled = {"matchPolicy": "Equivalent", "namespaceSelector": {}, "objectSelector": {}}
    return {**raw, "spec": {**spec, "matchConstraints": {**filled, **given, "resourceRules": rules}}}


def _tolerations(given: t.Sequence[Raw]) -> list[Raw]:
    """With those that admission adds: five minutes on a node that is lost."""
    added = []
    for key in ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"):
        known = [x for x in given if x.get("key") in (None, "", key) and x.get("effect") in (None, "", "NoExecute")]
        if not known:
            added.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
    return [*given, *added]


def _check(kind: Kind, raw: Raw) -> None:
    replicas = (raw.get("spec") or {}).get("replicas", 0)
    if kind.resource in SCALED and replicas < 0:
        said = f"Invalid value: {replicas}: must be greater than or equal to 0"
        raise answers.invalid(kind, raw["metadata"]["name"], "spec.replicas", said)
