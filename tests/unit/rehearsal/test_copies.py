# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Copies of a cluster's objects, the input of the run on them, and a rehearsal beside the real run."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.rehearsal import (
    copies,
    notes,
    outcome,
    snapshot_files,
    workload_copies,
)

Raw = dict[str, t.Any]
POD: Raw = {"containers": [{"name": "main"}], "nodeName": "n1"}
TEMPLATE: Raw = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "main"}], "preStopSeconds": 4.0},
}


def meta(name: str, uid: str = "", owner: tuple[str, str, str] | None = None) -> Raw:
    found: Raw = {"namespace": "shop", "name": name, "uid": uid or f"uid-{name}", "labels": {"app": "web"}}
    if owner:
        kind, named, uid_ = owner
        found["owner"] = {"apiVersion": "apps/v1", "kind": kind, "name": named, "uid": uid_}
    return found


def pod(
    name: str, owner: tuple[str, str, str] | None, start: float | None = 3.0, *, ready: bool = True, **spec: t.Any
) -> Raw:
    status = {"phase": "Running", "ready": ready, "start": start}
    return {"metadata": meta(name, owner=owner), "spec": {**POD, **spec}, "status": status}


def workload(name: str, owner: tuple[str, str, str] | None = None) -> Raw:
    return {"metadata": meta(name, owner=owner), "spec": {"replicas": 2, "template": TEMPLATE}}


def made(**found: list[Raw]) -> copies.Copy:
    node = {
        "metadata": {"name": "n1"},
        "spec": {},
        "status": {"allocatable": {}, "capacity": {}, "conditions": [], "nodeInfo": {}},
    }
    snapshot = snapshot_files.Snapshot("v1.36.3", "", False, {"nodes": [node], **found}, [])
    return copies.copy(snapshot, stop=1.0)


def one(found: copies.Copy, step: str, kind: str) -> Raw:
    (raw,) = (raw for raw in found.steps[step] if raw["kind"] == kind)
    return raw


DEPLOYED = {
    "deployments": [workload("web")],
    "replica_sets": [workload("web-1", ("Deployment", "web", "uid-web"))],
}


def test_successors_start_as_the_pods_of_the_workload_did_and_the_copies_run_at_once() -> None:
    owner = ("ReplicaSet", "web-1", "uid-web-1")
    found = made(
        pods=[pod("a", owner, 3.0), pod("b", owner, 5.0), pod("c", owner, 20.0), pod("d", owner, None)], **DEPLOYED
    )
    for kind in ("ReplicaSet", "Deployment"):
        told = one(found, "owners", kind)["spec"]["template"]["metadata"]["annotations"]
        assert told == {workload_copies.START: "5000ms", workload_copies.STOP: "5000ms"}
    assert [raw["metadata"]["annotations"] for raw in found.steps["pods"]] == [{workload_copies.STOP: "1000ms"}] * 4
    assert all("owner" not in raw["metadata"] and "uid" not in raw["metadata"] for raw in found.steps["pods"])
    assert found.ready == {("shop", name) for name in "abcd"}


def test_owners_come_after_what_they_adopt() -> None:
    found = made(pods=[pod("a", ("ReplicaSet", "web-1", "uid-web-1"))], **DEPLOYED)
    assert [raw["kind"] for raw in found.steps["owners"]] == ["ReplicaSet", "Deployment"]
    assert copies.STEPS.index("pods") < copies.STEPS.index("owners") < copies.STEPS.index("rules")
    templates = [raw["spec"]["template"] for raw in found.steps["owners"]]
    assert templates[0] == templates[1]


def test_a_workload_that_is_never_ready_stays_so() -> None:
    owner = ("ReplicaSet", "web-1", "uid-web-1")
    found = made(pods=[pod("a", owner, None, ready=False)], **DEPLOYED)
    assert found.steps["pods"][0]["metadata"]["annotations"][workload_copies.READY] == "never"
    assert (
        one(found, "owners", "Deployment")["spec"]["template"]["metadata"]["annotations"][workload_copies.READY]
        == "never"
    )
    assert found.ready == frozenset()
    some = made(pods=[pod("a", owner, None, ready=False), pod("b", owner)], **DEPLOYED)
    assert workload_copies.READY not in one(some, "owners", "Deployment")["spec"]["template"]["metadata"]["annotations"]


