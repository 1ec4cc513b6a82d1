# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the calls of one wave cost beside its evictions and guards; bench/README.md says what for."""

from __future__ import annotations

import functools
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import run_drain, run_unreachable
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import run_cordon, run_gates
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import run_plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs import run_runs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import run_guard
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.waves import run_wave
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import (
    manifests,
    nodes,
    test_draining,
    whole,
    world,
)

FIXED = {"surge": 47, "replace": 44}
"""By the method of moving pods: a guard is waited for, and what it writes is read anew."""
EACH_NODE = 8
LOOKS = 1
"""At the locks, in a drain that takes long enough."""

ENGINES = {
    run_plan: "make_plan",
    run_cordon: "cordon",
    run_guard: "guard",
    run_drain: "drain",
    run_gates: "check_ready",
    run_runs: "noted",
}
CALLS = ("take_out", "bring_back")

Loop = t.Callable[..., t.Any]


class Counting:
    """Notes for each call of a run how many requests it sent beside moves of pods, guards and renewals."""

    def __init__(self, here: world.World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, int]] = []
        self._world = here
        for module, name in [*ENGINES.items(), *((run_wave, call) for call in CALLS)]:
            engine = functools.partial(self._called, name, getattr(module, name))
            monkeypatch.setattr(module, name, engine)

    def _called(self, name: str, loop: Loop, *given: t.Any) -> t.Any:
        before = len(self._world.log)
        result = loop(*given)
        requests = [sent.request for sent in self._world.log[before:]]
        self.calls.append((name, sum(not _is_of_time_or_pods(one) for one in requests)))
        return result


def _is_of_time_or_pods(one: verbs.Request) -> bool:
    """Whether the request renews a lock, moves a pod or writes a guard."""
    if one.resource in ("pods", "pods/eviction"):
        return bool(one.name)
    renews = one.verb == "patch" and one.name.startswith("heartbeat-")
    return renews or (one.writes and one.resource == "poddisruptionbudgets.policy")


@pytest.mark.parametrize("method", FIXED)
@pytest.mark.parametrize("count", [1, 10])
def test_a_wave_costs_the_same_for_many_pods_and_little_for_each_node(
    monkeypatch: pytest.MonkeyPatch, count: int, method: str
) -> None:
    names = tuple(f"a{number}" for number in range(2 * count))
    pods = [manifests.deployment(f"web{number}", 6) for number in range(3 * count)]
    choices = drain_policy.DrainPolicy(method=method)
    with world.World([manifests.node("z"), *map(manifests.node, names), *pods]) as here:
        counted = Counting(here, monkeypatch)
        actor = here.process("me")
        run = actor.spawn(lambda: whole.maintain(actor, whole.Input(names, serial=count, choices=choices)))
        here.machine.run_until(lambda: not run.alive)
        assert run.value().ok
    second = [number for number, (name, _sent) in enumerate(counted.calls) if name == "make_plan"][-1]
    wave = counted.calls[second:]
    whole_calls = sum(sent for name, sent in wave if name in CALLS)
    steps = ["make_plan", "cordon", "guard", "drain", "cordon", "check_ready", "noted", "guard", "cordon", "noted"]
    assert [name for name, _sent in wave if name not in CALLS] == steps
    least = FIXED[method] + EACH_NODE * count
    assert least <= whole_calls <= least + LOOKS, wave


@pytest.mark.parametrize(
    ("method", "lists", "most"), [("replace", "", 35), ("replace", "apart", 42), ("surge", "", 59)]
)
def test_five_single_replicas_are_moved_with_few_requests(
    monkeypatch: pytest.MonkeyPatch, method: str, lists: str, most: int
) -> None:
    """From the cordon to the proof that the node is empty, all requests counted; also where no watch begins with a
    list, so that lists come apart from them.
    """
    pods = [manifests.deployment(f"web{number}", 1) for number in range(5)]
    choices = drain_policy.DrainPolicy(method=method)
    with world.World([manifests.node("a"), *pods]) as here:
        here.apply(manifests.node("z"))
        here.server.lists_by_watches = not lists
        sent: list[int] = []
        loop = run_wave.take_out

        def counted(*given: t.Any) -> t.Any:
            before = len(here.log)
            result = loop(*given)
            sent.append(len(here.log) - before)
            return result

        monkeypatch.setattr(run_wave, "take_out", counted)
        actor = here.process("me")
        run = actor.spawn(lambda: whole.maintain(actor, whole.Input(("a",), choices=choices)))
        here.machine.run_until(lambda: not run.alive)
        assert run.value().ok
    assert sent == [most]


def test_pods_that_end_late_cost_no_requests_for_each_node() -> None:
    """Their nodes are known by the watch, and all of them are listed now and then."""
    names = tuple(f"a{number}" for number in range(20))
    loads = [manifests.deployment(f"web{number}", 8, terminationGracePeriodSeconds=1) for number in range(5)]
    with test_draining.world_of(*loads, leaving=names) as here:
        _me, task = test_draining.begun(here, *names)
        here.controller(nodes.Kubelets).lag = 12.0
        before, at = len(here.log), here.machine.now
        assert not test_draining.ended(here, task).failed
        asked = (sent.request for sent in here.log[before:] if sent.request.resource == "nodes")
        read = [one for one in asked if not one.writes]
        assert len(read) <= 5 + (here.machine.now - at) / run_unreachable.LIST_EVERY_SECONDS
        assert [one for one in read if one.verb == "get"] == []
