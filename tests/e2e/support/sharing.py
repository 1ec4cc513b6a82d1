# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which tests go to the same process, when several run tests side by side (pytest-xdist).

A cluster that tests of several files share is started by each process that runs one of them. So a file whose
functions ask for such a fixture goes where the others are that do. (`--dist loadgroup` would be for that, but
pytest-xdist 3.8 cannot mark tests of pytest 9.2.) With Koordinator these would take longer than all others together,
so they go to two processes: the files that are named after it, and the rest.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

E2E = Path(__file__).resolve().parents[1]
# Fixture: group. Those of one module keep their file together.
SHARED = {"koord": "koord", "koord_next": "koord", "labs": ""}
ASKS = re.compile(r"^def \w+\([^)]*\b(" + "|".join(SHARED) + r"): ", re.MULTILINE)


@functools.cache
def group(file: str) -> str:
    """The group of a test file; empty when its tests may run anywhere."""
    found = ASKS.search((E2E / file).read_text(encoding="utf-8"))
    if not found:
        return ""
    shared = SHARED[found.group(1)]
    if not shared:
        return file
    return f"{shared} by name" if "koordinator" in file else f"{shared} otherwise"


def together(config: Any, log: Any) -> Any:
    """The scheduler: one group after another, largest first, all other tests one by one."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid.partition("::")[0].rpartition("/")[2]) or nodeid

    return Together(config, log)
