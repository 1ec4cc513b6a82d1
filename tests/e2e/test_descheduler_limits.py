# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What bounds the plugins of the real koord-descheduler: limits of a cycle, another evictor, the document's example."""

from __future__ import annotations

import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support import descheduling, shapes
from support.arena import Arena
from support.descheduling import CYCLE, here, moves
from support.jobs import JOBS, KOORD, Jobs
from support.koordinator import NAMESPACE, migration_args
from support.lab import Lab
from support.plays import Player
from support.verdicts import koord_traps
from support.waiting import steadily, until
from witness import objects as o
from witness.log import Json

TAINTS = "RemovePodsViolatingNodeTaints"


@pytest.fixture(scope="module")
def lab(koord: Lab) -> Lab:
    return koord


@pytest.fixture(autouse=True)
def as_found(lab: Lab, arena: Arena) -> Iterator[None]:
    with descheduling.as_found(lab, arena):
        yield


def on_taints(**more: object) -> Json:
    """A configuration whose one plugin evicts from tainted nodes."""
    profile = {
        "name": "koord-descheduler",
        "plugins": {"deschedule": {"enabled": [{"name": TAINTS}]}},
        "pluginConfig": [{"name": TAINTS, "args": {}}],
    }
    return {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "profiles": [profile],
        **more,
    }


def placed(arena: Arena, namespace: str, name: str, node: str) -> None:
    """A Deployment of this namespace whose three pods begin on the node."""
    made = shapes.template(arena.name, name, "0s", "0s", None, None)
    path, pods = f"/apis/apps/v1/namespaces/{namespace}/deployments", f"/api/v1/namespaces/{namespace}/pods"
    with arena.placing(node):
        arena.api.create(path, shapes.workload("Deployment", name, made, 3, None))
        until(lambda: len(ready_of(arena, pods, name)) == 3, 30, f"{name} runs")


def ready_of(arena: Arena, pods: str, name: str) -> list[Json]:
    return [pod for pod in arena.api.items(pods, labelSelector=f"app={name}") if o.ready(pod)]


def taint(arena: Arena, node: str, key: str = "leave", value: str = "") -> None:
    arena.api.patch(
        arena.path("Node", node), {"spec": {"taints": [{"key": key, "value": value, "effect": "NoSchedule"}]}}
    )


def asked(lab: Lab, arena: Arena) -> Counter[str]:
    """How many PodMigrationJobs there are by the first letter of their pods' workloads, which is the node's."""
    pods = [job["spec"]["podRef"] for job in lab.api.items(JOBS)]
    return Counter(pod["name"][0] for pod in pods if pod["namespace"] in arena.namespaces)


def once(config: Json, arena: Arena) -> Json:
    """One cycle of the plugins, in which the MigrationController itself limits nothing."""
    made = {**here(config, arena), "deschedulingInterval": "30m"}
    off = {"maxMigratingPerNode": 0, "objectLimiters": {"workload": {"duration": "0s"}}}
    migration_args(made).update(off)
    return made


LIMITS = {"maxNoOfPodsToEvictPerNode": 2, "maxNoOfPodsToEvictPerNamespace": 1}


def crowded(arena: Arena) -> tuple[str, str]:
    """A tainted node with pods of three namespaces, and another one with two workloads of one namespace."""
    first, second, _free = arena.nodes(3)
    spaces = [arena.add_namespace(f"{arena.name}-{number}") for number in range(4)]
    for number, space in enumerate(spaces[:3]):
        placed(arena, space, f"a{number}", first)
    for number in range(2):
        placed(arena, spaces[3], f"b{number}", second)
    for node in (first, second):
        taint(arena, node)
    return first, second


@pytest.mark.whole
def test_max_no_of_pods_to_evict_per_node_per_namespace_and_total(lab: Lab, arena: Arena, play: Player) -> None:
    """In one cycle: two of a node although three may go, one of a namespace although two may, then two of all."""
    crowded(arena)
    run = play.module("descheduler_config", config=once(on_taints(**LIMITS), arena))
    assert run.ok, run.text
    until(lambda: asked(lab, arena) == {"a": 2, "b": 1}, 30, "each limit is used up")
    steadily(lambda: asked(lab, arena) == {"a": 2, "b": 1}, 5, "and none is exceeded")
    until(lambda: set(moves(lab, arena).values()) == {"Succeeded"}, 60, "the pods have moved")

    run = play.module("descheduler_config", config=once(on_taints(maxNoOfPodsToEvictTotal=2), arena))
    assert run.ok, run.text
    until(lambda: asked(lab, arena).total() == 5, 30, "two more are evicted")
    steadily(lambda: asked(lab, arena).total() == 5, 5, "and no third one")


@pytest.mark.whole
def test_max_no_of_pods_to_evict_in_a_run_of_the_sigs_descheduler(lab: Lab, arena: Arena, tmp_path: Path) -> None:
    """The same limits, without jobs: the descheduler of sigs.k8s.io evicts by itself and ends after one run."""
    nodes = crowded(arena)

    def left() -> list[int]:
        return [len(arena.api.items("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")) for node in nodes]

    assert left() == [9, 6]
    evict_once(lab, arena, tmp_path, LIMITS)
    until(lambda: left() == [7, 5], 30, "each limit is used up, and none is exceeded")
    evict_once(lab, arena, tmp_path, {"maxNoOfPodsToEvictTotal": 2})
    until(lambda: sum(left()) == 10, 30, "two more are evicted, and no third one")


