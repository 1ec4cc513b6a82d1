# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The faults, and the points at which they hit: which scene, by which backend, at which request."""

from __future__ import annotations

import os
import random
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from support.processes import alive, descendants, freeze_tree, kill_tree, send, thaw

from chaos.proxy import PASS_ON, Act, Asked, Proxy, Refusal, status

CONFLICT = status(
    409,
    "Conflict",
    "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest version and "
    "try again",
)
BUSY = "the server has received too many requests and has asked us to try again later"
FORBIDDEN = status(403, "Forbidden", "forbidden: RBAC: clusterrole.rbac.authorization.k8s.io not found")
REFUSALS = {
    "409": CONFLICT,
    "429": status(429, "TooManyRequests", BUSY),
    "429-retry-after": status(429, "TooManyRequests", BUSY, retry_after=1),
    "500": status(500, "InternalError", "Internal error occurred: etcdserver: request timed out"),
    "403-once": FORBIDDEN,
}
OUTAGE = Refusal(503, b"no healthy upstream", (("Content-Type", "text/plain"),))

KILLS = ("killed-before", "killed-after", "orphaned")
"""SIGKILL to every process of the run, before its request is handed on or after it was carried out; `orphaned`: to
the process group alone, so that a worker of newer cores lives on with its answer."""
FREEZES = ("frozen", "frozen-and-recovered")
FAULTS = (*KILLS, "answer-lost", *REFUSALS, "503", *FREEZES)
SURVIVED = ("answer-lost", "409", "429", "429-retry-after")
"""What a run has to live through: it does not say that anything is wrong with the cluster."""
WEIGHTS = {"frozen": 0.5, "frozen-and-recovered": 0.35, "503": 0.7}
"""How often the faults come that take their time, against 1 for the others."""
FROZEN = 18.0
"""Seconds for which a run is frozen: longer than the 15 s that the lease of a call at work lasts."""
AT = re.compile(r"[rw][1-9]\d*|(get|post|put|patch|delete)-[a-z]+-[1-9]\d*")


@dataclass(frozen=True, slots=True)
class Point:
    """One fault at one request; its text is what `ONLY` takes.

    `at` is r12, the twelfth request of the run, or w5, its fifth write, or post-eviction-2, its second of that kind.
    """

    scene: str
    backend: str
    fault: str
    at: str

    def __str__(self) -> str:
        return f"{self.scene}/{self.backend}/{self.fault}/{self.at}"

    def hits(self, asked: Asked) -> bool:
        return self.at in (f"r{asked.number}", f"w{asked.write}", f"{asked.kind}-{asked.same}")


def parse(text: str) -> Point:
    """A point from its text; ValueError where it is none."""
    parts = text.strip().split("/")
    if len(parts) != 4 or parts[2] not in FAULTS or not AT.fullmatch(parts[3]):
        raise ValueError(f"{text!r} is no point: SCENE/BACKEND/FAULT/AT, AT being r12, w5 or post-eviction-2")
    return Point(*parts)


def schedule(seed: int, scenes: Sequence[tuple[str, str, int, int]], faults: Sequence[str] = FAULTS) -> Iterator[Point]:
    """Points without end, the same for the same seed; `scenes` are (scene, backend, requests, writes).

    Three in four hit a write, where a fault costs most, the others any request. What comes one after the other is of
    the same scene, twelve points long: a lab sets one up and keeps it.
    """
    chance = random.Random(seed)
    while True:
        scene, backend, requests, writes = chance.choice(scenes)
        for _unused in range(12):
            fault = chance.choices(faults, [WEIGHTS.get(name, 1.0) for name in faults])[0]
            at_write = fault == "409" or chance.random() < 0.75
            at = f"w{chance.randint(1, writes)}" if at_write else f"r{chance.randint(1, requests)}"
            yield Point(scene, backend, fault, at)


class Fault:
    """A point's fault on its way: `decide` is the proxy's, `pid` the run's first process.

    `meanwhile` is what others do while the run is frozen; it is thawed when that ends. `hit` is the request that was
    hit, None as long as there was none.
    """

    def __init__(self, point: Point, proxy: Proxy, outage: float, meanwhile: Callable[[], None]) -> None:
        self.point = point
        self.pid = 0
        self.hit: Asked | None = None
        self.error: BaseException | None = None
        self._proxy = proxy
        self._outage = outage
        self._meanwhile = meanwhile
        self._until = 0.0
        self._frozen: list[int] = []
        self._orphans: list[int] = []
        self._thread: threading.Thread | None = None

    def decide(self, asked: Asked) -> Act:
        if time.monotonic() < self._until:
            return Act(instead=OUTAGE)
        if self.hit is not None or not self.point.hits(asked):
            return PASS_ON
        self.hit = asked
        kind = self.point.fault
        if kind in REFUSALS:
            return Act(instead=REFUSALS[kind])
        return {
            "killed-before": Act(before=self._kill, forward=False),
            "killed-after": Act(after=self._kill, lost=True),
            "orphaned": Act(before=self._kill_group),
            "answer-lost": Act(lost=True),
            "503": Act(before=self._fail, instead=OUTAGE),
            "frozen": Act(before=self._freeze),
            "frozen-and-recovered": Act(before=self._freeze),
        }[kind]

    def _kill(self) -> None:
        kill_tree(self.pid)

    def _kill_group(self) -> None:
        self._orphans = descendants(self.pid)
        os.killpg(self.pid, signal.SIGKILL)

    def _fail(self) -> None:
        self._until = time.monotonic() + self._outage
        self._proxy.cut_streams()

    def _freeze(self) -> None:
        self._frozen = freeze_tree(self.pid)
        self._thread = threading.Thread(target=self._thaw_after, daemon=True)
        self._thread.start()

    def _thaw_after(self) -> None:
        try:
            self._meanwhile()
        except BaseException as error:
            self.error = error
        finally:
            thaw(self._frozen)

    def sweep(self) -> None:
        """Ends the workers that were left alone, should any still be at it."""
        for pid in filter(alive, self._orphans):
            send(pid, signal.SIGKILL)

    def over(self) -> None:
        """Waits for what others do; raises what they met. No process of the run stays frozen."""
        if self._thread is not None:
            self._thread.join()
        if self.error is not None:
            raise self.error
