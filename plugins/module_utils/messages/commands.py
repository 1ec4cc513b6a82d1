# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Commands that messages tell to give, with nothing in them that others could
have made part of one.
"""

from __future__ import annotations

import re
import typing as t

_PLAYBOOK = "ansible-playbook kubeops.node_maintenance."
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")

UNDO_ALL = f"{_PLAYBOOK}recover -e recover_state=undone"
"""Undoes what all dead runs left."""


def undo(run: str) -> str:
    """Undoes what the run left."""
    return f"{_PLAYBOOK}recover -e recover_run={_named(run)}"


def resume(run: str) -> str:
    """What has to follow the command that is given again, to resume this run."""
    return f"-e maintain_run={_named(run)}"


def release(nodes: t.Iterable[str]) -> str:
    """Returns the nodes to service."""
    return f"{_PLAYBOOK}release -e maintain_nodes={','.join(map(_named, nodes))}"


def evacuate(nodes: t.Iterable[str]) -> str:
    """Takes the nodes out of service for good."""
    return f"{_PLAYBOOK}evacuate -e maintain_nodes={','.join(map(_named, nodes))}"


def _named(name: str) -> str:
    return name if _ID.fullmatch(name) else "<name>"
