# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

from fractions import Fraction

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import quantities
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import quota
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import Raw


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1", Fraction(1)),
        (2, Fraction(2)),
        ("0.5", Fraction(1, 2)),
        ("250m", Fraction(1, 4)),
        ("3u", Fraction(3, 1000000)),
        ("5n", Fraction(5, 1000000000)),
        ("2k", Fraction(2000)),
        ("1E", Fraction(10**18)),
        ("1e3", Fraction(1000)),
        ("1E-1", Fraction(1, 10)),
        ("64Mi", Fraction(64 * 1024**2)),
        ("1.5Gi", Fraction(3 * 1024**3, 2)),
        ("-1", Fraction(-1)),
    ],
)
def test_quantities(text: str | int, number: Fraction) -> None:
    assert quantities.quantity(text) == number


@pytest.mark.parametrize("text", ["", "x", "1X", "1K", "1ki", "1 Gi", "mi", "1mi"])
def test_what_is_no_quantity(text: str) -> None:
    with pytest.raises(ValueError, match="not a resource quantity"):
        quantities.quantity(text)


def container(name: str = "c", requests: Raw | None = None, limits: Raw | None = None, **more: str) -> Raw:
    return {"name": name, "resources": {"requests": requests or {}, "limits": limits or {}}, **more}


DEFAULTS: Raw = {
    "metadata": {"name": "defaults"},
    "spec": {"limits": [{"type": "Container", "default": {"cpu": "1"}, "defaultRequest": {"cpu": "100m"}}]},
}


@pytest.mark.parametrize(
    ("spec", "limits", "resource", "amount"),
    [
        pytest.param({"containers": [container()]}, [], "pods", "1", id="a pod is a pod"),
        pytest.param({"containers": [container()]}, [], "count/pods", "1", id="and an object"),
        pytest.param({"containers": [container()]}, [], "requests.cpu", None, id="nothing said"),
        pytest.param(
            {"containers": [container(requests={"cpu": "1"}), container(requests={"cpu": "500m"})]},
            [],
            "requests.cpu",
            "1500m",
            id="containers together",
        ),
        pytest.param(
            {"containers": [container(requests={"cpu": "1"})]}, [], "cpu", "1", id="cpu is short for requests.cpu"
        ),
        pytest.param({"containers": [container(limits={"cpu": "2"})]}, [], "requests.cpu", "2", id="limit as request"),
        pytest.param({"containers": [container(limits={"cpu": "2"})]}, [], "limits.cpu", "2", id="limit"),
        pytest.param({"containers": [container()]}, [DEFAULTS], "requests.cpu", "100m", id="default request"),
        pytest.param({"containers": [container()]}, [DEFAULTS], "limits.cpu", "1", id="default limit"),
        pytest.param(
            {"containers": [container(requests={"cpu": "2"})]}, [DEFAULTS], "requests.cpu", "2", id="said, not default"
        ),
        pytest.param(
            {"containers": [container(requests={"cpu": "1"})], "initContainers": [container(requests={"cpu": "3"})]},
            [],
            "requests.cpu",
            "3",
            id="a large init container",
        ),
        pytest.param(
            {
                "containers": [container(requests={"cpu": "1"})],
                "initContainers": [
                    container("side", requests={"cpu": "2"}, restartPolicy="Always"),
                    container("init", requests={"cpu": "2"}),
                ],
            },
            [],
            "requests.cpu",
            "4",
            id="an init container beside a sidecar",
        ),
        pytest.param(
            {
                "containers": [container(requests={"cpu": "3"})],
                "initContainers": [container("side", requests={"cpu": "2"}, restartPolicy="Always")],
            },
            [],
            "requests.cpu",
            "5",
            id="sidecars go on",
        ),
        pytest.param(
            {"containers": [container(requests={"cpu": "1"})], "overhead": {"cpu": "250m"}},
            [],
            "requests.cpu",
            "1250m",
            id="overhead",
        ),
        pytest.param(
            {"containers": [container(requests={"cpu": "1"})], "resources": {"requests": {"cpu": "2"}}},
            [],
            "requests.cpu",
            "2",
            id="said for the whole pod",
        ),
        pytest.param(
            {"containers": [container(requests={"cpu": "1"})], "resources": {"limits": {"cpu": "4"}}},
            [],
            "requests.cpu",
            "1",
            id="a limit of the whole pod is no request where containers have one",
        ),
        pytest.param(
            {"containers": [container()], "resources": {"limits": {"cpu": "4"}}},
            [],
            "requests.cpu",
            "4",
            id="a limit of the whole pod is its request",
        ),
        pytest.param(
            {"containers": [container()], "resources": {"limits": {"cpu": "4"}, "requests": {"cpu": "2"}}},
            [{"spec": {"limits": [{"type": "Container", "defaultRequest": {"cpu": "3"}}]}}],
            "requests.cpu",
            "2",
            id="a default of containers does not change what is said for the whole pod",
        ),
        pytest.param(
            {
                "containers": [container(requests={"memory": "1Gi"}), container("b")],
                "resources": {"limits": {"cpu": "4"}},
            },
            [{"spec": {"limits": [{"type": "Container", "defaultRequest": {"memory": "3Gi"}}]}}],
            "requests.memory",
            "1Gi",
            id="where the whole pod has limits, requests of containers are its own before defaults come",
        ),
        pytest.param(
            {"containers": [container(limits={"cpu": "1"})], "resources": {"limits": {"cpu": "4"}}},
            [],
            "limits.cpu",
            "4",
            id="a limit of the whole pod",
        ),
        pytest.param(
            {
                "containers": [container(requests={"cpu": "1"})],
                "resources": {"requests": {"cpu": "2"}},
                "overhead": {"cpu": "250m"},
            },
            [],
            "requests.cpu",
            "2250m",
            id="overhead beside what is said for the whole pod",
        ),
    ],
)
def test_what_one_pod_takes(spec: Raw, limits: list[Raw], resource: str, amount: str | None) -> None:
    taken = quota.usage(spec, limits)
    assert taken.get(resource) == (quantities.quantity(amount) if amount is not None else None)


