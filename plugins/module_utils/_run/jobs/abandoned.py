# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Jobs of nodes that are not drained after all: each is ended as soon as it has passed arbitration."""

from __future__ import annotations

import contextlib
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import migration_jobs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import job_view, starter, tracker


@dataclass
class AbandonedJobs:
    """Those of a drain's ``flights`` whose ``abandoned`` says why they have to end."""

    ctx: context.Context
    tracker: tracker.JobTracker
    flights: t.Mapping[str, starter.InFlightJob]

    def end(self, jobs: t.Mapping[str, migration_jobs.Job]) -> list[starter.InFlightJob]:
        """End those that have passed; returns the others. A job that has evicted its pod is left to end."""
        left = [flight for flight in self.flights.values() if flight.abandoned and not flight.over]
        for flight in left:
            if job := jobs.get(flight.name):
                flight.job, flight.seen = job, True
                flight.over = not job.waiting
                if flight.over and (job.ended or not job.evicting):
                    self.tracker.give_up(job, flight.abandoned)
            elif flight.seen:
                flight.over = True
        return [flight for flight in left if not flight.over]

    def let_pass(self, view: job_view.JobView) -> None:
        """Wait until all have passed and ended, for ``PASSES`` seconds; the rest is given up as it is."""
        deadline = self.ctx.clock.now() + tracker.PASSES
        with contextlib.suppress(context.StopRun):
            while left := self.end(view.jobs()):
                if self.ctx.clock.now() >= deadline:
                    for flight in left:
                        self.tracker.give_up(t.cast("migration_jobs.Job", flight.job), flight.abandoned)
                    return
                self.ctx.clock.sleep(starter.LOOK_EVERY)
