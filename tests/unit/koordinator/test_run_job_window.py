# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The object limiter's window over several calls, in whole runs on a simulated cluster."""

from __future__ import annotations

import dataclasses
import itertools
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Event as Told
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import migration_jobs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks import screen_waits
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import koordinator, manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.object_rules import seconds_of
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, Outcome, maintain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

WINDOW = 90.0


class Scene:
    """Deployment `web` of three, one on each of three nodes, and what its jobs did: when created, evicted, ended."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.created: dict[str, float] = {}
        self.evicted: dict[str, float] = {}
        self.reasons: list[str] = []
        world.on_event.append(self._note)

    def _note(self, event: Event) -> None:
        if event.resource != kinds.PODMIGRATIONJOBS.resource:
            return
        name, status = event.raw["metadata"]["name"], event.raw.get("status") or {}
        self.created.setdefault(name, self.world.machine.now)
        if any(condition["type"] == "Eviction" for condition in status.get("conditions") or ()):
            self.evicted.setdefault(name, self.world.machine.now)
        if status.get("reason"):
            self.reasons.append(status["reason"])

    def maintain(self, *nodes: str, name: str = "me", **choices: t.Any) -> Outcome:
        me = self.world.process(name)
        given = Input(nodes, choices=DrainPolicy(**{"backend": "koordinator", **choices}))
        task = me.spawn(lambda: maintain(me, given))
        self.world.machine.run_until(lambda: not task.alive, within=3600.0)
        return Outcome(wrong=["killed"]) if me.process.dead else t.cast("Outcome", task.value())

    @property
    def waits(self) -> list[float]:
        """Seconds that each job had between its creation and its eviction."""
        return [self.evicted[name] - created for name, created in self.created.items()]

    @property
    def apart(self) -> list[float]:
        """Seconds between one eviction and the next."""
        times = sorted(self.evicted.values())
        return [later - earlier for earlier, later in itertools.pairwise(times)]

    def moved_by_someone(self, node: str) -> None:
        """Another client moves the node's pod of `web` by a job, and deletes the job when it has succeeded."""
        [pod] = self.world.pods(on=node, app="web")
        meta = pod["metadata"]
        ref = Ref("Pod", meta["name"], meta["namespace"], meta["uid"], "v1")
        job = migration_jobs.manifest("theirs", ref, migration_jobs.JobSettings())
        job["metadata"]["labels"] = {}
        self.world.apply(job)
        self.world.machine.run_until(lambda: self._job("theirs")["status"].get("phase") == "Succeeded")
        self.world.delete(kinds.PODMIGRATIONJOBS, "theirs")
        self.world.machine.run_for(5.0)

    def _job(self, name: str) -> Raw:
        return self.world.get(kinds.PODMIGRATIONJOBS, name)


@pytest.fixture
def scene() -> t.Iterator[Scene]:
    web = manifests.deployment("web", 3, schedulerName="koord-scheduler")
    objects = [*manifests.koordinator(f"{WINDOW:g}s"), *(manifests.node(f"n{i}") for i in (1, 2, 3)), web]
    with World(objects, add_ons=[koordinator.GROUP]) as world:
        yield Scene(world)


def test_the_second_wave_waits_for_the_window_with_its_reason_before_it_creates_a_job(scene: Scene) -> None:
    outcome = scene.maintain("n1", "n2")
    assert (outcome.ok, outcome.failed, outcome.wrong) == (True, {}, [])
    assert len(scene.evicted) >= 2
    assert max(scene.waits) < 20, "no job waits in its place for the limiter"
    assert min(scene.apart) >= WINDOW
    assert scene.reasons == []
    told = [event.message for event in scene.world.process("me").told]
    assert any("lets one pod of Deployment shop/web go in 90 s: the next one goes at " in message for message in told)