def limited(hard: Raw, used: Raw, **spec: object) -> Raw:
    return {"metadata": {"name": "q"}, "spec": {"hard": hard, **spec}, "status": {"hard": hard, "used": used}}


POD: Raw = {"containers": [container(requests={"cpu": "1"})]}
SILENT: Raw = {"containers": [container()]}
CRITICAL = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": "In", "values": ["critical"]}]}


@pytest.mark.parametrize(
    ("found", "spec", "count", "why"),
    [
        pytest.param(limited({"pods": "3"}, {"pods": "2"}), POD, 1, "", id="room for one"),
        pytest.param(limited({"pods": "3"}, {"pods": "2"}), POD, 2, "pods: 2 of 3", id="no room for two"),
        pytest.param(limited({"count/pods": "3"}, {"count/pods": "3"}), POD, 1, "count/pods", id="counted objects"),
        pytest.param(limited({"requests.cpu": "2"}, {"requests.cpu": "1500m"}), POD, 1, "requests.cpu", id="cpu"),
        pytest.param(limited({"requests.cpu": "2"}, {"requests.cpu": "1"}), POD, 1, "", id="cpu just fits"),
        pytest.param(limited({"services": "0"}, {}), POD, 1, "", id="about something else"),
        pytest.param(limited({"limits.cpu": "2"}, {}), POD, 1, "do not specify", id="a limit must be said"),
        pytest.param(limited({"pods": "0"}, {}, scopes=["Terminating"]), POD, 1, "", id="for pods that end"),
        pytest.param(limited({"pods": "0"}, {}, scopes=["NotTerminating"]), POD, 1, "pods", id="for pods that stay"),
        pytest.param(limited({"pods": "0"}, {}, scopes=["BestEffort"]), POD, 1, "", id="for silent pods"),
        pytest.param(limited({"pods": "0"}, {}, scopes=["BestEffort"]), SILENT, 1, "pods", id="a silent pod"),
        pytest.param(limited({"pods": "0"}, {}, scopeSelector=CRITICAL), POD, 1, "", id="of another priority"),
        pytest.param(
            limited({"pods": "0"}, {}, scopeSelector=CRITICAL),
            {**POD, "priorityClassName": "critical"},
            1,
            "pods",
            id="of this priority",
        ),
    ],
)
def test_quotas(found: Raw, spec: Raw, count: int, why: str) -> None:
    exceeded = quota.exceeded([found], [], [quota.Newcomers(spec, count)])
    assert list(exceeded) == (["q"] if why else [])
    assert why in exceeded.get("q", "")


