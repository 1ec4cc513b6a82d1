# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The conditional writer: whatever comes of a request, the object ends as decided, and the result tells the truth."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.api_changes import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Raw, Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted, Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_reconcile import (
    MAX_TRIES,
    Contended,
    Decide,
    Written,
    reconcile,
    remove,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.errors import (
    NotFound,
    ServerError,
    UnknownOutcome,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault, What
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

NODE = Ref("Node", "n1", api_version="v1")
MAP = Ref("ConfigMap", "memory", names.NAMESPACE, api_version="v1")


def labelled(raw: Raw | None) -> Change | None:
    """Wants the label `mine`."""
    assert raw is not None
    if raw["metadata"]["labels"].get("mine") == "yes":
        return None
    body = {"metadata": {"labels": {"mine": "yes"}}}
    return Change("patch", NODE, "Label it", body, resource_version=raw["metadata"]["resourceVersion"])


def made(raw: Raw | None) -> Change | None:
    """Wants the ConfigMap."""
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": MAP.name, "namespace": MAP.namespace}}
    return None if raw else Change("create", MAP, "Make it", body)


def after(world: World, decide: Decide, target: Ref, *faults: What, **options: t.Any) -> tuple[Context, Written]:
    """What came of it, where each write so far met one of the faults."""
    me = world.process("me")
    for what in faults:
        me.faults.when(lambda request: request.writes, Fault(what, 5.0))
    ctx = me.ctx()
    return ctx, me.run(lambda _ctx: reconcile(ctx, target, decide, **options))


@pytest.fixture
def world() -> t.Iterator[World]:
    with World([manifests.node("n1"), manifests.namespace(names.NAMESPACE)]) as made_world:
        yield made_world


@pytest.mark.parametrize("what", ["lost", "in doubt", "conflict", "error", "throttled", "throttled with time", "down"])
def test_a_change_is_made_once_whatever_its_first_answer_was(world: World, what: What) -> None:
    ctx, written = after(world, labelled, NODE, what)
    assert world.get(kinds.NODES, "n1")["metadata"]["labels"]["mine"] == "yes"
    assert written.object is not None
    assert written.object["metadata"]["labels"]["mine"] == "yes"
    assert [change.sentence for change in ctx.changes] == ["Label it"]
    accepted = [sent for sent in world.log if sent.request.writes and sent.status == 200]
    assert len(accepted) == 1


def test_what_is_as_wanted_is_not_written_and_not_told(world: World) -> None:
    after(world, labelled, NODE)
    ctx, written = after(world, labelled, NODE)
    assert written.change is None
    assert ctx.changes == []


def test_each_attempt_is_fenced_and_decided_on_what_is_there_now(world: World) -> None:
    asked: list[str] = []

    def prove_lock() -> None:
        asked.append(world.get(kinds.NODES, "n1")["metadata"]["resourceVersion"])
        if len(asked) == 1:
            world.patch(kinds.NODES, "n1", {"metadata": {"labels": {"theirs": "too"}}})

    after(world, labelled, NODE, prove_lock=prove_lock)
    assert len(asked) == 2
    labels = world.get(kinds.NODES, "n1")["metadata"]["labels"]
    assert (labels["mine"], labels["theirs"]) == ("yes", "too")


def test_a_fence_that_does_not_hold_sends_nothing(world: World) -> None:
    def prove_lock() -> None:
        raise CallAborted("adopted_by", "taken over")

    with pytest.raises(CallAborted, match="taken over"):
        after(world, labelled, NODE, prove_lock=prove_lock)
    assert not [sent for sent in world.log if sent.request.writes and sent.status]


def test_somebody_who_always_writes_first_is_named_as_that(world: World) -> None:
    counter = iter(range(1000))

    def prove_lock() -> None:
        world.patch(kinds.NODES, "n1", {"metadata": {"labels": {"theirs": str(next(counter))}}})

    with pytest.raises(Contended, match=f"Node n1 was changed {MAX_TRIES} times"):
        after(world, labelled, NODE, prove_lock=prove_lock)


def test_answers_that_are_always_lost_end_in_doubt(world: World) -> None:
    def never_known(raw: Raw | None) -> Change | None:
        assert raw is not None
        return Change("patch", NODE, "Label it", {"metadata": {"labels": {"a": raw["metadata"]["resourceVersion"]}}})

    always: list[What] = ["lost"] * MAX_TRIES
    with pytest.raises(UnknownOutcome):
        after(world, never_known, NODE, *always)


@pytest.mark.parametrize("what", ["lost", "conflict"])
def test_a_creation_is_found_done(world: World, what: What) -> None:
    ctx, written = after(world, made, MAP, what, known=None)
    assert written.object is not None
    assert [change.sentence for change in ctx.changes] == ["Make it"]


def test_our_namespace_is_made_where_it_is_missing() -> None:
    with World([manifests.node("n1")]) as world:
        _ctx, written = after(world, made, MAP, known=None)
        assert written.object is not None
        assert world.find(kinds.NAMESPACES, names.NAMESPACE) is not None


@pytest.mark.parametrize("what", ["lost", "in doubt", "conflict", "throttled"])
def test_our_namespace_is_made_whatever_the_first_answer_was(what: What) -> None:
    with World([manifests.node("n1")]) as world:
        me = world.process("me")
        me.faults.when(lambda request: request.resource == kinds.NAMESPACES.resource, Fault(what))
        assert me.run(lambda ctx: reconcile(ctx, MAP, made, known=None)).object is not None
        assert [fault.what for _ordinal, _request, fault in me.faults.met] == [what]


def test_our_namespace_may_have_been_made_by_another_meanwhile() -> None:
    with World([manifests.node("n1")]) as world:
        me = world.process("me")
        theirs = manifests.namespace(names.NAMESPACE)
        me.faults.overtaken(lambda request: request.resource == kinds.NAMESPACES.resource, lambda: world.apply(theirs))
        assert me.run(lambda ctx: reconcile(ctx, MAP, made, known=None)).object is not None
        assert [sent.status for sent in world.log if sent.request.resource == kinds.NAMESPACES.resource] == [409]


def test_another_namespace_is_not_ours_to_make(world: World) -> None:
    elsewhere = Ref("ConfigMap", "memory", "nowhere", api_version="v1")

    def decide(raw: Raw | None) -> Change | None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "memory", "namespace": "nowhere"}}
        return Change("create", elsewhere, "Make it", body)

    with pytest.raises(NotFound):
        after(world, decide, elsewhere, known=None)


