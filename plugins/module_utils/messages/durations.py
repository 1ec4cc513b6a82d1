# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Durations such as ``90``, ``90s``, ``10m``, ``1h30m``, ``2d``."""

from __future__ import annotations

import re
import typing as t

EXPECTED = 'an integer number of seconds such as 90, or a string such as "90s", "10m" or "1h30m"'
UNITS = {"d": 86400, "h": 3600, "m": 60, "s": 1}
PARTS = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?", re.ASCII)


def seconds(value: t.Any) -> float | None:
    """The duration in seconds; ``None`` for ``None`` and the empty string.

    Raises:
        ValueError: the value cannot be parsed.
    """
    if value is None:
        return None
    # A bool is an int in Python; "timeout: true" is a mistake, not one second.
    text = "" if isinstance(value, bool) else str(value).strip()
    if not isinstance(value, bool) and not text:
        return None
    if text.isascii() and text.isdigit():
        return float(text)
    match = PARTS.fullmatch(text)
    if not text or match is None:
        raise ValueError(f"Expected: {EXPECTED}.")
    return float(
        sum(int(n or 0) * size for n, size in zip(match.groups(), UNITS.values(), strict=True))
    )


# Those of Go, which are in objects of Kubernetes.


NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)"
GO_UNITS = {
    "ns": 1e-9,
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
GO_PART = re.compile(rf"({NUMBER})({'|'.join(sorted(GO_UNITS, key=len, reverse=True))})", re.ASCII)
GO_DURATION = re.compile(rf"[+-]?(?:{GO_PART.pattern})+", re.ASCII)


def go_seconds(text: t.Any) -> float | None:
    """A duration as Go's ``time.ParseDuration`` parses it, or ``None``."""
    if not isinstance(text, str):
        return None
    if text in ("0", "+0", "-0"):
        return 0.0
    if not GO_DURATION.fullmatch(text):
        return None
    total = sum(float(number) * GO_UNITS[unit] for number, unit in GO_PART.findall(text))
    return -total if text.startswith("-") else total
