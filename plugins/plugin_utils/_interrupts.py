# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Signals in a worker that runs our engine: the call ends at its next wait instead of anywhere.

Up to ansible-core 2.18 a worker is in the process group of ``ansible-playbook``, and the terminal
interrupts both; from 2.19 on the main process passes on what it gets. An interrupted one terminates
its workers at once, and awaits them.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import threading
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
CUT_OFF_AFTER_SECONDS = 10
"""Seconds after which a call that was asked to end is cut off."""


@contextlib.contextmanager
def heeded() -> t.Iterator[specs.Interruption]:
    """In a worker, one of the ``SIGNALS`` asks the engine to end, and another interrupt ends it."""
    interruption = specs.Interruption()

    def heed(number: int, _frame: object) -> None:
        if not interruption.asked:
            interruption.asked = True
            signal.signal(signal.SIGALRM, signal.SIG_DFL)
            signal.alarm(CUT_OFF_AFTER_SECONDS)
        elif number == signal.SIGINT:
            os._exit(1)

    before = {}
    if multiprocessing.parent_process() and threading.current_thread() is threading.main_thread():
        for one in SIGNALS:
            if signal.getsignal(one) is not signal.SIG_IGN:
                before[one] = signal.signal(one, heed)
    try:
        yield interruption
    finally:
        # A worker that was asked to end does so.
        if not interruption.asked:
            for number, handler in before.items():
                signal.signal(number, handler)


def orphan_guard(interruption: specs.Interruption) -> t.Callable[[], None] | None:
    """A check that ends this worker before its next request once ``ansible-playbook`` is gone.

    Since ansible-core 2.19 a worker has its own session and outlives a killed process group. It
    must not continue, because another run may have taken over. It exits without cleaning up, as if
    killed with its parent; the state in the cluster allows for that.
    A worker that was asked to end may do so.
    """
    parent = multiprocessing.parent_process()
    if parent is None:
        return None
    expected = parent.pid

    def guard() -> None:
        if os.getppid() != expected and not interruption.asked:
            os._exit(1)

    return guard
