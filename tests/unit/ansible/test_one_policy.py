# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every call of a playbook that plans or moves pods gets the same options: what was planned is what is done."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import arguments as drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import arguments as plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks import inputs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import arguments as guard
from ansible_collections.kubeops.node_maintenance.tests.unit.playbooks import test_wave_fact as canned

MODULES: dict[str, specs.ModuleSpec] = {spec.name: spec for spec in (plan.SPEC, guard.SPEC, drain.SPEC)}
OF_A_CALL = {"nodes", "node_selector", "run", "timeout", "announce_events"}
"""What differs from call to call: which nodes, its limit of time, and what is announced."""
GIVEN: dict[str, Any] = {
    "backend": "koordinator",
    "fallback": "fail",
    "koordinator_namespace": "moves",
    "koordinator_deployment": "koord",
    "koordinator_config_map": "koord-config",
    "koordinator_key": "koord.yaml",
    "job_wait": 120,
    "allow_interruption": True,
    "node_autoscaler": True,
    "method": "surge",
    "reactive_budgets": ["app=web", "tier in (a, b)"],
    "operator_budget_wait": 660,
    "load_balancer_wait": 12,
    "settle": 7,
    "alarm_after": 61,
    "force": True,
    "delete_emptydir_data": True,
    "fenced": ["d"],
    "rules": [{"name": "late", "pods": "app=db", "last": True}],
    "before_pod": [{"pods": "app=queue", "tasks": "work.yml"}],
    "after_pod": [{"pods": "app=queue", "tasks": "work.yml"}],
    "on_blocked": "skip",
    "order": "name",
    "zone_key": "zone",
    "max_per_zone": 1,
    "kured": "reboots/kured",
    "node_conditions": True,
    "planned_notice": 30,
    "timeout": 7200,
}
"""Of each option another value than its default."""
Calls = list[tuple[str, dict[str, Any]]]


def shared(module: str) -> set[str]:
    """The options of the module that a variable of the playbooks stands for."""
    others = {"order"} if module == "node_drain" else set()
    # A plan is told the limit that the other calls will have.
    plans = {"timeout"} if module == "maintenance_plan" else set()
    return (set(inputs.VARIABLES) & set(MODULES[module].options) - OF_A_CALL - others) | plans


def calls(folder: Path, *words: str, **more: Any) -> Calls:
    """The calls of a playbook that plan or move pods."""
    done = canned.played(
        folder, "-e", json.dumps({f"maintain_{name}": value for name, value in GIVEN.items()}), *words, **more
    )
    assert (folder / "arguments").is_file(), done.stdout + done.stderr
    found = [json.loads(line) for line in (folder / "arguments").read_text().splitlines()]
    steps = {"plan": "maintenance_plan", "protect": "pdb_guard", "migrate": "node_drain"}
    told: Calls = []
    for module, arguments in found:
        if module in MODULES:
            told.append((module, arguments))
        elif module == "maintenance_wave" and arguments["state"] == "out":
            told += [(of, arguments[step]) for step, of in steps.items() if step in arguments]
    return told


@pytest.fixture(scope="module")
def maintained(tmp_path_factory: pytest.TempPathFactory) -> Calls:
    """Those of ``maintain``, in two waves."""
    return calls(tmp_path_factory.mktemp("maintained"))


def test_each_option_has_a_value_of_its_own() -> None:
    assert set(GIVEN) == set().union(*map(shared, MODULES))
    for name, value in GIVEN.items():
        assert value != inputs.VARIABLES[name].unset, name


def test_each_call_of_maintain_gets_every_option_that_it_knows(maintained: Calls) -> None:
    wave = ["maintenance_plan", "pdb_guard", "node_drain"]
    assert [module for module, _arguments in maintained] == wave * 2, "the first one was planned just now"
    for module, arguments in maintained:
        given = {name: GIVEN[name] for name in shared(module)}
        assert {name: plainly(arguments.get(name)) for name in given} == given, module


def test_a_plan_is_that_of_maintain(maintained: Calls, tmp_path: Path) -> None:
    ((module, planned),) = calls(tmp_path, playbook="plan")
    first = maintained[0]
    assert module == first[0]
    assert plainly({name: planned.get(name) for name in shared(module)}) == plainly(
        {name: first[1].get(name) for name in shared(module)}
    )


def plainly(value: Any) -> Any:
    """The value as the input had it: rules of hooks are given with the absolute paths of their files."""
    if isinstance(value, dict):
        return {name: plainly(inner) for name, inner in value.items() if name != "deadline"}
    if isinstance(value, list):
        return [plainly(inner) for inner in value]
    return Path(value).name if isinstance(value, str) and value.startswith("/") else value


@pytest.mark.parametrize(("role", "call"), [("preflight", "plan"), ("protect", "guard"), ("migrate", "drain")])
def test_a_role_by_itself_tells_its_module_what_its_variables_say(role: str, call: str) -> None:
    defaults = yaml.safe_load((canned.HERE / "roles" / role / "defaults/main.yml").read_text(encoding="utf-8"))
    policy: dict[str, str] = defaults[f"{role}_policy"]
    assert set(policy) == set(inputs.POLICIES[call])
    for name, value in policy.items():
        assert value.split(" ")[1] == f"{role}_{name}"
        # An empty value means unset, as in the options that are given one by one.
        assert (defaults[f"{role}_{name}"] in ("", None, [])) <= ("default(omit, true)" in value or name == "rules")
