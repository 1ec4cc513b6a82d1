# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `maintenance_plan` asks of the API server and what it makes of the answers, on a simulated cluster."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_owners import merged, scalable
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import Record, Step
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.nodes import Kubelets
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.planned import Build, asked, building, codes, plan

POD_ON_N1: Raw = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "shop"},
    "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "registry.example/c:1"}]},
}

SURGE = DrainPolicy(method="surge")


@pytest.fixture
def build() -> t.Iterator[Build]:
    with building() as made:
        yield made


@pytest.mark.parametrize("fence", ["absent", "unknown"])
def test_whether_the_server_holds_a_fence_is_told(build: Build, fence: str) -> None:
    found = build(1)
    if fence == "unknown":
        found.server.denied.add(("get", kinds.ADMISSION_POLICIES.resource))
    assert plan(found).data["fence"] == fence


def test_the_shape_of_a_plan(build: Build) -> None:
    found = build(1)
    (pod,) = found.pods(app="web")
    result = plan(found)
    assert not result.failed
    assert result.data["feasible"]
    assert result.data["waves"] == [["n1"]]
    (least, most), seconds = result.data["estimate_range"], result.data["estimate_seconds"]
    assert 0 < least <= seconds <= most
    assert [least, most] == [sum(each) for each in zip(*result.data["wave_ranges"], strict=True)]
    assert [(n["name"], n["outcome"]) for n in result.data["nodes"]] == [("n1", "planned")]
    (moved,) = result.data["pods"]
    assert moved["seconds"] > 0
    assert {key: moved[key] for key in ("namespace", "name", "uid", "node", "owner", "route", "fits", "target")} == {
        "namespace": "shop",
        "name": pod["metadata"]["name"],
        "uid": pod["metadata"]["uid"],
        "node": "n1",
        "owner": "Deployment shop/web",
        "route": "replace",
        "fits": True,
        "target": "n2",
    }


def test_a_pod_that_fits_nowhere_is_warned_of_in_the_schedulers_words(build: Build) -> None:
    result = plan(build(0, manifests.deployment("bound", 1, nodeSelector={"pool": "a"})))
    (moved,) = result.data["pods"]
    assert (moved["fits"], moved["target"]) == (False, None)
    said = "0/3 nodes are available: 1 node(s) were unschedulable, 2 node(s) didn't match Pod's node affinity/selector."
    assert moved["forecast"] == said
    (finding,) = (one for one in result.data["findings"] if one["code"] == "no_room")
    assert (finding["severity"], finding["object"]) == ("blocker", "Deployment shop/bound")
    assert said in finding["message"]
    assert not result.data["feasible"]


def claim() -> Raw:
    meta = {"name": "data", "namespace": "shop"}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": meta, "spec": {"volumeName": "pv"}}


def test_waves_follow_the_order_and_take_no_more_of_a_zone(build: Build) -> None:
    zones = [manifests.node(f"z{number}", labels={"rack": zone}) for number, zone in enumerate("aabb")]
    result = plan(
        build(0, *zones), nodes=("z0", "z1", "z3", "z2"), order="name", max_parallel=4, zone_key="rack", max_per_zone=1
    )
    assert result.data["waves"] == [["z0", "z2"], ["z1", "z3"]]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_per_zone": 1}, "No node has the label topology.kubernetes.io/zone."),
        ({"order": "zone", "zone_key": "pol"}, "No node has the label pol. Similar labels are pool."),
    ],
)
def test_a_zone_key_that_no_node_has_is_an_error(build: Build, options: dict[str, t.Any], said: str) -> None:
    result = plan(build(), **options)
    assert result.failed
    assert result.message == said
    assert "maintain_zone_key" in result.data["findings"][-1]["remedy"]


def test_a_zone_key_that_is_not_needed_need_not_exist(build: Build) -> None:
    assert not plan(build(), zone_key="pol").failed


MOUNTS: Raw = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}


