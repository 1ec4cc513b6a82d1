# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What would unblock a plan: each set of changes works, and none without any of its changes."""

from __future__ import annotations

import typing as t

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.advice import changes, search
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.preflight import planning
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.advised import ROOM, nodes, roomy, wanted, web
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.objects import (
    Raw,
    budget,
    owned,
    pod,
    snapshot,
    workload,
)

NEVER: Raw = {"maxUnavailable": 0}


def stateful(name: str, on: str = "n1", **more: t.Any) -> dict[str, list[Raw]]:
    """A StatefulSet with one pod, which cannot be swapped."""
    top = workload("StatefulSet", name, 1)
    return {
        "stateful_sets": [top],
        "pods": [pod(f"{name}-0", on, owned("StatefulSet", name), labels={"app": name}, **more)],
    }


def advised(seen: Snapshot, *names: str, most: int | None = None, **more: t.Any) -> tuple[search.Advice, ...]:
    return search.advice(seen, wanted(*names, **more), most=most)


def codes(found: t.Iterable[search.Advice]) -> list[list[tuple[str, str]]]:
    return [[(change.code, change.name) for change in one.chosen] for one in found]


def commands(one: search.Advice) -> list[str]:
    return [change["command"] for change in one.to_dict()["changes"]]


def blockers(plan: planning.Plan) -> list[str]:
    return [finding.code for finding in plan.findings if finding.severity == "blocker"]


def test_a_feasible_plan_is_planned_once_and_needs_no_advice() -> None:
    seen = snapshot(web(1), nodes=nodes())
    trials = search.Trials(changes.Situation(seen, wanted()), 10)
    assert search._search(trials) == []
    assert trials.left == 9
    assert advised(seen) == ()


def test_a_budget_that_allows_nothing_is_helped_by_a_replica_by_its_rule_or_by_a_swap() -> None:
    seen = snapshot(web(2), nodes=nodes(), budgets=[budget("web", 0, healthy=2, desired=2)])
    found = advised(seen)
    assert codes(found) == [[("add_replica", "web")], [("relax_budget", "web")], [("set_option", "swap_blocked")]]
    assert commands(found[0]) == ["kubectl scale deployment web -n shop --replicas=3"]
    patch = '{"spec":{"maxUnavailable":1,"minAvailable":null}}'
    assert commands(found[1]) == [f"kubectl patch pdb web -n shop --type=merge -p '{patch}'"]
    assert commands(found[2]) == ["-e maintain_swap_blocked=true"]


def test_a_replica_does_not_help_where_the_rule_never_allows_any() -> None:
    seen = snapshot(web(2), nodes=nodes(), budgets=[budget("web", 0, healthy=2, desired=2, rule=NEVER)])
    assert codes(advised(seen)) == [[("relax_budget", "web")], [("set_option", "swap_blocked")]]


def test_a_replica_needs_room_on_a_node_that_stays() -> None:
    full = [roomy("n1"), roomy("n2", {**ROOM, "pods": "1"})]
    seen = snapshot(web(2, on=("n1", "n2")), nodes=full, budgets=[budget("web", 0, healthy=2, desired=2)])
    assert ("add_replica", "web") not in [one for found in codes(advised(seen)) for one in found]


def test_the_minimum_of_an_autoscaler_is_raised_instead_of_the_replicas() -> None:
    target = {"kind": "Deployment", "name": "web"}
    scaler = {
        "metadata": {"name": "web", "namespace": "shop", "uid": "uid-hpa"},
        "spec": {"scaleTargetRef": target, "minReplicas": 2, "maxReplicas": 5},
    }
    parts: dict[str, list[Raw]] = {"budgets": [budget("web", 0, healthy=2, desired=2)], "autoscalers": [scaler]}
    first = advised(snapshot(web(2), nodes=nodes(), **parts))[0]
    assert commands(first) == ['kubectl patch hpa web -n shop --type=merge -p \'{"spec":{"minReplicas":3}}\'']


