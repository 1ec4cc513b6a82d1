# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``pod_migration_job``: create, approve, reject and delete PodMigrationJobs, each for one pod."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass, field, replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    objects,
    run_context,
    run_listing,
    run_owners,
    run_reconcile,
    selectors,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    installation,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    causes,
    installations,
    job_status,
    migration_jobs,
    reservations,
    run_installed,
    run_job_cache,
    run_job_moves,
    run_job_writes,
    targets,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    client,
    errors,
    kinds,
    verbs,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
    reasons,
)

# Decisions on jobs that exist: approve, reject, delete.
#
# No job is written before it has passed arbitration: an earlier update starts the job without
# arbitration, and after an earlier rejection or deletion the arbitrator tries to update it twice a
# second until koord-descheduler restarts. So a rejection waits until the job has passed. One that
# is not paused may be faster then: with room at hand it evicts its pod within a tenth of a second
# (seen in the lab), and koord-descheduler may lose its note of that to our write. So the pods are
# looked at afterwards.


EVICTION_SHOWS_SECONDS = 1.0
"""Seconds after which an eviction that was on its way when a job was rejected shows on its pod."""

Decision = t.Literal["approved", "rejected", "absent"]


class JobDecision:
    """One decision on several jobs; ``why`` is the message of a rejected job."""

    def __init__(
        self,
        ctx: run_context.Context,
        decision: Decision,
        moves: t.Sequence[run_job_moves.JobMove],
        why: str,
    ) -> None:
        self.ctx = ctx
        self.decision = decision
        self.moves = moves
        self.why = why

    def carry_out(self, looks: run_job_cache.Looks, deadline: float, wait: bool) -> None:
        """Apply the decision to each job once it may be written; fail the rest at ``deadline``."""
        for view in looks(deadline):
            for move in self.moves:
                if move.state != "following":
                    continue
                move.job = job = view.jobs.get(move.name) or t.cast("migration_jobs.Job", move.job)
                if move.name in view.jobs and self._must_wait(job):
                    move.announce_stage(self.ctx, job_status.verdict(job, view))
                else:
                    self._apply(move, job)
            waiting = [move for move in self.moves if move.state == "following"]
            if not waiting or not wait or self.ctx.check:
                break
        self._look_back()
        for move in waiting:
            job = t.cast("migration_jobs.Job", move.job)
            if self.ctx.check:
                self._apply(move, job)
                continue
            left = "waits for arbitration: not written"
            if job.evicting:
                left = f"is moving {job.pod} and was not deleted"
            message = f"Job {job.name} {left}."
            move.close(outcomes.JobOutcome.STILL_WAITING, message, job_status.verdict(job, view))

    def _look_back(self) -> None:
        """Correct the outcome of rejected jobs whose pods leave nevertheless,
        and free what is reserved for them.

        koord-descheduler may create a Reservation for a job that it read before the rejection,
        and forgets it then.
        """
        decided = [move for move in self.moves if move.outcome == outcomes.JobOutcome.REJECTED]
        racing = [
            move for move in decided if move.job and not move.job.paused and not self.ctx.check
        ]
        if racing:
            self.ctx.clock.sleep(EVICTION_SHOWS_SECONDS)
        for move in racing:
            job = t.cast("migration_jobs.Job", move.job)
            run_job_writes.free(self.ctx, job.reservation or job.uid)
            raw = run_reconcile.read(self.ctx, move.target)
            if (
                raw is None
                or objects.Pod.of(raw).deleting
                or move.target.uid not in ("", raw["metadata"]["uid"])
            ):
                move.close(
                    outcomes.JobOutcome.TOO_LATE,
                    f"Job {move.name} is rejected, but {move.target} was evicted just before: "
                    "that cannot be undone.",
                )

    def _must_wait(self, job: migration_jobs.Job) -> bool:
        if job.ended:
            return False
        # A job that has evicted its pod is deleted after its end.
        return job.waiting or (self.decision == "absent" and job.evicting)

    def _apply(self, move: run_job_moves.JobMove, job: migration_jobs.Job) -> None:
        decisions = {"approved": self._approve, "rejected": self._reject, "absent": self._remove}
        outcome, message = decisions[self.decision](move, job)
        move.close(outcome, message)
        if outcome.value == self.decision and not self.ctx.check:
            self.ctx.tell(outcome, message, namespace=move.target.namespace, name=move.target.name)

    def _approve(
        self, move: run_job_moves.JobMove, job: migration_jobs.Job
    ) -> tuple[outcomes.JobOutcome, str]:
        if job.ended:
            return run_job_moves.ended(job)
        if not job.paused:
            return outcomes.JobOutcome.ALREADY_APPROVED, f"Job {job.name} is not paused."
        move.job = run_job_writes.approve(self.ctx, job) or job
        return outcomes.JobOutcome.APPROVED, f"Job {job.name} is approved and moves {job.pod}."

    def _reject(
        self, move: run_job_moves.JobMove, job: migration_jobs.Job
    ) -> tuple[outcomes.JobOutcome, str]:
        if job.ended and not (job.succeeded or job.evicting):
            message = f"Job {job.name} {job_status.stage(job)}; {job.pod} was not moved."
            return outcomes.JobOutcome.ALREADY_REJECTED, message
        if not job.ended:
            move.job = job = run_job_writes.reject(self.ctx, job, self.why) or job
        if job.succeeded or job.evicting:
            return (
                outcomes.JobOutcome.TOO_LATE,
                f"Job {job.name} has evicted {job.pod}: that cannot be undone.",
            )
        return (
            outcomes.JobOutcome.REJECTED,
            f"Job {job.name} is rejected; {job.pod} stays where it is.",
        )

    def _remove(
        self, move: run_job_moves.JobMove, job: migration_jobs.Job
    ) -> tuple[outcomes.JobOutcome, str]:
        found = run_job_writes.reread(self.ctx, job.name)
        if found is None or found.uid != job.uid:
            return outcomes.JobOutcome.ALREADY_ABSENT, f"Job {job.name} no longer exists."
        run_job_writes.let_go(self.ctx, found, self.why)
        return outcomes.JobOutcome.ABSENT, f"Job {job.name} is deleted."


