# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Drains that do not move on: they say why, whatever the reason, and tell others once it takes long."""

from __future__ import annotations

import typing as t
from collections.abc import Callable

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import decoding
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import run_announcements
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_guard import GuardOptions, guard
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests, nodes
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.machine import Task
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.object_rules import DENIES
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.test_draining import (
    RUN,
    begun,
    ended,
    said,
    until_evicted,
    world_of,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World

AFTER = 120.0


class Others:
    """Who is told; `answer` comes after so many seconds."""

    def __init__(self, world: World, seconds: float = 0.0, warnings: tuple[str, ...] = ()) -> None:
        self.world, self.seconds, self.warnings = world, seconds, warnings
        self.told: list[tuple[float, tuple[reasons.Blocked, ...]]] = []

    def __call__(self, ctx: Context, about: Raw, found: tuple[reasons.Blocked, ...]) -> tuple[str, ...]:
        self.told.append((self.world.machine.now, found))
        ctx.clock.sleep(self.seconds)
        return self.warnings

    @property
    def whys(self) -> list[tuple[str, str, str]]:
        return [(one.node, one.who, one.message) for _at, found in self.told for one in found]


def held(world: World) -> None:
    """The successor of the first pod does not start, so the guard keeps the others."""
    world.controller(nodes.Kubelets).without_images = {"n8", "n9"}


def let_go(world: World) -> None:
    world.controller(nodes.Kubelets).without_images.clear()


def finalized(world: World) -> None:
    for pod in world.pods(on="n1"):
        world.patch(kinds.PODS, pod["metadata"]["name"], {"metadata": {"finalizers": ["example.com/keep"]}})


@pytest.mark.parametrize(
    ("cause", "words"),
    [
        pytest.param(held, ["PodDisruptionBudget shop/kubeops-guard", "ErrImagePull"], id="image"),
        pytest.param(finalized, ["example.com/keep"], id="finalizer"),
    ],
)
def test_what_does_not_move_on_for_a_minute_says_why(cause: Callable[[World], None], words: list[str]) -> None:
    with world_of(manifests.deployment("web", 3)) as world:
        me, task = begun(world)
        cause(world)
        world.machine.run_for(100)
        assert task.alive
        told = [event.message for event in me.told if event.node == "n1" and event.what == "progress"]
        assert [word for word in words if word not in told[-1]] == []


def alarmed(world: World, **options: t.Any) -> tuple[Actor, Task, Others]:
    others = options.pop("others", None) or Others(world)
    me, task = begun(world, alarm_after=AFTER, announce=others, **options)
    return me, task, others


def test_others_are_told_once_for_each_reason_and_the_drain_goes_on() -> None:
    with world_of(manifests.deployment("web", 3)) as world:
        me, task, others = alarmed(world)
        held(world)
        began = world.machine.now
        world.machine.run_for(AFTER - 10)
        assert others.told == []
        world.machine.run_for(AFTER * 3)
        ((at, (why,)),) = others.told
        assert AFTER - 1 <= at - began <= AFTER + 30
        assert (why.node, why.who.startswith("Pod shop/web-")) == ("n1", True)
        assert "ErrImagePull" in why.message
        assert why.remedy
        assert decoding.moment(why.since) is not None
        assert [event.message for event in me.told if event.what == "alarm"] == [why.sentence]
        let_go(world)
        assert said(ended(world, task, within=300))[0] == "drained"


def test_another_reason_of_the_same_node_is_told_too() -> None:
    with world_of(manifests.deployment("web", 3)) as world:
        _me, task, others = alarmed(world)
        held(world)
        world.machine.run_for(AFTER + 30)
        finalized(world)
        let_go(world)
        world.machine.run_for(AFTER * 2)
        assert task.alive
        assert len(others.whys) == 2
        assert "example.com/keep" in others.whys[1][2]


def test_a_pod_within_its_grace_period_is_no_reason() -> None:
    slow = manifests.deployment("web", 1, annotations={nodes.STOP: "400s"}, terminationGracePeriodSeconds=500)
    with world_of(slow) as world:
        _me, task, others = alarmed(world, choices=DrainPolicy(allow_interruption=True))
        assert said(ended(world, task, within=900))[0] == "drained"
        assert others.told == []


def test_whoever_is_told_does_not_hold_the_drain_up() -> None:
    with world_of(manifests.deployment("web", 3)) as world:
        me, task, _others = alarmed(world, others=Others(world, seconds=100, warnings=("nobody heard",)))
        held(world)
        world.machine.run_for(AFTER + 30)
        let_go(world)
        before = world.machine.now
        world.machine.run_until(lambda: world.pods(on="n1") == [], within=60)
        assert world.machine.now - before < 60
        assert said(ended(world, task))[0] == "drained"
        assert [event.message for event in me.told if event.what == "note"] == ["nobody heard"]


def test_what_is_told_names_the_node_the_workload_and_the_reason() -> None:
    sent: list[Raw] = []

    def send(http: hook_definitions.Http, body: t.Mapping[str, t.Any], timeout: float) -> int:
        sent.append(dict(body))
        return 200

    webhook = run_announcements.Webhook(
        hook_definitions.Http("https://chat.example/x", "POST", (), run_announcements.STATUS, secret_path=True)
    )
    options = run_announcements.EventOptions("blocked", send, events=True, webhook=webhook)
    with world_of(manifests.deployment("web", 3), manifests.namespace("default")) as world:
        me, task = begun(world, alarm_after=AFTER, announce=lambda *told: run_announcements.alarm(options, *told))
        held(world)
        world.machine.run_for(AFTER * 3)
        (body,) = sent
        assert (body["moment"], body["run"], body["errors"]) == ("blocked", "r1", [])
        assert [(one["name"], one["outcome"]) for one in body["nodes"]] == [("n1", "blocked")]
        assert [(one["kind"], one["name"], one["pods"]) for one in body["workloads"]] == [("Deployment", "web", 2)]
        (why,) = body["blocked"]
        assert set(why) == {"node", "who", "since", "code", "message", "remedy"}
        assert why["message"] in body["text"]
        assert body["summary"]["verdict"] == "blocked"
        events = world.store.of(kinds.NEW_EVENTS.resource).values()
        assert sorted((one["regarding"]["kind"], one["reason"], one["type"]) for one in events) == [
            ("Deployment", "MaintenanceBlocked", "Warning"),
            ("Node", "MaintenanceBlocked", "Warning"),
        ]
        let_go(world)
        assert not ended(world, task).failed
        assert [event for event in me.told if event.what == "note"] == []


# -- what Events alone say -----------------------------------------------------------------------------


def event(about: Raw, reason: str, message: str, at: str, kind: str = "Warning") -> Raw:
    meta = about["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": meta["namespace"], "name": f"{meta['name']}.{reason.lower()}.{at[14:16]}"},
        "involvedObject": {"kind": about.get("kind", ""), "name": meta["name"], "uid": meta["uid"]},
        "type": kind,
        "reason": reason,
        "message": message,
        "lastTimestamp": at,
    }


