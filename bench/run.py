# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`make bench`: what a drain and a roll cost here, beside the tools that people use today.

Starts labs of its own, measures every tool in the same run in alternating order, and prints the
tables. Each measurement is kept in .build/bench/ as soon as it is made. results.json, results.svg
and the tables of README.md are made of the groups that were measured by a run that proves
something: three rounds or more, on a machine that nobody else kept busy. No threshold decides on
the exit code. BENCH_REPEAT (3) are the rounds, BENCH_ONLY the names of groups, and LAB_KEEP keeps
the labs.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "e2e")]

from support.lab import Lab, lab_playbook, started  # noqa: E402

from bench import (  # noqa: E402
    arenas,
    controller,
    machine,
    picture,
    real,
    results,
    scenes,
    store,
    targets,
    tools,
    trials,
    workload,
)
from bench.arenas import Fleet  # noqa: E402
from bench.trials import Trial  # noqa: E402

LAB = "bench"
HERE = Path(__file__).parent
RESULTS = HERE / "results.json"
JOURNALS = ROOT / ".build" / "bench"
BACKENDS = ("eviction", "auto", "koordinator")
THREADS = (8, 16, 32)
"""Of the bare loop; its best counts."""
BEGIN, END = "<!-- tables: written by run.py -->", "<!-- end of the tables -->"
SLOW = Fleet(leaving=5, staying=5, deployments=25, replicas=10, budget=3, stop=5)
ONE_BUDGET = Fleet(leaving=4, staying=4, deployments=1, replicas=200, budget="10%", start=2)
ROLL = Fleet(leaving=20, staying=1, deployments=100, replicas=10, budget=3)
ROLL_LARGE = Fleet(
    leaving=100, staying=10, deployments=100, replicas=20, budget="30%", start=2, stop=2
)
MANY_NODES = Fleet(leaving=500, staying=45, deployments=250, replicas=10, budget=5)
EVACUATED = Fleet(leaving=50, staying=5, deployments=50, replicas=4, budget=2)
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Bench:
    """What all groups need: a folder for files, the environment of k8s_drain, the rounds."""

    folder: Path
    home: Path
    rounds: int


Group = Callable[[Bench, Lab], Iterator[Trial]]
Say = Callable[[str], None]


def main() -> int:
    """Measure what was asked for; the return code says only whether that was possible."""
    began = time.monotonic()

    def say(text: str) -> None:
        print(f"==> [{time.monotonic() - began:4.0f} s] bench: {text}", flush=True)

    every = [*GROUPS, *WITHOUT_LAB]
    names, repeat = os.environ.get("BENCH_ONLY", ""), os.environ.get("BENCH_REPEAT") or "3"
    asked = [name for name in names.split(",") if name]
    if mistakes := targets.mistakes(asked, every, repeat):
        print(*(f"error: {mistake}" for mistake in mistakes), sep="\n", file=sys.stderr)
        return 2
    where, versions = machine.described(), dict[str, str]()
    JOURNALS.mkdir(parents=True, exist_ok=True)
    journal = JOURNALS / f"{datetime.now(UTC):%Y-%m-%dT%H%M%S}.jsonl"
    known: dict[str, list[Trial]] = {}
    try:
        with tempfile.TemporaryDirectory(prefix="bench-") as name:
            say("environment of kubernetes.core.k8s_drain (about two minutes the first time)")
            bench = Bench(Path(name), tools.peer_environment(), int(repeat))
            for group in asked or every:
                for trial in measured(bench, group, versions, say):
                    known.setdefault(group, []).append(trial)
                    with journal.open("a", encoding="utf-8") as file:
                        file.write(json.dumps(trial.to_dict()) + "\n")
                    say(line(trial))
                if doubts := targets.doubts(
                    known.get(group, ()), where["cores"], where["load_at_start"]
                ):
                    say(f"{group} proves nothing and is not written: {'; '.join(doubts)}")
                    continue
                date = f"{datetime.now(UTC):%Y-%m-%d}"
                store.keep(
                    JOURNALS,
                    store.Measured(group, date, machine.boot(), where, versions, known[group]),
                )
    finally:
        # What was measured before something failed is worth a look.
        if known:
            print(
                "\n"
                f"{results.table(trials.summed_up(trial for those in known.values() for trial in those))}"  # noqa: E501
            )
        before = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {}
        publish(store.kept(JOURNALS, before, every, machine.boot()))
        say(f"single measurements: {journal}")
    return 0


