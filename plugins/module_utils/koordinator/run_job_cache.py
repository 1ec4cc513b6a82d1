# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""All PodMigrationJobs of a cluster, kept current by a watch."""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    run_context,
    run_watch_cache,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    job_status,
    migration_jobs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds, watch
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import (
    migration_controller,
)

AROUND = ("pods", "budgets", "deployments", "replica_sets", "stateful_sets")
"""The kinds that decide whether and when a pod may migrate."""

LOOK_AGAIN_SECONDS = 2.0
"""Seconds after which limits are compared with the clock again even if nothing changed."""


class JobView:
    """All jobs; ``wake`` is called whenever one of them changes."""

    def __init__(self, ctx: run_context.Context, wake: t.Callable[[], None]) -> None:
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

    def start(self) -> None:
        """Start the watch and wait for the first list.

        Raises:
            ClusterError: the API server did not answer for ``PATIENCE`` seconds.
            CallAborted: jobs may not be watched.
        """
        run_watch_cache.begin(self._ctx, self._watched, self._condition)

    def stop(self) -> None:
        """Stop the watch, also one that could not be started."""
        self._reflector.stop()

    def jobs(self) -> t.Mapping[str, migration_jobs.Job]:
        """The jobs as they are now, by name.

        Raises:
            CallAborted: jobs can no longer be watched.
        """
        with self._condition:
            run_watch_cache.raise_errors(self._watched)
            if self._reflector.version != self._seen:
                self._seen = self._reflector.version
                self._jobs = {
                    job.name: job
                    for job in map(migration_jobs.Job.of, self._reflector.objects.values())
                }
        return self._jobs


Looks = t.Callable[[float], t.Iterator[job_status.View]]
"""From a deadline (monotonic clock) to views: now, after each change or ``LOOK_AGAIN_SECONDS``
seconds, and at the deadline.
"""


@contextlib.contextmanager
def watched(
    ctx: run_context.Context, controller: migration_controller.Controller | None
) -> t.Iterator[Looks]:
    """Watch the jobs and what is ``AROUND`` them; for the errors see ``JobView.start``."""
    with run_watch_cache.WatchCache(ctx, AROUND) as live:
        view = JobView(ctx, live.nudge)

        def looks(deadline: float) -> t.Iterator[job_status.View]:
            left = 1.0
            while left > 0:
                snapshot = live.snapshot()
                yield job_status.View(snapshot, controller, view.jobs(), ctx.clock.server())
                left = deadline - ctx.clock.now()
                live.wait(max(0.0, min(left, LOOK_AGAIN_SECONDS)))

        try:
            view.start()
            yield looks
        finally:
            view.stop()
