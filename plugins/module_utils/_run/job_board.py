# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The PodMigrationJobs of a cluster, kept fresh by a watch, beside the pods and workloads they are about."""

from __future__ import annotations

import threading
import types
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.watch import Reflector
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs.job import Job
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs.limits import Controller
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs.verdict import View
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.objects import Raw
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.act import PATIENCE
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context, StopRun
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.observe import Live

AROUND = ("pods", "budgets", "deployments", "replica_sets", "stateful_sets")
"""What decides whether and when a pod may migrate."""


class Board:
    """All jobs as they are now; ``watched`` are further kinds, see ``observe.KINDS``. Used as a context manager."""

    def __init__(self, ctx: Context, controller: Controller | None, watched: t.Collection[str] = ()) -> None:
        self._ctx, self._controller = ctx, controller
        self._live = Live(ctx, watched)
        self._wake = threading.Condition()
        self._reflector = Reflector(ctx.cluster, kinds.PODMIGRATIONJOBS, wake=self._wake, on_event=self._heard)

    def __enter__(self) -> Board:
        """Start watching and wait until everything was listed once.

        Raises:
            ClusterError: the API server did not answer for ``PATIENCE`` seconds.
            StopRun: something may not be watched.
        """
        self._live.__enter__()
        try:
            self._reflector.start()
            until = self._ctx.clock.now() + PATIENCE
            with self._wake:
                while not self._reflector.synced:
                    self._raise_error()
                    if self._reflector.trouble and self._ctx.clock.now() > until:
                        raise self._reflector.trouble
                    self._wake.wait(1.0)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        """Stop watching."""
        self._reflector.stop()
        self._live.__exit__(kind, error, trace)

    def raws(self) -> dict[str, Raw]:
        """All jobs by name."""
        with self._wake:
            self._raise_error()
            return {name: raw for (_namespace, name), raw in self._reflector.objects.items()}

    def job(self, name: str) -> Job | None:
        """The job of this name, if it is there."""
        raw = self.raws().get(name)
        return Job.of(raw) if raw else None

    def view(self) -> View:
        """Everything as it is now, for a verdict."""
        snapshot = self._live.snapshot()
        return View(snapshot, self._controller, list(self.raws().values()), self._ctx.clock.wall())

    def wait(self, seconds: float) -> None:
        """Sleep until something changed since the last view, at most so long."""
        self._live.wait(seconds)

    def _heard(self, what: str, raw: dict[str, t.Any]) -> None:
        del what, raw
        self._live.nudge()

    def _raise_error(self) -> None:
        if self._reflector.error:
            raise StopRun(
                "watch_failed",
                f"Watching PodMigrationJobs ended: {self._reflector.error}",
                "Mend what the message names, then run the same command again: it resumes.",
            ) from self._reflector.error
