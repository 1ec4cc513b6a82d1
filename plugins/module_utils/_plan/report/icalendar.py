# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A calendar with one entry, as RFC 5545 has it."""

from __future__ import annotations

import datetime
import typing as t
from dataclasses import dataclass

PRODUCT = "-//kubeops//node_maintenance//EN"
OCTETS = 75
"""The longest line, without its line break (RFC 5545, 3.1)."""

Status = t.Literal["TENTATIVE", "CONFIRMED", "CANCELLED"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A calendar entry. ``uid`` is the same for all versions of it, and the newest has the highest ``sequence``.

    ``stamp`` is when this version was made; all times are seconds since the epoch.
    """

    uid: str
    sequence: int
    stamp: float
    start: float
    end: float
    summary: str
    description: str
    status: Status


def calendar(entry: Entry) -> str:
    """The content of an ``.ics`` file. It blocks nobody's time, and an end before the start counts as the start."""
    lines = [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        f"PRODID:{PRODUCT}",
        "BEGIN:VEVENT",
        f"UID:{escaped(entry.uid)}",
        f"SEQUENCE:{entry.sequence}",
        f"DTSTAMP:{moment(entry.stamp)}",
        f"DTSTART:{moment(entry.start)}",
        f"DTEND:{moment(max(entry.start, entry.end))}",
        f"SUMMARY:{escaped(entry.summary)}",
        f"DESCRIPTION:{escaped(entry.description)}",
        f"STATUS:{entry.status}",
        "TRANSP:TRANSPARENT",
        "END:VEVENT",
        "END:VCALENDAR",
    ]
    return "".join(folded(line) + "\r\n" for line in lines)


def moment(at: float) -> str:
    """A date-time in UTC, to the second (3.3.5)."""
    return datetime.datetime.fromtimestamp(at, datetime.UTC).strftime("%Y%m%dT%H%M%SZ")


def escaped(text: str) -> str:
    """A value of type TEXT (3.3.11). Control characters, which it may not contain, become spaces."""
    plain = text.replace("\r\n", "\n").replace("\r", "\n")
    plain = "".join(" " if (ord(char) < 32 and char != "\n") or ord(char) == 127 else char for char in plain)
    plain = plain.encode(errors="replace").decode()
    for char in ("\\", ";", ","):
        plain = plain.replace(char, f"\\{char}")
    return plain.replace("\n", "\\n")


def folded(line: str) -> str:
    """The line with a break and a space wherever it would be longer than 75 octets; no character is cut in two."""
    parts, size = [""], 0
    for char in line:
        octets = len(char.encode())
        if size + octets > OCTETS:
            parts.append(" ")
            size = 1
        parts[-1] += char
        size += octets
    return "\r\n".join(parts)