State = t.Literal["present", "approved", "rejected", "absent"]

LOOK_EVERY_SECONDS = 1.0
"""Seconds between two looks at a Reservation that has no place yet."""
BEYOND_TTL_SECONDS = 30.0
"""Seconds beyond a job's ttl that it is waited for: the controller looks every three."""


@dataclass(frozen=True, slots=True)
class JobOptions:
    """Options of the module; all of them are valid. ``timeout`` is in seconds,
    ``None`` for one of the ttl.

    ``template`` is the Reservation's: for the job, or with ``settings.reservation`` for one that
    is created beforehand.
    """

    state: State = "present"
    selection: targets.Selection = field(default_factory=targets.Selection)
    name: str = ""
    settings: migration_jobs.JobSettings = field(default_factory=migration_jobs.JobSettings)
    template: objects.Raw | None = None
    koordinator: installation.Location = installations.ANYWHERE
    wait: bool = True
    timeout: float | None = None

    @property
    def of_job(self) -> migration_jobs.JobSettings:
        """With the template, of which a job's name is derived, too; a Reservation created
        beforehand has it instead.
        """
        if self.settings.reservation:
            return self.settings
        return replace(self.settings, template=self.template)


def jobs(ctx: run_context.Context, options: JobOptions) -> run_context.Result:
    """Bring each of the pods or jobs to the state.

    Raises:
        CallAborted: something that was named is not there; nothing was written.
        ClusterError: the API server cannot be reached or refuses to be read; nothing was written.
    """
    reserves = options.state == "present" and options.settings.mode == "ReservationFirst"
    found = run_installed.look(ctx, options.koordinator, reserves=reserves)
    # Without its controller a job can be rejected or deleted,
    # but creating or approving one has no effect.
    if found.missing and (
        options.state in ("present", "approved")
        or any(one.code == "no_crd" for one in found.missing)
    ):
        return run_context.Result(
            {"findings": [finding.to_dict() for finding in found.missing]},
            failed=True,
            message=" ".join(finding.sentence for finding in found.missing),
        )
    options = replace(
        options, settings=replace(options.settings, run=ctx.run.id if ctx.run else "")
    )
    if options.state == "present" and (options.selection != targets.Selection()):
        moves = _present(ctx, options, found)
    else:
        moves = _decided(ctx, options, found)
    events = {} if ctx.check else _events(ctx)
    doubts = [found.doubt] if found.doubt else []
    doubts += [finding.message for finding in found.unsure if finding.severity == "warning"]
    shown = [move.to_dict(events.get(move.job.uid if move.job else "", ())) for move in moves]
    failed = [move for move in moves if move.failed]
    data = {"jobs": shown, "doubt": " ".join(doubts)}
    if not moves and (options.selection.nodes or options.selection.selector is not None):
        data["findings"] = [_nothing(ctx, options).to_dict()]
    return run_context.Result(
        data, failed=bool(failed), message=" ".join(move.message for move in failed)
    )


