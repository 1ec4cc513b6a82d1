# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods and budgets as operators make them: which of them are waited for, and whom the message names.

Shapes: the sources that ``operators.PRESETS`` names for each project.
"""

from __future__ import annotations

import runpy
import typing as t
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import budgets, operators
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import dispositions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy, PodPlan
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    budget,
    deployment,
    owned,
    pod,
    snapshot,
    workload,
)

DOCS = runpy.run_path(str(Path(__file__).parents[3] / "docs/operators.py"))


@dataclass
class Project:
    """A project's pods, the first of them on the leaving node n1, their owners by kind, and the budget over some."""

    pods: list[Raw]
    budget: Raw
    owners: dict[str, list[Raw]] = field(default_factory=dict)

    @property
    def seen(self) -> Snapshot:
        return snapshot(self.owners, pods=self.pods, budgets=[self.budget])

    def planned(self, **choices: t.Any) -> PodPlan:
        return next(plan for plan in dispositions.routes(self.seen, {"n1"}, DrainPolicy(**choices)))


def members(count: int, labels: Raw, *owners: list[Raw], first: Raw | None = None) -> list[Raw]:
    """Pods on n1, n2 and so on, all with the labels; the first has more."""
    made = []
    for number in range(count):
        mine = {**labels, **((first or {}) if number == 0 else {})}
        made.append(pod(f"db-{number + 1}", f"n{number + 1}", owners[number % len(owners)], labels=mine))
    return made


def over(labels: Raw, pods: int, desired: int, owner: list[Raw] | None = None, **rule: t.Any) -> Raw:
    """A budget over so many healthy pods, of which so many must stay."""
    raw = budget("b", pods - desired, healthy=pods, desired=desired, expected=pods, selector={"matchLabels": labels})
    if rule:
        raw["spec"] = {"selector": raw["spec"]["selector"], **rule}
    raw["metadata"]["ownerReferences"] = owner or []
    return raw


def plainly(owner: list[Raw]) -> list[Raw]:
    """The references as some operators write them: not as the controller's."""
    return [{**owner[0], "controller": False}]


def cloudnative_pg(instances: int = 3) -> Project:
    cluster = owned("Cluster", "pg", "postgresql.cnpg.io/v1")
    labels = {"cnpg.io/cluster": "pg", "cnpg.io/podRole": "instance"}
    role = {"cnpg.io/instanceRole": "primary"}
    scale = workload("Cluster", "pg", instances, api_version="postgresql.cnpg.io/v1")
    scale["spec"]["selector"] = {"matchLabels": labels}
    return Project(
        members(instances, {**labels, "cnpg.io/instanceRole": "replica"}, cluster, first=role),
        over({"cnpg.io/cluster": "pg", **role}, 1, 1, cluster),
        {"scales": [scale]},
    )


def zalando() -> Project:
    """By default its StatefulSets have no owner."""
    labels = {"application": "spilo", "cluster-name": "acid-pg", "spilo-role": "replica"}
    master = {**labels, "spilo-role": "master"}
    pods = members(2, labels, owned("StatefulSet", "acid-pg"), first=master)
    return Project(pods, over(master, 1, 1), {"stateful_sets": [workload("StatefulSet", "acid-pg", 2)]})


def eck() -> Project:
    """Two nodeSets, one of a single master; while the cluster is not green."""
    top = owned("Elasticsearch", "es", "elasticsearch.k8s.elastic.co/v1")
    labels = {"common.k8s.elastic.co/type": "elasticsearch", "elasticsearch.k8s.elastic.co/cluster-name": "es"}
    sets = [workload("StatefulSet", "es-masters", 1, top), workload("StatefulSet", "es-data", 2, top)]
    owners = [owned("StatefulSet", "es-masters"), owned("StatefulSet", "es-data"), owned("StatefulSet", "es-data")]
    return Project(members(3, labels, *owners), over(labels, 3, 3, top), {"stateful_sets": sets})


def strimzi() -> Project:
    labels = {"strimzi.io/cluster": "my", "strimzi.io/kind": "Kafka", "strimzi.io/name": "my-kafka"}
    owner = owned("StrimziPodSet", "my-kafka", "core.strimzi.io/v1")
    kafka = plainly(owned("Kafka", "my", "kafka.strimzi.io/v1"))
    return Project(members(3, labels, owner), over(labels, 3, 3, kafka))


