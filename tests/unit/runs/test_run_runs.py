# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long a run is remembered: as long as it lives, until it succeeds, or until nobody can resume it any more."""

from __future__ import annotations

import functools
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted, Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions, State
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs.arguments import StateOptions, state
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault, What
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

INPUT = {"playbook": "maintain", "nodes": ["a", "b"]}
OTHER = {"playbook": "maintain", "nodes": ["c"]}
DAY = 25 * 3600.0


@pytest.fixture
def world() -> Iterator[World]:
    with World([manifests.node(name) for name in ("a", "b", "c")]) as made:
        yield made


def call(world: World, options: StateOptions, run: str = "", by: str = "me") -> Result:
    return world.process(by).run(lambda ctx: state(ctx, options), run)


def begun(world: World, given: dict[str, t.Any] | None = None, run: str = "", by: str = "me") -> Result:
    given = given or INPUT
    waves = [[name] for name in given["nodes"]]
    return call(world, StateOptions("started", input=given, plan={"waves": waves}), run, by)


def noted(world: World, run: str, *nodes: str) -> Result:
    return call(world, StateOptions("noted", nodes=nodes), run)


def out(world: World, run: str, *nodes: str, step: State = "parked") -> None:
    steps: tuple[State, ...] = ("cordoned", step)
    for each in steps:
        options = CordonOptions(each, nodes)
        assert not world.process("me").run(functools.partial(cordon, options=options), run).failed


def killed(world: World, by: str = "me") -> None:
    world.machine.kill(world.process(by).process)


def runs(world: World) -> set[str]:
    """Ids of the stored runs."""
    return {name.removeprefix(names.RUN_PREFIX) for _ns, name in world.store.of(kinds.CONFIGMAPS.resource)}


def leases(world: World) -> set[str]:
    return {name for _ns, name in world.store.of(kinds.LEASES.resource)}


def id_of(result: Result) -> str:
    return str(result.data["run_id"])


def test_the_same_command_resumes_a_failed_run_and_forgets_none(world: World) -> None:
    mine, other = begun(world), begun(world, OTHER)
    noted(world, mine.data["run"], "a")
    call(world, StateOptions("ended", failed=True), mine.data["run"])
    again = begun(world)
    assert (again.data["run_id"], again.data["resumed"], again.data["finished_nodes"]) == (id_of(mine), True, ["a"])
    assert again.data["run"] != mine.data["run"], "another start has a nonce of its own"
    assert runs(world) == {id_of(mine), id_of(other)}


def test_a_start_forgets_runs_that_failed_long_ago_and_that_nobody_resumes_any_more(world: World) -> None:
    for given in (INPUT, OTHER):
        old = begun(world, given)
        noted(world, old.data["run"], given["nodes"][0])
        call(world, StateOptions("ended", failed=True), old.data["run"])
    world.machine.run_for(DAY)
    answer = begun(world)
    assert answer.data["resumed"] is False
    assert "too old to be resumed" in answer.message
    assert runs(world) == {id_of(answer)}


def test_a_roll_of_more_than_a_day_keeps_its_memory_when_another_run_starts(world: World) -> None:
    long = begun(world, OTHER)
    for _hour in range(25):
        noted(world, long.data["run"], "x")
        world.machine.run_for(3600.0)
    begun(world)
    assert id_of(long) in runs(world)


def test_the_same_command_waits_to_see_whether_a_run_of_more_than_a_day_is_dead(world: World) -> None:
    long = begun(world)
    world.machine.run_for(DAY)
    tina = world.process("tina")

    def goes_on() -> None:
        for _moment in range(10):
            state(tina.ctx(long.data["run"]), StateOptions("noted"))
            tina.clock.sleep(20.0)

    tina.spawn(goes_on)
    world.machine.run_for(1.0)
    with pytest.raises(CallAborted, match=f"Run {id_of(long)} of me@sim, started .* is still at work"):
        begun(world)
    assert runs(world) == {id_of(long)}
    world.machine.run_for(300.0)
    answer = begun(world)
    assert runs(world) == {id_of(answer)}, "nobody has renewed it for a minute"


def test_a_run_that_still_has_a_node_is_kept_for_whoever_names_it(world: World) -> None:
    other = begun(world, OTHER)
    out(world, other.data["run"], "c")
    call(world, StateOptions("ended", failed=True), other.data["run"])
    world.machine.run_for(DAY)
    begun(world)
    assert id_of(other) in runs(world)
    answer = begun(world, run=id_of(other))
    assert (answer.data["run_id"], answer.data["resumed"]) == (id_of(other), True)


def test_a_usual_start_does_not_list_nodes_for_that(world: World) -> None:
    begun(world)
    assert not [sent for sent in world.log if sent.request.resource == "nodes"]


def test_success_forgets_the_run_and_failure_keeps_it(world: World) -> None:
    mine = begun(world)
    noted(world, mine.data["run"], "a")
    call(world, StateOptions("ended", failed=True), mine.data["run"])
    assert runs(world) == {id_of(mine)}
    assert leases(world) == set(), "it does not live any more"
    call(world, StateOptions("ended"), mine.data["run"])
    assert runs(world) == set()


def test_a_start_that_was_refused_leaves_nothing(world: World) -> None:
    first = begun(world)
    out(world, first.data["run"], "a")
    second = begun(world, OTHER)
    call(world, StateOptions("ended", failed=True), second.data["run"])
    assert runs(world) == {id_of(first)}
    assert leases(world) == {f"run-{id_of(first)}"}


