# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The way back from a configuration that does not run: ConfigMap and Deployment as they were."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import journaling, rollout
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import outcomes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.descheduler import (
    journals,
    proofs,
    restarting,
    targets,
)

ROLLED_BACK_WITHIN = 40.0
"""Seconds to wait for the restored configuration to run."""


def roll_back(verification: proofs.Verification, journal: journaling.Journal, ours: t.Collection[str]) -> str:
    """Restore what the journal holds, and tell what was restored.

    A ConfigMap whose text is neither the old one nor one with a digest of ``ours`` is kept. A pause that was there
    before stays stored.

    Raises:
        StopRun: another call took the lock over.
        ClusterError: the server refused, or could not be reached.
    """
    target, kept = verification.target, False
    if target.text != journal.config:
        means = None if target.text is None else verification.parse(target.text)
        kept = rollout.digest(means) not in ours or not _restored(target, journal)
    restarting.restore(target, journal)
    target.reread()
    waiting = verification.settled(within=ROLLED_BACK_WITHIN).waiting
    runs = f"but {waiting}" if waiting else f"and {'its pods run' if kept else 'the old one runs'}"
    restored = f"{target.ref} is restored, {runs}" if kept else f"ConfigMap and {target.ref} are restored, {runs}"
    target.tell(outcomes.ConfigOutcome.ROLLED_BACK, f"rolled back: {restored}")
    journals.leave(target, journal.ended(journal.resumes) if journal.stays_paused else None)
    return f"{restored}.{' Someone else changed the ConfigMap meanwhile; that was kept.' if kept else ''}"


def _restored(target: targets.DeschedulerTarget, journal: journaling.Journal) -> bool:
    """Restore the ConfigMap, unless somebody else has changed it since it was read; whether it is as before."""
    sentence, had_map, had_data = f"Restore {target.place.map_name}", journal.had_map, journal.had_data
    try:
        target.write(journal.config, target.text, sentence, had_map=had_map, had_data=had_data)
    except targets.ChangedMeanwhileError:
        return False
    return True
