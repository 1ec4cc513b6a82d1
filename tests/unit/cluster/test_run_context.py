# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What every loop is given."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World


@pytest.mark.parametrize(
    ("within", "turns"),
    [(0.0, [(0.0, True)]), (-1.0, [(0.0, True)]), (2.5, [(0.0, False), (1.0, False), (2.0, False), (3.0, True)])],
)
def test_a_loop_that_polls_has_a_last_turn_when_its_time_is_over(
    within: float, turns: list[tuple[float, bool]]
) -> None:
    def polled(ctx: Context) -> list[tuple[float, bool]]:
        began = ctx.clock.now()
        return [(round(ctx.clock.now() - began, 1), late) for late in ctx.poll(1.0, within)]

    with World([], settle=False) as world:
        assert world.process("me").run(polled) == turns
