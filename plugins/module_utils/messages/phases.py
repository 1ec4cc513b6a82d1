# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The words of a timeline's events, and the phase of a node that an event begins.

The engine states both with every event, so that a report never has to infer one from a message.
"""

from __future__ import annotations

import enum
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import outcomes


class Phase(enum.StrEnum):
    """Where a node is between its cordon and its return, in the order in which it gets there."""

    CORDONED = "cordoned"
    PROTECTING = "protecting"
    DRAINING = "draining"
    DRAINED = "drained"
    OUT = "out"
    RETURNING = "returning"
    PARKED = "parked"
    BACK = "back"
    GONE = "gone"


PHASE_AFTER: t.Mapping[str, Phase] = {
    outcomes.CordonOutcome.CORDONED: Phase.CORDONED,
    outcomes.CordonOutcome.ALREADY_CORDONED: Phase.CORDONED,
    outcomes.DrainOutcome.DRAINED: Phase.DRAINED,
    outcomes.DrainOutcome.ALREADY_DRAINED: Phase.DRAINED,
    outcomes.CordonOutcome.OUT: Phase.OUT,
    outcomes.CordonOutcome.ALREADY_OUT: Phase.OUT,
    outcomes.CordonOutcome.RETURNING: Phase.RETURNING,
    outcomes.CordonOutcome.ALREADY_RETURNING: Phase.RETURNING,
    outcomes.CordonOutcome.PARKED: Phase.PARKED,
    outcomes.CordonOutcome.ALREADY_PARKED: Phase.PARKED,
    outcomes.CordonOutcome.UNCORDONED: Phase.BACK,
    outcomes.CordonOutcome.REPLACED: Phase.BACK,
    outcomes.CordonOutcome.GONE: Phase.GONE,
}
"""The phase of a node after an outcome; equal words of other lists, such as a drain's ``gone``,
mean the same phase.
"""


class What(outcomes.Outcome):
    """What an event tells of, where it is not an outcome;
    ``phase`` is the one that its node is in from then on.
    """

    phase: Phase | None

    def __new__(cls, word: str, meaning: str = "", phase: Phase | None = None) -> t.Self:
        """From what a member is defined with; a call with the word alone returns that member."""
        made = str.__new__(cls, word)
        made._value_ = word
        made.meaning = meaning
        made.phase = phase
        made.failed = made.moved = False
        return made

    WAITING = "waiting", "what the call waits for"
    SOAKING = (
        "soaking",
        "how long the gates of returned nodes still have to hold before the next wave",
    )
    PROGRESS = (
        "progress",
        "how many pods are left on the node, and what they wait for",
        Phase.DRAINING,
    )
    ALARM = "alarm", "why nothing has moved on for a while on the node", Phase.DRAINING
    NOTE = "note", "something worth knowing"
    NOT_FENCED = "not_fenced", "the fence in the API server could not be written"
    TAINTED = "tainted", "a fenced node got the taint out-of-service"
    PROTECTING = (
        "protecting",
        "what a workload still waits for before its pods can leave",
        Phase.PROTECTING,
    )
    GUARDED = "guarded", "a budget of ours was created for a workload", Phase.PROTECTING
    RAISED = "raised", "the replica count of a workload was raised", Phase.PROTECTING
    READY = "ready", "the replacement pods of a workload serve", Phase.PROTECTING
    FAILED = "failed", "the protection of a workload failed", Phase.PROTECTING
    LOWERED = (
        "lowered",
        "the replica count of a workload was lowered, which ends the pod on the node",
        Phase.DRAINING,
    )
    RELEASED = (
        "released",
        "a pod was let go by its ReplicaSet, which starts another one",
        Phase.DRAINING,
    )
    UNSERVED = (
        "unserved",
        "a pod was taken out of its Services, before its eviction",
        Phase.DRAINING,
    )
    REFUSED = "refused", "the eviction of a pod was refused", Phase.DRAINING
    EVICTED = "evicted", "the eviction of a pod was accepted", Phase.DRAINING
    GONE = "gone", "a pod is gone", Phase.DRAINING
    RESTORED = "restored", "a workload is as it was before its surge"
    GIVEN_BACK = "given_back", "a workload is as it was before its surge"
    KEPT = "kept", "an object stays, because somebody else changed it or it could not be written"
    HOOK = "hook", "where a hook of a pod or a node stands"
    JOB = "job", "where a PodMigrationJob stands"
    JOB_CREATED = "job_created", "a PodMigrationJob was created for a pod"
    JOB_FAILED = "job_failed", "a PodMigrationJob did not move its pod"
    FALLBACK = "fallback", "a pod is evicted instead of being moved by a PodMigrationJob"
    RESERVING = "reserving", "a Reservation has no place yet"
    RESERVED = "reserved", "a Reservation has a place"
    WRITTEN = "written", "the configuration of a descheduler was written"
    SCALED = "scaled", "a descheduler was scaled to 0"
    PREVIEW = "preview", "the dry run of a descheduler's configuration was started"
