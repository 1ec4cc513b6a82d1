# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import other_runs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.reasons import Finding
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import preflight
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import Record, Step
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    TOLERATES_ALL,
    Raw,
    budget,
    deployment,
    node,
    owned,
    pod,
    snapshot,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import NEVER, NOW, WEB, planned, web


def findings(
    found: Snapshot,
    nodes: tuple[str, ...] = ("n1",),
    *,
    waves: preflight.Waves | None = None,
    run: str = "",
    stay_out: bool = False,
    terminating: frozenset[str] = frozenset(),
    **choices: t.Any,
) -> tuple[Finding, ...]:
    waves = tuple((name,) for name in nodes if name in found.nodes) if waves is None else waves
    asked = preflight.DraftOptions(nodes, DrainPolicy(**choices), run, NOW, stay_out)
    return preflight.findings(found, planned(found, nodes, **choices), asked, waves, terminating)


def coded(found: t.Iterable[Finding]) -> list[tuple[str, str]]:
    return [(finding.severity, finding.code) for finding in found]


def test_pods_with_empty_dirs_need_one_consent_and_are_one_blocker() -> None:
    def volume(name: str, **more: str) -> Raw:
        return {"name": name, "emptyDir": more}

    pods = [
        pod("a", owner=owned("ReplicaSet", "a"), volumes=[volume("tmp", medium="Memory", sizeLimit="64Mi")]),
        pod("b", owner=owned("ReplicaSet", "b"), volumes=[volume("x"), volume("y", sizeLimit="2Gi")]),
        pod("c", "n2", owner=owned("ReplicaSet", "b"), volumes=[volume("x")]),
    ]
    seen = snapshot(pods=pods)
    (found,) = [one for one in findings(seen, ("n1", "n2")) if one.code == "emptydir"]
    assert (found.severity, found.nodes, found.object) == ("blocker", ("n1", "n2"), "3 pods with emptyDir")
    for fact in ("3 pods of 2 workloads", "Of 1 pods", "2 of the volumes", "2Gi at most"):
        assert fact in found.message
    assert "delete_emptydir_data: true" in found.remedy
    (alone,) = [one for one in findings(seen, ("n2",)) if one.code == "emptydir"]
    assert "ReplicaSet shop/b" in alone.object


def mounting(*volumes: str, **more: t.Any) -> Raw:
    """A container that mounts these, each given as `name` or `name:path`."""
    parts = [one.partition(":") for one in volumes]
    mounts = [{"name": name, "mountPath": path or f"/{name}"} for name, _colon, path in parts]
    return {"name": "c", "volumeMounts": mounts, **more}


@pytest.mark.parametrize(
    ("containers", "init", "told"),
    [
        ([mounting("x")], [], ""),
        ([mounting("x:/tmp")], [], "x (temporary files)"),
        ([mounting("x:/var/run/app"), mounting("x:/run/app/")], [], "x (temporary files)"),
        ([mounting("x:/var/cache/nginx")], [], "x (temporary files)"),
        ([mounting("x:/tmpfiles")], [], ""),
        ([mounting("x:/data/tmp")], [], ""),
        ([mounting("x:/tmp"), mounting("x:/data")], [], ""),
        ([mounting()], [mounting("x")], "x (init containers)"),
        ([mounting()], [mounting("x", restartPolicy="Always"), mounting("x")], "x (sidecars)"),
        ([mounting("x")], [mounting("x", restartPolicy="Always")], ""),
        ([mounting("y")], [], ""),
    ],
)
def test_what_empty_dirs_are_for_is_told_where_it_is_known(containers: list[Raw], init: list[Raw], told: str) -> None:
    one = pod("a", owner=owned("ReplicaSet", "a"), volumes=[{"name": "x", "emptyDir": {}}])
    one["spec"] |= {"containers": containers, "initContainers": init}
    two = pod("b", owner=owned("ReplicaSet", "b"), volumes=[{"name": "x", "emptyDir": {}}])
    (alone,) = [found for found in findings(snapshot(pods=[one])) if found.code == "emptydir"]
    assert (told in alone.message, "x (" in alone.message, alone.severity) == (True, bool(told), "blocker")
    (both,) = [found for found in findings(snapshot(pods=[one, two])) if found.code == "emptydir"]
    assert ("Of 1 pods" in both.message) == bool(told)


def test_a_plain_node_has_nothing_against_it() -> None:
    assert findings(snapshot()) == ()
    assert findings(web(3)) == ()


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("n11", "Did you mean n1?"),
        ("10.0.0.1", "Did you mean n1?"),
        ("something-else", "There is no node something-else."),
    ],
)
def test_an_unknown_node_is_named_with_what_may_be_meant(name: str, meant: str) -> None:
    raw = node("n1")
    raw["status"]["addresses"] = [{"type": "InternalIP", "address": "10.0.0.1"}]
    found = findings(snapshot(nodes=[raw, node("n2")]), (name,))
    assert coded(found) == [("blocker", "unknown_node")]
    assert meant in found[0].message


