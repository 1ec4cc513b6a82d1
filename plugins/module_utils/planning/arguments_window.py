# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``maintain_window``: when waves may start and end."""

from __future__ import annotations

import datetime
import difflib
import re
import typing as t
import zoneinfo
from contextlib import suppress

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import option_values
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import windows

with suppress(ImportError):
    import yaml

KEYS = ("days", "start", "end", "tz")
EXPECTED = (
    'a window such as {days: [sat, sun], start: "22:00", end: "04:00", tz: '
    "Europe/Berlin}, or a list of such"
)


def read(name: str, value: t.Any) -> list[dict[str, t.Any]]:
    """The windows, with all keys and with days as numbers (0 is Monday),
    from mappings or their YAML text.

    Raises:
        BadOption: a key does not exist or is missing, or its value cannot be read.
    """
    given = value
    if isinstance(value, str):
        try:
            given = yaml.safe_load(value)
        except yaml.YAMLError:
            raise option_values.BadOption(name, value, EXPECTED) from None
    items: t.Any = [given] if isinstance(given, t.Mapping) else given
    if not isinstance(items, t.Sequence) or not all(isinstance(item, t.Mapping) for item in items):
        raise option_values.BadOption(name, value, EXPECTED)
    if not isinstance(given, t.Sequence):
        return [_window(name, items[0])]
    return [_window(f"{name}[{index}]", item) for index, item in enumerate(items)]


def closed(given: t.Iterable[t.Mapping[str, t.Any]], now: float | str, seconds: float) -> str:
    """``windows.closed`` for results of ``read``; ``now`` is in seconds since the epoch."""
    at = datetime.datetime.fromtimestamp(float(now), datetime.UTC)
    return windows.closed(_windows(given), at, seconds)


def fitting(
    given: t.Iterable[t.Mapping[str, t.Any]], now: float | str, seconds: float
) -> tuple[datetime.datetime, datetime.datetime] | None:
    """Start and end of ``windows.fitting``; ``now`` is in seconds since the epoch."""
    at = datetime.datetime.fromtimestamp(float(now), datetime.UTC)
    span = windows.fitting(_windows(given), at, seconds)
    return (span.start, span.end) if span else None


def _windows(given: t.Iterable[t.Mapping[str, t.Any]]) -> list[windows.Window]:
    found = []
    for each in given:
        start, end = (datetime.time.fromisoformat(each[key]) for key in ("start", "end"))
        days = frozenset(each["days"])
        zone = zoneinfo.ZoneInfo(each["tz"])
        found.append(windows.Window(days, start, end, zone))
    return found


def _window(name: str, item: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    for key in item:
        if key not in KEYS:
            close = difflib.get_close_matches(str(key), KEYS, n=1)
            expected = close[0] if close else f"one of {', '.join(KEYS)}"
            raise option_values.BadOption(f"{name}.{key}", item[key], expected)
    missing = [key for key in ("start", "end", "tz") if item.get(key) in (None, "")]
    if missing:
        expected = f"{' and '.join(missing)} as well: {EXPECTED}"
        raise option_values.BadOption(name, dict(item), expected)
    return {
        "days": _days(f"{name}.days", item.get("days")),
        "start": _time(f"{name}.start", item["start"]),
        "end": _time(f"{name}.end", item["end"]),
        "tz": _zone(f"{name}.tz", item["tz"]),
    }


def _days(name: str, value: t.Any) -> list[int]:
    """Names such as ``sat``, ``Saturday`` and ranges such as ``mon-fri``; every day by default."""
    found: set[int] = set()
    for word in option_values.names(value) or ("mon-sun",):
        ends = [part[:3].lower() for part in word.split("-")]
        if len(ends) > 2 or any(end not in windows.DAYS for end in ends):
            days = ", ".join(windows.DAYS)
            expected = f"days such as sat, or mon-fri; the days are {days}"
            raise option_values.BadOption(name, value, expected)
        first, last = windows.DAYS.index(ends[0]), windows.DAYS.index(ends[-1])
        found |= {day % 7 for day in range(first, last + (7 if last < first else 0) + 1)}
    return sorted(found)


def _time(name: str, value: t.Any) -> str:
    """A time of day as HH:MM; 24:00 is 00:00."""
    # YAML 1.1 reads 22:00 without quotes as a number in base 60, which is then minutes.
    text = str(value)
    if isinstance(value, int) and not isinstance(value, bool):
        text = f"{value // 60}:{value % 60:02}"
    if found := re.fullmatch(r"(\d{1,2}):(\d{2})", text.strip(), re.ASCII):
        hour, minute = int(found[1]), int(found[2])
        if (hour < 24 and minute < 60) or (hour, minute) == (24, 0):
            return f"{hour % 24:02}:{minute:02}"
    raise option_values.BadOption(name, value, 'a time of day such as "22:00"')


def _zone(name: str, value: t.Any) -> str:
    with suppress(zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return zoneinfo.ZoneInfo(str(value).strip()).key
    known = zoneinfo.available_timezones()
    close = difflib.get_close_matches(str(value), known, n=3)
    hint = " or ".join(close) or "Europe/Berlin or UTC"
    if not known:
        hint += "; this machine has no time zones, install the Python package tzdata"
    raise option_values.BadOption(name, value, f"a time zone such as {hint}")
