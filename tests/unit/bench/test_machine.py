# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the benchmark reads of the machine and of its processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.lab import Lab

from bench import machine, scenes


def test_the_peak_of_a_process_does_not_count_the_memory_of_the_one_that_started_it() -> None:
    ballast = bytearray(200 << 20)
    code = "from bench import machine; print(machine.own_peak())"
    root = Path(machine.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    assert machine.own_peak() > len(ballast) >> 20
    assert 5 < float(done.stdout) < 150


def test_what_others_run_under_nice_does_not_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def tell(user: int, nice: int) -> None:
        numbers = " ".join(str(machine.TICKS * number) for number in (user, nice, 0, 0, 0, 0, 0, 0))
        (tmp_path / "stat").write_text(f"cpu {numbers} 0 0\n")

    tell(0, 0)
    monkeypatch.setattr(machine, "PROC", tmp_path)
    monkeypatch.setattr("time.sleep", lambda _seconds: tell(1, 5))
    assert machine.busy_with_others("nobody") == 1.0


@pytest.mark.parametrize(("seen", "told"), [([0.2], 0.2), ([1.5, 0.9, 0.1], 0.1), ([1.5, 0.9, 0.8], 0.8)])
def test_a_measurement_waits_for_a_moment_of_quiet_but_not_for_long(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seen: list[float], told: float
) -> None:
    file = tmp_path / "audit.log"
    lab = Lab("lab", file, file, file, file, api=None)  # type: ignore[arg-type]
    left = iter(seen)
    monkeypatch.setattr(machine, "busy_with_others", lambda _marker: next(left))
    assert scenes.resting(lab, attempts=3) == told
    assert next(left, None) is None
