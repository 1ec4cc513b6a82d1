# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What every loop is given and what it returns."""

from __future__ import annotations

import getpass
import socket
import threading
import typing as t
from dataclasses import asdict, dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    decoding,
    objects,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    client,
    clocks,
    errors,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
    reasons,
)


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth a line in the terminal and a mark in the report.

    ``at`` is RFC 3339 in UTC, ``what`` an outcome or a word of ``phases.What``, ``namespace`` and
    ``name`` the object it is about (empty: the node itself), ``phase`` the ``phases.Phase`` that
    the node is in from then on.
    """

    at: str
    node: str
    what: str
    message: str
    namespace: str = ""
    name: str = ""
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Run:
    """A run's identity: ``id`` names it, ``nonce`` is one start of a playbook and the right to act.

    Calls by hand have no nonce. An empty ``id`` with a nonce stands for the run in a node's record.
    """

    id: str
    nonce: str = ""

    @classmethod
    def parse(cls, text: str | None) -> Run | None:
        """From ``<id>``, ``<id>/<nonce>`` or ``/<nonce>``;
        ``None`` and the empty string are no run.
        """
        if not text:
            return None
        run_id, _slash, nonce = text.partition("/")
        return cls(run_id, nonce)

    def __str__(self) -> str:
        """The form that modules take and leases hold."""
        return f"{self.id}/{self.nonce}" if self.nonce else self.id


class CallAborted(Exception):
    """Ends the whole call, and nothing more is written; ``reason`` says why,
    ``subject`` is its object.
    """

    def __init__(self, code: str, message: str, remedy: str = "", subject: str = "") -> None:
        super().__init__(message)
        self.reason = reasons.Finding(code, message, remedy, "blocker", subject)


def user_at_host() -> str:
    """The user that runs this process, as ``name@host``."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):
        name = "unknown"
    return f"{name}@{socket.gethostname()}"


FRESH_SECONDS = 3.0
"""Seconds for which a list may be used again, and a watch may begin where it ended."""


@dataclass(frozen=True, slots=True)
class RecentList:
    """All objects of a kind, as a step of a call has listed them, for the steps after it.

    They are parsed, nodes as the API server sent them. ``version`` is the list's resourceVersion,
    empty where the cluster does not have the kind; ``at`` is when it was asked for. ``begun`` has
    the watch that goes on with it, if there is one, until a step takes it.
    """

    items: t.Sequence[t.Any]
    version: str
    at: float
    begun: list[client.Stream] = field(default_factory=list)


