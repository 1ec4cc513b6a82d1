# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What makes two commands the same run, and what a run leaves behind."""

from __future__ import annotations

import re
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import node_records, stored_objects
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import budget, node, snapshot

GIVEN: dict[str, t.Any] = {"playbook": "maintain", "nodes": ["a", "b"], "tasks": "/t.yml", "reason": "disk"}
OURS = {names.MANAGED_BY_LABEL: names.MANAGED_BY}


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"reason": "kernel"}, True),
        ({"timeout": 60}, True),
        ({"report_dir": "/x"}, True),
        ({"reboot": None}, True),
        ({"nodes": ["b", "a"]}, False),
        ({"tasks": "/u.yml"}, False),
        ({"reboot": True}, False),
        ({"playbook": "evacuate"}, False),
        ({"backend": "eviction"}, False),
    ],
)
def test_a_fingerprint_is_of_the_work_alone(change: dict[str, t.Any], same: bool) -> None:
    assert (stored_objects.fingerprint({**GIVEN, **change}) == stored_objects.fingerprint(GIVEN)) is same


def stored(**changes: t.Any) -> stored_objects.StoredRun:
    fields: dict[str, t.Any] = {"since": "2026-01-01T00:00:00.000Z", "plan": (("a",), ("b",)), "finished": ("a",)}
    return stored_objects.StoredRun("r1", "me@here", fingerprint="f", given=GIVEN, **{**fields, **changes})


def test_a_stored_run_survives_its_config_map() -> None:
    assert stored_objects.stored_run(stored().to_config_map()) == stored()


def test_other_config_maps_are_nobodys_run() -> None:
    assert stored_objects.stored_run({"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca": ""}}) is None


@pytest.mark.parametrize(("now", "young"), [("2026-01-02T00:00:00.000Z", True), ("2026-01-02T00:00:00.001Z", False)])
def test_a_run_is_resumed_for_a_day(now: str, young: bool) -> None:
    assert stored().resumable(now) is young


def test_a_run_of_which_the_time_is_not_known_is_not_resumed() -> None:
    assert not stored(since="").resumable("2026-01-01T00:00:00.000Z")


def test_a_fingerprint_is_sixteen_hex_digits() -> None:
    assert re.fullmatch("[0-9a-f]{16}", stored_objects.fingerprint(GIVEN))


@pytest.mark.parametrize("data", [{"plan": "{"}, {"plan": "[1]"}, {"input": "{"}, {"finished": "1"}])
def test_a_stored_run_that_cannot_be_read_is_not_guessed(data: dict[str, str]) -> None:
    raw = stored().to_config_map()
    with pytest.raises(node_records.BadRecordError, match="run-r1 cannot be read"):
        stored_objects.stored_run({**raw, "data": {**raw["data"], **data}})


@pytest.mark.parametrize(
    ("serves", "nodes"), [('{"n1":"uid-n1","n2":"uid-n2"}', ("n1", "n2")), ("{}", ()), ("n1", ()), (None, ())]
)
def test_a_guard_is_a_trace_on_the_nodes_that_it_serves(serves: str | None, nodes: tuple[str, ...]) -> None:
    guard = budget(names.guard_name("u"), 1)
    guard["metadata"]["annotations"] = {names.SERVES_NODES: serves} if serves is not None else {}
    (trace,) = stored_objects.traces(snapshot(budgets=[guard, budget("theirs", 1)]), [])
    assert (trace.nodes, trace.what) == (nodes, "a guard budget of ours")


@pytest.mark.parametrize(
    ("lease", "what", "nodes"),
    [
        ("node-a", "the lock of node a", ("a",)),
        ("run-r1", "the sign of life of run r1", ()),
        ("heartbeat-0", "the heartbeat of run r1", ()),
        ("surge-u", "a surge whose record cannot be read", ()),
    ],
)
def test_a_lease_is_a_trace_by_its_name(lease: str, what: str, nodes: tuple[str, ...]) -> None:
    annotations = {names.SURGE: "[1]", names.LOCK_DETAILS: "ann"}
    meta = {"namespace": names.NAMESPACE, "name": lease, "labels": OURS, "annotations": annotations}
    (trace,) = stored_objects.traces(
        snapshot(leases=[{"metadata": meta, "spec": {"holderIdentity": "r1/n1", "acquireTime": "then"}}]), []
    )
    assert (trace.run, trace.by, trace.since, trace.what, trace.nodes) == ("r1", "ann", "then", what, nodes)


