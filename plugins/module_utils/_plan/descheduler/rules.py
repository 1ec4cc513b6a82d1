# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Findings about a descheduler's configuration."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import schemas
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import reasons


@dataclass(frozen=True, slots=True)
class Fault(reasons.Reason):
    """An error or a warning. ``code`` is one of the rules that the documentation lists.

    ``path`` is the location, such as ``profiles[0].plugins.evict``, ``real`` what the descheduler itself does.
    Faults with ``decoding`` show up while the text is decoded, before any value is validated.
    """

    path: str = ""
    real: schemas.Real = "refuses"
    severity: t.Literal["error", "warning"] = "error"
    decoding: bool = False

    def to_dict(self) -> dict[str, str]:
        """As the module returns it."""
        reason = reasons.Reason.to_dict(self)
        rule = reason.pop("code")
        return {"path": self.path, "rule": rule, "severity": self.severity, **reason, "real": self.real}


Faults = t.Iterator[Fault]


def warning(code: str, message: str, remedy: str = "", path: str = "") -> Fault:
    """A finding that does not stop a rollout; the descheduler starts."""
    return Fault(code, message, remedy, path, "starts", "warning")


def required(path: str, real: schemas.Real = "refuses") -> Fault:
    """A missing value; the last part of ``path`` names it."""
    return Fault("required", f"{path.rpartition('.')[2]} is required.", "", path, real)
