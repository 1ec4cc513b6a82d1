# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Lists of names as people write them: a list, or one text with commas, spaces or newlines."""

from __future__ import annotations

import re
import typing as t

SEPARATORS = re.compile(r"[\s,]+")


def names(value: t.Any) -> tuple[str, ...]:
    """The names in their order, each once; nothing for ``None`` and empty texts.

    No Kubernetes name holds a comma or white space, so a list whose items hold them is taken apart
    as well: Ansible makes ``["a b"]`` from the text ``a b``.
    """
    if value is None:
        return ()
    items: t.Iterable[t.Any] = (value,) if isinstance(value, (str, int)) else value
    parts = [part for item in items for part in SEPARATORS.split(str(item)) if part]
    return tuple(dict.fromkeys(parts))
