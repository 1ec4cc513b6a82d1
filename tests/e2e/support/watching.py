# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The witness beside a test: start it, let the test act, stop it, ask it what happened."""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from witness import audit, invariants, measures
from witness.invariants import Foreign, Violation
from witness.kinds import OWN_NAMESPACE, SHARED_LEASES
from witness.log import Json, Log, load

from support.arena import Arena, Workload
from support.lab import Lab
from support.waiting import until

E2E = Path(__file__).resolve().parents[1]


@dataclass
class Seen:
    """What the witness and the audit log know of a stretch of time; complete once it is over."""

    arena: Arena
    lab: Lab
    path: Path
    mark: int
    end: int | None = None

    @cached_property
    def log(self) -> Log:
        return load(self.path)

    @cached_property
    def requests(self) -> list[audit.Request]:
        """Client requests of the tool under test: not of the system, not of the tests."""
        assert self.end is not None, "the watching is not over yet"
        known = audit.read(self.lab.audit_log, self.mark, self.end)
        return [request for request in known if not request.by_the_system]

    def until_now(self) -> list[audit.Request]:
        """As `requests`, while the watching goes on."""
        known = audit.read(self.lab.audit_log, self.mark, self.lab.audit_log.stat().st_size)
        return [request for request in known if not request.by_the_system]

    @property
    def writes(self) -> list[audit.Request]:
        return [request for request in self.requests if request.writes]

    def evictions(self, code: int = 201) -> list[audit.Request]:
        return [r for r in self.requests if r.evicts and r.code == code and not r.dry_run]

    def counted(self, *fields: str) -> Counter[tuple[str, ...]]:
        return audit.counted(self.requests, *fields)

    def violations(
        self,
        *,
        interruptible: Collection[Workload] = (),
        foreign: Collection[Foreign] = (),
        may_stay: Collection[tuple[str, str]] = (),
        left: bool = False,
        resumable: bool = False,
    ) -> list[Violation]:
        """All that the invariants object to in this arena (others may just be cleared away).

        `left` is for a run that leaves a node out of service on purpose, `resumable` for one that
        failed or was killed: it leaves its ConfigMap, so that the same command can go on with it.
        """
        found = [
            *invariants.unseen(self.log),
            *invariants.i1_services_stay_up(self.log, [w.ref for w in interruptible]),
            *invariants.i2_budgets_are_kept(self.log),
            *([] if left else invariants.i3_all_as_before(self.log, foreign)),
            *invariants.i4_moved_once(self.log, self.requests),
            *invariants.i7_drained_stays_empty(self.log, may_stay=may_stay),
        ]
        found = [v for v in found if v.rule == "W" or self._is_here(v)]
        return [v for v in found if not (resumable and v.kind == "ConfigMap")]

    def _is_here(self, violation: Violation) -> bool:
        if violation.kind == "Node":
            return violation.name.startswith(self.arena.name)
        return violation.namespace in (*self.arena.namespaces, OWN_NAMESPACE, SHARED_LEASES)

    def all_held(self, **exceptions: object) -> None:
        found = self.violations(**exceptions)  # type: ignore[arg-type]
        assert not found, "\n".join(map(str, found))

    def dark_seconds(self, workload: Workload) -> float:
        return measures.dark_seconds(self.log, workload.arena.namespace, workload.name)

    def new_pods(self, workload: Workload) -> list[str]:
        return measures.new_pods(self.log, *workload.ref)

    def least_ready(self, workload: Workload) -> int:
        return measures.least_ready(self.log, *workload.ref)

    def least_serving(self, workload: Workload) -> int:
        """The fewest ready endpoints that the workload's Service had."""
        return measures.least_serving(self.log, workload.arena.namespace, workload.name)

    def counts(self, workload: Workload) -> list[object]:
        """The replica counts that a workload went through."""
        return measures.values(self.log, *workload.ref, "spec", "replicas")

    def values(self, workload: Workload, *path: str) -> list[object]:
        return measures.values(self.log, *workload.ref, *path)

    def appeared(self, kind: str) -> list[Json]:
        return measures.appeared(self.log, kind)

    def guards(self) -> list[str]:
        """Names of the guard budgets that were ever there."""
        found = [obj["metadata"]["name"] for obj in self.appeared("PodDisruptionBudget")]
        return [name for name in found if name.startswith("kubeops-guard-")]

    def when(self, kind: str, name: str, holds: Callable[[Json], bool], after: float = -1.0) -> float:
        """When (seconds) something first held of an object of this arena, after a moment."""
        for moment in self.log.moments():
            event = moment.event
            if event is None or moment.at <= after or event.type == "DELETED":
                continue
            if event.kind == kind and event.obj["metadata"]["name"] == name and holds(event.obj):
                return moment.at
        raise AssertionError(f"it never held of {kind} {name}")

    def taken_out(self) -> list[str]:
        return measures.taken_out(self.log)


class Watching:
    """`with Watching(arena, lab, folder) as seen:`; on leaving, the log is whole."""

    def __init__(self, arena: Arena, lab: Lab, folder: Path) -> None:
        self._arena = arena
        self._lab = lab
        stamp = time.monotonic_ns()
        self._log = folder / f"witness-{stamp}.jsonl"
        self._ready = folder / f"witness-{stamp}.ready"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Seen:
        self._seen = Seen(self._arena, self._lab, self._log, self._lab.audit_log.stat().st_size)
        self._process = subprocess.Popen(
            [
                *(sys.executable, "-m", "witness", "--kubeconfig", str(self._lab.kubeconfig)),
                *("--log", str(self._log), "--ready", str(self._ready)),
            ],
            cwd=E2E,
            stdin=subprocess.PIPE,
        )
        until(self._ready.exists, 60, "the witness has listed everything")
        return self._seen

    def __exit__(self, *_unused: object) -> None:
        assert self._process is not None
        assert self._process.stdin is not None
        # A write of the last moment still moves things: controllers follow it.
        time.sleep(0.3)
        self._process.stdin.close()
        self._process.wait(30)
        self._seen.end = self._lab.audit_log.stat().st_size


Watch = Callable[[], Watching]
"""The fixture `watching`: a witness for each `with`."""
