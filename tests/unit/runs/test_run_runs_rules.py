# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which run is resumed, who writes what of it, in how many requests, and when it is forgotten."""

from __future__ import annotations

import collections
import json
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs import run_runs as stored
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs.arguments import StateOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import BadRecordError
from ansible_collections.kubeops.node_maintenance.tests.unit.runs.test_run_runs import (
    INPUT,
    OTHER,
    begun,
    call,
    id_of,
    leases,
    noted,
    out,
    runs,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

LEASES = kinds.LEASES.resource
DAY = 24 * 3600.0


@pytest.fixture
def world() -> t.Iterator[World]:
    made = [*(manifests.node(name) for name in ("a", "b", "c")), manifests.namespace(names.NAMESPACE)]
    with World(made, settle=False) as world:
        yield world


def memory(world: World, run_id: str) -> dict[str, str]:
    return dict(world.get(kinds.CONFIGMAPS, names.run_name(run_id), names.NAMESPACE)["data"])


def requests(world: World, since: int) -> dict[str, int]:
    found = (sent.request for sent in world.log[since:])
    return dict(collections.Counter(f"{request.verb} {request.resource}" for request in found))


def resumable(world: World, given: dict[str, t.Any] | None, run: str = "") -> t.Any:
    return call(world, StateOptions("listed", input=given), run).data["resumable"]


def sign(world: World, run_id: str) -> t.Any:
    """The run's sign of life."""
    lease = world.find(kinds.LEASES, names.run_name(run_id), names.NAMESPACE)
    return lease["spec"] if lease else None


def test_what_would_be_resumed_is_told_beforehand(world: World) -> None:
    mine = begun(world)
    noted(world, mine.data["run"], "a")
    stored = memory(world, id_of(mine))
    times = {key: stored[key] for key in ("noted", "since")}
    found = {"run": id_of(mine), "finished": ["a"], "waves_done": 1, "by": "me@sim", **times}
    assert stored["noted"]
    assert resumable(world, INPUT) == found
    assert resumable(world, OTHER) is None
    assert resumable(world, None) is None
    assert resumable(world, OTHER, id_of(mine)) == found, "by its name, whatever the input"


def wave(node: str, moved: int, *, dark: bool = False, back: bool = True) -> dict[str, t.Any]:
    """The results of a wave, which took ten seconds; all of its pods left in the first."""
    pods = [{"namespace": "shop", "name": f"web-{n}", "route": "evict", "outcome": "evicted"} for n in range(moved)]
    steps = [(0, "cordoned", "cordoned"), (10, "uncordoned", "back")][: 2 if back else 1]
    timeline = [
        {"at": f"2026-01-01T00:00:{when:02}Z", "node": node, "what": what, "phase": phase}
        for when, what, phase in steps
    ]
    samples = [["2026-01-01T00:00:00Z", 1], ["2026-01-01T00:00:03Z", 0 if dark else 2], ["2026-01-01T00:00:05Z", 1]]
    services = [{"namespace": "shop", "name": "web", "samples": samples}]
    drained = {"name": node, "outcome": "drained", "failed": False, "message": "", "pods": pods}
    return {"nodes": [drained], "timeline": timeline, "services": services, "failed": False}


def test_what_waves_came_to_is_kept_for_the_start_that_resumes_the_run(world: World) -> None:
    mine = begun(world)
    noted(world, mine.data["run"], "a")
    call(world, StateOptions("noted", results=(wave("a", 3, dark=True),)), mine.data["run"])
    call(world, StateOptions("noted", results=(wave("b", 4, back=False),)), mine.data["run"])
    call(world, StateOptions("ended", failed=True), mine.data["run"])
    told = begun(world).data["earlier"]
    assert (told["waves"], told["waves_done"], told["whole"]) == ([["a"], []], 1, True)
    assert (told["pods_moved"], told["out_seconds"], told["watched_seconds"]) == (3, 10.0, 15.0), "b tells of itself"
    assert told["dark"] == (("shop", "web", "2026-01-01T00:00:03.000Z", "2026-01-01T00:00:05.000Z"),)


@pytest.mark.parametrize("killed", [1, 2, 3])
def test_a_start_that_was_killed_is_remembered_by_all_that_follow(world: World, killed: int) -> None:
    whole = []
    for start in (1, 2, 3):
        mine = begun(world)
        whole.append((mine.data["earlier"] or {"whole": True})["whole"])
        if start != killed:
            noted(world, mine.data["run"], "a")
            call(world, StateOptions("ended", failed=True), mine.data["run"])
    whole.append(begun(world).data["earlier"]["whole"])
    assert whole == [start <= killed for start in (1, 2, 3, 4)]


def test_what_a_wave_came_to_counts_once_however_often_it_is_sent(world: World) -> None:
    mine = begun(world)
    me = world.process("me")
    me.faults.when(lambda request: (request.method, request.resource) == ("PATCH", "configmaps"), Fault("lost"))
    call(world, StateOptions("noted", results=(wave("a", 3),)), mine.data["run"])
    assert json.loads(memory(world, id_of(mine))["so_far"])["pods_moved"] == 3


def test_after_a_failure_a_soak_counts_from_the_end_of_the_run(world: World) -> None:
    mine = begun(world)
    noted(world, mine.data["run"], "a")
    world.machine.run_for(100.0)
    call(world, StateOptions("ended", failed=True), mine.data["run"])
    stored = memory(world, id_of(mine))
    assert resumable(world, INPUT)["noted"] == stored["ended"] > stored["noted"]
    world.machine.run_for(100.0)
    noted(world, mine.data["run"], "b")
    stored = memory(world, id_of(mine))
    assert resumable(world, INPUT)["noted"] == stored["noted"] > stored["ended"]


@pytest.mark.parametrize(("age", "resumed"), [(DAY, True), (DAY + 60.0, False)])
def test_the_same_command_resumes_a_run_for_a_day_and_a_name_for_ever(world: World, age: float, resumed: bool) -> None:
    mine = begun(world)
    noted(world, mine.data["run"], "a")
    call(world, StateOptions("ended", failed=True), mine.data["run"])
    world.machine.run_for(age)
    assert (resumable(world, INPUT) is not None) is resumed
    by_name = begun(world, OTHER, run=id_of(mine))
    assert (by_name.data["run_id"], by_name.message) == (id_of(mine), f"Resuming run {id_of(mine)} by its name.")
    call(world, StateOptions("ended", failed=True), by_name.data["run"])
    again = begun(world)
    assert (again.data["run_id"] == id_of(mine), again.data["resumed"]) == (resumed, resumed)


@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize(
    "asked", [lambda world: begun(world, run="nope"), lambda world: resumable(world, INPUT, "nope")]
)
def test_a_run_that_nobody_knows_is_not_resumed_and_the_known_ones_are_named(
    world: World, others: int, asked: t.Callable[[World], object]
) -> None:
    known = [id_of(begun(world, given)) for given in (INPUT, OTHER)[:others]]
    with pytest.raises(CallAborted, match="There is no run nope") as stopped:
        asked(world)
    assert stopped.value.reason.code == "unknown_run"
    assert f"Known runs: {', '.join(sorted(known)) or 'none'}." in stopped.value.reason.remedy


def test_a_start_takes_four_requests_and_says_its_run(world: World) -> None:
    mine = begun(world)
    assert mine.message == f"Starting run {id_of(mine)}."
    assert mine.data["resumed"] is False
    assert requests(world, 0) == {
        "list configmaps": 1,
        "create configmaps": 1,
        f"get {LEASES}": 1,
        f"create {LEASES}": 1,
    }
    assert sign(world, id_of(mine))["leaseDurationSeconds"] == 60
    kept = memory(world, id_of(mine))
    assert (json.loads(kept["plan"]), json.loads(kept["input"])) == ([["a"], ["b"]], INPUT)


def test_a_start_says_for_how_long_the_next_call_may_take(world: World) -> None:
    mine = call(world, StateOptions("started", input=INPUT, plan={"waves": [["a"]]}, lease_duration=900.0))
    assert sign(world, id_of(mine))["leaseDurationSeconds"] == 900
    call(world, StateOptions("noted", nodes=("a",), lease_duration=300.0), mine.data["run"])
    assert sign(world, id_of(mine))["leaseDurationSeconds"] == 300


def test_a_start_without_a_plan_has_nothing_to_do(world: World) -> None:
    mine = call(world, StateOptions("started"))
    assert json.loads(memory(world, id_of(mine))["plan"]) == []


def test_a_node_is_noted_once_and_in_order(world: World) -> None:
    mine = begun(world)
    world.machine.run_for(5.0)
    since = len(world.log)
    first = noted(world, mine.data["run"], "b")
    write = {f"get {LEASES}": 1, f"patch {LEASES}": 1, "get configmaps": 1, "patch configmaps": 1}
    assert requests(world, since) == write
    assert first.message.startswith(f"Run {id_of(mine)} still has to maintain a: ")
    assert first.data["nodes"] == [{"name": "b", "outcome": "noted", "failed": False, "message": ""}]
    since = len(world.log)
    assert noted(world, mine.data["run"], "b").data["finished_nodes"] == ["b"]
    assert "patch configmaps" not in requests(world, since)
    last = noted(world, mine.data["run"], "a", "b")
    assert (last.data["finished_nodes"], last.message) == (["b", "a"], "")
    assert runs(world) == {id_of(mine)}, "a playbook ends its run itself"


def test_what_another_call_noted_meanwhile_counts(world: World) -> None:
    mine = begun(world)

    def overtakes() -> None:
        world.patch(kinds.CONFIGMAPS, names.run_name(id_of(mine)), {"data": {"finished": '["b"]'}}, names.NAMESPACE)

    world.process("me").faults.overtaken(lambda r: (r.method, r.resource) == ("PATCH", "configmaps"), overtakes)
    result = noted(world, mine.data["run"], "a")
    assert (result.data["finished_nodes"], result.message) == (["b", "a"], "")


def test_nodes_of_a_run_that_is_not_stored_need_no_note(world: World) -> None:
    assert noted(world, "gone/n", "a").message == "Run gone is not stored: nothing to note."
    assert noted(world, "gone/n").message == ""
    assert noted(world, "gone/n", "a").data["finished_nodes"] == []


def test_a_release_by_hand_renews_no_sign_and_forgets_the_run_with_its_last_node(world: World) -> None:
    mine = begun(world)
    renewed = sign(world, id_of(mine))["renewTime"]
    world.machine.run_for(30.0)
    assert noted(world, id_of(mine), "a").data["finished_nodes"] == ["a"]
    assert sign(world, id_of(mine))["renewTime"] == renewed
    assert noted(world, id_of(mine), "b").message == ""
    assert (runs(world), sign(world, id_of(mine))) == (set(), None)


def test_a_release_notes_each_node_for_the_run_of_its_record_and_no_other(world: World) -> None:
    mine, other = begun(world), begun(world, OTHER)
    for run in (mine, other):
        call(world, StateOptions("noted", lease_duration=3600.0), run.data["run"])
    out(world, mine.data["run"], "a", "b")
    out(world, other.data["run"], "c")
    out(world, "/n", "a", "b", step="returning")
    result = noted(world, "/n", "a", "b", "c", "unknown")
    assert result.data["finished_nodes"] == ["a", "b"]
    assert runs(world) == {id_of(other)}
    assert memory(world, id_of(other))["finished"] == "[]", "c is still another's"


def test_several_runs_are_noted_in_one_call(world: World) -> None:
    mine, other = begun(world), begun(world, OTHER)
    out(world, mine.data["run"], "a")
    out(world, other.data["run"], "c")
    out(world, "/n", "a", "c", step="returning")
    result = noted(world, "/n", "a", "c")
    assert sorted(result.data["finished_nodes"]) == ["a", "c"]
    assert f"Run {id_of(mine)} still has to maintain b: " in result.message
    assert runs(world) == {id_of(mine)}


@pytest.mark.parametrize("nonce", ["", "another"])
def test_a_run_that_is_no_longer_stored_ends_with_its_own_sign_alone(world: World, nonce: str) -> None:
    mine = begun(world)
    world.delete(kinds.CONFIGMAPS, names.run_name(id_of(mine)), names.NAMESPACE)
    started = mine.data["run"]
    result = call(world, StateOptions("ended"), f"{id_of(mine)}/{nonce}" if nonce else started)
    assert result.message == f"Run {id_of(mine)} is no longer stored."
    assert (sign(world, id_of(mine)) is None) is (nonce == "")


def test_a_run_that_is_no_longer_stored_leaves_no_heartbeat(world: World) -> None:
    started = begun(world).data["run"]
    assert not world.process("me").run(lambda ctx: cordon(ctx, CordonOptions("cordoned", ("a",))), started).failed
    assert len(leases(world)) == 3
    for kind in (kinds.LEASES, kinds.CONFIGMAPS):
        name = names.node_lease_name("a") if kind is kinds.LEASES else names.run_name(started.partition("/")[0])
        world.delete(kind, name, names.NAMESPACE)
    call(world, StateOptions("ended"), started)
    assert leases(world) == set()


def test_a_run_that_succeeded_ends(world: World) -> None:
    mine = begun(world)
    assert call(world, StateOptions("ended"), mine.data["run"]).message == f"Run {id_of(mine)} ended."
    assert (runs(world), leases(world)) == (set(), set())


@pytest.mark.parametrize(
    ("finished", "is_out", "bad", "kept"),
    [
        pytest.param(False, False, False, False, id="nothing to resume"),
        pytest.param(True, False, False, True, id="with a finished node"),
        pytest.param(False, True, False, True, id="with a node that is out"),
        pytest.param(False, False, True, True, id="with a record that may be its"),
    ],
)
def test_a_failed_run_is_kept_where_there_is_something_to_resume(
    world: World, finished: bool, is_out: bool, bad: bool, kept: bool
) -> None:
    mine = begun(world)
    if finished:
        noted(world, mine.data["run"], "a")
    if is_out:
        out(world, mine.data["run"], "b")
    if bad:
        world.patch(kinds.NODES, "c", {"metadata": {"annotations": {names.RECORD: "{"}}})
    result = call(world, StateOptions("ended", failed=True), mine.data["run"])
    assert result.message == (
        f"Run {id_of(mine)} ended with failures; the same command resumes it."
        if kept
        else f"Run {id_of(mine)} ended with failures and nothing to resume; the same command starts a new run."
    )
    assert runs(world) == ({id_of(mine)} if kept else set())
    assert sign(world, id_of(mine)) is None


def test_the_end_of_a_failed_run_is_noted_once(world: World) -> None:
    mine = begun(world)
    noted(world, mine.data["run"], "a")
    assert memory(world, id_of(mine))["ended"] == ""
    call(world, StateOptions("ended", failed=True), mine.data["run"])
    first = memory(world, id_of(mine))["ended"]
    world.machine.run_for(60.0)
    since = len(world.log)
    call(world, StateOptions("ended", failed=True), mine.data["run"])
    assert memory(world, id_of(mine))["ended"] == first > ""
    assert "patch configmaps" not in requests(world, since)


def test_a_run_that_somebody_undid_meanwhile_is_not_stored_again(world: World) -> None:
    mine = begun(world)
    noted(world, mine.data["run"], "a")
    gone = names.run_name(id_of(mine))
    world.process("me").faults.overtaken(
        lambda r: (r.verb, r.resource) == ("list", "nodes"),
        lambda: world.delete(kinds.CONFIGMAPS, gone, names.NAMESPACE),
    )
    call(world, StateOptions("ended", failed=True), mine.data["run"])
    assert runs(world) == set()


def test_an_old_run_without_node_or_sign_is_forgotten_and_one_that_was_written_since_is_not(world: World) -> None:
    old = begun(world, OTHER)
    noted(world, old.data["run"], "c")
    call(world, StateOptions("ended", failed=True), old.data["run"])
    world.machine.run_for(DAY + 60.0)
    name = names.run_name(id_of(old))
    world.process("me").faults.overtaken(
        lambda r: (r.verb, r.resource) == ("list", "nodes"),
        lambda: world.patch(kinds.CONFIGMAPS, name, {"data": {"by": "ann"}}, names.NAMESPACE),
    )
    mine = begun(world)
    assert runs(world) == {id_of(old), id_of(mine)}, "somebody resumed it in this moment"
    third = begun(world, {"playbook": "evacuate", "nodes": ["a"]})
    assert runs(world) == {id_of(mine), id_of(third)}


def test_an_old_run_whose_sign_is_there_is_kept(world: World) -> None:
    old = begun(world, OTHER)
    noted(world, old.data["run"], "c")
    world.machine.run_for(DAY + 60.0)
    begun(world)
    assert id_of(old) in runs(world)


def test_an_old_run_that_cannot_be_deleted_stops_no_start(world: World) -> None:
    old = begun(world, OTHER)
    noted(world, old.data["run"], "c")
    call(world, StateOptions("ended", failed=True), old.data["run"])
    world.machine.run_for(DAY + 60.0)
    world.process("me").faults.when(
        lambda r: (r.method, r.resource) == ("DELETE", "configmaps"), Fault("forbidden"), times=99
    )
    assert begun(world).data["resumed"] is False


@pytest.mark.parametrize(
    ("data", "kept"),
    [
        pytest.param(None, False, id="as it was written"),
        pytest.param({"plan": "{"}, True, id="one that cannot be parsed is a person's to delete"),
    ],
)
def test_forgetting_a_run_takes_its_sign_and_what_can_be_read_of_it(
    world: World, data: dict[str, str] | None, kept: bool
) -> None:
    mine = begun(world)
    name = names.run_name(id_of(mine))
    if data:
        world.patch(kinds.CONFIGMAPS, name, {"data": data}, names.NAMESPACE)
        with pytest.raises(BadRecordError, match="cannot be read"):
            world.process("me").run(lambda ctx: stored.forget(ctx, id_of(mine)))
    else:
        world.process("me").run(lambda ctx: stored.forget(ctx, id_of(mine)))
    assert (runs(world) == {id_of(mine)}, sign(world, id_of(mine)) is not None) == (kept, kept)


@pytest.mark.parametrize(("version", "forgotten"), [("", True), ("now", True), ("1", False)])
def test_a_run_is_forgotten_only_in_the_version_that_was_meant(world: World, version: str, forgotten: bool) -> None:
    mine = begun(world)
    now = world.get(kinds.CONFIGMAPS, names.run_name(id_of(mine)), names.NAMESPACE)["metadata"]["resourceVersion"]
    meant = now if version == "now" else version
    world.process("me").run(lambda ctx: stored.forget(ctx, id_of(mine), meant))
    assert (runs(world), leases(world)) == (
        (set(), set()) if forgotten else ({id_of(mine)}, {names.run_name(id_of(mine))})
    )


def test_the_sign_of_a_run_that_is_not_stored_goes_too(world: World) -> None:
    mine = begun(world)
    world.delete(kinds.CONFIGMAPS, names.run_name(id_of(mine)), names.NAMESPACE)
    world.process("me").run(lambda ctx: stored.forget(ctx, id_of(mine)))
    assert leases(world) == set()


def test_leftover_locks_are_looked_for_only_of_nodes_that_are_back(world: World) -> None:
    mine = begun(world)
    out(world, mine.data["run"], "a", "b")
    noted(world, mine.data["run"], "a")
    since = len(world.log)
    call(world, StateOptions("ended"), mine.data["run"])
    assert requests(world, since)[f"list {LEASES}"] == 1, "of heartbeats; a still has its record"
