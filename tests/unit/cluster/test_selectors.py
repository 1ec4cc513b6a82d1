# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import selectors


@pytest.mark.parametrize(
    ("text", "labels", "matched"),
    [
        ("", {}, True),
        ("  ", {"app": "web"}, True),
        ("app=web", {"app": "web"}, True),
        ("app == web", {"app": "web"}, True),
        ("app=web", {"app": "db"}, False),
        ("app!=web", {"app": "db"}, True),
        ("app!=web", {}, True),
        ("app!=web", {"app": "web"}, False),
        ("app=", {"app": ""}, True),
        ("app in (web, db)", {"app": "db"}, True),
        ("app in (web,db)", {}, False),
        ("app in (web,)", {"app": ""}, True),
        ("app notin (web,db)", {}, True),
        ("app", {"app": ""}, True),
        ("!app", {}, True),
        ("!app", {"app": "web"}, False),
        ("example.org/app=web,tier in (a,b),!old", {"example.org/app": "web", "tier": "b"}, True),
        ("example.org/app=web,tier in (a,b),!old", {"example.org/app": "web", "tier": "b", "old": ""}, False),
    ],
)
def test_a_selector_as_text(text: str, labels: dict[str, str], matched: bool) -> None:
    selector = selectors.parse(text)
    assert selectors.matches(selector, labels) == matched
    assert selectors.matches(selectors.parse(selectors.as_query(selector)), labels) == matched


# What the API server refuses in a query (apimachinery, labels.Parse).
WRONG = [
    "app in (a b)",
    "app in ()",
    "app notin ( )",
    "app in (-a)",
    "app in (a=b)",
    "app=" + "a" * 64,
    "app in (" + "a" * 64 + ")",
    "a" * 64,
    "Example.org/app",
    "example..org/app=web",
]


@pytest.mark.parametrize(
    "text", ["app web", "app=web,", "=web", "app in web", "app in (web", "app=we b", "-app"] + WRONG
)
def test_what_is_no_selector(text: str) -> None:
    with pytest.raises(ValueError, match="label selector"):
        selectors.parse(text)
