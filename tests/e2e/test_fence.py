# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The fence in the API server: who lost a lock evicts nobody any more, and nobody else is concerned."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from support import rights
from support.arena import Arena, Workload
from support.lab import Lab
from support.plays import Player
from support.processes import descendants, send
from support.waiting import until
from support.watching import Watch
from witness.api import ApiError
from witness.kinds import OWN_NAMESPACE
from witness.log import Json

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.api_changes import Change
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context, Run
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_requests import request_for
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import released
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.client import Cluster
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.connection import ConnectionOptions, connect
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_lock_policy import by_the_fence
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.run_locks import Locks

AGAIN = 120.0
"""Seconds for a run that first has to see that the lease of a frozen one is not renewed."""
FENCE = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies/node-fence.maintenance.kubeops.io"
MAP = f"/apis/maintenance.kubeops.io/v1/namespaces/{OWN_NAMESPACE}/nodefences/node-fence"


@pytest.fixture
def cluster(lab: Lab) -> Iterator[Cluster]:
    made = connect(ConnectionOptions(kubeconfig=str(lab.kubeconfig)), user_agent=rights.AGENT)
    yield made
    made.close()


@pytest.fixture
def installer(lab: Lab, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of whoever installs the fence, with the one role for that."""
    config = rights.granted(lab.api, tmp_path / "installer", "installer", wanted=["fence"])
    yield {"K8S_AUTH_KUBECONFIG": str(config)}
    rights.revoke(lab.api, "installer")


@pytest.fixture
def fenced(lab: Lab, arena: Arena, play: Player, installer: dict[str, str]) -> Iterator[None]:
    """With the fence, installed by its playbook; it is effective once it refuses a lock that nobody holds."""
    installed = play("fence", env=installer)
    assert installed.ok, installed.text
    (beside,) = arena.nodes(1)
    arena.pod("probe", on=beside)
    until(lambda: refused(lab, arena, "probe", "node-nobody=probe/x"), 30, "the fence stands")
    yield
    removed = play("fence", env=installer, fence_state="absent")
    assert removed.ok, removed.text
    assert lab.api.find(FENCE) is None
    assert lab.api.find(MAP) is None


def evict(lab: Lab, arena: Arena, pod: str, lock: str = "", dry: bool = False) -> None:
    """As somebody else's tool does it; with `lock` as one that names a lock."""
    metadata: Json = {"name": pod, "namespace": arena.namespace}
    if lock:
        metadata["annotations"] = {"maintenance.kubeops.io/fence": lock}
    body: Json = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": metadata}
    query = "?dryRun=All" if dry else ""
    lab.api.create(f"/api/v1/namespaces/{arena.namespace}/pods/{pod}/eviction{query}", body)


def refused(lab: Lab, arena: Arena, pod: str, lock: str) -> str:
    """What the server says to a dry run, if it says no."""
    try:
        evict(lab, arena, pod, lock, dry=True)
    except ApiError as error:
        return str(error)
    return ""


def entries(lab: Lab) -> Json:
    found: Json = lab.api.get(MAP).get("held") or {}
    return found


class Overtaken:
    """A request that passed its own fence, and then the process stood still until another run had the node."""

    def __init__(self, cluster: Cluster, node: str) -> None:
        self.cluster, self.node = cluster, node
        lease = {node: f"{OWN_NAMESPACE}/node-{node}"}
        self.lock = f"node-{node}=loser/n"
        self.loser = Locks(Context(cluster), Run("loser", "n"), lease)
        self.taker = Locks(Context(cluster), Run("taker", "n"), lease)

    def arrives(self, change: Change, known: Callable[[], object]) -> None:
        """Send it; `known` waits until the server knows of the take-over."""
        assert self.loser.take() == {}
        self.loser.leave(1)

        def passed() -> None:
            self.loser.prove()
            assert self.taker.take() == {}
            known()

        self.send(change, self.loser, passed)

    def send(self, change: Change, holder: Locks, passed: Callable[[], None] | None = None) -> None:
        """In the name of one of both."""
        name = "loser" if holder is self.loser else "taker"
        self.cluster.send(
            request_for(replace(change, lock=f"node-{self.node}={name}/n")), before_send=passed, patience=0.0
        )

    def known(self, lab: Lab, arena: Arena) -> None:
        """Wait until the server knows of the take-over."""
        until(lambda: "held by taker" in refused(lab, arena, "probe", self.lock), 5, "it is known", every=0.01)

    def end(self) -> None:
        self.taker.leave(drop=[self.node])


def eviction(arena: Arena) -> Change:
    """Of the pod that is bound to the node."""
    meta = arena.pods("single")[0]["metadata"]
    return Change("evict", Ref("Pod", meta["name"], meta["namespace"], meta["uid"], "v1"), "")


def some(change: Change | None) -> Change:
    assert change is not None
    return change


def owner_of(pod: Json) -> str:
    """The UID of its controller."""
    found = (owner["uid"] for owner in pod["metadata"].get("ownerReferences") or () if owner.get("controller"))
    return next(found, "")


@pytest.mark.whole
def test_without_it_what_is_on_its_way_when_the_lock_is_lost_arrives(arena: Arena, lab: Lab, cluster: Cluster) -> None:
    assert lab.api.find(FENCE) is None
    (here,) = arena.nodes(1)
    arena.pod("single", on=here)
    late = Overtaken(cluster, here)
    try:
        late.arrives(eviction(arena), lambda: None)
    finally:
        late.end()
    until(lambda: not arena.pods(on=here), 30, "it was evicted by a run that had lost the node")


@pytest.mark.usefixtures("fenced")
def test_with_it_what_is_on_its_way_when_the_lock_is_lost_is_refused(arena: Arena, lab: Lab, cluster: Cluster) -> None:
    (here,) = arena.nodes(1)
    arena.pod("single", on=here)
    web = arena.deployment("web", on=here, service=False)
    late = Overtaken(cluster, here)
    try:
        with pytest.raises(errors.DeniedByWebhook, match=f"the lock node-{here} is held by taker") as denied:
            late.arrives(eviction(arena), lambda: late.known(lab, arena))
        assert by_the_fence(denied.value)
        assert entries(lab) == {f"node-{here}": "taker/n"}
        assert refused(lab, arena, "single", "node-=plan") == "", "what a plan tries, others may refuse"
        with pytest.raises(ApiError, match="held by nobody"):
            evict(lab, arena, "single", "node-=plan")
        only_its_holder_lets_go(late, web)
    finally:
        late.end()
    assert entries(lab) == {}
    until(lambda: "is held by nobody" in refused(lab, arena, "probe", late.lock), 5, "the give-back is known too")
    with pytest.raises(errors.DeniedByWebhook):
        late.send(eviction(arena), late.loser)
    assert [pod["metadata"]["name"] for pod in arena.pods("single", on=here)] == ["single"]


def only_its_holder_lets_go(late: Overtaken, web: Workload) -> None:
    """Nobody has written the pod meanwhile, so its resourceVersion keeps nothing off: neither this nor its undoing."""
    pod, top, arena = web.pods()[0], web.read()["metadata"], web.arena
    name, uid, labels = pod["metadata"]["name"], pod["metadata"]["uid"], pod["metadata"]["labels"]
    mark = released.Mark("loser", "n", late.node, "", top["uid"], "web", owner_of(pod), labels[names.HASH])

    def now() -> Json:
        return arena.find("Pod", name) or {}

    letting_go = some(released.releasing(pod, uid, mark))
    with pytest.raises(errors.DeniedByWebhook, match=f"the lock node-{late.node} is held by taker"):
        late.send(letting_go, late.loser)
    assert now()["metadata"]["labels"] == labels
    late.send(letting_go, late.taker)
    until(lambda: not owner_of(now()), 10, "its ReplicaSet has let it go")
    with pytest.raises(errors.DeniedByWebhook):
        late.send(some(released.undoing(now(), uid)), late.loser)
    # Nobody else's writes are looked at.
    arena.patch("Pod", name, {"metadata": {"annotations": {"acme.io/seen": "yes"}}})
    late.send(some(released.undoing(now(), uid)), late.taker)
    until(lambda: owner_of(now()) == mark.replica_set, 10, "its ReplicaSet has it again")


@pytest.mark.whole
@pytest.mark.usefixtures("fenced")
def test_a_run_that_was_frozen_and_replaced_evicts_nobody_when_it_thaws(
    arena: Arena, play: Player, watching: Watch, lab: Lab
) -> None:
    here, _unused = arena.nodes(2)
    guarded = arena.deployment("guarded", 6, on=here, start="1s", budget={"maxUnavailable": 1})
    with watching() as seen:
        running = play.start("maintain", maintain_nodes=[here], maintain_method="surge")
        until(lambda: guarded.nodes().count(here) <= 4 or running.over, 120, "it is emptying the node", every=0.01)
        assert not running.over, running.text
        assert list(entries(lab)) == [f"node-{here}"]
        processes = [running.process.pid, *descendants(running.process.pid)]
        for pid in processes:
            send(pid, signal.SIGSTOP)
        run_id = str((arena.record(here) or {})["run"])
        recovered = play("recover", within=AGAIN, recover_run=run_id, recover_state="undone")
        assert recovered.ok, recovered.text
        assert not arena.is_cordoned(here)
        accepted = [request for request in seen.until_now() if request.evicts and request.accepted]
        for pid in processes:
            send(pid, signal.SIGCONT)
        thawed = running.wait()
        time.sleep(1.0)
        later = [request for request in seen.until_now() if request.evicts and request.accepted]
        arena.settle()
    assert not thawed.ok
    assert thawed.node(here, "node_drain")["outcome"] == "adopted_by"
    assert any(words in thawed.words for words in ("taken over", "somebody gave the node back")), thawed.words
    assert len(later) == len(accepted), "not one after the take-over"
    assert entries(lab) == {}
    seen.all_held(resumable=True)


@pytest.mark.whole
@pytest.mark.usefixtures("fenced")
@pytest.mark.parametrize("way", ["Ctrl-C", "SIGTERM"])
def test_a_run_that_is_interrupted_leaves_nothing_in_it(
    arena: Arena, play: Player, watching: Watch, lab: Lab, way: str
) -> None:
    here, _unused = arena.nodes(2)
    guarded = arena.deployment("guarded", 4, on=here, start="1s", budget={"maxUnavailable": 1})
    with watching() as seen:
        running = play.start("maintain", maintain_nodes=[here], maintain_method="surge", terminal=way == "Ctrl-C")
        until(lambda: guarded.nodes().count(here) <= 2 or running.over, 120, "it is emptying the node", every=0.01)
        assert list(entries(lab)) == [f"node-{here}"]
        ended = running.interrupted(way)
        assert not ended.ok
        assert entries(lab) == {}
        run = play("maintain", maintain_nodes=[here], maintain_method="surge")
        assert run.ok, run.text
        arena.settle()
    assert entries(lab) == {}
    seen.all_held()


@pytest.mark.whole
@pytest.mark.usefixtures("fenced")
def test_nobody_else_is_concerned_and_a_maintenance_leaves_nothing_in_it(
    arena: Arena, play: Player, lab: Lab, installer: dict[str, str]
) -> None:
    here, _unused = arena.nodes(2)
    arena.deployment("web", 2, on=here, budget={"maxUnavailable": 1})
    arena.settle()
    run = play("maintain", maintain_nodes=[here])
    assert run.ok, run.text
    assert run.of("maintenance_plan")[0]["fence"] == "present"
    assert entries(lab) == {}

    lab.api.delete(MAP)
    plan = play.module("maintenance_plan", nodes=[here])
    assert plan.answer["fence"] == "incomplete"
    evict(lab, arena, "probe", dry=True)
    evict(lab, arena, "probe", "node-nobody=probe/x", dry=True)
    checked = play("fence", env=installer, check=True, diff=True)
    assert lab.api.find(MAP) is None
    mended = play("fence", env=installer, diff=True)
    (said,), (done,) = checked.of("maintenance_access"), mended.of("maintenance_access")
    assert said["actions"] == done["actions"] != []
    assert said["diff"] == done["diff"]
    until(lambda: refused(lab, arena, "probe", "node-nobody=probe/x"), 5, "it stands again")
    evict(lab, arena, "probe")
