# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The copy of a cluster in an empty lab is what the cluster was, and no pod of it is made anew."""

from __future__ import annotations

import dataclasses
import functools
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_context, run_reconcile
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.rehearsal import (
    hashing,
    notes,
    run_copy,
    run_read,
    run_settle,
    snapshot_files,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import labs, manifests, nodes, serving, workloads
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

SYNC_FAILED = {"type": "DisruptionAllowed", "status": "False", "reason": "SyncFailed"}
FULL = {"type": "DiskPressure", "status": "True", "reason": "Full"}
FLAKY = {"type": "KernelDeadlock", "status": "True", "reason": "Flaky"}


def object_of(kind: kinds.Kind, name: str, *, spec: Raw | None = None, namespace: str = "", **more: t.Any) -> Raw:
    meta: Raw = {"name": name, **({"namespace": namespace} if namespace else {}), **more.pop("metadata", {})}
    made: Raw = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **more}
    return {**made, "spec": spec} if spec is not None else made


def bare_pod(
    name: str, on: str, owner: tuple[str, str, str] = ("", "", ""), *, uid: str = "their-uid", **more: t.Any
) -> Raw:
    """A pod that somebody has bound; `owner` is kind, name and version of what else may control it."""
    kind, named, version = owner
    meta: Raw = {"labels": {"app": name}, **more}
    if kind:
        meta["ownerReferences"] = [{"apiVersion": version, "kind": kind, "name": named, "uid": uid, "controller": True}]
    spec = {"nodeName": on, "containers": [{"name": "c", "image": "secret.example/c"}]}
    return object_of(kinds.PODS, name, spec=spec, namespace=manifests.SHOP, metadata=meta)


def others() -> list[Raw]:
    """One of each kind that is copied beside `manifests.usual`."""
    shop = manifests.SHOP
    claim = {"accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeName": "pv-1"}
    volume = {"capacity": {"storage": "1Gi"}, "storageClassName": "fast", "csi": {"driver": "csi.example"}}
    job = {"completions": 1, "parallelism": 1, "template": manifests.template("work", restartPolicy="Never")}
    return [
        manifests.namespace("default"),
        manifests.deployment("slow", 1, {"minReadySeconds": 20}),
        bare_pod("bare", "n1"),
        bare_pod("done", "n1", annotations={nodes.COMPLETE: "1s"}),
        bare_pod("theirs", "n3", ("Database", "main", "db.example/v1")),
        object_of(kinds.JOBS, "work", spec={**job, "selector": {"matchLabels": {"app": "work"}}}, namespace=shop),
        object_of(kinds.STORAGE_CLASSES, "fast", provisioner="csi.example"),
        object_of(kinds.PRIORITY_CLASSES, "high", value=1000),
        object_of(kinds.RUNTIME_CLASSES, "runc", handler="runc"),
        object_of(kinds.CSI_NODES, "n1", spec={"drivers": [{"name": "csi.example", "nodeID": "n1"}]}),
        object_of(kinds.PVS, "pv-1", spec={**volume, "claimRef": {"namespace": shop, "name": "data"}}),
        object_of(kinds.PVCS, "data", spec=claim, namespace=shop),
        object_of(kinds.RESOURCE_QUOTAS, "quota", spec={"hard": {"pods": "50"}}, namespace=shop),
        object_of(kinds.LIMIT_RANGES, "limits", spec={"limits": []}, namespace=shop),
    ]


@functools.cache
def saved() -> snapshot_files.Snapshot:
    """A cluster with one of each kind: n2 is cordoned, full and has another's condition, n4 is down."""
    with World([*manifests.usual(), manifests.node("n4"), *others()], more=[labs.FakeNodes]) as world:
        world.cordon("n2")
        raw = world.get(kinds.NODES, "n2")
        note = {"kubernetes.io/config.mirror": "x"}
        world.apply(bare_pod("static", "n2", ("Node", "n2", "v1"), uid=raw["metadata"]["uid"], annotations=note))
        told = [*(c for c in raw["status"]["conditions"] if c["type"] != FULL["type"]), FULL, FLAKY]
        world.patch(kinds.NODES, "n2", {"status": {"conditions": told}}, subresource="status")
        world.set_node_ready("n4", "Unknown")
        world.settle()
        found, names = world.process("me").run(lambda ctx: run_read.snapshot(ctx, ""))
        assert names == {name: name for name in ("n1", "n2", "n3", "n4")}
        assert all(sent.request.method == "GET" for sent in world.log)
        return found


@pytest.fixture
def lab() -> Iterator[World]:
    system = [object_of(kinds.NAMESPACES, "default")]
    with World(system, more=labs.CONTROLLERS) as made:
        yield made