@pytest.mark.parametrize(
    ("nodes", "waves", "stay_out", "last"),
    [
        pytest.param([node("n1"), node("n2")], (("n1",),), False, False, id="another one is left"),
        pytest.param([node("n1")], (("n1",),), False, True, id="the only one"),
        pytest.param([node("n1"), node("n2")], (("n1", "n2"),), False, True, id="all in one wave"),
        pytest.param([node("n1"), node("n2")], (("n1",), ("n2",)), False, False, id="one after the other"),
        pytest.param([node("n1"), node("n2")], (("n1",), ("n2",)), True, True, id="one after the other, for good"),
        pytest.param([node("n1"), node("n2", unschedulable=True)], (("n1",),), False, True, id="the other is cordoned"),
        pytest.param(
            [node("n1"), node("n2", conditions={"Ready": "False"})],
            (("n1",),),
            False,
            True,
            id="the other is not ready",
        ),
        pytest.param(
            [node("n1"), node("n2", annotations={names.RECORD: "{}"})], (("n1",),), False, True, id="the other is out"
        ),
        pytest.param(
            [node("n1"), node("n2", taints=[{"key": "gpu", "effect": "NoSchedule"}])],
            (("n1",),),
            False,
            True,
            id="the other has a taint",
        ),
        pytest.param(
            [node(name, taints=[{"key": "gpu", "effect": "NoSchedule"}]) for name in ("n1", "n2")],
            (("n1",),),
            False,
            False,
            id="both have the same taint",
        ),
        pytest.param(
            [node("n1"), node("n2", taints=[{"key": "gpu", "effect": "PreferNoSchedule"}])],
            (("n1",),),
            False,
            False,
            id="a taint that keeps nobody out",
        ),
        pytest.param([node("n1")], (), False, False, id="nothing to do"),
    ],
)
def test_the_last_schedulable_node(nodes: list[Raw], waves: preflight.Waves, stay_out: bool, last: bool) -> None:
    asked = tuple(name for wave in waves for name in wave) or ("n1",)
    found = findings(snapshot(nodes=nodes), asked, waves=waves, stay_out=stay_out)
    assert ("blocker", "last_schedulable_node") in coded(found) if last else found == ()


def recorded(step: Step, run: str = "r1") -> Raw:
    record = Record(run, "n", "ann@desk", "", "2026-01-01T00:00:00Z", step, "uid-n1", "locks/node-n1", {})
    return node("n1", annotations={names.RECORD: record.dump()}, unschedulable=True)


