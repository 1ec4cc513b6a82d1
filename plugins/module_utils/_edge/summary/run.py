# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What came of a run of ``maintain``: of its waves, and of what an earlier start had finished."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.summary import replies


def run(
    answers: replies.Answers,
    *,
    batches: t.Sequence[t.Sequence[str]],
    waves: t.Sequence[t.Mapping[str, t.Any]],
    taken_up: t.Sequence[replies.Answer],
    in_the_way: t.Sequence[str] = (),
    descheduler: str = "",
) -> dict[str, t.Any]:
    """The result of the run so far.

    ``answers`` are those of the last two calls, ``ended`` and ``report``, once they were made. ``batches`` are the
    planned waves, each with its controller host first, ``waves`` their results as {failed, stop} (``{}`` for one that
    did not start or end; no wave at all if the run did not start), ``taken_up`` the results for what an earlier start
    had finished, ``in_the_way`` why the run did not start, ``descheduler`` the error of its rollout. Returns

    * ``failed``: an entry about each node that is not where it should be, ``stops``: why waves did not start,
      ``left``: the nodes of waves that did not start for that or another reason;
    * ``clean``: every wave succeeded, so that the steps after the waves may run, ``well``: these succeeded too;
    * ``wrong``: the parts of the last message.
    """
    came = [wave for wave in waves if wave]
    of_waves = [entry for wave in came for entry in wave["failed"]]
    half_back = {entry["name"]: entry for entry in reversed(replies.failed(*taken_up))}
    failures = [*(half_back[name] for name in sorted(half_back)), *of_waves]
    stops = [wave["stop"] for wave in came if wave["stop"]]
    left = [node for batch, wave in zip(batches, waves, strict=False) if not wave for node in batch[1:]]
    wrong = [*in_the_way, *(entry["message"].strip() for entry in failures), *stops]
    if left and not stops:
        wrong.append(
            f"Not started, because of the failures above or because maintain_until has passed: {', '.join(left)}"
        )
    wrong.append(descheduler)
    ended, report = answers.get("ended"), answers.get("report")
    if ended and "nodes" not in ended and not ended.get("skipped"):
        wrong.append(ended["msg"])
    if report and "html" not in report:
        wrong.append(report["msg"])
    return {
        "failed": failures,
        "stops": stops,
        "left": left,
        "clean": not of_waves and not stops and not left,
        "well": not failures and not stops and not left and not descheduler,
        "wrong": [text for text in wrong if text],
    }
