# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The tools that are compared, each called as its users call it, in processes of their own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import yaml
from support.lab import ROOT, Lab, ansible, environment
from support.plays import HERE, NAMESPACE, Run, Running
from witness.api import Api, ApiError
from witness.log import Json

from bench.trials import BARE, K8S_DRAIN, KUBECTL, OURS

PEER_PACKAGE = "ansible==12.3.0"
PEER_CLIENT = "kubernetes==37.0.2"
PATIENCE = 1800.0
"""Seconds that one tool may take for one drain, or for one roll."""
PEAK = Path(__file__).parent / "peak.py"


@dataclass(frozen=True, slots=True)
class Ended:
    """A finished call: wall seconds of all its processes, and how it ended.

    By module: the seconds of its tasks, and the bytes of its largest result.
    """

    wall: float
    outcome: str
    tasks: dict[str, float] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)
    peak_mb: float | None = None
    """Memory of its largest process."""

    @property
    def memory(self) -> dict[str, float]:
        return {} if self.peak_mb is None else {"peak_mb": self.peak_mb}


def nothing(_nodes: Sequence[str]) -> None:
    """What a tool gives back that only cordons: its nodes are uncordoned with all others,
    or go with their scene.
    """


@dataclass(frozen=True, slots=True)
class Tool:
    """One contestant: `drain` empties nodes, `give_back` undoes what it did to them."""

    name: str
    drain: Callable[[Sequence[str]], Ended]
    give_back: Callable[[Sequence[str]], None] = nothing


class Playbooks:
    """Runs small playbooks on localhost with the commands of one environment."""

    def __init__(
        self, lab: Lab, folder: Path, command: str, variables: dict[str, str] | None = None
    ) -> None:
        self._lab, self._folder, self._command, self._variables = (
            lab,
            folder,
            command,
            variables or {},
        )

    def folder(self) -> Path:
        """A new one, for one call."""
        made = self._folder / f"run-{time.monotonic_ns()}"
        made.mkdir(parents=True)
        return made

    def run(self, tasks: list[Json]) -> Ended:
        """Run the tasks in one play."""
        folder = self.folder()
        path = folder / "play.yml"
        play = [{"name": "Bench", "hosts": "localhost", "gather_facts": False, "tasks": tasks}]
        path.write_text(yaml.safe_dump(play, sort_keys=False), encoding="utf-8")
        return self.start([str(path)], folder)

    def start(self, words: list[str], folder: Path) -> Ended:
        """Run `ansible-playbook` with these words."""
        env = environment(
            self._folder,
            {
                "K8S_AUTH_KUBECONFIG": str(self._lab.kubeconfig),
                "ANSIBLE_CALLBACK_PLUGINS": str(HERE / "callback"),
                "ANSIBLE_CALLBACKS_ENABLED": "result_lines",
                "KUBEOPS_TEST_RESULTS": str(folder / "results"),
                **self._variables,
            },
        )
        began = time.monotonic()
        peak = folder / "peak"
        run = Running(
            [sys.executable, str(PEAK), str(peak), self._command, *words], env, folder
        ).wait(PATIENCE)
        wall = time.monotonic() - began
        failed = [_reason(found.result) for found in run.results if found.status == "failed"]
        outcome = (
            "drained" if run.ok else f"failed: {failed[0] if failed else run.text.strip()[-200:]}"
        )
        return Ended(wall, outcome, task_seconds(run), largest_results(run), megabytes(peak))


def megabytes(peak: Path) -> float:
    """What peak.py has written."""
    return round(int(peak.read_text(encoding="utf-8")) / 1024, 1)


def _reason(result: Json) -> str:
    """The first message of a failed task, which may be one of a loop's."""
    failed = [item for item in result.get("results") or [] if item.get("failed")]
    return " ".join(str((failed or [result])[0].get("msg", "")).split())[:200]


def largest_results(run: Run) -> dict[str, int]:
    """Bytes of the largest result of each module or action."""
    found: dict[str, int] = {}
    for one in run.results:
        name = one.action.rpartition(".")[2]
        found[name] = max(found.get(name, 0), one.bytes)
    return found


def task_seconds(run: Run) -> dict[str, float]:
    """Seconds of each module or action that ran, looped ones summed up."""
    found: dict[str, float] = {}
    began = 0.0
    for line in run.lines:
        if line["event"] == "start":
            began = line["mono"]
        else:
            name = line["action"].rpartition(".")[2]
            found[name] = round(found.get(name, 0.0) + line["mono"] - began, 3)
    return found


