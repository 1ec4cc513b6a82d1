# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A snapshot that stays fresh: what is listed and watched, when it wakes its reader, and how it ends."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    names,
    run_context,
    run_listing,
    run_targeted_reads,
    run_watch_cache,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import CallAborted, Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects


@pytest.fixture
def world() -> t.Iterator[World]:
    with World([manifests.node("n1"), manifests.namespace(names.NAMESPACE)]) as made:
        yield made


def label(world: World, node: str = "n1", value: str = "yes") -> None:
    world.patch(kinds.NODES, node, {"metadata": {"labels": {"seen": value}}})


def watching(world: World, loop: t.Callable[[Context, run_watch_cache.WatchCache], t.Any], *watched: str) -> t.Any:
    """What the loop gives back with these kinds watched, of which the requests are told since then."""

    def run(ctx: Context) -> t.Any:
        with run_watch_cache.WatchCache(ctx, watched or ("nodes",), raws=None) as live:
            world.log.clear()
            return loop(ctx, live)

    return world.process("me").run(run)


def asked(world: World) -> list[str]:
    return [f"{sent.request.verb} {sent.request.resource} {sent.request.namespace}".strip() for sent in world.log]


def test_a_snapshot_shows_what_was_added_changed_and_deleted_since(world: World) -> None:
    def loop(ctx: Context, live: run_watch_cache.WatchCache) -> list[list[tuple[str, str]]]:
        def seen() -> list[tuple[str, str]]:
            return sorted((name, node.labels.get("seen", "")) for name, node in live.snapshot().nodes.items())

        found = [seen()]
        label(world)
        world.apply(manifests.node("n2"))
        ctx.clock.sleep(0.1)
        found.append(seen())
        world.delete(kinds.NODES, "n1")
        ctx.clock.sleep(0.1)
        return [*found, seen(), seen()]

    after = [("n2", "")]
    assert watching(world, loop) == [[("n1", "")], [("n1", "yes"), ("n2", "")], after, after]


@pytest.mark.parametrize(("pause", "waited"), [(0.0, run_watch_cache.BURST_SECONDS), (0.15, 0.15), (0.25, 0.25)])
def test_a_change_ends_the_wait_after_the_pause_that_the_reader_wants(
    world: World, pause: float, waited: float
) -> None:
    def loop(ctx: Context, live: run_watch_cache.WatchCache) -> float:
        live.snapshot()
        label(world)
        began = ctx.clock.now()
        assert live.wait(60.0, pause=pause)
        return ctx.clock.now() - began

    assert watching(world, loop) == pytest.approx(waited, abs=0.01)


def test_what_a_list_said_already_is_not_asked_for_again(world: World) -> None:
    def run(ctx: Context) -> list[list[str]]:
        run_targeted_reads.count_nodes(ctx)
        world.apply(manifests.node("n2"))
        world.log.clear()
        with run_watch_cache.WatchCache(ctx, ("nodes",)) as live:
            found = [sorted(live.snapshot().nodes)]
            ctx.clock.sleep(0.1)
            return [*found, sorted(live.snapshot().nodes)]

    assert world.process("me").run(run) == [["n1"], ["n1", "n2"]]
    assert asked(world) == ["watch nodes"]


def test_namesakes_in_two_namespaces_are_two(world: World) -> None:
    for space in ("a", "b"):
        world.apply(manifests.namespace(space))
        world.apply({"apiVersion": "v1", "kind": "Pod", **objects.pod("p", namespace=space, annotations={})})

    def loop(ctx: Context, live: run_watch_cache.WatchCache) -> list[list[tuple[str, str]]]:
        def seen() -> list[tuple[str, str]]:
            return sorted((pod.namespace, pod.labels["app"]) for pod in live.snapshot().pods)

        found = seen()
        world.patch(kinds.PODS, "p", {"metadata": {"labels": {"app": "new"}}}, "b")
        ctx.clock.sleep(0.1)
        return [found, seen()]

    assert watching(world, loop, "pods") == [[("a", "web"), ("b", "web")], [("a", "web"), ("b", "new")]]