def measured(bench: Bench, group: str, versions: dict[str, str], say: Say) -> Iterator[Trial]:
    """The measurements of a group; what takes part goes into `versions`."""
    if group in WITHOUT_LAB:
        say(f"{group}, without a lab")
        yield from WITHOUT_LAB[group](bench)
        return
    options, measure = GROUPS[group]
    with lab_of(bench, group, options, say) as lab:
        versions.update(tools.versions(lab, bench.home))
        yield from measure(bench, lab)


@contextmanager
def lab_of(bench: Bench, group: str, options: dict[str, Any], say: Say) -> Iterator[Lab]:
    """A new lab for a group, gone at the end unless LAB_KEEP is set."""
    name = f"{LAB}-{group}"
    say(f"lab {name}")
    # A lab that an earlier run left may be half drained; a new one takes seconds.
    lab_playbook(bench.folder, name, "absent")
    try:
        yield started(bench.folder, name, lab_metrics=False, **options)
    finally:
        if not os.environ.get("LAB_KEEP"):
            lab_playbook(bench.folder, name, "absent")


def surges(bench: Bench, lab: Lab) -> Iterator[Trial]:
    """Single replicas that take a while to start."""
    ours, kubectl = tools.Ours(lab, bench.folder), tools.Kubectl(lab, bench.folder)
    acts = {kubectl.name: kubectl.drain, ours.name: ours.surge}
    for repetition, name in in_turn(bench.rounds, list(acts)):
        yield scenes.surge(lab, bench.folder, name, acts[name], repetition)


def drains(bench: Bench, lab: Lab) -> Iterator[Trial]:
    """One node and five nodes of a cluster of 20, whose pods stop and start at once;
    then calls with nothing to do.
    """
    ours = tools.Ours(lab, bench.folder)
    workload.deploy(lab.api)
    contestants = [
        tools.Kubectl(lab, bench.folder).tool(),
        tools.Drain(lab, bench.folder, bench.home).tool(),
        ours.tool(),
        *(tools.BareLoop(lab, threads).tool() for threads in THREADS),
    ]
    for scene, count in {targets.ONE_NODE: 1, targets.FIVE_NODES: 5}.items():
        for repetition, tool in in_turn(bench.rounds, contestants):
            yield from scenes.drain(lab, tool, count, scene, repetition)
    for repetition in range(bench.rounds):
        yield scenes.release(lab, ours, repetition)
    calls = {
        targets.K8S_INFO: tools.Drain(lab, bench.folder, bench.home).info,
        ours.name: ours.again,
    }
    for repetition, name in in_turn(bench.rounds, list(calls)):
        yield scenes.no_ops(lab, name, calls[name], repetition)


def slow_stops(bench: Bench, lab: Lab) -> Iterator[Trial]:
    """Pods that take 5 s to stop."""
    yield from contest(bench, lab, targets.SLOW, SLOW, drainers(bench, lab))


def one_budget(bench: Bench, lab: Lab) -> Iterator[Trial]:
    """200 pods behind one budget."""
    yield from contest(bench, lab, targets.ONE_BUDGET, ONE_BUDGET, drainers(bench, lab))


