# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long a run is remembered: until it succeeds, its last node is back, or nobody can resume it any more."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.client import Listing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.clock import Clock
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.record import Record
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.state import StoredRun, fingerprint
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context, Run
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.state import StateOptions, state
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.objects import node

INPUT = {"playbook": "maintain", "nodes": ["a", "b"]}
RUN = StoredRun(
    id="mine",
    by="tina",
    since="2026-11-21T01:00:00.000Z",
    fingerprint=fingerprint(INPUT),
    given=INPUT,
    plan=(("a",), ("b",)),
)
OTHER = replace(RUN, id="other", fingerprint="0123456789abcdef", given={})
NOW = "2026-11-21T10:00:00.000Z"
TOMORROW = "2026-11-22T10:00:00.000Z"


@dataclass
class Time(Clock):
    present: str = NOW

    def wall(self) -> str:
        return self.present


@dataclass
class Store:
    """Stored runs and nodes; what is written is kept by its method and name."""

    runs: dict[str, StoredRun]
    nodes: list[dict[str, t.Any]] = field(default_factory=list)
    lists: list[str] = field(default_factory=list)

    def items(self, kind: kinds.Kind, **_unused: object) -> Listing:
        self.lists.append(kind.plural)
        return Listing(
            [run.to_config_map() for run in self.runs.values()] if kind == kinds.CONFIGMAPS else self.nodes, ""
        )

    def send(self, request: Request, *, fence: t.Callable[[], None] | None = None, **_times: float) -> dict[str, t.Any]:
        if fence is not None:
            fence()
        if request.method == "DELETE":
            del self.runs[request.name.removeprefix(names.RUN_PREFIX)]
        elif request.method == "POST":
            fresh = dict(request.body or {})["metadata"]["name"].removeprefix(names.RUN_PREFIX)
            self.runs[fresh] = replace(RUN, id=fresh)
        return {}


def store(*runs: StoredRun, out: str = "") -> Store:
    """The runs, and a node that is out of service for the run ``out``."""
    found = node("a")
    if out:
        record = Record(out, "n", "tina", "", RUN.since, "parked", "u", "ns/l", {})
        found["metadata"].setdefault("annotations", {})[names.RECORD] = record.dump()
    return Store({run.id: run for run in runs}, [found])


def call(kept: Store, options: StateOptions, run: str | None = None, now: str = NOW) -> dict[str, t.Any]:
    return state(Context(t.cast("t.Any", kept), run=Run.parse(run), clock=Time(now)), options).data


def test_the_same_command_resumes_a_failed_run_and_forgets_none() -> None:
    kept = store(RUN, OTHER)
    answer = call(kept, StateOptions("started", input=INPUT))
    assert (answer["run_id"], answer["resumed"]) == ("mine", True)
    assert set(kept.runs) == {"mine", "other"}


def test_a_start_forgets_runs_that_nobody_resumes_any_more() -> None:
    kept = store(RUN, OTHER)
    answer = call(kept, StateOptions("started", input=INPUT, plan={"waves": [["a"]]}), now=TOMORROW)
    assert answer["resumed"] is False
    assert set(kept.runs) == {answer["run_id"]}


def test_a_run_that_still_has_a_node_is_kept_for_whoever_names_it() -> None:
    kept = store(OTHER, out="other")
    call(kept, StateOptions("started", input=INPUT, plan={"waves": [["a"]]}), now=TOMORROW)
    assert "other" in kept.runs
    answer = call(kept, StateOptions("started", input=INPUT), run="other", now=TOMORROW)
    assert (answer["run_id"], answer["resumed"]) == ("other", True)


def test_a_usual_start_does_not_list_nodes_for_that() -> None:
    kept = store()
    call(kept, StateOptions("started", input=INPUT, plan={"waves": [["a"]]}))
    assert kept.lists == ["configmaps"]


def test_success_forgets_the_run_and_failure_keeps_it() -> None:
    kept = store(RUN)
    call(kept, StateOptions("ended", failed=True), run="mine/n")
    assert set(kept.runs) == {"mine"}
    call(kept, StateOptions("ended"), run="mine/n")
    assert kept.runs == {}


def test_a_release_of_its_last_node_forgets_the_run_and_one_before_does_not() -> None:
    kept = store(RUN)
    said = state(Context(t.cast("t.Any", kept), run=Run("mine")), StateOptions("noted", nodes=("a",))).message
    assert said.startswith("Run mine still has b to do: the same command goes on")
    assert set(kept.runs) == {"mine"}, "the same command goes on with b"
    kept = store(replace(RUN, finished=("b",)))
    call(kept, StateOptions("noted", nodes=("a",)), run="mine")
    assert kept.runs == {}
