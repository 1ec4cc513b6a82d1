# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The route of pods with devices. Objects as of resource.k8s.io/v1 in Kubernetes 1.36, slices as of NVIDIA's driver."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import devices, dispositions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    budget,
    deployment,
    node,
    owned,
    pod,
    snapshot,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import NOW

GPU = "gpu.nvidia.com"
DRIVER = f"device.driver == '{GPU}'"
TAINT: Raw = {"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoSchedule"}
CLASS: Raw = {"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": DRIVER}}]}}
WEB = owned("ReplicaSet", "web")
WAVES = (("n1",), ("n2",))


def device_slice(
    name: str, *gpus: str | Raw, driver: str = GPU, generation: int = 1, slices: int = 1, **where: t.Any
) -> Raw:
    listed = [{"name": gpu} if isinstance(gpu, str) else gpu for gpu in gpus]
    pool = {"name": name, "generation": generation, "resourceSliceCount": slices}
    where = where or {"nodeName": name}
    return {
        "metadata": {"name": f"{name}-{driver}-{generation}"},
        "spec": {"driver": driver, "pool": pool, "devices": listed, **where},
    }


def result(place: str) -> Raw:
    pool, _slash, device = place.partition("/")
    return {"request": "gpu", "driver": GPU, "pool": pool, "device": device}


def selector(*nodes: str) -> Raw:
    """As the scheduler writes it for devices of one node's slice."""
    field = {"key": "metadata.name", "operator": "In", "values": list(nodes)}
    return {"nodeSelectorTerms": [{"matchFields": [field]}]}


def claim(name: str, *places: str, nodes: t.Sequence[str] = ("n1",), **request: t.Any) -> Raw:
    """A ResourceClaim of namespace `shop` that has these devices (`pool/device`), usable on `nodes` alone."""
    exactly = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, **request}
    requests = [{"name": "gpu", "exactly": exactly}]
    allocation: Raw = {"devices": {"results": [result(place) for place in places]}}
    if nodes:
        allocation["nodeSelector"] = selector(*nodes)
    status = {"allocation": allocation} if places else {}
    return {
        "metadata": {"name": name, "namespace": "shop"},
        "spec": {"devices": {"requests": requests}},
        "status": status,
    }


def using(raw: Raw, *claims: str, shared: bool) -> Raw:
    """The pod with these claims, by their names or made from a template."""
    if shared:
        raw["spec"]["resourceClaims"] = [{"name": name, "resourceClaimName": name} for name in claims]
    else:
        raw["spec"]["resourceClaims"] = [{"name": name, "resourceClaimTemplateName": "gpu"} for name in claims]
        raw["status"]["resourceClaimStatuses"] = [{"name": name, "resourceClaimName": name} for name in claims]
    return raw


def cluster(replicas: int = 1, *claims: Raw, shared: bool = False, here: int = 1, **kinds: t.Any) -> Snapshot:
    """Deployment `web` with so many pods, `here` of them on n1; a pod has the first claim, or all share it."""
    names = [one["metadata"]["name"] for one in claims]
    pods = [
        using(
            pod(f"web-{i}", "n1" if i < here else "n2", WEB),
            names[0 if shared else min(i, len(names) - 1)],
            shared=shared,
        )
        for i in range(replicas)
    ]
    kinds.setdefault("device_classes", [CLASS])
    return snapshot(deployment("web", replicas), pods=pods, device_claims=list(claims), **kinds)


def route(found: Snapshot, **choices: t.Any) -> tuple[str, str]:
    first = dispositions.routes(found, ("n1",), DrainPolicy(**choices), now=NOW)[0]
    return first.route, first.code


