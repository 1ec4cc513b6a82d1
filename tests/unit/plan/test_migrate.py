# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.node_records import Record, Step
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.pod_plan import Choices, PodPlan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.routes.migrate import left_to_move, routes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap.surge_records import Leaver, Surge
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.objects import (
    TOLERATES_ALL,
    Raw,
    budget,
    claim,
    deployment,
    mounts,
    node,
    on_hosts,
    owned,
    pod,
    snapshot,
    workload,
)

NOW = "2026-01-02T00:00:00.000Z"
SCRATCH: list[Raw] = [{"name": "scratch", "emptyDir": {}}]
CONSENT = {names.ALLOW_INTERRUPTION: "true"}
NEVER: Raw = {"rule": {"maxUnavailable": 0}, "desired": 3}


def only(found: Snapshot, choices: Choices | None = None, nodes: tuple[str, ...] = ("n1",)) -> PodPlan:
    plans = routes(found, nodes, choices or Choices(), now=NOW)
    assert len(plans) == 1
    return plans[0]


def on_its_own(**changes: t.Any) -> Snapshot:
    """One pod, of nobody unless `owner` says so."""
    return snapshot(pods=[pod("p", **changes)])


def daemon(**changes: t.Any) -> Raw:
    return pod("p", owner=owned("DaemonSet", "agent"), **changes)


AGENT: Raw = {"metadata": {"name": "agent", "namespace": "shop", "uid": "uid-DaemonSet-agent"}, "spec": {}}
MIRROR = {names.MIRROR: "hash"}
JOB = owned("Job", "import", "batch/v1")
OPERATOR = owned("Database", "main", "example.org/v1")


