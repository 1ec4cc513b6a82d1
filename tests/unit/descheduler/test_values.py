# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Single values against fields of each type, at the bounds of what Go decodes and the deschedulers accept."""

from __future__ import annotations

import sys
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import schemas, values
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.check import schema_of

SCHEMA = schema_of("koordinator")


def faults(field: schemas.Field, value: t.Any, *, strict: bool = True, version: str = "1.7.0") -> list[tuple[str, str]]:
    """Path and code of each."""
    found = values.Reader(schema_of("koordinator", version), strict).faults(field, value, "x")
    return [(fault.path, fault.code) for fault in found]


def codes(field: schemas.Field, *given: t.Any) -> list[str]:
    """The only code for each value, empty if nothing is wrong with it."""
    return [",".join(code for _path, code in faults(field, value)) for value in given]


WRONG, RANGE = "wrong_type", "out_of_range"


@pytest.mark.parametrize(
    ("field", "given", "expected"),
    [
        (schemas.boolean(), [True, False, "true", 1, 0, None], ["", "", WRONG, WRONG, WRONG, ""]),
        (schemas.whole(), [0, -1, 1.0, 1.5, "1", True], ["", "", "", WRONG, WRONG, WRONG]),
        (schemas.whole(), [2**63 - 1, 2**63 + 2**11, -(2**63), -(2**63) - 2**12], ["", RANGE, "", RANGE]),
        (schemas.whole(width=schemas.INT32), [2**31 - 1, 2**31, -(2**31), -(2**31) - 1], ["", RANGE, "", RANGE]),
        (schemas.count(width=schemas.UINT32), [2**32 - 1, 2**32, 0, -1], ["", RANGE, "", RANGE]),
        (schemas.count(), [2**64 - 1, 2**64 + 2**12, 0, -1], ["", RANGE, "", RANGE]),
        (schemas.whole(minimum=1), [0, 1, 2], [RANGE, "", ""]),
        (schemas.whole(maximum=5), [5, 6], ["", RANGE]),
        (schemas.Field(type="float", above=0), [0, 0.1, -1], [RANGE, "", RANGE]),
        (
            schemas.Field(type="float"),
            [1, 1.5, "1", True, sys.float_info.max, 10**400],
            ["", "", WRONG, WRONG, "", WRONG],
        ),
        (schemas.Field(type="float", width=schemas.FLOAT32), [3.4e38, 3.5e38, -3.5e38], ["", RANGE, RANGE]),
        (schemas.text(), ["a", "", 1, True, None], ["", "", WRONG, WRONG, ""]),
        (schemas.text(enum=("a", "b")), ["a", "b", "", "c"], ["", "", "", "not_in_list"]),
        (schemas.text(nullable=False), ["a", None], ["", WRONG]),
        (schemas.duration(minimum=0), ["0s", "-1s", "1s", 1, "1"], ["", RANGE, "", WRONG, WRONG]),
        (schemas.duration(minimum=0), ["-1ns", "1ns"], [RANGE, ""]),
        (
            schemas.Field(type="int_or_percent", minimum=0),
            [0, 3, -1, "0%", "10%", "-1%", "10", "1.5%", "ten%"],
            ["", "", RANGE, "", "", RANGE, "malformed", "malformed", "malformed"],
        ),
        (
            schemas.Field(type="float_or_string", above=0),
            [1, 0, "1", "0", ".5", "1e3", "fast", "1e", "+2"],
            ["", RANGE, "", RANGE, "", "", "malformed", "malformed", ""],
        ),
        (schemas.text(forbidden="Never."), ["a", "", None], ["forbidden", "", ""]),
        (schemas.percents(), [{"cpu": 100}, {"cpu": 0}, {"cpu": 100.5}, {"cpu": -1}, {}], ["", "", RANGE, RANGE, ""]),
        (schemas.selector_text(), ["pool=a,tier!=db", "pool a"], ["", "malformed"]),
    ],
)
def test_a_value_at_the_bounds_of_its_field(field: schemas.Field, given: list[t.Any], expected: list[str]) -> None:
    assert codes(field, *given) == expected


@pytest.mark.parametrize(
    ("address", "valid"),
    [
        ("0.0.0.0:10251", True),
        (":10251", True),
        ("[::]:1", True),
        ("::1", True),
        ("127.0.0.1", True),
        ("0.0.0.0:1", True),
        ("0.0.0.0:65535", True),
        ("0.0.0.0:+80", True),
        ("0.0.0.0:0", False),
        ("0.0.0.0:65536", False),
        ("0.0.0.0:http", False),
        ("0.0.0.0:", False),
        ("localhost:80", False),
        ("[::]", False),
        ("[::1:80", False),
        ("fe80::1%eth0", False),
        ("[fe80::1%eth0]:80", False),
        ("10251", False),
    ],
)
def test_an_address_is_an_ip_and_a_port(address: str, valid: bool) -> None:
    assert codes(schemas.Field(type="address"), address) == ["" if valid else "malformed"]


