# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Lists of names, given as a list or as a string separated by commas, spaces or newlines."""

from __future__ import annotations

import re
import typing as t

SEPARATORS = re.compile(r"[\s,]+")


def names(value: t.Any) -> tuple[str, ...]:
    """The names in order, without duplicates.

    Items of a list are split too, because Ansible turns the string ``a b`` into ``["a b"]``. No name in Kubernetes
    contains a comma or white space.
    """
    if value is None:
        return ()
    items: t.Iterable[t.Any] = (value,) if isinstance(value, (str, int)) else value
    parts = [part for item in items for part in SEPARATORS.split(str(item)) if part]
    return tuple(dict.fromkeys(parts))
