# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""An option that a remedy names, as its readers have to write it."""

from __future__ import annotations

import typing as t


def options(**values: bool | str | t.Sequence[str]) -> str:
    """How options are set, in the playbooks and in a module: ``-e maintain_force=true (in a module force: true)``.

    Both, because the reader is not known: playbooks and users' tasks call the same modules, and reports repeat texts.
    """
    outside = " ".join(f"-e maintain_{name}={_plain(value, '{}')}" for name, value in values.items())
    inside = " and ".join(f"{name}: {_plain(value, '[{}]', ', ')}" for name, value in values.items())
    return f"{outside} (in a module {inside})"


def _plain(value: bool | str | t.Sequence[str], around: str, between: str = ",") -> str:
    """As YAML and the command line have it; ``around`` and ``between`` are of lists."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else around.format(between.join(value))


GROWN = f"If a node autoscaler adds nodes for such pods, set {options(node_autoscaler=True)}."
"""The remedy for a pod that fits nowhere, besides making room."""
