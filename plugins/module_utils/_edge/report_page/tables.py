# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The tables of a report's page: rows of plain values, capped, what needs a look first."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.report.model import (
    Refusal,
    Report,
    ServiceLine,
    Swap,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.report.text import (
    clock,
    count,
    duration,
    place,
)

View = dict[str, t.Any]
T = t.TypeVar("T")

ROWS_MOST = 150
PODS_NAMED = 3
TONES = {"failed": "bad", "unfinished": "warn", "blocker": "bad", "warning": "warn", "kept": "warn"}


def words(code: str) -> str:
    """A code of a closed list as people read it."""
    return code.replace("_", " ")


def capped(items: t.Sequence[T], most: int, noun: str) -> tuple[t.Sequence[T], str]:
    """The first of the items, and a sentence about the others."""
    hidden = len(items) - most
    if hidden <= 0:
        return items, ""
    return items[:most], f"{count(hidden, f'more {noun}')}: see report.json."


def look(report: Report) -> list[tuple[str, str, str]]:
    """What needs a look, worst first: object, what is wrong, what helps."""
    found = [(place(s), _darkness(s), "") for s in report.services if s.dark]
    found += [(problem.subject, problem.message, "") for problem in report.problems]
    found += [
        (f"{f.object} ({words(f.code)})", f.message, f.remedy) for f in report.findings if f.severity == "blocker"
    ]
    shown, more = capped(found, ROWS_MOST, "thing")
    return [*shown, ("", more, "")] if more else list(shown)


def _darkness(service: ServiceLine) -> str:
    parts = [f"{clock(s.start)} for {duration(s.seconds)}" for s in service.dark[:5]]
    still = " It was still dark at the last look." if service.dark[-1].open else ""
    return f"No ready endpoint at {', '.join(parts)}.{still}"


def refusals(report: Report) -> View:
    """Who held pods back, for how long, and what helps."""
    shown, more = capped(report.refusals, ROWS_MOST, "row")
    return {"rows": [_refusal_row(refusal) for refusal in shown], "more": more}


def _refusal_row(refusal: Refusal) -> View:
    names = refusal.stuck or refusal.pods
    hidden = len(names) - PODS_NAMED
    pods = ", ".join(names[:PODS_NAMED]) + (f" and {hidden} more" if hidden > 0 else "")
    remedy = refusal.remedy or "The pod is still there: see its node below."
    return {
        "blocker": refusal.blocker or ("the API server" if refusal.count else "the plan"),
        "rule": refusal.rule,
        "count": f"{refusal.count:,}" if refusal.count else "",
        "wait": duration(refusal.longest_wait),
        "pods": pods,
        "remedy": remedy if refusal.stuck else "Nothing, it went through later.",
        "tone": "" if refusal.stuck else "soft",
    }


def swaps(report: Report) -> View:
    """What became of each workload that was surged or guarded."""
    shown, more = capped(report.swaps, ROWS_MOST, "workload")
    return {"rows": [_swap_row(swap) for swap in shown], "more": more}


def _swap_row(swap: Swap) -> View:
    how = []
    before, during = swap.replicas_before, swap.replicas_during
    if before is not None and during is not None and during != before:
        how.append(f"{before} to {during} replicas")
    if swap.budget:
        how.append(f"budget {swap.budget}")
    known = swap.raised is not None and swap.ready is not None
    took = swap.ready - swap.raised if swap.ready and swap.raised and known else None
    return {
        "name": f"{swap.kind} {place(swap)}",
        "how": ", ".join(how),
        "took": duration(took) if took is not None else "",
        "outcome": ": ".join(part for part in (words(swap.outcome), swap.message) if part),
    }


def findings(report: Report) -> View:
    """What the plan found."""
    shown, more = capped(report.findings, ROWS_MOST, "finding")
    rows = [
        {
            "severity": f.severity,
            "tone": TONES.get(f.severity, "soft"),
            "object": f.object,
            "code": f.code,
            "message": f.message,
            "remedy": f.remedy,
        }
        for f in shown
    ]
    return {"rows": rows, "more": more}


def given_back(report: Report) -> View:
    """What was given back, and what was kept as somebody else had made it."""
    kept = [g for g in report.given_back if g.kept]
    ordered = kept + [g for g in report.given_back if not g.kept]
    shown, more = capped(ordered, ROWS_MOST, "change")
    given = len(ordered) - len(kept)
    note = f"{count(given, 'object')} given back"
    note += f", {len(kept)} kept as somebody else had made them." if kept else "."
    rows = [
        {
            "at": clock(g.at) if g.at is not None else "",
            "word": "kept" if g.kept else "given back",
            "tone": "warn" if g.kept else "soft",
            "object": g.object,
            "message": g.message,
        }
        for g in shown
    ]
    return {"rows": rows, "more": more, "note": note}


def actions(report: Report) -> View:
    """Every change as a sentence."""
    shown, more = capped(report.actions, ROWS_MOST if not report.check else 1000, "change")
    return {
        "rows": list(shown),
        "more": more,
        "open": report.check,
        "title": "What would be changed" if report.check else "Every change",
        "label": count(len(report.actions), "change"),
    }
