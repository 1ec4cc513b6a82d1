# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Operators that let a pod go once its node is cordoned, once an eviction is tried, or never.

Their objects are Zalando's (postgres-operator, pkg/cluster/k8sres.go): a StatefulSet without an owner, a budget of
minAvailable 1 over the one pod with `spilo-role: master`, a switch-over that moves that label.
"""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.test_draining import (
    begun,
    ended,
    evictions,
    said,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, Outcome, maintain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.evicting import of_evictions

MASTER = {"application": "spilo", "cluster-name": "pg", "spilo-role": "master"}
REPLICA = {**MASTER, "spilo-role": "replica"}


class Operator:
    """Of a cluster `pg` of three with its master on n1; it switches over `after` seconds after a cordon, if at all."""

    def __init__(self, after: float | None) -> None:
        self.after, self.masterless = after, False
        cluster = manifests.stateful_set("pg", 3)
        cluster["spec"]["selector"] = {"matchLabels": {"cluster-name": "pg"}}
        cluster["spec"]["template"]["metadata"]["labels"] = REPLICA
        laid = manifests.budget("postgres-pg-pdb", minAvailable=1)
        laid["spec"]["selector"] = {"matchLabels": MASTER}
        self.world = World([*(manifests.node(f"n{n}") for n in (1, 2, 3)), cluster, laid])
        self.old = self.on("n1")["metadata"]["name"]
        self.world.patch(kinds.PODS, self.old, {"metadata": {"labels": MASTER}})
        self.world.machine.run_for(5.0)
        self.world.on_event.append(self.hear)

    def on(self, node: str) -> Raw:
        return next(raw for raw in self.pods() if raw["spec"].get("nodeName") == node)

    def pods(self) -> list[Raw]:
        return list(self.world.store.of(kinds.PODS.resource).values())

    def masters(self) -> list[Raw]:
        return [p for p in self.pods() if p["metadata"]["labels"]["spilo-role"] == "master"]

    def hear(self, event: Event) -> None:
        if event.resource == kinds.PODS.resource:
            self.masterless |= not self.masters()
        cordoned = event.resource == kinds.NODES.resource and event.raw["spec"].get("unschedulable")
        if cordoned and self.after is not None:
            after, self.after = self.after, None
            self.world.machine.after(after, self.switch_over, "switch-over")

    def switch_over(self) -> None:
        new = self.on("n2")["metadata"]["name"]
        self.world.patch(kinds.PODS, new, {"metadata": {"labels": MASTER}})
        self.world.patch(kinds.PODS, self.old, {"metadata": {"labels": REPLICA}})

    def left_behind(self) -> list[str]:
        node = self.world.store.of(kinds.NODES.resource)["", "n1"]
        marks = [key for key in node["metadata"].get("annotations") or {} if "kubeops" in key]
        return [*marks, *(["cordon"] if node["spec"].get("unschedulable") else [])]


@pytest.fixture
def operated() -> t.Iterator[t.Callable[[float | None], Operator]]:
    made: list[Operator] = []

    def make(after: float | None) -> Operator:
        made.append(Operator(after))
        return made[-1]

    yield make
    for one in made:
        one.world.close()


Make = t.Callable[[float | None], Operator]


def run(world: World, within: float = 3000.0, name: str = "me") -> Outcome:
    found: list[Outcome] = []
    actor = world.process(name)
    actor.spawn(lambda: found.append(maintain(actor, Input(("n1",), timeout=3600.0))))
    world.machine.run_until(lambda: bool(found), within=within)
    return found[0]


def test_a_primary_is_waited_for_and_leaves_once_its_operator_has_moved_it(operated: Make) -> None:
    pg = operated(25.0)
    me, task = begun(pg.world)
    result = ended(pg.world, task)
    assert said(result)[0] == "drained", said(result)
    assert not pg.masterless
    assert [name for _at, name in evictions(pg.world)] == [pg.old]
    waits = [event.message for event in me.told if "postgres-pg-pdb" in event.message]
    assert waits
    assert "Zalando postgres-operator moves the master" in waits[0]
    assert "Waited for 10 min more at most." in waits[0]


def test_one_that_is_never_moved_is_told_and_its_node_given_back(operated: Make) -> None:
    pg = operated(None)
    outcome = run(pg.world)
    assert not outcome.ok
    assert "Zalando postgres-operator" in outcome.failed["n1"]
    assert "maintain_operator_budget_wait" in outcome.failed["n1"]
    assert (evictions(pg.world), pg.left_behind(), pg.masterless) == ([], [], False)


def test_the_wait_is_as_long_as_the_caller_says(operated: Make) -> None:
    pg = operated(None)
    _me, task = begun(pg.world, choices=DrainPolicy(operator_budget_wait=35.0))
    began = pg.world.machine.now
    (shown,) = ended(pg.world, task).data["nodes"]
    (pod,) = [pod for pod in shown["pods"] if pod["name"] == pg.old]
    assert (shown["outcome"], pod["outcome"]) == ("failed", "operator_budget")
    assert 35.0 <= pg.world.machine.now - began < 45.0


@pytest.mark.parametrize(("later", "after"), [(0.0, 120.0), (3.3, 20.0), (11.0, 120.0), (0.0, 40.0), (45.0, 50.0)])
@pytest.mark.parametrize("away", [0.0, 200.0])
def test_a_run_that_is_killed_while_it_waits_resumes_without_anything_stored(
    operated: Make, later: float, after: float, away: float
) -> None:
    """At any moment of the wait, and whether or not the operator has acted before the same command comes again."""
    pg = operated(after)
    actor = pg.world.process("me")
    actor.spawn(lambda: maintain(actor, Input(("n1",), timeout=3600.0)))
    waiting = False
    for _second in range(100):
        pg.world.machine.run_for(1.0)
        waiting = waiting or any("postgres-pg-pdb" in event.message for event in actor.told)
        if waiting:
            break
    assert waiting
    pg.world.machine.run_for(later)
    actor.process.kill()
    pg.world.machine.run_for(away)
    outcome = run(pg.world)
    assert outcome.ok, (outcome.failed, outcome.wrong)
    assert [name for _at, name in evictions(pg.world)] == [pg.old]
    assert (pg.left_behind(), pg.masterless) == ([], False)


def test_an_operator_that_answers_by_a_webhook_is_waited_for_until_it_moves_the_pod_itself(operated: Make) -> None:
    """As Strimzi's drain cleaner: it denies every eviction, and the operator deletes the pod a while later."""
    pg = operated(None)
    pg.world.delete(kinds.BUDGETS, "postgres-pg-pdb")
    me, task = begun(pg.world)
    me.faults.when(of_evictions, Fault("webhook"), times=100)
    pg.world.machine.after(90.0, lambda: pg.world.delete(kinds.PODS, pg.old), "restart")
    result = ended(pg.world, task)
    assert said(result)[0] == "drained", said(result)
    waits = [event.message for event in me.told if "A webhook keeps" in event.message]
    assert waits
    assert "admission webhook" in waits[0]


