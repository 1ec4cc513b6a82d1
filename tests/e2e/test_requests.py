# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many requests a drain sends, counted by the API server itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from support.arena import Arena, Workload
from support.plays import Player, Run
from support.watching import Seen, Watch


def crowd(arena: Arena, nodes: list[str], per_node: int) -> list[Workload]:
    """Deployments of ten under budgets of three, so many that each node has its share of pods."""
    made = []
    for node in nodes:
        with arena.placing(node):
            made += [
                arena.deployment(f"{node[-2:]}-app-{n}", 10, budget={"maxUnavailable": 3}, service=False)
                for n in range(per_node // 10)
            ]
    return made


def spent(seen: Seen, run: Run, nodes: int) -> None:
    """Evictions + refusals + 18 + 3 per node + lease renewals, and not one request more.

    Most of the 18 are watches with their lists: pods, nodes, budgets, endpoints and owners are followed live.
    """
    requests = seen.requests
    tries = [request for request in requests if request.evicts]
    renewals = [request for request in requests if request.resource == "leases" and request.writes]
    allowed = len(tries) + 18 + 3 * nodes + len(renewals)
    assert len(requests) <= allowed, seen.counted("verb", "resource", "subresource")
    assert run.answer["summary"]["requests"] <= len(requests)
    assert run.answer["summary"]["evicted"] == len(seen.evictions())


@pytest.mark.whole
@pytest.mark.parametrize("count", [2, 1])
def test_a_drain_of_crowded_nodes_keeps_to_its_requests(
    arena: Arena, play: Player, watching: Watch, count: int
) -> None:
    leaving = arena.nodes(count)
    arena.nodes(2)
    crowd(arena, leaving, 50)
    arena.settle()
    assert play.module("node_cordon", nodes=leaving).ok
    assert play.module("pdb_guard", nodes=leaving, method="surge").ok
    with watching() as seen:
        run = play.module("node_drain", nodes=leaving, method="surge")
        assert run.ok, run.text
    spent(seen, run, count)
    assert len(seen.evictions()) == 50 * count
    assert len(seen.evictions(429)) <= 5 * count
    for state in ("returning", "uncordoned"):
        assert play.module("node_cordon", state=state, nodes=leaving).ok


SINGLES = 5
"""Single replicas that leave one node by surges."""


def test_a_surge_costs_seven_requests_beside_those_of_the_calls(arena: Arena, play: Player, watching: Watch) -> None:
    """Record, deletion cost, raise, "it serves", take up, lower, forget; all else is sent once for all of them."""
    leaving, _staying = arena.nodes(2)
    with arena.placing(leaving):
        apps = [arena.deployment(f"single-{n}", start="1s") for n in range(SINGLES)]
    arena.settle()
    with watching() as seen:
        for module in ("node_cordon", "pdb_guard", "node_drain"):
            method: dict[str, Any] = {} if module == "node_cordon" else {"method": "surge"}
            run = play.module(module, nodes=[leaving], **method)
            assert run.ok, run.text
    seen.all_held(left=True)
    assert [len(seen.new_pods(app)) for app in apps] == [1] * SINGLES
    locks = [r for r in seen.requests if r.resource == "leases" and r.writes and not r.name.startswith("surge-")]
    surges = [r for r in seen.requests if r.writes and r not in locks and r.resource not in ("nodes", "namespaces")]
    assert Counter((r.verb, r.resource) for r in surges) == {
        ("create", "leases"): SINGLES,
        ("patch", "pods"): SINGLES,
        ("patch", "deployments"): 2 * SINGLES,
        ("patch", "leases"): 2 * SINGLES,
        ("delete", "leases"): SINGLES,
    }
    rest = len(seen.requests) - len(surges) - len(locks)
    assert rest <= 44, seen.counted("agent", "verb", "resource")
    for module, state in (("node_cordon", "returning"), ("pdb_guard", "absent"), ("node_cordon", "uncordoned")):
        assert play.module(module, state=state, nodes=[leaving]).ok


def test_one_bulk_call_for_a_wave_whatever_its_size(arena: Arena, play: Player, watching: Watch) -> None:
    leaving = arena.nodes(5)
    arena.nodes(1)
    with watching() as seen:
        run = play("maintain", maintain_nodes=leaving, maintain_serial=5)
        assert run.ok, run.text
    seen.all_held()
    calls = {module: len(run.of(module)) for module in ("pdb_guard", "node_drain")}
    assert calls == {"pdb_guard": 2, "node_drain": 1}, "before and after, and once for all nodes"
    locks = [request for request in seen.requests if request.resource == "leases" and request.writes]
    verbs = Counter(request.verb for request in locks if not request.name.startswith(("run-", "heartbeat-")))
    assert verbs["patch"] == 0, "what a run renews does not grow with its nodes"
    assert verbs["create"] <= len(leaving) + 2, "each node's lease, the heartbeat and the run's sign of life"
    assert verbs["delete"] == len(leaving)
