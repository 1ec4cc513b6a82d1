# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the benchmark reads of the machine and of its processes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench import machine


def test_the_peak_of_a_process_does_not_count_the_memory_of_the_one_that_started_it() -> None:
    ballast = bytearray(200 << 20)
    code = "from bench import machine; print(machine.own_peak())"
    root = Path(machine.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=root, stdout=subprocess.PIPE, text=True, check=True)
    assert machine.own_peak() > len(ballast) >> 20
    assert 5 < float(done.stdout) < 150
