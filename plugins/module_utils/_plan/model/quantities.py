# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Amounts of resources as the API writes them (``resource.Quantity``)."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping
from fractions import Fraction

SUFFIXES: Mapping[str, Fraction] = {
    "": Fraction(1),
    **{s: Fraction(1000) ** (i - 3) for i, s in enumerate(("n", "u", "m"))},
    **{s: Fraction(1000) ** (i + 1) for i, s in enumerate(("k", "M", "G", "T", "P", "E"))},
    **{s: Fraction(1024) ** (i + 1) for i, s in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"))},
}
_QUANTITY = re.compile(r"([+-]?[0-9.]+)(?:[eE]([+-]?[0-9]+)|([numkKMGTPE]i?|))")


def quantity(text: str | int | float) -> Fraction:
    """A resource quantity as an exact number.

    Raises:
        ValueError: the text is not a quantity.
    """
    found = _QUANTITY.fullmatch(str(text))
    if not found or (found[3] or "") not in SUFFIXES:
        raise ValueError(f"{text!r} is not a resource quantity")
    return Fraction(found[1]) * Fraction(10) ** int(found[2] or 0) * SUFFIXES[found[3] or ""]


@functools.lru_cache(maxsize=65536)
def counted(resource: str, text: str | int | float) -> int:
    """The amount as the scheduler counts it: rounded up, CPU in thousandths of a core."""
    return math.ceil(quantity(text) * (1000 if resource == "cpu" else 1))