@pytest.mark.parametrize(
    ("at", "seconds", "woken", "after"),
    [
        pytest.param(3.0, 10.0, True, 3.0, id="when something changes"),
        pytest.param(None, 10.0, False, 10.0, id="when time is up"),
        pytest.param(0.001, 10.0, True, 0.02, id="not before a burst is over"),
        pytest.param(None, 0.0, False, run_watch_cache.LEAST_WAIT_SECONDS, id="soon"),
    ],
)
def test_a_reader_is_woken(world: World, at: float | None, seconds: float, woken: bool, after: float) -> None:
    def loop(ctx: Context, live: run_watch_cache.WatchCache) -> tuple[bool, float]:
        live.snapshot()
        began = ctx.clock.now()
        if at is not None:
            world.machine.after(at, lambda: label(world), "label")
        return live.wait(seconds), ctx.clock.now() - began

    found, took = watching(world, loop)
    assert (found, took) == (woken, pytest.approx(after))


def test_a_reader_that_has_not_looked_yet_does_not_wait(world: World) -> None:
    def loop(ctx: Context, live: run_watch_cache.WatchCache) -> tuple[bool, float]:
        began = ctx.clock.now()
        return live.wait(10.0), ctx.clock.now() - began

    assert watching(world, loop) == (True, 0.0)


def test_what_changed_before_the_wait_is_not_waited_for(world: World) -> None:
    def loop(ctx: Context, live: run_watch_cache.WatchCache) -> tuple[bool, float]:
        live.snapshot()
        label(world)
        ctx.clock.sleep(5.0)
        began = ctx.clock.now()
        return live.wait(10.0), ctx.clock.now() - began

    assert watching(world, loop) == (True, 0.0)


def test_a_nudge_wakes_the_reader_once(world: World) -> None:
    def loop(ctx: Context, live: run_watch_cache.WatchCache) -> list[tuple[bool, float]]:
        live.snapshot()
        began = ctx.clock.now()
        world.machine.after(2.0, lambda: world.process("me").spawn(live.nudge), "nudge")
        first = (live.wait(10.0), ctx.clock.now() - began)
        live.snapshot()
        return [first, (live.wait(3.0), ctx.clock.now() - began)]

    assert watching(world, loop) == [(True, 2.0), (False, 5.0)]


def test_a_watch_that_begins_where_a_list_ended_shows_what_changed_since_and_lists_nothing(world: World) -> None:
    def budget(name: str) -> dict[str, t.Any]:
        return manifests.budget(name, maxUnavailable=1)

    def loop(ctx: Context) -> list[dict[str, str | None]]:
        run_listing.lists(ctx.cluster, ("budgets",), recent=ctx.recent)
        world.delete(kinds.BUDGETS, "gone")
        world.patch(kinds.BUDGETS, "other", {"metadata": {"labels": {"seen": "yes"}}})
        world.apply(budget("new"))
        world.log.clear()
        found = []
        with run_watch_cache.WatchCache(ctx, ("budgets",)) as live:
            for _look in range(2):
                found.append({one.name: one.labels.get("seen") for one in live.snapshot().budgets})
                ctx.clock.sleep(1.0)
        return found

    world.apply(*map(budget, ("same", "gone", "other")))
    first, then = world.process("me").run(loop)
    assert first.keys() == {"same", "gone", "other"}
    assert then == {"same": None, "other": "yes", "new": None}
    assert [what.split(".")[0] for what in asked(world)] == ["watch poddisruptionbudgets"]


LATER = run_context.FRESH_SECONDS + 0.1


def looked(ctx: Context) -> None:
    """Time passes, and nothing is written."""
    ctx.clock.sleep(1.0)


@pytest.mark.parametrize(
    ("between", "lists"),
    [
        pytest.param(looked, [], id="just now"),
        pytest.param(lambda ctx: ctx.clock.sleep(LATER), ["list poddisruptionbudgets.policy"], id="too old"),
        pytest.param(
            lambda ctx: ctx.changed(api_changes.Change("delete", Ref("Node", "gone"), "Delete it")),
            ["list poddisruptionbudgets.policy"],
            id="something was changed",
        ),
    ],
)
def test_what_a_step_before_has_listed_is_not_listed_again(
    world: World, between: t.Callable[[Context], None], lists: list[str]
) -> None:
    def loop(ctx: Context) -> tuple[int, int]:
        run_listing.lists(ctx.cluster, ("pods", "budgets"), recent=ctx.recent)
        world.apply(manifests.deployment("web", 2))
        between(ctx)
        world.log.clear()
        with run_watch_cache.WatchCache(ctx, ("nodes",)) as live:
            live.follow(["pods"])
            live.fetch(["budgets"])
            ctx.clock.sleep(1.0)
            seen = live.snapshot()
            return len(seen.pods), len(seen.budgets)

    world.apply(manifests.budget("same", maxUnavailable=1))
    assert world.process("me").run(loop) == (2, 1)
    assert [what for what in asked(world) if what.startswith("list") and what != "list nodes"] == lists


