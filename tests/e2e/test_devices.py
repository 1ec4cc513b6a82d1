# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Devices of dynamic resource allocation: real claims and the real scheduler; the nodes and slices are made up."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

import pytest
from support.arena import Arena, Workload
from support.plays import Player
from support.waiting import until
from support.watching import Watch
from witness.log import Json

GROUP = "/apis/resource.k8s.io/v1"
TAINT: Json = {"key": "example.com/unhealthy", "value": "ecc", "effect": "NoSchedule"}


class Devices:
    """The devices of an arena, of a driver and a class of its own."""

    def __init__(self, arena: Arena) -> None:
        self.arena = arena
        self.driver = f"gpu.{arena.name}.example.com"
        self.claims = f"{GROUP}/namespaces/{arena.namespace}/resourceclaims"

    @property
    def spec(self) -> Json:
        """A claim's: one device of the class."""
        return {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": self.arena.name}}]}}

    def shared(self, name: str) -> Json:
        """A pod's claim that all of its peers share."""
        self.arena.api.create(self.claims, {"metadata": {"name": name}, "spec": self.spec})
        return self._of_pod({"resourceClaimName": name})

    def own(self, name: str) -> Json:
        """A pod's claim that is made for it from a template."""
        path = self.claims.replace("resourceclaims", "resourceclaimtemplates")
        self.arena.api.create(path, {"metadata": {"name": name}, "spec": {"spec": self.spec}})
        return self._of_pod({"resourceClaimTemplateName": name})

    def _of_pod(self, source: Json) -> Json:
        container: Json = {
            "name": "main",
            "image": "registry.invalid/app:1",
            "resources": {"claims": [{"name": "gpu"}]},
        }
        return {"resourceClaims": [{"name": "gpu", **source}], "containers": [container]}

    def allocated(self) -> list[str]:
        """The pools, which are named like the nodes, of all allocated devices."""
        found = [(claim.get("status") or {}).get("allocation") or {} for claim in self.arena.api.items(self.claims)]
        return sorted(result["pool"] for one in found for result in one.get("devices", {}).get("results", []))


@contextlib.contextmanager
def devices(arena: Arena, nodes: Sequence[str], *taints: Json) -> Iterator[Devices]:
    """A slice with one device for each of the nodes; the last one's device has these taints."""
    made = Devices(arena)
    selector = {"cel": {"expression": f'device.driver == "{made.driver}"'}}
    arena.api.create(f"{GROUP}/deviceclasses", {"metadata": {"name": arena.name}, "spec": {"selectors": [selector]}})
    for name in nodes:
        device: Json = {"name": "gpu-0", **({"taints": list(taints)} if taints and name == nodes[-1] else {})}
        pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": made.driver, "nodeName": name, "pool": pool, "devices": [device]}
        arena.api.create(f"{GROUP}/resourceslices", {"metadata": {"name": name}, "spec": spec})
    try:
        yield made
    finally:
        for name in nodes:
            arena.api.delete(f"{GROUP}/resourceslices/{name}")
        arena.api.delete(f"{GROUP}/deviceclasses/{arena.name}")


def on(web: Workload, node: str) -> bool:
    return web.nodes() == [node]


def test_a_claim_that_is_shared_by_name_is_refused_first_and_follows_its_pod_with_consent(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here, other = arena.nodes(2)
    with devices(arena, [here, other]) as made:
        web = arena.deployment("web", on=here, pod=made.shared("gpu"))
        arena.settle()
        assert made.allocated() == [here], "by the scheduler"
        with watching() as seen:
            run = play("maintain", maintain_nodes=[here])
        assert not run.ok
        assert seen.writes == []
        found = run.finding("claim_single_node")
        assert f"ResourceClaim {arena.namespace}/gpu" in found["message"]
        assert f"{made.driver}/{here}/gpu-0" in found["message"]
        assert "resourceClaimTemplateName" in found["remedy"]
        assert on(web, here)
        run = play("maintain", maintain_nodes=[here], maintain_allow_interruption=True)
        assert run.ok, run.text
        until(lambda: on(web, other) and made.allocated() == [other], 30, "the claim was allocated anew")


def test_a_second_pod_gets_the_free_device_of_another_node(arena: Arena, play: Player, watching: Watch) -> None:
    here, other = arena.nodes(2)
    with devices(arena, [here, other]) as made:
        web = arena.deployment("web", on=here, pod=made.own("gpu"))
        arena.settle()
        assert made.allocated() == [here]
        with watching() as seen:
            run = play("maintain", maintain_nodes=[here])
            assert run.ok, run.text
        assert seen.dark_seconds(web) == 0
        assert on(web, other)
        until(lambda: made.allocated() == [other], 30, "the first pod's claim is gone")


@pytest.mark.whole
def test_a_second_pod_without_a_free_device_is_refused_first(arena: Arena, play: Player, watching: Watch) -> None:
    here, busy, sick = arena.nodes(3)
    with devices(arena, [here, busy, sick], TAINT) as made:
        pod = made.own("gpu")
        arena.deployment("other", on=busy, pod=pod)
        web = arena.deployment("web", on=here, pod=pod)
        arena.settle()
        assert made.allocated() == sorted([here, busy])
        with watching() as seen:
            run = play("maintain", maintain_nodes=[here])
        assert not run.ok
        assert seen.writes == []
        message = run.finding("no_free_device")["message"]
        assert f"1 of class {arena.name}" in message
        assert f"{made.driver}/{sick}/gpu-0 (example.com/unhealthy=ecc:NoSchedule)" in message
        run = play("maintain", maintain_nodes=[here], maintain_allow_interruption=True)
        assert run.ok, run.text
        until(lambda: on(web, here), 30, "it is back on the only node with a device")
