# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A seed is a schedule; a point is run again by its text; a fault hits one request and no other."""

from __future__ import annotations

import itertools
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from chaos.faults import FAULTS, Fault, Point, parse, schedule
from chaos.proxy import PASS_ON, Asked, Proxy
from support.processes import alive

SCENES = [("node", "eviction", 100, 30), ("roll", "koordinator", 50, 10)]


def first(seed: int, count: int) -> list[Point]:
    return list(itertools.islice(schedule(seed, SCENES), count))


def test_the_same_seed_is_the_same_schedule() -> None:
    assert first(7, 200) == first(7, 200)
    assert first(7, 200) != first(8, 200)


def test_every_fault_comes_at_requests_and_writes_that_there_are() -> None:
    known = first(1, 600)
    assert {point.fault for point in known} == set(FAULTS)
    assert {(point.scene, point.backend) for point in known} == {(scene[0], scene[1]) for scene in SCENES}
    most = {("node", "r"): 100, ("node", "w"): 30, ("roll", "r"): 50, ("roll", "w"): 10}
    assert all(1 <= int(point.at[1:]) <= most[point.scene, point.at[0]] for point in known)
    assert all(point.at[0] == "w" for point in known if point.fault == "409"), "nobody conflicts with a read"


def test_a_point_is_known_again_by_its_text() -> None:
    assert all(parse(str(point)) == point for point in first(3, 100))
    assert parse("node/eviction/409/post-eviction-2").at == "post-eviction-2"


NO_POINTS = (
    "",
    "node/eviction/409",
    "node/eviction/409/patch-nodes-0",
    "node/eviction/410/w1",
    "node/eviction/409/x1",
    "a/b/409/w",
)


@pytest.mark.parametrize("text", NO_POINTS)
def test_what_is_no_point(text: str) -> None:
    with pytest.raises(ValueError, match="is no point"):
        parse(text)


class Sleeper:
    """A process of its own group with a child, as a run and its worker are."""

    def __init__(self) -> None:
        code = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"
        self.process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    made = Sleeper().process
    yield made
    made.kill()
    made.wait()


def fault(kind: str, proxy: Proxy, pid: int = 0, at: str = "w2", outage: float = 60.0) -> Fault:
    made = Fault(Point("node", "eviction", kind, at), proxy, outage, lambda: None)
    made.pid = pid
    return made


@pytest.fixture
def proxy(tmp_path: Path) -> Proxy:
    known = tmp_path / "kubeconfig"
    known.write_text(
        "{clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}], users: [{name: u, user: {}}], "
        "contexts: [{name: x, context: {cluster: c, user: u}}], current-context: x}",
        encoding="utf-8",
    )
    return Proxy(known)


ASKED = [Asked(1, 0, "GET", "/a"), Asked(2, 1, "PUT", "/b"), Asked(3, 2, "PUT", "/c"), Asked(4, 0, "GET", "/d")]


@pytest.mark.parametrize("kind", ["409", "429", "429-retry-after", "500", "403-once", "answer-lost"])
def test_a_fault_hits_one_request_alone(proxy: Proxy, kind: str) -> None:
    made = fault(kind, proxy)
    acts = [made.decide(asked) for asked in ASKED]
    assert made.hit == ASKED[2]
    assert [act is PASS_ON for act in acts] == [True, True, False, True]
    refused = acts[2].instead
    assert refused.status == int(kind[:3]) if refused else acts[2].lost


def test_a_fault_at_a_request_counts_reads_too(proxy: Proxy) -> None:
    made = fault("500", proxy, at="r4")
    assert [made.decide(asked) is PASS_ON for asked in ASKED] == [True, True, True, False]


def test_a_fault_at_a_request_of_a_kind(proxy: Proxy) -> None:
    made = fault("500", proxy, at="patch-nodes-2")
    node = "/api/v1/nodes/n1"
    asked = [Asked(8, 2, "PATCH", node, 1), Asked(9, 0, "GET", node, 2), Asked(10, 3, "PATCH", f"{node}?x=y", 2)]
    assert [made.decide(each) is PASS_ON for each in asked] == [True, True, False]


def test_an_outage_goes_on(proxy: Proxy) -> None:
    made = fault("503", proxy)
    acts = [made.decide(asked) for asked in ASKED[:3]]
    acts[2].before()
    acts.append(made.decide(ASKED[3]))
    assert [act.instead.status if act.instead else 0 for act in acts] == [0, 0, 503, 503]


def test_a_kill_before_reaches_every_process_and_no_server(proxy: Proxy, sleeper: subprocess.Popen[bytes]) -> None:
    act = fault("killed-before", proxy, sleeper.pid).decide(ASKED[2])
    assert not act.forward
    act.before()
    assert sleeper.wait(5) == -9


def test_a_kill_after_comes_when_the_server_has_answered(proxy: Proxy, sleeper: subprocess.Popen[bytes]) -> None:
    act = fault("killed-after", proxy, sleeper.pid).decide(ASKED[2])
    act.before()
    assert alive(sleeper.pid)
    assert act.forward
    act.after()
    assert sleeper.wait(5) == -9


def test_what_is_frozen_is_thawed_when_the_others_are_done(proxy: Proxy, sleeper: subprocess.Popen[bytes]) -> None:
    stopped: list[bool] = []

    def becomes(wanted: bool) -> bool:
        # A signal is delivered when its process gets a processor.
        for _moment in range(500):
            state = (Path("/proc") / str(sleeper.pid) / "stat").read_text().rpartition(")")[2].split()[0]
            if (state == "T") == wanted:
                return True
            time.sleep(0.01)
        return False

    made = Fault(Point("node", "eviction", "frozen", "w2"), proxy, 1.0, lambda: stopped.append(becomes(True)))
    made.pid = sleeper.pid
    made.decide(ASKED[2]).before()
    made.over()
    assert stopped == [True]
    assert becomes(False)


def test_what_the_others_met_is_told(proxy: Proxy, sleeper: subprocess.Popen[bytes]) -> None:
    def fail() -> None:
        raise AssertionError("recover failed")

    made = Fault(Point("node", "eviction", "frozen-and-recovered", "w2"), proxy, 1.0, fail)
    made.pid = sleeper.pid
    made.decide(ASKED[2]).before()
    with pytest.raises(AssertionError, match="recover failed"):
        made.over()
