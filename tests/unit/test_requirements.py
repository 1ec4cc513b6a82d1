# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What users install with pip is what the collection says that it needs."""

from __future__ import annotations

from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]


def test_requirements_name_ansible_core_with_the_floor_of_the_collection() -> None:
    lines = (ROOT / "requirements.txt").read_text(encoding="utf-8").splitlines()
    runtime = yaml.safe_load((ROOT / "meta/runtime.yml").read_text(encoding="utf-8"))
    assert [line for line in lines if line.startswith("ansible-core")] == [f"ansible-core{runtime['requires_ansible']}"]
