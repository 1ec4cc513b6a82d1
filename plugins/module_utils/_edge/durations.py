# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Options that are durations."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import durations


def seconds(option: str, value: t.Any) -> float | None:
    """The duration in seconds; ``None`` for ``None`` and the empty string.

    Raises:
        BadOption: the value cannot be parsed.
    """
    try:
        return durations.seconds(value)
    except ValueError:
        raise errors.BadOption(option, value, durations.EXPECTED) from None
