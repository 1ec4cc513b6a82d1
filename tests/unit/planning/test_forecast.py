# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where the pods of a maintenance go, wave after wave."""

from __future__ import annotations

import dataclasses
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.index_keys import PARSERS
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import devices
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import forecast, forecast_findings
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy

Raw = dict[str, t.Any]
WEB = objects.Ref("Deployment", "web", "shop")
SNAPSHOT = Snapshot()


def node(name: str, cpu: str = "2", **spec: t.Any) -> Raw:
    status = {"allocatable": {"cpu": cpu, "pods": "10"}, "conditions": [{"type": "Ready", "status": "True"}]}
    return {"metadata": {"name": name, "uid": name, "labels": {"host": name}}, "spec": spec, "status": status}


def pod(name: str, on: str, cpu: str = "1500m", **spec: t.Any) -> Raw:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    meta = {"name": name, "uid": name, "namespace": "shop", "labels": {"app": "web"}}
    return {"metadata": meta, "spec": {"nodeName": on, "containers": containers, **spec}, "status": {}}


def made(
    nodes: list[Raw],
    pods: list[Raw],
    waves: list[tuple[str, ...]],
    route: drain_policy.Route = "evict",
    namespaces: t.Sequence[Raw] = (),
    **more: t.Any,
) -> tuple[list[drain_policy.PodPlan], dict[str, forecast.Forecast]]:
    found = {"nodes": [PARSERS["nodes"](raw) for raw in nodes], "pods": [PARSERS["pods"](raw) for raw in pods]}
    snapshot = Snapshot.of({**found, "namespaces": namespaces})
    plans = [drain_policy.PodPlan(each, route, "", "", WEB) for each in snapshot.pods if each.node]
    return plans, forecast.forecasts(snapshot, plans, waves, **more)


def test_a_pod_goes_where_there_is_room_and_the_next_wave_knows() -> None:
    _plans, found = made([node("n1"), node("n2"), node("n3")], [pod("a", "n1"), pod("b", "n2")], [("n1",), ("n2",)])
    assert (found["a"].target, found["b"].target) == ("n3", "n1")
    assert (found["a"].fits, found["b"].fits) == (True, True)


def test_pods_prefer_nodes_that_do_not_leave_later() -> None:
    nodes, pods = [node("n1"), node("n2", "9"), node("n3")], [pod("a", "n1")]
    assert made(nodes, pods, [("n1",)])[1]["a"].target == "n2"
    assert made(nodes, pods, [("n1",), ("n2", "gone")])[1]["a"].target == "n3"


def test_without_rights_to_read_drivers_no_pod_with_a_volume_is_forecast() -> None:
    claim = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
    nodes, pods = [node("n1"), node("n2")], [pod("a", "n1", "1", volumes=[claim]), pod("b", "n1", "1")]
    found = made(nodes, pods, [("n1",)], with_volumes=False)[1]
    assert {name: one.fits for name, one in found.items()} == {"a": None, "b": True}
    assert "may not list csinodes and storageclasses" in found["a"].text


@pytest.mark.parametrize(("key", "target"), [("maintenance.kubeops.io/in-progress", "n1"), ("dedicated", None)])
def test_a_node_comes_back_without_our_taint_and_with_those_of_others(key: str, target: str | None) -> None:
    nodes = [node("n1", taints=[{"key": key, "effect": "NoSchedule"}]), node("n2")]
    _plans, found = made(nodes, [pod("b", "n2")], [("n1",), ("n2",)])
    assert found["b"].target == target


def test_nodes_that_stay_out_take_nothing() -> None:
    nodes, pods = [node("n1"), node("n2"), node("n3")], [pod("a", "n1"), pod("b", "n2")]
    _plans, found = made(nodes, pods, [("n1",), ("n2",)], stay_out=True)
    assert found["b"].fits is False
    assert found["b"].text == "0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable."
    assert found["b"].reasons == {"Insufficient cpu": 1, "node(s) were unschedulable": 2}


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_has_finished_has_no_successor_and_takes_no_room_for_one(phase: str) -> None:
    over = pod("over", "n1") | {"status": {"phase": phase}}
    plans, found = made([node("n1"), node("n2")], [over, pod("serving", "n1")], [("n1",)])
    assert len(plans) == 2
    assert found.keys() == {"serving"}
    assert found["serving"].target == "n2"


