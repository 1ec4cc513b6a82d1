# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import (
    BadRecordError,
    Mark,
    Record,
    record_of,
    records,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import node

DRAINED = Record("r1", "n1", "tina@here", "", "2026-11-21T01:00:00.000Z", "drained", "u", "ns/node-n1", {})


@pytest.mark.parametrize(
    ("run", "nonce", "really", "foreseen", "parked"),
    [
        pytest.param("r1", "n1", False, False, False, id="this start"),
        pytest.param("r2", "n1", False, False, False, id="a run that took the node up"),
        pytest.param("r1", "n2", True, False, False, id="a later start of the run"),
        pytest.param("", "n1", False, False, False, id="this start, whatever the run"),
        pytest.param("", "n2", True, False, False, id="another start, whatever the run"),
        pytest.param("", "", True, False, False, id="a call by hand"),
        pytest.param("r1", "", True, False, False, id="a call by hand that names the run"),
        pytest.param("r2", "", True, True, False, id="another run by its id"),
        pytest.param("r2", "n2", True, True, False, id="another run"),
    ],
)
def test_whose_a_node_is(run: str, nonce: str, really: bool, foreseen: bool, parked: bool) -> None:
    """In check mode a start of the same run would have adopted the node, and any run a parked one."""
    assert DRAINED.foreign_to(run, nonce) is really
    assert DRAINED.foreign_to(run, nonce, check=True) is foreseen
    assert DRAINED.at("parked").foreign_to(run, nonce, check=True) is parked


@pytest.mark.parametrize(
    ("run", "nonce", "foreign"),
    [("", "", False), ("r1", "", False), ("r2", "", True), ("r1", "n1", True), ("", "n1", True)],
)
def test_records_made_by_hand_are_of_calls_by_hand(run: str, nonce: str, foreign: bool) -> None:
    assert replace(DRAINED, nonce="").foreign_to(run, nonce) is foreign


TAINT = {"key": names.TAINT_KEY, "value": "r1", "effect": "NoSchedule"}


def annotated(text: str) -> Node:
    return Node.of(node("n1", annotations={names.RECORD: text}))


def test_a_record_is_read_as_it_was_written() -> None:
    record = replace(DRAINED, added=(TAINT,), marks={"label/a": Mark(None, "x"), "label/b": Mark("old", "y")})
    assert record_of(annotated(record.dump())) == record
    assert record_of(Node.of(node("n1"))) is None


def test_equal_records_are_equal_texts() -> None:
    one = replace(DRAINED, prior={"bootID": "b", "unschedulable": False})
    other = replace(DRAINED, prior={"unschedulable": False, "bootID": "b"})
    assert one == other
    assert one.dump() == other.dump()


def test_results_show_no_nonce() -> None:
    assert DRAINED.public().keys() == json.loads(DRAINED.dump()).keys() - {"v", "nonce"}


WRITTEN = json.loads(DRAINED.dump())


@pytest.mark.parametrize(
    "lease", ["ns/surge-u", "ns/run-r1", "ns/node-n2", "ns/heartbeat-0", "node-n1", "ns/x/node-n1", "/node-n1"]
)
def test_a_record_names_no_lock_but_its_nodes(lease: str) -> None:
    """A kubelet could otherwise have any lease of ours deleted: another node's lock, or the record of a surge."""
    with pytest.raises(BadRecordError):
        record_of(annotated(replace(DRAINED, lease=lease).dump()))
    assert record_of(annotated(replace(DRAINED, lease="").dump())) is not None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        (json.dumps({**WRITTEN, "marks": []}), "cannot be read"),
        (json.dumps({**WRITTEN, "other": 1}), "cannot be read"),
        (json.dumps({name: value for name, value in WRITTEN.items() if name != "run"}), "cannot be read"),
        (json.dumps({name: value for name, value in WRITTEN.items() if name != "v"}), "cannot be read"),
        (json.dumps({**WRITTEN, "v": 2}), "version 2, this collection knows 1"),
    ],
)
def test_a_record_that_cannot_be_read_is_not_guessed(text: str, words: str) -> None:
    with pytest.raises(BadRecordError, match=words):
        record_of(annotated(text))


@pytest.mark.parametrize(("nonce", "lock"), [("n1", "node-n1=r1/n1"), ("", "node-n1=r1")])
def test_the_lock_names_the_lease_and_its_holder(nonce: str, lock: str) -> None:
    assert replace(DRAINED, nonce=nonce).lock == lock


def test_records_are_told_from_nodes_without_one_and_from_what_cannot_be_read() -> None:
    record = Record("r1", "n1", "tina", "", "2026-01-01T00:00:00Z", "cordoned", "", "x/node-c", {})
    nodes = [
        Node.of(node("a", annotations={names.RECORD: "{"})),
        Node.of(node("b")),
        Node.of(node("c", annotations={names.RECORD: record.dump()})),
    ]
    found, bad = records(nodes)
    assert (set(found), set(bad)) == ({"c"}, {"a"})
    assert found["c"].run == "r1"
    assert "cannot be read" in bad["a"]
