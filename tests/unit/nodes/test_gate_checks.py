# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names as names_module
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.node_taints import DesiredTaint
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.objects import Ref
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes import cordon
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.nodes.gate_checks import (
    GATES,
    PROBLEMS,
    Expected,
    gates,
    state_before,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.state.node_records import Awaited, Record
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    TOLERATES_ALL,
    Raw,
    node,
    owned,
    pod,
    snapshot,
)

OURS: Raw = {"key": names_module.TAINT_KEY, "value": "r1", "effect": "NoSchedule"}
CORDON: Raw = {"key": names_module.UNSCHEDULABLE_TAINT, "effect": "NoSchedule"}
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
            True,
            id="no network yet: such a taint goes away",
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


STARTUP: t.Sequence[Raw] = (
    # node-readiness-controller v0.4.1, examples/cni-readiness; Cilium, Documentation/installation/taints.rst;
    # k8s.io/cloud-provider api/well_known_taints.go; Karpenter pkg/apis/v1/taints.go; Cluster API
    # api/core/v1beta2/common_types.go; cluster-autoscaler/utils/taints/taints.go.
    {"key": "readiness.k8s.io/NetworkReady", "value": "pending", "effect": "NoSchedule"},
    {"key": "node.cilium.io/agent-not-ready", "value": "true", "effect": "NoExecute"},
    {"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"},
    {"key": "karpenter.sh/unregistered", "effect": "NoExecute"},
    {"key": "node.cluster.x-k8s.io/uninitialized", "effect": "NoSchedule"},
    {"key": "ToBeDeletedByClusterAutoscaler", "value": "1795000000", "effect": "NoSchedule"},
)
PREFERRED: Raw = {"key": "DeletionCandidateOfClusterAutoscaler", "value": "1", "effect": "PreferNoSchedule"}


def cordoned(**changes: t.Any) -> Record:
    """What a record says of a node that was like this before it was cordoned."""
    before = snapshot(nodes=[node("n1", **changes)]).nodes["n1"]
    return cordon.take_out(before, record(), taint=True)[0]


@pytest.mark.parametrize(("before", "missing"), [([], True), (["shop/other"], True), (["shop/agent"], False)])
def test_a_daemonset_that_was_lacking_before_is_not_asked_for(before: list[str], missing: bool) -> None:
    found = snapshot(daemon_sets=[daemon_set()])
    recorded = replace(cordoned(), prior={"daemonsets": before})
    failed = gates(found, found.nodes["n1"], recorded, ["daemonsets"])
    assert [finding.code for finding in failed] == (["daemonset_missing"] if missing else [])


def agents(*ready: str) -> t.Any:
    """Three DaemonSets that want one host port of n1; those that are not ready found it taken."""
    sets = [daemon_set(meta={"name": name, "namespace": "shop", "uid": f"uid-DaemonSet-{name}"}) for name in "abc"]
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    terms = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    pods = []
    for name in "abc":
        there = name in ready
        one = pod(f"{name}-x", "n1" if there else "", owner=owned("DaemonSet", name), ready=there)
        one["spec"]["affinity"] = affinity
        if not there:
            message = "0/3 nodes are available: 1 node(s) didn't have free ports for the requested pod ports."
            one["status"] = {"conditions": [{"type": "PodScheduled", "status": "False", "message": message}]}
            one["status"]["conditions"][0]["reason"] = "Unschedulable"
        pods.append(one)
    return snapshot(daemon_sets=sets, pods=pods)


@pytest.mark.parametrize(
    ("before", "ready", "missing"),
    [
        pytest.param(["shop/b", "shop/c"], "a", [], id="as before"),
        pytest.param(["shop/b", "shop/c"], "b", [], id="another one was faster"),
        pytest.param([], "a", ["shop/b", "shop/c"], id="all were ready before"),
        pytest.param(["shop/b"], "a", ["shop/c"], id="none has become ready since"),
        pytest.param(None, "a", [], id="what was before is not known"),
    ],
)
def test_of_daemonsets_with_one_host_port_no_more_are_waited_for_than_can_have_it(
    before: list[str] | None, ready: str, missing: list[str]
) -> None:
    found = agents(*ready)
    recorded = cordoned() if before is None else replace(cordoned(), prior={"daemonsets": before})
    failed = gates(found, found.nodes["n1"], recorded, ["daemonsets"])
    assert [finding.code for finding in failed] == ["daemonset_missing"] * len(missing)
    for name, finding in zip(missing, failed, strict=True):
        assert name in finding.message
        assert "didn't have free ports" in finding.message, "also of a pod without a node"


def test_what_is_down_until_its_node_is_back_is_named_with_what_keeps_that() -> None:
    found = snapshot(daemon_sets=[daemon_set()])
    db = Ref("StatefulSet", "db", "shop")
    (waits,) = gates(found, found.nodes["n1"], replace(cordoned(), awaits=(Awaited(db, 1, True),)), ["daemonsets"])
    assert "StatefulSet shop/db" in waits.message
    assert "daemonsets" in waits.remedy


@pytest.mark.parametrize("taint", STARTUP, ids=lambda taint: str(taint["key"]))
@pytest.mark.parametrize("known", [True, False], ids=["recorded", "no record"])
def test_a_startup_taint_keeps_the_node_out_and_excuses_no_daemonset(taint: Raw, known: bool) -> None:
    found = snapshot(nodes=[node("n1", taints=[CORDON, OURS, taint])], daemon_sets=[daemon_set()])
    failed = gates(found, found.nodes["n1"], cordoned() if known else None, ["ready", "schedulable", "daemonsets"])
    assert [finding.code for finding in failed] == ["tainted", "daemonset_missing"]
    assert taint["key"] in failed[0].message
    assert "sets and removes it" in failed[0].message, "its owner is named"
    assert failed[0].remedy


