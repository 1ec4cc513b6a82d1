# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Reading what modules answered, as a playbook registered it: a call that was skipped or not made says nothing."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import reasons

Answer = t.Mapping[str, t.Any]
"""A registered result; ``{}`` where the call was not made."""
Answers = t.Mapping[str, Answer]
"""The results of a playbook's calls, by the words that a summary knows them by."""
Entry = t.Mapping[str, t.Any]
"""What one answer says of one node: name, failed, outcome, message."""


def entries(*answers: Answer) -> list[Entry]:
    """What the answers say of nodes, in the order of the answers."""
    return [entry for answer in answers for entry in answer.get("nodes") or ()]


def failed(*answers: Answer) -> list[Entry]:
    """What the answers say of nodes that failed."""
    return [entry for entry in entries(*answers) if entry.get("failed")]


def passed(answer: Answer) -> list[str]:
    """The nodes of one answer that did not fail."""
    return [entry["name"] for entry in entries(answer) if not entry.get("failed")]


def names(found: t.Iterable[Entry]) -> list[str]:
    """Whom the entries are about."""
    return [entry["name"] for entry in found]


def without(nodes: t.Iterable[str], others: t.Collection[str]) -> list[str]:
    """The nodes that are none of the others, in their order."""
    return [node for node in nodes if node not in others]


def blockers(plan: Answer) -> list[Entry]:
    """What stands in the way by a plan's findings."""
    return [finding for finding in plan.get("findings") or () if finding["severity"] == "blocker"]


def sentence(finding: Entry) -> str:
    """What is found, then what to do about it."""
    return reasons.Reason(finding["code"], finding["message"], finding["remedy"]).sentence


def ended(text: str) -> str:
    """The text as a whole sentence."""
    return text if text[-1:] in (".", "!", "?") else f"{text}."


def unique(texts: t.Iterable[str]) -> list[str]:
    """The texts that say something, each once."""
    return list(dict.fromkeys(text for text in texts if text))
