# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node's steps: one patch each, and a way back that keeps what others did."""

from __future__ import annotations

import itertools
import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, node_taints
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.api_changes import Change, diff_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Node
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import (
    BadRecordError,
    Mark,
    Record,
    Step,
    record_of,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import merged

FOREIGN = {"key": "dedicated", "value": "db", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
LATER = {"key": "late", "effect": "PreferNoSchedule"}
DRAFT = Record("r1", "n1", "me@here", "disk", "2026-01-01T00:00:00Z", "cordoned", "", "ns/node-a", {})


def raw(**changes: t.Any) -> dict[str, t.Any]:
    node: dict[str, t.Any] = {
        "metadata": {"name": "a", "uid": "u1", "resourceVersion": "7", "labels": {}, "annotations": {}},
        "spec": {"taints": [FOREIGN]},
        "status": {"nodeInfo": {"bootID": "b1"}},
    }
    for path, value in changes.items():
        place, _dot, key = path.partition("__")
        node[place][key] = value
    return node


def patched(node: dict[str, t.Any], change: Change | None) -> dict[str, t.Any]:
    """What the API server makes of the change."""
    assert change is not None
    return t.cast("dict[str, t.Any]", merged(node, change.body))


def taken(node: dict[str, t.Any], *, taint: bool = True) -> tuple[dict[str, t.Any], Record]:
    record, change = cordon.take_out(Node.of(node), DRAFT, taint=taint)
    return patched(node, change), record


def test_one_patch_carries_cordon_taint_marks_and_record() -> None:
    record, change = cordon.take_out(Node.of(raw()), DRAFT, taint=True)
    assert change.resource_version == "7"
    node = Node.of(patched(raw(), change))
    assert node.unschedulable
    assert [x["key"] for x in node.taints] == ["dedicated", names.TAINT_KEY]
    assert node.taints[0] == FOREIGN
    assert record_of(node) == record
    assert record.prior == {
        "unschedulable": False,
        "bootID": "b1",
        "taints": ["dedicated:NoSchedule"],
        "conditions": [],
    }
    assert node.labels == {
        "node.kubernetes.io/exclude-from-external-load-balancers": "",
        "remediation.medik8s.io/exclude-from-remediation": "true",
    }
    assert {key: value for key, value in node.annotations.items() if key != names.RECORD} == {
        "cluster-autoscaler.kubernetes.io/scale-down-disabled": "true",
        "karpenter.sh/do-not-disrupt": "true",
    }


@pytest.mark.parametrize("count", range(len(names.MARKS) + 1))
def test_each_kind_of_marks_can_be_left_out_and_the_way_back_is_the_record_s(count: int) -> None:
    """Given back without being told what was left out: the next call may have other options, or none."""
    for chosen in itertools.combinations(names.MARKS, count):
        record, change = cordon.take_out(Node.of(raw()), DRAFT, taint=True, marks=chosen)
        wanted = {key for name in chosen for key in names.MARKS[name]}
        out = patched(raw(), change)
        found = {f"label/{key}" for key in out["metadata"]["labels"]}
        found |= {f"annotation/{key}" for key in out["metadata"]["annotations"]} - {f"annotation/{names.RECORD}"}
        assert found == set(record.marks) == wanted
        assert patched(out, cordon.give_back(Node.of(out), record)[0]) == raw()


@pytest.mark.parametrize("prior", [True, False])
@pytest.mark.parametrize("taint", [True, False])
def test_a_node_is_given_back_as_it_was(prior: bool, taint: bool) -> None:
    before = raw(spec__unschedulable=True) if prior else raw()
    out, record = taken(before, taint=taint)
    change, kept = cordon.give_back(Node.of(out), record)
    assert kept == ()
    assert patched(out, change) == before


def test_a_mark_that_was_there_before_stays() -> None:
    before = raw(metadata__annotations={"karpenter.sh/do-not-disrupt": "true", "x": "y"})
    out, record = taken(before)
    assert "annotation/karpenter.sh/do-not-disrupt" not in record.marks
    assert patched(out, cordon.give_back(Node.of(out), record)[0]) == before


def test_what_somebody_else_changed_is_kept_and_named() -> None:
    out, record = taken(raw())
    out["spec"]["taints"].append(LATER)
    out["spec"]["unschedulable"] = False
    out["metadata"]["annotations"]["karpenter.sh/do-not-disrupt"] = "false"
    change, kept = cordon.give_back(Node.of(out), record)
    back = patched(out, change)
    assert back["spec"]["taints"] == [FOREIGN, LATER]
    assert back["metadata"]["annotations"] == {"karpenter.sh/do-not-disrupt": "false"}
    assert len(kept) == 2
    assert any("uncordoned" in text for text in kept)
    assert any("do-not-disrupt" in text for text in kept)


ADMINS = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
QUARANTINE = {"key": "quarantine", "value": "compromised", "effect": "NoSchedule"}
ROLE = "label/node-role.kubernetes.io/control-plane"


@pytest.mark.parametrize("taint", [QUARANTINE, ADMINS, FOREIGN], ids=lambda taint: str(taint["key"]))
def test_a_record_that_a_kubelet_wrote_removes_no_taint_of_others(taint: dict[str, str]) -> None:
    out, record = taken(raw(spec__taints=[taint]))
    forged = replace(record, added=(*record.added, {**taint, "value": names.MANAGED_BY}, taint))
    node = Node.of(out)
    change, kept = cordon.give_back(node, forged)
    assert patched(out, change)["spec"]["taints"] == [taint]
    assert sum(taint["key"] in text for text in kept) == 1
    assert patched(out, cordon.at_step(node, forged, "returning"))["spec"]["taints"] == [taint]
    assert patched(out, cordon.let_go_of(node, forged, taint)[1])["spec"]["taints"][0] == taint
    without = Node.of(raw(spec__taints=[]))
    back = patched(raw(spec__taints=[]), cordon.at_step(without, forged, "parked"))
    assert {one["key"] for one in back["spec"]["taints"]} <= {names.TAINT_KEY, node_taints.OUT_OF_SERVICE["key"]}


def test_the_taint_of_a_dead_node_is_ours_by_its_value() -> None:
    out, record = taken(raw(spec__taints=[]))
    with_it, change = cordon.hold_with(Node.of(out), record, node_taints.OUT_OF_SERVICE)
    held = patched(out, change)
    assert held["spec"]["taints"][-1] == node_taints.OUT_OF_SERVICE
    assert "taints" not in patched(held, cordon.give_back(Node.of(held), with_it)[0])["spec"]
    _record, change = cordon.hold_with(Node.of(raw(spec__taints=[ADMINS])), record, node_taints.OUT_OF_SERVICE)
    assert change is None, "somebody else's is used as it is"


@pytest.mark.parametrize(
    "mark",
    [
        (ROLE, None, ""),
        ("label/node-restriction.kubernetes.io/tenant", "b", "a"),
        ("annotation/example.org/owner", None, "team"),
        ("annotation/maintenance.kubeops.io/record", None, "x"),
        ("finalizer/x", None, ""),
        ("", None, ""),
    ],
    ids=lambda mark: str(mark[0]),
)
def test_a_record_that_a_kubelet_wrote_sets_no_key_that_is_not_ours(mark: tuple[str, str | None, str]) -> None:
    """The control plane's label and those of NodeRestriction are none that a kubelet could set itself."""
    key, prior, ours = mark
    before = raw(metadata__labels={key.partition("/")[2]: ours} if key.startswith("label/") else {})
    out, record = taken(before)
    forged = replace(record, marks={**record.marks, key: Mark(prior, ours)})
    change, kept = cordon.give_back(Node.of(out), forged)
    assert patched(out, change) == before
    assert [text for text in kept if "never sets" in text and key in text]


def test_returning_lifts_only_our_taint_and_parking_puts_it_back() -> None:
    out, record = taken(raw())
    back = patched(out, cordon.at_step(Node.of(out), record, "returning"))
    node = Node.of(back)
    assert node.unschedulable
    assert node.taints == (FOREIGN,)
    held = record_of(node)
    assert held is not None
    parked = Node.of(patched(back, cordon.at_step(node, held, "parked")))
    assert [x["key"] for x in parked.taints] == ["dedicated", names.TAINT_KEY]


def test_a_step_that_is_reached_needs_no_change() -> None:
    out, record = taken(raw())
    assert cordon.at_step(Node.of(out), record, "cordoned") is None


def test_a_lifted_cordon_and_taint_are_noticed() -> None:
    out, record = taken(raw())
    assert cordon.foreign_changes(Node.of(out), record) == ()
    out["spec"] = {}
    assert len(cordon.foreign_changes(Node.of(out), record)) == 2


def test_the_diff_shows_parts_and_never_the_nonce() -> None:
    _record, change = cordon.take_out(Node.of(raw()), DRAFT, taint=True)
    diff = diff_of([change])
    assert diff[0]["before"] == {"unschedulable": False, "taints": ["dedicated=db:NoSchedule"]}
    assert diff[0]["after"]["step"] == "cordoned"
    assert diff[0]["after"]["taints"][1] == f"{names.TAINT_KEY}=r1:NoSchedule"
    assert "n1" not in str(diff)
    assert "nonce" not in DRAFT.public()


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "cannot be read"), ('{"v":1}', "cannot be read"), ('{"v":2,"run":"x"}', "version 2"), ("[]", "cannot be")],
)
def test_a_record_nobody_understands_is_an_error(text: str, said: str) -> None:
    with pytest.raises(BadRecordError, match=said):
        record_of(Node.of(raw(metadata__annotations={names.RECORD: text})))


