# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What cannot be surged is named before anything is touched, and not touched without consent."""

from __future__ import annotations

import pytest
from support import rights, sampling
from support.arena import Arena, Workload
from support.lab import Lab
from support.plays import Player, Run
from support.waiting import until
from support.watching import Seen, Watch
from witness.api import ApiError
from witness.log import Json

CONSENT = {"maintenance.kubeops.io/allow-interruption": "true"}


def stopped_in_preflight(run: Run, seen: Seen, code: str, *names: str) -> None:
    """The run failed with this finding, which names these objects, before it wrote anything."""
    assert not run.ok
    finding = run.finding(code)
    for name in names:
        assert name in finding["object"] + finding["message"]
        assert name in run.text, "the user sees the name"
    assert finding["remedy"]
    assert seen.writes == []
    seen.all_held()


@pytest.mark.whole
def test_a_statefulset_of_one_stops_the_run_in_preflight(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    db = arena.statefulset("db", on=here)
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
    stopped_in_preflight(run, seen, "stateful_single", "db")
    assert "allow_interruption" in run.text
    assert db.nodes() == [here]


def test_all_blockers_are_named_at_once(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    with arena.placing(here):
        arena.statefulset("db")
        arena.deployment("old", spec={"strategy": {"type": "Recreate"}})
        arena.pod("lonely", here)
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
    stopped_in_preflight(run, seen, "stateful_single", "db")
    stopped_in_preflight(run, seen, "recreate", "old")
    stopped_in_preflight(run, seen, "bare_pod", "lonely")


@pytest.mark.whole
def test_consent_for_the_run_lets_a_statefulset_of_one_go_dark(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    db = arena.statefulset("db", on=here, start="1s")
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_allow_interruption=True)
        assert run.ok, run.text
        arena.settle()
    seen.all_held(interruptible=[db])
    assert 0 < seen.dark_seconds(db) < 10
    assert seen.counts(db) == [1]
    assert here not in db.nodes()


@pytest.mark.whole
def test_consent_of_the_owner_counts_for_his_workload_alone(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    with arena.placing(here):
        arena.statefulset("agreed", notes=CONSENT)
        arena.statefulset("not-asked")
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
    stopped_in_preflight(run, seen, "stateful_single", "not-asked")
    assert not any("agreed" in finding["object"] for finding in run.findings if finding["code"] == "stateful_single")
    arena.delete("StatefulSet", "not-asked")
    until(lambda: not arena.pods("not-asked"), 30, "the other one is gone")
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
        assert run.ok, run.text
        arena.settle()
    seen.all_held()


def test_recreate_with_one_replica_needs_consent(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    old = arena.deployment("old", on=here, spec={"strategy": {"type": "Recreate"}})
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
    stopped_in_preflight(run, seen, "recreate", "old")
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_allow_interruption=True)
        assert run.ok, run.text
        arena.settle()
    seen.all_held(interruptible=[old])
    assert seen.counts(old) == [1], "never two at once"


@pytest.mark.whole
def test_no_surge_of_its_own_hinders_no_surge(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    strategy = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}}
    web = arena.deployment("web", on=here, start="1s", spec={"strategy": strategy})
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_method="surge")
        assert run.ok, run.text
    seen.all_held()
    assert seen.dark_seconds(web) == 0
    assert len(seen.new_pods(web)) == 1


@pytest.mark.whole
def test_a_paused_deployment_is_surged_and_stays_paused(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here, start="1s")
    arena.settle()
    web.patch({"spec": {"paused": True}})
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_method="surge")
        assert run.ok, run.text
    seen.all_held()
    assert seen.dark_seconds(web) == 0
    assert web.read()["spec"]["paused"] is True


@pytest.mark.whole
def test_a_rollout_in_progress_is_not_surged(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here)
    arena.settle()
    stuck = {"metadata": {"annotations": {"lab.kubeops.io/ready": "never"}}}
    web.patch({"spec": {"template": stuck}})
    until(lambda: len(web.pods()) == 2, 30, "the rollout is stuck with its new pod")
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_method="surge")
    stopped_in_preflight(run, seen, "rollout_in_progress", "web")
    assert seen.dark_seconds(web) == 0