@pytest.mark.parametrize("route", ["evict", "job"])
def test_what_fits_nowhere_is_warned_of(route: drain_policy.Route) -> None:
    plans, found = made([node("n1"), node("n2", "1")], [pod("a", "n1")], [("n1",)], route)
    (finding,) = forecast_findings.findings(SNAPSHOT, plans, found, [("n1",)])
    assert (finding.code, finding.severity, finding.object) == ("fits_nowhere", "warning", str(WEB))
    assert "0/2 nodes are available: 1 Insufficient cpu, 1 node(s) were unschedulable." in finding.message
    assert "Add a node" in finding.remedy


INTERRUPTIONS: list[tuple[t.Any, str, str, bool]] = [
    ("", "no_room", "blocker", False),
    ("possible", "no_room", "blocker", True),
    ("allowed", "fits_nowhere", "warning", False),
]


@pytest.mark.parametrize(("interruption", "code", "severity", "offered"), INTERRUPTIONS)
def test_a_surge_without_room_for_a_second_pod_is_a_blocker_until_its_interruption_is_allowed(
    interruption: t.Any, code: str, severity: str, offered: bool
) -> None:
    plans, found = made([node("n1"), node("n2", "1")], [pod("a", "n1")], [("n1",)], "surge")
    plans = [dataclasses.replace(plan, interruption=interruption) for plan in plans]
    (finding,) = forecast_findings.findings(SNAPSHOT, plans, found, [("n1",)])
    assert (finding.code, finding.severity, finding.object) == (code, severity, str(WEB))
    assert "0/2 nodes are available: 1 Insufficient cpu" in finding.message
    assert ("allow_interruption: true" in finding.remedy) is offered
    (grown,) = forecast_findings.findings(SNAPSHOT, plans, found, ())
    assert grown.severity == "warning", "a node autoscaler makes room"


@pytest.mark.parametrize(
    ("code", "told"), [("replicas", 1), ("local_volume", 0), ("no_free_device", 0), ("only_its_node", 0)]
)
def test_that_a_volume_is_of_the_node_is_not_told_twice(code: str, told: int) -> None:
    plans, found = made([node("n1"), node("n2", "1")], [pod("a", "n1")], [("n1",)])
    plans = [dataclasses.replace(plan, code=code) for plan in plans]
    assert len(forecast_findings.findings(SNAPSHOT, plans, found, [("n1",)])) == told


def test_no_surge_preempts_others() -> None:
    pods = [pod("a", "n1", priority=9), pod("low", "n2")]
    plans, found = made([node("n1"), node("n2")], pods, [("n1",)], "surge")
    (finding,) = forecast_findings.findings(SNAPSHOT, plans, found, [("n1",)])
    assert (finding.code, finding.severity) == ("preempts", "blocker")
    plans = [dataclasses.replace(plan, interruption="allowed") for plan in plans]
    (finding,) = forecast_findings.findings(SNAPSHOT, plans, found, [("n1",)])
    assert (finding.code, finding.severity) == ("preempts", "warning")


def test_a_surge_without_room_keeps_its_place() -> None:
    nodes, pods = [node("n1"), node("n2")], [pod("a", "n1"), pod("b", "n2")]
    _plans, found = made(nodes, pods, [("n1",), ("n2",)], "surge")
    assert {uid: one.fits for uid, one in found.items()} == {"a": False, "b": False}


def test_a_surge_for_which_others_leave_no_room_says_so() -> None:
    plans, found = made([node("n1"), node("n2")], [pod("a", "n1"), pod("b", "n1")], [("n1",)], "surge")
    assert [found[name].first for name in ("a", "b")] == [False, True]
    (finding,) = forecast_findings.findings(SNAPSHOT, plans, found, [("n1",)])
    assert "after the pods that are placed before it" in finding.message


def test_a_surge_has_its_room_before_pods_that_are_evicted() -> None:
    """As in the run, where the successors of surges are Ready before the first eviction."""
    found = {"nodes": [PARSERS["nodes"](node(name)) for name in ("n1", "n2")]}
    snapshot = Snapshot.of({**found, "pods": [PARSERS["pods"](pod(name, "n1")) for name in "ab"]})
    routes: tuple[drain_policy.Route, ...] = ("evict", "surge")
    plans = [drain_policy.PodPlan(each, route, "", "", WEB) for each, route in zip(snapshot.pods, routes, strict=True)]
    placed = forecast.forecasts(snapshot, plans, [("n1",)])
    assert {uid: one.fits for uid, one in placed.items()} == {"a": False, "b": True}