def rebuilt(
    lab: World, snapshot: snapshot_files.Snapshot | None = None, *, check: bool = False, timeout: float = 300.0
) -> run_context.Result:
    return copied(lab, check=check, snapshot=snapshot or saved(), timeout=timeout)


def copied(world: World, *, check: bool = False, **options: t.Any) -> run_context.Result:
    wanted = run_copy.CopyOptions(
        **{"path": "/s", "write": lambda content: None, "stop": 1.0, "timeout": 300.0, **options}
    )
    me = world.process("me")
    task = me.spawn(lambda: run_copy.copy(me.ctx(check=check), wanted))
    world.machine.run_until(lambda: not task.alive)
    return t.cast("run_context.Result", task.value())


def actions(world: World) -> list[str]:
    """What the last call has changed, or in check mode would have."""
    return sorted(change.sentence for change in world.process("me").contexts[-1].changes)


def places(snapshot: snapshot_files.Snapshot) -> dict[str, tuple[str, bool]]:
    """Node of each pod and whether it is ready, by its name; those of DaemonSets by their kind."""

    def name_of(raw: Raw) -> str:
        owner = raw["metadata"].get("owner") or {"kind": ""}
        return f"agent {raw['spec'].get('nodeName')}" if owner["kind"] == "DaemonSet" else raw["metadata"]["name"]

    return {name_of(raw): (raw["spec"].get("nodeName"), raw["status"]["ready"]) for raw in snapshot.objects["pods"]}


def test_the_copy_is_what_the_cluster_was(lab: World) -> None:
    gone: list[Event] = []
    lab.on_event.append(lambda event: gone.append(event) if event.what == "DELETED" else None)
    result = rebuilt(lab)
    again, _names = lab.process("other").run(lambda ctx: run_read.snapshot(ctx, ""))
    lab.settle()
    later, _names = lab.process("other").run(lambda ctx: run_read.snapshot(ctx, ""))
    # A DaemonSet makes no pod on a node that is down.
    wanted = {name: place for name, place in places(saved()).items() if name != "agent n4"}
    assert places(again) == places(later) == wanted
    assert {event.resource for event in gone} == {kinds.STATEFUL_SETS.resource}
    for kind in ("nodes", "budgets", "quotas", "limits", "claims", "services", "storage_classes", "priority_classes"):
        assert specs(again, kind) == specs(saved(), kind), kind
    assert conditions(again) == conditions(saved())
    assert result.data["names"] == {name: name for name in ("n1", "n2", "n3", "n4")}


def test_the_copy_is_complete_when_its_pods_count_as_available(lab: World) -> None:
    rebuilt(lab)
    assert lab.get(kinds.DEPLOYMENTS, "slow")["status"]["availableReplicas"] == 1


def specs(snapshot: snapshot_files.Snapshot, kind: str) -> list[Raw]:
    return [{key: raw[key] for key in raw if key not in ("metadata", "status")} for raw in snapshot.objects[kind]]


def conditions(snapshot: snapshot_files.Snapshot) -> dict[str, dict[str, str]]:
    return {
        raw["metadata"]["name"]: {one["type"]: one["status"] for one in raw["status"]["conditions"]}
        for raw in snapshot.objects["nodes"]
    }


def test_check_mode_names_what_would_be_created_and_creates_nothing(lab: World) -> None:
    before = lab.store.version
    rebuilt(lab, check=True)
    predicted = actions(lab)
    assert lab.store.version == before
    rebuilt(lab)
    assert predicted == actions(lab)
    assert "Create Deployment shop/web" in predicted
    assert "Create Namespace default" not in predicted


def test_a_cluster_with_nodes_is_left_alone() -> None:
    with World([manifests.node("theirs"), manifests.node("theirs-2")], more=labs.CONTROLLERS) as world:
        version = world.store.version
        with pytest.raises(run_context.CallAborted) as stopped:
            rebuilt(world)
        assert world.store.version == version
        # Of a large cluster not all nodes are read for that.
        assert [("limit", "1") in sent.request.query for sent in world.log] == [True]
    assert (stopped.value.reason.code, stopped.value.reason.object) == ("not_empty", "Node theirs")
    assert "(theirs, …)" in stopped.value.reason.message


@pytest.mark.parametrize(
    ("version", "told"),
    [("v1.36.3", False), ("v1.36.9", False), ("v1.35.3", True), ("v2.36.3", True), ("", True)],
)
def test_another_minor_version_is_told(lab: World, version: str, told: bool) -> None:
    """The snapshot is of v1.36.3."""
    lab.server.git_version = version
    found = rebuilt(lab, small()).data["not_rehearsed"]
    assert any(line.startswith("The copy runs another version") for line in found) is told


def small(**kinds_: list[Raw]) -> snapshot_files.Snapshot:
    """One node and what is named."""
    objects = {"nodes": saved().objects["nodes"][:1], "namespaces": saved().objects["namespaces"], **kinds_}
    return dataclasses.replace(saved(), objects=objects)


