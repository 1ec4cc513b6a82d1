# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What Events say of an object that a drain waits for: a StatefulSet that may create no pod, a volume not mounted.

Nothing else says that. Events are read only of a node on which nothing has moved on for long, of one object at a time.
"""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    events,
    objects,
    snapshots,
    unready,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.placement import pending
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, aside, context, live_view
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.drain import node_drains, replaced

ASKED = "events"


class ToldEvents:
    """Reads Events beside the loop; the next snapshot has what they say."""

    def __init__(
        self,
        ctx: context.Context,
        live: live_view.Live,
        replacements: replaced.Replacements,
        wake: t.Callable[[], None],
    ) -> None:
        self._ctx, self._live, self._replacements = ctx, live, replacements
        self._aside = aside.Aside(ctx, ASKED, wake)
        self._told: dict[str, str] = {}

    @property
    def asking(self) -> bool:
        """Whether an answer is awaited."""
        return self._aside.going(ASKED)

    def ask(self, site: node_drains.NodeDrain, snapshot: snapshots.Snapshot) -> bool:
        """Read of the object that the node waits for, where nothing else says why; ``False``: another one is read."""
        if self.asking:
            return False
        if ref := self._silent(site, snapshot):
            self._aside.start(ASKED, functools.partial(self._newest, ref))
        return True

    def take(self) -> None:
        """Let the next snapshot have what was read."""
        if self._aside.done(ASKED):
            uid, text = self._aside.answer(ASKED)
            self._told[uid] = text
            self._live.seed({"warnings": list(self._told.items())})

    def close(self) -> None:
        """Wait for what is under way."""
        self._aside.close()

    def _silent(self, site: node_drains.NodeDrain, snapshot: snapshots.Snapshot) -> objects.Ref | None:
        waiting = (move.pod for move in site.left() if move.state == "waiting")
        awaits, _volumes = self._replacements.of(site.name)
        found = (
            *(unready.silent(snapshot, *unready.others(snapshot, pod)) for pod in waiting),
            *(pending.silent(snapshot, one) for one in awaits.values()),
        )
        return next(filter(None, found), None)

    def _newest(self, ref: objects.Ref) -> tuple[str, str]:
        """The UID, and the newest warning about it; empty where there is none, or where Events may not be read."""
        fields = f"involvedObject.uid={ref.uid},type=Warning"
        try:
            found = self._ctx.cluster.items(
                kinds.EVENTS, namespace=ref.namespace, fields=fields, patience=act.PATIENCE, keep=events.told
            )
        except errors.ClusterError:
            return ref.uid, ""
        return ref.uid, max(found.items, default=("", ""))[1]
