# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Numbers of one drain, all from the API server's audit log:
nobody is asked how fast he was. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from witness.audit import Request, counted

OURS = "kubeops.node_maintenance/"
DRAIN = f"{OURS}node_drain"


@dataclass(frozen=True, slots=True)
class Call:
    """The requests of one `node_drain` call, against what it may send.

    `renewals` are all writes of leases: the first one renews what `node_cordon` left to the run.
    `rest` is all that is neither an eviction (accepted or refused) nor a renewal.
    """

    evictions: int
    refusals: int
    renewals: int
    rest: int
    nodes: int

    @property
    def total(self) -> int:
        return self.evictions + self.refusals + self.renewals + self.rest

    @property
    def bound(self) -> int:
        """Evictions + refusals + 18 + 3 per node + lease renewals (no surges here)."""
        return self.evictions + self.refusals + 18 + 3 * self.nodes + self.renewals


@dataclass(frozen=True, slots=True)
class Drained:
    """What one tool did to some nodes. Times in seconds; `requests` by `agent verb resource`."""

    evicted: int
    refused: int
    gone: int
    seconds: float
    total: int
    requests: Mapping[str, int] = field(default_factory=dict)
    call: Call | None = None

    @property
    def rate(self) -> float:
        """Pods per second, from the first eviction request to the end of the last pod."""
        return self.gone / self.seconds if self.seconds else 0.0

    @property
    def per_pod(self) -> float:
        """Client requests for each pod that went."""
        return self.total / self.gone if self.gone else 0.0


def drained(requests: Iterable[Request], nodes: int) -> Drained:
    """Judge a stretch of the audit log in which one tool drained so many nodes.

    A pod is gone when its kubelet (KWOK) has deleted it for good.
    """
    known = list(requests)
    client = [request for request in known if not request.by_the_system]
    tries = [request for request in client if request.evicts and not request.dry_run]
    accepted = {(r.namespace, r.name): r for r in tries if r.accepted}
    ends = {
        (r.namespace, r.name): r.ended
        for r in known
        if r.agent.startswith("kwok") and r.verb == "delete" and r.resource == "pods" and r.accepted
    }
    gone = [ends[pod] for pod in accepted if pod in ends]
    seconds = max(gone) - min(request.at for request in tries) if gone else 0.0
    ours = [request for request in client if request.agent.startswith(DRAIN)]
    return Drained(
        evicted=len(accepted),
        refused=sum(request.code == 429 for request in tries),
        gone=len(gone),
        seconds=seconds,
        total=len(client),
        requests=by_kind(client),
        call=call_of(ours, nodes) if ours else None,
    )


def call_of(requests: list[Request], nodes: int) -> Call:
    """Split the requests of one `node_drain` call."""
    evictions = sum(r.evicts and r.accepted for r in requests)
    refusals = sum(r.evicts and r.code == 429 for r in requests)
    renewals = sum(r.resource == "leases" and r.writes for r in requests)
    return Call(
        evictions, refusals, renewals, len(requests) - evictions - refusals - renewals, nodes
    )


def by_kind(requests: Iterable[Request]) -> dict[str, int]:
    """Requests by `agent verb resource[/subresource]`, the most frequent first."""
    found: dict[str, int] = {}
    for (agent, verb, resource, sub), count in counted(
        requests, "agent", "verb", "resource", "subresource"
    ).items():
        what = f"{resource}/{sub}" if sub else resource or "(discovery)"
        key = f"{short(agent)} {verb} {what}"
        found[key] = found.get(key, 0) + count
    return dict(sorted(found.items(), key=lambda entry: -entry[1]))


def short(agent: str) -> str:
    """A user agent without what differs from run to run: `kubectl/v1.36.3`."""
    return agent.split(" ")[0]
