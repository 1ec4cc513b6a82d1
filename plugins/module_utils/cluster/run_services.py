# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""How many ready endpoints each Service has over time, for the report."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    indexes,
    run_context,
    snapshots,
)

MAX_STEPS = 200
"""Steps kept of one Service at most: what a report can show of it."""


class Services:
    """Ready endpoints over time, one series of steps for each Service whose endpoints changed.

    A drain may wait for days, so old steps are merged: the lowest count of each period is kept.
    ``prior`` are replica counts by the workload's UID that count instead of the present ones,
    which a surge has raised.
    """

    def __init__(self, ctx: run_context.Context, prior: t.Mapping[str, int]) -> None:
        self._ctx = ctx
        self._prior = prior
        self._series: dict[tuple[str, str], list[tuple[str, int]]] = {}
        self._replicas: dict[tuple[str, str], int] = {}
        self._most: dict[tuple[str, str], int] = {}
        self._partial: set[tuple[str, str]] = set()
        self._seen: indexes.Index[tuple[str, str], t.Any] | None = None
        self._since = ""

    def sample(self, snapshot: snapshots.Snapshot) -> None:
        """Record the present counts; only a changed count adds a step."""
        seen = self._seen
        self._seen = snapshot.services
        if seen is self._seen:
            return
        at = self._ctx.clock.wall()
        self._since = self._since or at
        for service in self._seen.differing(seen):
            count = len(snapshot.endpoints(service))
            series = self._series.setdefault(service, [])
            if not series or series[-1][1] != count:
                series.append((at, count))
                self._note_wanted(service, snapshot)
                if len(series) > MAX_STEPS:
                    self._series[service] = merged(series)

    def _note_wanted(self, service: tuple[str, str], snapshot: snapshots.Snapshot) -> None:
        """The replica count of the workloads behind the Service together,
        as long as one is known.
        """
        ready = snapshot.endpoints(service)
        pods = filter(None, map(snapshot.pod, ready))
        behind = {workload.uid: workload for pod in pods if (workload := snapshot.workload_of(pod))}
        if not behind:
            return
        wanted, serving = 0, set[str]()
        for uid, workload in behind.items():
            wanted += self._prior.get(uid, workload.replicas)
            serving |= {pod.uid for pod in snapshot.pods_of(workload) if pod.ready}
        self._replicas[service] = wanted
        self._most[service] = max(self._most.get(service, 0), len(ready))
        if not serving <= snapshot.listed(service).keys():
            # It selects only some of a workload's pods, such as the primary.
            self._partial.add(service)

    def _desired(self, service: tuple[str, str]) -> int:
        wanted = self._replicas.get(service, 0)
        return min(wanted, self._most[service]) if service in self._partial else wanted

    @property
    def watched(self) -> int:
        """How many Services were watched."""
        return len(self._series)

    def result(self) -> dict[str, t.Any]:
        """What a call that watched them returns: what changed,
        and from when to when they were ``watched``.
        """
        return {
            "services": self.to_dicts(),
            "watched": [self._since, self._ctx.clock.wall()] if self._since else [],
        }

    def to_dicts(self) -> list[dict[str, t.Any]]:
        """``[{namespace, name, replicas, samples: [[at, ready], ...]}]``;
        those that served all the same are left out.

        ``replicas`` is what the workloads behind it want, or of a Service that selects only some of
        their pods the most that served; 0 if that is unknown.
        """
        at = self._ctx.clock.wall()
        shown = []
        for (namespace, name), series in sorted(self._series.items()):
            _last_at, last = series[-1]
            if len(series) == 1 and last > 0:
                continue
            samples = [*map(list, series), [at, last]]
            replicas = self._desired((namespace, name))
            shown.append(
                {"namespace": namespace, "name": name, "replicas": replicas, "samples": samples}
            )
        return shown


def merged(series: list[tuple[str, int]]) -> list[tuple[str, int]]:
    """Half as many steps: all but the first and the last in pairs,
    each with the earlier time and the lower count.
    """
    first, *middle, last = series
    pairs = [middle[at : at + 2] for at in range(0, len(middle), 2)]
    return [first, *((pair[0][0], min(count for _at, count in pair)) for pair in pairs), last]
