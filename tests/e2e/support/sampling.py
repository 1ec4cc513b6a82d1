# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fixed sample of end-to-end tests that `make test` runs. `make test-whole` runs all of them.

Marked `whole`, and so left to the second, is a test whose rule is shown too: by the sample for another version of
Koordinator, another spelling of the same mistake, another number, or, deterministically, in the simulated cluster.
So is a test of what a version of Koordinator does by itself, which no change here can alter.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import pytest

ALL = bool(os.environ.get("WHOLE"))
VERSIONS = ("v1.7.0", "v1.8.0")


def first(count: int, values: Sequence[Any]) -> list[Any]:
    """Parameters of a test: so many of them are in the sample."""
    return [*values[:count], *(later(value) for value in values[count:])]


def later(value: Any) -> Any:
    return pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.whole)


def koordinator(version: str) -> pytest.MarkDecorator:
    """For a test with the fixture `lab`: Koordinator has this version in the sample, each of them in the whole."""
    chosen = sorted(VERSIONS, key=lambda known: known != version)
    return pytest.mark.parametrize("lab", first(1, chosen), indirect=True, scope="module")


def select(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselects what is not in the sample, unless all is asked for."""
    left = [] if ALL else [item for item in items if item.get_closest_marker("whole")]
    if left:
        config.hook.pytest_deselected(items=left)
        items[:] = [item for item in items if item not in left]
