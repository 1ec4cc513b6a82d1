# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The EXAMPLES that need Koordinator or a descheduler, carried out as they are printed.

Other words than printed are those of ``words``: names of nodes, pods and namespaces.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml
from support import descheduling, koordinator, rollouts
from support.arena import Arena
from support.documented import carried_out, examples, source
from support.jobs import Jobs
from support.lab import ROOT, Lab
from support.plays import Player, Run
from support.waiting import until
from witness import objects as o
from witness.log import Json

pytestmark = pytest.mark.whole

LAYOUTS = ROOT / "roles" / "lab" / "files" / "deschedulers"
ACK = "/apis/apps/v1/namespaces/kube-system/deployments/ack-koord-descheduler"
ACK_CONFIG = "/api/v1/namespaces/kube-system/configmaps/koord-descheduler-config"
SIGS = "/apis/apps/v1/namespaces/kube-system/deployments/descheduler"
SIGS_CONFIG = "/api/v1/namespaces/kube-system/configmaps/descheduler"
OF_ACK = "The same on ACK, restarted as in its documentation"
OF_SIGS = 'A policy for the descheduler of sigs.k8s.io, installed by its chart as release "descheduler"'


@pytest.fixture(scope="module")
def lab(koord: Lab) -> Lab:
    return koord


@pytest.fixture
def chart(lab: Lab) -> Iterator[str]:
    """The configuration that the lab brings, and that is there again afterwards."""
    text: str = lab.api.get(koordinator.CONFIG)["data"][koordinator.KEY]
    with rollouts.as_found(lab, text):
        yield text


def outcomes(run: Run) -> list[str]:
    return [answer["outcome"] for answer in run.of(rollouts.MODULE)]


def test_the_descheduler_of_koordinator(lab: Lab, play: Player, chart: str) -> None:
    tasks = examples(rollouts.MODULE, source(rollouts.MODULE), [OF_ACK, OF_SIGS])
    with descheduling.dry_runs_in(lab, koordinator.NAMESPACE):
        run = carried_out(play, [], tasks, files={"koord-descheduler.yaml": chart})
    assert outcomes(run) == ["valid", "restarted", "restarted", "restarted", "previewed", "restarted"]


def test_the_descheduler_of_ack(lab: Lab, play: Player, chart: str) -> None:
    lab.api.patch(koordinator.DEPLOYMENT, {"spec": {"replicas": 0}})
    until(lambda: not koordinator.descheduler_pods(lab), 60, "the chart's descheduler is gone")
    assert lab.run_kubectl("apply", "--server-side", "-f", str(LAYOUTS / "ack.yaml")).returncode == 0
    try:
        config = yaml.safe_load(lab.api.get(ACK_CONFIG)["data"][koordinator.KEY])
        until(lambda: lab.api.get(ACK)["status"].get("readyReplicas") == 1, 60, "it is ready")
        new = yaml.safe_dump({**config, "deschedulingInterval": "300s"})
        task = next(task for task in examples(rollouts.MODULE, source(rollouts.MODULE)) if task["name"] == OF_ACK)
        run = carried_out(play, [], [task], files={"koord-descheduler.yaml": new})
        assert outcomes(run) == ["restarted"]
    finally:
        lab.api.delete(ACK)
        lab.api.delete(ACK_CONFIG)


def test_the_descheduler_of_sigs(lab: Lab, play: Player, chart: str) -> None:
    """With the name that its chart gives the ConfigMap of this release."""
    layout = (LAYOUTS / "sigs.yaml").read_text(encoding="utf-8").replace("descheduler-policy-configmap", "descheduler")
    file = play.folder / "sigs.yaml"
    file.write_text(layout, encoding="utf-8")
    assert lab.run_kubectl("apply", "--server-side", "-f", str(file)).returncode == 0
    try:
        until(lambda: lab.api.get(SIGS)["status"].get("readyReplicas") == 1, 60, "it is ready")
        task = next(task for task in examples(rollouts.MODULE, source(rollouts.MODULE)) if task["name"] == OF_SIGS)
        assert outcomes(carried_out(play, [], [task])) == ["restarted"]
    finally:
        lab.api.delete(SIGS)
        lab.api.delete(SIGS_CONFIG)


