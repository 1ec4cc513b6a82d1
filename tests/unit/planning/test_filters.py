# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where a pod fits, in the scheduler's words."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import filters, forecast, storage, world
from ansible_collections.kubeops.node_maintenance.tests.unit.support.placed import (
    ZONE,
    Raw,
    claim,
    guest,
    mounts,
    node,
    pod,
    scheduler,
    volume,
)


def terms(kind: str, *found: Raw) -> Raw:
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": list(found)}}}


def node_terms(*expressions: Raw, fields: t.Sequence[Raw] = ()) -> Raw:
    term: Raw = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    wanted = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": wanted}}


def near(app: str, key: str = ZONE, **more: t.Any) -> Raw:
    return {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}, **more}


def evenly(key: str = ZONE, **more: t.Any) -> Raw:
    one = {
        "maxSkew": 1,
        "topologyKey": key,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": near("web")["labelSelector"],
    }
    return {"topologySpreadConstraints": [{**one, **more}]}


def named(*names: str) -> Raw:
    return {"key": "metadata.name", "operator": "In", "values": list(names)}


PORT = [{"hostPort": 80, "containerPort": 80}]
CLOSED, TAINTED = node("n1", closed=True), node("n1", taints=[{"key": "db", "effect": "NoSchedule"}])
SMALL = node("n1", room={"cpu": "600m", "memory": "1Mi", "pods": "1"})
CASES: list[tuple[str, list[Raw], Raw, dict[str, int]]] = [
    ("cordon", [CLOSED], pod("p"), {filters.CLOSED: 1}),
    ("taint", [TAINTED], pod("p"), {filters.TAINTED: 1}),
    ("selector", [node("n1")], pod("p", nodeSelector={"disk": "ssd"}), {filters.NOT_SELECTED: 1}),
    (
        "greater",
        [node("n1", labels={"size": "4"}), node("n2", labels={"size": "x"})],
        pod("p", **node_terms({"key": "size", "operator": "Gt", "values": ["4"]})),
        {filters.NOT_SELECTED: 2},
    ),
    (
        "by name",
        [node("n1", closed=True), node("n2")],
        pod("p", **node_terms(fields=[named("n1")])),
        {filters.CLOSED: 1, filters.NOT_NAMED: 1},
    ),
    ("port", [node("n1"), pod("o", "n1", ports=PORT)], pod("p", ports=PORT), {world.PORTS: 1}),
    ("all that is short", [SMALL, pod("o", "n1")], pod("p"), {world.PODS: 1, "Insufficient cpu": 1}),
    ("extended", [node("n1")], pod("p", overhead={"example.com/gpu": "1"}), {"Insufficient example.com/gpu": 1}),
    (
        "nobody near",
        [node("n1"), pod("o", "n1", "db")],
        pod("p", **terms("podAffinity", near("cache"))),
        {filters.NO_COMPANY: 1},
    ),
    (
        "shunned",
        [node("n1"), pod("o", "n1", "db")],
        pod("p", **terms("podAntiAffinity", near("db"))),
        {filters.BAD_COMPANY: 1},
    ),
    (
        "unwelcome",
        [node("n1"), node("n2"), pod("o", "n2", **terms("podAntiAffinity", near("web")))],
        pod("p"),
        {filters.UNWELCOME: 2},
    ),
    (
        "uneven: a closed node's domain counts",
        [node("n1"), node("n2", "b", closed=True), pod("o", "n1")],
        pod("p", **evenly()),
        {filters.UNEVEN: 1, filters.CLOSED: 1},
    ),
    ("domains", [node("n1"), pod("o", "n1")], pod("p", **evenly(minDomains=2)), {filters.UNEVEN: 1}),
    ("no domain", [node("n1")], pod("p", **evenly("rack")), {filters.NO_LABEL: 1}),
]


