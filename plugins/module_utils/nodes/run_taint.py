# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``node_taint``: bring the taints of nodes to what is wanted.

To the API server a node's taints are one value, so the list is read, changed and written on the
condition that nobody changed the node in between; otherwise it is read and planned again.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    api_changes,
    no_execute,
    node_taints,
    objects,
    run_context,
    run_listing,
    run_reconcile,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import (
    outcomes,
    reasons,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import run_lookup

State = t.Literal["present", "absent", "exact"]


@dataclass(frozen=True, slots=True)
class TaintOptions:
    """Options of the module; ``taints`` are valid; ``keep`` has keys that ``exact`` leaves,
    ``example.com/*`` too.

    The nodes are those of these names, or without any those that the label selector
    ``node_selector`` matches.
    """

    state: State
    nodes: tuple[str, ...]
    taints: tuple[node_taints.DesiredTaint, ...]
    allow_no_execute: bool = False
    keep: tuple[str, ...] = ()
    node_selector: str = ""


@dataclass
class _Task:
    """One node's part of the call."""

    name: str
    raw: objects.Raw
    before: tuple[objects.Raw, ...] = ()
    after: tuple[objects.Raw, ...] = ()
    change: api_changes.Change | None = None
    outcome: outcomes.TaintOutcome | None = None
    message: str = ""

    @property
    def node(self) -> objects.Node:
        return objects.Node.of(self.raw)

    @property
    def failed(self) -> bool:
        return self.outcome is not None and self.outcome.failed

    @property
    def harsh(self) -> tuple[objects.Raw, ...]:
        """The NoExecute taints that are new with this change."""
        return node_taints.new_no_execute(self.node.taints, self.after)

    def to_dict(self) -> dict[str, t.Any]:
        return {
            **outcomes.entry(self.name, self.outcome, self.message),
            "before": [dict(taint) for taint in self.before],
            "after": [dict(taint) for taint in (self.node.taints if self.failed else self.after)],
        }


def taint(ctx: run_context.Context, options: TaintOptions) -> run_context.Result:
    """Bring the taints of every node to what is wanted.

    Raises:
        CallAborted: there is no such node, or none that the selector matches; nothing was written.
        ClusterError: the API server cannot be reached, or refuses to list nodes or pods;
            nothing was written.
    """
    found, among = run_lookup.selected(ctx, options.nodes, options.node_selector)
    tasks = [_Task(name, raw) for name, raw in found.items()]
    for task in tasks:
        _plan(options, task)
    harsh = [task for task in tasks if task.harsh]
    kills = _kills(ctx, harsh, among)
    evicts = [kill.to_dict() for kill in kills]
    if harsh and not options.allow_no_execute:
        refusal = _refusal(harsh, kills)
        data = {"findings": [refusal.to_dict()], "evicts": evicts}
        return run_context.Result(data, failed=True, message=refusal.sentence)
    for task in tasks:
        if task.change:
            _write(ctx, options, task, kills)
    return run_lookup.result([task.to_dict() for task in tasks], evicts=evicts)


def _plan(options: TaintOptions, task: _Task) -> None:
    exact = options.state == "exact"
    task.after = node_taints.desired_taints(
        task.node.taints, options.taints, exact=exact, keep=options.keep
    )
    task.change = node_taints.rewrite(task.node, task.after)
    if task.change or not task.outcome:
        task.before = task.node.taints
    if task.change:
        task.outcome = outcomes.TaintOutcome(options.state)
        task.message = f"{task.change.sentence}."
    else:
        task.outcome = outcomes.TaintOutcome(f"already_{options.state}")
        task.message = f"The taints of node {task.name} are as wanted."
    task.message = f"{task.message} {node_taints.outdated(options.taints)}".rstrip()


def _kills(
    ctx: run_context.Context, harsh: t.Sequence[_Task], among: int
) -> tuple[no_execute.Kill, ...]:
    """Which pods new NoExecute taints will end; pods are listed only if a node gets such a taint.

    ``among``: how many nodes the cluster has at least.
    """
    if not harsh:
        return ()
    pods: dict[str, list[objects.Pod]] = {task.name: [] for task in harsh}
    for pod in run_listing.pods_of(ctx.cluster, pods, among):
        pods[pod.node].append(pod)
    kills: list[no_execute.Kill] = []
    for task in harsh:
        kills += no_execute.forecast(pods[task.name], task.node.taints, task.after)
    return tuple(kills)


def _refusal(harsh: t.Sequence[_Task], kills: t.Sequence[no_execute.Kill]) -> reasons.Finding:
    taints: dict[str, None] = {}
    for task in harsh:
        taints |= dict.fromkeys(map(node_taints.in_words, task.harsh))
    words = ", ".join(taints)
    names = ", ".join(task.name for task in harsh)
    return reasons.Finding(
        "no_execute_refused",
        f"{words} on {names} {_toll(kills)}, without regard to budgets; evicts lists the pods.",
        "Drain the nodes with node_drain first, or set allow_no_execute: true.",
        "blocker",
        f"Node {names}",
        tuple(task.name for task in harsh),
    )


def _toll(kills: t.Sequence[no_execute.Kill]) -> str:
    if not kills:
        return "ends no pod that is running now"
    soon = sum(not kill.seconds for kill in kills)
    last = max(kill.seconds for kill in kills)
    later = f", {len(kills) - soon} within {last} s" if last else ""
    return f"ends {len(kills)} pod{'s' if len(kills) > 1 else ''} ({soon} at once{later})"


def _write(
    ctx: run_context.Context, options: TaintOptions, task: _Task, kills: t.Sequence[no_execute.Kill]
) -> None:
    """Patch one node, planned on its present state; fills the task's outcome."""
    mine = [kill for kill in kills if kill.pod.node == task.name]
    toll = f"{_toll(mine)}, without regard to budgets" if mine else ""

    def decide(raw: objects.Raw | None) -> api_changes.Change | None:
        if raw is None:
            task.outcome = outcomes.TaintOutcome.GONE
            task.message = f"Node {task.name} was deleted in the meantime."
            return None
        task.raw = raw
        _plan(options, task)
        if task.harsh and not options.allow_no_execute:
            task.outcome = outcomes.TaintOutcome.REFUSED
            what = f"Somebody removed a NoExecute taint from node {task.name}"
            task.message = f"{what} in the meantime; run again."
            return None
        return task.change

    target = objects.Ref("Node", task.name, api_version="v1")
    try:
        written = run_reconcile.reconcile(ctx, target, decide, known=task.raw)
    except errors.ClusterError as error:
        task.outcome = outcomes.TaintOutcome.FAILED
        task.message = f"Node {task.name}: {error}"
        return
    if written.change and not task.failed:
        task.outcome = outcomes.TaintOutcome(options.state)
        outdated = node_taints.outdated(options.taints)
        words = (f"{written.change.sentence}.", f"This {toll}." if toll else "", outdated)
        task.message = " ".join(filter(None, words))
        if not ctx.check:
            parts = (node_taints.progress(written.change), toll, outdated)
            ctx.tell(task.outcome, "; ".join(filter(None, parts)), node=task.name)