@pytest.mark.parametrize(
    ("found", "choices", "route", "code"),
    [
        pytest.param(on_its_own(annotations=MIRROR), Choices(), "skip", "mirror", id="mirror"),
        pytest.param(
            on_its_own(annotations=MIRROR, volumes=SCRATCH, tolerations=[TOLERATES_ALL]),
            Choices(pod_selector="app=other"),
            "skip",
            "mirror",
            id="a mirror is a mirror whatever else it is",
        ),
        pytest.param(snapshot(pods=[daemon()], daemon_sets=[AGENT]), Choices(), "skip", "daemonset", id="daemonset"),
        pytest.param(
            snapshot(pods=[daemon(volumes=SCRATCH)], daemon_sets=[AGENT]),
            Choices(),
            "skip",
            "daemonset",
            id="daemonset with emptyDir",
        ),
        pytest.param(
            snapshot(pods=[daemon(tolerations=[TOLERATES_ALL])], daemon_sets=[AGENT]),
            Choices(),
            "skip",
            "daemonset",
            id="a tolerant daemonset is a daemonset",
        ),
        pytest.param(
            snapshot(pods=[daemon()], daemon_sets=[AGENT]),
            Choices(ignore_daemonsets=False, force=True),
            "refuse",
            "daemonset",
            id="daemonset not ignored",
        ),
        pytest.param(snapshot(pods=[daemon()]), Choices(), "refuse", "daemonset_gone", id="daemonset gone"),
        pytest.param(
            snapshot(pods=[daemon()]), Choices(force=True), "evict", "daemonset_gone", id="daemonset gone, force"
        ),
        pytest.param(
            snapshot(pods=[daemon(phase="Failed", ready=False)]),
            Choices(),
            "evict",
            "finished",
            id="finished pod of a daemonset that is gone",
        ),
        pytest.param(on_its_own(), Choices(namespaces=("bank",)), "skip", "not_selected", id="other namespace"),
        pytest.param(on_its_own(), Choices(namespaces=("shop",)), "refuse", "bare_pod", id="its namespace"),
        pytest.param(on_its_own(), Choices(pod_selector="app!=web"), "skip", "not_selected", id="not matched"),
        pytest.param(on_its_own(), Choices(pod_selector="app in (web)"), "refuse", "bare_pod", id="matched"),
        pytest.param(on_its_own(deleting="2026-01-03T00:00:00Z"), Choices(), "wait", "terminating", id="terminating"),
        pytest.param(
            on_its_own(deleting="2026-01-01T00:00:00Z"), Choices(force=True), "wait", "stuck_terminating", id="late"
        ),
        pytest.param(
            on_its_own(deleting="2026-01-03T00:00:00Z", finalizers=["example.org/hold"]),
            Choices(force=True),
            "wait",
            "stuck_terminating",
            id="held by a finalizer",
        ),
        pytest.param(
            on_its_own(deleting="2026-01-03T00:00:00Z", finalizers=["batch.kubernetes.io/job-tracking"], owner=JOB),
            Choices(),
            "wait",
            "terminating",
            id="the Job controller's finalizer goes by itself",
        ),
        pytest.param(
            on_its_own(phase="Succeeded", ready=False, volumes=SCRATCH),
            Choices(),
            "evict",
            "finished",
            id="finished bare pod with emptyDir",
        ),
        pytest.param(
            on_its_own(phase="Failed", ready=False, owner=JOB), Choices(), "evict", "finished", id="finished job"
        ),
        pytest.param(on_its_own(owner=JOB), Choices(), "wait", "job", id="job"),
        pytest.param(on_its_own(owner=JOB, phase="Pending", ready=False), Choices(), "wait", "job", id="job to start"),
        pytest.param(on_its_own(owner=JOB, volumes=SCRATCH), Choices(), "wait", "job", id="job with emptyDir"),
        pytest.param(
            on_its_own(owner=JOB), Choices(allow_interruption=True), "evict", "interruption_allowed", id="job, allowed"
        ),
        pytest.param(
            on_its_own(owner=JOB, annotations=CONSENT),
            Choices(),
            "evict",
            "interruption_allowed",
            id="job, allowed by its own annotation",
        ),
        pytest.param(
            on_its_own(owner=JOB, volumes=SCRATCH),
            Choices(allow_interruption=True),
            "wait",
            "job",
            id="job with emptyDir, allowed",
        ),
        pytest.param(
            on_its_own(owner=JOB, volumes=SCRATCH),
            Choices(allow_interruption=True, delete_emptydir_data=True),
            "evict",
            "interruption_allowed",
            id="job with emptyDir, both allowed",
        ),
        pytest.param(
            snapshot(pods=[pod("p", owner=JOB)], budgets=[budget("b", 0, **NEVER)]),
            Choices(allow_interruption=True),
            "wait",
            "job",
            id="consent does not override a job's budget",
        ),
        pytest.param(on_its_own(), Choices(), "refuse", "bare_pod", id="bare"),
        pytest.param(on_its_own(), Choices(force=True), "evict", "bare_pod", id="bare, force"),
        pytest.param(on_its_own(phase="Pending", ready=False), Choices(), "refuse", "bare_pod", id="bare to start"),
        pytest.param(on_its_own(volumes=SCRATCH), Choices(), "refuse", "bare_pod", id="bare with emptyDir"),
        pytest.param(
            on_its_own(volumes=SCRATCH), Choices(force=True), "refuse", "emptydir", id="bare with emptyDir, force"
        ),
        pytest.param(
            on_its_own(volumes=SCRATCH),
            Choices(delete_emptydir_data=True),
            "refuse",
            "bare_pod",
            id="bare with emptyDir, data may go",
        ),
        pytest.param(
            on_its_own(volumes=SCRATCH),
            Choices(force=True, delete_emptydir_data=True),
            "evict",
            "bare_pod",
            id="bare with emptyDir, both",
        ),
        pytest.param(
            on_its_own(owner=OPERATOR, phase="Pending", ready=False, volumes=SCRATCH),
            Choices(),
            "evict",
            "pending",
            id="not started",
        ),
        pytest.param(on_its_own(owner=OPERATOR), Choices(), "refuse", "not_surgeable", id="unknown owner, alone"),
        pytest.param(
            on_its_own(owner=OPERATOR, annotations=CONSENT),
            Choices(),
            "evict",
            "interruption_allowed",
            id="unknown owner, alone, allowed on the pod",
        ),
        pytest.param(
            snapshot(pods=[pod("p", owner=OPERATOR), pod("q", "n2", OPERATOR)]),
            Choices(),
            "evict",
            "replicas",
            id="unknown owner, another serves",
        ),
        pytest.param(
            snapshot(pods=[pod("p", owner=OPERATOR), pod("q", "n2", OPERATOR, ready=False)]),
            Choices(),
            "refuse",
            "not_surgeable",
            id="unknown owner, another does not serve",
        ),
        pytest.param(
            on_its_own(owner=OPERATOR, ready=False), Choices(), "evict", "not_ready", id="unknown owner, not ready"
        ),
    ],
)
def test_pods_without_a_known_workload(found: Snapshot, choices: Choices, route: str, code: str) -> None:
    plan = only(found, choices)
    assert (plan.route, plan.code) == (route, code)
    assert plan.reason.endswith(".")
    assert bool(plan.remedy) or plan.route != "refuse"


