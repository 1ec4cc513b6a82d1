# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Amounts of resources as the API writes them (``resource.Quantity``)."""

from __future__ import annotations

import decimal
import functools
import math
import re
import typing as t
from collections.abc import Mapping
from fractions import Fraction

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import decoding

SUFFIXES: Mapping[str, Fraction] = {
    "": Fraction(1),
    **{s: Fraction(1000) ** (i - 3) for i, s in enumerate(("n", "u", "m"))},
    **{s: Fraction(1000) ** (i + 1) for i, s in enumerate(("k", "M", "G", "T", "P", "E"))},
    **{s: Fraction(1024) ** (i + 1) for i, s in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))},
}
_QUANTITY = re.compile(r"([+-]?[0-9.]+)(?:[eE]([+-]?[0-9]+)|([KMGTPE]i|[numkMGTPE]|))")
_MOST = Fraction(decoding.LARGEST)
_BOUNDED = decimal.Context(prec=40, Emax=40, Emin=-40, rounding=decimal.ROUND_UP, traps=[])
"""Far more than a quantity has, with and without its suffix:
larger numbers become infinite, smaller ones tiny.
"""


def quantity(text: str | int | float) -> Fraction:
    """A resource quantity as an exact number; larger ones than the API can count are capped.

    An API server stores ``1e3000000`` of whoever may create a pod,
    and its digits alone take a second.

    Raises:
        UnreadableError: the text is not a quantity.
    """
    number, suffix = _parsed(text)
    if number.is_infinite():
        return Fraction(decoding.LARGEST if number > 0 else -decoding.LARGEST)
    return max(min(Fraction(number) * SUFFIXES[suffix], _MOST), -_MOST)


def _parsed(text: str | int | float) -> tuple[decimal.Decimal, str]:
    found = _QUANTITY.fullmatch(str(text))
    number = (
        _BOUNDED.create_decimal(f"{found[1]}e{found[2] or 0}") if found else decimal.Decimal("NaN")
    )
    if not found or number.is_nan():
        raise decoding.UnreadableError(f"{str(text)[:40]!r} is not a resource quantity")
    return number, found[3] or ""


def readable(text: t.Any) -> bool:
    """Whether it is a quantity."""
    try:
        return bool(_parsed(text))
    except decoding.UnreadableError:
        return False


@functools.lru_cache(maxsize=65536)
def counted(resource: str, text: str | int | float) -> int:
    """The amount as the scheduler counts it: rounded up, CPU in thousandths of a core."""
    return math.ceil(quantity(text) * (1000 if resource == "cpu" else 1))
