# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A node with servers of all manners is maintained and rebooted; whoever asks them is the judge."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from support.arena import arena_name
from support.lab import Lab
from support.machines import Machines, container, server, servers, service, status_of, workload
from support.plays import Player, Run
from witness.log import Json
from witness.traffic import Way

NODE = "node-001"
START = "-start=2s"
SINGLES = {
    "stops-slowly": server(START, "-stop=15s"),
    "ignores-sigterm": server(START, "-ignore"),
    "works-long": server(START, "-stop=5s", "-work=300ms"),
}
GRACEFUL = [*SINGLES, "stops", "closes", "sleeps", "several", "bounded", "state", "probed", "scratch", "port", "path"]
"""All that go on answering for a while once they were told to end."""
UNSTEADY = ["restarts", "flaps"]
"""Those whose liveness or readiness probe fails again and again; nobody asks them."""
LAG = 5.0
"""Seconds after which a balancer follows the endpoints of a server that dies at once."""
LEAVES_FIRST = {"maintenance.kubeops.io/method": "replace", "maintenance.kubeops.io/load-balancer-wait": "8s"}
"""Of the Deployment of that server."""
PROBE = {"httpGet": {"path": "/", "port": 8080}}
NOWHERE = {"tcpSocket": {"port": 9}, "periodSeconds": 10, "failureThreshold": 3}
AS_NOBODY: list[Json] = [
    {
        "name": "Work as another user",
        # A module would need a Python that this user may start.
        "ansible.builtin.raw": "id -un",
        "become": True,
        "become_user": "nobody",
        "become_method": "ansible.builtin.su",
        "become_flags": "-s /bin/sh",
        "register": "worker",
        "changed_when": False,
    },
    {"name": "Say who that was", "ansible.builtin.assert": {"that": "worker.stdout is search('nobody')"}},
]
"""Tasks over SSH with become."""


def objects() -> list[Json]:
    """The servers above, and what else a node has."""
    grace: Json = {"ignores-sigterm": {"terminationGracePeriodSeconds": 5}}
    made = [workload("Deployment", name, main, **grace.get(name, {})) for name, main in SINGLES.items()]
    probed = server(
        "-stop=5s",
        startupProbe={**PROBE, "periodSeconds": 1, "failureThreshold": 30},
        livenessProbe={**PROBE, "periodSeconds": 2},
    )
    sidecar = {**container("pause"), "name": "sidecar", "restartPolicy": "Always"}
    first = {**container("sleep", "1s"), "name": "first"}
    common = servers("2s", "5s")
    common["abrupt"][0]["metadata"]["annotations"] = LEAVES_FIRST
    made += [
        workload("Deployment", "probed", probed, initContainers=[first, sidecar]),
        workload("Deployment", "scratch", server("-stop=5s"), volumes=[{"name": "tmp", "emptyDir": {}}]),
        workload("Deployment", "port", server("-stop=5s", ports=[{"containerPort": 8080, "hostPort": 8081}])),
        workload("Deployment", "path", server("-stop=5s"), volumes=[{"name": "tmp", "hostPath": {"path": "/tmp"}}]),
        workload("DaemonSet", "agent", server("-stop=2s")),
        # Nobody listens there: its container is started anew after half a minute, later and later.
        workload("Deployment", "restarts", server("-stop=1s", livenessProbe=NOWHERE)),
        # Ready for some seconds, then not, and so on.
        workload("Deployment", "flaps", server("-stop=1s", "-flap=4s")),
    ]
    names = [*SINGLES, "probed", "scratch", "port", "path", "agent"]
    job: Json = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "batch"},
        "spec": {"template": workload("Deployment", "batch", container("sleep", "20s"))["spec"]["template"]},
    }
    job["spec"]["template"]["spec"]["restartPolicy"] = "Never"
    return [*(one for objects in common.values() for one in objects), *made, job, *(service(name) for name in names)]


@dataclass(frozen=True, slots=True)
class Maintained:
    """A run that has ended, and what came of the requests meanwhile.

    `boots` are the node's boot IDs before and after it, `state` the pods of the StatefulSet by name.
    """

    run: Run
    verdict: Json
    machines: Machines
    boots: tuple[str, str]
    state: tuple[dict[str, str], dict[str, str]]

    def failures(self, name: str, kind: str) -> dict[str, Any]:
        """The failed requests of a Service; empty if none failed."""
        (found,) = self.of(name, kind, "kube-proxy")
        return {key: found[key] for key in ("failed", "failures")} if found["failed"] else {}

    def of(self, name: str, kind: str, via: str) -> list[dict[str, Any]]:
        """What came of requests to a Service in one way."""
        wanted = (f"{self.machines.namespace}/{name}", kind, via)
        found: list[dict[str, Any]] = self.verdict["services"]
        return [one for one in found if (one["service"], one["kind"], one["via"]) == wanted]


