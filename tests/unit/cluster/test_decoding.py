# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Texts and numbers of others are either as expected or refused, whoever wrote them; no other error comes of them."""

from __future__ import annotations

import datetime
import json
import time
import typing as t
from dataclasses import dataclass, field, fields
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    names,
    objects,
    quantities,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import installation, rollback_record
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import object_limiter
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import condition_events
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.rehearsal import field_filter
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import (
    guard_budgets,
    node_records,
    stored_objects,
    surge_records,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects as made

DEEP = "[" * 100_000
HOSTILE: tuple[str, ...] = (
    DEEP,
    DEEP + "]" * 100_000,
    '{"a":' * 40 + "1" + "}" * 40,
    "1e999",
    "-1e999",
    "9" * 5000,
    "NaN",
    "Infinity",
)
HOSTILE += ('"\\ud800"', '{"\\udfff": 1}', "", "{", "\x00", "[9223372036854775808]", " " * 3_000_000)


@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_json_of_others_is_bounded(text: str) -> None:
    with pytest.raises(decoding.UnreadableError) as refused:
        decoding.json_of(text)
    assert len(str(refused.value)) < 100, "it does not repeat what it refuses"


@pytest.mark.parametrize(
    "value", [{}, [], None, True, 9223372036854775807, 1.5, "\u00e9 \U0001f600", {"a": [{"b": "x"}]}, [[[[[[1]]]]]]]
)
def test_json_within_the_bounds_is_read(value: t.Any) -> None:
    assert decoding.json_of(json.dumps(value)) == value


def of_budget(text: str) -> t.Any:
    raw = made.budget(names.guard_name("u"), 1)
    raw["metadata"]["annotations"] = {names.SERVES_NODES: text}
    return guard_budgets.nodes_of(objects.Budget.of(raw))


def of_node(text: str) -> t.Any:
    try:
        return node_records.record_of(objects.Node.of(made.node("n1", annotations={names.RECORD: text})))
    except node_records.BadRecordError:
        return None


def of_copied_node(text: str) -> t.Any:
    return (
        field_filter._node("nodes", made.node("n1", annotations={names.RECORD: text}))["spec"]["unschedulable"] or None
    )


def of_surge(text: str) -> t.Any:
    lease = {"metadata": {"namespace": names.NAMESPACE, "name": "surge-u", "annotations": {names.SURGE: text}}}
    try:
        return surge_records.Surge.from_lease(lease)
    except surge_records.BadSurgeError as error:
        return error.node or None


def of_run(key: str) -> t.Callable[[str], t.Any]:
    def read(text: str) -> t.Any:
        raw = {"metadata": {"name": "run-r1"}, "data": {"fingerprint": "f", key: text}}
        try:
            run = stored_objects.stored_run(raw)
            return (run.given or run.plan or run.finished or run.so_far != stored_objects.NOTHING) if run else None
        except node_records.BadRecordError:
            return None

    return read


def of_pod(text: str) -> t.Any:
    pod = objects.Pod.of(made.pod("p", annotations={object_limiter.ALLOCATED: text}))
    return object_limiter.evictions((), [pod]) or None


def of_account(text: str) -> t.Any:
    return condition_events.Account.read({"data": {"told": text}}).reported or None


def of_journal(text: str) -> t.Any:
    try:
        journal = rollback_record.Journal.of({"metadata": {"name": "x"}, "data": {"journal": text}})
    except rollback_record.BadJournalError:
        return None
    return journal.sentence, journal.after(journal, foreign=False).ended(None), journal.to_config_map()


HOOK = hook_definitions.Rule("after_pod", "r", "annotation")


def of_hooks(text: str) -> t.Any:
    """What hooks a drain calls that takes the node over, and which pods keep an annotation."""
    record = of_node(json.dumps(RECORD)[:-1] + f', "hooks": {text}}}')
    if record is None:
        return None
    return hook_definitions.left((HOOK,), "n1", record), hook_definitions.planned(record), record.dump()


READERS: t.Sequence[t.Callable[[str], t.Any]] = (
    *(of_budget, of_node, of_copied_node, of_surge, of_pod, of_account, of_journal, of_hooks),
    *map(of_run, ("input", "plan", "finished", "so_far")),
)


@pytest.mark.parametrize("read", READERS)
@pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
def test_an_annotation_that_cannot_be_read_says_nothing(read: t.Callable[[str], t.Any], text: str) -> None:
    assert not read(text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
RECORD: dict[str, t.Any] = {
    "v": 1,
    "run": "r",
    "nonce": "n",
    "by": "b",
    "reason": "",
    "since": "s",
    "step": "out",
    "node_uid": "u",
    "lease": "l/node-n1",
    "prior": {"unschedulable": True, "bootID": "b", "taints": ["a:b"], "conditions": ["X"]},
    "added": [{"key": "k"}],
    "marks": {"label/a": {"prior": None, "ours": ""}},
    "hooks": {"k": {"state": "due"}},
    "conditions": {"Drained": None},
}
JOURNAL = {
    "v": 1,
    "flavor": "koordinator",
    "place": {f.name: "x" for f in fields(installation.Location)},
    "kind": "Deployment",
    "uid": "u",
    "config": None,
    "had_map": True,
    "had_data": True,
    "marks": {"a": None},
    "bare": False,
    "replicas": 1,
    "suspended": None,
    "paused": "scale",
    "ours": ["d"],
    "settled": False,
    "resumes": None,
}
SURGE: dict[str, t.Any] = {
    "v": 1,
    "api_version": "apps/v1",
    "kind": "Deployment",
    "namespace": "shop",
    "name": "web",
    "uid": "u",
    "prior_replicas": 1,
    "target": 2,
    "node": "n1",
    "node_uid": "u1",
    "pod": "web-0",
    "pod_uid": "p",
    "cost": None,
    "run": "r",
    "by": "b",
    "since": "s",
    "stage": "ready",
}


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.sampled_from((*RECORD, "other")), JSON)
def test_a_field_of_a_record_has_its_type_or_the_record_is_refused(key: str, value: t.Any) -> None:
    assert of_node(json.dumps(RECORD)) is not None
    record = of_node(json.dumps({**RECORD, key: value}))
    if record is not None:
        assert key != "other"
        assert of_node(record.dump()) == record
        assert isinstance(record.since, str)
        assert record.step in t.get_args(node_records.Step)
        assert all(isinstance(one, str) for taint in record.added for one in taint.values())
        assert all(isinstance(mark, node_records.Mark) for mark in record.marks.values())
        assert all(isinstance(entry["state"], str) for entry in record.hooks.values())


@settings(deadline=None, derandomize=True, max_examples=200)
@given(st.sampled_from((*SURGE, "other", "holder", "lease_uid")), JSON)
def test_a_field_of_a_surge_has_its_type_or_the_surge_is_refused(key: str, value: t.Any) -> None:
    assert isinstance(of_surge(json.dumps(SURGE)), surge_records.Surge)
    surge = of_surge(json.dumps({**SURGE, key: value}))
    if isinstance(surge, surge_records.Surge):
        assert key in SURGE
        assert json.loads(surge.dump()) == {**SURGE, key: value}


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.sampled_from((*JOURNAL, "other")), JSON)
def test_a_field_of_a_deschedulers_state_has_its_type_or_the_state_is_refused(key: str, value: t.Any) -> None:
    assert of_journal(json.dumps(JOURNAL))
    found = of_journal(json.dumps({**JOURNAL, key: value}))
    assert not (found and key == "other")


