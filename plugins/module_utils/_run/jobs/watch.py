# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The PodMigrationJobs of the cluster, kept fresh by a watch of their own for as long as a drain needs them."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.watch import Reflector
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs.migration_jobs import Job
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.objects import Raw
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import watching
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.context import Context


class JobWatch:
    """All jobs, raw and read; ``wake`` is called whenever one of them has changed."""

    def __init__(self, ctx: Context, wake: t.Callable[[], None]) -> None:
        self._ctx = ctx
        self._condition = ctx.clock.condition()
        self._seen = -1
        self._raws: tuple[Raw, ...] = ()
        self._jobs: dict[str, Job] = {}
        self._reflector = Reflector(
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

    def look(self) -> tuple[tuple[Raw, ...], t.Mapping[str, Job]]:
        """The jobs as the API server has them, and read, by name."""
        with self._condition:
            watching.raise_errors(self._watched)
            if self._reflector.version != self._seen:
                self._seen = self._reflector.version
                self._raws = tuple(self._reflector.objects.values())
                self._jobs = {job.name: job for job in map(Job.of, self._raws)}
        return self._raws, self._jobs