def test_an_evicted_pod_is_gone_when_its_successor_comes_and_a_surged_one_is_not() -> None:
    term = {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "web"}}}
    zone = [{"topologyKey": "zone", "labelSelector": term["labelSelector"]}]
    rule: Raw = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": zone}}}
    nodes = [node("n1"), node("n2")]
    for one in nodes:
        one["metadata"]["labels"]["zone"] = "a"
    assert made(nodes, [pod("a", "n1", **rule)], [("n1",)])[1]["a"].target == "n2"
    assert made(nodes, [pod("a", "n1", **rule)], [("n1",)], "surge")[1]["a"].fits is False


@pytest.mark.parametrize(("route", "told"), [("evict", 1), ("surge", 1), ("job", 0)])
def test_a_scheduler_of_which_nothing_is_known_is_named_once(route: drain_policy.Route, told: int) -> None:
    pods = [pod(name, "n1", "100m", schedulerName="mine") for name in "ab"] + [pod("c", "n1", "100m")]
    plans, found = made([node("n1"), node("n2")], pods, [("n1",)], route)
    assert [found[name].fits for name in "abc"] == [None, None, True]
    given = forecast_findings.findings(SNAPSHOT, plans, found, [("n1",)])
    assert [(one.code, one.severity, one.object) for one in given] == [
        ("unknown_scheduler", "warning", "Scheduler mine")
    ] * told


@pytest.mark.parametrize(
    ("asked", "spec", "fits"),
    [
        ("example.com/gpu", {"extendedResourceName": "example.com/gpu"}, None),
        ("deviceclass.resource.kubernetes.io/gpu", {}, None),
        ("example.com/gpu", {"extendedResourceName": "example.com/other"}, False),
        ("example.com/gpu", {}, False),
        ("cpu", {"extendedResourceName": "example.com/gpu"}, False),
    ],
)
def test_what_a_device_class_serves_is_not_called_insufficient(asked: str, spec: Raw, fits: bool | None) -> None:
    raw = pod("a", "n1", "100m")
    raw["spec"]["containers"][0]["resources"]["requests"] = {asked: "9"}
    listed = {"nodes": [PARSERS["nodes"](node(name)) for name in ("n1", "n2")], "pods": [PARSERS["pods"](raw)]}
    snapshot = Snapshot.of({**listed, "device_classes": [{"metadata": {"name": "gpu"}, "spec": spec}]})
    plans = [drain_policy.PodPlan(snapshot.pods[0], "evict", "", "", WEB)]
    one = forecast.forecasts(snapshot, plans, [("n1",)])["a"]
    assert one.fits is fits
    assert (asked in one.text) == (asked != "cpu") or fits is False
    assert devices.extended(snapshot.pods) == (asked != "cpu")


def wants(operator: str, *values: str) -> Raw:
    terms = [{"matchExpressions": [{"key": "disk", "operator": operator, "values": list(values)}]}]
    return {
        "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}}
    }