def pgd() -> Project:
    """Each of its nodes is a Cluster of one instance."""
    labels = {"k8s.enterprisedb.io/podRole": "instance"}
    group = "postgresql.k8s.enterprisedb.io/v1"
    clusters = [owned("Cluster", f"region-a-{n}", group) for n in (1, 2, 3)]
    scales = [workload("Cluster", f"region-a-{n}", 1, api_version=group) for n in (1, 2, 3)]
    top = owned("PGDGroup", "region-a", "pgd.k8s.enterprisedb.io/v1beta1")
    return Project(members(3, labels, *clusters), over(labels, 3, 3, top), {"scales": scales})


def longhorn() -> Project:
    labels = {"longhorn.io/component": "instance-manager", "longhorn.io/node": "n1"}
    return Project(
        members(1, labels, owned("InstanceManager", "instance-manager-1", "longhorn.io/v1beta2")), over(labels, 1, 1)
    )


def rook() -> Project:
    """A Deployment of one for each OSD; n2 is being drained, so those of other hosts may not go."""
    top = owned("CephCluster", "rook-ceph", "ceph.rook.io/v1")
    found: dict[str, list[Raw]] = {}
    for number in (1, 2):
        made = deployment(f"rook-ceph-osd-{number}", 1, strategy={"type": "Recreate"})
        made["deployments"][0]["metadata"]["ownerReferences"] = top
        for kind, raws in made.items():
            found.setdefault(kind, []).extend(raws)
    labels = {"app": "rook-ceph-osd", "topology-location-host": "n1"}
    owners = [owned("ReplicaSet", f"rook-ceph-osd-{number}") for number in (1, 2)]
    pods = members(2, {"app": "rook-ceph-osd"}, *owners, first=labels)
    other = pod("osd-same-host", "n3", owned("ReplicaSet", "rook-ceph-osd-2"), labels=labels)
    return Project([*pods, other], over(labels, 2, 2, top, maxUnavailable=0), found)


def kubevirt() -> Project:
    vmi = owned("VirtualMachineInstance", "vm", "kubevirt.io/v1")
    labels = {"kubevirt.io": "virt-launcher", "kubevirt.io/created-by": "uid-vm"}
    return Project(members(1, labels, vmi), over({"kubevirt.io/created-by": "uid-vm"}, 1, 1, vmi))


def crunchy(healthy: int = 1) -> Project:
    """Each instance of a set is a StatefulSet of one; with one of two ready, none may go."""
    top = owned("PostgresCluster", "hippo", "postgres-operator.crunchydata.com/v1beta1")
    labels = {"postgres-operator.crunchydata.com/instance-set": "00"}
    sets = [workload("StatefulSet", f"hippo-00-{x}", 1, top) for x in ("a", "b")]
    pods = members(2, labels, *(owned("StatefulSet", f"hippo-00-{x}") for x in ("a", "b")))
    if healthy < 2:
        pods[1]["status"]["conditions"][0]["status"] = "False"
    laid = budget("hippo-set-00", healthy - 1, healthy=healthy, desired=1, expected=2, selector={"matchLabels": labels})
    laid["metadata"]["ownerReferences"] = top
    return Project(pods, laid, {"stateful_sets": sets})


def members_of(kind: str, api_version: str) -> Project:
    """A StatefulSet of three of a custom resource, of which one is not ready; maxUnavailable 1."""
    top, labels = owned(kind, "db", api_version), {"app.kubernetes.io/instance": "db"}
    pods = members(3, labels, owned("StatefulSet", "db"))
    pods[2]["status"]["conditions"][0]["status"] = "False"
    numbers: dict[str, t.Any] = {"healthy": 2, "desired": 2, "expected": 3, "rule": {"maxUnavailable": 1}}
    laid = budget("db", 0, selector={"matchLabels": labels}, **numbers)
    return Project(pods, laid, {"stateful_sets": [workload("StatefulSet", "db", 3, top)]})


PROJECTS: dict[str, Project] = {
    "cloudnative-pg": cloudnative_pg(),
    "zalando": zalando(),
    "eck": eck(),
    "strimzi": strimzi(),
    "pgd": pgd(),
    "longhorn": longhorn(),
    "rook": rook(),
    "kubevirt": kubevirt(),
    "crunchy": crunchy(),
    "mongodb": members_of("PerconaServerMongoDB", "psmdb.percona.com/v1"),
    "redis": members_of("RedisCluster", "redis.redis.opstreelabs.in/v1beta2"),
    "rabbitmq": members_of("RabbitmqCluster", "rabbitmq.com/v1beta1"),
}


