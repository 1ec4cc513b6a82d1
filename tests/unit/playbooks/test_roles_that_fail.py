# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Whether a role fails, and with which words, for what its module answers: here one in the module's place answers."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import outcomes
from ansible_collections.kubeops.node_maintenance.tests.unit.playbooks import test_playbooks as playbooks

CAUSE = "Node worker-1 is held by another run."
MODULES = {
    "cordon": "node_cordon",
    "protect": "pdb_guard",
    "migrate": "node_drain",
    "verify": "node_cordon",
    "taint": "node_taint",
    "uncordon": "pdb_guard",
    "descheduler": "descheduler_config",
}
"""The first module that a role calls."""
GIVEN: dict[str, dict[str, Any]] = {
    "taint": {"taint_taints": [{"key": "a", "effect": "NoSchedule"}]},
    "descheduler": {"descheduler_state": "restarted"},
}
ANSWERING = """
from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    def run(self, tmp=None, task_vars=None):
        return dict(task_vars["answers"].get(self._task.action.rpartition(".")[2], task_vars["answers"]["others"]))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What one play says that includes each role three times: ``broken``, ``failed`` and ``going on``.

    In a collection with our roles, of which every module answers what the variable ``answers`` has for it.
    """
    folder = tmp_path_factory.mktemp("stand_in")
    ours = folder / "ansible_collections/kubeops/node_maintenance"
    for kind in ("action", "modules"):
        (ours / "plugins" / kind).mkdir(parents=True)
        for module in {*MODULES.values(), "node_ready"}:
            (ours / f"plugins/{kind}/{module}.py").write_text(ANSWERING if kind == "action" else "")
    for name in ("roles", "meta", "galaxy.yml"):
        (ours / name).symlink_to(playbooks.REPOSITORY / name)
    tasks = [task for role in MODULES for task in included(role)]
    (folder / "roles.yml").write_text(
        yaml.safe_dump([{"name": "Roles", "hosts": "localhost", "gather_facts": False, "tasks": tasks}])
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(playbooks, "TREE", str(folder))
        code, text = playbooks.play(folder, "roles.yml")
    assert code == 0, text
    return text


def included(role: str) -> list[dict[str, Any]]:
    """A role with each answer, in a block that says how it ended."""
    good = {"name": "worker-1", "failed": False, "outcome": "gone", "message": ""}
    bad = {**good, "failed": True, "outcome": "held", "message": CAUSE}
    answer = {"failed": True, "msg": CAUSE}
    failed = {**answer, "outcome": "rolled_back"} if role == "descheduler" else {**answer, "nodes": [bad]}
    nodes = {} if role == "descheduler" else {f"{role}_nodes": ["worker-1"]}
    return [
        {
            "name": f"{role} {how}",
            "vars": {
                "answers": {"others": {"nodes": [good], "failed": False, "msg": ""}, MODULES[role]: given},
                f"{role}_go_on": how == "going on",
                **nodes,
                **GIVEN.get(role, {}),
            },
            "block": [
                {"name": role, "ansible.builtin.include_role": {"name": f"kubeops.node_maintenance.{role}"}},
                {"name": "Say", "ansible.builtin.debug": {"msg": f"[{role} {how} went well]"}},
            ],
            "rescue": [
                {
                    "name": "Say",
                    "ansible.builtin.debug": {"msg": f"[{role} {how}: {{{{ ansible_failed_result.msg }}}}]"},
                }
            ],
        }
        for how, given in (("broken", answer), ("failed", failed), ("going on", failed))
    ]


@pytest.mark.parametrize("role", MODULES)
@pytest.mark.parametrize("how", ["broken", "failed"])
def test_a_role_fails_with_the_cause(said: str, role: str, how: str) -> None:
    assert f"[{role} {how}: {CAUSE}]" in said


@pytest.mark.parametrize("role", MODULES)
def test_a_role_that_goes_on_does_not_fail(said: str, role: str) -> None:
    assert f"[{role} going on went well]" in said


def test_no_condition_hides_the_cause(said: str) -> None:
    # As ansible-core 2.21 and later do where a condition of ours failed the task.
    assert "evaluated to" not in said


def test_the_role_knows_each_failure_of_a_rollout() -> None:
    (condition,) = [
        task["when"][-1]
        for task in yaml.safe_load((playbooks.REPOSITORY / "roles/descheduler/tasks/main.yml").read_text())
        if "ansible.builtin.fail" in task
    ]
    failures = [outcome.value for outcome in outcomes.ConfigOutcome if outcome.failed]
    assert condition == f"descheduler_result.outcome | default('failed') in {failures}"
