# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A load balancer answers in the API server's place, without the body that an API server sends with every refusal."""

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests, nodes
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import STATUSES, Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.test_draining import (
    begun,
    ended,
    evictions,
    said,
    world_of,
)

SLOW = {nodes.START: "4s", nodes.STOP: "1s"}


@pytest.mark.parametrize("status", STATUSES)
def test_an_eviction_is_asked_for_again(status: int) -> None:
    with world_of(manifests.deployment("web", 3, annotations=SLOW)) as world:
        me, task = begun(world)
        me.faults.when(lambda request: request.resource == "pods/eviction", Fault("balancer", status=status))
        result = ended(world, task, within=120)
        assert (said(result)[0], len(evictions(world)), result.data["summary"]["evicted"]) == ("drained", 3, 3)
        asked = [sent for sent in world.log if sent.request.resource == "pods/eviction"]
        assert len(asked) == 4


@pytest.mark.parametrize("status", STATUSES)
@pytest.mark.parametrize("verb", ["get", "list", "watch", "patch", "delete"])
def test_a_lock_is_not_taken_for_deleted_nor_for_anothers(verb: str, status: int) -> None:
    with world_of(manifests.deployment("web", 3, annotations=SLOW)) as world:
        me, task = begun(world)
        leases = kinds.LEASES.resource
        me.faults.when(lambda r: (r.verb, r.resource) == (verb, leases), Fault("balancer", status=status), times=3)
        result = ended(world, task, within=180)
        assert (said(result)[0], len(evictions(world))) == ("drained", 3)
        assert [
            sent
            for sent in world.log
            if (sent.request.verb, sent.request.resource, sent.status) == ("create", leases, 409)
        ] == []


@pytest.mark.parametrize("status", STATUSES)
def test_a_node_is_not_taken_for_deleted(status: int) -> None:
    with world_of(manifests.deployment("web", 3, annotations=SLOW)) as world:
        me, task = begun(world)
        me.faults.when(lambda r: r.resource == "nodes", Fault("balancer", status=status), times=3)
        assert said(ended(world, task, within=180))[0] == "drained"


def test_a_pod_that_a_list_shows_was_not_gone() -> None:
    """Whatever said so: here the API server of another cluster, behind the same address."""
    with world_of(manifests.deployment("web", 3, annotations=SLOW)) as world:
        me, task = begun(world)
        me.faults.when(lambda request: request.resource == "pods/eviction", Fault("not found"))
        result = ended(world, task, within=120)
        assert (said(result)[0], len(evictions(world))) == ("drained", 3)