def test_pods_that_have_not_started_tell_nothing_about_readiness() -> None:
    waiting = pod("a", ("ReplicaSet", "web-1", "uid-web-1"), None, ready=False)
    waiting["status"]["phase"] = "Pending"
    found = made(pods=[waiting], **DEPLOYED)
    assert (
        workload_copies.READY not in one(found, "owners", "Deployment")["spec"]["template"]["metadata"]["annotations"]
    )


def test_a_controller_that_the_copy_lacks_has_a_stand_in_and_is_named() -> None:
    found = made(pods=[pod("db-0", ("Cluster", "db", "uid-db")), pod("db-1", ("Cluster", "db", "uid-db"))])
    stand_in = one(found, "owners", "ReplicaSet")
    assert (stand_in["metadata"]["name"], stand_in["spec"]["replicas"]) == ("db", 2)
    selected = stand_in["spec"]["selector"]["matchLabels"].items()
    assert all(selected <= raw["metadata"]["labels"].items() for raw in found.steps["pods"])
    labels = stand_in["spec"]["template"]["metadata"]["labels"]
    assert labels == {"app": "web", **dict(selected)}
    assert "nodeName" not in stand_in["spec"]["template"]["spec"]
    assert workload_copies.COMPLETE not in stand_in["spec"]["template"]["metadata"]["annotations"]
    assert any("Cluster shop/db" in line for line in notes.sentences(found.notes))


@pytest.mark.parametrize(
    ("of", "source"),
    [
        ({"local": True}, {"local": {"path": "/copy"}}),
        ({"local": False}, {"hostPath": {"path": "/copy"}}),
        ({"local": False, "driver": "d"}, {"csi": {"driver": "d", "volumeHandle": "v"}}),
    ],
)
def test_a_volume_has_a_source_of_its_kind(of: Raw, source: Raw) -> None:
    volume = {"metadata": {"name": "v"}, "spec": {"capacity": {"storage": "1Gi"}}, **of}
    (made_of,) = (
        raw for raws in made(volumes=[volume]).steps.values() for raw in raws if raw["kind"] == "PersistentVolume"
    )
    assert made_of["spec"] == {**volume["spec"], "persistentVolumeReclaimPolicy": "Retain", **source}


def test_a_driver_has_its_node_by_a_name_of_its_own_or_that_of_the_node() -> None:
    drivers = [{"name": "a", "nodeID": "i-1"}, {"name": "b"}]
    found = made(csi_nodes=[{"metadata": {"name": "n1"}, "spec": {"drivers": drivers}}])
    (csi_node,) = (raw for raws in found.steps.values() for raw in raws if raw["kind"] == "CSINode")
    assert csi_node["spec"]["drivers"] == [{"name": "a", "nodeID": "i-1"}, {"name": "b", "nodeID": "n1"}]


def test_pods_of_daemon_sets_are_left_to_them_and_unknown_schedulers_are_named() -> None:
    found = made(
        daemon_sets=[{"metadata": meta("agent"), "spec": {"template": TEMPLATE}}],
        pods=[pod("agent-x", ("DaemonSet", "agent", "uid-agent")), pod("bare", None, schedulerName="koord-scheduler")],
        stateful_sets=[workload("db")],
    )
    assert [raw["metadata"]["name"] for raw in found.steps["pods"]] == ["bare"]
    assert "schedulerName" not in found.steps["pods"][0]["spec"]
    assert notes.note("scheduler", "Pod shop/bare", "koord-scheduler") in found.notes


