# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""All behaviours, by name, and what kube-apiserver v1.36.3 with its controllers and the lab's pods showed for each."""

from __future__ import annotations

import json
import typing as t
from pathlib import Path

from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.behaviours import (
    budgeting,
    controlling,
    ending,
    evicting,
    here,
    writing,
)

FILES = (writing, ending, evicting, controlling, budgeting)
BEHAVIOURS = here.BEHAVIOURS
RECORDED: dict[str, t.Any] = json.loads(Path(__file__).with_name("recorded.json").read_text(encoding="utf-8"))
