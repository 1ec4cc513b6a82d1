# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What became of the requests that a load generator sent meanwhile.

Anybody's load generator may have written it, so each field is checked, and each text bounded.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import printable
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import model, read

SERVICES, FAILURES, LONGEST = 2000, 200, 200
"""Services of one verdict, failures that are kept of each, characters of a text."""


class BadTraffic(ValueError):
    """It does not have the documented shape; the text says where."""


def lines(raw: t.Any) -> tuple[model.TrafficLine, ...]:
    """A verdict on requests, one line for each Service and way to reach it.

    Raises:
        BadTraffic: a field is missing or has another type.
    """
    if not isinstance(raw, t.Mapping):
        raise BadTraffic("it has to be an object with began, ended and services")
    began, ended = _instant(raw, "began", ""), _instant(raw, "ended", "")
    services = _objects(raw.get("services"), "services")
    if len(services) > SERVICES:
        raise BadTraffic(f"services has {len(services):,} entries, at most {SERVICES:,} are read")
    return tuple(
        _line(each, f"services[{index}].", began, ended) for index, each in enumerate(services)
    )


def of_run(
    found: t.Iterable[model.TrafficLine], started: float | None, ended: float | None
) -> tuple[model.TrafficLine, ...]:
    """Those that were sent while the run went on, the Services that lost most first."""
    known = list(found)
    if started is not None and ended is not None:
        # Verdicts name whole seconds.
        known = [line for line in known if line.ended + 1.0 >= started and line.started <= ended]
    return tuple(sorted(known, key=lambda line: (-line.failed, line.service, line.via, line.kind)))


def _line(raw: t.Mapping[str, t.Any], place: str, began: float, ended: float) -> model.TrafficLine:
    service = _text(raw, "service", place)
    if not service:
        raise BadTraffic(f"{place}service is empty")
    sent, failed = _whole(raw, "sent", place), _whole(raw, "failed", place)
    if failed > sent:
        raise BadTraffic(f"{place}failed is {failed}, more than the {sent} that were sent")
    failures = _objects(raw.get("failures", []), f"{place}failures")
    kept = []
    for index, each in enumerate(failures[:FAILURES]):
        where = f"{place}failures[{index}]."
        kind = _text(each, "kind", where)
        count = _whole(each, "count", where)
        kept.append(model.LostRequests(at=_instant(each, "at", where), kind=kind, count=count))
    return model.TrafficLine(
        service=service,
        via=_text(raw, "via", place),
        kind=_text(raw, "kind", place),
        started=began,
        ended=ended,
        sent=sent,
        failed=failed,
        unanswered_seconds=_seconds(raw, "dark", place),
        slowest_seconds=_seconds(raw, "slowest", place),
        failures=tuple(sorted(kept, key=lambda each: (each.at, each.kind))),
    )


def _objects(value: t.Any, place: str) -> t.Sequence[t.Mapping[str, t.Any]]:
    if isinstance(value, (list, tuple)) and all(isinstance(each, t.Mapping) for each in value):
        return value
    raise BadTraffic(f"{place} has to be a list of objects")


def _text(raw: t.Mapping[str, t.Any], key: str, place: str) -> str:
    value = raw.get(key, "")
    if not isinstance(value, str):
        raise BadTraffic(f"{place}{key} has to be a string")
    return printable.line(value, LONGEST)


def _instant(raw: t.Mapping[str, t.Any], key: str, place: str) -> float:
    found = read.instant(raw.get(key))
    if found is None:
        raise BadTraffic(f"{place}{key} has to be a time such as 2026-11-26T13:47:00Z")
    return found


def _whole(raw: t.Mapping[str, t.Any], key: str, place: str) -> int:
    value = raw.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1e15:
        raise BadTraffic(f"{place}{key} has to be a whole number")
    return value


def _seconds(raw: t.Mapping[str, t.Any], key: str, place: str) -> float | None:
    value = raw.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e9:
        raise BadTraffic(f"{place}{key} has to be a number of seconds")
    return float(value)
