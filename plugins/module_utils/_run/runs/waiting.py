# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Marks nodes that wait for their wave, and takes the marks back; nothing of it stops a run.

These nodes are nobody's yet: no lock is taken for the mark. It is set by whoever has just shown that the run is alive,
for as long as that holds; what a process sets that was frozen meanwhile goes with the run, or with ``recover``.
"""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import api_changes, objects, phases
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.nodes import waiting
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.base import act, context, observe, writing

PATIENCE = 10.0
"""Seconds for which a request is repeated while the API server is away or overloaded."""


class TooLateError(errors.ClusterError):
    """The process stood still for so long that the run may be another's by now."""

    rule = "the run's sign of life has expired meanwhile"
    remedy = "Nothing needs to be done."


Rule = t.Callable[[objects.Node, str], "api_changes.Change | None"]


def mark(ctx: context.Context, run_id: str, nodes: t.Collection[str], until: float) -> None:
    """Mark these nodes; ``until``, by the context's clock, the run's sign of life holds."""

    def fence() -> None:
        if ctx.clock.now() >= until:
            raise TooLateError(f"run {run_id} may be another's by now")

    if nodes:
        wanted = [node for node in _listed(ctx) if node.name in nodes]
        _all(ctx, wanted, run_id, waiting.set_on, fence)


def clear(ctx: context.Context, run_id: str, nodes: t.Iterable[objects.Node] | None = None) -> None:
    """Take the run's marks back; ``nodes`` are all nodes of the cluster where they have just been read."""
    wanted = [node for node in (_listed(ctx) if nodes is None else nodes) if run_id in waiting.runs_of(node)]
    _all(ctx, wanted, run_id, waiting.removed_from)


def _listed(ctx: context.Context) -> list[objects.Node]:
    try:
        return observe.lists(ctx.cluster, ("nodes",))["nodes"]
    except errors.ClusterError as error:
        _tell(ctx, str(error))
        return []


def _all(
    ctx: context.Context, nodes: t.Sequence[objects.Node], run_id: str, rule: Rule, fence: act.Fence | None = None
) -> None:
    hopeless: list[str] = []

    def one(node: objects.Node) -> str:
        if hopeless:
            return hopeless[0]

        def decide(raw: objects.Raw | None) -> api_changes.Change | None:
            return rule(objects.Node.of(raw), run_id) if raw else None

        change = rule(node, run_id)
        if change is None:
            return ""
        target = objects.Ref("Node", node.name, api_version="v1")
        try:
            first = writing.at_first(change, decide)
            writing.write(ctx, target, first, known=None, fence=fence, patience=PATIENCE)
        except errors.ClusterError as error:
            message = f"Node {node.name}: {error}"
            hopeless.extend([message] if isinstance(error, (errors.Forbidden, errors.Unreachable)) else [])
            return message
        return ""

    if not nodes:
        return
    with ctx.clock.pool(act.AT_ONCE, "waiting") as pool:
        wrong = [message for message in pool.map(one, nodes) if message]
    if wrong:
        more = f" (and {len(wrong) - 1} more)" if len(wrong) > 1 else ""
        _tell(ctx, f"{wrong[0]}{more}")


def _tell(ctx: context.Context, why: str) -> None:
    """What is left is told by ``recover``."""
    ctx.tell(phases.What.NOTE, f"nodes that wait for their wave are not all marked as they should be: {why}")
