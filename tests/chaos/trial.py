# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One point: a run with its fault, the same command again where the run did not survive, and the verdict."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass, field
from pathlib import Path

from support.plays import Player, Run
from support.watching import Watching
from witness.log import Json

from chaos.faults import FROZEN, KILLS, SURVIVED, Fault, Point
from chaos.judge import Blind, objections
from chaos.proxy import PASS_ON, Proxy
from chaos.scenes import Stage, credentials

WITHIN = 420.0
"""Seconds for a run: one that follows a dead one first watches its lease for a minute, for each node."""
BY_NAME = re.compile(r"maintain_run=(\w+)")


@dataclass
class Outcome:
    """What came of a point. `rcs` are those of the runs, the first with the fault."""

    point: Point
    folder: Path
    hit: str = ""
    rcs: list[int] = field(default_factory=list)
    seconds: float = 0.0
    requests: tuple[int, int] = (0, 0)
    """Of the first run: requests, and writes among them."""
    objections: list[str] = field(default_factory=list)
    blind: str = ""
    """Why there is no verdict on what the cluster went through."""

    @property
    def failed(self) -> bool:
        return bool(self.objections)

    @property
    def survived(self) -> bool:
        return self.rcs[:1] == [0]

    @property
    def verdict(self) -> str:
        return "FAILED" if self.failed else "blind" if self.blind else "ok" if self.hit else "missed"

    def __str__(self) -> str:
        runs = ", ".join(f"rc {rc}" for rc in self.rcs)
        number, writes = self.requests
        where = f"{self.hit or 'nothing'} of {number} requests, {writes} writes"
        lines = [f"{self.verdict:6} {self.seconds:5.1f} s  {self.point}  {where}: {runs}"]
        return "\n".join([*lines, *(f"         {text}" for text in (*self.objections, self.blind) if text)])


class Trial:
    """Runs a point on a stage; `run()` never raises for what the run under test did."""

    def __init__(self, stage: Stage, point: Point, folder: Path, outage: float) -> None:
        folder.mkdir(parents=True)
        self._stage, self._folder = stage, folder
        self._play = Player(stage.lab, folder)
        self._marker = folder / "worked"
        self._proxy = Proxy(credentials(stage.lab))
        self._fault = Fault(point, self._proxy, outage, self._meanwhile)
        self.outcome = Outcome(point, folder)

    def run(self) -> Outcome:
        start = time.monotonic()
        try:
            self._stage.gather()
            with self._proxy as proxy:
                known = {"K8S_AUTH_KUBECONFIG": str(proxy.kubeconfig(self._folder / "kubeconfig"))}
                self._watched({**self._stage.arguments(self._play, self._marker), "env": known})
        except Blind as error:
            self.outcome.blind = str(error)
        except AssertionError as error:
            self.outcome.objections.append(str(error)[-4000:])
        finally:
            self._play.stop_all()
            self._fault.sweep()
        self.outcome.seconds = time.monotonic() - start
        return self.outcome

    def _watched(self, arguments: Json) -> None:
        with Watching(self._stage.arena, self._stage.lab, self._folder) as seen:
            run = self._first(arguments)
            if run.rc != 0:
                run = self._again(arguments)
            if run.rc != 0 and self._works_on() and (told := BY_NAME.search(run.text)):
                # Its tasks may still be at work on the host: only who names the run goes on with it.
                run = self._again({**arguments, "maintain_run": told.group(1)})
            self._stage.arena.settle()
        found = self.outcome.objections
        if run.rc != 0:
            found.append(f"the same command again does not end well: {run.folder}/output: {run.words[-600:]}")
        if self._stage.scene.tasks and not self._has_worked():
            found.append("the user's tasks never ran")
        found += objections(self._stage, seen)

    def _first(self, arguments: Json) -> Run:
        outcome, fault = self.outcome, self._fault
        running = self._play.start("maintain", **arguments)
        fault.pid = running.process.pid
        self._proxy.decide = fault.decide
        run = running.wait(WITHIN)
        fault.over()
        self._proxy.decide = lambda asked: PASS_ON
        outcome.requests = len(self._proxy.asked), self._proxy.writes
        asked = [f"r{x.number} {f'w{x.write}' * (x.write > 0)} {x.kind}-{x.same} {x}\n" for x in self._proxy.asked]
        (self._folder / "requests").write_text("".join(asked), encoding="utf-8")
        outcome.hit = str(fault.hit or "")
        outcome.rcs.append(run.rc)
        kind = outcome.point.fault
        if run.rc != 0 and (kind in SURVIVED or not fault.hit):
            outcome.objections.append(f"it did not survive {kind}: {run.folder}/output: {run.words[-600:]}")
        if run.rc == 0 and fault.hit and kind in KILLS:
            outcome.objections.append("it was killed and ended well all the same")
        return run

    def _again(self, arguments: Json) -> Run:
        run = self._play("maintain", within=WITHIN, **arguments)
        self.outcome.rcs.append(run.rc)
        return run

    def _works_on(self) -> bool:
        return any(self._stage.arena.step(node) == "out" for node in self._stage.out)

    def _has_worked(self) -> bool:
        return self._marker.exists() and set(self._marker.read_text("utf-8").split()) == set(self._stage.out)

    def _meanwhile(self) -> None:
        """While the run is frozen: nothing, or somebody who takes it for dead and recovers what it left."""
        if self.outcome.point.fault == "frozen":
            time.sleep(FROZEN)
            return
        runs = {
            str((self._stage.arena.record(node) or {}).get("run", "")).partition("/")[0] for node in self._stage.out
        }
        for name in sorted(runs - {""}):
            run = self._play("recover", within=WITHIN, recover_state="undone", recover_run=name)
            assert run.rc == 0, f"recover of {name}: {run.folder}/output: {run.words[-600:]}"
        if runs == {""}:
            time.sleep(FROZEN)
