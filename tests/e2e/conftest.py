# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One lab for all tests, an arena in it for each, and the witness beside them."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
if str(HERE) not in sys.path:
    sys.path.insert(0, str(HERE))

from support.arena import Arena, arena_name  # noqa: E402
from support.lab import Lab, adopted, lab_playbook, started  # noqa: E402
from support.plays import Player  # noqa: E402
from support.watching import Watch, Watching  # noqa: E402


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[Lab]:
    """The shared cluster: LAB_KUBECONFIG where that is set, else the lab LAB_NAME (`e2e`).

    Processes that run tests side by side (pytest-xdist) have a lab each, because some tests are about all
    that is left in a cluster. It goes when the tests end, unless LAB_KEEP is set.
    """
    if given := os.environ.get("LAB_KUBECONFIG"):
        yield adopted(Path(given))
        return
    folder = tmp_path_factory.mktemp("lab")
    name = "-".join(filter(None, (os.environ.get("LAB_NAME", "e2e"), os.environ.get("PYTEST_XDIST_WORKER"))))
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture else contextlib.nullcontext():
        made = started(folder, name)
    yield made
    if not os.environ.get("LAB_KEEP"):
        lab_playbook(folder, name, "absent")


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
def watching(lab: Lab, arena: Arena, tmp_path: Path) -> Watch:
    """A witness for each `with`, started once everything in the arena has settled."""

    def begin() -> Watching:
        arena.settle()
        return Watching(arena, lab, tmp_path)

    return begin
