# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What real nodes do that is not in anybody's plan: images that are missing, power cuts, reboots that last."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from support.machines import IMAGE, Machines, container, server, service, workload
from support.plays import Player
from support.waiting import until
from witness.traffic import Way

NODE = "node-001"
LOST = "node.kubernetes.io/unreachable"


@pytest.mark.whole
def test_a_replacement_that_cannot_start_is_named_and_all_is_given_back(machines: Machines, play: Player) -> None:
    alone = "nowhere.invalid/only-there:1"
    machines.command("exec", NODE, "ctr", "--namespace=k8s.io", "images", "tag", "--force", IMAGE, alone)
    machines.apply(workload("Deployment", "web", server("-stop=5s", image=alone)), service("web"))
    machines.settle("web")
    (pod,) = machines.pods("web")
    assert pod["spec"]["nodeName"] == NODE
    with machines.traffic([Way("new")]) as traffic:
        run = play("evacuate", maintain_nodes=NODE, maintain_timeout=45)
    assert not run.ok
    assert "ErrImagePull" in run.words or "ImagePullBackOff" in run.words
    assert alone in run.words
    assert machines.in_service(NODE)
    assert [pod["metadata"]["name"]] == [left["metadata"]["name"] for left in machines.pods("web")]
    assert traffic.failed() == {f"{machines.namespace}/web": 0}


def test_a_host_that_does_not_come_back_stays_out_until_it_does(machines: Machines, play: Player) -> None:
    machines.apply(workload("Deployment", "web", server("-start=2s", "-stop=5s")), service("web"))
    machines.settle("web")
    off = play.tasks(
        {"name": "Switch it off", "ansible.builtin.command": "shutdown -h now", "ignore_unreachable": True}
    )
    with machines.traffic([Way("new")]) as traffic:
        run = play(
            "maintain",
            inventory=machines.hosts(NODE),
            maintain_nodes=NODE,
            maintain_tasks=off,
            maintain_reboot=True,
            maintain_tasks_timeout=20,
        )
        assert not run.ok
        assert NODE in run.words
        assert machines.node(NODE)["spec"]["unschedulable"]
        machines.command("on", NODE)
        until(lambda: machines.ready(NODE), 60, "the node is back", every=0.3)
        back = play("release", maintain_nodes=NODE)
    assert back.ok, back.text
    assert machines.in_service(NODE)
    assert traffic.failed() == {f"{machines.namespace}/web": 0}


@pytest.mark.whole
def test_a_node_without_power_is_given_up_with_a_proof_and_comes_back(machines: Machines, play: Player) -> None:
    here = {"key": LOST, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 1}
    machines.apply(
        workload("Deployment", "web", server("-stop=5s"), tolerations=[here]),
        workload("StatefulSet", "db", server("-stop=5s"), tolerations=[here]),
        service("web"),
    )
    machines.settle("web", "db")
    machines.command("off", NODE)
    until(lambda: not machines.ready(NODE), 90, "the node is lost", every=0.5)
    refused = play("evacuate", maintain_nodes=NODE, maintain_allow_interruption=True)
    assert not refused.ok
    assert f"maintain_fenced={NODE}" in refused.words
    # Its lease is as old as the node controller has waited.
    run = play("evacuate", maintain_nodes=NODE, maintain_allow_interruption=True, maintain_fenced=NODE)
    assert run.ok, run.text
    machines.settle("web", "db")
    assert NODE not in [pod["spec"]["nodeName"] for pod in machines.pods()]
    machines.command("on", NODE)
    until(lambda: machines.ready(NODE), 60, "the node is back", every=0.3)
    back = play("release", maintain_nodes=NODE)
    assert back.ok, back.text
    assert machines.in_service(NODE)


