# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What ``plan`` and ``recover`` show, line by line."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.summary import replies

FENCES = {
    "present": "The API server refuses evictions of a run that lost its lock.",
    "absent": "There is no fence in the API server. The playbook fence installs one.",
    "incomplete": "The fence in the API server is not whole. The playbook fence mends it.",
    "unknown": "Whether the API server holds a fence may not be read with these credentials.",
}


def plan(answers: replies.Answers) -> dict[str, list[str]]:
    """A preflight (``plan``): ``lines`` tell all of it, ``blockers`` what stands in the way, as sentences."""
    plan = answers["plan"]
    lines = [f"Wave {number}: {', '.join(wave)}" for number, wave in enumerate(plan.get("waves") or (), start=1)]
    lines += [": ".join((each["severity"], each["message"], each["remedy"])) for each in plan["findings"]]
    for pod in plan.get("pods") or ():
        if pod.get("fate"):
            lines.append(f"{pod['namespace']}/{pod['name']}: {pod['fate']['reason']}")
    lines.append(f"Emptying the nodes takes some {plan.get('estimate_seconds')} s.")
    lines.append(FENCES[plan.get("fence") or "unknown"])
    return {"lines": lines, "blockers": [replies.sentence(finding) for finding in replies.blockers(plan)]}


def traces(answers: replies.Answers, *, run: str = "", state: str = "") -> dict[str, list[str]]:
    """What earlier runs left (``listed``), of one run where it is named, as ``lines``; ``runs`` names all."""
    listed = answers["listed"]
    found = [trace for trace in listed["traces"] if run in ("", trace["run"])]
    lines = [_trace(trace) for trace in found]
    if lines and state == "listed":
        lines.append(
            "To undo what one run left: -e recover_run=<run>. To undo what dead runs left: -e recover_state=undone."
        )
    runs = dict.fromkeys(trace["run"] for trace in listed["traces"] if trace["run"])
    return {"lines": lines or ["Nothing was left by earlier runs."], "runs": list(runs)}


def _trace(trace: replies.Entry) -> str:
    words: list[t.Any] = [f"{trace['object']}: {trace['what']}"]
    words += [f"{word} {trace[key]}" for word, key in (("run", "run"), ("of", "by"), ("since", "since")) if trace[key]]
    return ", ".join([*words, "alive" if trace["alive"] else "nobody works on it"])