SLICES = [device_slice("n1", "gpu-0"), device_slice("n2", "gpu-0")]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        pytest.param(("n1",), ("refuse", "claim_single_node"), id="devices of its node"),
        pytest.param(("n1", "n2"), ("surge", "single_replica"), id="devices that another node reaches, too"),
        pytest.param((), ("surge", "single_replica"), id="devices that every node reaches"),
        pytest.param(("n1", "gone"), ("refuse", "claim_single_node"), id="the other node is not there"),
    ],
)
def test_a_shared_claim_of_one_node_forbids_a_second_pod(nodes: tuple[str, ...], expected: tuple[str, str]) -> None:
    assert route(cluster(1, claim("c", "n1/gpu-0", nodes=nodes), shared=True, device_slices=SLICES)) == expected


@pytest.mark.parametrize(
    "closed",
    [{"unschedulable": True}, {"taints": [{"key": "x", "effect": "NoSchedule"}]}],
    ids=["cordoned", "tainted"],
)
def test_a_node_that_takes_no_pods_is_no_way_out(closed: Raw) -> None:
    nodes = [node("n1"), node("n2", **closed), node("n3")]
    shared = claim("c", "n1/gpu-0", nodes=("n1", "n2"))
    assert route(cluster(1, shared, shared=True, nodes=nodes, device_slices=SLICES)) == ("refuse", "claim_single_node")
    own = claim("c", "n1/gpu-0")
    assert route(cluster(1, own, nodes=nodes, device_slices=SLICES)) == ("refuse", "no_free_device")


def test_the_refusal_says_what_is_shared_and_what_to_do() -> None:
    found = cluster(1, claim("c", "n1/gpu-0"), shared=True, device_slices=SLICES)
    (plan,) = dispositions.routes(found, ("n1",), DrainPolicy(), now=NOW)
    assert "ResourceClaim shop/c" in plan.reason
    assert f"{GPU}/n1/gpu-0" in plan.reason
    assert "resourceClaimTemplateName" in plan.remedy
    assert "allow_interruption" in plan.remedy


def test_with_consent_a_shared_claim_moves_where_there_are_devices_and_else_waits_for_the_node() -> None:
    shared = claim("c", "n1/gpu-0")
    found = cluster(1, shared, shared=True, device_slices=SLICES)
    assert route(found, allow_interruption=True) == ("evict", "interruption_allowed")
    found = cluster(1, shared, shared=True, device_slices=SLICES[:1])
    assert route(found, allow_interruption=True) == ("evict", "no_free_device")


def test_replicas_that_share_a_claim_of_one_node_cannot_go_one_by_one() -> None:
    found = cluster(2, claim("c", "n1/gpu-0"), shared=True, here=2, device_slices=SLICES)
    assert route(found) == ("refuse", "claim_single_node")
    assert route(found, allow_interruption=True) == ("evict", "interruption_allowed")
    free = cluster(2, claim("c", "n1/gpu-0", nodes=()), shared=True, here=2, device_slices=SLICES)
    assert route(free) == ("evict", "guarded")


EXTRA = f"{DRIVER} && device.attributes['{GPU}'].type == 'mig'"