@pytest.mark.parametrize(
    ("labels", "now", "expected"),
    [
        pytest.param({}, "2026-01-01T00:00:10.000Z", 20.0, id="on its way"),
        pytest.param({}, "2026-01-01T00:10:00.000Z", 0.0, id="long ago"),
        pytest.param({}, "2025-12-31T23:00:00.000Z", 30.0, id="a clock that is behind"),
        pytest.param({names.BALANCERS.partition("/")[2]: ""}, "2026-01-01T00:00:10.000Z", 0.0, id="left out before"),
    ],
)
def test_how_long_load_balancers_may_still_send(labels: dict[str, str], now: str, expected: float) -> None:
    _node, record = taken(raw(metadata__labels=labels))
    assert cordon.balanced_for(record, now) == expected


@pytest.mark.parametrize(
    ("cordoned", "tainted", "step", "told"),
    [
        (True, True, "drained", []),
        (False, True, "drained", ["uncordoned"]),
        (True, False, "drained", ["removed our taint"]),
        (False, False, "drained", ["uncordoned", "removed our taint"]),
        (False, False, "returning", []),
    ],
)
def test_what_somebody_else_lifted_is_told_until_the_node_returns(
    cordoned: bool, tainted: bool, step: Step, told: list[str]
) -> None:
    out, record = taken(raw())
    out["spec"]["unschedulable"] = cordoned
    if not tainted:
        out["spec"]["taints"] = [FOREIGN]
    found = cordon.foreign_changes(Node.of(out), record.at(step))
    assert len(found) == len(told)
    assert all(words in text for words, text in zip(told, found, strict=True))


