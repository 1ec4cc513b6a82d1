# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Objects of which parts are not what the API says: they are read without these, and their pods stay where they are."""

from __future__ import annotations

import copy
import itertools
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    index_keys,
    objects,
    run_listing,
    sharing,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import preflight
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator import hostile
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    budget,
    claim,
    deployment,
    mounts,
    node,
    pod,
    snapshot,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import NOW, WEB, planned

WRONG: tuple[t.Any, ...] = (5, None, "x", [None], {"x": 1}, [{"x": [None]}])
TREES = {**hostile.KUBELETS, **hostile.TENANTS}
READ = [(name, kind.kind) for name, kind in run_listing.KINDS.items() if kind.kind in TREES]


@pytest.mark.parametrize(("name", "kind"), READ)
def test_no_part_of_an_object_keeps_the_others_from_being_read(name: str, kind: str) -> None:
    tree, share, left_out = TREES[kind], sharing.Interner(), set[str]()
    for number, path in enumerate(itertools.islice(hostile.parts(tree), 0, None, 3)):
        value = WRONG[number % len(WRONG)]
        raw = hostile.overlay(hostile.usual(tree), tree, {path: value})
        meta = raw["metadata"] if isinstance(raw["metadata"], dict) else {}
        raw["metadata"] = {**meta, "namespace": "shop", "name": "x", "uid": "u"}
        found = index_keys.parser(name, share)(raw)
        if isinstance(found, objects.Object):
            left_out.add(found.unreadable)
            found = {"metadata": {"name": found.name}}
        left_out.add((found or {}).get("unreadable", ""))
        assert found is None or found["metadata"]["name"] == "x"
    assert len(left_out) > 1 or name in ("slices", "virtual_machines")


def test_what_can_be_read_of_an_object_is_kept() -> None:
    raw = pod("web-0", "n1", WEB)
    raw["spec"]["tolerations"] = [5]
    raw["status"]["conditions"] = "x"
    found = index_keys.PARSERS["pods"](raw)
    assert found.unreadable == "spec.tolerations, status.conditions"
    assert (found.node, found.owner.name, found.tolerations, found.ready) == ("n1", "web", (), False)


SCALER: Raw = {
    "metadata": {"namespace": "shop", "name": "web"},
    "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": 2, "maxReplicas": 5},
}


def cluster() -> dict[str, list[Raw]]:
    """Deployment `web` on n1 and n2 with all that decides how its pods leave, and a lonely Deployment elsewhere."""
    other = copy.deepcopy(deployment("other", 2))
    for raw in (*other["deployments"], *other["replica_sets"]):
        raw["metadata"]["namespace"] = "elsewhere"
    pods = [pod(f"web-{n}", f"n{n}", WEB, volumes=mounts("data")) for n in (1, 2)]
    pods += [pod(f"other-{n}", f"n{n}", [{**WEB[0], "name": "other", "uid": "uid-ReplicaSet-other"}]) for n in (1, 2)]
    for raw in pods[2:]:
        raw["metadata"]["namespace"] = "elsewhere"
    found = {**deployment("web", 2), "pods": pods, "budgets": [budget("web", 1)], "autoscalers": [SCALER]}
    found["claims"] = [claim("data", "")]
    for kind in ("deployments", "replica_sets"):
        found[kind] = [*found[kind], *other[kind]]
    return copy.deepcopy(found)


@pytest.mark.parametrize(
    ("kind", "place", "part"),
    [
        ("pods", "spec", "volumes"),
        ("deployments", "spec", "template"),
        ("budgets", "spec", "selector"),
        ("budgets", "status", "disruptionsAllowed"),
        ("autoscalers", "spec", "minReplicas"),
        ("claims", "spec", "accessModes"),
    ],
)
def test_a_pod_stays_while_what_decides_how_it_leaves_cannot_be_read(kind: str, place: str, part: str) -> None:
    found = cluster()
    assert {plan.code for plan in planned(snapshot(found))} == {"replicas", "guarded"}
    found[kind][0][place][part] = [[5]]
    by_name = {plan.pod.name: plan for plan in planned(snapshot(found))}
    assert (by_name["web-1"].route, by_name["web-1"].code) == ("refuse", "unreadable")
    assert f"{place}.{part} of " in by_name["web-1"].reason
    assert by_name["other-1"].code == "guarded"


def test_a_node_that_cannot_be_read_is_a_blocker_of_its_own() -> None:
    broken = node("n1")
    broken["spec"]["taints"] = "x"
    seen = snapshot(nodes=[broken, node("n2"), node("n3")])
    for asked, blockers in (("n1", [("unreadable", ("n1",))]), ("n2", [])):
        found = preflight.findings(seen, (), preflight.DraftOptions((asked,), now=NOW), ((asked,),))
        assert [(one.code, one.nodes) for one in found if one.severity == "blocker"] == blockers
