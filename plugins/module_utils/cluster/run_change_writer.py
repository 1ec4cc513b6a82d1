# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Writes changes that were decided on a view of the cluster which may be older
than our last write.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    objects,
    run_context,
    run_reconcile,
    run_requests,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors


class ChangeWriter:
    """Writes changes in order and stops at the first whose view is out of date.

    It remembers the resourceVersion after each of its writes: a change that was decided on an older
    one is not sent, instead of being refused by the server until a watch catches up.
    """

    def __init__(self, ctx: run_context.Context) -> None:
        self._ctx = ctx
        self._written: dict[tuple[str, str, str], str] = {}

    def write(
        self,
        changes: t.Iterable[api_changes.Change],
        prove_lock: run_requests.ProveLock | None = None,
    ) -> bool:
        """Whether all of them were written; if not, look again and decide anew.

        Raises:
            ClusterError: the server refused a change for another reason than its age.
        """
        for change in changes:
            if self.behind(change.target, change.resource_version):
                return False
            try:
                decide = _as_decided(change)
                found = run_reconcile.reconcile(
                    self._ctx, change.target, decide, known=None, prove_lock=prove_lock
                ).object
            except (_OldViewError, run_reconcile.Contended, errors.UnknownOutcome):
                return False
            version = ((found or {}).get("metadata") or {}).get("resourceVersion")
            if version:
                self._written[_key(change.target)] = version
        return True

    def behind(self, target: objects.Ref, version: str) -> bool:
        """Whether this version of the object is older than what we last wrote to it."""
        written = self._written.get(_key(target), "")
        return version.isdigit() and written.isdigit() and int(version) < int(written)


class _OldViewError(Exception):
    """The object is another one than the change was decided on."""


def _as_decided(change: api_changes.Change) -> run_reconcile.Decide:
    """The change as it is; after a failed write only if nothing else has changed the object."""

    def decide(found: objects.Raw | None) -> api_changes.Change | None:
        if _made(change, found):
            return None
        version = found["metadata"].get("resourceVersion") if found else ""
        if version != change.resource_version or (found is None) != (change.verb == "create"):
            raise _OldViewError
        return change

    return run_reconcile.at_first(change, decide)


def _made(change: api_changes.Change, found: objects.Raw | None) -> bool:
    """Whether the object is as the change makes it."""
    if change.verb == "delete":
        return found is None or change.target.uid not in ("", found["metadata"].get("uid"))
    return found is not None and _holds(found, change.body)


def _holds(found: t.Any, wanted: t.Any) -> bool:
    """Whether a merge patch with ``wanted`` would change nothing."""
    if not isinstance(wanted, t.Mapping):
        return bool(found == wanted)
    inside = found if isinstance(found, t.Mapping) else {}
    return all(_holds(inside.get(key), value) for key, value in wanted.items())


def _key(target: objects.Ref) -> tuple[str, str, str]:
    return target.kind, target.namespace, target.name
