# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Work on a host begins when the load balancers outside of the cluster have left it."""

from __future__ import annotations

import copy
import json
import typing as t
from dataclasses import dataclass, field, replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.client import Listing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.clock import Clock
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import Forbidden
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import cordon as steps
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.objects import Node
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.record import Record, Step
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context, Run
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.cordon import CordonOptions, State, cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.lock import Locks
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.objects import node
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World

SINCE = "2026-11-21T10:00:00.000Z"


@dataclass
class Time(Clock):
    slept: list[float] = field(default_factory=list)

    def wall(self) -> str:
        return "2026-11-21T10:00:12.000Z"

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


@dataclass
class Store:
    """A drained node, its lock once it is taken, and the cluster's Services (``None``: nobody may list them)."""

    node: dict[str, t.Any]
    services: list[str] | None

    def items(self, kind: kinds.Kind, **_unused: object) -> Listing:
        if kind == kinds.SERVICES and self.services is None:
            raise Forbidden("no", status=403)
        found: dict[str, list[dict[str, t.Any]]] = {
            "nodes": [self.node],
            "services": [{"metadata": {"name": "web"}, "spec": {"type": kind}} for kind in self.services or ()],
        }
        return Listing(found.get(kind.plural, []), "1")

    def send(self, request: Request, *, fence: t.Callable[[], None] | None = None, **_times: float) -> dict[str, t.Any]:
        if fence is not None:
            fence()
        body = dict(request.body or {})
        if request.resource == "nodes" and request.method == "PATCH":
            self.node["metadata"]["annotations"] |= body["metadata"]["annotations"]
        if request.resource == "nodes":
            return self.node
        known = {"name": "node-a", "namespace": "ns", "uid": "u", "resourceVersion": "1"}
        return {**body, "metadata": {**body.get("metadata", {}), **known}}


def drained(labels: dict[str, str], step: Step = "drained") -> dict[str, t.Any]:
    found = node("a")
    found["metadata"] |= {"labels": labels, "resourceVersion": "1"}
    draft = Record("r1", "n1", "tina", "", SINCE, "cordoned", "", "ns/node-a", {})
    record, _change = steps.take_out(Node.of(found), draft, taint=True)
    found["metadata"]["annotations"] = {names.RECORD: replace(record, step=step).dump()}
    return found


@pytest.mark.parametrize(
    ("services", "labels", "slept"),
    [
        pytest.param(["ClusterIP", "LoadBalancer"], {}, [18.0], id="waits for what is left of the time"),
        pytest.param(["ClusterIP", "NodePort"], {}, [], id="no load balancer outside"),
        pytest.param(None, {}, [18.0], id="nobody may look: there may be one"),
        pytest.param(["LoadBalancer"], {steps.BALANCERS.partition("/")[2]: ""}, [], id="left out before"),
    ],
)
def test_work_waits_for_load_balancers(services: list[str] | None, labels: dict[str, str], slept: list[float]) -> None:
    store, clock = Store(drained(labels), services), Time()
    ctx = Context(t.cast("t.Any", store), run=Run("r1", "n1"), clock=clock)
    result = cordon(ctx, CordonOptions("out", ("a",)))
    assert not result.failed, result.message
    assert json.loads(store.node["metadata"]["annotations"][names.RECORD])["step"] == "out"
    assert clock.slept == slept
    assert ("waiting" in [event.what for event in ctx.timeline]) is bool(slept)


@pytest.mark.parametrize("run", [None, Run("", "n2"), Run("r1", "n2"), Run("r2", "n2")], ids=str)
@pytest.mark.parametrize("state", ["returning", "uncordoned", "cordoned", "parked"])
def test_a_node_whose_tasks_run_is_given_back_by_nobody_else(run: Run | None, state: State) -> None:
    store = Store(drained({}, "out"), [])
    before = copy.deepcopy(store.node)
    result = cordon(Context(t.cast("t.Any", store), run=run, clock=Time()), CordonOptions(state, ("a",)))
    assert result.failed
    assert "recover_run=r1" in result.message
    assert "tina" in result.message
    assert store.node == before


@pytest.mark.parametrize(
    ("run", "nonce"),
    [(None, ""), (Run("", "n2"), "n2"), (Run("r2", "n2"), "n2")],
    ids=["by hand", "one start of release", "another run"],
)
def test_a_parked_node_is_taken_up_in_the_name_of_its_run(run: Run | None, nonce: str) -> None:
    store = Store(drained({}, "parked"), [])
    result = cordon(Context(t.cast("t.Any", store), run=run, clock=Time()), CordonOptions("returning", ("a",)))
    assert not result.failed, result.message
    record = json.loads(store.node["metadata"]["annotations"][names.RECORD])
    assert (record["run"], record["nonce"], record["step"]) == ("r1", nonce, "returning")


def test_a_record_that_cannot_be_read_fails_its_own_node_alone() -> None:
    store = Store(drained({}), [])
    store.node["metadata"]["annotations"][names.RECORD] = "{"
    result = cordon(Context(t.cast("t.Any", store), run=Run("r1", "n1"), clock=Time()), CordonOptions("parked", ("a",)))
    assert result.data["nodes"][0]["failed"]
    assert "cannot be read" in result.message


def test_a_lock_is_kept_for_as_long_as_asked_where_nobody_can_renew_it() -> None:
    """So it is before somebody's tasks switch a machine off; the node is cordoned and drained already."""

    def begun(world: World, who: str, run: str, **options: t.Any) -> dict[str, t.Any]:
        asked = CordonOptions(options.pop("state", "cordoned"), ("n1",), **options)
        shown: dict[str, t.Any] = world.process(who).run(lambda ctx: cordon(ctx, asked), run).data["nodes"][0]
        return shown

    with World([manifests.node("n1")]) as world:
        begun(world, "tina", "aa/1")
        assert begun(world, "tina", "aa/1", lease_duration=600.0)["outcome"] == "already_cordoned"
        world.machine.run_for(500.0)
        other = begun(world, "otto", "/2", state="returning")
        assert (other["outcome"], other["failed"]) == ("held", True)
        assert begun(world, "tina", "aa/1", state="returning")["outcome"] == "returning"


def test_a_release_removes_the_lock_that_a_killed_one_left_and_none_that_lives() -> None:
    def released(world: World, who: str, run: str) -> t.Any:
        task = world.process(who).call(lambda ctx: cordon(ctx, CordonOptions("uncordoned", ("n1", "n2"))), run)
        world.machine.run_until(lambda: not task.alive)
        return task

    with World([manifests.node("n1"), manifests.node("n2")]) as world:
        tina, ann = world.process("tina"), world.process("ann")
        tina.run(lambda ctx: cordon(ctx, CordonOptions("cordoned", ("n1",))), "/1")
        tina.faults.when(lambda r: r.method == "PATCH" and r.resource == "nodes", Fault("killed after"))
        released(world, "tina", "/1")
        locks = Locks(ann.ctx(), Run("bb", "2"), {"n2": f"{names.NAMESPACE}/node-n2"})
        taking = ann.spawn(locks.take)
        world.machine.run_until(lambda: not taking.alive)
        assert not released(world, "otto", "/3").value().failed
        assert {name for _ns, name in world.store.of(kinds.LEASES.resource)} == {"node-n2"}
