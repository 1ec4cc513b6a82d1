# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which tests go to the same process, when several run tests side by side (pytest-xdist).

A cluster that tests of several files share is started by each process that runs one of them. So a file whose
functions ask for such a fixture goes where the others are that do. (`--dist loadgroup` would be for that, but
pytest-xdist 3.8 cannot mark tests of pytest 9.2.) All tests with Koordinator take longer than all others together, so
they go to two processes: the files that need its newer version too, and those that do not. The sample needs one
version alone, so there they go to one. Their clusters end with them: idle, each takes a twentieth of a processor.
"""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from support import sampling
from support.lab import Lab

E2E = Path(__file__).resolve().parents[1]
# Fixture: group. The first that a file asks for counts; those of one module keep their file together.
SHARED = {
    "koord_next": "koord_next" if sampling.ALL else "koord",
    "koord": "koord",
    "kubernetes_next": "kubernetes_next",
    "real": "real",
    "medik8s": "",
    "koord_that_lists": "",
    "labs": "",
}
ASKED = re.compile(r"^def \w+\(([^)]*)\)", re.MULTILINE)
CHOSEN = "chosen(request)"
"""How a file asks for Koordinator of the version that a test names (`sampling.koordinator`)."""
WORD = re.compile(r"\w+(?=:)")


@functools.cache
def group(file: str) -> str:
    """The group of a test file, named by its path below E2E; empty when its tests may run anywhere.

    What the conftest.py of its folder asks for, each of its tests does; that of E2E is of all of them.
    """
    path = E2E / file
    of_folder = path.with_name("conftest.py")
    files = [path, of_folder] if path.parent != E2E and of_folder.exists() else [path]
    texts = [one.read_text(encoding="utf-8") for one in files]
    asked = {word for text in texts for words in ASKED.findall(text) for word in WORD.findall(words)}
    if any(CHOSEN in text for text in texts):
        asked.add("koord_next")
    return next((shared or file for fixture, shared in SHARED.items() if fixture in asked), "")


class Clusters:
    """Those that the files of a group share: each is started for the first test that asks. A plugin of pytest."""

    def __init__(self) -> None:
        self._labs: dict[str, Lab] = {}
        self._ends = contextlib.ExitStack()

    def get(self, name: str, start: Callable[[], contextlib.AbstractContextManager[Lab]]) -> Lab:
        if name not in self._labs:
            self._labs[name] = self._ends.enter_context(start())
        return self._labs[name]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> Generator[None, object, object]:
        # Not at the end of an attempt: a test that is run again gets the clusters that it had.
        done = yield
        if last_of_its_group(item, nextitem):
            self.end()
        return done

    def pytest_sessionfinish(self) -> None:
        self.end()

    def end(self) -> None:
        self._labs.clear()
        self._ends.close()


def last_of_its_group(item: pytest.Item, following: pytest.Item | None) -> bool:
    """Whether no test of its group comes next to this process."""
    return following is None or group(below(item)) != group(below(following))


def below(item: pytest.Item) -> str:
    """The path of a test's file below E2E."""
    return item.path.relative_to(E2E).as_posix()


def together(config: Any, log: Any) -> Any:
    """The scheduler: one group after another, largest first, all other tests one by one."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid.partition("::")[0].rpartition("e2e/")[2]) or nodeid

    return Together(config, log)
