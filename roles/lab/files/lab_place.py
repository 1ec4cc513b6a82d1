# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Where one cluster of the lab is on the disk and among the processes, and how it ends."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

STAGES = {"Node": "stages/nodes.yaml", "Pod": "stages/pods.yaml"}
CONFIGURATION = (
    "config.yaml",
    "audit-policy.yaml",
    "metrics/metrics-server.yaml",
    "koord-scheduler.yaml",
    *STAGES.values(),
)
PODS = "pods/"


class LabError(Exception):
    """What the user has to read, with the remedy."""


@dataclass(frozen=True, slots=True)
class Place:
    """The folders of one cluster."""

    name: str
    state: Path

    @property
    def cluster(self) -> Path:
        """What kwokctl keeps: binaries, logs, data, pid files; and the pods that are real processes."""
        return self.state / "clusters" / self.name

    @property
    def lab(self) -> Path:
        """What we keep."""
        return self.state / "labs" / self.name

    @property
    def kubeconfig(self) -> Path:
        """What everybody gets in by."""
        return self.lab / "kubeconfig"

    @property
    def facts(self) -> Path:
        """Written when the cluster is complete."""
        return self.lab / "lab.json"

    def fingerprint(self) -> str:
        """The hash of the configuration, the versions and places of the binaries included."""
        digest = hashlib.sha256()
        for name in CONFIGURATION:
            digest.update(hashlib.sha256((self.lab / name).read_bytes()).digest())
        return digest.hexdigest()


def command_line(pid: int) -> list[str]:
    """The words of a running process; none when it is gone, or a zombie."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8", errors="replace").split("\0")
    except OSError:
        return []


def kubeconfig_option(place: Place) -> str:
    """The word by which the kwokctl of one cluster is known."""
    return f"--kubeconfig={place.kubeconfig}"


def home_option(place: Place) -> str:
    """The word by which the agent of one cluster is known."""
    return f"--home={place.cluster}"


def processes(place: Place) -> dict[int, str]:
    """The cluster's processes, by component: those started from its own folder, its agent, and a kwokctl
    that a killed run left at work. Those of pods are called `pods/<namespace>_<pod>/...`.

    Not from the pid files: after a restart of the machine their numbers belong to others.
    """
    mine = f"{place.cluster}/"
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        words = command_line(int(entry.name))
        if words and words[0].startswith(mine):
            found[int(entry.name)] = words[0].removeprefix(mine).removeprefix("bin/")
        elif home_option(place) in words:
            found[int(entry.name)] = "agent"
        elif kubeconfig_option(place) in words:
            found[int(entry.name)] = "kwokctl"
    return found


def components(place: Place) -> set[str]:
    """What runs of the cluster itself."""
    return {name for name in processes(place).values() if not name.startswith(PODS)}


def kill(place: Place, pid: int) -> None:
    """Ends one process of the cluster at once."""
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise LabError(f"the lab {place.name} belongs to another user: {error}") from error


def end(place: Place) -> None:
    """Ends the cluster's processes and removes its folder; its data go with it, so nobody is asked politely."""
    until = time.monotonic() + 10
    while left := processes(place):
        if time.monotonic() > until:
            raise LabError(f"processes of the lab {place.name} do not end: {left}")
        for pid in left:
            kill(place, pid)
        time.sleep(0.05)
    shutil.rmtree(place.cluster, ignore_errors=True)
    place.facts.unlink(missing_ok=True)


@contextmanager
def alone(path: Path) -> Iterator[None]:
    """Holds a lock; it ends with the process, however that ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
