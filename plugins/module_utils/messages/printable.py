# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The one door for texts that leave the engine, for a screen, a log, a report or a notification.

What others have written into objects is in many of them. Nothing of it may steer a terminal, begin
a line that looks like one of ours, or bury the others.
"""

from __future__ import annotations

import typing as t

LONGEST = 2000
"""Characters of one text; a webhook may answer with a whole page."""
LONGEST_OF_ALL = 4000
"""Characters of a text that is made of several, such as the outcomes of many pods."""


def line(value: str, most: int = LONGEST) -> str:
    """A text as one line that a terminal takes for text: no escapes,
    bidirectional overrides or lone surrogates.
    """
    if not value.isprintable():
        value = _printable(" ".join(value.split()))
    return clipped(value, most)


def document(value: str) -> str:
    """A text of several lines, of which a terminal takes nothing for a command."""
    return "\n".join(
        one if one.isprintable() else _printable(one, "\t") for one in value.split("\n")
    )


def data(value: t.Any, documents: t.Collection[str] = ()) -> t.Any:
    """Plain data whose texts are lines; those below the keys ``documents`` may have several."""
    if isinstance(value, str):
        return line(value, LONGEST_OF_ALL)
    if isinstance(value, t.Mapping):
        return {
            data(key): _documents(inner) if key in documents else data(inner, documents)
            for key, inner in value.items()
        }
    if isinstance(value, (list, tuple, set, frozenset)):
        return [data(inner, documents) for inner in value]
    return value


def clipped(value: str, most: int) -> str:
    """The first ``most`` characters, with dots where more were left out."""
    return value if len(value) <= most else value[:most] + "..."


def _documents(value: t.Any) -> t.Any:
    if isinstance(value, str):
        return document(value)
    if isinstance(value, t.Mapping):
        return {data(key): _documents(inner) for key, inner in value.items()}
    return [_documents(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _printable(value: str, allowed: str = "") -> str:
    return "".join(
        char if char.isprintable() or char in allowed else "\N{REPLACEMENT CHARACTER}"
        for char in value
    )
