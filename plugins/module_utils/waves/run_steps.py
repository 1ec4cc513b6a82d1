# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""The steps of a wave: which engine makes each, and what is kept of its result."""

from __future__ import annotations

import dataclasses
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import run_drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    run_cordon,
    run_gates,
    run_node_hooks,
    run_node_steps,
    run_taint,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import run_plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs import run_runs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import run_locks
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import (
    run_guard,
    run_guard_call,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.waves import (
    call_results,
    wave,
)

Engine = t.Callable[[run_context.Context, t.Any], run_context.Result]
"""The engine of a module, with its options."""
Explain = t.Callable[[run_context.Context, run_context.Result, Engine], None]
"""Adds to the result of a failed engine what permissions are missing for all of its work."""


def _nothing(ctx: run_context.Context, result: run_context.Result, engine: Engine) -> None:
    del ctx, result, engine


@dataclass(frozen=True, slots=True, kw_only=True)
class WaveOptions:
    """Options of the module, those of the steps as their engines take them; times in seconds.

    The options of a step have all of the wave's nodes; the step is for those that came so far.
    ``plan`` checks that the wave still fits; ``None`` for a wave that was planned just now.
    ``releases``: earlier runs left the nodes out of service, and this call has no other before it.
    ``has_work``: tasks follow on the hosts, for ``tasks_timeout`` at most. ``fences``: nodes whose
    kubelets do not respond are due to be switched off, ``fenced`` are those that were since.
    ``before`` has the answers of earlier calls for this wave, ``told`` their results in full,
    ``files`` what came of task files. ``last``: no wave and nothing else follows that would have to
    know the results. ``lease_duration``: for how long the run counts as alive after ``back``.
    """

    nodes: tuple[str, ...]
    cordon: run_node_steps.CordonOptions
    guard: run_guard.GuardOptions
    drain: run_drain.DrainOptions
    gates: run_gates.ReadyOptions
    taint: run_taint.TaintOptions | None = None
    plan: run_plan.PlanOptions | None = None
    before_node: tuple[hook_definitions.Rule, ...] = ()
    after_node: tuple[hook_definitions.Rule, ...] = ()
    on_failure: str = "auto"
    evacuates: bool = False
    releases: bool = False
    has_work: bool = False
    tasks_timeout: float | None = None
    fences: bool = False
    fenced: tuple[str, ...] = ()
    works: t.Mapping[str, t.Mapping[str, t.Any]] = field(default_factory=dict)
    runs: t.Mapping[str, str] = field(default_factory=dict)
    before: t.Mapping[str, t.Any] = field(default_factory=dict)
    told: tuple[t.Mapping[str, t.Any], ...] = ()
    files: call_results.Answer = field(default_factory=dict)
    last: bool = False
    lease_duration: float = run_locks.IDLE
    explain: Explain = _nothing


FOLLOWED = ("nodes", "pods", "budgets", "replica_sets", "deployments", "daemon_sets")
"""What the drain or the gates of a wave watch, once steps before them have listed it."""


class Broken(Exception):
    """A step failed as a whole, so the wave goes no further on this way."""


class HostWork(Exception):
    """The call ends, because something is due on hosts: task files of hooks, or nodes
    ``to_fence``. Meanwhile the locks of the ``nodes`` are to be kept.
    """

    def __init__(
        self,
        nodes: t.Sequence[str],
        hooks: t.Sequence[t.Any] = (),
        to_fence: t.Sequence[str] = (),
    ) -> None:
        super().__init__()
        self.due = {
            "due": True,
            "locked": list(nodes),
            "hooks": list(hooks),
            "to_fence": list(to_fence),
        }


class Steps:
    """One call for a wave and its steps. One that has an answer already is not made again."""

    def __init__(self, ctx: run_context.Context, options: WaveOptions) -> None:
        self.locks = run_locks.SharedLocks(ctx)
        self.ctx = dataclasses.replace(ctx, locks=self.locks, follows=FOLLOWED)
        self.options = options
        before = options.before
        self.answers: dict[str, call_results.Answer] = dict(before.get("answers") or {})
        self.answers["files"] = options.files
        self.broken = str(before.get("broken") or "")
        self.broken_late = str(before.get("broken_late") or "")
        if before.get("msg") and "answers" not in before:
            # Nothing was done: the call before could not begin.
            self.broken = str(before["msg"])
        self.results: list[dict[str, t.Any]] = []

    @property
    def wave(self) -> wave.Wave:
        options = self.options
        return wave.Wave(
            answers=dict(self.answers),
            nodes=options.nodes,
            has_work=options.has_work,
            evacuates=options.evacuates,
            releases=options.releases,
            on_failure=options.on_failure,
            check=self.ctx.check,
            run=str(self.ctx.run or ""),
            runs=options.runs,
            works=options.works,
            broken=self.broken,
            broken_late=self.broken_late,
        )

    def cordon(
        self, name: str, state: run_node_steps.State, nodes: t.Sequence[str], *, breaks: bool = True
    ) -> None:
        """A step of the nodes; few of those on the way back have options."""
        options = run_node_steps.CordonOptions(state, tuple(nodes))
        if state == "cordoned":
            options = dataclasses.replace(self.options.cordon, nodes=tuple(nodes))
        elif state == "returning":
            options = dataclasses.replace(options, adopt=self.options.cordon.adopt)
        elif state == "out":
            seconds, rules = self.options.tasks_timeout, self.options.cordon.rules
            options = dataclasses.replace(options, lease_duration=seconds, rules=rules)
        if nodes:
            self.step(name, run_cordon.cordon, options, breaks=breaks)

    def prepare(self, name: str, nodes: t.Sequence[str], meanwhile: str = "") -> None:
        """Prepare the pods on the nodes to be moved. With the name of a step as ``meanwhile``,
        that is the drain of the others while surges come to serve, if there are any.
        """
        broken: list[Broken] = []

        def drain(
            ctx: run_context.Context, nodes: t.Sequence[str], turns: run_guard_call.SurgeTurns
        ) -> None:
            self.ctx.recent = ctx.recent
            try:
                self.drain(meanwhile, nodes, turns=turns)
            except Broken as error:
                # The surges have their answer first.
                broken.append(error)
            ctx.recent = self.ctx.recent

        if nodes:
            options = dataclasses.replace(self.options.guard, nodes=tuple(nodes))
            if meanwhile:
                options = dataclasses.replace(options, meanwhile=drain)
            self.step(name, run_guard.guard, options)
        if broken:
            raise broken[0]

    def restore(self, name: str, nodes: t.Sequence[str], *, breaks: bool = True) -> None:
        """Undo what prepared the pods on the nodes."""
        if nodes:
            options = run_guard.GuardOptions("absent", tuple(nodes))
            self.step(name, run_guard.guard, options, breaks=breaks)

    def drain(
        self,
        name: str,
        nodes: t.Sequence[str],
        fenced: tuple[str, ...] = (),
        turns: run_guard_call.SurgeTurns | None = None,
    ) -> None:
        options = dataclasses.replace(self.options.drain, nodes=tuple(nodes), turns=turns)
        if fenced:
            choices = dataclasses.replace(options.choices, fenced=fenced)
            options = dataclasses.replace(options, choices=choices)
        if nodes:
            self.step(name, run_drain.drain, options)

    def node_hooks(
        self, hook: hook_definitions.Hook, nodes: t.Sequence[str], name: str = ""
    ) -> None:
        """The hooks of nodes: first their task files, one after the other, then their calls."""
        name = name or hook
        rules = self.options.before_node if hook == "before_node" else self.options.after_node
        if not rules or not nodes or name in self.answers:
            return
        called = run_node_hooks.HookOptions(
            "called", tuple(nodes), rules, (), self.options.drain.send
        )
        if any(rule.tasks for rule in rules) and not self.ctx.check and self.once(f"{name}_files"):
            listed = dataclasses.replace(called, state="listed")
            found = self.ask(self.apart(), run_node_hooks.call_hooks, listed)
            if due := [each for each in found["hooks"] if each["action"] == "tasks"]:
                raise HostWork(nodes, hooks=due)
        self.step(name, run_node_hooks.call_hooks, called)

    def note(self, name: str, nodes: t.Sequence[str], run: str = "") -> None:
        """Record nodes as finished, in this run or in another one that had left them out."""
        own = run_context.Run.parse(run) if run else self.ctx.run
        if nodes:
            self.step(name, _noted, nodes, run=own)

    def once(self, name: str) -> bool:
        """Whether this is the first time that the wave comes here."""
        first = name not in self.answers
        self.answers.setdefault(name, {})
        return first

    def ask(self, ctx: run_context.Context, engine: Engine, options: t.Any) -> dict[str, t.Any]:
        """The result of an engine that changes nothing; it is no part of the wave's results.

        Raises:
            Broken: it failed as a whole.
        """
        result = self._made(ctx, engine, options)
        if "nodes" not in result.data:
            raise Broken(result.message)
        return result.data

    def step(
        self,
        name: str,
        engine: Engine,
        options: t.Any,
        *,
        run: run_context.Run | None = None,
        breaks: bool = True,
    ) -> None:
        """Make a step, unless it has its answer already.

        Raises:
            Broken: it failed as a whole (its answer says nothing of nodes) and ``breaks`` the way.
        """
        if name in self.answers:
            return
        ctx = self.apart(run=run)
        place = len(self.results)
        try:
            result = self._made(ctx, engine, options)
        finally:
            self.ctx.timeline += ctx.timeline
            self.ctx.timeline.sort(key=lambda event: event.at)
            self.ctx.changes += ctx.changes
            self.ctx.recent = ctx.recent
        shaped = {"step": name, **result.shaped(ctx)}
        del shaped["diff"]
        # One that was made meanwhile comes after it.
        self.results.insert(place, shaped)
        self.answers[name] = brief(shaped)
        if breaks and "nodes" not in shaped:
            raise Broken(result.message)

    def _made(self, ctx: run_context.Context, engine: Engine, options: t.Any) -> run_context.Result:
        before = len(ctx.cluster.refusals)
        result = run_context.attempt(ctx, lambda ctx: engine(ctx, options))
        # What an earlier step could do without is no reason here.
        if len(ctx.cluster.refusals) > before:
            self.options.explain(ctx, result, engine)
        return result

    def apart(
        self, *, check: bool = False, run: run_context.Run | None = None
    ) -> run_context.Context:
        """A context of its own, whose events and changes are those of one step."""
        return dataclasses.replace(
            self.ctx,
            check=self.ctx.check or check,
            run=run or self.ctx.run,
            timeline=[],
            changes=[],
        )


def _noted(ctx: run_context.Context, nodes: t.Sequence[str]) -> run_context.Result:
    return run_runs.noted(ctx, nodes)


KEPT = ("msg", "feasible", "left_out", "findings")
OF_NODES = ("name", "failed", "outcome", "message", "hook", "hooks")


def brief(result: t.Mapping[str, t.Any]) -> dict[str, t.Any]:
    """The part of a result by which later steps decide."""
    found = {key: result[key] for key in KEPT if key in result}
    if "nodes" in result:
        found["nodes"] = [_brief(entry) for entry in result["nodes"]]
    return found


def _brief(entry: call_results.Entry) -> dict[str, t.Any]:
    found = {key: entry[key] for key in OF_NODES if key in entry}
    if record := entry.get("record"):
        found["record"] = {"run": record["run"]}
    return found
