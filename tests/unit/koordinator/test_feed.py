# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.dispositions import routes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import object_limiter
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.feed import Traffic, admit, ttl_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.migration_jobs import Job
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.migration_controller import (
    Controller,
    Limiter,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    budget,
    deployment,
    owned,
    pod,
    snapshot,
    workload,
)

OPEN = Controller(object_limiters={}, max_migrating_per_node=0, max_migrating_per_workload=9)


def cluster(*, web: int = 2, db: int = 2, **more: list[Raw]) -> Snapshot:
    """Deployment `web` of nine with so many pods on node n1, StatefulSet `db` of five with so many."""
    pods = [pod(f"web-{i}", owner=owned("ReplicaSet", "web")) for i in range(web)]
    pods += [pod(f"db-{i}", owner=owned("StatefulSet", "db"), labels={"app": "db"}) for i in range(db)]
    for raw in pods:
        raw["spec"]["schedulerName"] = "koord-scheduler"
        raw["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "10m"}
    return snapshot(deployment("web", 9), stateful_sets=[workload("StatefulSet", "db", 5)], pods=pods, **more)


def job(name: str, phase: str = "", namespace: str = "shop") -> Job:
    ref = {"namespace": namespace, "name": name, "uid": f"uid-{name}"}
    return Job.of({"metadata": {"name": f"job-{name}"}, "spec": {"podRef": ref}, "status": {"phase": phase}})


def admitted(
    found: Snapshot,
    controller: Controller,
    *jobs: Job,
    taken: dict[tuple[str, str], list[float]] | None = None,
    now: float = 1000.0,
    evicting: tuple[str, ...] = (),
) -> tuple[list[str], dict[str, str]]:
    """Names that may start, and the codes of those that wait, in the order of the list without those under way."""
    choices = DrainPolicy(backend="koordinator", controller=controller)
    under_way = {one.pod.uid for one in jobs}
    line = [plan for plan in routes(found, {"n1"}, choices) if plan.pod.uid not in under_way]
    start, held = admit(found, line, controller, Traffic(jobs, taken or {}, now, evicting))
    return [p.pod.name for p in start], {uid[4:]: why.code for uid, why in held.items()}


def wide(**changes: t.Any) -> Controller:
    return Controller(
        **{
            "object_limiters": {},
            "max_migrating_per_node": 0,
            "max_migrating_per_workload": 2,
            "max_unavailable_per_workload": 2,
            **changes,
        }
    )


def test_as_many_start_as_arbitration_admits_and_no_more() -> None:
    start, held = admitted(cluster(), wide(max_migrating_per_node=3))
    assert start == ["web-0", "web-1", "db-0"]
    assert held == {"db-1": "max_migrating_per_node"}


def test_jobs_under_way_count_although_they_still_wait_for_arbitration() -> None:
    start, held = admitted(cluster(), wide(max_migrating_per_node=2), job("web-0"), job("db-0", "Running"))
    assert start == []
    assert set(held.values()) == {"max_migrating_per_node"}
    assert admitted(cluster(), wide(max_migrating_globally=2), job("x", namespace="y"))[0] == ["web-0"]


def test_one_that_waits_lets_others_pass() -> None:
    start, held = admitted(cluster(web=3), wide(max_migrating_per_workload=1))
    assert start == ["web-0", "db-0"]
    assert held["web-1"] == "max_migrating_per_workload"


def test_the_object_limiter_has_a_token_for_each_that_starts() -> None:
    limited = wide(object_limiters={"workload": Limiter(60.0)})
    start, held = admitted(cluster(), limited)
    assert start == ["web-0", "db-0"]
    assert held == {"web-1": "object_limiter", "db-1": "object_limiter"}
    # Two tokens a minute: the second one is there half a minute after the first was taken.
    key = ("workload", "uid-ReplicaSet-web")
    assert admitted(cluster(db=0), limited, taken={key: [975.0]})[0] == []
    assert admitted(cluster(db=0), limited, taken={key: [970.0]})[0] == ["web-0"]


def test_an_eviction_that_was_sent_has_taken_its_token_already() -> None:
    limited = wide(object_limiters={"workload": Limiter(60.0)})
    taken = {("workload", "uid-ReplicaSet-web"): [960.0]}
    assert admitted(cluster(db=0), limited, job("web-0", "Running"), taken=taken)[0] == []
    gone = admitted(cluster(db=0), limited, job("web-0", "Running"), taken=taken, evicting=("uid-web-0",))
    assert gone[0] == ["web-1"]


def test_no_eviction_is_provoked_that_a_budget_refuses() -> None:
    found = cluster(db=0, budgets=[budget("web", 1, healthy=2, desired=1)])
    start, held = admitted(found, wide())
    assert start == ["web-0"]
    assert held == {"web-1": "budget_spent"}
    roomy = cluster(web=3, db=0, budgets=[budget("web", 2, healthy=3, desired=1)])
    start, held = admitted(roomy, wide(max_migrating_per_workload=3, max_unavailable_per_workload=3))
    assert (start, held) == (["web-0", "web-1"], {"web-2": "budget_spent"})
    spent = cluster(db=0, budgets=[budget("web", 0, healthy=2, desired=2)])
    assert admitted(spent, wide())[0] == []


def test_the_ttl_leaves_time_for_everything() -> None:
    found = cluster()
    web, _web, db, _db = routes(found, {"n1"}, DrainPolicy())
    assert ttl_of(found, web, OPEN) == 30 + 90 + 30 + 20
    # The successor of a StatefulSet's pod has its name, and the limiter holds its job once more.
    assert ttl_of(found, db, Controller()) == 170 + 150
    assert ttl_of(found, web, Controller()) == 170


def test_an_eviction_counts_for_the_controller_and_the_namespace() -> None:
    assert object_limiter.keys_of(cluster().pods[0]) == (("workload", "uid-ReplicaSet-web"), ("namespace", "shop"))