@pytest.mark.parametrize(
    ("spec", "label", "named"),
    [
        ({"nodeSelector": {"disk": "ssd"}}, "hdd", "nodeSelector disk=ssd (2 nodes)"),
        (wants("In", "ssd", "nvme"), "hdd", "node affinity disk In ssd, nvme (2 nodes)"),
        (wants("NotIn", "hdd"), "hdd", "node affinity disk NotIn hdd (2 nodes)"),
        (wants("Exists"), "", "node affinity disk Exists (2 nodes)"),
        (wants("DoesNotExist"), "hdd", "node affinity disk DoesNotExist (2 nodes)"),
        (wants("Gt", "5"), "3", "node affinity disk Gt 5 (2 nodes)"),
        (wants("Lt", "5"), "7", "node affinity disk Lt 5 (2 nodes)"),
        ({}, "hdd", "taint special=true:NoSchedule (1 node), taint special=true:NoExecute (1 node)"),
        (
            {**wants("In", "ssd"), "nodeSelector": {"cpu": "new"}},
            "hdd",
            "nodeSelector cpu=new (2 nodes), node affinity disk",
        ),
    ],
)
def test_the_rules_that_keep_a_pod_off_the_other_nodes_are_named(spec: Raw, label: str, named: str) -> None:
    nodes = [node("n1"), node("n2"), node("n3"), node("n4", unschedulable=True)]
    for number, one in enumerate(nodes[1:]):
        one["metadata"]["labels"] |= {"disk": label} if label else {}
        if not spec:
            effect = "NoExecute" if number else "NoSchedule"
            one["spec"]["taints"] = [{"key": "special", "value": "true", "effect": effect}]
    listed = {"nodes": [PARSERS["nodes"](raw) for raw in nodes], "pods": [PARSERS["pods"](pod("a", "n1", **spec))]}
    snapshot = Snapshot.of(listed)
    plans = [drain_policy.PodPlan(snapshot.pods[0], "evict", "", "", WEB)]
    found = forecast.forecasts(snapshot, plans, [("n1",)])
    (finding,) = forecast_findings.findings(snapshot, plans, found, [("n1",)])
    assert named in finding.message


@pytest.mark.parametrize(("known", "fits"), [(True, True), (False, None)])
def test_namespaces_that_a_rule_selects_have_to_be_known(known: bool, fits: bool | None) -> None:
    term: Raw = {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": "db"}}, "namespaceSelector": {}}
    rule: Raw = {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}
    namespaces: list[Raw] = [{"metadata": {"name": "shop"}}] if known else []
    nodes, pods = [node("n1"), node("n2")], [pod("a", "n1", **rule)]
    _plans, found = made(nodes, pods, [("n1",)], namespaces=namespaces)
    assert found["a"].fits is fits


@pytest.mark.parametrize(("tolerated", "target"), [(False, "n3"), (True, "n2")])
def test_a_node_that_others_should_avoid_is_the_last_choice(tolerated: bool, target: str) -> None:
    soft: Raw = {"key": "spare", "effect": "PreferNoSchedule"}
    nodes = [node("n1"), node("n2", "4", taints=[soft]), node("n3")]
    spec: Raw = {"tolerations": [{"key": "spare", "operator": "Exists"}]} if tolerated else {}
    assert made(nodes, [pod("a", "n1", **spec)], [("n1",)])[1]["a"].target == target


def near(app: str) -> Raw:
    term = {"topologyKey": "host", "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


@pytest.mark.parametrize("route", ["evict", "surge"])
@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_a_pod_that_belongs_beside_another_of_its_wave_is_placed_after_it(
    route: drain_policy.Route, order: tuple[int, ...]
) -> None:
    """The scheduler tries a refused pod again whenever another one is placed."""
    pods = [pod("a", "n1", "100m", **near("b")), pod("b", "n1", "100m", **near("c")), pod("c", "n1", "100m")]
    for raw in pods:
        raw["metadata"]["labels"]["app"] = raw["metadata"]["name"]
    nodes = [node("n1"), node("n2"), node("n3")]
    found = made(nodes, [pods[index] for index in order], [("n1",)], route)[1]
    assert len({found[name].target for name in "abc"}) == 1
    assert all(one.fits for one in found.values())


def test_a_surge_does_not_come_after_the_pods_that_are_evicted_later() -> None:
    """`a` has to serve before the first eviction."""
    raws = [pod("a", "n1", "100m", **near("b")), pod("b", "n1", "100m")]
    raws[1]["metadata"]["labels"]["app"] = "b"
    listed = {"nodes": [PARSERS["nodes"](node(name)) for name in ("n1", "n2")]}
    snapshot = Snapshot.of({**listed, "pods": [PARSERS["pods"](raw) for raw in raws]})
    routes: tuple[drain_policy.Route, ...] = ("surge", "evict")
    plans = [drain_policy.PodPlan(each, route, "", "", WEB) for each, route in zip(snapshot.pods, routes, strict=True)]
    placed = forecast.forecasts(snapshot, plans, [("n1",)])
    assert {uid: one.fits for uid, one in placed.items()} == {"a": False, "b": True}
    plans[0] = dataclasses.replace(plans[0], interruption="allowed")
    placed = forecast.forecasts(snapshot, plans, [("n1",)])
    assert {uid: one.fits for uid, one in placed.items()} == {"a": True, "b": True}, "then it is evicted, too"


def test_whom_it_preempts_and_who_starves() -> None:
    pods = [pod("a", "n1", priority=9), pod("low", "n2")]
    plans, found = made([node("n1"), node("n2")], pods, [("n1",)])
    assert (found["a"].fits, found["a"].target) == (True, "n2")
    assert found["a"].victims == found["a"].starved == ("Pod shop/low",)
    assert [finding.code for finding in forecast_findings.findings(SNAPSHOT, plans, found, [("n1",)])] == ["preempts"]


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ({"schedulerName": "volcano"}, "Not forecast: the scheduler volcano decides by rules of its own."),
        ({"resourceClaims": [{"name": "gpu"}]}, "Not forecast: it needs devices by resource claims."),
        ({"schedulingGroup": {"podGroupName": "g"}}, "of PodGroup g."),
    ],
)
def test_what_is_not_forecast_says_so(spec: Raw, text: str) -> None:
    plans, found = made([node("n1"), node("n2")], [pod("a", "n1", **spec)], [("n1",)])
    assert found["a"].fits is None
    assert text in found["a"].text
    told = ["unknown_scheduler"] if found["a"].scheduler else []
    assert [one.code for one in forecast_findings.findings(SNAPSHOT, plans, found, [("n1",)])] == told


