# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Taints and tolerations: every rule of how they match, in one place.

The rules are those of ``Toleration.ToleratesTaint`` (k8s.io/api/core/v1, read at v1.36.3). They read raw
objects, so that the template of a workload can be asked as well as a pod.
"""

from __future__ import annotations

import re
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.snapshot import Raw

CORDON: Raw = {"key": names.UNSCHEDULABLE_TAINT, "effect": "NoSchedule"}

DAEMON_TOLERATIONS: tuple[Raw, ...] = tuple(
    {"key": f"node.kubernetes.io/{condition}", "operator": "Exists", "effect": effect}
    for condition, effect in (
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    )
)
"""What the DaemonSet controller adds to every pod it makes (``AddOrUpdateDaemonPodTolerations``)."""

HOST_NETWORK_TOLERATION: Raw = {
    "key": "node.kubernetes.io/network-unavailable",
    "operator": "Exists",
    "effect": "NoSchedule",
}

_INTEGER = re.compile(r"-?[1-9][0-9]*|0")


def tolerates(tolerations: t.Iterable[Raw], taint: Raw) -> bool:
    """Whether one of the tolerations covers the taint."""
    return first_match(tolerations, taint) is not None


def first_match(tolerations: t.Iterable[Raw], taint: Raw) -> Raw | None:
    """The toleration that counts for the taint: the first of them that covers it (``GetMatchingTolerations``)."""
    return next((toleration for toleration in tolerations if covers(toleration, taint)), None)


def covers(toleration: Raw, taint: Raw) -> bool:
    """Whether the toleration covers the taint; an empty effect is every effect, an empty key every key.

    ``Lt`` and ``Gt`` compare the taint's number with the toleration's (Kubernetes 1.35, off by default): a
    cluster that does not know them refuses such pods, so they are taken at their word.
    """
    effect, key = toleration.get("effect"), toleration.get("key")
    if effect and effect != taint.get("effect"):
        return False
    if key and key != taint.get("key"):
        return False
    wanted, value = toleration.get("value") or "", taint.get("value") or ""
    match toleration.get("operator") or "Equal":
        case "Exists":
            return True
        case "Equal":
            # An empty key is valid with Exists alone; the API server refuses it otherwise.
            return bool(key) and wanted == value
        case "Lt" | "Gt" as operator:
            mine, its = _number(wanted), _number(value)
            if mine is None or its is None:
                return False
            return its < mine if operator == "Lt" else its > mine
    return False


def untolerated(tolerations: t.Collection[Raw], taints: t.Iterable[Raw]) -> tuple[Raw, ...]:
    """The taints that keep such a pod from the node; PreferNoSchedule keeps nobody."""
    hard = (x for x in taints if x.get("effect") in ("NoSchedule", "NoExecute"))
    return tuple(x for x in hard if not tolerates(tolerations, x))


def in_words(taint: Raw) -> str:
    """The taint as kubectl writes it, ``key=value:effect``."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint.get('key')}{value}:{taint.get('effect')}"


def same_taint(one: Raw, other: Raw) -> bool:
    """Whether two taints are one to the API server, which tells them apart by key and effect."""
    return bool(one.get("key") == other.get("key") and one.get("effect") == other.get("effect"))


def _number(text: str) -> int | None:
    """A decimal integer of 64 bits in its canonical form, as the API server asks for; ``-0`` is none."""
    if not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -(2**63) <= number < 2**63 else None
