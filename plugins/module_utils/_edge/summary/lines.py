# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The lines that ``plan`` and ``recover`` show."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import window_input
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.summary import replies
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import commands
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.report import text

PARTS = {
    "steps": "cordon and proof",
    "notice": "notice",
    "starts": "starts",
    "stops": "stops",
    "budgets": "budgets",
    "jobs": "jobs",
}
"""What a wave is made of, in words."""
BUDGETS_SHOWN = 5
WAVES_SHOWN, WAVES_OF_MANY = 12, 3
"""So many waves are all told, of more than these the first ``WAVES_OF_MANY``."""
FATES_SHOWN = 5
RUNS_SHOWN = 5
FENCE = "ansible-playbook kubeops.node_maintenance.fence"
FENCES = {
    "present": "The API server refuses evictions from a run that has lost its lock.",
    "absent": f"The API server has no fence. Install it: {FENCE}",
    "incomplete": f"The fence in the API server is incomplete. Repair it: {FENCE}",
    "unknown": "These credentials do not allow reading whether the API server has a fence.",
}


def plan(
    answers: replies.Answers, *, wanted: t.Mapping[str, t.Any] | None = None, now: float | str = 0.0
) -> dict[str, list[str]]:
    """A plan as ``lines`` and its ``blockers`` as sentences; ``says`` is what a last message says of these.

    With ``wanted``, the input, and ``now``, seconds since the epoch, also whether the maintenance window is open.
    """
    plan = answers["plan"]
    blockers = replies.blockers(plan)
    lines = [*_waves(plan), *_budgets(plan), *(replies.left_out(plan) if plan.get("feasible") else ())]
    lines += [*replies.notes(plan, "warning"), *replies.notes(plan, "info")]
    fates = [pod for pod in plan.get("pods") or () if pod.get("fate")]
    lines += [f"{pod['namespace']}/{pod['name']}: {pod['fate']['reason']}" for pod in fates[:FATES_SHOWN]]
    lines += replies.more(len(fates) - FATES_SHOWN, "pod")
    if plan.get("estimate_seconds"):
        lines.append(f"Draining the nodes takes {_about(plan['estimate_seconds'], plan.get('estimate_range') or ())}.")
    if wanted and wanted["window"] and plan.get("waves"):
        work = wanted["tasks_estimate"] if wanted["tasks"] or wanted["reboot"] else 0
        closed = window_input.closed(wanted["window"], now, plan["wave_seconds"][0] + work)
        lines.append(closed or "The maintenance window is open for the first wave.")
    lines.append(FENCES[plan.get("fence") or "unknown"])
    return {
        "lines": lines,
        "blockers": [replies.sentence(finding) for finding in blockers],
        "says": replies.short(blockers),
    }


def _waves(plan: t.Mapping[str, t.Any]) -> list[str]:
    """The nodes of each wave, what it takes, and why it comes after others."""
    reasons = {wait["node"]: wait["reason"] for wait in plan.get("waits") or ()}
    keys = ("waves", "wave_seconds", "wave_ranges", "wave_parts")
    waves, seconds, ranges, parts = (plan.get(key) or () for key in keys)
    lines = []
    shown = waves if len(waves) <= WAVES_SHOWN else waves[:WAVES_OF_MANY]
    for number, wave in enumerate(shown, start=1):
        line = f"Wave {number}: {', '.join(wave)}"
        if number <= min(len(seconds), len(ranges), len(parts)):
            made_of = (f"{PARTS[key]} {value:g} s" for key, value in parts[number - 1].items() if value)
            line += f" ({_about(seconds[number - 1], ranges[number - 1])}: {', '.join(made_of)})"
        why = text.waiting({node: reasons.get(node, "") for node in wave}, most=1)
        lines.append(f"{line}; {why}" if why else line)
    return lines + replies.more(len(waves) - len(shown), "wave")


def _about(seconds: int, limits: t.Sequence[int]) -> str:
    """What is expected, and what is possible if that is not the same."""
    expected = f"about {seconds} s" if seconds < 60 else f"about {text.duration(seconds)}"
    return expected if len(set(limits)) < 2 else f"{expected}, {text.between(*limits)} possible"


def _budgets(plan: t.Mapping[str, t.Any]) -> list[str]:
    """The budgets that hold pods back; those that block are findings, too."""
    held = [one for one in plan.get("budgets") or () if not one["blocks"]]
    lines = []
    for one in sorted(held, key=lambda one: -one["seconds"])[:BUDGETS_SHOWN]:
        what = f"the guard of {one['workload']}" if one["guard"] else f"budget {one['namespace']}/{one['name']}"
        pods = f"{one['pods']} {'pod' if one['pods'] == 1 else 'pods'}"
        pace = f"{one['allowed']} at a time, {one['seconds']:g} s" if one["allowed"] else "none allowed at the moment"
        lines.append(f"Wave {one['wave']} waits for {what}: {pods}, {pace}.")
    hidden = len(held) - BUDGETS_SHOWN
    return lines + ([f"It waits for budgets {hidden} more times, for a shorter time each."] if hidden > 0 else [])


def traces(answers: replies.Answers, *, run: str = "", state: str = "") -> dict[str, list[str]]:
    """What earlier runs left (``listed``), or one of them, as ``lines``; ``runs`` are the ids of all runs."""
    listed = answers["listed"]
    found = [trace for trace in listed["traces"] if run in ("", trace["run"])]
    lines = [_trace(trace) for trace in found] + (_commands(found) if state == "listed" else [])
    runs = dict.fromkeys(trace["run"] for trace in listed["traces"] if trace["run"])
    return {"lines": lines or ["Earlier runs left nothing."], "runs": list(runs)}


def _commands(found: t.Sequence[replies.Entry]) -> list[str]:
    """What to do about what was left."""
    parked = [node for trace in found if trace.get("step") == "parked" for node in trace["nodes"]]
    dead = [trace for trace in found if not trace["alive"]]
    runs = list(dict.fromkeys(trace["run"] for trace in dead if trace["run"]))
    lines = [f"To return {', '.join(parked)} to service: {commands.release(parked)}"] if parked else []
    lines += [f"To undo what run {run} left: {commands.undo(run)}" for run in runs[:RUNS_SHOWN]]
    return lines + ([f"To undo what all dead runs left: {commands.UNDO_ALL}"] if dead else [])


def _trace(trace: replies.Entry) -> str:
    words: list[t.Any] = [f"{trace['object']}: {trace['what']}"]
    words += [
        f"{word} {trace[key]}" for word, key in (("run", "run"), ("started by", "by"), ("since", "since")) if trace[key]
    ]
    return ", ".join([*words, "its run is alive" if trace["alive"] else "no live run"])