def test_a_scheduler_that_nobody_runs() -> None:
    nodes = [node("n1"), node("n2")]
    waiting = pod("b", "", schedulerName="mine")
    # The API server says this of a pod with a gate, without any scheduler.
    gated = pod("c", "", schedulerName="mine", schedulingGates=[{"name": "example.com/wait"}])
    gated["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}
    _plans, found = made(nodes, [pod("a", "n1"), waiting], [("n1",)])
    assert found["a"].fits is True
    template: Raw = {"metadata": {"name": "web", "uid": "w", "namespace": "shop"}, "spec": {"replicas": 1}}
    template["spec"]["template"] = {"spec": {"schedulerName": "mine"}}
    owned = pod("a", "n1")
    owned["metadata"]["ownerReferences"] = [{"kind": "Deployment", "name": "web", "uid": "w", "controller": True}]
    kinds = {"nodes": nodes, "pods": [owned, gated, waiting], "deployments": [template]}
    snapshot = Snapshot.of({kind: [PARSERS[kind](raw) for raw in raws] for kind, raws in kinds.items()})
    plans = [drain_policy.PodPlan(snapshot.pods[0], "evict", "", "", WEB)]
    one = forecast.forecasts(snapshot, plans, [("n1",)])["a"]
    assert (one.fits, one.text) == (False, "No scheduler serves the name mine: none has looked at Pod shop/b yet.")
    (finding,) = forecast_findings.findings(snapshot, plans, {"a": one}, [("n1",)])
    assert (finding.code, finding.remedy) == ("fits_nowhere", forecast_findings.CORRECT)


@pytest.mark.parametrize(("route", "code"), [("evict", "fits_nowhere"), ("surge", "no_room")])
def test_what_no_node_would_help_is_not_said_to_be_a_rule_of_nodes(route: drain_policy.Route, code: str) -> None:
    lost: Raw = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "lost"}}]}
    plans, found = made([node("n1"), node("n2")], [pod("a", "n1", **lost)], [("n1",)], route)
    (finding,) = forecast_findings.findings(SNAPSHOT, plans, found, [("n1",)])
    assert 'persistentvolumeclaim "lost" not found' in finding.message
    assert (finding.code, finding.remedy) == (code, forecast_findings.CORRECT)


@pytest.mark.parametrize(
    ("count", "told"),
    [
        (1, "(p0): the successor of the pod fits"),
        (5, "(p0, p1, p2, p3, p4): the successor of each pod fits"),
        (6, "(p0, p1, p2, p3, p4 and 1 more): the successor of each pod fits"),
    ],
)
def test_pods_of_one_workload_that_fit_nowhere_are_one_finding(count: int, told: str) -> None:
    pods = [pod(f"p{number}", "n1", cpu="100m", nodeSelector={"host": "n1"}) for number in range(count)]
    plans, found = made([node("n1"), node("n2")], pods, [("n1",)])
    (finding,) = forecast_findings.findings(SNAPSHOT, plans, found, [("n1",)])
    assert f"{WEB}, on n1 {told}" in finding.message
    assert finding.remedy.startswith("Change the rule that keeps it off")


