# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When a wave may start: across midnight, across changes of the clock, and never with too little time left."""

from __future__ import annotations

import datetime
import itertools
import zoneinfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import windows

BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Asia/Kolkata", "Australia/Lord_Howe", "America/St_Johns"]
SAT, SUN = 5, 6


def at(text: str, zone: datetime.tzinfo = BERLIN) -> datetime.datetime:
    return datetime.datetime.fromisoformat(text).replace(tzinfo=zone)


def window(*days: int, start: str = "22:00", end: str = "04:00", zone: datetime.tzinfo = BERLIN) -> windows.Window:
    opens, closes = (datetime.time.fromisoformat(text) for text in (start, end))
    return windows.Window(frozenset(days), opens, closes, zone)


WEEKEND = window(SAT, SUN)


@pytest.mark.parametrize(
    ("now", "seconds", "said"),
    [
        pytest.param("2026-11-28 22:00", 60, "", id="it has just opened"),
        pytest.param("2026-11-29 00:30", 60, "", id="after midnight"),
        pytest.param("2026-11-30 03:30", 30 * 60, "", id="after midnight of the last day, to the second"),
        pytest.param(
            "2026-11-28 21:59",
            60,
            "The maintenance window is closed. It opens Sat 2026-11-28 22:00 CET.",
            id="a minute early",
        ),
        pytest.param(
            "2026-11-30 04:00",
            60,
            "The maintenance window is closed. It opens Sat 2026-12-05 22:00 CET.",
            id="it has just closed",
        ),
        pytest.param(
            "2026-11-29 03:50",
            1500,
            "The next wave takes about 25 min, and the maintenance window closes in 10 min (Sun 2026-11-29 04:00 CET). "
            "The next one opens Sun 2026-11-29 22:00 CET.",
            id="too little time is left",
        ),
    ],
)
def test_a_window_across_midnight(now: str, seconds: float, said: str) -> None:
    assert windows.closed([WEEKEND], at(now), seconds) == said


def test_a_window_that_is_never_long_enough_says_so() -> None:
    said = windows.closed([window(SAT, start="22:00", end="22:30")], at("2026-11-28 22:00"), 3600)
    assert "closes in 30 min" in said
    assert "No window of the next two weeks is open that long; the longest one for 30 min" in said
    assert "maintain_serial" in said


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (119, "119 s"),
        (120, "2 min"),
        (7140, "119 min"),
        (7200, "2 h 0 min"),
        (10740, "2 h 59 min"),
        (10800, "3 h 0 min"),
    ],
)
def test_times_are_told_in_the_unit_that_one_would_use(seconds: float, said: str) -> None:
    assert f"takes about {said}," in windows.closed([WEEKEND], at("2026-11-29 03:59"), seconds)


def test_the_next_window_is_one_that_is_long_enough() -> None:
    both = [window(SAT, start="10:00", end="10:30"), window(SUN, start="10:00", end="14:00")]
    assert windows.closed(both, at("2026-11-28 11:00"), 3600).endswith("It opens Sun 2026-11-29 10:00 CET.")
    assert windows.closed(both, at("2026-11-27 11:00"), 60).endswith("It opens Sat 2026-11-28 10:00 CET.")


def test_windows_that_touch_are_one() -> None:
    day = window(*range(7), start="00:00", end="00:00")
    assert windows.closed([day], at("2026-11-28 23:59"), 86400) == ""
    halves = [window(SAT, start="20:00", end="00:00"), window(SUN, start="00:00", end="04:00")]
    assert windows.closed(halves, at("2026-11-28 22:00"), 6 * 3600) == ""
    assert windows.closed(halves, at("2026-11-28 22:00"), 6 * 3600 + 1) != ""


def test_no_windows_are_always_open() -> None:
    assert windows.closed([], at("2026-11-28 22:00"), 1e9) == ""


@pytest.mark.parametrize(
    ("night", "hours"),
    [("2026-03-28", 5), ("2026-10-24", 7), ("2026-11-28", 6)],
    ids=["the clock is set forward", "it is set back", "it is not set"],
)
def test_a_night_is_as_long_as_it_is_on_the_clock_that_is_set(night: str, hours: int) -> None:
    start = at(f"{night} 22:00")
    assert windows.closed([WEEKEND], start, hours * 3600) == ""
    assert windows.closed([WEEKEND], start, hours * 3600 + 1) != ""


