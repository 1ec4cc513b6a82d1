# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Why something is not done, failed or waits, and what the reader can do about it."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass

Severity = t.Literal["blocker", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Reason:
    """``code`` is a word of a closed list in the documentation; ``message`` says what is wrong, ``remedy`` what to do.

    Both are whole sentences; ``remedy`` is empty if there is nothing to do.
    """

    code: str
    message: str = ""
    remedy: str = ""

    @property
    def sentence(self) -> str:
        """What is wrong, then what to do."""
        return f"{self.message} {self.remedy}".strip()

    def to_dict(self) -> dict[str, str]:
        """As modules return it."""
        return {"code": self.code, "message": self.message, "remedy": self.remedy}


@dataclass(frozen=True, slots=True)
class Finding(Reason):
    """A result of a preflight check or a gate.

    ``object`` is what it is about as text (``Deployment shop/web``), ``nodes`` the nodes it applies to (empty: all).
    """

    severity: Severity = "blocker"
    object: str = ""
    nodes: tuple[str, ...] = ()

    @classmethod
    def of_node(cls, node: str, code: str, message: str, remedy: str, severity: Severity = "blocker") -> t.Self:
        """About one node."""
        return cls(code, message, remedy, severity, f"Node {node}", (node,))

    def to_dict(self) -> dict[str, str]:
        """As modules return it."""
        # super() without arguments fails in a class with slots: the decorator makes another one.
        return {**Reason.to_dict(self), "severity": self.severity, "object": self.object}


@dataclass(frozen=True, slots=True)
class Blocked(Reason):
    """Why a node's drain does not move on: ``who`` waits (pods, or the node), and since when (RFC 3339)."""

    who: str = ""
    node: str = ""
    since: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Identifies the reason, whatever numbers are in it."""
        return self.node, re.sub("[0-9]+", "0", self.message)

    @property
    def sentence(self) -> str:
        """Who waits since when, for what, and what helps."""
        return f"{self.who}, since {self.since}: {Reason(self.code, self.message, self.remedy).sentence}"

    def to_dict(self) -> dict[str, str]:
        """As announcements have it."""
        return {"node": self.node, "who": self.who, "since": self.since, **Reason.to_dict(self)}
