# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Reading registered results. A call that was skipped or not made has no entries."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.report import text

Answer = t.Mapping[str, t.Any]
"""A registered result; ``{}`` if the call was not made."""
Answers = t.Mapping[str, Answer]
"""The results of a playbook's calls, by the names that the summaries use for them."""
Entry = t.Mapping[str, t.Any]
"""What a result says about one node: name, failed, outcome, message."""

NOTES = 8
"""How many findings of a severity are shown."""
KINDS: t.Mapping[reasons.Severity, str] = {
    "blocker": "blocker",
    "warning": "warning",
    "info": "note",
}

OF_OTHERS = (outcomes.CordonOutcome.ADOPTED_BY, outcomes.CordonOutcome.HELD)
"""Outcomes of nodes that belong to another run by now, which is why they are
rightly left as they are.
"""


def entries(*answers: Answer) -> list[Entry]:
    """What the answers say about nodes, in the order of the answers."""
    return [entry for answer in answers for entry in answer.get("nodes") or ()]


def failed(*answers: Answer) -> list[Entry]:
    """What the answers say about nodes that failed."""
    return [entry for entry in entries(*answers) if entry.get("failed")]


def passed(answer: Answer) -> list[str]:
    """The nodes that did not fail."""
    return [entry["name"] for entry in entries(answer) if not entry.get("failed")]


def names(found: t.Iterable[Entry]) -> list[str]:
    """The nodes that the entries are about."""
    return [entry["name"] for entry in found]


def without(nodes: t.Iterable[str], others: t.Iterable[str]) -> list[str]:
    """The nodes that are not among the others, in order."""
    excluded = set(others)
    return [node for node in nodes if node not in excluded]


def messages(found: t.Iterable[Entry]) -> dict[str, str]:
    """The first message about each node."""
    first: dict[str, str] = {}
    for entry in found:
        first.setdefault(entry["name"], entry["message"])
    return first


def reason(*given: str) -> str:
    """The first reason that is not empty."""
    return next(filter(None, given), "No call reported a reason; see the output above.")


def failure(
    node: str,
    why: str,
    remedy: str | None,
    outcome: outcomes.Outcome = outcomes.PlaybookOutcome.FAILED,
) -> dict[str, t.Any]:
    """The entry about a node that is not where it should be;
    with a ``remedy`` it stays out of service.
    """
    stays = "" if remedy is None else f"Node {node} stays out of service. {remedy}".rstrip()
    message = f"{ended(why)} {stays}" if stays else why
    return {"name": node, "failed": True, "outcome": outcome.value, "message": message}


def blockers(plan: Answer) -> list[Entry]:
    """The findings of a plan that prevent the maintenance."""
    return [finding for finding in plan.get("findings") or () if finding["severity"] == "blocker"]


def notes(plan: Answer, severity: reasons.Severity) -> list[str]:
    """The first findings of a severity as lines; the report has all,
    and describes blockers with their remedies.
    """
    found = [finding for finding in plan.get("findings") or () if finding["severity"] == severity]
    lines = [f"{severity}: {sentence(finding)}" for finding in found[:NOTES]]
    return lines + more(len(found) - NOTES, KINDS[severity])


def more(hidden: int, noun: str) -> list[str]:
    """A line that a list goes on in the report; none if it does not."""
    return [f"… and {text.count(hidden, f'more {noun}')}, all in the report"] if hidden > 0 else []


def left_out(plan: Answer) -> list[str]:
    """What is said of each node that a plan leaves out because of its blockers,
    which the report has told in full.
    """
    left = plan.get("left_out") or ()
    found = []
    for entry in entries(plan):
        if entry["name"] in left:
            stays = ", and stays out of service" if entry.get("record") else ""
            found.append(f"{entry['message']} It was left out{stays}.")
    return found


def sentence(finding: Entry) -> str:
    """Message and remedy of a finding."""
    return reasons.Reason(finding["code"], finding["message"], finding["remedy"]).sentence


def short(found: t.Sequence[Entry]) -> list[str]:
    """Findings that the report has told in full, as one line for a last message;
    none if there are none.
    """
    if not found:
        return []
    of: dict[str, list[str]] = {}
    for finding in found:
        of.setdefault(finding["code"], []).append(finding["object"])
    names = "; ".join(f"{code} ({', '.join(unique(subjects))})" for code, subjects in of.items())
    count = f"{len(found)} blocker{'s' if len(found) > 1 else ''}"
    return [f"{count}, described with remedies in the report above: {names}."]


def ended(said: str) -> str:
    """The text with a full stop, unless it has an end."""
    return said if said[-1:] in (".", "!", "?") else f"{said}."


def unique(texts: t.Iterable[str]) -> list[str]:
    """The texts that are not empty, without duplicates."""
    return list(dict.fromkeys(filter(None, texts)))
