# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One lab for all tests, an arena in it for each, and the witness beside them."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

from support.arena import Arena, arena_name  # noqa: E402
from support.lab import Lab, adopted  # noqa: E402
from support.plays import Player  # noqa: E402
from support.watching import Watching  # noqa: E402


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    return adopted(Path(os.environ["LAB_KUBECONFIG"]))


@pytest.fixture
def arena(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Arena]:
    made = Arena(lab.api, arena_name(request.node.name))
    try:
        yield made
    finally:
        made.clear()


@pytest.fixture
def play(lab: Lab, tmp_path: Path) -> Iterator[Player]:
    player = Player(lab, tmp_path)
    try:
        yield player
    finally:
        player.stop_all()


@pytest.fixture
def watching(lab: Lab, arena: Arena, tmp_path: Path) -> Callable[[], Watching]:
    """A witness for each `with`, started once everything in the arena has settled."""

    def begin() -> Watching:
        arena.settle()
        return Watching(lab, tmp_path)

    return begin
