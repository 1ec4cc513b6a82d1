# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What would stop a rollout half way, found before its first write."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.preflight import permissions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context, rights
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.descheduler import sites


def permit(site: sites.Site, *, writes: bool, restarts: bool) -> None:
    """See that the ConfigMap can be written and the Deployment restarted.

    Raises:
        StopRun: it cannot; nothing was written.
    """
    place, found = site.place, site.config_map or {}
    where = f"ConfigMap {place.namespace}/{place.config_map}"
    if writes and found.get("immutable"):
        raise context.StopRun("immutable", f"{where} is immutable.", "Replace it by one that is not.", where)
    if writes and place.key in (found.get("binaryData") or {}):
        raise context.StopRun(
            "immutable", f"{where} has {place.key} as binaryData.", "Make it a text under data.", where
        )
    if restarts and site.workload["spec"].get("paused"):
        remedy = f"kubectl -n {place.namespace} rollout resume deployment {place.deployment}, or say restart: none."
        raise context.StopRun("deployment_paused", f"The rollouts of {site.ref} are paused.", remedy, str(site.ref))
    # A role may be limited to the names of these objects.
    asked: list[tuple[permissions.Need, str]] = []
    if writes:
        name = place.config_map if site.config_map else ""
        asked.append((permissions.Need("patch" if name else "create", "", "configmaps", (place.namespace,)), name))
    if restarts:
        asked.append(
            (permissions.Need("patch", site.kind.group, site.kind.plural, (place.namespace,)), place.deployment)
        )
    if writes or restarts:
        verbs = ("get", "create", "patch", "delete")
        asked += [(permissions.Need(verb, "", "configmaps", (names.NAMESPACE,)), "") for verb in verbs]
    lacking = [need for need, name in asked if not rights.allowed(site.ctx, need, need.namespaces[0], name)]
    if lacking:
        told = [permissions.missing(need, need.namespaces) for need in lacking]
        message, remedy = (" ".join(words) for words in zip(*((one.message, one.remedy) for one in told), strict=True))
        raise context.StopRun(told[0].code, message, f"{remedy} Nothing was written.", told[0].object)
