# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A custom resource that is nested without end takes no list and no watch of the others with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import client, exchange, kinds, verbs

DEEP = '{"a":[' * 50_000 + "1" + "]}" * 50_000
TEXT = st.text(alphabet='a"\\[]{}\u00e9', max_size=6)
JSON = st.recursive(st.none() | st.integers() | TEXT, lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner))


def listed(*items: str) -> bytes:
    return f'{{"kind":"List","items":[{",".join(items)}]}}'.encode()


def test_what_is_nested_without_end_is_left_out_of_a_list() -> None:
    usual = '{"metadata":{"name":"x","note":"}]\\"[{"},"spec":[[1]]}'
    found = exchange.parsed(listed(usual, f'{{"metadata":{{"name":"y"}},"spec":{DEEP},"status":{{"z":[2]}}}}', usual))
    assert found is not None
    first, odd, last = found["items"]
    assert first == last == json.loads(usual)
    assert (odd["metadata"], odd["status"]) == ({"name": "y"}, {"z": [2]})
    assert 0 < str(odd["spec"]).count("a") < exchange.DEEPEST
    assert exchange.parsed(b"[" * 100_000) is None, "a body that is cut is none"


def test_a_watch_goes_on_after_it() -> None:
    class Body:
        def chunks(self) -> Iterator[bytes]:
            yield b'{"type":"ADDED","object":{"spec":%s}}\n{"type":"ADDED",' % DEEP.encode()
            yield b'"object":{"spec":1}}\n'

        def close(self) -> None:
            pass

    body: Any = Body()
    first, second = client.Stream(body, verbs.watch(kinds.CLONE_SETS))
    assert (first["type"], second["object"]) == ("ADDED", {"spec": 1})


def test_such_a_list_is_read_whole_where_it_cannot_be_item_by_item() -> None:
    raw = listed('{"name":"x"}', f'{{"name":"y","spec":{DEEP}}}')
    found = exchange.page(raw, lambda item: item["name"])
    assert found == {"kind": "List", "items": ["x", "y"]}


@settings(deadline=None, derandomize=True, max_examples=100)
@given(st.dictionaries(st.sampled_from(["items", "kind", "metadata", 'a"]}']), JSON), st.sampled_from([None, 1]))
def test_a_page_has_what_the_whole_answer_has_with_what_is_kept_of_its_items(value: Any, indent: int | None) -> None:
    raw = json.dumps(value, ensure_ascii=False, indent=indent).encode()
    if isinstance(value.get("items"), list):
        value = {**value, "items": [("kept", item) for item in value["items"]]}
    assert exchange.page(raw, lambda item: ("kept", item)) == value


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"<html>",
        b"[]",
        b'"items"',
        b"{",
        b'{"items":[{}',
        b'{"items":[{]}',
        b'{"items":',
        b"{1:2}",
        b'{"a"}',
        b"\xff",
    ],
)
def test_an_answer_that_is_no_object_is_no_page(raw: bytes) -> None:
    assert exchange.page(raw, lambda item: item) is None
    assert exchange.parsed(raw) is None


@settings(deadline=None, derandomize=True, max_examples=80)
@given(JSON, st.integers(1, 4))
def test_what_is_cut_off_is_what_is_deeper_and_nothing_else(value: Any, deepest: int) -> None:
    def cut(one: Any, depth: int) -> Any:
        if not isinstance(one, (dict, list)):
            return one
        if depth > deepest:
            return None
        if isinstance(one, dict):
            return {key: cut(inner, depth + 1) for key, inner in one.items()}
        return [cut(inner, depth + 1) for inner in one]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exchange, "DEEPEST", deepest)
        for raw in (json.dumps(value).encode(), json.dumps(value, ensure_ascii=False, indent=1).encode()):
            assert json.loads(exchange._cut_off(raw)) == cut(value, 1)
