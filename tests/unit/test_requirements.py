# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What users install with pip, and what they are told, is what the collection says that it needs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from packaging import specifiers

ROOT = Path(__file__).parents[2]
REQUIRED = yaml.safe_load((ROOT / "meta/runtime.yml").read_text(encoding="utf-8"))["requires_ansible"]
TOLD = ["README.md", "README.zh-CN.md", "docs/docsite/rst/guide_start.rst", "docs/docsite/rst/guide_start_zh.rst"]


def text(path: str) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


def test_requirements_name_ansible_core_with_the_floor_of_the_collection() -> None:
    lines = text("requirements.txt").splitlines()
    assert [line for line in lines if line.startswith("ansible-core")] == [f"ansible-core{REQUIRED}"]


def test_an_execution_environment_has_the_same_floor() -> None:
    built = yaml.safe_load(text("awx/execution-environment/execution-environment.yml"))
    assert built["dependencies"]["ansible_core"]["package_pip"] == f"ansible-core{REQUIRED}"


@pytest.mark.parametrize("version", ["2.16.0", "2.16.13", "2.17.0", "2.17.14", "2.18.0"])
def test_no_ansible_core_is_admitted_that_takes_what_hosts_say_for_templates(version: str) -> None:
    """CVE-2024-11079; the last of 2.17 has the fix, and no support any more."""
    assert not specifiers.SpecifierSet(REQUIRED).contains(version)


@pytest.mark.parametrize("version", ["2.16.14", "2.16.19", "2.18.1", "2.19.0", "2.22.0"])
def test_all_others_are_admitted(version: str) -> None:
    assert specifiers.SpecifierSet(REQUIRED).contains(version)


@pytest.mark.parametrize("path", TOLD)
def test_users_are_told_the_floors(path: str) -> None:
    assert {"2.16.14", "2.18.1"} <= set(re.findall(r"\b2\.\d+\.\d+\b", text(path)))


def test_the_floors_of_ansible_core_and_of_the_client_are_tested_together() -> None:
    floors = re.search(r"^kubernetes>=(\S+)$", text("requirements.txt"), re.MULTILINE)
    assert floors
    assert f'Leg(core="2.16.14", python="3.11", client="{floors[1]}"' in text("noxfile.py")


def test_hooks_before_a_commit_have_the_versions_of_all_other_checks() -> None:
    hooks = yaml.safe_load(text(".pre-commit-config.yaml"))["repos"][0]["hooks"]
    pins = [re.sub(r"\[.*\]", "", pin) for hook in hooks for pin in hook["additional_dependencies"]]
    assert pins
    assert set(pins) <= set(text("constraints.txt").splitlines())
