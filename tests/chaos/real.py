# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Faults on real nodes, whose judge is who sends requests: `make chaos KIND=real SECONDS=600 SEED=1`, and the last
part of `make chaos` where real nodes are possible.

A node with servers that stop gracefully is maintained over and over. In each trial one fault hits in one phase: the
run is killed, the API server restarts, or the cable of the node is unplugged for a while. Then the same command is run
until it ends well. No request may have failed, but for those to pods behind the cable while it was unplugged, and the
node must be in service.
"""

from __future__ import annotations

import argparse
import datetime
import os
import random
import secrets
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import lab_network
import lab_place
import lab_real
from support.lab import Lab, lab_playbook, started
from support.machines import Machines, servers
from support.plays import Player, Running
from support.waiting import until
from witness.log import Json
from witness.traffic import Way

from chaos.trial import BY_NAME

NODES, NODE = 3, "node-001"
SHARE = 0.25
"""Of the time that is wanted, where other chaos comes before."""
NAMESPACE = "chaos"
PHASES = ("node_cordon", "pdb_guard", "node_drain", "work", "maintenance_report")
"""The modules with which a run goes its way, and the tasks of the user in their middle."""
CUT = 8.0
"""Seconds without a cable: shorter than the 40 s after which a node counts as lost, and its pods as not ready."""
TIMEOUT = 10.0
"""After so long a request without an answer has failed."""
WITHIN = 420.0
NAMES = ("stops", "bounded", "state")
"""Servers that stop gracefully: one, several with a budget, and a StatefulSet."""


@dataclass
class Outcome:
    """What came of a trial. `rcs` are those of the runs, the first with the fault."""

    fault: str
    phase: str
    rcs: list[int] = field(default_factory=list)
    seconds: float = 0.0
    sent: int = 0
    objections: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        verdict = "FAILED" if self.objections else "ok"
        runs = ", ".join(f"rc {rc}" for rc in self.rcs)
        line = f"{verdict:6} {self.seconds:5.1f} s  {self.fault}/{self.phase}  {self.sent} requests: {runs}"
        return "\n".join([line, *(f"         {text}" for text in self.objections)])


def killed(machines: Machines, running: Running) -> None:
    del machines
    running.kill_all()


def restarted(machines: Machines, running: Running) -> None:
    """The API server is killed, and started again."""
    del running
    place = lab_place.Place(machines.lab.name, machines.lab.kubeconfig.parents[2])
    (old,) = [pid for pid, name in lab_place.processes(place).items() if name == "kube-apiserver"]
    lab_place.kill(place, old)
    until(lambda: not lab_place.command_line(old), 10, "the API server has ended")
    port = int((place.cluster / "port").read_text(encoding="utf-8"))
    flags = lab_real.servers(place, port)["kube-apiserver"]
    lab_real.serve(place, "kube-apiserver", {**flags, **lab_real.wish_of(place).args.get("kube-apiserver", {})})


def unplugged(name: str) -> Callable[[Machines, Running], None]:
    """The cable of a node, for a while."""

    def cut(machines: Machines, running: Running) -> None:
        del running
        machines.command("cut", name)
        time.sleep(CUT)
        machines.command("plug", name)

    return cut


FAULTS: Mapping[str, Callable[[Machines, Running], None]] = {
    "killed": killed,
    "api-server-restarted": restarted,
    "node-unplugged": unplugged(NODE),
}


def trial(machines: Machines, folder: Path, fault: str, phase: str) -> Outcome:
    """One fault in one phase, and the same command again until it ends well."""
    outcome = Outcome(fault, phase)
    began = time.monotonic()
    play = Player(machines.lab, folder)
    marker = folder / "working"
    tasks = play.tasks(
        {"name": "Note", "ansible.builtin.file": {"path": str(marker), "state": "touch", "mode": "0600"}},
        {"name": "Work", "ansible.builtin.wait_for": {"timeout": 5}},
    )
    asked: Json = {"maintain_nodes": NODE, "maintain_tasks": tasks, "inventory": machines.hosts(NODE)}
    try:
        gather(machines)
        with machines.traffic([Way("new", rate=20.0)]) as traffic:
            running = play.start("maintain", **asked)
            until(lambda: running.over or reached(running, marker, phase), 120, f"{phase} has begun")
            since = time.time()
            FAULTS[fault](machines, running)
            dark = (since - 1.0, time.time() + TIMEOUT) if fault == "node-unplugged" else (0.0, 0.0)
            outcome.rcs.append(running.process.wait() if fault == "killed" else running.wait(WITHIN).rc)
            if outcome.rcs[-1]:
                until(lambda: machines.ready(NODE), 90, "the node is ready", every=0.5)
                again = play("maintain", within=WITHIN, **asked)
                outcome.rcs.append(again.rc)
                if again.rc and phase == "work" and (told := BY_NAME.search(again.text)):
                    # The tasks may still be at work on the host: only who names the run goes on with it.
                    outcome.rcs.append(play("maintain", within=WITHIN, maintain_run=told.group(1), **asked).rc)
            time.sleep(1.0)
        outcome.sent = sum(one["sent"] for one in traffic.verdict["services"])
        for one in traffic.verdict["services"]:
            if count := failures_outside(one, *dark):
                outcome.objections.append(f"{one['service']}: {count} requests failed, see {folder}")
        if outcome.rcs[-1]:
            outcome.objections.append(f"the same command again does not end well, see {folder}")
        spec = machines.node(NODE)["spec"]
        if spec.get("unschedulable") or spec.get("taints"):
            outcome.objections.append(f"{NODE} is not in service: {spec}")
    except AssertionError as error:
        outcome.objections.append(str(error)[-2000:])
    finally:
        play.stop_all()
    outcome.seconds = time.monotonic() - began
    return outcome


def failures_outside(service: Json, since: float, until_when: float) -> int:
    """The failed requests of a Service, but for those of a time."""
    found = 0
    for failure in service["failures"]:
        at = datetime.datetime.fromisoformat(failure["at"].replace("Z", "+00:00")).timestamp()
        if not since <= at + 1.0 <= until_when + 1.0:
            found += int(failure["count"])
    return found


def reached(running: Running, marker: Path, phase: str) -> bool:
    return marker.exists() if phase == "work" else running.has_started(phase)


def gather(machines: Machines) -> None:
    """Brings the pods to the node where they begin, one workload after another as `rollout restart` does it."""
    kinds = ("deployment", "statefulset")
    for kind in kinds:
        machines.lab.run_kubectl("rollout", "restart", kind, f"--namespace={NAMESPACE}")
    for kind in kinds:
        done = machines.lab.run_kubectl(
            "rollout", "status", kind, f"--namespace={NAMESPACE}", "--timeout=120s", timeout=150
        )
        assert done.returncode == 0, done.stderr
    until(lambda: NODE in {pod["spec"]["nodeName"] for pod in machines.pods("stops")}, 30, f"a pod is on {NODE}")


def prepared(lab: Lab, folder: Path) -> Machines:
    """The scene on a lab."""
    machines = Machines(lab, NAMESPACE, folder)
    machines.begin()
    made = servers("1s", "6s")
    machines.apply(*(one for name in NAMES for one in made[name]))
    machines.settle(*NAMES)
    return machines


def main() -> int:
    parser = argparse.ArgumentParser(prog="make chaos KIND=real", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0, help="no new trial is begun after this time")
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument("--only", default="", help="these trials alone, comma separated: FAULT/PHASE")
    parser.add_argument("--lab-name", default="chaos")
    parser.add_argument("--kind", default="", help="real: all of the time is for this, not a quarter")
    wanted = parser.parse_args([word for word in sys.argv[1:] if not word.endswith("=")])
    if reason := lab_network.obstacle(os.uname().sysname, os.getuid(), NODES):
        print(f"no real nodes here: {reason}")
        return 1 if wanted.kind else 0
    seconds = wanted.seconds * (1 if wanted.kind else SHARE)
    seed = secrets.randbelow(2**31) if wanted.seed is None else wanted.seed
    chance = random.Random(seed)
    trials = [tuple(text.split("/")) for text in wanted.only.split(",") if text]
    folder = Path(tempfile.mkdtemp(prefix="kubeops-chaos-"))
    print(f"seed {seed}, logs in {folder}", flush=True)
    name = f"{wanted.lab_name}-real"
    lab = started(folder, name, lab_kind="real", lab_nodes=NODES, lab_metrics=False)
    outcomes: list[Outcome] = []
    try:
        machines = prepared(lab, folder)
        until_when = time.monotonic() + seconds
        while trials if wanted.only else time.monotonic() < until_when:
            fault, phase = trials.pop(0) if wanted.only else (chance.choice([*FAULTS]), chance.choice(PHASES))
            place = folder / f"{len(outcomes) + 1:03}"
            place.mkdir()
            machines.folder = place
            outcomes.append(trial(machines, place, fault, phase))
            print(outcomes[-1], flush=True)
    finally:
        if not os.environ.get("LAB_KEEP"):
            lab_playbook(folder, name, "absent")
    failed = [f"{one.fault}/{one.phase}" for one in outcomes if one.objections]
    sent = sum(one.sent for one in outcomes)
    print(f"{len(outcomes)} trials, {len(failed)} failed, {sent} requests")
    if failed:
        print(f"again: make chaos KIND=real ONLY={','.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