def _nothing(ctx: run_context.Context, options: JobOptions) -> reasons.Finding:
    """That what was asked for selects nothing, which may be right, or a typing error."""
    selection = options.selection
    selector = selection.selector
    parts = {
        "nodes": ", ".join(selection.nodes),
        "pod_selector": "" if selector is None else selectors.as_query(selector),
        "namespaces": ", ".join(selection.namespaces),
    }
    subject = " and ".join(f"{name} {value}" for name, value in parts.items() if value)
    what = "pod that a job could move" if options.state == "present" else "job of a pod"
    finding = reasons.Finding(
        "selector_matches_nothing", f"No {what} is selected by {subject}.", "", "info", subject
    )
    ctx.tell(phases.What.NOTE, finding.message)
    return finding


def _present(
    ctx: run_context.Context, options: JobOptions, found: run_installed.Koordinator
) -> list[run_job_moves.JobMove]:
    lists = run_listing.lists(ctx.cluster, ("nodes", *run_job_cache.AROUND))
    wanted = _targets(snapshots.Snapshot.of(lists), options, found)
    lists["scales"] = run_owners.scales(
        ctx, snapshots.Snapshot.of(lists), [one.pod for one in wanted if one.pod]
    )
    snapshot = snapshots.Snapshot.of(lists)
    moves = [_move(target, options, found, snapshot) for target in wanted]
    deadline = _deadline(ctx, options, options.settings.ttl)
    queued = [move for move in moves if move.state == "queued"]
    if options.settings.reservation and queued:
        _reserve(ctx, options, queued[0], deadline)
    batch = run_job_moves.JobMoves(ctx, moves, options.of_job, found.controller)
    if ctx.check:
        batch.predict(options.wait)
    elif not options.wait:
        batch.start()
    elif any(move.state != "done" for move in moves):
        with run_job_cache.watched(ctx, found.controller) as looks:
            batch.follow(looks, deadline)
    return moves


def _deadline(ctx: run_context.Context, options: JobOptions, ttl: float | None) -> float:
    usual = ttl + BEYOND_TTL_SECONDS if ttl else migration_jobs.KEPT_WITHOUT_TTL
    return ctx.clock.now() + (usual if options.timeout is None else options.timeout)


def _targets(
    snapshot: snapshots.Snapshot, options: JobOptions, found: run_installed.Koordinator
) -> tuple[targets.Target, ...]:
    selection = options.selection
    lost = [name for name in selection.nodes if name not in snapshot.nodes]
    if lost:
        raise run_context.CallAborted(
            "unknown_node",
            f"There is no node {', '.join(lost)}.",
            "Use the name that `kubectl get nodes` shows, not an address.",
            f"Node {lost[0]}",
        )
    wanted, unknown = targets.targets(snapshot, selection)
    before = targets.moved(unknown, found.jobs)
    wanted += before
    names = {(target.ref.namespace, target.ref.name) for target in before}
    unknown = tuple(ref for ref in unknown if (ref.namespace, ref.name) not in names)
    if unknown:
        raise run_context.CallAborted(
            "unknown_pod",
            f"There is no pod {', '.join(f'{ref.namespace}/{ref.name}' for ref in unknown)}.",
            "Check `kubectl get pods`. If the pod's uid is given as well, "
            "a pod that is gone counts as moved.",
            str(unknown[0]),
        )
    return wanted


