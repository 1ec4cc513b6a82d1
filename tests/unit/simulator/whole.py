# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Begin and end of maintenance as playbooks/maintain.yml makes the calls, in one thread of a process.

Each call is one of a module: it has a connection of its own, and what goes wrong in it is its result. Between two
calls passes the time that Ansible needs (`gap`). Called again with the same input, it is "the same command".
"""

from __future__ import annotations

import dataclasses
import enum
import typing as t
from dataclasses import dataclass, field

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import calls as calls_module
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context, Result
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_drain import DrainOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import clocks
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_cordon import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_gates import ReadyOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.run_node_steps import CordonOptions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning.run_plan import PlanOptions, make_plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs.arguments import StateOptions, state
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state import run_lease
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge.run_guard import GuardOptions, guard
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.waves import run_steps, run_wave
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

    def steps(self, *names: str) -> list[dict[str, t.Any]]:
        """The results of these calls and of these steps of waves, or of all."""
        found = list[dict[str, t.Any]]()
        for name, result in self.calls:
            found += result.data.get("steps") or [{"step": name, **result.shaped()}]
        return [step for step in found if not names or step["step"] in names]

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
            wrong += playbook.release(nodes, told)
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
        """The two calls of a wave around the work on the hosts."""
        given, outcome = self.given, self.outcome
        options = self._options(nodes, first=first)
        out = self._call("out", lambda ctx: run_wave.take_out(ctx, options), outcome.run)
        last = out
        if not given.check:
            works = self._work(out.data["ready"]) if options.has_work else {}
            went = dataclasses.replace(options, before=out.data, told=tuple(out.data["steps"]), works=works)
            last = self._call("back", lambda ctx: run_wave.bring_back(ctx, went), outcome.run)
        if last.data["stop"]:
            outcome.wrong.append(last.data["stop"])
        outcome.failed |= {node["name"]: node["message"] for node in last.data["nodes"] if node["failed"]}

    def _options(self, nodes: list[str], *, first: bool) -> run_steps.WaveOptions:
        given = self.given
        names, send = tuple(nodes), self.actor.world.endpoint.sender(self.actor)
        rules = hook_definitions.Rules(given.rules("before_pod"), given.rules("after_pod"))
        again = PlanOptions(nodes=names, choices=given.choices, max_parallel=len(nodes))
        return run_steps.WaveOptions(
            nodes=names,
            plan=None if first else again,
            cordon=CordonOptions(
                "cordoned",
                names,
                adopt=bool(given.run),
                stored=True,
                node_conditions=given.node_conditions,
                planned_notice=given.planned_notice,
                rules=given.choices.rules,
            ),
            guard=GuardOptions(
                "present",
                names,
                allow_interruption=given.choices.allow_interruption,
                node_autoscaler=given.choices.node_autoscaler,
                method=given.choices.method,
                rules=given.choices.rules,
                settle=given.settle,
                timeout=given.timeout,
            ),
            drain=DrainOptions(names, given.choices, timeout=given.timeout, hooks=rules, send=send),
            gates=ReadyOptions(names, gates=given.gates, wait=True, timeout=given.timeout),
            before_node=given.rules("before_node"),
            after_node=given.rules("after_node"),
            on_failure=given.on_failure,
            evacuates=given.evacuates,
            has_work=bool(given.work) and not given.evacuates,
            tasks_timeout=given.tasks_timeout,
        )

    def _work(self, ready: list[str]) -> dict[str, dict[str, str]]:
        """What came of the tasks on the hosts."""
        works: dict[str, dict[str, str]] = {}
        for name in ready:
            try:
                assert self.given.work
                self.given.work(self.actor, name)
            except clocks.Interrupted:
                raise
            except Exception as error:  # whatever a user's tasks do concerns this host only
                works[name] = {"outcome": "failed", "message": f"A task: {error}"}
            else:
                works[name] = {"outcome": "done", "message": ""}
        return works

    def _give_back(self, nodes: list[str], run: str, told: list[Result] | None = None) -> list[str]:
        told = [] if told is None else told
        options = GuardOptions("absent", tuple(nodes))
        given = _good(self.call_nodes("absent", lambda ctx: guard(ctx, options), run, told))
        back = _good(self.call_nodes("uncordoned", self._cordon("uncordoned", nodes), run, told))
        return [name for name in back if name in given]

    def release(self, nodes: list[str], told: list[Result]) -> list[str]:
        """The call of `maintenance_wave` for parked nodes; gives what is wrong."""
        options = dataclasses.replace(self._options(nodes, first=True), releases=True)
        result = self.call_nodes("released", lambda ctx: run_wave.release(ctx, options), self.outcome.run, told)
        return [node["message"] for node in result.data["nodes"] if node["failed"]]

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


def _good(result: Result) -> list[str]:
    return [node["name"] for node in result.data["nodes"] if not node["failed"]] if "nodes" in result.data else []
