# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What would remove the obstacles of a plan, and that nothing is planned again for it."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names as names_module
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import dispositions, pod_facts
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import drafts, preflight, world
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning.advice import MAX_OBJECTS, advice
from ansible_collections.kubeops.node_maintenance.tests.unit.support.advised import ROOM, nodes, roomy, wanted, web
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    budget,
    deployment,
    owned,
    pod,
    snapshot,
    workload,
)

NEVER: Raw = {"maxUnavailable": 0}
Told = list[tuple[list[str], list[tuple[str, str]]]]


def stateful(name: str, on: str = "n1", **more: t.Any) -> dict[str, list[Raw]]:
    """A StatefulSet with one pod, which cannot be surged."""
    top = workload("StatefulSet", name, 1)
    return {
        "stateful_sets": [top],
        "pods": [pod(f"{name}-0", on, owned("StatefulSet", name), labels={"app": name}, **more)],
    }


def recreated(name: str, on: str = "n1") -> dict[str, list[Raw]]:
    top = deployment(name, 1, strategy={"type": "Recreate"})
    return {**top, "pods": [pod(f"{name}-x", on, owned("ReplicaSet", name), labels={"app": name})]}


def over(name: str, **more: t.Any) -> Raw:
    return budget(name, 0, healthy=1, rule=NEVER, selector={"matchLabels": {"app": name}}, **more)


def planned(seen: Snapshot, asked: preflight.DraftOptions) -> drafts.Plan:
    return drafts.judged(seen, asked, drafts.draft(seen, asked))


def advised(seen: Snapshot, *names: str, **more: t.Any) -> Told:
    """The codes that each advice is about, and what it changes."""
    asked = wanted(*names, **more)
    found = [one.to_dict() for one in advice(seen, asked, planned(seen, asked))]
    return [(one["codes"], [(change["code"], change["name"]) for change in one["changes"]]) for one in found]


def changed(found: Told) -> list[tuple[str, str]]:
    return [change for _codes, changes in found for change in changes]


def test_a_feasible_plan_needs_no_advice() -> None:
    assert advised(snapshot(web(1), nodes=nodes())) == []


@pytest.mark.parametrize("method", [None, "replace"])
def test_a_single_pod_that_may_not_be_let_go_is_helped_by_a_surge_without_an_interruption(method: str | None) -> None:
    """As its owner or a policy in the server refuses that; the command is one to paste, and so is the way back."""
    notes: Raw = {names_module.METHOD: method} if method else {}

    def shop(annotations: Raw) -> Snapshot:
        top = web(1)
        top["deployments"][0]["metadata"]["annotations"] = annotations
        top["pods"][0]["metadata"]["labels"] = {"app": "web", names_module.HASH: "5d8f"}
        return snapshot(top, nodes=nodes())

    refused = {"uid-Deployment-web": "Nobody touches labels."}
    asked = wanted(choices={"method": "replace"}, unreplaced=refused)
    (told,) = advice(shop(notes), asked, planned(shop(notes), asked))
    assert told.codes == ("not_replaced",)
    assert [change.code for change in told.changes] == ["choose_method", "allow_interruption", "set_option"]
    surge = told.changes[0]
    assert surge.command == f"kubectl annotate --overwrite deployment web -n shop {names_module.METHOD}=surge"
    assert surge.back == f"kubectl annotate --overwrite deployment web -n shop {names_module.METHOD}" + (
        f"={method}" if method else "-"
    )
    found = planned(shop({names_module.METHOD: "surge"}), asked)
    assert [one.route for one in found.draft.plans] == ["surge"]
    assert not [finding for finding in found.findings if finding.severity == "blocker"]


def test_a_budget_that_allows_nothing_is_helped_by_a_replica_or_by_its_rule() -> None:
    seen = snapshot(web(2), nodes=nodes(), budgets=[budget("web", 0, healthy=2, desired=2)])
    changes = [("add_replica", "web"), ("relax_budget", "web")]
    assert advised(seen) == [(["budget_allows_nothing"], changes)]


@pytest.mark.parametrize(
    ("method", "annotated", "advises"), [("surge", None, True), ("surge", "surge", False), ("replace", "surge", False)]
)
def test_replacing_pods_first_is_advised_where_it_helps_against_their_budget(
    method: str, annotated: str | None, advises: bool
) -> None:
    """The owner's annotation is stronger than the option."""
    top = web(2)
    top["deployments"][0]["metadata"]["annotations"] = {names_module.METHOD: annotated} if annotated else {}
    labels = {"app": "web", names_module.HASH: "5d8f"}
    top["replica_sets"][0]["spec"]["selector"] = {"matchLabels": labels}
    for one in top["pods"]:
        one["metadata"]["labels"] = labels
    seen = snapshot(top, nodes=nodes(), budgets=[budget("web", 0, healthy=2, desired=2, rule=NEVER)])
    option = [("set_option", "method")] if advises else []
    assert changed(advised(seen, choices={"method": method})) == [("relax_budget", "web"), *option]
    assert changed(advised(seen, choices={"method": "replace"})) == ([] if advises else [("relax_budget", "web")])


