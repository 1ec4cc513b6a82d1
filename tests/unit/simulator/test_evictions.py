# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The eviction API of the simulator, where it is easily taken for stricter than it is."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import answers, evictions, manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World


@pytest.mark.parametrize(
    ("ready", "healthy", "goes"),
    [
        pytest.param(False, 2, True, id="not ready, and enough others are healthy"),
        pytest.param(False, 1, False, id="not ready, and too few others are"),
        pytest.param(True, 2, False, id="ready"),
    ],
)
def test_a_budget_that_is_behind_holds_ready_pods_alone(ready: bool, healthy: int, goes: bool) -> None:
    """The observed generation is asked only where disruptions are counted."""
    with World(
        [manifests.node("n1"), manifests.deployment("web", 2), manifests.budget("web", minAvailable=2)]
    ) as world:
        status = {"observedGeneration": 0, "currentHealthy": healthy, "desiredHealthy": 2, "disruptionsAllowed": 1}
        budget = world.objects.read(kinds.BUDGETS, "shop", "web")
        world.objects.replace(kinds.BUDGETS, budget, {**budget, "status": status}, "status")
        pod = world.pods(app="web")[0]["metadata"]
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        world.patch(kinds.PODS, pod["name"], {"status": {"conditions": conditions}}, subresource="status")
        try:
            code = evictions.evict(world.objects, pod["namespace"], pod["name"], {})["code"]
        except answers.Refused as refused:
            code = refused.code
        assert code == (201 if goes else 429)


@pytest.mark.parametrize(
    ("reason", "healthy", "said"),
    [
        ("SyncFailed", 0, "because it failed sync: why"),
        ("Frozen", 2, "needs 2 healthy pods and has 2 currently"),
        ("Frozen", 3, "(Frozen): why"),
    ],
)
def test_a_refusal_says_why_as_the_server_does(reason: str, healthy: int, said: str) -> None:
    condition = {"type": "DisruptionAllowed", "status": "False", "reason": reason, "message": "why"}
    refused = answers.budget_spent("web", 2, healthy, condition)
    assert isinstance(refused.body, dict)
    assert refused.body["details"]["causes"][0]["message"].endswith(said)