def test_members_of_stateful_sets_are_known_and_budgets_count_ready_copies() -> None:
    budget = {"metadata": meta("db"), "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "web"}}}}
    owner = ("StatefulSet", "db", "uid-db")
    pods = [pod("db-0", owner), pod("db-1", owner, ready=False), pod("db-2", owner)]
    found = made(stateful_sets=[workload("db")], pods=pods, budgets=[budget])
    assert found.members == {("shop", "db"): {"db-0", "db-1", "db-2"}}
    assert copies.expected(found) == {("shop", "db"): 2}


@pytest.mark.parametrize(
    ("told", "slept", "stop"),
    [
        ({}, 0.0, "2000ms"),
        ({}, 5.0, "7000ms"),
        ({workload_copies.STOP: "9s"}, 5.0, "9s"),
        ({workload_copies.STOP: "0s"}, 0.0, "1000ms"),
    ],
)
def test_a_pod_stops_as_far_as_it_is_known_and_never_at_once(told: Raw, slept: float, stop: str) -> None:
    assert workload_copies.stop_delay({"annotations": told}, {"preStopSeconds": slept}, 2.0) == stop


READ: Raw = {
    "nodes": ["n1"],
    "node_selector": "",
    "tasks": "/t.yml",
    "reboot": "always",
    "gates": ["rebooted"],
    "asks_hosts": False,
}


def test_nothing_that_reaches_the_world_outside_is_used_on_the_copy() -> None:
    outside = {
        f"maintain_{name}": "x"
        for name in (
            *("tasks", "reboot", "before_node", "before_pod", "after_pod", "after_node", "fence_tasks", "descheduler"),
            *("announce_webhook", "announce_headers", "window", "run", "report_dir", "koordinator_namespace"),
        )
    }
    given = {**outside, "maintain_serial": 2, "maintain_nodes": "n1", "maintain_reason": ""}
    found, said = outcome.of_copy(given, READ, {"n1": "h1"}, report_dir="/r", tasks="/work.yml")
    assert found == {
        "maintain_serial": 2,
        "maintain_reason": "rehearsal",
        "maintain_nodes": ["h1"],
        "maintain_tasks": "/work.yml",
        "maintain_gates": ["rebooted"],
        "maintain_report_dir": "/r",
    }
    told = " ".join(notes.sentences(said))
    assert "maintain_before_node" in told
    assert "no host is contacted" in told


def test_the_report_of_the_copy_says_that_it_is_a_rehearsal() -> None:
    given = {"maintain_reason": "kernel update"}
    found, _said = outcome.of_copy(given, READ, {"n1": "n1"}, report_dir="/r", tasks="/work.yml")
    assert found["maintain_reason"] == "rehearsal: kernel update"


def test_what_cannot_be_rehearsed_is_said() -> None:
    assert outcome.wrong(READ, {"n1": "n1"}) == []
    assert "no node n1" in outcome.wrong(READ, {"n2": "n2"})[0]
    assert "contacts no host" in outcome.wrong({**READ, "asks_hosts": True}, {"n1": "n1"})[0]
    hashed = outcome.wrong({**READ, "nodes": [], "node_selector": "pool=blue"}, {"n1": "h1"})
    assert "maintain_node_selector selects nothing" in hashed[0]


def report(**more: t.Any) -> Raw:
    node = {"name": "n1", "wave": 1, "outcome": "back", "message": "", "seconds": 10.0, "pods_moved": 2}
    service = {"namespace": "shop", "name": "web", "desired": 3, "lowest": 2, "below_seconds": 4.0, "dark_seconds": 0.0}
    totals = {"nodes_failed": 0, "seconds": 20.0, "moving_seconds": 5.0, "forecast_seconds": 6.0, "pods_moved": 2}
    known: Raw = {
        "version": 1,
        "headline": "Never dark",
        "nodes": [node],
        "findings": [],
        "refusals": [],
        "problems": [],
    }
    return {**known, "services": [service, {**service, "name": "full", "lowest": 3}], "totals": totals, **more}


STUCK = {"blocker": "PodDisruptionBudget shop/web", "rule": "", "count": 3, "stuck": ["shop/web-0"]}
BLOCKER = {"severity": "blocker", "code": "two_budgets", "object": "Pod shop/web-0"}
SEVERAL = {**BLOCKER, "object": "Pod shop/web-1 and 1 more", "objects": ["Pod shop/web-1", "Pod shop/web-0"]}


@pytest.mark.parametrize(
    ("more", "verdict", "by"),
    [
        ({}, "finished", []),
        ({"refusals": [{**STUCK, "stuck": []}]}, "finished", []),
        ({"refusals": [STUCK]}, "blocked", ["PodDisruptionBudget shop/web"]),
        ({"findings": [BLOCKER]}, "blocked", ["Pod shop/web-0"]),
        ({"findings": [SEVERAL]}, "blocked", ["Pod shop/web-0", "Pod shop/web-1"]),
        ({"problems": [{"subject": "node n1", "message": "gone"}]}, "failed", []),
    ],
)
def test_a_rehearsal_says_whether_it_finished_and_what_blocks(more: Raw, verdict: str, by: list[str]) -> None:
    found = outcome.rehearsed(report(**more), ["no load."])
    assert (found["verdict"], [blocker["object"] for blocker in found["blockers"]]) == (verdict, by)
    assert [service["name"] for service in found["thin"]] == ["web"]
    lines = outcome.lines(found)
    assert "service shop/web: at 2 of 3 for 4 s" in lines
    assert lines[-1] == "not rehearsed: no load."
    assert all(f"blocked by {about}" in lines for about in by)


def test_a_rehearsal_beside_the_real_run() -> None:
    before, real = outcome.rehearsed(report()), report()
    assert outcome.compared(before, outcome.rehearsed(real))["all"]
    real["totals"] = {**real["totals"], "seconds": 24.9}
    assert outcome.compared(before, outcome.rehearsed(real))["all"]
    real["totals"] = {**real["totals"], "seconds": 25.1}
    found = outcome.compared(before, outcome.rehearsed({**real, "refusals": [STUCK]}))
    differ = [row["what"] for row in found["rows"] if not row["same"]]
    assert differ == ["verdict", "blockers", "seconds"]
    assert "seconds: rehearsed 20.0, real 25.1: DIFFERS" in found["lines"]


@pytest.mark.parametrize(("seconds", "first"), [(20.0, " in 20 s. Never dark"), (None, ". Never dark")])
def test_how_long_it_took_is_told_if_it_is_known(seconds: float | None, first: str) -> None:
    found = outcome.rehearsed(report(totals={**report()["totals"], "seconds": seconds}))
    assert outcome.lines(found)[0] == f"The maintenance finished on the copy{first}"


def test_seconds_of_moving_may_differ_by_a_fifth_and_long_lists_are_counted() -> None:
    def of(seconds: float, name: str = "n1") -> dict[str, t.Any]:
        node = {**report()["nodes"][0], "name": name}
        return outcome.rehearsed(report(nodes=[node], totals={**report()["totals"], "moving_seconds": seconds}))

    row = "seconds from cordon to drained"
    assert f"{row}: rehearsed 5.0, real 6.2: as rehearsed" in outcome.compared(of(5.0), of(6.2))["lines"]
    assert f"{row}: rehearsed 5.0, real 6.3: DIFFERS" in outcome.compared(of(5.0), of(6.3))["lines"]
    for length, shown in ((54, "n" * 54), (55, "1")):
        lines = outcome.compared(of(5.0, "n" * length), of(5.0, "n" * length))["lines"]
        assert f"waves: rehearsed {shown}, real {shown}: as rehearsed" in lines


@pytest.mark.parametrize("wrong", [{"version": 1}, {"version": 9, "verdict": "finished"}])
def test_what_is_no_rehearsal_is_an_error(wrong: t.Any) -> None:
    with pytest.raises(outcome.NoReportError):
        outcome.compared(wrong, outcome.rehearsed(report()))


@pytest.mark.parametrize("wrong", [{}, {"version": 9, "totals": {}}, []])
def test_what_is_no_report_is_an_error(wrong: t.Any) -> None:
    with pytest.raises(outcome.NoReportError):
        outcome.rehearsed(wrong)
    with pytest.raises(outcome.NoReportError):
        outcome.compared(wrong, outcome.rehearsed(report()))


def test_containers_of_all_kinds_get_the_image_of_the_copy() -> None:
    containers = [{"name": "a", "image": "shop/a:1"}, {"name": "b", "image": "shop/b:1"}]
    found = made(pods=[pod("web", None, containers=containers, initContainers=[{"name": "i", "image": "shop/i"}])])
    spec = one(found, "pods", "Pod")["spec"]
    assert [c["name"] for c in (*spec["containers"], *spec["initContainers"])] == ["a", "b", "i"]
    assert {c["image"] for c in (*spec["containers"], *spec["initContainers"])} == {workload_copies.IMAGE}
    assert spec["automountServiceAccountToken"] is False


def named(name: str, **fields: t.Any) -> Raw:
    return {"metadata": {"name": name, "uid": "u", "labels": {}}, **fields}


def test_the_ground_is_made_first_and_keeps_every_field_of_a_class() -> None:
    found = made(
        namespaces=[named("shop")],
        priority_classes=[named("high", value=5, globalDefault=False)],
        storage_classes=[named("fast", provisioner="d")],
        runtime_classes=[named("vm", handler="h")],
    )
    assert found.steps["ground"] == [
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 5,
            "globalDefault": False,
        },
        {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": "d"},
        {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "metadata": {"name": "vm"}, "handler": "h"},
    ]


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("priorityClassName", "high", True),
        ("priorityClassName", "system-node-critical", True),
        ("priorityClassName", "unknown", False),
        ("runtimeClassName", "vm", True),
        ("runtimeClassName", "unknown", False),
    ],
)
def test_pods_keep_classes_that_the_copy_has(name: str, value: str, kept: bool) -> None:
    web = pod("web", None)
    web["spec"][name] = value
    found = made(pods=[web], priority_classes=[named("high")], runtime_classes=[named("vm")])
    assert one(found, "pods", "Pod")["spec"].get(name) == (value if kept else None)


