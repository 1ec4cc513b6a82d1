# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The selectors of Services, for pods with labels that were set while they run, as ``role=leader``.

A Service that selects such a label does not list a new pod, however long one waits.
"""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors, kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import lookups, parsers, snapshots
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap import surge_records, swap
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context


class ServiceSelectors(dict[lookups.Place, t.Mapping[str, str]]):
    """By the places of the Services, read once of each namespace where it matters."""

    def __init__(self, ctx: context.Context) -> None:
        super().__init__()
        self._ctx, self._read = ctx, set[str]()

    def around(self, snapshot: snapshots.Snapshot, surge: surge_records.Surge) -> ServiceSelectors:
        """Those that are known, with the ones of the surge's namespace if its new pods lack a label.

        Raises:
            ClusterError: they cannot be read now.
        """
        namespace = surge.workload.namespace
        if namespace not in self._read and swap.relabelled(snapshot, surge):
            # Who may not read them waits for all.
            with contextlib.suppress(errors.Forbidden):
                found = self._ctx.cluster.items(
                    kinds.SERVICES, namespace=namespace, patience=act.PATIENCE, keep=parsers.service
                ).items
                self.update({(namespace, one["metadata"]["name"]): one["spec"].get("selector") or {} for one in found})
            self._read.add(namespace)
        return self
