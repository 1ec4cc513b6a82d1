# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Several points at the same time, each on a stage of its own: most of a point's time passes in waiting."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from support.lab import Lab

from chaos.faults import Point
from chaos.scenes import SCENES, Stage
from chaos.trial import Outcome, Trial


class _Points:
    """The points that are left, for all tracks; no new one after the deadline."""

    def __init__(self, source: Iterator[Point], deadline: float) -> None:
        self._source = source
        self._deadline = deadline
        self._lock = threading.Lock()

    def __iter__(self) -> Iterator[Point]:
        while time.monotonic() < self._deadline:
            with self._lock:
                point = next(self._source, None)
            if point is None:
                return
            yield point


class _Track:
    """A part of a lab: keeps the stage of its last point, which is good for the next one as long as nothing failed."""

    def __init__(self, lab: Lab, folder: Path, outage: float) -> None:
        self._lab, self._folder, self._outage = lab, folder, outage
        self._stage: Stage | None = None
        self._count = 0

    def run(self, point: Point) -> Outcome:
        self._count += 1
        folder = self._folder / f"{self._count:03}"
        try:
            outcome = Trial(self._stage_for(point), point, folder, self._outage).run()
        except AssertionError as error:
            outcome = Outcome(point, folder, objections=[f"the scene could not be set up: {error}"])
        if outcome.failed:
            self.clear()
        return outcome

    def _stage_for(self, point: Point) -> Stage:
        stage = self._stage
        if stage is None or (stage.scene.name, stage.backend) != (point.scene, point.backend):
            self.clear()
            stage = self._stage = Stage(self._lab, SCENES[point.scene], point.backend)
        return stage

    def clear(self) -> None:
        if self._stage is not None:
            self._stage.clear()
        self._stage = None


def side_by_side(
    labs: Sequence[Lab],
    source: Iterator[Point],
    folder: Path,
    *,
    tracks: int,
    outage: float,
    told: Callable[[Outcome], None],
    seconds: float = math.inf,
) -> list[Outcome]:
    """Runs the points on so many tracks of each lab and returns what came of them.

    No point is begun after `seconds`; `told` hears of each when it is over; `outage` is as of `Fault`.
    """
    points = _Points(source, time.monotonic() + seconds)
    outcomes: list[Outcome] = []

    def work(lab: Lab, number: int) -> None:
        track = _Track(lab, folder / f"{lab.name}-{number}", outage)
        try:
            for point in points:
                outcome = track.run(point)
                outcomes.append(outcome)
                told(outcome)
        finally:
            track.clear()

    with ThreadPoolExecutor(len(labs) * tracks) as pool:
        for done in [pool.submit(work, lab, number) for lab in labs for number in range(1, tracks + 1)]:
            done.result()
    return outcomes
