# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Conditions of nodes in options and variables."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import option_values
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import selectors

EXPECTED = (
    "types of conditions with True or False, such as {'example.com/NetworkReady': 'True'} or "
    "Type=True,Other=False"
)


def read(name: str, value: t.Any) -> dict[str, str]:
    """The status, ``True`` or ``False``, that each type of condition must have,
    from a mapping or a string.

    Raises:
        BadOption: anything else.
    """
    pairs: t.Iterable[tuple[t.Any, t.Any]]
    if isinstance(value, t.Mapping):
        pairs = value.items()
    elif isinstance(value, (str, list, tuple)):
        pairs = (word.partition("=")[::2] for word in option_values.names(value))
    else:
        raise option_values.BadOption(name, value, EXPECTED)
    found = {str(kind): str(status).strip().capitalize() for kind, status in pairs}
    if not all(
        selectors.is_key(kind) and status in ("True", "False") for kind, status in found.items()
    ):
        raise option_values.BadOption(name, value, EXPECTED)
    return found