@pytest.mark.parametrize(
    ("slices", "others", "request_", "fits"),
    [
        pytest.param([device_slice("n2", "gpu-0")], [], {}, True, id="free"),
        pytest.param([], [], {}, False, id="no slices"),
        pytest.param([device_slice("n1", "gpu-0", "gpu-1")], [], {}, False, id="free on its own node"),
        pytest.param([device_slice("n2", "gpu-0")], [claim("b", "n2/gpu-0")], {}, False, id="taken"),
        pytest.param([device_slice("n2", "gpu-0", "gpu-1")], [claim("b", "n2/gpu-0")], {}, True, id="one is left"),
        pytest.param([device_slice("n2", "gpu-0", driver="nic.example.com")], [], {}, False, id="another driver"),
        pytest.param([device_slice("n2", "gpu-0"), device_slice("n3", "gpu-0")], [], {"count": 2}, False, id="apart"),
        pytest.param([device_slice("n2", "gpu-0", "gpu-1")], [], {"count": 2}, True, id="together"),
        pytest.param([device_slice("n2", "gpu-0")], [], {"allocationMode": "All", "count": 0}, True, id="all of them"),
        pytest.param(
            [device_slice("n2", "a", "b")], [claim("b", "n2/a")], {"allocationMode": "All"}, False, id="all but one"
        ),
        pytest.param(
            [device_slice("n2", "a", "b")],
            [claim("b", "n2/a")],
            {"allocationMode": "All", "selectors": [{"cel": {"expression": EXTRA}}]},
            True,
            id="all of some",
        ),
        pytest.param([device_slice("n2", "a", slices=2)], [], {}, False, id="slices of its pool are missing"),
        pytest.param([], [], {"adminAccess": True}, True, id="an administrator's takes none"),
        pytest.param([device_slice("net", "a", allNodes=True)], [], {}, True, id="reached from every node"),
        pytest.param([device_slice("net", "a", nodeSelector=selector("n3"))], [], {}, True, id="reached from n3"),
        pytest.param([device_slice("net", "a", nodeSelector=selector("n1"))], [], {}, False, id="reached from n1"),
        pytest.param(
            [device_slice("net", {"name": "a", "nodeName": "n3"}, perDeviceNodeSelection=True)], [], {}, True, id="each"
        ),
        pytest.param(
            [device_slice("n2", "old"), device_slice("n2", generation=2)], [], {}, False, id="an old generation"
        ),
        pytest.param([device_slice("n2", {"name": "g", "taints": [TAINT]})], [], {}, False, id="tainted"),
        pytest.param(
            [device_slice("n2", {"name": "g", "taints": [{**TAINT, "effect": "None"}]})], [], {}, True, id="noted only"
        ),
        pytest.param(
            [device_slice("n2", {"name": "g", "taints": [TAINT]})],
            [],
            {"tolerations": [{"key": TAINT["key"], "operator": "Exists"}]},
            True,
            id="tolerated",
        ),
        pytest.param(
            [device_slice("n2", {"name": "g", "allowMultipleAllocations": True})],
            [claim("b", "n2/g")],
            {},
            True,
            id="shareable",
        ),
        pytest.param(
            [device_slice("n2", "a", driver="x")], [], {"deviceClassName": "any"}, True, id="a class of any driver"
        ),
        pytest.param(
            [device_slice("n2", "gpu-0")],
            [],
            {"selectors": [{"cel": {"expression": EXTRA}}]},
            True,
            id="attributes are not evaluated",
        ),
    ],
)
def test_a_second_pod_needs_free_devices_on_another_node(
    slices: list[Raw], others: list[Raw], request_: Raw, fits: bool
) -> None:
    mine = claim("a", "n1/gpu-0", **request_)
    found = cluster(1, mine, *others, device_slices=[device_slice("n1", "gpu-0", "gpu-1"), *slices])
    assert route(found) == (("surge", "single_replica") if fits else ("refuse", "no_free_device"))


def test_the_first_alternative_that_is_free_will_do() -> None:
    mine = claim("a", "n1/gpu-0")
    alternatives = [{"name": "two", "deviceClassName": "gpu", "count": 2}, {"name": "one", "deviceClassName": "gpu"}]
    mine["spec"]["devices"]["requests"] = [{"name": "gpu", "firstAvailable": alternatives}]
    assert route(cluster(1, mine, device_slices=SLICES)) == ("surge", "single_replica")
    mine["spec"]["devices"]["requests"] = [{"name": "gpu", "firstAvailable": alternatives[:1]}]
    assert route(cluster(1, mine, device_slices=SLICES)) == ("refuse", "no_free_device")


