# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""What a forecast remembers between two pods is what it would find if it looked again at everything."""

from __future__ import annotations

import typing as t

import hypothesis
import pytest
from hypothesis import strategies as st

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import objects, snapshots
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import filters, forecast, world
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy

Raw = dict[str, t.Any]
NODES = [f"n{number}" for number in range(5)]
HOST, ZONE = "kubernetes.io/hostname", "topology.kubernetes.io/zone"


def node(name: str, zone: str) -> objects.Node:
    status = {"allocatable": {"cpu": "1", "pods": "4"}, "conditions": [{"type": "Ready", "status": "True"}]}
    raw = {"metadata": {"name": name, "uid": name, "labels": {HOST: name, ZONE: zone}}, "spec": {}, "status": status}
    return objects.Node.of(raw)


def pod(name: str, app: str, on: str, **spec: t.Any) -> objects.Pod:
    containers = [{"name": "c", "resources": {"requests": {"cpu": "250m"}}}]
    meta = {"name": name, "uid": name, "namespace": "shop", "labels": {"app": app}}
    return objects.Pod.of({"metadata": meta, "spec": {"nodeName": on, "containers": containers, **spec}, "status": {}})


def apart(**selector: t.Any) -> Raw:
    term = {"topologyKey": HOST, "labelSelector": selector}
    return {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def evenly(**policies: str) -> Raw:
    rule = {"maxSkew": 1, "topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": "web"}}, **policies}
    return {"topologySpreadConstraints": [{"whenUnsatisfiable": "DoNotSchedule", **rule}]}


RULES: tuple[Raw, ...] = (
    {},
    {"nodeSelector": {ZONE: "a"}},
    {"tolerations": [{"operator": "Exists"}]},
    apart(matchLabels={"app": "web"}),
    apart(matchExpressions=[{"key": "app", "operator": "In", "values": ["db"]}]),
    evenly(),
    evenly(nodeTaintsPolicy="Honor"),
    {**evenly(nodeAffinityPolicy="Ignore"), "nodeSelector": {ZONE: "b"}},
)
DEEDS = st.lists(
    st.tuples(
        st.sampled_from(("take", "leave", "close", "reopen")),
        st.integers(0, 2 * len(RULES) - 1),
        st.sampled_from(NODES),
    ),
    max_size=25,
)


@hypothesis.given(DEEDS, st.lists(st.sampled_from(["web", "db"]), min_size=len(RULES), max_size=len(RULES)))
@hypothesis.settings(deadline=None, max_examples=60)
def test_an_answer_does_not_depend_on_what_was_asked_before(deeds: list[tuple[str, int, str]], apps: list[str]) -> None:
    nodes = {name: node(name, "ab"[number % 2]) for number, name in enumerate(NODES)}
    pods = [pod(f"p{number}", app, "", **rule) for number, (app, rule) in enumerate(zip(apps, RULES, strict=True))]
    guests = [*(world.PodInfo.successor(each, {}) for each in pods), *map(world.PodInfo.of, pods)]
    kept = filters.Filters(world.World(snapshots.Snapshot(nodes=nodes)))
    there: dict[int, str] = {}
    closed: set[str] = set()
    for deed, number, name in deeds:
        guest = guests[number]
        if deed == "take" and number not in there:
            kept.around.take(guest, name)
            there[number] = name
        elif deed == "leave" and number in there:
            assert kept.around.leave(guest) == there.pop(number)
        elif deed == "close":
            kept.around.close(name)
            closed.add(name)
        elif deed == "reopen":
            kept.around.reopen(name, ())
            closed.discard(name)
        kept.answer(guest)
    fresh = world.World(snapshots.Snapshot(nodes=nodes))
    for number, name in there.items():
        fresh.take(guests[number], name)
    for name in closed:
        fresh.close(name)
    assert [kept.answer(guest) for guest in guests] == [filters.Filters(fresh).answer(guest) for guest in guests]
    crowds = {name: crowd for crowd, places in kept.around.by_crowd.items() for name in places}
    assert crowds == {name: sum(there[number] == name for number in there) for name in NODES}


WEB = objects.Ref("Deployment", "web", "shop")


def rolled(count: int) -> filters.Filters:
    """Forecasts a roll of a cluster with so many nodes, ten of them at a time, each with two pods."""
    nodes = {f"n{number:04}": node(f"n{number:04}", "a") for number in range(count)}
    pods = tuple(pod(f"{name}-{which}", "web", name) for name in nodes for which in "ab")
    seen = snapshots.Snapshot(nodes=nodes, pods=pods)
    plans = [drain_policy.PodPlan(each, "evict", "", "", WEB) for each in pods]
    names = list(nodes)
    sequence = forecast.Sequence(seen)
    found = sequence.roll(plans, [names[i : i + 10] for i in range(0, count, 10)])
    assert len(found) == 2 * count
    assert all(one.fits for one in found.values())
    return sequence.scheduler


def test_a_pod_is_held_against_a_few_nodes_however_many_there_are() -> None:
    few, many = (rolled(count).looks / (2 * count) for count in (200, 600))
    assert few <= forecast.SCORED + 2
    assert many <= forecast.SCORED + 2


def test_in_a_small_cluster_every_node_is_scored() -> None:
    count = forecast.MANY
    assert rolled(count).looks / (2 * count) >= count - 10


def test_a_forecast_that_takes_too_long_says_so_of_the_other_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forecast, "MOST_LOOKS", 6)
    nodes = {f"n{number}": node(f"n{number}", "a") for number in range(4)}
    pods = tuple(pod(f"p{number}", "web", "n0", **apart(matchLabels={"app": "web"})) for number in range(4))
    seen = snapshots.Snapshot(nodes=nodes, pods=(*pods, *(pod(f"q{name}", "web", name) for name in nodes)))
    plans = [drain_policy.PodPlan(each, "evict", "", "", WEB) for each in pods]
    found = [one.fits for one in forecast.forecasts(seen, plans, [("n0",)]).values()]
    assert found == [False, False, None, None]
    assert "too many pods fit nowhere" in forecast.forecasts(seen, plans, [("n0",)])["p3"].text


def spread_over(*pods: Raw, **rule: t.Any) -> tuple[str, ...]:
    """The nodes, one in each of two zones, that take a pod of web that is to be spread evenly."""
    nodes = {"n1": node("n1", "a"), "n2": node("n2", "b")}
    seen = snapshots.Snapshot(nodes=nodes, pods=tuple(map(objects.Pod.of, pods)))
    guest = world.PodInfo.successor(pod("new", "web", "", **evenly(**rule.pop("policies", {})), **rule), {})
    return filters.Filters(world.World(seen)).answer(guest).nodes


def web_on(name: str, **meta: str) -> Raw:
    return {
        "metadata": {"name": name, "uid": name, "namespace": "shop", "labels": {"app": "web"}, **meta},
        "spec": {"nodeName": name},
        "status": {},
    }


def test_a_pod_that_is_being_deleted_does_not_count_for_spread() -> None:
    assert spread_over(web_on("n1")) == ("n2",)
    assert spread_over(web_on("n1", deletionTimestamp="2026-01-01T00:00:00Z")) == ("n1", "n2")


def test_nodes_that_the_pod_does_not_select_are_domains_only_if_their_policy_says_so() -> None:
    selects = {"nodeSelector": {ZONE: "a"}}
    assert spread_over(web_on("n1"), **selects) == ("n1",)
    assert spread_over(web_on("n1"), policies={"nodeAffinityPolicy": "Ignore"}, **selects) == ()
