# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What a drain waits for after its pods have gone: a replacement of each, and volumes to be detached."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.index_keys import PARSERS
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Pod
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import run_detach_wait
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.run_replacement_wait import ReplacementWait
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import PodPlan, Route
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World
from ansible_collections.kubeops.node_maintenance.tests.unit.support import objects

ALL = ("gone", "replacement", "volumes")
ATTACHED = ["volume pv is still attached to node n1"]
WEB = objects.owned("ReplicaSet", "web")
PENDING: Raw = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes fit"}


def shop(*pods: Raw, replicas: int = 3, **kinds_: list[Raw]) -> Snapshot:
    """Deployment `web` with these pods; claim `data` is bound to volume `pv`."""
    found = {"claims": [objects.claim("data", "pv")], **kinds_}
    return objects.snapshot(objects.deployment("web", replicas), pods=list(pods), **found)


def web(count: int, **changes: t.Any) -> list[Raw]:
    return [objects.pod(f"web-{number}", owner=WEB, **changes) for number in range(count)]


def plan(raw: Raw, route: Route = "evict", code: str = "replicas", *, tolerant: bool = False) -> PodPlan:
    return PodPlan(Pod.of(raw), route, code, "", None, tolerant=tolerant)


class Waits:
    """What is waited for in a cluster of its own; nothing is attached there but by `attach`."""

    def __init__(self, wait_for: tuple[str, ...] = ALL) -> None:
        self.world = World()
        self.me = self.world.process("me")
        self.waits = ReplacementWait(self.me.ctx(), wait_for)

    def attach(self, volume: str = "pv", node: str = "n1") -> None:
        spec = {"attacher": "csi.example", "nodeName": node, "source": {"persistentVolumeName": volume}}
        meta = {"name": f"{volume}-on-{node}"}
        self.world.apply(
            {"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": meta, "spec": spec}
        )

    def missing(self, seen: Snapshot) -> list[str]:
        """What is, once a look at the attachments that it begins has been answered."""
        found = self.me.run(lambda _ctx: self.waits.missing(seen))
        while found == [run_detach_wait.UNKNOWN] or self.waits.volumes._background.going(run_detach_wait.LOOK):
            self.world.machine.run_for(0.001)
            found = self.me.run(lambda _ctx: self.waits.missing(seen))
        return found

    def after(self, seconds: float, seen: Snapshot) -> list[str]:
        self.world.machine.run_for(seconds)
        return self.missing(seen)

    @property
    def looks(self) -> int:
        return sum(sent.request.resource == kinds.VOLUME_ATTACHMENTS.resource for sent in self.world.log)


@pytest.fixture
def waits() -> t.Iterator[t.Callable[..., Waits]]:
    made: list[Waits] = []

    def make(*arguments: t.Any) -> Waits:
        made.append(Waits(*arguments))
        return made[-1]

    yield make
    for one in made:
        one.world.close()


Make = t.Callable[..., Waits]


@pytest.mark.parametrize(
    ("route", "code", "tolerant", "replacement", "volume"),
    [
        ("evict", "replicas", False, True, True),
        ("job", "guarded", False, True, True),
        # Of a surge the new pods are ready already; with a local volume none can be before the node is back.
        ("surge", "single", False, False, True),
        ("evict", "local_volume", False, False, True),
        ("evict", "replicas", True, False, False),
        ("job", "guarded", True, False, False),
        ("wait", "finished", False, False, False),
        ("skip", "daemonset", False, False, False),
        ("refuse", "bare_pod", False, False, False),
    ],
)
def test_what_follows_a_pod_depends_on_its_route(
    waits: Make, route: Route, code: str, tolerant: bool, replacement: bool, volume: bool
) -> None:
    raw = objects.pod("web-0", owner=WEB, volumes=objects.mounts("data"))
    one = waits()
    one.waits.expect(plan(raw, route, code, tolerant=tolerant), shop(raw))
    assert bool(one.missing(shop())) is replacement
    one.attach()
    assert one.after(1.0, shop(*web(3))) == (ATTACHED if volume else [])


@pytest.mark.parametrize(
    ("claims", "waited"),
    [
        pytest.param([objects.claim("data", "pv")], True, id="bound"),
        pytest.param([objects.claim("other", "pv")], False, id="another claim"),
        pytest.param(
            [{**objects.claim("data", "pv"), "metadata": {"name": "data", "namespace": "x"}}], False, id="far"
        ),
        pytest.param([{"metadata": {"name": "data", "namespace": "shop"}}], False, id="without a spec"),
        pytest.param([objects.claim("data", "")], False, id="not bound"),
    ],
)
def test_only_the_volume_of_the_pods_own_claim_is_waited_for(waits: Make, claims: list[Raw], waited: bool) -> None:
    raw = objects.pod("web-0", volumes=objects.mounts("data"))
    one = waits()
    one.attach()
    one.waits.expect(plan(raw), shop(raw, claims=claims))
    assert one.missing(shop()) == (ATTACHED if waited else [])
    assert one.looks == waited, "who waits for no volume does not look"


