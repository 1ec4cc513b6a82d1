# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What `pod_migration_job` decides before its first write, and what it says of an incomplete Koordinator."""

from __future__ import annotations

import copy
import typing as t
from dataclasses import dataclass, field

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.client import Listing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import Forbidden, NotFound
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs.job import Wish, manifest
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs.targets import Selection
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context, Run, StopRun
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import JobOptions, State, jobs
from ansible_collections.kubeops.node_maintenance.tests.unit.plan import objects
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.objects import Raw

SPACE = "koordinator-system"
CONFIG = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerConfiguration
profiles:
  - name: koord-descheduler
    pluginConfig:
      - name: MigrationController
        args:
          namespaces: {exclude: [kube-system]}
"""
UP: Raw = {"status": {"readyReplicas": 1}}


@dataclass
class Fake:
    """Objects by kind for lists, and by place and name for single reads; writes are kept."""

    lists: dict[str, list[Raw]]
    single: dict[tuple[str, str, str], Raw] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    forbidden: tuple[str, ...] = ()
    writes: list[Raw] = field(default_factory=list)

    def _look(self, resource: str) -> None:
        plural = resource.partition(".")[0]
        request = Request("GET", "/", verb="get", resource=resource)
        if plural in self.unknown:
            raise NotFound("no such kind", request=request, status=404)
        if plural in self.forbidden:
            raise Forbidden("no", request=request, status=403)

    def items(self, kind: kinds.Kind, **_options: t.Any) -> Listing:
        self._look(kind.resource)
        return Listing(copy.deepcopy(self.lists.get(kind.plural, [])), "1")

    def send(self, request: Request, **_options: t.Any) -> Raw:
        self._look(request.resource)
        plural = request.resource.partition(".")[0]
        if request.writes:
            self.writes.append(dict(request.body or {}))
            return {**copy.deepcopy(dict(request.body or {})), "status": {}}
        if request.verb == "list":
            return {"items": []}
        found = self.single.get((plural, request.namespace, request.name))
        if found is None:
            raise NotFound("not there", request=request, status=404)
        return copy.deepcopy(found)


def fake(replicas: int = 2, **changes: t.Any) -> Fake:
    pods = [
        objects.pod(f"web-{i + 1}", f"n{i + 1}", objects.owned("ReplicaSet", "web"), requests={"cpu": "1"})
        for i in range(replicas)
    ]
    for pod in pods:
        pod["spec"]["schedulerName"] = changes.get("scheduler", "koord-scheduler")
    web = objects.deployment("web", replicas)
    lists = {
        "nodes": [objects.node("n1"), objects.node("n2")],
        "pods": pods,
        "deployments": web["deployments"],
        "replicasets": web["replica_sets"],
        "podmigrationjobs": changes.get("jobs", []),
    }
    single: dict[tuple[str, str, str], Raw] = {
        ("deployments", SPACE, "koord-descheduler"): UP,
        ("configmaps", SPACE, "koord-descheduler-config"): {"data": {"koord-descheduler-config": CONFIG}},
        **changes.get("single", {}),
    }
    single.update({("pods", "shop", pod["metadata"]["name"]): pod for pod in pods})
    return Fake(lists, single)


def ref(name: str, uid: str = "") -> Ref:
    return Ref("Pod", name, "shop", uid, "v1")


def run(cluster: Fake, check: bool = False, **options: t.Any) -> tuple[Raw, Context]:
    ctx = Context(t.cast("t.Any", cluster), check=check, run=Run("night"))
    options = {"selection": Selection((ref("web-1"),)), "wait": False, **options}
    return jobs(ctx, JobOptions(**options)).shaped(ctx), ctx


def codes(result: Raw) -> list[str]:
    return [finding["code"] for finding in result["findings"]]


def test_what_is_missing_has_a_message_of_its_own() -> None:
    said = {}
    cluster = fake()
    cluster.unknown = ("podmigrationjobs",)
    said["no_crd"] = run(cluster)[0]
    cluster = fake()
    cluster.unknown = ("reservations",)
    assert codes(run(cluster)[0]) == ["no_crd"]
    cluster = fake()
    del cluster.single["deployments", SPACE, "koord-descheduler"]
    said["no_controller"] = run(cluster)[0]
    said["no_scheduler"] = run(fake(single={("deployments", SPACE, "koord-scheduler"): {"status": {}}}))[0]
    assert {code: codes(result) for code, result in said.items()} == {code: [code] for code in said}
    assert all(result["failed"] and "jobs" not in result for result in said.values())
    assert len({result["msg"] for result in said.values()}) == 3


def test_a_descheduler_without_a_ready_pod_is_missing_and_where_it_may_not_be_read_it_is_believed() -> None:
    assert codes(run(fake(single={("deployments", SPACE, "koord-descheduler"): {"status": {}}}))[0]) == [
        "no_controller"
    ]
    cluster = fake()
    cluster.forbidden = ("configmaps",)
    result, _ctx = run(cluster)
    assert not result["failed"]
    assert "may not be read" in result["doubt"]


def test_another_layout_is_found() -> None:
    cluster = fake()
    cluster.single["deployments", "kube-system", "ack-koord-descheduler"] = cluster.single.pop(
        ("deployments", SPACE, "koord-descheduler")
    )
    cluster.single["configmaps", "kube-system", "koord-descheduler-config"] = cluster.single.pop(
        ("configmaps", SPACE, "koord-descheduler-config")
    )
    assert run(cluster)[0]["doubt"] == ""
    cluster = fake()
    for kind, name in (("deployments", "koord-descheduler"), ("configmaps", "koord-descheduler-config")):
        cluster.single[kind, "mine", name] = cluster.single.pop((kind, SPACE, name))
    assert codes(run(cluster)[0]) == ["no_controller"]
    assert run(cluster, koordinator_namespace="mine")[0]["doubt"] == ""


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "kind: Other",
        CONFIG.replace("{exclude: [kube-system]}", "kube-system"),
    ],
)
def test_a_configuration_that_cannot_be_read_refuses_nothing(text: str) -> None:
    cluster = fake(1)
    cluster.single["configmaps", SPACE, "koord-descheduler-config"] = {"data": {"koord-descheduler-config": text}}
    result, _ctx = run(cluster)
    assert result["doubt"]
    assert result["jobs"][0]["outcome"] == "created"


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"selection": Selection((ref("nobody"),))}, "unknown_pod"),
        ({"selection": Selection(nodes=("n9",))}, "unknown_node"),
        ({"wish": Wish(reservation="none")}, "unknown_reservation"),
    ],
)
def test_what_is_not_there_stops_the_call(options: Raw, code: str) -> None:
    cluster = fake()
    with pytest.raises(StopRun) as stop:
        run(cluster, **options)
    assert stop.value.code == code
    assert cluster.writes == []


@pytest.mark.parametrize(
    ("cluster", "code"),
    [
        (fake(1), "single_replica"),
        (fake(scheduler="default-scheduler"), "scheduler"),
        (fake(single={("reservations", "", "r"): {"metadata": {"name": "r"}, "status": {"phase": "Succeeded"}}}), ""),
    ],
)
def test_what_cannot_succeed_gets_no_job(cluster: Fake, code: str) -> None:
    wish = Wish() if code else Wish(reservation="r")
    result, ctx = run(cluster, wish=wish)
    job = result["jobs"][0]
    assert result["failed"]
    assert (job["outcome"], job["cause"]["code"]) == ("refused", code or "reservation_used")
    assert cluster.writes == []
    assert ctx.changes == []


def test_evict_directly_needs_no_scheduler_and_no_requests() -> None:
    cluster = fake(scheduler="default-scheduler")
    result, _ctx = run(cluster, wish=Wish("EvictDirectly"))
    assert result["jobs"][0]["outcome"] == "created"
    assert cluster.writes[0]["metadata"]["labels"]["maintenance.kubeops.io/run"] == "night"


def test_check_mode_predicts_what_a_real_call_does() -> None:
    for options, outcome in (({}, "created"), ({"wait": True}, "moved"), ({"wish": Wish(paused=True)}, "paused")):
        cluster = fake()
        result, _ctx = run(cluster, check=True, **options)
        assert (result["jobs"][0]["outcome"], result["changed"]) == (outcome, True)
        assert cluster.writes == []
        assert result["diff"][0]["after"]["spec"]["podRef"]["name"] == "web-1"


def test_a_reservation_is_made_with_its_job() -> None:
    cluster = fake()
    result, _ctx = run(cluster, check=True, wish=Wish(reservation="r"), template={"spec": {"ttl": "1h"}})
    assert [sentence.split()[1] for sentence in result["actions"]] == ["Reservation", "PodMigrationJob"]


def test_a_pod_that_is_gone_is_moved_and_nothing_is_written() -> None:
    cluster = fake()
    result, _ctx = run(cluster, selection=Selection((ref("web-1", "older"),)))
    assert (result["changed"], result["failed"]) == (False, False)
    assert result["jobs"][0]["outcome"] == "already_moved"


def made(name: str, pod: str, **status: t.Any) -> Raw:
    raw = manifest(name, ref(pod, f"uid-{pod}"), Wish(paused=True, run="night"))
    raw["metadata"].update(uid=name, creationTimestamp="2026-01-01T00:00:00Z", resourceVersion="1")
    return {**raw, "status": status}


def test_a_job_under_way_is_not_made_again() -> None:
    cluster = fake(jobs=[made("j", "web-1")])
    result, _ctx = run(cluster, wish=Wish(paused=True))
    assert (result["jobs"][0]["outcome"], result["changed"]) == ("paused", False)
    result, _ctx = run(cluster)
    assert result["jobs"][0]["cause"]["code"] == "other_job"


@pytest.mark.parametrize(
    ("state", "outcome", "failed"),
    [("approved", "not_found", True), ("rejected", "not_found", True), ("absent", "already_absent", False)],
)
def test_a_job_that_is_not_there(state: State, outcome: str, failed: bool) -> None:
    result, _ctx = run(fake(), state=state, selection=Selection(), name="none")
    assert (result["jobs"][0]["outcome"], result["failed"]) == (outcome, failed)


def test_nothing_to_rule_over_is_no_failure() -> None:
    result, _ctx = run(fake(), state="rejected")
    assert (result["jobs"], result["failed"], result["changed"]) == ([], False, False)


def test_a_controller_that_is_away_keeps_nobody_from_rejecting() -> None:
    cluster = fake()
    del cluster.single["deployments", SPACE, "koord-descheduler"]
    assert "findings" not in run(cluster, state="rejected")[0]
    assert codes(run(cluster, state="approved")[0]) == ["no_controller"]


@pytest.mark.parametrize(
    ("status", "outcome"),
    [({}, "paused"), ({"phase": "Succeeded"}, "already_moved"), ({"phase": "Failed", "reason": "Timeout"}, "failed")],
)
def test_a_job_is_looked_at_by_its_name_alone(status: Raw, outcome: str) -> None:
    result, _ctx = run(fake(jobs=[made("j", "web-1", **status)]), selection=Selection(), name="j")
    assert (result["jobs"][0]["outcome"], result["changed"]) == (outcome, False)
