# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`pdb_guard` from one state to another: what is predicted, what is done once, and what is left to others.

Deployments `a` and `b` have one pod each, on different nodes, and are surged; `web` has no budget and gets a guard.
"""

from __future__ import annotations

import collections
import json
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context, Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import arguments as guard_arguments
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_guard import GuardOptions, guard
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Saved, World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.guarded import (
    ME,
    cordoned_world,
    home_of_record,
    outcomes,
    uid,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.left_out import defaults

LEASES = kinds.LEASES.resource
State = t.Literal["present", "absent"]


@pytest.fixture(scope="module")
def cordoned() -> Saved:
    return cordoned_world()


@pytest.fixture(scope="module")
def protected(cordoned: Saved) -> Saved:
    with World.of(cordoned) as world:
        assert not called(world)[0].failed
        world.machine.run_for(70.0)
        return world.saved()


def homes(world: World) -> tuple[str, str]:
    return home_of_record(world, "a"), home_of_record(world, "b")


def called(
    world: World,
    state: State = "present",
    nodes: tuple[str, ...] = (),
    *,
    check: bool = False,
    run: str = ME,
    **options: t.Any,
) -> tuple[Result, Context]:
    me = world.process("me")
    ctx = me.ctx(run, check=check)
    wanted = GuardOptions(state, nodes or homes(world), **{"method": "surge", **options})
    return me.run(lambda _ctx: guard(ctx, wanted)), ctx


def workloads(result: Result) -> dict[str, str]:
    return {line["name"]: line["outcome"] for line in result.data["workloads"]}


def writes(world: World) -> list[str]:
    return [f"{sent.request.verb} {sent.request.resource}" for sent in world.log if sent.request.writes]


# -- present -------------------------------------------------------------------------------------------


def test_check_mode_predicts_the_protection(cordoned: Saved) -> None:
    with World.of(cordoned) as world:
        predicted, said = called(world, check=True)
        assert writes(world) == []
        real, made = called(world)
    assert workloads(predicted) == workloads(real) == {"a": "raised", "b": "raised", "web": "guarded"}
    assert outcomes(predicted) == outcomes(real)
    assert set(outcomes(real).values()) == {"protected"}
    assert sorted(change.sentence for change in said.changes) == sorted(change.sentence for change in made.changes)
    shown = [
        {w["name"]: (w["replicas_before"], w["replicas_during"]) for w in r.data["workloads"]}
        for r in (predicted, real)
    ]
    assert shown[0] == shown[1] == {"a": (1, 2), "b": (1, 2), "web": (8, 8)}


def test_check_mode_tells_what_happens_on_a_node_that_is_not_cordoned(cordoned: Saved) -> None:
    with World.of(cordoned) as world:
        for name in homes(world):
            world.patch(kinds.NODES, name, {"metadata": {"annotations": {names.RECORD: None}}})
        predicted, _said = called(world, check=True)
        real, _made = called(world)
    assert set(outcomes(real).values()) == {"not_in_maintenance"}
    assert all("not_in_maintenance" in node["message"] for node in predicted.data["nodes"])
    assert workloads(predicted)["a"] == "raised", "an earlier task may only have predicted the cordon"


def test_what_a_protection_costs(cordoned: Saved) -> None:
    with World.of(cordoned) as world:
        called(world)
        cost = collections.Counter(writes(world))
        assert {what: cost[what] for what in cost if "leases" not in what} == {
            "create poddisruptionbudgets.policy": 1,
            "patch pods": 2,
            "patch deployments.apps/scale": 2,
        }
        assert cost[f"create {LEASES}"] == 2, "a record for each surge; the locks are there"
        lists = collections.Counter(sent.request.resource for sent in world.log if sent.request.verb == "list")
        assert (lists[kinds.HPAS.resource], lists[kinds.PVCS.resource]) == (1, 0)


@pytest.mark.parametrize("check", [True, False])
def test_what_is_protected_is_not_written_again(protected: Saved, check: bool) -> None:
    with World.of(protected) as world:
        result, ctx = called(world, check=check)
        assert workloads(result) == {"a": "already_raised", "b": "already_raised", "web": "already_guarded"}
        assert set(outcomes(result).values()) == {"already_protected"}
        assert (writes(world), ctx.changes, result.message) == ([], [], "")


def test_what_is_left_out_is_as_documented(protected: Saved) -> None:
    with World.of(protected) as world:
        assert not called(world)[0].failed, "with the defaults"
    found, wanted = defaults(
        guard_arguments.SPEC, GuardOptions, settle=2.0, timeout=600.0, reactive_budgets=(), rules=()
    )
    assert {**found, "method": "replace"} == wanted, "whoever calls the engine says which"


def test_without_surges_only_guards_are_made(cordoned: Saved) -> None:
    with World.of(cordoned) as world:
        result, _ctx = called(world, method="evict")
        assert workloads(result) == {"web": "guarded"}
        assert f"create {LEASES}" not in writes(world)


def restaged(world: World, app: str, **changes: str) -> None:
    """The record of an app's surge is another one."""
    lease = names.surge_name(uid(world, app))
    raw = world.get(kinds.LEASES, lease, names.NAMESPACE)
    record = {**json.loads(raw["metadata"]["annotations"][names.SURGE]), **changes}
    body = {"metadata": {"annotations": {names.SURGE: json.dumps(record)}}}
    world.patch(kinds.LEASES, lease, body, names.NAMESPACE)


