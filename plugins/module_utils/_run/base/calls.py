# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""One call of a loop from connecting to its result, with every expected error as part of the result."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import connection
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import ClusterError, ConfigError
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.node_records import BadRecordError
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.swap.surge_records import BadSurgeError
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base.context import (
    Context,
    Event,
    Result,
    Run,
    StopRun,
)


def library_error() -> str | None:
    """The traceback of a failed ``import kubernetes``, ``None`` where the package is there."""
    return connection.LIBRARY_ERROR


def perform(
    target: t.Mapping[str, t.Any],
    loop: t.Callable[[Context], Result],
    *,
    user_agent: str,
    run: Run | None,
    check: bool,
    progress: t.Callable[[Event], None],
    guard: t.Callable[[], None] | None,
) -> dict[str, t.Any]:
    """Connect as ``target`` says (the fields of ``ConnectionOptions``), loop, and shape the result.

    What was changed before an error is in the result too; only errors that nobody expects are raised.
    """
    try:
        cluster = connection.connect(
            connection.ConnectionOptions(**target),
            user_agent=user_agent,
            guard=guard,
            # A nonce comes from a call of this very start: the server was there a moment ago.
            answered=bool(run and run.id and run.nonce),
        )
    except (ConfigError, ClusterError) as error:
        return failure(str(error))
    ctx = Context(cluster, check=check, run=run, progress=progress, clock=cluster.clock)
    try:
        result = loop(ctx)
    except StopRun as stop:
        result = stopped(stop)
    except (ConfigError, ClusterError, BadRecordError, BadSurgeError) as error:
        result = Result({"findings": []}, failed=True, message=str(error))
    finally:
        cluster.close()
    return result.shaped(ctx)


def failure(message: str) -> dict[str, t.Any]:
    """The result of a call that failed before anything was asked or done."""
    return {
        "changed": False,
        "failed": True,
        "msg": message,
        "actions": [],
        "diff": [],
        "timeline": [],
        "findings": [],
    }


def stopped(stop: StopRun) -> Result:
    """The result of a call that decided to do nothing more."""
    return Result({"findings": [stop.reason.shown()]}, failed=True, message=stop.reason.sentence)
