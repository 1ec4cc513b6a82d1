# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Verifying that a descheduler runs the desired configuration, and finding out why it does not."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import (
    places,
    rollout,
    running,
    schemas,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects, phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import configz, writing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.descheduler import restarting, targets

Parse = configz.Parse

STEADY = 10.0
"""Seconds that new pods must stay ready if their configuration cannot be read."""

LAST_LINES = 30

Kind = t.Literal["configz", "log", "lease", "ready", ""]

STRENGTH: tuple[Kind, ...] = ("", "ready", "lease", "log", "configz")


@dataclass(frozen=True, slots=True)
class Proof:
    """What is known of the running pods.

    ``kind`` is the weakest proof of any pod, ``comparison`` is ``None`` if no running configuration could be read.
    ``waiting`` says what is still missing (a leader), ``why`` why no stronger proof was possible.
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
    """Of one desired configuration. ``proof`` is the latest one."""

    target: targets.DeschedulerTarget
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
            return Proof(min((one for one, _comparison in read), key=STRENGTH.index), merged, waiting, why)
        return Proof(kind, None, waiting, why)

    def _one(self, pod: objects.Raw) -> tuple[Kind, running.Comparison | None, str]:
        found = configz.told(self.target.ctx.cluster, pod, places.port_of(self.desired), self.parse)
        return found.kind, running.compare(self.desired, found.config, self.schema) if found.config else None, found.why

    def _leader(self, pods: t.Sequence[objects.Raw]) -> tuple[str, Kind]:
        """What one of the pods still lacks to lead, and the proof that readiness and leader give."""
        election = places.election(self.desired, self.target.workload, self.target.flavor)
        if election is None:
            return "", "ready"
        try:
            lease = writing.read(self.target.ctx, election)
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
            clock.sleep(restarting.POLL)
            target.reread()

    def failure(self, timeout: float, *, fresh: bool) -> tuple[str, str]:
        """Wait until the desired configuration runs; a message if it does not, and the reason. Both may be empty.

        If the running configuration cannot be read, ``fresh`` pods must stay ready for a while: the descheduler of
        sigs.k8s.io reports ready before it checks everything that its policy names.

        Raises:
            StopRun: another call has taken the lock over, so that what runs is no longer ours.
        """
        target, clock = self.target, self.target.ctx.clock
        deadline = clock.now() + timeout
        announced, held, since = "", None, 0.0
        while True:
            if target.fence:
                target.fence()
            target.reread()
            progress = rollout.progress(target.workload, target.pods())
            waiting, restarts = progress.waiting or self._missing(progress.pods), rollout.restarts(progress.pods)
            proven = self.proof is not None and self.proof.comparison is not None
            if not waiting and (proven or not fresh):
                return "", ""
            now = clock.now()
            if waiting or restarts != held:
                held, since = restarts, now
            if not waiting and now - since >= STEADY:
                return "", ""
            if progress.hopeless or now >= deadline + (0.0 if waiting else STEADY):
                self.proof = None
                ended = "" if progress.hopeless else f" within {timeout:.0f} s"
                words = last_words(target, progress.dead)
                detail = f" {progress.dead[0].pod} said: {words}" if words else f" ({waiting or _STAYING})"
                message = f"The new configuration does not run{ended}.{detail}"
                return message, words or message
            if (waiting or _STAYING) != announced:
                announced = waiting or _STAYING
                target.tell(phases.What.WAITING, f"waiting: {announced}")
            clock.sleep(restarting.POLL)

    def _missing(self, pods: t.Sequence[objects.Raw]) -> str:
        """What the available pods still lack."""
        proof = self.prove(pods)
        return proof.waiting or (f"another configuration runs ({proof.conflicts[0]})" if proof.conflicts else "")


_STAYING = "the new pods must stay ready for a while"


def last_words(target: targets.DeschedulerTarget, dead: t.Sequence[rollout.Dead]) -> str:
    """Why a new pod's container terminated, by its termination message or else the end of its log."""
    for found in dead:
        if words := rollout.last_words(found.words):
            return words
    for found in dead:
        for previous in (found.previous, not found.previous):
            request = verbs.pod_log(
                target.place.namespace, found.pod, found.container, previous=previous, tail_lines=LAST_LINES
            )
            try:
                words = rollout.last_words(target.ctx.cluster.text(request))
            except errors.ClusterError:
                # Only a better message is lost: that the container terminated is reported anyway.
                continue
            if words:
                return words
    return ""
