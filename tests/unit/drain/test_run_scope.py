# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""In a large cluster a drain and a guard read only what their own nodes need, however much else there is."""

from __future__ import annotations

import collections
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    node_affinity,
    related,
    run_targeted_reads,
    scopes,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context, Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_drain import DrainOptions, drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_guard import GuardOptions, guard
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects

RUN = "r1/first"
NODES = ("n1", "n2", "n3", "n4")
ELSEWHERE = ("other", "more")
SPACED = {"poddisruptionbudgets.policy", "endpointslices.discovery.k8s.io", "replicasets.apps", "deployments.apps"}


@pytest.fixture(autouse=True)
def _large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four nodes are a large cluster here, and one of them few."""
    monkeypatch.setattr(scopes, "PAGE_OF_NODES", len(NODES))
    monkeypatch.setattr(scopes, "SPARSE", 2)


def elsewhere() -> list[Raw]:
    """Workloads of other namespaces, on nodes that stay; some have the same labels."""
    away = {"nodeSelector": {"kubernetes.io/hostname": "n4"}}
    return [
        made
        for space in ELSEWHERE
        for made in (
            manifests.deployment("web", 2, namespace=space, **away),
            manifests.deployment("api", 2, namespace=space, **away),
            manifests.budget("web", namespace=space, maxUnavailable=1),
        )
    ]


def world_of(*objects: Raw) -> World:
    return World([*(manifests.node(name, pods=60) for name in NODES), *objects])


def usual(*more: Raw) -> World:
    return world_of(*manifests.usual(0), *more)


def home_of(world: World, app: str = "single") -> str:
    return str(world.pods(app=app)[0]["spec"]["nodeName"])


def everything(world: World, method: str = "replace") -> dict[str, Result]:
    """A wave of the node with the single replica: what came of each call."""
    me, wanted = world.process("me"), (home_of(world),)
    calls: dict[str, t.Callable[[Context], Result]] = {
        "cordon": lambda ctx: cordon(ctx, CordonOptions("cordoned", wanted)),
        "protect": lambda ctx: guard(ctx, GuardOptions("present", wanted, method=method)),
        "drain": lambda ctx: drain(ctx, DrainOptions(wanted, DrainPolicy(method=method), timeout=900)),
        "unprotect": lambda ctx: guard(ctx, GuardOptions("absent", wanted)),
        "uncordon": lambda ctx: cordon(ctx, CordonOptions("uncordoned", wanted)),
    }
    return {name: me.run(call, RUN) for name, call in calls.items()}


def reads(world: World) -> collections.Counter[tuple[str, str, str]]:
    """How often which resource was read, and what of it: a namespace or the selectors."""
    found = (sent.request for sent in world.log if sent.request.verb in ("get", "list", "watch"))
    return collections.Counter(
        (one.verb, one.resource, one.namespace or " ".join(v for k, v in one.query if k.endswith("Selector")))
        for one in found
    )


def test_a_wave_reads_as_much_however_large_the_rest_of_the_cluster_is() -> None:
    counted = []
    for more in ([], elsewhere()):
        with usual() as world:
            world.apply(*more)
            world.settle()
            world.log.clear()
            assert not any(result.failed for result in everything(world).values())
            counted.append(reads(world))
    assert counted[0] == counted[1]


def test_no_call_of_a_wave_reads_all_pods_or_all_of_what_is_in_namespaces() -> None:
    with usual(*elsewhere()) as world:
        world.log.clear()
        home = home_of(world)
        everything(world)
        asked = reads(world)
    assert [where for verb, resource, where in asked if resource == "pods" and verb != "get" and not where] == []
    assert {where for verb, resource, where in asked if resource in SPACED and verb == "list"} <= {
        "shop",
        "app.kubernetes.io/managed-by=kubeops.node_maintenance",
    }
    pods = {where for _verb, resource, where in asked if resource == "pods"}
    assert f"spec.nodeName={home}" in pods
    assert any(where.startswith("app in (") for where in pods)


@pytest.mark.parametrize(("method", "route"), [("surge", "surge"), ("replace", "replace")])
def test_a_wave_of_a_large_cluster_comes_to_the_same_as_that_of_a_small_one(
    monkeypatch: pytest.MonkeyPatch, method: str, route: str
) -> None:
    came = []
    for large in (len(NODES), 1000):
        monkeypatch.setattr(scopes, "PAGE_OF_NODES", large)
        with usual(*elsewhere()) as world:
            results = everything(world, method)
            pods = results["drain"].data["nodes"][0]["pods"]
            moved = sorted((pod["namespace"], pod["name"], pod["route"], pod["outcome"]) for pod in pods)
            workloads = [(one["name"], one["outcome"]) for one in results["protect"].data["workloads"]]
            came.append((moved, workloads, [result.data["nodes"][0]["outcome"] for result in results.values()]))
    assert came[0] == came[1]
    assert {route for _space, _name, route, _outcome in came[0][0]} >= {route, "evict", "skip"}


def test_namesakes_in_another_namespace_are_no_replicas() -> None:
    """They have the label that is asked for, and are ready; the workload's own pod is the last one."""
    here = manifests.deployment("web", 2, nodeSelector={"kubernetes.io/hostname": "n1"})
    with world_of(here, *elsewhere()) as world:
        results = everything_but_the_end(world)
        (node,) = results.data["nodes"]
    assert node["outcome"] == "timed_out"
    assert len([pod for pod in node["pods"] if pod["outcome"] == "evicted"]) == 1