def drainers(bench: Bench, lab: Lab) -> dict[str, arenas.Act]:
    """The tools that are compared where pods take time."""
    peers = [
        tools.Kubectl(lab, bench.folder).tool(),
        tools.Drain(lab, bench.folder, bench.home).tool(),
    ]
    every = [*peers, tools.Ours(lab, bench.folder).tool(), tools.BareLoop(lab, THREADS[0]).tool()]
    return {tool.name: tool.drain for tool in every}


def rollers(bench: Bench, lab: Lab) -> dict[str, arenas.Act]:
    """The tools that take nodes out and bring them back, one at a time."""
    kubectl, k8s_drain = (
        tools.Kubectl(lab, bench.folder),
        tools.Drain(lab, bench.folder, bench.home),
    )
    ours = tools.Ours(lab, bench.folder)
    return {kubectl.name: kubectl.roll, k8s_drain.name: k8s_drain.roll, ours.name: ours.roll(1)}


def contest(
    bench: Bench,
    lab: Lab,
    scene: str,
    fleet: Fleet,
    acts: dict[str, arenas.Act],
    only: int | None = None,
) -> Iterator[Trial]:
    """Each of the tools drains a fleet, or its first nodes, in each round."""
    for repetition, name in in_turn(bench.rounds, list(acts)):
        yield arenas.drain(lab, scene, fleet, name, acts[name], repetition, only=only)


def rolls(bench: Bench, lab: Lab) -> Iterator[Trial]:
    """The whole way of 20 nodes and 1,000 pods, with one spare node: one node at a time,
    and ours in waves of four.
    """
    ours, acts = tools.Ours(lab, bench.folder), rollers(bench, lab)
    for repetition, name in in_turn(bench.rounds, list(acts)):
        yield arenas.roll(lab, targets.ROLL, ROLL, name, acts[name], repetition)
    for repetition in range(bench.rounds):
        yield arenas.roll(
            lab, targets.ROLL_WAVES, ROLL, ours.name, ours.roll(4), repetition, at_once=4
        )


def large_rolls(bench: Bench, lab: Lab) -> Iterator[Trial]:
    """100 nodes, 2,000 pods that take 2 s to stop and to start, in waves of ten;
    50 nodes that are out already.
    """
    ours = tools.Ours(lab, bench.folder)
    for repetition in range(bench.rounds):
        yield arenas.roll(
            lab, targets.ROLL_LARGE, ROLL_LARGE, ours.name, ours.roll(10), repetition, at_once=10
        )
    bare = tools.BareLoop(lab, THREADS[1]).tool()
    acts = {ours.name: ours.drain, bare.name: bare.drain}
    yield from contest(bench, lab, targets.WAVE_LARGE, ROLL_LARGE, acts, only=10)
    for repetition in range(bench.rounds):
        yield arenas.evacuated_again(lab, EVACUATED, ours, repetition)


def many_nodes(bench: Bench, lab: Lab) -> Iterator[Trial]:
    """The scene for which NVSentinel's node drainer published figures:
    500 nodes of five pods at once.
    """
    ours, bare = tools.Ours(lab, bench.folder), tools.BareLoop(lab, THREADS[-1]).tool()
    acts = {ours.name: ours.drain_in_a_run, bare.name: bare.drain}
    yield from contest(bench, lab, targets.MANY_NODES, MANY_NODES, acts)


def backends(bench: Bench, lab: Lab) -> Iterator[Trial]:
    """Our own ways to move pods side by side, with Koordinator."""
    ours = tools.Ours(lab, bench.folder)
    for repetition, backend in in_turn(bench.rounds, list(BACKENDS)):
        yield scenes.backends(lab, bench.folder, ours, backend, repetition)


def traffic(bench: Bench, lab: Lab) -> Iterator[Trial]:
    """Requests to servers of several manners, while their node is drained and returned."""
    acts = rollers(bench, lab)
    for repetition, name in in_turn(bench.rounds, list(acts)):
        roll = acts[name]
        act = functools.partial(roll, [real.NODE])
        yield from real.traffic(lab, bench.folder, name, act, repetition)


