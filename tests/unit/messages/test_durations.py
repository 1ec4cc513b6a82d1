# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Durations as Go writes them."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import durations


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("-0", 0.0),
        ("90s", 90.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        (".5m", 30.0),
        ("1m1s1ms", 61.001),
        ("250us", 0.00025),
        ("3ns", 3e-9),
        ("5\u00b5s", 5e-6),
        ("5\u03bcs", 5e-6),
        ("0", 0.0),
        ("-5m", -300.0),
        ("+5m", 300.0),
        ("5", None),
        ("5 m", None),
        ("m", None),
        ("", None),
        ("5d", None),
        (5, None),
        (None, None),
    ],
)
def test_durations_are_those_of_go(text: t.Any, seconds: float | None) -> None:
    assert durations.go_seconds(text) == (None if seconds is None else pytest.approx(seconds))


@given(st.integers(0, 99), st.integers(0, 59), st.integers(0, 59))
def test_a_duration_is_the_sum_of_its_parts(hours: int, minutes: int, seconds: int) -> None:
    assert durations.go_seconds(f"{hours}h{minutes}m{seconds}s") == hours * 3600 + minutes * 60 + seconds
