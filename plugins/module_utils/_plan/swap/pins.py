# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Pinned budgets: a foreign budget keeps its floor while its workload has more pods than usual.

A floor relative to the number of pods (``maxUnavailable``, a percentage) rises with a surge and keeps blocking. On
request it becomes an absolute ``minAvailable`` for the time of the surge: the number of pods that had to be healthy
before. The original rule is saved in the surge record and restored.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    objects,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import guards, surge_records


def wanted(snapshot: snapshots.Snapshot, pods: t.Iterable[objects.Pod]) -> tuple[surge_records.Pin, ...]:
    """The foreign budgets of the pods that have a floor that would move and a current status."""
    found: dict[str, surge_records.Pin] = {}
    for pod in pods:
        for budget in snapshot.budgets_of(pod):
            moves = budget.max_unavailable is not None or isinstance(budget.min_available, str)
            if moves and budget.observed and not budget.sync_failed and not guards.is_one(snapshot, budget):
                found[budget.uid] = surge_records.Pin(
                    budget.name, budget.uid, budget.min_available, budget.max_unavailable, budget.desired
                )
    return tuple(found.values())


def pinning(snapshot: snapshots.Snapshot, surge: surge_records.Surge) -> list[api_changes.Change]:
    """Pin the budgets of the record that still have their original rule."""
    return [
        _rule(budget, pin.floor, None, f"Pin {budget.ref} to minAvailable {pin.floor}")
        for pin, budget in _pinned(snapshot, surge)
        if (budget.min_available, budget.max_unavailable) == (pin.min_available, pin.max_unavailable)
    ]


def unpinning(
    snapshot: snapshots.Snapshot, surge: surge_records.Surge
) -> tuple[list[api_changes.Change], tuple[str, ...]]:
    """Restore the rules that are still ours; the others are returned as texts."""
    changes, kept = [], []
    for pin, budget in _pinned(snapshot, surge):
        now = (budget.min_available, budget.max_unavailable)
        if now == (pin.floor, None):
            changes.append(_rule(budget, pin.min_available, pin.max_unavailable, f"Restore the rule of {budget.ref}"))
        elif now != (pin.min_available, pin.max_unavailable):
            kept.append(f"somebody else changed the rule of {budget.ref}; left as is")
    return changes, tuple(kept)


def _pinned(
    snapshot: snapshots.Snapshot, surge: surge_records.Surge
) -> t.Iterator[tuple[surge_records.Pin, objects.Budget]]:
    budgets = {budget.uid: budget for budget in snapshot.budgets}
    return ((pin, budgets[pin.uid]) for pin in surge.pins if pin.uid in budgets)


def _rule(
    budget: objects.Budget, minimum: int | str | None, maximum: int | str | None, sentence: str
) -> api_changes.Change:
    before, after = _shown(budget.min_available, budget.max_unavailable), _shown(minimum, maximum)
    body = {"spec": {"minAvailable": minimum, "maxUnavailable": maximum}}
    return api_changes.patch(budget, sentence, body, before, after)


def _shown(minimum: int | str | None, maximum: int | str | None) -> objects.Raw:
    return {k: v for k, v in (("minAvailable", minimum), ("maxUnavailable", maximum)) if v is not None}
