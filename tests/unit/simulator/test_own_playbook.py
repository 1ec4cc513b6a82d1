# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The calls of the playbook in the guide, read from its file, in a simulated cluster: done, failing and killed."""

from __future__ import annotations

import importlib
import json
import typing as t
from pathlib import Path

import pytest
import yaml
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible.specs import ClusterModuleSpec
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import (
    CallAborted,
    Result,
    stopped,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.test_whole import traces, watch_services
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, Saved, World

OURS = "kubeops.node_maintenance."
PLAYBOOK = Path(__file__).parents[3] / "playbooks/files/own_playbook.yml"
Raw = dict[str, t.Any]
Work = t.Callable[[str], None]


class Failed(Exception):
    """A task failed."""


class Play:
    """As much of Ansible as the playbook needs."""

    def __init__(self, actor: Actor, nodes: t.Sequence[str], work: Work) -> None:
        self.actor, self.nodes, self.work = actor, nodes, work

    def run(self) -> str:
        """What failed; empty if nothing did."""
        whole, one_by_one = yaml.safe_load(PLAYBOOK.read_text(encoding="utf-8"))
        assert one_by_one["serial"] == 1
        try:
            self._tasks(whole, whole["tasks"], "")
            for node in self.nodes:
                self._tasks(one_by_one, one_by_one["tasks"], node)
        except Failed as failed:
            return str(failed)
        return ""

    def _tasks(self, play: Raw, tasks: t.Iterable[Raw], node: str) -> None:
        for task in tasks:
            if "block" in task:
                try:
                    self._tasks(play, task["block"], node)
                finally:
                    self._tasks(play, task["always"], node)
                continue
            module = next((name for name in task if name.startswith(OURS)), "")
            if module:
                self._call(module.removeprefix(OURS), play, task[module], node)
            elif "ansible.builtin.include_tasks" in task:
                self.work(node)

    def _call(self, module: str, play: Raw, given: Raw, node: str) -> None:
        arguments = {**play["module_defaults"][f"group/{OURS}node_maintenance"], **given}
        whole = given["nodes"] == "{{ ansible_play_hosts_all }}"
        arguments["nodes"] = list(self.nodes) if whole else [node]
        files = {
            "maintenance_plan": "planning.arguments",
            "pdb_guard": "surge.arguments",
            "node_drain": "drain.arguments",
        }
        edge = files.get(module, f"nodes.arguments_{module.removeprefix('node_')}")
        path = f"ansible_collections.kubeops.node_maintenance.plugins.module_utils.{edge}"
        spec: ClusterModuleSpec = importlib.import_module(path).SPEC
        validation = ArgumentSpecValidator(spec.argument_spec, **spec.rules).validate(arguments)
        assert not validation.error_messages
        params = spec.prepare(spec.converted(validation.validated_parameters))
        self.actor.clock.sleep(0.2)
        ctx = self.actor.ctx(arguments["run"])
        try:
            result: Result = spec.engine(ctx, params)
        except CallAborted as stop:
            result = stopped(stop)
        finally:
            ctx.cluster.close()
        if result.failed or not result.data.get("feasible", True):
            raise Failed(f"{module}: {result.message} {result.data.get('findings')}")


@pytest.fixture(scope="module")
def saved() -> Saved:
    with World(manifests.usual()) as world:
        return world.saved()


def played(world: World, work: Work) -> str:
    """What the playbook says failed, or `killed`."""
    me = world.process("me")
    task = me.spawn(lambda: Play(me, ["n1", "n2", "n3"], work).run())
    world.machine.run_until(lambda: not task.alive)
    return "killed" if me.process.dead else str(task.value())


def test_it_takes_the_nodes_out_and_back_one_by_one(saved: Saved) -> None:
    done: list[str] = []
    with World.of(saved) as world:
        watch_services(world)

        def work(node: str) -> None:
            daemons = [pod["metadata"]["ownerReferences"][0]["kind"] for pod in world.pods(on=node)]
            assert set(daemons) <= {"DaemonSet"}
            done.append(node)

        assert played(world, work) == ""
        assert traces(world) == []
    assert done == ["n1", "n2", "n3"]


def test_a_node_on_which_the_work_fails_returns_and_the_next_one_is_not_touched(saved: Saved) -> None:
    done: list[str] = []

    def work(node: str) -> None:
        done.append(node)
        if node == "n2":
            raise Failed("no such package")

    with World.of(saved) as world:
        watch_services(world)
        assert played(world, work) == "no such package"
        assert traces(world) == []
    assert done == ["n1", "n2"]


@pytest.mark.parametrize("ordinal", [12, 30, 60, 90, 120])
def test_killed_at_any_point_the_same_command_ends_what_it_began(saved: Saved, ordinal: int) -> None:
    done: list[str] = []
    with World.of(saved) as world:
        world.process("me").faults.at(ordinal, Fault("killed after"))
        assert played(world, done.append) == "killed"
        assert played(world, done.append) == ""
        assert traces(world) == []
    assert set(done) == {"n1", "n2", "n3"}


def test_killed_during_the_work_the_same_command_ends_what_it_began(saved: Saved) -> None:
    with World.of(saved) as world:
        died: list[str] = []

        def dies(node: str) -> None:
            if not died:
                died.append(node)
                world.process("me").process.kill()
                world.process("me").clock.sleep(1.0)

        assert played(world, dies) == "killed"
        record = world.get(kinds.NODES, "n1")["metadata"]["annotations"][names.RECORD]
        assert json.loads(record)["step"] == "out"
        assert played(world, dies) == ""
        assert traces(world) == []
        assert died == ["n1"]