@pytest.mark.parametrize(("raws", "new", "reasons"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_a_node_that_cannot_take_it_says_why(raws: list[Raw], new: Raw, reasons: dict[str, int]) -> None:
    answer = scheduler(*raws).answer(guest(new))
    assert (answer.nodes, dict(answer.reasons)) == ((), reasons)
    assert answer.text.startswith(f"0/{answer.total} nodes are available: ")


@pytest.mark.parametrize(
    ("raws", "new"),
    [
        ([CLOSED], pod("p", tolerations=[{"key": "node.kubernetes.io/unschedulable", "operator": "Exists"}])),
        ([TAINTED], pod("p", tolerations=[{"key": "db", "operator": "Exists"}])),
        (
            [node("n1"), pod("o", "n1", ports=[{"hostPort": 80, "hostIP": "10.0.0.1"}])],
            pod("p", ports=[{"hostPort": 80, "hostIP": "10.0.0.2"}]),
        ),
        ([node("n1")], pod("p", **terms("podAffinity", near("web")))),
        ([node("n1"), pod("o", "n1", "db", namespace="other")], pod("p", **terms("podAntiAffinity", near("db")))),
        (
            [node("n1"), node("n2", "b", closed=True), pod("o", "n1")],
            pod("p", **evenly(nodeTaintsPolicy="Honor", maxSkew=2)),
        ),
        ([node("n1"), pod("o", "n1")], pod("p", **evenly(minDomains=1, maxSkew=1))),
    ],
    ids=["cordon", "taint", "address", "first of its kind", "other namespace", "taints honored", "one domain"],
)
def test_a_node_that_can_take_it(raws: list[Raw], new: Raw) -> None:
    assert scheduler(*raws).answer(guest(new)).nodes == ("n1",)


def test_terms_of_one_name_that_exclude_each_other_are_no_look_at_all() -> None:
    answer = scheduler(node("n1")).answer(guest(pod("p", **node_terms(fields=[named("n1"), named("n2")]))))
    assert answer.text == "0/1 nodes are available: pod affinity terms conflict."


def test_a_namespace_selector_selects_namespaces() -> None:
    spaces = [{"metadata": {"name": name, "labels": {"team": name}}} for name in ("shop", "other")]
    raws = [node("n1"), pod("o", "n1", "db", namespace="other")]
    for team, nodes in (("shop", ("n1",)), ("other", ())):
        term = near("db", namespaceSelector={"matchLabels": {"team": team}})
        new = guest(pod("p", **terms("podAntiAffinity", term)))
        assert scheduler(*raws, namespaces=spaces).answer(new).nodes == nodes


LIMITED = {"metadata": {"name": "n1"}, "spec": {"drivers": [{"name": "csi.example.com", "allocatable": {"count": 1}}]}}


@pytest.mark.parametrize(
    ("claims", "volumes", "more", "reason"),
    [
        ([claim("c", "v")], [volume("v", on="n9")], [], storage.ELSEWHERE),
        ([claim("c", "v")], [volume("v", zone="b__c")], [], storage.OTHER_ZONE),
        ([claim("c", "v")], [], [], storage.GONE),
        ([claim("c", "v", "ReadWriteOncePod")], [volume("v")], [pod("o", "n1", **mounts("c"))], storage.ONE_POD),
        (
            [claim("c", "v"), claim("d", "w")],
            [volume("v"), volume("w")],
            [pod("o", "n1", **mounts("d"))],
            storage.LIMIT,
        ),
        ([claim("c", cls="late")], [], [], storage.NONE_FREE),
    ],
    ids=["node affinity", "zone", "gone", "one pod", "attach limit", "no volume"],
)
def test_volumes_keep_a_pod_off(claims: list[Raw], volumes: list[Raw], more: list[Raw], reason: str) -> None:
    late = {
        "metadata": {"name": "late"},
        "volumeBindingMode": "WaitForFirstConsumer",
        "provisioner": storage.NOT_PROVISIONED[1],
    }
    asked = scheduler(node("n1"), *more, claims=claims, volumes=volumes, csi_nodes=[LIMITED], storage_classes=[late])
    assert dict(asked.answer(guest(pod("p", **mounts("c")))).reasons) == {reason: 1}


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, True),
        ({"selector": {"matchLabels": {"disk": "ssd"}}}, True),
        ({"selector": {"matchLabels": {"disk": "hdd"}}}, False),
        ({"accessModes": ["ReadWriteMany"]}, False),
        ({"resources": {"requests": {"storage": "2Gi"}}}, False),
        ({"resources": {"requests": {"storage": "1Gi"}}}, True),
    ],
    ids=["any", "selected", "not selected", "another mode", "too small", "just large enough"],
)
def test_a_claim_that_waits_takes_a_free_volume_that_is_as_it_wants(change: Raw, fits: bool) -> None:
    wanted, free = claim("c", cls="late"), volume("v")
    wanted["spec"].update(change)
    free["metadata"]["labels"] = {"disk": "ssd"}
    free["spec"].update({"storageClassName": "late", "accessModes": ["ReadWriteOnce"]})
    free["status"] = {"phase": "Available"}
    late: Raw = {"metadata": {"name": "late"}, "volumeBindingMode": "WaitForFirstConsumer"}
    late["provisioner"] = storage.NOT_PROVISIONED[1]
    asked = scheduler(node("n1"), claims=[wanted], volumes=[free], storage_classes=[late])
    assert bool(asked.answer(guest(pod("p", **mounts("c")))).nodes) is fits