def test_a_converted_policy(lab: Lab, play: Player, chart: str) -> None:
    policy = {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerPolicy",
        "profiles": [
            {
                "name": "default",
                "pluginConfig": [{"name": "RemovePodsViolatingNodeTaints", "args": {}}],
                "plugins": {"deschedule": {"enabled": ["RemovePodsViolatingNodeTaints"]}},
            }
        ],
    }
    tasks = examples("to_koordinator", source("to_koordinator", "filter"))
    run = carried_out(play, [], tasks, files={"policy.yaml": yaml.safe_dump(policy)})
    assert outcomes(run) == ["restarted"]


@pytest.fixture
def jobs(arena: Arena) -> Iterator[Jobs]:
    made = Jobs(arena.api, arena)
    try:
        yield made
    finally:
        made.clear()


class Moves:
    """The examples of moves one by one, each in the cluster that it is for."""

    def __init__(self, play: Player, arena: Arena, here: str, there: str) -> None:
        self.play, self.arena, self.here, self.there = play, arena, here, there

    def __call__(self, *names: str, **words: str) -> Run:
        printed = {"worker-7": self.here, "namespace: default": f"namespace: {self.arena.name}"}
        text = source("pod_migration_job", words={**printed, "[shop]": f"[{self.arena.name}]", **words})
        tasks: list[Json] = [task for task in examples("pod_migration_job", text) if task["name"] in names]
        assert len(tasks) == len(names)
        for task in tasks:
            task.pop("when", None)
        return carried_out(self.play, [], tasks)


@pytest.fixture
def moves(lab: Lab, play: Player, arena: Arena, jobs: Jobs) -> Iterator[Moves]:
    """With a descheduler that does not wait for minutes between two pods of a workload."""
    here, there = arena.nodes(2, {"pool": "new"})
    with koordinator.configured(lab, koordinator.quickened("v1.7.0", 8, 1)):
        yield Moves(play, arena, here, there)


def test_moves_of_pods_by_name_node_and_selector(moves: Moves, arena: Arena, jobs: Jobs) -> None:
    demo = jobs.deployment("pod-demo", 2, on=moves.here)
    arena.settle()
    pod = jobs.named(demo)["name"]
    moves("Move a pod after capacity is reserved for it", **{"pod-demo-5f9b977566-c7lvk": pod})
    assert len(demo.nodes()) == 2
    moves("Move all pods of a namespace away from a node, with a reason")
    until(lambda: set(demo.nodes()) == {moves.there}, 30, "nothing is on the node")
    web = jobs.deployment("web", 2, on=moves.here)
    arena.settle()
    before = {o.uid(pod) for pod in web.pods()}
    moves("Only evict, with Koordinator's limits and arbitration, and with a grace period of one minute")
    assert not before & {o.uid(pod) for pod in web.pods()}


def test_a_move_by_a_reservation_that_is_there(moves: Moves, arena: Arena, jobs: Jobs) -> None:
    jobs.statefulset("web", 2, on=moves.here)
    arena.settle()
    owner = {"labelSelector": {"matchLabels": {"app": "web"}}}
    words = {
        "4d5f6c9e-2f0f-4b57-9a84-0a4b7a3d6c11": jobs.pod("web-0")["uid"],
        "reservation-0": jobs.reservation("reservation", owner, on=moves.there),
    }
    assert moves("Use an existing Reservation", **words).changed


def test_a_move_by_a_reservation_that_is_made_first(moves: Moves, arena: Arena, jobs: Jobs) -> None:
    jobs.statefulset("web", 2, on=moves.here)
    arena.settle()
    assert moves(
        "Reserve capacity on the new nodes first, then move the pod", **{"web-0-new": f"{arena.name}-new"}
    ).changed


def test_moves_that_a_person_approves(moves: Moves, arena: Arena, jobs: Jobs) -> None:
    """Nobody is at the terminal, so the pause goes on by itself."""
    web = jobs.deployment("web", 2, on=moves.here)
    arena.settle()
    moves("Prepare the moves", "Ask", "Go on")
    until(lambda: set(web.nodes()) == {moves.there}, 30, "nothing is on the node")


def test_moves_that_a_person_rejects(moves: Moves, arena: Arena, jobs: Jobs) -> None:
    web = jobs.deployment("web", 2, on=moves.here)
    arena.settle()
    moves("Prepare the moves", "Or leave everything where it is")
    assert set(web.nodes()) == {moves.here}