WEB = owned("ReplicaSet", "web")


def web(
    replicas: int, *, here: int = 1, pod_changes: Raw | None = None, spec: Raw | None = None, **kinds: list[Raw]
) -> Snapshot:
    """Deployment `web`, `here` of its pods on n1 (with `pod_changes`), the others on n2."""
    pods = [
        pod(f"web-{i}", "n1" if i < here else "n2", WEB, **(pod_changes or {} if i < here else {}))
        for i in range(replicas)
    ]
    return snapshot(deployment("web", replicas, **(spec or {})), pods=pods, **kinds)


RECREATE: Raw = {"strategy": {"type": "Recreate"}}
ALWAYS: Raw = {"policy": "AlwaysAllow"}
RWO: t.Any = {
    "claims": [claim("data", "pv", ("ReadWriteOnce",))],
    "volumes": [{"metadata": {"name": "pv"}, "spec": {}}],
}


@pytest.mark.parametrize(
    ("found", "choices", "route", "code"),
    [
        pytest.param(web(1), Choices(), "swap", "single_replica", id="one replica"),
        pytest.param(
            web(1, budgets=[budget("b", 0, healthy=1, desired=1)]),
            Choices(),
            "swap",
            "single_replica",
            id="one replica, whatever its budget says",
        ),
        pytest.param(web(1, pod_changes={"volumes": SCRATCH}), Choices(), "refuse", "emptydir", id="emptyDir"),
        pytest.param(
            web(1, pod_changes={"volumes": SCRATCH}),
            Choices(delete_emptydir_data=True),
            "swap",
            "single_replica",
            id="emptyDir, allowed",
        ),
        pytest.param(web(1, pod_changes={"ready": False}), Choices(), "evict", "not_ready", id="not ready"),
        pytest.param(
            web(1, pod_changes={"ready": False}, budgets=[budget("b", 0, healthy=0, desired=1, expected=1)]),
            Choices(),
            "evict",
            "unhealthy_blocked",
            id="not ready, and its budget holds it",
        ),
        pytest.param(
            web(1, pod_changes={"ready": False}, budgets=[budget("b", 0, healthy=0, desired=1, expected=1, **ALWAYS)]),
            Choices(),
            "evict",
            "not_ready",
            id="not ready, AlwaysAllow",
        ),
        pytest.param(
            web(3, pod_changes={"ready": False}, budgets=[budget("b", 0, healthy=2, desired=2, expected=3)]),
            Choices(),
            "evict",
            "not_ready",
            id="not ready, enough others are",
        ),
        pytest.param(
            web(1, pod_changes={"phase": "Pending", "ready": False}), Choices(), "evict", "pending", id="to start"
        ),
        pytest.param(web(1, spec=RECREATE), Choices(), "refuse", "recreate", id="recreate"),
        pytest.param(
            web(1, spec=RECREATE),
            Choices(allow_interruption=True),
            "evict",
            "interruption_allowed",
            id="recreate, allowed",
        ),
        pytest.param(
            web(1, spec={**RECREATE, "annotations": CONSENT}),
            Choices(),
            "evict",
            "interruption_allowed",
            id="recreate, allowed by its owner",
        ),
        pytest.param(
            web(1, spec={**RECREATE, "annotations": {names.ALLOW_INTERRUPTION: "yes"}}),
            Choices(),
            "refuse",
            "recreate",
            id="only the value true is a consent",
        ),
        pytest.param(
            web(1, spec=RECREATE, budgets=[budget("b", 0, healthy=1, desired=1)]),
            Choices(allow_interruption=True),
            "refuse",
            "budget_allows_nothing",
            id="consent does not override a budget",
        ),
        pytest.param(
            web(1, spec=RECREATE, budgets=[budget("b", 1, healthy=1, desired=0)]),
            Choices(allow_interruption=True),
            "evict",
            "interruption_allowed",
            id="consent under a budget with room",
        ),
        pytest.param(
            web(1, pod_changes={"volumes": mounts("data")}, **RWO),
            Choices(),
            "refuse",
            "volume_single_node",
            id="ReadWriteOnce",
        ),
        pytest.param(
            snapshot(deployment("web", 0), pods=[pod("left", owner=WEB)]),
            Choices(),
            "evict",
            "scaled_down",
            id="scaled to 0",
        ),
        pytest.param(web(3), Choices(), "evict", "guarded", id="three, no budget"),
        pytest.param(web(3, spec=RECREATE), Choices(), "evict", "guarded", id="three, Recreate, no budget"),
        pytest.param(web(3, budgets=[budget("b", 1)]), Choices(), "evict", "replicas", id="three, room"),
        pytest.param(
            web(3, budgets=[budget("b", 0, healthy=2, desired=2, expected=3)]),
            Choices(),
            "evict",
            "replicas",
            id="three, spent for the moment",
        ),
        pytest.param(
            web(3, budgets=[budget("b", 0, observed=False)]), Choices(), "evict", "replicas", id="three, not observed"
        ),
        pytest.param(
            web(3, budgets=[budget("b", 0, **NEVER)]), Choices(), "refuse", "budget_allows_nothing", id="three, never"
        ),
        pytest.param(
            web(3, budgets=[budget("b", 0, healthy=3, desired=3)]),
            Choices(allow_interruption=True),
            "refuse",
            "budget_allows_nothing",
            id="three, minAvailable 3",
        ),
        pytest.param(
            web(3, budgets=[budget("b", 0, **NEVER)]),
            Choices(swap_blocked=True),
            "swap",
            "swap_blocked",
            id="three, never, swap_blocked",
        ),
        pytest.param(
            web(3, pod_changes={"volumes": mounts("data")}, budgets=[budget("b", 0, **NEVER)], **RWO),
            Choices(swap_blocked=True),
            "refuse",
            "budget_allows_nothing",
            id="three, never, and no swap either",
        ),
        pytest.param(
            web(3, budgets=[budget("b", 1), budget("c", 1)]), Choices(), "refuse", "two_budgets", id="two budgets"
        ),
        pytest.param(
            web(1, budgets=[budget("b", 1), budget("c", 1)]),
            Choices(allow_interruption=True),
            "refuse",
            "two_budgets",
            id="two budgets on one replica",
        ),
        pytest.param(
            web(3, pod_changes={"phase": "Pending", "ready": False}, budgets=[budget("b", 1), budget("c", 1)]),
            Choices(),
            "evict",
            "pending",
            id="two budgets, not started",
        ),
        pytest.param(
            web(3, budgets=[budget("b", 1), budget(names.guard_name("x"), 0, **NEVER)]),
            Choices(),
            "evict",
            "replicas",
            id="our guard beside a budget counts for nothing",
        ),
        pytest.param(
            web(3, budgets=[budget(names.guard_name("x"), 0, **NEVER)]), Choices(), "evict", "guarded", id="our guard"
        ),
        pytest.param(
            web(3, budgets=[budget("b", 0, **NEVER)]),
            Choices(disable_eviction=True, force=True),
            "evict",
            "disable_eviction",
            id="deleted, whatever its budget",
        ),
        pytest.param(
            web(3), Choices(disable_eviction=True, force=True), "evict", "disable_eviction", id="deleted without guard"
        ),
        pytest.param(
            web(1), Choices(disable_eviction=True, force=True), "swap", "single_replica", id="swapped, not deleted"
        ),
        pytest.param(
            web(3, budgets=[budget("b", 0, **NEVER)]),
            Choices(reactive_budgets=("app=web",)),
            "evict",
            "reactive_budget",
            id="reactive",
        ),
    ],
)
def test_pods_of_a_deployment(found: Snapshot, choices: Choices, route: str, code: str) -> None:
    plan = only(found, choices)
    assert (plan.route, plan.code) == (route, code)
    assert str(plan.workload) == "Deployment shop/web"
    assert plan.guarded == (code == "guarded")


