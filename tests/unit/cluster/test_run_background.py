# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Works beside a loop."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_background import (
    MAX_PARALLEL,
    BackgroundCalls,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World


def test_the_loop_goes_on_and_is_woken_when_an_answer_is_there() -> None:
    def loop(ctx: Context) -> list[t.Any]:
        woken: list[float] = []
        aside = BackgroundCalls(ctx, "test", lambda: woken.append(ctx.clock.now() - began))
        began = ctx.clock.now()

        def work() -> str:
            ctx.clock.sleep(2.0)
            return "done"

        before = aside.going("a"), aside.done("a")
        aside.start("a", work)
        under_way = ctx.clock.now() - began, aside.going("a"), aside.done("a"), aside.going("b")
        ctx.clock.sleep(3.0)
        after = aside.done("a"), aside.answer("a"), aside.going("a"), aside.done("a")
        aside.close()
        return [before, under_way, after, woken]

    with World() as world:
        found = world.process("me").run(loop)
    before, under_way, after, woken = found
    assert before == (False, False)
    assert under_way == (0.0, True, False, False)
    assert after == (True, "done", False, False)
    assert woken == [pytest.approx(2.0)]


def test_the_loop_gets_what_a_work_raised() -> None:
    def loop(ctx: Context) -> None:
        aside = BackgroundCalls(ctx, "test", lambda: None)
        aside.start("a", lambda: 1 // 0)
        ctx.clock.sleep(0.1)
        aside.answer("a")

    with World() as world, pytest.raises(ZeroDivisionError):
        world.process("me").run(loop)


def test_what_is_under_way_is_waited_for_at_the_end_and_nothing_more_is_begun() -> None:
    def loop(ctx: Context) -> list[str]:
        aside = BackgroundCalls(ctx, "test", lambda: None)
        names = [f"call {number}" for number in range(MAX_PARALLEL + 1)]
        for name in names:
            aside.start(name, lambda: ctx.clock.sleep(2.0))
        ctx.clock.sleep(1.0)
        aside.close()
        ended = [name for name in names if aside.done(name)]
        ctx.clock.sleep(5.0)
        assert [name for name in names if aside.done(name)] == ended
        return ended

    with World() as world:
        assert len(world.process("me").run(loop)) == MAX_PARALLEL
