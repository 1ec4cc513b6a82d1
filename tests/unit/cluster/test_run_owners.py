# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controllers of kinds that nobody lists: found by discovery, read with the counts of their scale."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_owners
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod, Ref, Workload
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects

KRUISE, ARGO = kinds.CLONE_SETS.api_version, kinds.ROLLOUTS.api_version


def custom(api_version: str, kind: str, name: str, replicas: int) -> Raw:
    meta = {"name": name, "namespace": "shop"}
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}}
    return {"apiVersion": api_version, "kind": kind, "metadata": meta, "spec": spec}


@pytest.fixture
def world() -> t.Iterator[World]:
    made = [custom(KRUISE, "CloneSet", "web", 3), custom(ARGO, "Rollout", "api", 2)]
    with World(made, add_ons=["apps.kruise.io", "argoproj.io"], settle=False) as world:
        yield world


def uid(world: World, kind: kinds.Kind, name: str) -> str:
    return str(world.get(kind, name)["metadata"]["uid"])


def owned(kind: str, name: str, uid: str, api_version: str) -> list[Raw]:
    return [{"kind": kind, "name": name, "uid": uid, "apiVersion": api_version, "controller": True}]


def of_web(world: World, name: str = "web-0") -> Pod:
    """A pod of the CloneSet."""
    return Pod.of(objects.pod(name, owner=owned("CloneSet", "web", uid(world, kinds.CLONE_SETS, "web"), KRUISE)))


def scales(world: World, *pods: Pod, snapshot: Snapshot | None = None) -> list[tuple[str, int]]:
    found = world.process("me").run(lambda ctx: run_owners.scales(ctx, snapshot or Snapshot(), pods))
    return [(workload.name, workload.replicas) for workload in found]


def asked(world: World) -> list[str]:
    return [sent.request.path for sent in world.log]


def test_each_kind_is_discovered_once_and_each_controller_read_once(world: World) -> None:
    world.apply(custom(KRUISE, "CloneSet", "db", 1))
    db = Pod.of(objects.pod("db-0", owner=owned("CloneSet", "db", uid(world, kinds.CLONE_SETS, "db"), KRUISE)))
    assert scales(world, of_web(world), of_web(world, "web-1"), db) == [("web", 3), ("db", 1)]
    base = "/apis/apps.kruise.io/v1alpha1"
    reads = [f"{base}/namespaces/shop/clonesets/{name}" for name in ("web/scale", "web", "db/scale", "db")]
    assert asked(world) == [base, *reads]


def test_nothing_is_read_of_what_is_listed_anyway_or_known_or_has_no_owner(world: World) -> None:
    job = Pod.of(objects.pod("job-0", owner=objects.owned("Job", "night")))
    raw = world.get(kinds.CLONE_SETS, "web")
    known = Snapshot.of({"clone_sets": [Workload.of(raw)]})
    assert scales(world, job, Pod.of(objects.pod("bare")), of_web(world), snapshot=known) == []
    assert asked(world) == []


def test_the_controller_of_a_listed_controller_is_found(world: World) -> None:
    above = owned("Rollout", "api", uid(world, kinds.ROLLOUTS, "api"), ARGO)
    middle = objects.workload("ReplicaSet", "api-1", 2, above)
    pod = Pod.of(objects.pod("api-1-x", owner=objects.owned("ReplicaSet", "api-1")))
    assert scales(world, pod, snapshot=objects.snapshot(replica_sets=[middle])) == [("api", 2)]


def test_a_namesake_of_the_controller_is_not_taken_for_it(world: World) -> None:
    pod = Pod.of(objects.pod("web-0", owner=owned("CloneSet", "web", "another", KRUISE)))
    assert scales(world, pod) == []


@pytest.mark.parametrize("part", ["clonesets.apps.kruise.io/scale", "clonesets.apps.kruise.io"])
def test_one_that_may_not_be_read_is_left_out_and_the_next_is_found(world: World, part: str) -> None:
    world.server.denied.add(("get", part))
    api = Pod.of(objects.pod("api-0", owner=owned("Rollout", "api", uid(world, kinds.ROLLOUTS, "api"), ARGO)))
    assert scales(world, of_web(world), api) == [("api", 2)]


@pytest.mark.parametrize(("api_version", "reads"), [("apps/v1", 0), (KRUISE, 1)])
def test_a_kind_of_the_same_name_in_another_group_is_looked_for(world: World, api_version: str, reads: int) -> None:
    """Kruise has a StatefulSet of its own, which is not among those that are listed."""
    pod = Pod.of(objects.pod("x-0", owner=owned("StatefulSet", "x", "u", api_version)))
    assert scales(world, pod) == []
    assert asked(world) == ["/apis/apps.kruise.io/v1alpha1"] * reads


def test_a_group_that_is_not_installed_has_no_controllers(world: World) -> None:
    pod = Pod.of(objects.pod("x-0", owner=owned("Thing", "x", "u", "example.org/v1")))
    assert scales(world, pod) == []


@pytest.mark.parametrize("api_version", ["../healthz", "a/../../healthz", "v1?limit=1", "apps", "", "a/b/c/d"])
def test_an_owner_of_an_impossible_group_leaves_the_others_known(world: World, api_version: str) -> None:
    """Whoever makes a pod writes what its owner's group is; the garbage collector lets the pod be."""
    pod = Pod.of(objects.pod("x-0", owner=owned("Thing", "x", "u", api_version)))
    assert scales(world, pod, of_web(world)) == [("web", 3)]
    assert all(path.startswith(("/apis/", "/api/")) and ".." not in path.split("/") for path in asked(world))


