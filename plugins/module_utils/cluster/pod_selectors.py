# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which pods a rule of the user is for: by their labels, their namespace and what owns them."""

from __future__ import annotations

import fnmatch
import re
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    selectors,
)

KEYS = ("pods", "namespaces", "owners")
"""The keys of a rule that select pods."""
BARE = "Pod"
"""The kind that stands for pods without a controller."""

Fault = tuple[str, t.Any, str]
"""One wrong value of the input: where it is, what it is, and what is expected."""

_NAMESPACE = re.compile(r"[a-z0-9*?]([a-z0-9*?-]{0,61}[a-z0-9*?])?")
_OWNER = re.compile(r"[A-Z][A-Za-z0-9]*(/[A-Za-z0-9.*?-]+)?")


@dataclass(frozen=True, slots=True)
class PodSelector:
    """Pods for which everything holds that is given; without anything it selects every pod.

    ``labels`` is a label selector. ``namespaces`` and the names of ``owners`` (``Kind`` or
    ``Kind/name``) may have the wildcards ``*`` and ``?``. An owner is the pod's own controller or
    the top one; ``Pod`` is a pod without any.
    """

    labels: t.Mapping[str, t.Any]
    namespaces: tuple[str, ...] = ()
    owners: tuple[str, ...] = ()

    def matches(self, pod: objects.Pod, workload: objects.Ref | None = None) -> bool:
        """Whether it selects the pod; ``workload`` is its top controller where that is
        another one than its own.
        """
        if self.namespaces and not any(
            fnmatch.fnmatchcase(pod.namespace, wanted) for wanted in self.namespaces
        ):
            return False
        if self.owners and not any(_owned(wanted, pod, workload) for wanted in self.owners):
            return False
        return selectors.matches(self.labels, pod.labels)


def _owned(wanted: str, pod: objects.Pod, workload: objects.Ref | None) -> bool:
    kind, _slash, name = wanted.partition("/")
    refs = [ref for ref in (pod.owner, workload) if ref] or [objects.Ref(BARE, pod.name)]
    return any(ref.kind == kind and fnmatch.fnmatchcase(ref.name, name or "*") for ref in refs)


def read(where: str, raw: t.Mapping[str, t.Any]) -> tuple[PodSelector, list[Fault]]:
    """The selector of a rule, from its keys ``KEYS``, and everything that is wrong with them.

    ``pods`` is a label selector as text; the others are a list, or one item as text.
    ``where`` names the rule.
    """
    faults: list[Fault] = []
    labels: dict[str, t.Any] = {}
    text = raw.get("pods")
    try:
        if text is not None and not isinstance(text, str):
            raise ValueError("no text")
        labels = selectors.parse(text or "")
    except ValueError as error:
        faults.append(
            (f"{where}.pods", text, f"a label selector such as app=web,tier in (a, b) ({error})")
        )
    namespaces, wrong = _items(
        f"{where}.namespaces", raw.get("namespaces"), _NAMESPACE, "shop or team-*"
    )
    faults += wrong
    owners, wrong = _items(
        f"{where}.owners", raw.get("owners"), _OWNER, "StatefulSet, Deployment/web, Job/* or Pod"
    )
    return PodSelector(labels, namespaces, owners), faults + wrong


def _items(
    where: str, given: t.Any, form: re.Pattern[str], example: str
) -> tuple[tuple[str, ...], list[Fault]]:
    items = [given] if isinstance(given, str) else given or ()
    if not isinstance(items, (list, tuple)):
        return (), [(where, given, f"a list such as {example}")]
    faults = [
        (f"{where}[{index}]", item, f"a text such as {example}")
        for index, item in enumerate(items)
        if not isinstance(item, str) or not form.fullmatch(item)
    ]
    return tuple(str(item) for item in items), faults
