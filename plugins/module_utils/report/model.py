# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A report as plain frozen data.

Instants are seconds since the epoch (UTC), durations seconds; ``None`` means unknown.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons

VERSION = 1
"""Of ``report.json``: increases when a field changes its meaning or is removed."""

Outcome = t.Literal[
    "back", "parked", "failed", "unfinished", "unchanged", "planned", "blocked", "gone"
]
"""How a node ended: ``back`` in service, ``parked`` out of service on purpose, ``unfinished``
without a failure, ``planned`` and never touched, ``blocked`` by a finding and never touched,
``gone`` if it no longer exists.
"""

Verdict = t.Literal[
    "never_dark",
    "dark",
    "not_watched",
    "no_pod_moved",
    "stopped",
    "failed",
    "nothing_to_do",
    "check",
    "planned",
]
"""``not_watched``: pods moved, and no Service was watched; ``stopped``: blockers, and no pod was
touched; ``failed``: it failed, and no pod moved; ``planned``: a plan without blockers.
"""

AFTER_DRAIN = ("drained", "out", "returning", "parked")
"""The phases of a node without the pods that had to go."""


@dataclass(frozen=True, slots=True)
class Span:
    """A period; ``open`` if it had not ended when the report was written."""

    phase: str
    start: float
    end: float
    open: bool = False

    @property
    def seconds(self) -> float:
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Mark:
    """An event of a timeline."""

    at: float
    what: str
    message: str


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node; ``wave`` counts from 1 (0: in none), ``left`` has the number of
    pods that stay, by code.

    ``pods_moved`` is ``None`` where only an earlier start knew it, or nobody. ``waits`` is why it
    is not in an earlier wave; empty in the first one. ``tasks_failed``:
    the tasks on its host are what failed.
    """

    name: str
    wave: int
    outcome: Outcome
    message: str
    spans: tuple[Span, ...]
    marks: tuple[Mark, ...]
    pods_moved: int | None
    pods_failed: int
    left: tuple[tuple[str, int], ...]
    waits: str = ""
    tasks_failed: bool = False

    @property
    def seconds(self) -> float | None:
        """The time out of service, from the cordon on, whoever made it; ``None`` if unknown."""
        return self.spans[-1].end - self.spans[0].start if self.spans else None

    @property
    def emptied(self) -> bool:
        """Whether it came further than its drain."""
        return any(span.phase in AFTER_DRAIN for span in self.spans)

    @property
    def touched(self) -> bool:
        """Whether anything was done to it, or tried."""
        return bool(self.spans) or self.outcome not in ("planned", "blocked")

    @property
    def troubled(self) -> bool:
        return self.outcome in ("failed", "unfinished")


@dataclass(frozen=True, slots=True)
class PodLane:
    """One pod; ``code`` and ``reason`` explain its route.

    ``refused`` counts refused evictions; ``blocked_by`` is the object behind them
    (``PodDisruptionBudget shop/web``), ``rule`` what that object demands. ``waited_seconds`` is the
    time until the pod was gone, ``held_seconds`` the part of it between the first refusal and the
    accepted eviction. ``fits``, ``target`` and ``forecast_seconds`` are what
    the plan foresaw of it.
    """

    namespace: str
    name: str
    uid: str
    node: str
    owner: str
    route: str
    code: str
    outcome: str
    reason: str
    waited_seconds: float | None
    held_seconds: float | None
    moved: bool
    failed: bool
    refused: int
    blocked_by: str
    rule: str
    remedy: str
    fits: bool | None
    target: str
    forecast_seconds: float | None
    spans: tuple[Span, ...]
    marks: tuple[Mark, ...]

    @property
    def moments(self) -> tuple[float, ...]:
        """The times of all marks and spans, in no order."""
        found = [mark.at for mark in self.marks]
        for span in self.spans:
            found += [span.start, span.end]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Surge:
    """A workload that was protected: surged, guarded by a budget, or both.

    ``raised``, ``ready`` and ``lowered`` are the instants of its surge.
    """

    kind: str
    namespace: str
    name: str
    replicas_before: int | None
    replicas_during: int | None
    budget: str
    outcome: str
    message: str
    raised: float | None
    ready: float | None
    lowered: float | None


@dataclass(frozen=True, slots=True)
class Watch:
    """A sample of a Service holds until the next one, the last one until ``end``."""

    samples: tuple[tuple[float, int], ...]
    end: float

    @property
    def start(self) -> float:
        return self.samples[0][0]

    def steps(self) -> t.Iterator[tuple[float, float, int]]:
        """From, to, ready endpoints."""
        ends = [at for at, _ready in self.samples[1:]] + [self.end]
        for (at, ready), end in zip(self.samples, ends, strict=True):
            yield at, end, ready


@dataclass(frozen=True, slots=True)
class ServiceLine:
    """Ready endpoints of one Service over time.

    ``dark`` are the periods without any, after it had one (``served``). ``desired`` is what its
    workloads want, as far as it ever had so many at the start or the end; where that is unknown,
    the smaller of its first and last count.
    """

    namespace: str
    name: str
    desired: int
    watches: tuple[Watch, ...]
    served: bool
    lowest: int
    highest: int
    dark: tuple[Span, ...]
    below_seconds: float

    @property
    def dark_seconds(self) -> float:
        return sum(span.seconds for span in self.dark)

    @property
    def changed(self) -> bool:
        return self.served and self.lowest != self.highest

    @property
    def share(self) -> float:
        """The lowest count as a part of the desired one."""
        return self.lowest / max(self.desired, 1)

    @property
    def top(self) -> int:
        """The highest count it had or should have; at least 1."""
        return max(self.highest, self.desired, 1)


@dataclass(frozen=True, slots=True)
class LostRequests:
    """Requests of one second that failed; ``kind`` is the load generator's word for how."""

    at: float
    kind: str
    count: int


