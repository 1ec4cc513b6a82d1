# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a preflight or a gate has to say."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.reasons import Reason

Severity = t.Literal["blocker", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding(Reason):
    """One thing worth knowing before the first write.

    ``object`` is what it is about in words (``Deployment shop/web``), ``nodes`` the nodes it stands against
    (empty: all of them).
    """

    severity: Severity = "blocker"
    object: str = ""
    nodes: tuple[str, ...] = ()

    def shown(self) -> dict[str, str]:
        """As modules return it."""
        # super() without arguments fails in a class with slots: the decorator makes another one.
        return {**Reason.shown(self), "severity": self.severity, "object": self.object}
