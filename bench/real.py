# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Scenes on real nodes: how many requests each tool loses, and how long a node is away."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from support.lab import Lab
from support.machines import Machines, server, servers, service, workload
from support.waiting import until
from witness.traffic import Way

from bench import scenes, targets, tools
from bench.tools import Ended
from bench.trials import KUBECTL, OURS, Trial

NODE = "node-001"
NAMESPACE = "bench"
RATE = 50.0
LAGS = (5.0, 30.0)
"""Seconds that a balancer outside of the cluster is behind the EndpointSlices."""
WAITS = [
    workload(
        "Deployment", "waits", server("-start=3s", "-stop=35s"), terminationGracePeriodSeconds=60
    ),
    service("waits"),
]
"""A server that goes on for longer than any of the balancers is behind."""
SERVERS = {**servers("3s", "5s"), "waits": WAITS}
PATIENT, ABRUPT = {"waits"}, {"abrupt"}
GRACEFUL = SERVERS.keys() - PATIENT - ABRUPT

Act = Callable[[], Ended]


def traffic(lab: Lab, folder: Path, name: str, act: Act, repetition: int) -> Iterator[Trial]:
    """A tool drains and returns a node, while all Services on it are asked."""
    with shop(lab, folder) as machines:
        ways = [Way("new", RATE), *(Way("new", RATE, lag) for lag in LAGS)]
        busy = scenes.resting(lab)
        with machines.traffic(ways) as asked:
            time.sleep(2.0)
            ended = act()
            machines.settle(*SERVERS)
            # What balancers are behind with is still on its way.
            time.sleep(max(LAGS) + 2.0)
        verdict = asked.verdict["services"]
    for scene, names, lag in (
        (targets.GRACEFUL, GRACEFUL, None),
        (targets.ABRUPT, ABRUPT, None),
        (targets.LAG_SHORT, GRACEFUL, LAGS[0]),
        (targets.LAG_LONG, GRACEFUL, LAGS[1]),
        (targets.LAG_PATIENT, PATIENT, LAGS[1]),
    ):
        via = Way(lag=lag).via
        counted = [
            one
            for one in verdict
            if one["service"].rpartition("/")[2] in names and one["via"] == via
        ]
        numbers = {
            "sent": float(sum(one["sent"] for one in counted)),
            "failed": float(sum(one["failed"] for one in counted)),
            "dark_seconds_worst": max(one["dark"] for one in counted),
            "wall_seconds": round(ended.wall, 1),
        }
        yield Trial(scene, name, repetition, ended.outcome, numbers, {}, busy)


def away(lab: Lab, folder: Path, name: str, act: Act, repetition: int) -> Trial:
    """A tool takes a node out, it is rebooted (off for two seconds), and is returned."""
    with shop(lab, folder) as machines:
        busy = scenes.resting(lab)
        with Away(machines) as watch:
            ended = act()
        numbers = {"away_seconds": watch.seconds, "wall_seconds": round(ended.wall, 1)}
        return Trial(targets.AWAY, name, repetition, ended.outcome, numbers, {}, busy)


@contextmanager
def shop(lab: Lab, folder: Path) -> Iterator[Machines]:
    """The servers, all of whose single replicas are on the node."""
    place = folder / f"shop-{time.monotonic_ns()}"
    place.mkdir()
    machines = Machines(lab, NAMESPACE, place)
    machines.begin()
    # A tool that gave up has left it cordoned.
    lab.run_kubectl("uncordon", NODE)
    try:
        machines.apply(*(one for objects in SERVERS.values() for one in objects))
        machines.settle(*SERVERS)
        pods = {name: machines.pods(name) for name in SERVERS}
        singles = {name: only for name, (only, *more) in pods.items() if not more}
        elsewhere = [name for name, pod in singles.items() if pod["spec"]["nodeName"] != NODE]
        if elsewhere:
            raise RuntimeError(f"not on {NODE}: {', '.join(elsewhere)}")
        yield machines
    finally:
        lab.run_kubectl("delete", "namespace", NAMESPACE, timeout=180)


class Away:
    """For how long the node took no pods."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines
        self._times: list[float] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Away:
        self._thread.start()
        return self

    def __exit__(self, *_unused: object) -> None:
        self._over.set()
        self._thread.join()

    @property
    def seconds(self) -> float:
        return round(self._times[-1] - self._times[0], 1) if self._times else 0.0

    def _watch(self) -> None:
        while not self._over.wait(0.2):
            if self._machines.node(NODE)["spec"].get("unschedulable"):
                self._times.append(time.monotonic())


def by_script(lab: Lab, folder: Path) -> Act:
    """What people write: `kubectl drain`, a reboot, `kubectl uncordon` once the node is Ready."""
    kubectl = tools.Kubectl(lab, folder)

    def act() -> Ended:
        began = time.monotonic()
        machines = Machines(lab, NAMESPACE, folder)
        ended = kubectl.drain([NODE])
        boot = machines.node(NODE)["status"]["nodeInfo"]["bootID"]
        machines.command("reboot", NODE)

        def back() -> bool:
            return machines.node(NODE)["status"]["nodeInfo"]["bootID"] != boot and machines.ready(
                NODE
            )

        until(back, 120, "the node is back", every=0.3)
        lab.run_kubectl("uncordon", NODE)
        return Ended(time.monotonic() - began, ended.outcome)

    return act


def by_maintain(lab: Lab, folder: Path) -> Act:
    """`maintain` with a reboot by SSH."""
    ours = tools.Ours(lab, folder)
    inventory = str(Machines(lab, NAMESPACE, folder).facts["inventory"])
    return lambda: ours.playbook("maintain", [NODE], inventory, maintain_reboot=True)


REBOOTS: Mapping[str, Callable[[Lab, Path], Act]] = {
    f"{KUBECTL}, reboot, uncordon": by_script,
    OURS: by_maintain,
}
