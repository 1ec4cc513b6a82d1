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
