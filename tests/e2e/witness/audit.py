# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The API server's audit log as requests: who asked for what, and what came of it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

READS = ("get", "list", "watch")
SYSTEM = (
    "kube-",
    "kubelet/",
    "kwok",
    "etcd",
    "metrics-server",
    "kubeops-witness",
    "kubeops-lab",
    "kubeops-test",
)
"""User agents of the control plane, the lab and the tests themselves."""


@dataclass(frozen=True, slots=True)
class Request:
    """`at` (received) and `ended` (answered) are wall time in seconds.

    `verb` is as the audit log has it: create, patch, list, ...
    """

    at: float
    agent: str
    user: str
    verb: str
    resource: str
    subresource: str
    namespace: str
    name: str
    code: int
    uri: str
    ended: float = 0.0

    @property
    def accepted(self) -> bool:
        return 200 <= self.code < 300

    @property
    def dry_run(self) -> bool:
        return "dryRun=All" in self.uri

    @property
    def writes(self) -> bool:
        """Changes the cluster if accepted; access reviews are questions in a write's clothes."""
        asks = self.resource in ("selfsubjectaccessreviews", "selfsubjectreviews", "selfsubjectrulesreviews")
        return self.verb not in READS and not self.dry_run and not asks

    @property
    def evicts(self) -> bool:
        return (self.verb, self.resource, self.subresource) == ("create", "pods", "eviction")

    @property
    def ends_a_pod(self) -> bool:
        deletes = self.verb == "delete" and self.resource == "pods"
        return (self.evicts or deletes) and not self.dry_run

    @property
    def by_the_system(self) -> bool:
        return self.agent.startswith(SYSTEM)


def parse(lines: Iterable[str]) -> list[Request]:
    """Requests from audit lines, in order; each once, when its response was complete.

    A watch is told of when it starts: it may still be open at the end.
    """
    found: list[Request] = []
    told: set[str] = set()
    for line in lines:
        try:
            entry = json.loads(line)
        except json.JSONDecodeError:
            continue
        stage, audit_id = entry.get("stage"), entry.get("auditID", "")
        if stage not in ("ResponseComplete", "ResponseStarted", "Panic") or audit_id in told:
            continue
        told.add(audit_id)
        what = entry.get("objectRef") or {}
        received = entry["requestReceivedTimestamp"]
        found.append(
            Request(
                at=datetime.fromisoformat(received).timestamp(),
                agent=entry.get("userAgent", ""),
                user=(entry.get("user") or {}).get("username", ""),
                verb=entry.get("verb", ""),
                resource=what.get("resource", ""),
                subresource=what.get("subresource", ""),
                namespace=what.get("namespace", ""),
                name=what.get("name", ""),
                code=(entry.get("responseStatus") or {}).get("code", 0),
                uri=entry.get("requestURI", ""),
                ended=datetime.fromisoformat(entry.get("stageTimestamp", received)).timestamp(),
            )
        )
    return found


def read(path: Path, offset: int = 0, end: int | None = None) -> list[Request]:
    """Requests logged between two byte offsets (marks taken earlier with the file's size)."""
    with path.open("rb") as file:
        file.seek(offset)
        known = file.read() if end is None else file.read(end - offset)
    return parse(known.decode("utf-8", "replace").splitlines())


def counted(requests: Iterable[Request], *fields: str) -> Counter[tuple[str, ...]]:
    """How many requests there were by the named fields: agent, verb, resource, ..."""
    return Counter(tuple(str(getattr(request, f)) for f in fields) for request in requests)
