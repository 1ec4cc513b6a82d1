# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a rehearsal does not show: the copy lacks it, or it must not happen."""

from __future__ import annotations

import collections
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.rehearsal import (
    snapshot_files,
)

TEXTS: t.Mapping[str, str] = {
    "extensions": (
        "Admission webhooks, policies and controllers of custom resources do not act on the copy."
    ),
    "autoscaling": "Autoscalers keep their limits, but see no load.",
    "devices": "Claims of devices are left out.",
    "gang": "Pods that are scheduled as a group are scheduled one by one.",
    "ephemeral_volume": "Volumes that are made for a pod are left out.",
    "record": "A maintenance of the node was under way. The copy begins as if it were not.",
    "finished": "Finished pods are left out.",
    "terminating": "It was terminating, and the copy begins without it.",
    "owner": (
        "Its controller does not act on the copy. A ReplicaSet with as many pods stands for it."
    ),
    "scheduler": "The default scheduler stands for its scheduler.",
    "job": (
        "How long it still takes is not known. It takes as long as the annotation says, or "
        "completes after the run."
    ),
    "unread": "These credentials may not list this kind, so it counts as empty.",
    "refused": "The API server of the copy refused it.",
    "version": "The copy runs another version of Kubernetes.",
    "variable": "The variable is not used in a rehearsal.",
    "tasks": "Your tasks and the reboot are simulated: no host is contacted.",
}


def note(code: str, about: str = "", detail: str = "") -> snapshot_files.Note:
    """One thing that is not rehearsed; ``about`` is an object such as ``Pod shop/web-0``."""
    return {"code": code, "object": about, "detail": detail}


def sentences(notes: t.Iterable[t.Mapping[str, str]]) -> list[str]:
    """One sentence for each code and detail, with the objects it is about."""
    groups = collections.defaultdict[tuple[str, str], dict[str, None]](dict)
    for one in notes:
        groups[one.get("code", ""), one.get("detail", "")][one.get("object", "")] = None
    found = []
    for (code, detail), abouts in groups.items():
        named = [about for about in abouts if about]
        where = f" ({reasons.listed(named)})" if named else ""
        text = TEXTS.get(code, code)
        found.append(f"{text.rstrip('.')}{f': {detail}' if detail else ''}{where}.")
    return found