@pytest.mark.whole
@pytest.mark.parametrize("mode", sampling.first(1, ["ReadWriteOnce", "ReadWriteOncePod"]))
def test_a_volume_of_one_node_needs_consent(arena: Arena, play: Player, watching: Watch, mode: str) -> None:
    here, _unused = arena.nodes(2)
    arena.deployment("web", on=here, pod=arena.claim(mode))
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
    stopped_in_preflight(run, seen, "volume_single_node", "web", "data")


@pytest.mark.whole
def test_a_volume_of_many_nodes_is_no_hindrance(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here, start="1s", pod=arena.claim("ReadWriteMany"))
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
        assert run.ok, run.text
    seen.all_held()
    assert seen.dark_seconds(web) == 0


@pytest.mark.whole
def test_a_quota_that_forbids_the_surge_ends_the_run_and_gives_the_node_back(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here)
    arena.quota(pods="1")
    until(lambda: (arena.all("ResourceQuota")[0].get("status") or {}).get("used"), 30, "the quota is counted")
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_timeout=20)
    assert not run.ok
    assert "quota" in run.text
    assert "web" in run.text
    seen.all_held(resumable=True)
    assert seen.dark_seconds(web) == 0
    assert seen.new_pods(web) == []
    assert seen.counts(web)[-1] == 1


@pytest.mark.whole
def test_a_stateful_set_that_may_create_no_pod_is_told_in_the_words_of_its_event(arena: Arena, play: Player) -> None:
    """Unlike a ReplicaSet it has no condition for that; it is read after a minute without progress."""
    here, there, _unused = arena.nodes(3)
    arena.statefulset("db", 2, on=[here, there])
    arena.settle()
    arena.quota(pods="1")
    until(lambda: (arena.all("ResourceQuota")[0].get("status") or {}).get("used"), 30, "the quota is counted")
    running = play.start("maintain", maintain_nodes=[here])
    running.until_says("FailedCreate", within=150)
    assert "exceeded quota: quota" in running.text
    arena.delete("ResourceQuota", "quota")
    run = running.wait()
    assert run.ok, run.text


@pytest.mark.whole
def test_a_quota_counts_what_the_whole_pod_requests(arena: Arena, play: Player, watching: Watch) -> None:
    """A pod's limit is no request where its container has one (``defaultPodRequests`` of Kubernetes 1.36)."""
    here, _unused = arena.nodes(2)
    container = {"name": "main", "image": "registry.invalid/app:1", "resources": {"requests": {"cpu": "1"}}}
    web = arena.deployment("web", on=here, pod={"containers": [container], "resources": {"limits": {"cpu": "4"}}})
    arena.quota(**{"requests.cpu": "2"})

    def used() -> bool:
        status = arena.all("ResourceQuota")[0].get("status") or {}
        return bool((status.get("used") or {}).get("requests.cpu") == "1")

    until(used, 30, "the API server counts one CPU")
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
        assert run.ok, run.text
    assert seen.dark_seconds(web) == 0


@pytest.mark.whole
def test_a_pod_that_tolerates_everything_is_moved_at_most_once(arena: Arena, play: Player, watching: Watch) -> None:
    (here,) = arena.nodes(1)
    tough = arena.deployment("tough", 2, pod={"tolerations": [{"operator": "Exists"}]})
    web = arena.deployment("web")
    arena.settle()
    arena.nodes(1)
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
        assert run.ok, run.text
        arena.settle()
    seen.all_held()
    assert len(seen.new_pods(tough)) <= 2
    outcomes = {pod["name"]: pod["outcome"] for pod in run.of("node_drain")[-1]["nodes"][0]["pods"]}
    assert {kind for name, kind in outcomes.items() if name.startswith("tough")} == {"tolerates_maintenance"}
    assert seen.dark_seconds(web) == 0