@pytest.mark.parametrize(
    ("claims", "text"),
    [([], 'persistentvolumeclaim "c" not found'), ([claim("c", cls="now")], storage.UNBOUND)],
)
def test_claims_that_no_node_can_satisfy(claims: list[Raw], text: str) -> None:
    answer = scheduler(node("n1"), claims=claims).answer(guest(pod("p", **mounts("c"))))
    assert answer.text == f"0/1 nodes are available: {text}."


def container(cpu: str, **more: t.Any) -> Raw:
    return {"name": f"c{cpu}", "requests": {"cpu": cpu}, **more}


@pytest.mark.parametrize(
    ("spec", "running", "milli"),
    [
        ({"containers": [container("1"), container("250m")]}, False, 1250),
        ({"containers": [container("1")], "initContainers": [container("3")]}, False, 3000),
        (
            {
                "containers": [container("1")],
                "initContainers": [container("500m", restartPolicy="Always"), container("1")],
            },
            False,
            1500,
        ),
        (
            {"containers": [container("1")], "resources": {"requests": {"cpu": "2"}}, "overhead": {"cpu": "100m"}},
            False,
            2100,
        ),
        ({"containers": [container("1")], "counted": {"c1": [{"cpu": "2"}]}}, True, 2000),
        ({"containers": [container("1")], "counted": {"c1": [{"cpu": "2"}]}}, False, 1000),
        ({"containers": [container("3")], "counted": {"c3": [{"cpu": "2"}]}, "infeasible": True}, True, 2000),
    ],
    ids=["sum", "init", "sidecar", "whole pod", "resized", "its successor", "resize that cannot be"],
)
def test_requests(spec: Raw, running: bool, milli: int) -> None:
    assert world.pod_requests(spec, running=running) == {"cpu": milli}


