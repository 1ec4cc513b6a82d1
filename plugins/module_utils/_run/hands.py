# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Making changes that were decided on a view of the cluster which may be older than our last write."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import (
    Conflict,
    NotFound,
    UnknownOutcome,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.change import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.act import apply
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context


class Hands:
    """Makes changes in order and stops at the first whose view is out of date.

    It remembers the resourceVersion that each of its writes led to: a change decided on an older one is
    not sent at all, instead of being refused by the server again and again until a watch catches up.
    """

    def __init__(self, ctx: Context, fence: t.Callable[[], None]) -> None:
        self._ctx, self._fence = ctx, fence
        self._written: dict[tuple[str, str, str], str] = {}

    def do(self, changes: t.Iterable[Change]) -> bool:
        """Whether all of them were made; if not, look again and decide anew.

        Raises:
            ClusterError: the server refused a change for another reason than its age.
        """
        for change in changes:
            if self.behind(change.target, change.resource_version):
                return False
            try:
                answer = apply(self._ctx, change, fence=self._fence)
            except NotFound:
                if change.verb == "delete":
                    continue
                return False
            except (Conflict, UnknownOutcome):
                return False
            version = (answer.get("metadata") or {}).get("resourceVersion")
            if version and change.verb != "delete":
                self._written[_key(change.target)] = version
        return True

    def behind(self, target: Ref, version: str) -> bool:
        """Whether this version of the object is older than what we last wrote to it."""
        written = self._written.get(_key(target), "")
        return version.isdigit() and written.isdigit() and int(version) < int(written)


def _key(target: Ref) -> tuple[str, str, str]:
    return target.kind, target.namespace, target.name