@dataclass(frozen=True, slots=True)
class TrafficLine:
    """What became of the requests that a load generator sent to one Service,
    between ``started`` and ``ended``.

    ``via`` is how it was reached, ``kind`` over which connections, both in the load generator's
    words. ``failures`` may be only the first ones.
    ``unanswered_seconds`` is the longest time without an answer.
    """

    service: str
    via: str
    kind: str
    started: float
    ended: float
    sent: int
    failed: int
    unanswered_seconds: float | None
    slowest_seconds: float | None
    failures: tuple[LostRequests, ...]


@dataclass(frozen=True, slots=True)
class Refusal:
    """What one object (or rule) refused, and for which pods.

    ``stuck`` are those of ``pods`` that never left; ``count`` is 0 if the rule was known
    before any eviction.
    """

    blocker: str
    rule: str
    remedy: str
    count: int
    first: float | None
    last: float | None
    pods: tuple[str, ...]
    stuck: tuple[str, ...]
    longest_wait: float | None


@dataclass(frozen=True, slots=True)
class Failure:
    """A node or a call that failed, and why."""

    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class Finding(reasons.Reason):
    """``severity`` is ``blocker``, ``warning`` or ``info``, ``objects`` are all it is about."""

    severity: str = ""
    object: str = ""
    objects: tuple[str, ...] = field(default=(), kw_only=True)


@dataclass(frozen=True, slots=True)
class Step:
    """One change; ``command`` makes it and ``back`` takes it back, empty where there is none."""

    code: str
    kind: str
    namespace: str
    name: str
    text: str
    command: str
    back: str = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """Against findings of ``codes``: an option is for all objects, a change for one."""

    codes: tuple[str, ...]
    objects: tuple[str, ...]
    changes: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Earlier:
    """What earlier starts of a run that was resumed had done before, as far as it was kept;
    the totals have it too.

    The first one began at ``since``. ``finished`` are the nodes that they had finished. It is not
    ``whole`` if one of them was killed in a wave.
    """

    since: float | None
    finished: tuple[str, ...]
    pods_moved: int
    out_seconds: float
    watched_seconds: float
    whole: bool


