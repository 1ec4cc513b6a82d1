# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What would stop a rollout half way, found before its first write."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.permissions import Need, missing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.act import PATIENCE
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import StopRun
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.descheduler_site import Site


def permit(site: Site, *, writes: bool, restarts: bool) -> None:
    """See that the ConfigMap can be written and the Deployment restarted.

    Raises:
        StopRun: it cannot; nothing was written.
    """
    place, found = site.place, site.config_map or {}
    where = f"ConfigMap {place.namespace}/{place.config_map}"
    if writes and found.get("immutable"):
        raise StopRun("immutable", f"{where} is immutable.", "Replace it by one that is not.", where)
    if writes and place.key in (found.get("binaryData") or {}):
        raise StopRun("immutable", f"{where} has {place.key} as binaryData.", "Make it a text under data.", where)
    if restarts and site.workload["spec"].get("paused"):
        remedy = f"kubectl -n {place.namespace} rollout resume deployment {place.deployment}, or say restart: none."
        raise StopRun("deployment_paused", f"The rollouts of {site.ref} are paused.", remedy, str(site.ref))
    needs = []
    if writes:
        verb = "patch" if site.config_map else "create"
        needs.append((Need(verb, "", "configmaps", (place.namespace,)), place.config_map if site.config_map else ""))
    if restarts:
        needs.append((Need("patch", site.kind.group, site.kind.plural, (place.namespace,)), place.deployment))
    if writes or restarts:
        needs += [(Need(verb, "", "configmaps", (names.NAMESPACE,)), "") for verb in ("create", "delete")]
    for need, name in needs:
        if not _allowed(site, need, name):
            refusal = missing(need, need.namespaces)
            raise StopRun(refusal.code, refusal.message, f"{refusal.remedy} Nothing was written.", refusal.object)


def _allowed(site: Site, need: Need, name: str) -> bool:
    """Asked with the object's name, which a role may be limited to."""
    kind = kinds.SELF_SUBJECT_ACCESS_REVIEWS
    asked = {
        "verb": need.verb,
        "group": need.group,
        "resource": need.resource,
        "namespace": need.namespaces[0],
        "name": name,
    }
    review = {
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "spec": {"resourceAttributes": {key: value for key, value in asked.items() if value}},
    }
    answer = site.ctx.cluster.send(verbs.create(kind, review), patience=PATIENCE)
    return bool((answer.get("status") or {}).get("allowed"))
