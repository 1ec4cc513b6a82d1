# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Hooks: what an application or its owner does before and after a pod is moved,
or a node taken out.

A rule selects pods or nodes and names one action. What ran for which pod (by UID) or node is in the
node's record, so that another run knows it: ``due`` is written before the pod leaves, ``begun``
before the action, ``done`` or ``failed`` after it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import typing as t
from dataclasses import dataclass, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
    pod_selectors,
    selectors,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records

Hook = t.Literal["before_pod", "after_pod", "before_node", "after_node"]
Action = t.Literal["tasks", "http", "annotation"]
State = t.Literal["due", "begun", "done", "failed"]

HOOKS: tuple[Hook, ...] = ("before_pod", "after_pod", "before_node", "after_node")
ACTIONS: tuple[Action, ...] = ("tasks", "http", "annotation")
DEADLINE_SECONDS = 300.0
"""Seconds that a hook may take unless its rule says otherwise."""
EVERY = pod_selectors.PodSelector({})
PLACEHOLDERS: t.Mapping[Hook, tuple[str, ...]] = {
    "before_pod": ("namespace", "name", "uid", "ip", "owner", "node", "again"),
    "after_pod": ("namespace", "name", "uid", "owner", "node", "again", "moved"),
    "before_node": ("node", "again"),
    "after_node": ("node", "again"),
}
"""What ``{...}`` in a URL or a header may name; a pod that is gone has no address."""
BRACES = re.compile(r"\{(\w*)\}")
_NOT_SEGMENT, _NOT_IP, _NOT_HEADER = map(
    re.compile, (rb"[^A-Za-z0-9_.~-]", rb"[^0-9A-Fa-f:.]", rb"[^ -~]")
)
DONE = (200, 201, 204)
"""HTTP statuses that are expected unless a rule says otherwise."""
REPEATED = frozenset({202, 408, 409, 425, 429, 500, 502, 503, 504})
"""HTTP statuses that mean "not yet": repeated until the deadline, unless expected."""


@dataclass(frozen=True, slots=True)
class Http:
    """An HTTP call; ``status`` are the expected statuses.
    ``headers`` may be secret and appear nowhere else.

    ``secret_path``: whoever knows the URL's path may make the call, as with webhooks of chats.
    """

    url: str
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    status: tuple[int, ...] = DONE
    validate_certs: bool = True
    secret_path: bool = False

    def shown(self) -> str:
        """The URL without what may be secret: user, password, query, or all but scheme and host."""
        scheme, slashes, rest = self.url.partition("?")[0].partition("#")[0].rpartition("://")
        host, slash, path = rest.partition("/")
        if self.secret_path:
            slash = path = ""
        return f"{scheme}{slashes}{host.rpartition('@')[2]}{slash}{path}"


@dataclass(frozen=True, slots=True)
class Rule:
    """Which pods or nodes it is for (all that is given has to match), and what is done.

    ``selects`` are pods; for hooks of nodes only its labels count, as those of nodes. ``deadline``
    is in seconds, ``tasks`` the path of a task file.
    """

    hook: Hook
    name: str
    action: Action
    deadline: float = DEADLINE_SECONDS
    selects: pod_selectors.PodSelector = EVERY
    tasks: str = ""
    http: Http | None = None

    @property
    def key(self) -> str:
        """Names the rule in records by what it does to what, so that an edited rule is another one.

        Neither name, deadline nor headers count.
        """
        call = [self.http.method, self.http.url] if self.http else []
        parts = [dataclasses.asdict(self.selects), self.action, self.tasks, call]
        return (
            f"{self.hook}/"
            f"{hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:8]}"
        )

    def for_pod(self, plan: drain_policy.PodPlan) -> bool:
        """Whether it is for the pod of this plan."""
        return self.selects.matches(plan.pod, plan.workload)

    def for_node(self, node: objects.Node) -> bool:
        """Whether it is for this node."""
        return selectors.matches(self.selects.labels, node.labels)