def everything_but_the_end(world: World) -> Result:
    me = world.process("me")
    assert not me.run(lambda ctx: cordon(ctx, CordonOptions("cordoned", ("n1",))), RUN).failed
    assert not me.run(lambda ctx: guard(ctx, GuardOptions("present", ("n1",))), RUN).failed
    return me.run(lambda ctx: drain(ctx, DrainOptions(("n1",), DrainPolicy(), timeout=60)), RUN)


def test_a_budget_that_comes_later_counts_the_pods_that_nobody_asked_for_yet() -> None:
    """It covers both workloads, of which only one has a pod on the node: the other's pods serve for it."""
    labels = {"tier": "front"}
    slow = {"simulated/stop": "20s"}
    one, other = manifests.deployment("one", 2, annotations=slow), manifests.deployment("other", 2)
    for made in (one, other):
        made["spec"]["template"]["metadata"]["labels"].update(labels)
    other["spec"]["template"]["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n4"}
    late = manifests.budget("both", minAvailable=3)
    late["spec"]["selector"] = {"matchLabels": labels}
    with world_of(one, other) as world:
        on = home_of(world, "one")
        me = world.process("me")
        assert not me.run(lambda ctx: cordon(ctx, CordonOptions("cordoned", (on,))), RUN).failed
        assert not me.run(lambda ctx: guard(ctx, GuardOptions("present", (on,))), RUN).failed
        world.machine.after(0.3, lambda: world.apply(late), "a budget comes")
        result = me.run(lambda ctx: drain(ctx, DrainOptions((on,), DrainPolicy(), timeout=300)), RUN)
    assert [node["outcome"] for node in result.data["nodes"]] == ["drained"], result.message


@pytest.mark.parametrize(
    ("wanted", "large", "worth", "asked", "whole"),
    [
        pytest.param(["n1"], 1, 2, ["", "metadata.name=n1"], False, id="few of many"),
        pytest.param(["n1", "nobody"], 1, 1, ["", "metadata.name=n1", "metadata.name=nobody"], False, id="unknown"),
        pytest.param(["n1"], 4, 1, [""], True, id="one page"),
        pytest.param(["n1"], 1, 3, ["", ""], True, id="few others"),
        pytest.param(["n1", "n2"], 1, 2, ["", ""], True, id="few others for each"),
        pytest.param([f"n{x}" for x in range(scopes.FEW + 1)], 3, 1, [""], True, id="many"),
    ],
)
def test_few_nodes_of_many_are_read_by_their_names(
    monkeypatch: pytest.MonkeyPatch, wanted: list[str], large: int, worth: int, asked: list[str], whole: bool
) -> None:
    monkeypatch.setattr(scopes, "PAGE_OF_NODES", large)
    monkeypatch.setattr(run_targeted_reads, "NODES_PER_REQUEST", worth)
    with world_of() as world:
        world.log.clear()
        found, is_whole = world.process("me").run(lambda ctx: run_targeted_reads.nodes_of(ctx.cluster, wanted))
        fields = [dict(sent.request.query).get("fieldSelector", "") for sent in world.log]
    assert (fields, is_whole) == (asked, whole)
    assert set(found) == (set(NODES) if whole else {"n1"})


