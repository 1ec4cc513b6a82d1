# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How many endpoints served over time, of drains that wait for long."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.objects import Raw
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.services import STEPS, Services
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World


def serving(count: int) -> list[Raw]:
    meta = {"namespace": "shop", "name": "web-1", "labels": {"kubernetes.io/service-name": "web"}}
    return [{"metadata": meta, "endpoints": [{"addresses": [f"10.0.0.{n}"]} for n in range(count)]}]


def sampled(counts: t.Iterable[int]) -> tuple[str, list[list[t.Any]]]:
    """When it began, and what is kept of these counts, of which there is one in each second."""
    with World() as world:
        me = world.process("me")
        began, services = me.clock.wall(), Services(me.ctx())
        for count in counts:
            services.sample(serving(count))
            world.machine.run_for(1.0)
        (shown,) = services.shown()
        return began, shown["samples"]


def test_a_service_that_flaps_for_days_stays_small_and_its_low_points_are_kept() -> None:
    began, samples = sampled([5, 4] * 3000 + [0] + [5, 4] * 3000)
    assert len(samples) <= STEPS + 1
    assert min(count for _at, count in samples) == 0
    assert samples[0] == [began, 5]
    times = [at for at, _count in samples]
    assert times == sorted(times)
    assert samples[-2][1] == samples[-1][1] == 4


def test_few_steps_are_kept_as_they_were() -> None:
    assert [count for _at, count in sampled([3, 3, 2, 2, 3])[1]] == [3, 2, 3, 3]