def test_a_snapshot_that_knows_no_version_is_compared_with_none(lab: World) -> None:
    found = rebuilt(lab, dataclasses.replace(small(), kubernetes="")).data["not_rehearsed"]
    assert not any("version" in line for line in found)


def of_kind(kind: kinds.Kind) -> t.Callable[[verbs.Request], bool]:
    return lambda request: request.resource == kind.resource and request.verb == "create"


@pytest.mark.parametrize(
    "kind",
    [
        *(kinds.LIMIT_RANGES, kinds.PODS, kinds.DEPLOYMENTS, kinds.STATEFUL_SETS, kinds.DAEMON_SETS, kinds.BUDGETS),
        kinds.NAMESPACES,
    ],
    ids=lambda kind: kind.plural,
)
def test_what_the_lab_refuses_is_named_and_not_waited_for(lab: World, kind: kinds.Kind) -> None:
    lab.server.denied.add(("create", kind.resource))
    result = rebuilt(lab)
    refused = notes.TEXTS["refused"].rstrip(".")
    told = [line for line in result.data["not_rehearsed"] if line.startswith(refused)]
    assert sum(f"({kind.kind} " in line for line in told) == 1
    assert lab.machine.now < 120


@pytest.mark.parametrize("kind", [kinds.NODES, kinds.STATEFUL_SETS, kinds.PODS], ids=lambda kind: kind.plural)
def test_an_answer_that_was_lost_ends_no_copy(lab: World, kind: kinds.Kind) -> None:
    lab.process("me").faults.when(of_kind(kind), Fault("lost"))
    rebuilt(lab)
    again, _names = lab.process("other").run(lambda ctx: run_read.snapshot(ctx, ""))
    assert places(again).keys() == places(saved()).keys() - {"agent n4"}


def test_conditions_are_set_while_the_kubelet_writes_too(lab: World) -> None:
    def status(request: verbs.Request) -> bool:
        return request.path.endswith("/status")

    lab.process("me").faults.when(status, Fault("conflict"), run_reconcile.MAX_TRIES - 1)
    rebuilt(lab)
    again, _names = lab.process("other").run(lambda ctx: run_read.snapshot(ctx, ""))
    assert conditions(again) == conditions(saved())


def test_pods_of_stateful_sets_have_the_revision_that_their_controller_computed(lab: World) -> None:
    rebuilt(lab)
    wanted = lab.get(kinds.STATEFUL_SETS, "db")["status"]["updateRevision"]
    found = {raw["metadata"]["name"]: raw["metadata"]["labels"].get(labs.REVISION) for raw in lab.pods(app="db")}
    assert found == {"db-0": wanted, "db-1": wanted, "db-2": wanted}


def test_a_mirror_pod_is_owned_by_its_node(lab: World) -> None:
    rebuilt(lab)
    (owner,) = lab.get(kinds.PODS, "static")["metadata"]["ownerReferences"]
    assert owner["uid"] == lab.get(kinds.NODES, "n2")["metadata"]["uid"]


@pytest.mark.parametrize("count", [1, 5, 6, 8])
def test_what_does_not_settle_in_time_is_named_but_not_all_of_much(lab: World, count: int) -> None:
    """No scheduler of the lab is asked: the pods are bound, and their kubelets do nothing."""
    kubelets = lab.controller(nodes.Kubelets)
    kubelets.stop()
    (bare,) = (raw for raw in saved().objects["pods"] if raw["metadata"]["name"] == "bare")
    pods = [{**bare, "metadata": {**bare["metadata"], "name": f"p{number}"}} for number in range(count)]
    begun = lab.machine.now
    with pytest.raises(run_context.CallAborted) as stopped:
        rebuilt(lab, small(pods=pods), timeout=60.0)
    reason = stopped.value.reason
    assert 60.0 < lab.machine.now - begun < 62.0
    assert (reason.code, reason.object) == ("not_settled", "Pod shop/p0")
    shown = ", ".join(f"Pod shop/p{number}" for number in range(min(count, 5)))
    more = f" and {count - 5} more" if count > 5 else ""
    assert reason.message == f"The copy did not get as far as the cluster was: {shown}{more}."


def test_a_controller_that_does_not_settle_is_named(lab: World) -> None:
    lab.controller(workloads.Deployments).stop()
    with pytest.raises(run_context.CallAborted) as stopped:
        rebuilt(lab, timeout=60.0)
    assert stopped.value.reason.object == "Deployment shop/scaled"


