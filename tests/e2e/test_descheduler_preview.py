# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""`state: previewed`: the real deschedulers, run dry, name what they would evict, and write nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import yaml
from support import descheduling, koordinator, rights, sampling
from support.arena import Arena
from support.jobs import JOBS
from support.lab import ROOT, Lab
from support.plays import Player
from support.waiting import until
from witness import objects as o
from witness.log import Json

MODULE = "descheduler_config"
PREVIEWS = {"labelSelector": "maintenance.kubeops.io/descheduler-preview"}
SIGS = ROOT / "roles" / "lab" / "files" / "deschedulers" / "sigs.yaml"
TAINTS, LIFE = "RemovePodsViolatingNodeTaints", "PodLifeTime"

pytestmark = [sampling.koordinator("v1.7.0"), pytest.mark.whole]


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Lab:
    return koordinator.chosen(request)


@pytest.fixture(autouse=True)
def as_found(lab: Lab, arena: Arena) -> Iterator[None]:
    with descheduling.as_found(lab, arena):
        yield


def left(lab: Lab) -> list[str]:
    """What dry runs left."""
    kinds = ("pods", "configmaps")
    return [o.name(raw) for kind in kinds for raw in lab.api.items(f"/api/v1/{kind}", **PREVIEWS)]


def plugins(arena: Arena, *wanted: tuple[str, Json]) -> Json:
    profile = {
        "name": "koord-descheduler",
        "plugins": {"deschedule": {"enabled": [{"name": name} for name, _args in wanted]}},
        "pluginConfig": [{"name": name, "args": args} for name, args in wanted],
    }
    head = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerConfiguration"}
    return descheduling.here({**head, "profiles": [profile]}, arena)


def scene(arena: Arena) -> tuple[Json, Json, str]:
    """A pod on a node that was tainted, three old pods; configurations that evict one, and all four."""
    kept, tainted = arena.nodes(2)
    arena.deployment("web", 3, on=[kept, kept, tainted], service=False)
    arena.deployment("idle", 3, on=[kept] * 3, service=False)
    spec = {"template": {"metadata": {"labels": {"app": "old", "life": "short"}}}}
    arena.deployment("old", 3, on=[kept] * 3, service=False, spec=spec)
    arena.settle()
    arena.api.patch(
        arena.path("Node", tainted), {"spec": {"taints": [{"key": "x", "value": "y", "effect": "NoSchedule"}]}}
    )
    life = {"maxPodLifeTimeSeconds": 1, "labelSelector": {"matchLabels": {"life": "short"}}}
    return plugins(arena, (TAINTS, {})), plugins(arena, (TAINTS, {}), (LIFE, life)), tainted


def pods_of(arena: Arena, app: str, node: str = "") -> set[str]:
    return {o.name(pod) for pod in arena.pods(app, on=node)}