def test_of_pods_with_claims_only_their_own_claims_and_volumes_are_read() -> None:
    pvc: Raw = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {"volumeName": "pv-a"}}
    claim = {**pvc, "metadata": {"name": "a", "namespace": "shop"}}
    stranger = {**pvc, "metadata": {"name": "b", "namespace": "shop"}, "spec": {"volumeName": "pv-b"}}
    volumes = [
        {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name}, "spec": {"capacity": {}}}
        for name in ("pv-a", "pv-b")
    ]
    mount = [{"name": "data", "persistentVolumeClaim": {"claimName": "a"}}]
    app = manifests.deployment("app", 1, volumes=mount)
    with world_of(claim, stranger, *volumes, app) as world:
        parsed = [Pod.of(pod) for pod in world.pods(app="app")]
        world.log.clear()
        found = world.process("me").run(lambda ctx: run_targeted_reads.claims_of(ctx.cluster, parsed))
        asked = [(sent.request.resource, dict(sent.request.query)["fieldSelector"]) for sent in world.log]
    assert {name: [raw["metadata"]["name"] for raw in raws] for name, raws in found.items()} == {
        "claims": ["a"],
        "volumes": ["pv-a"],
    }
    assert asked == [("persistentvolumeclaims", "metadata.name=a"), ("persistentvolumes", "metadata.name=pv-a")]


@pytest.mark.parametrize(
    ("parts", "of", "whole"),
    [
        ({"stateful_sets": [objects.workload("StatefulSet", "web", 1)]}, objects.owned("StatefulSet", "web"), False),
        (
            {
                "stateful_sets": [
                    objects.workload("StatefulSet", "web", 1, objects.owned("Site", "web", "example.com/v1"))
                ]
            },
            objects.owned("StatefulSet", "web"),
            True,
        ),
        ({}, objects.owned("Site", "web", "example.com/v1"), True),
        ({}, None, False),
    ],
    ids=["its own", "an operator's", "unknown", "nobody's"],
)
def test_only_pods_of_plain_workloads_are_found_by_their_labels(
    parts: dict[str, list[Raw]], of: list[Raw] | None, whole: bool
) -> None:
    seen = objects.snapshot(parts, pods=[objects.pod("web-0", owner=of)])
    found = related.pods(seen, seen.pods)
    assert (("shop", "") in found.get("", ())) is whole


@pytest.mark.parametrize(
    ("scope", "words"),
    [
        ({"node": "n1"}, "n1"),
        ({"namespaces": ("shop",)}, "shop"),
        ({"namespaces": ("shop", "bank")}, "2 namespaces"),
        ({"key": "app", "pairs": frozenset({("shop", "web")})}, "label app"),
    ],
)
def test_what_is_read_is_told_in_words(scope: dict[str, t.Any], words: str) -> None:
    assert scopes.Slice(**scope).words == words


def test_a_guard_of_ours_asks_for_no_other_pods_than_its_workload() -> None:
    guard, foreign = objects.budget(f"{names.GUARD_PREFIX}web", 1), objects.budget("web", 1)
    seen = objects.snapshot(pods=[objects.pod("web-0", labels={"app": "web"})], budgets=[guard])
    assert related.pods(seen, seen.pods) == {}
    seen = objects.snapshot(pods=[objects.pod("web-0", labels={"app": "web"})], budgets=[foreign])
    assert related.pods(seen, seen.pods) == {"app": frozenset({("shop", "web")})}


