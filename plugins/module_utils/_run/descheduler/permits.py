# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What would stop a rollout half way, checked before its first write."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.preflight import permissions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context, rights
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.descheduler import targets

_KEPT = (
    ("", "configmaps", "get create patch delete"),
    (kinds.LEASES.group, kinds.LEASES.plural, "get list create patch delete"),
)
"""Group, plural and verbs of what a rollout keeps in our namespace: the previous state, and its lock."""


def permit(target: targets.DeschedulerTarget, *, writes: bool, restarts: bool) -> None:
    """Check that the ConfigMap can be written and the Deployment restarted.

    Raises:
        StopRun: they cannot; nothing was written.
    """
    place, found, where = target.place, target.config_map or {}, target.place.map_name
    if writes and found.get("immutable"):
        raise context.StopRun("immutable", f"{where} is immutable.", "Replace it with a mutable one.", where)
    if writes and place.key in (found.get("binaryData") or {}):
        raise context.StopRun("immutable", f"{where} has {place.key} as binaryData.", "Move it to data.", where)
    if restarts and target.workload["spec"].get("paused"):
        remedy = f"kubectl -n {place.namespace} rollout resume deployment {place.deployment}, or set restart: none."
        message = f"The rollout of {target.ref} is paused."
        raise context.StopRun("deployment_paused", message, remedy, str(target.ref))
    # A role may be restricted to the names of these objects.
    asked: list[tuple[permissions.Need, str]] = []
    if writes:
        name = place.config_map if target.config_map else ""
        asked.append((permissions.Need("patch" if name else "create", "", "configmaps", (place.namespace,)), name))
    if restarts:
        need = permissions.Need("patch", target.kind.group, target.kind.plural, (place.namespace,))
        asked.append((need, place.deployment))
    for group, plural, verbs in _KEPT:
        asked += [(permissions.Need(verb, group, plural, (names.NAMESPACE,)), "") for verb in verbs.split()]
    lacking = [need for need, name in asked if not rights.allowed(target.ctx, need, need.namespaces[0], name)]
    if lacking:
        told = rights.missing(target.ctx, [permissions.Lack(need, need.namespaces) for need in lacking])
        message, remedy = (" ".join(words) for words in zip(*((one.message, one.remedy) for one in told), strict=True))
        raise context.StopRun(told[0].code, message, f"{remedy} Nothing was written.", told[0].object)
