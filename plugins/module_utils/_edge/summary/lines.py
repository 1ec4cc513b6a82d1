# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The lines that ``plan`` and ``recover`` show."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.summary import replies

FENCE = "ansible-playbook kubeops.node_maintenance.fence"
FENCES = {
    "present": "The API server refuses evictions from a run that has lost its lock.",
    "absent": f"The API server has no fence. Install it: {FENCE}",
    "incomplete": f"The fence in the API server is incomplete. Repair it: {FENCE}",
    "unknown": "These credentials do not allow reading whether the API server has a fence.",
}


def plan(answers: replies.Answers) -> dict[str, list[str]]:
    """A plan as ``lines``, and its ``blockers`` as sentences."""
    plan = answers["plan"]
    lines = [f"Wave {number}: {', '.join(wave)}" for number, wave in enumerate(plan.get("waves") or (), start=1)]
    lines += [": ".join((each["severity"], each["message"], each["remedy"])) for each in plan["findings"]]
    for pod in plan.get("pods") or ():
        if pod.get("fate"):
            lines.append(f"{pod['namespace']}/{pod['name']}: {pod['fate']['reason']}")
    lines.append(f"Draining the nodes takes about {plan.get('estimate_seconds')} s.")
    lines.append(FENCES[plan.get("fence") or "unknown"])
    return {"lines": lines, "blockers": [replies.sentence(finding) for finding in replies.blockers(plan)]}


def traces(answers: replies.Answers, *, run: str = "", state: str = "") -> dict[str, list[str]]:
    """What earlier runs left (``listed``), or one of them, as ``lines``; ``runs`` are the ids of all runs."""
    listed = answers["listed"]
    found = [trace for trace in listed["traces"] if run in ("", trace["run"])]
    lines = [_trace(trace) for trace in found]
    if lines and state == "listed":
        lines.append(
            "To undo what one run left: -e recover_run=<id>. What all dead runs left: -e recover_state=undone."
        )
    runs = dict.fromkeys(trace["run"] for trace in listed["traces"] if trace["run"])
    return {"lines": lines or ["Earlier runs left nothing."], "runs": list(runs)}


def _trace(trace: replies.Entry) -> str:
    words: list[t.Any] = [f"{trace['object']}: {trace['what']}"]
    words += [
        f"{word} {trace[key]}" for word, key in (("run", "run"), ("started by", "by"), ("since", "since")) if trace[key]
    ]
    return ", ".join([*words, "its run is alive" if trace["alive"] else "no live run"])
