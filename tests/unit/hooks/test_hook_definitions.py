# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Hooks as the drain knows them: for whom they are, what they are told, and what a node's record says of them."""

from __future__ import annotations

import pathlib
import re
import typing as t
import urllib.parse
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod, Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.pod_selectors import PodSelector
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import PodPlan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import Record
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects

WEB = PodSelector(selectors.parse("app=web"))
HTTP = hook_definitions.Http(
    "http://{ip}:8080/{name}?again={again}", headers=(("X-Pod", "{namespace}/{name}"), ("X-IP", "{ip}"))
)


def rule(
    hook: hook_definitions.Hook = "before_pod", action: hook_definitions.Action = "http", **changes: t.Any
) -> hook_definitions.Rule:
    made = hook_definitions.Rule(
        hook,
        "a name",
        action,
        60.0,
        WEB,
        tasks="/t.yml" if action == "tasks" else "",
        http=HTTP if action == "http" else None,
    )
    return replace(made, **changes)


def plan(route: t.Any = "evict", **changes: t.Any) -> PodPlan:
    raw = objects.pod("p0", **changes)
    raw["status"]["podIP"] = "10.0.0.1"
    return PodPlan(Pod.of(raw), route, "replicas", "", Ref("Deployment", "web", "shop", "uid-web"))


def record(**entries: hook_definitions.State) -> Record:
    """That of n1; an entry's name is that of its pod, `_` for one of the node."""
    found = {}
    for name, state in entries.items():
        call = hook_definitions.Call(rule(), "n1", "shop", name, f"uid-{name}", "Deployment/web")
        found[call.key] = call.entry(state)
    return Record("r1", "x", "me", "", "2026-01-01T00:00:00Z", "cordoned", "", "ns/l", {}, hooks=found)


# -- for whom ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("route", "changes", "count"),
    [
        ("evict", {}, 1),
        ("surge", {}, 1),
        ("job", {}, 1),
        ("wait", {}, 0),
        ("skip", {}, 0),
        ("evict", {"deleting": "2026-01-01T00:00:00Z"}, 0),
        ("evict", {"phase": "Pending"}, 0),
        ("evict", {"labels": {"app": "other"}}, 0),
    ],
)
def test_only_a_running_pod_that_is_to_be_moved_has_hooks(route: t.Any, changes: dict[str, t.Any], count: int) -> None:
    assert len(hook_definitions.calls_for([rule()], plan(route, **changes))) == count


@pytest.mark.parametrize(("labels", "expected"), [({"app": "web"}, True), ({"app": "other"}, False)])
def test_a_rule_for_nodes_is_about_their_labels(labels: dict[str, str], expected: bool) -> None:
    [node] = objects.snapshot(nodes=[objects.node("n1", labels=labels)]).nodes.values()
    assert rule("before_node").for_node(node) is expected


def test_there_are_rules_if_there_are_any() -> None:
    assert [
        bool(one)
        for one in (hook_definitions.NO_RULES, hook_definitions.Rules((rule(),)), hook_definitions.Rules((), (rule(),)))
    ] == [
        False,
        True,
        True,
    ]


def test_a_rule_is_the_same_as_long_as_it_does_the_same() -> None:
    """So that a run that is resumed knows what it has called."""
    key = rule().key
    assert key == rule(name="other", deadline=1.0, http=replace(HTTP, headers=())).key
    others = [
        rule("after_pod"),
        rule(http=replace(HTTP, url="http://x")),
        rule(http=replace(HTTP, method="PUT")),
        rule(action="tasks"),
        rule(action="annotation"),
        rule(selects=PodSelector(selectors.parse("app=other"))),
    ]
    assert len({key, *(one.key for one in others)}) == len(others) + 1


def test_the_guide_says_which_answers_are_good_and_which_mean_not_yet() -> None:
    guide = (pathlib.Path(__file__).parents[3] / "docs/docsite/rst/guide_hooks.rst").read_text(encoding="utf-8")
    done, repeated = re.search(r"\(([\d, ]+)\)\. With ([\d,\s]+) or no answer", guide, re.DOTALL).groups()  # type: ignore[union-attr]
    assert {int(status) for status in done.split(",")} == set(hook_definitions.Http("http://x").status)
    assert {int(status) for status in repeated.split(",")} == hook_definitions.REPEATED


# -- what is told --------------------------------------------------------------------------------------


def test_a_call_of_a_pod_is_told_about_it_with_its_address_before_and_its_fate_after() -> None:
    about = {
        "rule": "a name",
        "node": "n1",
        "namespace": "shop",
        "name": "p0",
        "uid": "uid-p0",
        "owner": "Deployment/web",
    }
    before, after = (hook_definitions.Call.of_pod(rule(hook), plan()) for hook in ("before_pod", "after_pod"))
    assert before.variables(again=True) == {"hook": "before_pod", "again": True, "ip": "10.0.0.1", **about}
    assert after.variables(again=False, moved=False) == {"hook": "after_pod", "again": False, "moved": False, **about}


def test_a_call_of_a_node_is_told_about_it_alone() -> None:
    call = hook_definitions.Call(rule("before_node"), "n1")
    assert call.variables(again=False) == {"hook": "before_node", "rule": "a name", "node": "n1", "again": False}
    assert (call.subject, call.key) == ("Node n1", rule("before_node").key)


