# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What Events say of an object that is waited for: a StatefulSet that may create no pod,
a volume not mounted.

Nothing else says that. Events are read only where nothing has moved on for long,
of one object at a time.
"""

from __future__ import annotations

import functools
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    decoding,
    objects,
    pod_status,
    run_background,
    run_context,
    run_watch_cache,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import printable

# Events as controllers and kubelets write them.


def seen_and_text(raw: objects.Raw) -> tuple[str, str]:
    """When the Event was seen last, and what it says; empty where it cannot be read."""
    try:
        series = (raw.get("series") or {}).get("lastObservedTime")
        at = (
            series
            or raw.get("lastTimestamp")
            or raw.get("eventTime")
            or raw["metadata"]["creationTimestamp"]
        )
        return str(at)[:19], printable.line(
            f"{raw['reason']}: {raw['message']}", pod_status.LONGEST
        )
    except decoding.MISREAD:
        return "", ""


QUIET_SECONDS = 60.0
"""Seconds without progress after which it is said what is waited for, whatever that is."""
ASKED = "events"


class Events:
    """Reads Events beside the loop; the next snapshot has what they say."""

    def __init__(self, ctx: run_context.Context, live: run_watch_cache.WatchCache) -> None:
        self._ctx = ctx
        self.live = live
        self._background = run_background.BackgroundCalls(ctx, ASKED, live.nudge)
        self._warnings: dict[str, str] = {}
        self._began = ctx.clock.now()

    @property
    def asking(self) -> bool:
        return self._background.going(ASKED)

    def ask(self, found: t.Iterable[objects.Ref | None]) -> bool:
        """Read of the first object among these, if there is one; ``False``:
        another one is read at the moment.
        """
        if self.asking:
            return False
        if ref := next(filter(None, found), None):
            self._background.start(ASKED, functools.partial(self._newest, ref))
        return True

    def ask_once(self, found: t.Iterable[objects.Ref | None]) -> None:
        """Read of one of these objects, of each once, when the first ``QUIET_SECONDS`` seconds are
        over.
        """
        self.take()
        if self._ctx.clock.now() - self._began >= QUIET_SECONDS and not self.asking:
            self.ask(ref for ref in found if ref and ref.uid not in self._warnings)

    def take(self) -> None:
        """Let the next snapshot have what was read."""
        if self._background.done(ASKED):
            uid, text = self._background.answer(ASKED)
            self._warnings[uid] = text
            self.live.seed({"warnings": list(self._warnings.items())})

    def close(self) -> None:
        """Wait for what is under way."""
        self._background.close()

    def _newest(self, ref: objects.Ref) -> tuple[str, str]:
        """The UID, and the newest warning about it; empty where there is none,
        or where Events may not be read.
        """
        fields = f"involvedObject.uid={ref.uid},type=Warning"
        try:
            found = self._ctx.cluster.items(
                kinds.EVENTS, namespace=ref.namespace, fields=fields, keep=seen_and_text
            )
        except errors.ClusterError:
            return ref.uid, ""
        return ref.uid, max(found.items, default=("", ""))[1]
