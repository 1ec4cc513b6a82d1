# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""Python's collector of cyclic garbage, which stands still while much is made that stays.

What is parsed of a long list has no cycles and stays, yet each time a quarter more of it is there,
the collector goes through all of it: more than half of the time in which a list of 150,000 pods is
read. Other garbage is freed as ever, because objects are counted.
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Iterator

_lock = threading.Lock()
_pauses: list[bool] = []
"""For each pause that has begun and not ended: whether the first of them has to end with a
collector that works.
"""


@contextlib.contextmanager
def paused() -> Iterator[None]:
    """No garbage is collected meanwhile, in any thread; pauses may overlap,
    and the last to end ends them all.

    A collector that somebody else had switched off stays off.
    """
    with _lock:
        _pauses.append(_pauses[0] if _pauses else gc.isenabled())
        gc.disable()
    try:
        yield
    finally:
        with _lock:
            works = _pauses.pop()
            if works and not _pauses:
                gc.enable()
