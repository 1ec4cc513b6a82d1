# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""When a drain gives a lost node up, and what becomes of the evacuation of a fenced one.

The cluster is one node in memory, and time passes only where somebody sleeps; what a real one does with the taint is
shown on the lab.
"""

from __future__ import annotations

import copy
import json
import typing as t
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.client import Listing
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.clock import Clock
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import (
    Conflict,
    Forbidden,
    NotFound,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import dead, names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.case import PodPlan
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.objects import Node, Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.record import Record
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.snapshot import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context, StopRun
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.dead import (
    HOPELESS,
    LISTEN,
    SETTLED,
    STALLED,
    Evacuation,
    Silence,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.evict import Move, State
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.sites import Site
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.objects import Raw, claim, mounts, node, pod, snapshot

RECORD = Record("r1", "x", "me", "", "2026-01-01T00:00:00Z", "cordoned", "uid-n1", "ns/l", {"unschedulable": False})


@dataclass
class Time(Clock):
    present: float = 1000.0
    plans: list[tuple[float, Callable[[], None]]] = field(default_factory=list)

    def now(self) -> float:
        return self.present

    def wall(self) -> str:
        return "2026-01-01T03:10:00.000Z"

    def sleep(self, seconds: float) -> None:
        self.present += seconds
        for plan in [p for p in self.plans if p[0] <= self.present]:
            self.plans.remove(plan)
            plan[1]()

    def after(self, seconds: float, what: Callable[[], None]) -> None:
        self.plans.append((self.present + seconds, what))


@dataclass
class World:
    """One node with its lease, pods and volumes; also what a drain's watches would show of it."""

    clock: Time = field(default_factory=Time)
    node: Raw | None = None
    lease: str = "2026-01-01T03:00:00Z"
    pods: list[Raw] = field(default_factory=list)
    attached: list[str] = field(default_factory=list)
    rivals: int = 0
    denied: bool = False

    def __post_init__(self) -> None:
        self.node = node("n1", conditions={"Ready": "Unknown"}, annotations={names.RECORD: RECORD.dump()})
        self.node["spec"]["unschedulable"] = True

    def ready(self, status: str) -> None:
        assert self.node
        self.node["status"]["conditions"] = [{"type": "Ready", "status": status}]
        self.touch()

    def touch(self) -> None:
        assert self.node
        self.node["metadata"]["resourceVersion"] = str(int(self.node["metadata"]["resourceVersion"]) + 1)

    @property
    def taints(self) -> list[str]:
        assert self.node
        return [x["key"] for x in self.node["spec"].get("taints") or []]

    # -- as a cluster

    def items(self, kind: kinds.Kind, **_options: t.Any) -> Listing:
        if self.denied:
            raise Forbidden("no", status=403)
        if kind is kinds.LEASES:
            meta = {"name": "n1", "namespace": dead.LEASES, "uid": "u"}
            return Listing([{"metadata": meta, "spec": {"renewTime": self.lease, "leaseDurationSeconds": 40}}], "1")
        source = [{"persistentVolumeName": name} for name in self.attached]
        return Listing([{"spec": {"nodeName": "n1", "source": each}} for each in source], "1")

    def send(self, request: Request, **_options: t.Any) -> Raw:
        if self.node is None:
            raise NotFound("gone", request=request, status=404)
        if request.verb == "patch":
            if self.rivals:
                self.rivals -= 1
                self.touch()
            body = dict(request.body or {})
            if body["metadata"]["resourceVersion"] != self.node["metadata"]["resourceVersion"]:
                raise Conflict("changed", request=request, status=409)
            self.node["metadata"]["annotations"].update(body["metadata"]["annotations"])
            if "spec" in body:
                self.node["spec"]["taints"] = body["spec"]["taints"] or []
            self.touch()
        return copy.deepcopy(self.node)

    # -- as watches

    def snapshot(self) -> Snapshot:
        return snapshot(pods=self.pods, claims=[claim("data", "pv-data", ("ReadWriteOnce",))])

    def wait(self, seconds: float) -> bool:
        self.clock.sleep(seconds)
        return True


