# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The real operator of CloudNativePG, on a lab of its own: see support/operators/real.py for how real."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import running
from support.arena import Arena
from support.lab import Lab, adopted
from support.operators import outcomes, real
from support.plays import Player
from support.waiting import until
from support.watching import Watch
from witness import objects as o
from witness.log import Json

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab of its own: the CRDs of the emulated CloudNativePG in the shared one have open schemas."""
    if given := os.environ.get("LAB_KUBECONFIG"):
        yield adopted(request.getfixturevalue("tmp_path_factory").mktemp("lab"), Path(given))
        return
    with running(request, "cnpg", lab_cloudnative_pg=True, lab_metrics=False) as made:
        yield made


def handed_over(arena: Arena, node: str) -> list[str]:
    """What the operator says of a switch-over because of the node, in its Events."""
    events = arena.api.items(f"/api/v1/namespaces/{arena.namespace}/events")
    return [e["message"] for e in events if e["reason"] == "SwitchingOver" and f"node {node}," in e["message"]]


def test_the_real_cloudnative_pg_hands_over_and_the_node_is_emptied(
    lab: Lab, arena: Arena, play: Player, watching: Watch, tmp_path: Path
) -> None:
    real.nodes(arena, 5)
    # The scale of the Cluster is read, to know how many pods it has; users add that right if they want it used.
    play.may_be_refused = True
    rows: Json = {}
    with real.operator(lab, arena.namespace, tmp_path), real.cluster(arena, "pg") as postgres:
        budgets = {o.name(budget): budget for budget in arena.all("PodDisruptionBudget")}
        assert budgets["pg-primary"]["spec"]["minAvailable"] == 1
        assert budgets["pg-primary"]["metadata"]["ownerReferences"][0]["kind"] == "Cluster"

        addresses = real.listening(lab)
        assert addresses, "its webhook server runs"
        assert addresses <= real.LOOPBACK

        first = postgres.primary()
        with watching() as seen:
            drained, took = outcomes.kubectl_drain(lab, first["spec"]["nodeName"])
            until(postgres.healthy, 60, "the Cluster is healthy again", every=0.5)
        rows["kubectl drain"] = outcomes.row(drained.returncode, took, postgres.dark(seen.log))
        assert drained.returncode == 0, drained.stderr
        arena.cordon(first["spec"]["nodeName"], False)

        second = postgres.primary()
        node = second["spec"]["nodeName"]
        assert o.name(second) != o.name(first)
        with watching() as seen:
            began = time.monotonic()
            run = play("maintain", maintain_nodes=[node], maintain_delete_emptydir_data=True, within=300)
            took = time.monotonic() - began
            until(postgres.healthy, 60, "the Cluster is healthy again", every=0.5)
        rows["maintain"] = outcomes.row(run.rc, took, postgres.dark(seen.log), outcomes.blockers(run))
        outcomes.remember("CloudNativePG itself", real.SOURCE, rows)
        assert run.ok, run.text
        assert run.finding("operator_budget")["severity"] == "warning"
        assert handed_over(arena, node), "the operator says that it switched over because of this node"
        assert o.name(postgres.primary()) != o.name(second)
        assert rows["maintain"]["dark_seconds"] <= rows["kubectl drain"]["dark_seconds"] + outcomes.SLACK
    # Its restart of the old primary is the darkness of its own.
    assert [violation for violation in seen.violations() if violation.name != "pg-primary"] == []