PAIR = schemas.record({"a": schemas.text(), "b": schemas.text()}, exclusive=(("a", "b"),))
NEWER = schemas.record({"a": schemas.text(since="1.8.0"), "b": schemas.text(required=True, since="1.8.0")})
LIMITS = schemas.percents()
BELOW = schemas.record({"low": LIMITS, "high": LIMITS}, le=(("low", "high"),))
NAMED = schemas.several(schemas.record({"name": schemas.text()}), unique="name")


def test_what_is_required_is_named_without_its_place() -> None:
    assert schemas.required("profiles[0].args.nodes").message == "nodes is required."


@pytest.mark.parametrize(
    ("field", "value", "expected"),
    [
        (PAIR, {"a": "1"}, []),
        (PAIR, {"a": "1", "b": "2"}, [("x", "exclusive")]),
        (PAIR, {"a": "1", "b": ""}, []),
        (PAIR, {"c": "1"}, [("x.c", "unknown_key")]),
        (schemas.record({"threshold": schemas.text()}), {"treshold": "1"}, [("x.treshold", "look_alike")]),
        (schemas.record({"a": schemas.text(required=True)}), {}, [("x.a", "required")]),
        (schemas.record({"a": schemas.text(required=True)}), {"a": ""}, [("x.a", "required")]),
        (schemas.record({"a": schemas.whole(required=True)}), {"a": 0}, []),
        (schemas.record({"a": schemas.several(schemas.text(), nonempty=True)}), {"a": []}, [("x.a", "required")]),
        (schemas.record({"a": schemas.boolean(deprecated="b")}), {"a": False}, []),
        (schemas.record({"a": schemas.boolean(deprecated="b")}), {"a": True}, [("x.a", "deprecated")]),
        (BELOW, {"low": {"cpu": 50}, "high": {"cpu": 50}}, []),
        (BELOW, {"low": {"cpu": 51}, "high": {"cpu": 50}}, [("x.low.cpu", "order")]),
        (BELOW, {"low": {"cpu": 51, "memory": 2}, "high": {"memory": 1}}, [("x.low.memory", "order")]),
        (BELOW, {"low": {"cpu": 1}, "high": {"cpu": None}}, [("x.low.cpu", "order")]),
        (BELOW, {"low": {"cpu": None}, "high": {"cpu": 0}}, []),
        (NAMED, [{"name": "a"}, {"name": "b"}], []),
        (NAMED, [{"name": "a"}, {"name": "b"}, {"name": "a"}], [("x[2]", "duplicate")]),
        (NAMED, [{}, {"name": ""}], [("x[1]", "duplicate")]),
        (schemas.several(schemas.text(), unique="*"), ["a", "a", "b"], [("x[1]", "duplicate")]),
        (schemas.several(schemas.text(), minimum=2), ["a"], [("x", "out_of_range")]),
        (schemas.several(schemas.text(), minimum=2), ["a", "b"], []),
        (schemas.several(schemas.text(enum=("a",))), ["a", "b"], [("x[1]", "not_in_list")]),
        (schemas.several(schemas.text(enum=("a",))), ["", None], [("x[0]", "not_in_list"), ("x[1]", "not_in_list")]),
        (schemas.several(schemas.record({}, nonempty=True)), [{}, None], [("x[0]", "required"), ("x[1]", "required")]),
        (schemas.several(schemas.whole()), [1, None, "2"], [("x[2]", "wrong_type")]),
        (schemas.by_name(schemas.whole(), keys=("a",)), {"a": 1, "b": 2}, [("x.b", "unknown_key")]),
        (schemas.by_name(schemas.whole(minimum=1)), {"a": None}, [("x.a", "out_of_range")]),
    ],
)
def test_what_is_wrong_with_objects_lists_and_maps(
    field: schemas.Field, value: t.Any, expected: list[tuple[str, str]]
) -> None:
    assert faults(field, value) == expected


def test_what_a_newer_version_knows_is_too_new_for_an_older_one() -> None:
    assert faults(NEWER, {"a": "1"}) == [("x.a", "too_new")]
    assert faults(NEWER, {"a": "1"}, version="1.8.0") == [("x.b", "required")]


@pytest.mark.parametrize(("strict", "real"), [(True, "refuses"), (False, "drops")])
def test_an_unknown_key_is_refused_or_dropped(strict: bool, real: str) -> None:
    found = values.Reader(SCHEMA, strict).faults(PAIR, {"c": 1}, "x")
    assert [(fault.real, fault.decoding) for fault in found] == [(real, True)]


@pytest.mark.parametrize(
    ("given", "strict", "default", "real"),
    [
        ([None], False, "[a]", "starts"),
        ([None], False, "", "refuses"),
        ([None], True, "[a]", "refuses"),
        ([""], False, "[a]", "refuses"),
        (["a", None], False, "[a]", "refuses"),
    ],
)
def test_a_null_that_leaves_a_list_as_it_was_is_harmless(
    given: list[t.Any], strict: bool, default: str, real: str
) -> None:
    field = schemas.several(schemas.text(enum=("a",)), default=default)
    assert [fault.real for fault in values.Reader(SCHEMA, strict).faults(field, given, "x")] == [real]