def test_a_failed_run_with_a_node_left_is_kept(world: World) -> None:
    mine = begun(world)
    out(world, mine.data["run"], "a")
    assert "resumes it" in call(world, StateOptions("ended", failed=True), mine.data["run"]).message
    assert runs(world) == {id_of(mine)}


def test_a_release_of_its_last_node_forgets_the_run_and_one_before_does_not(world: World) -> None:
    mine = begun(world)
    out(world, mine.data["run"], "a", "b")
    # As `release` calls it: for whatever run the records name, after it has taken the nodes up.
    out(world, "/n", "a", step="returning")
    said = noted(world, "/n", "a", "b").message
    assert said.startswith(f"Run {id_of(mine)} still has to maintain b: the same command resumes it")
    assert runs(world) == {id_of(mine)}, "the same command goes on with b, which is not ours"
    out(world, "/n", "b", step="returning")
    noted(world, "/n", "b")
    assert runs(world) == set()


def killed_before_its_lock_went(world: World) -> None:
    """A start that gave node a back, and died before the end of its lock."""
    mine = begun(world)
    out(world, mine.data["run"], "a", step="returning")
    noted(world, mine.data["run"], "a")
    actor = world.process("me")
    actor.faults.when(lambda r: r.method == "PATCH" and r.resource == "nodes", Fault("killed after"))
    task = actor.call(lambda ctx: cordon(ctx, CordonOptions("uncordoned", ("a",))), mine.data["run"])
    world.machine.run_until(lambda: not task.alive)


def test_whoever_ends_a_run_removes_the_lock_that_a_killed_start_left_of_a_node_that_is_back(world: World) -> None:
    killed_before_its_lock_went(world)
    assert not world.get(kinds.NODES, "a")["spec"].get("unschedulable")
    assert "node-a" in leases(world)
    again = begun(world)
    call(world, StateOptions("ended"), again.data["run"])
    assert leases(world) == set()


LOSSES: tuple[What, ...] = ("lost", "in doubt")


@pytest.mark.parametrize("what", LOSSES)
@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
def test_an_answer_that_was_lost_is_looked_up(world: World, what: What, method: str) -> None:
    def memory(request: Request) -> bool:
        return request.method == method and request.resource == "configmaps"

    faults = world.process("me").faults
    faults.when(memory, Fault(what))
    mine = begun(world)
    assert runs(world) == {id_of(mine)}
    assert noted(world, mine.data["run"], "a").data["finished_nodes"] == ["a"]
    again = begun(world)
    assert (again.data["resumed"], again.data["finished_nodes"]) == (True, ["a"])
    assert not call(world, StateOptions("ended", failed=True), mine.data["run"]).failed
    assert not call(world, StateOptions("ended"), mine.data["run"]).failed
    assert runs(world) == set()
    assert faults.met, "the fault was met"


@pytest.mark.parametrize("what", [Fault("frozen", 90.0), Fault("frozen sent", 90.0), Fault("down", 62.0)])
def test_no_sign_of_life_is_left_by_a_run_that_waited_long_for_its_last_answers(world: World, what: Fault) -> None:
    mine = begun(world)
    faults = world.process("me").faults
    faults.when(lambda request: request.verb == "get" and request.resource.startswith("leases"), what)
    assert not call(world, StateOptions("ended"), mine.data["run"]).failed
    assert faults.met
    assert (runs(world), leases(world)) == (set(), set())


def test_a_record_that_cannot_be_read_stops_no_start(world: World) -> None:
    old = begun(world, OTHER)
    noted(world, old.data["run"], "c")
    call(world, StateOptions("ended", failed=True), old.data["run"])
    world.patch(kinds.NODES, "b", {"metadata": {"annotations": {names.RECORD: "{"}}})
    world.machine.run_for(DAY)
    begun(world)
    assert id_of(old) in runs(world), "nobody knows whose node b is"


def messages(world: World, by: str = "me") -> str:
    return "; ".join(event.message for event in world.process(by).told)


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_a_sign_of_life_that_cannot_be_given_is_told_and_ends_nothing(world: World, method: str) -> None:
    world.process("me").faults.when(
        lambda request: request.method == method and request.resource == kinds.LEASES.resource,
        Fault("forbidden"),
        times=100,
    )
    mine = begun(world)
    world.machine.run_for(10.0)
    assert not noted(world, mine.data["run"], "a").failed
    assert f"run {id_of(mine)} looks dead between two waves" in messages(world)


def test_a_sign_of_life_that_cannot_be_taken_away_is_told(world: World) -> None:
    mine = begun(world)
    world.process("me").faults.when(
        lambda request: request.method == "DELETE" and request.resource == kinds.LEASES.resource,
        Fault("forbidden"),
        times=100,
    )
    call(world, StateOptions("ended"), mine.data["run"])
    assert leases(world) == {f"run-{id_of(mine)}"}
    assert f"run-{id_of(mine)} could not be deleted, so run {id_of(mine)} looks alive" in messages(world)


def test_a_lock_that_was_left_and_cannot_be_deleted_is_told(world: World) -> None:
    killed_before_its_lock_went(world)
    again = begun(world)
    world.process("me").faults.when(
        lambda r: r.method == "DELETE" and r.name == "node-a" and r.resource == kinds.LEASES.resource,
        Fault("forbidden"),
        times=100,
    )
    assert not call(world, StateOptions("ended"), again.data["run"]).failed
    assert "node-a" in leases(world)
    assert "a leftover lock of a may remain; recover removes it" in messages(world)