@pytest.mark.parametrize(("reason", "what"), [("disk", "step out: disk"), ("", "step out")])
def test_a_node_with_a_record_is_a_trace(reason: str, what: str) -> None:
    record = node_records.Record("r1", "n", "ann", reason, "then", "out", "u", "", {})
    (trace,) = stored_objects.traces(snapshot(nodes=[node("n1", annotations={names.RECORD: record.dump()})]), [])
    assert (trace.run, trace.by, trace.since, trace.nodes) == ("r1", "ann", "then", ("n1",))
    assert trace.what.endswith(what)
    (broken,) = stored_objects.traces(snapshot(nodes=[node("n1", annotations={names.RECORD: "{"})]), [])
    assert "cannot be read" in broken.what
    assert trace.to_dict(alive=True)["nodes"] == ["n1"]


@pytest.mark.parametrize(("ended", "state_of"), [("", "not ended"), ("2026-01-01", "ended 2026-01-01 with failures")])
def test_a_stored_run_is_a_trace_with_how_far_it_came(ended: str, state_of: str) -> None:
    run = stored(plan=(("a", "b"), ("c",)), finished=("a",), ended=ended)
    (trace,) = stored_objects.traces(snapshot(nodes=[node("n1")]), [run])
    assert trace.nodes == ("a", "b", "c")
    assert f"1 of 3 nodes finished, {state_of}" in trace.what


def test_every_kind_of_trace_is_found() -> None:
    lease = {
        "metadata": {"namespace": names.NAMESPACE, "name": "node-a", "labels": OURS, "annotations": {}},
        "spec": {"holderIdentity": "r1/n1"},
    }
    surge = {
        "metadata": {
            "namespace": names.NAMESPACE,
            "name": "surge-u",
            "labels": OURS,
            "annotations": {names.SURGE: '{"kind":"Deployment","namespace":"shop","name":"web","node":"a"}'},
        },
        "spec": {"holderIdentity": "r1/n1"},
    }
    foreign = {"metadata": {"namespace": "medik8s-leases", "name": "node-b"}, "spec": {"holderIdentity": "nmo"}}
    found = Snapshot.of(
        {
            "nodes": [_node({"spec": {"taints": [{"key": names.TAINT_KEY, "value": "r1", "effect": "NoSchedule"}]}})],
            "leases": [lease, surge, foreign],
        }
    )
    traces = stored_objects.traces(found, [stored()])
    assert [str(x.object) for x in traces] == [
        "Node a",
        "Lease kubeops-node-maintenance/node-a",
        "Lease kubeops-node-maintenance/surge-u",
        "ConfigMap kubeops-node-maintenance/run-r1",
    ]
    assert {x.run for x in traces} == {"r1"}
    assert traces[2].nodes == ("a",)
    assert "1 of 2 nodes finished" in traces[3].what


def _node(changes: dict[str, t.Any]) -> t.Any:
    from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node

    return Node.of({"metadata": {"name": "a"}, **changes})


def dark(name: str, seconds: int) -> tuple[str, ...]:
    return ("shop", name, "2026-01-01T00:00:00Z", f"2026-01-01T00:{seconds // 60:02}:{seconds % 60:02}Z")


def test_the_sums_of_two_waves_keep_their_longest_dark_spans() -> None:
    short = tuple(dark(f"s{number}", 1) for number in range(stored_objects.MAX_DARK_SPANS))
    first = stored_objects.Sums(2, 1.0006, 0.5, short, "wave 1")
    both = first.plus(stored_objects.Sums(3, 1.0, 0.25, (dark("long", 90), ("shop", "malformed")), "wave 2"))
    assert (both.pods_moved, both.out_seconds, both.watched_seconds, both.mark) == (5, 2.001, 0.75, "wave 2")
    assert both.dark == (dark("long", 90), *short[:-1])
    assert stored_objects.NOTHING.plus(first) == stored_objects.Sums(2, 1.001, 0.5, short, "wave 1")