@pytest.mark.parametrize("rule", [NEVER, {"minAvailable": "100%"}])
def test_a_replica_does_not_help_where_the_rule_never_allows_any(rule: Raw) -> None:
    seen = snapshot(web(2), nodes=nodes(), budgets=[budget("web", 0, healthy=2, desired=2, rule=rule)])
    assert changed(advised(seen)) == [("relax_budget", "web")]


def test_a_single_pod_that_cannot_be_surged_may_be_interrupted() -> None:
    found = advised(snapshot(stateful("db"), nodes=nodes()))
    assert found == [(["stateful_single"], [("allow_interruption", "db"), ("set_option", "allow_interruption")])]


def test_one_option_for_many_is_told_once_and_first() -> None:
    seen = snapshot(*[stateful(f"db{n}") for n in range(MAX_OBJECTS)], recreated("web"), nodes=nodes())
    ((codes, changes),) = advised(seen)
    assert codes == ["stateful_single", "recreate"]
    assert changes[0] == ("set_option", "allow_interruption")
    assert [code for code, _name in changes[1:]] == ["allow_interruption"] * MAX_OBJECTS


def test_what_stands_behind_a_consent_is_told_as_well() -> None:
    found = advised(snapshot(stateful("db"), nodes=nodes(), budgets=[over("db")]))
    assert [codes for codes, _changes in found] == [["stateful_single"], ["budget_allows_nothing"]]
    assert found[1][1] == [("relax_budget", "db")]


def test_what_only_options_remove_is_told_to_the_last() -> None:
    lost = pod("bare", volumes=[{"name": "x", "emptyDir": {}}])
    found = advised(snapshot({"pods": [lost]}, nodes=nodes()))
    assert changed(found) == [("set_option", "force"), ("set_option", "delete_emptydir_data")]


def test_one_of_two_budgets_is_deleted_and_first_the_looser_one() -> None:
    budgets = [budget("strict", 1, healthy=3), budget("loose", 2, healthy=3, desired=1)]
    found = advised(snapshot(web(3), nodes=nodes(), budgets=budgets))
    assert found == [(["two_budgets"], [("delete_budget", "loose"), ("delete_budget", "strict")])]


def test_the_budget_of_an_operator_is_left_to_it() -> None:
    theirs = budget("web", 0, healthy=2, desired=2)
    owner = {"kind": "Cluster", "name": "c", "uid": "u", "apiVersion": "db.example/v1"}
    theirs["metadata"]["ownerReferences"] = [owner]
    assert ("relax_budget", "web") not in changed(advised(snapshot(web(2), nodes=nodes(), budgets=[theirs])))


def test_a_surge_without_room_may_be_an_interruption() -> None:
    small = {**ROOM, "cpu": "1"}
    seen = snapshot(web(1, cpu="800m"), nodes=[roomy("n1", small), roomy("n2", {**ROOM, "cpu": "500m"})])
    found = advised(seen)
    assert found == [(["no_room"], [("allow_interruption", "web"), ("set_option", "allow_interruption")])]


@pytest.mark.parametrize(("evacuates", "apart"), [(False, True), (True, False)])
def test_fewer_nodes_at_a_time_are_enough_unless_they_stay_out(evacuates: bool, apart: bool) -> None:
    seen = snapshot(nodes=[*nodes("n1", "n2"), roomy("n3", unschedulable=True)])
    found = advised(seen, "n1", "n2", max_parallel=2, evacuates=evacuates)
    assert changed(found) == [*([("set_option", "serial")] if apart else []), ("uncordon", "n3")]


def test_where_nothing_helps_nothing_is_advised() -> None:
    me = snapshot(pods=[pod("awx", "n1", owned("Job", "x", "batch/v1"))], nodes=nodes())
    assert advised(me, "n1", "n2", choices={"self_pod": me.pods[-1].ref}) == []


@pytest.mark.parametrize("many", [1, 6, 60])
def test_advice_looks_again_at_refused_pods_alone(monkeypatch: pytest.MonkeyPatch, many: int) -> None:
    """However many there are: nothing is planned or placed anew, and no other pod gets a route again."""
    parts = [stateful(f"db{n}") for n in range(many)] + [web(60)]
    seen = snapshot(*parts, nodes=nodes(), budgets=[over(f"db{n}") for n in range(many)])
    asked = wanted()
    plan = planned(seen, asked)
    looked: list[str] = []
    routed = dispositions._plan

    def counted(case: pod_facts.PodFacts) -> t.Any:
        looked.append(case.pod.name)
        return routed(case)

    def never(*_args: t.Any, **_more: t.Any) -> t.Any:
        raise AssertionError("it was planned again")

    monkeypatch.setattr(dispositions, "_plan", counted)
    for place, name in ((drafts, "draft"), (drafts, "judged"), (world, "World")):
        monkeypatch.setattr(place, name, never)
    assert len(advice(seen, asked, plan)) == 2
    assert {name for name in looked if not name.startswith("db")} == set()
    assert len(looked) <= 2 * many
