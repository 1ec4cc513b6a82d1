# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What the lab cannot show quickly or at all: lost nodes, loads, limits of jobs, controllers that lag or stop."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import koordinator, manifests, nodes, serving
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

TWO_NODES = (manifests.node("n1"), manifests.node("n2"))


def names(pods: t.Iterable[Raw]) -> list[str]:
    return [pod["metadata"]["name"] for pod in pods]


def keys(world: World, node: str) -> list[str]:
    return [taint["key"] for taint in world.get(kinds.NODES, node)["spec"].get("taints") or ()]


def test_the_pods_of_a_lost_node_are_ended_after_five_minutes_and_stay_there() -> None:
    with World([*TWO_NODES, manifests.deployment("web", 2)]) as world:
        world.set_node_ready("n1", "Unknown")
        world.machine.run_for(299)
        assert set(keys(world, "n1")) == {nodes.UNREACHABLE}
        lost = world.pods(on="n1")
        assert not any("deletionTimestamp" in pod["metadata"] for pod in lost)
        world.machine.run_for(60)
        assert names(world.pods(on="n1")) == names(lost)
        assert all("deletionTimestamp" in pod["metadata"] for pod in world.pods(on="n1"))
        assert len(world.pods(on="n2")) == 2
        world.set_node_ready("n1")
        world.machine.run_for(10)
        assert world.pods(on="n1") == []
        assert keys(world, "n1") == []


def test_the_pods_of_a_node_that_is_deleted_are_collected() -> None:
    with World([*TWO_NODES, manifests.deployment("web", 2)]) as world:
        world.delete(kinds.NODES, "n1")
        world.machine.run_for(60)
        assert [pod["spec"]["nodeName"] for pod in world.pods()] == ["n2", "n2"]


def test_what_has_lost_its_owner_or_its_node_before_the_controllers_began_is_collected() -> None:
    with World([*TWO_NODES, *(manifests.deployment(name, 2) for name in ("web", "shop"))]) as world:
        world.controller(nodes.Collector).stop()
        world.delete(kinds.DEPLOYMENTS, "web")
        world.delete(kinds.NODES, "n1")
        world.settle()
        assert len(world.pods(app="web")) == 2
        saved = world.saved()
    with World.of(saved) as world:
        world.machine.run_for(60)
        assert world.pods(app="web") == []
        assert [pod["spec"]["nodeName"] for pod in world.pods()] == ["n2", "n2"]


def test_an_autoscaler_follows_its_load_up_at_once_and_down_late() -> None:
    objects = [manifests.node("n1"), manifests.deployment("web", 2), manifests.autoscaler("web", 2, 6, load=2)]
    with World(objects) as world:

        def load(wanted: int) -> None:
            note = {"metadata": {"annotations": {serving.LOAD: str(wanted)}}}
            world.patch(kinds.HPAS, "web", note)
            world.machine.run_for(20)

        def count() -> int:
            return int(world.get(kinds.DEPLOYMENTS, "web")["spec"]["replicas"])

        load(9)
        assert count() == 6
        load(3)
        assert count() == 6
        world.machine.run_for(320)
        assert count() == 3


def test_a_controller_lags_stops_and_catches_up() -> None:
    with World(
        [manifests.node("n1"), manifests.deployment("web", 2), manifests.budget("web", minAvailable=1)]
    ) as world:
        budgets = world.controller(serving.Budgets)

        def allowed() -> int:
            return int(world.get(kinds.BUDGETS, "web")["status"]["disruptionsAllowed"])

        pod = world.pods()[0]["metadata"]["name"]
        budgets.lag = 1.5
        world.controller(nodes.Kubelets).set_ready(("shop", pod), False)
        world.machine.run_for(1)
        assert allowed() == 1
        world.machine.run_for(1)
        assert allowed() == 0
        budgets.stop()
        world.controller(nodes.Kubelets).set_ready(("shop", pod), True)
        world.machine.run_for(60)
        assert allowed() == 0
        budgets.go_on()
        world.machine.run_for(5)
        assert allowed() == 1


def job(pod: Raw, name: str) -> Raw:
    reference = {"namespace": pod["metadata"]["namespace"], "name": pod["metadata"]["name"]}
    spec = {"mode": "ReservationFirst", "podRef": reference, "ttl": "600s"}
    meta = {"name": name}
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "PodMigrationJob",
        "metadata": meta,
        "spec": spec,
    }


def test_jobs_are_held_by_arbitration_and_by_the_limiter() -> None:
    koord: Raw = {"schedulerName": "koord-scheduler"}
    objects = [
        *TWO_NODES,
        *manifests.koordinator(),
        manifests.deployment("web", 3, **koord),
        manifests.deployment("one", 1),
    ]
    with World(objects, add_ons=[koordinator.GROUP]) as world:

        def phase(name: str) -> t.Any:
            status = world.get(kinds.PODMIGRATIONJOBS, name)["status"]
            return status.get("phase", ""), status.get("reason", "")

        pods = world.pods(app="web")
        world.apply(job(pods[0], "first"), job(pods[1], "second"), job(world.pods(app="one")[0], "single"))
        world.machine.run_for(10)
        assert (phase("first"), phase("single")) == (("Succeeded", ""), ("Failed", "ForbiddenMigratePod"))
        assert phase("second") == ("Running", "")
        assert world.find(kinds.PODS, pods[0]["metadata"]["name"]) is None
        world.machine.run_for(250)
        assert world.find(kinds.PODS, pods[1]["metadata"]["name"]) is not None
        world.machine.run_for(60)
        assert phase("second") == ("Succeeded", "")
        moved = world.get(kinds.PODMIGRATIONJOBS, "second")["status"]
        assert world.get(kinds.PODS, moved["podRef"]["name"])["spec"]["nodeName"] == moved["nodeName"]


def test_a_job_without_a_place_runs_out_of_time_and_ends_nothing() -> None:
    koord: Raw = {"schedulerName": "koord-scheduler"}
    objects = [manifests.node("n1"), *manifests.koordinator(), manifests.deployment("web", 2, **koord)]
    with World(objects, add_ons=[koordinator.GROUP]) as world:
        before = names(world.pods(app="web"))
        world.apply(job(world.pods(app="web")[0], "stuck"))
        world.machine.run_for(610)
        status = world.get(kinds.PODMIGRATIONJOBS, "stuck")["status"]
        assert (status["phase"], status["reason"]) == ("Failed", "Timeout")
        assert names(world.pods(app="web")) == before
        assert world.store.of(kinds.RESERVATIONS.resource) == {}
        world.machine.run_for(310)
        assert world.find(kinds.PODMIGRATIONJOBS, "stuck") is None
