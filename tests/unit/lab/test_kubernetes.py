# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The versions of Kubernetes in the lab: the same wherever they are listed, each with a Go module of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[3]
ROLE = ROOT / "roles" / "lab"
OPTION = yaml.safe_load((ROLE / "meta" / "argument_specs.yml").read_text(encoding="utf-8"))["argument_specs"]["main"][
    "options"
]["lab_kubernetes"]


@pytest.mark.parametrize("component", ["kubernetes", "kubelet"])
@pytest.mark.parametrize("version", OPTION["choices"])
def test_each_version_is_built_from_its_own_module(version: str, component: str) -> None:
    minor = ".".join(version.removeprefix("v").split(".")[:2])
    module = (ROLE / "files" / "components" / f"{component}-{minor}" / "go.mod").read_text(encoding="utf-8")
    assert re.search(rf"\bk8s\.io/kubernetes {re.escape(version)}\b", module)
    staged = set(re.findall(r"^replace k8s\.io/\S+ => k8s\.io/\S+ (\S+)$", module, re.MULTILINE))
    assert staged == {version.replace("v1.", "v0.", 1)}, "its staging modules are of the same release"


def test_make_runs_the_tests_on_each_version() -> None:
    listed = re.search(r"^KUBERNETES \?= (.+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert listed
    assert listed[1].split() == OPTION["choices"]


def test_the_default_is_the_version_that_all_other_tests_run_on() -> None:
    defaults = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text(encoding="utf-8"))
    assert defaults["lab_kubernetes"] == OPTION["default"] == "v1.36.3"
