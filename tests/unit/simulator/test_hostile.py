# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whatever a tenant or a kubelet writes into its objects: a run on another node does not notice it.

A run on the node with their pods ends as well, and recover gives back what a killed run left. The engine sees the
objects with odd values; the cluster's own controllers see them as they are, so that only the engine is tried.

`EXAMPLES=2000` tries more than `make test` does.
"""

from __future__ import annotations

import json
import os
import typing as t
from dataclasses import dataclass

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import decoding, names, sharing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import exchange, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import hostile, koordinator, manifests, store
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, Outcome, maintain, recover
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Saved, World

TENANT = "tenant"
THEIRS = ("n2", "n5")
"""The nodes with their pods, of which the kubelet is theirs, too: of built-in workloads, and of custom ones."""
ANYTHING = hostile.anything(None)
ADD_ONS = ("apps.kruise.io", "argoproj.io", "kubevirt.io", "scheduling.koordinator.sh")


@dataclass(frozen=True)
class Odd:
    """A value in all objects of this kind that are `whose`."""

    whose: str
    kind: str
    path: hostile.Path
    value: t.Any

    def __repr__(self) -> str:
        return f"{self.whose} {self.kind}.{'.'.join(map(str, self.path))} = {self.value!r:.60}"


TABLES = {"tenant": hostile.TENANTS, "kubelet": hostile.KUBELETS, "jobs": hostile.JOBS}
Field = tuple[str, str, hostile.Path, hostile.Leaf]


def fields(*whose: str) -> list[Field]:
    """Those of which the API server may store the odd values."""
    trees = ((one, kind, tree) for one in whose for kind, tree in TABLES[one].items())
    return [(one, kind, path, leaf) for one, kind, tree in trees for path, leaf in hostile.leaves(tree)]


def parts(*whose: str) -> list[Field]:
    """Fields, and what they are in, with values of other types: no API server would store them, all the same."""
    trees = ((one, kind, tree) for one in whose for kind, tree in TABLES[one].items())
    found = ((one, kind, path) for one, kind, tree in trees for path in hostile.parts(tree))
    return [(one, kind, path, ANYTHING) for one, kind, path in found if len(path) > 1]


@st.composite
def odd_values(draw: st.DrawFn, *whose: str) -> list[Odd]:
    stored = st.lists(st.sampled_from(fields(*whose)), min_size=1, max_size=12)
    chosen = draw(st.one_of(stored, st.lists(st.sampled_from(parts(*whose)), min_size=1, max_size=3)))
    return [Odd(whose, kind, path, draw(st.sampled_from(leaf.odd))) for whose, kind, path, leaf in chosen]


def with_pod(world: World, kind: kinds.Kind, name: str) -> None:
    """A custom workload of one replica with its pod, on a node of theirs."""
    template = manifests.template(name)
    if kind is kinds.VIRTUAL_MACHINES:
        template["metadata"]["labels"] |= {"kubevirt.io": "virt-launcher", "vm.kubevirt.io/name": name}
        template["metadata"]["annotations"] = {"kubevirt.io/domain": name}
    spec: Raw = {"replicas": 1, "selector": {"matchLabels": {"app": name}}, "template": template}
    status = {"observedGeneration": 9, "replicas": 1, "readyReplicas": 1, "availableReplicas": 1, "updatedReplicas": 1}
    meta: Raw = {"name": name, "namespace": TENANT}
    world.apply({"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, "spec": spec})
    world.patch(kind, name, {"status": status}, TENANT, "status")
    uid = world.get(kind, name, TENANT)["metadata"]["uid"]
    owner = {"apiVersion": kind.api_version, "kind": kind.kind, "name": name, "uid": uid, "controller": True}
    meta = {**template["metadata"], **meta, "name": f"{name}-0", "ownerReferences": [owner]}
    world.apply({"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": template["spec"]})


def theirs() -> list[Raw]:
    """One of each that a tenant may have, as it should be."""
    mine: dict[str, t.Any] = {"namespace": TENANT}
    guard = manifests.budget("kubeops-guard-x", "t-web", TENANT, maxUnavailable=1)
    guard["metadata"]["labels"] = {names.MANAGED_BY_LABEL: names.MANAGED_BY}
    found = [
        manifests.deployment("t-web", 3, **mine),
        manifests.deployment("t-single", 1, **mine),
        manifests.stateful_set("t-db", 2, **mine),
        manifests.daemon_set("t-agent", nodeSelector={"kubernetes.io/hostname": "n2"}, **mine),
        manifests.service("t-web", TENANT),
        manifests.budget("t-db", namespace=TENANT, maxUnavailable=1),
        manifests.autoscaler("t-web", 3, 5, namespace=TENANT),
        guard,
    ]
    for kind, name in (
        *((kinds.PVCS, "t-claim"), (kinds.RESOURCE_QUOTAS, "t-quota"), (kinds.LIMIT_RANGES, "t-limits")),
        *((kinds.RESOURCE_CLAIMS, "claim"), (kinds.POD_GROUPS, "group"), (kinds.KUBEVIRTS, "kubevirt")),
        (kinds.EVICTION_REQUESTS, "t-request"),
        *((kinds.CSI_NODES, "n2"), (kinds.RESOURCE_SLICES, "slice")),
    ):
        meta = {"name": name, **({"namespace": TENANT} if kind.namespaced else {})}
        tree = {**hostile.TENANTS, **hostile.KUBELETS}.get(kind.kind, {})
        found.append({"apiVersion": kind.api_version, "kind": kind.kind, **hostile.usual(tree), "metadata": meta})
    return found


@pytest.fixture(scope="module")
def saved() -> Saved:
    """Their pods are on their node, and those of the others elsewhere, among them some on the first node."""
    everybody = [f"n{number}" for number in range(1, 6)]
    with World([*map(manifests.node, everybody)], add_ons=ADD_ONS) as world:

        def only(*nodes: str) -> None:
            for name in everybody:
                world.cordon(name, name not in nodes)

        only("n2")
        world.apply(*theirs())
        world.settle()
        only("n5")
        for kind in (kinds.CLONE_SETS, kinds.ROLLOUTS, kinds.VIRTUAL_MACHINES):
            with_pod(world, kind, f"t-{kind.plural}")
        world.settle()
        only("n1", "n3", "n4")
        world.apply(*(raw for raw in manifests.usual() if raw["kind"] != "Node"))
        world.settle()
        only(*everybody)
        world.settle()
        assert {pod["metadata"]["namespace"] for pod in world.pods(on="n1")} == {manifests.SHOP}
        assert [len(world.pods(on=name, namespace=TENANT)) for name in THEIRS] == [7, 3]
        return world.saved()


def is_odd(whose: str, raw: Raw) -> bool:
    """Whether the object is of the tenant, or one that the kubelet of that node writes."""
    meta = raw["metadata"]
    if whose == "jobs":
        return bool(meta["name"].startswith("t-"))
    if meta.get("namespace"):
        return meta["namespace"] == TENANT and (whose == "tenant" or raw["spec"].get("nodeName") in THEIRS)
    return whose == "kubelet" and meta["name"] in (*THEIRS, "slice")


def make_odd(world: World, values: t.Iterable[Odd], *, late: bool = False) -> None:
    """Let the engine see these values from the beginning, or after the first node was cordoned."""
    by_kind: dict[tuple[str, str], dict[hostile.Path, t.Any]] = {}
    for one in values:
        by_kind.setdefault((one.whose, one.kind), {})[one.path] = one.value
    kind_of = {kind.resource: kind.kind for kind in kinds.KINDS.values()}
    known: dict[str, str] = {}
    for resource, objects in world.store.objects.items():
        known.update({raw["metadata"]["uid"]: kind_of.get(resource, "") for raw in objects.values()})
    world.on_event.append(lambda event: known.update({event.raw["metadata"]["uid"]: kind_of.get(event.resource, "")}))

    def encoded(raw: Raw) -> bytes:
        if late and not any(sent.request.resource == "nodes" and sent.request.writes for sent in world.log):
            return store.encoded(raw)
        kind = known.get(raw["metadata"]["uid"], "")
        for (whose, of), odd in by_kind.items():
            if of == kind and is_odd(whose, raw):
                raw = hostile.overlay(raw, TABLES[whose][kind], odd)
        return store.encoded(raw)

    world.store.encoded = encoded  # type: ignore[method-assign]


def ran(world: World, *nodes: str, backend: str = "auto") -> Outcome:
    me = world.process("me")
    wishes = DrainPolicy(allow_interruption=True, delete_emptydir_data=True, force=True, backend=backend)
    task = me.spawn(lambda: maintain(me, Input(nodes, timeout=120.0, choices=wishes)))
    world.machine.run_until(lambda: not task.alive, within=7200.0)
    return Outcome(wrong=["killed"]) if me.process.dead else t.cast("Outcome", task.value())


def recovered(world: World) -> list[str]:
    me = world.process("me")
    me.faults.clear()
    task = me.spawn(lambda: recover(me, timeout=120.0))
    world.machine.run_until(lambda: not task.alive, within=7200.0)
    return t.cast("list[str]", task.value())


def names_theirs(text: str) -> bool:
    return any(word in text for word in (TENANT, *THEIRS))


SERVERS = frozenset(
    {("apiVersion",), ("kind",), ("unreadable",), ("spec", "nodeName"), ("spec", "jobTemplate")}
    | {("metadata", f"{what}Timestamp") for what in ("creation", "deletion")}
    | {("metadata", key) for key in ("name", "namespace", "uid", "resourceVersion", "generation", "managedFields")}
)
"""What the API server writes or checks, and what these kinds do not have."""


NOBODYS = frozenset(
    {
        *("ConfigMap", "KubeVirt", "Lease", "Namespace", "Scale"),
        *("APIResourceList", "SelfSubjectAccessReview", "Status"),
    }
)
"""Kinds of which tenants write none that is read, or that the API server makes."""


def tried(kind: str, path: tuple[str, ...]) -> bool:
    """Whether the table has the field, or a part of a custom resource that it is in, or only controllers write it."""
    known, whole = set[tuple[str, ...]](), set[tuple[str, ...]]()
    for tree in (trees[kind] for trees in TABLES.values() if kind in trees):
        known.update(tuple(key for key in part if isinstance(key, str)) for part in hostile.parts(tree))
        whole.update(tuple(map(str, part)) for part, _leaf in hostile.leaves(tree))
    if kind in NOBODYS or (path[0] == "status" and ("status",) not in known):
        return True
    return path in known | SERVERS or any(path[:n] in whole for n in range(1, len(path)))


def test_each_field_that_is_read_is_tried(saved: Saved, with_jobs: Saved, monkeypatch: pytest.MonkeyPatch) -> None:
    noted: set[tuple[str, ...]] = set()

    def decoded(raw: bytes) -> t.Any:
        answer = json.loads(raw)
        one = answer.get("object") or answer
        kind = str(one.get("kind"))
        if answer.get("type") == "BOOKMARK":
            return answer
        if isinstance(one.get("items"), list):
            one["items"] = [hostile.recorded(each, noted, (kind.removesuffix("List"),)) for each in one["items"]]
            return answer
        found = hostile.recorded(one, noted, (kind,))
        return {**answer, "object": found} if "object" in answer else found

    monkeypatch.setattr(exchange, "decoded", decoded)
    monkeypatch.setattr(sharing.Interner, "part", lambda _share, part, _shape=None: part)
    monkeypatch.setattr(decoding, "fits", lambda _value, _shape: True)  # it looks for each field that has a shape
    usual = [Odd(whose, kind, path, leaf.usual) for whose, kind, path, leaf in fields(*TABLES)]
    for values, at_once in (([], True), (usual, False)):
        with World.of(saved) as world:
            world.server.lists_by_watches = at_once
            make_odd(world, values)
            ran(world, "n1", *THEIRS)
        with World.of(with_jobs) as world:
            world.server.lists_by_watches = at_once
            make_odd(world, values)
            ran(world, "n1", backend="koordinator")
    assert len(noted) > 300
    assert sorted(path for path in noted if not tried(path[0], path[1:])) == []


EXAMPLES = int(os.environ.get("EXAMPLES", "15"))
TRY = settings(max_examples=EXAMPLES, derandomize=True, suppress_health_check=[*HealthCheck])


@TRY
@given(odd_values("tenant", "kubelet"), st.booleans())
def test_a_run_on_another_node_does_not_notice_odd_objects(saved: Saved, values: list[Odd], late: bool) -> None:
    with World.of(saved) as world:
        make_odd(world, values, late=late)
        outcome = ran(world, "n1")
        assert (outcome.failed, outcome.wrong) == ({}, [])


@TRY
@given(odd_values("tenant", "kubelet"), st.sampled_from(THEIRS), st.booleans())
def test_a_run_on_the_node_with_odd_objects_ends_and_names_them(
    saved: Saved, values: list[Odd], node: str, late: bool
) -> None:
    with World.of(saved) as world:
        make_odd(world, values, late=late)
        outcome = ran(world, "n1", node)
        assert "n1" not in outcome.failed
        assert all(map(names_theirs, (*outcome.failed.values(), *outcome.wrong)))


@TRY
@given(odd_values("tenant", "kubelet"), st.sampled_from(THEIRS), st.booleans(), st.integers(5, 160))
def test_recover_gives_back_what_a_killed_run_left_beside_odd_objects(
    saved: Saved, values: list[Odd], node: str, late: bool, ordinal: int
) -> None:
    with World.of(saved) as world:
        make_odd(world, values, late=late)
        world.process("me").faults.at(ordinal, Fault("killed after"))
        ran(world, "n1", node)
        assert all(map(names_theirs, recovered(world)))
        raw = world.get(kinds.NODES, "n1")
        assert names.RECORD not in (raw["metadata"].get("annotations") or {})
        assert not raw["spec"].get("unschedulable")


@pytest.fixture(scope="module")
def with_jobs() -> Saved:
    """A node of which all pods leave by PodMigrationJobs, and somebody else's job and Reservation."""
    web = manifests.deployment("web", 2, schedulerName="koord-scheduler")
    with World([*manifests.koordinator("0s"), manifests.node("n1"), web], add_ons=[koordinator.GROUP]) as world:
        world.apply(manifests.service("web"), manifests.node("n8"), manifests.node("n9"))
        for kind in (kinds.PODMIGRATIONJOBS, kinds.RESERVATIONS):
            made = hostile.usual(hostile.JOBS[kind.kind])
            meta = {**made["metadata"], "name": f"t-{kind.plural}"}
            world.apply({**made, "apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta})
        world.settle()
        return world.saved()


@TRY
@given(odd_values("jobs"), st.booleans())
def test_pods_leave_by_jobs_beside_odd_ones(with_jobs: Saved, values: list[Odd], late: bool) -> None:
    with World.of(with_jobs) as world:
        make_odd(world, values, late=late)
        outcome = ran(world, "n1", backend="koordinator")
        assert (outcome.failed, outcome.wrong) == ({}, [])
        assert not world.pods(on="n1")
        assert recovered(world) == []


RECORD: dict[str, t.Any] = {
    "v": 1,
    "nonce": "n",
    "by": "me",
    "reason": "",
    "since": "2026-01-01T00:00:00Z",
    "step": "cordoned",
    "prior": {},
    "added": [],
    "marks": {},
    "lease": "",
}


@pytest.mark.parametrize("namespace", ["kube-system", "nowhere", "..", "a=b", ""])
@pytest.mark.parametrize("same_run", [True, False])
def test_a_record_that_names_a_foreign_namespace_keeps_no_other_node(
    saved: Saved, namespace: str, same_run: bool
) -> None:
    """The kubelet of a node writes its record; our roles let us read leases in our namespaces alone."""
    with World.of(saved) as world:
        world.server.denied.add(("list", "leases.coordination.k8s.io"))
        world.server.permitted.add(("list", "leases.coordination.k8s.io", names.NAMESPACE))
        world.process("me").faults.when(lambda request: request.resource == "pods/eviction", Fault("killed after"))
        ran(world, "n1")
        real = json.loads(world.get(kinds.NODES, "n1")["metadata"]["annotations"][names.RECORD])
        forged = {**RECORD, "run": real["run"] if same_run else "r", "node_uid": "u", "lease": f"{namespace}/node-n2"}
        world.patch(kinds.NODES, "n2", {"metadata": {"annotations": {names.RECORD: json.dumps(forged)}}})
        assert all(map(names_theirs, recovered(world)))
        assert "annotations" not in world.get(kinds.NODES, "n1")["metadata"], "its record is gone"
        outcome = ran(world, "n1", "n2")
        assert "n1" not in outcome.failed
        assert all(map(names_theirs, (*outcome.failed.values(), *outcome.wrong)))
