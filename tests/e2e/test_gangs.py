# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods that only work together are interrupted with consent, and once."""

from __future__ import annotations

from support.arena import Arena
from support.plays import Player
from support.watching import Watch
from witness.log import Json

LWS = "leaderworkerset.sigs.k8s.io"
# LeaderWorkerSet v0.6, docs/reference/labels-annotations-and-environment-variables.md
MARKS: Json = {f"{LWS}/name": "serve", f"{LWS}/group-index": "0", f"{LWS}/group-key": "689ce1b5e1dd2ab64b1ac8"}


def test_a_gang_over_three_nodes_is_interrupted_once(arena: Arena, play: Player, watching: Watch) -> None:
    here = arena.nodes(3)
    arena.nodes(3)
    spec: Json = {"podManagementPolicy": "Parallel", "template": {"metadata": {"labels": MARKS}}}
    gang = arena.statefulset("serve-0", 3, on=here, spec=spec, start="8s")
    with watching() as seen:
        run = play("maintain", maintain_nodes=here)
    assert not run.ok
    found = run.finding("gang")
    assert found["severity"] == "blocker"
    assert f"serve group 0 (3 pods on {', '.join(here)})" in found["message"]
    assert seen.writes == []
    with watching() as seen:
        run = play("maintain", maintain_nodes=here, maintain_allow_interruption=True)
        assert run.ok, run.text
    seen.all_held(interruptible=[gang])
    assert run.of("maintenance_plan")[0]["waves"] == [here]
    assert sorted(request.name for request in seen.evictions()) == ["serve-0-0", "serve-0-1", "serve-0-2"]
    times = [request.at for request in seen.evictions()]
    assert max(times) - min(times) < 8.0, "before the first new one could serve, as it works as a whole only"
    assert len(seen.new_pods(gang)) == 3
