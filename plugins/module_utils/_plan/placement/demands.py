# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What a pod asks of a node and takes of it: resources and host ports (``component-helpers/resource``)."""

from __future__ import annotations

import typing as t
from collections.abc import Mapping

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects, quantities

Amounts = dict[str, int]
"""By resource, as ``quantities.counted`` counts it."""
Port = tuple[str, str, int]
"""Address, protocol and number; the address ``0.0.0.0`` is every address."""

EVERYWHERE = "0.0.0.0"


def requests(spec: objects.Raw, *, running: bool) -> Amounts:
    """The requests of a trimmed spec: containers and sidecars together, or the largest init container at its turn.

    What is said for the whole pod counts instead, and the overhead is added. ``running``: during a resize the larger of
    what is wanted, allocated and in force counts.
    """
    counted: Mapping[str, t.Any] = (spec.get("counted") or {}) if running else {}
    infeasible = bool(spec.get("infeasible"))
    total: Amounts = {}
    for container in spec.get("containers") or ():
        _add(total, _effective(container.get("requests"), counted.get(container["name"]), infeasible))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.get("initContainers") or ():
        sidecar = container.get("restartPolicy") == "Always"
        own = _effective(container.get("requests"), counted.get(container["name"]) if sidecar else None, infeasible)
        if sidecar:
            _add(total, own)
            _add(sidecars, own)
            own = dict(sidecars)
        else:
            _add(own, sidecars)
        for name, amount in own.items():
            peak[name] = max(peak.get(name, 0), amount)
    for name, amount in peak.items():
        total[name] = max(total.get(name, 0), amount)
    whole = (spec.get("resources") or {}).get("requests")
    if whole:
        in_force = spec.get("countedWhole") if running else None
        stated = _effective(whole, in_force, infeasible)
        total.update({name: stated[name] for name in whole if _for_whole_pods(name)})
    _add(total, _amounts(spec.get("overhead")))
    return {name: amount for name, amount in total.items() if amount}


def ports(spec: objects.Raw) -> tuple[Port, ...]:
    """The host ports of containers and sidecars."""
    lasting = [c for c in spec.get("initContainers") or () if c.get("restartPolicy") == "Always"]
    return tuple(
        (port.get("hostIP") or EVERYWHERE, port.get("protocol") or "TCP", port["hostPort"])
        for container in (*lasting, *(spec.get("containers") or ()))
        for port in container.get("ports") or ()
    )


def _effective(wanted: objects.Raw | None, counted: t.Sequence[objects.Raw] | None, infeasible: bool) -> Amounts:
    if not counted:
        return _amounts(wanted)
    found: Amounts = {}
    for one in (*(() if infeasible else (wanted,)), *counted):
        for name, amount in _amounts(one).items():
            found[name] = max(found.get(name, 0), amount)
    return found


def _amounts(raw: objects.Raw | None) -> Amounts:
    return {name: quantities.counted(name, text) for name, text in (raw or {}).items()}


def _for_whole_pods(name: str) -> bool:
    return name in ("cpu", "memory") or name.startswith("hugepages-")


def _add(total: Amounts, more: Amounts) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount
