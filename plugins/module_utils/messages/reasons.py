# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Why something is not done, failed or waits, and what the reader can do about it."""

from __future__ import annotations

import re
import typing as t
from dataclasses import dataclass, replace

Severity = t.Literal["blocker", "warning", "info"]
"""What keeps a node from being taken out comes first."""


@dataclass(frozen=True, slots=True)
class Reason:
    """``code`` is a word of a closed list in the documentation; ``message`` says what is wrong,
    ``remedy`` what to do.

    Both are whole sentences; ``remedy`` is empty if there is nothing to do.
    """

    code: str
    message: str = ""
    remedy: str = ""

    @property
    def sentence(self) -> str:
        """The message and the remedy as one text."""
        return f"{self.message} {self.remedy}".strip()

    def to_dict(self) -> dict[str, str]:
        return {"code": self.code, "message": self.message, "remedy": self.remedy}


@dataclass(frozen=True, slots=True)
class Finding(Reason):
    """A result of a preflight check or a gate.

    ``object`` is what it is about as text (``Deployment shop/web``), ``nodes`` the nodes it applies
    to (empty: all). ``like`` is what it has in common with findings of its code that differ by
    their objects alone; without it, that is its sentence. ``objects`` are all that it is about,
    where that is more than ``object``.
    """

    severity: Severity = "blocker"
    object: str = ""
    nodes: tuple[str, ...] = ()
    like: str = ""
    objects: tuple[str, ...] = ()

    @classmethod
    def of_node(
        cls, node: str, code: str, message: str, remedy: str, severity: Severity = "blocker"
    ) -> t.Self:
        return cls(code, message, remedy, severity, f"Node {node}", (node,))

    def to_dict(self) -> dict[str, t.Any]:
        # super() without arguments fails in a class with slots: the decorator makes another one.
        found = {**Reason.to_dict(self), "severity": self.severity, "object": self.object}
        return {**found, "objects": list(self.objects)} if self.objects else found

    @property
    def kind(self) -> tuple[str, str, str]:
        """Equal for findings that say the same of different objects, whatever numbers are in it."""
        own = sorted(
            {self.object, self.object.rpartition(" ")[2], *self.nodes}, key=len, reverse=True
        )
        names = "|".join(map(re.escape, own))
        said = re.sub(rf"(?<![\w.-])(?:{names})(?![\w-])", "", self.like or self.sentence)
        return self.code, self.severity, re.sub("[0-9]+", "0", said)


def merged(findings: t.Iterable[Finding]) -> tuple[Finding, ...]:
    """Those that say the same of different objects as one, with all of these:
    a real cluster has many of a kind.
    """
    groups: dict[tuple[str, str, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.kind, []).append(finding)
    return tuple(_as_one(group) for group in groups.values())


def _as_one(group: t.Sequence[Finding]) -> Finding:
    first = group[0]
    subjects = tuple(dict.fromkeys(one.object for one in group))
    objects = tuple(dict.fromkeys(name for one in group for name in one.objects or (one.object,)))
    nodes = tuple(dict.fromkeys(name for one in group for name in one.nodes))
    if len(subjects) == 1:
        return replace(first, objects=objects, nodes=nodes)
    message = f"{first.message} Also of this kind: {listed(subjects[1:])}."
    subject = f"{subjects[0]} and {len(subjects) - 1} more"
    return replace(first, message=message, object=subject, objects=objects, nodes=nodes)


def listed(names: t.Collection[str], most: int = 5) -> str:
    """The first of the names, and how many there are besides."""
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(list(names)[:most]) + more


@dataclass(frozen=True, slots=True)
class Blocked(Reason):
    """Why a node's drain does not move on: ``who`` waits (pods, or the node),
    and since when (RFC 3339).
    """

    who: str = ""
    node: str = ""
    since: str = ""

    @property
    def key(self) -> tuple[str, str]:
        """Identifies the reason, whatever numbers are in it."""
        return self.node, re.sub("[0-9]+", "0", self.message)

    @property
    def sentence(self) -> str:
        """Who waits since when, for what, and what helps."""
        return (
            f"{self.who}, since {self.since}: "
            f"{Reason(self.code, self.message, self.remedy).sentence}"
        )

    def to_dict(self) -> dict[str, str]:
        """As announcements have it."""
        return {"node": self.node, "who": self.who, "since": self.since, **Reason.to_dict(self)}


# An option that a remedy names, as its readers have to write it.


def options(**values: bool | str | t.Sequence[str]) -> str:
    """How options are set, in the playbooks and in a module:
    ``-e maintain_force=true (in a module force: true)``.

    Both, because the reader is not known: playbooks and users' tasks call the same modules, and
    reports repeat texts.
    """
    outside = " ".join(
        f"-e maintain_{name}={_plain(value, '{}')}" for name, value in values.items()
    )
    inside = " and ".join(
        f"{name}: {_plain(value, '[{}]', ', ')}" for name, value in values.items()
    )
    return f"{outside} (in a module {inside})"


def _plain(value: bool | str | t.Sequence[str], around: str, between: str = ",") -> str:
    """As YAML and the command line have it; ``around`` and ``between`` are of lists."""
    if isinstance(value, bool):
        return str(value).lower()
    return value if isinstance(value, str) else around.format(between.join(value))


GROWN = f"If a node autoscaler adds nodes for such pods, set {options(node_autoscaler=True)}."
"""The remedy for a pod that fits nowhere, besides making room."""
