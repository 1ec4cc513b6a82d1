# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What is listed for a question, and what of it the cluster may lack."""

from __future__ import annotations

import types
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, run_listing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import client, clocks, errors, kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.cluster.test_run_watch_cache import asked
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import owned


@pytest.fixture
def world() -> t.Iterator[World]:
    with World([manifests.node("n1"), manifests.namespace(names.NAMESPACE)]) as made:
        yield made


def test_kinds_that_are_not_installed_have_no_objects_and_leases_are_ours(world: World) -> None:
    found = world.process("me").run(lambda ctx: run_listing.lists(ctx.cluster, ("nodes", "rollouts", "leases")))
    assert {kind: len(listed) for kind, listed in found.items()} == {"nodes": 1, "rollouts": 0, "leases": 0}
    leases = f"list leases.coordination.k8s.io {names.NAMESPACE}"
    assert asked(world) == ["list nodes", "list rollouts.argoproj.io", leases]


def test_of_earlier_revisions_those_are_read_that_own_pods() -> None:
    counts = {"now": (1, 1), "owner": (0, 0), "old": (0, 0), "starts": (1, 0), "ends": (0, 1)}
    raws = [
        {
            "kind": "ReplicaSet",
            "metadata": {"name": name, "uid": f"uid-{name}", "ownerReferences": owned("Deployment", "web")},
            "spec": {"replicas": wanted},
            "status": {"replicas": there},
        }
        for name, (wanted, there) in counts.items()
    ]
    odd = {"kind": "ReplicaSet", "metadata": {"name": "odd"}, "spec": []}

    def items(_kind: kinds.Kind, *, keep: t.Callable[[t.Any], t.Any], **_options: t.Any) -> client.Listing:
        return client.Listing([keep(raw) for raw in (*raws, odd)], "1")

    def listed(owners: set[str] | None) -> list[str]:
        cluster = t.cast("t.Any", types.SimpleNamespace(items=items, clock=clocks.Clock()))
        found = run_listing.lists(cluster, ("replica_sets",), owners=owners)["replica_sets"]
        return [one.name for one in found]

    assert listed({"uid-owner", "uid-now"}) == ["now", "owner", "starts", "ends", "odd"]
    assert listed(None) == [*counts, "odd"]


@pytest.mark.parametrize(("served", "asks"), [({"v1"}, 1), ({"v1beta2"}, 2), (set(), 2)])
def test_rules_that_taint_devices_are_read_in_the_version_that_the_cluster_has(served: set[str], asks: int) -> None:
    """Version v1 is of Kubernetes 1.37; 1.36 has v1beta2, if it is switched on."""
    asked: list[str] = []

    def items(kind: kinds.Kind) -> t.Any:
        asked.append(kind.version)
        if kind.version not in served:
            raise errors.NotFound("the server could not find the requested resource")
        return types.SimpleNamespace(items=[{"metadata": {"name": kind.version}}])

    found = run_listing.device_rules(t.cast("t.Any", types.SimpleNamespace(items=items)))
    assert {rule["metadata"]["name"] for rule in found} == served
    assert asked == ["v1", "v1beta2"][:asks]
