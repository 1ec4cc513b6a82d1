# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What has to follow the pods that leave, in the records of their nodes, and pods that this lets never leave."""

from __future__ import annotations

import functools
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    objects,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.nodes import standing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.placement import pending
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import (
    act,
    context,
    live_view,
    observe,
    owners,
    pod_moves,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.drain import node_drains, replaced
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.protect import surge_lease


def known(
    ctx: context.Context, live: live_view.Live, replacements: replaced.Replacements
) -> t.Sequence[objects.Workload]:
    """Know the workloads that an earlier start of the run has made short, whose pods may be gone.

    Gives those that cannot be watched.
    """
    refs = [one.workload for one in replacements.owed.values()]
    live.enter({ref.namespace for ref in refs})
    live.follow(observe.kinds_of(refs))
    return owners.named(ctx, live.snapshot(), refs)


@dataclass
class Debts:
    """Of the nodes of a drain: what a killed one leaves, the next one has to wait for as well."""

    ctx: context.Context
    live: live_view.Live
    sites: t.Mapping[str, node_drains.NodeDrain]
    replacements: replaced.Replacements
    fence: surge_lease.NodesFence
    _written: dict[str, tuple[int, int]] = field(default_factory=dict)

    def write(self) -> list[tuple[node_drains.NodeDrain, standing.Fallen]]:
        """Write what is new to the records, before any pod leaves; gives the nodes that are not ours any more."""
        todo = [site for site in self.sites.values() if site.open and site.left() and self._new(site)]
        if not todo:
            return []
        with self.ctx.clock.pool(act.AT_ONCE, "owe") as pool:
            return [(site, why) for site, why in zip(todo, pool.map(self._write, todo), strict=True) if why]

    def predicted(self, site: node_drains.NodeDrain) -> api_changes.Change | None:
        """What would be written to the record of the node."""
        return self._owing(site)(site.node, site.record) if site.node and site.record else None

    def _new(self, site: node_drains.NodeDrain) -> bool:
        """Whether more has to follow its pods than was written last; it never becomes less."""
        return self._written.get(site.name) != self._size(site)

    def _size(self, site: node_drains.NodeDrain) -> tuple[int, int]:
        awaits, volumes = self.replacements.of(site.name)
        return len(awaits), len(volumes)

    def _write(self, site: node_drains.NodeDrain) -> standing.Fallen | None:
        self._written[site.name] = self._size(site)
        return site.write(self.ctx, self._owing(site), self.fence, known=site.raw)[0]

    def _owing(self, site: node_drains.NodeDrain) -> node_drains.Wanted:
        awaits, volumes = self.replacements.of(site.name)
        return functools.partial(
            node_drains.owing, awaits=tuple(awaits.values()), volumes=volumes, leaving=site.leaving
        )

    def hopeless(self, left: t.Iterable[pod_moves.Move], snapshot: snapshots.Snapshot) -> str:
        """Why pods would wait for ever for successors of others, which fit nowhere; empty where they need not."""
        for move in left:
            pod = snapshot.pod(move.pod.uid)
            if move.state != "waiting" or not move.blocked_by or pod is None:
                continue
            if found := pending.holding(snapshot, pod, self.replacements.hopeless(snapshot)):
                why = f"{move.pod.ref} stays: {move.blocked_by['message'].rstrip('.')}. {found.text}"
                if found.overlooked:
                    return f"{why}. Start that scheduler, or correct the schedulerName, then run again."
                if found.behind:
                    return f"{why}. Repair {found.behind}, then run again."
                return f"{why}, and no node has had room for long. Add a node or free room, then run again."
        return ""
