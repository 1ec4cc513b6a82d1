# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The directories and processes of one cluster of the lab, and how they are deleted."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import lab_network

STAGES = {"Node": "stages/nodes.yaml", "Pod": "stages/pods.yaml"}
PODS = "pods/"
NODES = "nodes/"


class LabError(Exception):
    """An error for the user, with its remedy."""


@dataclass(frozen=True, slots=True)
class Place:
    """The directories of one cluster."""

    name: str
    state: Path

    @property
    def cluster(self) -> Path:
        """The directory of kwokctl: binaries, logs, data, pid files,
        and the pods that are real processes.
        """
        return self.state / "clusters" / self.name

    @property
    def lab(self) -> Path:
        """Our directory."""
        return self.state / "labs" / self.name

    @property
    def network(self) -> str:
        """The network namespace of a lab of real nodes; those of its nodes begin with it.

        Labs of the same name in other directories have others.
        """
        return f"kubeops-{self.name}-{hashlib.sha256(str(self.state).encode()).hexdigest()[:6]}"

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig for users."""
        return self.lab / "kubeconfig"

    @property
    def facts(self) -> Path:
        """The file that is written once the cluster is complete."""
        return self.lab / "lab.json"


def command_line(pid: int) -> list[str]:
    """The command line of a running process; empty if it is gone or a zombie."""
    try:
        return (
            Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
        )
    except OSError:
        return []


def kubeconfig_option(place: Place) -> str:
    """The argument that identifies the kwokctl of one cluster."""
    return f"--kubeconfig={place.kubeconfig}"


def home_option(place: Place) -> str:
    """The argument that identifies the agent and the real nodes of one cluster."""
    return f"--home={place.cluster}"


def processes(place: Place) -> dict[int, str]:
    """The cluster's processes by component: those started from its directory, its agent, and a
    kwokctl that a killed run left running. Those of pods are named `pods/<namespace>_<pod>/...`,
    what keeps a real node `nodes/<node>`.

    Pid files are not used, because after a reboot their numbers belong to other processes.
    """
    mine = f"{place.cluster}/"
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        words = command_line(int(entry.name))
        if words and words[0].startswith(mine):
            found[int(entry.name)] = words[0].removeprefix(mine).removeprefix("bin/")
        elif f"{mine}lab-node" in words:
            found[int(entry.name)] = f"{NODES}{words[-2]}"
        elif home_option(place) in words:
            found[int(entry.name)] = "agent"
        elif kubeconfig_option(place) in words:
            found[int(entry.name)] = "kwokctl"
    return found


def components(place: Place) -> set[str]:
    """The running components of the cluster itself."""
    return {name for name in processes(place).values() if not name.startswith((PODS, NODES))}


def kill(place: Place, pid: int) -> None:
    """Kills one process of the cluster."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise LabError(f"the lab {place.name} belongs to another user: {error}") from error


def end(place: Place) -> None:
    """Kills the cluster's processes and deletes its directory; its data goes too,
    so no clean shutdown is needed.
    """
    until = time.monotonic() + 10
    while left := processes(place):
        if time.monotonic() > until:
            raise LabError(f"processes of the lab {place.name} do not end: {left}")
        for pid in left:
            kill(place, pid)
        time.sleep(0.05)
    lab_network.delete(place.network)
    shutil.rmtree(place.cluster, ignore_errors=True)
    place.facts.unlink(missing_ok=True)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Holds a lock; it is released with the process.

    Its directory may be everybody's: a link that somebody else has put there is not followed,
    and no file is emptied.
    """
    path.parent.mkdir(0o700, parents=True, exist_ok=True)
    try:
        lock = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise LabError(f"{path} cannot be used as a lock ({error.strerror}): delete it") from error
    try:
        if os.fstat(lock).st_uid != os.getuid():
            raise LabError(
                f"{path} cannot be used as a lock, because it belongs to another user: delete it"
            )
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def ports() -> Path:
    """The lock of whoever looks for free ports: one for all labs of a user."""
    return Path(tempfile.gettempdir()) / f"kubeops-lab-{os.getuid()}.lock"
