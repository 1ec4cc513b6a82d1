# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The PodMigrationJobs of the cluster, kept fresh by a watch of their own for as long as a drain needs them."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds, watch
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import migration_jobs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context, watching


class JobWatch:
    """All jobs, raw and read; ``wake`` is called whenever one of them has changed."""

    def __init__(self, ctx: context.Context, wake: t.Callable[[], None]) -> None:
        self._ctx = ctx
        self._condition = ctx.clock.condition()
        self._seen = -1
        self._raws: tuple[objects.Raw, ...] = ()
        self._jobs: dict[str, migration_jobs.Job] = {}
        self._reflector = watch.Reflector(
            ctx.cluster,
            kinds.PODMIGRATIONJOBS,
            wake=self._condition,
            on_event=lambda what, raw: wake(),
        )
        self._watched = {"PodMigrationJobs": self._reflector}

    def start(self) -> None:
        """Watch, and wait until all jobs were listed once.

        Raises:
            ClusterError: the API server did not answer for ``PATIENCE`` seconds.
            StopRun: jobs may not be watched.
        """
        watching.begin(self._ctx, self._watched, self._condition)

    def stop(self) -> None:
        """Stop watching."""
        self._reflector.stop()

    def look(self) -> tuple[tuple[objects.Raw, ...], t.Mapping[str, migration_jobs.Job]]:
        """The jobs as the API server has them, and read, by name."""
        with self._condition:
            watching.raise_errors(self._watched)
            if self._reflector.version != self._seen:
                self._seen = self._reflector.version
                self._raws = tuple(self._reflector.objects.values())
                self._jobs = {job.name: job for job in map(migration_jobs.Job.of, self._raws)}
        return self._raws, self._jobs