def test_a_single_pod_that_cannot_be_swapped_may_be_interrupted() -> None:
    found = advised(snapshot(stateful("db"), nodes=nodes()))
    assert codes(found) == [[("allow_interruption", "db")], [("set_option", "allow_interruption")]]
    said = "kubectl annotate statefulset db -n shop maintenance.kubeops.io/allow-interruption=true"
    assert commands(found[0]) == [said]
    assert found[0].to_dict()["changes"][0]["kind"] == "StatefulSet"


def test_a_consent_that_its_budget_stands_against_comes_with_its_budget() -> None:
    budgets = [budget("db", 0, healthy=1, rule=NEVER, selector={"matchLabels": {"app": "db"}})]
    found = advised(snapshot(stateful("db"), nodes=nodes(), budgets=budgets))
    assert codes(found)[0] == [("allow_interruption", "db"), ("relax_budget", "db")]


def test_one_of_two_budgets_is_deleted_and_first_the_looser_one() -> None:
    budgets = [budget("strict", 1, healthy=3), budget("loose", 2, healthy=3, desired=1)]
    found = advised(snapshot(web(3), nodes=nodes(), budgets=budgets))
    assert codes(found) == [[("delete_budget", "loose")], [("delete_budget", "strict")]]
    assert [one.rpartition(" && ")[2] for one in commands(found[0])] == ["kubectl delete pdb loose -n shop"]


def test_the_budget_of_an_operator_is_left_to_it() -> None:
    theirs = budget("web", 0, healthy=2, desired=2)
    theirs["metadata"]["ownerReferences"] = [
        {"kind": "Cluster", "name": "c", "uid": "u", "apiVersion": "db.example/v1"}
    ]
    found = codes(advised(snapshot(web(2), nodes=nodes(), budgets=[theirs])))
    assert ("relax_budget", "web") not in [one for each in found for one in each]


@pytest.mark.parametrize(
    ("parts", "option"),
    [
        ({"pods": [pod("bare")]}, "force"),
        ({"pods": [pod("bare", volumes=[{"name": "x", "emptyDir": {}}])]}, "force delete_emptydir_data"),
    ],
)
def test_what_only_an_option_removes(parts: dict[str, list[Raw]], option: str) -> None:
    (only,) = advised(snapshot(parts, nodes=nodes()))
    assert [change.name for change in only.chosen] == option.split()


def test_pods_that_fit_nowhere_get_nodes_of_their_shape() -> None:
    small = {**ROOM, "cpu": "1"}
    seen = snapshot(web(2, cpu="800m", on=("n1", "n2")), nodes=nodes("n1", "n2", room=small))
    (only,) = advised(seen)
    assert only.to_dict()["changes"] == [
        {
            "code": "add_node",
            "kind": "Node",
            "namespace": "",
            "name": "n1",
            "text": "Add a node like n1 (cpu 1, memory 8Gi, pods 10), with its labels and taints.",
            "command": "",
            "back": "",
        }
    ]
    assert not blockers(only.plan)


def test_as_many_nodes_as_it_takes_are_told_as_one_change() -> None:
    small = {**ROOM, "cpu": "1"}
    pods = web(3, cpu="800m", on=("n1", "n2", "n3"))
    seen = snapshot(pods, nodes=nodes("n1", "n2", "n3", room=small))
    (only,) = advised(seen, "n1", "n2", max_parallel=2, evacuates=True)
    told = only.to_dict()["changes"]
    assert [change["text"].partition(" (")[0] for change in told] == ["Add 2 nodes like n1"]


def test_a_cordoned_node_is_looked_at_before_a_new_one() -> None:
    seen = snapshot(web(1), nodes=[roomy("n1"), roomy("n2", unschedulable=True)])
    found = advised(seen)
    assert codes(found) == [[("uncordon", "n2")], [("add_node", "n1")]]
    assert commands(found[0]) == ["kubectl uncordon n2"]


def test_fewer_nodes_at_a_time_may_be_enough() -> None:
    seen = snapshot(nodes=nodes("n1", "n2"))
    assert codes(advised(seen, "n1", "n2", max_parallel=2))[0] == [("set_option", "serial")]


def test_a_node_on_which_nothing_else_helps_is_left_out() -> None:
    me = snapshot(web(1, on=("n2",)), pods=[pod("awx", "n1", owned("Job", "x", "batch/v1"))], nodes=nodes())
    ours = {"self_pod": me.pods[-1].ref}
    (only,) = advised(me, "n1", "n2", choices=ours)
    assert codes([only]) == [[("leave_out", "n1")]]
    assert commands(only) == ["-e maintain_nodes=n2"]
    assert advised(me, "n1", choices=ours) == ()