@dataclass(frozen=True, slots=True)
class Cluster:
    """Which cluster it was: the ``context`` of the kubeconfig (or ``in-cluster``),
    and the address of the ``server``.

    Both are empty if no result says it.
    """

    context: str = ""
    server: str = ""

    @property
    def name(self) -> str:
        return self.context or self.server

    @property
    def words(self) -> str:
        return f"{self.context} ({self.server})" if self.context and self.server else self.name


NOWHERE = Cluster()


@dataclass(frozen=True, slots=True)
class GivenBack:
    """An object that was given back, or ``kept`` as somebody else had changed it."""

    at: float | None
    object: str
    kept: bool
    message: str


@dataclass(frozen=True, slots=True)
class Totals:
    """Numbers for the whole run.

    ``out_seconds`` is the time in which a node was out of service, ``watched_seconds`` the part of
    it in which Services were watched. ``moving_seconds`` is the time from the cordon of each wave
    until its nodes are drained, with all successors ready, ``forecast_seconds`` what the plan
    expected for that, ``forecast_range`` what it held possible; if ``services_watched`` is
    ``None``, only the changed Services are known.
    """

    nodes: int
    nodes_done: int
    nodes_failed: int
    waves: int
    pods_moved: int
    pods_surged: int
    pods_replaced: int
    pods_left: int
    pods_failed: int
    evictions: int
    refusals: int
    requests: int | None
    services_watched: int | None
    services_changed: int
    services_dark: int
    dark_seconds: float
    watched_seconds: float
    out_seconds: float
    seconds: float | None
    moving_seconds: float | None
    forecast_seconds: float | None
    forecast_range: tuple[float, float] | None


@dataclass(frozen=True, slots=True)
class Report:
    """One run."""

    run: str
    by: str
    reason: str
    cluster: Cluster
    earlier: Earlier | None
    check: bool
    verdict: Verdict
    started: float | None
    ended: float | None
    nodes: tuple[NodeLine, ...]
    pods: tuple[PodLane, ...]
    surges: tuple[Surge, ...]
    services: tuple[ServiceLine, ...]
    watched: tuple[Span, ...]
    traffic: tuple[TrafficLine, ...]
    traffic_faults: tuple[Failure, ...]
    refusals: tuple[Refusal, ...]
    problems: tuple[Failure, ...]
    findings: tuple[Finding, ...]
    advice: tuple[Advice, ...]
    given_back: tuple[GivenBack, ...]
    actions: tuple[str, ...]
    totals: Totals

    @property
    def unwatched_seconds(self) -> float:
        return max(0.0, self.totals.out_seconds - self.totals.watched_seconds)

    @property
    def planned(self) -> bool:
        """Whether nothing was done yet."""
        return self.check or self.verdict in ("stopped", "planned")

    @property
    def dark(self) -> tuple[ServiceLine, ...]:
        return tuple(service for service in self.services if service.dark)

    @property
    def lost(self) -> tuple[TrafficLine, ...]:
        return tuple(line for line in self.traffic if line.failed)

    @property
    def moved_unknown(self) -> bool:
        """Whether pods may have been moved that are not counted."""
        counted = self.earlier is not None and self.earlier.whole
        return not counted and any(node.pods_moved is None for node in self.nodes)

    @property
    def blockers(self) -> tuple[Finding, ...]:
        """The findings that stopped the run, or for which it left nodes out."""
        return tuple(finding for finding in self.findings if finding.severity == "blocker")

    @property
    def skippable(self) -> tuple[str, ...]:
        """Nodes that can be left out so that others go on: empty if there are no others."""
        free = any(node.outcome == "planned" for node in self.nodes)
        if free and self.verdict == "stopped":
            return tuple(n.name for n in self.nodes if n.outcome == "blocked")
        return ()

    @property
    def failed(self) -> bool:
        """Whether someone has to take action."""
        failed = self.totals.nodes_failed > 0 or self.verdict == "stopped"
        return failed or bool(self.problems or self.blockers)