def asked_for_events(world: World) -> int:
    return sum(sent.request.resource == kinds.EVENTS.resource and not sent.request.writes for sent in world.log)


@pytest.mark.parametrize("permitted", [True, False])
def test_a_stateful_set_that_may_create_no_pod_is_told_in_the_words_of_its_newest_event(permitted: bool) -> None:
    with world_of(manifests.stateful_set("db", 3)) as world:
        if not permitted:
            world.server.denied.add(("list", "events"))
        me, task, others = alarmed(world, timeout=AFTER * 4)
        world.patch(kinds.NAMESPACES, manifests.SHOP, {"metadata": {"annotations": {DENIES: "db"}}})
        until_evicted(world, 1)
        assert asked_for_events(world) == 0
        made = world.get(kinds.STATEFUL_SETS, "db")
        world.apply(
            event(made, "FailedCreate", "an older one", "2025-01-01T00:01:00Z"),
            event(made, "SuccessfulCreate", "a newer one", "2027-01-01T00:03:00Z", kind="Normal"),
        )
        world.machine.run_for(AFTER + 60)
        most = 2 if permitted else 4  # a refusal is retried once
        assert 1 <= asked_for_events(world) <= most
        blocked = [one.message for one in me.told if one.what == "alarm"]
        assert len(blocked) == len(others.told) == 1
        said_at_last = said(ended(world, task))[1]
        for text in (blocked[0], said_at_last):
            assert ("StatefulSet shop/db: FailedCreate: create Pod db-0 failed" in text) is permitted
            assert "older" not in text
        assert asked_for_events(world) <= most


def test_a_replacement_whose_volume_is_not_mounted_is_told_in_the_words_of_its_event() -> None:
    with world_of(manifests.stateful_set("web", 1)) as world:
        for name in ("n8", "n9"):
            world.patch(kinds.NODES, name, {"metadata": {"annotations": {nodes.START: "9999s"}}})
        choices = DrainPolicy(allow_interruption=True)
        me, task, _others = alarmed(world, choices=choices, timeout=AFTER * 3)
        world.machine.run_until(lambda: len(world.pods(app="web")) > 0 and not world.pods(on="n1"), within=90)
        (made,) = world.pods(app="web")
        world.apply(event(made, "FailedMount", 'secret "x" not\n\x1b[2Jfound', "2026-01-01T00:02:00Z"))
        outcome, message = said(ended(world, task))
        assert outcome != "drained"
        assert 'FailedMount: secret "x" not' in message
        assert "\x1b" not in message
        assert [one for one in me.told if one.what == "alarm" and "FailedMount" in one.message]
        assert asked_for_events(world) <= 2


def test_a_new_pod_of_a_surge_whose_volume_is_not_mounted_is_told_in_the_words_of_its_event() -> None:
    with world_of(manifests.deployment("web", 1)) as world:
        for name in ("n8", "n9"):
            world.patch(kinds.NODES, name, {"metadata": {"annotations": {nodes.START: "9999s"}}})
        me = world.process("me")
        assert not me.run(lambda ctx: cordon(ctx, CordonOptions("cordoned", ("n1",))), RUN).failed
        task = me.call(lambda ctx: guard(ctx, GuardOptions("present", ("n1",), timeout=AFTER)), RUN)
        world.machine.run_until(lambda: len(world.pods(app="web")) == 2, within=60)
        (made,) = (pod for pod in world.pods(app="web") if pod["spec"].get("nodeName") != "n1")
        world.apply(event(made, "FailedMount", 'secret "x" not found', "2026-01-01T00:02:00Z"))
        result = ended(world, task)
        assert result.failed
        assert f'{made["metadata"]["name"]} is not ready (FailedMount: secret "x" not found)' in result.message
        assert asked_for_events(world) == 1
