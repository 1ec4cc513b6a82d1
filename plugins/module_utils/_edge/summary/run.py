# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What came of a run of ``maintain``: of its waves, and of what an earlier start had finished."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import window_input
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.summary import replies
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import commands

CONTINUES = (
    " Run the same command again then; if that is more than 24 hours after the start of this run, with "
    "-e maintain_run=<id>, as printed at its start."
)
REPAIRED = "Once the cause is removed, run the same command again."


def run(
    answers: replies.Answers,
    *,
    batches: t.Sequence[t.Sequence[str]],
    waves: t.Sequence[t.Mapping[str, t.Any]],
    taken_up: t.Sequence[replies.Answer],
    in_the_way: t.Sequence[str] = (),
    left_out: t.Sequence[str] = (),
    descheduler: str = "",
    soaks: t.Iterable[str] = (),
    finished: t.Sequence[str] = (),
    seconds: t.Sequence[float] = (),
    window: t.Sequence[t.Mapping[str, t.Any]] = (),
    until: float | str | None = None,
    now: float | str = 0.0,
) -> dict[str, t.Any]:
    """The result of the run so far.

    ``answers`` are those of the last two calls, ``ended`` and ``report``, once they were made. ``batches`` are the
    planned waves, each with its controller host first, ``waves`` their results as ``came`` has them (``{}`` for one
    that did not start or end; no wave at all if the run did not start), ``taken_up`` the results for what an earlier
    start had ``finished``, ``in_the_way`` why the run did not start, ``left_out`` why nodes join no wave, ``soaks``
    what failed in them, ``descheduler`` the error of its rollout. ``seconds`` is the forecast for each batch,
    ``window`` and ``until`` are of the input, ``now`` is the time since the epoch. Returns

    * ``failed``: an entry about each node that is not where it should be, ``stops``: why waves did not start, and
      ``left``: their nodes, and those of waves that did not start for another reason;
    * ``told``: the results of all waves, ``back``: the nodes at their goal, ``release``: what returns evacuated ones;
    * ``closed``: why the next wave may not start now, by the maintenance windows;
    * ``clean``: every wave succeeded, so that the steps after the waves may run, ``well``: these succeeded too, and
      ``wrong``: the parts of the last message.
    """
    came = [wave for wave in waves if wave]
    omitted = replies.unique([*left_out, *(text for wave in came for text in wave.get("left_out", ()))])
    of_waves = [entry for wave in came for entry in wave["failed"]]
    half_back = {entry["name"]: entry for entry in reversed(replies.failed(*taken_up))}
    failures = [*dict(sorted(half_back.items())).values(), *of_waves]
    stops = [*filter(None, (wave["stop"] for wave in came)), *(soaked := replies.unique(soaks))]
    left = [node for batch, wave in zip(batches, waves, strict=False) if not wave for node in batch[1:]]
    ahead = [each for index, each in enumerate(seconds) if index >= len(waves) or not waves[index]]
    closed = window_input.closed(window, now, ahead[0]) if ahead else ""
    wrong = [*in_the_way, *(entry["message"].strip() for entry in failures), *stops, *omitted]
    if left and (soaked or not stops):
        then = f"{closed}{CONTINUES}" if closed else _why_not(failures, until, float(now))
        wrong.append(f"Not started: {', '.join(left)}. {REPAIRED if soaked else then}")
    wrong += [descheduler, *_not_ended(answers)]
    return {
        "failed": failures,
        "stops": stops,
        "left": left,
        "told": [answer for wave in came for answer in wave.get("told", ())],
        "back": (back := [*finished, *(node for wave in came for node in wave.get("back", ()))]),
        "release": commands.release(back),
        "closed": closed,
        "clean": not of_waves and not stops and not left,
        "well": not failures and not stops and not left and not omitted and not descheduler,
        "wrong": [text for text in wrong if text],
    }


def _not_ended(answers: replies.Answers) -> list[str]:
    """What the last calls said that failed."""
    calls = ((answers.get(call) or {}, key) for call, key in (("ended", "nodes"), ("report", "html")))
    return [answer["msg"] for answer, key in calls if answer and key not in answer and not answer.get("skipped")]


def _why_not(failures: t.Sized, until: float | str | None, now: float) -> str:
    """Why waves did not start, as far as it is known."""
    why = ["of the failures above"] if failures else []
    if until not in (None, "") and float(until) < now:
        why.append("maintain_until has passed")
    return f"Because {', or because '.join(why)}." if why else "The run ended before; see the output above."


def soak(answers: replies.Answers) -> dict[str, str]:
    """What failed in a soak (``soaked``), as ``text``; empty if the gates held all the time."""
    answer = answers["soaked"]
    if "nodes" not in answer:
        return {"text": f"The soak was not watched to its end: {answer['msg']}"}
    failed = " ".join(replies.unique(entry["message"] for entry in replies.failed(answer)))
    return {"text": f"A gate failed in the soak: {failed} No further wave starts." if failed else ""}