def test_what_may_not_be_listed_is_asked_for_again(world: World) -> None:
    """A step after it has to say so, too."""

    def loop(ctx: Context) -> list[list[str]]:
        return [run_listing.recent_lists(ctx, ("selecting_jobs", "pods")).get("refused", []) for _step in range(2)]

    world.server.denied.add(("list", "jobs.batch"))
    assert world.process("me").run(loop) == [["jobs.batch"]] * 2
    assert asked(world).count("list pods") == 1


def test_another_kind_is_watched_from_then_on_and_only_once(world: World) -> None:
    def loop(ctx: Context, live: run_watch_cache.WatchCache) -> list[int]:
        before = len(live.snapshot().pods)
        live.follow(["pods", "nodes", "pods"])
        live.follow(["pods"])
        world.apply(manifests.deployment("web", 2))
        ctx.clock.sleep(5.0)
        return [before, len(live.snapshot().pods)]

    assert watching(world, loop) == [0, 2]
    assert asked(world) == ["watch pods"]


def test_kinds_that_are_not_watched_are_read_once_or_again(world: World) -> None:
    def loop(_ctx: Context, live: run_watch_cache.WatchCache) -> list[int]:
        live.fetch(["nodes", "pods", "budgets"])
        live.fetch(["pods"])
        live.seed({"quotas": [], "nodes": []})
        live.fetch(["quotas"])
        live.fetch(["nodes", "budgets"], again=True)
        return [len(live.snapshot().nodes)]

    assert watching(world, loop) == [1], "what is watched is not replaced"
    budgets = "list poddisruptionbudgets.policy"
    assert asked(world) == ["list pods", budgets, budgets]


def test_a_node_is_given_as_it_was_sent_without_its_managed_fields(world: World) -> None:
    world.patch(kinds.NODES, "n1", {"metadata": {"managedFields": [{"manager": "x"}]}})

    def loop(_ctx: Context, live: run_watch_cache.WatchCache) -> list[t.Any]:
        return [live.raw_node("n1"), live.raw_node("n2")]

    found, missing = watching(world, loop)
    assert (found["metadata"]["name"], "managedFields" in found["metadata"], missing) == ("n1", False, None)


def test_how_long_a_watch_was_quiet(world: World) -> None:
    def loop(ctx: Context, live: run_watch_cache.WatchCache) -> list[float]:
        label(world)
        ctx.clock.sleep(4.0)
        return [live.quiet_for("nodes")]

    assert watching(world, loop) == [pytest.approx(4.0, abs=0.01)]


def test_what_may_not_be_watched_ends_the_call_and_is_named(world: World) -> None:
    world.server.denied |= {("list", "pods"), ("watch", "pods")}
    with pytest.raises(CallAborted, match="Watching pods ended: ") as stopped:
        watching(world, lambda _ctx, live: live.snapshot(), "nodes", "pods")
    assert stopped.value.reason.code == "watch_failed"
    assert world.server.watchers == [], "the other watch ends, too"


@pytest.mark.parametrize(("down", "fails"), [(55.0, False), (3600.0, True)])
def test_a_server_that_does_not_answer_is_waited_for_a_minute(world: World, down: float, fails: bool) -> None:
    me = world.process("me")
    me.run(lambda ctx: run_listing.lists(ctx.cluster, ("nodes",)))
    me.faults.when(lambda request: True, Fault("down", down))
    began = world.machine.now
    if not fails:
        assert watching(world, lambda _ctx, live: len(live.snapshot().nodes)) == 1
        return
    with pytest.raises(errors.ClusterError):
        watching(world, lambda _ctx, live: live.snapshot())
    assert 60.0 < world.machine.now - began <= 62.0
