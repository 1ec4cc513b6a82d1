# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A lab is started once each of its components serves; kwokctl itself waits for some of them only."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import lab_cluster
import lab_place
import pytest
from lab_place import LabError, Place
from lab_ports import free_port

OTHERS = sorted(lab_cluster.COMPONENTS)
RUNS = "import time; time.sleep(60)"
SERVES = """\
import socket, sys, time
time.sleep(float(sys.argv[2]))
server = socket.create_server(("127.0.0.1", int(sys.argv[1].partition("=")[2])))
time.sleep(60)
"""
ENDS = "raise SystemExit(1)"

Run = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place("probe", tmp_path)


@pytest.fixture
def run(place: Place) -> Iterator[Run]:
    """Starts a process that is a component by its name."""
    begun: list[subprocess.Popen[bytes]] = []

    def begin(name: str, code: str, *words: str) -> subprocess.Popen[bytes]:
        line = [str(place.cluster / "bin" / name), "-c", code, *words]
        process = subprocess.Popen(line, executable=sys.executable, stderr=subprocess.DEVNULL)
        begun.append(process)
        # A busy kernel shows the words of a new program a moment after it has begun.
        while process.poll() is None and not any(lab_place.command_line(process.pid)):
            time.sleep(0.01)
        return process

    yield begin
    for process in begun:
        process.kill()
        process.wait(10)


def test_one_that_serves_late_is_waited_for(place: Place, run: Run) -> None:
    for name in OTHERS:
        run(name, RUNS)
    words = f"--secure-port={free_port()}"
    run("metrics-server", SERVES, words, "0.5")
    assert not lab_cluster.serves([words])
    assert lab_cluster.ended(place, metrics=True, wait=60) == []
    assert lab_cluster.serves([words])


def test_one_that_ends_is_named(place: Place, run: Run) -> None:
    for name in OTHERS:
        run(name, RUNS)
    run("metrics-server", ENDS).wait(60)
    assert lab_cluster.ended(place, metrics=True, wait=60) == ["metrics-server"]
    assert lab_cluster.ended(place, metrics=False, wait=60) == []


def test_one_that_never_serves_is_named_after_the_wait(place: Place, run: Run) -> None:
    for name in OTHERS:
        run(name, RUNS)
    run("metrics-server", RUNS, f"--secure-port={free_port()}")
    with pytest.raises(LabError, match="metrics-server of the lab probe did not serve within 1 s"):
        lab_cluster.ended(place, metrics=True, wait=1)


@pytest.mark.parametrize(("failures", "creations"), [(0, 1), (2, 3)])
def test_a_cluster_without_all_components_is_created_anew(
    place: Place, monkeypatch: pytest.MonkeyPatch, failures: int, creations: int
) -> None:
    created: list[str] = []
    monkeypatch.setattr(lab_cluster, "create", lambda place, binaries, wait: created.append(place.name))
    monkeypatch.setattr(
        lab_cluster, "ended", lambda place, metrics, wait: ["metrics-server"] if len(created) <= failures else []
    )
    lab_cluster.start(place, {}, metrics=True, wait=60)
    assert len(created) == creations


def test_it_is_not_created_for_ever(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab_cluster, "create", lambda place, binaries, wait: None)
    monkeypatch.setattr(lab_cluster, "ended", lambda place, metrics, wait: ["metrics-server"])
    with pytest.raises(LabError, match="metrics-server of the lab probe ended at each of 3 starts"):
        lab_cluster.start(place, {}, metrics=True, wait=60)
