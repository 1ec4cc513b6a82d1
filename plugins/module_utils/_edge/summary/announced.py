# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What the playbooks announce: when a maintenance takes place, and where its webhook is."""

from __future__ import annotations

import datetime
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import announce_input, window_input
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge.summary import replies


def announced(
    answers: replies.Answers,
    *,
    wanted: t.Mapping[str, t.Any],
    now: float | str,
    seconds: t.Sequence[float] = (),
) -> dict[str, t.Any]:
    """The ``webhook`` of the input (``wanted``) as the role takes it, ``{}`` without one, and the time of the
    maintenance, from ``start`` to ``end`` in RFC 3339, in which it takes its ``duration``.

    ``seconds`` is the forecast for each wave. With maintenance windows the time is the open one in which the first wave
    fits, otherwise from ``now`` (seconds since the epoch) until all waves are done. ``answers`` may have a ``plan``,
    whose forecast counts if ``seconds`` does not say more.
    """
    work = wanted["tasks_estimate"] if wanted["tasks"] or wanted["reboot"] else 0
    forecast = list(seconds) or [each + work for each in answers.get("plan", {}).get("wave_seconds") or ()]
    start = datetime.datetime.fromtimestamp(float(now), datetime.UTC)
    end = start + datetime.timedelta(seconds=sum(forecast))
    if wanted["window"] and (found := window_input.fitting(wanted["window"], now, next(iter(forecast), 0.0))):
        start, end = found
    return {
        "webhook": announce_input.webhook(wanted),
        "start": start.isoformat(timespec="milliseconds"),
        "end": end.isoformat(timespec="milliseconds"),
        "duration": f"{round(sum(forecast))}s" if forecast else "",
    }
