# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every kind of pod has a route, an outcome, and where it stops the run, a remedy."""

from __future__ import annotations

import pytest
from support.arena import Arena
from support.attacher import attaching
from support.plays import Player, Run
from support.waiting import until
from support.watching import Watch
from witness.log import Json

TERM: Json = {"labelSelector": {"matchLabels": {"app": "apart"}}, "topologyKey": "kubernetes.io/hostname"}
APART: Json = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [TERM]}}}
"""Pods that are never on one node, so that on two nodes the successor of one of two fits nowhere."""
EMPTY_DIR: Json = {"volumes": [{"name": "scratch", "emptyDir": {}}]}


def outcomes(run: Run) -> dict[str, str]:
    """Outcome by the first word of each pod's name."""
    (node,) = run.of("node_drain")[-1]["nodes"]
    return {pod["name"].split("-")[0]: pod["outcome"] for pod in node["pods"]}


def routes(run: Run) -> dict[str, str]:
    return {pod["name"].split("-")[0]: pod["route"] for pod in run.of("maintenance_plan")[0]["pods"]}


def refused(run: Run, code: str, name: str, remedy: str) -> None:
    assert not run.ok
    finding = run.finding(code)
    assert name in finding["object"] + finding["message"]
    assert remedy in finding["remedy"]


def test_pods_that_stay_and_pods_that_simply_go(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    agent = arena.daemonset("agent", pod={"tolerations": [{"operator": "Exists"}]})
    arena.mirror_pod("mirror", here)
    arena.pod("finished", here, {"restartPolicy": "Never"}, {"annotations": {"lab.kubeops.io/complete": "0s"}})
    until(lambda: arena.pods("finished")[0]["status"]["phase"] == "Succeeded", 30, "one pod has ended")
    apart = arena.deployment("apart", 2, pod=APART)
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_force=True)
        assert run.ok, run.text
    seen.all_held()
    assert routes(run)["agent"] == routes(run)["mirror"] == "skip"
    assert outcomes(run)["finished"] == "cleared"
    assert len(arena.pods("mirror")) == 1
    assert seen.new_pods(agent) == []
    (node,) = run.of("node_drain")[-1]["nodes"]
    assert [(one["name"], one["ready"], one["wanted"]) for one in node["pending"]] == [(apart.name, 1, 2)]
    assert apart.read()["status"]["readyReplicas"] == 2, "its return has waited for it"


@pytest.mark.whole
def test_the_pod_of_a_daemonset_that_is_gone_needs_force(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    # The garbage collector takes pods of an owner that is gone, but for a version that is gone as well.
    owner = {"apiVersion": "apps/v1beta2", "kind": "DaemonSet", "name": "agent", "uid": "gone", "controller": True}
    arena.pod("agent", here, meta={"ownerReferences": [owner]})
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
    refused(run, "daemonset_gone", "agent", "force")
    assert seen.writes == []
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_force=True)
        assert run.ok, run.text
    seen.all_held()
    assert arena.pods("agent") == []


