# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Begin and end of maintenance as playbooks/maintain.yml makes the calls, in one thread of a process.

Each call is one of a module: it has a connection of its own, and what goes wrong in it is its result. Between two
calls passes the time that Ansible needs (`gap`). Called again with the same input, it is "the same command".
"""

from __future__ import annotations

import contextlib
import enum
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import calls as calls_module
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context, Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_drain import DrainOptions, drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import clocks
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_gates import ReadyOptions, check_ready
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_hooks import (
    HookOptions,
    call_hooks,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning.run_plan import PlanOptions, make_plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs.arguments import StateOptions, state
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import run_lease
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_guard import GuardOptions, guard
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import Actor

GATES = ("ready", "daemonsets", "schedulable", "conditions", "pressure", "stable")

Loop = t.Callable[[Context], Result]


@dataclass(frozen=True, slots=True)
class Input:
    """What a user gives `maintain`, in its final types. `work` is what the tasks do to the nodes that are out.

    `hook_rules` are those of all hooks; rules with task files are not for a simulated run.
    `run` is `maintain_run`; `evacuates`: the nodes stay out; `check` is `--check`. Times in seconds.
    """

    nodes: tuple[str, ...]
    work: t.Callable[[Actor, str], None] | None = None
    choices: DrainPolicy = field(default_factory=DrainPolicy)
    run: str = ""
    serial: int = 1
    evacuates: bool = False
    on_failure: t.Literal["auto", "keep", "release"] = "auto"
    gates: tuple[str, ...] = GATES
    settle: float = 2.0
    timeout: float = 600.0
    tasks_timeout: float = 3600.0
    gap: float = 0.2
    check: bool = False
    node_conditions: bool = False
    planned_notice: float | None = None
    hook_rules: tuple[hook_definitions.Rule, ...] = ()

    def rules(self, *wanted: hook_definitions.Hook) -> tuple[hook_definitions.Rule, ...]:
        """The rules of these hooks."""
        return tuple(rule for rule in self.hook_rules if rule.hook in wanted)

    @property
    def fingerprint(self) -> dict[str, t.Any]:
        return {
            "playbook": "evacuate" if self.evacuates else "maintain",
            "nodes": list(self.nodes),
            "node_selector": "",
            "tasks": "work.yml" if self.work else "",
            "reboot": False,
            "backend": self.choices.backend,
            "taints": [],
        }


@dataclass
class Outcome:
    """How a run ended: `failed` maps a node to why it is not where it should be; `wrong` is about the whole run."""

    run: str = ""
    failed: dict[str, str] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    calls: list[tuple[str, Result]] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether the playbook's return code is 0."""
        return not self.failed and not self.wrong


def maintain(actor: Actor, given: Input) -> Outcome:
    """The whole run, to be called in a thread of the actor: give it to `actor.spawn`.

    With an interruption of the actor's clock it ends as ansible-playbook does, with the process.
    """
    playbook = _Playbook(actor, given)
    try:
        return playbook.run()
    except clocks.Interrupted:
        # Between two calls: the main process ends the run at its exit.
        if run := playbook.outcome.run:
            ctx = actor.ctx(run)
            calls_module.ended(ctx, lambda ctx: state(ctx, StateOptions("ended", failed=True)), run_lease.let_go)
            ctx.cluster.close()
        actor.process.kill()
        raise


def recover(actor: Actor, run: str = "", gates: tuple[str, ...] = GATES, timeout: float = 600.0) -> list[str]:
    """playbooks/recover.yml, state undone, in the calling thread; gives what is wrong, empty where nothing is.

    Only a named run is taken for dead where its tasks may be at work on a host.
    """
    playbook = _Playbook(actor, Input((), run=run, gates=gates, timeout=timeout))
    outcome, told = playbook.outcome, list[Result]()
    try:
        undone = playbook.call_nodes("undone", lambda ctx: state(ctx, StateOptions("undone")), run, told)
        wrong = [undone.message] if undone.failed else []
        nodes = [node["name"] for node in undone.data["nodes"] if node["outcome"] == "to_verify"]
        if nodes:
            outcome.run = f"{run.partition('/')[0]}/{actor.clock.token()}"
            wrong += playbook.verify_and_give_back(nodes, told)
            again = playbook.call_nodes("undone", lambda ctx: state(ctx, StateOptions("undone")), run, told)
            wrong += [again.message] if again.failed else []
    except _Broken as broken:
        wrong = [str(broken)]
    return wrong


class _Broken(Exception):
    """A call that failed as a whole, where the playbook goes to its rescue."""


