# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The outcomes that modules return: the words, their meanings, and which are failures.

One word may be a failure of one module and not of another, so every kind of object has its own
closed list. The lists in the modules' documentation are these.
"""

from __future__ import annotations

import enum
import typing as t


class Outcome(enum.StrEnum):
    """A word of a closed list; ``meaning`` explains it,
    ``failed`` says whether it makes its call fail.

    ``moved``, of pods, says that the pod has left its node. Results get ``value``, a plain string:
    Ansible refuses or tags subclasses of it.
    """

    _value_: str
    meaning: str
    failed: bool
    moved: bool

    def __new__(
        cls, word: str, meaning: str = "", failed: bool = False, moved: bool = False
    ) -> t.Self:
        """From what a member is defined with; a call with the word alone returns that member."""
        made = str.__new__(cls, word)
        made._value_ = word
        made.meaning = meaning
        made.failed = failed
        made.moved = moved
        return made

    @classmethod
    def read(cls, word: str) -> t.Self | None:
        """The member for a word of a result; ``None`` where there is no such member."""
        return next((one for one in cls if one.value == word), None)


def word_of(outcome: Outcome | None) -> str:
    """The word as in results; empty while nothing is decided."""
    return outcome.value if outcome else ""


def entry(name: str, outcome: Outcome | None, message: str = "") -> dict[str, t.Any]:
    """What every result says of a node or an object."""
    return {
        "name": name,
        "outcome": word_of(outcome),
        "failed": outcome is not None and outcome.failed,
        "message": message,
    }


def _failure(word: str, meaning: str) -> tuple[str, str, bool]:
    return word, meaning, True


class CordonOutcome(Outcome):
    """Of the nodes of ``node_cordon``."""

    CORDONED = "cordoned", "the node takes no new pods, and its record names the run"
    OUT = "out", "the node is handed over to the tasks on its host"
    RETURNING = "returning", "the node is on its way back"
    PARKED = "parked", "the node stays out of service"
    UNCORDONED = "uncordoned", "the node is in service again, without a record"
    REPLACED = (
        "replaced",
        "the node was registered again while it was out, so nothing of its "
        "maintenance is left on it",
    )
    ALREADY_CORDONED = "already_cordoned", "the node was already cordoned or drained"
    ALREADY_OUT = "already_out", "the node was already out"
    ALREADY_RETURNING = "already_returning", "the node was already returning"
    ALREADY_PARKED = "already_parked", "the node was already parked"
    NOT_IN_MAINTENANCE = (
        "not_in_maintenance",
        "the node has no record, so there was nothing to undo",
    )
    GONE = "gone", "the node no longer exists"
    HELD = _failure("held", "another run works on the node")
    ADOPTED_BY = _failure("adopted_by", "another run took the node over")
    NOT_DRAINED = _failure("not_drained", "pods that have to leave are still on the node")
    STILL_DEAD = _failure(
        "still_dead", "the node was evacuated as dead, and its kubelet does not respond yet"
    )
    NOT_IN_MAINTENANCE_YET = _failure(
        "not_in_maintenance_yet", "the node has no record, so it was never taken out"
    )
    FAILED = _failure("failed", "the API server refused, or the record cannot be read")


class TaintOutcome(Outcome):
    """Of the nodes of ``node_taint``."""

    PRESENT = "present", "the taints were set"
    ABSENT = "absent", "the taints were removed"
    EXACT = "exact", "the taints were replaced by exactly these"
    ALREADY_PRESENT = "already_present", "the taints were already there"
    ALREADY_ABSENT = "already_absent", "the taints were not there"
    ALREADY_EXACT = "already_exact", "the node already had exactly these taints"
    REFUSED = _failure(
        "refused", "a NoExecute taint turned out to be necessary while the node was being changed"
    )
    GONE = _failure("gone", "the node was deleted meanwhile")
    FAILED = _failure("failed", "the API server refused the change")


class GuardOutcome(Outcome):
    """Of the nodes of ``pdb_guard``."""

    PROTECTED = "protected", "the node's pods are protected"
    ALREADY_PROTECTED = (
        "already_protected",
        "the node's pods were already protected, or need no protection",
    )
    GIVEN_BACK = "given_back", "the protection of the node's pods was removed"
    ALREADY_GIVEN_BACK = "already_given_back", "the node's pods were no longer protected"
    NOT_IN_MAINTENANCE_ANY_MORE = (
        "not_in_maintenance_any_more",
        "the node has no record, and its pods were no longer protected",
    )
    NOT_IN_MAINTENANCE = _failure(
        "not_in_maintenance", "the node has no record; cordon it with node_cordon first"
    )
    ADOPTED_BY = _failure("adopted_by", "another run took the node over")
    HELD = _failure("held", "another run works on the node")
    GONE = _failure("gone", "the node does not exist")
    BAD_RECORD = _failure("bad_record", "the node's record cannot be read")
    BLOCKED = _failure(
        "blocked", "a workload could not be protected; its entry and a finding say why"
    )
    TIMED_OUT = _failure(
        "timed_out", "a workload was not protected in time, and its surge was undone"
    )
    NOT_GIVEN_BACK = _failure("not_given_back", "part of the protection of its pods is still there")
    FAILED = _failure("failed", "the API server refused, or could not be reached")


class WorkloadOutcome(Outcome):
    """Of the workloads of ``pdb_guard``, with their surges and their guards."""

    RAISED = "raised", "its additional pods serve, so the leaving ones can be evicted"
    ALREADY_RAISED = "already_raised", "its additional pods were already serving"
    GUARDED = "guarded", "a guard, a budget of ours, was created for it"
    ALREADY_GUARDED = "already_guarded", "its guard already existed"
    NOT_GUARDED = "not_guarded", "another budget covers pods of its selector, so it gets no guard"
    ENDED = "ended", "none of its pods has to leave any more, or it is gone"
    GIVEN_BACK = "given_back", "its state before the surge is restored"
    KEPT = "kept", "its surge is undone, except for what somebody else changed meanwhile"
    INTERRUPTION_ALLOWED = (
        "interruption_allowed",
        "no second pod came to serve; as it may be interrupted, its pod is evicted",
    )
    UNGUARDED = "unguarded", "its guard was removed"
    ADOPTED_BY = _failure("adopted_by", "another run has its surge or its nodes now")
    BAD_SURGE = _failure("bad_surge", "the record of its surge cannot be read")
    SURGE_DENIED = _failure("surge_denied", "the API server refused to scale it")
    SURGE_REVERTED = _failure("surge_reverted", "somebody reset its replicas")
    SURGE_REFUSED = _failure(
        "surge_refused", "one more pod of it is rejected, by a quota or at admission"
    )
    SURGE_PREEMPTS = _failure("surge_preempts", "its new pod would preempt other pods")
    SURGE_UNSCHEDULABLE = _failure("surge_unschedulable", "its new pod cannot be scheduled")
    SURGE_NOT_STARTING = _failure("surge_not_starting", "its new pod does not start")
    SURGE_NOT_SCHEDULED = _failure("surge_not_scheduled", "no scheduler looks at its new pod")
    SURGE_ON_LEAVING_NODE = _failure(
        "surge_on_leaving_node", "its new pod was scheduled to a node that takes no pods"
    )
    GUARD_DENIED = _failure("guard_denied", "the API server rejected its guard")
    TIMED_OUT = _failure("timed_out", "it was not ready in time")
    UNDO_FAILED = _failure("undo_failed", "the API server refused to undo its surge")
    NOT_GIVEN_BACK = _failure("not_given_back", "its surge is still there")
    FAILED = _failure("failed", "something else ended the work on it")


class DrainOutcome(Outcome):
    """Of the nodes of ``node_drain``."""

    DRAINED = "drained", "the node is empty, and its record says so"
    ALREADY_DRAINED = "already_drained", "there was nothing to do"
    SELECTED_GONE = (
        "selected_gone",
        "the selected pods are gone; others are left, so the node is not drained",
    )
    GONE = "gone", "the node was deleted meanwhile"
    NOT_IN_MAINTENANCE = _failure(
        "not_in_maintenance", "the node has no record; cordon it with node_cordon first"
    )
    UNKNOWN_NODE = _failure("unknown_node", "there is no such node")
    HELD = _failure("held", "another run works on the node")
    ADOPTED_BY = _failure("adopted_by", "another run took the node over, or somebody gave it back")
    REFUSED = _failure("refused", "a pod may not be moved, so the node is left as it is")
    NEEDS_SURGE = _failure(
        "needs_surge", "a pod leaves by a surge, which pdb_guard has to prepare first"
    )
    NEEDS_GUARD = _failure(
        "needs_guard", "a pod has no budget, so pdb_guard has to create a guard first"
    )
    TIMED_OUT = _failure(
        "timed_out", "the timeout expired; the message names what is left and what blocked it"
    )
    FAILED = _failure("failed", "a pod could not be moved, or the API server refused")
    NO_ROOM = _failure(
        "no_room", "successors of its pods fit on no other node, so no more of its pods may leave"
    )
    REPLACED = _failure(
        "replaced", "the node was deleted, and another one is registered under its name"
    )
    UNCORDONED = _failure(
        "uncordoned", "somebody uncordoned the node, and it is not cordoned again"
    )
    UNTAINTED = _failure("untainted", "somebody removed our taint, and it is not set again")
    UNREACHABLE = _failure(
        "unreachable",
        "its kubelet does not respond, so its terminating pods stay; "
        "the drain does not wait for it",
    )
    NOT_DEAD = _failure("not_dead", "O(fenced) names the node, but it is alive")
    CAME_BACK = _failure("came_back", "the kubelet of a fenced node came back during the drain")


class PodOutcome(Outcome):
    """Of the pods of ``node_drain``."""

    EVICTED = "evicted", "our eviction ended it", False, True
    DELETED = "deleted", "our deletion ended it, without checking its budgets", False, True
    SURGED = "surged", "a new pod serves in its place", False, True
    REPLACED = "replaced", "another pod served before our eviction ended it", False, True
    MIGRATED = "migrated", "a PodMigrationJob moved it", False, True
    LET_GO = "let_go", "the API server removed it from a fenced node", False, True
    GONE = "gone", "it ended without our eviction", False, True
    ALREADY_GONE = "already_gone", "it was gone before it could be evicted", False, True
    CLEARED = "cleared", "it had finished before, and its object is deleted"
    MIRROR = "mirror", "it stays, because only its kubelet can stop a static pod"
    DAEMONSET = "daemonset", "it stays, because its DaemonSet would recreate it at once"
    NOT_SELECTED = "not_selected", "it stays, because it is not among the selected pods"
    LEFT_BY_RULE = "left_by_rule", "it stays, because a rule or an annotation says so"
    TOLERATES_MAINTENANCE = (
        "tolerates_maintenance",
        "it tolerates cordon and taint, so it is moved at most once",
    )
    OUT_OF_SERVICE = (
        "out_of_service",
        "it stays, because it tolerates the taint out-of-service of a fenced node",
    )
    NOT_MOVED = "not_moved", "it stays, because its node was given up before its turn"
    STILL_ENDING = _failure("still_ending", "it was still terminating when its node was given up")
    REFUSED = _failure("refused", "it may not be moved")
    NEEDS_SURGE = _failure("needs_surge", "it leaves by a surge, which is not prepared")
    NEEDS_GUARD = _failure("needs_guard", "it has no budget and no guard")
    SURGE_FAILED = _failure("surge_failed", "its surge could not be completed")
    TWO_BUDGETS = _failure(
        "two_budgets", "two budgets cover it, so no eviction of it can ever succeed"
    )
    DEADLINE = _failure("deadline", "the deadline of its rule or annotation has passed")
    OPERATOR_BUDGET = _failure("operator_budget", "its operator did not let it go in time")
    HOOK_FAILED = _failure("hook_failed", "a hook of it failed, or was not done by its deadline")
    JOB_FAILED = _failure(
        "job_failed", "its PodMigrationJob failed, and no eviction was allowed instead"
    )
    FAILED = _failure("failed", "the API server refused its eviction permanently")


class JobOutcome(Outcome):
    """Of the jobs of ``pod_migration_job``."""

    MOVED = "moved", "the pod was moved"
    ALREADY_MOVED = "already_moved", "the pod had been moved already"
    GONE = "gone", "the pod ended otherwise before its job could move it"
    CREATED = "created", "without O(wait), the job was created"
    EXISTS = "exists", "without O(wait), the job already existed"
    PAUSED = "paused", "without O(wait), the job is paused and waits for approval"
    APPROVED = "approved", "the job continues"
    ALREADY_APPROVED = "already_approved", "the job was not paused"
    REJECTED = (
        "rejected",
        "the job was ended, and the pod stays where it is; "
        "the call fails if it waited for the move",
    )
    ALREADY_REJECTED = "already_rejected", "the job had ended without moving the pod"
    ABSENT = "absent", "the job was deleted"
    ALREADY_ABSENT = "already_absent", "there was no such job"
    REFUSED = _failure("refused", "no job was created, see RV(jobs[].cause)")
    FAILED = _failure("failed", "the job has failed, or could not be created")
    TIMEOUT = _failure("timeout", "the timeout expired; the job continues")
    NOT_READY = _failure("not_ready", "the pod was evicted, and no new pod is ready")
    DELETED = _failure("deleted", "somebody deleted the job before its end")
    NOT_FOUND = _failure("not_found", "there is no such job")
    TOO_LATE = _failure("too_late", "the pod is already evicted, which cannot be undone")
    STILL_WAITING = _failure(
        "still_waiting", "the job waits for arbitration or moves its pod, and was not written"
    )


class HookOutcome(Outcome):
    """Of the nodes of ``maintenance_hooks``."""

    OK = "ok", "no hook of the node has failed"
    NOT_IN_MAINTENANCE = _failure(
        "not_in_maintenance", "the node has no record; cordon it with node_cordon first"
    )
    ADOPTED_BY = _failure("adopted_by", "another run took the node over")
    HELD = _failure("held", "another run works on the node")
    FAILED = _failure("failed", "a hook failed, or was not done by its deadline")


class PlanOutcome(Outcome):
    """Of the nodes of ``maintenance_plan``."""

    PLANNED = "planned", "the node can be taken out"
    AT_GOAL = "at_goal", "the node is already out and empty"
    BLOCKED = _failure("blocked", "a finding does not allow the node to be taken out")
    UNKNOWN = _failure("unknown", "there is no such node")


class GateOutcome(Outcome):
    """Of the nodes of ``node_ready``."""

    PASSED = "passed", "the node may take pods"
    FAILED = _failure("failed", "a gate does not hold")


class StateOutcome(Outcome):
    """Of the nodes of ``maintenance_state``, beside those of ``node_cordon`` and
    ``pdb_guard`` for their return.
    """

    NOTED = "noted", "the node is recorded as finished"
    LEFT = "left", "the node is left as it is; the message says why, and how to return it"
    STILL_DEAD = (
        "still_dead",
        "the node was evacuated as dead, and its kubelet does not respond yet",
    )
    TO_VERIFY = (
        "to_verify",
        "the node has to pass the gates before it takes pods; use recover or release",
    )
    BAD_RECORD = _failure("bad_record", "the node's record cannot be read")
    HELD = _failure("held", "a live run holds the lock of the node")
    FAILED = _failure("failed", "the API server refused")


class PlaybookOutcome(Outcome):
    """Of the nodes that a playbook itself reports at the end of a wave."""

    FAILED = _failure("failed", "the maintenance of the node failed")
    FAILED_TASKS = _failure("failed_tasks", "the user's tasks failed on the node")


class AccessOutcome(Outcome):
    """Of the objects of ``maintenance_access``."""

    CREATED = "created", "the object was created"
    CHANGED = "changed", "the object was changed to what it should be"
    DELETED = "deleted", "the object was deleted"
    ALREADY_PRESENT = "already_present", "the object was as it should be"
    ALREADY_ABSENT = "already_absent", "the object was not there"


class EventOutcome(Outcome):
    """Of the Events of ``maintenance_event``."""

    CREATED = "created", "the Event was created"
    ALREADY_CREATED = (
        "already_created",
        "another start of the run, or of the same plan, has created the Event",
    )
    FAILED = _failure("failed", "the Event could not be created")


class ConfigOutcome(Outcome):
    """Of the configuration of ``descheduler_config``."""

    RESTARTED = "restarted", "the configuration was written, and the descheduler runs with it"
    CHANGED = "changed", "the configuration was written, and no restart was needed or asked for"
    UNCHANGED = "unchanged", "there was nothing to do"
    VALID = "valid", "for O(state=validated), the configuration has no errors"
    PREVIEWED = (
        "previewed",
        "for O(state=previewed), RV(would_evict) says what it would evict; nothing was changed",
    )
    INVALID = _failure("invalid", "the configuration is wrong, and nothing was written")
    ROLLED_BACK = _failure("rolled_back", "it did not run, and the previous one is restored")
    FAILED = _failure("failed", "it does not run, and nothing was restored")


OF_NODES: tuple[type[Outcome], ...] = (
    CordonOutcome,
    TaintOutcome,
    GuardOutcome,
    DrainOutcome,
    PlanOutcome,
    GateOutcome,
    StateOutcome,
    HookOutcome,
    PlaybookOutcome,
)
"""The lists for nodes, to read a result of an unknown module."""
