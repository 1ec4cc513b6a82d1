# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `pod_migration_job` decides before its first write, and what it says of an incomplete Koordinator."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.installations import ANYWHERE
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import (
    JobSettings,
    manifest,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.run_module import State
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.targets import Selection
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import koordinator, scheduling
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault, What
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_cluster import becomes
from ansible_collections.kubeops.node_maintenance.tests.unit.support.jobs_called import (
    CONFIG,
    SPACE,
    Build,
    bodies,
    codes,
    elsewhere,
    first,
    put,
    ref,
    run,
    unready,
    worlds,
)


@pytest.fixture
def build() -> t.Iterator[Build]:
    with worlds() as made:
        yield made


def test_what_is_missing_has_a_message_of_its_own(build: Build) -> None:
    said = {}
    world = build()
    world.server.absent.add(kinds.PODMIGRATIONJOBS.resource)
    said["no_crd"] = run(world)[0]
    world = build()
    world.server.absent.add(kinds.RESERVATIONS.resource)
    assert codes(run(world)[0]) == ["no_crd"]
    world = build()
    world.delete(kinds.DEPLOYMENTS, "koord-descheduler", SPACE)
    said["no_controller"] = run(world)[0]
    world = build()
    unready(world, "koord-scheduler")
    said["no_scheduler"] = run(world)[0]
    assert {code: codes(result) for code, result in said.items()} == {code: [code] for code in said}
    assert all(result["failed"] and "jobs" not in result for result in said.values())
    assert len({result["msg"] for result in said.values()}) == 3


def test_a_descheduler_without_a_ready_pod_is_missing(build: Build) -> None:
    world = build()
    unready(world, "koord-descheduler")
    assert codes(run(world)[0]) == ["no_controller"]
    world = build()
    world.server.denied.add(("get", kinds.CONFIGMAPS.resource))
    result, _ctx = run(world)
    assert not result["failed"]
    assert "may not be read" in result["doubt"]


def test_another_layout_is_found(build: Build) -> None:
    world = build()
    elsewhere(world, "kube-system", "ack-koord-descheduler")
    assert run(world)[0]["doubt"] == ""
    world = build()
    elsewhere(world, "mine", "koord-descheduler")
    assert run(world)[0]["doubt"] == ""
    assert codes(run(world, koordinator=replace(ANYWHERE, namespace="other"))[0]) == ["no_controller"]
    assert run(world, koordinator=replace(ANYWHERE, namespace="mine"))[0]["doubt"] == ""


@pytest.mark.parametrize(
    ("text", "doubt"),
    [
        ("a: [", "is not valid YAML: while parsing a flow node."),
        ("kind: Other", "cannot be used: "),
        (CONFIG.replace("{exclude: [kube-system]}", "kube-system"), "cannot be used: "),
    ],
)
def test_a_configuration_that_cannot_be_read_refuses_nothing(build: Build, text: str, doubt: str) -> None:
    world = build(1)
    world.patch(kinds.CONFIGMAPS, koordinator.CONFIG, {"data": {koordinator.CONFIG: text}}, SPACE)
    result, _ctx = run(world)
    assert doubt in result["doubt"]
    assert result["jobs"][0]["outcome"] == "created"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"selection": Selection((ref("nobody"),))}, "unknown_pod"),
        ({"selection": Selection(nodes=("n9",))}, "unknown_node"),
        ({"settings": JobSettings(reservation="none")}, "unknown_reservation"),
    ],
)
def test_what_is_not_there_stops_the_call(build: Build, options: Raw, code: str) -> None:
    world = build()
    with pytest.raises(CallAborted) as stop:
        run(world, **options)
    assert stop.value.reason.code == code
    assert bodies(world) == []


@pytest.mark.parametrize(
    ("options", "reservation", "code"),
    [
        ({"replicas": 1}, "", "single_replica"),
        ({"scheduler": "default-scheduler"}, "", "scheduler"),
        ({}, "r", "reservation_used"),
    ],
)
def test_what_cannot_succeed_gets_no_job(build: Build, options: Raw, reservation: str, code: str) -> None:
    world = build(**options)
    if reservation:
        world.apply({"apiVersion": kinds.RESERVATIONS.api_version, "kind": "Reservation", "metadata": {"name": "r"}})
        world.patch(kinds.RESERVATIONS, "r", {"status": {"phase": "Succeeded"}}, subresource="status")
    result, ctx = run(world, settings=JobSettings(reservation=reservation))
    job = result["jobs"][0]
    assert result["failed"]
    assert (job["outcome"], job["cause"]["code"], job["mode"]) == ("refused", code, "ReservationFirst")
    assert bodies(world) == []
    assert ctx.changes == []


