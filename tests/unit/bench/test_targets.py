# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a run of the benchmark shows, and when it shows nothing."""

from __future__ import annotations

import pytest

from bench import results, targets, trials
from bench.trials import BARE, KUBECTL, OURS, Trial


def trial(scene: str, tool: str = OURS, repetition: int = 0, busy: float = 0.0, **numbers: float) -> Trial:
    return Trial(scene, tool, repetition, "drained", numbers, {}, busy)


def verdict(what: str, *known: Trial) -> tuple[str, str] | None:
    """The value and the verdict of the target whose name begins so."""
    rows = targets.verdicts(trials.summed_up(known))
    found = [row[2:] for row in rows if row[0].startswith(what)]
    return found[0] if found else None


def test_a_target_without_measurement_has_no_verdict() -> None:
    assert targets.verdicts(trials.summed_up([])) == []
    assert verdict("five nodes: pods/s, times kubectl", trial(targets.FIVE_NODES, pods_per_second=30)) is None


@pytest.mark.parametrize(
    ("rate", "expected"), [(59.9, ("5.99", "missed")), (60, ("6.00", "reached")), (61, ("6.10", "reached"))]
)
def test_what_is_to_be_at_least_so_many_times_as_fast(rate: float, expected: tuple[str, str]) -> None:
    known = trial(targets.FIVE_NODES, pods_per_second=rate), trial(targets.FIVE_NODES, KUBECTL, pods_per_second=10)
    assert verdict("five nodes: pods/s, times kubectl", *known) == expected


@pytest.mark.parametrize(("moves", "expected"), [(1.0, ("1.00", "reached")), (1.01, ("1.01", "missed"))])
def test_what_is_to_be_at_most_so_much(moves: float, expected: tuple[str, str]) -> None:
    assert verdict("roll: moves", trial(targets.ROLL, moves_per_pod=moves)) == expected


def test_the_yardstick_is_the_bare_loop_with_the_best_number_of_threads() -> None:
    rates = {8: 30, 16: 40, 32: 20}
    loops = [trial(targets.FIVE_NODES, f"{BARE}, {n} threads", pods_per_second=rate) for n, rate in rates.items()]
    known = trial(targets.FIVE_NODES, pods_per_second=38)
    assert trials.best_bare(trials.summed_up(loops), targets.FIVE_NODES) == f"{BARE}, 16 threads"
    assert verdict("five nodes: pods/s, of the bare", known, *loops) == ("0.95", "reached")


def test_medians_are_compared_not_single_measurements() -> None:
    known = [trial(targets.SURGE, repetition=n, requests_per_pod=value) for n, value in enumerate((7, 8, 30))]
    assert verdict("surge: requests", *known) == ("8.00", "reached")


def test_the_large_roll_is_compared_with_its_turns_and_its_pods_at_the_rate_of_the_bare_loop() -> None:
    bare = trial(targets.FIVE_NODES, f"{BARE}, 8 threads", pods_per_second=40)
    roll = trial(targets.ROLL_LARGE, seconds=77, turns_seconds=20, pods=2000)
    assert verdict("waves of 10", roll, bare) == ("1.10", "reached")
    assert verdict("waves of 10", roll) is None


def test_the_large_roll_is_compared_with_as_many_waves_of_the_bare_loop() -> None:
    bare = [
        trial(targets.WAVE_LARGE, f"{BARE}, 16 threads", n, seconds=seconds, pods_per_second=200 / seconds)
        for n, seconds in enumerate((9, 7, 8))
    ]
    roll = trial(targets.ROLL_LARGE, seconds=100, waves=10)
    assert verdict("waves of 10", roll, *bare) == ("1.25", "missed")
    assert verdict("waves of 10", roll) is None


def test_three_quiet_rounds_prove_something() -> None:
    known = [trial(targets.ROLL, repetition=n, busy=targets.QUIET) for n in range(3)]
    assert targets.doubts(known, cores=2, load_at_start=2.0) == []


