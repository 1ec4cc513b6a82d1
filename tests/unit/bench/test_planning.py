# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The plan of a synthetic cluster with blockers: what is computed for it, and how much a person has to read."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import client, connection
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import run_plan, world
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.playbooks import screen_words, summary_lines
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import build, text
from bench import synthetic, synthetic_server

COLUMNS, ROWS = 120, 80
"""Of a terminal: what a plan of any size takes at most."""


@pytest.fixture
def cluster() -> t.Iterator[client.Cluster]:
    server = synthetic_server.serving(40, blockers=True)
    url = f"http://127.0.0.1:{server.server_address[1]}"
    yield connection.connect(connection.ConnectionOptions(host=url, api_key="none"), user_agent="test")
    server.shutdown()
    server.server_close()


def test_blockers_cost_a_plan_nothing_more_and_fit_on_a_screen(
    cluster: client.Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = []
    begin = world.World.__init__

    def counted(self: world.World, *args: t.Any) -> None:
        made.append(1)
        begin(self, *args)

    monkeypatch.setattr(world.World, "__init__", counted)
    nodes = tuple(synthetic.node_name(number) for number in range(40))
    choices = drain_policy.DrainPolicy(backend="eviction")
    options = run_plan.PlanOptions(nodes=nodes, choices=choices, max_parallel=2)
    result = run_plan.make_plan(run_context.Context(cluster), options).shaped()
    blockers = [one for one in result["findings"] if one["severity"] == "blocker"]
    assert [(one["code"], len(one["objects"])) for one in blockers] == [
        ("budget_allows_nothing", synthetic.BLOCKERS),
        ("stateful_single", synthetic.BLOCKERS),
    ]
    assert [one["codes"] for one in result["advice"]] == [[one["code"]] for one in blockers]
    assert len(made) <= 2, "it is placed once, and once more if its waves change by it"
    told = summary_lines.plan({"plan": result})
    shown = [
        *screen_words.plan_lines(result),
        *told["lines"],
        *text.summary_text(build.build_report([result])).splitlines(),
        *told["says"],
    ]
    assert sum(1 + len(line) // COLUMNS for line in shown) <= ROWS