def test_newcomers_of_several_workloads_count_together() -> None:
    one = quota.Newcomers(POD, 1)
    assert quota.exceeded([limited({"pods": "2"}, {"pods": "1"})], [], [one]) == {}
    assert "2 more" in quota.exceeded([limited({"pods": "2"}, {"pods": "1"})], [], [one, one])["q"]


def ranged(kind: str, **bounds: Raw) -> Raw:
    return {"metadata": {"name": "r"}, "spec": {"limits": [{"type": kind, **bounds}]}}


@pytest.mark.parametrize(
    ("found", "broken"),
    [
        (ranged("Container", max={"cpu": "500m"}), True),
        (ranged("Container", max={"cpu": "1"}), False),
        (ranged("Container", min={"cpu": "2"}), True),
        (ranged("Container", min={"cpu": "1"}), False),
        (ranged("Container", max={"memory": "1Mi"}), False),
        (ranged("Pod", max={"cpu": "500m"}), True),
        (ranged("Pod", min={"cpu": "2"}), True),
        (ranged("PersistentVolumeClaim", max={"cpu": "0"}), False),
    ],
)
def test_limit_ranges(found: Raw, broken: bool) -> None:
    assert bool(quota.violated([found], POD)) == broken


def test_suffixes_are_powers_of_a_thousand_and_of_1024() -> None:
    steps = {"n": -3, "u": -2, "m": -1, "": 0, "k": 1, "M": 2, "G": 3, "T": 4, "P": 5, "E": 6}
    assert {suffix: quantities.quantity(f"7{suffix}") for suffix in steps} == {
        suffix: 7 * Fraction(1000) ** step for suffix, step in steps.items()
    }
    binary = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"]
    assert [quantities.quantity(f"7{suffix}") for suffix in binary] == [7 * 1024**step for step in range(1, 7)]


@pytest.mark.parametrize(
    ("spec", "limits", "taken"),
    [
        pytest.param(
            {"containers": [container()]},
            [{"spec": {"limits": [{"type": "Container", "default": {"cpu": "2"}}]}}],
            {"requests.cpu": "2", "limits.cpu": "2"},
            id="a default limit is the default request",
        ),
        pytest.param(
            {"containers": [container()]},
            [{"spec": {"limits": [{"type": "Pod", "default": {"cpu": "2"}}]}}],
            {"requests.cpu": None},
            id="defaults are for containers",
        ),
        pytest.param(
            {"containers": [container(requests={"cpu": "1"})], "overhead": {"memory": "1Mi", "cpu": "1"}},
            [],
            {"requests.memory": "1Mi", "requests.cpu": "2", "limits.memory": None, "limits.cpu": None},
            id="overhead makes no limit",
        ),
        pytest.param(
            {"containers": [container(limits={"cpu": "1"})], "overhead": {"cpu": "1"}},
            [],
            {"limits.cpu": "2"},
            id="overhead adds to a limit",
        ),
        pytest.param(
            {
                "containers": [container(requests={"cpu": "3"})],
                "initContainers": [container(requests={"cpu": "1"}), container(requests={"cpu": "2"})],
            },
            [],
            {"requests.cpu": "3"},
            id="init containers run one after another",
        ),
        pytest.param(
            {
                "containers": [container(requests={"cpu": "1"})],
                "initContainers": [
                    container("init", requests={"cpu": "2"}),
                    container("side", requests={"cpu": "2"}, restartPolicy="Always"),
                ],
            },
            [],
            {"requests.cpu": "3"},
            id="a sidecar does not run before it is started",
        ),
    ],
)
def test_what_a_quota_counts_of_a_pod(spec: Raw, limits: list[Raw], taken: dict[str, str | None]) -> None:
    found = quota.usage(spec, limits)
    assert {name: found.get(name) for name in taken} == {
        name: None if amount is None else quantities.quantity(amount) for name, amount in taken.items()
    }


