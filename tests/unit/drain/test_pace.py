# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many requests are in flight follows from how the server answers them."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_workers import Pace


def answered(pace: Pace, *seconds: float, now: float = 100.0) -> int:
    for one in seconds:
        pace.answered(now, one)
    return pace.limit


@pytest.mark.parametrize(("most", "first"), [(1, 1), (8, 8), (32, 8)])
def test_it_begins_with_a_few_and_never_has_more_than_it_may(most: int, first: int) -> None:
    pace = Pace(most)
    assert pace.limit == first
    assert answered(pace, *[0.02] * 2000) == most


def test_a_round_of_quick_answers_makes_room_for_one_more() -> None:
    pace = Pace(32)
    assert [answered(pace, *[0.02] * 9), answered(pace, *[0.02] * 10)] == [9, 10]


@pytest.mark.parametrize(
    ("first", "second", "limit"),
    [
        pytest.param(0.02, 0.24, 8, id="too short to be noticed"),
        pytest.param(0.02, 0.26, 6, id="slow"),
        pytest.param(0.1, 0.39, 8, id="not much slower than the quickest"),
        pytest.param(0.1, 0.41, 6, id="four times as slow as the quickest"),
        pytest.param(1.0, 2.0, 8, id="a server that is never quick"),
    ],
)
def test_slow_answers_make_it_fewer(first: float, second: float, limit: int) -> None:
    assert answered(Pace(32), first, second) == limit


def test_overload_halves_it_once_for_all_that_was_under_way() -> None:
    pace = Pace(32)
    pace.overloaded(100.0)
    pace.overloaded(100.9)
    assert pace.limit == 4
    pace.overloaded(101.0)
    assert pace.limit == 2
    for now in (102.0, 103.0, 104.0):
        pace.overloaded(now)
    assert pace.limit == 1
    assert answered(pace, 0.02, 0.02, now=105.0) == 2


def test_slowness_alone_leaves_some_in_flight() -> None:
    """It may be for others' sake, and would not end by asking for less."""
    pace = Pace(32)
    answered(pace, 0.02)
    for now in range(100, 120):
        answered(pace, 3.0, now=float(now))
    assert pace.limit == 4
    assert answered(Pace(2), 0.02, 3.0) == 2