@pytest.mark.parametrize("running", [True, False])
@pytest.mark.parametrize(
    ("spec", "found"),
    [
        ({}, {}),
        ({"containers": [container("0")]}, {}),
        ({"initContainers": [{"name": "i", "requests": {"memory": "1Ki"}}]}, {"memory": 1024}),
        ({"initContainers": [container("100m"), container("300m"), container("200m")]}, {"cpu": 300}),
        ({"initContainers": [container("1"), container("500m", restartPolicy="Always")]}, {"cpu": 1000}),
        (
            {
                "initContainers": [
                    container("100m", restartPolicy="Always"),
                    container("200m", restartPolicy="Always"),
                    container("1"),
                ]
            },
            {"cpu": 1300},
        ),
        ({"containers": [container("1")], "resources": {"requests": {"pods": "9", "cpu": "100m"}}}, {"cpu": 100}),
        ({"resources": {"requests": {"hugepages-2Mi": "4Mi"}}}, {"hugepages-2Mi": 4 * 1024**2}),
        ({"containers": [{"name": "c", "requests": {"example.com/gpu": "2"}}]}, {"example.com/gpu": 2}),
    ],
)
def test_what_a_pod_takes_of_each_resource(spec: Raw, found: dict[str, int], running: bool) -> None:
    assert world.pod_requests(spec, running=running) == found


@pytest.mark.parametrize(
    ("spec", "milli"),
    [
        ({"containers": [container("3")], "counted": {"c3": [{"cpu": "2"}, {"cpu": "1"}]}}, 3000),
        ({"initContainers": [container("1", restartPolicy="Always")], "counted": {"c1": [{"cpu": "2"}]}}, 2000),
        ({"initContainers": [container("1")], "counted": {"c1": [{"cpu": "2"}]}}, 1000),
        ({"resources": {"requests": {"cpu": "1"}}, "countedWhole": [{"cpu": "2"}]}, 2000),
        ({"resources": {"requests": {"cpu": "3"}}, "countedWhole": [{"cpu": "2"}], "infeasible": True}, 2000),
    ],
    ids=["the largest", "a sidecar", "not an init container", "a whole pod", "a whole pod's that cannot be"],
)
def test_a_resize_counts_for_what_runs(spec: Raw, milli: int) -> None:
    assert world.pod_requests(spec, running=True) == {"cpu": milli}


def test_host_ports_are_of_containers_and_sidecars() -> None:
    found = world.ports(
        {
            "containers": [{"ports": [{"hostPort": 80, "hostIP": "10.0.0.1", "protocol": "UDP"}]}, {}],
            "initContainers": [{"ports": [{"hostPort": 1}]}, {"restartPolicy": "Always", "ports": [{"hostPort": 2}]}],
        }
    )
    assert sorted(found) == [("0.0.0.0", "TCP", 2), ("10.0.0.1", "UDP", 80)]


def test_pods_take_room_one_after_the_other() -> None:
    asked = scheduler(node("n1"), node("n2", room={"cpu": "1"}))
    found = [forecast.place(asked, guest(pod(f"p{i}", cpu="900m")))[0] for i in range(4)]
    assert sorted(name or "" for name in found) == ["", "n1", "n1", "n2"]
    assert found[3] is None


def test_preemption_takes_the_least_important_and_spares_whom_it_can() -> None:
    raws = [
        pod("low", "n1", cpu="1500m", priority=1),
        pod("lower", "n1", cpu="400m"),
        pod("mid", "n2", cpu="2", priority=5),
    ]
    asked = scheduler(node("n1"), node("n2"), *raws)
    found = forecast.preempted(asked, guest(pod("p", cpu="1", priority=9)))
    assert found is not None
    assert (found.node, [victim.name for victim in found.victims]) == ("n1", ["low"])
    assert forecast.preempted(asked, guest(pod("p", cpu="1", priority=9, preemptionPolicy="Never"))) is None
    assert forecast.preempted(asked, guest(pod("p", cpu="1"))) is None
    assert asked.around.places["n1"].used["cpu"] == 1900, "nothing has changed"


def test_preemption_takes_few_pods_rather_than_unimportant_ones() -> None:
    """Of the same highest priority: as the scheduler adds priorities up, the number of pods outweighs them."""
    two = [pod("a", "n2", cpu="1", priority=10), pod("b", "n2", cpu="1", priority=9)]
    three = [pod("c", "n1", cpu="1", priority=10), *(pod(name, "n1", priority=1) for name in ("d", "e"))]
    found = forecast.preempted(scheduler(node("n1"), node("n2"), *two, *three), guest(pod("p", cpu="2", priority=99)))
    assert found is not None
    assert (found.node, [victim.name for victim in found.victims]) == ("n2", ["a", "b"])


