# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A run tells others of itself: Events that kubectl shows with node and workload, and a webhook."""

from __future__ import annotations

import json

import pytest
from support.arena import Arena
from support.plays import Player
from support.receiver import CANARY, Chat
from witness.log import Json


def events(play: Player, about: str, name: str, namespace: str) -> list[str]:
    """The reasons of the Events about an object, as kubectl finds them for `kubectl describe`."""
    fields = f"involvedObject.kind={about},involvedObject.name={name}"
    words = ("get", "events", "-n", namespace, "--field-selector", fields, "-o", "json")
    found = json.loads(play.lab.run_kubectl(*words).stdout)
    ours = [one for one in found["items"] if one["reason"].startswith("Maintenance")]
    assert all(one["involvedObject"]["uid"] for one in ours)
    return sorted(one["reason"] for one in ours)


def test_a_run_announces_itself_by_events_and_webhook(arena: Arena, play: Player, chat: Chat) -> None:
    here, _there = arena.nodes(2)
    arena.deployment("web", on=here)
    told: Json = {
        "maintain_nodes": [here],
        "maintain_reason": "kernel update",
        "maintain_announce_events": True,
        **chat.input,
    }
    checked = play("maintain", check=True, **told)
    assert checked.ok, checked.text
    assert (chat.got, events(play, "Node", here, "default")) == ([], [])
    run = play("maintain", args=["-vvv", "--diff"], **told)
    assert run.ok, run.text
    assert chat.moments == ["planned", "started", "ended"]
    reasons = ["MaintenanceEnded", "MaintenancePlanned", "MaintenanceStarted"]
    assert events(play, "Node", here, "default") == reasons
    assert events(play, "Deployment", "web", arena.name) == reasons
    assert chat.got[-1]["summary"]["verdict"] == "never_dark"
    server = run.report["cluster"]["server"]
    assert server.startswith("https://")
    assert {one["cluster"]["server"] for one in chat.got} == {server}
    assert server in run.text
    assert [(w["kind"], w["name"]) for w in chat.got[-1]["workloads"]] == [("Deployment", "web")]
    assert CANARY not in checked.text + run.text + json.dumps(run.lines)


@pytest.mark.whole
def test_a_webhook_that_refuses_is_a_warning_and_a_failure_is_announced(arena: Arena, play: Player, chat: Chat) -> None:
    here, _there = arena.nodes(2)
    arena.deployment("web", on=here)
    tasks = play.tasks({"name": "Break", "ansible.builtin.fail": {"msg": "The package is broken."}})
    told: Json = {"maintain_nodes": [here], **chat.input}
    chat.status = 403
    refused = play("maintain", maintain_announce_on="started", **told)
    assert refused.ok, refused.text
    assert chat.moments == ["started"]
    assert "was not told that the maintenance is started: it answered 403" in refused.words
    chat.got.clear()
    chat.status = 200
    failed = play("maintain", maintain_tasks=tasks, inventory=play.hosts([here]), **told)
    assert not failed.ok
    assert chat.moments == ["planned", "started", "failed"]
    assert any("The package is broken." in error for error in chat.got[-1]["errors"])
    assert chat.got[-1]["start"] < chat.got[-1]["end"] == chat.got[-1]["at"], "as it was, and not as it was foreseen"
