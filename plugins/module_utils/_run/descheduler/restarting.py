# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Restarting a descheduler: the two kinds of restart, and the way back."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import journaling, rollout
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import (
    api_changes,
    objects,
    outcomes,
    phases,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.descheduler import targets

POLL = 1.0
"""Seconds between two reads."""


def restart(
    target: targets.DeschedulerTarget, digest: str, why: str, *, scale: bool, idle: bool, timeout: float
) -> None:
    """Annotate the Deployment's pod template with the digest, so that its pods restart; ``idle``: it has none.

    ``scale`` terminates the old pods first. Then, and after a call that was killed in between, it is scaled up again.
    """
    journal = t.cast("journaling.Journal", target.journal)
    if scale and not idle:
        _scale_down(target, why, timeout)
    count = journal.replicas if (scale or not target.replicas) and not idle else None
    marks: dict[str, str | None] = {rollout.DIGEST: digest}
    if rollout.marks_of(target.workload)[rollout.DIGEST] == digest:
        marks[rollout.RESTARTED] = target.ctx.clock.wall()
    scaled = f" and scale it to {count} again" if count is not None else ""
    sentence = f"{'Annotate' if idle else 'Restart'} {target.ref}{scaled}: {why}"
    target.settle(_marked(target, marks, sentence, count))
    target.tell(outcomes.ConfigOutcome.RESTARTED, f"{'annotated' if idle else 'restarted'}: {why}")


def _scale_down(target: targets.DeschedulerTarget, why: str, timeout: float) -> None:
    ctx = target.ctx
    if target.switch("replicas", 0, f"Scale {target.ref} from {target.replicas} to 0: {why}"):
        target.tell(phases.What.SCALED, "scaled to 0")
    deadline = ctx.clock.now() + timeout
    while not ctx.check and (left := target.pods()):
        if ctx.clock.now() >= deadline:
            message = f"{len(left)} pods of {target.ref} did not terminate within {timeout:.0f} s."
            remedy = "Find out why they do not terminate, then run again to continue."
            raise context.StopRun("pods_stay", message, remedy, str(target.ref))
        ctx.clock.sleep(POLL)
    if not ctx.check:
        target.reread()


def restore(target: targets.DeschedulerTarget, journal: journaling.Journal) -> None:
    """Restore the pod template's annotations, and the replicas if we scaled the Deployment to 0."""
    target.settle(_marked(target, journal.marks, f"Restore {target.ref}", journal.replicas, bare=journal.bare))


def _marked(
    target: targets.DeschedulerTarget, marks: rollout.Marks, sentence: str, replicas: int | None, *, bare: bool = False
) -> targets.Planned:
    """Sets our annotations, and ``replicas`` if the Deployment is scaled to 0."""

    def planned(workload: objects.Raw) -> api_changes.Change | None:
        present = workload["spec"].get("replicas", 1)
        count = None if present else replicas
        found = {**rollout.marks_of(workload), "replicas": present}
        wanted = {**found, **marks, "replicas": present if count is None else count}
        if found == wanted:
            return None
        before, after = ({key: value for key, value in each.items() if value is not None} for each in (found, wanted))
        return target.patch(workload, rollout.marking(marks, bare=bare, replicas=count), sentence, before, after)

    return planned
