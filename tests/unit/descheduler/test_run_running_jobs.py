# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which PodMigrationJobs keep a rollout waiting, and what it does with those that nobody processes any more."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.causes import CREATED_BY
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import API_VERSION
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.run_job_writes import REMINDED
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.support.descheduled import HOME, NAME, Cluster
from ansible_collections.kubeops.node_maintenance.tests.unit.support.job_cluster import becomes, jobs_of, put, reserve

EVICTING = [{"type": "Eviction", "status": "False", "reason": "Evicting"}]


@pytest.fixture
def on() -> t.Iterator[Cluster]:
    """A cluster with a descheduler and a Deployment `web` of two pods."""
    cluster = Cluster()
    cluster.world.apply(manifests.namespace(manifests.SHOP), manifests.deployment("web", 2))
    cluster.world.settle()
    yield cluster
    cluster.world.close()


def job(on: Cluster, *, ttl: str = "300s", by: str = "", **more: t.Any) -> Raw:
    """A job `j` for a pod of `web`; `by`: the process of koord-descheduler that created it."""
    pod = on.world.pods(app="web")[0]["metadata"]
    spec = {"podRef": {key: pod[key] for key in ("name", "namespace", "uid")}, "ttl": ttl, "mode": "EvictDirectly"}
    annotations = {CREATED_BY: by} if by else {}
    meta = {"name": "j", "annotations": annotations}
    return {"apiVersion": API_VERSION, "kind": "PodMigrationJob", "metadata": meta, "spec": {**spec, **more}}


def restart_the_descheduler(on: Cluster) -> None:
    on.world.machine.run_for(5.0)
    for pod in on.world.pods(app=NAME, namespace=HOME):
        on.world.delete(kinds.PODS, pod["metadata"]["name"], HOME)
    on.world.settle()


def its_pod_ends(on: Cluster) -> None:
    pod = jobs_of(on.world)["j"]["spec"]["podRef"]
    on.world.delete(kinds.PODS, pod["name"], pod["namespace"])
    on.world.settle()


def told(done: Raw, words: str) -> bool:
    return any(words in event["message"] for event in done["timeline"])


@pytest.mark.parametrize("how", ["wait", "refuse"])
def test_a_job_whose_ttl_is_over_is_deleted_with_its_reservation(on: Cluster, how: str) -> None:
    reserve(on.world, "r")
    put(on.world, job(on, reservationOptions={"reservationRef": {"name": "r"}}), phase="Running", conditions=EVICTING)
    assert on.roll(running_jobs="refuse")["findings"][0]["code"] == "jobs_running"
    on.world.machine.run_for(320.0)
    done = on.roll(running_jobs=how)
    assert (done["outcome"], jobs_of(on.world)) == ("restarted", {})
    assert on.world.store.of(kinds.RESERVATIONS.resource) == {}
    assert told(done, "PodMigrationJob j is deleted: it has outlived its ttl of 300 s")


def test_a_job_of_an_earlier_process_is_deleted_at_once(on: Cluster) -> None:
    put(on.world, job(on, by="first"), phase="Running")
    restart_the_descheduler(on)
    done = on.roll(running_jobs="refuse")
    assert (done["outcome"], jobs_of(on.world)) == ("restarted", {})
    assert told(done, "was created by an earlier process of koord-descheduler, and later ones ignore it")


def test_a_job_of_the_present_process_is_waited_for(on: Cluster) -> None:
    put(on.world, job(on, by="first"), phase="Running")
    on.world.machine.after(20.0, lambda: becomes(on.world, "j", phase="Succeeded"), "the job ends")
    began = on.world.machine.now
    assert on.roll()["outcome"] == "restarted"
    assert (on.world.machine.now >= began + 20.0, sorted(jobs_of(on.world))) == (True, ["j"])


@pytest.mark.parametrize("how", ["wait", "refuse"])
def test_a_job_whose_pod_is_gone_is_deleted_unless_its_controller_ends_it(on: Cluster, how: str) -> None:
    put(on.world, job(on), phase="Running")
    its_pod_ends(on)
    done = on.roll(running_jobs=how)
    assert (done["outcome"], jobs_of(on.world)) == ("restarted", {})
    assert told(done, "has nothing to do: its pod shop/web-")