def test_evict_directly_needs_no_scheduler_and_no_requests(build: Build) -> None:
    world = build(scheduler="default-scheduler")
    result, _ctx = run(world, settings=JobSettings("EvictDirectly"))
    assert result["jobs"][0]["outcome"] == "created"
    assert bodies(world)[0]["metadata"]["labels"]["maintenance.kubeops.io/run"] == "night"


@pytest.mark.parametrize(
    ("options", "outcome"),
    [({}, "created"), ({"wait": True}, "moved"), ({"settings": JobSettings(paused=True)}, "paused")],
)
def test_check_mode_predicts_what_a_real_call_does(build: Build, options: Raw, outcome: str) -> None:
    world = build()
    result, _ctx = run(world, check=True, **options)
    assert (result["jobs"][0]["outcome"], result["changed"]) == (outcome, True)
    assert bodies(world) == []
    assert result["diff"][0]["after"]["spec"]["podRef"]["name"] == first(world).name


FAULTS: list[What] = ["lost", "in doubt", "conflict", "throttled", "error"]


def test_a_reservation_is_made_with_its_job(build: Build) -> None:
    result, _ctx = run(build(), check=True, settings=JobSettings(reservation="r"), template={"spec": {"ttl": "1h"}})
    assert [sentence.split()[1] for sentence in result["actions"]] == ["Reservation", "PodMigrationJob"]


@pytest.mark.parametrize("what", FAULTS)
def test_a_reservation_is_made_once_whatever_the_first_answer_was(build: Build, what: What) -> None:
    world = build()
    world.process("me").faults.when(lambda request: request.method == "POST", Fault(what))
    result, ctx = run(world, settings=JobSettings(reservation="r"), template={"spec": {"ttl": "1h"}})
    assert not result["failed"], result["msg"]
    assert [change.target.kind for change in ctx.changes] == ["Reservation", "PodMigrationJob"]


def test_a_reservation_that_somebody_deletes_while_it_has_no_place_gives_no_job(build: Build) -> None:
    world = build()
    world.controller(scheduling.Reservations).stop()
    world.machine.after(2.5, lambda: world.delete(kinds.RESERVATIONS, "r"), "somebody")
    result, ctx = run(world, settings=JobSettings(reservation="r"), template={"spec": {"ttl": "1h"}})
    assert "Reservation r got no place: it is gone." in result["msg"]
    assert sum("has no place yet" in event.message for event in ctx.timeline) <= 1, "told once"
    assert [body["kind"] for body in bodies(world) if body.get("kind")] == ["Reservation"]


def test_the_events_of_a_job_are_shown_in_their_order_and_no_others(build: Build) -> None:
    world = build()
    put(world)
    uid = world.get(kinds.PODMIGRATIONJOBS, "j")["metadata"]["uid"]
    about = {"kind": "PodMigrationJob", "uid": uid}
    for name, time, who in (("b", "2026-01-01T00:00:02Z", about), ("a", "2026-01-01T00:00:01Z", about), ("c", "", {})):
        raw = {
            "apiVersion": "v1",
            "kind": "Event",
            "reason": name.upper(),
            "involvedObject": who,
            "lastTimestamp": time,
        }
        world.apply({**raw, "message": f"said {name}", "metadata": {"name": name, "namespace": "default"}})
    result, _ctx = run(world, selection=Selection(), name="j")
    assert [(one["reason"], one["message"]) for one in result["jobs"][0]["events"]] == [
        ("A", "said a"),
        ("B", "said b"),
    ]


def test_a_pod_that_is_gone_is_moved_and_nothing_is_written(build: Build) -> None:
    world = build()
    result, _ctx = run(world, selection=Selection((ref(first(world).name, "older"),)))
    assert (result["changed"], result["failed"]) == (False, False)
    assert result["jobs"][0]["outcome"] == "already_moved"
    assert bodies(world) == []


def test_the_same_task_twice_moves_a_named_pod_once(build: Build) -> None:
    world = build(works=True)
    task: t.Any = {"selection": Selection((ref(first(world).name),)), "name": "j", "wait": True}
    result, _ctx = run(world, **task)
    (moved,) = result["jobs"]
    assert (moved["outcome"], moved["new_pod"]["node"]) == ("moved", "n2" if moved["pod"]["node"] == "n1" else "n1")
    again, _ctx = run(world, **task)
    assert (again["failed"], again["changed"], again["jobs"][0]["outcome"]) == (False, False, "already_moved")