@pytest.mark.whole
@pytest.mark.parametrize("seconds", [45, 75])
def test_a_reboot_that_lasts_is_waited_for(machines: Machines, play: Player, seconds: int) -> None:
    machines.apply(
        workload("Deployment", "web", server("-start=2s", "-stop=5s")),
        workload("DaemonSet", "agent", server("-stop=2s")),
        service("web"),
        service("agent"),
    )
    machines.settle("web", "agent")
    boot = machines.node(NODE)["status"]["nodeInfo"]["bootID"]
    last = [{"owners": ["DaemonSet"], "last": True}]
    with machines.downtime(seconds), machines.traffic([Way("new")]) as traffic:
        run = play(
            "maintain",
            inventory=machines.hosts(NODE),
            maintain_nodes=NODE,
            maintain_reboot=True,
            maintain_rules=last,
            within=400.0,
        )
    assert run.ok, run.text
    assert machines.node(NODE)["status"]["nodeInfo"]["bootID"] != boot
    assert machines.in_service(NODE)
    failed = traffic.failed()
    assert failed[f"{machines.namespace}/web"] == 0
    # The last pod of a DaemonSet goes as it is told to: it is gone before the reboot, not asked during it.
    assert failed[f"{machines.namespace}/agent"] < 50


@pytest.mark.whole
def test_pods_that_stay_are_ended_in_order_before_a_reboot(machines: Machines, play: Player) -> None:
    """GracefulNodeShutdown: a DaemonSet's pod, then a critical static one; both are there again afterwards."""
    machines.apply(
        workload("Deployment", "web", server("-start=2s", "-stop=5s")),
        workload("DaemonSet", "agent", server("-stop=3s")),
        service("web"),
    )
    folder = machines.home / "nodes" / NODE
    manifest, log = folder / "manifests" / "critical.yaml", folder / "log" / "kubelet.log"
    # A kubelet does not know the classes: who writes a static pod writes the number, too.
    class_ = {"priorityClassName": "system-node-critical", "priority": 2000001000}
    pod = {**class_, "containers": [container("pause")]}
    about = {"name": "critical", "namespace": machines.namespace}
    static = {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": pod}
    manifest.write_text(f"---\n{json.dumps(static)}\n", encoding="utf-8")
    try:
        with machines.ending_pods_first(NODE, normal=15, critical=5) as shutdown:
            machines.settle()
            mark = log.stat().st_size
            with machines.traffic([Way("new")]) as traffic:
                run = play(
                    "maintain",
                    inventory=machines.hosts(NODE),
                    maintain_nodes=NODE,
                    maintain_tasks=play.tasks(*shutdown),
                    maintain_reboot=True,
                )
            assert run.ok, run.text
            assert machines.in_service(NODE)
            assert traffic.failed() == {f"{machines.namespace}/web": 0}
            machines.settle()
            with log.open(encoding="utf-8") as lines:
                lines.seek(mark)
                killed = re.findall(
                    r'"Shutdown manager (killing|finished killing) pod.*?/(agent|critical)-', lines.read()
                )
            assert killed[:4] == [
                (done, name) for name in ("agent", "critical") for done in ("killing", "finished killing")
            ]
    finally:
        manifest.unlink()


@pytest.mark.whole
def test_a_cable_that_is_unplugged_while_pods_move_is_told(machines: Machines, play: Player) -> None:
    machines.apply(workload("Deployment", "web", server("-start=8s", "-stop=5s")), service("web"))
    machines.settle("web")
    running = play.start("evacuate", maintain_nodes=NODE, maintain_timeout=150)
    running.until_begun("node_drain")
    time.sleep(1.0)
    machines.command("cut", NODE)
    run = running.wait()
    assert not run.ok
    assert f"maintain_fenced={NODE}" in run.words
    machines.command("plug", NODE)
    until(lambda: machines.ready(NODE), 90, "the node is back", every=0.5)
    machines.settle("web")
    again = play("evacuate", maintain_nodes=NODE)
    assert again.ok, again.text
    assert play("release", maintain_nodes=NODE).ok
    assert machines.in_service(NODE)


@pytest.mark.whole
def test_what_the_kubelet_evicts_itself_is_replaced_all_the_same(machines: Machines, play: Player) -> None:
    small = [{"name": "tmp", "emptyDir": {"sizeLimit": "1Mi"}}]
    main = server("-start=15s", "-stop=5s", volumeMounts=[{"name": "tmp", "mountPath": "/tmp"}])
    machines.apply(workload("Deployment", "web", main, volumes=small), service("web"))
    machines.settle("web")
    (pod,) = machines.pods("web")
    running = play.start("evacuate", maintain_nodes=NODE, maintain_delete_emptydir_data=True)
    running.until_begun("node_drain")
    folder = f"/var/lib/kubelet/pods/{pod['metadata']['uid']}/volumes/kubernetes.io~empty-dir/tmp"
    machines.command("exec", NODE, "dd", "if=/dev/zero", f"of={folder}/full", "bs=1M", "count=3")
    run = running.wait()
    assert run.ok, run.text
    machines.settle("web")
    assert NODE not in [left["spec"]["nodeName"] for left in machines.pods("web")]
    assert play("release", maintain_nodes=NODE).ok
    assert machines.in_service(NODE)


@pytest.mark.whole
def test_a_node_that_registers_anew_while_it_is_out_is_another_one(machines: Machines, play: Player) -> None:
    machines.apply(workload("Deployment", "web", server("-start=2s", "-stop=5s")), service("web"))
    machines.settle("web")
    assert play("evacuate", maintain_nodes=NODE).ok
    machines.command("off", NODE)
    machines.api.delete(f"/api/v1/nodes/{NODE}")
    machines.command("on", NODE)
    until(lambda: machines.api.find(f"/api/v1/nodes/{NODE}") and machines.ready(NODE), 60, "it is back", every=0.3)
    back = play("release", maintain_nodes=NODE)
    assert back.ok, back.text
    assert machines.in_service(NODE)


@pytest.mark.whole
def test_a_pod_that_a_finalizer_holds_is_named_and_waited_for(machines: Machines, play: Player) -> None:
    machines.apply(workload("Deployment", "web", server("-start=2s", "-stop=5s")), service("web"))
    machines.settle("web")
    (pod,) = machines.pods("web")
    path = f"/api/v1/namespaces/{machines.namespace}/pods/{pod['metadata']['name']}"
    machines.api.patch(path, {"metadata": {"finalizers": ["test.kubeops.io/held"]}})
    run = play("evacuate", maintain_nodes=NODE, maintain_timeout=40)
    assert not run.ok
    assert pod["metadata"]["name"] in run.words
    assert "test.kubeops.io/held" in run.words
    machines.api.patch(path, {"metadata": {"finalizers": None}})
    until(lambda: not machines.api.find(path), 30, "the pod is gone")
    assert play("evacuate", maintain_nodes=NODE).ok
    assert play("release", maintain_nodes=NODE).ok
    assert machines.in_service(NODE)


@pytest.mark.whole
def test_a_node_that_is_slow_costs_time_and_no_request(machines: Machines, play: Player) -> None:
    machines.apply(workload("Deployment", "web", server("-start=2s", "-stop=5s")), service("web"))
    machines.settle("web")
    others = [line.split()[0] for line in machines.command("list").splitlines() if not line.startswith(NODE)]
    for other in others:
        limit(machines, other, 8000)
    try:
        with machines.traffic([Way("new")]) as traffic:
            run = play("maintain", inventory=machines.hosts(NODE), maintain_nodes=NODE)
    finally:
        for other in others:
            limit(machines, other, -1)
    assert run.ok, run.text
    assert machines.in_service(NODE)
    assert traffic.failed() == {f"{machines.namespace}/web": 0}


def limit(machines: Machines, node: str, microseconds: int) -> None:
    """Gives a node so much processor time in each tenth of a second; -1 is no limit."""
    groups = Path("/sys/fs/cgroup")
    name = f"{machines.facts['network']}/{node}"
    if (groups / "cpu" / name).exists():
        (groups / "cpu" / name / "cpu.cfs_quota_us").write_text(str(microseconds), encoding="utf-8")
    else:
        wanted = "max" if microseconds < 0 else str(microseconds)
        (groups / name / "cpu.max").write_text(f"{wanted} 100000", encoding="utf-8")


@pytest.mark.whole
def test_a_local_volume_keeps_its_pod_which_is_down_until_the_node_is_back(machines: Machines, play: Player) -> None:
    folder = f"/run/{machines.namespace}"
    machines.command("exec", NODE, "mkdir", "-p", folder)
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": machines.namespace},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": machines.namespace,
            "local": {"path": folder},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": machines.namespace,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    used = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    machines.apply(volume, claim, workload("StatefulSet", "db", server("-stop=5s"), volumes=used), service("db"))
    machines.settle("db")
    blocked = play("plan", maintain_nodes=NODE)
    assert not blocked.ok
    run = play("maintain", inventory=machines.hosts(NODE), maintain_nodes=NODE, maintain_allow_interruption=True)
    assert run.ok, run.text
    machines.settle("db")
    assert machines.in_service(NODE)
    machines.api.delete(f"/api/v1/persistentvolumes/{machines.namespace}")
