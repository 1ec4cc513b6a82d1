# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The outcome of a rehearsal, and of the real run beside it, from ``report.json``."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.rehearsal import (
    notes,
    snapshot_files,
)

Raw = t.Mapping[str, t.Any]
Json = dict[str, t.Any]

VERSION = 1
"""Of ``rehearsal.json``: increases when a field changes its meaning or is removed."""
REPORT_VERSION = 1
CLOSE = 0.2
"""Which part of the rehearsed seconds the real ones may differ by and still count as foreseen."""


class NoReportError(ValueError):
    """It is no report of this version; the text says what it is instead."""


def rehearsed(report: Raw, not_rehearsed: t.Sequence[str] = ()) -> Json:
    """What a run came to: whether it ``finished`` or is ``blocked``, by what, its waves,
    times and thin services.

    Raises:
        NoReportError: ``report`` is no report of this collection, or of another version.
    """
    if not isinstance(report, t.Mapping) or "totals" not in report:
        raise NoReportError("It is no report of this collection. Give the report.json of a run.")
    if report.get("version") != REPORT_VERSION:
        raise NoReportError(
            f"It is a report of version {report.get('version')}; this release reads "
            f"{REPORT_VERSION}."
        )
    waves: dict[int, list[str]] = {}
    for node in report["nodes"]:
        if node["wave"]:
            waves.setdefault(node["wave"], []).append(node["name"])
    findings = set()
    for finding in report["findings"]:
        findings |= {(finding["severity"], finding["code"], name) for name in _objects(finding)}
    blocking = sorted(one for one in findings if one[0] == "blocker")
    blockers: list[Json] = [{"code": code, "object": name} for _severity, code, name in blocking]
    for refusal in report["refusals"]:
        if refusal["stuck"]:
            by = refusal["blocker"] or refusal["rule"]
            blockers.append({"object": by, "count": refusal["count"], "pods": refusal["stuck"]})
    verdict = "finished"
    if blockers:
        verdict = "blocked"
    elif report["problems"] or report["totals"]["nodes_failed"] > 0:
        verdict = "failed"
    return {
        "version": VERSION,
        "verdict": verdict,
        "headline": report.get("headline", ""),
        "waves": [sorted(waves[number]) for number in sorted(waves)],
        "nodes": [_node(node) for node in report["nodes"]],
        "findings": [list(one) for one in sorted(findings)],
        "blockers": blockers,
        "problems": [f"{one['subject']}: {one['message']}" for one in report["problems"]],
        "thin": [_thin(one) for one in report["services"] if one["lowest"] < one["desired"]],
        "seconds": report["totals"]["seconds"],
        "moving_seconds": report["totals"]["moving_seconds"],
        "forecast_seconds": report["totals"]["forecast_seconds"],
        "pods_moved": report["totals"]["pods_moved"],
        "not_rehearsed": list(not_rehearsed),
    }


def _objects(finding: Raw) -> t.Sequence[str]:
    """Each by itself: which of them comes first differs from cluster to cluster."""
    return finding.get("objects") or [finding["object"]]


def _node(raw: Raw) -> Json:
    keys = ("name", "wave", "outcome", "message", "seconds", "pods_moved")
    return {key: raw.get(key) for key in keys}


def _thin(raw: Raw) -> Json:
    found = {key: raw[key] for key in ("namespace", "name", "desired", "lowest", "below_seconds")}
    return {**found, "dark_seconds": raw.get("dark_seconds") or 0.0}


def lines(found: Raw) -> list[str]:
    """A rehearsal for the terminal."""
    sentences = {
        "finished": "The maintenance finished on the copy",
        "blocked": "The maintenance is blocked on the copy",
    }
    sentence = sentences.get(found["verdict"], "The maintenance failed on the copy")
    took = f" in {found['seconds']:.0f} s" if found["seconds"] is not None else ""
    shown = [f"{sentence}{took}. {found['headline']}".strip()]
    shown += [f"blocked by {one['object'] or one.get('code')}" for one in found["blockers"]]
    shown += found["problems"]
    for node in found["nodes"]:
        seconds = "never out of service"
        if node["seconds"] is not None:
            seconds = f"{node['seconds']:.0f} s out of service"
        said = f"{node['outcome']}, {seconds}, {node['pods_moved']} pods"
        shown.append(f"node {node['name']}, wave {node['wave']}: {said}")
    for one in found["thin"]:
        dark = f", dark for {one['dark_seconds']:.0f} s" if one["dark_seconds"] else ""
        short = f"at {one['lowest']} of {one['desired']} for {one['below_seconds']:.0f} s"
        shown.append(f"service {one['namespace']}/{one['name']}: {short}{dark}")
    return shown + [f"not rehearsed: {one}" for one in found["not_rehearsed"]]