def test_pods_that_nothing_helps_are_counted() -> None:
    """No node has the label that its pods ask for, not even the one they are on."""
    lost = stateful("db")
    lost["pods"][0]["spec"]["nodeSelector"] = {"disk": "gone"}
    (first, *_others) = advised(snapshot(lost, nodes=nodes()))
    assert codes([first]) == [[("allow_interruption", "db")]]
    assert first.unplaced == 1


@pytest.mark.parametrize("most", [0, 1, 2, 5, 9, 40])
def test_it_is_planned_again_no_more_often_than_allowed(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    planned = []
    judged = planning.judged

    def counted(*args: t.Any) -> planning.Plan:
        planned.append(1)
        return judged(*args)

    monkeypatch.setattr(planning, "judged", counted)
    parts = [stateful(f"db{n}") for n in range(6)] + [web(2)]
    seen = snapshot(*parts, nodes=nodes(), budgets=[budget("web", 0, healthy=2, rule=NEVER)])
    found = advised(seen, most=most)
    assert len(planned) <= most
    assert most > 1 or not found
    assert most < 40 or found


def test_many_pods_are_planned_again_less_often() -> None:
    assert search.tries(10) == search.TRIES
    assert search.tries(3_000) == 20
    assert search.tries(100_000) == search.FEWEST_TRIES


# -- whatever the cluster ----------------------------------------------------------------------------------------


@st.composite
def clusters(draw: st.DrawFn) -> tuple[Snapshot, planning.Wanted]:
    names = [f"n{number}" for number in range(1, draw(st.integers(2, 4)) + 1)]
    room = {"cpu": draw(st.sampled_from(["1", "2"])), "memory": "8Gi", "pods": "10"}
    built = [roomy(name, room, unschedulable=draw(st.integers(0, 5)) == 0) for name in names]
    parts: list[dict[str, list[Raw]]] = []
    budgets: list[Raw] = []
    if replicas := draw(st.integers(0, 3)):
        parts.append(web(replicas, cpu=draw(st.sampled_from(["100m", "700m"])), on=names))
        for number in range(draw(st.integers(0, 2))):
            rule = draw(st.sampled_from([NEVER, {"minAvailable": replicas}, {"maxUnavailable": 1}]))
            allowed = 1 if rule == {"maxUnavailable": 1} else 0
            budgets.append(budget(f"b{number}", allowed, healthy=replicas, desired=replicas - allowed, rule=rule))
    for number in range(draw(st.integers(0, 2))):
        scratch = [{"name": "x", "emptyDir": {}}] if draw(st.booleans()) else []
        parts.append(stateful(f"db{number}", draw(st.sampled_from(names)), volumes=scratch))
    if draw(st.booleans()):
        parts.append({"pods": [pod("bare", draw(st.sampled_from(names)), labels={})]})
    chosen = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
    asked = planning.Wanted(tuple(chosen), max_parallel=draw(st.integers(1, 2)), now="2026-01-02T00:00:00Z")
    return snapshot(*parts, nodes=built, budgets=budgets), asked


@settings(deadline=None, max_examples=120)
@given(clusters())
def test_each_set_works_and_needs_each_of_its_changes(drawn: tuple[Snapshot, planning.Wanted]) -> None:
    begun = changes.Situation(*drawn)

    def standing(made: t.Iterable[changes.Change]) -> tuple[int, int]:
        now = begun
        for change in made:
            now = change.made(now)
        plan = planning.judged(now.snapshot, now.wanted, planning.draft(now.snapshot, now.wanted))
        return len(blockers(plan)), sum(one.fits is False for one in plan.placed.values())

    for one in search.advice(*drawn):
        assert standing(one.chosen) == (0, one.unplaced)
        # Also in another order.
        assert standing(reversed(one.chosen)) == (0, one.unplaced)
        for left_out in one.chosen:
            against, unplaced = standing(change for change in one.chosen if change is not left_out)
            assert against or unplaced > one.unplaced