def test_an_earlier_request_takes_its_next_alternative_where_a_later_one_finds_none() -> None:
    """As the allocator does: the first alternative would take what the second request needs."""
    mine = claim("a", "n1/gpu-0")
    both: Raw = {"name": "two", "deviceClassName": "gpu", "count": 2}
    mine["spec"]["devices"]["requests"] = [
        {"name": "some", "firstAvailable": [both, {**both, "name": "one", "count": 1}]},
        {"name": "also", "firstAvailable": [both, {**both, "name": "one", "count": 1}]},
    ]
    slices = [device_slice("n1", "gpu-0", "gpu-1"), device_slice("n2", "gpu-0", "gpu-1")]
    assert route(cluster(1, mine, device_slices=slices)) == ("surge", "single_replica")
    slices[1] = device_slice("n2", "gpu-0")
    assert route(cluster(1, mine, device_slices=slices)) == ("refuse", "no_free_device")


def test_a_search_among_many_alternatives_ends() -> None:
    mine = claim("a", "n1/gpu-0")
    either = [{"name": f"a{n}", "deviceClassName": "gpu", "count": 1} for n in range(8)]
    mine["spec"]["devices"]["requests"] = [{"name": f"r{n}", "firstAvailable": either} for n in range(32)]
    slices = [device_slice("n2", *(f"gpu-{n}" for n in range(31)))]
    assert route(cluster(1, mine, device_slices=slices)) == ("refuse", "no_free_device")


def test_two_requests_do_not_get_the_same_device() -> None:
    mine = claim("a", "n1/gpu-0")
    mine["spec"]["devices"]["requests"] *= 2
    assert route(cluster(1, mine, device_slices=SLICES)) == ("refuse", "no_free_device")


def test_the_workloads_node_selector_counts() -> None:
    template = {"spec": {"nodeSelector": {"kubernetes.io/hostname": "n3"}, "containers": []}}
    apart = snapshot(
        deployment("web", 1, template=template, paused=True),
        pods=[using(pod("web-0", "n1", WEB), "a", shared=False)],
        device_claims=[claim("a", "n1/gpu-0")],
        device_slices=SLICES,
        device_classes=[CLASS],
    )
    assert route(apart) == ("refuse", "no_free_device")


def test_a_refusal_names_what_is_asked_for_and_the_tainted_devices() -> None:
    rule = {"metadata": {"name": "r"}, "spec": {"deviceSelector": {"driver": GPU, "pool": "n2"}, "taint": TAINT}}
    found = cluster(1, claim("a", "n1/gpu-0"), device_slices=SLICES, device_rules=[rule])
    (plan,) = dispositions.routes(found, ("n1",), DrainPolicy(), now=NOW)
    assert plan.code == "no_free_device"
    assert "1 of class gpu" in plan.reason
    assert f"{GPU}/n2/gpu-0 (gpu.nvidia.com/xid=79:NoSchedule)" in plan.reason


@pytest.mark.parametrize(
    ("selector_", "hit"),
    [
        ({"driver": GPU, "pool": "n1", "device": "gpu-0"}, True),
        ({"pool": "n1"}, True),
        ({"pool": "n2"}, False),
        ({}, True),
    ],
)
@pytest.mark.parametrize(
    ("effect", "words"), [("NoExecute", "without regard to budgets"), ("NoSchedule", "no new claim")]
)
def test_a_pods_tainted_device_is_named(selector_: Raw, hit: bool, effect: str, words: str) -> None:
    rule = {"metadata": {"name": "r"}, "spec": {"deviceSelector": selector_, "taint": {**TAINT, "effect": effect}}}
    found = cluster(1, claim("a", "n1/gpu-0"), device_slices=SLICES, device_rules=[rule])
    told = devices.findings(found, dispositions.routes(found, ("n1",), DrainPolicy(), now=NOW), WAVES)
    tainted = [finding for finding in told if finding.code == "device_tainted"]
    assert len(tainted) == hit
    assert all(words in finding.message and finding.object == f"Device {GPU}/n1/gpu-0" for finding in tainted)


