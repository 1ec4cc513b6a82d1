# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Calendar entries, read back by the rules of RFC 5545: unfolded, split and unescaped by a reader of our own."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import announcement

TEXTS = st.text(max_size=300)


def entry(
    summary: str = "", description: str = "", start: float = 1.7e9, end: float = 1.7e9 + 60
) -> announcement.Entry:
    return announcement.Entry("r1@x", 1, 1.7e9, start, end, summary, description, "CONFIRMED")


def properties(content: str) -> dict[str, str]:
    """The properties by name; a folded line is one."""
    lines = content.replace("\r\n ", "").removesuffix("\r\n").split("\r\n")
    return dict(line.split(":", 1) for line in lines)


def unescaped(value: str) -> str:
    """A TEXT value as it was meant (3.3.11)."""
    return re.sub(r"\\(.)", lambda found: "\n" if found[1] == "n" else found[1], value)


def plain(text: str) -> str:
    """What of a text can be in an entry."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n")
    shown = re.sub(r"[\x00-\x09\x0b-\x1f\x7f]", " ", lines)
    return shown.encode(errors="replace").decode()


@given(TEXTS, TEXTS)
def test_any_text_comes_back_as_it_was(summary: str, description: str) -> None:
    found = properties(announcement.calendar(entry(summary, description)))
    assert unescaped(found["SUMMARY"]) == plain(summary)
    assert unescaped(found["DESCRIPTION"]) == plain(description)


@given(TEXTS)
def test_no_line_is_longer_than_75_octets_and_every_one_is_utf8(text: str) -> None:
    data = announcement.calendar(entry(text)).encode()
    assert data.endswith(b"END:VCALENDAR\r\n")
    lines = data.split(b"\r\n")
    assert max(map(len, lines)) <= announcement.OCTETS
    assert all(line.decode() is not None and b"\n" not in line for line in lines)


def test_an_entry_has_what_the_standard_demands() -> None:
    found = properties(announcement.calendar(entry("a;b,c\\d\ne")))
    assert found["UID"] == "r1@x"
    assert (found["DTSTAMP"], found["DTSTART"], found["DTEND"]) == (
        "20231114T221320Z",
        "20231114T221320Z",
        "20231114T221420Z",
    )
    assert found["SUMMARY"] == r"a\;b\,c\\d\ne"


def test_an_entry_does_not_end_before_it_starts() -> None:
    found = properties(announcement.calendar(entry(start=1.7e9, end=1.6e9)))
    assert found["DTEND"] == found["DTSTART"]
