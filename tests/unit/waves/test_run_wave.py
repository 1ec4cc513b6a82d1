# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The order of a wave's steps, with engines that answer from a can; what they do is tested with themselves."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import (
    CallAborted,
    Context,
    Result,
    Run,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import run_drain
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import (
    run_cordon,
    run_gates,
    run_node_hooks,
    run_taint,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import run_plan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.runs import run_runs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import run_guard
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.waves import arguments, run_steps

NODES = ["a", "b"]
FILE = {"action": "tasks", "state": "due", "node": "a", "rule": "ceph", "tasks": "/ceph.yml"}
RULES = [{"nodes": "ceph", "tasks": "/ceph.yml"}]


class Engines:
    """Answers for each engine by its options; ``failing`` are nodes, or all for the whole call."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.failing: dict[str, str] = {}
        self.outcomes: dict[str, str] = {}
        self.files: dict[str, list[dict[str, Any]]] = {}
        for module, name in (
            (run_cordon, "cordon"),
            (run_guard, "guard"),
            (run_drain, "drain"),
            (run_taint, "taint"),
            (run_plan, "make_plan"),
            (run_gates, "check_ready"),
            (run_node_hooks, "call_hooks"),
        ):
            monkeypatch.setattr(module, name, self._engine(name))
        monkeypatch.setattr(run_runs, "noted", lambda _ctx, nodes, *_more: self._said("noted", nodes))

    def _engine(self, name: str) -> Any:
        def engine(ctx: Context, options: Any) -> Result:
            state = getattr(options, "state", "dry" if name == "drain" and ctx.check else "")
            return self._said(f"{name} {state}".strip(), options.nodes)

        return engine

    def _said(self, call: str, names: Sequence[str]) -> Result:
        self.calls.append(f"{call}: {' '.join(names)}" if list(names) != NODES else call)
        failing = self.failing.get(call, "")
        if failing == "all":
            raise CallAborted("no_api", f"{call} failed.", "Mend it.")
        nodes = [
            {
                "name": name,
                "failed": name in failing,
                "outcome": self.outcomes.get(f"{call} {name}", "ok"),
                "message": f"{call}: {name}",
                "hooks": [file for file in self.files.get(call, ()) if file["node"] == name],
            }
            for name in names
        ]
        return Result({"nodes": nodes, "hooks": self.files.get(call, []), "feasible": True}, failed=bool(failing))


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Engines:
    return Engines(monkeypatch)


class Nowhere:
    """A cluster that no engine asks."""

    place: Mapping[str, str] = {}
    refusals: Sequence[Any] = ()


def call(state: str, before: dict[str, Any] | None = None, *, check: bool = False, **given: Any) -> dict[str, Any]:
    """The result of one call as a playbook gets it."""
    defaults = {name: option.get("default") for name, option in arguments.SPEC.options.items()}
    params = arguments.SPEC.converted({**defaults, "nodes": NODES, "run": "ab/1", "before": before, **given})
    run = Run.parse(params["run"])
    params = arguments.SPEC.prepare({**params, "state": state})
    ctx = Context(Nowhere(), check=check, run=run)  # type: ignore[arg-type]
    return arguments.SPEC.engine(ctx, params).data


OUT = ["cordon cordoned", "guard present", "drain"]
BACK = ["cordon returning", "check_ready", "noted", "guard absent", "cordon uncordoned", "noted: "]


def test_a_wave_without_work_is_these_steps(engines: Engines) -> None:
    out = call("out")
    assert (engines.calls, out["ready"], out["due"]) == (OUT, NODES, False)
    engines.calls.clear()
    back = call("back", out, verify={"gates": ["ready"]})
    assert (engines.calls, back["back"]) == (BACK, NODES)
    assert [step["step"] for step in out["steps"]] == ["cordon", "protect", "migrate"]


def test_work_that_failed_on_one_host_keeps_its_node_out(engines: Engines) -> None:
    out = call("out", has_work=True, plan={})
    assert engines.calls == ["make_plan", *OUT, "cordon out"]
    engines.calls.clear()
    works = {"a": {"outcome": "done", "message": ""}, "b": {"outcome": "failed", "message": "No luck."}}
    back = call("back", out, has_work=True, works=works, taint={"taints": ["old:NoSchedule-"]})
    assert engines.calls[:3] == ["cordon parked: b", "cordon returning: a", "check_ready: a"]
    assert "taint present: a" in engines.calls
    assert {entry["name"]: entry["failed"] for entry in back["nodes"]} == {"a": False, "b": True}


def test_nodes_that_failed_are_given_back_although_their_hooks_cannot_be_called(engines: Engines) -> None:
    engines.failing = {"drain": "ab", "call_hooks called": "all"}
    rules = [{"nodes": "pool", "http": {"url": "https://example.invalid/back"}}]
    out = call("out", after_node=rules)
    assert engines.calls == [*OUT, "call_hooks called", "guard absent", "cordon uncordoned"]
    assert [entry["message"] for entry in out["nodes"]] == ["drain: a", "drain: b"]
    assert out["broken_late"].startswith("call_hooks called failed")


def test_a_step_that_fails_as_a_whole_ends_the_way_out_for_all(engines: Engines) -> None:
    engines.failing = {"guard present": "all"}
    out = call("out", has_work=True)
    assert engines.calls == ["cordon cordoned", "guard present", "guard absent", "cordon uncordoned"]
    assert {entry["message"] for entry in out["nodes"]} == {"guard present failed. Mend it."}
    engines.calls.clear()
    assert call("back", out, has_work=True)["nodes"] == out["nodes"]
    assert engines.calls == ["noted: "]


def test_a_step_that_fails_as_a_whole_on_the_way_back_parks_the_rest(engines: Engines) -> None:
    out = call("out")
    engines.failing = {"check_ready": "all"}
    back = call("back", out)
    assert engines.calls[-3:] == ["check_ready", "cordon parked", "noted: "]
    assert back["back"] == []
    assert all("stays out of service" in entry["message"] for entry in back["nodes"])


@pytest.mark.parametrize(
    ("asked", "given", "first", "then"),
    [
        ("call_hooks listed", {"before_node": RULES}, OUT[:1], ["call_hooks called", *OUT[1:]]),
        ("drain dry", {"migrate": {"before_pod": [{"pods": "app=a", "tasks": "/ceph.yml"}]}}, OUT[:2], OUT[2:]),
        ("drain", {"migrate": {"after_pod": [{"pods": "app=a", "tasks": "/ceph.yml"}]}}, OUT[:2], []),
    ],
)
def test_task_files_are_run_between_two_calls_and_no_step_is_made_twice(
    engines: Engines, asked: str, given: dict[str, Any], first: list[str], then: list[str]
) -> None:
    hook = {"call_hooks listed": "before_node", "drain dry": "before_pod", "drain": "after_pod"}[asked]
    engines.files = {asked: [{**FILE, "hook": hook}]}
    out = call("out", **given)
    assert engines.calls == [*first, asked]
    assert (out["due"], out["ready"], [file["rule"] for file in out["hooks"]]) == (True, [], ["ceph"])
    assert out["locked"] == NODES
    engines.calls.clear()
    again = call("out", out, files={"nodes": []}, **given)
    assert (engines.calls, again["ready"], again["due"]) == (then, NODES, False)


def test_a_node_whose_task_file_failed_goes_no_further(engines: Engines) -> None:
    engines.files = {"call_hooks listed": [{**FILE, "hook": "before_node"}]}
    out = call("out", before_node=RULES)
    failed = {"name": "a", "failed": True, "outcome": "failed", "message": "No flag.", "hook": "before_node"}
    engines.calls.clear()
    again = call("out", out, before_node=RULES, files={"nodes": [failed]})
    assert engines.calls[:3] == ["call_hooks called: b", "guard present: b", "drain: b"]
    assert engines.calls[3:] == ["guard absent: a", "cordon uncordoned: a"]
    assert (again["ready"], [entry["message"] for entry in again["nodes"] if entry["failed"]]) == (["b"], ["No flag."])


@pytest.mark.parametrize("fenced", [[], ["a"]])
def test_unreachable_nodes_are_due_to_be_fenced_once(engines: Engines, fenced: list[str]) -> None:
    engines.failing, engines.outcomes = {"drain": "a"}, {"drain a": "unreachable"}
    out = call("out", fences=True)
    assert (out["due"], out["to_fence"]) == (True, ["a"])
    engines.calls.clear()
    engines.failing, engines.outcomes = {}, {}
    again = call("out", out, fences=True, fenced=fenced)
    assert sorted(again["ready"]) == ([*NODES] if fenced else ["b"])
    assert engines.calls[:1] == (["drain: a"] if fenced else ["guard absent: a"])


def test_check_mode_gives_nothing_back(engines: Engines) -> None:
    engines.failing = {"drain dry": "b"}
    out = call("out", check=True, has_work=True)
    assert engines.calls == ["cordon cordoned", "guard present", "drain dry"]
    assert [entry["name"] for entry in out["nodes"] if entry["failed"]] == ["b"]


RELEASED = ["cordon returning", "check_ready", "noted", "guard absent", "cordon uncordoned"]


def test_nodes_that_earlier_runs_left_return_by_one_call(engines: Engines) -> None:
    came = call("released", run="/1", verify={"gates": ["ready"]})
    assert (engines.calls, came["back"], came["broken_late"]) == (RELEASED, NODES, "")
    engines.calls.clear()
    tainted = call("released", run="/1", taint={"taints": ["old:NoSchedule-"]})
    assert (engines.calls, tainted["back"]) == ([*RELEASED[:3], "taint present", *RELEASED[3:]], NODES)


def test_a_caller_who_names_a_run_deletes_it_then_and_so_does_not_note_what_came_back(engines: Engines) -> None:
    assert call("released")["back"] == NODES
    assert engines.calls == [call for call in RELEASED if call != "noted"]


def test_a_node_that_does_not_pass_its_gates_stays_out_and_the_others_return(engines: Engines) -> None:
    engines.failing = {"check_ready": "b"}
    came = call("released", run="/1")
    assert engines.calls[2:] == ["cordon parked: b", "noted: a", "guard absent: a", "cordon uncordoned: a"]
    assert came["back"] == ["a"]
    (failed,) = (entry["message"] for entry in came["nodes"] if entry["failed"])
    assert failed.startswith(
        "check_ready: b. Node b stays out of service. To return the node to service: ansible-playbook"
    )


def test_what_is_another_runs_is_not_told_to_be_released_again(engines: Engines) -> None:
    engines.failing, engines.outcomes = {"cordon returning": "a"}, {"cordon returning a": "held"}
    messages = {entry["name"]: entry["message"] for entry in call("released", run="/1")["nodes"]}
    assert messages["a"] == "cordon returning: a. Node a stays out of service."


def test_a_release_that_breaks_parks_what_is_not_back(engines: Engines) -> None:
    engines.failing = {"guard absent": "all"}
    came = call("released", run="/1")
    assert engines.calls[-2:] == ["guard absent", "cordon parked"]
    assert (came["back"], came["broken_late"]) == ([], "guard absent failed. Mend it.")


def test_a_hook_of_nodes_before_they_return_may_be_a_task_file(engines: Engines) -> None:
    engines.files = {"call_hooks listed": [{**FILE, "hook": "after_node"}]}
    first = call("released", run="/1", after_node=RULES)
    assert (engines.calls, first["due"]) == (["cordon returning", "check_ready", "call_hooks listed"], True)
    engines.calls.clear()
    failed = {"name": "a", "failed": True, "outcome": "failed", "message": "No flag.", "hook": "after_node"}
    came = call("released", first, run="/1", after_node=RULES, files={"nodes": [failed]})
    assert engines.calls[:3] == ["call_hooks called: b", "cordon parked: a", "noted: b"]
    assert came["back"] == ["b"]


def test_check_mode_of_a_release_asks_no_gates_and_foresees_the_rest(engines: Engines) -> None:
    came = call("released", run="/1", check=True, taint={"taints": ["old:NoSchedule-"]})
    assert (engines.calls, came["back"]) == (["taint present", "guard absent", "cordon uncordoned"], NODES)


def test_a_way_back_after_one_that_could_not_begin_touches_nothing(engines: Engines) -> None:
    back = call("back", {"failed": True, "msg": "No API."})
    assert engines.calls == ["noted: "]
    assert {entry["message"] for entry in back["nodes"]} == {"No API."}


@pytest.mark.parametrize(
    "given",
    [
        {"migrate": {"timout": "10m"}},
        {"cordon": {"lease_duration": "1h"}},
        {"verify": {"gates": ["redy"]}},
        {"protect": {"settle": "soon"}},
    ],
)
def test_options_of_a_step_are_those_of_its_module(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(given))) as caught:
        call("out", **given)
    assert next(iter(next(iter(given.values())))) in str(caught.value) or "redy" in str(caught.value)


def test_the_results_of_a_wave_name_their_steps_and_the_brief_ones_decide(engines: Engines) -> None:
    out = call("out")
    assert set(out["answers"]) == {"cordon", "protect", "migrate", "files"}
    assert set(out["answers"]["migrate"]["nodes"][0]) == {"name", "failed", "outcome", "message", "hooks"}
    fields = {field.name for field in dataclasses.fields(run_steps.WaveOptions)}
    assert {"cordon", "guard", "drain", "gates"} <= fields
