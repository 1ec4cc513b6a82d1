# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Koordinator in the lab: its job moves a pod, and its descheduler's pod is a process that is treated as one."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import urllib.request
from collections.abc import Iterator

import pytest
import yaml
from support import koordinator
from support.arena import Arena
from support.jobs import JOBS
from support.lab import Lab
from support.processes import alive
from support.waiting import until
from witness.log import Json

DESCHEDULER = "koord-descheduler"


@pytest.fixture(scope="module")
def lab(koord: Lab) -> Lab:
    return koord


def the_pod(lab: Lab) -> Json:
    (pod,) = koordinator.descheduler_pods(lab)
    return pod


def container(pod: Json) -> Json:
    found: Json = (pod["status"].get("containerStatuses") or [{}])[0]
    return found


@contextlib.contextmanager
def forwarded(lab: Lab, pod: str, port: int) -> Iterator[str]:
    """The URL by which a port of the descheduler's pod is reached through the API server."""
    words = ["port-forward", f"pod/{pod}", f":{port}", "--address=127.0.0.1", f"--namespace={koordinator.NAMESPACE}"]
    run = subprocess.Popen(
        [str(lab.kubectl), "--kubeconfig", str(lab.kubeconfig), *words], stdout=subprocess.PIPE, text=True
    )
    try:
        assert run.stdout
        said = re.search(r"127\.0\.0\.1:(\d+)", run.stdout.readline())
        assert said
        yield f"http://127.0.0.1:{said.group(1)}"
    finally:
        run.kill()
        run.wait()


def running_configuration(lab: Lab) -> Json:
    with (
        forwarded(lab, the_pod(lab)["metadata"]["name"], 10251) as url,
        urllib.request.urlopen(f"{url}/configz") as had,
    ):
        found: Json = json.load(had)["componentconfig"]
        return found


def test_a_job_moves_a_pod_to_the_place_that_it_reserved(lab: Lab, arena: Arena) -> None:
    here, there, _unused = arena.nodes(3)
    # A pod that requests nothing lands on the reserved node but is not counted as the Reservation's.
    main = {"name": "main", "image": "registry.invalid/app:1", "resources": {"requests": {"cpu": "100m"}}}
    pod = {"schedulerName": "koord-scheduler", "containers": [main]}
    web = arena.deployment("web", 2, on=[here, there], pod=pod)
    arena.settle()
    old = next(pod for pod in web.pods() if pod["spec"]["nodeName"] == here)
    ref = {"namespace": arena.namespace, "name": old["metadata"]["name"]}
    spec = {"paused": False, "ttl": "2m", "mode": "ReservationFirst", "podRef": ref}
    job = f"{JOBS}/{arena.name}"
    lab.api.create(
        JOBS,
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "PodMigrationJob",
            "metadata": {"name": arena.name},
            "spec": spec,
        },
    )
    try:
        until(lambda: (lab.api.get(job).get("status") or {}).get("phase") == "Succeeded", 60, "the job succeeds")
        told = lab.run_kubectl("get", "podmigrationjob", arena.name, "--no-headers").stdout.split()
        done = lab.api.get(job)
        new = next(pod for pod in web.pods() if pod["metadata"]["name"] == done["status"]["podRef"]["name"])
        assert new["spec"]["nodeName"] == done["status"]["nodeName"] != here
        reservation = done["spec"]["reservationOptions"]["reservationRef"]["name"]
        # NAME PHASE STATUS AGE NODE RESERVATION PODNAMESPACE POD NEWPOD TTL
        assert [*told[1:3], *told[4:9]] == [
            "Succeeded",
            "Complete",
            new["spec"]["nodeName"],
            reservation,
            arena.namespace,
            ref["name"],
            new["metadata"]["name"],
        ]
    finally:
        lab.api.delete(job)


@pytest.mark.whole
def test_nobody_comes_to_the_agents_node_unasked(lab: Lab, arena: Arena) -> None:
    """A DaemonSet goes wherever nothing forbids it."""
    made = arena.daemonset("everywhere", pod={"nodeSelector": None})
    ordinary = {n["metadata"]["name"] for n in lab.api.items("/api/v1/nodes")} - {"agent"}
    until(lambda: set(made.nodes()) == ordinary, 30, "it is on all other nodes")