@pytest.mark.parametrize(
    ("replicas", "more", "listed", "left_out"),
    [
        pytest.param(
            0,
            [],
            {"pods"},
            {"deployments.apps", "daemonsets.apps", "persistentvolumes", "resourcequotas"},
            id="bare",
        ),
        pytest.param(1, [], {"deployments.apps", "resourcequotas", "limitranges"}, {"statefulsets.apps"}, id="surge"),
        pytest.param(
            3,
            [manifests.budget("web", maxUnavailable=1)],
            {"horizontalpodautoscalers.autoscaling"},
            {"persistentvolumes"},
            id="replaced first",
        ),
        pytest.param(
            0,
            [{**POD_ON_N1, "spec": {**POD_ON_N1["spec"], **MOUNTS}}, claim()],
            {"persistentvolumeclaims", "persistentvolumes"},
            {"resourcequotas", "resourceclaims.resource.k8s.io"},
            id="a claim",
        ),
        pytest.param(
            0,
            [manifests.deployment("db", 3, volumes=[{"name": "d", "cinder": {"volumeID": "v"}}])],
            {"persistentvolumeclaims", "persistentvolumes", "csinodes.storage.k8s.io"},
            {"statefulsets.apps"},
            id="a disk",
        ),
        pytest.param(
            0,
            [
                {
                    **POD_ON_N1,
                    "spec": {**POD_ON_N1["spec"], "resourceClaims": [{"name": "gpu", "resourceClaimName": "g"}]},
                }
            ],
            {
                "resourceclaims.resource.k8s.io",
                "resourceslices.resource.k8s.io",
                "deviceclasses.resource.k8s.io",
            },
            {"persistentvolumeclaims", "resourcequotas", "devicetaintrules.resource.k8s.io"},
            id="devices",
        ),
    ],
)
def test_each_kind_is_listed_once_and_only_where_it_matters(
    build: Build, replicas: int, more: list[Raw], listed: set[str], left_out: set[str]
) -> None:
    found = build(replicas, *more)
    plan(found)
    lists = [what.removeprefix("list ") for what in asked(found) if what.startswith("list ")]
    assert len(lists) == len(set(lists))
    assert listed <= set(lists)
    assert not left_out & set(lists)


def test_nothing_is_written(build: Build) -> None:
    found = build(3)
    before = found.store.version
    plan(found)
    assert all(what.split()[0] in ("list", "get", "may") for what in asked(found))
    assert found.store.version == before


def test_nodes_by_selector(build: Build) -> None:
    assert plan(build(), nodes=(), node_selector="pool=a").data["waves"] == [["n1"]]
    assert plan(build(), nodes=(), node_selector="!pool").data["waves"] == [["n2"], ["n3"]]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"nodes": ("n1", "n9")}, "unknown_node"),
        ({"nodes": (), "node_selector": "pool=z"}, "selector_matches_nothing"),
    ],
)
def test_what_is_not_there_fails_the_call_and_keeps_its_shape(
    build: Build, options: dict[str, t.Any], code: str
) -> None:
    result = plan(build(), **options)
    assert result.failed
    assert code in codes(result)
    assert not result.data["feasible"]
    assert {"pods", "waves", "nodes", "estimate_seconds"} <= result.data.keys()
    assert result.message


def test_a_plan_says_before_the_first_write_that_its_calls_have_too_little_time(build: Build) -> None:
    assert "timeout_too_short" in codes(plan(build(1), timeout=1.0))
    assert "timeout_too_short" not in codes(plan(build(1)))


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"nodes": ()}, "no_nodes"),
        ({"nodes": (), "node_selector": "pool a"}, "bad_selector"),
    ],
)
def test_calls_that_cannot_be_meant(build: Build, options: dict[str, t.Any], code: str) -> None:
    with pytest.raises(CallAborted) as stopped:
        plan(build(), **options)
    assert stopped.value.reason.code == code


def out(world: World, step: Step, lease: str = "kubeops-node-maintenance/node-n1") -> World:
    """Node n1 is out of service by run r1, and has come so far."""
    uid = world.get(kinds.NODES, "n1")["metadata"]["uid"]
    record = Record("r1", "n", "ann", "", "2026-01-01T00:00:00Z", step, uid, lease, {"bootID": "before"})
    body = {"metadata": {"annotations": {names.RECORD: record.dump()}}, "spec": {"unschedulable": True}}
    world.patch(kinds.NODES, "n1", body)
    return world


