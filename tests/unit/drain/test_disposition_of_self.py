# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The pod that runs this play."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import (
    only,
    web,
)


@pytest.mark.parametrize(
    ("me", "route"),
    [
        (Ref("Pod", "web-0", "shop", "uid-web-0"), "refuse"),
        (Ref("Pod", "web-0", "shop"), "refuse"),
        (Ref("Pod", "web-0"), "refuse"),
        (Ref("Pod", "web-0", "shop", "uid-of-another-cluster"), "evict"),
        (Ref("Pod", "web-0", "bank"), "evict"),
        (Ref("Pod", "web-1", "shop"), "evict"),
        (None, "evict"),
    ],
)
def test_the_pod_that_runs_this_play_is_never_moved(me: Ref | None, route: str) -> None:
    plan = only(web(3), DrainPolicy(self_pod=me, force=True, allow_interruption=True))
    assert plan.route == route
    assert (plan.code == "self_on_node") == (route == "refuse")
