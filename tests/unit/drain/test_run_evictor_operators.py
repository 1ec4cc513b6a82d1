# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""How long an operator is waited for, in words that change seldom."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.operators import selectors_of
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import run_evictor
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import PodPlan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.run_pod_drain import PodDrain
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "10 s"),
        (10, "10 s"),
        (10.1, "20 s"),
        (60, "60 s"),
        (60.5, "2 min"),
        (120, "2 min"),
        (121, "3 min"),
        (600, "10 min"),
    ],
)
def test_a_wait_is_told_in_tens_of_seconds_and_then_in_minutes(seconds: float, words: str) -> None:
    assert run_evictor._minutes(seconds) == words


@pytest.mark.parametrize(
    ("labels", "held"),
    [
        pytest.param(None, True, id="the view has lost it: as it was planned"),
        pytest.param({"app": "web"}, True, id="still an operator's"),
        pytest.param({"app": "other"}, False, id="nobody's any more"),
    ],
)
def test_a_pod_behind_another_waits_for_the_operator_that_it_has_now(labels: dict[str, str] | None, held: bool) -> None:
    waits = run_evictor.OperatorWaits(60.0, selectors_of(["app=web"]))
    move = PodDrain(PodPlan(Pod.of(objects.pod("p0")), "evict", "replicas", "", None), "waiting", 0.0)
    listed = [objects.pod("p0", labels=labels)] if labels else []
    spent = objects.budget("web", 0, selector={"matchExpressions": [{"key": "app", "operator": "Exists"}]})
    waits.block_too(move, objects.snapshot(pods=listed, budgets=[spent]), 0.0)
    assert (waits.verdict_of(move) is not None) == held
