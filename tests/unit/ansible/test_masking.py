# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Secrets in results, messages and arguments."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import masking

SECRETS = {"s3cret", "s3cret-and-longer"}
TEXT = st.text(alphabet="s3cret-x", max_size=12)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("s3cret", masking.WHOLE),
        ("token s3cret!", "token ********!"),
        ("a s3cret-and-longer b s3cret", "a ******** b ********"),
        (
            {"s3cret": 1, "x": ["s3cret", {"y": "s3cret"}]},
            {masking.WHOLE: 1, "x": [masking.WHOLE, {"y": masking.WHOLE}]},
        ),
        (("s3cret", 7, None, True, 1.5), [masking.WHOLE, 7, None, True, 1.5]),
    ],
)
def test_a_secret_is_masked_wherever_it_stands(value: Any, shown: Any) -> None:
    assert masking.masked(value, SECRETS) == shown


@given(value=PLAIN)
def test_nothing_secret_remains_and_nothing_else_changes(value: Any) -> None:
    shown = masking.masked(value, SECRETS)
    assert "s3cret" not in repr(shown)
    if "s3cret" not in repr(value):
        assert shown == value


def test_without_secrets_the_value_is_returned() -> None:
    value = {"x": ["y"]}
    assert masking.masked(value, set()) is value


def test_a_core_with_a_register_is_told_and_one_without_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    core = types.ModuleType("ansible.module_utils.secrets")
    core.register_secrets = told.extend  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "ansible.module_utils.secrets", core)
    masking.register(SECRETS)
    monkeypatch.setitem(sys.modules, "ansible.module_utils.secrets", None)
    masking.register({"another"})
    assert told == ["s3cret", "s3cret-and-longer"]
