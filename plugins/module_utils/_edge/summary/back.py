# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What came of nodes that ``release`` or ``recover`` brings back."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.summary import replies, wave
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import outcomes


def release(answers: replies.Answers, *, check: bool, broken: str = "") -> dict[str, t.Any]:
    """What came of a ``release`` so far, from what its calls answered and from the error of the one that ended it.

    * ``out``: the nodes in maintenance, ``in_service``: the others, ``at_goal``: an entry about each of these;
    * ``verified``: those that passed the gates, ``ready``: those to be tainted (in check mode no gate is asked),
      ``untainted``: those where that failed, ``give_back``: the rest of them;
    * ``not_back``: those that came back only half way;
    * ``failed``: an entry about each node that is still out.
    """
    words = ("plan", "returning", "verify", "taint", "guards", "uncordon")
    plan, returning, verify, taint, guards, uncordon = (answers[word] for word in words)
    in_service = [node for node in replies.entries(plan) if not node.get("record")]
    out = [node["name"] for node in replies.entries(plan) if node.get("record")]
    uncordoned, untainted = replies.passed(uncordon), replies.names(replies.failed(taint))
    ready = out if check else replies.passed(verify)
    # Nothing was touched of those that are somebody else's, and the refusal says how to take over.
    others = [
        each["name"] for each in replies.entries(returning, guards, uncordon) if each.get("outcome") in wave.OF_OTHERS
    ]
    told = replies.failed(returning, verify, taint, guards, uncordon)

    def failure(node: str) -> dict[str, t.Any]:
        said = [entry["message"] for entry in told if entry["name"] == node]
        said.append(broken or "It did not come through.")
        again = "" if node in others else "; release it again"
        message = f"{replies.ended(said[0])} Node {node} stays out of service{again}."
        return {"name": node, "failed": True, "outcome": outcomes.PlaybookOutcome.FAILED.value, "message": message}

    failures = [failure(node) for node in replies.without(out, uncordoned)]
    return {
        "out": out,
        "in_service": replies.names(in_service),
        "at_goal": [{**node, "outcome": outcomes.PlanOutcome.AT_GOAL.value} for node in in_service],
        "verified": replies.passed(verify),
        "ready": ready,
        "untainted": untainted,
        "give_back": replies.without(ready, untainted),
        "not_back": replies.without(replies.passed(returning), uncordoned),
        "failed": failures,
    }


def recovery(answers: replies.Answers, *, check: bool) -> dict[str, t.Any]:
    """What came of a ``recover`` so far, from what its calls answered.

    * ``to_verify``: the nodes that have to pass the gates, ``verified``: those that did, ``uncordoned``: those given
      back;
    * ``did``: what was done and what became of the nodes, as sentences, ``wrong``: all that the last message says.
    """
    words = ("recovered", "returning", "verify", "verify_parked", "guards", "uncordon", "again")
    recovered, returning, verify, verify_parked, guards, uncordon, again = (answers[word] for word in words)
    to_verify = [
        each["name"] for each in replies.entries(recovered) if each.get("outcome") == outcomes.StateOutcome.TO_VERIFY
    ]
    uncordoned = replies.passed(uncordon)
    not_back = replies.failed(returning, verify, guards, uncordon)
    calls = (recovered, returning, verify_parked, guards, uncordon, again)
    told = [each for each in replies.entries(recovered) if check or each["name"] not in to_verify]
    told += replies.entries(uncordon) + [each for each in not_back if each["name"] not in uncordoned]
    wrong = [each["message"] for each in not_back if each.get("outcome") != outcomes.StateOutcome.STILL_DEAD]
    return {
        "to_verify": to_verify,
        "verified": replies.passed(verify),
        "uncordoned": uncordoned,
        "did": [action for call in calls for action in call.get("actions") or ()] + [each["message"] for each in told],
        "wrong": replies.unique([recovered.get("msg", ""), again.get("msg", ""), *wrong]),
    }