def test_a_pipe_names_the_limiter_for_as_long_as_it_holds_the_pods_of_a_node() -> None:
    web = manifests.deployment("web", 3, schedulerName="koord-scheduler")
    with World(
        [*manifests.koordinator(f"{WINDOW:g}s"), manifests.node("n1"), web], add_ons=[koordinator.GROUP]
    ) as world:
        for name in ("n2", "n3"):
            world.apply(manifests.node(name))
        scene = Scene(world)
        outcome = scene.maintain("n1")
        assert (outcome.ok, len(scene.evicted)) == (True, 3)
        shown = on_the_screen(world.process("me").told)
    times = [at for at, _line in shown]
    assert max(later - earlier for earlier, later in itertools.pairwise(times)) <= 15
    first, *_between, last = (at for at, line in shown if "The object limiter lets one pod of" in line)
    assert last - first > WINDOW


def on_the_screen(events: t.Sequence[Told]) -> list[tuple[float, str]]:
    """What is shown, and when, from the first of the events to the last."""
    held, shown, left = screen_waits.Waits(), list[tuple[float, str]](), list(events)
    now, end = (seconds_of(event.at) for event in (left[0], left[-1]))
    while now <= end:
        while left and seconds_of(left[0].at) <= now:
            event = dataclasses.asdict(left.pop(0))
            held.see(event, now)
            shown += [] if screen_waits.waits(event) else [(now, event["message"])]
        shown += [(now, line) for line in held.due(now, "2026-11-26T00:00:00Z")]
        now += 1.0
    return shown


@pytest.mark.parametrize("ordinal", [60, 90])
def test_a_run_that_was_killed_remembers_as_well(scene: Scene, ordinal: int) -> None:
    scene.world.process("me").faults.at(ordinal, Fault("killed after"))
    assert scene.maintain("n1", "n2").wrong == ["killed"]
    assert scene.maintain("n1", "n2").ok
    assert max(scene.waits) < 20
    assert min(scene.apart) >= WINDOW


def test_evictions_that_others_made_before_count(scene: Scene) -> None:
    scene.moved_by_someone("n3")
    assert scene.maintain("n1").ok
    assert max(scene.waits) < 20
    assert min(scene.apart) >= WINDOW
    assert scene.reasons == []


def test_auto_evicts_instead_where_the_window_is_longer_than_a_pod_waits(scene: Scene) -> None:
    scene.moved_by_someone("n3")
    outcome = scene.maintain("n1", backend="auto", job_wait=30.0)
    assert outcome.ok
    [node] = [node for step in outcome.steps("migrate") for node in step["nodes"]]
    pods = [pod for pod in node["pods"] if pod["route"] != "skip"]
    assert {(pod["route"], pod["outcome"]) for pod in pods} == {("evict", "evicted")}
    assert all("The object limiter would delay it for" in pod["reason"] for pod in pods)
    assert set(scene.created) == {"theirs"}


def test_the_plan_names_a_persons_paused_job_and_the_drain_leaves_it(scene: Scene) -> None:
    [pod] = scene.world.pods(on="n1", app="web")
    reference = {key: pod["metadata"][key] for key in ("namespace", "name")}
    kind = {"apiVersion": migration_jobs.API_VERSION, "kind": migration_jobs.KIND}
    made = {"name": "ask-first", "labels": {"app.kubernetes.io/created-by": "ann"}}
    scene.world.apply({**kind, "metadata": made, "spec": {"podRef": reference, "paused": True, "ttl": "1800s"}})
    outcome = scene.maintain("n1", job_wait=20.0)
    assert outcome.ok
    plan = next(result.data for name, result in outcome.calls if name == "plan")
    [finding] = [finding for finding in plan["findings"] if finding["code"] == "job_paused"]
    assert (finding["object"], finding["severity"]) == ("PodMigrationJob ask-first", "warning")
    assert "ann created it" in finding["message"]
    assert "after 20 s it goes on without the job" in finding["remedy"]
    assert set(scene.created) == {"ask-first"}
    assert scene.world.get(kinds.PODMIGRATIONJOBS, "ask-first")["spec"]["paused"]
