# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What becomes of a node with an operator on it, under kubectl drain and under maintain: a row of the guide's table."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from witness.log import Json

from support.lab import Lab
from support.plays import Run

SLACK = 2.0
"""Seconds that endpoints and the witness may be late on a busy machine."""
BOUND = 120
"""Seconds after which kubectl drain gives up."""


def kubectl_drain(lab: Lab, node: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """Its end, and the seconds that it took."""
    began = time.monotonic()
    words = ("--ignore-daemonsets", "--delete-emptydir-data", f"--timeout={BOUND}s")
    drained = lab.run_kubectl("drain", node, *words, timeout=BOUND + 30)
    return drained, time.monotonic() - began


def blockers(run: Run) -> list[str]:
    """The codes of what the plan refused the node for."""
    return [finding["code"] for finding in run.findings if finding["severity"] == "blocker"]


def row(rc: int, seconds: float, dark: float, refused: Sequence[str] = ()) -> Json:
    """The cells of one tool."""
    return {"rc": rc, "seconds": round(seconds, 1), "dark_seconds": round(dark, 2), "blockers": list(refused)}


def remember(title: str, source: str, rows: Json) -> None:
    """Add the rows of both tools to the file that KUBEOPS_OPERATORS names; docs/operators.py makes the table of it."""
    if path := os.environ.get("KUBEOPS_OPERATORS"):
        file = Path(path)
        known = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
        known[title] = {"source": source, **rows}
        file.write_text(json.dumps(known, indent=2) + "\n", encoding="utf-8")
