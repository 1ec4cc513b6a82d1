# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Changes that were decided on a snapshot are written as they are, or not at all."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.api_changes import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_change_writer import ChangeWriter
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_reconcile import MAX_TRIES
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault, What
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor, World

MAP = kinds.CONFIGMAPS.resource


@pytest.fixture
def world() -> t.Iterator[World]:
    with World([manifests.namespace("shop"), config("one"), config("two")], settle=False) as made:
        yield made


def config(name: str, **data: str) -> Raw:
    meta = {"name": name, "namespace": "shop"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}


def ref(name: str, uid: str = "") -> Ref:
    return Ref("ConfigMap", name, "shop", uid, "v1")


def found(world: World, name: str) -> Raw:
    return world.get(kinds.CONFIGMAPS, name)


def patch(world: World, name: str, value: str = "yes", version: str | None = None) -> Change:
    """Sets a key of the object as it is now, or as it was in another version."""
    version = found(world, name)["metadata"]["resourceVersion"] if version is None else version
    return Change("patch", ref(name), f"Patch {name}", {"data": {"mine": value}}, resource_version=version)


def deletion(world: World, name: str, *, by_uid: bool = True) -> Change:
    meta = found(world, name)["metadata"]
    target = ref(name, meta["uid"] if by_uid else "")
    return Change("delete", target, f"Delete {name}", resource_version=meta["resourceVersion"])


def does(world: World, *changes: Change, writer: ChangeWriter | None = None) -> bool:
    me = world.process("me")
    return me.run(lambda ctx: (writer or ChangeWriter(ctx)).write(changes))


def fails(actor: Actor, what: What, times: int = 1) -> None:
    """The next writes of that process meet this."""
    actor.faults.when(lambda request: request.writes, Fault(what), times)


def written(world: World) -> list[str]:
    """The writes that were asked for."""
    return [f"{sent.request.verb} {sent.request.name}" for sent in world.log if sent.request.writes]


def test_all_changes_are_written_in_order(world: World) -> None:
    assert does(world, patch(world, "two"), deletion(world, "one"))
    assert written(world) == ["patch two", "delete one"]


def test_nothing_is_written_after_the_first_that_is_out_of_date(world: World) -> None:
    old = patch(world, "one")
    world.patch(kinds.CONFIGMAPS, "one", {"data": {"theirs": "yes"}})
    assert not does(world, old, patch(world, "two"))
    assert written(world) == ["patch one"]
    assert found(world, "one")["data"] == {"theirs": "yes"}


@pytest.mark.parametrize("what", ["lost", "conflict", "error"])
def test_a_patch_is_made_once_whatever_its_first_answer_was(world: World, what: What) -> None:
    fails(world.process("me"), what)
    assert does(world, patch(world, "one"))
    assert found(world, "one")["data"] == {"mine": "yes"}


@pytest.mark.parametrize("what", ["lost", "conflict", "error"])
@pytest.mark.parametrize("by_uid", [True, False])
def test_a_deletion_is_made_once_whatever_its_first_answer_was(world: World, what: What, by_uid: bool) -> None:
    fails(world.process("me"), what)
    assert does(world, deletion(world, "one", by_uid=by_uid))
    assert world.find(kinds.CONFIGMAPS, "one") is None


@pytest.mark.parametrize("what", ["lost", "conflict"])
def test_a_creation_is_made_once_whatever_its_first_answer_was(world: World, what: What) -> None:
    fails(world.process("me"), what)
    assert does(world, Change("create", ref("three"), "Make it", config("three", a="b")))
    assert found(world, "three")["data"] == {"a": "b"}


def again(world: World) -> None:
    """Somebody makes the object anew, before it is looked at again."""
    reads = world.process("me").faults
    reads.overtaken(lambda request: request.verb == "get", lambda: world.apply(config("one", theirs="yes")))


def test_a_namesake_of_what_was_deleted_is_left(world: World) -> None:
    fails(world.process("me"), "lost")
    again(world)
    assert does(world, deletion(world, "one")), "what was to go is gone"
    assert found(world, "one")["data"] == {"theirs": "yes"}


def test_a_namesake_of_what_was_named_without_a_uid_is_another_view(world: World) -> None:
    fails(world.process("me"), "lost")
    again(world)
    assert not does(world, deletion(world, "one", by_uid=False))
    assert found(world, "one")["data"] == {"theirs": "yes"}


def test_what_was_deleted_meanwhile_is_not_patched(world: World) -> None:
    change = patch(world, "one", version="")
    world.delete(kinds.CONFIGMAPS, "one")
    assert not does(world, change)


def test_what_somebody_else_created_otherwise_is_not_created(world: World) -> None:
    assert not does(world, Change("create", ref("one"), "Make it", config("one", mine="yes")))
    assert found(world, "one")["data"] == {}


@pytest.mark.parametrize(
    ("there", "wanted", "made"),
    [
        ({"a": "1", "b": "2"}, {"a": "1"}, True),
        ({"a": "2"}, {"a": "1"}, False),
        ({}, {"a": "1"}, False),
        ({"b": "2"}, {"a": None}, True),
        ({"a": "1"}, {"a": None}, False),
        ({"a": "1"}, {"a": "1", "b": "2"}, False),
    ],
)
def test_a_creation_is_found_made_where_the_object_holds_all_of_it(
    world: World, there: dict[str, str], wanted: dict[str, t.Any], made: bool
) -> None:
    world.apply(config("three", **there))
    assert does(world, Change("create", ref("three"), "Make it", config("three", **wanted))) is made


def test_answers_that_are_always_lost_leave_the_decision_to_the_next_look(world: World) -> None:
    fails(world.process("me"), "hang", MAX_TRIES)
    assert not does(world, patch(world, "one"))


def test_a_refusal_for_good_is_raised(world: World) -> None:
    fails(world.process("me"), "forbidden", 99)
    with pytest.raises(errors.Forbidden):
        does(world, patch(world, "one"))


def test_the_lock_is_proven_before_a_write(world: World) -> None:
    asked: list[str] = []
    world.process("me").run(lambda ctx: ChangeWriter(ctx).write([patch(world, "one")], lambda: asked.append("lock")))
    assert asked == ["lock"]


def test_a_view_from_before_our_own_write_is_not_sent_at_all(world: World) -> None:
    old = patch(world, "one", "again")

    def writes(ctx: Context) -> None:
        writer = ChangeWriter(ctx)
        assert writer.write([patch(world, "one")])
        now = int(found(world, "one")["metadata"]["resourceVersion"])
        behind = {text: writer.behind(ref("one"), text) for text in (str(now - 1), str(now), str(now + 1), "", "x")}
        assert behind == {str(now - 1): True, str(now): False, str(now + 1): False, "": False, "x": False}
        assert not writer.behind(ref("two"), "1"), "never written"
        assert not writer.write([old])

    world.process("me").run(writes)
    assert written(world) == ["patch one"]
