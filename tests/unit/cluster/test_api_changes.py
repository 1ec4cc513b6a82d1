# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How changes are shown, and how a reader is told what to set."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import api_changes, objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import pod, snapshot

WEB, DB = objects.Ref("Deployment", "web", "shop"), objects.Ref("Deployment", "db", "shop")


def change(target: objects.Ref, before: objects.Raw | None, after: objects.Raw | None) -> api_changes.Change:
    return api_changes.Change("patch", target, "", before=before, after=after)


@pytest.mark.parametrize(
    ("changes", "shown"),
    [
        pytest.param([], [], id="none"),
        pytest.param([(WEB, {"n": 1}, {"n": 2})], [("web", {"n": 1}, {"n": 2})], id="one"),
        pytest.param(
            [(WEB, {"n": 1}, {"n": 2}), (DB, {}, {"n": 1}), (WEB, {"n": 2}, {"n": 3})],
            [("web", {"n": 1}, {"n": 3}), ("db", {}, {"n": 1})],
            id="an object once, from first to last",
        ),
        pytest.param([(WEB, {"n": 1}, {"n": 2}), (WEB, {"n": 2}, {"n": 1})], [], id="there and back"),
        pytest.param([(WEB, None, None), (DB, {"n": 1}, None)], [("db", {"n": 1}, {})], id="deleted"),
        pytest.param([(WEB, None, {"n": 1})], [("web", {}, {"n": 1})], id="created"),
    ],
)
def test_the_diff_shows_each_object_once(
    changes: list[tuple[objects.Ref, objects.Raw | None, objects.Raw | None]],
    shown: list[tuple[str, objects.Raw, objects.Raw]],
) -> None:
    found = api_changes.diff_of(change(*one) for one in changes)
    assert [(entry["before"], entry["after"]) for entry in found] == [(before, after) for _name, before, after in shown]
    assert [entry["before_header"] for entry in found] == [f"Deployment shop/{name}" for name, _b, _a in shown]


@pytest.mark.parametrize(("delete", "verb", "word"), [(False, "evict", "Evict"), (True, "delete", "Delete")])
def test_a_pod_is_evicted_unless_it_is_to_be_deleted(delete: bool, verb: str, word: str) -> None:
    found = api_changes.eviction(snapshot(pods=[pod("p")]).pods[0], delete=delete)
    assert (found.verb, found.sentence, found.target.uid) == (verb, f"{word} Pod shop/p from node n1", "uid-p")


@pytest.mark.parametrize(
    ("values", "outside", "inside"),
    [
        ({"force": True}, "-e maintain_force=true", "force: true"),
        ({"serial": "2"}, "-e maintain_serial=2", "serial: 2"),
        ({"fenced": ("n1", "n2")}, "-e maintain_fenced=n1,n2", "fenced: [n1, n2]"),
        ({"force": True, "x": False}, "-e maintain_force=true -e maintain_x=false", "force: true and x: false"),
    ],
)
def test_options_are_told_for_playbooks_and_for_modules(
    values: dict[str, bool | str | tuple[str, ...]], outside: str, inside: str
) -> None:
    assert reasons.options(**values) == f"{outside} (in a module {inside})"


def test_a_finding_about_a_node_blocks_unless_it_says_otherwise() -> None:
    found = reasons.Finding.of_node("n1", "code", "It is so.", "Change it.")
    assert (found.severity, found.object, found.nodes) == ("blocker", "Node n1", ("n1",))
    assert reasons.Finding.of_node("n1", "code", "", "", "info").severity == "info"
    assert (found.sentence, reasons.Reason("code", "It is so.").sentence) == ("It is so. Change it.", "It is so.")