@pytest.mark.parametrize(
    ("step", "goal", "pods", "outcome"),
    [
        pytest.param("parked", "evacuated", [], "at_goal", id="out and empty"),
        pytest.param("parked", "evacuated", [POD_ON_N1], "blocked", id="out, and a pod came"),
        pytest.param("parked", "maintained", [], "planned", id="parked is not maintained"),
        pytest.param("drained", "evacuated", [], "planned", id="drained is not yet left to itself"),
    ],
)
def test_nodes_at_their_goal_join_no_wave(build: Build, step: Step, goal: str, pods: list[Raw], outcome: str) -> None:
    found = out(build(0, *pods), step)
    result = plan(found, goal=goal)
    assert result.data["nodes"][0]["outcome"] == outcome
    assert result.data["waves"] == ([] if outcome == "at_goal" else [["n1"]])
    assert any(what.startswith("may") for what in asked(found)) == (outcome != "at_goal")


def test_the_nonce_of_a_record_is_never_shown(build: Build) -> None:
    shown = plan(out(build(), "parked")).data["nodes"][0]["record"]
    assert shown["run"] == "r1"
    assert "nonce" not in shown


def test_a_lock_in_another_namespace_is_found(build: Build) -> None:
    lease = {
        "apiVersion": kinds.LEASES.api_version,
        "kind": kinds.LEASES.kind,
        "metadata": {"name": "node-n1", "namespace": "medik8s-leases"},
        "spec": {"holderIdentity": "r1/n", "renewTime": "2999-01-01T00:00:00.000000Z", "leaseDurationSeconds": 15},
    }
    found = out(build(0, lease), "drained", "medik8s-leases/node-n1")
    assert codes(plan(found)) == ["held"]
    assert codes(plan(found, run="r1/other")) == ["resumed"]


ROLLOUT = Ref("Rollout", "web", "shop", "uid-Rollout-web", "argoproj.io/v1alpha1")
RESOURCES: list[Raw] = [
    {"name": "rollouts", "kind": "Rollout", "namespaced": True},
    {"name": "rollouts/status", "kind": "Rollout", "namespaced": True},
    {"name": "rollouts/scale", "kind": "Scale", "namespaced": True},
    {"name": "analysisruns", "kind": "AnalysisRun", "namespaced": True},
]


def test_a_kind_is_scalable_when_discovery_says_so() -> None:
    found = scalable(RESOURCES, ROLLOUT)
    assert found == kinds.Kind("argoproj.io", "v1alpha1", "rollouts", "Rollout")
    assert scalable(RESOURCES, Ref("AnalysisRun", "x", api_version="argoproj.io/v1alpha1")) is None
    assert scalable([], ROLLOUT) is None


def scaled(replicas: int) -> Raw:
    return {"spec": {"replicas": replicas}, "status": {"replicas": replicas, "selector": "app=web"}}


@pytest.mark.parametrize(
    ("whole", "expected"),
    [
        ({"spec": {"size": 9}}, {"replicas": 2, "selector": ["app"]}),
        (
            {"spec": {"replicas": 9, "selector": {"app": "x"}}},
            {"replicas": 2, "selector": ["app"]},
        ),
    ],
)
def test_the_scale_says_where_replicas_and_selector_are(whole: Raw, expected: Raw) -> None:
    found = merged(whole, scaled(2))
    assert found["spec"]["replicas"] == expected["replicas"]
    assert [e["key"] for e in found["spec"]["selector"]["matchExpressions"]] == expected["selector"]


