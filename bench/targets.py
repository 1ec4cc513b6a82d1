# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the benchmark wants to see, and whether a run shows it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from bench.trials import BARE, K8S_DRAIN, KUBECTL, OURS, Summary, Trial, best_bare, median

ROUNDS = 3
"""Measurements of each kind that a comparison needs."""
QUIET = 0.5
"""Cores that others may keep busy while the benchmark stands still."""

ONE_NODE, FIVE_NODES, SLOW = "one node", "five nodes", "five nodes, pods stop in 5 s"
ONE_BUDGET, MANY_NODES = "200 pods, one budget of 10 %", "500 nodes of 5 pods"
SURGE = "surge"
ROLL, ROLL_WAVES, ROLL_LARGE = (
    "roll of 20 nodes",
    "roll of 20 nodes, waves of 4",
    "roll of 100 nodes, waves of 10",
)
WAVE_LARGE = "drain of 10 of these 100 nodes"
GRACEFUL, ABRUPT = (
    "requests to servers that stop gracefully",
    "requests to a server that dies at once",
)
LAG_SHORT, LAG_LONG = (
    f"requests by a balancer that is {lag} s behind, servers stop in 5 s" for lag in (5, 30)
)
LAG_PATIENT = "requests by a balancer that is 30 s behind, a server stops in 35 s"
REQUESTS = (GRACEFUL, ABRUPT, LAG_SHORT, LAG_LONG, LAG_PATIENT)
AWAY = "a node away for a reboot"
DRAINS = (ONE_NODE, FIVE_NODES, SLOW, ONE_BUDGET, MANY_NODES, WAVE_LARGE)

LARGE = 5000
"""Nodes of the synthetic cluster for which there are targets."""
PLAN_LARGE, DRAIN_LARGE = f"plan of all {LARGE} nodes", f"drain: 10 of {LARGE} nodes"
FLEET = "fleet of"
EVACUATE_AGAIN = "a second evacuate of 50 nodes"
NO_OPS = "10 calls with nothing to do"
K8S_INFO = "kubernetes.core.k8s_info"

Value = Callable[[Summary], float | None]


@dataclass(frozen=True, slots=True)
class Target:
    """`value` of a summary is to be at least or at most `limit`."""

    what: str
    value: Value
    limit: float
    at_least: bool = False

    def holds(self, value: float) -> bool:
        return value >= self.limit if self.at_least else value <= self.limit


def ours(scene: str, name: str) -> Value:
    """A number of ours."""
    return lambda summary: median(summary, scene, OURS, name)


def against(scene: str, tool: str, name: str, others_scene: str = "") -> Value:
    """A number of ours divided by that of another tool; the bare loop counts with its
    best number of threads.
    """

    def ratio(summary: Summary) -> float | None:
        where = others_scene or scene
        other = best_bare(summary, where) if tool == BARE else tool
        mine, theirs = median(summary, scene, OURS, name), median(summary, where, other or "", name)
        return mine / theirs if mine is not None and theirs else None

    return ratio


def share(scene: str, name: str, of: str) -> Value:
    """One number of ours divided by another."""

    def ratio(summary: Summary) -> float | None:
        part, whole = median(summary, scene, OURS, name), median(summary, scene, OURS, of)
        return part / whole if part is not None and whole else None

    return ratio


def of_turns_and_evictions(summary: Summary) -> float | None:
    """Seconds of the large roll divided by its turns, and its pods at the rate of the bare
    loop with five nodes.
    """
    rate = median(summary, FIVE_NODES, best_bare(summary, FIVE_NODES) or "", "pods_per_second")
    seconds, turns, pods = (
        median(summary, ROLL_LARGE, OURS, name) for name in ("seconds", "turns_seconds", "pods")
    )
    return seconds / (turns + pods / rate) if seconds and turns and pods and rate else None


def of_bare_waves(summary: Summary) -> float | None:
    """Seconds of the large roll divided by those in which the bare loop empties the
    nodes of so many waves.
    """
    bare = median(summary, WAVE_LARGE, best_bare(summary, WAVE_LARGE) or "", "seconds")
    seconds, waves = (median(summary, ROLL_LARGE, OURS, name) for name in ("seconds", "waves"))
    return seconds / (waves * bare) if seconds and waves and bare else None


