# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `node_taint` reads and writes, with rivals that write at the same moment."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import node_taints
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted, Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_reconcile import MAX_TRIES
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_taint import State, TaintOptions, taint
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault, What
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

ELSEWHERE = "elsewhere"
Make = t.Callable[..., "Cluster"]


def raw(text: str) -> Raw:
    stem, _colon, effect = text.partition(":")
    key, _equals, value = stem.partition("=")
    return {"key": key, "value": value, "effect": effect}


class Cluster:
    """Nodes with taints, of which all but one are asked for, in a world of their own."""

    def __init__(self, *pods: Raw, **on: list[str]) -> None:
        made = [manifests.node(name, taints=[raw(text) for text in texts]) for name, texts in on.items()]
        self.world = World([*made, manifests.node(ELSEWHERE), *pods], settle=False)
        self.ann = self.world.process("ann")
        self.names = tuple(on)

    def run(self, *asked: str, state: State = "present", check: bool = False, allow: bool = False) -> Raw:
        wishes, faults = node_taints.read([raw(text) for text in asked], state)
        assert not faults
        return self.call(TaintOptions(state, self.names, wishes, allow_no_execute=allow), check=check)

    def call(self, options: TaintOptions, *, check: bool = False) -> Raw:
        def loop(ctx: Context) -> Raw:
            ctx.check = check
            return taint(ctx, options).shaped(ctx)

        return self.ann.run(loop)

    @property
    def asked(self) -> list[str]:
        """What was asked of the server."""
        return [f"{sent.request.verb} {sent.request.name or sent.request.resource}" for sent in self.world.log]

    def words(self, name: str) -> list[str]:
        return [node_taints.in_words(x) for x in self._taints(name)]

    def adds(self, name: str, text: str) -> None:
        """Somebody else adds a taint while ours is on its way."""
        self.ann.faults.overtaken(_patch(name), lambda: self._write(name, [*self._taints(name), raw(text)]))

    def clears(self, name: str) -> None:
        """Somebody else takes all taints away while ours is on its way."""
        self.ann.faults.overtaken(_patch(name), lambda: self._write(name, None))

    def deletes(self, name: str) -> None:
        """Somebody else deletes the node while its taint is on its way."""
        self.ann.faults.overtaken(_patch(name), lambda: self.world.delete(kinds.NODES, name))

    def breaks(self, name: str, what: What, times: int = 1) -> None:
        self.ann.faults.when(_patch(name), Fault(what), times)

    def _taints(self, name: str) -> list[Raw]:
        return list(self.world.get(kinds.NODES, name)["spec"].get("taints") or ())

    def _write(self, name: str, found: list[Raw] | None) -> None:
        self.world.patch(kinds.NODES, name, {"spec": {"taints": found}})


def _patch(name: str) -> t.Callable[[Request], bool]:
    return lambda request: (request.method, request.resource, request.name) == ("PATCH", "nodes", name)


@pytest.fixture
def cluster() -> t.Iterator[Make]:
    """Makes clusters, and ends them after the test."""
    made: list[Cluster] = []

    def make(*pods: Raw, **on: list[str]) -> Cluster:
        made.append(Cluster(*pods, **on))
        return made[-1]

    yield make
    for each in made:
        each.world.close()


def outcomes(result: Raw) -> dict[str, str]:
    return {found["name"]: found["outcome"] for found in result["nodes"]}


def test_many_nodes_in_one_call_and_only_those_that_differ_are_written(cluster: Make) -> None:
    found = cluster(n1=[], n2=["a=1:NoSchedule"], n3=["a=2:NoSchedule", "b:NoSchedule"])
    result = found.run("a=1:NoSchedule")
    assert outcomes(result) == {"n1": "present", "n2": "already_present", "n3": "present"}
    assert found.asked == ["list nodes", "patch n1", "patch n3"]
    assert [found.words(name) for name in found.names] == [
        ["a=1:NoSchedule"],
        ["a=1:NoSchedule"],
        ["a=1:NoSchedule", "b:NoSchedule"],
    ]
    assert result["changed"]
    assert not result["failed"]
    assert result["evicts"] == []
    third = result["nodes"][2]
    assert (third["before"][0]["value"], third["after"][0]["value"]) == ("2", "1")
    again = found.run("a=1:NoSchedule")
    assert not again["changed"]
    assert again["diff"] == []


