# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What came of the nodes that ``release`` or ``recover`` returns to service."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import outcomes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.waves import call_results


def release(answers: call_results.Answers, *, check: bool, broken: str = "") -> dict[str, t.Any]:
    """What came of a ``release`` so far; ``broken`` is the error of the call that ended it.

    * ``out``: the nodes in maintenance, ``in_service``: the others, ``at_goal``:
      an entry about each of these;
    * ``verified``: those that passed the gates, ``held``: those of them of which a hook failed,
      ``ready``: those to be tainted (check mode checks no gates), ``untainted``: those where that
      failed, ``give_back``: the others of them;
    * ``not_back``: those that returned only in part;
    * ``failed``: an entry about each node that is still out.
    """
    words = ("plan", "returning", "verify", "taint", "guards", "uncordon")
    plan, returning, verify, taint, guards, uncordon = (answers[word] for word in words)
    hooks = answers.get("hooks", {})
    held = call_results.names(call_results.failed(hooks))
    in_service = [node for node in call_results.entries(plan) if not node.get("record")]
    out = [node["name"] for node in call_results.entries(plan) if node.get("record")]
    uncordoned = call_results.passed(uncordon)
    untainted = call_results.names(call_results.failed(taint))
    ready = out if check else call_results.without(call_results.passed(verify), held)
    calls = (hooks, returning, verify, taint, guards, uncordon)
    messages = call_results.messages(call_results.failed(*calls))
    # Nodes of other runs were not changed, and the message says how to take them over.
    entries = call_results.entries(*calls)
    others = {one["name"] for one in entries if one.get("outcome") in call_results.OF_OTHERS}
    failures = []
    for node in call_results.without(out, uncordoned):
        why = call_results.reason(messages.get(node, ""), broken)
        again = "" if node in others else "Run release again."
        failures.append(call_results.failure(node, why, again))
    return {
        "out": out,
        "in_service": call_results.names(in_service),
        "at_goal": [{**node, "outcome": outcomes.PlanOutcome.AT_GOAL.value} for node in in_service],
        "verified": call_results.without(call_results.passed(verify), held),
        "held": held,
        "ready": ready,
        "untainted": untainted,
        "give_back": call_results.without(ready, untainted),
        "not_back": call_results.without(call_results.passed(returning), uncordoned),
        "failed": failures,
    }


def recovery(answers: call_results.Answers, *, check: bool) -> dict[str, t.Any]:
    """What came of a ``recover`` so far.

    * ``to_verify``: the nodes that have to pass the gates, ``verified``: those that did,
      ``uncordoned``: those that are in service;
    * ``did``: the actions and the results for the nodes, as sentences, ``wrong``:
      the parts of the last message.
    """
    recovered, returning, verify = (answers[x] for x in ("recovered", "returning", "verify"))
    parked, guards, uncordon = (answers[x] for x in ("verify_parked", "guards", "uncordon"))
    again = answers["again"]
    entries = call_results.entries(recovered)
    wanted = outcomes.StateOutcome.TO_VERIFY
    to_verify = [each["name"] for each in entries if each.get("outcome") == wanted]
    uncordoned = call_results.passed(uncordon)
    not_back = call_results.failed(returning, verify, guards, uncordon)
    calls = (recovered, returning, parked, guards, uncordon, again)
    told = [each for each in entries if check or each["name"] not in to_verify]
    told += call_results.entries(uncordon)
    told += [each for each in not_back if each["name"] not in uncordoned]
    dead = outcomes.StateOutcome.STILL_DEAD
    wrong = [each["message"] for each in not_back if each.get("outcome") != dead]
    did = [action for call in calls for action in call.get("actions") or ()]
    return {
        "to_verify": to_verify,
        "verified": call_results.passed(verify),
        "uncordoned": uncordoned,
        "did": did + [each["message"] for each in told],
        "wrong": call_results.unique([recovered.get("msg", ""), again.get("msg", ""), *wrong]),
    }
