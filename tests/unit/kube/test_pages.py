# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A long list needs memory for what is kept of it, and for one object of what was sent."""

from __future__ import annotations

import gc
import json
from typing import Any

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.client import Cluster
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.api import Api, Call

PAGES, SIZE = 5, 4
MARK = "only in what was sent"


def page(number: int) -> str:
    """The JSON text of a page; a text, because this process must hold no objects but those of the client."""
    items = [{"metadata": {"name": f"p{number}-{place}"}, "spec": {MARK: []}} for place in range(SIZE)]
    token = str(number + 1) if number + 1 < PAGES else ""
    return json.dumps({"kind": "PodList", "metadata": {"resourceVersion": "9", "continue": token}, "items": items})


def alive() -> int:
    """How many of the objects that were sent are in memory."""
    return sum(isinstance(found, dict) and MARK in found for found in gc.get_objects())


def is_first(call: Call) -> bool:
    return "continue" not in call.query


def test_what_is_left_out_of_one_is_gone_before_the_next(api: Api, cluster: Cluster) -> None:
    api.expect("GET", "/api/v1/pods", page(0), matches=is_first)
    for number in range(1, PAGES):
        api.expect("GET", "/api/v1/pods", page(number), query={"continue": str(number)})
    seen: list[int] = []

    def name(item: dict[str, Any]) -> tuple[str, str]:
        seen.append(alive())
        return item["kind"], item["metadata"]["name"]

    listing = cluster.items(kinds.PODS, limit=SIZE, keep=name)
    assert listing.items == [("Pod", f"p{number}-{place}") for number in range(PAGES) for place in range(SIZE)]
    assert seen == [1] * PAGES * SIZE