def test_what_is_not_evaluated_is_said_where_a_surge_relies_on_it() -> None:
    for extra, codes in (
        ({}, []),
        ({"selectors": [{"cel": {"expression": EXTRA}}]}, ["devices_estimated"]),
        ({"capacity": {"requests": {"memory": "1Gi"}}}, ["devices_estimated"]),
    ):
        found = cluster(1, claim("a", "n1/gpu-0", **extra), device_slices=SLICES)
        told = devices.findings(found, dispositions.routes(found, ("n1",), DrainPolicy(), now=NOW), WAVES)
        assert [finding.code for finding in told] == codes
    counts = {"name": "gpu-0", "consumesCounters": [{"counterSet": "s", "counters": {"memory": {"value": "1Gi"}}}]}
    found = cluster(1, claim("a", "n1/gpu-0"), device_slices=[*SLICES[:1], device_slice("n2", counts)])
    told = devices.findings(found, dispositions.routes(found, ("n1",), DrainPolicy(), now=NOW), WAVES)
    assert [finding.code for finding in told] == ["devices_estimated"]


def test_replicas_whose_successors_find_no_device_are_warned_of() -> None:
    own = [claim("a", "n1/gpu-0"), claim("b", "n2/gpu-0")]
    budgets = [budget("web", 1)]
    found = cluster(2, *own, device_slices=SLICES, budgets=budgets)
    plans = dispositions.routes(found, ("n1",), DrainPolicy(), now=NOW)
    assert plans[0].route == "evict"
    (told,) = devices.findings(found, plans, WAVES)
    assert (told.code, told.severity) == ("no_free_device", "warning")
    roomy = cluster(2, *own, device_slices=[*SLICES, device_slice("n3", "gpu-0")], budgets=budgets)
    assert not devices.findings(roomy, dispositions.routes(roomy, ("n1",), DrainPolicy(), now=NOW), WAVES)


def test_claims_that_cannot_be_found_hold_nothing() -> None:
    found = snapshot(deployment("web", 1), pods=[using(pod("web-0", "n1", WEB), "a", shared=True)])
    assert route(found) == ("surge", "single_replica")


@pytest.mark.parametrize(
    ("slices", "waves", "short"),
    [
        pytest.param([device_slice("n3", "a", "b")], [["n1"]], [], id="one for each"),
        pytest.param([device_slice("n2", "a"), device_slice("n3", "a")], [["n1"]], [], id="on two nodes"),
        pytest.param([device_slice("n3", "a")], [["n1"]], ["Deployment shop/db"], id="one for both"),
        pytest.param([device_slice("n2", "a", "b")], [["n1", "n2"]], ["web", "db"], id="on a node of the wave"),
        pytest.param(
            [device_slice("n3", {"name": "a", "allowMultipleAllocations": True})], [["n1"]], [], id="shareable"
        ),
    ],
)
def test_second_pods_of_a_wave_need_their_devices_at_once(
    slices: list[Raw], waves: list[list[str]], short: list[str]
) -> None:
    pods = [
        using(pod("web-0", "n1", WEB), "a", shared=False),
        using(pod("db-0", "n1", owned("ReplicaSet", "db"), labels={"app": "db"}), "b", shared=False),
    ]
    found = snapshot(
        deployment("web", 1),
        deployment("db", 1),
        pods=pods,
        device_claims=[claim("a", "n1/gpu-0"), claim("b", "n1/gpu-1")],
        device_slices=[device_slice("n1", "gpu-0", "gpu-1"), *slices],
        device_classes=[CLASS],
    )
    plans = dispositions.routes(found, ("n1",), DrainPolicy(), now=NOW)
    assert [plan.route for plan in plans] == ["surge", "surge"]
    told = devices.findings(found, plans, waves)
    assert [finding.code for finding in told] == ["no_free_device"] * len(short)
    assert all(name in finding.object for name, finding in zip(short, told, strict=True))