def lease(renewed: str, seconds: int = 15, holder: str = "r1/n") -> Raw:
    spec = {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": seconds}
    return {"metadata": {"name": "node-n1", "namespace": "locks"}, "spec": spec}


FRESH = "2026-01-01T23:59:50.000000Z"
STALE = "2026-01-01T23:00:00.000000Z"


@pytest.mark.parametrize(
    ("step", "leases", "run", "expected"),
    [
        pytest.param("drained", [lease(FRESH)], "r1", ("info", "resumed"), id="ours"),
        pytest.param("drained", [lease(FRESH)], "r2", ("blocker", "held"), id="another run works on it"),
        pytest.param("drained", [lease(FRESH)], "", ("blocker", "held"), id="asked for no run"),
        pytest.param("drained", [lease(STALE)], "r2", ("warning", "abandoned"), id="its lock has expired"),
        pytest.param("drained", [lease(STALE, 7200)], "r2", ("blocker", "held"), id="a long lock"),
        pytest.param("drained", [lease(FRESH, holder="")], "r2", ("warning", "abandoned"), id="nobody holds the lock"),
        pytest.param("drained", [lease("yesterday")], "r2", ("warning", "abandoned"), id="a lock without a time"),
        pytest.param("drained", [], "r2", ("warning", "abandoned"), id="no lock"),
        pytest.param("parked", [], "r2", ("info", "parked"), id="nobody works on it"),
        pytest.param("out", [], "r2", ("blocker", "out"), id="its tasks may be running"),
        pytest.param("out", [], "r1", ("info", "resumed"), id="our tasks"),
    ],
)
def test_nodes_of_other_runs(step: Step, leases: list[Raw], run: str, expected: tuple[str, str]) -> None:
    found = findings(snapshot(nodes=[recorded(step), node("n2")], leases=leases), run=run)
    assert coded(found) == [expected]
    if expected[1] in ("held", "out", "abandoned"):
        assert all(word in found[0].message for word in ("r1", "ann@desk", "2026-01-01T00:00:00Z"))


@pytest.mark.parametrize(
    ("changes", "alive"),
    [
        ({}, True),
        ({"renewTime": "2026-01-01T23:59:45.001Z"}, True),
        pytest.param({"renewTime": "2026-01-01T23:59:45Z"}, False, id="just over"),
        pytest.param({"renewTime": None}, False, id="never renewed"),
        pytest.param({"leaseDurationSeconds": None, "renewTime": "2026-01-02T00:00:00Z"}, False, id="no duration"),
        pytest.param({"holderIdentity": None}, False, id="no holder"),
    ],
)
def test_a_lease_holds_for_its_duration(changes: Raw, alive: bool) -> None:
    spec = {name: value for name, value in {**lease(FRESH)["spec"], **changes}.items() if value is not None}
    assert other_runs.alive({"spec": spec}, "2026-01-02T00:00:00Z") is alive
    assert not other_runs.alive({"spec": spec}, "")
    assert not other_runs.alive(None, "2026-01-02T00:00:00Z")


@pytest.mark.parametrize(
    ("uid", "renewed", "alive"),
    [
        pytest.param("u1", "2026-01-01T23:59:50Z", True, id="it beats"),
        pytest.param("u1", "2026-01-01T23:59:40Z", False, id="it is silent"),
        pytest.param("u2", "2026-01-01T23:59:50Z", False, id="it is another one by now"),
    ],
)
def test_a_lease_with_a_heartbeat_holds_as_long_as_that(uid: str, renewed: str, alive: bool) -> None:
    name = names.heartbeat_name("r1/n1")
    said = {"holderIdentity": "r1/n1", "leaseDurationSeconds": 15, "renewTime": renewed}
    beat = {"metadata": {"name": name, "uid": uid}, "spec": said}
    spec = {"holderIdentity": "r1/n1", "leaseDurationSeconds": 86400, "renewTime": "2026-01-01T23:00:00Z"}
    lock = {"metadata": {"annotations": {names.HEARTBEAT: f"{name}/u1"}}, "spec": spec}
    assert other_runs.alive(lock, "2026-01-02T00:00:00Z", [beat]) is alive
    assert not other_runs.alive(lock, "2026-01-02T00:00:00Z")
    spec["holderIdentity"] = "r2/n2"
    assert other_runs.alive(lock, "2026-01-02T00:00:00Z"), "what an earlier release took holds by itself"


def test_what_to_run_for_a_node_that_is_out() -> None:
    found = findings(snapshot(nodes=[recorded("out"), node("n2")]))
    assert "maintain_run=r1" in found[0].remedy


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        (node("n1", unschedulable=True), ("warning", "foreign_cordon")),
        (node("n1", conditions={"Ready": "False"}), ("warning", "node_not_ready")),
        (node("n1", conditions={"Ready": "Unknown"}), ("warning", "node_lost")),
        (node("n1", annotations={names.RECORD: "{"}), ("blocker", "bad_record")),
    ],
)
def test_nodes_in_an_odd_state(raw: Raw, expected: tuple[str, str]) -> None:
    assert coded(findings(snapshot(nodes=[raw, node("n2")]))) == [expected]


BARE = pod("bare")
JOB = pod("job", owner=owned("Job", "import", "batch/v1"))
UNHEALTHY = [pod(f"web-{i}", "n1", WEB, ready=False) for i in range(2)]