def test_what_a_configuration_would_evict_beside_the_present_one(lab: Lab, arena: Arena, play: Player) -> None:
    """The real descheduler is stopped: what happens to the job or the pods, a dry run has done."""
    present, new, tainted = scene(arena)
    lab.api.patch(koordinator.DEPLOYMENT, {"spec": {"replicas": 0}})
    until(lambda: not koordinator.descheduler_pods(lab), 30, "the descheduler has ended")
    lab.api.patch(koordinator.CONFIG, {"data": {koordinator.KEY: yaml.safe_dump(present)}})
    (victim,) = pods_of(arena, "web", tainted)
    before = {o.uid(pod) for pod in arena.pods()}
    meta = {"name": "by-hand"}
    # A job of a workload counts as its migration, so that no plugin evicts another of its pods.
    other = sorted(pods_of(arena, "idle"))[0]
    spec = {"mode": "EvictDirectly", "podRef": {"namespace": arena.namespace, "name": other}}
    body = {"apiVersion": "scheduling.koordinator.sh/v1alpha1", "kind": "PodMigrationJob", "metadata": meta}
    job = lab.api.create(JOBS, {**body, "spec": spec})
    try:
        missing = play.module(MODULE, state="previewed", config=new)
        assert missing.answer["findings"][0]["code"] == "no_dry_run_account", missing.text
        with descheduling.dry_runs_in(lab, koordinator.NAMESPACE):
            told = play.module(MODULE, state="previewed", config=new, check=True).answer
            assert (told["outcome"], told["changed"], told["would_evict"]) == ("previewed", False, None)
            killed = play.module_start(MODULE, state="previewed", config=new)
            killed.until_says("a dry run of the new configuration was started")
            killed.kill_all()
            assert left(lab), "what the next one deletes"
            run = play.module(MODULE, state="previewed", config=new)
            answer = run.answer
            assert (answer["outcome"], answer["changed"]) == ("previewed", False), run.text
            found = {(one["pod"], one["node"], one["plugin"], one["added"]) for one in answer["would_evict"]}
            kept = next(node for node in arena.pods("old"))["spec"]["nodeName"]
            olds = {(name, kept, LIFE, True) for name in pods_of(arena, "old")}
            assert found == {(victim, tainted, TAINTS, False), *olds}, run.text
            assert {one["namespace"] for one in answer["would_evict"]} == {arena.namespace}
            assert [one["pod"] for one in answer["would_evict_before"]] == [victim]
            stays = {one["pod"]: one["code"] for one in answer["would_stay"] if one["namespace"] == arena.namespace}
            assert stays == dict.fromkeys(pods_of(arena, "idle"), "max_migrating_per_workload"), run.text
            wrong = {"name": "MigrationController", "args": {"priorityThreshold": {"name": "no-such-class"}}}
            new["profiles"][0]["pluginConfig"][-1] = wrong
            bad = play.module(MODULE, state="previewed", config=new).answer
            assert bad["outcome"] == "failed", bad
            assert "no-such-class" in bad["reason"]
        assert left(lab) == []
        time.sleep(2)
        assert {o.uid(pod) for pod in arena.pods()} == before
        now = lab.api.get(f"{JOBS}/by-hand")
        assert now["metadata"]["resourceVersion"] == job["metadata"]["resourceVersion"], "nobody worked on it"
    finally:
        lab.api.delete(f"{JOBS}/by-hand")
        lab.api.patch(koordinator.DEPLOYMENT, {"spec": {"replicas": 1}})


def test_what_the_descheduler_of_sigs_would_evict(lab: Lab, arena: Arena, play: Player) -> None:
    """It is scaled to 0, so that only dry runs look at the pods."""
    _present, _new, tainted = scene(arena)
    layout = yaml.safe_load(SIGS.read_text(encoding="utf-8"))["items"]
    paths = {"Deployment": "/apis/apps/v1/namespaces/kube-system/deployments"}
    for item in layout:
        if item["kind"] == "Deployment":
            item["spec"]["replicas"] = 0
        paths.setdefault(item["kind"], f"/api/v1/namespaces/kube-system/{item['kind'].lower()}s")
    namespaces = {"include": [arena.namespace]}
    head = {"apiVersion": "descheduler/v1alpha2", "kind": "DeschedulerPolicy"}
    config = [{"name": "DefaultEvictor"}, {"name": TAINTS, "args": {"namespaces": namespaces}}]
    profile = {"name": "default", "pluginConfig": config, "plugins": {"deschedule": {"enabled": [TAINTS]}}}
    rights.bind(lab.api, "preview", "kube-system")
    try:
        for item in layout:
            lab.api.create(paths[item["kind"]], item)
        with descheduling.dry_runs_in(lab, "kube-system"):
            run = play.module(MODULE, state="previewed", flavor="sigs", config={**head, "profiles": [profile]})
            found = {(one["pod"], one["node"], one["plugin"], one["added"]) for one in run.answer["would_evict"]}
            assert found == {(name, tainted, TAINTS, True) for name in pods_of(arena, "web", tainted)}, run.text
            assert run.answer["version"] == run.answer["image_version"] == "0.36.0"
        assert left(lab) == []
        assert len(pods_of(arena, "web", tainted)) == 1
    finally:
        for item in layout:
            lab.api.delete(f"{paths[item['kind']]}/{o.name(item)}")
