# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A change as data: the one source of ``changed``, of ``--diff`` and of check mode's sentences."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects

Verb = t.Literal["create", "patch", "scale", "status", "delete", "evict"]


@dataclass(frozen=True, slots=True)
class Change:
    """One write.

    ``body`` is the object to create, or a JSON merge patch (a patch carries ``resourceVersion`` in its
    metadata, so that it fails when somebody was faster). ``scale`` and ``status`` patch these subresources.
    ``fence`` names, for an eviction, the lock on whose behalf it is sent: ``<lease>=<run>/<nonce>``.
    ``before`` and ``after`` are the parts of the object that people care about, for the diff.
    """

    verb: Verb
    target: objects.Ref
    sentence: str
    body: objects.Raw | None = None
    before: objects.Raw | None = None
    after: objects.Raw | None = None
    resource_version: str = ""
    grace_seconds: int | None = None
    fence: str = ""


def eviction(pod: objects.Pod, *, delete: bool = False, grace_seconds: int | None = None, fence: str = "") -> Change:
    """The end of a pod through the Eviction API or, with ``delete``, past it; for the rest see ``Change``."""
    verb: Verb = "delete" if delete else "evict"
    sentence = f"{verb.capitalize()} {pod.ref} from node {pod.node}"
    return Change(verb, pod.ref, sentence, grace_seconds=grace_seconds, fence=fence)


def diff_of(changes: t.Iterable[Change]) -> list[dict[str, t.Any]]:
    """Ansible's diff list, one entry for each changed object in the order of first change."""
    merged: dict[objects.Ref, dict[str, t.Any]] = {}
    for change in changes:
        if change.before is None and change.after is None:
            continue
        entry = merged.setdefault(
            change.target,
            {"before_header": str(change.target), "after_header": str(change.target), "before": change.before or {}},
        )
        entry["after"] = change.after or {}
    return [entry for entry in merged.values() if entry["before"] != entry["after"]]


def sentences_of(changes: t.Iterable[Change]) -> list[str]:
    """What is (or would be) done, in order."""
    return [change.sentence for change in changes]