@pytest.mark.parametrize(
    ("found", "choices", "expected"),
    [
        pytest.param(snapshot(pods=[BARE]), {}, [("blocker", "bare_pod")], id="refused"),
        pytest.param(snapshot(pods=[BARE]), {"force": True}, [("warning", "bare_pod")], id="forced"),
        pytest.param(snapshot(pods=[JOB]), {}, [("warning", "job")], id="waited for"),
        pytest.param(
            snapshot(pods=[JOB]), {"allow_interruption": True}, [("warning", "interruption_allowed")], id="interrupted"
        ),
        pytest.param(
            snapshot(pods=[pod("p", deleting="2026-01-01T00:00:00Z")]),
            {},
            [("warning", "stuck_terminating")],
            id="stuck",
        ),
        pytest.param(snapshot(pods=[BARE]), {"namespaces": ("bank",)}, [("info", "not_selected")], id="not selected"),
        pytest.param(
            snapshot(pods=[BARE, JOB]), {}, [("blocker", "bare_pod"), ("warning", "job")], id="everything at once"
        ),
        pytest.param(
            web(3, here=3, budgets=[budget("b", 0, **NEVER)]),
            {},
            [("blocker", "budget_allows_nothing")],
            id="one a workload",
        ),
        pytest.param(
            web(3, here=3, budgets=[budget("b", 0, healthy=2, desired=2, expected=3)]),
            {},
            [("warning", "budget_spent")],
            id="spent for the moment",
        ),
        pytest.param(
            snapshot(
                deployment("web", 2),
                pods=UNHEALTHY,
                budgets=[budget("b", 0, healthy=0, desired=1, expected=2)],
                nodes=[node("n1", conditions={"Ready": "Unknown"}), node("n2")],
            ),
            {},
            [("warning", "node_lost"), ("warning", "unhealthy_blocked")],
            id="unhealthy on a lost node",
        ),
        pytest.param(
            snapshot(deployment("web", 2), pods=UNHEALTHY, budgets=[budget("b", 0, healthy=0, desired=1, expected=2)]),
            {},
            [("blocker", "unhealthy_blocked")],
            id="held by their own ill health",
        ),
        pytest.param(
            web(3, budgets=[budget("b", 0, **NEVER)]),
            {"reactive_budgets": ("app=web",)},
            [("warning", "operator_budget")],
            id="operator",
        ),
        pytest.param(
            web(3),
            {"disable_eviction": True},
            [("blocker", "disable_eviction"), ("warning", "disable_eviction")],
            id="deletion without force",
        ),
        pytest.param(
            web(3), {"disable_eviction": True, "force": True}, [("warning", "disable_eviction")], id="deletion"
        ),
        pytest.param(
            snapshot(deployment("web", 1), pods=[pod("p", owner=WEB, tolerations=[TOLERATES_ALL])]),
            {},
            [("warning", "tolerates_maintenance")],
            id="tolerant",
        ),
    ],
)
def test_findings_about_pods(found: Snapshot, choices: dict[str, t.Any], expected: list[tuple[str, str]]) -> None:
    assert coded(findings(found, **choices)) == expected


def test_pods_of_one_workload_are_one_finding() -> None:
    found = findings(web(9, here=9, budgets=[budget("b", 0, **NEVER)]))
    assert [finding.object for finding in found] == ["Deployment shop/web"]
    assert "9 pods in shop (web-0, web-1, web-2, web-3, web-4 and 4 more) on n1" in found[0].message
    assert "PodDisruptionBudget shop/b" in found[0].message


def quota(pods: int) -> Raw:
    return {
        "metadata": {"name": "q", "namespace": "shop"},
        "spec": {"hard": {"pods": str(pods)}},
        "status": {"hard": {"pods": str(pods)}, "used": {"pods": "2"}},
    }


def two_singles(quotas: list[Raw]) -> Snapshot:
    """Two Deployments of one replica, on n1 and on n2."""
    return snapshot(
        deployment("web", 1),
        deployment("api", 1),
        pods=[pod("web-0", owner=WEB), pod("api-0", "n2", owned("ReplicaSet", "api"))],
        quotas=quotas,
    )


@pytest.mark.parametrize(
    ("room", "waves", "expected"),
    [
        pytest.param(2, (("n1",), ("n2",)), 2, id="no room at all"),
        pytest.param(3, (("n1",), ("n2",)), 0, id="room for one at a time"),
        pytest.param(3, (("n1", "n2"),), 1, id="no room for both"),
        pytest.param(4, (("n1", "n2"),), 0, id="room for both"),
    ],
)
def test_quotas_count_the_newcomers_of_one_wave(room: int, waves: preflight.Waves, expected: int) -> None:
    found = findings(two_singles([quota(room)]), ("n1", "n2"), waves=waves)
    assert coded(found) == [("blocker", "quota_forbids_surge")] * expected


def test_a_limit_range_that_a_newcomer_would_break() -> None:
    template = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"cpu": "2"}}}]}}
    limits: Raw = {
        "metadata": {"name": "small", "namespace": "shop"},
        "spec": {"limits": [{"type": "Container", "max": {"cpu": "1"}}]},
    }
    top = deployment("web", 1, template=template)
    top["replica_sets"][0]["spec"]["template"] = template
    found = findings(snapshot(top, pods=[pod("web-0", owner=WEB)], limits=[limits]))
    assert coded(found) == [("blocker", "limit_range_forbids_surge")]


@pytest.mark.parametrize(("replicas", "blocked"), [(1, True), (3, True)])
def test_neither_newcomer_nor_guard_in_a_namespace_that_goes(replicas: int, blocked: bool) -> None:
    found = findings(web(replicas), terminating=frozenset({"shop"}))
    assert coded(found) == [("blocker", "namespace_terminating")]


def test_an_eviction_needs_nothing_new_in_a_namespace_that_goes() -> None:
    assert findings(web(3, budgets=[budget("b", 1)]), terminating=frozenset({"shop"})) == ()