def test_a_time_that_the_clock_skips_is_as_if_it_were_not_set_yet() -> None:
    skipped = window(SUN, start="02:30", end="04:00")
    (opens,) = {span.start for span in windows.spans([skipped], at("2026-03-29 00:00")) if span.start.month == 3}
    assert opens == at("2026-03-29 03:30").astimezone(datetime.UTC)
    for end in ("03:15", "03:30"):
        gone = window(SUN, start="02:30", end=end)
        starts = [span.start.astimezone(BERLIN).date() for span in windows.spans([gone], at("2026-03-28 00:00"))]
        assert starts == [datetime.date(2026, 4, 5)], "not on 29 March"


def test_a_time_that_comes_twice_is_its_first_occurrence() -> None:
    twice = window(SUN, start="02:30", end="05:00")
    opens = windows.spans([twice], at("2026-10-25 00:00"))[0].start
    assert opens == datetime.datetime(2026, 10, 25, 0, 30, tzinfo=datetime.UTC)


TIMES = st.times(max_value=datetime.time(23, 59)).map(lambda time: time.replace(second=0, microsecond=0))
WINDOWS = st.lists(
    st.builds(
        windows.Window,
        st.frozensets(st.integers(0, 6), min_size=1),
        TIMES,
        TIMES,
        st.sampled_from(ZONES).map(zoneinfo.ZoneInfo),
    ),
    min_size=1,
    max_size=3,
)
MOMENTS = st.datetimes(datetime.datetime(2025, 1, 1), datetime.datetime(2028, 1, 1), timezones=st.just(datetime.UTC))


def open_by_the_clock(found: windows.Window, now: datetime.datetime) -> bool:
    """Whether the window is open by its wall clock alone, which is right unless the clock is set nearby."""
    local = now.astimezone(found.zone)
    yesterday = (local.weekday() - 1) % 7
    if found.start < found.end:
        return local.weekday() in found.days and found.start <= local.time() < found.end
    late = local.weekday() in found.days and local.time() >= found.start
    return late or (yesterday in found.days and local.time() < found.end)


def clock_is_set(zone: datetime.tzinfo, now: datetime.datetime) -> bool:
    days = [now + datetime.timedelta(days=days) for days in range(-3, 4)]
    return len({day.astimezone(zone).utcoffset() for day in days}) > 1


@settings(max_examples=50, deadline=None)
@given(found=WINDOWS, now=MOMENTS)
def test_it_is_open_when_a_wall_clock_says_so(found: list[windows.Window], now: datetime.datetime) -> None:
    if any(clock_is_set(each.zone, now) for each in found):
        return
    is_open = windows.closed(found, now, 0) == ""
    assert is_open == any(open_by_the_clock(each, now) for each in found)


@settings(max_examples=50, deadline=None)
@given(found=WINDOWS, now=MOMENTS, seconds=st.integers(1, 100_000))
def test_what_starts_ends_in_the_window(found: list[windows.Window], now: datetime.datetime, seconds: int) -> None:
    said = windows.closed(found, now, seconds)
    # No later moment up to the end may find the window closed.
    steps = [now + datetime.timedelta(seconds=seconds * step / 20) for step in range(20)]
    assert said or all(windows.closed(found, step, 0) == "" for step in steps)


def test_windows_that_touch_are_one_and_others_stay_apart() -> None:
    found = [window(SAT, start=start, end=end) for start, end in (("08:00", "09:00"), ("10:00", "12:00"))]
    later = [window(SAT, start=start, end=end) for start, end in (("11:00", "11:30"), ("12:00", "13:00"))]
    spans = windows.spans([*later, *found], at("2026-11-28 00:00"))
    days = [(span.start.astimezone(BERLIN), span.end.astimezone(BERLIN)) for span in spans]
    [*hours] = [(start.hour, end.hour) for start, end in days if start.date() == datetime.date(2026, 11, 28)]
    assert hours == [(8, 9), (10, 13)]


@settings(max_examples=50, deadline=None)
@given(found=WINDOWS, now=MOMENTS)
def test_spans_are_in_order_apart_and_not_empty(found: list[windows.Window], now: datetime.datetime) -> None:
    known = windows.spans(found, now)
    assert known[-1].end > now
    assert all(span.seconds > 0 for span in known)
    assert all(before.end < after.start for before, after in itertools.pairwise(known))


@settings(max_examples=50, deadline=None)
@given(found=WINDOWS, now=MOMENTS, seconds=st.integers(0, 3600))
def test_at_the_time_that_it_names_a_wave_may_start(
    found: list[windows.Window], now: datetime.datetime, seconds: int
) -> None:
    if " opens " not in windows.closed(found, now, seconds):
        return
    opens = [span.start for span in windows.spans(found, now) if span.start > now and span.seconds >= seconds]
    assert windows.closed(found, opens[0], seconds) == ""
