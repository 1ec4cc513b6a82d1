# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""``maintenance_wave``: the way of a wave out of service and back, by the engines of the modules.

Between the two is the work on the hosts, which is Ansible's. Where Ansible has work in between, too
(task files of hooks, machines to be switched off), the call ends early and says what is ``due``;
made again with what it has answered ``before``, it goes on from there, and no step is done twice.
"""

from __future__ import annotations

import dataclasses
import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import run_drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import outcomes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    run_gates,
    run_node_steps,
    run_taint,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import run_plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs import run_runs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.waves import (
    call_results,
    run_steps,
    wave,
)


def take_out(ctx: run_context.Context, options: run_steps.WaveOptions) -> run_context.Result:
    """Cordon, protect and drain the nodes, and hand them over to the work on their hosts.

    A node that fails returns to service at once. Called again with the result as ``before`` after
    what was ``due`` is done.
    """
    steps = _Way(ctx, options)
    return steps.ended(steps.out)


def bring_back(ctx: run_context.Context, options: run_steps.WaveOptions) -> run_context.Result:
    """Return the nodes whose work is done, through their gates, and park the others.

    ``before`` is the result of ``take_out``. Called again as that is.
    """
    steps = _Way(ctx, options)
    return steps.ended(steps.back)


def release(ctx: run_context.Context, options: run_steps.WaveOptions) -> run_context.Result:
    """Return nodes that earlier runs left out of service, through their gates as ``bring_back``.

    A caller with a nonce alone does so for the runs in the nodes' records, and these are told.
    Check mode asks no gates. Called again as ``take_out`` is.
    """
    steps = _Way(ctx, options)
    return steps.ended(steps.release)


class _Way(run_steps.Steps):
    """The order of the steps."""

    def ended(self, way: t.Callable[[], None]) -> run_context.Result:
        """Go this way, as far as it goes, and shape the result."""
        due: dict[str, t.Any] = {"due": False, "locked": [], "hooks": [], "to_fence": []}
        try:
            way()
        except run_steps.HostWork as work:
            due = work.due
        finally:
            self.locks.leave()
        found = self.wave
        failed = found.failed
        if way == self.out:
            # The others have their work and the way back before them.
            so_far = found.drained if self.ctx.check else found.ready
            failed = [entry for entry in failed if entry["name"] not in so_far]
        through = call_results.without(found.fitting, call_results.names(failed))
        return run_context.Result(
            {
                "nodes": [] if due["due"] else [*map(self._last_said, through), *failed],
                "ready": [] if due["due"] else found.ready,
                "back": found.done,
                **due,
                "stop": found.stop,
                "left_out": call_results.left_out(self.answers.get("again") or {}),
                "answers": self.answers,
                "broken": self.broken,
                "broken_late": self.broken_late,
                "steps": self.results,
            },
            failed=bool((failed and not due["due"]) or found.stop),
            message=" ".join([found.stop, *(entry["message"] for entry in failed)]).strip(),
        )

    def _last_said(self, name: str) -> dict[str, t.Any]:
        """The last entry about a node that did not fail."""
        entries = call_results.entries(*self.wave.of(*wave.ABOUT_NODES))
        said = [entry for entry in entries if entry["name"] == name]
        return dict(said[-1]) if said else {"name": name, "failed": False}

    # The way out of service

    def out(self) -> None:
        if not self.broken:
            try:
                self._out()
            except run_steps.Broken as broken:
                self.broken = str(broken)
        if self.wave.lost and not self.ctx.check:
            self._return_lost(self.wave.lost)

    def _out(self) -> None:
        options = self.options
        if options.plan:
            self.step("again", run_plan.make_plan, options.plan)
        if self.wave.stop or not self.wave.fitting:
            return
        self.cordon("cordon", "cordoned", self.wave.fitting)
        self.node_hooks("before_node", self.wave.hooked)
        # Task files run while all of the pods are still there.
        files = any(rule.tasks for rule in options.drain.hooks.before)
        meanwhile = "" if files or self.ctx.check else "migrate"
        self.prepare("protect", self.wave.hooked, meanwhile)
        self._drain()
        if options.has_work and not self.ctx.check:
            self.cordon("out", "out", self.wave.drained)

    def _drain(self) -> None:
        options = self.options.drain
        if any(rule.tasks for rule in options.hooks.before):
            self._files_before_pods()
        self.drain("migrate", self.wave.protected)
        if self.ctx.check:
            return
        to_fence = [
            entry["name"]
            for entry in self.wave.emptied
            if entry["outcome"] == outcomes.DrainOutcome.UNREACHABLE
        ]
        if self.options.fences and to_fence and self.once("fence"):
            raise run_steps.HostWork(self.wave.protected, to_fence=to_fence)
        self.drain("fenced", self.options.fenced, fenced=self.options.fenced)
        due = wave.task_files({"nodes": self.wave.emptied}, "after_pod")
        if due and self.once("after_pod"):
            raise run_steps.HostWork(self.wave.protected, hooks=due)

    def _files_before_pods(self) -> None:
        """The task files of pods run while all of the pods are still there."""
        if self.ctx.check or not self.wave.protected or not self.once("before_pod"):
            return
        drain = dataclasses.replace(self.options.drain, nodes=tuple(self.wave.protected))
        asked = self.ask(self.apart(check=True), run_drain.drain, drain)
        if due := wave.task_files(asked, "before_pod"):
            raise run_steps.HostWork(self.wave.protected, hooks=due)

    def _return_lost(self, nodes: list[str]) -> None:
        keeps = self.options.on_failure == "keep"
        if not keeps:
            try:
                self.node_hooks("after_node", nodes, "lost_hooks")
            except run_steps.Broken as broken:
                # This must not keep the nodes out of service.
                self.broken_late = str(broken)
        self.restore("lost_guards", nodes, breaks=False)
        goal: run_node_steps.State = "parked" if keeps else "uncordoned"
        self.cordon("lost_nodes", goal, nodes, breaks=False)

    # The way back

    def back(self) -> None:
        self.cordon("parked", "parked", self.wave.unfinished, breaks=False)
        self.restore("over_guards", self.wave.over, breaks=False)
        self._return(self._back)
        self._note_end()

    def release(self) -> None:
        self._return(self._give_back if self.ctx.check else self._back)

    def _return(self, way: t.Callable[[], None]) -> None:
        try:
            way()
        except run_steps.Broken as broken:
            self.broken_late = str(broken)
            self.cordon("parked_late", "parked", self.wave.not_back, breaks=False)

    def _back(self) -> None:
        self.cordon("returning", "returning", self.wave.returning)
        self._gates()
        self.node_hooks("after_node", self.wave.released)
        self.cordon("parked_held", "parked", self.wave.held)
        run_id, _nonce = self.ctx.caller
        if not (self.options.releases and run_id):
            self.note("noted", self.wave.finished)
        for run, nodes in wave.others(self.wave).items():
            self.note(f"noted {run}", nodes, run)
        self._give_back()

    def _give_back(self) -> None:
        options = self.options
        if options.taint and self.wave.released:
            taint = dataclasses.replace(options.taint, nodes=tuple(self.wave.released))
            self.step("taint", run_taint.taint, taint)
            self.cordon("parked_untainted", "parked", self.wave.untainted)
        self.restore("guards", self.wave.give_back)
        self.cordon("uncordon", "uncordoned", self.wave.give_back)

    def _gates(self) -> None:
        returning = self.answers.get("returning") or {}
        there = [
            entry
            for entry in call_results.entries(returning)
            if not entry["failed"] and entry["outcome"] != outcomes.CordonOutcome.GONE
        ]
        if not there:
            return
        # A node that was registered again has no bootID from before.
        replaced = [
            entry["name"] for entry in there if entry["outcome"] == outcomes.CordonOutcome.REPLACED
        ]
        gates = dataclasses.replace(
            self.options.gates,
            nodes=tuple(call_results.names(there)),
            not_rebooted=(*self.wave.not_rebooted, *replaced),
        )
        self.step("verify", run_gates.check_ready, gates)
        if self.options.on_failure != "release":
            failed = call_results.names(call_results.failed(self.answers["verify"]))
            self.cordon("verify_parked", "parked", failed)

    def _note_end(self) -> None:
        """Between two waves no lock of a node shows that the run is alive."""
        if "end" in self.answers:
            return
        failed = self.wave.failed
        if self.options.files:
            self.results.append(dict(self.options.files))
        results = (*self.options.told, *self.results, {"nodes": failed})
        needed = () if self.options.last and not failed else results
        self.step("end", self._noted_end, needed, breaks=False)

    def _noted_end(
        self, ctx: run_context.Context, results: t.Sequence[t.Any]
    ) -> run_context.Result:
        return run_runs.noted(ctx, (), self.options.lease_duration, results)