def evict_once(lab: Lab, arena: Arena, folder: Path, limits: Json) -> None:
    """One run of the real binary on the arena's nodes."""
    profile = {
        "name": "default",
        "plugins": {"deschedule": {"enabled": [TAINTS]}},
        "pluginConfig": [{"name": TAINTS, "args": {}}, {"name": "DefaultEvictor", "args": {}}],
    }
    head = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy"}
    policy = {**head, "nodeSelector": f"{shapes.ARENA}={arena.name}", **limits, "profiles": [profile]}
    file = folder / "policy.yaml"
    file.write_text(yaml.safe_dump(policy), encoding="utf-8")
    words = ["--policy-config-file", str(file), "--kubeconfig", str(lab.kubeconfig), "--secure-port", "0"]
    done = subprocess.run(
        [str(lab.programs / "descheduler"), *words, "--disable-metrics"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.whole
def test_default_evictor_as_evict_plugin(lab: Lab, arena: Arena, play: Player) -> None:
    """It evicts by itself, without jobs; and nothing works on PodMigrationJobs, which a plan says."""
    left, _free = arena.nodes(2)
    web = arena.deployment("web", 3, on=left, service=False)
    arena.settle()
    config = here(on_taints(), arena)
    (profile,) = config["profiles"]
    only = {"disabled": [{"name": "*"}], "enabled": [{"name": "DefaultEvictor"}]}
    profile["plugins"].update(evict=only, filter=only)
    profile["pluginConfig"][-1] = {"name": "DefaultEvictor", "args": {"nodeFit": True}}
    run = play.module("descheduler_config", config=config)
    assert run.ok, run.text
    jobs = Jobs(arena.api, arena)
    by_hand = jobs.by_hand("untended", jobs.named(web), mode="EvictDirectly", ttl="10s")
    taint(arena, left)
    until(lambda: left not in web.nodes(), 30, "all pods have left the tainted node")
    assert [o.name(job) for job in lab.api.items(JOBS) if arena.name in str(job["spec"])] == [by_hand]
    assert jobs.phase(by_hand) == ""
    plan = play.module("maintenance_plan", nodes=[left], backend="koordinator")
    (found,) = (finding for finding in plan.answer["findings"] if finding["code"] == "no_controller")
    assert "no profile has the plugin MigrationController" in found["message"]
    jobs.clear()


def advanced(arena: Arena) -> Json:
    """The second example of the document, in this arena, with its two label selectors as they have to be written."""
    config: Json = yaml.safe_load(koord_traps.TEXTS["the second example without its first mistake"])
    config.update(
        apiVersion="descheduler/v1alpha2", kind="DeschedulerConfiguration", deschedulingInterval=f"{CYCLE:g}s"
    )
    config.update(maxNoOfPodsToEvictPerNode=10, maxNoOfPodsToEvictPerNamespace=10, dryRun=False)
    config["leaderElection"] = {"resourceName": "koord-descheduler", "resourceNamespace": NAMESPACE}
    config["nodeSelector"] = {"matchLabels": {shapes.ARENA: arena.name, "deschedule": "allow"}}
    args = config["profiles"][0]["pluginConfig"][0]["args"]
    args["namespaces"]["include"] = [arena.namespace]
    args["labelSelector"] = {"matchLabels": args["labelSelector"]}
    return config


@pytest.mark.whole
def test_the_advanced_example_of_the_document(lab: Lab, arena: Arena, play: Player) -> None:
    """nodeSelector, excludedTaints, namespaces, labelSelector and the MigrationController's limits, all at once."""
    spaces = arena.add_namespace(f"{arena.name}-other")
    left, excluded, reserved = arena.nodes(3, {"deschedule": "allow"})
    outside, _free = arena.nodes(2)
    nodes = (left, excluded, reserved, outside)
    gpu = {"template": {"metadata": {"labels": {"accelerator": "nvidia-tesla-p100"}}}}
    for name, node in zip(("gpu", "kept", "booked", "away"), nodes, strict=True):
        arena.deployment(name, 3, on=node, pod=KOORD, service=False, spec=gpu)
    arena.deployment("plain", 3, on=left, pod=KOORD, service=False)
    placed(arena, spaces, "stranger", left)
    for node, key, value in zip(nodes, ("x", "deschedule", "reserved", "x"), ("", "not-allow", "y", ""), strict=True):
        taint(arena, node, key, value)
    printed = play.module(
        "descheduler_config", state="validated", config=koord_traps.TEXTS["the second example, as it is printed"]
    )
    assert "matchLabels" in printed.text
    run = play.module("descheduler_config", config=advanced(arena), restart="scale")
    assert run.ok, run.text
    wanted = {(TAINTS, arena.namespace, "gpu"): "Succeeded"}
    until(lambda: moves(lab, arena) == wanted, 60, "a pod has moved")
    time.sleep(2 * CYCLE)
    assert moves(lab, arena) == wanted, "one of the workload in five minutes, and no other pod"
    (job,) = (one for one in lab.api.items(JOBS) if (one.get("status") or {}).get("phase") == "Succeeded")
    assert (job["spec"]["mode"], bool(job["status"]["nodeName"])) == ("ReservationFirst", True)