@pytest.mark.parametrize(
    ("ready", "switch"),
    [
        ("True", {}),
        ("False", {copies.NODE_SWITCH: "not-ready"}),
        ("Unknown", {copies.NODE_SWITCH: "down"}),
        (None, {}),
    ],
)
def test_a_node_is_simulated_with_what_it_has_and_as_ready_as_it_is(ready: str | None, switch: Raw) -> None:
    conditions = [
        {"type": "PIDPressure", "status": "False"},
        {"type": "DiskPressure", "status": "True", "reason": "Full"},
        {"type": "KernelDeadlock", "status": "False"},
    ]
    conditions += [{"type": "Ready", "status": ready}] if ready else []
    status = {"allocatable": {"cpu": "1"}, "capacity": {"cpu": "2"}, "nodeInfo": {"osImage": "x"}}
    node = {
        "metadata": {"name": "n2", "annotations": {"own": "kept no more"}},
        "spec": {"unschedulable": True, "taints": None},
        "status": {**status, "conditions": conditions},
    }
    found = copies.copy(snapshot_files.Snapshot("v1.36.3", "", False, {"nodes": [node]}, []), stop=1.0)
    (copied,) = found.steps["nodes"]
    assert copied["metadata"] == {"name": "n2", "annotations": {"kwok.x-k8s.io/node": "fake", **switch}}
    assert copied["spec"] == {"unschedulable": True}
    assert copied["status"] == {**status, "addresses": [{"type": "Hostname", "address": "n2"}]}
    message = {"message": "as in the cluster that was copied"}
    assert found.conditions == {
        "n2": [
            {"type": "DiskPressure", "status": "True", "reason": "Full", **message},
            {"type": "KernelDeadlock", "status": "False", "reason": "Copied", **message},
        ]
    }


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"ports": [{"port": 80}], "selector": {"app": "a"}}, {"ports": [{"port": 80}], "selector": {"app": "a"}}),
        ({"ports": [{"port": 80}], "headless": True}, {"ports": [{"port": 80}], "clusterIP": "None"}),
        ({"ports": [], "headless": False}, {"clusterIP": "None"}),
    ],
)
def test_services_without_an_address_or_a_port_are_headless(spec: Raw, expected: Raw) -> None:
    assert one(made(services=[{"metadata": meta("web"), "spec": spec}]), "rules", "Service")["spec"] == expected