def of_a_rollout(world: World, *, group: bool, there: bool, namesake: bool) -> World:
    """The ReplicaSet of `web` belongs to a Rollout of that name: one that is there, a namesake of it, or none."""
    for controller in world.controllers:
        controller.stop()
    world.delete(kinds.DEPLOYMENTS, "web")
    world.server.add_ons = frozenset({"argoproj.io"} if group else ())
    uid = ROLLOUT.uid
    if there:
        top = {"apiVersion": ROLLOUT.api_version, "kind": "Rollout", "metadata": {"name": "web", "namespace": "shop"}}
        world.apply({**top, "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}}})
        world.patch(kinds.ROLLOUTS, "web", {"status": {"replicas": 3, "observedGeneration": "1"}}, subresource="status")
        uid = uid if namesake else world.get(kinds.ROLLOUTS, "web")["metadata"]["uid"]
    ((_namespace, name),) = world.store.of(kinds.REPLICA_SETS.resource)
    owner = {"apiVersion": ROLLOUT.api_version, "kind": "Rollout", "name": "web", "uid": uid, "controller": True}
    world.patch(kinds.REPLICA_SETS, name, {"metadata": {"ownerReferences": [owner]}})
    return world


@pytest.mark.parametrize(
    ("group", "there", "namesake", "owner"),
    [
        pytest.param(False, False, False, "ReplicaSet", id="the group is gone"),
        pytest.param(True, False, False, "ReplicaSet", id="it is gone"),
        pytest.param(True, True, False, "Rollout", id="it is there"),
        pytest.param(True, True, True, "ReplicaSet", id="a namesake is there"),
    ],
)
def test_an_unknown_owner_is_resolved_by_its_scale(
    build: Build, group: bool, there: bool, namesake: bool, owner: str
) -> None:
    found = of_a_rollout(build(3), group=group, there=there, namesake=namesake)
    ((_namespace, replica_set),) = found.store.of(kinds.REPLICA_SETS.resource)
    wanted = f"{owner} shop/{'web' if owner == 'Rollout' else replica_set}"
    assert {moved["owner"] for moved in plan(found).data["pods"]} == {wanted}
    assert sum(1 for what in asked(found) if what == "get /apis/argoproj.io/v1alpha1") == 1


def test_the_pod_of_this_very_play_is_a_blocker(build: Build) -> None:
    found = build(3)
    name = found.pods(on="n1")[0]["metadata"]["name"]
    result = plan(found, choices=DrainPolicy(self_pod=Ref("Pod", name, "shop")))
    assert codes(result) == ["self_on_node"]


def test_a_started_run_looks_again_without_asking_for_rights_and_the_fence_anew(build: Build) -> None:
    found = build(2)
    before = plan(found, "mine")
    first = asked(found)
    del found.log[:]
    again = plan(found, "mine/first")
    assert again.data["waves"] == before.data["waves"]
    assert again.data["feasible"]
    assert any(request.startswith("may ") for request in first)
    assert {request.partition(" ")[0] for request in asked(found)} == {"list"}


@pytest.mark.parametrize("on_blocked", ["stop", "skip"])
def test_nodes_with_blockers_join_no_wave_where_they_are_skipped(build: Build, on_blocked: t.Any) -> None:
    found = plan(build(3, POD_ON_N1), nodes=("n1", "n2"), on_blocked=on_blocked).data
    skips = on_blocked == "skip"
    assert (found["feasible"], found["left_out"]) == (skips, ["n1"] if skips else [])
    assert found["waves"] == ([["n2"]] if skips else [["n1"], ["n2"]])
    assert [node["outcome"] for node in found["nodes"]] == ["blocked", "planned"]
    assert [finding["code"] for finding in found["findings"] if finding["severity"] == "blocker"] == ["bare_pod"]
    assert bool(found["advice"]) is not skips


def test_a_plan_of_skipped_nodes_alone_is_not_feasible(build: Build) -> None:
    found = plan(build(3, POD_ON_N1), nodes=("n1",), on_blocked="skip").data
    assert (found["feasible"], found["waves"], found["left_out"]) == (False, [], ["n1"])


GUARDED: Raw = {
    "apiVersion": kinds.VALIDATING_WEBHOOKS.api_version,
    "kind": kinds.VALIDATING_WEBHOOKS.kind,
    "metadata": {"name": "policy"},
    "webhooks": [
        {
            "name": "deny.example.org",
            "rules": [{"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}],
            "clientConfig": {"url": "https://policy.example.org"},
        }
    ],
}


DRY = ("dryRun", "All")


def dry(world: World) -> list[str]:
    return [sent.request.resource for sent in world.log if DRY in sent.request.query]


@pytest.mark.parametrize(("replicas", "resource"), [(3, "pods/eviction"), (1, "pods"), (1, "deployments.apps/scale")])
def test_what_a_webhook_would_refuse_in_the_run_is_a_blocker_of_the_plan(
    build: Build, replicas: int, resource: str
) -> None:
    found = build(replicas, GUARDED)
    assert "webhook_refuses" not in codes(plan(found, choices=SURGE))
    assert resource in dry(found)
    state = found.pods(app="web")
    found.process("ann").faults.when(lambda r: r.resource == resource and r.method != "GET", Fault("webhook"))
    result = plan(found, choices=SURGE)
    (told,) = [one for one in result.data["findings"] if one["code"] == "webhook_refuses"]
    assert (told["severity"], told["object"]) == ("blocker", 'webhook "deny.example.org"')
    assert (result.data["feasible"], found.pods(app="web") == state) == (False, True)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize(("replicas", "route"), [(3, "evict"), (1, "refuse")])
def test_pods_that_may_not_be_let_go_have_another_way_in_the_plan(
    build: Build, replicas: int, route: str, after: bool
) -> None:
    """Also where a policy refuses what their ReplicaSet writes after that: a pod without a controller."""

    def refused(request: Request) -> bool:
        owners = ((request.body or {}).get("metadata") or {}).get("ownerReferences")
        return request.method == "PATCH" and len(owners or ()) == (1 if after else 2)

    other = manifests.deployment("other", 2)
    found = build(replicas, GUARDED, other)
    found.process("ann").faults.when(lambda request: "web-" in request.name and refused(request), Fault("webhook"))
    result = plan(found, choices=DrainPolicy(backend="eviction", method="replace"))
    of_web = {one["route"] for one in result.data["pods"] if one["owner"] == "Deployment shop/web"}
    others = {one["route"] for one in result.data["pods"] if one["owner"] == "Deployment shop/other"}
    assert (of_web, others <= {"replace"}) == ({route}, True), "what others may be let go is"
    (told,) = [one for one in result.data["findings"] if one["code"] == "webhook_refuses"]
    assert (told["severity"], told["object"]) == ("warning", 'webhook "deny.example.org"')
    assert "Deployment shop/web" in told["message"]
    assert "Deployment shop/other" not in told["message"]
    assert [one.request.verb for one in found.log if one.request.resource == "pods"].count("list") == 1
    assert result.data["feasible"] is (route == "evict")


@pytest.mark.parametrize("what", ["budget", "error", "unreachable", "throttled", "fenced"])
def test_what_is_no_refusal_of_a_webhook_is_none(build: Build, what: t.Any) -> None:
    found = build(3, GUARDED)
    if what == "budget":
        found.apply(manifests.budget("web", minAvailable=2))
        other = next(pod for pod in found.pods(app="web") if pod["spec"]["nodeName"] != "n1")
        found.controller(Kubelets).set_ready((manifests.SHOP, other["metadata"]["name"]), False)
        found.settle()
    else:
        found.process("ann").faults.when(lambda r: r.resource == "pods/eviction", Fault(what))
    assert "webhook_refuses" not in codes(plan(found, choices=SURGE))
    assert "pods/eviction" in dry(found)


def test_what_is_tried_on_pods_names_a_lock_as_the_bounds_of_an_account_demand(build: Build) -> None:
    """The fence lets it pass in a dry run alone."""
    evicted, patched = build(3, GUARDED), build(1, GUARDED)
    plan(evicted, choices=SURGE)
    plan(patched, choices=SURGE)
    sent = [one.request for world in (evicted, patched) for one in world.log if DRY in one.request.query]
    (eviction,) = [one for one in sent if one.resource == "pods/eviction"]
    assert ((eviction.body or {})["metadata"]["annotations"]) == {names.FENCE: "node-=plan"}
    assert {one.resource: dict(one.query)["fieldManager"] for one in sent if one.method == "PATCH"} == {
        "pods": f"{names.MANAGER}/plan",
        "deployments.apps/scale": names.MANAGER,
    }


def test_nothing_is_tried_where_nobody_is_asked_nor_without_rights_nor_in_a_run(build: Build) -> None:
    bare, guarded = build(3), build(3, GUARDED)
    plan(bare)
    plan(guarded, "r1/abcd")
    guarded.server.denied.add(("create", "pods/eviction"))
    assert "missing_permission" in codes(plan(guarded))
    assert (dry(bare), dry(guarded)) == ([], [])


def test_admission_that_may_not_be_read_is_said(build: Build) -> None:
    found = build(3, GUARDED)
    found.server.denied.add(("list", kinds.ADMISSION_POLICIES.resource))
    result = plan(found, choices=SURGE)
    assert [one["object"] for one in result.data["findings"] if one["code"] == "not_checked"] == [
        "ValidatingAdmissionPolicy"
    ]
    assert "pods/eviction" in dry(found), "webhooks are known"
