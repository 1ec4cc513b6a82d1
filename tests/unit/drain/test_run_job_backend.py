# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted, Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import run_installed as backend
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator.run_installed import Koordinator
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.reasons import Finding
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.migration_controller import Controller
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import koordinator
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

LIMITS = Controller()
WHOLE = Koordinator(controller=LIMITS, source="ConfigMap a/b")


def missing(code: str) -> Finding:
    return Finding(code, f"{code} is missing.", "Install it.", "blocker", code)


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> t.Callable[[Koordinator], list[Context]]:
    """Makes the look at the cluster find this; returns who looked."""

    def finds(found: Koordinator) -> list[Context]:
        asked: list[Context] = []

        def look(ctx: Context, _given: object, *, reserves: bool) -> Koordinator:
            assert reserves
            asked.append(ctx)
            return found

        monkeypatch.setattr(backend, "look", look)
        return asked

    return finds


CONTEXT = Context(t.cast("t.Any", None))


def test_nobody_looks_where_no_job_is_wanted(looked: t.Any) -> None:
    asked = looked(WHOLE)
    for choices in (DrainPolicy(backend="eviction"), DrainPolicy(backend="koordinator", disable_eviction=True)):
        assert backend.prepared(CONTEXT, choices) == (choices, ())
    assert asked == []


@pytest.mark.parametrize("wanted", ["auto", "koordinator"])
def test_with_all_its_parts_the_live_limits_are_used(looked: t.Any, wanted: str) -> None:
    looked(WHOLE)
    choices, found = backend.prepared(CONTEXT, DrainPolicy(backend=wanted))
    assert choices.controller is LIMITS
    assert found == ()


@pytest.mark.parametrize(
    ("found", "codes"),
    [
        (Koordinator(missing=(missing("no_crd"),)), ["no_crd"]),
        (Koordinator(missing=(missing("no_controller"),), doubt="There is no ConfigMap."), ["no_controller"]),
        (replace(WHOLE, missing=(missing("no_scheduler"),)), ["no_scheduler"]),
        (Koordinator(doubt="It is no YAML.", source="ConfigMap a/b"), ["no_limits"]),
        (replace(WHOLE, controller=Controller(profiles=("a", "b"))), ["several_controllers"]),
    ],
)
def test_what_is_missing_stops_koordinator_and_lets_auto_evict(
    looked: t.Any, found: Koordinator, codes: list[str]
) -> None:
    looked(found)
    choices, findings = backend.prepared(CONTEXT, DrainPolicy(backend="koordinator"))
    assert [finding.code for finding in findings] == codes
    assert {finding.severity for finding in findings} == {"blocker"}
    assert choices.controller is None
    with pytest.raises(CallAborted) as stopped:
        backend.required(CONTEXT, DrainPolicy(backend="koordinator"))
    assert stopped.value.reason.code == codes[0]

    choices, findings = backend.prepared(CONTEXT, DrainPolicy())
    assert choices.controller is None
    assert [finding.code for finding in findings] == ([] if codes == ["no_crd"] else ["koordinator_unused"])
    assert backend.required(CONTEXT, DrainPolicy()).controller is None


def test_jobs_that_reserve_nothing_need_no_scheduler(looked: t.Any) -> None:
    direct = Controller(default_job_mode="EvictDirectly")
    looked(replace(WHOLE, controller=direct, missing=(missing("no_scheduler"),)))
    choices, found = backend.prepared(CONTEXT, DrainPolicy(backend="koordinator"))
    assert choices.controller is direct
    assert found == ()


@pytest.mark.parametrize(("there", "codes"), [(True, ["koordinator_unused"]), (False, [])])
def test_who_may_not_list_jobs_evicts_and_hears_of_it_only_where_there_are_any(there: bool, codes: list[str]) -> None:
    with World(add_ons=[koordinator.GROUP] if there else ()) as world:
        me = world.process("me")
        # Rights are asked for before the kind: also where there is none.
        me.faults.when(lambda request: request.verb == "list", Fault("forbidden"), times=100)
        _choices, found = me.run(lambda ctx: backend.prepared(ctx, DrainPolicy()))
        assert [finding.code for finding in found] == codes
        with pytest.raises(errors.Forbidden):
            me.run(lambda ctx: backend.prepared(ctx, DrainPolicy(backend="koordinator")))


def test_a_server_that_is_away_is_no_cluster_without_jobs() -> None:
    with World(add_ons=[koordinator.GROUP]) as world:
        me = world.process("me")
        me.faults.when(lambda request: request.verb == "list", Fault("forbidden"), times=100)
        me.faults.when(lambda request: request.path.endswith("v1alpha1"), Fault("down", 300.0))
        with pytest.raises(errors.Overloaded):
            me.run(lambda ctx: backend.prepared(ctx, DrainPolicy()))


def test_of_several_missing_parts_the_first_names_the_cause_and_all_are_told(looked: t.Any) -> None:
    looked(Koordinator(missing=(missing("no_controller"), missing("no_scheduler"))))
    with pytest.raises(CallAborted) as stop:
        backend.required(CONTEXT, DrainPolicy(backend="koordinator"))
    assert (stop.value.reason.code, stop.value.reason.message) == (
        "no_controller",
        "no_controller is missing. no_scheduler is missing.",
    )


def test_what_is_no_obstacle_is_noted_for_the_report(looked: t.Any) -> None:
    looked(replace(WHOLE, unsure=(replace(missing("limits_unproven"), severity="info"),)))
    with World() as world:
        ctx = world.process("me").ctx()
        backend.required(ctx, DrainPolicy(backend="koordinator"))
    assert [event.message for event in ctx.timeline] == ["limits_unproven is missing."]