class Ours:
    """`node_cordon` and `node_drain` in a playbook of two tasks."""

    name = OURS

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.plays = Playbooks(lab, folder, ansible("ansible-playbook"))

    def tool(self) -> Tool:
        return Tool(self.name, self.drain, self.give_back)

    def drain(self, nodes: Sequence[str]) -> Ended:
        return self.plays.run(
            [self.cordon(nodes, "cordoned"), self.task("node_drain", nodes=list(nodes))]
        )

    def drain_in_a_run(self, nodes: Sequence[str]) -> Ended:
        """As `drain`, by one start of a run: it renews a heartbeat for all nodes instead
        of the lease of each.
        """
        run = f"bench/{time.monotonic_ns()}"
        drained = self.task("node_drain", nodes=list(nodes), run=run)
        return self.plays.run([self.cordon(nodes, "cordoned", run=run), drained])

    def roll(self, serial: int) -> Callable[[Sequence[str]], Ended]:
        """The playbook `maintain`, as users run it, so many nodes at a time."""
        return lambda nodes: self.playbook("maintain", nodes, maintain_serial=serial)

    def evacuate(self, nodes: Sequence[str]) -> Ended:
        """The first half of `maintain`, all nodes at a time."""
        return self.playbook("evacuate", nodes, maintain_serial=len(nodes))

    def playbook(
        self, name: str, nodes: Sequence[str], inventory: str = "", **given: object
    ) -> Ended:
        """A playbook of the collection for these nodes, whose hosts are in a file."""
        folder = self.plays.folder()
        given = {"maintain_nodes": list(nodes), "maintain_report_dir": str(folder), **given}
        hosts = [f"--inventory={inventory}"] if inventory else []
        return self.plays.start([f"{NAMESPACE}.{name}", *hosts, "-e", json.dumps(given)], folder)

    def again(self, nodes: Sequence[str], times: int) -> Ended:
        """So many calls that find a node without a taint as it should be."""
        task = self.task("node_taint", nodes=list(nodes), state="absent", taints=[{"key": "bench"}])
        return self.plays.run([task] * times)

    def surge(self, nodes: Sequence[str]) -> Ended:
        """As `drain`, for nodes with pods that leave by a surge."""
        guard = self.task("pdb_guard", nodes=list(nodes))
        return self.plays.run(
            [self.cordon(nodes, "cordoned"), guard, self.task("node_drain", nodes=list(nodes))]
        )

    def by_backend(self, backend: str) -> Callable[[Sequence[str]], Ended]:
        """As `drain`, with pods moved in this way."""

        def drain(nodes: Sequence[str]) -> Ended:
            drained = self.task("node_drain", nodes=list(nodes), backend=backend)
            return self.plays.run([self.cordon(nodes, "cordoned"), drained])

        return drain

    def give_back(self, nodes: Sequence[str]) -> None:
        guard = self.task("pdb_guard", nodes=list(nodes), state="absent")
        ended = self.plays.run(
            [self.cordon(nodes, "returning"), guard, self.cordon(nodes, "uncordoned")]
        )
        if ended.outcome != "drained":
            raise RuntimeError(
                f"the nodes {', '.join(nodes)} could not be given back: {ended.outcome}"
            )

    def cordon(self, nodes: Sequence[str], state: str, **more: object) -> Json:
        return self.task("node_cordon", nodes=list(nodes), state=state, **more)

    @staticmethod
    def task(module: str, **arguments: object) -> Json:
        return {"name": module, f"{NAMESPACE}.{module}": arguments}


OPTIONS = {
    "ignore_daemonsets": True,
    "delete_emptydir_data": True,
    "force": True,
    "wait_timeout": 300,
}


class Drain:
    """`kubernetes.core.k8s_drain` of the `ansible` community package, one node after another.

    All nodes are cordoned first, as a careful user does; else pods of the first move to the next.
    """

    name = K8S_DRAIN

    def __init__(self, lab: Lab, folder: Path, home: Path) -> None:
        # The environment brings its own collections; ours has no part in it.
        alone = {"ANSIBLE_COLLECTIONS_PATH": str(home), "PYTHONPATH": ""}
        self._plays = Playbooks(lab, folder, str(home / "bin" / "ansible-playbook"), alone)

    def tool(self) -> Tool:
        return Tool(self.name, self.drain)

    def drain(self, nodes: Sequence[str]) -> Ended:
        return self._plays.run(
            [
                self._task(nodes, {"state": "cordon"}),
                self._task(nodes, {"state": "drain", "delete_options": OPTIONS}),
            ]
        )

    def roll(self, nodes: Sequence[str]) -> Ended:
        """Node after node: drained and back."""
        steps: list[Json] = [{"state": "drain", "delete_options": OPTIONS}, {"state": "uncordon"}]
        return self._plays.run([self._task([node], step) for node in nodes for step in steps])

    def info(self, nodes: Sequence[str], times: int) -> Ended:
        """So many calls of `k8s_info` for a node."""
        (node,) = nodes
        task = {"name": "info", "kubernetes.core.k8s_info": {"kind": "Node", "name": node}}
        return self._plays.run([task] * times)

    @staticmethod
    def _task(nodes: Sequence[str], arguments: Json) -> Json:
        return {
            "name": str(arguments["state"]),
            "kubernetes.core.k8s_drain": {"name": "{{ item }}", **arguments},
            "loop": list(nodes),
        }


