# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `pod_migration_job` does from its options to its result: which jobs, for how long, and what it says of them."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import (
    JobSettings,
    manifest,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.run_module import JobOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.targets import Selection
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import scheduling
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_cluster import jobs_of
from ansible_collections.kubeops.node_maintenance.tests.unit.support.jobs_called import (
    Build,
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


# -- whole calls ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["ReservationFirst", "EvictDirectly"])
def test_a_pod_is_moved_by_a_job_and_its_new_pod_is_told(build: Build, mode: t.Any) -> None:
    world = build(works=True)
    old = first(world)
    result, _ctx = run(world, wait=True, settings=JobSettings(mode))
    [job] = result["jobs"]
    assert (job["outcome"], result["failed"]) == ("moved", False)
    assert list(jobs_of(world)) == [job["name"]]
    assert job["new_pod"]["name"] in {pod["metadata"]["name"] for pod in world.pods(app="web")} - {old.name}


def test_a_job_that_was_approved_is_followed_to_its_end(build: Build) -> None:
    world = build(works=True)
    put(world, passed=True)
    result, _ctx = run(world, state="approved", selection=Selection(), name="j", wait=True)
    assert [(job["outcome"], job["paused"]) for job in result["jobs"]] == [("moved", False)]


@pytest.mark.parametrize(("wait", "outcome"), [(True, "moved"), (False, "exists")])
def test_a_job_that_is_named_is_followed_if_that_is_asked(build: Build, wait: bool, outcome: str) -> None:
    world = build(works=True)
    world.apply(manifest("j", first(world), JobSettings(run="night")))
    result, _ctx = run(world, selection=Selection(), name="j", wait=wait)
    assert [job["outcome"] for job in result["jobs"]] == [outcome]


@pytest.mark.parametrize(
    ("ttl", "timeout", "seconds"),
    [
        pytest.param(60.0, None, 90.0, id="its ttl and half a minute"),
        pytest.param(0.0, None, 1800.0, id="as long as Koordinator keeps one without a ttl"),
        pytest.param(60.0, 5.0, 5.0, id="as long as the caller says"),
    ],
)
def test_how_long_a_job_is_waited_for(build: Build, ttl: float, timeout: float | None, seconds: float) -> None:
    world = build()
    began = world.machine.now
    result, _ctx = run(world, settings=JobSettings(ttl=ttl), wait=True, timeout=timeout)
    assert [job["outcome"] for job in result["jobs"]] == ["timeout"]
    assert seconds <= world.machine.now - began < seconds + 3.0


@pytest.mark.parametrize(("ttls", "seconds"), [((60.0, 120.0), 150.0), ((60.0, 0.0), 1800.0)])
def test_of_several_jobs_the_longest_is_waited_for(build: Build, ttls: tuple[float, float], seconds: float) -> None:
    world = build()
    for number, ttl in enumerate(ttls):
        meta = world.pods(app="web")[number]["metadata"]
        settings = JobSettings(paused=True, run="night", ttl=ttl)
        world.apply(manifest(f"j{number}", ref(meta["name"], meta["uid"]), settings))
    began = world.machine.now
    result, _ctx = run(world, state="approved", selection=Selection(), wait=True)
    assert [job["outcome"] for job in result["jobs"]] == ["still_waiting", "still_waiting"]
    assert seconds <= world.machine.now - began < seconds + 3.0


# -- which jobs ----------------------------------------------------------------------------------------


def test_jobs_are_found_by_the_nodes_of_their_pods(build: Build) -> None:
    world = build()
    put(world)
    home = next(pod["spec"]["nodeName"] for pod in world.pods() if pod["metadata"]["name"] == first(world).name)
    away = next(name for name in ("n1", "n2") if name != home)
    for node, found in ((home, ["j"]), (away, [])):
        pods = {pod["metadata"]["name"] for pod in world.pods(app="web", on=node)}
        result, _ctx = run(world, state="absent", selection=Selection(nodes=(node,)), check=True)
        assert [job["name"] for job in result["jobs"]] == (found if first(world).name in pods else [])


@pytest.mark.parametrize(
    ("selection", "subject", "both"),
    [
        (Selection((ref("a"), ref("b"))), "Pod shop/a", ("shop/a", "shop/b")),
        (Selection(nodes=("n8", "n9")), "Node n8", ("n8", "n9")),
    ],
)
def test_all_that_is_not_there_is_named_and_the_first_is_what_it_is_about(
    build: Build, selection: Selection, subject: str, both: tuple[str, str]
) -> None:
    with pytest.raises(CallAborted) as stop:
        run(build(), selection=selection)
    assert stop.value.reason.object == subject
    assert ", ".join(both) in stop.value.reason.message


# -- what has to be there ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "mode", "found"),
    [
        ("present", "ReservationFirst", ["no_scheduler"]),
        ("present", "EvictDirectly", []),
        ("approved", "ReservationFirst", []),
    ],
)
def test_a_scheduler_is_needed_by_those_who_reserve(build: Build, state: t.Any, mode: t.Any, found: list[str]) -> None:
    world = build()
    unready(world, "koord-scheduler")
    result, _ctx = run(world, state=state, settings=JobSettings(mode))
    assert [finding["code"] for finding in result.get("findings", [])] == found


