# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes of node conditions are told once, also those that a listener was not there to see."""

from __future__ import annotations

import typing as t
from collections.abc import Iterator

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.condition_events import (
    Account,
    WatchedCondition,
    news,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_condition_events import (
    FollowOptions,
    follow,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World

Story = list[tuple[str, str, bool]]
"""Node, status and whether it is repeated, of each event."""


@pytest.fixture
def world() -> Iterator[World]:
    with World([*map(manifests.node, ("a", "b")), manifests.namespace(names.NAMESPACE)]) as made:
        yield made


class Listening:
    """A listener in a process of its own, which can be killed."""

    def __init__(self, world: World, **options: t.Any) -> None:
        self.world = world
        self.events: list[dict[str, t.Any]] = []
        self.ends = False
        self.who: Actor = world.process("eda")
        given = FollowOptions("test", **options)
        self.task = self.who.call(lambda ctx: follow(ctx, given, self.events.append, lambda: self.ends))
        world.machine.run_for(2.0)

    @property
    def told(self) -> Story:
        return [(event["node"], event["status"], event["repeated"]) for event in self.events]

    def after(self, seconds: float = 2.0) -> Story:
        """What it has told after so many more seconds."""
        self.world.machine.run_for(seconds)
        return self.told

    def killed(self) -> None:
        self.who.process.kill()


def account(world: World) -> Account:
    return Account.read(world.find(kinds.CONFIGMAPS, "events-test", names.NAMESPACE))


def flip(world: World, name: str, *statuses: str) -> None:
    for status in statuses:
        world.set_node_ready(name, status)
        world.machine.run_for(1.5)


def test_each_change_is_told_and_health_at_the_start_is_no_news(world: World) -> None:
    listening = Listening(world)
    assert listening.told == []
    flip(world, "a", "False", "True")
    assert listening.after() == [("a", "False", False), ("a", "True", False)]
    first = listening.events[0]
    assert (first["previous"], first["healthy"], first["in_maintenance"]) == ("", False, False) or first[
        "previous"
    ] == "True"
    listening.ends = True
    world.machine.run_for(1.0)
    assert not listening.task.alive


def test_what_is_not_healthy_at_the_first_start_is_told(world: World) -> None:
    flip(world, "b", "Unknown")
    assert Listening(world).told == [("b", "Unknown", False)]


@pytest.mark.parametrize("forgotten", [False, True])
def test_a_restart_tells_what_happened_in_between(world: World, forgotten: bool) -> None:
    """Whether the API server still knows (each change is told) or not (410: where it came to)."""
    Listening(world).killed()
    flip(world, "a", "False", "True")
    flip(world, "b", "False")
    world.machine.run_for(30.0)
    if forgotten:
        world.store.compact()
    told = Listening(world).after()
    assert told[-1] == ("b", "False", False)
    assert [event for event in told if event[0] == "a"][-1] == ("a", "True", False)
    assert (("a", "False", False) in told) is not forgotten
    assert len(told) == (2 if forgotten else 3)


def test_what_is_not_healthy_is_told_again_after_a_restart_and_health_is_not(world: World) -> None:
    listening = Listening(world)
    flip(world, "a", "False", "True")
    flip(world, "b", "False")
    assert len(listening.after()) == 3
    listening.killed()
    again = Listening(world)
    assert again.told == [("b", "False", True)]
    flip(world, "b", "True")
    assert again.after() == [("b", "False", True), ("b", "True", False)]


def test_one_that_dies_before_it_could_keep_what_it_told_tells_it_again(world: World) -> None:
    Listening(world).killed()
    before = account(world)
    flip(world, "a", "False")
    heard = Listening(world)
    assert heard.told == [("a", "False", False)]
    heard.killed()
    world.patch(kinds.CONFIGMAPS, "events-test", {"data": before.data()}, names.NAMESPACE)
    assert Listening(world).told == [("a", "False", False)]


def test_the_version_moves_on_while_nothing_is_told(world: World) -> None:
    listening = Listening(world)
    then = account(world).version
    world.cordon("a")
    assert listening.after(90.0) == []
    assert int(account(world).version) > int(then)


def test_nodes_that_are_gone_are_forgotten(world: World) -> None:
    listening = Listening(world)
    flip(world, "a", "False")
    uid = world.get(kinds.NODES, "a")["metadata"]["uid"]
    assert listening.after()
    assert uid in account(world).reported
    listening.killed()
    world.delete(kinds.NODES, "a")
    again = Listening(world)
    flip(world, "b", "False")
    assert again.after() == [("b", "False", False)]
    assert uid not in account(world).reported


def test_it_says_whether_we_have_the_node_out_of_service(world: World) -> None:
    options = CordonOptions("cordoned", ("a",))
    assert not world.process("me").run(lambda ctx: cordon(ctx, options)).failed
    listening = Listening(world)
    flip(world, "a", "False")
    listening.after()
    assert [(event["in_maintenance"], event["schedulable"]) for event in listening.events] == [(True, False)]


def test_a_selector_and_other_conditions(world: World) -> None:
    world.patch(kinds.NODES, "b", {"metadata": {"labels": {"pool": "blue"}}})
    wanted = ("Ready", "DiskPressure", "GPUHealthy=True")
    listening = Listening(world, node_selector="pool=blue", conditions=wanted)
    for name in ("a", "b"):
        conditions = [*world.get(kinds.NODES, name)["status"]["conditions"]]
        conditions += [{"type": "DiskPressure", "status": "True"}, {"type": "GPUHealthy", "status": "False"}]
        world.patch(kinds.NODES, name, {"status": {"conditions": conditions}}, subresource="status")
    listening.after()
    assert [(event["node"], event["condition"]) for event in listening.events] == [
        ("b", "DiskPressure"),
        ("b", "GPUHealthy"),
    ]


@pytest.mark.parametrize("data", [{"told": "no JSON"}, {"told": "[]"}, {"told": '{"u":{"Ready":3}}'}, {}])
def test_an_account_that_cannot_be_read_is_as_none(data: dict[str, str]) -> None:
    found = Account.read({"data": {"version": "7", **data}} if data else None)
    assert (found.version, found.reported) == ("", {})


def test_a_record_that_cannot_be_read_counts_as_maintenance() -> None:
    raw = manifests.node("a")
    raw["metadata"] |= {"uid": "u", "annotations": {names.RECORD: "no JSON"}}
    raw["status"]["conditions"][0]["status"] = "False"
    (event,) = news(raw, [WatchedCondition.of("Ready")], Account())
    assert event["in_maintenance"]