def compared(before: Raw, real: Raw) -> Json:
    """A rehearsal beside the real run: ``rows`` with what was foreseen,
    and whether ``all`` of it came so.

    Numbers of seconds are the ``same`` if they differ by a fifth or less;
    everything else if it is equal.

    Raises:
        NoReportError: ``before`` is no rehearsal of this version.
    """
    known = isinstance(before, t.Mapping) and before.get("version") == VERSION
    if not known or "verdict" not in before:
        raise NoReportError(
            "It is no rehearsal of this version. Give the rehearsal.json that rehearse has written."
        )
    drained = "seconds from cordon to drained"
    rows = [
        _row("verdict", before["verdict"], real["verdict"]),
        _row("waves", before["waves"], real["waves"]),
        _row("blockers", _blocked_by(before), _blocked_by(real)),
        _row("findings", _as_lists(before), _as_lists(real)),
        _row("pods moved", before["pods_moved"], real["pods_moved"]),
        _row("seconds", before["seconds"], real["seconds"], timed=True),
        _row(drained, before["moving_seconds"], real["moving_seconds"], timed=True),
    ]
    of_copy, of_cluster = _seconds_of_nodes(before), _seconds_of_nodes(real)
    for name in {**of_copy, **of_cluster}:
        rows.append(_row(f"node {name}", of_copy.get(name), of_cluster.get(name), timed=True))
    of_copy, of_cluster = _lowest(before), _lowest(real)
    for name in {**of_copy, **of_cluster}:
        rows.append(_row(f"lowest of {name}", of_copy.get(name), of_cluster.get(name)))
    return {
        "version": VERSION,
        "rows": rows,
        "all": all(row["same"] for row in rows),
        "lines": list(map(_line, rows)),
    }


def _blocked_by(found: Raw) -> list[str]:
    return sorted(str(blocker["object"]) for blocker in found["blockers"])


def _as_lists(found: Raw) -> list[list[t.Any]]:
    return [list(finding) for finding in found["findings"]]


def _seconds_of_nodes(found: Raw) -> Json:
    return {node["name"]: node["seconds"] for node in found["nodes"]}


def _lowest(found: Raw) -> Json:
    """The fewest ready endpoints of each Service that had too few."""
    return {f"{one['namespace']}/{one['name']}": one["lowest"] for one in found["thin"]}


def _row(what: str, before: t.Any, real: t.Any, *, timed: bool = False) -> Json:
    same = before == real
    if timed and before is not None and real is not None:
        same = abs(real - before) <= CLOSE * max(before, real)
    return {"what": what, "rehearsed": before, "real": real, "same": same}


def _line(row: Raw) -> str:
    mark = "as rehearsed" if row["same"] else "DIFFERS"
    both = f"rehearsed {_shown(row['rehearsed'])}, real {_shown(row['real'])}"
    return f"{row['what']}: {both}: {mark}"


def _shown(value: t.Any) -> str:
    if isinstance(value, float):
        return f"{value:.1f}"
    if isinstance(value, (list, tuple)) and len(str(value)) > 60:
        return str(len(value))
    if isinstance(value, (list, tuple)):
        return ", ".join(map(_shown, value)) or "none"
    return "-" if value is None else str(value)


# The input of ``maintain`` on the copy: what was given, without all that would
# reach the world outside.


PREFIX = "maintain_"
QUIET = frozenset(
    {
        *("report_dir", "traffic", "tasks", "tasks_timeout"),
        *("reboot", "reboot_checks", "reboot_files", "job_wait"),
    }
)
"""Variables of which nothing is said: the simulated work stands for them,
or nothing depends on them.
"""
LEFT_OUT = QUIET | {
    *("before_node", "before_pod", "after_pod", "after_node", "fence_tasks", "fenced"),
    *("run", "until", "window", "descheduler", "fallback", "backend"),
}
"""Variables that are not used: hooks and announcements reach other systems, windows and runs belong
to the real run, and Koordinator does not act on the copy. Those of announcements and of
Koordinator's controller are left out, too.
"""
GROUPS = ("announce_", "koordinator_")


def of_copy(
    given: t.Mapping[str, t.Any],
    read: t.Mapping[str, t.Any],
    names: t.Mapping[str, str],
    *,
    report_dir: str,
    tasks: str,
) -> tuple[dict[str, t.Any], list[snapshot_files.Note]]:
    """The variables for the run on the copy, and what is not rehearsed of those that were given.

    ``given`` are the variables as the user gave them, by their full names, ``read`` is the input
    that was made of them. ``names`` are the names of nodes in the snapshot by their real ones.
    ``tasks`` is the file that simulates the work.
    """
    gaps: list[snapshot_files.Note] = []
    made: dict[str, t.Any] = {}
    for full, value in sorted(given.items()):
        name = full.removeprefix(PREFIX)
        if value in (None, "", [], {}, ()):
            continue
        if name not in LEFT_OUT and not name.startswith(GROUPS):
            made[full] = value
        elif name not in QUIET:
            gaps.append(notes.note("variable", full))
    # The report of the copy looks like that of a run, and has to say what it is.
    reason = made.get("maintain_reason")
    made["maintain_reason"] = f"rehearsal: {reason}" if reason else "rehearsal"
    if read["nodes"]:
        made["maintain_nodes"] = [names.get(name, name) for name in read["nodes"]]
    if read["tasks"] or read["reboot"]:
        made |= {"maintain_tasks": tasks, "maintain_gates": list(read["gates"])}
        gaps.append(notes.note("tasks"))
    return {**made, "maintain_report_dir": report_dir}, gaps


def wrong(read: t.Mapping[str, t.Any], names: t.Mapping[str, str]) -> list[str]:
    """The parts of an input that cannot be rehearsed, as sentences."""
    found = []
    if read["asks_hosts"]:
        found.append(
            "A rehearsal contacts no host, so it cannot ask which have to be rebooted. "
            "Name nodes or a selector."
        )
    if read["node_selector"] and any(real != name for real, name in names.items()):
        found.append(
            "maintain_node_selector selects nothing where labels are hashed. "
            "Name the nodes with maintain_nodes."
        )
    unknown = [name for name in read["nodes"] if name not in names and name not in names.values()]
    if unknown and not read["asks_hosts"]:
        found.append(f"The snapshot has no node {', '.join(unknown)}.")
    return found
