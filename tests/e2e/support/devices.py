# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Devices of dynamic resource allocation: real claims, whose driver nobody runs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from witness.log import Json

from support.arena import Arena

GROUP = "/apis/resource.k8s.io/v1"


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