@pytest.mark.parametrize("key", node_taints.OUTDATED)
def test_an_outdated_key_is_named_with_its_successor_where_it_is_set(cluster: Make, key: str) -> None:
    made = cluster(n1=[])
    said = f"Key {key} is outdated: Kubernetes uses {node_taints.OUTDATED[key]} instead."
    assert said in made.run(f"{key}:NoSchedule")["nodes"][0]["message"]
    assert said not in made.run(f"{key}:NoSchedule", state="absent")["nodes"][0]["message"]


def test_check_mode_writes_nothing_and_says_what_the_real_run_does(cluster: Make) -> None:
    found = cluster(n1=["a:NoSchedule"], n2=[])
    predicted = found.run("a:NoSchedule", state="absent", check=True)
    assert found.asked == ["list nodes"]
    done = found.run("a:NoSchedule", state="absent")
    for name in ("changed", "actions", "diff", "nodes"):
        assert predicted[name] == done[name]
    assert done["diff"][0]["after"] == {"taints": []}


def test_an_unknown_node_stops_the_call_before_the_first_write(cluster: Make) -> None:
    found = cluster(n1=[])
    with pytest.raises(CallAborted, match=r"no node nope\. There is no node neither"):
        found.call(TaintOptions("absent", ("n1", "nope", "neither"), (node_taints.DesiredTaint("a", absent=True),)))
    assert found.asked == ["list nodes"]


def test_what_others_write_at_the_same_moment_stays(cluster: Make) -> None:
    found = cluster(n1=["w:NoSchedule"])
    found.adds("n1", "x:NoSchedule")
    found.adds("n1", "y=1:NoExecute")
    result = found.run("a:NoSchedule")
    assert found.words("n1") == ["w:NoSchedule", "x:NoSchedule", "y=1:NoExecute", "a:NoSchedule"]
    assert outcomes(result) == {"n1": "present"}
    assert [node_taints.in_words(x) for x in result["nodes"][0]["before"]] == [
        "w:NoSchedule",
        "x:NoSchedule",
        "y=1:NoExecute",
    ]


def test_what_another_call_has_done_already_is_no_change_of_ours(cluster: Make) -> None:
    found = cluster(n1=[])
    found.adds("n1", "a:NoSchedule")
    result = found.run("a:NoSchedule")
    assert outcomes(result) == {"n1": "already_present"}
    assert not result["changed"]


@pytest.mark.parametrize("what", ["lost", "in doubt", "hang"])
def test_an_answer_that_was_lost_is_looked_up(cluster: Make, what: What) -> None:
    found = cluster(n1=[])
    found.breaks("n1", what)
    result = found.run("a:NoSchedule")
    assert found.words("n1") == ["a:NoSchedule"]
    assert outcomes(result) == {"n1": "present"}
    assert len(result["actions"]) == 1


def test_one_nodes_failure_keeps_no_other_from_its_taint(cluster: Make) -> None:
    found = cluster(n1=[], n2=[], n3=[], n4=[])
    found.breaks("n1", "forbidden", 99)
    found.deletes("n2")
    for i in range(MAX_TRIES):
        found.adds("n3", f"x{i}:NoSchedule")
    result = found.run("a:NoSchedule")
    assert outcomes(result) == {"n1": "failed", "n2": "gone", "n3": "failed", "n4": "present"}
    assert result["failed"]
    assert result["nodes"][0]["after"] == []
    assert "in a row" in result["nodes"][2]["message"]
    assert found.words("n4") == ["a:NoSchedule"]


def pod(name: str, on: str = "n1", *tolerations: Raw) -> Raw:
    """One that nobody controls, on a node."""
    spec = {**manifests.template(name)["spec"], "nodeName": on, "tolerations": list(tolerations)}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": manifests.SHOP}, "spec": spec}


PODS = (
    pod("app"),
    pod("elsewhere", ELSEWHERE),
    pod("slow", "n1", {"key": "a", "operator": "Exists", "tolerationSeconds": 60, "effect": "NoExecute"}),
    pod("stays", "n1", {"operator": "Exists"}),
)


@pytest.mark.parametrize("check", [True, False])
def test_no_execute_is_refused_as_a_whole_and_names_its_pods(cluster: Make, check: bool) -> None:
    found = cluster(*PODS, n1=[], n2=["a:NoExecute"])
    result = found.run("a:NoExecute", "b:NoSchedule", check=check)
    assert result["failed"]
    assert "nodes" not in result
    assert [finding["code"] for finding in result["findings"]] == ["no_execute_refused"]
    assert [(kill["name"], kill["seconds"]) for kill in result["evicts"]] == [("app", 0), ("slow", 60)]
    assert "ends 2 pods (1 at once, 1 within 60 s)" in result["msg"]
    assert found.asked == ["list nodes", "list pods"]


