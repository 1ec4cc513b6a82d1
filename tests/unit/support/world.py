# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""A Deployment in a simulated cluster that stands still but for `act`, so that a surge can be played step by step."""

from __future__ import annotations

import copy
import functools
import json
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.api_changes import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.index_keys import PARSERS
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_listing import KINDS
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_requests import request_for
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.dispositions import routes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests, nodes
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import world as simulated
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.evictions import is_ready
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Raw

WAVE = ("n1", "n2")
"""The nodes that leave; they take no new pods."""
LISTS = ("nodes", "pods", "deployments", "replica_sets", "budgets", "autoscalers", "leases", "slices")
Listed = dict[str, list[Raw]]


@functools.cache
def _begun(on: tuple[str, ...], rule: str) -> simulated.Saved:
    everybody = sorted({*on, "n9"})
    with simulated.World([*map(manifests.node, everybody), manifests.namespace(names.NAMESPACE)]) as world:
        world.apply(manifests.deployment("web", 0), manifests.service("web"))
        for count, wanted in enumerate(on, 1):
            for name in everybody:
                world.cordon(name, name != wanted)
            world.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": count}})
            world.settle()
        for name in everybody:
            world.cordon(name, name in WAVE)
        world.apply(*([manifests.budget("web", **json.loads(rule))] if rule else ()))
        world.settle()
        return world.saved()


class World:
    """Deployment `web` in namespace `shop`, its pods on the given nodes, its Service, node n9 with room.

    `web-0` and so on are its first pods in tests' words; `ended` are those that were told to end.
    """

    def __init__(
        self,
        on: t.Sequence[str] = (),
        *,
        rule: Raw | None = None,
        again: World | None = None,
    ) -> None:
        saved = again.sim.saved() if again else _begun(tuple(on), json.dumps(rule) if rule else "")
        self.sim: simulated.World = simulated.World.of(saved)
        self.sim.on_event.append(self._hear)
        self.kubelets = self.sim.controller(nodes.Kubelets)
        self.kubelets.start_seconds, self.kubelets.stop_seconds = 0.5, 0.2
        self.ended: list[str] = []
        first = sorted(self.pods, key=lambda raw: int(raw["metadata"]["uid"][:8], 16))
        self.first: list[str] = again.first if again else [raw["metadata"]["name"] for raw in first]
        self.least_ready = len(self.pods)
        self.at_first: Raw = again.at_first if again else self.kept()

    # -- what is there ---------------------------------------------------------------------------------------

    @property
    def top(self) -> Raw:
        """The Deployment."""
        return self.sim.get(kinds.DEPLOYMENTS, "web")

    @property
    def uid(self) -> str:
        return str(self.top["metadata"]["uid"])

    @property
    def replicas(self) -> int:
        return int(self.top["spec"]["replicas"])

    @property
    def pods(self) -> list[Raw]:
        """Those that are not ending."""
        return [raw for raw in self.sim.pods(app="web") if "deletionTimestamp" not in raw["metadata"]]

    @property
    def budget(self) -> Raw:
        return self.sim.get(kinds.BUDGETS, "web")

    @property
    def leases(self) -> list[Raw]:
        """The records of surges."""
        return self.raws("leases")

    def raws(self, kind: str) -> list[Raw]:
        return [raw for _key, raw in sorted(self.sim.store.of(KINDS[kind].resource).items())]

    def alias(self, name: str) -> str:
        return f"web-{self.first.index(name)}" if name in self.first else name

    def names(self) -> list[str]:
        return sorted(self.alias(raw["metadata"]["name"]) for raw in self.pods)

    def pod(self, name: str) -> Raw:
        """By its name, or by what tests call it."""
        return next(raw for raw in self.pods if name in (raw["metadata"]["name"], self.alias(raw["metadata"]["name"])))

    def annotations(self, name: str) -> Raw:
        return dict(self.pod(name)["metadata"].get("annotations") or {})

    def leaving(self) -> list[str]:
        """The pods on nodes that leave."""
        return sorted(self.alias(raw["metadata"]["name"]) for raw in self.pods if raw["spec"].get("nodeName") in WAVE)

    def newcomer(self) -> Raw:
        return next(raw for raw in self.pods if raw["metadata"]["name"] not in self.first)

    def kept(self) -> Raw:
        """What has to be as before in the end: specs and costs, not names and versions."""
        parts = {kind: [raw["spec"] for raw in self.raws(kind)] for kind in ("deployments", "budgets")}
        costs = [cost for raw in self.pods if (cost := (raw["metadata"].get("annotations") or {}))]
        return copy.deepcopy({**parts, "leases": self.leases, "costs": costs})

    def snapshot(self, but: t.Callable[[Listed], object] = lambda listed: None) -> Snapshot:
        """The cluster as it is, or as it would be: `but` may change what was listed."""
        listed = copy.deepcopy({kind: self.raws(kind) for kind in LISTS})
        but(listed)
        return Snapshot.of({kind: [PARSERS[kind](raw) for raw in raws] for kind, raws in listed.items()})

    def plans(self, *leaving: str, **choices: t.Any) -> t.Any:
        return routes(self.snapshot(), leaving, DrainPolicy(**{"method": "surge", **choices}))

    # -- what happens ----------------------------------------------------------------------------------------

    def apply(self, change: Change) -> None:
        """Make one change; nobody acts on it yet.

        Raises:
            Refused: the object is another one by now.
        """
        self.sim.server.answer(request_for(change))

    def act(self, seconds: float = 1.0) -> None:
        """Everybody may act: what was asked for is brought about, and pods of before become Ready."""
        self.sim.machine.run_for(seconds)

    def scale(self, count: int) -> None:
        """As a person does it."""
        self.sim.patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": count}})

    def annotate(self, name: str, cost: str) -> None:
        """Somebody sets a pod's deletion cost."""
        body = {"metadata": {"annotations": {names.DELETION_COST: cost}}}
        self.sim.patch(kinds.PODS, self.pod(name)["metadata"]["name"], body)

    def set_ready(self, name: str, ready: bool) -> None:
        self.kubelets.set_ready((manifests.SHOP, self.pod(name)["metadata"]["name"]), ready)
        self.act(0.0)

    def no_more_start(self) -> None:
        """New pods find a place and never run."""
        self.kubelets.start_seconds = 10.0**6

    def _hear(self, event: Event) -> None:
        if event.resource != kinds.PODS.resource:
            return
        gone = event.what == "DELETED" or "deletionTimestamp" in event.raw["metadata"]
        if gone and event.before is not None and "deletionTimestamp" not in event.before["metadata"]:
            self.ended.append(self.alias(event.raw["metadata"]["name"]))
        self.least_ready = min(self.least_ready, sum(map(is_ready, self.pods)))