@pytest.mark.parametrize(
    ("changes", "again"),
    [
        pytest.param({}, False, id="it is ready"),
        pytest.param({"stage": "raising"}, True, id="it was not ready"),
        pytest.param({"run": "r9"}, True, id="it is another run's"),
        pytest.param({"pod_uid": "other"}, True, id="it is for another pod"),
        pytest.param({"target": 3}, True, id="its count is not there"),
    ],
)
def test_a_surge_is_ready_if_this_run_made_it_so_for_all_of_its_pods(
    protected: Saved, changes: dict[str, t.Any], again: bool
) -> None:
    with World.of(protected) as world:
        restaged(world, "a", **changes)
        predicted, _ctx = called(world, check=True)
        assert workloads(predicted)["a"] == ("raised" if again else "already_raised")
        assert workloads(predicted)["b"] == "already_raised"


def test_check_mode_writes_no_record_where_one_fits(protected: Saved) -> None:
    """What is recorded already is not recorded again, and of what is raised already nothing is changed."""
    with World.of(protected) as world:
        restaged(world, "a", stage="raising")
        assert called(world, check=True)[1].changes == []
        for changes in ({"run": "r9"}, {"run": "r1", "pod_uid": "other"}):
            restaged(world, "a", **t.cast("t.Any", changes))
            sentences = [change.sentence for change in called(world, check=True)[1].changes]
            assert sentences[0].startswith("Record the surge of Deployment shop/a: ")


@pytest.mark.parametrize(
    ("state", "unknown", "unrecorded"),
    [
        ("present", "gone", "not_in_maintenance"),
        ("absent", "not_in_maintenance_any_more", "not_in_maintenance_any_more"),
    ],
)
def test_nodes_that_are_not_in_maintenance(cordoned: Saved, state: State, unknown: str, unrecorded: str) -> None:
    with World.of(cordoned) as world:
        other = next(f"n{number}" for number in range(1, 6) if f"n{number}" not in homes(world))
        result, _ctx = called(world, state, ("n0", other))
        assert outcomes(result) == {"n0": unknown, other: unrecorded}
        assert writes(world) == []
        assert result.failed is (state == "present")


@pytest.mark.parametrize("state", ["present", "absent"])
def test_a_node_of_another_run_is_left_alone(protected: Saved, state: State) -> None:
    with World.of(protected) as world:
        result, _ctx = called(world, state, run="r9/x")
        assert set(outcomes(result).values()) == {"adopted_by"}
        assert writes(world) == []


# -- absent --------------------------------------------------------------------------------------------


def test_check_mode_predicts_the_way_back(protected: Saved) -> None:
    with World.of(protected) as world:
        predicted, said = called(world, "absent", check=True)
        assert writes(world) == []
        real, made = called(world, "absent")
        assert outcomes(predicted) == outcomes(real)
        assert set(outcomes(real).values()) == {"given_back"}
        names_ = sorted(line["outcome"] for line in predicted.data["workloads"])
        assert names_ == sorted(line["outcome"] for line in real.data["workloads"])
        assert names_ == ["given_back", "given_back", "unguarded"]
        for result in (predicted, real):
            (line,) = [line for line in result.data["workloads"] if line["outcome"] == "unguarded"]
            assert (line["name"], line["replicas_before"], line["replicas_during"]) == ("web", 8, 8)
        assert sorted(change.sentence for change in said.changes) == sorted(change.sentence for change in made.changes)
        done = len(writes(world))
        again, _ctx = called(world, "absent")
        assert set(outcomes(again).values()) == {"already_given_back"}
        assert (len(writes(world)), again.data["workloads"]) == (done, [])


def test_a_guard_alone_is_removed(cordoned: Saved) -> None:
    with World.of(cordoned) as world:
        called(world, method="evict")
        here = {pod["spec"]["nodeName"] for pod in world.pods(app="web")}
        result, _ctx = called(world, "absent")
        assert [line["outcome"] for line in result.data["workloads"]] == ["unguarded"]
        assert all((outcome == "given_back") == (name in here) for name, outcome in outcomes(result).items())
        assert world.store.of(kinds.BUDGETS.resource) == {}


def test_only_the_nodes_that_are_named_are_given_back(protected: Saved) -> None:
    """The guard goes on for the other one."""
    with World.of(protected) as world:
        a, b = homes(world)
        both = json.loads(
            next(iter(world.store.of(kinds.BUDGETS.resource).values()))["metadata"]["annotations"][names.SERVES_NODES]
        )
        result, _ctx = called(world, "absent", (a,))
        assert outcomes(result) == {a: "given_back"}
        assert workloads(result)["a"] == "given_back"
        assert "b" not in workloads(result)
        left = world.store.of(kinds.BUDGETS.resource)
        serves = [json.loads(raw["metadata"]["annotations"][names.SERVES_NODES]).keys() for raw in left.values()]
        assert serves == ([{b}] if b in both else [])


@pytest.mark.parametrize("state", ["present", "absent"])
def test_the_record_of_a_surge_for_other_nodes_that_nobody_can_read_is_a_warning(
    protected: Saved, state: State
) -> None:
    with World.of(protected) as world:
        a, b = homes(world)
        restaged(world, "a", v=t.cast("t.Any", 99))
        result, _ctx = called(world, state, (b,))
        assert not result.failed
        found = [(finding["code"], finding["severity"]) for finding in result.data["findings"]]
        assert found == ([("bad_surge", "warning")] if state == "absent" else [])
        assert list(outcomes(result)) == [b] != [a]


def test_what_served_a_node_that_is_gone_is_given_back_too(protected: Saved) -> None:
    with World.of(protected) as world:
        a, b = homes(world)
        world.delete(kinds.NODES, a)
        world.settle()
        result, _ctx = called(world, "absent", (b,))
        assert outcomes(result) == {b: "given_back"}
        assert {"a", "b"} <= workloads(result).keys()
        assert not [name for _ns, name in world.store.of(LEASES) if name.startswith(names.SURGE_PREFIX)]
