# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Tests on real nodes. Where the machine can have none, they are skipped, and the reason is said."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import lab_network
import pytest
from support.arena import arena_name
from support.lab import Lab
from support.machines import Machines

NODES = 4


@pytest.fixture(scope="module", autouse=True)
def possible() -> None:
    if reason := lab_network.obstacle(os.uname().sysname, os.getuid(), NODES):
        pytest.skip(f"no real nodes here: {reason}")


@pytest.fixture(scope="module")
def lab(possible: None, real: Lab) -> Lab:
    """The cluster that `play` runs the collection against."""
    return real


@pytest.fixture
def machines(lab: Lab, request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machines]:
    """The real nodes, all on and in service, and a namespace that goes with the test."""
    made = Machines(lab, arena_name(request.node.name), tmp_path)
    made.begin()
    try:
        yield made
    finally:
        for line in made.command("list").splitlines():
            name, _address, state = line.split()
            if state == "off":
                made.command("on", name)
            made.command("plug", name)
        made.end()
