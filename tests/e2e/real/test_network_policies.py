# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods that only some may reach are let go, and taken out of their Services: the engine of the network policies, a real
one, sees their labels change.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import lab_binaries
import lab_network
import pytest
from support.lab import CACHE, ROOT, Lab
from support.machines import Machines, server, service, workload
from support.plays import Player
from support.waiting import until
from witness.log import Json
from witness.traffic import Way

NODE = "node-001"
ENGINE = "github.com/cloudnativelabs/kube-router/v2/cmd/kube-router@v2.1.0"
COMPONENTS = ROOT / "roles" / "lab" / "files" / "components"
LEAVES_FIRST = {"maintenance.kubeops.io/load-balancer-wait": "5s"}


def policy(name: str, selector: Json, sources: list[Json]) -> Json:
    """Who may reach the pods of a label; nobody else may."""
    rules = [{"from": sources, "ports": [{"port": 8080}]}] if sources else []
    spec = {"podSelector": selector, "policyTypes": ["Ingress"], "ingress": rules}
    return {"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name}, "spec": spec}


@pytest.fixture(scope="module")
def program() -> Path:
    """kube-router, built once per machine."""
    if missing := [name for name in ("iptables", "ipset") if not shutil.which(name)]:
        pytest.skip(f"kube-router calls what is not there: {', '.join(missing)}")
    folder = CACHE / ENGINE.rpartition("/")[2]
    if not (folder / "kube-router").exists():
        go, why = lab_binaries.toolchain(["lab-web"], COMPONENTS, CACHE, "")
        assert go, why
        environment = {**lab_binaries.go_environment(), "GOFLAGS": "", "GOBIN": str(folder)}
        subprocess.run([go, "install", ENGINE], env=environment, check=True)
    return folder / "kube-router"


@contextmanager
def engine(machines: Machines, program: Path) -> Iterator[None]:
    """kube-router on each node, with its firewall alone."""
    role = ["--clusterrole=cluster-admin", "--user=system:kube-proxy"]
    machines.lab.run_kubectl("create", "clusterrolebinding", "kube-router", *role)
    kubeconfig = machines.home / "kube-proxy.kubeconfig"
    flags = ["--run-router=false", "--run-firewall=true", "--run-service-proxy=false", "--run-loadbalancer=false"]
    flags += [f"--kubeconfig={kubeconfig}", f"--service-cluster-ip-range={lab_network.SERVICE_NETWORK}"]
    nodes = [line.split()[0] for line in machines.command("list").splitlines()]
    started = []
    try:
        for name in nodes:
            command = [str(machines.lab.programs / "lab-node"), "exec", name, str(program), *flags]
            with (machines.folder / f"{name}.log").open("wb") as log:
                command.append(f"--hostname-override={name}")
                started.append(subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT))
        yield
    finally:
        for process in started:
            process.terminate()
        for process in started:
            process.wait(30)
        for name in nodes:
            # Its own --cleanup-config fails where it may not know all of the node; nothing else there uses iptables.
            machines.command("exec", name, "iptables", "--flush")
            machines.command("exec", name, "iptables", "--delete-chain")
        machines.lab.run_kubectl("delete", "clusterrolebinding", "kube-router")


def answers(machines: Machines, name: str) -> bool:
    """Whether the Service answers a request from the lab's network."""
    address = machines.api.get(f"/api/v1/namespaces/{machines.namespace}/services/{name}")["spec"]["clusterIP"]
    command = [*machines.prefix, "curl", "--silent", "--fail", "--max-time", "2", f"http://{address}/"]
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@pytest.mark.whole
def test_pods_behind_network_policies_lose_no_request(
    lab: Lab, machines: Machines, program: Path, tmp_path: Path
) -> None:
    made = {name: workload("Deployment", name, server("-start=1s")) for name in ("abrupt", "kept")}
    made |= {name: workload("Deployment", name, server("-start=1s", "-stop=5s")) for name in ("stops", "hidden")}
    for name in ("abrupt", "stops"):
        labels = {"app": name, "tier": "web"}
        made[name]["spec"]["template"]["metadata"]["labels"] = labels
    for name in ("abrupt", "kept"):
        made[name]["metadata"]["annotations"] = LEAVES_FIRST
    outside = [{"ipBlock": {"cidr": f"{lab_network.NETWORK}.0/24"}}]
    machines.apply(
        policy("nobody", {}, []),
        policy("web", {"matchLabels": {"tier": "web"}}, outside),
        policy("kept", {"matchLabels": {"app": "kept"}}, outside),
        *made.values(),
        *map(service, made),
    )
    machines.settle()
    player = Player(lab, tmp_path)
    with engine(machines, program):
        until(lambda: not answers(machines, "hidden"), 60, "the policies are in force")
        until(lambda: answers(machines, "abrupt") and answers(machines, "stops"), 60, "the others answer")
        with machines.traffic([Way("new", rate=40.0)]) as traffic:
            run = player("maintain", maintain_nodes=NODE, within=180.0)
            time.sleep(3.0)
        assert not answers(machines, "hidden")
    assert answers(machines, "hidden")
    assert run.ok, run.text
    found = {one["service"].partition("/")[2]: one for one in traffic.verdict["services"]}
    assert found["hidden"]["failed"] == found["hidden"]["sent"]
    assert [found[name]["failed"] for name in ("abrupt", "stops")] == [0, 0], found["abrupt"]
    pods = {
        pod["name"].partition("-")[0]: pod
        for one in run.of("node_drain")
        for node in one["nodes"]
        for pod in node["pods"]
        if pod["namespace"] == machines.namespace
    }
    assert {name: pod["outcome"] for name, pod in pods.items()} == dict.fromkeys(made, "replaced")
    # Without the label by which its Service selects it, nobody might reach it.
    assert "It stays in its Services" in pods["kept"]["reason"]
    assert "It leaves its Services" in pods["abrupt"]["reason"]
