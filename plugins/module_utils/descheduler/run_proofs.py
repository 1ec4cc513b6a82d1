# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Verifying that a descheduler runs the desired configuration, and finding out why it does not."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    objects,
    run_context,
    run_reconcile,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    installation,
    rollback_record,
    rollout,
    run_targets,
    running,
    schemas,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.koordinator import (
    run_configz,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    phases,
)

# Restarting a descheduler: the two kinds of restart, and the way back.


POLL_SECONDS = 1.0
"""Seconds between two reads."""


def restart(
    target: run_targets.DeschedulerTarget,
    digest: str,
    why: str,
    *,
    scale: bool,
    idle: bool,
    timeout: float,
) -> None:
    """Annotate the Deployment's pod template with the digest, so that its pods restart;
    ``idle``: it has none.

    ``scale`` terminates the old pods first. Then, and after a call that was killed in between,
    it is scaled up again.
    """
    journal = t.cast("rollback_record.Journal", target.journal)
    if scale and not idle:
        _scale_down(target, why, timeout)
    count = journal.replicas if (scale or not target.replicas) and not idle else None
    marks: dict[str, str | None] = {rollout.DIGEST: digest}
    if rollout.marks_of(target.workload)[rollout.DIGEST] == digest:
        marks[rollout.RESTARTED] = target.ctx.clock.wall()
    scaled = f" and scale it to {count} again" if count is not None else ""
    sentence = f"{'Annotate' if idle else 'Restart'} {target.ref}{scaled}: {why}"
    target.settle(_marked(target, marks, sentence, count))
    target.tell(outcomes.ConfigOutcome.RESTARTED, f"{'annotated' if idle else 'restarted'}: {why}")


def _scale_down(target: run_targets.DeschedulerTarget, why: str, timeout: float) -> None:
    ctx = target.ctx
    if target.switch("replicas", 0, f"Scale {target.ref} from {target.replicas} to 0: {why}"):
        target.tell(phases.What.SCALED, "scaled to 0")
    if ctx.check:
        return
    for late in ctx.poll(POLL_SECONDS, timeout):
        left = target.pods()
        if not left:
            break
        if late:
            message = f"{len(left)} pods of {target.ref} did not terminate within {timeout:.0f} s."
            remedy = "Find out why they do not terminate, then run again to continue."
            raise run_context.CallAborted("pods_stay", message, remedy, str(target.ref))
    target.reread()


def _marked(
    target: run_targets.DeschedulerTarget,
    marks: rollout.Marks,
    sentence: str,
    replicas: int | None,
    *,
    bare: bool = False,
) -> run_targets.Planned:
    """Sets our annotations, and ``replicas`` if the Deployment is scaled to 0."""

    def planned(workload: objects.Raw) -> api_changes.Change | None:
        present = workload["spec"].get("replicas", 1)
        count = None if present else replicas
        found = {**rollout.marks_of(workload), "replicas": present}
        wanted = {**found, **marks, "replicas": present if count is None else count}
        if found == wanted:
            return None
        body = rollout.marking(marks, bare=bare, replicas=count)
        before = {key: value for key, value in found.items() if value is not None}
        after = {key: value for key, value in wanted.items() if value is not None}
        return target.patch(workload, body, sentence, before, after)

    return planned


Parse = run_configz.Parse

STEADY_SECONDS = 10.0
"""Seconds that new pods must stay ready if their configuration cannot be read."""

LAST_LINES = 30

Kind = t.Literal["configz", "log", "lease", "ready", ""]

STRENGTH: tuple[Kind, ...] = ("", "ready", "lease", "log", "configz")


@dataclass(frozen=True, slots=True)
class Proof:
    """What is known of the running pods.

    ``kind`` is the weakest proof of any pod, ``comparison`` is ``None`` if no running configuration
    could be read. ``waiting`` says what is still missing (a leader),
    ``why`` why no stronger proof was possible.
    """

    kind: Kind
    comparison: running.Comparison | None
    waiting: str = ""
    why: str = ""

    @property
    def conflicts(self) -> tuple[str, ...] | None:
        """How the running configuration differs, ``None`` if it could not be read."""
        return self.comparison.conflicts if self.comparison else None


