# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Whole runs on the simulator: the engine's loops unchanged, as a function of objects, choices and faults."""

from __future__ import annotations

import itertools
import random
import time
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy as Wishes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import build, model
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import koordinator, manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Choices
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.nodes import START, STOP
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.whole import Input, Outcome, maintain
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, Saved, World

SERVICES = {"single": 1, "web": 2, "scaled": 1, "db": 2}
"""How many endpoints each has at least, at any moment."""


@pytest.fixture(scope="module")
def saved() -> Saved:
    with World(manifests.usual()) as world:
        return world.saved()


def patched(actor: Actor, name: str) -> None:
    """The user's tasks: nothing may run there meanwhile, and the node comes back with another boot ID."""
    left = [pod["metadata"]["name"] for pod in actor.world.pods(on=name) if not names_daemon(pod)]
    assert left == []
    actor.world.reboot(name)
    actor.clock.sleep(5.0)


def names_daemon(pod: dict[str, object]) -> bool:
    meta = pod["metadata"]
    assert isinstance(meta, dict)
    return any(owner["kind"] == "DaemonSet" for owner in meta["ownerReferences"])


def run(world: World, *nodes: str, name: str = "me", backend: str = "auto") -> Outcome:
    """The command, until it ends or dies (then without an outcome of its own)."""
    me = world.process(name)
    task = me.spawn(lambda: maintain(me, Input(nodes, work=patched, choices=Wishes(backend=backend))))
    world.machine.run_until(lambda: not task.alive)
    if me.process.dead:
        return Outcome(wrong=["killed"])
    outcome: Outcome = task.value()
    return outcome


def watch_services(world: World) -> None:
    def look() -> None:
        for service, least in SERVICES.items():
            assert world.serving(service) >= least, f"{service} at {world.machine.now}"

    world.machine.on_step.append(look)


def traces(world: World) -> list[str]:
    """Whatever is left of a run."""
    left = [f"Lease {name}" for _namespace, name in world.store.of(kinds.LEASES.resource)]
    left += [f"ConfigMap {name}" for ns, name in world.store.of(kinds.CONFIGMAPS.resource) if ns == names.NAMESPACE]
    for (_namespace, name), node in world.store.of(kinds.NODES.resource).items():
        keys = {taint["key"] for taint in node["spec"].get("taints") or ()} - {"dedicated"}
        if names.RECORD in (node["metadata"].get("annotations") or {}) or keys:
            left.append(f"Node {name}")
    left += [f"Budget {name}" for _ns, name in world.store.of(kinds.BUDGETS.resource) if name.startswith("kubeops")]
    return left


def test_a_whole_run_is_never_dark_leaves_nothing_and_takes_a_moment(saved: Saved) -> None:
    with World.of(saved) as world:
        watch_services(world)
        start = time.process_time()
        outcome = run(world, "n1", "n2", "n3")
        took = time.process_time() - start
        assert (outcome.ok, outcome.failed, outcome.wrong) == (True, {}, [])
        assert traces(world) == []
        assert {
            name: world.get(kinds.DEPLOYMENTS, name)["spec"]["replicas"] for name in ("single", "web", "scaled")
        } == {
            "single": 1,
            "web": 3,
            "scaled": 2,
        }
        print(f"three nodes: {took:.3f} s of CPU, {len(world.log)} requests, {world.machine.steps} steps")
        assert took < 3.0  # about 0.17; what makes a hundred thousand of them dear shows here first


def test_the_report_compares_the_forecast_with_the_same_span() -> None:
    """A replacement starts while the other pods leave, one after the other."""
    slow: dict[str, t.Any] = {"annotations": {START: "8s", STOP: "2s"}, "terminationGracePeriodSeconds": 2}
    objects = [
        manifests.deployment("single", 1, **slow),
        manifests.deployment("web", 2, **slow),
        manifests.budget("web", maxUnavailable=1),
    ]
    with World([manifests.node("n1"), *objects]) as world:
        world.apply(manifests.node("n2"))
        me = world.process("me")
        task = me.spawn(lambda: maintain(me, Input(("n1",))))
        world.machine.run_until(lambda: not task.alive)
        calls = list(zip(task.value().calls, me.contexts, strict=True))
        found = build.build_report([result.shaped(ctx) for (_name, result), ctx in calls]).totals
        (alone,) = [step["summary"]["seconds"] for step in task.value().steps("migrate")]
    assert found.forecast_seconds is not None
    assert found.moving_seconds == pytest.approx(found.forecast_seconds, rel=0.1)
    assert alone - 1 < found.moving_seconds < alone + 8


def reported(actor: Actor, outcome: Outcome) -> model.Report:
    """The report of the start that this process was."""
    calls = zip(outcome.calls, actor.contexts, strict=True)
    return build.build_report([result.shaped(ctx) for (_name, result), ctx in calls])


def test_the_report_of_a_resumed_run_counts_from_the_cordon_whatever_the_clocks_say() -> None:
    objects = [manifests.deployment("web", 2), manifests.budget("web", maxUnavailable=1)]
    with World([manifests.node("n1"), *objects], skew=-4000.0) as world:
        world.apply(manifests.node("n2"))

        def start(name: str, *, fails: bool) -> model.Report:
            me = world.process(name, skew=9000.0)

            def work(_actor: Actor, _node: str) -> None:
                if fails:
                    raise RuntimeError("no such package")

            task = me.spawn(lambda: maintain(me, Input(("n1",), work=work)))
            world.machine.run_until(lambda: not task.alive)
            return reported(me, task.value())

        first = start("first", fails=True)
        world.machine.run_for(3600.0)
        again = start("again", fails=False)
    (line,) = again.nodes
    assert (first.totals.pods_moved, line.pods_moved, again.totals.pods_moved) == (2, 2, 2)
    assert line.outcome == "back"
    assert line.spans[0].phase == "earlier"
    assert first.started is not None
    assert again.started == pytest.approx(first.started, abs=2.0)
    assert again.ended is not None
    assert line.seconds == pytest.approx(again.ended - first.started, abs=2.0)
    assert again.ended - first.started > 3600


