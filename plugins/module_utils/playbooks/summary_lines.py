# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The lines that ``plan`` and ``recover`` show, and what playbooks announce: when a maintenance
takes place, and where its webhook is.
"""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    commands,
    outcomes,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import (
    arguments_window,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import (
    arguments_announcements,
    text,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.waves import call_results

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
    answers: call_results.Answers,
    *,
    wanted: t.Mapping[str, t.Any] | None = None,
    now: float | str = 0.0,
) -> dict[str, list[str]]:
    """A plan as ``lines`` and its ``blockers`` as sentences;
    ``says`` is what a last message says of these.

    With ``wanted``, the input, and ``now``, seconds since the epoch,
    also whether the maintenance window is open.
    """
    plan = answers["plan"]
    blockers = call_results.blockers(plan)
    lines = [*_waves(plan), *_budgets(plan)]
    lines += call_results.left_out(plan) if plan.get("feasible") else ()
    lines += [*call_results.notes(plan, "warning"), *call_results.notes(plan, "info")]
    fates = [pod for pod in plan.get("pods") or () if pod.get("fate")]
    for pod in fates[:FATES_SHOWN]:
        lines.append(f"{pod['namespace']}/{pod['name']}: {pod['fate']['reason']}")
    lines += call_results.more(len(fates) - FATES_SHOWN, "pod")
    if plan.get("estimate_seconds"):
        takes = _about(plan["estimate_seconds"], plan.get("estimate_range") or ())
        lines.append(f"Draining the nodes takes {takes}.")
    if wanted and wanted["window"] and plan.get("waves"):
        work = wanted["tasks_estimate"] if wanted["tasks"] or wanted["reboot"] else 0
        closed = arguments_window.closed(wanted["window"], now, plan["wave_seconds"][0] + work)
        lines.append(closed or "The maintenance window is open for the first wave.")
    lines.append(FENCES[plan.get("fence") or "unknown"])
    return {
        "lines": lines,
        "blockers": [call_results.sentence(finding) for finding in blockers],
        "says": call_results.short(blockers),
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
            part = parts[number - 1].items()
            made_of = (f"{PARTS[key]} {value:g} s" for key, value in part if value)
            line += f" ({_about(seconds[number - 1], ranges[number - 1])}: {', '.join(made_of)})"
        why = text.waiting({node: reasons.get(node, "") for node in wave}, most=1)
        lines.append(f"{line}; {why}" if why else line)
    return lines + call_results.more(len(waves) - len(shown), "wave")


def _about(seconds: int, limits: t.Sequence[int]) -> str:
    """The expected duration, and the possible ones if they differ."""
    expected = f"about {seconds} s" if seconds < 60 else f"about {text.duration(seconds)}"
    return expected if len(set(limits)) < 2 else f"{expected}, {text.between(*limits)} possible"


def _budgets(plan: t.Mapping[str, t.Any]) -> list[str]:
    """The budgets that hold pods back; those that block are findings, too."""
    held = [one for one in plan.get("budgets") or () if not one["blocks"]]
    lines = []
    for one in sorted(held, key=lambda one: -one["seconds"])[:BUDGETS_SHOWN]:
        what, pace = f"budget {one['namespace']}/{one['name']}", "none allowed at the moment"
        if one["guard"]:
            what = f"the guard of {one['workload']}"
        if one["allowed"]:
            pace = f"{one['allowed']} at a time, {one['seconds']:g} s"
        pods = text.count(one["pods"], "pod")
        lines.append(f"Wave {one['wave']} waits for {what}: {pods}, {pace}.")
    hidden = len(held) - BUDGETS_SHOWN
    if hidden > 0:
        lines.append(f"It waits for budgets {hidden} more times, for a shorter time each.")
    return lines


def traces(
    answers: call_results.Answers, *, run: str = "", state: str = ""
) -> dict[str, list[str]]:
    """What earlier runs left (``listed``), or one of them, as ``lines``."""
    listed = answers["listed"]
    found = [trace for trace in listed["traces"] if run in ("", trace["run"])]
    lines = [_trace(trace) for trace in found] + (_commands(found) if state == "listed" else [])
    return {"lines": lines or ["Earlier runs left nothing."]}


def _commands(found: t.Sequence[call_results.Entry]) -> list[str]:
    """What to do about what was left."""
    parked = [node for trace in found if trace.get("step") == "parked" for node in trace["nodes"]]
    dead = [trace for trace in found if not trace["alive"]]
    runs = list(dict.fromkeys(trace["run"] for trace in dead if trace["run"]))
    lines = []
    if parked:
        lines = [f"To return {', '.join(parked)} to service: {commands.release(parked)}"]
    lines += [f"To undo what run {run} left: {commands.undo(run)}" for run in runs[:RUNS_SHOWN]]
    return lines + ([f"To undo what all dead runs left: {commands.UNDO_ALL}"] if dead else [])


def _trace(trace: call_results.Entry) -> str:
    words: list[t.Any] = [f"{trace['object']}: {trace['what']}"]
    facts = {"run": trace["run"], "started by": trace["by"], "since": trace["since"]}
    words += [f"{word} {fact}" for word, fact in facts.items() if fact]
    return ", ".join([*words, "its run is alive" if trace["alive"] else "no live run"])


def recovery(answers: call_results.Answers, *, check: bool) -> dict[str, list[str]]:
    """What came of a ``recover`` so far: of undoing what was left (``recovered``, ``again``), and
    of returning through their gates the nodes that need it (``released``).

    * ``to_verify``: these nodes;
    * ``did``: the actions and the results for the nodes, as sentences, ``wrong``:
      the parts of the last message.
    """
    recovered, released, again = (answers[call] for call in ("recovered", "released", "again"))
    entries = call_results.entries(recovered)
    wanted = outcomes.StateOutcome.TO_VERIFY
    to_verify = [each["name"] for each in entries if each.get("outcome") == wanted]
    told = [each for each in entries if check or each["name"] not in to_verify]
    told += call_results.entries(released)
    # They died, or were deleted, meanwhile.
    absent = (outcomes.CordonOutcome.STILL_DEAD, outcomes.CordonOutcome.GONE)
    returning = call_results.entries(released.get("answers", {}).get("returning", {}))
    excused = [each["name"] for each in returning if each["outcome"] in absent]
    failed = call_results.failed(released)
    wrong = [each["message"] for each in failed if each["name"] not in excused]
    steps = [recovered, *released.get("steps", ()), again]
    return {
        "to_verify": to_verify,
        "did": [
            *(action for step in steps for action in step.get("actions") or ()),
            *(each["message"] for each in told),
        ],
        "wrong": call_results.unique([recovered.get("msg", ""), again.get("msg", ""), *wrong]),
    }


def announced(
    answers: call_results.Answers,
    *,
    moment: str,
    wanted: t.Mapping[str, t.Any],
    now: float | str,
    seconds: t.Sequence[float] = (),
    resumed: bool = False,
) -> dict[str, t.Any]:
    """The ``webhook`` of the input (``wanted``) as the module takes it, ``{}`` without one, and the
    time of a maintenance that lies ahead, from ``start`` to ``end`` in RFC 3339, in which it takes
    its ``duration``. What has ended or failed was when the report says; what is ``resumed`` has
    begun before.

    ``seconds`` is the forecast for each wave. With maintenance windows the time is the open one in
    which the first wave fits, otherwise from ``now`` (seconds since the epoch) until all waves are
    done. ``answers`` may have a ``plan``, whose forecast counts if ``seconds`` does not say more.
    """
    webhook = arguments_announcements.webhook(wanted)
    if moment not in ("planned", "started"):
        return {"webhook": webhook, "start": "", "end": "", "duration": ""}
    work = wanted["tasks_estimate"] if wanted["tasks"] or wanted["reboot"] else 0
    planned = answers.get("plan", {}).get("wave_seconds") or ()
    forecast = list(seconds) or [each + work for each in planned]
    start = datetime.datetime.fromtimestamp(float(now), datetime.UTC)
    end = start + datetime.timedelta(seconds=sum(forecast))
    first = forecast[0] if forecast else 0.0
    found = arguments_window.fitting(wanted["window"], now, first) if wanted["window"] else None
    if found:
        start, end = found
    return {
        "webhook": webhook,
        "start": "" if resumed else start.isoformat(timespec="milliseconds"),
        "end": end.isoformat(timespec="milliseconds"),
        "duration": f"{round(sum(forecast))}s" if forecast else "",
    }
