# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Announcements of a run: Events once per moment, a webhook that may fail, and nothing that stops a maintenance."""

from __future__ import annotations

import json
import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions, run_hook_calls
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import announcement, run_announcements
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault, What
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

SECRET = "T0/B1/canary-7b1f"
HOOK = run_announcements.Webhook(
    hook_definitions.Http(f"https://chat.example/{SECRET}", status=run_announcements.STATUS, secret_path=True)
)
POD = {
    "namespace": "shop",
    "name": "web-1",
    "uid": "u1",
    "node": "n1",
    "route": "surge",
    "owner": "Deployment shop/web",
}
PLAN: dict[str, t.Any] = {
    "feasible": True,
    "findings": [],
    "waves": [["n1"]],
    "wave_seconds": [12],
    "estimate_seconds": 12,
    "nodes": [{"name": "n1", "outcome": "planned", "failed": False, "message": ""}],
    "pods": [POD],
}


@pytest.fixture
def world() -> Iterator[World]:
    spaces = [manifests.namespace(name) for name in ("default", "shop")]
    with World([manifests.node("n1"), *spaces]) as made:
        yield made


class Receiver:
    """The other end of a webhook, which answers with these statuses in turn; 0 is no answer, the last one stays."""

    def __init__(self, *statuses: int) -> None:
        self.statuses, self.got = list(statuses), list[dict[str, t.Any]]()

    def send(self, http: hook_definitions.Http, body: run_hook_calls.Variables, timeout: float) -> int:
        assert timeout > 0
        self.got.append(dict(body))
        status = self.statuses.pop(0) if len(self.statuses) > 1 else self.statuses[0]
        if status == 0:
            raise run_hook_calls.NoAnswerError(f"{http.shown()} gave no answer: TimeoutError")
        return status


def told(world: World, run: str = "r1/nonce-canary", *, check: bool = False, **more: t.Any) -> run_context.Result:
    receiver = more.pop("receiver", Receiver(200))
    given = {"moment": "started", "results": (PLAN,), "events": True, **more}
    options = run_announcements.EventOptions(send=receiver.send, **given)
    me = world.process("me")
    task = me.spawn(lambda: run_announcements.announce(me.ctx(run, check=check), options))
    world.machine.run_until(lambda: not task.alive)
    return t.cast("run_context.Result", task.value())


def events(world: World) -> list[tuple[str, str]]:
    """Namespace and reason of all Events of ours."""
    found = world.store.of(kinds.NEW_EVENTS.resource)
    return sorted((namespace, raw["reason"]) for (namespace, _name), raw in found.items() if "regarding" in raw)


def outcomes(result: run_context.Result) -> dict[str, str]:
    return {event["kind"]: event["outcome"] for event in result.data["events"]}


def test_a_resumed_run_doubles_no_event(world: World) -> None:
    assert outcomes(told(world)) == {"Node": "created", "Deployment": "created"}
    again = told(world, "r1/another-nonce", resumed=True)
    assert outcomes(again) == {"Node": "already_created", "Deployment": "already_created"}
    assert not again.failed
    assert events(world) == [("default", "MaintenanceStarted"), ("shop", "MaintenanceStarted")]
    assert outcomes(told(world, "r2/x")) == {"Node": "created", "Deployment": "created"}
    assert outcomes(told(world, moment="ended")) == {"Node": "created", "Deployment": "created"}


@pytest.mark.parametrize("fault", ["killed before", "killed after"])
def test_a_start_that_is_killed_between_its_events_is_completed(world: World, fault: What) -> None:
    me = world.process("me")
    me.faults.when(lambda request: request.resource == kinds.NEW_EVENTS.resource, Fault(fault))
    options = run_announcements.EventOptions("started", Receiver(200).send, (PLAN,), events=True)
    task = me.spawn(lambda: run_announcements.announce(me.ctx("r1/a"), options))
    world.machine.run_until(lambda: not task.alive)
    assert me.process.dead
    told(world, "r1/b", resumed=True)
    assert events(world) == [("default", "MaintenanceStarted"), ("shop", "MaintenanceStarted")]


