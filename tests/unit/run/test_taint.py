# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `node_taint` reads and writes, with rivals that write at the same moment.

The cluster is a set of nodes in memory that keeps the one promise the loop leans on: a patch of another
resourceVersion than the present one is refused. What a real one answers is shown on the lab.
"""

from __future__ import annotations

import copy
import typing as t
from dataclasses import dataclass, field

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.client import Listing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.clock import Clock
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import (
    ClusterError,
    Conflict,
    Forbidden,
    NotFound,
    UnknownOutcome,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import taints
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context, StopRun
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.taint import (
    State,
    TaintOptions,
    taint,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.write import TRIES
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.objects import Raw, node, pod

Rival = t.Callable[["Nodes", str], None]


class Hurried(Clock):
    def sleep(self, seconds: float) -> None:
        del seconds


@dataclass
class Nodes:
    """Nodes and pods; each rival is called once, in order, before a patch is looked at."""

    nodes: dict[str, Raw]
    pods: list[Raw] = field(default_factory=list)
    rivals: list[Rival] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def items(self, kind: kinds.Kind, **_options: t.Any) -> Listing:
        self.asked.append(f"list {kind.plural}")
        return Listing(copy.deepcopy(list(self.nodes.values()) if kind is kinds.NODES else self.pods), "1")

    def send(self, request: Request, **_options: t.Any) -> Raw:
        self.asked.append(f"{request.verb} {request.name}")
        if request.verb == "patch" and self.rivals:
            self.rivals.pop(0)(self, request.name)
        if request.name not in self.nodes:
            raise NotFound("not there", request=request, status=404)
        found = self.nodes[request.name]
        if request.verb == "patch":
            body = request.body or {}
            if body["metadata"]["resourceVersion"] != found["metadata"]["resourceVersion"]:
                raise Conflict("changed", request=request, status=409)
            self.write(request.name, body["spec"]["taints"])
        return copy.deepcopy(found)

    def write(self, name: str, found: list[Raw] | None) -> None:
        meta = self.nodes[name]["metadata"]
        self.nodes[name]["spec"]["taints"] = found or []
        meta["resourceVersion"] = str(int(meta["resourceVersion"]) + 1)

    def words(self, name: str) -> list[str]:
        return [taints.in_words(x) for x in self.nodes[name]["spec"]["taints"]]


def raw(text: str) -> Raw:
    stem, _colon, effect = text.partition(":")
    key, _equals, value = stem.partition("=")
    return {"key": key, "value": value, "effect": effect}


def cluster(*rivals: Rival, pods: list[Raw] | None = None, **on: list[str]) -> Nodes:
    made = {name: node(name, taints=[raw(text) for text in texts]) for name, texts in on.items()}
    return Nodes(made, pods or [], list(rivals))


def run(found: Nodes, *asked: str, state: State = "present", check: bool = False, allow: bool = False) -> Raw:
    ctx = Context(t.cast("t.Any", found), check=check, by="ann@desk", clock=Hurried())
    wishes, faults = taints.read([raw(text) for text in asked], state)
    assert not faults
    return taint(ctx, TaintOptions(state, tuple(found.nodes), wishes, allow_no_execute=allow)).shaped(ctx)


def outcomes(result: Raw) -> dict[str, str]:
    return {found["name"]: found["outcome"] for found in result["nodes"]}


def adds(text: str) -> Rival:
    return lambda found, name: found.write(name, [*found.nodes[name]["spec"]["taints"], raw(text)])


def clears(found: Nodes, name: str) -> None:
    found.write(name, None)


def deletes(found: Nodes, name: str) -> None:
    del found.nodes[name]


def raises(error: type[ClusterError], *, done: str = "") -> Rival:
    def rival(found: Nodes, name: str) -> None:
        if done:
            adds(done)(found, name)
        raise error("no", request=Request("PATCH", "/", verb="patch", resource="nodes", name=name), status=0)

    return rival


def test_many_nodes_in_one_call_and_only_those_that_differ_are_written() -> None:
    found = cluster(n1=[], n2=["a=1:NoSchedule"], n3=["a=2:NoSchedule", "b:NoSchedule"])
    result = run(found, "a=1:NoSchedule")
    assert outcomes(result) == {"n1": "present", "n2": "already_present", "n3": "present"}
    assert found.asked == ["list nodes", "patch n1", "patch n3"]
    assert [found.words(name) for name in found.nodes] == [
        ["a=1:NoSchedule"],
        ["a=1:NoSchedule"],
        ["a=1:NoSchedule", "b:NoSchedule"],
    ]
    assert result["changed"]
    assert not result["failed"]
    assert result["evicts"] == []
    third = result["nodes"][2]
    assert (third["before"][0]["value"], third["after"][0]["value"]) == ("2", "1")
    again = run(found, "a=1:NoSchedule")
    assert not again["changed"]
    assert again["diff"] == []


def test_check_mode_writes_nothing_and_says_what_the_real_run_does() -> None:
    found = cluster(n1=["a:NoSchedule"], n2=[])
    predicted = run(found, "a:NoSchedule", state="absent", check=True)
    assert found.asked == ["list nodes"]
    done = run(found, "a:NoSchedule", state="absent")
    for name in ("changed", "actions", "diff", "nodes"):
        assert predicted[name] == done[name]
    assert done["diff"][0]["after"] == {"taints": []}


def test_an_unknown_node_stops_the_call_before_the_first_write() -> None:
    found = cluster(n1=[])
    ctx = Context(t.cast("t.Any", found), clock=Hurried())
    with pytest.raises(StopRun, match="no node nope, neither"):
        taint(ctx, TaintOptions("absent", ("n1", "nope", "neither"), (taints.Wish("a", absent=True),)))
    assert found.asked == ["list nodes"]


def test_what_others_write_at_the_same_moment_stays() -> None:
    found = cluster(adds("x:NoSchedule"), adds("y=1:NoExecute"), n1=["w:NoSchedule"])
    result = run(found, "a:NoSchedule")
    assert found.words("n1") == ["w:NoSchedule", "x:NoSchedule", "y=1:NoExecute", "a:NoSchedule"]
    assert outcomes(result) == {"n1": "present"}
    assert [taints.in_words(x) for x in result["nodes"][0]["before"]] == [
        "w:NoSchedule",
        "x:NoSchedule",
        "y=1:NoExecute",
    ]


def test_what_another_call_has_done_already_is_no_change_of_ours() -> None:
    found = cluster(adds("a:NoSchedule"), n1=[])
    result = run(found, "a:NoSchedule")
    assert outcomes(result) == {"n1": "already_present"}
    assert not result["changed"]


@pytest.mark.parametrize("done", ["a:NoSchedule", ""])
def test_an_answer_that_was_lost_is_looked_up(done: str) -> None:
    found = cluster(raises(UnknownOutcome, done=done), n1=[])
    result = run(found, "a:NoSchedule")
    assert found.words("n1") == ["a:NoSchedule"]
    assert outcomes(result) == {"n1": "present"}
    assert len(result["actions"]) == 1


def test_one_nodes_failure_keeps_no_other_from_its_taint() -> None:
    busy = [adds(f"x{i}:NoSchedule") for i in range(TRIES)]
    found = cluster(raises(Forbidden), deletes, *busy, n1=[], n2=[], n3=[], n4=[])
    result = run(found, "a:NoSchedule")
    assert outcomes(result) == {"n1": "failed", "n2": "gone", "n3": "failed", "n4": "present"}
    assert result["failed"]
    assert result["nodes"][0]["after"] == []
    assert "in a row" in result["nodes"][2]["message"]
    assert found.words("n4") == ["a:NoSchedule"]


PODS = [
    pod("web", "n1"),
    pod("slow", "n1", tolerations=[{"key": "a", "operator": "Exists", "tolerationSeconds": 60, "effect": "NoExecute"}]),
    pod("elsewhere", "n3"),
    pod("stays", "n1", tolerations=[{"operator": "Exists"}]),
]


@pytest.mark.parametrize("check", [True, False])
def test_no_execute_is_refused_as_a_whole_and_names_its_pods(check: bool) -> None:
    found = cluster(n1=[], n2=["a:NoExecute"], pods=PODS)
    result = run(found, "a:NoExecute", "b:NoSchedule", check=check)
    assert result["failed"]
    assert "nodes" not in result
    assert [finding["code"] for finding in result["findings"]] == ["no_execute_refused"]
    assert [(kill["name"], kill["seconds"]) for kill in result["evicts"]] == [("web", 0), ("slow", 60)]
    assert "ends 2 pods (1 at once, 1 within 60 s)" in result["msg"]
    assert found.asked == ["list nodes", "list pods"]


def test_no_execute_is_refused_where_no_pod_runs_too() -> None:
    assert run(cluster(n1=[]), "a:NoExecute")["failed"]


def test_no_execute_is_set_with_consent() -> None:
    found = cluster(n1=[], pods=PODS)
    result = run(found, "a:NoExecute", allow=True)
    assert found.words("n1") == ["a:NoExecute"]
    assert [kill["name"] for kill in result["evicts"]] == ["web", "slow"]
    assert "budgets are not asked" in result["nodes"][0]["message"]


@pytest.mark.parametrize(
    ("on", "asked", "state"),
    [(["a:NoExecute"], "a:NoExecute", "present"), (["a:NoExecute", "b:NoExecute"], "a:NoExecute", "absent")],
)
def test_no_consent_is_needed_where_no_such_taint_is_new(on: list[str], asked: str, state: State) -> None:
    found = cluster(n1=on, pods=PODS)
    assert not run(found, asked, state=state)["failed"]
    assert "list pods" not in found.asked


def test_a_taint_that_was_there_is_not_set_again_without_consent() -> None:
    found = cluster(clears, n1=["a:NoExecute"])
    result = run(found, "a:NoExecute", "b:NoSchedule")
    assert outcomes(result) == {"n1": "refused"}
    assert found.words("n1") == []
