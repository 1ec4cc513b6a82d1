# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Kubernetes' own rules, as far as the witness needs them, on plain API objects. Pure."""

from __future__ import annotations

import json
import math
from typing import Any

from witness.log import Json, World

PREFIX = "maintenance.kubeops.io/"
RECORD = PREFIX + "record"
IN_PROGRESS = PREFIX + "in-progress"
CONSENT = PREFIX + "allow-interruption"
RELEASED = PREFIX + "released"
UNSERVED = PREFIX + "out-of-services"
MANAGED_BY = "app.kubernetes.io/managed-by"
MANAGER = "kubeops.node_maintenance"
GUARD = "kubeops-guard-"
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
MIRROR = "kubernetes.io/config.mirror"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


def labels(obj: Json) -> dict[str, str]:
    return obj.get("metadata", {}).get("labels") or {}


def notes(obj: Json) -> dict[str, str]:
    """The annotations."""
    return obj.get("metadata", {}).get("annotations") or {}


def namespace(obj: Json) -> str:
    where: str = obj.get("metadata", {}).get("namespace", "")
    return where


def name(obj: Json) -> str:
    called: str = obj.get("metadata", {}).get("name", "")
    return called


def uid(obj: Json) -> str:
    given: str = obj.get("metadata", {}).get("uid", "")
    return given


def matches(selector: Json | None, wanted: dict[str, str]) -> bool:
    """A label selector (matchLabels, matchExpressions); None selects nothing, {} everything."""
    if selector is None:
        return False
    for key, value in (selector.get("matchLabels") or {}).items():
        if wanted.get(key) != value:
            return False
    for rule in selector.get("matchExpressions") or []:
        key, values, operator = rule["key"], rule.get("values") or [], rule["operator"]
        holds = {
            "In": key in wanted and wanted[key] in values,
            "NotIn": wanted.get(key) not in values,
            "Exists": key in wanted,
            "DoesNotExist": key not in wanted,
        }[operator]
        if not holds:
            return False
    return True


def serves(service: Json, wanted: dict[str, str]) -> bool:
    """Whether a Service's selector takes in these labels; one without selector takes none."""
    selector = service.get("spec", {}).get("selector") or {}
    return bool(selector) and all(wanted.get(key) == value for key, value in selector.items())


def owner(obj: Json) -> Json | None:
    for reference in obj.get("metadata", {}).get("ownerReferences") or []:
        if reference.get("controller"):
            found: Json = reference
            return found
    return None


def top_owner(pod: Json, world: World) -> tuple[str, str]:
    """Kind and name of the controller on top: the Deployment of a pod, not its ReplicaSet."""
    reference = owner(pod)
    if reference is None:
        return "Pod", name(pod)
    if reference["kind"] == "ReplicaSet":
        middle = world.get("ReplicaSet", namespace(pod), reference["name"])
        above = owner(middle) if middle else None
        if above is not None:
            return above["kind"], above["name"]
    return reference["kind"], reference["name"]


def ready(pod: Json) -> bool:
    """Ready and not on its way out: what a budget counts as healthy."""
    if pod["metadata"].get("deletionTimestamp"):
        return False
    conditions = pod.get("status", {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def finished(pod: Json) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def replicas(workload: Json) -> int:
    wanted = workload.get("spec", {}).get("replicas")
    return 1 if wanted is None else int(wanted)


def scaled(value: int | str, of: int) -> int:
    """A budget's number or percentage; the API rounds percentages up, for both fields."""
    if isinstance(value, str) and value.endswith("%"):
        return math.ceil(int(value[:-1]) * of / 100)
    return int(value)


def floor_of(budget: Json, expected: int) -> int:
    """How many of `expected` pods a budget wants healthy."""
    spec = budget.get("spec", {})
    if spec.get("maxUnavailable") is not None:
        return max(0, expected - scaled(spec["maxUnavailable"], expected))
    if spec.get("minAvailable") is not None:
        return min(scaled(spec["minAvailable"], expected), expected)
    return 0


def ready_endpoints(service: Json, world: World) -> int:
    """Distinct ready endpoints in all slices of a Service (`ready` unset means ready)."""
    seen: set[str] = set()
    for piece in world.of("EndpointSlice", namespace(service)):
        if labels(piece).get("kubernetes.io/service-name") != name(service):
            continue
        for endpoint in piece.get("endpoints") or []:
            if (endpoint.get("conditions") or {}).get("ready") in (None, True):
                target = endpoint.get("targetRef") or {}
                seen.add(target.get("uid") or ",".join(endpoint.get("addresses") or []))
    return len(seen)


def tolerates(pod: Json, taint: Json) -> bool:
    for rule in pod.get("spec", {}).get("tolerations") or []:
        if rule.get("effect") and rule["effect"] != taint.get("effect"):
            continue
        if not rule.get("key") and rule.get("operator") == "Exists":
            return True
        if rule.get("key") != taint.get("key"):
            continue
        if rule.get("operator") == "Exists" or rule.get("value", "") == taint.get("value", ""):
            return True
    return False


def record(node: Json) -> dict[str, Any] | None:
    """The maintenance record on a node, or None."""
    text = notes(node).get(RECORD)
    if text is None:
        return None
    parsed: dict[str, Any] = json.loads(text)
    return parsed


def has_to_go(pod: Json, world: World) -> bool:
    """Whether a drained node must be without this pod.

    Mirror pods, pods of a living DaemonSet, finished pods and pods that tolerate everything we
    put on a node may stay.
    """
    if MIRROR in notes(pod) or finished(pod):
        return False
    reference = owner(pod)
    if reference is not None and reference["kind"] == "DaemonSet":
        return world.get("DaemonSet", namespace(pod), reference["name"]) is None
    cordon = {"key": UNSCHEDULABLE, "effect": "NoSchedule"}
    ours = {"key": IN_PROGRESS, "effect": "NoSchedule"}
    return not (tolerates(pod, cordon) and tolerates(pod, ours))