@pytest.mark.parametrize("killed", [False, True])
def test_the_report_of_a_resumed_run_knows_of_waves_and_pods_of_the_start_before(killed: bool) -> None:
    objects = [manifests.deployment("web", 4), manifests.budget("web", maxUnavailable=1)]
    with World([manifests.node("n1"), manifests.node("n2"), *objects]) as world:
        world.apply(manifests.node("n3"))

        def start(name: str, *, fails: bool) -> model.Report:
            me = world.process(name)

            def work(_actor: Actor, node: str) -> None:
                if fails and node == "n2":
                    raise RuntimeError("no such package")

            if killed and fails:
                evicted = itertools.count(1)
                me.faults.when(lambda r: r.resource == "pods/eviction" and next(evicted) == 4, Fault("killed after"))
            task = me.spawn(lambda: maintain(me, Input(("n1", "n2"), work=work)))
            world.machine.run_until(lambda: not task.alive)
            return build.build_report([]) if killed and fails else reported(me, task.value())

        start("first", fails=True)
        world.machine.run_for(4000.0)
        again = start("again", fails=False)
    assert [(line.name, line.wave, line.outcome) for line in again.nodes] == [("n1", 1, "back"), ("n2", 2, "back")]
    first, second = again.nodes
    assert first.pods_moved is None, "known only for all of them"
    moved = second.pods_moved or 0
    assert moved == 2
    assert again.earlier is not None
    assert again.earlier.finished == ("n1",)
    assert again.earlier.whole is not killed
    assert again.totals.pods_moved == again.earlier.pods_moved + moved
    assert again.earlier.pods_moved > 0
    assert again.totals.watched_seconds >= again.earlier.watched_seconds > 0
    assert again.totals.out_seconds > 4000


def test_services_are_watched_while_a_surge_the_drain_and_the_gates_are_waited_for() -> None:
    apps = [manifests.deployment("single", 1), manifests.daemon_set("agent")]
    objects = [*apps, manifests.service("single"), manifests.service("agent")]
    with World([manifests.node("n1"), *objects]) as world:
        world.apply(manifests.node("n2"))
        world.machine.run_for(30.0)
        me = world.process("me")
        task = me.spawn(lambda: maintain(me, Input(("n1",), work=patched)))
        world.machine.run_until(lambda: not task.alive)
        outcome: Outcome = task.value()
        report = reported(me, outcome)
    watching = [step["step"] for step in outcome.steps() if "services" in step]
    assert watching == ["protect", "migrate", "verify"]
    assert report.verdict == "never_dark"
    tasks = sum(span.seconds for span in report.nodes[0].spans if span.phase == "out")
    assert tasks >= 5
    assert tasks - 0.1 < report.unwatched_seconds < tasks + 5
    (finding,) = [finding for finding in report.findings if finding.code == "serves_from_node"]
    assert finding.object == "DaemonSet shop/agent"


def test_the_same_choices_give_the_same_run(saved: Saved) -> None:
    def told(choices: Choices) -> list[tuple[str, str, str]]:
        with World.of(saved, choices=choices, fine=True) as world:
            assert run(world, "n1").ok
            return [(sent.request.method, sent.request.path, f"{sent.arrived:.3f}") for sent in world.log]

    drawn = Choices(chance=random.Random(11))
    first = told(drawn)
    assert told(Choices(drawn.picked())) == first
    assert told(Choices(chance=random.Random(12))) != first


@pytest.mark.parametrize("ordinal", [3, 40, 80])
def test_the_same_command_ends_what_a_killed_one_began(saved: Saved, ordinal: int) -> None:
    with World.of(saved) as world:
        world.process("me").faults.at(ordinal, Fault("killed after"))
        assert run(world, "n1").wrong == ["killed"]
        outcome = run(world, "n1")
        assert (outcome.ok, outcome.failed, outcome.wrong) == (True, {}, [])
        assert traces(world) == []


def test_pods_move_by_jobs_and_nothing_of_them_is_left() -> None:
    objects = [*manifests.koordinator("0s"), *manifests.usual(schedulerName="koord-scheduler")]
    with World(objects, add_ons=[koordinator.GROUP]) as world:
        watch_services(world)
        outcome = run(world, "n1", "n2", backend="koordinator")
        assert (outcome.ok, outcome.failed, outcome.wrong) == (True, {}, [])
        drained = [node for step in outcome.steps("migrate") for node in step["nodes"]]
        moved = [(pod["route"], pod["outcome"]) for node in drained for pod in node["pods"] if pod["route"] != "skip"]
        assert moved.count(("job", "migrated")) >= 6
        assert set(moved) == {("job", "migrated"), ("surge", "surged")}
        assert traces(world) == []
        left = [len(world.store.of(kind.resource)) for kind in (kinds.PODMIGRATIONJOBS, kinds.RESERVATIONS)]
        assert left == [0, 0]
