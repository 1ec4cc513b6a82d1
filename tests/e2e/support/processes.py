# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Processes as the kernel shows them: who descends from whom, and ending them for certain."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable
from pathlib import Path


def descendants(root: int) -> list[int]:
    """All living processes below `root`, itself left out."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                # The name in parentheses may hold spaces; the parent is the second field after it.
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found: list[int] = []
    todo = [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def send(pid: int, what: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, what)


def freeze_tree(root: int) -> list[int]:
    """SIGSTOP a process and all its descendants, so that none gets away; returns them."""
    frozen = {root}
    send(root, signal.SIGSTOP)
    while new := set(descendants(root)) - frozen:
        for pid in new:
            send(pid, signal.SIGSTOP)
        frozen |= new
    return sorted(frozen)


def thaw(frozen: Iterable[int]) -> None:
    """Lets processes go on."""
    for pid in frozen:
        send(pid, signal.SIGCONT)


def kill_tree(root: int) -> None:
    """SIGKILL a process and all its descendants, frozen first so that none gets away."""
    for pid in freeze_tree(root):
        send(pid, signal.SIGKILL)


def alive(pid: int) -> bool:
    try:
        state = (Path("/proc") / str(pid) / "stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"
