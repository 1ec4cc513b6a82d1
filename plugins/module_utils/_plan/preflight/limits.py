# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Whether the calls of a run have as much time as they take by its forecast."""

from __future__ import annotations

import math
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import option, reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.timing import wave_times

SWAPS, DRAIN = 600.0, 86400.0
"""Seconds that ``pdb_guard`` and ``node_drain`` have if no limit is given."""
ROOM = 1.5
"""How much more time than it takes by the forecast a call should have."""


def findings(
    waves: t.Sequence[t.Sequence[str]], times: t.Sequence[wave_times.WaveTime], timeout: float | None
) -> list[reasons.Finding]:
    """One for each of the two calls that takes too long for a wave, about the longest one."""
    found = _late(waves, [time.swaps for time in times], "pdb_guard", SWAPS if timeout is None else timeout)
    return found + _late(waves, [time.drains for time in times], "node_drain", DRAIN if timeout is None else timeout)


def _late(
    waves: t.Sequence[t.Sequence[str]], taken: t.Sequence[float], call: str, limit: float
) -> list[reasons.Finding]:
    late = [index for index, seconds in enumerate(taken) if seconds > limit]
    if not late:
        return []
    longest = max(late, key=lambda index: taken[index])
    others = f", and too long for {len(late) - 1} more" if len(late) > 1 else ""
    seconds = math.ceil(taken[longest])
    message = (
        f"By the forecast {call} takes about {seconds} s for wave {longest + 1}{others}. Its limit is {limit:g} s; "
        "then the nodes are given back."
    )
    remedy = f"Give it more time: {option.options(timeout=f'{math.ceil(ROOM * seconds / 60)}m')}."
    nodes = tuple(name for index in late for name in waves[index])
    return [reasons.Finding("timeout_too_short", message, remedy, "warning", call, nodes)]
