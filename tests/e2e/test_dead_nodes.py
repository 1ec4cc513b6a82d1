# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node that died: the forecast for its pods, its evacuation with proof, and its return at any moment."""

from __future__ import annotations

import contextlib
import datetime
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from support import nodes as fake
from support.arena import Arena
from support.lab import Lab, adopted, lab_playbook, started
from support.plays import Player, Run
from support.waiting import until
from witness.api import Api
from witness.log import Json

LOST = "node.kubernetes.io/unreachable"
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
DRIVER = "csi.lab.kubeops.io"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
ATTACHMENTS = "/apis/storage.k8s.io/v1/volumeattachments"
MANAGED = {"volumes.kubernetes.io/controller-managed-attach-detach": "true"}
"""What a kubelet says of itself, so that the attach-detach controller serves its node."""
QUICK = {"node-monitor-grace-period": "8s"}


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Lab]:
    """A lab of its own, whose node controller gives a kubelet up after 8 s instead of 40."""
    if given := os.environ.get("LAB_KUBECONFIG"):
        yield adopted(tmp_path_factory.mktemp("lab"), Path(given))
        return
    folder = tmp_path_factory.mktemp("lab")
    name = "-".join(filter(None, (os.environ.get("LAB_NAME", "e2e"), "dead", os.environ.get("PYTEST_XDIST_WORKER"))))
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        made = started(folder, name, lab_metrics=False, lab_node_lease=8, lab_controller_manager_args=QUICK)
    yield made
    lab_playbook(folder, name, "absent")


def taints_of(node: Json) -> dict[str, Json]:
    """Its NoExecute taints by key."""
    return {x["key"]: x for x in node["spec"].get("taints") or [] if x["effect"] == "NoExecute"}


def die(arena: Arena, node: str) -> None:
    """The kubelet stops; done when the node controller has given it up."""
    fake.switch(arena.api, node, "down")
    until(lambda: LOST in taints_of(arena.node(node)), 60, f"{node} is given up", every=0.2)


def fall_silent(arena: Arena, node: str) -> None:
    """Waits until a dead kubelet's lease is stale too, after 40 s at most: the node controller here gives up sooner."""
    lease = arena.api.get(f"{LEASES}/{node}")["spec"]
    renewed = datetime.datetime.fromisoformat(lease["renewTime"].replace("Z", "+00:00")).timestamp()
    stale = renewed + min(lease["leaseDurationSeconds"], 40) + 1
    until(lambda: time.time() > stale, 60, f"{node}'s lease is stale", every=0.5)


def come_back(arena: Arena, node: str) -> None:
    fake.switch(arena.api, node, None)
    arena.api.delete(f"{LEASES}/{node}")
    until(lambda: fake.ready_condition(arena.node(node)) == "True", 30, f"{node} is ready again", every=0.2)


def staying(seconds: int | None) -> Json:
    """A pod's tolerations for its node's death."""
    limit = {} if seconds is None else {"tolerationSeconds": seconds}
    return {"tolerations": [{"key": LOST, "operator": "Exists", "effect": "NoExecute", **limit}]}


@pytest.fixture
def volume(lab: Lab, arena: Arena) -> Iterator[Callable[[str], None]]:
    """Makes claims, each bound to a volume of a driver that nobody runs."""
    api, made = lab.api, []

    def make(name: str) -> None:
        rwo: Json = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
        size = {"storage": "1Gi"}
        pv = f"{arena.name}-{name}"
        source = {"driver": DRIVER, "volumeHandle": name}
        claim = {"namespace": arena.namespace, "name": name}
        spec = {**rwo, "capacity": size, "csi": source, "claimRef": claim}
        api.create("/api/v1/persistentvolumes", {"metadata": {"name": pv}, "spec": spec})
        made.append(pv)
        spec = {**rwo, "volumeName": pv, "resources": {"requests": size}}
        arena.create("PersistentVolumeClaim", {"apiVersion": "v1", "metadata": {"name": name}, "spec": spec})
        bound = arena.path("PersistentVolumeClaim", name)
        until(lambda: api.get(bound)["status"].get("phase") == "Bound", 30, f"claim {name} is bound", every=0.2)

    yield make
    for pv in made:
        api.delete(f"/api/v1/persistentvolumes/{pv}")


def attached(api: Api, node: str) -> list[Json]:
    """What is attached to a node, or shall be."""
    return [x for x in api.items(ATTACHMENTS) if x["spec"]["nodeName"] == node]


def attach(api: Api, node: str, name: str) -> None:
    """What the driver and the kubelet do: the volume is attached, and mounted."""
    (found,) = until(lambda: attached(api, node), 30, "the controller wants the volume attached", every=0.2)
    api.patch(f"{ATTACHMENTS}/{found['metadata']['name']}/status", {"status": {"attached": True}})
    handle = f"kubernetes.io/csi/{DRIVER}^{name}"
    api.patch(f"{fake.path(node)}/status", {"status": {"volumesInUse": [handle]}})
    until(lambda: api.get(fake.path(node))["status"].get("volumesAttached"), 30, "the node lists it", every=0.2)


