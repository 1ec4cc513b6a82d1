# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""I2: at each eviction of ours, enough pods are left for each budget of the users."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, selectors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.evictions import is_ready
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Event, Key, Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.wire import Sent
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

LAG = 1.0
"""Seconds for which a pod that others took away still counts.

The API server decides on the budget's status, which its controller writes after it has seen what others did; neither
it nor a run can know what happened in that moment.
"""


@dataclass
class Budgets:
    """What each budget of the users demands, and the pods that others took away just now.

    A budget demands the lesser of `desiredHealthy` now and at the count of replicas before, for as long as the
    newcomers of a scale-up start.
    """

    world: World
    _demands: dict[Key, tuple[int, int]] = field(default_factory=dict)
    _lost: list[tuple[float, Raw]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for raw in self.world.store.of(kinds.BUDGETS.resource).values():
            self._note(raw)

    def changed(self, event: Event) -> None:
        """A budget is another one now."""
        if event.what == "DELETED":
            self._demands.pop(_key(event.raw), None)
        else:
            self._note(event.raw)

    def gone(self, event: Event, evictions: t.Callable[[Raw], t.Iterator[Sent]]) -> t.Iterator[str]:
        """What is wrong with the end of a pod's service; ``evictions`` are those of ours that are carried out now."""
        before = event.before
        if not self._demands or before is None or not serves(before):
            return
        if event.what != "DELETED" and serves(event.raw):
            return
        now, meta = self.world.machine.now, before["metadata"]
        sent = next(evictions(meta), None)
        self._lost = [(at, pod) for at, pod in self._lost if now - at <= LAG]
        if sent is None:
            self._lost.append((now, before))
            return
        for key, demand in self._demands.items():
            budget = self.world.store.get(kinds.BUDGETS.resource, *key)
            if budget is None or not _selects(budget, before):
                continue
            pods = [pod for pod in self.world.store.of(kinds.PODS.resource).values() if serves(pod)]
            pods = [pod for pod in [*pods, *(pod for _at, pod in self._lost)] if _selects(budget, pod)]
            left = {pod["metadata"]["uid"] for pod in pods} - {meta["uid"]}
            if len(left) < min(demand):
                yield (
                    f"I2: {sent.process} evicted {meta['name']}, and {len(left)} ready pods are left of the "
                    f"{min(demand)} that budget {key[1]} demands"
                )

    def _note(self, raw: Raw) -> None:
        if (raw["metadata"].get("labels") or {}).get(names.MANAGED_BY_LABEL) == names.MANAGED_BY:
            return
        status = raw.get("status") or {}
        desired, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
        known, earlier = self._demands.get(_key(raw), (desired, desired))
        if desired > known:
            earlier = min(known, earlier)
        if healthy >= desired:
            earlier = desired
        self._demands[_key(raw)] = (desired, earlier)


def _key(raw: Raw) -> Key:
    return raw["metadata"]["namespace"], raw["metadata"]["name"]


def serves(pod: Raw) -> bool:
    """Whether it is Ready and does not end."""
    return "deletionTimestamp" not in pod["metadata"] and is_ready(pod)


def _selects(budget: Raw, pod: Raw) -> bool:
    meta = pod["metadata"]
    return meta["namespace"] == budget["metadata"]["namespace"] and selectors.matches(
        budget["spec"].get("selector"), meta.get("labels") or {}
    )