class _Playbook:
    def __init__(self, actor: Actor, given: Input) -> None:
        self.actor, self.given = actor, given
        self.outcome = Outcome()

    def run(self) -> Outcome:
        given, outcome = self.given, self.outcome
        try:
            listed = self._whole("listed", self._state("listed", input=given.fingerprint), given.run)
            found = listed.data["resumable"]
            if given.run and not found:
                raise _Broken(f"There is no run {given.run} to resume.")
            finished = list((found or {}).get("finished") or ())
            waves = self._plan([n for n in given.nodes if n not in finished], (found or {}).get("run", ""))
        except _Broken as broken:
            outcome.wrong.append(str(broken))
            return outcome
        waves = [[n for n in wave if n not in finished] for wave in waves]
        waves = [wave for wave in waves if wave]
        if not outcome.wrong and (waves or finished):
            self._begin(waves, finished, listed.data["traces"])
        left = [name for wave in waves for name in wave]
        if not outcome.wrong:
            for number, wave in enumerate(waves):
                if outcome.failed or outcome.wrong:
                    break
                self._wave(wave, first=number == 0)
                left = [name for name in left if name not in wave]
        if outcome.run:
            failed = bool(outcome.failed or outcome.wrong or left)
            ended = self._call("ended", self._state("ended", failed=failed), outcome.run)
            if ended.failed:
                outcome.wrong.append(ended.message)
        return outcome

    # -- the plays -----------------------------------------------------------------------------------------

    def _plan(self, nodes: t.Sequence[str], run: str) -> list[list[str]]:
        if not nodes:
            return []
        given = self.given
        options = PlanOptions(
            nodes=tuple(nodes),
            choices=given.choices,
            goal="evacuated" if given.evacuates else "maintained",
            max_parallel=given.serial,
        )
        planned = self._call("plan", lambda ctx: make_plan(ctx, options), run)
        if "waves" not in planned.data:
            raise _Broken(planned.message)
        blockers = [f["message"] for f in planned.data["findings"] if f["severity"] == "blocker"]
        self.outcome.wrong += blockers
        return [list(wave) for wave in planned.data["waves"]]

    def _begin(self, waves: list[list[str]], finished: list[str], traces: list[dict[str, t.Any]]) -> None:
        started = self._call(
            "started",
            self._state("started", input=self.given.fingerprint, plan={"waves": waves}, mark_waiting=True),
            self.given.run,
        )
        if "run" not in started.data:
            self.outcome.wrong.append(started.message)
            return
        self.outcome.run = started.data["run"]
        run, me = self.outcome.run, started.data["run_id"]
        out = {name: trace["run"] for trace in traces for name in trace["nodes"] if trace["object"].startswith("Node ")}
        half_back = [name for name in finished if out.get(name) == me]
        told: list[Result] = []
        try:
            if half_back:
                self.call_nodes(
                    "returning", self._cordon("returning", half_back, adopt=bool(self.given.run)), run, told
                )
            if ours := [name for name in finished if out.get(name) in (None, me)]:
                self._give_back(ours, run, told)
        except _Broken as broken:
            self.outcome.wrong.append(str(broken))
        failed = [node for result in told for node in result.data.get("nodes", ()) if node["failed"]]
        self.outcome.wrong += [node["message"] for node in failed]

    def _wave(self, nodes: list[str], *, first: bool) -> None:
        """tasks/take_out.yml, tasks/work.yml, tasks/bring_back.yml, tasks/sum_up.yml."""
        given, run = self.given, self.outcome.run
        begun, told = len(self.outcome.calls), list[Result]()
        broken = ""
        cordoned: list[str] | None = None
        ready: list[str] = []
        try:
            if not first:
                options = PlanOptions(nodes=tuple(nodes), choices=given.choices, max_parallel=len(nodes))
                again = self._call("plan", lambda ctx: make_plan(ctx, options), run)
                if "feasible" not in again.data:
                    raise _Broken(again.message)
                if not again.data["feasible"]:
                    self.outcome.wrong.append(f"The cluster changed, and the wave {nodes} does not fit any more.")
                    return
            marks: dict[str, t.Any] = {"adopt": bool(given.run), "stored": True}
            marks |= {"node_conditions": given.node_conditions, "planned_notice": given.planned_notice}
            result = self.call_nodes("cordoned", self._cordon("cordoned", nodes, **marks), run, told)
            cordoned = _good(result)
            protected = self._protect(self._hooked("before_node", cordoned, told), told)
            ready = self._drain(protected, told)
            if given.check:
                self.outcome.failed.update({name: _said(name, told) for name in nodes if name not in ready})
                return
            if ready and given.work and not given.evacuates:
                out = self._cordon("out", ready, lease_duration=given.tasks_timeout, rules=given.choices.rules)
                ready = _good(self.call_nodes("out", out, run, told))
        except _Broken as error:
            broken, ready = str(error), []
            if given.check:
                self.outcome.wrong.append(broken)
                return
        lost = [name for name in (nodes if cordoned is None else cordoned) if name not in ready]
        if lost:
            self._give_back_lost(lost, told)
        done, worked = self._work(ready)
        uncordoned: list[str] = []
        if given.evacuates:
            parked = self._call("parked", self._cordon("parked", ready), run) if ready else None
            told += [parked] if parked else []
            uncordoned = [name for name in _good(parked) if name in ready] if parked else []
        else:
            uncordoned, said = self._bring_back(ready, done, worked, told)
            broken = broken or said
        for name in nodes:
            if name not in uncordoned or name in worked:
                self.outcome.failed[name] = (
                    worked.get(name) or _said(name, told) or broken or "It did not come through."
                )
        calls = zip(self.outcome.calls[begun:], self.actor.contexts[-(len(self.outcome.calls) - begun) :], strict=True)
        results = [result.shaped(ctx) for (_name, result), ctx in calls]
        self._call("goes on", self._state("noted", results=tuple(results)), run)

    def _protect(self, nodes: list[str], told: list[Result]) -> list[str]:
        if not nodes:
            return []
        given = self.given
        options = GuardOptions(
            "present",
            tuple(nodes),
            allow_interruption=given.choices.allow_interruption,
            node_autoscaler=given.choices.node_autoscaler,
            method=given.choices.method,
            rules=given.choices.rules,
            settle=given.settle,
            timeout=given.timeout,
        )
        return _good(self.call_nodes("present", lambda ctx: guard(ctx, options), self.outcome.run, told))

    def _drain(self, nodes: list[str], told: list[Result]) -> list[str]:
        if not nodes:
            return []
        rules = hook_definitions.Rules(self.given.rules("before_pod"), self.given.rules("after_pod"))
        send = self.actor.world.endpoint.sender(self.actor)
        options = DrainOptions(tuple(nodes), self.given.choices, timeout=self.given.timeout, hooks=rules, send=send)
        result = self.call_nodes("drain", lambda ctx: drain(ctx, options), self.outcome.run, told)
        return [node["name"] for node in result.data["nodes"] if not node["failed"] and node["outcome"] != "gone"]

    def _hooked(self, name: hook_definitions.Hook, nodes: list[str], told: list[Result]) -> list[str]:
        """tasks/hooks.yml; gives the nodes of which no hook failed."""
        rules, send = self.given.rules(name), self.actor.world.endpoint.sender(self.actor)
        if not rules or not nodes:
            return nodes
        options = HookOptions("called", tuple(nodes), rules, (), send)
        return _good(self.call_nodes(name, lambda ctx: call_hooks(ctx, options), self.outcome.run, told))

    def _work(self, ready: list[str]) -> tuple[list[str], dict[str, str]]:
        """Which nodes the tasks were done on, and why not on others."""
        if self.given.work is None or self.given.evacuates:
            return ready, {}
        worked: dict[str, str] = {}
        for name in ready:
            try:
                self.given.work(self.actor, name)
            except clocks.Interrupted:
                raise
            except Exception as error:  # whatever a user's tasks do concerns this host only
                worked[name] = f"A task: {error}"
        return [name for name in ready if name not in worked], worked

    def _bring_back(
        self, ready: list[str], done: list[str], worked: dict[str, str], told: list[Result]
    ) -> tuple[list[str], str]:
        """The nodes that are in service again, and what was wrong with a whole call."""
        given, run = self.given, self.outcome.run
        returning = done + (list(worked) if given.on_failure == "release" else [])
        if stay := [name for name in ready if name not in returning]:
            told.append(self._call("parked", self._cordon("parked", stay), run))
            if over := _over(told[-1]):
                told.append(self._call("absent", lambda ctx: guard(ctx, GuardOptions("absent", tuple(over))), run))
        if not returning:
            return [], ""
        uncordoned: list[str] = []
        try:
            back = self.call_nodes("returning", self._cordon("returning", returning), run, told)
            there = [node["name"] for node in back.data["nodes"] if not node["failed"] and node["outcome"] != "gone"]
            passed = self._gates(there, told)
            verified = self._hooked("after_node", passed, told)
            if held := [name for name in passed if name not in verified]:
                self.call_nodes("parked", self._cordon("parked", held), run, told)
            if noted := [name for name in verified if name not in worked]:
                self.call_nodes("noted", self._state("noted", nodes=tuple(noted)), run, told)
            released = _good(back) if given.on_failure == "release" else verified
            released = [*released, *(name for name in _over(back) if name not in released)]
            if released:
                uncordoned = self._give_back(released, run, told)
        except _Broken as broken:
            if rest := [name for name in returning if name not in uncordoned]:
                told.append(self._call("parked", self._cordon("parked", rest), run))
            return uncordoned, str(broken)
        return [name for name in uncordoned if name in verified], ""

    def _gates(self, nodes: list[str], told: list[Result]) -> list[str]:
        if not nodes:
            return []
        given, run = self.given, self.outcome.run
        options = ReadyOptions(tuple(nodes), gates=given.gates, wait=True, timeout=given.timeout)
        result = self.call_nodes("gates", lambda ctx: check_ready(ctx, options), run, told)
        failed = [node["name"] for node in result.data["nodes"] if node["failed"]]
        if failed and given.on_failure != "release":
            self.call_nodes("parked", self._cordon("parked", failed), run, told)
        return _good(result)

    def _give_back(self, nodes: list[str], run: str, told: list[Result] | None = None) -> list[str]:
        told = [] if told is None else told
        options = GuardOptions("absent", tuple(nodes))
        given = _good(self.call_nodes("absent", lambda ctx: guard(ctx, options), run, told))
        back = _good(self.call_nodes("uncordoned", self._cordon("uncordoned", nodes), run, told))
        return [name for name in back if name in given]

    def _give_back_lost(self, nodes: list[str], told: list[Result]) -> None:
        run = self.outcome.run
        if self.given.on_failure != "keep":
            with contextlib.suppress(_Broken):
                self._hooked("after_node", nodes, told)
        options = GuardOptions("absent", tuple(nodes))
        told.append(self._call("absent", lambda ctx: guard(ctx, options), run))
        goal: t.Literal["parked", "uncordoned"] = "parked" if self.given.on_failure == "keep" else "uncordoned"
        told.append(self._call(goal, self._cordon(goal, nodes), run))

    def verify_and_give_back(self, nodes: list[str], told: list[Result]) -> list[str]:
        """roles/verify and roles/uncordon for parked nodes; gives what is wrong."""
        run = self.outcome.run
        options = {"adopt": bool(self.given.run)}
        back = _good(self.call_nodes("returning", self._cordon("returning", nodes, **options), run, told))
        if verified := self._gates(back, told):
            self._give_back(verified, run, told)
        return [node["message"] for result in told for node in result.data["nodes"] if node.get("failed")]

    # -- single calls --------------------------------------------------------------------------------------

    @staticmethod
    def _state(goal: t.Any, **options: t.Any) -> Loop:
        return lambda ctx: state(ctx, StateOptions(goal, **options))

    @staticmethod
    def _cordon(goal: t.Any, nodes: t.Sequence[str], **options: t.Any) -> Loop:
        return lambda ctx: cordon(ctx, CordonOptions(goal, tuple(nodes), **options))

    def call_nodes(self, name: str, loop: Loop, run: str, told: list[Result]) -> Result:
        """A call whose failed nodes are in its answer; one without an answer about nodes ends the block."""
        result = self._call(name, loop, run)
        told.append(result)
        if "nodes" not in result.data:
            raise _Broken(result.message)
        return result

    def _whole(self, name: str, loop: Loop, run: str) -> Result:
        result = self._call(name, loop, run)
        if result.failed:
            raise _Broken(result.message)
        return result

    def _call(self, name: str, loop: Loop, run: str) -> Result:
        if self.outcome.calls:
            self.actor.clock.sleep(self.given.gap)
        ctx, interruption = self.actor.ctx(run, check=self.given.check), self.actor.clock.interruption
        try:
            result = calls_module.ended(ctx, loop, run_lease.let_go)
        finally:
            ctx.cluster.close()
            self.actor.clock.interruption = interruption
        if interruption and interruption.asked:
            # So does the worker, in which the call was made.
            self.actor.process.kill()
        assert not (enums := list(_enums([result.data, [event.what for event in ctx.timeline]]))), enums
        self.outcome.calls.append((name, result))
        return result


def _enums(value: t.Any) -> t.Iterator[enum.Enum]:
    """What is no plain data in a result; Ansible takes nothing else."""
    if isinstance(value, enum.Enum):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _enums(item)


def _over(result: Result) -> list[str]:
    """Nodes that are gone, or have lost their records."""
    ended = ("gone", "replaced", "not_in_maintenance_yet")
    return [node["name"] for node in result.data.get("nodes", ()) if node["outcome"] in ended]


def _good(result: Result) -> list[str]:
    return [node["name"] for node in result.data["nodes"] if not node["failed"]] if "nodes" in result.data else []


def _said(name: str, told: list[Result]) -> str:
    nodes = [node for result in told for node in result.data.get("nodes", ()) if node["name"] == name]
    wrong = [node for node in nodes if node["failed"]] + [node for node in nodes if node.get("outcome") == "gone"]
    return str(wrong[0]["message"]) if wrong else ""
