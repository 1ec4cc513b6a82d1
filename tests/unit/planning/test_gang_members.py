# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Services that have one pod of several for themselves, as those of single brokers."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import preflight, service_findings
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    budget,
    deployment,
    owned,
    pod,
    snapshot,
    workload,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import planned

DB = owned("StatefulSet", "db")


def piece(service: str, *names: str, headless: bool = False) -> Raw:
    labels = {"kubernetes.io/service-name": service, **({"service.kubernetes.io/headless": ""} if headless else {})}
    endpoints = [{"targetRef": {"kind": "Pod", "uid": f"uid-{name}"}, "conditions": {"ready": True}} for name in names]
    return {
        "metadata": {"name": service, "namespace": "shop", "uid": service, "labels": labels},
        "endpoints": endpoints,
    }


def told(*slices: Raw, kind: str = "StatefulSet", replicas: int = 3, **choices: t.Any) -> list[t.Any]:
    owner = owned(kind, "db")
    pods = [pod(f"db-{n}", f"n{n + 1}", owner) for n in range(replicas)]
    tops = {"StatefulSet": "stateful_sets", "ReplicaSet": "replica_sets"}
    seen = snapshot({tops[kind]: [workload(kind, "db", replicas)]}, pods=pods, slices=list(slices))
    return service_findings.member_findings(seen, planned(seen, ("n1",), **choices))


def test_a_service_of_one_member_is_named() -> None:
    (found,) = told(piece("db", "db-0", "db-1", "db-2"), piece("db-announce-0", "db-0"))
    assert (found.code, found.severity, found.object) == ("member_services", "warning", "StatefulSet shop/db")
    assert "shop/db-announce-0" in found.message
    assert found.nodes == ("n1",)
    assert found.objects == ("StatefulSet shop/db", "Service shop/db-announce-0")


@pytest.mark.parametrize("method", ["evict", "replace"])
def test_a_service_of_the_leader_alone_is_named(method: t.Any) -> None:
    """Another pod has its label, and serves there, only once it leads."""
    pods = [pod(f"web-{n}", f"n{n + 1}", owned("ReplicaSet", "web")) for n in range(3)]
    slices = [piece("web", "web-0", "web-1", "web-2"), piece("leader", "web-0")]
    for replicas, services in ((3, ["Service shop/leader"]), (1, [])):
        some = {"pods": pods[:replicas], "slices": slices if services else slices[1:]}
        seen = snapshot(deployment("web", replicas), **some)
        found = service_findings.member_findings(seen, planned(seen, ("n1",), method=method, allow_interruption=True))
        assert [name for one in found for name in one.objects[1:]] == services


@pytest.mark.parametrize("keeps", [False, True])
def test_a_service_of_one_member_that_an_operator_makes_is_named(keeps: bool) -> None:
    pods = [pod(f"db-{n}", f"n{n + 1}", owned("StrimziPodSet", "db", "core.strimzi.io/v1beta2")) for n in range(3)]
    held = [budget("db", 0, rule={"maxUnavailable": 0}, desired=3)] if keeps else []
    slices = [piece("db", "db-0", "db-1", "db-2"), piece("db-0", "db-0")]
    seen = snapshot(pods=pods, budgets=held, slices=slices)
    (found,) = service_findings.member_findings(seen, planned(seen, ("n1",), reactive_budgets=("app=web",)))
    assert (found.code, found.objects) == ("member_services", ("StrimziPodSet shop/db", "Service shop/db-0"))


@pytest.mark.parametrize(
    ("slices", "more"),
    [
        pytest.param([piece("db", "db-0", "db-1")], {}, id="others are behind it"),
        pytest.param([piece("db-0", "db-0", headless=True)], {}, id="headless"),
        pytest.param([piece("db-1", "db-1")], {}, id="of a pod that stays"),
        pytest.param([piece("db", "db-0")], {"replicas": 1, "allow_interruption": True}, id="a single one, allowed"),
    ],
)
def test_other_services_are_not(slices: list[Raw], more: dict[str, t.Any]) -> None:
    assert told(*slices, **more) == []


@pytest.mark.parametrize(
    ("waves", "slices", "dark"),
    [
        pytest.param(
            [("n1",)], [piece("db", "db-0"), piece("peers", "db-0", headless=True)], ["db", "peers"], id="both"
        ),
        pytest.param([("n1",)], [piece("db", "db-0", "other")], [], id="another pod is behind it"),
        pytest.param([("n1",), ("n2",)], [piece("all", "db-0", "log-0")], [], id="in waves of their own"),
        pytest.param([("n1", "n2")], [piece("all", "db-0", "log-0")], ["all"], id="in one wave"),
        pytest.param([], [piece("db", "db-0")], [], id="no wave"),
    ],
)
def test_what_goes_down_by_consent_names_its_services(
    waves: list[tuple[str, ...]], slices: list[Raw], dark: list[str]
) -> None:
    names = {"db": "n1", "log": "n2"}
    pods = [pod(f"{name}-0", node, owned("StatefulSet", name)) for name, node in names.items()]
    sets = {"stateful_sets": [workload("StatefulSet", name, 1) for name in names]}
    seen = snapshot(sets, pods=pods, slices=slices)
    choices = DrainPolicy(allow_interruption=True)
    plans = planned(seen, ("n1", "n2"), allow_interruption=True)
    found = preflight.findings(seen, plans, preflight.DraftOptions(("n1", "n2"), choices), tuple(waves))
    (about,) = (one for one in found if one.code == "interruption_allowed" and one.object == "StatefulSet shop/db")
    assert about.objects == (("StatefulSet shop/db", *(f"Service shop/{name}" for name in dark)) if dark else ())
