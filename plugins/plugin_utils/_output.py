# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the main process prints: each line at once, and none any more when nobody can read them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import typing as t

LASTING = "_kubeops_lasting"


def outlast(display: t.Any) -> None:
    """Print each line of this ``Display`` at once from now on,
    and let the run go on when its output is gone.

    Into a pipe, Python writes 8 KiB at a time: lines of a worker would be seen when its task is
    over. And the first line that cannot be written would end the thread in which Ansible awaits the
    results of its workers.
    """
    if multiprocessing.parent_process() is not None or hasattr(display, LASTING):
        return
    before = display.display

    def show(msg: str, *args: t.Any, **more: t.Any) -> None:
        with tolerated():
            before(msg, *args, **more)

    setattr(display, LASTING, True)
    display.display = show


@contextlib.contextmanager
def tolerated() -> t.Iterator[None]:
    """Around what prints: an output that takes nothing any more takes no part from now on."""
    try:
        with contextlib.suppress(OSError):
            yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except BlockingIOError:
                # It takes the rest later.
                continue
            except OSError:
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, stream.fileno())
                os.close(nowhere)
