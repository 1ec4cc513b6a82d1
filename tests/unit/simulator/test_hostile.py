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

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.pod_plan import Choices
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import hostile, manifests, store
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, Outcome, maintain, recover
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Saved, World

TENANT = "tenant"
THEIRS = ("n2", "n5")
"""The nodes with their pods, of which the kubelet is theirs, too: of built-in workloads, and of custom ones."""
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


FIELDS: t.Sequence[tuple[str, str, hostile.Path, hostile.Leaf]] = [
    (whose, kind, path, leaf)
    for whose, trees in (("tenant", hostile.TENANTS), ("kubelet", hostile.KUBELETS))
    for kind, tree in trees.items()
    for path, leaf in hostile.leaves(tree)
]


@st.composite
def odd_values(draw: st.DrawFn) -> list[Odd]:
    chosen = draw(st.lists(st.sampled_from(FIELDS), min_size=1, max_size=12))
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
        *((kinds.PODMIGRATIONJOBS, "t-job"), (kinds.EVICTION_REQUESTS, "t-request")),
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
    if meta.get("namespace"):
        return meta["namespace"] == TENANT and (whose == "tenant" or raw["spec"].get("nodeName") in THEIRS)
    return whose == "kubelet" and meta["name"] in (*THEIRS, "slice")


def make_odd(world: World, values: t.Iterable[Odd], *, late: bool = False) -> None:
    """Let the engine see these values from the beginning, or after the first node was cordoned."""
    by_kind: dict[tuple[str, str], dict[hostile.Path, t.Any]] = {}
    for one in values:
        by_kind.setdefault((one.whose, one.kind), {})[one.path] = one.value
    trees = {"tenant": hostile.TENANTS, "kubelet": hostile.KUBELETS}
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
                raw = hostile.overlay(raw, trees[whose][kind], odd)
        return store.encoded(raw)

    world.store.encoded = encoded  # type: ignore[method-assign]


def ran(world: World, *nodes: str, consent: bool = True) -> Outcome:
    me = world.process("me")
    wishes = Choices(allow_interruption=consent, delete_emptydir_data=True, force=True)
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


EXAMPLES = int(os.environ.get("EXAMPLES", "15"))
TRY = settings(max_examples=EXAMPLES, derandomize=True, deadline=None, suppress_health_check=[*HealthCheck])


@TRY
@given(odd_values(), st.booleans())
def test_a_run_on_another_node_does_not_notice_odd_objects(saved: Saved, values: list[Odd], late: bool) -> None:
    with World.of(saved) as world:
        make_odd(world, values, late=late)
        outcome = ran(world, "n1")
        assert (outcome.failed, outcome.wrong) == ({}, [])


@TRY
@given(odd_values(), st.sampled_from(THEIRS), st.booleans())
def test_a_run_on_the_node_with_odd_objects_ends_and_names_them(
    saved: Saved, values: list[Odd], node: str, late: bool
) -> None:
    with World.of(saved) as world:
        make_odd(world, values, late=late)
        outcome = ran(world, "n1", node)
        assert "n1" not in outcome.failed
        assert all(map(names_theirs, (*outcome.failed.values(), *outcome.wrong)))


@TRY
@given(odd_values(), st.sampled_from(THEIRS), st.booleans(), st.integers(5, 160))
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