@pytest.mark.whole
def test_a_process_that_dies_is_started_again(lab: Lab) -> None:
    until(lambda: koordinator.leads(lab), 60, "the descheduler leads")
    before, pid = container(the_pod(lab)), koordinator.process(lab, DESCHEDULER)
    os.kill(pid, signal.SIGKILL)

    def again() -> bool:
        now = container(the_pod(lab))
        return bool(now["restartCount"] == before["restartCount"] + 1 and now["ready"])

    until(again, 30, "it is ready again")
    assert container(the_pod(lab))["lastState"]["terminated"]["exitCode"] == 137
    assert koordinator.process(lab, DESCHEDULER) not in (0, pid)


@pytest.mark.whole
def test_a_pod_that_is_deleted_takes_its_process_along_and_the_next_has_the_new_configuration(lab: Lab) -> None:
    old, pid = the_pod(lab)["metadata"]["name"], koordinator.process(lab, DESCHEDULER)
    text = lab.api.get(koordinator.CONFIG)["data"][koordinator.KEY]
    with koordinator.configured(lab, lambda config: config.update(deschedulingInterval="47s")):
        assert not alive(pid)
        assert the_pod(lab)["metadata"]["name"] != old
        until(lambda: container(the_pod(lab)).get("ready"), 30, "the new one is ready")
        found = running_configuration(lab)
        assert found["DeschedulingInterval"] == "47s"
        assert found["LeaderElection"]["ResourceNamespace"] == koordinator.NAMESPACE
    assert lab.api.get(koordinator.CONFIG)["data"][koordinator.KEY] == text
    until(lambda: container(the_pod(lab)).get("ready"), 30, "the former one is back")
    assert running_configuration(lab)["DeschedulingInterval"] == yaml.safe_load(text)["deschedulingInterval"]


def rolled_out(lab: Lab) -> bool:
    """Whether the one pod there is, ready, is of the Deployment's present template."""
    deployment = lab.api.get(koordinator.DEPLOYMENT)
    status = deployment["status"]
    return (
        status.get("observedGeneration") == deployment["metadata"]["generation"]
        and status.get("updatedReplicas") == status.get("readyReplicas") == status.get("replicas") == 1
        and len(koordinator.descheduler_pods(lab)) == 1
    )


@pytest.mark.whole
def test_a_configuration_that_is_refused_shows_as_in_a_cluster(lab: Lab) -> None:
    """The rollout stands still, the old pod works on, the new one says why it crashes."""
    until(lambda: rolled_out(lab), 60, "what others changed is rolled out")
    old = the_pod(lab)["metadata"]["name"]
    text = lab.api.get(koordinator.CONFIG)["data"][koordinator.KEY]
    lab.api.patch(koordinator.CONFIG, {"data": {koordinator.KEY: text.replace("evictBurst: 1", "evictBurst: -1")}})
    note = {"spec": {"template": {"metadata": {"annotations": {"refused": "yes"}}}}}
    lab.api.patch(koordinator.DEPLOYMENT, note)
    try:

        def crashed() -> Json | None:
            for pod in koordinator.descheduler_pods(lab):
                waits = container(pod).get("state", {}).get("waiting", {})
                if pod["metadata"]["name"] != old and waits.get("reason") == "CrashLoopBackOff":
                    return pod
            return None

        new = until(crashed, 60, "the new pod is in CrashLoopBackOff")
        assert new is not None
        ended = container(new)["lastState"]["terminated"]
        assert ended["exitCode"] == 1
        assert ended["message"].strip().endswith("evictBurst must be greater than 0")
        words = ["logs", new["metadata"]["name"], f"--namespace={koordinator.NAMESPACE}"]
        why = "evictBurst must be greater than 0"
        # What KWOK shows follows the container's crashes a moment later.
        until(lambda: why in lab.run_kubectl(*words).stdout, 30, "its log says why", every=0.5)
        assert old in {pod["metadata"]["name"] for pod in koordinator.descheduler_pods(lab)}
        until(lambda: container(lab.api.get(f"{koordinator.PODS}/{old}"))["ready"], 30, "the old one is ready")
    finally:
        lab.api.patch(koordinator.CONFIG, {"data": {koordinator.KEY: text}})
        undo = {"spec": {"template": {"metadata": {"annotations": {"refused": None}}}}}
        lab.api.patch(koordinator.DEPLOYMENT, undo)
    until(lambda: len(koordinator.descheduler_pods(lab)) == 1, 60, "the new pod is gone")
    assert the_pod(lab)["metadata"]["name"] == old