@pytest.mark.parametrize("fault", ["lost", "in doubt"])
def test_an_event_whose_answer_was_lost_is_created_once(world: World, fault: What) -> None:
    world.process("me").faults.when(lambda request: request.resource == kinds.NEW_EVENTS.resource, Fault(fault))
    result = told(world)
    assert outcomes(result) == {"Node": "created", "Deployment": "created"}
    assert result.data["warnings"] == []
    assert len(events(world)) == 2


def test_an_account_that_may_only_create_events_leaves_out_the_uid(world: World) -> None:
    world.process("me").faults.when(lambda request: request.verb == "get", Fault("forbidden"), 99)
    assert outcomes(told(world)) == {"Node": "created", "Deployment": "created"}
    found = world.store.of(kinds.NEW_EVENTS.resource).values()
    assert [raw["regarding"].get("uid") for raw in found if "regarding" in raw] == [None, None]


def test_check_mode_sends_nothing_and_says_what_it_would(world: World) -> None:
    receiver = Receiver(200)
    result = told(world, check=True, receiver=receiver, webhook=HOOK)
    assert (receiver.got, events(world)) == ([], [])
    actions = [change.sentence for change in world.process("me").contexts[-1].changes]
    assert [action.split(":")[0] for action in actions] == [
        "Tell the webhook at https",
        "Create an Event about Node n1",
        "Create an Event about Deployment shop/web",
    ]
    assert not result.failed
    told(world)
    assert set(outcomes(told(world, check=True)).values()) == {"already_created"}


@pytest.mark.parametrize(
    ("statuses", "calls", "warned"),
    [
        ((200,), 1, ""),
        ((500, 0, 204), 3, ""),
        ((404,), 1, "it answered 404 instead of"),
        ((302,), 1, "it answered 302 instead of"),
    ],
)
def test_a_webhook_is_called_until_it_answers(world: World, statuses: tuple[int, ...], calls: int, warned: str) -> None:
    receiver = Receiver(*statuses)
    result = told(world, webhook=HOOK, receiver=receiver)
    assert len(receiver.got) == calls
    assert all(body == receiver.got[0] for body in receiver.got)
    assert [warned in text for text in result.data["warnings"]] == ([True] if warned else [])
    assert not result.failed
    assert len(events(world)) == 2


def test_a_webhook_that_never_answers_is_given_up_at_the_deadline(world: World) -> None:
    receiver = Receiver(0)
    result = told(world, webhook=HOOK, receiver=receiver)
    assert "was not done within 30 s; at last https://chat.example gave no answer" in result.data["warnings"][0]
    assert len(receiver.got) > 3


def test_a_webhook_is_not_called_again_if_all_events_exist(world: World) -> None:
    receiver = Receiver(200)
    told(world, webhook=HOOK, receiver=receiver)
    told(world, "r1/another-nonce", webhook=HOOK, receiver=receiver, resumed=True)
    assert len(receiver.got) == 1
    told(world, "r1/another-nonce", webhook=HOOK, receiver=receiver, resumed=True, events=False)
    assert [(body["id"], body["resumed"]) for body in receiver.got] == [("r1/started", False), ("r1/started", True)]


def test_a_run_that_fails_twice_is_announced_twice(world: World) -> None:
    receiver = Receiver(200)
    told(world, moment="failed", webhook=HOOK, receiver=receiver)
    world.machine.run_for(60)
    told(world, moment="failed", webhook=HOOK, receiver=receiver, resumed=True)
    assert len({body["id"] for body in receiver.got}) == 2
    assert len(events(world)) == 4