@settings(deadline=None, derandomize=True, max_examples=100)
@given(
    st.sampled_from(("state", "rule", "action", "namespace", "name", "owner")),
    JSON,
    st.sampled_from(hook_definitions.HOOKS),
)
def test_a_hook_in_a_record_is_read_or_the_record_is_refused(field_: str, value: t.Any, hook: str) -> None:
    entry = {"state": "begun", "action": "annotation", field_: value}
    read = of_hooks(json.dumps({f"{HOOK.key}/u": entry, f"{hook}/x": {"state": "due"}}))
    assert bool(read) is isinstance(value, str)


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.sampled_from(READERS), JSON | st.text(max_size=20))
def test_no_text_breaks_a_reader(read: t.Callable[[str], t.Any], value: t.Any) -> None:
    read(json.dumps(value))
    read(str(value))


@dataclass(frozen=True)
class Inner:
    name: str
    cost: int | None = None


@dataclass(frozen=True)
class Outer:
    on: bool
    which: t.Literal["a", "b"]
    inner: Inner
    several: tuple[Inner, ...] = ()
    by_name: t.Mapping[str, int] = field(default_factory=dict)
    given: str = ""


GOOD: dict[str, t.Any] = {"on": True, "which": "a", "inner": {"name": "x", "cost": 2}}


def test_a_dataclass_is_read_with_all_that_is_in_it() -> None:
    more = {"several": [{"name": "y"}], "by_name": {"k": 3}}
    assert decoding.shaped(Outer, {**GOOD, **more}, given="g") == Outer(
        True, "a", Inner("x", 2), (Inner("y"),), {"k": 3}, "g"
    )


@pytest.mark.parametrize(
    "wrong",
    [
        *({"on": 1}, {"on": None}, {"which": "c"}, {"which": []}, {"inner": []}, {"inner": {}}, {"inner": None}),
        *({"inner": {"name": "x", "cost": "2"}}, {"inner": {"name": "x", "cost": True}}, {"several": {}}),
        *({"several": ["y"]}, {"by_name": []}, {"by_name": {"k": "3"}}, {"other": 1}, {"given": "twice"}),
    ],
    ids=str,
)
def test_a_dataclass_of_other_fields_or_types_is_refused(wrong: dict[str, t.Any]) -> None:
    with pytest.raises(decoding.UnreadableError):
        decoding.shaped(Outer, {**GOOD, **wrong}, given="g")


