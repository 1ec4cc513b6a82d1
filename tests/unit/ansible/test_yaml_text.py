# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.arguments_yaml import read
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler.check import check, schema_of
from ansible_collections.kubeops.node_maintenance.tests.unit.descheduler.documents import KOORD, SIGS

KOORDINATOR, OTHER = schema_of("koordinator"), schema_of("sigs")


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("2026-01-01", "2026-01-01"),
        ("1:30", "1:30"),
        ("=", "="),
        ("yes", True),
        ("off", False),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-3", -3),
        ("1_000", 1000),
        ("0x10", 16),
        ("2.5", 2.5),
        ("1e3", 1000.0),
        ("y", True),
        ("N", False),
        ("1e400", "1e400"),
        ("10%", "10%"),
        ("5m", "5m"),
        ('"12"', "12"),
        ("0.0.0.0:10251", "0.0.0.0:10251"),
    ],
)
def test_a_plain_word_means_what_it_means_in_go(word: str, value: object) -> None:
    config, faults = read(f"key: {word}\n", KOORDINATOR)
    assert faults == ()
    assert config == {"key": value}
    assert type(config["key"]) is type(value)


def test_whole_documents() -> None:
    for text, schema in ((KOORD, KOORDINATOR), (SIGS, OTHER)):
        config, faults = read(text, schema)
        assert faults == ()
        assert check(config, schema) == ()


def test_a_key_that_is_there_twice() -> None:
    text = "a: 1\nb:\n- c: 1\n  d: 2\n  c: 3\na: 4\n"
    config, faults = read(text, KOORDINATOR)
    assert config == {"a": 4, "b": [{"c": 3, "d": 2}]}
    assert sorted(fault.message for fault in faults) == [
        "a is a duplicate key, again in line 6.",
        "c is a duplicate key, again in line 5.",
    ]
    assert {fault.real for fault in faults} == {"refuses"}
    assert {fault.real for fault in read(text, OTHER)[1]} == {"drops"}


@pytest.mark.parametrize("text", ["a: [", "a: b: c", "\ta: 1", "!!python/object:os.system x"])
def test_what_is_no_document(text: str) -> None:
    config, faults = read(text, KOORDINATOR)
    assert config is None
    assert [fault.code for fault in faults] == ["not_yaml"]


@pytest.mark.parametrize("text", ["a: 1\n---\nb: 2\n", "a: 1\n---\nb: [\n"])
def test_of_several_documents_the_first_is_read(text: str) -> None:
    config, faults = read(text, KOORDINATOR)
    assert config == {"a": 1}
    assert [(fault.code, fault.real) for fault in faults] == [("not_yaml", "drops")]


@pytest.mark.parametrize("text", ["a: .inf\n", "a: [-.Inf]\n", "a: .nan\n", "~: 1\n", "a: {null: 1}\n"])
def test_what_json_has_no_word_for(text: str) -> None:
    assert [(fault.code, fault.real) for fault in read(text, OTHER)[1]] == [("not_yaml", "refuses")]


def test_a_merged_key_is_there_twice_too() -> None:
    config, faults = read("a: 1\n<<: {a: 2, b: 3}\n", KOORDINATOR)
    assert config == {"a": 1, "b": 3}
    assert [fault.code for fault in faults] == ["duplicate_key"]