def test_a_pod_is_evicted_within_ten_seconds_after_its_operator_s_webhook_allows_it(operated: Make) -> None:
    """As EDB Postgres Distributed hands leaderships over: it denies evictions until it has, and gives no sign."""
    pg = operated(None)
    pg.world.delete(kinds.BUDGETS, "postgres-pg-pdb")
    me, task = begun(pg.world)
    allowed = pg.world.machine.now + 160.0
    me.faults.when(lambda request: of_evictions(request) and pg.world.machine.now < allowed, Fault("webhook"), 100)
    assert said(ended(pg.world, task))[0] == "drained"
    ((at, _name),) = evictions(pg.world)
    assert allowed <= at < allowed + 11.0
    asked = [sent.arrived for sent in pg.world.log if of_evictions(sent.request)]
    assert 16 <= len(asked) <= 24, "and it is not asked more often than others are"


def test_a_webhook_that_never_lets_go_ends_the_wait(operated: Make) -> None:
    pg = operated(None)
    me, task = begun(pg.world, choices=DrainPolicy(operator_budget_wait=60.0))
    me.faults.when(of_evictions, Fault("webhook"), times=100)
    assert said(ended(pg.world, task))[0] == "failed"


def test_a_pod_that_stays_with_its_node_leaves_under_a_budget_with_room_and_nothing_waits_for_it_elsewhere() -> None:
    """Rook's OSDs (pkg/operator/ceph/cluster/osd/spec.go): one replica, strategy Recreate, the selector of one node."""
    owner = {"apiVersion": "ceph.rook.io/v1", "kind": "CephCluster", "name": "rook", "uid": "c1", "controller": True}
    label = {"app": "rook-ceph-osd"}
    laid = manifests.budget("rook-ceph-osd", maxUnavailable=1)
    daemons = []
    for number in (1, 2, 3):
        own = manifests.deployment(
            f"osd-{number}",
            1,
            {"strategy": {"type": "Recreate"}},
            nodeSelector={"kubernetes.io/hostname": f"n{number}"},
        )
        own["metadata"]["ownerReferences"] = [owner]
        own["spec"]["template"]["metadata"]["labels"] |= {**label, "osd": str(number)}
        own["spec"]["selector"] = {"matchLabels": {"osd": str(number)}}
        daemons.append(own)
    world = World([*(manifests.node(f"n{n}") for n in (1, 2, 3)), *daemons, laid])
    try:
        world.machine.run_for(5.0)
        outcome = run(world, within=600.0)
        assert outcome.ok, (outcome.failed, outcome.wrong)
        assert len(evictions(world)) == 1
    finally:
        world.close()