@pytest.mark.parametrize("value", [[], None, 5, "x", {}])
def test_what_is_no_such_object_is_refused(value: t.Any) -> None:
    with pytest.raises(decoding.UnreadableError):
        decoding.shaped(Outer, value)


# -- numbers, times, addresses -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "number"),
    [
        *((5, 5), ("5", 5), ("-5", -5), ("0007", 7), (2**63 - 1, 2**63 - 1), (2**63, None), ("9" * 5000, None)),
        *(("1_000", None), ("\u00b2", None), ("\u0663", None), (" 5", None), ("", None), (None, None), (True, None)),
        *((1.5, None), ([], None), ("5x", None)),
    ],
)
def test_a_whole_number_is_one_of_the_api(value: t.Any, number: int | None) -> None:
    assert decoding.whole(value) == number


@pytest.mark.parametrize(
    ("value", "of", "counted"),
    [
        *((2, 5, 2), ("2", 5, 2), ("50%", 5, 3), ("0%", 5, 0), ("100%", 5, 5), ("9" * 5000 + "%", 5, None)),
        *(("x%", 5, None), ("%", 5, None), (None, 5, None)),
    ],
)
def test_percentages_are_rounded_up(value: t.Any, of: int, counted: int | None) -> None:
    assert decoding.share(value, of) == counted


def test_times_of_the_api_are_parsed_and_others_are_not_known() -> None:
    begun, later = decoding.moment("2026-01-01T00:00:00Z"), decoding.moment("2026-01-01T01:00:01.5+01:00")
    assert begun is not None
    assert later is not None
    assert (later - begun).total_seconds() == 1.5
    nothing: tuple[t.Any, ...] = ("", "yesterday", None, 5, [], "2026-01-01", "2026-01-01T00:00:00")
    assert [decoding.moment(value) for value in (*nothing, "0001-01-01T00:00:00+14:00", "9999-12-31T00:00:00Z")] == (
        [None] * 9
    )


def test_the_zero_time_of_go_and_the_last_year_are_no_times() -> None:
    years = {year: decoding.moment(f"{year:04}-06-01T00:00:00Z") for year in (1, 2, 9998, 9999)}
    assert [year for year, found in years.items() if found] == [2, 9998]


@pytest.mark.parametrize("seconds", [2**63 - 1, -(2**63), 1e300])
def test_no_time_is_too_late_for_an_error(seconds: float) -> None:
    assert decoding.later(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), seconds) is None


MOST = Fraction(2**63 - 1)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *(("1e5000", MOST), ("1e3000000", MOST), ("-1e3000000", -MOST), ("1e" + "9" * 30, MOST), ("16Ei", MOST)),
        *(("9" * 5000, MOST), ("0e5000", Fraction(0)), ("0", Fraction(0)), ("2.50", Fraction(5, 2))),
        *(("100m", Fraction(1, 10)), ("1e3", Fraction(1000)), ("1E", Fraction(10**18)), ("5.", Fraction(5))),
    ],
)
def test_a_quantity_is_capped_as_the_api_counts(text: str, number: Fraction) -> None:
    began = time.process_time()
    assert quantities.quantity(text) == number
    assert len(str(quantities.counted("cpu", text))) < 25
    assert time.process_time() - began < 0.5


@pytest.mark.parametrize("text", ["1e-" + "9" * 30, "0." + "0" * 5000 + "1", "1e-5000n"])
def test_an_amount_that_is_too_small_is_still_some(text: str) -> None:
    assert "n" in text or 0 < quantities.quantity(text) < Fraction(1, 10**9)
    assert "n" in text or quantities.counted("memory", text) == 1


@pytest.mark.parametrize("text", ["", "x", ".", "1.2.3", "1K", "1mi", "1e", "Ki", "\u0663", "1e5Ki", "9" * 9 + "x"])
def test_what_is_no_quantity_is_refused_shortly(text: str) -> None:
    with pytest.raises(decoding.UnreadableError) as refused:
        quantities.quantity(text)
    assert len(str(refused.value)) < 100


@pytest.mark.parametrize(
    ("text", "host"),
    [
        *(("10.0.0.1", "10.0.0.1"), ("fd00::1", "fd00::1"), ("node-1.example.org", "node-1.example.org")),
        *(("n1", "n1"), ("NODE_1", "NODE_1"), ("a" * 63, "a" * 63)),
        *(("-oProxyCommand=touch x", ""), ("-n1", ""), ("n1-", ""), ("n1 -v", ""), ("root@n1", ""), ("n1\n", "")),
        *(("fe80::1%eth0", ""), ("{{ 1 }}", ""), ("n1/x", ""), ("a..b", ""), ("a" * 64, ""), ("", ""), (".", "")),
        (".".join(["a"] * 130), ""),
    ],
)
def test_a_host_is_an_address_or_a_dns_name(text: str, host: str) -> None:
    assert decoding.host(text) == host