EXISTS, IN = {"key": "a", "operator": "Exists"}, {"key": "a", "operator": "In", "values": ["b"]}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"matchLabels": {"a": "b"}, "matchExpressions": [EXISTS, IN]}, []),
        ({"matchLabels": {"a b": "c"}}, [("x.matchLabels.a b", "malformed")]),
        ({"matchLabels": {"a": "b c"}}, [("x.matchLabels.a", "malformed")]),
        ({"matchExpressions": [{**EXISTS, "key": "a b"}]}, [("x.matchExpressions[0].key", "malformed")]),
        ({"matchExpressions": [EXISTS, {"operator": "Exists"}]}, [("x.matchExpressions[1].key", "required")]),
        ({"matchExpressions": [{**EXISTS, "values": ["b"]}]}, [("x.matchExpressions[0].values", "forbidden")]),
        ({"matchExpressions": [{**IN, "values": []}]}, [("x.matchExpressions[0].values", "required")]),
        (
            {"matchExpressions": [{**IN, "operator": "NotIn", "values": []}]},
            [("x.matchExpressions[0].values", "required")],
        ),
        ({"matchExpressions": [{**IN, "operator": "DoesNotExist"}]}, [("x.matchExpressions[0].values", "forbidden")]),
        ({"matchExpressions": [{**IN, "operator": "Eq"}]}, [("x.matchExpressions[0].operator", "not_in_list")]),
        ({"matchExpressions": [{"key": "a"}]}, [("x.matchExpressions[0].operator", "required")]),
        ({"matchExpressions": [{**IN, "values": ["b", "c d"]}]}, [("x.matchExpressions[0].values", "malformed")]),
    ],
)
def test_a_label_selector_is_what_the_api_machinery_takes(
    selector: dict[str, t.Any], expected: list[tuple[str, str]]
) -> None:
    assert faults(schemas.LABEL_SELECTOR, selector) == expected


@pytest.mark.parametrize(
    ("value", "length", "text"),
    [
        ("a", 40, "'a'"),
        ({"a": [1, None]}, 40, '{"a": [1, null]}'),
        ("x" * 38, 40, f"'{'x' * 38}'"),
        ("x" * 39, 40, f"'{'x' * 36}..."),
        ("abcdefgh", 8, "'abcd..."),
    ],
)
def test_a_value_is_shown_in_forty_characters_at_most(value: t.Any, length: int, text: str) -> None:
    assert values.shown(value, length) == text
    assert len(values.shown(value)) <= 40


@pytest.mark.parametrize(
    ("word", "right"),
    [("Cpu", "cpu"), ("maxMigratingPerNodes", "maxMigratingPerNode"), ("memory", "memory"), ("disk", ""), ("", "")],
)
def test_the_word_that_was_probably_meant(word: str, right: str) -> None:
    assert values.similar(word, ["cpu", "memory", "maxMigratingPerNode"]) == right


@pytest.mark.parametrize(
    ("value", "set_"), [(None, False), ("", False), ([], False), ({}, False), (0, True), (False, True), ("a", True)]
)
def test_zero_and_false_are_set(value: t.Any, set_: bool) -> None:
    assert values.is_set(value) is set_


WORDS = {
    "duration": "a duration such as 90s, 5m or 1h30m",
    "bool": "true or false, without quotes",
    "int": "an integer",
    "string": "a string (numbers and true/false in quotes)",
}


@pytest.mark.parametrize(
    ("field", "value", "hint"),
    [
        (schemas.duration(), 90, "write 90s"),
        (schemas.duration(), True, ""),
        (schemas.boolean(), "True", "Write true without quotes"),
        (schemas.boolean(), "yes", ""),
        (schemas.whole(), "1", "without quotes"),
        (schemas.text(), 1.5, 'Write "1.5" in quotes'),
        (schemas.text(), True, 'Write "true" in quotes'),
        (schemas.text(), [], ""),
    ],
)
def test_a_wrong_type_is_told_how_to_write_it(field: schemas.Field, value: t.Any, hint: str) -> None:
    (fault,) = values.Reader(SCHEMA, strict=True).faults(field, value, "x")
    assert (hint in fault.remedy) if hint else not fault.remedy
    assert fault.message == f"{values.shown(value)} is not {WORDS[field.type]}."


@pytest.mark.parametrize(
    ("since", "knows"),
    [("", True), ("1.7.0", True), ("1.7.1", False), ("1.10.0", False), ("1.6.9", True), ("2", False)],
)
def test_versions_are_compared_as_numbers(since: str, knows: bool) -> None:
    assert SCHEMA.knows(since) is knows
