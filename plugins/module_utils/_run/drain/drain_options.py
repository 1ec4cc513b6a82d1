# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a caller of ``node_drain`` may choose."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import pod_plan

WaitFor = t.Literal["gone", "replacement", "volumes"]


@dataclass(frozen=True, slots=True)
class DrainOptions:
    """Options of the module; times in seconds, ``None`` without a limit."""

    nodes: tuple[str, ...]
    choices: pod_plan.Choices
    grace_period: int | None = None
    order: str = "priority"
    parallel: int = 8
    timeout: float | None = None
    pod_timeout: float | None = None
    wait_for: tuple[WaitFor, ...] = ("gone", "replacement", "volumes")
