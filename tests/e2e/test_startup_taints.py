# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Controllers that taint a node until it has started: it is not back before they have removed their taint."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence

import pytest
from support.arena import Arena
from support.plays import Player
from support.watching import Watch
from witness.api import ApiError
from witness.log import Json

# node-readiness-controller v0.4.1, examples/cni-readiness/network-readiness-rule.yaml.
NETWORK: Json = {"key": "readiness.k8s.io/NetworkReady", "value": "pending", "effect": "NoSchedule"}
TOUCH: Json = {"name": "Work on it", "ansible.builtin.command": "true"}
GATES = ["ready", "daemonsets", "schedulable"]


@contextlib.contextmanager
def readiness(arena: Arena, nodes: Sequence[str], started: bool) -> Iterator[None]:
    """A controller in mode continuous: it taints a node that is worked on.

    It removes the taint two seconds after the node's return if its network has `started`.
    """
    done = threading.Event()

    def reconcile(name: str) -> None:
        node, step = arena.node(name), arena.step(name)
        taints: list[Json] = node["spec"].get("taints") or []
        has = any(taint["key"] == NETWORK["key"] for taint in taints)
        version = {"resourceVersion": node["metadata"]["resourceVersion"]}
        if step == "out" and not has:
            arena.api.patch(f"/api/v1/nodes/{name}", {"metadata": version, "spec": {"taints": [*taints, NETWORK]}})
        elif step == "returning" and has and started and not done.wait(2):
            left = [taint for taint in taints if taint["key"] != NETWORK["key"]]
            arena.api.patch(f"/api/v1/nodes/{name}", {"metadata": version, "spec": {"taints": left}})

    def run() -> None:
        while not done.wait(0.1):
            for name in nodes:
                with contextlib.suppress(ApiError):  # a conflict: the next round reads again
                    reconcile(name)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@pytest.mark.whole
def test_a_run_stops_after_the_first_node_whose_startup_taint_stays(
    arena: Arena, play: Player, watching: Watch
) -> None:
    nodes = arena.nodes(4)
    web = arena.deployment("web", 2, on=nodes[0])
    arena.settle()
    with watching() as seen, readiness(arena, nodes, started=False):
        run = play(
            "maintain",
            inventory=play.hosts(nodes),
            maintain_nodes=nodes,
            maintain_serial=1,
            # The user's tasks must take longer than a round of the controller.
            maintain_tasks=play.tasks({**TOUCH, "ansible.builtin.command": "sleep 1"}),
            maintain_gates=GATES,
            maintain_timeout=8,
        )
    assert not run.ok
    (first,) = seen.taken_out()
    failed = run.node(first, "node_ready")
    assert failed["outcome"] == "failed"
    for word in ("readiness.k8s.io/NetworkReady=pending:NoSchedule", "node-readiness-controller"):
        assert word in failed["message"]
        assert word in run.words[run.words.rindex("Fail if anything failed") :]
    assert "nodereadinessrules" in run.finding("tainted")["remedy"]
    assert arena.step(first) == "parked"
    assert seen.dark_seconds(web) == 0


@pytest.mark.whole
def test_a_run_goes_on_when_the_startup_taints_go_away(arena: Arena, play: Player, watching: Watch) -> None:
    one, two, _unused = arena.nodes(3)
    with watching() as seen, readiness(arena, [one, two], started=True):
        run = play(
            "maintain",
            inventory=play.hosts([one, two]),
            maintain_nodes=[one, two],
            maintain_serial=1,
            maintain_tasks=play.tasks({**TOUCH, "ansible.builtin.command": "sleep 1"}),
            maintain_gates=GATES,
            maintain_timeout=30,
        )
    assert run.ok, run.text
    assert "readiness.k8s.io/NetworkReady" in run.text, "it was waited for"
    assert len(seen.taken_out()) == 2
    assert not arena.is_cordoned(one)
    assert not arena.is_cordoned(two)
