# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`make bench`: what a drain costs here, beside the tools that people use today.

Starts a lab of its own (`bench`), measures every tool in the same run in alternating order, writes
results.json, results.svg and the tables of README.md beside this file, and ends the lab. Nothing is judged:
there is no threshold. BENCH_REPEAT (3) says how often, LAB_KEEP that the lab stays. BENCH_ONLY=backends measures
that scene alone, in a lab with Koordinator, and leaves the other results as they are.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "e2e")]

from support.lab import Lab, lab_playbook, started  # noqa: E402

from bench import picture, results, scenes, tools, workload  # noqa: E402
from bench.scenes import Trial  # noqa: E402

LAB = "bench"
SCENES = {"one node": 1, "five nodes": 5}
BACKENDS = ("eviction", "auto", "koordinator")
PLAYBOOKS = ("release",)
"""Of the collection; over all nodes, which are in service, they find nothing to do."""
BEGIN, END = "<!-- tables: written by run.py -->", "<!-- end of the tables -->"
Say = Callable[[str], None]
T = TypeVar("T")


def main() -> int:
    """Measure everything; the return code says only whether that was possible."""
    repeat = int(os.environ.get("BENCH_REPEAT", "3"))
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"==> [{time.monotonic() - began:4.0f} s] bench: {text}", flush=True)

    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        if os.environ.get("BENCH_ONLY") == "backends":
            known = json.loads((Path(__file__).parent / "results.json").read_text(encoding="utf-8"))
            others = [Trial(**trial) for trial in known["trials"] if trial["scene"] != "backends"]
            write(known, [*others, *backends(Path(name), repeat, say)])
            return 0
        folder = Path(name)
        say("environment of kubernetes.core.k8s_drain (about two minutes the first time)")
        home = tools.peer_environment()
        say(f"lab {LAB!r}: {workload.NODES} nodes")
        # A lab that an earlier run left may be half drained; a new one takes seconds.
        lab_playbook(folder, LAB, "absent")
        lab = started(folder, LAB, lab_nodes=workload.NODES, lab_metrics=False)
        try:
            found = machine(repeat) | {"versions": tools.versions(lab, home)}
            trials: list[Trial] = []
            for trial in measured(lab, folder, home, repeat, say):
                trials.append(trial)
                say(line(trial))
        finally:
            if not os.environ.get("LAB_KEEP"):
                lab_playbook(folder, LAB, "absent")
        trials += backends(folder, repeat, say)
    write(found, trials)
    return 0


def backends(folder: Path, repeat: int, say: Say) -> list[Trial]:
    """Our own ways to move pods side by side, in a lab of their own with Koordinator."""
    say("lab with Koordinator")
    lab = started(folder, f"{LAB}-koord", lab_nodes=1, lab_metrics=False, lab_koordinator="v1.7.0")
    trials: list[Trial] = []
    try:
        ours = tools.Ours(lab, folder)
        for repetition in range(repeat):
            for backend in turned(list(BACKENDS), repetition):
                trials.append(scenes.backends(lab, folder, ours, backend, repetition))
                say(line(trials[-1]))
    finally:
        if not os.environ.get("LAB_KEEP"):
            lab_playbook(folder, f"{LAB}-koord", "absent")
    return trials


def measured(lab: Lab, folder: Path, home: Path, repeat: int, say: Say) -> Iterator[Trial]:
    """All measurements. The order of the tools turns with each repetition, so that noise hits all."""
    ours, kubectl = tools.Ours(lab, folder), tools.Kubectl(lab)
    say("swap of single replicas")
    for repetition in range(repeat):
        acts = {kubectl.name: kubectl.drain, ours.name: ours.swap}
        for name in turned(list(acts), repetition):
            yield scenes.swap(lab, folder, name, acts[name], repetition)
    say(f"{workload.DEPLOYMENTS} Deployments of {workload.REPLICAS} with budgets")
    workload.deploy(lab.api)

    def nothing(_nodes: object) -> None:
        """The cordon goes with those of all nodes."""

    contestants = [
        kubectl.tool(nothing),
        tools.Drain(lab, folder, home).tool(nothing),
        ours.tool(),
        tools.BareLoop(lab).tool(nothing),
    ]
    for repetition in range(repeat):
        for scene, count in SCENES.items():
            for tool in turned(contestants, repetition):
                yield from scenes.drain(lab, tool, count, scene, repetition)
    for name in PLAYBOOKS:
        for repetition in range(repeat):
            yield scenes.playbook(lab, ours.plays, folder, name, repetition)


def turned(things: list[T], by: int) -> list[T]:
    """The list, begun that many places later."""
    by %= len(things)
    return things[by:] + things[:by]


def line(trial: Trial) -> str:
    """A measurement as it is told while the others go on."""
    names = (
        "pods",
        "pods_per_second",
        "seconds_per_pod",
        "requests_per_pod",
        "refusals",
        "dark_seconds_worst",
        "requests",
        "wall_seconds",
    )
    shown = ", ".join(f"{name.replace('_', ' ')} {trial.numbers[name]:g}" for name in names if name in trial.numbers)
    return f"{trial.scene}, {trial.tool}: {shown}; {trial.outcome} (load {trial.load:g})"


def machine(repeat: int) -> dict[str, Any]:
    """Where and when, and what stood against it."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {
            "system": platform.system(),
            "architecture": platform.machine(),
            "cores": os.cpu_count(),
            "memory_gib": round(memory, 1),
            "load_at_start": scenes.load(),
        },
        "repetitions": repeat,
        "workload": {
            "nodes": workload.NODES,
            "deployments": workload.DEPLOYMENTS,
            "replicas": workload.REPLICAS,
            "max_unavailable": workload.BUDGET,
            "single_replicas": scenes.SINGLES,
            "their_start": scenes.START,
        },
    }


def write(found: dict[str, Any], trials: list[Trial]) -> None:
    """Write results.json and results.svg, print the tables."""
    here = Path(__file__).parent
    summary = results.summed_up(trials)
    known = {**found, "summary": summary, "trials": [trial.shown() for trial in trials]}
    (here / "results.json").write_text(json.dumps(known, indent=1) + "\n", encoding="utf-8")
    where = found["machine"]
    loads = [trial.load for trial in trials]
    caption = f"{found['date'][:10]}, {where['cores']} cores, load {min(loads):.0f} to {max(loads):.0f}, " + (
        "one measurement each" if found["repetitions"] == 1 else f"medians of {found['repetitions']}, least to most"
    )
    (here / "results.svg").write_text(picture.draw(summary, caption), encoding="utf-8")
    tables = f"{caption}\n\n{results.table(summary)}"
    readme = here / "README.md"
    readme.write_text(pasted(readme.read_text(encoding="utf-8"), tables), encoding="utf-8")
    print(f"\n{tables}\n{here / 'results.json'}\n{here / 'results.svg'}")


def pasted(text: str, tables: str) -> str:
    """The text with the tables of this run in the place of those of the last."""
    head, _unused, rest = text.partition(BEGIN)
    _unused, _unused, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{tables}{END}{tail}"


if __name__ == "__main__":
    sys.exit(main())