@pytest.mark.parametrize(
    ("prior", "now", "sentence", "kept"),
    [
        (False, True, "Uncordon node a", 0),
        (True, True, "Give node a back, cordoned as before", 0),
        (False, False, "Uncordon node a", 1),
        (True, False, "Uncordon node a", 1),
    ],
)
def test_a_node_is_given_back_cordoned_only_if_it_was_and_still_is(
    prior: bool, now: bool, sentence: str, kept: int
) -> None:
    out, record = taken(raw(spec__unschedulable=prior))
    out["spec"]["unschedulable"] = now
    change, told = cordon.give_back(Node.of(out), record)
    assert (change.sentence, len(told)) == (sentence, kept)
    assert bool(patched(out, change)["spec"].get("unschedulable")) is (prior and now)


def test_a_step_is_written_where_either_the_record_or_a_taint_is_missing() -> None:
    out, record = taken(raw())
    assert cordon.at_step(Node.of(out), record, "drained") is not None
    out["spec"]["taints"] = [FOREIGN]
    again = cordon.at_step(Node.of(out), record, "cordoned")
    assert [taint["key"] for taint in patched(out, again)["spec"]["taints"]] == ["dedicated", names.TAINT_KEY]


def test_only_what_changes_is_sent() -> None:
    out, record = taken(raw())
    change = cordon.at_step(Node.of(out), record, "drained")
    assert change is not None
    assert change.body is not None
    assert "spec" not in change.body
    assert change.body["metadata"].keys() == {"annotations"}
