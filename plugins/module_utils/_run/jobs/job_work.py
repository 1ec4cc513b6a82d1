# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""One job's part of a call of ``pod_migration_job``, and how it is returned."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import causes, migration_jobs, verdict
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    objects,
    outcomes,
    phases,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import tracker


@dataclass
class Work(tracker.Tracked):
    """One pod and its job. ``state`` is ``queued`` before the job is created, ``done`` once there is an outcome.

    ``siblings`` are the UIDs of the pods that its owner had when the call began.
    """

    state: t.Literal["queued", "following", "replacing", "done"] = "queued"
    outcome: outcomes.JobOutcome | None = None
    message: str = ""
    cause: reasons.Reason | None = None
    new_pod: objects.Ref | None = None
    created: bool = False
    siblings: frozenset[str] = frozenset()
    told: str = ""
    told_at: float = 0.0
    ended: str = ""

    @property
    def failed(self) -> bool:
        """Whether it makes the call fail."""
        return self.outcome is not None and self.outcome.failed

    def close(self, outcome: outcomes.JobOutcome, message: str, cause: reasons.Reason | None = None) -> None:
        """There is an outcome; nothing more is done for this pod."""
        self.state, self.outcome, self.cause = "done", outcome, cause
        self.message = f"{message} {cause.sentence}".strip() if cause else message

    def shown(self, events: t.Sequence[objects.Raw] = ()) -> dict[str, t.Any]:
        """As the module returns it."""
        job, cause = self.job, self.cause
        new_pod = self.new_pod or (job.new_pod if job else None)
        return {
            "name": self.name,
            "outcome": outcomes.word_of(self.outcome),
            "failed": self.failed,
            "message": self.message,
            "phase": job.phase if job else "",
            "status": job.status if job else "",
            "reason": job.reason if job else "",
            "cause": cause.to_dict() if cause else None,
            "node": job.node if job else "",
            "reservation": job.reservation if job else "",
            "pod": {**_shown(self.target), "node": self.pod.node if self.pod else ""},
            "new_pod": _shown(new_pod) if new_pod else None,
            "mode": job.mode if job else "",
            "paused": job.paused if job else False,
            "ttl": job.ttl if job else 0.0,
            "seconds": _seconds(job, self.ended),
            "conditions": [dict(condition) for condition in job.conditions] if job else [],
            "events": [dict(event) for event in events],
        }


def _shown(ref: objects.Ref) -> dict[str, str]:
    return {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid}


def _seconds(job: migration_jobs.Job | None, ended: str) -> float | None:
    """From the job's creation to its end as we saw it; ``None`` while it has not ended."""
    if job is None or not job.created or not ended:
        return None
    return round(max(0.0, causes.seconds_of(ended) - causes.seconds_of(job.created)), 1)


def tell_stage(ctx: context.Context, work: Work, cause: reasons.Reason | None = None) -> None:
    """Say where the job stands when that is news."""
    job = work.job
    if job is None:
        return
    text = f"job {job.name} {verdict.stage(job)}" + (f": {cause.message}" if cause else "")
    if text == work.told:
        return
    work.told, work.told_at = text, ctx.clock.now()
    node = work.pod.node if work.pod else ""
    ctx.tell(phases.What.JOB, text, node=node, namespace=work.target.namespace, name=work.target.name)