@pytest.mark.parametrize(
    ("longest", "sizes"),
    [(1000, [3]), (4 + 3, [1, 1, 1]), (4 + 3 + 1 + 3, [2, 1]), (4 + 3 + 1 + 2, [1, 1, 1]), (1, [1, 1, 1])],
)
def test_label_values_are_asked_for_in_requests_of_a_bounded_length(
    monkeypatch: pytest.MonkeyPatch, longest: int, sizes: list[int]
) -> None:
    monkeypatch.setattr(scopes, "LONGEST", longest)
    chunks = list(scopes._chunks("keyx", [("shop", value) for value in ("aaa", "bbb", "ccc")]))
    assert [len(chunk) for chunk in chunks] == sizes
    assert frozenset().union(*chunks) == {("shop", value) for value in ("aaa", "bbb", "ccc")}


def test_a_drain_of_a_fenced_node_reads_all_pods() -> None:
    """Any of them may use a volume that is attached there."""
    with usual() as world:
        me, wanted = world.process("me"), (home_of(world),)
        me.run(lambda ctx: cordon(ctx, CordonOptions("cordoned", wanted)), RUN)
        for fenced in ((), wanted):
            world.log.clear()
            options = DrainOptions(wanted, DrainPolicy(fenced=fenced), timeout=1.0)
            me.run(lambda ctx, options=options: drain(ctx, options), RUN)  # type: ignore[misc]
            assert reads(world)["watch", "pods", ""] == len(fenced)


def zonal(zone: str) -> list[Raw]:
    """A claim that is bound to a volume of this zone."""
    pvc: Raw = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "spec": {"volumeName": "pv"}}
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}
    spec = {"capacity": {}, "csi": {}, "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}}}
    volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "pv"}, "spec": spec}
    return [{**pvc, "metadata": {"name": "data", "namespace": "shop"}}, volume]


@pytest.mark.parametrize(
    ("labelled", "code"),
    [
        pytest.param(("n1", "n2", "n3"), "replicas", id="it fits others"),
        pytest.param(("n1",), "local_volume", id="it fits no other one"),
    ],
)
def test_of_other_nodes_a_drain_reads_two_that_each_volume_fits(labelled: tuple[str, ...], code: str) -> None:
    mount = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    app = manifests.deployment("app", 2, volumes=mount, nodeSelector={"kubernetes.io/hostname": "n1"})
    with world_of(*zonal("a"), app) as world:
        for name in labelled:
            world.patch(kinds.NODES, name, {"metadata": {"labels": {"zone": "a"}}})
        me = world.process("me")
        me.run(lambda ctx: cordon(ctx, CordonOptions("cordoned", ("n1",))), RUN)
        world.log.clear()
        choices = DrainPolicy(allow_interruption=True)
        result = me.run(lambda ctx: drain(ctx, DrainOptions(("n1",), choices, timeout=1.0)), RUN)
        asked = [
            (sent.request.verb, dict(sent.request.query)) for sent in world.log if sent.request.resource == "nodes"
        ]
    routes = {pod["reason"] for pod in result.data["nodes"][0]["pods"]}
    assert any("no other node satisfies" in reason for reason in routes) is (code == "local_volume")
    by_name_ = {query.get("fieldSelector") for verb, query in asked if verb == "watch"}
    assert by_name_ == {"metadata.name=n1"}
    whole = [query for verb, query in asked if verb == "list" and "fieldSelector" not in query]
    assert {query.get("labelSelector", "") for query in whole} == {"", "zone in (a)"}
    assert all(int(query["limit"]) <= scopes.PAGE_OF_NODES for query in whole)


@pytest.mark.parametrize(
    ("term", "labels"),
    [
        ({"matchExpressions": [{"key": "a", "operator": "In", "values": ["1", "2"]}]}, "a in (1,2)"),
        ({"matchExpressions": [{"key": "a", "operator": "NotIn", "values": ["1"]}, {"key": "b", "operator": "Exists"}]},
         "a notin (1),b"),
        ({"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}, "!a"),
        ({"matchExpressions": [{"key": "a", "operator": "Gt", "values": ["1"]}]}, None),
        ({"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_what_a_term_means_as_a_label_selector(term: Raw, labels: str | None) -> None:
    assert node_affinity.labels_of(term) == labels
