# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Whether a namespace's quotas and limit ranges leave room for the new pods of a surge.

Resources are computed as in the API server's quota evaluator: containers and sidecars together, or
the largest init container; what is said for the whole pod instead; plus the overhead. A limit
without a request is its request. This is about new pods, so a pod that was resized in place counts
as its template: that is what its successor starts with.
"""

from __future__ import annotations

import typing as t
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    objects,
    quantities,
)

Amounts = dict[str, Fraction]

MUST_BE_SET = frozenset(
    {"cpu", "memory", "requests.cpu", "requests.memory", "limits.cpu", "limits.memory"}
)
"""What a pod has to specify where a quota limits it, or the API server rejects the pod."""


@dataclass(frozen=True, slots=True)
class Newcomers:
    """``count`` more pods of one spec."""

    spec: objects.Raw
    count: int


def usage(spec: objects.Raw, limits: t.Iterable[objects.Raw] = ()) -> Amounts:
    """What one such pod uses of a quota, by the quota's names (``pods``,
    ``requests.cpu``, ``limits.memory``).
    """
    defaults = _defaults(limits)
    taken: Amounts = {"pods": Fraction(1), "count/pods": Fraction(1)}
    for side in ("requests", "limits"):
        for name, amount in _of_pod(spec, side, defaults).items():
            taken[f"{side}.{name}"] = amount
            if side == "requests":
                taken[name] = amount
    return taken


def exceeded(
    quotas: t.Iterable[objects.Raw],
    limits: t.Collection[objects.Raw],
    newcomers: t.Sequence[Newcomers],
) -> dict[str, str]:
    """Why the new pods of one namespace do not fit, by the quota's name;
    all of them exist at once.
    """
    found: dict[str, str] = {}
    for quota in quotas:
        name = quota["metadata"]["name"]
        status: objects.Raw = quota.get("status") or {}
        hard: Mapping[str, str] = status.get("hard") or (quota.get("spec") or {}).get("hard") or {}
        counted = [n for n in newcomers if _in_scope(quota, n.spec)]
        needed: Amounts = {}
        for newcomer in counted:
            _add(
                needed,
                {
                    name: amount * newcomer.count
                    for name, amount in usage(newcomer.spec, limits).items()
                },
            )
        for resource, top in hard.items():
            used = (status.get("used") or {}).get(resource, "0")
            if resource in needed and quantities.quantity(used) + needed[
                resource
            ] > quantities.quantity(top):
                found[name] = (
                    f"{resource}: {used} of {top} are used, and "
                    f"{_shown(needed[resource])} more are needed"
                )
            elif counted and resource not in needed and resource in MUST_BE_SET:
                found[name] = f"it limits {resource}, and the new pods do not specify it"
    return found


def violated(limits: t.Iterable[objects.Raw], spec: objects.Raw) -> dict[str, str]:
    """Which limit ranges such a pod violates by its own specification, by the range's name."""
    found: dict[str, str] = {}
    for limit_range in limits:
        for item in (limit_range.get("spec") or {}).get("limits") or ():
            if why := _broken(item, spec):
                found[limit_range["metadata"]["name"]] = why
    return found


def _broken(item: objects.Raw, spec: objects.Raw) -> str:
    sides, parts = ("requests", "limits"), []
    if item.get("type") == "Container":
        containers = spec.get("containers") or ()
        parts = [
            (f"container {c.get('name')}", {side: _own(c, side, {}) for side in sides})
            for c in containers
        ]
    elif item.get("type") == "Pod":
        parts = [("the pod", {side: _of_pod(spec, side, {}) for side in sides})]
    for what, asked in parts:
        for resource, bound in (item.get("max") or {}).items():
            most = max(
                (amounts[resource] for amounts in asked.values() if resource in amounts),
                default=None,
            )
            if most is not None and most > quantities.quantity(bound):
                return f"{what} asks for {_shown(most)} {resource}, more than {bound}"
        for resource, bound in (item.get("min") or {}).items():
            least = asked["requests"].get(resource)
            if least is not None and least < quantities.quantity(bound):
                return f"{what} asks for {_shown(least)} {resource}, less than {bound}"
    return ""


