# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a preflight or a gate has to say."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

Severity = t.Literal["blocker", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing worth knowing before the first write.

    ``code`` is a word of the closed list in the documentation, ``object`` what it is about in words
    (``Deployment shop/web``), ``nodes`` the nodes it stands against (empty: all of them).
    """

    code: str
    severity: Severity
    object: str
    message: str
    remedy: str = ""
    nodes: tuple[str, ...] = ()

    def shown(self) -> dict[str, str]:
        """As modules return it."""
        return {
            "code": self.code,
            "severity": self.severity,
            "object": self.object,
            "message": self.message,
            "remedy": self.remedy,
        }