def peer_environment() -> Path:
    """The virtual environment with the community package, made once below .build."""
    home = ROOT / ".build" / "bench-peer"
    mark = home / "ready"
    wanted = f"{PEER_PACKAGE} {PEER_CLIENT} {ROOT}"
    if not mark.exists() or mark.read_text(encoding="utf-8") != wanted:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(home)], check=True)
        pip = [
            str(home / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        subprocess.run([*pip, "--progress-bar", "off", PEER_PACKAGE, PEER_CLIENT], check=True)
        mark.write_text(wanted, encoding="utf-8")
    return home


class Kubectl:
    """`kubectl drain` with all nodes in one command."""

    name = KUBECTL

    def __init__(self, lab: Lab, folder: Path) -> None:
        self._lab, self._peak = lab, folder / "kubectl-peak"

    def tool(self) -> Tool:
        return Tool(self.name, self.drain)

    def drain(self, nodes: Sequence[str]) -> Ended:
        return self._run(
            "drain", "--ignore-daemonsets", "--delete-emptydir-data", "--force", *nodes
        )

    def roll(self, nodes: Sequence[str]) -> Ended:
        """Node after node, as a script does it: drained and back."""
        wall, peak = 0.0, 0.0
        for node in nodes:
            for ended in (self.drain([node]), self._run("uncordon", node)):
                wall, peak = wall + ended.wall, max(peak, ended.peak_mb or 0.0)
                if ended.outcome != "drained":
                    return Ended(wall, ended.outcome, peak_mb=peak)
        return Ended(wall, "drained", peak_mb=peak)

    def _run(self, *words: str) -> Ended:
        began = time.monotonic()
        kubectl = [str(self._lab.kubectl), "--kubeconfig", str(self._lab.kubeconfig)]
        done = subprocess.run(
            [sys.executable, str(PEAK), str(self._peak), *kubectl, *words],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        wall = time.monotonic() - began
        outcome = "drained" if done.returncode == 0 else f"failed: {done.stderr.strip()[-200:]}"
        return Ended(wall, outcome, peak_mb=megabytes(self._peak))


class BareLoop:
    """Evictions and nothing else: what the API server of this machine gives at best.

    No watch, no lock, no waiting for anything: the yardstick for the others, and no drain at all.
    """

    def __init__(self, lab: Lab, threads: int) -> None:
        self._lab, self._threads = lab, threads
        self._api = Api(lab.kubeconfig, "bare-loop")

    def tool(self) -> Tool:
        return Tool(f"{BARE}, {self._threads} threads", self.drain)

    def drain(self, nodes: Sequence[str]) -> Ended:
        for node in nodes:
            self._lab.api.patch(f"/api/v1/nodes/{node}", {"spec": {"unschedulable": True}})
        leaving = set(nodes)
        pods = [
            pod
            for pod in self._lab.api.items("/api/v1/pods")
            if pod["spec"].get("nodeName") in leaving
        ]
        began = time.monotonic()
        with ThreadPoolExecutor(self._threads) as pool:
            list(pool.map(self._evict, pods))
        return Ended(time.monotonic() - began, "drained")

    def _evict(self, pod: Json) -> None:
        name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}}
        while True:
            try:
                self._api.create(f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", eviction)
                return
            except ApiError as error:
                if error.status != 429:
                    raise
                time.sleep(0.5)


def versions(lab: Lab, home: Path) -> dict[str, str]:
    """What took part, by name."""
    told = lab.run_kubectl("version").stdout
    found = {
        name.strip(): value
        for name, value in re.findall(r"^(Client|Server) Version: (\S+)", told, re.M)
    }
    return {
        "kubectl": found.get("Client", ""),
        "kube-apiserver": found.get("Server", ""),
        "kubeops.node_maintenance": _galaxy_version(ROOT / "galaxy.yml"),
        "ansible-core": _package([sys.executable], "ansible-core"),
        "kubernetes (Python client)": _package([sys.executable], "kubernetes"),
        "python": sys.version.split()[0],
        "kubernetes.core": _collection_version(home),
        "ansible-core of kubernetes.core": _package([str(home / "bin" / "python")], "ansible-core"),
    }


def _package(python: list[str], name: str) -> str:
    code = f"import importlib.metadata as m; print(m.version({name!r}))"
    done = subprocess.run([*python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def _galaxy_version(path: Path) -> str:
    return str(yaml.safe_load(path.read_text(encoding="utf-8"))["version"])


def _collection_version(home: Path) -> str:
    path = next(
        home.glob("lib/python*/site-packages/ansible_collections/kubernetes/core/MANIFEST.json")
    )
    return str(yaml.safe_load(path.read_text(encoding="utf-8"))["collection_info"]["version"])
