# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kubernetes' conditions for a maintenance: set and cleared with the steps, and given back as they were."""

from __future__ import annotations

import copy
import itertools
import json
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.api_changes import diff_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import cordon, node_conditions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import Record, record_of
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import merged

Raw = dict[str, t.Any]

NOW = "2026-01-02T00:00:00.250Z"
SINCE = "2026-01-01T23:00:00.000Z"
DRAFT = Record("r1", "n1", "tina", "disk", SINCE, "cordoned", "u1", "ns/node-a", {})
OURS = {
    "status": "True",
    "lastHeartbeatTime": "2026-01-02T00:00:00Z",
    "lastTransitionTime": "2026-01-02T00:00:00Z",
    "reason": "KubeopsNodeMaintenance",
    "message": "Run r1 of tina: disk",
}
READY = {
    "type": "Ready",
    "status": "True",
    "lastHeartbeatTime": "2026-01-01T23:59:58Z",
    "lastTransitionTime": "2025-12-01T00:00:00Z",
    "reason": "KubeletReady",
    "message": "kubelet is posting ready status",
}
OVER = {"type": "Drained", "status": "False", "lastTransitionTime": "2025-12-01T00:00:00Z", "reason": "Back", "x": 1}
PHASES: tuple[node_conditions.Phase, ...] = t.get_args(node_conditions.Phase)


def node(*conditions: Raw) -> Raw:
    meta = {"name": "a", "uid": "u1", "resourceVersion": "7", "labels": {}, "annotations": {}}
    return {"metadata": meta, "spec": {}, "status": {"conditions": [READY, *conditions], "nodeInfo": {"bootID": "b"}}}


def taken(raw: Raw) -> Record:
    """The record as it is read back from the node that was taken out."""
    _record, change = cordon.take_out(Node.of(raw), DRAFT, taint=True, conditions=True)
    record = record_of(Node.of(merged(raw, change.body)))
    assert record is not None
    return record


def at(raw: Raw, record: Record, phase: node_conditions.Phase) -> Raw:
    """The node after the phase, as the API server makes it; what is there already is not written again."""
    change = node_conditions.change(raw, record, phase, NOW)
    after: Raw = merged(raw, change.body) if change else raw
    assert node_conditions.change(after, record, phase, NOW) is None
    return after


def true(raw: Raw) -> list[str]:
    found = [c["type"] for c in raw["status"]["conditions"] if c["type"] != "Ready" and c["status"] == "True"]
    return sorted(found, key=names.LIFECYCLE.index)


WAY: list[tuple[node_conditions.Phase, list[str]]] = [
    ("cordoned", ["MaintenancePlanned"]),
    ("draining", ["MaintenancePlanned", "DrainInProgress"]),
    ("cordoned", ["MaintenancePlanned", "DrainInProgress"]),
    ("drained", ["MaintenancePlanned", "Drained"]),
    ("out", ["Drained", "MaintenanceInProgress"]),
    ("parked", ["Drained", "MaintenanceInProgress"]),
    ("returning", ["Drained"]),
    ("cordoned", ["MaintenancePlanned"]),
    ("draining", ["MaintenancePlanned", "DrainInProgress"]),
    ("parked", ["MaintenanceInProgress"]),
    ("back", []),
]


def test_the_conditions_follow_the_steps() -> None:
    raw = node()
    record = taken(raw)
    for phase, expected in WAY:
        raw = at(raw, record, phase)
        assert true(raw) == expected, phase
    assert raw == node()


def test_a_condition_says_who_and_why_and_since_when() -> None:
    raw = node()
    record = taken(raw)
    change = node_conditions.change(raw, record, "cordoned", NOW)
    assert change is not None
    assert (change.verb, change.resource_version) == ("status", "7")
    assert change.sentence == "Set MaintenancePlanned of node a"
    assert change.body == {"status": {"conditions": [READY, {"type": "MaintenancePlanned", **OURS}]}}
    bare = node_conditions.change(raw, replace(record, reason=""), "cordoned", NOW)
    assert bare is not None
    assert (bare.body or {})["status"]["conditions"][1]["message"] == "Run r1 of tina"


def test_the_diff_shows_these_conditions_apart_from_the_rest_of_the_node() -> None:
    raw = node()
    record, cordoned = cordon.take_out(Node.of(raw), DRAFT, taint=True, conditions=True)
    shown = node_conditions.change(raw, record, "cordoned", NOW)
    assert shown is not None
    first, second = diff_of([cordoned, shown])
    assert first["before_header"] == second["before_header"] == "Node a"
    assert (second["before"], second["after"]) == ({"conditions": {}}, {"conditions": {"MaintenancePlanned": "True"}})


def test_a_change_says_what_it_sets_and_clears() -> None:
    raw = node()
    record = taken(raw)
    drained = at(at(raw, record, "cordoned"), record, "drained")
    sentences = []
    for phase in ("out", "back"):
        change = node_conditions.change(drained, record, phase, NOW)
        sentences.append(change.sentence if change else "")
    assert sentences == [
        "Set MaintenanceInProgress and clear MaintenancePlanned of node a",
        "Clear MaintenancePlanned, Drained of node a",
    ]