def test_autoscalers_keep_their_limits_and_are_told_of_as_they_do_not_scale() -> None:
    assert notes.note("autoscaling") not in made().notes
    scaler = {"metadata": meta("web"), "spec": {"minReplicas": 1, "maxReplicas": 3}}
    found = made(autoscalers=[scaler])
    spec = one(found, "rules", "HorizontalPodAutoscaler")["spec"]
    assert (spec["minReplicas"], spec["maxReplicas"], len(spec["metrics"])) == (1, 3, 1)
    assert notes.note("autoscaling") in found.notes


def test_claims_quotas_and_limits_are_copied_as_they_are_and_a_volume_knows_its_claim() -> None:
    claim = {"namespace": "shop", "name": "data"}
    volume = named("v", spec={"capacity": {"storage": "1Gi"}}, claim=claim)
    raw = {"metadata": meta("x"), "spec": {"hard": {"pods": "5"}}}
    found = made(volumes=[volume], claims=[raw], quotas=[raw], limits=[raw])
    assert one(found, "storage", "PersistentVolume")["spec"]["claimRef"] == {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        **claim,
    }
    copied = [
        one(found, "storage", "PersistentVolumeClaim"),
        one(found, "rules", "ResourceQuota"),
        one(found, "rules", "LimitRange"),
    ]
    assert [each["spec"] for each in copied] == [raw["spec"]] * 3


