# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A fixed part of what `make chaos KIND=real` does: a fault in a run, and no request fails."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos import real as chaos
from support import sampling
from support.lab import Lab
from support.machines import Machines

POINTS = ("api-server-restarted/node_drain", "killed/node_drain", "killed/work", "node-unplugged/work")


@pytest.fixture(scope="module")
def machines(lab: Lab, real: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machines]:
    yield chaos.prepared(real, tmp_path_factory.mktemp("chaos"))
    lab.run_kubectl("delete", "namespace", chaos.NAMESPACE, "--wait=false")


@pytest.mark.parametrize("point", sampling.first(0, POINTS))
def test_a_fault_costs_no_request(machines: Machines, tmp_path: Path, point: str) -> None:
    fault, phase = point.split("/")
    machines.folder = tmp_path
    outcome = chaos.trial(machines, tmp_path, fault, phase)
    assert not outcome.objections, str(outcome)
    assert outcome.sent > 1000
    assert (outcome.rcs[0] != 0) == (fault == "killed")
