# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real control plane shows what the simulated cluster is held to (tests/unit/simulator/behaviours/recorded.json)."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from support.arena import Arena, arena_name
from support.lab import Lab
from support.rights import AGENT

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.connection import ConnectionOptions, connect
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.behaviours.every import BEHAVIOURS, RECORDED
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.behaviours.here import Here, plain

AT_A_TIME = 6


def seen(lab: Lab, name: str) -> Any:
    """What the behaviour gives on the lab, in an arena of its own."""
    cluster = connect(ConnectionOptions(kubeconfig=str(lab.kubeconfig)), user_agent=AGENT)
    arena = Arena(lab.api, arena_name(f"behaviour {list(BEHAVIOURS).index(name)}"))
    here = Here(cluster, arena.namespace, arena.nodes)
    try:
        return plain(BEHAVIOURS[name](here), here)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        cluster.close()
        arena.clear()


@pytest.mark.whole
def test_a_real_cluster_shows_what_the_simulator_shows(lab: Lab, tmp_path: Path) -> None:
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        shown = dict(zip(BEHAVIOURS, pool.map(lambda name: seen(lab, name), BEHAVIOURS), strict=True))
    file = tmp_path / "recorded.json"
    file.write_text(json.dumps(shown, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    others = {name: told for name, told in shown.items() if told != RECORDED.get(name)}
    assert others == {}, f"other than recorded; {file} holds what was seen now"