def since(raw: Raw, started: str) -> Raw:
    return {**raw, "status": {"startTime": started} if started else {}}


def test_of_equally_important_pods_those_that_run_for_longer_are_kept() -> None:
    raws = [
        since(pod("a", "n1", cpu="1"), "2026-01-02T00:00:00Z"),
        since(pod("b", "n1", cpu="1"), "2026-01-01T00:00:00Z"),
    ]
    found = forecast.preempted(scheduler(node("n1"), *raws), guest(pod("p", cpu="1", priority=9)))
    assert found is not None
    assert [victim.name for victim in found.victims] == ["a"]
    raws[1] = since(pod("b", "n1", cpu="1"), "")
    found = forecast.preempted(scheduler(node("n1"), *raws), guest(pod("p", cpu="1", priority=9)))
    assert found is not None
    assert [victim.name for victim in found.victims] == ["b"], "it has not started yet"


@pytest.mark.parametrize(("first", "second", "target"), [("1", "2", "n2"), ("2", "1", "n1"), ("1", "", "n2")])
def test_of_equal_nodes_the_one_whose_most_important_victim_started_last_is_taken(
    first: str, second: str, target: str
) -> None:
    def started(day: str) -> str:
        return day and f"2026-01-0{day}T00:00:00Z"

    raws = [
        since(pod("a", "n1", cpu="1", priority=5), started(first)),
        since(pod("b", "n1", cpu="1"), started("9")),
        since(pod("c", "n2", cpu="1", priority=5), started(second)),
        since(pod("d", "n2", cpu="1"), started("1")),
    ]
    found = forecast.preempted(scheduler(node("n1"), node("n2"), *raws), guest(pod("p", cpu="2", priority=9)))
    assert found is not None
    assert found.node == target


def covering(app: str, allowed: int, **disrupted: str) -> Raw:
    status = {"disruptionsAllowed": allowed, "disruptedPods": disrupted}
    meta = {"name": "b", "namespace": "shop", "uid": "b"}
    return {"metadata": meta, "spec": {"selector": {"matchLabels": {"app": app}}}, "status": status}


@pytest.mark.parametrize(
    ("budget", "target", "victims"),
    [
        pytest.param(covering("db", 0), "n2", ["web-0"], id="a budget that is spent is spared"),
        pytest.param(covering("db", 1), "n1", ["db-0"], id="one that allows it is not"),
        pytest.param(covering("db", 0, **{"db-0": "now"}), "n1", ["db-0"], id="nor one that has counted the pod"),
        pytest.param(covering("else", 0), "n1", ["db-0"], id="nor one of other pods"),
    ],
)
def test_preemption_spares_budgets_where_it_can(budget: Raw, target: str, victims: list[str]) -> None:
    raws = [pod("db-0", "n1", app="db", cpu="2"), pod("web-0", "n2", cpu="2", priority=5)]
    asked = scheduler(node("n1"), node("n2"), *raws, budgets=[budget])
    found = forecast.preempted(asked, guest(pod("p", cpu="1", priority=9)))
    assert found is not None
    assert (found.node, [victim.name for victim in found.victims]) == (target, victims)


def test_a_pod_whose_budget_is_spent_is_kept_before_a_more_important_one() -> None:
    raws = [pod("db-0", "n1", app="db", cpu="1"), pod("web-0", "n1", cpu="1", priority=5)]
    asked = scheduler(node("n1"), *raws, budgets=[covering("db", 0)])
    found = forecast.preempted(asked, guest(pod("p", cpu="1", priority=9)))
    assert found is not None
    assert [victim.name for victim in found.victims] == ["web-0"]