@pytest.mark.parametrize("phases", list(itertools.permutations(PHASES[:4], 3)))
def test_after_any_steps_the_list_is_as_it_was_byte_for_byte(phases: tuple[node_conditions.Phase, ...]) -> None:
    """Conditions that were there keep their place, and fields that nobody here knows."""
    before = node(OVER, {"type": "GPU", "status": "True"}, {"type": "MaintenancePlanned", "status": "Unknown"})
    record, raw = taken(before), copy.deepcopy(before)
    for phase in phases:
        raw = at(raw, record, phase)
        assert [c["type"] for c in raw["status"]["conditions"]][:4] == ["Ready", "Drained", "GPU", "MaintenancePlanned"]
    assert at(raw, record, "back") == before


@pytest.mark.parametrize("phase", PHASES)
@pytest.mark.parametrize("kind", names.LIFECYCLE)
def test_what_somebody_else_has_set_is_neither_overwritten_nor_cleared(kind: str, phase: node_conditions.Phase) -> None:
    theirs = {"type": kind, "status": "True", "reason": "Firmware", "message": "theirs"}
    before = node(theirs)
    record = taken(before)
    assert kind not in record.conditions
    out = at(before, record, phase)
    assert theirs in out["status"]["conditions"]
    assert at(out, record, "back") == before


@pytest.mark.parametrize("status", ["True", "False", "Unknown"])
@pytest.mark.parametrize("first", ["before it is ours", "while it is ours"])
def test_what_somebody_else_writes_meanwhile_stays(status: str, first: str) -> None:
    record = taken(node())
    theirs = {"type": "Drained", "status": status, "reason": "Firmware"}
    raw = node(theirs)
    if first == "while it is ours":
        raw = at(node(), record, "drained")
        raw["status"]["conditions"] = [c if c["type"] != "Drained" else theirs for c in raw["status"]["conditions"]]
    for phase in ("drained", "out", "returning", "back"):
        raw = at(raw, record, phase)
        assert theirs in raw["status"]["conditions"]
    assert raw == node(theirs)


def test_a_heartbeat_of_the_kubelet_is_kept() -> None:
    record = taken(node())
    raw = at(node(), record, "drained")
    beat = {**READY, "lastHeartbeatTime": "2026-01-02T00:05:00Z"}
    raw["status"]["conditions"][0] = beat
    assert at(raw, record, "back")["status"]["conditions"] == [beat]


def test_a_heartbeat_of_what_was_there_before_makes_it_nobody_else_s() -> None:
    before = {**OVER, "lastHeartbeatTime": "2025-12-01T00:00:00Z"}
    record = taken(node(before))
    raw = at(node({**before, "lastHeartbeatTime": "2026-01-01T00:00:00Z"}), record, "drained")
    assert true(raw) == ["MaintenancePlanned", "Drained"]
    assert at(raw, record, "back") == node(before)


def test_without_the_option_no_condition_is_ours() -> None:
    record, _change = cordon.take_out(Node.of(node()), DRAFT, taint=True)
    assert "conditions" not in json.loads(record.dump())
    assert [node_conditions.change(node(), record, phase, NOW) for phase in PHASES] == [None] * len(PHASES)


def test_a_condition_of_ours_that_a_record_has_left_is_cleared_at_the_end() -> None:
    """A person removed the record by hand: what it says we set was not there before."""
    left = {"type": "Drained", **OURS}
    record = taken(node(left))
    assert record.conditions["Drained"] is None
    assert at(node(left), record, "back") == node()


PLANNED = {"type": "MaintenancePlanned", **OURS}


@pytest.mark.parametrize(
    ("conditions", "changes", "now", "left"),
    [
        pytest.param([PLANNED], {}, "2026-01-02T00:00:00Z", 600.0, id="set just now"),
        pytest.param([PLANNED], {}, "2026-01-02T00:04:00Z", 360.0, id="set a while ago"),
        pytest.param([PLANNED], {}, "2026-01-02T00:10:00Z", 0.0, id="over"),
        pytest.param([PLANNED], {}, "2026-01-02T09:00:00Z", 0.0, id="long over"),
        pytest.param([PLANNED], {}, "2026-01-01T23:00:00Z", 600.0, id="another API server's clock is behind"),
        pytest.param([], {}, "2026-01-02T00:00:00Z", 0.0, id="not set"),
        pytest.param([PLANNED], {"step": "drained"}, "2026-01-02T00:00:00Z", 0.0, id="drained"),
        pytest.param([PLANNED], {"conditions": {}}, "2026-01-02T00:00:00Z", 0.0, id="taken out without conditions"),
        pytest.param([PLANNED, {"type": "DrainInProgress", **OURS}], {}, NOW, 0.0, id="the drain has begun"),
        pytest.param(
            [PLANNED, {"type": "DrainInProgress", "status": "True"}], {}, NOW, 599.75, id="somebody else's drain"
        ),
        pytest.param(
            [{**PLANNED, "reason": "Cloud"}], {}, "2026-01-01T23:01:00Z", 540.0, id="theirs counts from the cordon"
        ),
        pytest.param([{**PLANNED, "lastTransitionTime": None}], {}, NOW, 600.0, id="nobody knows since when"),
    ],
)
def test_a_notice_counts_from_when_it_was_given(conditions: list[Raw], changes: Raw, now: str, left: float) -> None:
    record = replace(taken(node()), **changes)
    assert node_conditions.notice_left(Node.of(node(*conditions)), record, 600.0, now) == left
