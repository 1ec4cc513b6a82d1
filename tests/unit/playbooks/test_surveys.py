# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The surveys of AWX's job templates ask for all that is documented, and an unanswered question means: not set."""

from __future__ import annotations

import importlib.util
import types
from pathlib import Path

import pytest
import yaml

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks import inputs

HERE = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def surveys() -> types.ModuleType:
    spec = importlib.util.spec_from_file_location("surveys", HERE / "docs/surveys.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_they_are_as_documented(surveys: types.ModuleType) -> None:
    assert surveys.SURVEYS.read_text(encoding="utf-8") == surveys.text(), "python docs/surveys.py writes them anew"


def test_maintain_asks_for_every_variable(surveys: types.ModuleType) -> None:
    assert set(surveys.surveys()["maintain"]) == {f"maintain_{name}" for name in inputs.VARIABLES}
    assert "maintain_tasks" in surveys.surveys()["plan"]
    assert "maintain_tasks" not in surveys.surveys()["release"]
    assert len(surveys.surveys()["recover"]) == 4


@pytest.mark.parametrize("playbook", ["plan", "maintain", "evacuate", "release"])
def test_every_playbook_asks_for_nodes(surveys: types.ModuleType, playbook: str) -> None:
    assert {"maintain_nodes", "maintain_node_selector"} <= set(surveys.surveys()[playbook])


@pytest.mark.parametrize("playbook", ["plan", "maintain", "evacuate", "release"])
def test_answers_are_valid(surveys: types.ModuleType, playbook: str) -> None:
    found = yaml.safe_load(surveys.text())
    questions = [found["awx_questions"][name] for name in found["awx_asked"][playbook]]
    empty = {question["variable"]: question["default"] for question in questions}
    unset = inputs.read({**empty, "maintain_nodes": "a"}, playbook)
    assert unset == inputs.read({"maintain_nodes": "a"}, playbook)
    assert unset["errors"] == []
    for question in questions:
        for choice in question.get("choices", []):
            told = inputs.read({"maintain_nodes": "a", question["variable"]: choice}, playbook)["errors"]
            assert [error for error in told if "must be" in error or choice in error.split("'")] == []