def test_a_volume_counts_on_the_node_that_its_pod_left(waits: Make) -> None:
    raw = objects.pod("web-0", volumes=objects.mounts("data"))
    one = waits()
    one.waits.expect(plan(raw), shop(raw))
    one.attach(node="n2")
    one.attach("other")
    assert one.missing(shop()) == []


def test_attachments_are_looked_for_once_a_second(waits: Make) -> None:
    raw = objects.pod("web-0", volumes=objects.mounts("data"))
    one = waits()
    one.waits.expect(plan(raw), shop(raw))
    one.attach()
    assert (one.missing(shop()), one.looks) == (ATTACHED, 1)
    one.world.delete(kinds.VOLUME_ATTACHMENTS, "pv-on-n1")
    assert (one.after(0.75, shop()), one.looks) == (ATTACHED, 1)
    assert (one.after(0.25, shop()), one.looks) == ([], 2)
    assert (one.after(0.75, shop()), one.looks) == ([], 2), "nor is it forgotten in between that nothing is attached"


def test_of_many_attachments_those_waited_for_are_read_by_name_until_a_list_proves_that_none_is_left(
    waits: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_detach_wait, "MANY_ATTACHMENTS", 1)
    raw = objects.pod("web-0", volumes=objects.mounts("data"))
    one = waits()
    one.waits.expect(plan(raw), shop(raw))
    one.attach()
    one.attach("other")
    found = [one.missing(shop()), one.after(1.0, shop())]
    one.world.delete(kinds.VOLUME_ATTACHMENTS, "pv-on-n1")
    found.append(one.after(1.0, shop()))
    sent = [one.request for one in one.world.log if one.request.resource == kinds.VOLUME_ATTACHMENTS.resource]
    by_name = "metadata.name=pv-on-n1"
    assert found == [ATTACHED, ATTACHED, []]
    assert [dict(each.query).get("fieldSelector", "") for each in sent] == ["", by_name, by_name, ""]


@pytest.mark.parametrize(
    ("wait_for", "expected"),
    [
        (ALL, ["Deployment shop/web has 0 of 1 ready pods"]),
        (("gone", "volumes"), ATTACHED),
        (("gone", "replacement"), ["Deployment shop/web has 0 of 1 ready pods"]),
        (("gone",), []),
    ],
)
def test_replacements_come_first_and_only_what_is_wanted_is_waited_for(
    waits: Make, wait_for: tuple[str, ...], expected: list[str]
) -> None:
    raw = objects.pod("web-0", owner=WEB, volumes=objects.mounts("data"))
    one = waits(wait_for)
    one.attach()
    one.waits.expect(plan(raw), shop(raw))
    assert one.missing(shop()) == expected
    assert one.waits.waited_for == expected
    assert one.looks == (expected == ATTACHED)


def test_what_is_missing_stands_for_a_quarter_of_a_second_and_what_is_complete_not_at_all(waits: Make) -> None:
    one, before = waits(), shop(*web(1), replicas=1)
    one.waits.expect(plan(web(1)[0]), before)
    assert one.missing(before) == []
    gone, there = shop(replicas=1), shop(*web(1), replicas=1)
    assert one.missing(gone) != []
    assert one.after(0.2, there) != []
    assert one.after(0.05, there) == []
    assert one.missing(gone) != []


def listed(*names: str) -> list[Raw]:
    """The slice of Service `web` with these pods as ready endpoints."""
    endpoints = [{"targetRef": {"uid": f"uid-{name}"}, "conditions": {"ready": True}} for name in names]
    meta = {"name": "web-1", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}}
    return [{"metadata": meta, "endpoints": endpoints}]


def test_traffic_reaches_a_replacement_before_its_node_counts_as_drained(waits: Make) -> None:
    one, pods = waits(), web(3)
    one.waits.expect(plan(pods[0]), shop(*pods, slices=listed("web-0", "web-1", "web-2")))
    late = shop(*pods, slices=listed("web-1", "web-2"))
    assert one.missing(shop(*pods[:2], slices=listed("web-1"))) == ["Deployment shop/web has 2 of 3 ready pods"]
    assert one.after(0.25, late) == ["Service shop/web has 2 of 3 ready endpoints"]
    assert one.after(4.5, late) == ["Service shop/web has 2 of 3 ready endpoints"]
    assert one.after(0.25, shop(*pods, slices=listed("web-1", "web-2", "web-new"))) == []


def test_a_service_that_selects_other_pods_by_now_is_waited_for_no_longer_than_slices_are_behind(waits: Make) -> None:
    one, pods = waits(), web(3)
    one.waits.expect(plan(pods[0]), shop(*pods, slices=listed("web-0")))
    moved = shop(*pods, slices=listed())
    assert one.missing(moved) == ["Service shop/web has 0 of 1 ready endpoints"]
    assert one.after(5.0, moved) == []