@pytest.fixture(scope="module")
def maintained(lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Maintained]:
    """One run with a reboot by SSH, under a load on all Services."""
    folder = tmp_path_factory.mktemp("requests")
    machines = Machines(lab, arena_name("requests"), folder)
    machines.begin()
    manifest = machines.home / "nodes" / NODE / "manifests" / "static.yaml"
    static = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "static", "namespace": machines.namespace}}
    pod = {**static, "spec": {"containers": [container("pause")]}}
    manifest.write_text(f"---\n{json.dumps(pod)}\n", encoding="utf-8")
    player = Player(lab, folder)
    names = [one["metadata"]["name"] for one in objects() if one["kind"] in ("Deployment", "StatefulSet")]
    try:
        machines.apply(*objects())
        machines.settle(*[name for name in names if name not in UNSTEADY])
        before, state = boot(machines), state_of(machines)
        lagging = {"abrupt": Way("new", rate=40.0, lag=LAG)}
        with machines.traffic([Way("new", rate=20.0), Way("keep", rate=5.0)], lagging) as traffic:
            time.sleep(2.0)
            run = player(
                "maintain",
                inventory=machines.hosts(NODE),
                maintain_nodes=NODE,
                maintain_tasks=player.tasks(*AS_NOBODY),
                maintain_reboot=True,
                maintain_delete_emptydir_data=True,
                within=300.0,
            )
            time.sleep(2.0)
        yield Maintained(run, traffic.verdict, machines, (before, boot(machines)), (state, state_of(machines)))
    finally:
        player.stop_all()
        manifest.unlink()
        machines.end()


def boot(machines: Machines) -> str:
    return str(machines.node(NODE)["status"]["nodeInfo"]["bootID"])


def state_of(machines: Machines) -> dict[str, str]:
    return {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in machines.pods("state")}


def test_the_node_was_rebooted_and_is_back(maintained: Maintained) -> None:
    assert maintained.run.ok, maintained.run.text
    before, after = maintained.boots
    assert before != after
    assert maintained.machines.in_service(NODE)


@pytest.mark.parametrize("name", GRACEFUL)
def test_a_server_that_stops_gracefully_loses_no_request(maintained: Maintained, name: str) -> None:
    assert maintained.failures(name, "new") == {}


@pytest.mark.parametrize("via", ["kube-proxy", Way(lag=LAG).via])
def test_a_server_that_dies_at_once_loses_none_if_it_has_left_its_services_before(
    maintained: Maintained, via: str
) -> None:
    (found,) = maintained.of("abrupt", "new", via)
    assert (found["failed"], found["failures"]) == (0, [])
    assert found["sent"] > 300
    pods = [pod for one in maintained.run.of("node_drain") for node in one["nodes"] for pod in node["pods"]]
    left = [(pod["route"], pod["outcome"]) for pod in pods if pod["name"].startswith("abrupt-")]
    assert left == [("replace", "replaced")]


@pytest.mark.parametrize("name", ["closes"])
def test_a_server_that_closes_its_connections_loses_none_of_kept_ones(maintained: Maintained, name: str) -> None:
    assert maintained.failures(name, "keep") == {}


def test_every_service_was_asked_all_the_time(maintained: Maintained) -> None:
    asked = {one["service"]: one["sent"] for one in maintained.verdict["services"] if one["kind"] == "new"}
    assert len(asked) == len([one for one in objects() if one["kind"] == "Service"])
    assert min(asked.values()) > 300


def test_the_job_was_waited_for(maintained: Maintained) -> None:
    machines = maintained.machines
    status = machines.api.get(f"/apis/batch/v1/namespaces/{machines.namespace}/jobs/batch")["status"]
    assert (status.get("succeeded"), status.get("failed")) == (1, None)


@pytest.mark.parametrize("name", UNSTEADY)
def test_a_server_whose_probe_fails_again_and_again_has_moved(maintained: Maintained, name: str) -> None:
    (pod,) = maintained.machines.pods(name)
    assert pod["spec"]["nodeName"] != NODE


def test_a_stateful_set_has_its_names_again_on_other_nodes(maintained: Maintained) -> None:
    before, after = maintained.state
    assert NODE in before.values()
    assert NODE not in after.values()
    assert after.keys() == before.keys() == {"state-0", "state-1"}


def test_the_static_pod_stayed(maintained: Maintained) -> None:
    name = f"static-{NODE}"
    assert maintained.run.pod(name)["route"] == "skip"
    machines = maintained.machines
    assert status_of(machines.api.get(f"/api/v1/namespaces/{machines.namespace}/pods/{name}")) == "Ready"