def test_its_controller_has_time_to_end_a_job_whose_pod_is_gone(on: Cluster) -> None:
    put(on.world, job(on), phase="Running", conditions=EVICTING)
    its_pod_ends(on)
    on.world.machine.after(3.0, lambda: becomes(on.world, "j", phase="Succeeded"), "the job ends")
    assert on.roll()["outcome"] == "restarted"
    assert jobs_of(on.world)["j"]["status"]["phase"] == "Succeeded"


def test_a_job_that_waits_for_the_new_pod_is_waited_for_and_brought_before_its_controller(
    on: Cluster,
) -> None:
    given = job(on, reservationOptions={"reservationRef": {"name": "r"}})
    put(on.world, given, phase="Running", conditions=EVICTING)
    its_pod_ends(on)
    restart_the_descheduler(on)
    done = on.roll(timeout="30s")
    assert (done["findings"][0]["code"], on.text().count("10s")) == ("jobs_running", 1)
    assert REMINDED in jobs_of(on.world)["j"]["metadata"]["annotations"]


def test_what_a_person_paused_is_neither_waited_for_nor_touched(on: Cluster) -> None:
    put(on.world, job(on, paused=True), phase="Running")
    on.world.machine.run_for(400.0)
    before = jobs_of(on.world)
    assert on.roll(running_jobs="refuse")["outcome"] == "restarted"
    assert jobs_of(on.world) == before


def test_check_mode_names_what_it_would_delete(on: Cluster) -> None:
    put(on.world, job(on), phase="Running")
    on.world.machine.run_for(320.0)
    assert "Delete PodMigrationJob j" in on.roll(check=True)["actions"]
    assert (on.asked(), sorted(jobs_of(on.world))) == ([], ["j"])


def test_a_stranded_job_that_may_not_be_deleted_does_not_block(on: Cluster) -> None:
    put(on.world, job(on), phase="Running")
    on.world.machine.run_for(320.0)
    on.deny("patch podmigrationjobs.scheduling.koordinator.sh", "delete podmigrationjobs.scheduling.koordinator.sh")
    done = on.roll()
    assert (done["outcome"], sorted(jobs_of(on.world))) == ("restarted", ["j"])
    assert told(done, "PodMigrationJob j stays: ")


def several(on: Cluster, count: int, phase: str = "Running") -> None:
    """Jobs j0 and so on for a pod of `web`."""
    for number in range(count):
        raw = job(on)
        put(on.world, {**raw, "metadata": {**raw["metadata"], "name": f"j{number}"}}, phase=phase)


@pytest.mark.parametrize(("count", "named"), [(2, "j0, j1"), (5, "j0, j1, j2, j3, j4"), (6, "j0, j1, j2, j3, j4")])
def test_five_of_the_jobs_that_run_are_named(on: Cluster, count: int, named: str) -> None:
    several(on, count)
    [finding] = on.roll(running_jobs="refuse")["findings"]
    assert finding["message"].startswith(f"{count} PodMigrationJobs still run ({named});")
    assert finding["object"] == "PodMigrationJob j0"


def test_that_jobs_are_waited_for_is_told_once_and_how_long_that_was_in_vain(on: Cluster) -> None:
    several(on, 2)
    done = on.roll(timeout="10s")
    lines = [
        event["message"] for event in done["timeline"] if "waiting for 2 PodMigrationJobs: j0, j1" in event["message"]
    ]
    assert len(lines) == 1
    assert "2 PodMigrationJobs still run after 10 s (j0, j1)" in done["findings"][0]["message"]


def test_every_stranded_job_is_deleted(on: Cluster) -> None:
    several(on, 3)
    on.world.machine.run_for(320.0)
    assert on.roll(running_jobs="refuse")["outcome"] == "restarted"
    assert jobs_of(on.world) == {}


def test_a_job_whose_pod_is_there_is_refused_at_once(on: Cluster) -> None:
    """One whose pod is gone may be found stranded soon; that of another one is nothing to wait for."""
    put(on.world, job(on), phase="Running")
    began = on.world.machine.now
    assert on.roll(running_jobs="refuse")["findings"][0]["code"] == "jobs_running"
    assert on.world.machine.now - began < 3.0
