# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""A descheduler's journal in the cluster, written and deleted only as it was read."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import journaling
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import api_changes, objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import writing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.descheduler import targets


def leave(target: targets.DeschedulerTarget, journal: journaling.Journal | None) -> None:
    """Leave this journal, or none; raises as ``keep``."""
    if journal is None:
        forget(target)
    else:
        keep(target, journal)


def keep(target: targets.DeschedulerTarget, journal: journaling.Journal) -> None:
    """Write the journal, before anything else is written.

    Raises:
        ChangedMeanwhileError: it is no longer the one that was read; it is kept.
    """
    if journal != target.journal and not target.ctx.check:
        body, ref = journal.to_config_map(), targets.map_ref(journal.name)
        content = {"data": body["data"], "metadata": {"labels": body["metadata"]["labels"]}}
        sentence = f"Keep the state of {target.ref}"

        def decide(found: objects.Raw | None) -> api_changes.Change | None:
            if found and found.get("data") == body["data"]:
                return None
            if _version(found) != _version(target.stored):
                raise targets.ChangedMeanwhileError(
                    str(ref), "another rollout", "Look at the other rollout, then run again."
                )
            if found is None:
                return api_changes.Change("create", ref, sentence, body=body)
            return api_changes.Change("patch", ref, sentence, content, resource_version=_version(found))

        written = writing.write(target.ctx, ref, decide, known=target.stored, fence=target.fence, remember=False)
        target.stored = written.object
    target.journal = journal


def forget(target: targets.DeschedulerTarget) -> None:
    """Delete the journal, unless it is no longer the one that was read: there is nothing left to restore."""
    if target.journal and target.stored and not target.ctx.check:
        ref = replace(targets.map_ref(target.journal.name), uid=target.stored["metadata"]["uid"])
        version = _version(target.stored)
        change = api_changes.Change("delete", ref, f"Forget the state of {target.ref}", resource_version=version)
        writing.remove(target.ctx, change, fence=target.fence, remember=False)
    target.journal = target.stored = None


def _version(found: objects.Raw | None) -> str:
    """The resourceVersion, empty if there is no such object."""
    return str(found["metadata"]["resourceVersion"]) if found else ""
