# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""From a connection and a loop to a result: whatever ends the loop, what it did before is in there."""

from __future__ import annotations

import functools
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import run_permissions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.ansible import calls
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import run_requests
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.api_changes import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import (
    CallAborted,
    Context,
    Result,
    Run,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import connection, errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.outcomes import CordonOutcome
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import BadRecordError
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.surge_records import BadSurgeError
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import Raw

Loop = t.Callable[[Context], Result]


class Calls:
    """Calls that reach a simulated cluster: how each connected, and whether its connection was closed."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self._world = world
        self._me = world.process("me")
        self.connected: list[dict[str, t.Any]] = []
        self.closed = 0
        monkeypatch.setattr(connection, "connect", self._connect)

    def _connect(self, options: connection.ConnectionOptions, **how: t.Any) -> t.Any:
        self.connected.append({"host": options.host, **how})
        cluster = self._me.cluster()
        close = cluster.close

        def counted() -> None:
            self.closed += 1
            close()

        cluster.close = counted  # type: ignore[method-assign]
        return cluster

    def add(self, *pods: Raw) -> None:
        self._world.apply(*({"apiVersion": "v1", "kind": "Pod", **pod} for pod in pods))

    def deny(self, *rights: tuple[str, str]) -> None:
        self._world.server.denied |= set(rights)

    def perform(
        self, loop: Loop, run: str = "", *, check: bool = False, steps: t.Sequence[str] = (), **moving: t.Any
    ) -> dict[str, t.Any]:
        target: dict[str, t.Any] = {"host": "https://one"}
        return self._me.run(
            lambda _ctx: calls.perform(
                target,
                loop,
                user_agent="tests",
                run=Run.parse(run),
                check=check,
                progress=self._me.told.append,
                guard=None,
                lacking=functools.partial(run_permissions.lacking, steps=steps, **moving) if steps else None,
            )
        )


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> t.Iterator[Calls]:
    with World(settle=False) as world:
        yield Calls(world, monkeypatch)


def nothing(_ctx: Context) -> Result:
    return Result({})


@pytest.mark.parametrize(("run", "answered"), [("", False), ("r1", False), ("/n1", False), ("r1/n1", True)])
def test_only_who_has_both_id_and_nonce_knows_that_the_server_was_there(made: Calls, run: str, answered: bool) -> None:
    made.perform(nothing, run)
    assert made.connected == [{"host": "https://one", "user_agent": "tests", "guard": None, "answered": answered}]


@pytest.mark.parametrize("check", [False, True])
def test_a_result_tells_what_changed_and_what_was_said(made: Calls, check: bool) -> None:
    def loop(ctx: Context) -> Result:
        assert ctx.check is check
        ctx.changed(Change("patch", Ref("Node", "n1", api_version="v1"), "Label it"))
        ctx.tell(CordonOutcome.CORDONED, "cordoned", node="n1")
        return Result({"nodes": []}, message="fine")

    result = made.perform(loop, check=check)
    assert (result["nodes"], result["changed"], result["failed"], result["msg"]) == ([], True, False, "fine")
    assert result["actions"] == ["Label it"]
    assert result["cluster"] == {"context": "simulated", "server": "https://simulated:6443"}
    assert [(event["node"], event["what"]) for event in result["timeline"]] == [("n1", "cordoned")]
    assert made.closed == 1


@pytest.mark.parametrize(
    ("error", "codes", "said"),
    [
        pytest.param(
            CallAborted("adopted_by", "It is theirs.", "Look."), ["adopted_by"], "It is theirs. Look.", id="stop"
        ),
        pytest.param(errors.Forbidden("not you"), [], "not you", id="refused"),
        pytest.param(errors.ConfigError("no file"), [], "no file", id="credentials"),
        pytest.param(BadRecordError("a bad record"), [], "a bad record", id="record"),
        pytest.param(BadSurgeError("a bad surge"), [], "a bad surge", id="surge"),
    ],
)
def test_a_call_that_ends_early_fails_and_tells_what_it_had_changed(
    made: Calls, error: Exception, codes: list[str], said: str
) -> None:
    def loop(ctx: Context) -> Result:
        ctx.changed(Change("patch", Ref("Node", "n1", api_version="v1"), "Label it"))
        raise error

    result = made.perform(loop)
    assert (result["failed"], result["changed"]) == (True, True)
    assert [finding["code"] for finding in result["findings"]] == codes
    assert said in result["msg"]
    assert made.closed == 1


def test_a_call_that_was_forbidden_something_names_all_that_its_steps_lack(made: Calls) -> None:
    made.deny(("patch", "nodes"), ("create", "leases.coordination.k8s.io"), ("create", "pods/eviction"))

    def loop(ctx: Context) -> Result:
        pod = Ref("Pod", "web-0", "shop", "u1", "v1")
        with pytest.raises(errors.Forbidden):
            run_requests.submit(ctx, Change("evict", pod, "Evict it"))
        return Result({"nodes": []}, failed=True, message="It failed.")

    result = made.perform(loop, steps=("nodes", "locks", "evict"))
    assert {finding["object"] for finding in result["findings"]} == {
        "ClusterRole kubeops-node-maintenance-nodes",
        "ClusterRole kubeops-node-maintenance-locks",
        "ClusterRole kubeops-node-maintenance-evict",
    }
    assert "may not create pods/eviction in namespace shop" in result["msg"]
    assert "--clusterrole=kubeops-node-maintenance-locks" in result["msg"]
    assert result["msg"].startswith("It failed. ")


def refused_at_once(ctx: Context) -> Result:
    """Without the right to write nodes."""
    with pytest.raises(errors.Forbidden):
        run_requests.submit(ctx, Change("patch", Ref("Node", "n1", api_version="v1"), "Label it", body={}))
    return Result({"nodes": []}, failed=True, message="It failed.")


EVICT = "may not create pods/eviction in "


@pytest.mark.parametrize(
    ("nodes", "within", "said"),
    [
        pytest.param(["n1"], [], f"{EVICT}namespace lab, shop.", id="of those on its nodes"),
        pytest.param(["n1"], ["lab", "bank"], f"{EVICT}namespace lab, bank.", id="as far as it is limited to them"),
        pytest.param(["n2"], [], f"{EVICT}namespace zoo.", id="not of other nodes"),
        pytest.param(["n3"], [], f"{EVICT}the whole cluster.", id="in the whole cluster where nothing is to be moved"),
        pytest.param([], [], f"{EVICT}the whole cluster.", id="in the whole cluster where no nodes are known"),
    ],
)
def test_what_is_missing_for_pods_that_nobody_has_come_to_yet_is_named_as_well(
    made: Calls, nodes: list[str], within: list[str], said: str
) -> None:
    made.add(objects.pod("a", "n1", objects.owned("ReplicaSet", "web")), objects.pod("b", "n1", namespace="lab"))
    made.add(objects.pod("c", "n2", namespace="zoo"))
    for kind, node in (("DaemonSet", "n1"), ("Node", "n3")):
        made.add(objects.pod(f"stays-{node}", node, objects.owned(kind, "x"), namespace="kube-system"))
    made.deny(("patch", "nodes"), ("create", "pods/eviction"))
    result = made.perform(refused_at_once, steps=("nodes", "evict"), nodes=nodes, within=within)
    assert said in result["msg"]
    assert "may not patch nodes in the whole cluster" in result["msg"]


def test_where_pods_may_not_be_listed_what_moves_them_is_asked_for_the_whole_cluster(made: Calls) -> None:
    made.deny(("patch", "nodes"), ("create", "pods/eviction"), ("list", "pods"))
    result = made.perform(refused_at_once, steps=("nodes", "evict"), nodes=["n1"])
    assert f"{EVICT}the whole cluster." in result["msg"]


def test_a_call_that_succeeded_without_a_right_asks_for_none(made: Calls) -> None:
    made.deny(("patch", "nodes"))

    def loop(ctx: Context) -> Result:
        with pytest.raises(errors.Forbidden):
            run_requests.submit(ctx, Change("patch", Ref("Node", "n1", api_version="v1"), "Label it", body={}))
        return Result({"nodes": []})

    assert made.perform(loop, steps=("nodes",))["msg"] == ""


def test_what_nobody_expects_is_raised_and_the_connection_closed(made: Calls) -> None:
    def loop(_ctx: Context) -> Result:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        made.perform(loop)
    assert made.closed == 1


def test_a_call_without_a_connection_fails_and_has_changed_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_options: t.Any, **_how: t.Any) -> t.Any:
        raise errors.ConfigError("no such context")

    with World(settle=False) as world:
        made = Calls(world, monkeypatch)
        monkeypatch.setattr(connection, "connect", connect)
        result = made.perform(nothing)
    assert (result["failed"], result["changed"], result["findings"]) == (True, False, [])
    assert "no such context" in result["msg"]


def test_a_call_writes_unless_check_mode_is_asked_for() -> None:
    with World(settle=False) as world:
        assert Context(world.process("me").cluster()).check is False
