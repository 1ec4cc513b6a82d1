# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a fake node can be made to do, by the lab's switches (annotations on the Node)."""

from __future__ import annotations

from witness.api import Api
from witness.log import Json

SWITCH = "lab.kubeops.io/node"
REBOOT = "lab.kubeops.io/reboot"


def path(name: str) -> str:
    return f"/api/v1/nodes/{name}"


def switch(api: Api, name: str, state: str | None, **more: str) -> None:
    """`not-ready`, `down`, `reboot`, or None for a node that comes back."""
    api.patch(path(name), {"metadata": {"annotations": {SWITCH: state, **more}}})


def reboot(api: Api, name: str, lasting: str = "2s") -> None:
    """Down for a moment, then Ready with a new bootID."""
    switch(api, name, "reboot", **{REBOOT: lasting})


def ready_condition(node: Json) -> str:
    conditions = node.get("status", {}).get("conditions") or []
    return next((str(c["status"]) for c in conditions if c["type"] == "Ready"), "Unknown")


def answers(api: Api, name: str) -> bool:
    """Whether the host behind a node can be reached: not while it is dead or boots."""
    notes = api.get(path(name))["metadata"].get("annotations") or {}
    return notes.get(SWITCH) not in ("down", "reboot")


def is_up(api: Api, name: str) -> bool:
    """Ready, and not about to go down."""
    node = api.get(path(name))
    notes = node["metadata"].get("annotations") or {}
    return ready_condition(node) == "True" and SWITCH not in notes


def boot_id(api: Api, name: str) -> str:
    given: str = api.get(path(name))["status"]["nodeInfo"]["bootID"]
    return given