def _move(
    target: targets.Target,
    options: JobOptions,
    found: run_installed.Koordinator,
    snapshot: snapshots.Snapshot,
) -> run_job_moves.JobMove:
    """What a pod needs, decided before the first write."""
    settings = options.of_job
    choice = targets.choose(target, found.jobs, settings, options.name)
    move = run_job_moves.JobMove(
        target.ref, target.pod, choice.name or (choice.job.name if choice.job else ""), choice.job
    )
    pod = target.pod
    controller = found.controller
    move.note = choice.note
    move.mode = settings.mode
    if pod and pod.owner:
        owner = pod.owner.uid
        move.siblings = frozenset(
            one.uid for one in snapshot.pods if one.owner and one.owner.uid == owner
        )
    match choice.do:
        case "done":
            by = f" by job {choice.job.name}" if choice.job else ""
            move.close(outcomes.JobOutcome.ALREADY_MOVED, f"{target.ref} is moved already{by}.")
        case "refuse":
            move.close(outcomes.JobOutcome.REFUSED, f"{target.ref}:", choice.cause)
        case "follow":
            move.state = "following"
        case "create" if pod:
            # What would certainly make the job fail.
            why = causes.forbidden(snapshot, pod, controller) if controller else None
            if settings.mode == "ReservationFirst":
                why = why or causes.unserved(pod, controller)
            if why:
                move.close(outcomes.JobOutcome.REFUSED, f"{target.ref} gets no job:", why)
    return move


def _reserve(
    ctx: run_context.Context, options: JobOptions, move: run_job_moves.JobMove, deadline: float
) -> None:
    """Check the existing Reservation, or create one and wait until it is scheduled."""
    name, pod = options.settings.reservation, move.pod
    if pod is None:
        return
    raw = run_reconcile.read(ctx, reservations.ref_of(name))
    if raw is None and options.template is None:
        raise run_context.CallAborted(
            "unknown_reservation",
            f"There is no Reservation {name}.",
            "Name an existing one, or set reservation_template to create it.",
            f"Reservation {name}",
        )
    why = reservations.unusable(raw, pod) if raw else None
    if why:
        move.close(outcomes.JobOutcome.REFUSED, f"{move.target} gets no job:", why)
        return
    made = raw is None
    if raw is None:
        pod_raw = ctx.cluster.send(verbs.get(kinds.PODS, pod.name, pod.namespace))
        template = t.cast("objects.Raw", options.template)
        body = reservations.manifest(
            name, pod_raw, template, options.settings.ttl, options.settings.run
        )
        ref = reservations.ref_of(name)
        change = api_changes.Change(
            "create",
            ref,
            f"Create {ref} for {move.target}",
            body=body,
            before={},
            after={"spec": body["spec"]},
        )
        try:
            made = (
                run_reconcile.reconcile(
                    ctx, ref, lambda found: None if found else change, known=None
                ).change
                is not None
            )
        except errors.ClusterError as error:
            move.close(outcomes.JobOutcome.FAILED, f"{move.target}: {error}")
            return
    if options.template is not None and not ctx.check:
        _wait_for_place(ctx, move, name, deadline, made=made)


def _wait_for_place(
    ctx: run_context.Context, move: run_job_moves.JobMove, name: str, deadline: float, *, made: bool
) -> None:
    """Wait until the Reservation is available; delete one that was made here and gets no place."""
    where: dict[str, t.Any] = {"namespace": move.target.namespace, "name": move.target.name}
    why = None
    for late in ctx.poll(LOOK_EVERY_SECONDS, deadline - ctx.clock.now()):
        raw = run_reconcile.read(ctx, reservations.ref_of(name))
        if raw and reservations.phase(raw) == "Available":
            ctx.tell(
                phases.What.RESERVED,
                f"Reservation {name} has a place on node {reservations.node(raw)}",
                **where,
            )
            why = reservations.unusable(raw, t.cast("t.Any", move.pod))
            break
        text = reservations.unplaced(raw) if raw else "it is gone"
        if late or raw is None or reservations.phase(raw) in ("Failed", "Succeeded"):
            why = reasons.Reason(
                "unschedulable" if text else "no_scheduler",
                f"Reservation {name} got no place: {text or 'no scheduler has handled it'}.",
                "Make room, change the template, or check that koord-scheduler runs.",
            )
            break
        if text:
            text = f"Reservation {name} has no place yet: {text}"
            ctx.tell_changed(phases.What.RESERVING, text, **where)
    if why:
        if made:
            run_job_writes.free(ctx, name)
        move.close(outcomes.JobOutcome.FAILED, f"{move.target} gets no job:", why)