def test_a_line_of_progress_says_what_was_done_and_leaves_the_node_to_its_event(cluster: Make) -> None:
    found = cluster(*PODS, n1=["old:NoSchedule"], n2=["a:NoExecute"], n3=[])
    found.run("a:NoExecute", state="exact", allow=True)
    assert [(event.node, event.what, event.message) for event in found.ann.told] == [
        (
            "n1",
            "exact",
            "set a:NoExecute; removed old:NoSchedule; "
            "ends 2 pods (1 at once, 1 within 60 s), without regard to budgets",
        ),
        ("n3", "exact", "set a:NoExecute"),
    ]


@pytest.mark.parametrize(
    ("pods", "toll"),
    [
        (PODS[1:2], "ends no pod that is running now"),
        (PODS[:1], "ends 1 pod (1 at once)"),
        (PODS[2:], "ends 1 pod (0 at once, 1 within 60 s)"),
        (PODS[:3], "ends 2 pods (1 at once, 1 within 60 s)"),
    ],
    ids=["none", "at once", "later", "both"],
)
def test_how_many_pods_a_no_execute_taint_ends_is_told(cluster: Make, pods: t.Sequence[Raw], toll: str) -> None:
    assert f"a:NoExecute on n1 {toll}, without regard to budgets" in cluster(*pods, n1=[]).run("a:NoExecute")["msg"]


def test_no_execute_is_refused_where_no_pod_runs_too(cluster: Make) -> None:
    assert cluster(n1=[]).run("a:NoExecute")["failed"]


def test_no_execute_is_set_with_consent(cluster: Make) -> None:
    found = cluster(*PODS, n1=[])
    result = found.run("a:NoExecute", allow=True)
    assert found.words("n1") == ["a:NoExecute"]
    assert [kill["name"] for kill in result["evicts"]] == ["app", "slow"]
    assert "without regard to budgets" in result["nodes"][0]["message"]


@pytest.mark.parametrize(
    ("on", "asked", "state"),
    [(["a:NoExecute"], "a:NoExecute", "present"), (["a:NoExecute", "b:NoExecute"], "a:NoExecute", "absent")],
)
def test_no_consent_is_needed_where_no_such_taint_is_new(
    cluster: Make, on: list[str], asked: str, state: State
) -> None:
    found = cluster(*PODS, n1=on)
    assert not found.run(asked, state=state)["failed"]
    assert "list pods" not in found.asked


def test_a_taint_that_was_there_is_not_set_again_without_consent(cluster: Make) -> None:
    found = cluster(n1=["a:NoExecute"])
    found.clears("n1")
    result = found.run("a:NoExecute", "b:NoSchedule")
    assert outcomes(result) == {"n1": "refused"}
    assert found.words("n1") == []


def test_no_execute_needs_a_word_that_is_not_said_by_default(cluster: Make) -> None:
    found = cluster(n1=[])
    wishes, _faults = node_taints.read([raw("a:NoExecute")], "present")
    result = found.call(TaintOptions("present", found.names, wishes))
    assert [finding["code"] for finding in result["findings"]] == ["no_execute_refused"]


def test_a_selector_stands_for_the_nodes_that_it_matches(cluster: Make) -> None:
    found = cluster(n1=[], n2=["old:NoSchedule"], n3=[])
    for name in ("n1", "n2"):
        found.world.patch(kinds.NODES, name, {"metadata": {"labels": {"pool": "blue"}}})
    wishes, _faults = node_taints.read([raw("a:NoSchedule")], "present")
    result = found.call(TaintOptions("present", (), wishes, node_selector="pool=blue"))
    assert outcomes(result) == {"n1": "present", "n2": "present"}
    assert [found.words(name) for name in ("n1", "n2", "n3")] == [
        ["a:NoSchedule"],
        ["old:NoSchedule", "a:NoSchedule"],
        [],
    ]


def test_a_selector_that_matches_no_node_is_told(cluster: Make) -> None:
    wishes, _faults = node_taints.read([raw("a:NoSchedule")], "present")
    with pytest.raises(CallAborted) as stopped:
        cluster(n1=[]).call(TaintOptions("present", (), wishes, node_selector="pool=blue"))
    assert stopped.value.reason.code == "selector_matches_nothing"