def test_of_a_run_that_failed_only_nodes_in_trouble_get_a_warning(world: World) -> None:
    world.apply(manifests.node("n2"))
    nodes = [{"name": "n1", "outcome": "failed", "failed": True, "message": "no"}, {**PLAN["nodes"][0], "name": "n2"}]
    told(world, moment="failed", results=({**PLAN, "nodes": nodes, "waves": [["n1", "n2"]]},))
    found = [raw for raw in world.store.of(kinds.NEW_EVENTS.resource).values() if "regarding" in raw]
    types = {raw["regarding"]["name"]: raw["type"] for raw in found}
    assert types == {"n1": "Warning", "n2": "Normal", "web": "Warning"}


def test_no_event_is_created_unless_asked_for(world: World) -> None:
    options = run_announcements.EventOptions("started", Receiver(200).send, (PLAN,))
    me = world.process("me")
    assert me.run(lambda ctx: run_announcements.announce(ctx, options)).data["events"] == []
    assert events(world) == []


def test_workloads_of_one_name_are_told_apart_by_their_namespaces(world: World) -> None:
    world.apply(manifests.namespace("blog"))
    other = {"namespace": "blog", "uid": "u2", "owner": "Deployment blog/web"}
    told(world, results=({**PLAN, "pods": [POD, {**POD, **other}, {**POD, **other, "uid": "u3", "name": "web-2"}]},))
    found = world.store.of(kinds.NEW_EVENTS.resource)
    notes = {place: raw["note"] for (place, _name), raw in found.items() if "regarding" in raw}
    assert [place for place, note in notes.items() if "2 pods on n1" in note] == ["blog"]
    assert "1 pod on n1" in notes["shop"]


def test_a_server_that_is_overloaded_delays_the_run_no_longer_than_the_deadline(world: World) -> None:
    world.process("me").faults.when(lambda request: request.verb == "create", Fault("throttled"), 999)
    many = [{**POD, "name": f"web-{n}", "owner": f"Deployment shop/web-{n}"} for n in range(100)]
    result = told(world, results=({**PLAN, "pods": many},))
    messages = [event["message"] for event in result.data["events"]]
    assert any("There was no Event about" in message for message in messages)
    (warning,) = result.data["warnings"]
    assert warning.startswith("101 of 101 Events could not be created. The first: No Event about Node n1:")
    assert not result.failed


def test_a_server_that_is_away_does_not_keep_the_webhook_from_being_told(world: World) -> None:
    world.process("me").faults.when(lambda request: True, Fault("unreachable"), 999)
    receiver = Receiver(200)
    result = told(world, webhook=HOOK, receiver=receiver, moment="failed", errors=("It broke.",))
    assert [body["errors"] for body in receiver.got] == [["It broke."]]
    assert not result.failed
    assert len(result.data["warnings"]) == 1


def test_neither_nonce_nor_path_of_the_webhook_is_told_anybody(world: World) -> None:
    receiver = Receiver(0)
    result = told(world, webhook=HOOK, receiver=receiver, results=({**PLAN, "run": "r1/nonce-canary"},))
    shown = json.dumps(
        [result.data, result.message, receiver.got, list(world.store.of(kinds.NEW_EVENTS.resource).values())]
    )
    assert "canary" not in shown


def test_slack_gets_no_link_or_mention_of_ours(world: World) -> None:
    receiver = Receiver(200)
    told(world, webhook=run_announcements.Webhook(HOOK.http, "slack"), receiver=receiver, reason="<!channel> & co")
    (body,) = receiver.got
    assert list(body) == ["text"]
    assert "&lt;!channel&gt; &amp; co" in body["text"]


@pytest.mark.parametrize(
    ("line", "size", "cut"),
    [
        ("abcd", 4, "abcd"),
        ("abcde", 4, "a..."),
        ("abcdef", 5, "ab..."),
        ("aé", 3, "aé"),
        ("éé", 3, "..."),
        ("ééb", 4, "..."),
    ],
)
def test_a_line_is_cut_by_bytes_and_never_inside_a_character(line: str, size: int, cut: str) -> None:
    assert announcement.clipped(line, size) == cut


def test_the_statuses_of_a_call_that_went_well() -> None:
    assert hook_definitions.Http("http://localhost/").status == (200, 201, 204)