DB = owned("StatefulSet", "web")


@pytest.mark.parametrize(
    ("replicas", "choices", "route", "code"),
    [
        (1, Choices(), "refuse", "stateful_single"),
        (1, Choices(allow_interruption=True), "evict", "interruption_allowed"),
        (3, Choices(), "evict", "guarded"),
        (3, Choices(swap_blocked=True), "evict", "guarded"),
    ],
)
def test_pods_of_a_stateful_set(replicas: int, choices: Choices, route: str, code: str) -> None:
    pods = [pod("web-0", owner=DB), *(pod(f"web-{i}", "n2", DB) for i in range(1, replicas))]
    plan = only(snapshot(stateful_sets=[workload("StatefulSet", "web", replicas)], pods=pods), choices)
    assert (plan.route, plan.code) == (route, code)


def test_a_replica_set_without_deployment_is_a_workload_of_its_own() -> None:
    plan = only(snapshot(replica_sets=[workload("ReplicaSet", "web", 1)], pods=[pod("p", owner=WEB)]))
    assert (plan.route, str(plan.workload)) == ("swap", "ReplicaSet shop/web")


def surged(leaving: tuple[str, ...], prior: int) -> Raw:
    """The lease of a surge of Deployment `web`."""
    surge = Surge(
        "apps/v1",
        "Deployment",
        "shop",
        "web",
        "uid-Deployment-web",
        prior,
        prior + len(leaving),
        {"n1": "uid-n1"},
        {f"uid-{name}": Leaver(name, None) for name in leaving},
        "r1",
        "ann",
        NOW,
    )
    meta = {"name": names.surge_name(surge.uid), "annotations": {names.SURGE: surge.dump()}}
    return {"metadata": meta, "spec": {"holderIdentity": "r1/n"}}