def told_at(pod: Json) -> float:
    """When a pod was told to end, by the API server's own clock."""
    meta = pod["metadata"]
    end = datetime.datetime.fromisoformat(meta["deletionTimestamp"].replace("Z", "+00:00")).timestamp()
    return end - float(meta["deletionGracePeriodSeconds"])


def present(arena: Arena, on: str) -> dict[str, Json]:
    """Every pod on a node by its `app`, the ending ones too."""
    return {x["metadata"]["labels"]["app"]: x for x in arena.all("Pod") if x["spec"].get("nodeName") == on}


def ending(arena: Arena) -> set[str]:
    """The `app` of each pod that was told to end and is still there."""
    return {x["metadata"]["labels"]["app"] for x in arena.all("Pod") if x["metadata"].get("deletionTimestamp")}


def drained(run: Run, node: str) -> Json:
    return run.node(node, "node_drain")


def evacuate(play: Player, node: str, **more: Any) -> Run:
    return play("evacuate", maintain_nodes=[node], maintain_allow_interruption=True, **more)


def with_pods_of_all_kinds(lab: Lab, arena: Arena, volume: Callable[[str], None]) -> tuple[str, str]:
    """A node that has just died with pods on it, one of them with a volume, and one that lives."""
    here, there = arena.nodes(2)
    for node in (here, there):
        arena.annotate(node, MANAGED)
    volume("data")
    mounted = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}
    arena.deployment("web", on=here, pod=staying(10))
    arena.deployment("slow", on=here, pod=staying(16))
    arena.deployment("usual", on=here)
    arena.deployment("loyal", on=here, pod=staying(None))
    arena.statefulset("db", on=here, pod={**staying(13), **mounted})
    arena.daemonset("agent")
    arena.settle()
    attach(lab.api, here, "data")
    die(arena, here)
    return here, there


@pytest.mark.whole
def test_a_dead_node_from_its_forecast_to_its_return(
    lab: Lab, arena: Arena, play: Player, volume: Callable[[str], None]
) -> None:
    here, there = with_pods_of_all_kinds(lab, arena, volume)
    plan = play.module("maintenance_plan", nodes=[here])
    finding = plan.finding("node_lost")
    assert here in finding["message"]
    assert f"maintain_fenced={here}" in finding["remedy"]
    fates = {pod["name"].split("-")[0]: pod["fate"] for pod in plan.answer["pods"] if pod["node"] == here}
    assert {name: fate["successor"] for name, fate in fates.items()} == {
        "web": "at_once",
        "slow": "at_once",
        "usual": "at_once",
        "loyal": "none",
        "db": "after_its_object",
        "agent": "none",
    }
    assert fates["db"]["volumes"] == [f"{arena.name}-data"]
    assert fates["usual"]["in_seconds"] > 250
    time.sleep(max(fates[name]["in_seconds"] for name in ("web", "slow", "db")) + 2)
    left = present(arena, here)
    assert set(left) == set(fates), "nothing goes from a dead node by itself"
    for name, fate in fates.items():
        told = "deletionTimestamp" in left[name]["metadata"]
        assert told is (name in ("web", "slow", "db")), name
        if told:
            forecast = datetime.datetime.fromisoformat(fate["told_at"].replace("Z", "+00:00")).timestamp()
            assert abs(told_at(left[name]) - forecast) <= 2, f"{name}: {fate}"
    until(lambda: {"web", "slow"} <= set(present(arena, there)), 10, "their successors are there")
    assert set(present(arena, there)) == {"web", "slow", "agent"}

    # Without a proof: never waited for, and never done.
    began = time.monotonic()
    run = evacuate(play, here)
    assert not run.ok
    assert time.monotonic() - began < 60
    assert drained(run, here)["outcome"] == "unreachable"
    assert f"maintain_fenced={here}" in drained(run, here)["message"]
    assert attached(lab.api, here)
    assert arena.record(here) is None

    fall_silent(arena, here)
    run = evacuate(play, here, maintain_fenced=here)
    assert run.ok, run.text
    assert drained(run, here)["outcome"] == "drained"
    assert {pod["name"].split("-")[0]: pod["outcome"] for pod in drained(run, here)["pods"]} == {
        **dict.fromkeys(("web", "slow", "usual", "loyal", "db"), "let_go"),
        "agent": "daemonset",
    }
    assert set(present(arena, here)) <= {"agent"}
    assert not attached(lab.api, here)
    assert arena.step(here) == "parked"
    assert OUT_OF_SERVICE in taints_of(arena.node(here))
    assert OUT_OF_SERVICE in [x["key"] for x in (arena.record(here) or {})["added"]]
    until(lambda: {"db", "usual", "loyal"} <= set(present(arena, there)), 20, "all of them run elsewhere")

    run = play("release", maintain_nodes=[here])
    assert not run.ok
    assert "still_dead" in [node["outcome"] for answer in run.of("node_cordon") for node in answer["nodes"]]
    assert OUT_OF_SERVICE in taints_of(arena.node(here))
    come_back(arena, here)
    run = play("release", maintain_nodes=[here])
    assert run.ok, run.text
    assert not arena.node(here)["spec"].get("taints")
    assert arena.record(here) is None