@pytest.mark.parametrize(
    ("before", "now", "desired", "names"),
    [
        pytest.param([], [PREFERRED], [], [], id="pods may still come"),
        pytest.param([GPU], [GPU], [], [], id="it was there before"),
        pytest.param([STARTUP[0]], [STARTUP[0]], [], [], id="so was this one"),
        pytest.param([], [GPU], [], ["gpu:NoSchedule"], id="a person's"),
        pytest.param([{**GPU, "value": "a"}], [{**GPU, "value": "b"}], [], [], id="another value"),
        pytest.param([GPU], [{**GPU, "effect": "NoExecute"}], [], ["gpu:NoExecute"], id="another effect"),
        pytest.param([], [GPU], [DesiredTaint("gpu", "", "NoSchedule")], [], id="asked for"),
        pytest.param([], [GPU], [DesiredTaint("gpu", absent=True)], [], id="about to be removed"),
        pytest.param([], [GPU, STARTUP[1]], [], ["gpu:NoSchedule", "node.cilium.io/agent-not-ready"], id="each"),
    ],
)
def test_only_taints_that_are_new_and_not_asked_for_count(
    before: list[Raw], now: list[Raw], desired: list[DesiredTaint], names: list[str]
) -> None:
    found = snapshot(nodes=[node("n1", taints=[*now, OURS])])
    expected = Expected(tuple(desired))
    failed = gates(found, found.nodes["n1"], cordoned(taints=before), ["schedulable"], expected=expected)
    assert len(failed) == len(names)
    assert all(name in finding.message for name, finding in zip(names, failed, strict=True))


def test_a_persons_taint_is_told_with_the_ways_out() -> None:
    found = snapshot(nodes=[node("n1", taints=[{**GPU, "value": "a"}])])
    (failed,) = gates(found, found.nodes["n1"], cordoned(), ["schedulable"])
    assert "its owner is unknown" in failed.message
    assert "kubectl taint node n1 gpu:NoSchedule-" in failed.remedy
    assert "maintain_taints" in failed.remedy
    assert "gpu=a:NoSchedule" in failed.remedy


def test_a_record_of_before_says_nothing_of_a_persons_taint() -> None:
    found = snapshot(nodes=[node("n1", taints=[GPU])])
    assert not gates(found, found.nodes["n1"], record(), ["schedulable"])


def test_a_record_keeps_what_the_gates_compare_with() -> None:
    changes: Raw = {"taints": [OURS, CORDON, PREFERRED, GPU], "conditions": {"KernelDeadlock": "True"}}
    found = snapshot(nodes=[node("n1", **changes)]).nodes["n1"]
    assert state_before(found) == {"taints": ["gpu:NoSchedule"], "conditions": ["KernelDeadlock"]}
    prior = cordoned(**changes).prior
    assert {key: prior[key] for key in ("taints", "conditions")} == state_before(found)


WANTED = {"example.com/NetworkReady": "True"}


@pytest.mark.parametrize(
    ("before", "now", "wanted", "count"),
    [
        pytest.param({}, {}, {}, 0, id="healthy"),
        pytest.param({}, {"KernelDeadlock": "True"}, {}, 1, id="worse"),
        pytest.param({"KernelDeadlock": "True"}, {"KernelDeadlock": "True"}, {}, 0, id="as bad as before"),
        pytest.param({"KernelDeadlock": "True"}, {"ReadonlyFilesystem": "True"}, {}, 1, id="another one"),
        pytest.param({}, {"KernelDeadlock": "Unknown"}, {}, 0, id="not known"),
        pytest.param({}, {"example.com/Odd": "True"}, {}, 0, id="nobody knows what it means"),
        pytest.param({}, {}, WANTED, 1, id="wanted and not reported"),
        pytest.param({}, {"example.com/NetworkReady": "False"}, WANTED, 1, id="wanted and False"),
        pytest.param({}, {"example.com/NetworkReady": "True"}, WANTED, 0, id="as wanted"),
        pytest.param({"KernelDeadlock": "True"}, {"KernelDeadlock": "True"}, {"KernelDeadlock": "False"}, 1, id="both"),
        pytest.param({}, {"KernelDeadlock": "True"}, {"KernelDeadlock": "True"}, 0, id="wanted bad"),
    ],
)
def test_conditions_are_as_healthy_as_before(before: Raw, now: Raw, wanted: t.Mapping[str, str], count: int) -> None:
    found = snapshot(nodes=[node("n1", conditions=now)])
    failed = gates(
        found, found.nodes["n1"], cordoned(conditions=before), ["conditions"], expected=Expected(conditions=wanted)
    )
    assert [finding.code for finding in failed] == ["unhealthy"] * count


@pytest.mark.parametrize("kind", PROBLEMS)
def test_a_bad_condition_is_told_by_one_gate(kind: str) -> None:
    found = snapshot(nodes=[node("n1", conditions={kind: "True"})])
    failed = gates(found, found.nodes["n1"], cordoned(), ["pressure", "conditions"])
    assert len(failed) == 1
    assert kind in failed[0].message
