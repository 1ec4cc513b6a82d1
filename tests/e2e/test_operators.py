# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Nodes with other projects' operators on them: emptied where kubectl drain empties them, and never darker."""

from __future__ import annotations

import time

import pytest
from support import operators, sampling
from support.arena import Arena
from support.lab import Lab
from support.operators import machines, outcomes, primaries
from support.operators.base import Operator
from support.plays import Player
from support.watching import Seen, Watch
from witness.log import Json


def dark(operator: Operator, seen: Seen) -> float:
    return sum(end - start for start, end in operator.dark(seen.log))


@pytest.mark.parametrize("kind", sampling.first(0, operators.ALL), ids=lambda kind: str(kind.__name__))
def test_a_node_is_emptied_where_kubectl_drain_empties_it_and_never_darker(
    kind: type[Operator], lab: Lab, arena: Arena, play: Player, watching: Watch
) -> None:
    by_kubectl, *_others, spare = arena.nodes(4)
    rows: Json = {}
    with operators.running(kind, arena, "k", by_kubectl, [spare]) as theirs:
        with watching() as seen:
            drained, took = outcomes.kubectl_drain(lab, by_kubectl)
        rows["kubectl drain"] = outcomes.row(drained.returncode, took, dark(theirs, seen))
    (by_us,) = arena.nodes(1)
    with operators.running(kind, arena, "m", by_us, [spare]) as ours:
        with watching() as seen:
            began = time.monotonic()
            run = play("maintain", maintain_nodes=[by_us], maintain_delete_emptydir_data=True, within=300)
            took = time.monotonic() - began
        rows["maintain"] = outcomes.row(run.rc, took, dark(ours, seen), outcomes.blockers(run))
    outcomes.remember(kind.title, kind.source, rows)
    assert run.ok, run.text
    assert rows["maintain"]["blockers"] == []
    assert ours.foreign_dark(seen.log, outcomes.SLACK) == [], f"dark outside of its own hand-over: {ours.switching}"
    assert dark(ours, seen) <= rows["kubectl drain"]["dark_seconds"] + outcomes.SLACK
    assert ours.wrong(seen.violations()) == []


@pytest.mark.whole
def test_a_virtual_machine_that_only_a_webhook_keeps_is_migrated(arena: Arena, play: Player, watching: Watch) -> None:
    here, *_others, spare = arena.nodes(4)
    with operators.running(machines.KubeVirtByWebhook, arena, "vm", here, [spare]) as operator, watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_delete_emptydir_data=True, within=300)
    assert run.ok, run.text
    assert "migrat" in run.finding("operator_budget")["message"]
    assert operator.foreign_dark(seen.log, outcomes.SLACK) == []
    seen.all_held()


@pytest.mark.whole
def test_a_virtual_machine_that_cannot_be_migrated_blocks_with_the_words_of_kubevirt(
    arena: Arena, play: Player
) -> None:
    here, *_others, spare = arena.nodes(4)
    why = {"type": "LiveMigratable", "status": "False", "reason": "HostDeviceNotLiveMigratable", "message": "a GPU"}
    with operators.running(machines.KubeVirtByWebhook, arena, "vm", here, [spare]) as operator:
        operator.api.patch(operator.machine, {"status": {"conditions": [why]}})
        run = play("maintain", maintain_nodes=[here], maintain_delete_emptydir_data=True)
    assert not run.ok
    assert "cannot be migrated (a GPU)" in run.finding("not_migratable")["message"]
    assert not arena.is_cordoned(here)


@pytest.mark.parametrize("acts", [True, *sampling.first(0, [False])], ids=["acts", "does-not-act"])
def test_the_operator_of_a_primary_is_waited_for_and_the_node_given_back_if_it_never_acts(
    arena: Arena, play: Player, watching: Watch, acts: bool
) -> None:
    here, *_others, spare = arena.nodes(4)
    limit = "5m" if acts else "5s"
    wanted: Json = {"maintain_delete_emptydir_data": True, "maintain_operator_budget_wait": limit}
    with (
        operators.running(primaries.CloudNativePG, arena, "pg", here, [spare], acts=acts) as operator,
        watching() as seen,
    ):
        run = play("maintain", maintain_nodes=[here], **wanted)
    assert run.finding("operator_budget")["severity"] == "warning"
    assert "promotes a replica" in run.finding("operator_budget")["message"]
    assert run.ok is acts, run.text
    assert not arena.is_cordoned(here)
    assert arena.record(here) is None
    assert operator.foreign_dark(seen.log, outcomes.SLACK) == []
    if acts:
        seen.all_held()
    else:
        assert "Waited 10 s in vain" in run.words
        assert dark(operator, seen) == 0
        assert len(seen.evictions()) == 0
        seen.all_held(resumable=True)
