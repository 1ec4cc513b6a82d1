# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Charts that nobody here wrote: what a plan says of them is what happens. Only with ZOO, see support/zoo.py."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import running
from support import zoo
from support.arena import Arena
from support.lab import Lab
from support.plays import Player, Run
from support.waiting import until
from support.watching import Watch
from witness import invariants
from witness import objects as o

pytestmark = pytest.mark.whole

CONSENTS = {
    "maintain_delete_emptydir_data": True,
    "maintain_allow_interruption": True,
    "maintain_force": True,
}
"""All that a plan of real charts asks for; what it then still calls a blocker, nobody can consent to."""
LONG = 900.0


@pytest.fixture(scope="module")
def lab(request: pytest.FixtureRequest) -> Iterator[Lab]:
    """A lab of its own: what the charts bring is in nobody's way."""
    with running(request, "zoo", lab_nodes=8, lab_metrics=False) as made:
        yield made


def named(run: Run) -> set[str]:
    """The Services that warnings or blockers of the plan are about."""
    about = [name for found in run.findings if found["severity"] != "info" for name in found["objects"]]
    return {name.removeprefix("Service ") for name in about if name.startswith("Service ")}


def test_what_the_plan_says_of_real_charts_is_what_happens(
    lab: Lab, arena: Arena, play: Player, watching: Watch, tmp_path: Path
) -> None:
    with zoo.Zoo(lab, tmp_path) as charts:
        nodes = sorted(o.name(node) for node in lab.api.items("/api/v1/nodes"))
        plan = play("plan", maintain_nodes=nodes, within=LONG, **CONSENTS)
        assert plan.findings, plan.text
        blocked = {node["name"] for node in plan.of("maintenance_plan")[-1]["nodes"] if node["outcome"] == "blocked"}
        chosen = [node for node in nodes if node not in blocked][:3]
        assert len(chosen) == 3, plan.text

        before = charts.ready()
        with watching() as seen:
            run = play("maintain", maintain_nodes=chosen, within=LONG, **CONSENTS)
            until(lambda: charts.ready() == before, LONG, "every workload is as ready as before", every=2)
        assert run.ok, run.text
        found = [*invariants.unseen(seen.log), *invariants.i3_all_as_before(seen.log)]
        assert not found, "\n".join(map(str, found))
        went_dark = zoo.dark(seen.log)
        print("dark:", went_dark)
        assert went_dark.keys() - named(run) == set(), went_dark