TARGETS = (
    Target(
        "five nodes: pods/s, of the bare loop's best",
        against(FIVE_NODES, BARE, "pods_per_second"),
        0.9,
        True,
    ),
    Target(
        "five nodes: pods/s, times kubectl drain",
        against(FIVE_NODES, KUBECTL, "pods_per_second"),
        6,
        True,
    ),
    Target(
        "five nodes: pods/s, times k8s_drain",
        against(FIVE_NODES, K8S_DRAIN, "pods_per_second"),
        2,
        True,
    ),
    Target("five nodes: refused of all evictions", share(FIVE_NODES, "refusals", "evicted"), 0.01),
    Target(
        "one budget: slowest eviction, of the median",
        share(ONE_BUDGET, "eviction_worst", "eviction_median"),
        10,
    ),
    Target(
        "one budget: seconds, times the budget's bound",
        share(ONE_BUDGET, "seconds", "bound_seconds"),
        1.2,
    ),
    Target("surge: requests for each pod", ours(SURGE, "requests_per_pod"), 8),
    Target("surge: seconds beside the pods' start", ours(SURGE, "seconds_beside_start"), 0.5),
    Target("requests: failed, of servers that stop gracefully", ours(GRACEFUL, "failed"), 0),
    Target("requests: failed, of one that outlasts its balancer", ours(LAG_PATIENT, "failed"), 0),
    Target("roll: moves for each pod", ours(ROLL, "moves_per_pod"), 1.0),
    Target("roll: requests for each pod", ours(ROLL, "requests_per_pod"), 1.25),
    Target("roll: pods/s, times kubectl drain", against(ROLL, KUBECTL, "pods_per_second"), 4, True),
    Target(
        "waves of 4: pods/s, times kubectl drain",
        against(ROLL_WAVES, KUBECTL, "pods_per_second", ROLL),
        6,
        True,
    ),
    Target("waves of 10: seconds, times turns and evictions", of_turns_and_evictions, 1.15),
    Target("waves of 10: seconds, times the bare loop's waves", of_bare_waves, 1.15),
    Target(
        "waves of 10: seconds of a wave beside its drain",
        ours(ROLL_LARGE, "wave_seconds_beside_drain"),
        4,
    ),
    Target("waves of 10: KB of the plan's result", ours(ROLL_LARGE, "plan_result_kb"), 50),
    Target("a second evacuate: seconds", ours(EVACUATE_AGAIN, "wall_seconds"), 10),
    Target("a second evacuate: reads for each node", share(EVACUATE_AGAIN, "requests", "nodes"), 3),
    Target("a second evacuate: writes", ours(EVACUATE_AGAIN, "writes"), 0),
    Target(
        "a call with nothing to do: of k8s_info", against(NO_OPS, K8S_INFO, "task_seconds"), 0.5
    ),
    Target(f"plan of {LARGE} nodes: processor seconds", ours(PLAN_LARGE, "cpu_seconds"), 60),
    Target(f"plan of {LARGE} nodes: MB", ours(PLAN_LARGE, "peak_mb"), 1500),
    Target(f"drain of 10 of {LARGE} nodes: processor seconds", ours(DRAIN_LARGE, "cpu_seconds"), 3),
    Target(f"drain of 10 of {LARGE} nodes: MB", ours(DRAIN_LARGE, "peak_mb"), 120),
    Target("500 nodes: seconds", ours(MANY_NODES, "seconds"), 30),
    Target("500 nodes: requests for each pod", ours(MANY_NODES, "requests_per_pod"), 1.1),
)


def verdicts(summary: Summary) -> list[tuple[str, str, str, str]]:
    """For each target that was measured: what, the limit, the value, the verdict."""
    rows = []
    for target in TARGETS:
        value = target.value(summary)
        if value is not None:
            limit = f"{'>=' if target.at_least else '<='} {target.limit:g}"
            rows.append(
                (target.what, limit, f"{value:.2f}", "reached" if target.holds(value) else "missed")
            )
    return rows


def mistakes(asked: Iterable[str], groups: Iterable[str], repeat: str) -> list[str]:
    """Why these groups cannot be measured in so many rounds; empty where they can."""
    known = list(groups)
    unknown = ", ".join(name for name in asked if name not in known)
    found = (
        [f"BENCH_ONLY names no group {unknown}; there are: {', '.join(known)}"] if unknown else []
    )
    if not (repeat.isdecimal() and int(repeat)):
        found.append(f"BENCH_REPEAT is {repeat!r}, but has to be a number of rounds, 1 or more")
    return found


def doubts(trials: Iterable[Trial], cores: int, load_at_start: float) -> list[str]:
    """Why a run proves nothing; empty for one that does."""
    known = list(trials)
    if not known:
        return ["nothing was measured"]
    found = []
    rounds = min(
        len([t for t in known if (t.scene, t.tool) == kind])
        for kind in {(t.scene, t.tool) for t in known}
    )
    if rounds < ROUNDS:
        found.append(f"{rounds} of {ROUNDS} rounds")
    if load_at_start > cores:
        found.append(f"a load of {load_at_start:g} on {cores} cores before it began")
    noisy = [trial for trial in known if trial.busy > QUIET]
    if len(noisy) * 10 > len(known):
        found.append(
            f"others kept more than {QUIET:g} cores busy before {len(noisy)} of "
            f"{len(known)} measurements"
        )
    return found