@dataclass
class Verification:
    """The verification of one desired configuration. ``proof`` is the latest one."""

    target: run_targets.DeschedulerTarget
    schema: schemas.Schema
    desired: t.Mapping[str, t.Any]
    parse: Parse
    proof: Proof | None = None

    def prove(self, pods: t.Sequence[objects.Raw]) -> Proof:
        """Read the configuration from the pods themselves or from their logs, and the Lease."""
        self.proof = self._proof(pods)
        return self.proof

    def _proof(self, pods: t.Sequence[objects.Raw]) -> Proof:
        waiting, kind = self._leader(pods)
        if self.target.flavor == "sigs" or not pods:
            return Proof(kind, None, waiting, "this descheduler does not publish its configuration")
        found = [self._one(pod) for pod in pods]
        why = next((why for _kind, _comparison, why in found if why), "")
        read = [(one, comparison) for one, comparison, _why in found if comparison]
        merged = running.Comparison.of_all([comparison for _kind, comparison in read])
        if merged.conflicts or len(read) == len(pods):
            return Proof(
                min((one for one, _comparison in read), key=STRENGTH.index), merged, waiting, why
            )
        return Proof(kind, None, waiting, why)

    def _one(self, pod: objects.Raw) -> tuple[Kind, running.Comparison | None, str]:
        found = run_configz.ask(
            self.target.ctx.cluster, pod, installation.port_of(self.desired), self.parse
        )
        comparison = None
        if found.config:
            comparison = running.compare(self.desired, found.config, self.schema)
        return found.kind, comparison, found.why

    def _leader(self, pods: t.Sequence[objects.Raw]) -> tuple[str, Kind]:
        """What one of the pods still lacks to lead, and what readiness and leader prove."""
        election = installation.election(self.desired, self.target.workload, self.target.flavor)
        if election is None:
            return "", "ready"
        try:
            lease = run_reconcile.read(self.target.ctx, election)
        except errors.Forbidden:
            # The result's ``proof`` shows that only readiness was checked.
            return "", "ready"
        if lease is None:
            return f"there is no {election} yet", ""
        waiting = rollout.leadership(lease, self.target.place.deployment, pods)
        return waiting, "" if waiting else "lease"

    def settled(self, within: float) -> rollout.Progress:
        """The progress once all pods are available, or after ``within`` seconds."""
        target, clock = self.target, self.target.ctx.clock
        deadline = clock.now() + within
        while True:
            progress = rollout.progress(target.workload, target.pods())
            if not progress.waiting or clock.now() >= deadline:
                return progress
            clock.sleep(POLL_SECONDS)
            target.reread()

    def failure(self, timeout: float, *, fresh: bool) -> tuple[str, str]:
        """Wait until the desired configuration runs; a message if it does not,
        and the reason. Both may be empty.

        If the running configuration cannot be read, ``fresh`` pods must stay ready for a while: the
        descheduler of sigs.k8s.io reports ready before it checks everything that its policy names.

        Raises:
            CallAborted: another call has taken the lock over, so that what runs is no longer ours.
        """
        target, clock = self.target, self.target.ctx.clock
        deadline = clock.now() + timeout
        announced, before, since = "", None, 0.0
        while True:
            if target.prove_lock:
                target.prove_lock()
            target.reread()
            progress = rollout.progress(target.workload, target.pods())
            waiting = progress.waiting or self._missing(progress.pods)
            restarts = rollout.restarts(progress.pods)
            proven = self.proof is not None and self.proof.comparison is not None
            if not waiting and (proven or not fresh):
                return "", ""
            now = clock.now()
            if waiting or restarts != before:
                before, since = restarts, now
            if not waiting and now - since >= STEADY_SECONDS:
                return "", ""
            if progress.crash_looping or now >= deadline + (0.0 if waiting else STEADY_SECONDS):
                self.proof = None
                ended = "" if progress.crash_looping else f" within {timeout:.0f} s"
                words = last_words(target, progress.dead)
                detail = f" ({waiting or _STAYING})"
                if words:
                    detail = f" {progress.dead[0].pod} said: {words}"
                message = f"The new configuration does not run{ended}.{detail}"
                return message, words or message
            if (waiting or _STAYING) != announced:
                announced = waiting or _STAYING
                target.tell(phases.What.WAITING, f"waiting: {announced}")
            clock.sleep(POLL_SECONDS)

    def _missing(self, pods: t.Sequence[objects.Raw]) -> str:
        """What the available pods still lack."""
        proof = self.prove(pods)
        return proof.waiting or (
            f"another configuration runs ({proof.conflicts[0]})" if proof.conflicts else ""
        )