@dataclass(frozen=True, slots=True)
class Rules:
    """The rules for the pods of a drain."""

    before: tuple[Rule, ...] = ()
    after: tuple[Rule, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.before or self.after)


NO_RULES = Rules()


@dataclass(frozen=True, slots=True)
class Call:
    """One rule for one pod, or for a node (then the pod's fields are empty).

    ``owner`` is ``<kind>/<name>``; empty also for a reference to what no cluster can have.
    """

    rule: Rule
    node: str
    namespace: str = ""
    name: str = ""
    uid: str = ""
    owner: str = ""
    ip: str = ""

    @classmethod
    def of_pod(cls, rule: Rule, plan: drain_policy.PodPlan) -> Call:
        """The call for the pod of this plan."""
        pod = plan.pod
        owner = plan.workload or plan.pod.owner
        text = f"{owner.kind}/{owner.name}" if owner and owner.possible else ""
        return cls(rule, pod.node, pod.namespace, pod.name, pod.uid, text, pod.ip)

    @property
    def key(self) -> str:
        """The name of the call in the node's record."""
        return f"{self.rule.key}/{self.uid}" if self.uid else self.rule.key

    @property
    def subject(self) -> str:
        """The pod or the node, as text."""
        return f"Pod {self.namespace}/{self.name}" if self.uid else f"Node {self.node}"

    @property
    def what(self) -> str:
        """The call in words."""
        doing = {"tasks": self.rule.tasks, "annotation": names.READY_TO_MOVE}
        how = self.rule.http.shown() if self.rule.http else doing[self.rule.action]
        return f"hook {self.rule.hook}, rule {self.rule.name} ({self.rule.action} {how})"

    def entry(self, state: State) -> dict[str, str]:
        """The entry of the call in the node's record."""
        return entry_of({**self.variables(again=False), "action": self.rule.action}, state)

    def variables(self, *, again: bool, moved: bool | None = None) -> dict[str, t.Any]:
        """What the action is told; ``again``: it was begun before, and may have been carried out.

        ``moved``, of a hook after the move: whether the pod has gone.
        """
        body: dict[str, t.Any] = {
            "hook": self.rule.hook,
            "rule": self.rule.name,
            "node": self.node,
            "again": again,
        }
        if self.uid:
            body |= {
                "namespace": self.namespace,
                "name": self.name,
                "uid": self.uid,
                "owner": self.owner,
            }
        if self.rule.hook == "before_pod":
            body["ip"] = self.ip
        if self.rule.hook == "after_pod":
            body["moved"] = moved
        return body

    def to_dict(self, state: str, *, moved: bool | None = None) -> dict[str, t.Any]:
        """As modules return it and take it; for ``tasks`` with the file and the variables."""
        again = state in ("begun", "failed")
        found = {
            "key": self.key,
            "state": state,
            "action": self.rule.action,
            "deadline": int(self.rule.deadline),
        }
        return {**self.variables(again=again, moved=moved), **found, "tasks": self.rule.tasks}


def entry_of(body: t.Mapping[str, t.Any], state: State) -> dict[str, str]:
    """What the record says of a call with these variables."""
    about = {
        key: str(body.get(key) or "") for key in ("rule", "action", "namespace", "name", "owner")
    }
    return {"state": state, **{key: value for key, value in about.items() if value}}


def filled(http: Http, variables: t.Mapping[str, t.Any]) -> Http:
    """The call with the variables in its URL and headers.

    What others have named cannot lead to another URL or header: in a URL each variable is
    percent-encoded, in a header what is not printable ASCII. An IPv6 address gets
    the brackets of a URL.
    """

    def text(found: re.Match[str], *, url: bool) -> str:
        value = variables.get(found[1], "")
        shown = str(value).lower() if isinstance(value, bool) else str(value)
        if url and found[1] == "ip" and ":" in shown:
            return f"[{_encoded(shown, _NOT_IP)}]"
        return _encoded(shown, _NOT_SEGMENT if url else _NOT_HEADER)

    headers = tuple(
        (key, BRACES.sub(lambda m: text(m, url=False), value)) for key, value in http.headers
    )
    return replace(http, url=BRACES.sub(lambda m: text(m, url=True), http.url), headers=headers)