def _defaults(limits: t.Iterable[objects.Raw]) -> dict[str, objects.Raw]:
    """What limit ranges set for containers that do not specify it."""
    found: dict[str, dict[str, t.Any]] = {"requests": {}, "limits": {}}
    for limit_range in limits:
        for item in (limit_range.get("spec") or {}).get("limits") or ():
            if item.get("type") == "Container":
                found["limits"].update(item.get("default") or {})
                found["requests"].update(item.get("defaultRequest") or item.get("default") or {})
    return {**found}


def _own(container: objects.Raw, side: str, defaults: Mapping[str, objects.Raw]) -> Amounts:
    stated: objects.Raw = container.get("resources") or {}
    own: objects.Raw = stated.get(side) or {}
    if side == "requests":
        own = {**(stated.get("limits") or {}), **own}
    return {
        name: quantities.quantity(amount)
        for name, amount in {**defaults.get(side, {}), **own}.items()
    }


def _of_pod(spec: objects.Raw, side: str, defaults: Mapping[str, objects.Raw]) -> Amounts:
    total = _of_containers(spec, side, defaults) | _of_whole_pod(spec, side)
    for name, text in (spec.get("overhead") or {}).items():
        if name in total or side == "requests":
            _add(total, {name: quantities.quantity(text)})
    return total


def _of_whole_pod(spec: objects.Raw, side: str) -> Amounts:
    """What is said for the whole pod (``spec.resources``), completed as the API server does
    (``defaultPodRequests``).

    Where it has limits, requests that are missing are those of the containers, or else the limits.
    Limit ranges come later, so their defaults do not count.
    """
    stated: objects.Raw = spec.get("resources") or {}
    limits = {
        name: quantities.quantity(amount) for name, amount in (stated.get("limits") or {}).items()
    }
    if side == "limits":
        return limits
    own = {
        name: quantities.quantity(amount) for name, amount in (stated.get("requests") or {}).items()
    }
    if not limits:
        return own
    containers = _of_containers(spec, side, {})
    return {
        **limits,
        **{name: containers[name] for name in ("cpu", "memory") if name in containers},
        **own,
    }


def _of_containers(spec: objects.Raw, side: str, defaults: Mapping[str, objects.Raw]) -> Amounts:
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, _own(container, side, defaults))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        own = _own(container, side, defaults)
        if container.get("restartPolicy") == "Always":
            _add(sidecars, own)
            own = {}
        for name in own.keys() | sidecars.keys():
            at_once = own.get(name, Fraction(0)) + sidecars.get(name, Fraction(0))
            peak[name] = max(peak.get(name, Fraction(0)), at_once)
    _add(total, sidecars)
    for name, amount in peak.items():
        total[name] = max(total.get(name, Fraction(0)), amount)
    return total


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, Fraction(0)) + amount


def _in_scope(quota: objects.Raw, spec: objects.Raw) -> bool:
    wanted: objects.Raw = quota.get("spec") or {}
    expressions: list[objects.Raw] = [
        {"scopeName": name, "operator": "Exists"} for name in wanted.get("scopes") or ()
    ]
    expressions += (wanted.get("scopeSelector") or {}).get("matchExpressions") or ()
    return all(_has_scope(expression, spec) for expression in expressions)


def _has_scope(expression: objects.Raw, spec: objects.Raw) -> bool:
    ends: bool = spec.get("activeDeadlineSeconds") is not None
    says_something = any(
        any((c.get("resources") or {}).values()) for c in spec.get("containers") or ()
    )
    match expression.get("scopeName"):
        case "Terminating":
            return ends
        case "NotTerminating":
            return not ends
        case "BestEffort":
            return not says_something
        case "NotBestEffort":
            return says_something
        case "PriorityClass":
            name, values = spec.get("priorityClassName") or "", expression.get("values") or ()
            operator = expression.get("operator")
            if operator in ("In", "NotIn"):
                return bool((name in values) == (operator == "In"))
            return bool(bool(name) == (operator == "Exists"))
    return False


def _shown(amount: Fraction) -> str:
    return str(amount.numerator) if amount.denominator == 1 else f"{float(amount):g}"
