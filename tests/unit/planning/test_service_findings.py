# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Pods that stay and serve from their nodes, which nobody sees go dark while these reboot."""

from __future__ import annotations

import typing as t
from dataclasses import replace

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages.reasons import Finding
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import service_findings
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import pod_rules
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import Raw, node, owned, pod, snapshot
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import planned

AGENT = owned("DaemonSet", "agent")
SET: Raw = {"metadata": {"name": "agent", "namespace": "shop", "uid": AGENT[0]["uid"]}, "spec": {}, "status": {}}
OURS = {"key": names.TAINT_KEY, "operator": "Exists"}
CORDON = {"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}


def endpoints(service: str, *pods: str, ready: bool = True, headless: bool = False) -> Raw:
    labels = {"kubernetes.io/service-name": service} | ({"service.kubernetes.io/headless": ""} if headless else {})
    listed = [{"targetRef": {"uid": f"uid-{name}"}, "conditions": {"ready": ready}} for name in pods]
    return {"metadata": {"namespace": "shop", "name": f"{service}-1", "labels": labels}, "endpoints": listed}


def cluster(*slices: Raw, tolerations: t.Sequence[Raw] = (CORDON,), **changes: t.Any) -> Snapshot:
    agents = [pod(f"agent-{on}", on, AGENT, tolerations=list(tolerations), **changes) for on in ("n1", "n2", "n3")]
    return snapshot(pods=agents, daemon_sets=[SET], slices=list(slices), nodes=[node(n) for n in ("n1", "n2", "n3")])


def found(seen: Snapshot, *nodes: str, **choices: t.Any) -> list[Finding]:
    return service_findings.findings(seen, planned(seen, nodes or ("n1", "n2"), **choices))


def test_a_daemon_set_that_serves_from_its_nodes_is_named_once_with_what_would_help() -> None:
    (finding,) = found(cluster(endpoints("agent", "agent-n1", "agent-n2"), endpoints("other", "agent-n2")))
    assert (finding.code, finding.severity, finding.object) == ("serves_from_node", "warning", "DaemonSet shop/agent")
    assert finding.nodes == ("n1", "n2")
    assert "Service shop/agent, Service shop/other" in finding.message
    assert finding.objects == ("DaemonSet shop/agent", "Service shop/agent", "Service shop/other")
    _head, _colon, rule = finding.remedy.removesuffix(".").partition("maintain_rules: ")
    assert rule == "[{owners: [DaemonSet/agent], namespaces: [shop], last: true}]"


def test_the_rule_that_is_proposed_cures_it() -> None:
    raw = [{"owners": ["DaemonSet/agent"], "namespaces": ["shop"], "last": True}]
    rules, wrong = pod_rules.read(raw)
    assert wrong == []
    seen = cluster(endpoints("agent", "agent-n1"))
    assert [plan.route for plan in planned(seen, ("n1",), rules=rules)] == ["evict"]
    assert found(seen, "n1", rules=rules) == []


@pytest.mark.parametrize(
    ("slices", "changes"),
    [
        ([], {}),
        ([endpoints("agent", "agent-n3")], {}),
        ([endpoints("agent", "agent-n1", ready=False)], {}),
        ([endpoints("agent", "agent-n1", headless=True)], {}),
        ([endpoints("agent", "agent-n1")], {"ready": False}),
    ],
    ids=["no Service", "of another node", "no ready endpoint", "headless", "not ready"],
)
def test_what_serves_nobody_from_the_node_is_not_named(slices: list[Raw], changes: Raw) -> None:
    assert found(cluster(*slices, **changes)) == []


def test_of_a_node_that_is_out_already_it_was_told() -> None:
    seen = cluster(endpoints("agent", "agent-n1", "agent-n2"))
    out = replace(seen, nodes={**seen.nodes, "n1": replace(seen.nodes["n1"], annotations={names.RECORD: "{}"})})
    (finding,) = found(out)
    assert finding.nodes == ("n2",)


@pytest.mark.parametrize("tolerates", [False, True])
def test_no_rule_is_proposed_for_what_would_come_straight_back(tolerates: bool) -> None:
    seen = cluster(endpoints("agent", "agent-n1"), tolerations=[CORDON, *([OURS] if tolerates else [])])
    (finding,) = found(seen, "n1")
    assert ("maintain_rules" in finding.remedy) is not tolerates


def test_a_static_pod_is_named_itself() -> None:
    static = pod("proxy-n1", "n1", annotations={names.MIRROR: "x"})
    (finding,) = found(snapshot(pods=[static], slices=[endpoints("proxy", "proxy-n1")]), "n1")
    assert finding.object == "Pod shop/proxy-n1"