@pytest.mark.parametrize(
    ("found", "leaving", "prior", "route", "code"),
    [
        pytest.param(web(2), ("web-0",), 1, "swap", "single_replica", id="prepared, one replica"),
        pytest.param(web(2), ("gone",), 1, "swap", "single_replica", id="prepared for another pod"),
        pytest.param(web(4), ("web-0",), 3, "swap", "swap_blocked", id="prepared, three replicas"),
        pytest.param(web(4), ("gone",), 3, "evict", "guarded", id="three replicas, prepared for another pod"),
        pytest.param(
            web(2, pod_changes={"ready": False}), ("web-0",), 1, "evict", "not_ready", id="prepared, not ready any more"
        ),
        pytest.param(
            web(2, pod_changes={"tolerations": [TOLERATES_ALL]}),
            ("web-0",),
            1,
            "swap",
            "single_replica",
            id="prepared and tolerant",
        ),
    ],
)
def test_a_surge_counts_with_the_replicas_before_it(
    found: Snapshot, leaving: tuple[str, ...], prior: int, route: str, code: str
) -> None:
    plan = only(replace(found, leases=(surged(leaving, prior),)))
    assert (plan.route, plan.code) == (route, code)


def test_a_deployment_in_the_middle_of_a_rollout_is_not_swapped() -> None:
    newer = workload("ReplicaSet", "newer", 1, owned("Deployment", "web"))
    found = snapshot(deployment("web", 1), pods=[pod("p", owner=WEB)], replica_sets=[newer])
    assert only(found).code == "rollout_in_progress"


LOCAL: Raw = {"metadata": {"name": "pv"}, "spec": {"local": {"path": "/disk"}, "nodeAffinity": on_hosts("n1")}}
HOST: Raw = {"metadata": {"name": "pv"}, "spec": {"hostPath": {"path": "/disk"}}}
BOUND: Raw = {"metadata": {"name": "pv"}, "spec": {"csi": {}, "nodeAffinity": on_hosts("n1")}}
BOTH: Raw = {"metadata": {"name": "pv"}, "spec": {"csi": {}, "nodeAffinity": on_hosts("n1", "n2")}}


