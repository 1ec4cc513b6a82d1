# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A change as data: the source of ``changed``, of ``--diff`` and of check mode's sentences."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import objects

Verb = t.Literal["create", "patch", "scale", "status", "delete", "evict"]


@dataclass(frozen=True, slots=True)
class Change:
    """One write.

    ``body`` is the object to create, or a JSON merge patch, which is sent with ``resource_version``
    so that it fails if the object has changed. ``scale`` and ``status`` patch these subresources.
    ``lock`` names the lock on behalf of which a pod is evicted or patched, that of its node:
    ``<lease>=<run>/<nonce>``. ``before`` and ``after`` are what the diff shows of the object.
    """

    verb: Verb
    target: objects.Ref
    sentence: str
    body: objects.Raw | None = None
    before: objects.Raw | None = None
    after: objects.Raw | None = None
    resource_version: str = ""
    grace_seconds: int | None = None
    lock: str = ""


def patch(
    old: objects.Object,
    sentence: str,
    body: objects.Raw,
    before: objects.Raw | None = None,
    after: objects.Raw | None = None,
    verb: Verb = "patch",
) -> Change:
    """The patch of an object in the version that was read; for the rest see ``Change``."""
    return Change(verb, old.ref, sentence, body, before, after, old.resource_version)


def eviction(
    pod: objects.Pod, *, delete: bool = False, grace_seconds: int | None = None, lock: str = ""
) -> Change:
    """Evict a pod or, with ``delete``, delete it without asking its budgets;
    for the rest see ``Change``.
    """
    verb: Verb = "delete" if delete else "evict"
    sentence = f"{verb.capitalize()} {pod.ref} from node {pod.node}"
    return Change(verb, pod.ref, sentence, grace_seconds=grace_seconds, lock=lock)


def diff_of(changes: t.Iterable[Change]) -> list[dict[str, t.Any]]:
    """Ansible's diff list, one entry for each changed object in the order of first change."""
    merged: dict[objects.Ref, dict[str, t.Any]] = {}
    for change in changes:
        if change.before is None and change.after is None:
            continue
        header = str(change.target)
        before = change.before or {}
        new = {"before_header": header, "after_header": header, "before": before}
        entry = merged.setdefault(change.target, new)
        entry["after"] = change.after or {}
    return [entry for entry in merged.values() if entry["before"] != entry["after"]]
