# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""All PodMigrationJobs of a cluster, kept current by a watch."""

from __future__ import annotations

import contextlib
import types
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds, watch
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import migration_jobs, verdict
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import migration_controller
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context, observe, watching

AROUND = ("pods", "budgets", "deployments", "replica_sets", "stateful_sets")
"""The kinds that decide whether and when a pod may migrate, see ``observe.KINDS``."""

LOOK_AGAIN = 2.0
"""Seconds after which limits are compared with the clock again even if nothing changed."""


class JobView:
    """All jobs; ``wake`` is called whenever one of them changes. A context manager."""

    def __init__(self, ctx: context.Context, wake: t.Callable[[], None]) -> None:
        self._ctx = ctx
        self._condition = ctx.clock.condition()
        self._seen = -1
        self._jobs: dict[str, migration_jobs.Job] = {}
        self._reflector = watch.Reflector(
            ctx.cluster,
            kinds.PODMIGRATIONJOBS,
            wake=self._condition,
            on_event=lambda what, raw: wake(),
        )
        self._watched = {"PodMigrationJobs": self._reflector}

    def __enter__(self) -> JobView:
        """Start the watch and wait for the first list.

        Raises:
            ClusterError: the API server did not answer for ``PATIENCE`` seconds.
            StopRun: jobs may not be watched.
        """
        try:
            watching.begin(self._ctx, self._watched, self._condition)
        except BaseException:
            self._reflector.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: types.TracebackType | None,
    ) -> None:
        """Stop the watch."""
        self._reflector.stop()

    def jobs(self) -> t.Mapping[str, migration_jobs.Job]:
        """The jobs as they are now, by name.

        Raises:
            StopRun: jobs can no longer be watched.
        """
        with self._condition:
            watching.raise_errors(self._watched)
            if self._reflector.version != self._seen:
                self._seen = self._reflector.version
                self._jobs = {job.name: job for job in map(migration_jobs.Job.of, self._reflector.objects.values())}
        return self._jobs


@dataclass(frozen=True)
class Board:
    """The jobs beside the pods and workloads they are about."""

    ctx: context.Context
    controller: migration_controller.Controller | None
    live: observe.Live
    jobs: JobView

    def looks(self, deadline: float) -> t.Iterator[verdict.View]:
        """A view now and after each change, at least every ``LOOK_AGAIN`` seconds, the last one at ``deadline``."""
        while True:
            snapshot = self.live.snapshot()
            yield verdict.View(snapshot, self.controller, self.jobs.jobs(), self.ctx.clock.server())
            left = deadline - self.ctx.clock.now()
            if left <= 0:
                return
            self.live.wait(min(left, LOOK_AGAIN))


@contextlib.contextmanager
def watched(ctx: context.Context, controller: migration_controller.Controller | None) -> t.Iterator[Board]:
    """Watch the jobs and what is ``AROUND`` them.

    Raises:
        ClusterError: the API server did not answer for ``PATIENCE`` seconds.
        StopRun: something may not be watched.
    """
    with observe.Live(ctx, AROUND) as live, JobView(ctx, live.nudge) as jobs:
        yield Board(ctx, controller, live, jobs)