def test_whom_a_pod_preempts_is_told_before_where_it_fits() -> None:
    base = forecast.Forecast(True, "n2")
    assert forecast_findings.described(base) == ""
    fits = dataclasses.replace(base, victims=("Pod shop/a",))
    assert forecast_findings.described(fits) == "It fits on n2 only if the scheduler preempts Pod shop/a."
    starved = dataclasses.replace(fits, victims=("Pod shop/a", "Pod shop/b"), starved=("Pod shop/b",))
    assert forecast_findings.described(starved).endswith(
        "preempts Pod shop/a, Pod shop/b, of which Pod shop/b fit nowhere else."
    )


def test_a_pod_that_comes_after_a_preemption_has_the_room_of_the_victims() -> None:
    victim = pod("low", "n2", "1800m", priority=-5)
    pods = [pod("a", "n1", "900m"), pod("b", "n1", "900m"), victim]
    _plans, found = made([node("n1"), node("n2")], pods, [("n1",)])
    assert found["a"].victims == ("Pod shop/low",)
    assert (found["b"].target, found["b"].victims) == ("n2", ())


ROOM = {"storageClassName": "fast", "resources": {"requests": {"storage": "1Gi"}}}


@pytest.mark.parametrize(
    ("spec", "provisioner", "fits"),
    [
        (ROOM, "csi.example.com", None),
        (ROOM | {"storageClassName": ""}, "csi.example.com", True),
        ({"resources": {}}, "csi.example.com", None),
        (ROOM, "kubernetes.io/no-provisioner", False),
    ],
    ids=["of a class", "of no class", "of the default class", "nothing is provisioned"],
)
def test_whether_a_driver_has_storage_left_is_not_known(spec: Raw, provisioner: str, fits: bool | None) -> None:
    """Of volumes that are made with their pod; the others are bound."""
    scratch = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": spec}}}
    made_of = {"metadata": {"name": "fast"}, "provisioner": provisioner, "volumeBindingMode": "WaitForFirstConsumer"}
    volumes = [{"name": "tmp", "emptyDir": {}}, scratch]
    kinds = {"nodes": [node("n1"), node("n2")], "pods": [pod("a", "n1", volumes=volumes)]}
    found = {kind: [PARSERS[kind](raw) for raw in raws] for kind, raws in kinds.items()}
    snapshot = Snapshot.of({**found, "storage_classes": [made_of]})
    plans = [drain_policy.PodPlan(snapshot.pods[0], "evict", "", "", WEB)]
    one = forecast.forecasts(snapshot, plans, [("n1",)])["a"]
    assert (one.fits, one.target) == (fits, "n2" if fits else None)
    assert ("storage left" in one.text) is (fits is None)
    full = dataclasses.replace(snapshot, nodes={"n1": snapshot.nodes["n1"]})
    assert forecast.forecasts(full, plans, [("n1",)])["a"].fits is False, "that no node takes it is known"


RESTARTS: Raw = {"restartPolicyRules": [{"action": "RestartAllContainers"}]}


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({"hostNetwork": True, "hostUsers": False}, None),
        ({"hostNetwork": True, "hostUsers": True}, True),
        ({"hostUsers": False}, True),
        ({"containers": [{"name": "c", **RESTARTS}]}, None),
        ({"initContainers": [{"name": "c", **RESTARTS}]}, None),
        ({"containers": [{"name": "c", "restartPolicyRules": [{"action": "Restart"}]}]}, True),
        ({"containers": [{"name": "c", "volumeMounts": [{"name": "v", "bindMountOptions": ["noexec"]}]}]}, None),
        ({"containers": [{"name": "c", "volumeMounts": [{"name": "v"}]}]}, True),
    ],
)
def test_which_features_a_node_declares_is_not_known(change: Raw, fits: bool | None) -> None:
    _plans, found = made([node("n1"), node("n2")], [pod("a", "n1", **change)], [("n1",)])
    assert found["a"].fits is fits
    assert ("declare" in found["a"].text) is (fits is None)
