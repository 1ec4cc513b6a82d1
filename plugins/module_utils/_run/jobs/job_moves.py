# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Pods on their way: a job is made when the controller would admit it, and followed to its end.

A job is made once and not written again. Its ttl runs from its creation, also while a limit holds it, so it is
made no earlier than it can be admitted: what holds it is computed from the controller's own configuration.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.jobs import causes, migration_jobs, verdict
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    migration_controller,
    objects,
    outcomes,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context, writing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.jobs import boards, job_work

LOOK_AGAIN = 2.0
"""Seconds after which limits are held against the clock again although nothing changed."""

EXPLAIN = 5.0
"""Seconds in one stage after which it is asked what holds the job."""

STILL = 20.0
"""Seconds without a change of a job after which the controller is made to look at it again."""

GONE = 7.0
"""Seconds for which a pod has to be gone without its job's doing: the controller looks every three."""


@dataclass
class Moves:
    """The works of a call, its wish, and the limits of the controller (``None``: unreadable)."""

    ctx: context.Context
    works: t.Sequence[job_work.Work]
    wish: migration_jobs.Wish
    controller: migration_controller.Controller | None = None

    def start(self) -> None:
        """Make every job at once; nobody waits for them."""
        for work in self.works:
            if work.state == "queued":
                self._create(work)
            if work.state == "following":
                self._leave(work)

    def predict(self, wait: bool) -> None:
        """Check mode: remember the jobs that would be made, and what would become of the pods."""
        for work in self.works:
            if work.state == "queued":
                self._create(work)
            if work.state == "following":
                without = outcomes.JobOutcome.PAUSED if self.wish.paused else outcomes.JobOutcome.CREATED
                outcome = outcomes.JobOutcome.MOVED if wait and not self.wish.paused else without
                work.close(outcome, f"Job {work.name} would move {work.target}.")

    def follow(self, board: boards.Board, deadline: float | None) -> None:
        """Make the jobs as they can be admitted, and wait until each has ended, at most until ``deadline``."""
        while True:
            view = board.view()
            raws = {raw["metadata"]["name"]: raw for raw in view.jobs}
            for work in self.works:
                self._step(work, view, raws)
            if all(work.state == "done" for work in self.works):
                return
            left = LOOK_AGAIN if deadline is None else deadline - self.ctx.clock.now()
            if left <= 0:
                break
            board.wait(min(left, LOOK_AGAIN))
        for work in self.works:
            if work.state != "done":
                self._give_up(work, view)

    def _step(self, work: job_work.Work, view: verdict.View, raws: t.Mapping[str, objects.Raw]) -> None:
        if work.state == "queued":
            held = self._held(work, view)
            if held is None:
                self._create(work)
            elif held.message != work.told:
                work.told = held.message
                self._tell(work, f"no job yet: {held.message}")
        if work.state == "following":
            self._follow(work, view, raws)
        if work.state == "replacing":
            self._replacing(work, view)

    def _held(self, work: job_work.Work, view: verdict.View) -> reasons.Reason | None:
        """What would let a new job wait now; jobs of this call count from the moment they are made."""
        pod = _alive(work, view)
        if pod is None or self.controller is None:
            return None
        ours = {other.name for other in self.works if other.state == "following"}
        fresh = {other.name: other.raw for other in self.works if other.raw and other.name in ours}
        known = {raw["metadata"]["name"]: raw for raw in view.jobs}
        jobs = [_as_passed(raw) if name in ours else raw for name, raw in {**fresh, **known}.items()]
        return causes.waiting(view.snapshot, pod, self.controller, jobs, view.now)

    def _create(self, work: job_work.Work) -> None:
        body = migration_jobs.manifest(work.name, work.target, self.wish)
        ref = objects.Ref(migration_jobs.KIND, work.name, "", "", migration_jobs.API_VERSION)
        after = {"spec": body["spec"]}
        how = ", paused" if self.wish.paused else ""
        sentence = f"Create {ref} for {work.target} ({self.wish.mode}{how})"
        change = api_changes.Change("create", ref, sentence, body=body, before={}, after=after)
        try:
            found = writing.write(self.ctx, ref, lambda raw: None if raw else change, known=None).object
        except errors.ClusterError as error:
            work.close(outcomes.JobOutcome.FAILED, f"{work.target}: {error}")
            return
        # What has the name already and is for this pod is what our own answer would have been.
        if found and migration_jobs.Job.of(found).pod.uid != work.target.uid:
            work.close(
                outcomes.JobOutcome.FAILED,
                f"{work.target}: somebody made another job {work.name} meanwhile; run again.",
            )
            return
        work.state, work.created = "following", True
        work.told, work.told_at = "", self.ctx.clock.now()
        work.raw = found or {**body, "status": {}}
        if not self.ctx.check:
            ttl = f", ttl {migration_jobs.go_duration(self.wish.ttl)}" if self.wish.ttl else ""
            self._tell(work, f"job {work.name} created ({self.wish.mode}{how}{ttl})", "job_created")

    def _follow(self, work: job_work.Work, view: verdict.View, raws: t.Mapping[str, objects.Raw]) -> None:
        raw = raws.get(work.name)
        if raw is None:
            if work.told and self._deleted(work, view):
                return
            # Its watch has not shown a job that was made just now.
            if not work.told and self._really_gone(work):
                self._deleted(work, view)
            return
        work.raw = raw
        job = migration_jobs.Job.of(raw)
        if job.ended:
            self._ended(work, job, view)
            return
        if self._vanished(work, job, view):
            return
        if job.evicting and migration_jobs.NO_LIMITER not in job.annotations and _keeps_its_name(work):
            work.raw = job_work.unlimit(self.ctx, job) or raw
        self._keep_awake(work, job)
        why = None
        if self.ctx.clock.now() - work.told_at > EXPLAIN:
            why = verdict.verdict(job, view)
        if why or verdict.stage(job) not in work.told:
            job_work.tell_stage(self.ctx, work, why)

    def _keep_awake(self, work: job_work.Work, job: migration_jobs.Job) -> None:
        """Have a job looked at again on which nothing has happened for long."""
        now = self.ctx.clock.now()
        if job.resource_version != work.version:
            work.version, work.still_since = job.resource_version, now
        elif now - work.still_since > STILL and not (job.paused or job.waiting):
            work.still_since = now
            job_work.wake(self.ctx, job)

    def _really_gone(self, work: job_work.Work) -> bool:
        if self.ctx.clock.now() - work.told_at < EXPLAIN:
            return False
        try:
            self.ctx.cluster.send(verbs.get(kinds.PODMIGRATIONJOBS, work.name), patience=act.PATIENCE)
        except errors.NotFound:
            return True
        work.told_at = self.ctx.clock.now()
        return False

    def _deleted(self, work: job_work.Work, view: verdict.View) -> bool:
        job = work.job
        said = f"Job {work.name} was deleted before its end"
        if job and job.paused:
            said += "; a paused one is deleted five minutes after its ttl"
        if _alive(work, view) is None:
            work.close(outcomes.JobOutcome.GONE, f"{said}, and {work.target} is gone.")
        else:
            work.close(outcomes.JobOutcome.DELETED, f"{said}. {work.target} is where it was. Run again.")
        return True

    def _ended(self, work: job_work.Work, job: migration_jobs.Job, view: verdict.View) -> None:
        work.ended = self.ctx.clock.server()
        job_work.tell_stage(self.ctx, work)
        if not job.succeeded:
            why = verdict.verdict(job, view)
            if why and why.code == "pod_gone":
                work.close(outcomes.JobOutcome.GONE, f"{work.target} was gone before job {job.name} could move it.")
            else:
                work.close(outcomes.JobOutcome.FAILED, f"Job {job.name} has failed; {work.target}:", why)
        elif job.new_pod is None and work.pod and work.pod.owner:
            work.state, work.told_at = "replacing", self.ctx.clock.now()
        else:
            work.close(outcomes.JobOutcome.MOVED, _moved(work, job))

    def _replacing(self, work: job_work.Work, view: verdict.View) -> None:
        """EvictDirectly ends with the old pod; the move ends when the workload has another one that is Ready."""
        owner = work.pod.owner if work.pod else None
        for pod in view.snapshot.pods:
            mine = owner and pod.owner and pod.owner.uid == owner.uid
            if mine and pod.uid not in work.siblings and pod.ready and not pod.deleting:
                work.new_pod = pod.ref
                work.close(
                    outcomes.JobOutcome.MOVED,
                    f"Job {work.name} evicted {work.target}; {pod.ref} is ready on node {pod.node}.",
                )
                self._tell(work, f"{pod.namespace}/{pod.name} is ready on node {pod.node}")
                return

    def _vanished(self, work: job_work.Work, job: migration_jobs.Job, view: verdict.View) -> bool:
        """End a job that has nothing to move any more, before it waits for its ttl with a place reserved."""
        if job.evicting or job.waiting or _alive(work, view) is not None:
            work.gone_since = None
            return False
        now = self.ctx.clock.now()
        work.gone_since = work.gone_since or now
        if now - work.gone_since < GONE:
            return False
        said = f"{work.target} was gone before job {job.name} could move it."
        if job.ours:
            written = job_work.reject(self.ctx, job, said)
            work.raw = written or work.raw
            if written and migration_jobs.Job.of(written).evicting:
                return False
        work.close(outcomes.JobOutcome.GONE, said)
        return True

    def _give_up(self, work: job_work.Work, view: verdict.View) -> None:
        if work.state == "queued":
            why = self._held(work, view)
            work.close(outcomes.JobOutcome.TIMEOUT, f"{work.target} has no job yet:", why)
            return
        if work.state == "replacing":
            work.close(
                outcomes.JobOutcome.NOT_READY,
                f"Job {work.name} evicted {work.target}; no new pod of {_owner(work)} is ready.",
            )
            return
        job = work.job
        why = verdict.verdict(job, view) if job else None
        going = f"Job {work.name} {verdict.stage(job)}" if job else f"Job {work.name} has not ended"
        work.close(outcomes.JobOutcome.TIMEOUT, f"{going}; it goes on without us.", why)

    def _leave(self, work: job_work.Work) -> None:
        job = work.job
        if job and job.succeeded:
            work.close(outcomes.JobOutcome.ALREADY_MOVED, f"Job {job.name} has moved {work.target} already.")
            return
        if job and job.ended:
            work.close(
                outcomes.JobOutcome.FAILED, f"Job {job.name} has failed ({job.reason or job.phase}): {job.message}"
            )
            return
        paused = job.paused if job else self.wish.paused
        there = outcomes.JobOutcome.CREATED if work.created else outcomes.JobOutcome.EXISTS
        outcome = outcomes.JobOutcome.PAUSED if paused else there
        words = "waits for approval to move" if paused else "moves"
        work.close(outcome, f"Job {work.name} {words} {work.target}.")

    def _tell(self, work: job_work.Work, text: str, what: str = "job") -> None:
        node = work.pod.node if work.pod else ""
        self.ctx.tell(what, text, node=node, namespace=work.target.namespace, name=work.target.name)


def _alive(work: job_work.Work, view: verdict.View) -> objects.Pod | None:
    """The very pod that is to be moved, while it is there."""
    for pod in view.snapshot.pods:
        if pod.uid == work.target.uid:
            return pod
    return None


def _keeps_its_name(work: job_work.Work) -> bool:
    """Whether the pod's successor may have its name; a ReplicaSet's never has."""
    return work.pod is None or work.pod.owner is None or work.pod.owner.kind != "ReplicaSet"


def _as_passed(raw: objects.Raw) -> objects.Raw:
    meta = raw["metadata"]
    return {
        **raw,
        "metadata": {**meta, "annotations": {**(meta.get("annotations") or {}), migration_jobs.PASSED: "true"}},
    }


def _owner(work: job_work.Work) -> str:
    return str(work.pod.owner) if work.pod and work.pod.owner else "its owner"


def _moved(work: job_work.Work, job: migration_jobs.Job) -> str:
    if job.new_pod is None:
        return f"Job {job.name} evicted {work.target}."
    return f"Job {job.name} moved {work.target} to node {job.node}: {job.new_pod}."
