# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A surge that serves several nodes, one of which is lost: it goes on for the others."""

from __future__ import annotations

import typing as t
from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import snapshots
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import surge_records, swap
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import hands
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.protect import surge_lease


def without(surge: surge_records.Surge, nodes: t.Collection[str]) -> surge_records.Surge:
    """The surge as it serves all of its nodes but these; nothing is written yet."""
    return replace(surge, nodes={name: uid for name, uid in surge.nodes.items() if name not in nodes})


def strays(snapshot: snapshots.Snapshot, surge: surge_records.Surge) -> bool:
    """Whether pods are to leave nodes that the surge serves no more: who let them go was cut short."""
    return len(swap.shrunk(snapshot, surge, surge.nodes).leaving) < len(surge.leaving)


def let_go(
    leases: surge_lease.SurgeLeases, workers: hands.Hands, snapshot: snapshots.Snapshot, surge: surge_records.Surge
) -> surge_records.Surge | None:
    """Write down that the surge serves no more nodes than it names, and let the pods on others stay.

    First the record names fewer nodes, then those pods get their own costs back, and last the record forgets them:
    cut short anywhere, the costs are still known. ``None``: not all of it is seen yet, so call again.

    Raises:
        LostLockError: another of its nodes is lost.
        LostSurgeError: somebody else holds the surge.
        StopRun: nobody can tell whether its nodes are ours.
        ClusterError: a change was refused, or the server could not be reached.
    """
    held = leases.hold(surge)
    smaller = swap.shrunk(snapshot, held, held.nodes)
    if changes := swap.shrinking(snapshot, held, smaller):
        workers.do(changes, lambda: leases.prove(held))
        return None
    return leases.hold(held.with_record_of(smaller))
