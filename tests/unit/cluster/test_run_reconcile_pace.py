# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How often a write is tried, after which pauses, and what its caller hears of it."""

from __future__ import annotations

import itertools
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, run_reconcile
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.api_changes import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.cluster.test_run_reconcile import (
    MAP,
    NODE,
    after,
    labelled,
    made,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault, What
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

JITTER = 1.25
"""What the simulated clock multiplies pauses with."""


@pytest.fixture
def world() -> t.Iterator[World]:
    with World([manifests.node("n1"), manifests.namespace(names.NAMESPACE)], settle=False) as made_world:
        yield made_world


def pauses(world: World, verb: str = "patch") -> list[float]:
    """Seconds between two tries."""
    moments = [sent.left for sent in world.log if sent.request.verb == verb]
    return [later - earlier for earlier, later in itertools.pairwise(moments)]


def tries(world: World, verb: str = "patch") -> int:
    return sum(sent.request.verb == verb for sent in world.log)


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        (["conflict"] * 3, [0.02, 0.04, 0.06]),
        (["error"] * 3, [0.52, 1.04, 1.56]),
        (["conflict", "error", "conflict"], [0.02, 0.54, 0.56]),
    ],
)
def test_each_pause_is_longer_and_longer_still_for_a_server_in_trouble(
    world: World, faults: list[What], expected: list[float]
) -> None:
    after(world, labelled, NODE, *faults)
    assert pauses(world) == pytest.approx([JITTER * pause for pause in expected])


def test_others_who_always_write_first_end_it_after_twenty_tries(world: World) -> None:
    always: list[What] = ["conflict"] * 20
    with pytest.raises(run_reconcile.Contended, match="20 times in a row"):
        after(world, labelled, NODE, *always)
    assert tries(world) == 20


@pytest.mark.parametrize(("count", "fails"), [(3, False), (4, True)])
def test_a_server_in_trouble_is_asked_four_times(world: World, count: int, fails: bool) -> None:
    faults: list[What] = ["error"] * count
    if fails:
        with pytest.raises(errors.ServerError):
            after(world, labelled, NODE, *faults)
    else:
        after(world, labelled, NODE, *faults)
    assert tries(world) == 4


def test_what_is_known_is_not_read_first_and_read_after_a_failure(world: World) -> None:
    known = world.get(kinds.NODES, "n1")
    after(world, labelled, NODE, known=known)
    assert [sent.request.verb for sent in world.log] == ["patch"]
    world.log.clear()
    world.patch(kinds.NODES, "n1", {"metadata": {"labels": {"mine": None}}})
    after(world, labelled, NODE, "conflict", known=world.get(kinds.NODES, "n1"))
    assert [sent.request.verb for sent in world.log] == ["patch", "get", "patch"]


@pytest.mark.parametrize("remember", [True, False])
@pytest.mark.parametrize("faults", [[], ["lost"]], ids=["answered", "its answer was lost"])
def test_a_lock_is_no_change_of_the_call(world: World, remember: bool, faults: list[What]) -> None:
    ctx, written = after(world, labelled, NODE, *faults, remember=remember)
    assert written.change is not None
    assert len(ctx.changes) == int(remember)


def deletion(**named: str) -> Change:
    uid, version = named.get("uid", ""), named.get("resourceVersion", "")
    return Change("delete", Ref("ConfigMap", MAP.name, MAP.namespace, uid, "v1"), "Remove it", resource_version=version)


@pytest.mark.parametrize(
    ("keys", "changed", "gone"),
    [
        pytest.param((), {}, True, id="by its name"),
        pytest.param(("uid",), {}, True, id="by its UID"),
        pytest.param(("uid", "resourceVersion"), {}, True, id="as it was read"),
        pytest.param(("uid", "resourceVersion"), {"data": {"a": "b"}}, False, id="changed since"),
        pytest.param(("uid",), {"data": {"a": "b"}}, True, id="changed since, and the same one"),
    ],
)
def test_what_is_removed_is_what_was_named(world: World, keys: tuple[str, ...], changed: Raw, gone: bool) -> None:
    after(world, made, MAP, known=None)
    meta = world.get(kinds.CONFIGMAPS, MAP.name, MAP.namespace)["metadata"]
    if changed:
        world.patch(kinds.CONFIGMAPS, MAP.name, changed, MAP.namespace)
    change = deletion(**{key: meta[key] for key in keys})
    assert world.process("me").run(lambda ctx: run_reconcile.remove(ctx, change)) is gone
    assert (world.find(kinds.CONFIGMAPS, MAP.name, MAP.namespace) is None) is gone


def test_a_namespace_that_may_not_be_made_stops_the_call_with_its_command() -> None:
    with World([manifests.node("n1")], settle=False) as world:
        world.server.denied.add(("create", "namespaces"))
        with pytest.raises(CallAborted) as stopped:
            after(world, made, MAP, known=None)
    reason = stopped.value.reason
    assert (reason.code, reason.remedy) == (
        "namespace_missing",
        f"Create it once: kubectl create namespace {MAP.namespace}",
    )


def test_our_namespace_is_tried_to_be_made_with_longer_pauses() -> None:
    with World([manifests.node("n1")], settle=False) as world:
        me = world.process("me")
        me.faults.when(lambda request: request.resource == "namespaces", Fault("conflict"), times=3)
        me.run(run_reconcile.ensure_namespace)
        assert pauses(world, "create") == pytest.approx([JITTER * pause for pause in (0.02, 0.04, 0.06)])
        labels = world.get(kinds.NAMESPACES, names.NAMESPACE)["metadata"]["labels"]
        assert labels[names.MANAGED_BY_LABEL] == names.MANAGED_BY


def test_our_namespace_is_not_tried_for_ever() -> None:
    with World([manifests.node("n1")], settle=False) as world:
        me = world.process("me")
        me.faults.when(lambda request: request.resource == "namespaces", Fault("conflict"), times=99)
        me.run(run_reconcile.ensure_namespace)
        assert tries(world, "create") == 20