def test_a_mirror_pod_keeps_its_node_and_a_pod_of_a_job_its_end() -> None:
    job = {"metadata": meta("once"), "spec": {"template": TEMPLATE}}
    found = made(
        jobs=[job],
        pods=[pod("etcd", ("Node", "n1", "uid-n1")), pod("once-1", ("Job", "once", "uid-once"))],
    )
    mirror, worker = found.steps["pods"]
    assert mirror["metadata"]["ownerReferences"] == [
        {"apiVersion": "v1", "kind": "Node", "name": "n1", "controller": True}
    ]
    assert "finalizers" not in mirror["metadata"]
    assert worker["metadata"]["finalizers"] == [workload_copies.JOB_FINALIZER]
    assert worker["metadata"]["annotations"][workload_copies.COMPLETE] == "never"
    copied = one(found, "owners", "Job")["spec"]
    assert copied["manualSelector"] is True
    assert copied["template"]["metadata"]["annotations"][workload_copies.COMPLETE] == "never"
    assert notes.note("job", "Job shop/once") in found.notes
    assert found.members == {}


def test_pods_of_other_nodes_and_those_that_are_not_bound_are_left_out() -> None:
    foreign = ("Cluster", "db", "uid-db")
    pods = [pod("here", None), pod("there", foreign, nodeName="n9"), pod("nowhere", None, nodeName="")]
    found = made(pods=pods)
    assert [raw["metadata"]["name"] for raw in found.steps["pods"]] == ["here"]
    assert found.ready == {("shop", "here")}
    assert found.steps["owners"] == []


def test_the_owner_of_a_replica_set_that_the_copy_lacks_is_named() -> None:
    found = made(replica_sets=[workload("web-1", ("Rollout", "web", "uid-gone")), workload("own")])
    assert [raw["kind"] for raw in found.steps["owners"]] == ["ReplicaSet", "ReplicaSet"]
    told = [note for note in found.notes if note == notes.note("owner", "ReplicaSet shop/web-1", "Rollout")]
    assert len(told) == 1