@pytest.mark.parametrize(
    ("volume", "choices", "route", "code"),
    [
        pytest.param(LOCAL, Choices(), "refuse", "local_volume", id="local"),
        pytest.param(HOST, Choices(), "refuse", "local_volume", id="hostPath"),
        pytest.param(BOUND, Choices(), "refuse", "local_volume", id="bound to this node"),
        pytest.param(LOCAL, Choices(force=True), "refuse", "local_volume", id="force is no consent"),
        pytest.param(LOCAL, Choices(allow_interruption=True), "evict", "local_volume", id="allowed"),
        pytest.param(BOTH, Choices(), "evict", "guarded", id="bound to two nodes"),
        pytest.param(None, Choices(), "evict", "guarded", id="not bound yet"),
    ],
)
def test_local_volumes(volume: Raw | None, choices: Choices, route: str, code: str) -> None:
    found = web(
        3,
        pod_changes={"volumes": mounts("data")},
        claims=[claim("data", "pv")],
        volumes=[volume] if volume else [],
    )
    plan = only(found, choices)
    assert (plan.route, plan.code) == (route, code)


@pytest.mark.parametrize(
    ("me", "route"),
    [
        (Ref("Pod", "web-0", "shop", "uid-web-0"), "refuse"),
        (Ref("Pod", "web-0", "shop"), "refuse"),
        (Ref("Pod", "web-0"), "refuse"),
        (Ref("Pod", "web-0", "shop", "uid-of-another-cluster"), "evict"),
        (Ref("Pod", "web-0", "bank"), "evict"),
        (Ref("Pod", "web-1", "shop"), "evict"),
        (None, "evict"),
    ],
)
def test_the_pod_that_runs_this_play_is_never_moved(me: Ref | None, route: str) -> None:
    plan = only(web(3), Choices(self_pod=me, force=True, allow_interruption=True))
    assert plan.route == route
    assert (plan.code == "self_on_node") == (route == "refuse")


OURS: Raw = {"key": names.TAINT_KEY, "operator": "Exists", "effect": "NoSchedule"}
CORDON: Raw = {"key": names.UNSCHEDULABLE_TAINT, "operator": "Exists", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("tolerations", "tolerant"),
    [
        ([TOLERATES_ALL], True),
        ([{"operator": "Exists", "effect": ""}], True),
        ([{"operator": "Exists", "effect": "NoSchedule"}], True),
        ([{"operator": "Exists", "effect": "NoExecute"}], False),
        ([OURS], False),
        ([CORDON], False),
        ([OURS, CORDON], True),
        ([], False),
    ],
)
def test_who_tolerates_the_maintenance(tolerations: list[Raw], tolerant: bool) -> None:
    plan = only(web(3, pod_changes={"tolerations": tolerations}))
    assert plan.tolerant == tolerant
    assert plan.code == ("tolerates_maintenance" if tolerant else "guarded")
    assert plan.guarded


def held(since: str, taint: bool = True, step: Step = "cordoned") -> Raw:
    added = ({"key": names.TAINT_KEY, "value": "r1", "effect": "NoSchedule"},) if taint else ()
    record = Record("r1", "n", "ann", "", since, step, "uid-n1", "", {}, added)
    return node("n1", annotations={names.RECORD: record.dump()})


@pytest.mark.parametrize(
    ("step", "known", "route"),
    [
        pytest.param("cordoned", None, "evict", id="there from the beginning, asked before"),
        pytest.param("cordoned", {"uid-p"}, "evict", id="there from the beginning"),
        pytest.param("cordoned", {"uid-of-its-predecessor"}, "skip", id="came back"),
        pytest.param("drained", None, "skip", id="came back, in an earlier call"),
    ],
)
@pytest.mark.parametrize("since", ["2020-01-01T00:00:00Z", "2038-01-01T00:00:00Z"])
def test_a_tolerant_pod_is_moved_at_most_once_whatever_our_clock_says(
    since: str, step: Step, known: set[str] | None, route: str
) -> None:
    pods = [pod("p", owner=WEB, tolerations=[TOLERATES_ALL]), pod("q", "n2", WEB)]
    found = snapshot(deployment("web", 2), pods=pods, nodes=[held(since, step=step), node("n2")])
    (plan,) = routes(found, {"n1"}, Choices(), known=None if known is None else frozenset(known))
    assert (plan.route, plan.code) == (route, "tolerates_maintenance")


