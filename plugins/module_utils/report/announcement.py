# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What others are told of a run: Events and the body of a webhook, all from the run's report."""

from __future__ import annotations

import collections
import hashlib
import itertools
import typing as t
from dataclasses import asdict, dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    objects,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import (
    model,
    read,
    text,
)

VERSION = 1
"""Of a webhook's body: increases when a field changes its meaning or is removed."""
Moment = t.Literal["planned", "started", "blocked", "ended", "failed"]
OF_CALLS = ("planned", "started", "ended", "failed")
"""Those that ``maintenance_event`` is called at; that a drain is blocked is told while it runs."""
NOTE, INSTANCE = 1024, 128
"""The longest note and reportingInstance of an Event, in bytes (events.k8s.io/v1)."""
EVENTS_OF_NODES = "default"
"""The namespace of Events about objects without one."""
SHOWN = 10
"""Names in one sentence."""

Format = t.Literal["json", "slack"]


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload with pods on the nodes that have to move, or have moved, and how many they are."""

    kind: str
    namespace: str
    name: str
    pods: int
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Announcement:
    """What is announced at one moment of a run; ``at``,
    ``start`` and ``end`` are seconds since the epoch.

    ``seconds`` is how long the work takes by its forecast, where that is not just what the plan
    foresees. ``run`` is the run's id, empty before there is one; then ``key``, which is the same
    for all that is told of the same run or plan, is made of what is planned. ``errors`` are the
    sentences that the run ended with, ``blocked`` is why drains do not move on.
    """

    moment: Moment
    at: float
    by: str
    report: model.Report
    run: str = ""
    resumed: bool = False
    reason: str = ""
    errors: tuple[str, ...] = ()
    start: float | None = None
    end: float | None = None
    seconds: float | None = None
    blocked: tuple[reasons.Blocked, ...] = ()
    cluster: model.Cluster = model.NOWHERE

    @property
    def over(self) -> bool:
        return self.moment in ("ended", "failed")

    @property
    def nodes(self) -> tuple[model.NodeLine, ...]:
        """Those that it concerns: not as wanted already, gone, or before it begins left out."""
        hidden = ["unchanged", "gone"]
        if not self.over:
            hidden += ["back"] if self.blocked else ["back", "blocked"]
        return tuple(node for node in self.report.nodes if node.outcome not in hidden)

    @property
    def forecast(self) -> float | None:
        """``None`` if nobody knows."""
        return self.report.totals.forecast_seconds if self.seconds is None else self.seconds

    @property
    def window(self) -> tuple[float, float]:
        """From when to when it takes place: by its forecast, and once it is over as it was."""
        begun = self.report.started if self.over else None
        first = self.report.earlier.since if self.report.earlier else None
        start = next(at for at in (self.start, begun, first, self.at) if at is not None)
        end = self.at if self.over else start + (self.forecast or 0.0)
        return start, max(start, end if self.end is None else self.end)

    @property
    def key(self) -> str:
        """The run; without one, the plan: its nodes and the day on which it begins."""
        parts = [*sorted(node.name for node in self.nodes), text.day(self.window[0])]
        return self.run or f"plan-{_digest(*parts)}"

    @property
    def id(self) -> str:
        """A run that is resumed may fail again, and be blocked for several reasons."""
        again = [str(text.rfc3339(self.at))] if self.moment == "failed" else []
        if self.blocked:
            keys = itertools.chain.from_iterable(one.key for one in self.blocked)
            again = [_digest(*keys)]
        return "/".join([self.key, self.moment, *again])

    @property
    def workloads(self) -> tuple[Workload, ...]:
        nodes = collections.defaultdict[tuple[str, str, str], list[str]](list)
        for pod in self._to_move:
            if owner := objects.Ref.read(pod.owner):
                nodes[owner.kind, pod.namespace, owner.name].append(pod.node)
        found = sorted(nodes.items())
        return tuple(Workload(*key, len(on), tuple(dict.fromkeys(on))) for key, on in found)

    @property
    def _to_move(self) -> list[model.PodLane]:
        here = {node.name for node in self.nodes}
        return [pod for pod in text.to_move(self.report) if pod.node in here]

    @property
    def _counts(self) -> dict[str, t.Any]:
        """The totals of the report; before it begins, of the nodes that it concerns."""
        ahead = {"nodes": len(self.nodes), "waves": len({node.wave for node in self.nodes} - {0})}
        return asdict(self.report.totals) | ({} if self.over else ahead)

    @property
    def _in(self) -> str:
        return f" in {self.cluster.name}" if self.cluster.name else ""

    @property
    def sentence(self) -> str:
        listed = reasons.listed([node.name for node in self.nodes], SHOWN) or "no node"
        if self.blocked:
            more = f" And {len(self.blocked) - SHOWN} more." if len(self.blocked) > SHOWN else ""
            whys = " ".join(f"{one.node}: {one.sentence}" for one in self.blocked[:SHOWN])
            return f"Maintenance {self.moment}{self._in}. {whys}{more}"
        if not self.over:
            again = " again" if self.resumed else ""
            waves = self._counts["waves"]
            pods = len(self._to_move)
            size = f"{text.count(waves, 'wave')}, {text.count(pods, 'pod')} to move"
            lasts = f", about {text.duration(self.forecast)}" if self.forecast is not None else ""
            return f"Maintenance {self.moment}{again}{self._in}: {listed} ({size}{lasts})."
        said = f"{text.headline(self.report)}. {text.subline(self.report)}"
        return f"Maintenance {self.moment}{self._in}: {listed}. {said}"

    def body(self) -> dict[str, t.Any]:
        """The body of a webhook in our own shape, which the guide to announcements documents."""
        start, end = self.window
        return {
            "version": VERSION,
            "id": self.id,
            "moment": self.moment,
            "cluster": asdict(self.cluster),
            "at": text.rfc3339(self.at),
            "run": self.run,
            "resumed": self.resumed,
            "by": self.by,
            "reason": self.reason,
            "text": self.sentence,
            "start": text.rfc3339(start),
            "end": text.rfc3339(end),
            "nodes": [
                {"name": n.name, "wave": n.wave, "outcome": n.outcome, "message": n.message}
                for n in self.nodes
            ],
            "workloads": [{**asdict(each), "nodes": list(each.nodes)} for each in self.workloads],
            "summary": {**self._verdict, **self._counts},
            "errors": list(self.errors),
            "blocked": [one.to_dict() for one in self.blocked],
        }

    @property
    def _verdict(self) -> dict[str, str]:
        if self.blocked:
            headline = f"{text.count(len(self.nodes), 'node')} blocked"
            return {"verdict": self.moment, "headline": headline}
        return {"verdict": self.report.verdict, "headline": text.headline(self.report)}

    def slack(self) -> dict[str, t.Any]:
        """For people, as incoming webhooks of Slack and of those who read its format take it."""
        facts = {"cluster": self.cluster.words, "run": self.run}
        facts |= {"by": self.by, "reason": self.reason}
        lines = [f"*{_slacked(self.sentence)}*"]
        lines += [f"{name}: {_slacked(value)}" for name, value in facts.items() if value]
        lines += [f"• {_slacked(error)}" for error in self.errors[:SHOWN]]
        more = len(self.errors) - SHOWN
        lines += [f"… and {more} more"] if more > 0 else []
        return {"text": "\n".join(lines)}

    def about(self, ref: objects.Ref) -> str:
        """What an Event says to those who look at this node or workload."""
        run = f" Run {self.run}." if self.run else ""
        reason = f" Reason: {self.reason}." if self.reason else ""
        if ref.kind == "Node":
            node = next(node for node in self.nodes if node.name == ref.name)
            if self.blocked:
                whys = " ".join(one.sentence for one in self.blocked if one.node == node.name)
                return f"Maintenance of this node {self.moment}: {whys}{run}{reason}"
            if not self.over:
                wave = f", in wave {node.wave}," if node.wave else ""
                return f"Maintenance of this node{wave} {self.moment}.{run}{reason}"
            said = f"this node is {text.ENDS[node.outcome]}. {node.message}".rstrip()
            return f"Maintenance {self.moment}: {said}{run}{reason}"
        place = ref.kind, ref.namespace, ref.name
        load = next(one for one in self.workloads if (one.kind, one.namespace, one.name) == place)
        pods = text.count(load.pods, "pod")
        verb = "has to move" if load.pods == 1 else "have to move"
        where = f"{pods} on {reasons.listed(load.nodes, SHOWN)}"
        if self.blocked:
            whys = " ".join(one.sentence for one in self.blocked if one.node in load.nodes)
            return f"Maintenance {self.moment} ({where} {verb}): {whys}{run}{reason}"
        if not self.over:
            return f"Maintenance {self.moment}: {where} {verb}.{run}{reason}"
        said = f"{text.headline(self.report)}.{run}{reason}"
        return f"Maintenance {self.moment} ({where} concerned): {said}"


def event(news: Announcement, ref: objects.Ref) -> api_changes.Change:
    """The Event about one object; by its name, of what is announced, it exists once."""
    mark = _digest(news.id, ref.kind, ref.namespace, ref.name)
    name = f"{ref.name[:200].rstrip('.-')}.{mark}"
    namespace = ref.namespace or EVENTS_OF_NODES
    node = next((node for node in news.nodes if ref.kind == "Node" and node.name == ref.name), None)
    failed = news.moment == "failed" and (node is None or node.troubled)
    coordinates = {"apiVersion": ref.api_version, "kind": ref.kind, "namespace": ref.namespace}
    coordinates |= {"name": ref.name, "uid": ref.uid}
    note = clipped(read.text(news.about(ref)), NOTE)
    body = {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        # Of type MicroTime: the API server takes nothing but microseconds.
        "eventTime": (text.rfc3339(news.at) or "").replace("Z", "000Z"),
        "type": "Warning" if failed or news.moment == "blocked" else "Normal",
        "reason": f"Maintenance{news.moment.capitalize()}",
        "action": "Maintenance",
        "note": note,
        "regarding": {key: value for key, value in coordinates.items() if value},
        "reportingController": names.REPORTING_CONTROLLER,
        "reportingInstance": clipped(news.key, INSTANCE),
    }
    target = objects.Ref("Event", name, namespace, api_version="events.k8s.io/v1")
    sentence = f"Create an Event about {ref}: {note}"
    shown = {"reason": body["reason"], "note": note}
    return api_changes.Change("create", target, sentence, body, {}, shown)


def clipped(line: str, size: int) -> str:
    """The line, cut where it has more than so many bytes."""
    data = line.encode()
    return line if len(data) <= size else data[: size - 3].decode(errors="ignore") + "..."


def _digest(*parts: str) -> str:
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _slacked(value: str) -> str:
    """Text in which Slack finds no link, mention or channel."""
    return read.text(value).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
