# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""One call of a loop from connecting to its result, with every expected error
as part of the result.
"""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import (
    clocks,
    connection,
    errors,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons

Interruption = clocks.Interruption
INTERRUPTED = "interrupted"
"""The code of a call that was asked to end."""
Lacking = t.Callable[[run_context.Context], t.Iterable[reasons.Finding]]
"""What permissions these credentials lack for a call."""
LetGo = t.Callable[[run_context.Context], None]
"""Gives up whatever this start of the run still holds."""


def library_error() -> str | None:
    """The traceback of a failed ``import kubernetes``, ``None`` where the package is there."""
    return connection.LIBRARY_ERROR


def perform(
    target: t.Mapping[str, t.Any],
    loop: t.Callable[[run_context.Context], run_context.Result],
    *,
    user_agent: str,
    run: run_context.Run | None,
    check: bool,
    progress: t.Callable[[run_context.Event], None],
    guard: t.Callable[[], None] | None,
    interruption: clocks.Interruption | None = None,
    let_go: LetGo | None = None,
    lacking: Lacking | None = None,
) -> dict[str, t.Any]:
    """Connect to ``target`` (the fields of ``ConnectionOptions``), run the loop,
    and shape its result.

    What was changed before an error is in the result too; only unexpected errors are raised. If it
    failed and something was forbidden, the result names all permissions that are ``lacking``.
    An ``interruption`` ends the loop early, and then the call ``let_go`` of what its run holds.
    """
    try:
        cluster = connection.connect(
            connection.ConnectionOptions(**target),
            user_agent=user_agent,
            guard=guard,
            # A nonce comes from a call of this very start: the server was there a moment ago.
            answered=bool(run and run.id and run.nonce),
        )
    except (errors.ConfigError, errors.ClusterError) as error:
        return failure(str(error))
    cluster.clock.interruption = interruption
    ctx = run_context.Context(cluster, check=check, run=run, progress=progress, clock=cluster.clock)
    try:
        result = ended(ctx, loop, let_go)
        if lacking:
            name_lacking(ctx, result, lacking)
    finally:
        cluster.close()
    return result.shaped(ctx)


def ended(
    ctx: run_context.Context,
    loop: t.Callable[[run_context.Context], run_context.Result],
    let_go: LetGo | None = None,
) -> run_context.Result:
    """The loop's result, with every expected error as part of it; interrupted,
    this start ``let_go`` of all it holds.
    """
    result = _result(ctx, loop)
    interruption = ctx.clock.interruption
    ctx.clock.interruption = None
    if let_go and interruption and interruption.asked:
        with contextlib.suppress(errors.ClusterError):
            let_go(ctx)
    return result


def _result(
    ctx: run_context.Context, loop: t.Callable[[run_context.Context], run_context.Result]
) -> run_context.Result:
    try:
        return run_context.attempt(ctx, loop)
    except clocks.Interrupted:
        return run_context.stopped(
            run_context.CallAborted(
                INTERRUPTED, "The call was interrupted.", "The same command resumes its run."
            )
        )


def name_lacking(ctx: run_context.Context, result: run_context.Result, lacking: Lacking) -> None:
    """Name in the result of a failed call that was refused something all that is missing."""
    if not (result.failed and ctx.cluster.refusals):
        return
    try:
        found = lacking(ctx)
    except errors.ClusterError:
        return
    before = result.data.get("findings") or ()
    known = {name for finding in before for name in finding.get("objects") or (finding["object"],)}
    more = [finding for finding in found if finding.object not in known]
    result.data["findings"] = [*before, *(finding.to_dict() for finding in more)]
    result.message = " ".join([result.message, *(finding.sentence for finding in more)]).strip()


def failure(message: str) -> dict[str, t.Any]:
    """The result of a call that failed before its first request."""
    return {"findings": [], **run_context.Result({}, failed=True, message=message).shaped()}
