# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What runs next to a cluster that kwokctl has started: Koordinator's scheduler,
and the agent of a node.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from lab_place import LabError, Place, command_line, components, home_option, processes
from lab_ports import free_port

AGENT = Path(__file__).with_name("lab_agent.py")
SCHEDULER = "koord-scheduler"


def equip(
    place: Place, binaries: Mapping[str, str], crds: str, wanted: list[str], wait: int
) -> list[str]:
    """Starts what is wanted and not running; returns what it started."""
    running = components(place)
    missing = [name for name in wanted if name not in running]
    if SCHEDULER in missing:
        define(place, binaries["kubectl"], crds)
    for name in missing:
        STARTS[name](place, binaries)
    for name in missing:
        until = time.monotonic() + wait
        while not answers(place, binaries["kubectl"], name):
            if name not in components(place) and time.monotonic() > until - wait + 5:
                raise LabError(
                    f"{name} of the lab {place.name} ended at once, see {log_of(place, name)}"
                )
            if time.monotonic() > until:
                raise LabError(
                    f"{name} of the lab {place.name} is not up within {wait} s, see "
                    f"{log_of(place, name)}"
                )
            time.sleep(0.2)
    return missing


def define(place: Place, kubectl: str, crds: str) -> None:
    """Installs Koordinator's CRDs, and waits until they are established."""
    common = [kubectl, f"--kubeconfig={place.kubeconfig}"]
    steps = (
        [
            "apply",
            "--server-side",
            "--force-conflicts",
            "--field-manager=lab",
            f"--filename={crds}",
        ],
        ["wait", "--for=condition=Established", "--timeout=60s", f"--filename={crds}"],
    )
    for step in steps:
        done = subprocess.run([*common, *step], capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(
                f"the lab {place.name} refuses the definitions of Koordinator: "
                f"{done.stderr.strip()}"
            )


def log_of(place: Place, name: str) -> Path:
    """The log of a process next to the cluster."""
    return place.cluster / "logs" / f"{name}.log"


def start(place: Place, name: str, command: list[str], executable: str) -> None:
    """Starts a process that outlives this one and is identified by its first arguments."""
    with log_of(place, name).open("ab") as log:
        subprocess.Popen(
            command,
            executable=executable,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            cwd=place.cluster,
            start_new_session=True,
        )


def start_scheduler(place: Place, binaries: Mapping[str, str]) -> None:
    """Koordinator's scheduler, next to the one of Kubernetes and with its own name."""
    command = [
        f"{place.cluster}/bin/{SCHEDULER}",
        f"--config={place.lab / 'koord-scheduler.yaml'}",
        f"--authentication-kubeconfig={place.kubeconfig}",
        f"--authorization-kubeconfig={place.kubeconfig}",
        "--bind-address=127.0.0.1",
        "--port=0",
        f"--secure-port={free_port()}",
        f"--cert-dir={place.cluster / 'pki' / SCHEDULER}",
        "--v=2",
    ]
    start(place, SCHEDULER, command, binaries[SCHEDULER])


def start_agent(place: Place, _binaries: Mapping[str, str]) -> None:
    """The kubelet of the node whose pods are real processes."""
    command = [
        sys.executable,
        str(AGENT),
        home_option(place),
        f"--credentials={place.kubeconfig}",
        f"--programs={place.lab / 'bin'}",
        f"--kubelet-port={kubelet_port(place)}",
    ]
    start(place, "agent", command, sys.executable)


def kubelet_port(place: Place) -> str:
    """The port at which KWOK answers for the kubelets, including logs and port-forwards."""
    for pid, name in processes(place).items():
        if name == "kwok-controller":
            for word in command_line(pid):
                if word.startswith("--node-port="):
                    return word.partition("=")[2]
    raise LabError(f"the lab {place.name} has no kwok-controller with a port")


def answers(place: Place, kubectl: str, name: str) -> bool:
    """Whether a process works: the scheduler listens, the agent's node is ready."""
    if name == SCHEDULER:
        return "Serving securely" in log_of(place, name).read_text(
            encoding="utf-8", errors="replace"
        )
    words = [
        "get",
        "node",
        "agent",
        '--output=jsonpath={.status.conditions[?(@.type=="Ready")].status}',
    ]
    command = [kubectl, f"--kubeconfig={place.kubeconfig}", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout == "True"


STARTS: Mapping[str, Callable[[Place, Mapping[str, str]], None]] = {
    SCHEDULER: start_scheduler,
    "agent": start_agent,
}
