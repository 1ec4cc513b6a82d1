# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model.node_records import Record
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.nodes.verify import GATES, gates
from ansible_collections.kubeops.node_maintenance.tests.unit.plan.objects import (
    TOLERATES_ALL,
    Raw,
    node,
    owned,
    pod,
    snapshot,
)

OURS: Raw = {"key": names.TAINT_KEY, "value": "r1", "effect": "NoSchedule"}
CORDON: Raw = {"key": names.UNSCHEDULABLE_TAINT, "effect": "NoSchedule"}
GPU: Raw = {"key": "gpu", "effect": "NoSchedule"}


def record(boot: str = "before") -> Record:
    return Record("r1", "n", "ann", "", "", "returning", "uid-n1", "", {"bootID": boot})


@pytest.mark.parametrize(
    ("changes", "wanted", "codes"),
    [
        pytest.param({}, GATES, [], id="all passed"),
        pytest.param({"conditions": {"Ready": "False"}}, GATES, ["not_ready"], id="not ready"),
        pytest.param({"conditions": {"Ready": "Unknown"}}, ["ready"], ["not_ready"], id="not heard of"),
        pytest.param({"conditions": {"Ready": "False"}}, ["rebooted"], [], id="not asked"),
        pytest.param({"boot": "before"}, GATES, ["not_rebooted"], id="the old bootID"),
        pytest.param({"boot": "before"}, ["ready"], [], id="no reboot asked for"),
        pytest.param({"conditions": {"DiskPressure": "True"}}, GATES, ["pressure"], id="disk pressure"),
        pytest.param({"conditions": {"DiskPressure": "False"}}, GATES, [], id="no disk pressure"),
        pytest.param(
            {"conditions": {"NetworkUnavailable": "True", "MemoryPressure": "True"}},
            GATES,
            ["pressure", "pressure"],
            id="every pressure is named",
        ),
        pytest.param(
            {"conditions": {"Ready": "False", "PIDPressure": "True"}, "boot": "before"},
            GATES,
            ["not_ready", "not_rebooted", "pressure"],
            id="everything at once",
        ),
    ],
)
def test_gates_of_the_node_itself(changes: Raw, wanted: t.Sequence[str], codes: list[str]) -> None:
    found = snapshot(nodes=[node("n1", **changes)])
    failed = gates(found, found.nodes["n1"], record(), wanted)
    assert [finding.code for finding in failed] == codes
    assert all("n1" in finding.message and finding.remedy for finding in failed)


def test_without_a_record_nobody_knows_whether_it_was_rebooted() -> None:
    found = snapshot()
    assert [f.code for f in gates(found, found.nodes["n1"], None, ["rebooted"])] == ["not_rebooted"]


@pytest.mark.parametrize(("left", "codes"), [(3.0, ["unstable"]), (0.0, []), (-1.0, [])])
def test_stable(left: float, codes: list[str]) -> None:
    found = snapshot()
    failed = gates(found, found.nodes["n1"], record(), GATES, missing_seconds=left)
    assert [finding.code for finding in failed] == codes


def daemon_set(**spec: t.Any) -> Raw:
    return {
        "metadata": {"name": "agent", "namespace": "shop", "uid": "uid-DaemonSet-agent", **spec.pop("meta", {})},
        "spec": {"template": {"spec": spec}},
    }


AGENT = owned("DaemonSet", "agent")


@pytest.mark.parametrize(
    ("agent", "pods", "taints", "missing"),
    [
        pytest.param(daemon_set(), [pod("a", owner=AGENT)], [], False, id="there"),
        pytest.param(daemon_set(), [], [], True, id="not there"),
        pytest.param(daemon_set(), [pod("a", "n2", AGENT)], [], True, id="on another node"),
        pytest.param(daemon_set(), [pod("a", owner=AGENT, ready=False)], [], True, id="not ready"),
        pytest.param(daemon_set(), [pod("a", owner=AGENT, deleting="2026-01-01T00:00:00Z")], [], True, id="ending"),
        pytest.param(daemon_set(), [pod("a", owner=owned("DaemonSet", "other"))], [], True, id="another one's"),
        pytest.param(daemon_set(), [], [CORDON], True, id="a cordon keeps no DaemonSet away"),
        pytest.param(daemon_set(), [], [OURS], True, id="our taint is looked through"),
        pytest.param(daemon_set(), [], [GPU], False, id="kept away by a taint"),
        pytest.param(daemon_set(tolerations=[TOLERATES_ALL]), [], [GPU], True, id="tolerates the taint"),
        pytest.param(
            daemon_set(), [], [{"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"}], True, id="not-ready"
        ),
        pytest.param(
            daemon_set(),
            [],
            [{"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}],
            False,
            id="no network yet",
        ),
        pytest.param(
            daemon_set(hostNetwork=True),
            [],
            [{"key": "node.kubernetes.io/network-unavailable", "effect": "NoSchedule"}],
            True,
            id="no network yet, needs none",
        ),
        pytest.param(daemon_set(nodeSelector={"disk": "ssd"}), [], [], False, id="not selected"),
        pytest.param(daemon_set(nodeSelector={"kubernetes.io/hostname": "n1"}), [], [], True, id="selected"),
        pytest.param(daemon_set(meta={"deletionTimestamp": "2026-01-01T00:00:00Z"}), [], [], False, id="deleted"),
    ],
)
def test_daemon_sets(agent: Raw, pods: list[Raw], taints: list[Raw], missing: bool) -> None:
    found = snapshot(nodes=[node("n1", taints=taints), node("n2")], pods=pods, daemon_sets=[agent])
    failed = gates(found, found.nodes["n1"], record(), ["daemonsets"])
    assert [finding.code for finding in failed] == (["daemonset_missing"] if missing else [])