_STAYING = "the new pods must stay ready for a while"


def last_words(
    target: run_targets.DeschedulerTarget, dead: t.Sequence[rollout.TerminatedContainer]
) -> str:
    """Why a new pod's container terminated, by its termination message or the end of its log."""
    for found in dead:
        if words := rollout.last_words(found.words):
            return words
    for found in dead:
        for previous in (found.previous, not found.previous):
            request = verbs.pod_log(
                target.place.namespace,
                found.pod,
                found.container,
                previous=previous,
                tail_lines=LAST_LINES,
            )
            try:
                words = rollout.last_words(target.ctx.cluster.text(request))
            except errors.ClusterError:
                # Only a better message is lost: that the container terminated is reported anyway.
                continue
            if words:
                return words
    return ""


# The way back from a configuration that does not run: ConfigMap and Deployment as they were.


ROLLED_BACK_WITHIN_SECONDS = 40.0
"""Seconds to wait for the restored configuration to run."""


def roll_back(
    verification: Verification, journal: rollback_record.Journal, ours: t.Collection[str]
) -> str:
    """Restore what the journal holds, and tell what was restored.

    A ConfigMap whose text is neither the old one nor one with a digest of ``ours`` is kept. A pause
    that was there before stays stored.

    Raises:
        CallAborted: another call took the lock over.
        ClusterError: the server refused, or could not be reached.
    """
    target, kept = verification.target, False
    if target.text != journal.config:
        means = None if target.text is None else verification.parse(target.text)
        kept = rollout.digest(means) not in ours or not _restored(target, journal)
    sentence = f"Restore {target.ref}"
    # Also the replicas, if we scaled the Deployment to 0.
    target.settle(_marked(target, journal.marks, sentence, journal.replicas, bare=journal.bare))
    target.reread()
    waiting = verification.settled(within=ROLLED_BACK_WITHIN_SECONDS).waiting
    if kept:
        restored, works = f"{target.ref} is restored", "its pods run"
    else:
        restored, works = f"ConfigMap and {target.ref} are restored", "the old one runs"
    restored += f", but {waiting}" if waiting else f", and {works}"
    target.tell(outcomes.ConfigOutcome.ROLLED_BACK, f"rolled back: {restored}")
    run_targets.leave(target, journal.ended(journal.resumes) if journal.stays_paused else None)
    if kept:
        return f"{restored}. Someone else changed the ConfigMap meanwhile; that was kept."
    return f"{restored}."


def _restored(target: run_targets.DeschedulerTarget, journal: rollback_record.Journal) -> bool:
    """Restore the ConfigMap, unless somebody changed it meanwhile; whether it is as before."""
    try:
        target.write(
            journal.config,
            target.text,
            f"Restore {target.place.map_name}",
            had_map=journal.had_map,
            had_data=journal.had_data,
        )
    except run_targets.ChangedMeanwhileError:
        return False
    return True