def test_a_job_that_somebody_rejects_by_its_phase_is_rejected(build: Build) -> None:
    world = build()
    put(world)
    world.machine.after(5.0, lambda: becomes(world, "j", phase="Failed"), "rejects")
    result, ctx = run(world, settings=JobSettings(paused=True), wait=True)
    (job,) = result["jobs"]
    assert (job["outcome"], job["failed"], job["cause"]["code"]) == ("rejected", True, "rejected")
    assert ctx.timeline[-1].message == "job j was rejected"
    assert result["failed"], "the pod was to be moved"


def test_what_a_job_under_way_has_other_than_wanted_is_in_its_message(build: Build) -> None:
    world = build()
    put(world)
    result, _ctx = run(world, settings=JobSettings(paused=True, ttl=60.0))
    assert "ttl 300 s, not 60 s" in result["jobs"][0]["message"]


@pytest.mark.parametrize("state", ["present", "rejected"])
def test_a_selection_of_nothing_says_so(build: Build, state: State) -> None:
    selection = Selection(selector={"matchLabels": {"app": "nope"}})
    result, ctx = run(build(), state=state, selection=selection)
    assert (result["jobs"], result["failed"], codes(result)) == ([], False, ["selector_matches_nothing"])
    assert "pod_selector app=nope" in ctx.timeline[-1].message


def test_a_job_under_way_is_not_made_again(build: Build) -> None:
    world = build()
    put(world)
    result, _ctx = run(world, settings=JobSettings(paused=True))
    assert (result["jobs"][0]["outcome"], result["changed"]) == ("paused", False)
    result, _ctx = run(world)
    assert result["jobs"][0]["cause"]["code"] == "other_job"


@pytest.mark.parametrize(
    ("state", "outcome", "failed"),
    [("approved", "not_found", True), ("rejected", "not_found", True), ("absent", "already_absent", False)],
)
def test_a_job_that_is_not_there(build: Build, state: State, outcome: str, failed: bool) -> None:
    result, _ctx = run(build(), state=state, selection=Selection(), name="none")
    assert (result["jobs"][0]["outcome"], result["failed"]) == (outcome, failed)


@pytest.mark.parametrize(("wait", "outcome"), [(False, "approved"), (True, "moved")])
def test_an_approval_that_is_waited_for_ends_with_the_move(build: Build, wait: bool, outcome: str) -> None:
    world = build()
    put(world, passed=True)
    result, _ctx = run(world, check=True, state="approved", wait=wait)
    assert (result["jobs"][0]["outcome"], result["changed"]) == (outcome, True)


def test_pods_without_an_owner_are_nobody_s_siblings(build: Build) -> None:
    world = build()
    like = world.pods(app="web")[0]
    world.apply({**like, "metadata": {"name": "alone", "namespace": like["metadata"]["namespace"]}})
    assert run(world)[0]["jobs"][0]["outcome"] == "created"


def test_nothing_to_rule_over_is_no_failure(build: Build) -> None:
    result, _ctx = run(build(), state="rejected")
    assert (result["jobs"], result["failed"], result["changed"]) == ([], False, False)


def test_without_a_name_and_a_pod_the_run_s_own_jobs_are_meant(build: Build) -> None:
    world = build()
    put(world)
    meta = world.pods(app="web")[1]["metadata"]
    other = ref(meta["name"], meta["uid"])
    world.apply(manifest("k", other, JobSettings(paused=True, run="other")))
    becomes(world, "k")
    result, _ctx = run(world, state="absent", selection=Selection(), settings=JobSettings(run="night"))
    assert [job["name"] for job in result["jobs"]] == ["j"]
    result, _ctx = run(world, state="absent", selection=Selection((other,)), settings=JobSettings(run="night"))
    assert [job["name"] for job in result["jobs"]] == ["k"]


def test_a_controller_that_is_away_keeps_nobody_from_rejecting(build: Build) -> None:
    world = build()
    world.delete(kinds.DEPLOYMENTS, "koord-descheduler", SPACE)
    assert "findings" not in run(world, state="rejected")[0]
    assert codes(run(world, state="approved")[0]) == ["no_controller"]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [({}, "paused"), ({"phase": "Succeeded"}, "already_moved"), ({"phase": "Failed", "reason": "Timeout"}, "failed")],
)
def test_a_job_is_looked_at_by_its_name_alone(build: Build, status: Raw, outcome: str) -> None:
    world = build()
    put(world, **status)
    result, _ctx = run(world, selection=Selection(), name="j")
    assert (result["jobs"][0]["outcome"], result["changed"]) == (outcome, False)
