# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What summaries are made of: entries of results, traces, findings; and the summary of a start."""

from __future__ import annotations

from typing import Any

from ansible_collections.kubeops.node_maintenance.plugins.filter import maintain_summary

SUMMED = maintain_summary.FilterModule().filters()["maintain_summary"]
BLOCKER = {
    "code": "room",
    "object": "Node n1",
    "severity": "blocker",
    "message": "There is no room.",
    "remedy": "Add a node.",
}
WARNING = {"code": "gone", "severity": "warning", "message": "It goes.", "remedy": ""}


def entry(name: str, *, failed: bool = False, outcome: str = "ok", message: str = "") -> dict[str, Any]:
    return {"name": name, "failed": failed, "outcome": outcome, "message": message}


def trace(what: str, run: str, *nodes: str, alive: bool = False, **more: str) -> dict[str, Any]:
    known = {"by": "", "since": "", "step": "", **more}
    known["kind"] = what.split()[0]
    return {"object": what, "what": "left", "run": run, "nodes": nodes, "alive": alive, **known}


def start(
    plan: dict[str, Any],
    resumable: Any = None,
    traces: Any = (),
    hosts: Any = (),
    **wanted: Any,
) -> dict[str, Any]:
    listed = {"traces": list(traces), "resumable": resumable}
    plan = {"wave_seconds": [10] * len(plan.get("waves") or ()), **plan}
    return dict(SUMMED({"listed": listed, "plan": plan}, "start", {"hosts": list(hosts), "wanted": asked(**wanted)}))


def asked(**wanted: Any) -> dict[str, Any]:
    """The part of the input that a start reads."""
    work = {"has_work": False, "on_hosts": False, "tasks_estimate": 900}
    return {"run": "", "on_blocked": "stop", "window": (), **work, **wanted}