@pytest.fixture
def world() -> World:
    return World()


def context(world: World) -> Context:
    return Context(t.cast("t.Any", world), clock=world.clock)


def site(world: World, *states: State, **changes: t.Any) -> Site:
    """The node with a pod in each state."""
    assert world.node
    made = Site("n1", Node.of(world.node), RECORD)
    for number, state in enumerate(states):
        raw = pod(f"p{number}", volumes=mounts("data"), **changes)
        world.pods.append(raw)
        move = Move(PodPlan(Pod.of(raw), "wait", dead.FENCED, "why", None), state, world.clock.now())
        move.left_at = world.clock.now() if state == "leaving" else None
        made.moves[f"uid-p{number}"] = move
    return made


def given_up_after(world: World, here: Site, most: float = 200.0) -> tuple[float | None, str]:
    silence, began = Silence(context(world)), world.clock.now()
    while world.clock.now() - began < most:
        if why := silence.given_up(here):
            return world.clock.now() - began, why
        world.clock.sleep(0.5)
    return None, ""


@pytest.mark.parametrize(
    ("states", "seconds"),
    [
        (("leaving", "leaving"), SETTLED),
        (("leaving", "waiting"), STALLED),
        (("waiting",), STALLED),
        (("gone",), None),
        (("asked",), None),
    ],
)
def test_a_lost_node_is_given_up(world: World, states: tuple[State, ...], seconds: float | None) -> None:
    after, why = given_up_after(world, site(world, *states))
    assert after == seconds
    assert ("-e migrate_fenced=n1" in why) is (seconds is not None)


def test_a_node_that_dies_in_the_middle_is_noticed_by_what_is_overdue(world: World) -> None:
    world.ready("True")
    here = site(world, "leaving", grace=30)
    world.clock.after(10, lambda: world.ready("Unknown"))
    after, why = given_up_after(world, here)
    assert after is not None
    assert 35 < after < 45
    assert "Pod shop/p0 was told to" in why


@pytest.mark.parametrize("ready", ["True", "False"])
def test_a_node_that_answers_is_waited_for(world: World, ready: str) -> None:
    world.ready(ready)
    assert given_up_after(world, site(world, "leaving"))[0] is None


def test_a_node_that_comes_back_in_time_is_waited_for(world: World) -> None:
    here = site(world, "waiting")
    world.clock.after(STALLED - 3, lambda: world.ready("True"))
    assert given_up_after(world, here)[0] is None


def evacuated(world: World, here: Site, timeout: float = float("inf")) -> list[Site]:
    return Evacuation(context(world), t.cast("t.Any", world), lambda node: None, world.clock.now() + timeout).work(
        [here]
    )


def test_pods_and_volumes_are_waited_for(world: World) -> None:
    world.attached = ["pv-data", "pv-of-a-pod-that-stays"]
    here = site(world, "waiting")
    world.clock.after(LISTEN + 20, world.pods.clear)
    world.clock.after(LISTEN + 40, lambda: world.attached.remove("pv-data"))
    assert evacuated(world, here) == [here]
    assert world.clock.now() - 1000 >= LISTEN + 40
    assert [move.outcome for move in here.moves.values()] == ["let_go"]
    assert dead.OUT_OF_SERVICE["key"] in world.taints
    assert world.node
    assert json.loads(world.node["metadata"]["annotations"][names.RECORD])["added"] == [dead.OUT_OF_SERVICE]


