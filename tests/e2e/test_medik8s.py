# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Operators of Medik8s and runs of ours never work on a node at once: both take the same lease.

What the operators do with it is from github.com/medik8s/common, pkg/lease/manager.go: `RequestLease` takes the lease
``node-<name>`` in ``medik8s-leases`` where nobody else holds it (``leaseDurationSeconds`` after ``renewTime``), and
`InvalidateLease` deletes it.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass

import pytest
from support.arena import Arena
from support.lab import Lab
from support.plays import Player
from support.waiting import until
from support.watching import Watch
from witness.api import Api
from witness.log import Json

LEASES = "/apis/coordination.k8s.io/v1/namespaces/medik8s-leases/leases"
STAMP = "%Y-%m-%dT%H:%M:%S.%fZ"

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def lab(medik8s: Lab) -> Lab:
    return medik8s


@dataclass
class Operator:
    """One of Medik8s; ``name`` is what it calls itself in leases."""

    api: Api
    name: str = "node-maintenance"

    def request(self, node: Json, ago: float = 0.0) -> str:
        """Take the node's lease for an hour; returns whose it is now. ``ago`` is since when it has it, in seconds."""
        meta = node["metadata"]
        place = f"{LEASES}/node-{meta['name']}"
        found = self.api.find(place)
        if found and found["spec"]["holderIdentity"] != self.name and not expired(found["spec"]):
            return str(found["spec"]["holderIdentity"])
        since = (datetime.datetime.now(datetime.UTC) - datetime.timedelta(seconds=ago)).strftime(STAMP)
        owner = {"apiVersion": "v1", "kind": "Node", "name": meta["name"], "uid": meta["uid"]}
        spec = {"holderIdentity": self.name, "leaseDurationSeconds": 3600, "acquireTime": since, "renewTime": since}
        lease = {"metadata": {"name": f"node-{meta['name']}", "ownerReferences": [owner]}, "spec": spec}
        if found:
            self.api.patch(place, lease)
        else:
            self.api.create(LEASES, lease)
        return self.name

    def invalidate(self, node: Json) -> None:
        self.api.delete(f"{LEASES}/node-{node['metadata']['name']}")


def expired(spec: Json) -> bool:
    """As its `isValidLease` says, turned."""
    renewed = datetime.datetime.strptime(spec["renewTime"], STAMP).replace(tzinfo=datetime.UTC)
    return datetime.datetime.now(datetime.UTC) > renewed + datetime.timedelta(seconds=spec["leaseDurationSeconds"])


def test_a_node_that_an_operator_works_on_is_left_alone_and_an_operator_leaves_ours(
    lab: Lab, arena: Arena, play: Player, watching: Watch
) -> None:
    here, _there = arena.nodes(2)
    web = arena.deployment("web", on=here)
    arena.settle()
    operator = Operator(lab.api)
    assert operator.request(arena.node(here)) == operator.name

    refused = play("maintain", maintain_nodes=[here])
    assert not refused.ok
    (finding,) = [one for one in refused.findings if one["severity"] == "blocker"]
    assert (finding["code"], finding["object"]) == ("leased", f"Node {here}")
    assert f"is held by {operator.name}" in finding["message"]
    assert not arena.is_cordoned(here)
    operator.invalidate(arena.node(here))

    with watching() as seen:
        tasks = play.tasks({"name": "Work", "ansible.builtin.command": "sleep 4"})
        running = play.start("maintain", inventory=play.hosts([here]), maintain_nodes=[here], maintain_tasks=tasks)
        until(lambda: arena.is_cordoned(here) or running.over, 120, "the run has begun")
        holders = set()

        def over() -> bool:
            if arena.is_cordoned(here):
                holders.add(operator.request(arena.node(here)))
            return running.over

        until(over, 120, "the run is over", every=0.1)
        run = running.wait()
        assert run.ok, run.text
    seen.all_held()
    assert operator.name not in holders, "it never got the lease while the node was out"
    assert seen.dark_seconds(web) == 0
    assert lab.api.items(LEASES) == []


def test_a_lease_that_an_operator_left_behind_is_in_nobodys_way(lab: Lab, arena: Arena, play: Player) -> None:
    here, _there = arena.nodes(2)
    operator = Operator(lab.api, "node-healthcheck")
    operator.request(arena.node(here), ago=3700.0)
    run = play("maintain", maintain_nodes=[here])
    assert run.ok, run.text
    assert lab.api.items(LEASES) == []
