# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The simulated cluster shows what a real one showed: tests/e2e/test_simulator_is_honest.py asks that the same."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.behaviours import every
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.behaviours.simulated import seen_in_simulator


@pytest.mark.parametrize("name", every.BEHAVIOURS)
def test_the_simulator_shows_what_a_cluster_showed(name: str) -> None:
    assert seen_in_simulator(name) == every.RECORDED[name]