@pytest.mark.parametrize(
    ("what", "outcome"),
    [
        (lambda w: setattr(w, "lease", "2026-01-01T03:00:10Z"), "not_dead"),
        (lambda w: w.ready("True"), "not_dead"),
        (lambda w: setattr(w, "node", None), "gone"),
    ],
)
def test_a_sign_of_life_while_we_listen_ends_it(world: World, what: Callable[[World], None], outcome: str) -> None:
    here = site(world, "waiting")
    world.clock.after(6, lambda: what(world))
    assert evacuated(world, here) == []
    assert here.outcome == outcome
    assert world.node is None or world.taints == []


def test_a_living_node_is_refused_at_once(world: World) -> None:
    world.ready("True")
    here = site(world, "waiting")
    assert evacuated(world, here) == []
    assert (here.outcome, world.clock.now(), world.taints) == ("not_dead", 1000.0, [])


def test_the_taint_is_set_on_what_the_node_is_now(world: World) -> None:
    world.rivals = 2
    here = site(world, "waiting")
    world.clock.after(LISTEN + 5, world.pods.clear)
    assert evacuated(world, here) == [here]
    assert world.rivals == 0


@pytest.mark.parametrize(
    ("what", "outcome"),
    [
        pytest.param(lambda node: node["spec"].pop("unschedulable"), "uncordoned", id="uncordoned"),
        pytest.param(lambda node: node["metadata"].update(uid="another"), "replaced", id="registered again"),
    ],
)
def test_an_evacuation_ends_when_the_node_is_no_longer_out(
    world: World, what: Callable[[Raw], None], outcome: str
) -> None:
    here = site(world, "waiting")
    world.clock.after(LISTEN + 10, lambda: what(t.cast("Raw", world.node)))
    assert evacuated(world, here) == []
    assert here.outcome == outcome
    assert world.clock.now() - 1000 < LISTEN + 15


def test_a_node_that_another_run_took_over_is_left_to_it(world: World) -> None:
    here = site(world, "waiting")
    assert world.node
    world.node["metadata"]["annotations"][names.RECORD] = replace(RECORD, nonce="y").dump()
    world.touch()
    assert evacuated(world, here) == []
    assert (here.outcome, world.taints) == ("adopted_by", [])


def test_the_return_of_the_kubelet_lifts_the_taint(world: World) -> None:
    here = site(world, "waiting")
    world.clock.after(LISTEN + 10, lambda: world.ready("True"))
    assert evacuated(world, here) == []
    assert (here.outcome, world.taints) == ("came_back", [])
    assert world.node
    assert json.loads(world.node["metadata"]["annotations"][names.RECORD])["added"] == []


@pytest.mark.parametrize(("timeout", "seconds"), [(float("inf"), HOPELESS), (50.0, 50.0)])
def test_what_never_goes_is_not_waited_for_for_ever(world: World, timeout: float, seconds: float) -> None:
    here = site(world, "waiting")
    assert evacuated(world, here, timeout) == []
    assert here.outcome == "timed_out"
    assert world.clock.now() - 1000 < LISTEN + seconds + 5
    assert dead.OUT_OF_SERVICE["key"] in world.taints


def test_check_mode_predicts_the_taint_and_writes_nothing(world: World) -> None:
    ctx = replace(context(world), check=True)
    here = site(world, "waiting")
    Evacuation(ctx, t.cast("t.Any", world), lambda node: None, float("inf")).predict([here])
    assert [change.sentence for change in ctx.changes] == [
        "Set node.kubernetes.io/out-of-service=nodeshutdown:NoExecute on node n1"
    ]
    assert (here.open, world.taints, world.clock.now()) == (True, [], 1000.0)
    world.ready("True")
    here = site(world, "waiting")
    Evacuation(ctx, t.cast("t.Any", world), lambda node: None, float("inf")).predict([here])
    assert here.outcome == "not_dead"


def test_without_the_right_to_read_leases_nothing_is_done(world: World) -> None:
    world.denied = True
    with pytest.raises(StopRun, match="kubelet is alive is not known"):
        evacuated(world, site(world, "waiting"))
    assert world.taints == []