def test_without_our_taint_the_cordon_alone_decides() -> None:
    pods = [pod("p", owner=WEB, tolerations=[CORDON]), pod("q", "n2", WEB)]
    found = snapshot(deployment("web", 2), pods=pods, nodes=[held("2026-01-02T00:00:00Z", taint=False), node("n2")])
    assert only(found).tolerant


@pytest.mark.parametrize(
    ("found", "choices", "route", "code"),
    [
        pytest.param(
            web(1, pod_changes={"tolerations": [TOLERATES_ALL]}),
            Choices(),
            "skip",
            "tolerates_maintenance",
            id="it stays where a swap could not help",
        ),
        pytest.param(
            on_its_own(tolerations=[TOLERATES_ALL]), Choices(), "refuse", "bare_pod", id="bare is refused as ever"
        ),
        pytest.param(
            on_its_own(tolerations=[TOLERATES_ALL], phase="Failed"), Choices(), "evict", "finished", id="finished"
        ),
        pytest.param(on_its_own(tolerations=[TOLERATES_ALL], owner=JOB), Choices(), "wait", "job", id="job"),
    ],
)
def test_tolerant_pods_that_cannot_simply_be_evicted(found: Snapshot, choices: Choices, route: str, code: str) -> None:
    plan = only(found, choices)
    assert (plan.route, plan.code) == (route, code)


def test_two_budgets_are_both_named() -> None:
    plan = only(web(3, budgets=[budget("b", 1), budget("c", 1)]))
    assert "PodDisruptionBudget shop/b" in plan.reason
    assert "PodDisruptionBudget shop/c" in plan.reason


def test_a_budget_that_allows_nothing_is_named_with_its_rule_and_the_remedies() -> None:
    plan = only(web(3, budgets=[budget("b", 0, **NEVER)]))
    assert "PodDisruptionBudget shop/b" in plan.reason
    assert "maxUnavailable: 0" in plan.reason
    assert "swap_blocked" in plan.remedy
    assert [str(ref) for ref in plan.budgets] == ["PodDisruptionBudget shop/b"]


def test_only_pods_on_the_nodes_have_a_route() -> None:
    found = web(3, here=2)
    assert [plan.pod.name for plan in routes(found, ["n1"], Choices())] == ["web-0", "web-1"]
    assert routes(found, ["n3"], Choices()) == ()


def test_a_selector_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="label selector"):
        routes(web(1), ["n1"], Choices(pod_selector="app web"))


@pytest.mark.parametrize(
    ("found", "choices", "left"),
    [
        pytest.param(on_its_own(annotations=MIRROR), Choices(), False, id="mirror"),
        pytest.param(snapshot(pods=[daemon()], daemon_sets=[AGENT]), Choices(), False, id="daemonset"),
        pytest.param(snapshot(pods=[daemon()]), Choices(), True, id="daemonset gone"),
        pytest.param(on_its_own(), Choices(), True, id="bare"),
        pytest.param(on_its_own(), Choices(namespaces=("bank",)), True, id="not looked at"),
        pytest.param(on_its_own(deleting="2026-01-03T00:00:00Z"), Choices(), True, id="ending"),
        pytest.param(web(1, pod_changes={"tolerations": [TOLERATES_ALL]}), Choices(), False, id="tolerant, stays"),
        pytest.param(web(3, pod_changes={"tolerations": [TOLERATES_ALL]}), Choices(), False, id="tolerant, came back"),
        pytest.param(on_its_own(owner=JOB), Choices(), True, id="job"),
    ],
)
def test_what_keeps_a_node_from_being_drained(found: Snapshot, choices: Choices, left: bool) -> None:
    assert bool(left_to_move(found, {"n1"}, choices)) == left