@pytest.mark.whole
def test_a_node_that_lives_is_not_evacuated_as_dead_whatever_anybody_says(arena: Arena, play: Player) -> None:
    node, _other = arena.nodes(2)
    arena.annotate(node, MANAGED)
    arena.deployment("web", on=node)
    arena.settle()
    run = evacuate(play, node, maintain_fenced=[node])
    assert not run.ok
    assert "Ready is True" in run.finding("not_dead")["message"]
    assert arena.record(node) is None


@pytest.mark.whole
def test_the_proof_comes_from_tasks_and_the_node_comes_back_in_the_middle(arena: Arena, play: Player) -> None:
    here, there, _room = arena.nodes(3)
    arena.deployment("web", on=here, pod=staying(None))
    arena.deployment("kept", 2, on=here, pod=staying(None), budget={"minAvailable": 2})
    arena.pod("held", here, staying(None), {"finalizers": ["test.kubeops.io/held"]})
    arena.settle()
    die(arena, here)
    no_proof = play.tasks({"name": "Ask the power strip", "ansible.builtin.fail": {"msg": "the outlet is on"}})
    run = evacuate(play, here, maintain_fence_tasks=no_proof, maintain_force=True)
    assert not run.ok
    assert "the outlet is on" in run.words
    assert drained(run, here)["outcome"] == "unreachable"
    # A budget that lets no unready pod go is not waited for either.
    outcomes = {pod["name"].split("-")[0]: pod["outcome"] for pod in drained(run, here)["pods"]}
    assert outcomes == {"web": "still_ending", "held": "still_ending", "kept": "not_moved"}
    assert OUT_OF_SERVICE not in taints_of(arena.node(here))

    proof = play.tasks(
        {"name": "Switch it off", "ansible.builtin.debug": {"msg": "{{ migrate_fence_node }} is off"}},
        {"name": "Make sure", "ansible.builtin.assert": {"that": [f"migrate_fence_node == '{here}'"]}},
    )
    running = play.start(
        "evacuate",
        maintain_nodes=[here, there],
        maintain_serial=2,
        maintain_fence_tasks=proof,
        maintain_force=True,
    )
    until(lambda: running.over or OUT_OF_SERVICE in taints_of(arena.node(here)), 90, "the taint is set", every=0.1)
    assert OUT_OF_SERVICE in [x["key"] for x in (arena.record(here) or {}).get("added", [])], running.text
    come_back(arena, here)
    run = running.wait()
    assert not run.ok
    assert drained(run, here)["outcome"] == "came_back"
    assert OUT_OF_SERVICE not in taints_of(arena.node(here))
    # The kubelet is there again and ends what was told to end; what a finalizer holds stays.
    until(lambda: ending(arena) == {"held"}, 30, "the kubelet has ended them")


@pytest.mark.whole
def test_a_node_that_dies_while_it_is_drained_is_given_up(arena: Arena, play: Player) -> None:
    here, _there = arena.nodes(2)
    short = {"terminationGracePeriodSeconds": 8}
    arena.deployment("pair", 2, on=here, stop="8s", pod={**short, **staying(None)})
    solo = arena.deployment("solo", on=here, start="3s", stop="8s", pod={**short, **staying(None)})
    arena.settle()
    running = play.start("evacuate", maintain_nodes=[here])
    until(lambda: running.over or ending(arena), 90, "the first pod is told to end")
    assert not running.over, running.text
    began = time.monotonic()
    fake.switch(arena.api, here, "down")
    run = running.wait()
    assert not run.ok
    assert time.monotonic() - began < 75
    assert drained(run, here)["outcome"] == "unreachable"
    assert f"maintain_fenced={here}" in run.words
    # All that was prepared for its pods is given back, and nothing of ours is left.
    assert arena.record(here) is None
    assert solo.read()["spec"]["replicas"] == 1
    assert arena.all("PodDisruptionBudget") == []


@pytest.mark.whole
def test_recover_leaves_a_dead_node_alone_until_it_is_back(arena: Arena, play: Player) -> None:
    here, _there = arena.nodes(2)
    arena.deployment("web", on=here, pod=staying(None))
    arena.settle()
    die(arena, here)
    fall_silent(arena, here)
    run = evacuate(play, here, maintain_fenced=here)
    assert run.ok, run.text
    assert arena.step(here) == "parked"
    run_id = (arena.record(here) or {})["run"]

    run = play("recover", recover_run=run_id)
    assert run.ok, run.text
    assert "does not respond yet" in run.words
    assert arena.step(here) == "parked"
    assert OUT_OF_SERVICE in taints_of(arena.node(here))

    come_back(arena, here)
    run = play("recover", recover_run=run_id)
    assert run.ok, run.text
    assert arena.record(here) is None
    assert not arena.node(here)["spec"].get("taints")
