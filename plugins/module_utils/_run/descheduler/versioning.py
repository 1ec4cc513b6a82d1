# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Reading the versions of a descheduler and of its cluster."""

from __future__ import annotations

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import places, versions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.descheduler import targets


def look(target: targets.DeschedulerTarget, given: str) -> versions.Found:
    """The rules that apply, and what is wrong with the versions; ``given`` is the option, empty if it is not set."""
    try:
        page = target.ctx.cluster.send(verbs.server_version(), patience=act.PATIENCE)
    except (errors.Forbidden, errors.NotFound):
        page = {}
    kubernetes = str(page.get("gitVersion") or "")
    image = str(places.container_of(target.workload).get("image") or "")
    return versions.judged(target.flavor, given, image, kubernetes)