@dataclass
class Context:
    """One call: its connection, its clock, its progress callback,
    and what it has changed so far.

    ``locks`` are those that the steps of a call share, see ``state.run_locks.SharedLocks``;
    ``recent`` are lists by kind. Each change that is made forgets them all; a step that knows what
    its changes left as it was hands that on. ``latest`` are objects as the call has known them
    last, for ``run_reconcile.go_on``. ``follows`` are the kinds that a later step watches, so that
    lists of them begin that.
    """

    cluster: client.Cluster
    check: bool = False
    run: Run | None = None
    progress: t.Callable[[Event], None] = lambda event: None
    clock: clocks.Clock = field(default_factory=clocks.Clock)
    by: str = field(default_factory=user_at_host)
    timeline: list[Event] = field(default_factory=list)
    changes: list[api_changes.Change] = field(default_factory=list)
    _last: dict[tuple[str, ...], tuple[str, float]] = field(default_factory=dict)
    locks: object | None = None
    recent: dict[str, RecentList] = field(default_factory=dict)
    follows: t.Collection[str] = ()
    latest: dict[objects.Ref, objects.Raw] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def caller(self) -> tuple[str, str]:
        """Id and nonce of the calling run; both are empty for a call by hand."""
        return (self.run.id, self.run.nonce) if self.run else ("", "")

    def poll(self, every: float, within: float) -> t.Iterator[bool]:
        """The turns of a loop that looks again and again, ``every`` so many seconds; each says
        whether it is the last one, as ``within`` seconds are over.
        """
        until = self.clock.now() + within
        while self.clock.now() < until:
            yield False
            self.clock.sleep(every)
        yield True

    def tell(
        self,
        what: outcomes.Outcome,
        message: str,
        *,
        node: str = "",
        namespace: str = "",
        name: str = "",
    ) -> None:
        """Report an event, to the terminal now and to the report later."""
        self.progress(self.note(what, message, node=node, namespace=namespace, name=name))

    def tell_changed(
        self,
        what: outcomes.Outcome,
        message: str,
        *,
        pace: float = 0.0,
        node: str = "",
        namespace: str = "",
        name: str = "",
    ) -> None:
        """As ``tell``, unless it is what was told of this object last, or the change before
        was less than ``pace`` seconds ago.
        """
        key = (what.value, node, namespace, name)
        now = self.clock.now()
        last, at = self._last.setdefault(key, ("", now))
        if message != last and now - at >= pace:
            self._last[key] = (message, now)
            self.tell(what, message, node=node, namespace=namespace, name=name)

    def note(
        self,
        what: outcomes.Outcome,
        message: str,
        *,
        node: str = "",
        namespace: str = "",
        name: str = "",
    ) -> Event:
        """Keep an event for the report without a line in the terminal."""
        event = self._event(what, message, node, namespace, name)
        with self._lock:
            self.timeline.append(event)
        return event

    def show(self, what: outcomes.Outcome, message: str, *, node: str = "") -> None:
        """A line in the terminal alone, for what the report has in more detail."""
        self.progress(self._event(what, message, node, "", ""))

    def _event(
        self, what: outcomes.Outcome, message: str, node: str, namespace: str, name: str
    ) -> Event:
        phase = phases.PHASE_AFTER.get("" if name else what)
        if isinstance(what, phases.What):
            phase = what.phase
        return Event(
            self.clock.wall(),
            node,
            what.value,
            message,
            namespace,
            name,
            phase.value if phase else "",
        )

    def changed(self, change: api_changes.Change) -> None:
        """Remember a change that was made (in check mode: would be made)."""
        with self._lock:
            self.changes.append(change)
            self.recent = {}

    def listed_recently(self, name: str) -> RecentList | None:
        """The last list of this kind, unless it is too old or something was changed since."""
        recent = self.recent.get(name)
        if recent is None or self.clock.now() - recent.at > FRESH_SECONDS:
            return None
        return recent


@dataclass
class Result:
    """The module's documented returns in ``data``, and whether it failed."""

    data: dict[str, t.Any]
    failed: bool = False
    message: str = ""

    def shaped(self, ctx: Context | None = None) -> dict[str, t.Any]:
        """The whole result as plain data, with ``changed``, ``actions``, ``diff`` and ``timeline``.

        Of a call that had a cluster also which one it was.
        """
        changes, timeline = (ctx.changes, ctx.timeline) if ctx else ([], [])
        return {
            **self.data,
            **({"cluster": ctx.cluster.place} if ctx else {}),
            "changed": bool(changes),
            "failed": self.failed,
            "msg": self.message,
            "actions": [change.sentence for change in changes],
            "diff": api_changes.diff_of(changes),
            "timeline": [asdict(event) for event in timeline],
        }


def attempt(ctx: Context, loop: t.Callable[[Context], Result]) -> Result:
    """The loop's result, with every expected error as part of it; an interrupt is not one."""
    try:
        return loop(ctx)
    except CallAborted as stop:
        return stopped(stop)
    except (errors.ConfigError, errors.ClusterError, decoding.BadStateError) as error:
        return Result({"findings": []}, failed=True, message=str(error))


def stopped(stop: CallAborted) -> Result:
    """The result of a call that ended itself."""
    return Result({"findings": [stop.reason.to_dict()]}, failed=True, message=stop.reason.sentence)