@pytest.mark.parametrize(("reservation", "template"), [("", {"spec": {}}), ("r", None)])
def test_a_template_is_that_of_the_job_or_of_the_reservation_beforehand(reservation: str, template: Raw | None) -> None:
    options = JobOptions(settings=JobSettings(reservation=reservation), template={"spec": {}}, wait=False)
    assert options.of_job.template == template


# -- a Reservation beforehand --------------------------------------------------------------------------


def reserved(world: World, **options: t.Any) -> Raw:
    world.controller(scheduling.Reservations).stop()
    options = {"settings": JobSettings(reservation="r"), "template": {"spec": {"ttl": "1h"}}, "timeout": 5.0, **options}
    return run(world, **options)[0]


def existing(world: World) -> None:
    kind = {"apiVersion": kinds.RESERVATIONS.api_version, "kind": "Reservation", "metadata": {"name": "r"}}
    owners = [{"labelSelector": {"matchLabels": {"app": "web"}}}]
    pod = world.pods(app="web")[0]["spec"]
    world.apply({**kind, "spec": {"owners": owners, "template": {"spec": pod}}})


@pytest.mark.parametrize("there", [True, False])
def test_a_reservation_without_a_place_is_deleted_by_who_made_it(build: Build, there: bool) -> None:
    world = build()
    if there:
        existing(world)
    result = reserved(world)
    assert (result["jobs"][0]["outcome"], jobs_of(world)) == ("failed", {})
    assert (world.find(kinds.RESERVATIONS, "r") is not None) == there


def test_a_reservation_that_somebody_makes_at_the_same_moment_is_theirs(build: Build) -> None:
    world = build()
    me = world.process("me")
    me.faults.overtaken(lambda request: request.method == "POST", lambda: existing(world))
    reserved(world)
    assert world.find(kinds.RESERVATIONS, "r") is not None


@pytest.mark.parametrize(("conditions", "code"), [([], "no_scheduler"), (True, "unschedulable")])
def test_why_a_reservation_has_no_place_is_said(build: Build, conditions: t.Any, code: str) -> None:
    world = build()
    existing(world)
    if conditions:
        told = [{"type": "Scheduled", "status": "False", "reason": "Unschedulable", "message": "no room"}]
        world.patch(kinds.RESERVATIONS, "r", {"status": {"conditions": told}}, subresource="status")
    cause = reserved(world)["jobs"][0]["cause"]
    assert cause["code"] == code
    assert ("no room" in cause["message"]) == bool(conditions)


# -- what is written and said --------------------------------------------------------------------------


@pytest.mark.parametrize(("reason", "told"), [("", ""), ("too busy", ": too busy")])
def test_a_rejected_job_names_who_rejected_it_and_why(build: Build, reason: str, told: str) -> None:
    world = build()
    put(world, passed=True)
    _result, ctx = run(world, state="rejected", settings=JobSettings(reason=reason))
    assert jobs_of(world)["j"]["status"]["message"] == f"Rejected by {ctx.by}{told}"


def test_an_event_is_shown_with_its_type_time_and_source_wherever_these_are(build: Build) -> None:
    world = build()
    put(world)
    about = {"kind": "PodMigrationJob", "uid": jobs_of(world)["j"]["metadata"]["uid"]}
    older = {"type": "Warning", "lastTimestamp": "2026-01-01T00:00:01Z", "source": {"component": "koord-descheduler"}}
    newer = {"eventTime": "2026-01-01T00:00:02.000000Z", "reportingComponent": "other"}
    for name, event in (("a", newer), ("b", older), ("c", {})):
        meta = {"name": name, "namespace": "default"}
        world.apply({"apiVersion": "v1", "kind": "Event", "involvedObject": about, "metadata": meta, **event})
    result, _ctx = run(world, selection=Selection(), name="j")
    shown = [(one["type"], one["at"], one["from"]) for one in result["jobs"][0]["events"]]
    assert shown == [
        ("", "", ""),
        ("Warning", "2026-01-01T00:00:01Z", "koord-descheduler"),
        ("", "2026-01-01T00:00:02.000000Z", "other"),
    ]
