# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The lock of one descheduler, a Lease of the same name as its journal: only its holder writes.

It is a lock as nodes have one, but with a nonce of its own for each call, because a call is a whole rollout. What a
call that was killed had begun is in the journal, by which the next holder goes on.
"""

from __future__ import annotations

import contextlib
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.descheduler import (
    check,
    journaling,
    places,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context, locking
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.descheduler import targets

Work = t.Callable[[targets.DeschedulerTarget], "context.Result | None"]
"""A call's work on a descheduler as it was just read; ``None`` if it has to write, and may not yet."""


def one_at_a_time(ctx: context.Context, flavor: check.Flavor, place: places.Place, work: Work) -> context.Result:
    """Do the work; if it has to write, do it again under the lock, with what is there by then.

    Raises:
        StopRun: another call holds the lock, or the descheduler does not exist.
    """
    target = targets.DeschedulerTarget.read(ctx, flavor, place)
    done = work(target)
    if done is None:
        with _locked(target) as fence:
            done = work(targets.DeschedulerTarget.read(ctx, flavor, place, fence))
    return t.cast("context.Result", done)


@contextlib.contextmanager
def _locked(target: targets.DeschedulerTarget) -> t.Iterator[act.Fence]:
    ctx, ref = target.ctx, target.ref
    run_id, _nonce = ctx.caller
    me = context.Run(run_id or ctx.clock.token(), ctx.clock.token())
    name = f"{ref.namespace}/{ref.name}"
    locks = locking.Locks(ctx, me, {name: f"{names.NAMESPACE}/{journaling.PREFIX}{ref.uid}"}, ref.kind)
    if refused := locks.take():
        locks.leave()
        remedy = "Wait until that rollout has ended, then run again. Nothing was written."
        raise context.StopRun("held", f"{refused[name]}.", remedy, str(ref))
    try:
        yield locks.fence
    finally:
        locks.leave(drop=[name])
