# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The controllers whose taints ``exact`` leaves are the same in the code, in the guide and in the module's options."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import yaml

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import node_taints
from ansible_collections.kubeops.node_maintenance.plugins.modules import node_taint

DOCS = runpy.run_path(str(Path(__file__).parents[3] / "docs/taint_owners.py"))
KEYS = [key for owner in node_taints.OWNERS for key in owner.keys]


def test_the_guide_has_the_table_as_it_is() -> None:
    guide = DOCS["GUIDE"].read_text(encoding="utf-8")
    assert all(f"``{key}``" in DOCS["table"]() for key in KEYS)
    assert DOCS["written"](guide) == guide, "python docs/taint_owners.py writes it anew"


def test_the_module_names_the_same_keys() -> None:
    told = yaml.safe_load(node_taint.DOCUMENTATION)["options"]["state"]["description"]
    (controllers,) = [text for text in told if text.startswith("The controllers are")]
    assert re.findall(r"C\(([^)]+)\)", controllers) == KEYS