@pytest.mark.parametrize(
    ("rounds", "busy", "load", "doubt"),
    [
        (1, 0.0, 0.0, "1 of 3 rounds"),
        (2, 0.0, 0.0, "2 of 3 rounds"),
        (3, 0.0, 2.1, "a load of 2.1 on 2 cores before it began"),
        (3, 0.51, 0.0, "others kept more than 0.5 cores busy before 3 of 3 measurements"),
    ],
)
def test_what_proves_nothing(rounds: int, busy: float, load: float, doubt: str) -> None:
    known = [trial(targets.ROLL, repetition=n, busy=busy) for n in range(rounds)]
    assert targets.doubts(known, cores=2, load_at_start=load) == [doubt]


def test_one_noisy_measurement_of_ten_is_no_doubt() -> None:
    known = [trial(targets.ROLL, repetition=n, busy=1.0 if n == 4 else 0.0) for n in range(10)]
    assert targets.doubts(known, cores=2, load_at_start=0.0) == []


def test_nothing_measured_proves_nothing() -> None:
    assert targets.doubts([], cores=2, load_at_start=0.0) == ["nothing was measured"]


def test_the_table_begins_with_the_targets_and_compares_with_the_best_bare_loop_only() -> None:
    rates = {OURS: 20.0, KUBECTL: 5.0, f"{BARE}, 8 threads": 30.0, f"{BARE}, 16 threads": 40.0}
    known = [trial(targets.FIVE_NODES, tool, pods_per_second=rate, requests_per_pod=1) for tool, rate in rates.items()]
    table = results.table(trials.summed_up(known))
    assert table.startswith("| target ")
    compared = [line for line in table.splitlines() if "| x " in line]
    assert [line.split("|")[1].strip() for line in compared] == [KUBECTL, f"{BARE}, 16 threads"]
    assert "x 4.00" in compared[0]
    assert "x 0.50" in compared[1]


@pytest.mark.parametrize(
    ("scene", "column"),
    [
        (targets.ROLL_LARGE, "s/wave beside drain"),
        (targets.WAVE_LARGE, "moved"),
        (targets.PLAN_LARGE, "lists, processor"),
        (targets.DRAIN_LARGE, "objects read"),
        (f"{targets.FLEET} 4 clusters", "each more"),
        (targets.NO_OPS, "seconds in tasks"),
    ],
)
def test_each_kind_of_scene_has_its_own_columns(scene: str, column: str) -> None:
    head = next(line for line in results.table(trials.summed_up([trial(scene)])).splitlines() if scene in line)
    assert f"| {column} " in head


def test_what_large_clusters_and_calls_with_nothing_to_do_may_cost() -> None:
    assert verdict("plan of 5000 nodes: MB", trial(targets.PLAN_LARGE, peak_mb=1501)) == ("1501.00", "missed")
    assert verdict("a second evacuate: reads", trial(targets.EVACUATE_AGAIN, requests=100, nodes=50)) == (
        "2.00",
        "reached",
    )
    calls = trial(targets.NO_OPS, task_seconds=1), trial(targets.NO_OPS, targets.K8S_INFO, task_seconds=4)
    assert verdict("a call with nothing to do", *calls) == ("0.25", "reached")


def test_what_cannot_be_measured_is_said_at_once() -> None:
    assert targets.mistakes(["surge"], ["surge", "drains"], "1") == []
    assert targets.mistakes([], ["surge", "drains"], "3") == []
    assert targets.mistakes(["drain", "surge"], ["surge", "drains"], "3") == [
        "BENCH_ONLY names no group drain; there are: surge, drains"
    ]


@pytest.mark.parametrize("repeat", ["x", "0", "-1", "1.5"])
def test_rounds_are_a_whole_number_from_one(repeat: str) -> None:
    assert targets.mistakes([], ["surge"], repeat) == [
        f"BENCH_REPEAT is {repeat!r}, but has to be a number of rounds, 1 or more"
    ]