@pytest.mark.whole
def test_the_orphan_of_a_daemonset_is_a_bare_pod(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    arena.daemonset("agent")
    arena.settle()
    arena.delete("DaemonSet", "agent", propagationPolicy="Orphan")
    until(lambda: arena.find("DaemonSet", "agent") is None, 30, "the DaemonSet is gone")
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
    refused(run, "bare_pod", "agent", "force")
    assert seen.writes == []


def test_a_job_is_waited_for(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    arena.job("report", here, lasting="12s")
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
        assert run.ok, run.text
    seen.all_held()
    assert "report" in run.text, "the wait is told"
    status = (arena.find("Job", "report") or {})["status"]
    assert status.get("succeeded") == 1
    assert not status.get("failed")


@pytest.mark.whole
def test_a_job_that_does_not_end_in_time_gives_the_node_back(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    arena.job("endless", here)
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_timeout=10)
    assert not run.ok
    assert "endless" in run.text
    assert "allow_interruption" in run.text
    assert len(arena.pods("endless", on=here)) == 1
    seen.all_held(resumable=True)


@pytest.mark.whole
def test_a_job_with_consent_is_evicted(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    arena.job("endless", here)
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_allow_interruption=True)
        assert run.ok, run.text
    assert [request.name.split("-")[0] for request in seen.evictions()] == ["endless"]


@pytest.mark.whole
def test_a_bare_pod_needs_force(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    arena.pod("lonely", here)
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
    refused(run, "bare_pod", "lonely", "force")
    assert seen.writes == []
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_force=True)
        assert run.ok, run.text
    assert arena.pods("lonely") == []
    seen.all_held()


@pytest.mark.whole
def test_a_bare_pod_with_an_emptydir_needs_force_as_well(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    arena.pod("lonely", here, EMPTY_DIR)
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_delete_emptydir_data=True)
    refused(run, "bare_pod", "lonely", "force")
    assert seen.writes == []
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_force=True)
    refused(run, "emptydir", "lonely", "delete_emptydir_data")
    assert seen.writes == []
    assert len(arena.pods("lonely")) == 1
    run = play("maintain", maintain_nodes=[here], maintain_force=True, maintain_delete_emptydir_data=True)
    assert run.ok, run.text


@pytest.mark.whole
def test_emptydir_data_is_not_lost_unasked(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here, pod=EMPTY_DIR)
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
    refused(run, "emptydir", "web", "delete_emptydir_data")
    assert seen.writes == []
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_delete_emptydir_data=True)
        assert run.ok, run.text
    seen.all_held()
    assert seen.dark_seconds(web) == 0


def test_a_local_volume_ties_its_pod_to_the_node(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    name = f"local-{arena.name}"
    term = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [here]}]}
    spec = {
        "accessModes": ["ReadWriteOnce"],
        "capacity": {"storage": "1Gi"},
        "storageClassName": "none",
        "local": {"path": "/data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
        "claimRef": {"namespace": arena.namespace, "name": "data"},
    }
    arena.api.create("/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": spec})
    try:
        asked: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": "none", "volumeName": name}
        asked["resources"] = {"requests": {"storage": "1Gi"}}
        arena.create("PersistentVolumeClaim", {"apiVersion": "v1", "metadata": {"name": "data"}, "spec": asked})
        mounted = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
        arena.statefulset("db", on=here, pod=mounted)
        with watching() as seen:
            run = play("maintain", maintain_nodes=[here])
        refused(run, "local_volume", "db", "allow_interruption")
        assert seen.writes == []
    finally:
        arena.api.delete(f"/api/v1/persistentvolumes/{name}")


@pytest.mark.whole
def test_a_pod_that_is_ending_already_is_waited_for(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", 2, on=here, stop="8s")
    arena.settle()
    going = arena.pods("web")[0]["metadata"]["name"]
    arena.delete("Pod", going)
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
        assert run.ok, run.text
    seen.all_held()
    assert going not in [request.name for request in seen.evictions()]
    assert arena.pods("web", on=here) == []
    assert web.nodes() != []


@pytest.mark.whole
def test_a_finalizer_that_never_goes_is_named_and_never_forced(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    held = arena.deployment("held", 2, on=here)
    arena.settle()
    pod = arena.pods("held")[0]["metadata"]["name"]
    arena.patch("Pod", pod, {"metadata": {"finalizers": ["lab.kubeops.io/held"]}})
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_timeout=12)
    assert not run.ok
    assert pod in run.text
    assert "lab.kubeops.io/held" in run.text
    assert (arena.find("Pod", pod) or {})["metadata"]["finalizers"] == ["lab.kubeops.io/held"]
    assert not [request for request in seen.requests if request.verb == "delete" and request.resource == "pods"]
    assert not arena.is_cordoned(here), "a drain that fails gives the node back"
    seen.all_held(resumable=True)
    assert len(held.pods()) == 2


@pytest.mark.whole
def test_a_grace_period_of_zero_means_zero(arena: Arena, play: Player) -> None:
    here, _unused = arena.nodes(2)
    arena.deployment("slow", 2, on=here, stop="25s")
    arena.settle()
    assert play.module("node_cordon", nodes=[here]).ok
    assert play.module("pdb_guard", nodes=[here]).ok
    run = play.module("node_drain", nodes=[here], grace_period=0)
    assert run.ok, run.text
    assert run.of("node_drain")[-1]["summary"]["seconds"] < 20
    for state in ("returning", "uncordoned"):
        assert play.module("node_cordon", state=state, nodes=[here]).ok


@pytest.mark.whole
def test_no_grace_period_leaves_the_pods_their_own(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    arena.deployment("slow", 2, on=here, stop="3s", pod={"terminationGracePeriodSeconds": 60})
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
        assert run.ok, run.text
    seen.all_held()
    (node,) = run.of("node_drain")[-1]["nodes"]
    assert all(pod["waited_seconds"] >= 3 for pod in node["pods"])


def test_the_pod_that_runs_this_very_play_is_never_evicted(arena: Arena, play: Player, watching: Watch) -> None:
    """An AWX job pod knows itself by what its kubelet put into its environment."""
    here, _unused = arena.nodes(2)
    arena.pod("awx-job-7", here)
    inside = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "HOSTNAME": "awx-job-7"}
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_force=True, env=inside)
    refused(run, "self_on_node", "awx-job-7", here)
    assert seen.writes == []


