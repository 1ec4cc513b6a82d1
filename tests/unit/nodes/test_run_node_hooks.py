# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The hooks of nodes, call by call: in which order, for how long the nodes are kept, and what each is told."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_hooks import (
    HookOptions,
    call_hooks,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import run_locks
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.support.still_drain import Bench


def rule(name: str, action: hook_definitions.Action = "http") -> hook_definitions.Rule:
    http = hook_definitions.Http(f"http://ceph.example/{name}") if action == "http" else None
    return hook_definitions.Rule("before_node", name, action, 60.0, http=http, tasks="" if http else f"/{name}.yml")


class Called(Bench):
    """Calls of `maintenance_hooks` for n1 and n2; `answers` are the statuses by the rule's name."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[str, str]] = []
        self.answers: dict[str, int] = {}

    def send(self, http: hook_definitions.Http, variables: t.Mapping[str, t.Any], timeout: float) -> int:
        del http, timeout
        self.calls.append((variables["rule"], variables["node"]))
        return self.answers.get(variables["rule"], 200)

    def call(
        self,
        state: t.Any,
        *rules: hook_definitions.Rule,
        listed: t.Sequence[t.Any] = (),
        check: bool = False,
        on: str = "n1",
    ) -> Result:
        ctx = self.me.ctx("r1/x", check=check)
        options = HookOptions(state, (on,), rules, tuple(listed), self.send)
        task = self.me.spawn(lambda: call_hooks(ctx, options))
        self.world.machine.run_until(lambda: not task.alive, within=600)
        return t.cast("Result", task.value())

    def kept(self) -> float:
        """For how many seconds the node's lock lasts without its owner."""
        lease = self.world.get(kinds.LEASES, names.node_lease_name("n1"), names.NAMESPACE)
        if names.HEARTBEAT in lease["metadata"]["annotations"]:
            lease = self.world.get(kinds.LEASES, names.heartbeat_name("r1/x"), names.NAMESPACE)
        return float(lease["spec"]["leaseDurationSeconds"])


@pytest.fixture
def one() -> t.Iterator[Called]:
    made = Called()
    yield made
    made.world.close()


def states(result: Result) -> list[tuple[str, str]]:
    return [(told["rule"], told["state"]) for told in result.data["hooks"]]


def test_after_a_hook_that_failed_no_other_is_called_and_all_are_shown(one: Called) -> None:
    one.answers["b"] = 404
    result = one.call("called", rule("a"), rule("b"), rule("c"), rule("d"))
    assert one.calls == [("a", "n1"), ("b", "n1")]
    assert states(result) == [("a", "done"), ("b", "failed"), ("c", "due"), ("d", "due")]
    assert result.failed


@pytest.mark.parametrize(("state", "shown"), [("called", [("a", "due")]), ("listed", [("a", "due")]), ("begun", [])])
def test_check_mode_lists_what_would_be_called(one: Called, state: str, shown: list[tuple[str, str]]) -> None:
    assert states(one.call(state, rule("a"), check=True)) == shown
    assert one.calls == []


@pytest.mark.parametrize(("check", "outcome"), [(True, "ok"), (False, "not_in_maintenance")])
def test_check_mode_tells_what_happens_on_a_node_that_is_not_cordoned(one: Called, check: bool, outcome: str) -> None:
    one.world.patch(kinds.NODES, "n1", {"metadata": {"annotations": {names.RECORD: None}}})
    (node,) = one.call("called", rule("a"), check=check).data["nodes"]
    assert (node["outcome"], "not_in_maintenance" in node["message"] or not check) == (outcome, True)


def due(one: Called, *rules: hook_definitions.Rule) -> list[Raw]:
    return list(one.call("listed", *rules).data["hooks"])


def test_a_node_is_kept_for_as_long_as_its_longest_task_file_may_take(one: Called) -> None:
    told = due(one, rule("a", "tasks"), rule("b", "tasks"))
    told[1]["deadline"] = 300
    one.call("begun", listed=told)
    assert one.kept() == run_locks.IDLE + 300
    for hook in told:
        del hook["deadline"]
    one.call("begun", listed=told)
    assert one.kept() == run_locks.IDLE, "nothing says how long"
    one.call("begun")
    assert one.kept() == run_locks.IDLE, "none begins"


def test_only_what_is_begun_again_is_told_so(one: Called) -> None:
    [hook] = due(one, rule("a", "tasks"))
    del hook["again"]
    found = [one.call(state, listed=[hook]).data["hooks"][0]["again"] for state in ("begun", "done", "begun")]
    assert found == [False, False, False], "what is done begins anew"
    assert one.call("begun", listed=[hook]).data["hooks"][0]["again"] is True


@pytest.mark.parametrize("what", ["given back", "deleted", "taken over"])
def test_a_node_that_is_not_ours_any_more_is_left_alone_in_the_middle(one: Called, what: str) -> None:
    def happens() -> None:
        if what == "deleted":
            one.world.delete(kinds.NODES, "n1")
            return
        known = one.world.get(kinds.NODES, "n1")["metadata"]["annotations"][names.RECORD]
        record = None if what == "given back" else known.replace('"x"', '"y"')
        one.world.patch(kinds.NODES, "n1", {"metadata": {"annotations": {names.RECORD: record}}})

    one.me.faults.overtaken(lambda request: request.writes and request.resource == "nodes", happens)
    result = one.call("called", rule("a"))
    assert [node["outcome"] for node in result.data["nodes"]] == ["adopted_by"]
    assert one.calls == []
