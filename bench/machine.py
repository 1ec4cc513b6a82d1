# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the machine does beside the benchmark, from Linux' /proc."""

from __future__ import annotations

import contextlib
import os
import platform
import resource
import time
from pathlib import Path
from typing import Any

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")


def processor() -> float:
    """Processor seconds that the tools have taken so far, in their own processes or in
    threads of this one.
    """
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in used)


def busy_with_others(marker: str, seconds: float = 1.0) -> float:
    """Cores that are at work for others than this process and those whose
    command line has `marker`.

    Time that a hypervisor takes away counts as well. What others run under `nice` does not: it
    gives way.
    """
    before = _all_ticks() - _ticks_of(marker)
    time.sleep(seconds)
    return round(max(0.0, (_all_ticks() - _ticks_of(marker) - before) / TICKS / seconds), 2)


def own_peak() -> float:
    """MB that this process had at most. Its `ru_maxrss` has the memory of the process
    that started it in it.
    """
    return _kib(PROC / "self" / "status", "VmHWM:") / 1024


def memory_of(marker: str) -> float:
    """MB of all processes whose command line has `marker`;
    each page that they share counts once.
    """
    found = 0
    for path in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError, StopIteration):
            if marker.encode() in (path / "cmdline").read_bytes():
                found += _kib(path / "smaps_rollup", "Pss:")
    return found / 1024


def _kib(path: Path, name: str) -> int:
    """The number of a file's line that begins so."""
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1])


def _all_ticks() -> int:
    user, _nice, system, _idle, _iowait, irq, softirq, steal = map(
        int, (PROC / "stat").read_text(encoding="ascii").split("\n", 1)[0].split()[1:9]
    )
    return user + system + irq + softirq + steal


def _ticks_of(marker: str) -> int:
    found = 0
    for path in PROC.glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (path / "cmdline").read_bytes()
            if marker.encode() in command or path.name == str(os.getpid()):
                # The name of the program, in parentheses, may have spaces.
                fields = (
                    (path / "stat")
                    .read_text(encoding="utf-8", errors="replace")
                    .rpartition(")")[2]
                    .split()
                )
                found += int(fields[11]) + int(fields[12])
    return found


def boot() -> str:
    """What tells this start of the machine from every other."""
    return (PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def described() -> dict[str, Any]:
    """The machine, and its load before anything of the benchmark runs."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "system": platform.system(),
        "architecture": platform.machine(),
        "cores": os.cpu_count() or 1,
        "memory_gib": round(memory, 1),
        "load_at_start": round(os.getloadavg()[0], 2),
    }
