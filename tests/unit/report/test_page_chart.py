# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The instants below a chart."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import page_chart

DAY = 86400.0


@pytest.mark.parametrize(
    ("seconds", "relative", "labels"),
    [
        (3.0, True, ["0.0 s", "0.5 s", "1.0 s", "1.5 s", "2.0 s", "2.5 s"]),
        (6.0, True, ["0 s", "1 s", "2 s", "3 s", "4 s", "5 s"]),
        (20.0, False, ["00:00:00", "00:00:05", "00:00:10", "00:00:15"]),
        (300.0, True, ["0 min", "1 min", "2 min", "3 min", "4 min"]),
        (18000.0, True, ["0 min", "60 min", "120 min", "180 min", "240 min"]),
        (600.0, False, ["00:00", "00:02", "00:04", "00:06", "00:08"]),
        (30 * DAY, False, ["01-01", "01-06", "01-11", "01-16", "01-21", "01-26"]),
    ],
)
def test_a_few_round_instants(seconds: float, relative: bool, labels: list[str]) -> None:
    ticks = page_chart.Axis([0.0], [seconds]).ticks(relative=relative)
    assert [label for _at, label in ticks] == labels


def test_nothing_is_too_short_or_too_far_to_the_right_to_be_seen() -> None:
    axis = page_chart.Axis([0.0], [10.0])
    assert axis.extent(2.0, 4.0) == (20.0, 20.0)
    assert axis.extent(10.0, 10.0) == (100 - page_chart.LEAST_WIDTH, page_chart.LEAST_WIDTH)


@pytest.mark.parametrize("seconds", [0.0, 0.0001])
def test_a_period_without_length_has_its_start_alone(seconds: float) -> None:
    axis = page_chart.Axis([5.0], [5.0 + seconds])
    assert axis.ticks() == [(0.0, "00:00:05")]
    assert axis.extent(5.0, 5.0) == (0.0, page_chart.LEAST_WIDTH)


def test_ticks_are_round_times_of_day_and_begin_at_the_left_edge_or_after_it() -> None:
    axis = page_chart.Axis([63.0], [123.0])
    assert axis.ticks() == [
        (11.667, "00:01:10"),
        (28.333, "00:01:20"),
        (45.0, "00:01:30"),
        (61.667, "00:01:40"),
        (78.333, "00:01:50"),
    ]
    assert axis.ticks(relative=True)[1] == (16.667, "10 s")
    assert page_chart.Axis([60.0], [120.0]).ticks()[0] == (0.0, "00:01:00")


@pytest.mark.parametrize(
    ("starts", "ends", "at"),
    [
        pytest.param([0.0], [50.0], {-1.0: 0.0, 0.0: 0.0, 25.0: 50.0, 50.0: 100.0, 60.0: 100.0}, id="one period"),
        pytest.param(
            [0.0, 100.0],
            [10.0, 110.0],
            {5.0: 24.7, 10.0: 49.4, 50.0: 49.4, 100.0: 50.6, 105.0: 75.3, 110.0: 100.0},
            id="a gap of 1.2 percent",
        ),
        pytest.param([0.0, 9.0], [0.0, 9.0], {0.0: 0.0, 9.0: 1.2}, id="periods without length"),
    ],
)
def test_periods_stand_side_by_side(starts: list[float], ends: list[float], at: dict[float, float]) -> None:
    axis = page_chart.Axis(starts, ends)
    assert {instant: axis.at(instant) for instant in at} == at


def test_the_gaps_of_many_periods_take_12_percent() -> None:
    starts = [100.0 * n for n in range(24)]
    axis = page_chart.Axis(starts, [start + 10 for start in starts])
    assert (axis.at(10.0), axis.at(100.0), axis.at(2310.0)) == (3.688, 4.188, 100.0)


def test_periods_have_their_time_of_day_where_there_is_room() -> None:
    starts = [0.0, 1000.0, 2000.0, 3000.0]
    axis = page_chart.Axis(starts, [130.0, 1010.0, 2740.0, 3120.0])
    assert [axis.at(start) for start in starts] == [0.0, 13.732, 15.896, 88.432]
    assert axis.clocks() == [(0.0, "00:00:00"), (15.9, "00:33:20")]