@pytest.mark.parametrize(
    ("operator", "values", "named", "silent"),
    [
        ("In", ["critical"], True, False),
        ("In", ["other"], False, False),
        ("NotIn", ["critical"], False, True),
        ("NotIn", ["other"], True, True),
        ("Exists", [], True, False),
        ("DoesNotExist", [], False, True),
    ],
)
def test_scopes_of_a_priority_class(operator: str, values: list[str], named: bool, silent: bool) -> None:
    scope = {"matchExpressions": [{"scopeName": "PriorityClass", "operator": operator, "values": values}]}
    laid = limited({"pods": "0"}, {}, scopeSelector=scope)
    assert bool(quota.exceeded([laid], [], [quota.Newcomers({**POD, "priorityClassName": "critical"}, 1)])) is named
    assert bool(quota.exceeded([laid], [], [quota.Newcomers(POD, 1)])) is silent


@pytest.mark.parametrize(
    ("scopes", "spec", "counted"),
    [
        (["Terminating"], {**POD, "activeDeadlineSeconds": 0}, True),
        (["NotTerminating"], {**POD, "activeDeadlineSeconds": 0}, False),
        (["NotBestEffort"], POD, True),
        (["NotBestEffort"], SILENT, False),
        pytest.param(["BestEffort"], {"containers": [*SILENT["containers"], *POD["containers"]]}, False, id="one says"),
        (["NotTerminating", "NotBestEffort"], POD, True),
        (["Terminating", "NotBestEffort"], POD, False),
        (["CrossNamespacePodAffinity"], POD, False),
    ],
)
def test_a_quota_counts_pods_in_all_of_its_scopes(scopes: list[str], spec: Raw, counted: bool) -> None:
    laid = limited({"pods": "0"}, {}, scopes=scopes)
    assert bool(quota.exceeded([laid], [], [quota.Newcomers(spec, 1)])) is counted


@pytest.mark.parametrize(
    ("hard", "told"),
    [
        ({"requests.memory": "1Gi"}, True),
        ({"limits.memory": "1Gi"}, True),
        ({"requests.storage": "1Gi"}, False),
        ({"requests.cpu": "9"}, False),
    ],
)
def test_what_a_quota_limits_has_to_be_specified(hard: Raw, told: bool) -> None:
    found = quota.exceeded([limited(hard, {})], [], [quota.Newcomers(POD, 1)])
    assert ("do not specify" in found.get("q", "")) is told
    elsewhere = limited(hard, {}, scopes=["Terminating"])
    assert not quota.exceeded([elsewhere], [], [quota.Newcomers(POD, 1)])


def test_a_quota_without_a_status_is_judged_by_its_spec() -> None:
    laid: Raw = {"metadata": {"name": "q"}, "spec": {"hard": {"requests.cpu": "500m"}}}
    assert "0 of 500m are used, and 1 more" in quota.exceeded([laid], [], [quota.Newcomers(POD, 1)])["q"]
    half = {"containers": [container(requests={"cpu": "1500m"})]}
    assert "1.5 more" in quota.exceeded([laid], [], [quota.Newcomers(half, 1)])["q"]


@pytest.mark.parametrize(
    ("kind", "bounds", "spec", "words"),
    [
        ("Container", {"max": {"cpu": "1"}}, {"requests": {"cpu": "1"}, "limits": {"cpu": "2"}}, "2 cpu, more than 1"),
        ("Container", {"min": {"cpu": "2"}}, {"requests": {"cpu": "1"}, "limits": {"cpu": "4"}}, "1 cpu, less than 2"),
        ("Container", {"min": {"cpu": "2"}}, {}, ""),
        ("Container", {"max": {"cpu": "0"}}, {}, ""),
        ("Pod", {"max": {"cpu": "1"}}, {"limits": {"cpu": "2"}}, "the pod asks for 2 cpu"),
        ("Pod", {"min": {"cpu": "2"}}, {"requests": {"cpu": "1"}}, "the pod asks for 1 cpu"),
    ],
)
def test_a_limit_range_is_told_with_what_breaks_it(kind: str, bounds: Raw, spec: Raw, words: str) -> None:
    found = quota.violated([ranged(kind, **bounds)], {"containers": [{"name": "c", "resources": spec}]})
    assert (words in found["r"]) if words else not found
