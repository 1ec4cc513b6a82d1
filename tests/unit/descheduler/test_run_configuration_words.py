# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Where the last words of a descheduler that does not start are looked for."""

from __future__ import annotations

import collections

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.run_context import Context
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.descheduler import (
    installation,
    rollout,
    run_proofs,
    run_targets,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import manifests
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.faults import Fault
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.programs import Program
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.world import World


class Speaking(Program):
    """Each log that is read is the next of these."""

    def __init__(self, *logs: str) -> None:
        self.logs = collections.deque(logs)

    def log(self, pod: Raw) -> str:
        del pod
        return self.logs.popleft()


def dead(pod: str, words: str = "", *, previous: bool = False) -> rollout.TerminatedContainer:
    return rollout.TerminatedContainer(pod, "c", 1, looping=True, words=words, previous=previous)


def pod(name: str) -> Raw:
    meta = {"name": name, "namespace": manifests.SHOP}
    spec = {**manifests.template(name)["spec"], "nodeName": "n1"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


@pytest.mark.parametrize(
    ("found", "logs", "words", "asked"),
    [
        pytest.param([], [], "", [], id="nobody died"),
        pytest.param([dead("a"), dead("b", "Error: bad flag")], [], "bad flag", [], id="a message needs no log"),
        pytest.param([dead("a")], ["panic: oh\n"], "panic: oh", ["a"], id="its log"),
        pytest.param([dead("a", previous=True)], ["panic: oh\n"], "panic: oh", ["a previous"], id="that of before"),
        pytest.param([dead("a")], ["", "panic: oh\n"], "panic: oh", ["a", "a previous"], id="else the other one"),
        pytest.param(
            [dead("a"), dead("b")], ["", "", "panic: oh\n"], "panic: oh", ["a", "a previous", "b"], id="else another's"
        ),
        pytest.param([dead("a", previous=True)], ["", ""], "", ["a previous", "a"], id="no words at all"),
    ],
)
def test_the_last_words_are_a_message_or_the_end_of_a_log(
    found: list[rollout.TerminatedContainer], logs: list[str], words: str, asked: list[str]
) -> None:
    assert last_words(found, logs) == (words, asked)


def test_a_log_that_cannot_be_read_hides_no_other() -> None:
    assert last_words([dead("a")], ["panic: oh\n"], fails=1) == ("panic: oh", ["a", "a previous"])


def last_words(found: list[rollout.TerminatedContainer], logs: list[str], fails: int = 0) -> tuple[str, list[str]]:
    """The words, and whose log was asked for."""
    place = installation.Location(manifests.SHOP, "descheduler", "map", "key")
    with World([manifests.node("n1"), pod("a"), pod("b")]) as world:
        world.server.program = Speaking(*logs)
        me = world.process("me")
        me.faults.when(lambda request: request.path.endswith("/log"), Fault("error"), times=fails)

        def loop(ctx: Context) -> str:
            return run_proofs.last_words(run_targets.DeschedulerTarget(ctx, "sigs", place, {}, None, None), found)

        words = me.run(loop)
        reads = [(sent.request.name, dict(sent.request.query)) for sent in world.log]
        assert all(query["tailLines"] == "30" and query["container"] == "c" for _name, query in reads)
        return words, [f"{name} previous" if "previous" in query else name for name, query in reads]
