# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from ansible.module_utils import basic

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import calls, specs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible.specs import (
    Call,
    ClusterModuleSpec,
    Event,
    line,
    plain,
    run_call,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.api_changes import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import (
    CallAborted,
    Context,
    Result,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import connection
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.clocks import Clock
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.outcomes import CordonOutcome

Engine = Callable[[Context, dict[str, Any]], Result]


class NoCluster:
    """Connects to nothing; a loop that asks it something fails the test."""

    closed = False
    clock = Clock()
    refusals = ()
    place: Mapping[str, str] = {}

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def known() -> list[bool]:
    """Of each connection: whether its server counts as known to be there."""
    return []


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch, known: list[bool]) -> list[tuple[Mapping[str, Any], str]]:
    """What was connected to, and as whom."""
    seen: list[tuple[Mapping[str, Any], str]] = []

    def connect(options: Any, *, user_agent: str, guard: object, answered: bool) -> NoCluster:
        seen.append((options, user_agent))
        known.append(answered)
        return NoCluster()

    monkeypatch.setattr(connection, "connect", connect)
    return seen


def spec(engine: Engine) -> ClusterModuleSpec:
    return ClusterModuleSpec(
        name="node_cordon",
        options={
            "nodes": {"type": "list", "elements": "str"},
            "timeout": {"type": "str"},
            "run": {"type": "str"},
        },
        durations=("timeout",),
        lists=("nodes",),
        engine=engine,
    )


def cordoned(ctx: Context, params: dict[str, Any]) -> Result:
    ctx.changed(Change("patch", Ref("Node", "a"), "Cordon node a", before={"on": False}, after={"on": True}))
    ctx.tell(CordonOutcome.CORDONED, "cordoned by ab12/the-nonce", node="a")
    return Result({"nodes": [{"name": name, "outcome": "cordoned", "failed": False} for name in params["nodes"]]})


def never(ctx: Context, params: dict[str, Any]) -> Result:
    raise AssertionError("the engine was called")


def test_the_engine_gets_final_types(opened: object) -> None:
    got: dict[str, Any] = {}

    def engine(ctx: Context, params: dict[str, Any]) -> Result:
        got.update(params)
        return Result({"nodes": []})

    run_call(spec(engine), {"nodes": ["a b", "c"], "timeout": "2m"}, Call())
    assert got == {"nodes": ("a", "b", "c"), "timeout": 120.0, "run": None}


@pytest.mark.parametrize(("run", "expected"), [(None, False), ("ab12", False), ("ab12/the-nonce", True)])
def test_only_a_run_that_has_begun_has_patience_with_its_server_at_once(
    opened: object, known: list[bool], run: str | None, expected: bool
) -> None:
    run_call(spec(cordoned), {"nodes": ["a"], "run": run}, Call())
    assert known == [expected]


def test_a_result_has_its_fixed_parts(opened: object) -> None:
    result = run_call(spec(cordoned), {"nodes": ["a"]}, Call(diff=True))
    assert result["changed"] is True
    assert result["failed"] is False
    assert result["actions"] == ["Cordon node a"]
    assert result["nodes"] == [{"name": "a", "outcome": "cordoned", "failed": False}]
    assert [(event["what"], event["phase"]) for event in result["timeline"]] == [("cordoned", "cordoned")]
    assert {type(value) for event in result["timeline"] for value in event.values()} == {str}
    assert result["diff"][0]["after"] == {"on": True}


def test_a_diff_is_shown_only_when_it_was_asked_for(opened: object) -> None:
    assert "diff" not in run_call(spec(cordoned), {"nodes": ["a"]}, Call())


def test_a_wrong_option_fails_before_the_first_request(opened: list[Any]) -> None:
    result = run_call(spec(never), {"timeout": "soon"}, Call())
    assert result["failed"] is True
    assert "timeout: 'soon' cannot be used" in result["msg"]
    assert "nodes" not in result
    assert opened == []


def test_a_call_that_stops_whole_has_no_nodes_but_a_finding(opened: object) -> None:
    def engine(ctx: Context, params: dict[str, Any]) -> Result:
        cordoned(ctx, params)
        raise CallAborted("namespace_missing", "It is missing.", "Create it.", "Namespace x")

    result = run_call(spec(engine), {"nodes": ["a"]}, Call())
    assert result["failed"] is True
    assert result["msg"] == "It is missing. Create it."
    assert "nodes" not in result
    assert result["changed"] is True, "what was done before is told"
    assert result["findings"] == [
        {
            "code": "namespace_missing",
            "severity": "blocker",
            "object": "Namespace x",
            "message": "It is missing.",
            "remedy": "Create it.",
        }
    ]


def test_the_nonce_shows_nowhere(opened: list[tuple[Any, str]]) -> None:
    told: list[Event] = []
    params = {"nodes": ["a"], "run": "ab12/the-nonce", "api_key": "canary"}
    result = run_call(spec(cordoned), params, Call(diff=True, progress=told.append))
    assert "the-nonce" not in repr(result)
    assert "canary" not in repr(result)
    assert "the-nonce" not in repr(told)
    assert "ab12" in repr(result)
    assert opened[0][1] == "kubeops.node_maintenance/node_cordon run/ab12"


def test_no_secret_of_the_connection_shows_anywhere(opened: object) -> None:
    plugin = {
        "command": "login",
        "env": [{"name": "AWS_PROFILE", "value": "default"}, {"name": "X", "value": "canary-1"}],
    }
    provider = {"config": {"client-id": "shown", "client-secret": "canary-2"}}
    kubeconfig = {
        "users": [{"user": {"exec": plugin}}, {"user": {"auth-provider": provider}}],
        "clusters": [{"cluster": {"server": "https://me:canary-3@api", "proxy-url": "http://me:canary-4@proxy:1/x"}}],
    }
    params = {"nodes": ["default"], "kubeconfig": kubeconfig, "proxy": "http://me:canary-5@proxy:3128"}
    told: list[Event] = []
    result = run_call(spec(cordoned), params, Call(diff=True, progress=told.append))
    assert "canary" not in repr(result)
    assert "canary" not in repr(told)
    shown = result["invocation"]["module_args"]
    assert shown["proxy"] == "http://********@proxy:3128"
    assert shown["kubeconfig"]["users"][1]["user"]["auth-provider"]["config"]["client-id"] == "shown"
    assert result["nodes"][0]["name"] == "default", "what is no secret is not hidden in results"


@pytest.mark.parametrize(("kubeconfig", "logged"), [({"token": "canary"}, 1), ("/etc/kubeconfig", 0), (None, 0)])
def test_a_kubeconfig_given_as_a_dictionary_is_not_logged(
    monkeypatch: pytest.MonkeyPatch, kubeconfig: Any, logged: int
) -> None:
    lines: list[str] = []
    others: list[object] = []
    made = object.__new__(specs.Module)
    made.params = {"kubeconfig": kubeconfig}
    monkeypatch.setattr(basic.AnsibleModule, "log", lambda _self, text: lines.append(text))
    monkeypatch.setattr(basic.AnsibleModule, "_log_invocation", lambda self: others.append(self))
    made._log_invocation()
    assert (len(lines), len(others)) == (logged, 1 - logged)
    assert "canary" not in repr(lines)


def test_what_is_handed_out_as_the_right_to_act_is_readable(opened: object) -> None:
    def started(ctx: Context, params: dict[str, Any]) -> Result:
        return Result({"run": "ab12/fresh-nonce", "nodes": []})

    assert run_call(spec(started), {"run": "ab12"}, Call())["run"] == "ab12/fresh-nonce"


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "library_error", lambda: "Traceback: no kubernetes")
    result = run_call(spec(never), {"nodes": ["a"]}, Call())
    assert result["failed"] is True
    assert "kubernetes" in result["msg"]
    assert result["exception"] == "Traceback: no kubernetes"


@pytest.mark.parametrize(
    ("event", "text"),
    [
        (Event("2026-11-21T10:30:48.123Z", "n1", "x", "is drained"), "10:30:48  n1  is drained"),
        (
            Event("2026-11-21T10:30:48.123Z", "n1", "x", "1 -> 2 replicas", "shop", "web"),
            "10:30:48  n1  shop/web  1 -> 2 replicas",
        ),
        (
            Event("2026-11-21T10:30:48.123Z", "", "x", "shop/web is ready", "shop", "web"),
            "10:30:48  shop/web is ready",
        ),
    ],
)
def test_an_event_is_a_line_with_time_and_node(event: Event, text: str) -> None:
    assert line(event) == text


def test_plain_takes_the_controllers_types_away() -> None:
    # As the strings of templates are in ansible-core 2.16.
    tagged: Any = type("Tagged", (str,), {"__str__": lambda self: self})
    made = plain({tagged("a"): (tagged("b"), 1, None, {"c": tagged("d")})})
    assert made == {"a": ["b", 1, None, {"c": "d"}]}
    assert not isinstance(made["a"][0], tagged)
    assert not any(isinstance(key, tagged) for key in made)
