# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When the controllers of a lab have counted the pods of a workload that was copied."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.rehearsal import run_settle
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw


def workload(generation: int | None = 2, **status: object) -> Raw:
    meta = {"name": "web", "namespace": "shop", **({} if generation is None else {"generation": generation})}
    return {"metadata": meta, "spec": {"replicas": 2}, **({"status": status} if status else {})}


COUNTED = {"replicas": 2, "readyReplicas": 2, "availableReplicas": 2}


@pytest.mark.parametrize(
    ("raw", "counted"),
    [
        pytest.param(workload(observedGeneration=2, **COUNTED), True, id="as wanted"),
        pytest.param(workload(observedGeneration=1, **COUNTED), False, id="of an older specification"),
        pytest.param(workload(observedGeneration=2, **{**COUNTED, "replicas": 1}), False, id="one is not there"),
        pytest.param(workload(observedGeneration=2, **{**COUNTED, "availableReplicas": 1}), False, id="not for long"),
        pytest.param(
            workload(observedGeneration=2, replicas=2, readyReplicas=1, availableReplicas=1),
            True,
            id="one is not ready",
        ),
        pytest.param({}, False, id="not there"),
    ],
)
def test_a_workload_is_counted_once_its_status_says_what_its_specification_wants(raw: Raw, counted: bool) -> None:
    assert run_settle._is_counted(raw) is counted


PLACED = {"desiredNumberScheduled": 2, "currentNumberScheduled": 2}


@pytest.mark.parametrize(
    ("raw", "placed"),
    [
        pytest.param(workload(observedGeneration=2, **PLACED), True, id="on each node"),
        pytest.param(workload(observedGeneration=2, **{**PLACED, "currentNumberScheduled": 1}), False, id="not on one"),
        pytest.param(workload(observedGeneration=1, **PLACED), False, id="of an older specification"),
        pytest.param(workload(None, **PLACED), True, id="without generations"),
        pytest.param(workload(**PLACED), False, id="never observed"),
        pytest.param({"kind": "DaemonSet", **workload()}, False, id="nobody has looked at it"),
        pytest.param({"kind": "DaemonSet", **workload(None)}, False, id="nothing is said of it"),
    ],
)
def test_a_daemon_set_is_counted_once_it_is_on_as_many_nodes_as_it_wants(raw: Raw, placed: bool) -> None:
    """In a list it does not say its kind; then its status does."""
    assert run_settle._is_counted(raw) is placed