def _decided(
    ctx: run_context.Context, options: JobOptions, found: run_installed.Koordinator
) -> list[run_job_moves.JobMove]:
    named = _named(ctx, options, found)
    moves = [
        run_job_moves.JobMove(job.pod, name=job.name, job=job, state="following") for job in named
    ]
    if not moves and options.name:
        missing = run_job_moves.JobMove(objects.Ref("Pod", ""), name=options.name)
        message = f"There is no job {options.name}."
        if options.state == "absent":
            missing.close(outcomes.JobOutcome.ALREADY_ABSENT, message)
        else:
            missing.close(
                outcomes.JobOutcome.NOT_FOUND,
                f"{message} Jobs are deleted five minutes after their ttl.",
            )
        return [missing]
    if not moves:
        return []
    lengths = [job.ttl for job in named]
    deadline = _deadline(ctx, options, max(lengths) if all(lengths) else None)
    if options.state == "present":
        batch = run_job_moves.JobMoves(ctx, moves, options.settings, found.controller)
        if ctx.check or not options.wait:
            batch.start()
            return moves
        with run_job_cache.watched(ctx, found.controller) as looks:
            batch.follow(looks, deadline)
        return moves
    why = f"Rejected by {ctx.by}" + (
        f": {options.settings.reason}" if options.settings.reason else ""
    )
    decision = JobDecision(ctx, options.state, moves, why)
    with run_job_cache.watched(ctx, found.controller) as looks:
        decision.carry_out(looks, deadline, options.wait)
        moving = (outcomes.JobOutcome.APPROVED, outcomes.JobOutcome.ALREADY_APPROVED)
        approved = [move for move in moves if move.outcome in moving] if options.wait else []
        if ctx.check:
            for move in approved:
                move.outcome = outcomes.JobOutcome.MOVED
        elif approved:
            for move in approved:
                move.state = "following"
                move.outcome = None
            run_job_moves.JobMoves(ctx, approved, options.settings, found.controller).follow(
                looks, deadline
            )
    return moves


def _named(
    ctx: run_context.Context, options: JobOptions, found: run_installed.Koordinator
) -> list[migration_jobs.Job]:
    """The jobs selected by their own name, else the newest of each pod, else all of the run."""
    if options.name:
        return [job for job in found.jobs if job.name == options.name]
    selection, run = options.selection, options.settings.run
    if selection == targets.Selection():
        return [job for job in found.jobs if job.labels.get(migration_jobs.RUN_LABEL) == run]
    refs = selection.pods
    if not refs:
        snapshot = snapshots.Snapshot.of(run_listing.lists(ctx.cluster, ("pods",)))
        selected, _refused = targets.targets(snapshot, selection)
        refs = tuple(target.ref for target in selected)
    wanted = {(ref.namespace, ref.name): ref.uid for ref in refs}
    newest: dict[tuple[str, str], migration_jobs.Job] = {}
    for job in sorted(found.jobs, key=lambda job: (job.created, job.name)):
        key = (job.pod.namespace, job.pod.name)
        if key in wanted and (not wanted[key] or job.pod.uid in ("", wanted[key])):
            newest[key] = job
    return list(newest.values())


def _events(ctx: run_context.Context) -> dict[str, list[objects.Raw]]:
    """The events of jobs by UID, if they may be read; of cluster-scoped objects, in ``default``."""
    fields = f"involvedObject.kind={kinds.PODMIGRATIONJOBS.kind}"
    try:
        listed = ctx.cluster.items(
            kinds.EVENTS, namespace="default", fields=fields, patience=client.NO_PATIENCE
        ).items
    except errors.ClusterError:
        return {}
    found: dict[str, list[objects.Raw]] = {}
    for event in listed:
        shown = {
            "type": event.get("type") or "",
            "reason": event.get("reason") or "",
            "message": event.get("message") or "",
            "at": event.get("lastTimestamp") or event.get("eventTime") or "",
            "from": (event.get("source") or {}).get("component")
            or event.get("reportingComponent")
            or "",
        }
        found.setdefault((event.get("involvedObject") or {}).get("uid") or "", []).append(shown)
    return {
        uid: sorted(events, key=lambda event: event["at"]) for uid, events in found.items() if uid
    }
