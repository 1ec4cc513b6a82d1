# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How much is explored: all of it, or one of `SAMPLE` points, orders and states, chosen by `SEED`."""

from __future__ import annotations

import os
import typing as t

T = t.TypeVar("T")

SAMPLE = int(os.environ.get("SAMPLE") or "1")
SEED = int(os.environ.get("SEED") or "1")


def sampled(everything: t.Sequence[T]) -> t.Sequence[T]:
    """One of `SAMPLE`, from another one on for another `SEED`."""
    return everything[SEED % SAMPLE :: SAMPLE]