@pytest.mark.parametrize("what", ["down", "error", "invalid"])
def test_a_group_whose_server_fails_leaves_the_others_known(world: World, what: t.Any) -> None:
    """As an aggregated API without its server does, at every request."""
    pod = Pod.of(objects.pod("x-0", owner=owned("Thing", "x", "u", "metrics.example.org/v1")))
    me = world.process("me")
    me.faults.when(lambda request: "metrics" in request.path, Fault(what), times=1000)
    found = me.run(lambda ctx: run_owners.scales(ctx, Snapshot(), [pod, of_web(world)]))
    assert [workload.name for workload in found] == ["web"]


@pytest.mark.parametrize(
    ("kind", "name"), [("../Thing", "x"), ("Thing", "../x"), ("Thing", ".."), ("a b", "x=y,z"), ("", "")]
)
def test_an_owner_that_no_cluster_can_have_is_not_asked_for(world: World, kind: str, name: str) -> None:
    pod = Pod.of(objects.pod("x-0", owner=owned(kind, name, "u", KRUISE)))
    assert scales(world, pod, of_web(world)) == [("web", 3)]
    assert not world.process("me").run(lambda ctx: run_owners.there(ctx, Ref("CloneSet", "a=b,c", "shop", "u", KRUISE)))
    assert len(asked(world)) == 3


def test_again_reads_the_present_counts_and_leaves_out_what_is_gone(world: World) -> None:
    me = world.process("me")
    api = Pod.of(objects.pod("api-0", owner=owned("Rollout", "api", uid(world, kinds.ROLLOUTS, "api"), ARGO)))
    known = me.run(lambda ctx: run_owners.scales(ctx, Snapshot(), [of_web(world), api]))
    world.delete(kinds.CLONE_SETS, "web")
    world.patch(kinds.ROLLOUTS, "api", {"spec": {"replicas": 5}})
    found = me.run(lambda ctx: run_owners.again(ctx, known))
    assert [(workload.name, workload.replicas) for workload in found] == [("api", 5)]


def test_an_owner_is_there_by_its_uid_and_not_by_its_name(world: World) -> None:
    me = world.process("me")

    def there(name: str, uid: str, kind: str = "CloneSet", api_version: str = KRUISE) -> bool:
        owner = Ref(kind, name, "shop", uid, api_version)
        return me.run(lambda ctx: run_owners.there(ctx, owner))

    right = uid(world, kinds.CLONE_SETS, "web")
    assert there("web", right)
    assert not there("web", "another")
    assert not there("gone", right)
    count = len(world.log)
    assert not there("web", right, "Thing", "example.org/v1"), "of a kind that is unknown"
    assert len(world.log) == count
    world.server.denied.add(("list", "clonesets.apps.kruise.io"))
    assert not there("web", right), "it may not be listed"


def resource(name: str, kind: str = "Thing", **more: t.Any) -> Raw:
    return {"name": name, "kind": kind, **more}


@pytest.mark.parametrize(
    ("resources", "found"),
    [
        pytest.param([resource("things"), resource("things/scale", "Scale")], ("things", True), id="scalable"),
        pytest.param([resource("things")], None, id="without a scale"),
        pytest.param([resource("others", "Other"), resource("others/scale", "Scale")], None, id="another kind"),
        pytest.param([resource("things/x"), resource("things/x/scale")], None, id="a subresource of that kind"),
        pytest.param(
            [resource("things", namespaced=False), resource("things/scale")], ("things", False), id="of the cluster"
        ),
    ],
)
def test_what_has_a_scale_can_be_scaled(resources: list[Raw], found: tuple[str, bool] | None) -> None:
    kind = run_owners.scalable(resources, Ref("Thing", "x", "shop", "u", "example.org/v1"))
    assert (kind and (kind.plural, kind.namespaced)) == found
    assert kind is None or (kind.group, kind.version, kind.kind) == ("example.org", "v1", "Thing")


BY_APP = {"matchLabels": {"app": "web"}}
WHOLE: Raw = {"metadata": {"name": "web", "uid": "u", "generation": 2}}


@pytest.mark.parametrize(
    ("whole", "scale", "spec", "current"),
    [
        pytest.param(
            {"spec": {"replicas": 9, "selector": BY_APP}, "status": {"replicas": 9}},
            {"spec": {"replicas": 3}, "status": {"replicas": 2, "selector": "app=other"}},
            {"replicas": 3, "selector": BY_APP},
            2,
            id="the scale counts, the object selects",
        ),
        pytest.param(
            {"spec": {"selector": "app=web"}},
            {"spec": {"replicas": 1}, "status": {"selector": "tier"}},
            {"replicas": 1, "selector": {"matchExpressions": [{"key": "tier", "operator": "Exists"}]}},
            0,
            id="a selector of another form is read from the scale",
        ),
        pytest.param(
            {"spec": {"selector": {"other": "form"}}}, {}, {"replicas": 0, "selector": None}, 0, id="an empty scale"
        ),
        pytest.param(
            {}, {"status": {"selector": "a b c"}}, {"replicas": 0, "selector": None}, 0, id="a selector that is none"
        ),
    ],
)
def test_replicas_and_selector_are_where_the_scale_says(whole: Raw, scale: Raw, spec: Raw, current: int) -> None:
    merged = run_owners.merged({**WHOLE, **whole}, scale)
    assert (merged["spec"], merged["status"]["replicas"]) == (spec, current)
    assert merged["metadata"] == WHOLE["metadata"]


@pytest.mark.parametrize(("seen", "observed"), [("2", True), (2, True), ("1", False), ("5f8c", False), (None, False)])
def test_a_generation_is_seen_in_figures_or_as_argos_text(seen: object, observed: bool) -> None:
    merged = run_owners.merged({**WHOLE, "status": {"observedGeneration": seen}}, {})
    assert Workload.of(merged, ARGO, "Rollout").observed is observed
