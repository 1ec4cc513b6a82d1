# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The PodMigrationJobs of a cluster, kept fresh by a watch, beside the pods and workloads they are about."""

from __future__ import annotations

import types
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import migration_jobs, verdict
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import migration_controller
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context, observe
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import watch

AROUND = ("pods", "budgets", "deployments", "replica_sets", "stateful_sets")
"""What decides whether and when a pod may migrate."""


class Board:
    """All jobs as they are now; ``watched`` are further kinds, see ``observe.KINDS``. Used as a context manager."""

    def __init__(
        self, ctx: context.Context, controller: migration_controller.Controller | None, watched: t.Collection[str] = ()
    ) -> None:
        self._ctx, self._controller = ctx, controller
        self._live = observe.Live(ctx, watched)
        self._watch = watch.JobWatch(ctx, self._live.nudge)

    def __enter__(self) -> Board:
        """Start watching and wait until everything was listed once.

        Raises:
            ClusterError: the API server did not answer for ``PATIENCE`` seconds.
            StopRun: something may not be watched.
        """
        self._live.__enter__()
        try:
            self._watch.start()
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
        self._watch.stop()
        self._live.__exit__(kind, error, trace)

    def job(self, name: str) -> migration_jobs.Job | None:
        """The job of this name, if it is there."""
        return self._watch.look()[1].get(name)

    def view(self) -> verdict.View:
        """Everything as it is now, for a verdict."""
        snapshot = self._live.snapshot()
        return verdict.View(snapshot, self._controller, list(self._watch.look()[0]), self._ctx.clock.server())

    def wait(self, seconds: float) -> None:
        """Sleep until something changed since the last view, at most so long."""
        self._live.wait(seconds)
