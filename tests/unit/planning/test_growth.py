# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""How much a decision looks at: in a big cluster it may not be everything for every workload.

Objects that are looked at are counted, not seconds, so that the numbers are the same on every machine.
"""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import budgets
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import devices, dispositions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import devices as local
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import (
    forecast,
    newcomers,
    wave_times,
    world,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import guard_budgets
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.surge_records import Surge
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import eligibility, steps
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    budget,
    deployment,
    node,
    owned,
    pod,
    snapshot,
)

PASSES = 6
"""How often all objects of a kind may be gone through, however many workloads are served."""

T = t.TypeVar("T")


class Counted(tuple[T, ...]):
    """A tuple that counts how many of its members were handed out."""

    looked: list[int]

    def __iter__(self) -> t.Iterator[T]:
        for one in super().__iter__():
            self.looked[0] += 1
            yield one


def counted(objects: t.Iterable[T]) -> Counted[T]:
    found = Counted(objects)
    found.looked = [0]
    return found


def cluster(workloads: int, replicas: int) -> Snapshot:
    """So many Deployments, one pod of each on n1 and the others on n2, none with a budget."""
    parts: list[dict[str, list[Raw]]] = []
    for number in range(workloads):
        name = f"w{number}"
        pods = [
            pod(f"{name}-{i}", "n2" if i else "n1", owned("ReplicaSet", name), labels={"app": name})
            for i in range(replicas)
        ]
        parts.append({**deployment(name, replicas), "pods": pods})
    found = snapshot(*parts)
    kinds = {kind: counted(getattr(found, kind)) for kind in ("pods", "workloads", "budgets", "autoscalers")}
    return replace(found, **t.cast("t.Any", kinds))


def looked_at(seen: Snapshot) -> dict[str, int]:
    """How often each kind was gone through, in whole passes."""
    return {
        kind: getattr(seen, kind).looked[0] // max(len(getattr(seen, kind)), 1)
        for kind in ("pods", "workloads", "budgets", "autoscalers")
    }


def surges(seen: Snapshot) -> tuple[Surge, ...]:
    return steps.surges(seen, dispositions.routes(seen, ["n1"], DrainPolicy()), run="r", by="me", since="now")


def all_rollouts(seen: Snapshot) -> None:
    assert not any(eligibility.rollout(seen, w) for w in seen.workloads if w.kind == "Deployment")


def all_refusals(seen: Snapshot) -> None:
    assert not any(eligibility.refusal(seen, w) for w in seen.workloads if w.kind == "Deployment")


def all_blocked(seen: Snapshot) -> None:
    for surge in surges(seen):
        assert steps.blocked(seen, replace(surge, target=1), ["n1"]) is None


def all_given_back(seen: Snapshot) -> None:
    for surge in surges(seen):
        steps.giving_back(seen, surge)
        steps.giving_back(seen, replace(surge, uid="gone"))


def all_guards(seen: Snapshot) -> None:
    guarded = dispositions.routes(seen, ["n1"], DrainPolicy())
    assert len(guard_budgets.guards(seen, guarded)) == len(seen.workloads) // 2


@pytest.mark.parametrize(
    ("replicas", "decide"),
    [(1, all_rollouts), (1, all_refusals), (1, all_blocked), (1, all_given_back), (2, all_guards)],
)
def test_decisions_on_many_workloads_look_at_each_object_a_few_times(
    replicas: int, decide: t.Callable[[Snapshot], None]
) -> None:
    seen = cluster(200, replicas)
    decide(seen)
    assert {kind: passes for kind, passes in looked_at(seen).items() if passes > PASSES} == {}


def planned_waves(nodes: int) -> int:
    """How often what is planned for so many nodes, one after the other, goes through all pods."""
    names = [f"n{number:03}" for number in range(nodes)]
    web = {**deployment("web", nodes), "pods": [pod(f"w-{name}", name, owned("ReplicaSet", "web")) for name in names]}
    seen = snapshot({"nodes": [node(name) for name in names]}, web)
    plans = counted(dispositions.routes(seen, names, DrainPolicy()))
    waves = [(name,) for name in names]
    assert len(wave_times.wave_times(seen, plans, waves)) == nodes
    assert len(forecast.forecasts(seen, plans, waves)) == nodes
    assert devices.findings(seen, plans, waves) == []
    return plans.looked[0] // len(plans)


def test_a_plan_goes_through_the_pods_a_few_times_however_many_waves_there_are() -> None:
    assert planned_waves(20) == planned_waves(60) <= PASSES


class Wave(frozenset[str]):
    """Nodes that are not searched for each pod."""

    def __contains__(self, name: object) -> bool:
        raise AssertionError(name)


def test_no_wave_is_searched_for_each_pod_that_is_replaced() -> None:
    names = ("n1", "n2")
    plans = [replace(plan, route="replace") for plan in dispositions.routes(cluster(20, 1), names, DrainPolicy())]
    assert newcomers.findings(cluster(20, 1), plans, [Wave({name}) for name in names], ()) == []


def test_the_pods_of_a_budget_are_counted_once_however_many_of_them_leave(monkeypatch: pytest.MonkeyPatch) -> None:
    covered: list[str] = []
    selected = Snapshot.selected

    def seen(self: Snapshot, namespace: str, selector: t.Any) -> t.Iterator[Pod]:
        covered.append(namespace)
        return selected(self, namespace, selector)

    monkeypatch.setattr(Snapshot, "selected", seen)
    pods = [pod(f"w{number}", "n1", owned("ReplicaSet", "web"), labels={"app": "web"}) for number in range(30)]
    found = snapshot(
        {"nodes": [node("n1")], "budgets": [budget("web", allowed=1)]}, deployment("web", 30), {"pods": pods}
    )
    assert {budgets.diagnose(found, each).code for each in found.pods} == {"room"}
    assert len(covered) == 1


def test_volumes_and_daemon_sets_are_looked_up_and_not_searched_for() -> None:
    names = [str(number) for number in range(40)]
    mounts = [{"name": "d", "persistentVolumeClaim": {"claimName": "x"}}]
    raws = [pod(f"d{name}", "n1", owned("DaemonSet", name, api_version="apps/v1"), volumes=mounts) for name in names]
    sets = [{"metadata": {"name": name, "uid": f"uid-DaemonSet-{name}"}} for name in names]
    claim = {"metadata": {"namespace": "shop", "name": "x"}, "spec": {"volumeName": "39"}}
    found = snapshot({"nodes": [node("n1")], "pods": raws, "claims": [claim]})
    volumes = counted([{"metadata": {"name": name}, "spec": {}} for name in names])
    found = replace(found, **t.cast("t.Any", {"daemon_sets": counted(sets), "volumes": volumes}))
    assert len(dispositions.routes(found, ["n1"], DrainPolicy())) == 40
    assert not any(local.bound_here(found, each) for each in found.pods)
    looked = {kind: getattr(found, kind).looked[0] // 40 for kind in ("daemon_sets", "volumes")}
    assert looked == {"daemon_sets": 1, "volumes": 1}


def test_of_the_pods_on_a_node_only_those_with_volumes_are_looked_at_for_volumes() -> None:
    mounts = [{"name": "d", "persistentVolumeClaim": {"claimName": "x"}}]
    token = [{"name": "token", "projected": {"sources": []}}]
    pods = [pod(f"p{number}", volumes=token) for number in range(20)]
    found = world.World(snapshot({"nodes": [node("n1")], "pods": [*pods, pod("q", volumes=mounts)]}))
    (mounting,) = found.places["n1"].mounting.values()
    assert (mounting.name, mounting.volumes) == ("q", tuple(mounts))
    found.leave(mounting)
    assert (len(found.places["n1"].guests), found.places["n1"].mounting) == (20, {})