@pytest.mark.parametrize("what", ["lost", "conflict", "throttled"])
def test_exactly_the_named_object_is_removed(world: World, what: What) -> None:
    after(world, made, MAP, known=None)
    uid = world.get(kinds.CONFIGMAPS, MAP.name, MAP.namespace)["metadata"]["uid"]
    me = world.process("me")
    me.faults.when(lambda request: request.writes, Fault(what))
    target = Ref("ConfigMap", MAP.name, MAP.namespace, uid, "v1")
    assert me.run(lambda ctx: remove(ctx, Change("delete", target, "Remove it"))) is True
    assert world.find(kinds.CONFIGMAPS, MAP.name, MAP.namespace) is None
    assert me.run(lambda ctx: remove(ctx, Change("delete", target, "Remove it"))) is False


def test_a_namesake_is_not_removed(world: World) -> None:
    after(world, made, MAP, known=None)
    target = Ref("ConfigMap", MAP.name, MAP.namespace, "another-uid", "v1")
    me = world.process("me")
    assert me.run(lambda ctx: remove(ctx, Change("delete", target, "Remove it"))) is False
    assert world.find(kinds.CONFIGMAPS, MAP.name, MAP.namespace) is not None


def test_check_mode_sends_nothing_and_tells_all(world: World) -> None:
    me = world.process("me")
    ctx = me.ctx()
    ctx.check = True
    before = world.get(kinds.NODES, "n1")
    me.run(lambda _ctx: reconcile(ctx, NODE, labelled))
    assert [change.sentence for change in ctx.changes] == ["Label it"]
    assert world.get(kinds.NODES, "n1") == before


def test_a_refusal_for_good_comes_through(world: World) -> None:
    always: list[What] = ["error"] * MAX_TRIES
    with pytest.raises(ServerError):
        after(world, labelled, NODE, *always)
    assert "mine" not in world.get(kinds.NODES, "n1")["metadata"]["labels"]
