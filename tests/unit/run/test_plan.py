# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `maintenance_plan` asks of the API server and what it makes of the answers.

The cluster is a set of objects in memory; what a real one answers is shown on the lab.
"""

from __future__ import annotations

import types
import typing as t
from dataclasses import dataclass, field

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.client import Listing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.clock import Clock
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import Forbidden, NotFound
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.migrate import Choices
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.record import Record, Step
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.snapshot import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run import gates
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import (
    Context,
    Result,
    Run,
    StopRun,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.owners import merged, scalable
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.plan import PlanOptions, make_plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.state import StateOptions, state
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.objects import (
    Raw,
    budget,
    claim,
    deployment,
    mounts,
    node,
    owned,
    pod,
    snapshot,
)


@dataclass
class Objects:
    """Just enough of an API server: lists by plural, reads by path, and who may do what.

    ``denied`` holds ``verb plural`` (everywhere) or ``verb plural namespace``; ``asked`` every request.
    """

    lists: dict[str, list[Raw]]
    reads: dict[str, Raw] = field(default_factory=dict)
    denied: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    requests: int = 0

    def items(self, kind: kinds.Kind, namespace: str = "", **_options: t.Any) -> Listing:
        self.asked.append(f"list {kind.resource}")
        if f"list {kind.plural}" in self.denied:
            request = Request("GET", "/", verb="list", resource=kind.resource)
            raise Forbidden(f"{kind.plural} is forbidden", request=request, status=403)
        found = self.lists.get(kind.plural, [])
        return Listing([raw for raw in found if namespace in ("", raw["metadata"].get("namespace"))], "1")

    def send(self, request: Request, **_options: t.Any) -> Raw:
        if request.resource == kinds.SELF_SUBJECT_ACCESS_REVIEWS.resource:
            return self._review(request.body or {})
        self.asked.append(f"{request.verb} {request.path}")
        if f"{request.verb} {request.resource.partition('.')[0]}" in self.denied:
            raise Forbidden("may not", request=request, status=403)
        if request.path not in self.reads:
            raise NotFound("not there", request=request, status=404)
        return self.reads[request.path]

    def _review(self, body: t.Mapping[str, t.Any]) -> Raw:
        wanted = body["spec"]["resourceAttributes"]
        resource = "/".join(part for part in (wanted["resource"], wanted.get("subresource")) if part)
        namespace = wanted.get("namespace", "")
        self.asked.append(f"may {wanted['verb']} {resource} {namespace}".strip())
        what = f"{wanted['verb']} {resource}"
        allowed = f"{what} {namespace}" not in self.denied if namespace else what not in self.denied
        return {"status": {"allowed": allowed}}


NODES = [node("n1", labels={"pool": "a"}), node("n2"), node("n3")]
OURS: Raw = {"metadata": {"name": names.NAMESPACE}, "status": {"phase": "Active"}}
WEB = owned("ReplicaSet", "web")


def cluster(*, nodes: list[Raw] | None = None, pods: list[Raw] | None = None, **more: list[Raw]) -> Objects:
    return Objects({"nodes": nodes or NODES, "pods": pods or [], "namespaces": [OURS], **more})


def web(replicas: int, **more: list[Raw]) -> Objects:
    made = deployment("web", replicas)
    pods = [pod(f"web-{i}", "n1" if i == 0 else "n2", WEB) for i in range(replicas)]
    return cluster(pods=pods, deployments=made["deployments"], replicasets=made["replica_sets"], **more)


def plan(found: Objects, run: str | None = None, **options: t.Any) -> Result:
    options.setdefault("nodes", ("n1",))
    ctx = Context(t.cast("t.Any", found), run=Run.parse(run), by="ann@desk")
    return make_plan(ctx, PlanOptions(**options))


def codes(result: Result) -> list[str]:
    return [finding["code"] for finding in result.data["findings"]]


@pytest.mark.parametrize("fence", ["absent", "unknown"])
def test_whether_the_server_holds_a_fence_is_told(fence: str) -> None:
    found = web(1)
    if fence == "unknown":
        found.denied.add("get validatingadmissionpolicies")
    assert plan(found).data["fence"] == fence


def test_the_shape_of_a_plan() -> None:
    result = plan(web(1))
    assert not result.failed
    assert result.data["feasible"]
    assert result.data["waves"] == [["n1"]]
    assert result.data["estimate_seconds"] > 0
    assert [(n["name"], n["outcome"]) for n in result.data["nodes"]] == [("n1", "planned")]
    (moved,) = result.data["pods"]
    assert {key: moved[key] for key in ("namespace", "name", "uid", "node", "owner", "route", "fits", "target")} == {
        "namespace": "shop",
        "name": "web-0",
        "uid": "uid-web-0",
        "node": "n1",
        "owner": "Deployment shop/web",
        "route": "swap",
        "fits": None,
        "target": None,
    }


@pytest.mark.parametrize(
    ("found", "listed", "left_out"),
    [
        pytest.param(
            cluster(),
            {"pods"},
            {"deployments.apps", "daemonsets.apps", "persistentvolumes", "resourcequotas"},
            id="bare",
        ),
        pytest.param(web(1), {"deployments.apps", "resourcequotas", "limitranges"}, {"statefulsets.apps"}, id="swap"),
        pytest.param(
            web(3, poddisruptionbudgets=[budget("b", 1)]),
            {"horizontalpodautoscalers.autoscaling"},
            {"resourcequotas", "persistentvolumes"},
            id="evictions",
        ),
        pytest.param(
            cluster(pods=[pod("p", volumes=mounts("data"))], persistentvolumeclaims=[claim("data", "pv")]),
            {"persistentvolumeclaims", "persistentvolumes"},
            {"resourcequotas"},
            id="a claim",
        ),
    ],
)
def test_each_kind_is_listed_once_and_only_where_it_matters(
    found: Objects, listed: set[str], left_out: set[str]
) -> None:
    plan(found)
    lists = [asked.removeprefix("list ") for asked in found.asked if asked.startswith("list ")]
    assert len(lists) == len(set(lists))
    assert listed <= set(lists)
    assert not left_out & set(lists)


def test_nothing_is_written() -> None:
    found = web(3)
    plan(found)
    assert all(asked.split()[0] in ("list", "get", "may") for asked in found.asked)


def test_nodes_by_selector() -> None:
    assert plan(cluster(), nodes=(), node_selector="pool=a").data["waves"] == [["n1"]]
    assert plan(cluster(), nodes=(), node_selector="!pool").data["waves"] == [["n2"], ["n3"]]


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"nodes": ("n1", "n9")}, "unknown_node"),
        ({"nodes": (), "node_selector": "pool=z"}, "selector_matches_nothing"),
    ],
)
def test_what_is_not_there_fails_the_call_and_keeps_its_shape(options: dict[str, t.Any], code: str) -> None:
    result = plan(cluster(), **options)
    assert result.failed
    assert code in codes(result)
    assert not result.data["feasible"]
    assert {"pods", "waves", "nodes", "estimate_seconds"} <= result.data.keys()
    assert result.message


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"nodes": ()}, "no_nodes"),
        ({"nodes": (), "node_selector": "pool a"}, "bad_selector"),
        ({"gates": ("ready", "redy")}, "unknown_gate"),
        ({"nodes": ("n9",), "gates": ("ready",)}, "unknown_node"),
    ],
)
def test_calls_that_cannot_be_meant(options: dict[str, t.Any], code: str) -> None:
    with pytest.raises(StopRun) as stopped:
        plan(cluster(), **options)
    assert stopped.value.code == code


def out(step: Step, lease: str = "kubeops-node-maintenance/node-n1") -> Raw:
    record = Record("r1", "n", "ann", "", "2026-01-01T00:00:00Z", step, "uid-n1", lease, {"bootID": "before"})
    return node("n1", annotations={names.RECORD: record.dump()}, unschedulable=True)


@pytest.mark.parametrize(
    ("step", "goal", "pods", "outcome"),
    [
        pytest.param("parked", "evacuated", [], "at_goal", id="out and empty"),
        pytest.param("parked", "evacuated", [pod("p")], "blocked", id="out, and a pod came"),
        pytest.param("parked", "maintained", [], "planned", id="parked is not maintained"),
        pytest.param("drained", "evacuated", [], "planned", id="drained is not yet left to itself"),
    ],
)
def test_nodes_at_their_goal_join_no_wave(step: Step, goal: str, pods: list[Raw], outcome: str) -> None:
    found = cluster(nodes=[out(step), node("n2")], pods=pods)
    result = plan(found, goal=goal)
    assert result.data["nodes"][0]["outcome"] == outcome
    assert result.data["waves"] == ([] if outcome == "at_goal" else [["n1"]])
    assert any(asked.startswith("may") for asked in found.asked) == (outcome != "at_goal")


def test_the_nonce_of_a_record_is_never_shown() -> None:
    shown = plan(cluster(nodes=[out("parked"), node("n2")])).data["nodes"][0]["record"]
    assert shown["run"] == "r1"
    assert "nonce" not in shown


def test_a_lock_in_another_namespace_is_found() -> None:
    lease = {
        "metadata": {"name": "node-n1", "namespace": "medik8s-leases"},
        "spec": {"holderIdentity": "r1/n", "renewTime": "2999-01-01T00:00:00Z", "leaseDurationSeconds": 15},
    }
    found = cluster(nodes=[out("drained", "medik8s-leases/node-n1"), node("n2")], leases=[lease])
    assert codes(plan(found)) == ["held"]
    assert codes(plan(found, run="r1/other")) == ["resumed"]


@pytest.mark.parametrize(
    ("denied", "message"),
    [
        ({"patch nodes"}, "patch nodes in the whole cluster"),
        ({"create pods/eviction", "create pods/eviction shop"}, "create pods/eviction in namespace shop"),
        ({"create pods/eviction"}, ""),
    ],
)
def test_missing_permissions_are_named(denied: set[str], message: str) -> None:
    found = web(3)
    found.denied = denied
    result = plan(found)
    assert codes(result) == (["missing_permission"] if message else [])
    assert not message or message in result.data["findings"][0]["message"]
    assert result.data["feasible"] == (not message)


def test_a_refused_list_is_named_together_with_all_that_is_missing() -> None:
    found = web(3)
    found.denied = {"list pods", "patch nodes", "list poddisruptionbudgets"}
    result = plan(found)
    assert result.failed
    assert "nodes" not in result.data
    assert [finding["object"] for finding in result.data["findings"]] == [
        "list pods",
        "list poddisruptionbudgets.policy",
        "patch nodes",
    ]


def test_what_every_playbook_begins_with_names_all_that_is_missing_too() -> None:
    """It comes before the plan: who lacks three rights does not learn of them one by one."""
    found = web(3)
    found.denied = {"list leases", "patch nodes", "create configmaps", "create configmaps kubeops-node-maintenance"}
    with pytest.raises(StopRun) as caught:
        state(Context(t.cast("t.Any", found)), StateOptions("listed"))
    assert caught.value.code == "missing_permission"
    told = str(caught.value)
    assert "may not list leases.coordination.k8s.io: " in told
    assert "may not patch nodes in the whole cluster" in told
    assert "may not create configmaps in namespace kubeops-node-maintenance" in told


def test_locks_in_the_namespace_of_medik8s_are_asked_for_there() -> None:
    found = web(3)
    found.lists["namespaces"].append({"metadata": {"name": "medik8s-leases"}, "status": {"phase": "Active"}})
    found.denied = {"patch leases", "patch leases medik8s-leases"}
    (finding,) = plan(found).data["findings"]
    assert "may not patch leases.coordination.k8s.io in namespace medik8s-leases" in finding["message"]


def test_quotas_that_may_not_be_read_are_said_to_be_unknown() -> None:
    found = web(1)
    found.denied = {"list resourcequotas"}
    result = plan(found)
    assert codes(result) == ["not_checked"]
    assert result.data["feasible"]


def test_namespaces_that_may_not_be_read_are_no_obstacle() -> None:
    found = web(1)
    found.denied = {"list namespaces"}
    assert codes(plan(found)) == []


def test_our_namespace_has_to_be_made_where_it_is_missing() -> None:
    found = web(1)
    found.lists["namespaces"] = []
    plan(found)
    assert "may create namespaces" not in found.asked
    found.lists["namespaces"] = [{"metadata": {"name": "shop"}, "status": {"phase": "Active"}}]
    plan(found)
    assert "may create namespaces" in found.asked


ROLLOUT = Ref("Rollout", "web", "shop", "uid-Rollout-web", "argoproj.io/v1alpha1")
RESOURCES: list[Raw] = [
    {"name": "rollouts", "kind": "Rollout", "namespaced": True},
    {"name": "rollouts/status", "kind": "Rollout", "namespaced": True},
    {"name": "rollouts/scale", "kind": "Scale", "namespaced": True},
    {"name": "analysisruns", "kind": "AnalysisRun", "namespaced": True},
]


def test_a_kind_is_scalable_when_discovery_says_so() -> None:
    found = scalable(RESOURCES, ROLLOUT)
    assert found == kinds.Kind("argoproj.io", "v1alpha1", "rollouts", "Rollout")
    assert scalable(RESOURCES, Ref("AnalysisRun", "x", api_version="argoproj.io/v1alpha1")) is None
    assert scalable([], ROLLOUT) is None


def scaled(replicas: int) -> Raw:
    return {"spec": {"replicas": replicas}, "status": {"replicas": replicas, "selector": "app=web"}}


@pytest.mark.parametrize(
    ("whole", "expected"),
    [
        ({"spec": {"size": 9}}, {"replicas": 2, "seen": 0, "selector": ["app"]}),
        (
            {"spec": {"replicas": 9, "selector": {"app": "x"}}, "status": {"observedGeneration": "7"}},
            {"replicas": 2, "seen": 7, "selector": ["app"]},
        ),
    ],
)
def test_the_scale_says_where_replicas_and_selector_are(whole: Raw, expected: Raw) -> None:
    found = merged(whole, scaled(2))
    assert found["spec"]["replicas"] == expected["replicas"]
    assert found["status"]["observedGeneration"] == expected["seen"]
    assert [e["key"] for e in found["spec"]["selector"]["matchExpressions"]] == expected["selector"]


PLACE = "/apis/argoproj.io/v1alpha1/namespaces/shop/rollouts/web"


@pytest.mark.parametrize(
    ("reads", "owner"),
    [
        pytest.param({}, "ReplicaSet shop/web", id="the group is gone"),
        pytest.param({"/apis/argoproj.io/v1alpha1": {"resources": RESOURCES}}, "ReplicaSet shop/web", id="it is gone"),
        pytest.param(
            {
                "/apis/argoproj.io/v1alpha1": {"resources": RESOURCES},
                f"{PLACE}/scale": scaled(3),
                PLACE: {
                    "metadata": {"name": "web", "namespace": "shop", "uid": "uid-Rollout-web", "generation": 1},
                    "status": {"observedGeneration": "1"},
                },
            },
            "Rollout shop/web",
            id="it is there",
        ),
        pytest.param(
            {
                "/apis/argoproj.io/v1alpha1": {"resources": RESOURCES},
                f"{PLACE}/scale": scaled(3),
                PLACE: {"metadata": {"name": "web", "namespace": "shop", "uid": "uid-of-a-namesake"}},
            },
            "ReplicaSet shop/web",
            id="a namesake is there",
        ),
    ],
)
def test_an_unknown_owner_is_resolved_by_its_scale(reads: dict[str, Raw], owner: str) -> None:
    made = deployment("web", 3)["replica_sets"]
    made[0]["metadata"]["ownerReferences"] = owned("Rollout", "web", "argoproj.io/v1alpha1")
    pods = [pod("web-0", "n1", WEB), pod("web-1", "n1", WEB), pod("web-2", "n2", WEB)]
    found = cluster(pods=pods, replicasets=made)
    found.reads = reads
    assert {moved["owner"] for moved in plan(found).data["pods"]} == {owner}
    assert sum(1 for asked in found.asked if asked == "get /apis/argoproj.io/v1alpha1") == 1


def test_the_pod_of_this_very_play_is_a_blocker() -> None:
    result = plan(web(3), choices=Choices(self_pod=Ref("Pod", "web-0", "shop")))
    assert codes(result) == ["self_on_node"]


# -- gates ------------------------------------------------------------------------------------------


def test_gates_without_waiting_take_one_look() -> None:
    found = cluster(nodes=[node("n1"), node("n2", conditions={"Ready": "False"})])
    result = plan(found, nodes=("n1", "n2"), gates=("ready", "pressure", "stable"))
    assert [(n["name"], n["outcome"]) for n in result.data["nodes"]] == [("n1", "passed"), ("n2", "failed")]
    assert result.failed
    assert codes(result) == ["not_ready"]
    assert "list pods" not in found.asked


@dataclass
class Ticks(Clock):
    """A clock that moves when the loop waits."""

    present: float = 0.0

    def now(self) -> float:
        return self.present

    def wall(self) -> str:
        return "2026-01-01T00:00:00.000Z"


@dataclass
class Script:
    """In place of the watches: what the cluster looks like at each second; the last view stays."""

    clock: Ticks
    views: list[Snapshot]

    def __call__(self, _ctx: Context, _watched: t.Collection[str]) -> Script:
        return self

    def __enter__(self) -> Script:
        return self

    def __exit__(self, kind: t.Any, error: t.Any, trace: types.TracebackType | None) -> None:
        return None

    def snapshot(self) -> Snapshot:
        return self.views[min(int(self.clock.present), len(self.views) - 1)]

    def wait(self, seconds: float) -> bool:
        self.clock.present += seconds
        return True


UP, DOWN = snapshot(), snapshot(nodes=[node("n1", conditions={"Ready": "False"}), node("n2"), node("n3")])


@pytest.mark.parametrize(
    ("views", "wanted", "timeout", "outcome", "seconds"),
    [
        pytest.param([UP], ("ready",), 60, "passed", 0, id="at once"),
        pytest.param([DOWN, DOWN, UP], ("ready",), 60, "passed", 2, id="when it is ready"),
        pytest.param([UP], ("ready", "stable"), 60, "passed", 5, id="when it held"),
        pytest.param([UP, UP, UP, DOWN, UP], ("ready", "stable"), 60, "passed", 9, id="when it held after a break"),
        pytest.param([DOWN], ("ready",), 7, "failed", 7, id="never"),
        pytest.param([UP], ("ready", "stable"), 3, "failed", 3, id="not long enough"),
        pytest.param([UP, snapshot(nodes=[node("n2")])], ("ready", "stable"), 3, "failed", 3, id="it went away"),
    ],
)
def test_gates_are_watched_until_they_are_passed(
    monkeypatch: pytest.MonkeyPatch,
    views: list[Snapshot],
    wanted: tuple[str, ...],
    timeout: float,
    outcome: str,
    seconds: float,
) -> None:
    clock = Ticks()
    monkeypatch.setattr(gates, "Live", Script(clock, views))
    ctx = Context(t.cast("t.Any", cluster()), clock=clock)
    asked = gates.Asked(("n1",), wanted, 5.0, True, timeout)
    result = gates.judge(ctx, UP, asked)
    assert (result.data["nodes"][0]["outcome"], clock.present) == (outcome, seconds)
    assert result.failed == (outcome == "failed")


def test_what_is_waited_for_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Ticks()
    monkeypatch.setattr(gates, "Live", Script(clock, [DOWN, DOWN, DOWN, UP]))
    ctx = Context(t.cast("t.Any", cluster()), clock=clock)
    gates.judge(ctx, UP, gates.Asked(("n1",), ("ready",), 0.0, True, None))
    assert [event.what for event in ctx.timeline] == ["waiting"]