def _encoded(text: str, wrong: re.Pattern[bytes]) -> str:
    found = wrong.sub(lambda one: b"%%%02X" % ord(one[0]), text.encode("utf-8", "replace")).decode()
    # A segment `..` would be resolved before it is sent.
    return found if found.strip(".") else found.replace(".", "%2E")


def state_of(record: node_records.Record, key: str) -> str:
    """How far it is according to the record; empty for what it does not name."""
    return record.hooks.get(key, {}).get("state", "")


def calls_for(rules: t.Iterable[Rule], plan: drain_policy.PodPlan) -> tuple[Call, ...]:
    """The calls for a pod that is to be moved; none if it does not run, as nobody can be asked."""
    if plan.route not in drain_policy.MOVING or plan.pod.deleting or plan.pod.phase != "Running":
        return ()
    return tuple(Call.of_pod(rule, plan) for rule in rules if rule.for_pod(plan))


def left(rules: t.Iterable[Rule], node: str, record: node_records.Record) -> tuple[Call, ...]:
    """The calls for pods that left the node, or were to, which the record says are not over."""
    found = []
    for rule in rules:
        for key, entry in record.hooks.items():
            prefix, _slash, uid = key.rpartition("/")
            if prefix == rule.key and uid and entry["state"] != "done":
                about = (
                    entry.get("namespace", ""),
                    entry.get("name", ""),
                    uid,
                    entry.get("owner", ""),
                )
                found.append(Call(rule, node, *about))
    return tuple(found)


def planned(record: node_records.Record) -> dict[str, tuple[str, str]]:
    """The pods that carry our annotation because of this record, by UID: namespace and name."""
    return {
        key.rpartition("/")[2]: (entry.get("namespace", ""), entry.get("name", ""))
        for key, entry in record.hooks.items()
        if entry.get("action") == "annotation" and entry["state"] != "due"
    }


# The handshake of a pod's hook: we announce the maintenance on the pod,
# and its application agrees to it there.
#
# Both write the same value, the time at which the node's maintenance began, so an agreement to an
# earlier one does not count.


def announcing(
    raw: objects.Raw | None, uid: str, record: node_records.Record
) -> api_changes.Change | None:
    """Announce the maintenance on the pod ``raw``; ``None`` if it is, or that is another pod."""
    if raw is None or raw["metadata"].get("uid") != uid:
        return None
    pod = objects.Pod.of(raw)
    if pod.annotations.get(names.PLANNED) == record.since:
        return None
    return announcement(pod, record.since)


def announcement(pod: objects.Pod, since: str) -> api_changes.Change:
    """Announce a maintenance that began ``since`` (RFC 3339)."""
    return _patch(
        pod, f"Announce the maintenance on {pod.ref}", pod.annotations.get(names.PLANNED), since
    )


def taking_back(raw: objects.Raw | None, uid: str, since: str) -> api_changes.Change | None:
    """Remove our announcement from a pod that stays; another time is not ours."""
    if raw is None or raw["metadata"].get("uid") != uid:
        return None
    pod = objects.Pod.of(raw)
    if pod.annotations.get(names.PLANNED) != since:
        return None
    return _patch(pod, f"Take back the announced maintenance of {pod.ref}", since, None)


def agreed(pod: objects.Pod, record: node_records.Record) -> bool:
    """Whether the application has agreed to this maintenance."""
    return pod.annotations.get(names.READY_TO_MOVE) == record.since


def _patch(
    pod: objects.Pod, sentence: str, before: str | None, after: str | None
) -> api_changes.Change:
    body = {"metadata": {"annotations": {names.PLANNED: after}}}
    old, new = ({names.PLANNED: value} if value is not None else {} for value in (before, after))
    return api_changes.patch(pod, sentence, body, old, new)
