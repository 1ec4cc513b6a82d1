# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An option has one source; its copies in READMEs, defaults, role specifications and guides agree with it."""

from __future__ import annotations

import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import arguments as access
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import option_values, specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import arguments as descheduler
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import arguments as drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    arguments_cordon,
    arguments_ready,
    arguments_taint,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import arguments as plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks import inputs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import arguments_event
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import arguments as guard

HERE = Path(__file__).parents[3]
DOCS = runpy.run_path(str(HERE / "docs/roles.py"))
BEHIND: dict[str, specs.ModuleSpec] = {
    "access": access.SPEC,
    "announce": arguments_event.SPEC,
    "cordon": arguments_cordon.SPEC,
    "descheduler": descheduler.SPEC,
    "migrate": drain.SPEC,
    "preflight": plan.SPEC,
    "protect": guard.SPEC,
    "taint": arguments_taint.SPEC,
    "uncordon": arguments_cordon.SPEC,
    "verify": arguments_ready.SPEC,
}
"""Each role's module."""
ROW = re.compile(r"   \* - ``maintain_(\w+)``\n     - (.*(?:\n       .*)*)\n     - ")
GUIDE = (HERE / "docs/docsite/rst/guide_input.rst").read_text(encoding="utf-8").partition("As an AWX survey")[0]


def test_every_readme_but_that_of_the_lab_has_the_table() -> None:
    assert {path.parent.name for path in DOCS["readmes"]()} == set(BEHIND)


@pytest.mark.parametrize("role", BEHIND)
def test_a_readme_has_the_options_of_its_role(role: str) -> None:
    readme = (HERE / "roles" / role / "README.md").read_text(encoding="utf-8")
    assert DOCS["TABLE"].findall(readme) == [DOCS["table"](role)], "python docs/roles.py writes it anew"


@pytest.mark.parametrize("role", BEHIND)
def test_the_defaults_of_a_role_are_those_of_its_specification(role: str) -> None:
    defaults = yaml.safe_load((HERE / "roles" / role / "defaults/main.yml").read_text(encoding="utf-8"))
    options: dict[str, dict[str, Any]] = DOCS["options"](role)
    assert set(defaults) == {name for name, option in options.items() if not option.get("required")}
    told = {name: option["default"] for name, option in options.items() if "default" in option}
    assert told == {name: defaults[name] for name in told}


@pytest.mark.parametrize("role", BEHIND)
def test_an_option_of_a_role_is_that_of_its_module(role: str) -> None:
    of_module = BEHIND[role].options
    for name, option in DOCS["options"](role).items():
        behind = of_module.get(name.removeprefix(f"{role}_"))
        if behind is not None and name != "descheduler_config":
            assert option["type"] == behind["type"], name
            assert option.get("choices") == behind.get("choices"), name
            if option.get("default") and "default" in behind:
                assert option["default"] == behind["default"], name


def test_the_guide_has_every_variable_once_with_its_default() -> None:
    rows = ROW.findall(GUIDE)
    assert sorted(name for name, _told in rows) == sorted(inputs.VARIABLES)
    for name, told in rows:
        variable = inputs.VARIABLES[name]
        default = re.search(r"; ``(.+)``$", told)
        if default and variable.unset is not None:
            assert variable.convert(name, default[1]) == variable.unset, name
        else:
            assert not variable.unset, name


@pytest.mark.parametrize("spec", [plan.SPEC, guard.SPEC, arguments_cordon.SPEC, arguments_ready.SPEC])
def test_a_variable_has_the_choices_and_the_default_of_its_option(spec: specs.ModuleSpec) -> None:
    for name, option in spec.options.items():
        variable = inputs.VARIABLES.get(name)
        if variable is None or option["type"] != "str":
            continue
        if choices := option.get("choices"):
            assert [variable.convert(name, choice) for choice in choices] == choices
            with pytest.raises(option_values.BadOption, match=re.escape(", ".join(choices))):
                variable.convert(name, "other")
        if option.get("default") and name not in spec.durations:
            assert variable.unset == option["default"], name