def test_every_preset_has_a_project_here() -> None:
    assert PROJECTS.keys() == operators.PRESETS.keys()


@pytest.mark.parametrize("name", PROJECTS)
def test_a_budget_of_an_operator_is_waited_for_and_the_operator_named(name: str) -> None:
    """Never a refusal, with no option given: ``kubectl drain`` would try, too."""
    plan = PROJECTS[name].planned()
    assert (plan.route, plan.code) == ("evict", "operator_budget")
    assert operators.PRESETS[name].project in plan.reason
    assert "maintain_operator_budget_wait" in plan.remedy


def test_the_custom_resource_is_named() -> None:
    assert "CloudNativePG (Cluster shop/pg)" in cloudnative_pg().planned().reason
    assert "Rook (CephCluster shop/rook-ceph)" in rook().planned().reason


@pytest.mark.parametrize("instances", [1, 2, 3])
def test_the_only_instance_has_none_to_take_over_and_needs_consent(instances: int) -> None:
    plan = cloudnative_pg(instances).planned()
    assert plan.route == ("refuse" if instances == 1 else "evict")
    assert cloudnative_pg(instances).planned(allow_interruption=True).code == "operator_budget"


def test_a_statefulset_of_one_goes_under_a_budget_of_its_operator_that_has_room() -> None:
    """Crunchy's: the other instance of the set serves. Without an operator it would need consent."""
    assert (crunchy(2).planned().route, crunchy(2).planned().code) == ("evict", "operator_budget")
    own = crunchy(2)
    own.budget["metadata"]["ownerReferences"] = []
    for found in own.owners["stateful_sets"]:
        found["metadata"]["ownerReferences"] = []
    assert own.planned().code == "stateful_single"


def test_the_callers_selector_is_enough_even_for_the_only_pod() -> None:
    labels = {"app": "vault"}
    single = {"stateful_sets": [workload("StatefulSet", "vault", 1)]}
    vault = Project(members(1, labels, owned("StatefulSet", "vault")), over(labels, 1, 1), single)
    assert vault.planned().code == "stateful_single"
    assert vault.planned(reactive_budgets=("app=vault",)).code == "operator_budget"


def test_any_custom_resource_counts_and_those_that_only_run_pods_do_not() -> None:
    labels = {"app": "web"}
    for api_version, code in (
        ("databases.example.com/v1", "operator_budget"),
        ("argoproj.io/v1alpha1", "misconfigured"),
        ("apps.kruise.io/v1alpha1", "misconfigured"),
        ("apps/v1", "misconfigured"),
        ("batch/v1", "misconfigured"),
        ("internal.apiserver.k8s.io/v1", "misconfigured"),
        ("v1", "misconfigured"),
    ):
        project = Project(members(3, labels, owned("Thing", "db", api_version)), over(labels, 3, 3))
        assert budgets.diagnose(project.seen, project.seen.pods[0]).code == code, api_version


def test_a_budget_that_belongs_to_a_custom_resource_is_enough() -> None:
    labels, top = {"app": "web"}, plainly(owned("Db", "db", "databases.example.com/v1"))
    project = Project(members(3, labels, owned("StatefulSet", "db")), over(labels, 3, 3, top))
    assert budgets.diagnose(project.seen, project.seen.pods[0]).code == "operator_budget"
    project.budget["metadata"]["ownerReferences"] = []
    assert budgets.diagnose(project.seen, project.seen.pods[0]).code == "misconfigured"


def test_two_budgets_are_refused_whosever_they_are() -> None:
    """The API server answers 500 for ever; ``kubectl drain`` fails, too."""
    found = cloudnative_pg()
    seen = snapshot(
        found.owners,
        pods=found.pods,
        budgets=[found.budget, {**found.budget, "metadata": {**found.budget["metadata"], "name": "mine"}}],
    )
    (plan,) = dispositions.routes(seen, {"n1"}, DrainPolicy())
    assert (plan.route, plan.code) == ("refuse", "two_budgets")


def test_the_guide_has_the_table_as_it_is() -> None:
    guide = DOCS["GUIDE"].read_text(encoding="utf-8")
    assert DOCS["written"](guide) == guide, "python docs/operators.py writes it anew"