def test_services_are_not_waited_for_where_replacements_are_not(waits: Make) -> None:
    one, pods = waits(("gone", "volumes")), web(1)
    one.waits.expect(plan(pods[0]), shop(*pods, slices=listed("web-0")))
    assert one.missing(shop(*pods, slices=listed())) == []


LEAVING = web(1, on="n1")[0]


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        pytest.param(shop(*web(3)), "", id="all"),
        pytest.param(shop(*web(2)), "2 of 3 ready pods", id="one less"),
        pytest.param(shop(*web(4)), "", id="more"),
        pytest.param(shop(*web(2), replicas=2), "", id="scaled down"),
        pytest.param(shop(*web(1), replicas=2), "1 of 2 ready pods", id="scaled down and not there"),
        pytest.param(shop(*web(3), replicas=9), "", id="scaled up: as many as before are enough"),
        pytest.param(shop(*web(3, ready=False)), "0 of 3 ready pods", id="not ready"),
        pytest.param(shop(*web(3, deleting="2026-01-01T00:00:00Z")), "0 of 3 ready pods", id="ending"),
        pytest.param(shop(*web(3, phase="Failed")), "0 of 3 ready pods", id="finished"),
        pytest.param(shop(*(objects.pod(f"x-{n}") for n in range(3))), "0 of 3 ready pods", id="of nobody"),
        pytest.param(shop(*web(3, labels={"app": "x"})), "0 of 3 ready pods", id="not selected"),
        pytest.param(objects.snapshot(), "", id="its workload is gone"),
    ],
)
def test_as_many_have_to_be_ready_as_before_or_as_are_wanted_now(waits: Make, now: Snapshot, expected: str) -> None:
    one = waits()
    one.waits.expect(plan(LEAVING), shop(*web(3)))
    assert one.missing(now) == ([f"Deployment shop/web has {expected}"] if expected else [])


def test_nothing_replaces_the_pods_of_what_is_being_deleted(waits: Make) -> None:
    one = waits()
    one.waits.expect(plan(LEAVING), shop(*web(3)))
    parts = objects.deployment("web", 3)
    parts["deployments"][0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert one.missing(objects.snapshot(parts)) == []


@pytest.mark.parametrize(
    ("unserving", "needed"),
    [({"ready": False}, 2), ({"deleting": "2026-01-01T00:00:00Z"}, 2), ({}, 3)],
    ids=["not ready", "ending", "serving"],
)
def test_as_many_as_served_before_are_waited_for(waits: Make, unserving: Raw, needed: int) -> None:
    one = waits()
    before = shop(*web(2), objects.pod("web-2", owner=WEB, **unserving))
    one.waits.expect(plan(LEAVING), before)
    assert one.missing(shop()) == [f"Deployment shop/web has 0 of {needed} ready pods"]


def test_what_served_before_the_first_pod_left_counts_for_all(waits: Make) -> None:
    one = waits()
    one.waits.expect(plan(LEAVING), shop(*web(3)))
    one.waits.expect(plan(web(2)[1]), shop(*web(1)))
    assert one.missing(shop(*web(2))) == ["Deployment shop/web has 2 of 3 ready pods"]


def test_why_a_replacement_is_not_ready_is_said(waits: Make) -> None:
    one = waits()
    one.waits.expect(plan(LEAVING), shop(*web(3)))
    stuck, slow = (objects.pod(name, owner=WEB, on="", ready=False) for name in ("stuck", "slow"))
    stuck["status"]["conditions"].append(PENDING)
    served = objects.pod("served", owner=WEB)
    served["status"]["conditions"].append({**PENDING, "message": "of yesterday"})
    (text,) = one.missing(shop(served, slow, stuck))
    assert text == "Deployment shop/web has 1 of 3 ready pods (Pod shop/stuck: 0/3 nodes fit)"


def test_pods_without_a_selector_are_known_by_their_owner(waits: Make) -> None:
    """A scale subresource need not say which pods it counts."""
    scale = objects.workload("Game", "web", 2, api_version="example.org/v1")
    del scale["spec"]["selector"]
    owner = objects.owned("Game", "web", "example.org/v1")

    def seen(*raws: Raw) -> Snapshot:
        found = objects.snapshot(pods=list(raws))
        return Snapshot.of({"nodes": found.nodes.values(), "pods": found.pods, "scales": [PARSERS["scales"](scale)]})

    mine = [objects.pod(f"game-{number}", owner=owner) for number in range(2)]
    one = waits()
    one.waits.expect(plan(mine[0]), seen(*mine))
    strangers = [objects.pod("nobodys"), objects.pod("theirs", owner=objects.owned("Game", "other"))]
    assert one.missing(seen(mine[0], *strangers)) == ["Game shop/web has 1 of 2 ready pods"]
    assert one.after(0.25, seen(*mine)) == []
