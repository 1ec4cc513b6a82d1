# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""What every loop over watches asks of them: that each has listed once, and that none has ended for good."""

from __future__ import annotations

import threading
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import watch
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context


def begin(ctx: context.Context, reflectors: t.Mapping[str, watch.Reflector], wake: threading.Condition) -> None:
    """Start the watches, by what they watch, and wait until each was listed once; ``wake`` is theirs.

    Raises:
        ClusterError: the API server did not answer for ``PATIENCE`` seconds.
        StopRun: something may not be watched.
    """
    until = ctx.clock.now() + act.PATIENCE
    for reflector in reflectors.values():
        reflector.start()
    with wake:
        while not all(r.synced for r in reflectors.values()):
            raise_errors(reflectors)
            trouble = next((r.trouble for r in reflectors.values() if r.trouble), None)
            if trouble and ctx.clock.now() > until:
                raise trouble
            wake.wait(1.0)


def raise_errors(reflectors: t.Mapping[str, watch.Reflector]) -> None:
    """End the run where a watch has ended for good.

    Raises:
        StopRun: it has; the message names what was watched.
    """
    for name, reflector in reflectors.items():
        if reflector.error:
            raise context.StopRun(
                "watch_failed",
                f"Watching {name} ended: {reflector.error}",
                "Mend what the message names, then run the same command again: it resumes.",
            ) from reflector.error
