# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the controller pays where the cluster is large, or one of many: no lab is needed.

The clusters are the answers of small servers on the loopback (synthetic_server.py),
in processes of their own.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import yaml
from support.lab import ansible, environment
from support.plays import NAMESPACE, Running

from bench import machine, planning, waves
from bench.targets import FLEET, LARGE
from bench.trials import OURS, Trial

PLAN_SIZES = (500, 1000, 2000, LARGE)
WAVE = 10
CLUSTERS = (1, 4, 16)
CLUSTER_NODES = 20
FORKS, JOBS = "one playbook, forks=16", "a job for each cluster"
MARKER = "bench.synthetic_server"
PATIENCE = 600.0
DRAIN = {"backend": "eviction", "allow_interruption": True, "delete_emptydir_data": True}
WAY = (
    ("node_cordon", {"state": "cordoned"}),
    ("pdb_guard", {"method": "evict"}),
    ("node_drain", DRAIN),
    ("node_cordon", {"state": "returning"}),
    ("pdb_guard", {"state": "absent"}),
    ("node_cordon", {"state": "uncordoned"}),
)
"""The way of one node of each cluster of a fleet."""


def plans(rounds: int) -> Iterator[Trial]:
    """All nodes of clusters of 500 to 5,000 nodes, in waves of ten."""
    for number in range(rounds):
        for size in PLAN_SIZES:
            with planning.served(size, "blockers") as url:
                busy = machine.busy_with_others(MARKER)
                found = planning.planned(url, size, planning.arguments([]))
            numbers = {
                "pods": found["pods"],
                "lists_cpu_seconds": found["lists s"],
                "cpu_seconds": found["sum s"],
                "requests": found["requests"],
                "peak_mb": found["memory MB"],
            }
            yield Trial(f"plan of all {size} nodes", OURS, number, "drained", numbers, {}, busy)


def calls(rounds: int) -> Iterator[Trial]:
    """The calls of a wave of ten nodes of a large cluster."""
    for number in range(rounds):
        with planning.served(LARGE, "writers") as url:
            for call in waves.CALLS:
                busy = machine.busy_with_others(MARKER)
                found = waves.called(url, call, WAVE)
                names = ("requests", "writes", "objects", "megabytes", "cpu_seconds", "peak_mb")
                numbers = dict(zip(names, found["numbers"], strict=True))
                scene = f"{call}: {WAVE} of {LARGE} nodes"
                yield Trial(scene, OURS, number, "drained", numbers, found["sent"], busy)


def fleets(rounds: int, folder: Path) -> Iterator[Trial]:
    """A node of each cluster out of service and back: all clusters in one
    playbook, or a job for each.
    """
    ways: dict[str, Callable[[Path, Sequence[str]], list[Running]]] = {FORKS: forked, JOBS: apart}
    for number in range(rounds):
        for name, start in ways.items():
            alone = 0.0
            for count in CLUSTERS:
                with contextlib.ExitStack() as servers:
                    writers = [planning.served(CLUSTER_NODES, "writers") for _one in range(count)]
                    urls = [servers.enter_context(one) for one in writers]
                    busy = machine.busy_with_others(MARKER)
                    home = folder / f"fleet-{time.monotonic_ns()}"
                    numbers, outcome = _measured(home, urls, start)
                alone = alone or numbers["cpu_seconds"]
                if count > 1:
                    numbers["cpu_seconds_each_more"] = round(
                        (numbers["cpu_seconds"] - alone) / (count - 1), 2
                    )
                yield Trial(
                    f"{FLEET} {count} clusters",
                    name,
                    number,
                    outcome,
                    {"clusters": count, **numbers},
                    {},
                    busy,
                )


def _measured(
    home: Path, urls: Sequence[str], start: Callable[[Path, Sequence[str]], list[Running]]
) -> tuple[dict[str, float], str]:
    """What it took, and how it ended; the memory is that of all its processes,
    shared pages counted once.
    """
    home.mkdir(parents=True)
    began, spent = time.monotonic(), machine.processor()
    running = start(home, urls)
    most = 0.0
    while not all(one.over for one in running):
        most = max(most, machine.memory_of(str(home)))
        time.sleep(0.2)
        if time.monotonic() - began > PATIENCE:
            break
    ended = [one.wait(PATIENCE) for one in running]
    wall, spent = time.monotonic() - began, machine.processor() - spent
    failed = [run.text.strip()[-200:] for run in ended if not run.ok]
    numbers = {
        "wall_seconds": round(wall, 2),
        "cpu_seconds": round(spent, 2),
        "peak_mb": round(most),
    }
    return numbers, f"failed: {failed[0]}" if failed else "drained"


def forked(home: Path, urls: Sequence[str]) -> list[Running]:
    """One `ansible-playbook` whose hosts are the clusters."""
    return [_playbook(home, urls)]


def apart(home: Path, urls: Sequence[str]) -> list[Running]:
    """One `ansible-playbook` for each cluster, as the slices of a job of AWX."""
    return [_playbook(home / str(number), [url]) for number, url in enumerate(urls)]


def _playbook(folder: Path, urls: Sequence[str]) -> Running:
    """The way of one node of each cluster, whose hosts have the addresses of their API servers."""
    folder.mkdir(parents=True, exist_ok=True)
    hosts = {f"cluster-{number}": {"address": url} for number, url in enumerate(urls)}
    local = {"ansible_connection": "local", "ansible_python_interpreter": sys.executable}
    inventory, path = folder / "clusters.json", folder / "play.json"
    inventory.write_text(json.dumps({"all": {"hosts": hosts, "vars": local}}), encoding="utf-8")
    named = {"nodes": ["node-00000"]}
    tasks = [{"name": module, f"{NAMESPACE}.{module}": {**named, **more}} for module, more in WAY]
    where = {"K8S_AUTH_HOST": "{{ address }}", "K8S_AUTH_API_KEY": "none"}
    play = {
        "name": "Fleet",
        "hosts": "all",
        "gather_facts": False,
        "environment": where,
        "tasks": tasks,
    }
    path.write_text(yaml.safe_dump([play], sort_keys=False), encoding="utf-8")
    words = [
        ansible("ansible-playbook"),
        "-i",
        str(inventory),
        f"--forks={CLUSTERS[-1]}",
        str(path),
    ]
    return Running(words, environment(folder, {}), folder)