def reboots(bench: Bench, lab: Lab) -> Iterator[Trial]:
    """How long a node is away for a reboot."""
    acts = {name: make(lab, bench.folder) for name, make in real.REBOOTS.items()}
    for repetition, name in in_turn(bench.rounds, list(acts)):
        yield real.away(lab, bench.folder, name, acts[name], repetition)


ON_REAL_NODES = {"lab_kind": "real", "lab_nodes": 4}
GROUPS: dict[str, tuple[dict[str, Any], Group]] = {
    "traffic": (ON_REAL_NODES, traffic),
    "real": (ON_REAL_NODES, reboots),
    "surge": ({"lab_nodes": 1}, surges),
    "drains": ({"lab_nodes": workload.NODES}, drains),
    "slow-stops": ({"lab_nodes": 1}, slow_stops),
    "one-budget": ({"lab_nodes": 1}, one_budget),
    "rolls": ({"lab_nodes": 1}, rolls),
    "large-rolls": ({"lab_nodes": 1}, large_rolls),
    "many-nodes": ({"lab_nodes": 1}, many_nodes),
    "backends": ({"lab_nodes": 1, "lab_koordinator": "v1.7.0"}, backends),
}
"""Each with the options of its lab."""
WITHOUT_LAB: dict[str, Callable[[Bench], Iterator[Trial]]] = {
    "plans": lambda bench: controller.plans(bench.rounds),
    "calls": lambda bench: controller.calls(bench.rounds),
    "fleets": lambda bench: controller.fleets(bench.rounds, bench.folder),
}


def in_turn(rounds: int, things: list[T]) -> Iterator[tuple[int, T]]:
    """Each thing once a round; each round begins with another one, so that noise hits all."""
    for number in range(rounds):
        by = number % len(things)
        for thing in things[by:] + things[:by]:
            yield number, thing


def line(trial: Trial) -> str:
    """A measurement as it is told while the others go on."""
    names = (
        "pods",
        "pods_per_second",
        "moves_per_pod",
        "seconds_per_pod",
        "requests_per_pod",
        "refusals",
        "sent",
        "failed",
        "dark_seconds_worst",
        "away_seconds",
        "requests",
        "wave_seconds_beside_drain",
        "wall_seconds",
        "cpu_seconds",
        "peak_mb",
    )
    told = ", ".join(
        f"{name.replace('_', ' ')} {trial.numbers[name]:g}"
        for name in names
        if name in trial.numbers
    )
    return (
        f"{trial.scene}, {trial.tool}: {told}; {trial.outcome} (others kept "
        f"{trial.busy:g} cores busy)"
    )


def publish(known: list[store.Measured]) -> None:
    """Write what is published of the groups that prove something."""
    if not known:
        print("No group proves anything. Nothing was written.")
        return
    summary = summed_up(known)
    caption = store.caption(known)
    content = json.dumps(store.published(known, summary), indent=1) + "\n"
    RESULTS.write_text(content, encoding="utf-8")
    (HERE / "results.svg").write_text(picture.draw(summary, caption), encoding="utf-8")
    readme = HERE / "README.md"
    compared = (summed_up(those) for those in store.by_boot(known))
    tables = f"{caption} ({store.days(known)})\n\n{results.table(summary, *compared)}"
    readme.write_text(pasted(readme.read_text(encoding="utf-8"), tables), encoding="utf-8")
    print(f"{RESULTS}\n{HERE / 'results.svg'}")


def summed_up(known: Iterable[store.Measured]) -> trials.Summary:
    """The medians of groups."""
    return trials.summed_up(trial for one in known for trial in one.trials)


def pasted(text: str, tables: str) -> str:
    """The text with the tables of this run in the place of those of the last."""
    head, _unused, rest = text.partition(BEGIN)
    _unused, _unused, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{tables}{END}{tail}"


if __name__ == "__main__":
    sys.exit(main())