@pytest.mark.parametrize(
    ("workload", "owned", "owner"),
    [(True, True, "Deployment/web"), (False, True, "ReplicaSet/web"), (False, False, "")],
)
def test_the_owner_is_the_workload_or_else_whoever_controls_the_pod(workload: bool, owned: bool, owner: str) -> None:
    made = plan(owner=objects.owned("ReplicaSet", "web") if owned else [])
    made = made if workload else replace(made, workload=None)
    assert hook_definitions.Call.of_pod(rule(), made).owner == owner


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("tasks", "(tasks /t.yml)"),
        ("annotation", "(annotation maintenance.kubeops.io/ready-to-move)"),
        ("http", f"(http {HTTP.shown()})"),
    ],
)
def test_a_call_is_named_by_its_rule_and_what_it_does(action: t.Any, words: str) -> None:
    call = hook_definitions.Call.of_pod(rule(action=action), plan())
    assert call.what == f"hook before_pod, rule a name {words}"
    assert (call.subject, call.key) == ("Pod shop/p0", f"{rule(action=action).key}/uid-p0")


@pytest.mark.parametrize(
    ("state", "again"), [("due", False), ("begun", True), ("failed", True), ("done", False), ("", False)]
)
def test_a_call_that_was_begun_is_shown_as_one_that_may_have_been_carried_out(state: str, again: bool) -> None:
    shown = hook_definitions.Call.of_pod(rule(action="tasks"), plan()).to_dict(state)
    assert (shown["again"], shown["state"], shown["deadline"], shown["tasks"]) == (again, state, 60, "/t.yml")


@pytest.mark.parametrize(
    ("ip", "url", "header"),
    [
        ("10.0.0.1", "http://10.0.0.1:8080/p%3A0?again=true", "10.0.0.1"),
        ("fd00::1", "http://[fd00::1]:8080/p%3A0?again=true", "fd00::1"),
        ("", "http://:8080/p%3A0?again=true", ""),
    ],
)
def test_variables_stand_in_the_address_and_in_headers(ip: str, url: str, header: str) -> None:
    """An IPv6 address has brackets in a URL, and nothing else with a colon has."""
    found = hook_definitions.filled(HTTP, {"ip": ip, "name": "p:0", "namespace": "shop", "again": True})
    assert (found.url, dict(found.headers)) == (url, {"X-Pod": "shop/p:0", "X-IP": header})


@pytest.mark.parametrize("variable", ["owner", "name", "ip"])
@pytest.mark.parametrize(
    "hostile",
    [
        "x/../../admin/delete-all?force=true#",
        "a@evil.example",
        "..",
        "a\r\nX-Admin: 1",
        "::1]@evil.example/[",
        "\x00\u00e9",
    ],
)
def test_no_variable_leads_to_another_url_or_header(variable: str, hostile: str) -> None:
    call = hook_definitions.Http(
        f"https://host/consumers/{{{variable}}}/drain", "POST", (("X-Who", f"{{{variable}}}"),)
    )
    found = hook_definitions.filled(call, {variable: hostile})
    parts = urllib.parse.urlsplit(found.url)
    assert (parts.netloc, parts.query, parts.fragment) == ("host", "", "")
    start, segment, end = parts.path.rsplit("/", 2)
    assert (start, end) == ("/consumers", "drain")
    assert segment.isascii()
    assert segment.strip(".")
    (header,) = dict(found.headers).values()
    assert header.isascii()
    assert header.isprintable()


@pytest.mark.parametrize(
    ("kind", "name"), [("x", "../../admin"), ("Deployment", ".."), ("../..", "x"), ("", ""), ("a b", "x")]
)
def test_an_owner_that_no_cluster_can_have_is_not_told(kind: str, name: str) -> None:
    """Only whoever makes the pod says whose it is; some servers resolve what is encoded, too."""
    made = replace(plan(owner=objects.owned(kind, name)), workload=None)
    assert hook_definitions.Call.of_pod(rule(), made).owner == ""


# -- the record ----------------------------------------------------------------------------------------


def test_an_entry_names_the_pod_and_nothing_that_is_empty() -> None:
    assert hook_definitions.Call.of_pod(rule(), plan()).entry("due") == {
        "state": "due",
        "rule": "a name",
        "action": "http",
        "namespace": "shop",
        "name": "p0",
        "owner": "Deployment/web",
    }
    assert hook_definitions.Call(rule("before_node"), "n1").entry("done") == {
        "state": "done",
        "rule": "a name",
        "action": "http",
    }


def test_what_is_left_is_what_the_record_says_is_not_over() -> None:
    found = record(a="due", b="begun", c="failed", d="done")
    left = hook_definitions.left([rule(), rule("after_pod")], "n1", found)
    assert [(call.node, call.namespace, call.name, call.uid, call.owner) for call in left] == [
        ("n1", "shop", name, f"uid-{name}", "Deployment/web") for name in ("a", "b", "c")
    ]
    of_node = replace(found, hooks={rule().key: {"state": "due"}})
    assert hook_definitions.left([rule()], "n1", of_node) == (), "it is of no pod"
    assert hook_definitions.left([rule("after_pod")], "n1", found) == ()
    assert hook_definitions.state_of(found, left[1].key) == "begun"
    assert hook_definitions.state_of(found, "other") == ""


def test_pods_are_announced_to_once_their_handshake_has_begun() -> None:
    made = rule(action="annotation")
    entries: dict[str, dict[str, str]] = {}
    for name, state in (("a", "due"), ("b", "begun"), ("c", "done")):
        call = hook_definitions.Call(made, "n1", "shop", name, f"uid-{name}")
        entries[call.key] = call.entry(t.cast("hook_definitions.State", state))
    http = hook_definitions.Call(rule(), "n1", "shop", "d", "uid-d")
    entries[http.key] = http.entry("begun")
    assert hook_definitions.planned(replace(record(), hooks=entries)) == {
        "uid-b": ("shop", "b"),
        "uid-c": ("shop", "c"),
    }
