# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What came of a run of ``maintain``: of its waves, and of what an earlier start had finished."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import details
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    commands,
    outcomes,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import (
    arguments_window,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.waves import call_results
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.waves import wave as way

CONTINUES = (
    " Run the same command again then; if that is more than 24 hours after the start of this run, "
    "with -e maintain_run=<id>, as printed at its start."
)
REPAIRED = "Once the cause is removed, run the same command again."


def run(
    answers: call_results.Answers,
    *,
    batches: t.Sequence[t.Sequence[str]],
    waves: t.Sequence[call_results.Answer],
    backs: t.Sequence[call_results.Answer] = (),
    taken_up: t.Sequence[call_results.Answer],
    in_the_way: t.Sequence[str] = (),
    left_out: t.Sequence[str] = (),
    descheduler: str = "",
    soaks: t.Iterable[call_results.Answer] = (),
    finished: t.Sequence[str] = (),
    seconds: t.Sequence[float] = (),
    window: t.Sequence[t.Mapping[str, t.Any]] = (),
    until: float | str | None = None,
    now: float | str = 0.0,
) -> dict[str, t.Any]:
    """The result of the run so far.

    ``answers`` are those of the last two calls, ``ended`` and ``report``, once they were made.
    ``batches`` are the planned waves, each with its controller host first, ``waves`` their results
    of the way out, ``backs`` of the way back (``{}`` for a call that was not made; no wave at all
    if the run did not start), ``taken_up`` the results for what an earlier start had ``finished``,
    ``in_the_way`` why the run did not start, ``left_out`` why nodes join no wave, ``soaks`` the
    results of these, ``descheduler`` the error of its rollout. ``seconds`` is the forecast for each
    batch, ``window`` and ``until`` are of the input, ``now`` is the time since the epoch. Returns

    * ``failed``: an entry about each node that is not where it should be, ``stops``: why waves did
      not start, and ``left``: their nodes, and those of waves that did not
      start for another reason;
    * ``told``: the results of all waves, ``back``: the nodes at their goal, ``release``: what
      returns evacuated ones;
    * ``closed``: why the next wave may not start now, by the maintenance windows;
    * ``clean``: every wave succeeded, so that the steps after the waves may run, ``well``: these
      succeeded too, and ``wrong``: the parts of the last message.
    """
    came: list[_Came] = []
    for index, out in enumerate(waves):
        if out:
            returned = backs[index] if index < len(backs) else {}
            came.append(_Came(batches[index][1:], out, returned))
    of_calls = (text for each in came for text in each.last.get("left_out", ()))
    omitted = call_results.unique([*left_out, *of_calls])
    of_waves = [entry for each in came for entry in each.failed]
    half_back = {entry["name"]: entry for entry in reversed(call_results.failed(*taken_up))}
    failures = [*dict(sorted(half_back.items())).values(), *of_waves]
    soaked = call_results.unique(map(_soaked, soaks))
    stops = [*filter(None, (each.last.get("stop") for each in came)), *soaked]
    left = list[str]()
    for batch, wave in zip(batches, waves, strict=False):
        left += [] if wave else batch[1:]
    back = [*finished, *(node for each in came for node in each.last.get("back", ()))]
    ahead = [each for index, each in enumerate(seconds) if index >= len(waves) or not waves[index]]
    closed = arguments_window.closed(window, now, ahead[0]) if ahead else ""
    wrong = [*in_the_way, *(entry["message"].strip() for entry in failures), *stops, *omitted]
    if left and (soaked or not stops):
        then = f"{closed}{CONTINUES}" if closed else _why_not(failures, until, float(now))
        wrong.append(f"Not started: {', '.join(left)}. {REPAIRED if soaked else then}")
    wrong += [descheduler, *_not_ended(answers)]
    return {
        "failed": failures,
        "stops": stops,
        "left": left,
        "told": [answer for each in came for answer in each.told],
        "back": back,
        "release": commands.release(back),
        "closed": closed,
        "clean": not of_waves and not stops and not left,
        "well": not failures and not stops and not left and not omitted and not descheduler,
        "wrong": [text for text in wrong if text],
    }


class _Came(t.NamedTuple):
    """A wave of these nodes, and the results of its calls; without a way back in check mode."""

    nodes: t.Sequence[str]
    out: call_results.Answer
    back: call_results.Answer

    @property
    def last(self) -> call_results.Answer:
        return self.back if "nodes" in self.back else self.out

    @property
    def failed(self) -> list[call_results.Entry]:
        """An entry about each node that is not where it should be."""
        found = call_results.failed(self.last)
        if "nodes" not in self.out:
            # That call could not begin, so nothing was written.
            return [call_results.failure(node, self.out["msg"], None) for node in self.nodes]
        if self.back and "nodes" not in self.back and not self.back.get("skipped"):
            ready = self.out.get("ready") or ()
            return [*found, *(way.kept_out(node, self.back["msg"]) for node in ready)]
        return found

    @property
    def told(self) -> list[call_results.Answer]:
        """The results for the report, with what came of the nodes at the end."""
        return [*details.told(self.last), {"nodes": self.failed}]


def _not_ended(answers: call_results.Answers) -> list[str]:
    found = []
    for call, key in (("ended", "nodes"), ("report", "html")):
        answer = answers.get(call)
        if answer and key not in answer and not answer.get("skipped"):
            found.append(answer["msg"])
    return found


def _why_not(failures: t.Sized, until: float | str | None, now: float) -> str:
    why = ["of the failures above"] if failures else []
    if until not in (None, "") and float(until) < now:
        why.append("maintain_until has passed")
    if not why:
        return "The run ended before; see the output above."
    return f"Because {', or because '.join(why)}."


def _soaked(answer: call_results.Answer) -> str:
    """What failed in a soak; empty if the gates held all the time, or there was none."""
    if not answer or answer.get("skipped"):
        return ""
    if "nodes" not in answer:
        return f"The soak was not watched to its end: {answer['msg']}"
    messages = (entry["message"] for entry in call_results.failed(answer))
    failed = " ".join(call_results.unique(messages))
    return f"A gate failed in the soak: {failed} No further wave starts." if failed else ""


# How a run of ``maintain`` starts: which nodes are left to do, and in which batches of hosts.


def start(
    answers: call_results.Answers,
    *,
    hosts: t.Collection[str],
    wanted: t.Mapping[str, t.Any],
    out_of_reach: t.Mapping[str, str] | None = None,
    now: float | str = 0.0,
    check: bool = False,
) -> dict[str, t.Any]:
    """What is left to do, from an earlier start (``listed``) and the plan for what it did
    not finish (``plan``).

    ``hosts`` are the hosts of the inventory, ``wanted`` is the input, ``out_of_reach`` says by host
    why tasks cannot run there (empty: they can), ``now`` is the time since the epoch. Returns

    * ``finished``: the nodes that the earlier start has finished. Those of them that are still out
      of service with its record are ``half_back``; those that no other run has taken out are
      uncordoned once more (``give_back``);
    * ``waves``: the nodes left to do, and ``batches``: the same, each with its controller host
      first. The nodes are hosts of a batch only if something runs on hosts:
      ``sizes`` says how many hosts each has;
    * ``hosts``: the hosts of these nodes, with addresses for those that are not in the inventory,
      and ``members``: all hosts of the batches in order. ``adopt`` says that no node of the batch
      belongs to a run other than the one named, whose tasks are known to be over by that;
    * ``seconds``: the forecast for each batch, with the work on its hosts;
    * ``runs``: the runs that had left nodes out of service before, by node;
    * ``replanned``: what the plan says otherwise without the nodes that are left out because their
      hosts are out of reach;
    * ``left_out``: why wanted nodes join no wave, ``in_the_way``: what prevents the maintenance;
    * ``closed``: why the first wave may not start now, by the maintenance windows, which prevents
      it except in check mode.
    """
    listed, plan = answers["listed"], answers["plan"]
    resumable = listed.get("resumable") or {}
    finished = list(resumable.get("finished") or ())
    own, others = _out(listed["traces"], resumable.get("run") or "")
    unreached = {host: why for host, why in (out_of_reach or {}).items() if why}
    skipped = unreached if wanted["on_blocked"] == "skip" else {}
    left = _left(plan, [*finished, *skipped])
    waves = [wave for wave, _seconds in left]
    numbered = enumerate(waves, 1 + (resumable.get("waves_done") or 0))
    batches = [[f"maintenance-wave-{number}", *wave] for number, wave in numbered]
    manned = batches if wanted["on_hosts"] else [batch[:1] for batch in batches]
    work = wanted["tasks_estimate"] if wanted["has_work"] else 0
    seconds = [moves + work for _wave, moves in left]
    closed = arguments_window.closed(wanted["window"], now, seconds[0]) if seconds else ""
    planned = {node["name"]: node for node in plan.get("nodes") or ()}
    runs = {name: node["record"]["run"] for name, node in planned.items() if node.get("record")}
    omitted, blockers = list[str](), list[str]()
    if plan.get("feasible"):
        omitted += call_results.left_out(plan)
    else:
        blockers += call_results.short(call_results.blockers(plan))
    blockers += [] if skipped else unreached.values()
    blockers += [f"{closed} Nothing was changed."] if closed and not check else []
    return {
        "finished": finished,
        "half_back": call_results.unique(node for node in own if node in finished),
        "give_back": call_results.without(finished, others),
        "waves": waves,
        "batches": batches,
        "sizes": [len(batch) for batch in manned],
        "seconds": seconds,
        "hosts": [_host(node, hosts, planned) for wave in waves for node in wave],
        "members": [
            {**_host(name, hosts, planned), **_place(name, batch, runs, wanted["run"])}
            for batch, some in zip(batches, manned, strict=True)
            for name in some
        ],
        "runs": runs,
        "replanned": _without(plan, skipped),
        "left_out": [*omitted, *skipped.values()],
        "in_the_way": blockers,
        "closed": closed,
    }


def _place(
    name: str, batch: t.Sequence[str], runs: t.Mapping[str, str], named: str
) -> dict[str, t.Any]:
    """What a host of the batch is there for; ``runs`` are those of nodes that are out of service,
    ``named`` the one that the input names.
    """
    nodes = batch[1:]
    adopt = bool(named) and all(runs.get(node, named) == named for node in nodes)
    return {"leads": name == batch[0], "nodes": nodes, "adopt": adopt}


def _host(
    name: str, hosts: t.Container[str], planned: t.Mapping[str, call_results.Answer]
) -> dict[str, str]:
    """A host; its address only where the inventory does not have it."""
    address = "" if name in hosts else planned.get(name, {}).get("address") or ""
    return {"name": name, "address": address}


def _out(traces: t.Sequence[t.Mapping[str, t.Any]], run: str) -> tuple[list[str], list[str]]:
    """The nodes that are out of service by the record of this run, and of another."""
    found = [trace for trace in traces if trace["kind"] == "Node"]
    own, others = list[str](), list[str]()
    for trace in found:
        (own if trace["run"] == run else others).extend(trace.get("nodes") or ())
    return own, others


def _left(plan: call_results.Answer, over: t.Container[str]) -> list[tuple[list[str], float]]:
    """The waves of the plan without the nodes that are over, each with its forecast."""
    waves = zip(plan.get("waves") or (), plan.get("wave_seconds") or (), strict=True)
    rest = (([node for node in wave if node not in over], seconds) for wave, seconds in waves)
    return [(wave, seconds) for wave, seconds in rest if wave]


def _without(plan: call_results.Answer, unreached: t.Mapping[str, str]) -> dict[str, t.Any]:
    """What a plan says without nodes whose hosts are ``unreached``, which has the reasons."""
    if not unreached:
        return {}
    waves = [[node for node in wave if node not in unreached] for wave in plan["waves"]]
    nodes = []
    for node in plan["nodes"]:
        why = unreached.get(node["name"])
        told = outcomes.entry(node["name"], outcomes.PlanOutcome.BLOCKED, why) if why else {}
        nodes.append({**node, **told})
    found: dict[str, t.Any] = {"nodes": nodes}
    for key in ("waves", "wave_seconds", "wave_ranges", "wave_parts"):
        values = zip(waves, waves if key == "waves" else plan.get(key) or (), strict=False)
        found[key] = [value for wave, value in values if wave]
    whole = [sum(each) for each in zip((0, 0), *found["wave_ranges"], strict=True)]
    return {**found, "estimate_seconds": sum(found["wave_seconds"]), "estimate_range": whole}