@pytest.mark.whole
def test_a_replicaset_without_a_deployment_is_surged(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web = arena.workload("ReplicaSet", "web", 1, on=here, start="1s")
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
        assert run.ok, run.text
    seen.all_held()
    assert seen.dark_seconds(web) == 0
    assert seen.counts(web) == [1, 2, 1]


@pytest.mark.whole
def test_an_autoscaler_that_something_else_writes_is_named_and_left_alone(
    arena: Arena, play: Player, watching: Watch
) -> None:
    """As KEDA does it: a ScaledObject owns the autoscaler and takes back every change to it."""
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here)
    made = {"apiVersion": "v1", "metadata": {"name": "scaled-object"}}
    arena.create("ConfigMap", made)
    owner = arena.find("ConfigMap", "scaled-object") or {}
    keda = {"apiVersion": "v1", "kind": "ConfigMap", "name": "scaled-object", "controller": True}
    arena.hpa("web", 1, 3).patch({"metadata": {"ownerReferences": [{**keda, "uid": owner["metadata"]["uid"]}]}})
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_method="surge")
    stopped_in_preflight(run, seen, "autoscaler_owned", "web", "scaled-object")
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_method="surge", maintain_allow_interruption=True)
        assert run.ok, run.text
        arena.settle()
    seen.all_held(interruptible=[web])
    assert seen.counts(web) == [1]
    assert not [request for request in seen.writes if request.resource == "horizontalpodautoscalers"]


GIZMOS = "/apis/lab.kubeops.io/v1/namespaces/{}/gizmos"


@pytest.fixture
def gizmo(lab: Lab, arena: Arena) -> Json:
    """An object of a kind that nobody knows, with a scale subresource."""
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
        "subresources": {
            "status": {},
            "scale": {"specReplicasPath": ".spec.replicas", "statusReplicasPath": ".status.replicas"},
        },
    }
    names = {"plural": "gizmos", "singular": "gizmo", "kind": "Gizmo"}
    spec = {"group": "lab.kubeops.io", "scope": "Namespaced", "names": names, "versions": [version]}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "gizmos.lab.kubeops.io"},
        "spec": spec,
    }
    path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
    if lab.api.find(f"{path}/gizmos.lab.kubeops.io") is None:
        lab.api.create(path, definition)
    wanted = {
        "apiVersion": "lab.kubeops.io/v1",
        "kind": "Gizmo",
        "metadata": {"name": "engine"},
        "spec": {"replicas": 1},
    }

    def served() -> Json | None:
        try:
            return lab.api.create(GIZMOS.format(arena.namespace), wanted)
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    rights.also(arena.api, arena.namespace, "lab.kubeops.io", "gizmos", "gizmos/scale")
    made = until(served, 30, "the new kind is served")
    assert made is not None
    return made


def gizmo_pod(arena: Arena, gizmo: Json, name: str, on: str) -> Workload:
    owner = {
        "apiVersion": gizmo["apiVersion"],
        "kind": gizmo["kind"],
        "name": gizmo["metadata"]["name"],
        "uid": gizmo["metadata"]["uid"],
        "controller": True,
    }
    return arena.pod(name, on, meta={"ownerReferences": [owner]})


@pytest.mark.whole
def test_an_unknown_owner_is_never_scaled(arena: Arena, play: Player, watching: Watch, gizmo: Json) -> None:
    here, there = arena.nodes(2)
    gizmo_pod(arena, gizmo, "engine-0", here)
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
    stopped_in_preflight(run, seen, "not_surgeable", "engine")
    with watching() as seen:
        running = play.start("maintain", maintain_nodes=[here], maintain_allow_interruption=True)
        until(lambda: not arena.pods(on=here), 120, "its pod is evicted")
        gizmo_pod(arena, gizmo, "engine-1", there)
        run = running.wait()
        assert run.ok, run.text
    assert len(seen.evictions()) == 1
    path = f"{GIZMOS.format(arena.namespace)}/engine"
    assert arena.api.get(path)["spec"]["replicas"] == 1
    assert not [request for request in seen.writes if request.resource == "gizmos"]
