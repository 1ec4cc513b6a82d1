# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a report says, as plain frozen data.

Instants are seconds since the epoch (UTC), durations seconds; ``None`` means that nobody knows.
``build`` makes a ``Report`` from module results, ``text`` makes text and JSON from that.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import reasons

VERSION = 1
"""Of ``report.json``: goes up when a field changes its meaning or goes, not when one is added."""

Outcome = t.Literal["back", "parked", "failed", "unfinished", "unchanged", "planned", "blocked", "gone"]
"""How a node ended: ``back`` in service; ``parked`` out of service on purpose; ``unfinished`` means
that nothing failed and yet the way was not walked to its end; ``planned`` was never touched,
``blocked`` neither because a finding forbids it; a ``gone`` node does not exist any more."""

Verdict = t.Literal["never_dark", "dark", "not_watched", "no_pod_moved", "stopped", "failed", "nothing_to_do", "check"]
"""The first thing to know. ``not_watched``: pods moved, and no Service's endpoints were seen;
``stopped``: blockers, and no pod was touched; ``failed``: it broke off before the first pod."""


@dataclass(frozen=True, slots=True)
class Span:
    """A stretch of time; ``open`` says that it had not ended when the report was written."""

    phase: str
    start: float
    end: float
    open: bool = False

    @property
    def seconds(self) -> float:
        """Its length."""
        return self.end - self.start


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at one moment: an event of a timeline."""

    at: float
    what: str
    message: str


@dataclass(frozen=True, slots=True)
class NodeLine:
    """One node's way; ``wave`` counts from 1 (0: in none), ``seconds`` is its time out of service.

    ``left`` counts, by code, the pods that stay (mirror, daemonset …).
    """

    name: str
    wave: int
    outcome: Outcome
    message: str
    spans: tuple[Span, ...]
    marks: tuple[Mark, ...]
    pods_moved: int
    pods_failed: int
    left: tuple[tuple[str, int], ...]

    @property
    def seconds(self) -> float | None:
        """From the cordon to the end of the way, ``None`` when no time is known."""
        return self.spans[-1].end - self.spans[0].start if self.spans else None

    @property
    def touched(self) -> bool:
        """Whether anything is known to have been done to it, or tried."""
        return bool(self.spans) or self.outcome not in ("planned", "blocked")

    @property
    def troubled(self) -> bool:
        """Whether it did not get where it should."""
        return self.outcome in ("failed", "unfinished")


@dataclass(frozen=True, slots=True)
class PodLane:
    """One pod's way off its node; ``code`` and ``reason`` say why its route is what it is.

    ``refused`` counts evictions that the API refused; ``blocked_by`` is the object behind it
    (``PodDisruptionBudget shop/web``), ``rule`` what that object demands. ``waited_seconds`` is the
    time until it was gone, ``held_seconds`` the part of it between the first refusal and the consent.
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
    spans: tuple[Span, ...]
    marks: tuple[Mark, ...]

    @property
    def moments(self) -> tuple[float, ...]:
        """Every instant known of it, in no order."""
        return tuple(at for span in self.spans for at in (span.start, span.end)) + tuple(mark.at for mark in self.marks)


@dataclass(frozen=True, slots=True)
class Swap:
    """A workload that was protected: surged, guarded by a budget, or both.

    ``raised``, ``ready`` and ``lowered`` are the instants at which its count went up, its newcomers
    took over, and its count was back.
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
    """A stretch with eyes on it: a value holds to the next sample, the last one to ``end``."""

    samples: tuple[tuple[float, int], ...]
    end: float

    @property
    def start(self) -> float:
        """When watching began."""
        return self.samples[0][0]

    def steps(self) -> t.Iterator[tuple[float, float, int]]:
        """Every stretch of one value: from, to, ready endpoints."""
        ends = [at for at, _ready in self.samples[1:]] + [self.end]
        for (at, ready), end in zip(self.samples, ends, strict=True):
            yield at, end, ready


@dataclass(frozen=True, slots=True)
class ServiceLine:
    """Ready endpoints of one Service over time.

    ``dark`` are the stretches without any, once it had had one: a Service that never served was not
    made dark by anybody (``served`` is False). ``desired`` is what it should have; where nobody said
    that, the smaller one of what it had at first and at last.
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
        """Time without a ready endpoint."""
        return sum(span.seconds for span in self.dark)

    @property
    def changed(self) -> bool:
        """Whether its number of ready endpoints was not always the same, once it had one."""
        return self.served and self.lowest != self.highest

    @property
    def share(self) -> float:
        """The least it had, as a part of what it should have; 0 if it was dark."""
        return self.lowest / max(self.desired, 1)

    @property
    def top(self) -> int:
        """The most it had or should have; at least 1."""
        return max(self.highest, self.desired, 1)


@dataclass(frozen=True, slots=True)
class Refusal:
    """What one object (or rule) kept from happening, and to which pods.

    ``stuck`` are those of ``pods`` that never left; ``count`` is 0 where nobody asked in vain, because
    the rule was known before.
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
class Problem:
    """A node or a call that failed, and what was said about it."""

    subject: str
    message: str


@dataclass(frozen=True, slots=True)
class Finding(reasons.Reason):
    """What the plan found; ``severity`` is ``blocker``, ``warning`` or ``info``."""

    severity: str = ""
    object: str = ""


@dataclass(frozen=True, slots=True)
class GivenBack:
    """An object that was given back, or ``kept`` as somebody else had made it."""

    at: float | None
    object: str
    kept: bool
    message: str


@dataclass(frozen=True, slots=True)
class Totals:
    """Numbers over the whole run.

    ``moving_seconds`` is the time spent on emptying nodes, which ``forecast_seconds`` foretold;
    ``watched_seconds`` the time in which Services' endpoints were seen, ``services_watched`` how many
    of them (``None``: only the changed ones are known, and ``services_changed`` counts those).
    """

    nodes: int
    nodes_done: int
    nodes_failed: int
    waves: int
    pods_moved: int
    pods_swapped: int
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
    seconds: float | None
    moving_seconds: float | None
    forecast_seconds: float | None


@dataclass(frozen=True, slots=True)
class Report:
    """Everything there is to say about one run."""

    run: str
    by: str
    reason: str
    check: bool
    verdict: Verdict
    started: float | None
    ended: float | None
    nodes: tuple[NodeLine, ...]
    pods: tuple[PodLane, ...]
    swaps: tuple[Swap, ...]
    services: tuple[ServiceLine, ...]
    watched: tuple[Span, ...]
    refusals: tuple[Refusal, ...]
    problems: tuple[Problem, ...]
    findings: tuple[Finding, ...]
    given_back: tuple[GivenBack, ...]
    actions: tuple[str, ...]
    totals: Totals

    @property
    def planned(self) -> bool:
        """Whether it speaks of what would be, as nothing was done yet."""
        return self.check or self.verdict == "stopped"

    @property
    def dark(self) -> tuple[ServiceLine, ...]:
        """The Services that had no ready endpoint for a time."""
        return tuple(service for service in self.services if service.dark)

    @property
    def blockers(self) -> tuple[Finding, ...]:
        """The findings for which nothing was begun."""
        return tuple(finding for finding in self.findings if finding.severity == "blocker")

    @property
    def failed(self) -> bool:
        """Whether a person has to look at something."""
        return bool(self.problems) or self.totals.nodes_failed > 0 or self.verdict == "stopped"
