# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What can become of each thing that a module tells an outcome of: the words of the results, and which are failures.

One word may be a failure in one call and none in another, so every kind of thing has its own closed list. The lists in
the modules' documentation are made from these.
"""

from __future__ import annotations

import enum
import typing as t


class Outcome(enum.StrEnum):
    """A word of a closed list; ``meaning`` explains it, ``failed`` says whether it makes its call fail.

    Results get ``value``, a plain string: Ansible refuses or tags what only inherits from it.
    """

    _value_: str
    meaning: str
    failed: bool

    def __new__(cls, word: str, meaning: str = "", failed: bool = False) -> t.Self:
        """From what a member is defined with; a call with the word alone gives that member."""
        made = str.__new__(cls, word)
        made._value_, made.meaning, made.failed = word, meaning, failed
        return made

    @classmethod
    def read(cls, word: str) -> t.Self | None:
        """The member for a word of a result; ``None`` where there is no such member."""
        return next((one for one in cls if one.value == word), None)


def word_of(outcome: Outcome | None) -> str:
    """The word as results have it; empty while nothing is decided."""
    return outcome.value if outcome else ""


def _failure(word: str, meaning: str) -> tuple[str, str, bool]:
    return word, meaning, True


class CordonOutcome(Outcome):
    """Of the nodes of ``node_cordon``."""

    CORDONED = "cordoned", "the node takes no new pods, and its record says whose it is"
    OUT = "out", "the node is handed over to the tasks on its host"
    RETURNING = "returning", "the node is on its way back"
    PARKED = "parked", "the node stays out of service"
    UNCORDONED = "uncordoned", "the node is in service again, without a record"
    ALREADY_CORDONED = "already_cordoned", "the node was cordoned, or is drained, already"
    ALREADY_OUT = "already_out", "the node was out already"
    ALREADY_RETURNING = "already_returning", "the node was returning already"
    ALREADY_PARKED = "already_parked", "the node was parked already"
    NOT_IN_MAINTENANCE = "not_in_maintenance", "the node has no record, so there was nothing of ours to undo"
    GONE = "gone", "the node does not exist any more"
    HELD = _failure("held", "another run works on the node")
    ADOPTED_BY = _failure("adopted_by", "another run took the node over")
    NOT_DRAINED = _failure("not_drained", "pods that have to go are still on the node")
    STILL_DEAD = _failure("still_dead", "the node was evacuated as dead, and its kubelet does not answer yet")
    NOT_IN_MAINTENANCE_YET = _failure("not_in_maintenance_yet", "the node has no record, so it was never taken out")
    FAILED = _failure("failed", "the API server refused, or the record cannot be read")


class TaintOutcome(Outcome):
    """Of the nodes of ``node_taint``."""

    PRESENT = "present", "the taints were set"
    ABSENT = "absent", "the taints were removed"
    EXACT = "exact", "the taints were changed to exactly those"
    ALREADY_PRESENT = "already_present", "the taints were there already"
    ALREADY_ABSENT = "already_absent", "the taints were not there"
    ALREADY_EXACT = "already_exact", "the node had exactly those taints already"
    REFUSED = _failure("refused", "a NoExecute taint became necessary only while the node was written")
    GONE = _failure("gone", "the node was deleted meanwhile")
    FAILED = _failure("failed", "the API server refused the change")


class GuardOutcome(Outcome):
    """Of the nodes of ``pdb_guard``."""

    PROTECTED = "protected", "the node's pods are protected"
    ALREADY_PROTECTED = "already_protected", "the node's pods were protected already, or need no protection"
    GIVEN_BACK = "given_back", "what protected the node's pods is given back"
    ALREADY_GIVEN_BACK = "already_given_back", "nothing protected the node's pods any more"
    NOT_IN_MAINTENANCE_ANY_MORE = (
        "not_in_maintenance_any_more",
        "the node has no record, and nothing protected its pods any more",
    )
    NOT_IN_MAINTENANCE = _failure("not_in_maintenance", "the node has no record; cordon it with node_cordon first")
    ADOPTED_BY = _failure("adopted_by", "another run took the node over")
    HELD = _failure("held", "another run works on the node")
    GONE = _failure("gone", "the node does not exist")
    BAD_RECORD = _failure("bad_record", "the node's record cannot be read")
    BLOCKED = _failure("blocked", "a workload could not be protected; its entry and a finding say why")
    TIMED_OUT = _failure("timed_out", "a workload was not protected in time, and its surge was taken back")
    NOT_GIVEN_BACK = _failure("not_given_back", "something that protected its pods is still there")
    FAILED = _failure("failed", "the API server refused, or could not be reached")


class WorkloadOutcome(Outcome):
    """Of the workloads of ``pdb_guard``, with their surges and their guards."""

    RAISED = "raised", "its surge serves, so its pods can leave"
    ALREADY_RAISED = "already_raised", "its surge served already"
    GUARDED = "guarded", "a guard, a budget of ours, was laid under it"
    ALREADY_GUARDED = "already_guarded", "its guard was there already"
    NOT_GUARDED = "not_guarded", "another budget covers pods of its selector, so it gets no guard"
    ENDED = "ended", "no pod of it has to leave any more, or it is gone"
    GIVEN_BACK = "given_back", "it is as it was before its surge"
    GIVEN_BACK_IN_PART = "given_back_in_part", "its surge goes on for other nodes"
    KEPT = "kept", "its surge is given back, but for what somebody else changed meanwhile"
    UNGUARDED = "unguarded", "its guard is given back"
    ADOPTED_BY = _failure("adopted_by", "another run has its surge or its nodes now")
    BAD_SURGE = _failure("bad_surge", "the record of its surge cannot be read")
    SURGE_DENIED = _failure("surge_denied", "the API server refuses to raise it")
    SURGE_REVERTED = _failure("surge_reverted", "somebody put its replica count back")
    SURGE_REFUSED = _failure("surge_refused", "one more pod of it is refused, by a quota or at admission")
    SURGE_PREEMPTS = _failure("surge_preempts", "its new pod would take the place of other pods")
    SURGE_UNSCHEDULABLE = _failure("surge_unschedulable", "its new pod has no place in the cluster")
    SURGE_ON_LEAVING_NODE = _failure("surge_on_leaving_node", "its new pod was placed on a node that takes no pods")
    GUARD_DENIED = _failure("guard_denied", "the API server refuses its guard")
    TIMED_OUT = _failure("timed_out", "it was not ready in time")
    UNDO_FAILED = _failure("undo_failed", "the API server refused to take its surge back")
    NOT_GIVEN_BACK = _failure("not_given_back", "its surge is still there")
    FAILED = _failure("failed", "something else ended the work on it")


class DrainOutcome(Outcome):
    """Of the nodes of ``node_drain``."""

    DRAINED = "drained", "the node is empty, and its record says so"
    ALREADY_DRAINED = "already_drained", "there was nothing to do"
    SELECTED_GONE = "selected_gone", "the selected pods are gone; others are left, so the node is not drained"
    GONE = "gone", "the node was deleted meanwhile"
    NOT_IN_MAINTENANCE = _failure("not_in_maintenance", "the node has no record; cordon it with node_cordon first")
    UNKNOWN_NODE = _failure("unknown_node", "there is no such node")
    HELD = _failure("held", "another run works on the node")
    ADOPTED_BY = _failure("adopted_by", "another run took the node over, or somebody gave it back")
    REFUSED = _failure("refused", "a pod may not be moved, so the node is left as it is")
    NEEDS_SURGE = _failure("needs_surge", "a pod leaves by a swap, which pdb_guard has to prepare first")
    NEEDS_GUARD = _failure("needs_guard", "a pod has no budget, so pdb_guard has to lay a guard first")
    TIMED_OUT = _failure("timed_out", "time is up; the message names what is left and what blocked it")
    FAILED = _failure("failed", "a pod could not be moved, or the API server refused")
    REPLACED = _failure("replaced", "the node was deleted, and another one is registered under its name")
    UNCORDONED = _failure("uncordoned", "somebody uncordoned the node, and it stays so")
    UNTAINTED = _failure("untainted", "somebody removed our taint, and it stays so")
    UNREACHABLE = _failure(
        "unreachable", "its kubelet does not answer, so what was told to end stays there; it is never waited for"
    )
    NOT_DEAD = _failure("not_dead", "O(fenced) names the node, and it lives")
    CAME_BACK = _failure("came_back", "the kubelet of a fenced node came back in the middle")


class PodOutcome(Outcome):
    """Of the pods of ``node_drain``; ``moved`` says that the pod has left its node."""

    moved: bool

    def __new__(cls, word: str, meaning: str = "", failed: bool = False, moved: bool = False) -> t.Self:
        """From what a member is defined with; a call with the word alone gives that member."""
        made = str.__new__(cls, word)
        made._value_, made.meaning, made.failed, made.moved = word, meaning, failed, moved
        return made

    EVICTED = "evicted", "our eviction ended it", False, True
    DELETED = "deleted", "our deletion ended it, past its budgets", False, True
    SWAPPED = "swapped", "a newcomer serves in its place", False, True
    MIGRATED = "migrated", "a PodMigrationJob moved it", False, True
    LET_GO = "let_go", "the API server let it go from a fenced node", False, True
    GONE = "gone", "it ended without us", False, True
    ALREADY_GONE = "already_gone", "it was gone when it was to be evicted", False, True
    MIRROR = "mirror", "it stays, because only its kubelet can end a static pod"
    DAEMONSET = "daemonset", "it stays, because its DaemonSet would put it back at once"
    NOT_SELECTED = "not_selected", "it stays, because it is not among the selected pods"
    TOLERATES_MAINTENANCE = "tolerates_maintenance", "it tolerates cordon and taint, so it is moved at most once"
    OUT_OF_SERVICE = "out_of_service", "it stays, because it tolerates the taint out-of-service of a fenced node"
    NOT_MOVED = "not_moved", "it is where it was, because its node was given up before its turn"
    STILL_ENDING = _failure("still_ending", "it was told to end, and was still there when its node was given up")
    REFUSED = _failure("refused", "it may not be moved")
    NEEDS_SURGE = _failure("needs_surge", "it leaves by a swap, which is not prepared")
    NEEDS_GUARD = _failure("needs_guard", "it has no budget and no guard")
    SWAP_FAILED = _failure("swap_failed", "its swap could not be ended")
    TWO_BUDGETS = _failure("two_budgets", "two budgets cover it, so no eviction of it can ever succeed")
    JOB_FAILED = _failure("job_failed", "its PodMigrationJob came to nothing, and no eviction was allowed instead")
    FAILED = _failure("failed", "the API server refused its eviction for good")


class JobOutcome(Outcome):
    """Of the jobs of ``pod_migration_job``."""

    MOVED = "moved", "the pod was moved"
    ALREADY_MOVED = "already_moved", "the pod had been moved already"
    GONE = "gone", "the pod ended otherwise before its job could move it"
    CREATED = "created", "without O(wait), the job was made"
    EXISTS = "exists", "without O(wait), the job was there already"
    PAUSED = "paused", "without O(wait), the job is paused and waits for approval"
    APPROVED = "approved", "the job goes on"
    ALREADY_APPROVED = "already_approved", "the job was not paused"
    REJECTED = "rejected", "the job was ended, and the pod stays where it is"
    ALREADY_REJECTED = "already_rejected", "the job had ended without moving the pod"
    ABSENT = "absent", "the job was deleted"
    ALREADY_ABSENT = "already_absent", "there was no such job"
    REFUSED = _failure("refused", "no job was made, see RV(jobs[].cause)")
    FAILED = _failure("failed", "the job has failed, or could not be made")
    TIMEOUT = _failure("timeout", "the module's time is up; the job goes on")
    NOT_READY = _failure("not_ready", "the pod was evicted, and no new pod is ready")
    DELETED = _failure("deleted", "somebody deleted the job before its end")
    NOT_FOUND = _failure("not_found", "there is no such job")
    TOO_LATE = _failure("too_late", "the pod is evicted already, and nothing undoes that")
    STILL_WAITING = _failure("still_waiting", "the job waits for arbitration or moves its pod, and was not written")


class PlanOutcome(Outcome):
    """Of the nodes of ``maintenance_plan``."""

    PLANNED = "planned", "the node can be taken out"
    AT_GOAL = "at_goal", "the node is out and empty already"
    BLOCKED = _failure("blocked", "a finding stands against taking the node out")
    UNKNOWN = _failure("unknown", "there is no such node")


class GateOutcome(Outcome):
    """Of the nodes of ``maintenance_plan`` where gates were asked for."""

    PASSED = "passed", "with O(gates), the node may take pods"
    FAILED = _failure("failed", "with O(gates), a gate does not hold")


class StateOutcome(Outcome):
    """Of the nodes of ``maintenance_state``, beside what ``node_cordon`` and ``pdb_guard`` say of their way back."""

    NOTED = "noted", "the node is noted as finished"
    LEFT = "left", "the node is left as it is; the message says why, and what gives it back"
    STILL_DEAD = "still_dead", "the node was evacuated as dead, and its kubelet does not answer yet"
    TO_VERIFY = "to_verify", "the node has to pass the gates before it takes pods, which recover and release see to"
    BAD_RECORD = _failure("bad_record", "the node's record cannot be read")
    HELD = _failure("held", "the node is locked by a run that lives")
    FAILED = _failure("failed", "the API server refused")


class PlaybookOutcome(Outcome):
    """Of the nodes for which a playbook speaks itself, at the end of a wave."""

    FAILED = _failure("failed", "the node did not come through")
    FAILED_TASKS = _failure("failed_tasks", "the user's tasks failed on the node")


class AccessOutcome(Outcome):
    """Of the objects of ``maintenance_access``."""

    CREATED = "created", "the object was made"
    CHANGED = "changed", "the object was changed to what it should be"
    DELETED = "deleted", "the object was deleted"
    ALREADY_PRESENT = "already_present", "the object was as it should be"
    ALREADY_ABSENT = "already_absent", "the object was not there"


class ConfigOutcome(Outcome):
    """Of the configuration of ``descheduler_config``."""

    RESTARTED = "restarted", "the configuration was written, and the descheduler runs with it"
    CHANGED = "changed", "the configuration was written, and no restart was needed or asked for"
    UNCHANGED = "unchanged", "there was nothing to do"
    VALID = "valid", "for O(state=validated), the configuration has no errors"
    INVALID = _failure("invalid", "the configuration is wrong, and nothing was written")
    ROLLED_BACK = _failure("rolled_back", "it did not run, and what was before is restored")
    FAILED = _failure("failed", "it does not run, and nothing was restored")


OF_NODES: tuple[type[Outcome], ...] = (
    CordonOutcome,
    TaintOutcome,
    GuardOutcome,
    DrainOutcome,
    PlanOutcome,
    GateOutcome,
    StateOutcome,
    PlaybookOutcome,
)
"""The lists for nodes, for whoever reads a result without knowing which module it is of."""