@pytest.mark.parametrize(
    ("status", "settled"),
    [
        pytest.param({"observedGeneration": 1, "currentHealthy": 2}, True, id="all count"),
        pytest.param({"observedGeneration": 1, "currentHealthy": 3}, True, id="more than that"),
        pytest.param({"observedGeneration": 1, "currentHealthy": 1}, False, id="one does not count yet"),
        pytest.param({"observedGeneration": 0, "currentHealthy": 2}, False, id="a status of another budget"),
        pytest.param({"observedGeneration": 1, "currentHealthy": 0, "conditions": [SYNC_FAILED]}, True, id="never"),
    ],
)
def test_a_budget_has_settled_once_it_counts_its_pods_or_cannot(status: Raw, settled: bool) -> None:
    with World(settle=False) as world:
        world.controller(serving.Budgets).stop()
        world.apply(manifests.budget("web", maxUnavailable=1))
        world.patch(kinds.BUDGETS, "web", {"status": status}, subresource="status")
        me = world.process("me")
        wait = run_settle.Settling(me.ctx(), me.clock.now() + 5.0)
        task = me.spawn(lambda: wait.budgets({("shop", "web"): 2, ("shop", "gone"): 1}))
        world.machine.run_until(lambda: not task.alive)
        if settled:
            task.value()
            return
        with pytest.raises(run_context.CallAborted, match="PodDisruptionBudget shop/web"):
            task.value()


# -- saving ------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def source() -> Iterator[World]:
    with World([*manifests.usual(), *others()]) as made:
        yield made


def written(
    world: World, path: str = "/s.json", **more: t.Any
) -> tuple[run_context.Result, snapshot_files.Snapshot | None]:
    content: list[bytes] = []
    result = copied(world, path=path, write=content.append, **more)
    return result, snapshot_files.decoded(content[0]) if content else None


def test_a_snapshot_is_written_whole_and_counted(source: World) -> None:
    content: list[bytes] = []
    result = copied(source, path="/s.json.gz", write=content.append)
    assert content[0][:2] == snapshot_files.GZIP
    assert actions(source) == ["Write /s.json.gz"]
    counts = result.data["counts"]
    assert (counts["Node"], counts["Deployment"], counts["StatefulSet"], counts["PersistentVolume"]) == (3, 4, 1, 1)
    assert counts["Pod"] == len(source.pods()) - 1  # not the one that has finished
    assert result.data["kubernetes"] == "v1.36.3"
    assert written(source)[1] is not None


def test_check_mode_writes_no_snapshot(source: World) -> None:
    result, found = written(source, check=True)
    assert found is None
    assert actions(source) == ["Write /s.json"]
    assert result.data["counts"]["Node"] == 3


def test_a_file_that_cannot_be_written_is_an_error_that_names_it(source: World) -> None:
    def full(content: bytes) -> None:
        del content
        raise OSError(28, "No space left on device")

    with pytest.raises(run_context.CallAborted) as stopped:
        copied(source, path="/s.json", write=full)
    assert stopped.value.reason.code == "not_written"
    assert stopped.value.reason.message == "/s.json cannot be written: No space left on device."
    assert actions(source) == []


def test_kinds_that_may_not_be_read_are_named_all_at_once_and_optional_ones_count_as_empty(source: World) -> None:
    source.server.denied.update({("list", "jobs.batch"), ("list", "priorityclasses.scheduling.k8s.io")})
    result, found = written(source)
    assert found is not None
    assert (found.objects["jobs"], found.objects["priority_classes"]) == ([], [])
    unread = [line for line in result.data["not_rehearsed"] if line.startswith("These credentials may not list")]
    assert len(unread) == 2
    source.server.denied.update({("list", "pods"), ("list", "services")})
    with pytest.raises(run_context.CallAborted) as stopped:
        written(source)
    source.server.denied.clear()
    assert stopped.value.reason.message == "These credentials may not list pods, services."
    assert "kubeops-node-maintenance-rehearse" in stopped.value.reason.remedy


def test_hashed_names_are_given_by_their_real_ones_and_nothing_else_has_these(source: World) -> None:
    result, found = written(source, hash_key="key")
    assert found is not None
    assert found.hashed
    names = result.data["names"]
    assert names.keys() == {"n1", "n2", "n3"}
    assert set(names.values()) == {raw["metadata"]["name"] for raw in found.objects["nodes"]}
    assert not set(names) & set(names.values())
    about = next(one["object"] for one in found.notes if one["code"] == "finished")
    kind, place = about.split(" ")
    assert kind == "Pod"
    assert [part.startswith("done") or part == manifests.SHOP for part in place.split("/")] == [False, False]
    plain, _found = written(source)
    assert plain.data["names"] == {name: name for name in names}


def test_two_names_with_one_hash_end_the_call(source: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashing.Hasher, "_word", lambda self, text, length: "a" * length)
    with pytest.raises(run_context.CallAborted) as stopped:
        written(source, hash_key="key")
    assert stopped.value.reason.code == "same_hash"