def attachment(arena: Arena, name: str, node: str, volume: str) -> Json:
    source = {"persistentVolumeName": volume}
    spec = {"attacher": "lab.kubeops.io", "nodeName": node, "source": source}
    return {"metadata": {"name": f"{arena.name}-{name}"}, "spec": spec}


@pytest.mark.whole
def test_a_volume_that_stays_attached_keeps_its_node_from_being_drained(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here, pod=arena.claim("ReadWriteMany"))
    path = "/apis/storage.k8s.io/v1/volumeattachments"
    for name, volume in (("lingering", f"pv-{arena.name}"), ("of-a-pod-that-stays", "another")):
        arena.api.create(path, attachment(arena, name, here, volume))
    try:
        with watching() as seen:
            running = play.start("maintain", maintain_nodes=[here])
            running.until_says(f"volume pv-{arena.name} is still attached to node {here}")
            assert arena.pods(on=here) == []
            assert arena.step(here) == "cordoned", "its pods are gone, and yet it is not drained"
            arena.api.delete(f"{path}/{arena.name}-lingering")
            run = running.wait()
            assert run.ok, run.text
        seen.all_held()
        assert seen.dark_seconds(web) == 0
    finally:
        for name in ("lingering", "of-a-pod-that-stays"):
            arena.api.delete(f"{path}/{arena.name}-{name}")


@pytest.mark.whole
def test_a_volume_for_one_node_moves_with_its_pod_and_is_never_on_two(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here, there = arena.nodes(2)
    for node in (here, there):
        # What a kubelet says of its node: the controller attaches.
        attaches = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
        arena.api.patch(f"/api/v1/nodes/{node}", {"metadata": {"annotations": attaches}})
    with attaching(arena.api, f"pv-{arena.name}", seconds=4.0) as attacher:
        db = arena.deployment("db", on=here, pod=arena.claim("ReadWriteOnce"))
        until(lambda: attacher.attached == [here], 30, "the volume is attached")
        refused(play("plan", maintain_nodes=[here]), "volume_single_node", "db", "maintain_allow_interruption")
        with watching() as seen:
            running = play.start("maintain", maintain_nodes=[here], maintain_allow_interruption=True)
            running.until_says(f"volume pv-{arena.name} is still attached to node {here}")
            assert arena.step(here) == "cordoned", "its pod is gone, and yet it is not drained"
            run = running.wait()
            assert run.ok, run.text
        seen.all_held(interruptible=[db])
        assert routes(run)["db"] == "evict", "no second pod beside one whose volume is for one node"
        assert db.nodes() == [there]
        assert not attacher.on(here)
        until(lambda: attacher.attached == [here, there], 30, "the volume has followed")
        assert attacher.both == []
