# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names, objects
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import pod_rules
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import pod

POD = objects.Pod.of(pod("web-0", grace=30))
SKIP, WAIT, ORDER = (f"{names.PREFIX}/{key}" for key in ("skip", "wait", "order"))


def read(*raws: dict[str, t.Any]) -> tuple[pod_rules.Rule, ...]:
    rules, faults = pod_rules.read(raws)
    assert not faults
    return rules


def of_priority(rule: pod_rules.Rule, priority: int) -> pod_rules.PodPolicy:
    raw = pod("p")
    raw["spec"]["priority"] = priority
    return rule.of(objects.Pod.of(raw))


def test_the_first_rule_that_selects_a_pod_decides_all_of_it() -> None:
    rules = read({"pods": "app=db", "order": 1}, {"name": "mine", "pods": "app=web", "order": 2}, {"grace_period": 0})
    found = pod_rules.policy_of(rules, POD, None, {ORDER: "7"})
    assert (found.rule, found.order, found.grace_period) == ("rule mine", 2, None)


def test_an_annotation_counts_where_no_rule_selects_the_pod() -> None:
    rules = read({"pods": "app=db", "order": 1})
    found = pod_rules.policy_of(rules, POD, objects.Ref("Deployment", "web", "shop"), {ORDER: "-7"})
    assert (found.order, found.rule) == (-7, "the annotations of Deployment shop/web")
    assert pod_rules.policy_of(rules, POD, None, {}) == pod_rules.NONE


@pytest.mark.parametrize(
    ("annotations", "told"),
    [
        ({SKIP: "yes"}, "'yes' of maintenance.kubeops.io/skip is not true or false"),
        ({WAIT: "finished", "maintenance.kubeops.io/deadline": "soon"}, "'soon' of maintenance.kubeops.io/deadline"),
        ({SKIP: "true", ORDER: "1"}, "skip without order"),
    ],
)
def test_an_annotation_that_cannot_be_read_is_told(annotations: dict[str, str], told: str) -> None:
    assert told in pod_rules.policy_of((), POD, None, annotations).fault


@pytest.mark.parametrize(
    ("priority", "order", "grace"),
    # KubeletConfiguration of kubernetes.io/docs/concepts/cluster-administration/node-shutdown (v1.36): 100000 has
    # 10 s, 10000 has 180 s, 1000 has 120 s, 0 has 60 s. groupByPriority of pkg/kubelet/nodeshutdown puts those below
    # the lowest in the lowest.
    [(-5, 0, 30), (0, 0, 30), (999, 0, 30), (1000, 1, 30), (99999, 2, 30), (100000, 3, 10), (2000000000, 3, 10)],
)
def test_bands_are_those_of_the_kubelet(priority: int, order: int, grace: int) -> None:
    (rule,) = read(
        {
            "bands": [
                {"priority": 100000, "shutdownGracePeriodSeconds": 10},
                {"priority": 10000, "shutdownGracePeriodSeconds": 180},
                {"priority": 1000, "seconds": 120},
                {"priority": 0, "seconds": 60},
            ]
        }
    )
    found = of_priority(rule, priority)
    assert (found.order, found.grace(POD, None)) == (order, grace)


@pytest.mark.parametrize(
    ("rule", "given", "seconds"),
    [
        ({"order": 1}, None, None),
        ({"order": 1}, 12, 12),
        ({"grace_period": 0}, 12, 0),
        ({"bands": [{"priority": 0, "seconds": 20}]}, None, 20),
        ({"bands": [{"priority": 0, "seconds": 20}]}, 12, 12),
        ({"bands": [{"priority": 0, "seconds": 90}]}, None, 30),
    ],
)
def test_the_grace_period_of_a_pod(rule: dict[str, t.Any], given: int | None, seconds: int | None) -> None:
    assert read(rule)[0].of(POD).grace(POD, given) == seconds


def test_who_leaves_before_whom() -> None:
    web, db, job, last = (
        rule.policy
        for rule in read(
            {"name": "web", "before": "db", "pods": "app=web"},
            {"name": "db", "pods": "app=db", "deadline": "10m"},
            {"order": -1},
            {"last": True},
        )
    )
    assert db.waits_for(web)
    assert not web.waits_for(db)
    assert web.waits_for(job)
    assert not job.waits_for(web)
    assert [last.waits_for(other) for other in (web, db, job, last)] == [True, True, True, False]
    assert db.deadline == 600.0


@pytest.mark.parametrize(
    ("raws", "where", "expected"),
    [
        ([{"pods": "app=web"}], "rules[0]", "what to do with the pods"),
        ([{"skip": "true", "grace": 3}], "rules[0].grace", "one of name, pods"),
        (["skip"], "rules[0]", "a mapping"),
        ([{"skip": True, "wait": "finished"}], "rules[0]", "skip without wait"),
        ([{"wait": "finished", "grace_period": 0}], "rules[0]", "wait without grace_period"),
        ([{"bands": [{"priority": 0, "seconds": 1}], "order": 0}], "rules[0]", "bands without order"),
        ([{"last": True, "order": 3}], "rules[0]", "last without order"),
        ([{"wait": "ready"}], "rules[0].wait", "finished"),
        ([{"order": True}], "rules[0].order", "an integer"),
        ([{"order": 1.5}], "rules[0].order", "an integer"),
        ([{"grace_period": -1}], "rules[0].grace_period", "0 or more"),
        ([{"deadline": "0s", "order": 1}], "rules[0].deadline", "more than 0"),
        ([{"bands": [{"priority": 0}]}], "rules[0].bands", "shutdownGracePeriodByPodPriority"),
        ([{"bands": []}], "rules[0].bands", "shutdownGracePeriodByPodPriority"),
        ([{"bands": [{"priority": 0, "seconds": 1}, {"priority": 0, "seconds": 2}]}], "rules[0].bands", "a list"),
        ([{"name": "a", "order": 1}, {"name": "a", "order": 2}], "rules[1].name", "an earlier rule has it"),
        ([{"before": "a"}, {"name": "a", "order": 1}], "rules[0].name", "because the rule has before"),
        ([{"after": ["b"]}], "rules[0].after", "the name of a rule"),
        ([{"after": ["a", ""]}, {"name": "a", "order": 0}], "rules[0].after", "a list of names of rules"),
        ([{"after": ["a", 5]}, {"name": "a", "order": 0}], "rules[0].after", "a list of names of rules"),
        ([{"after": {"a": 1}}, {"name": "a", "order": 0}], "rules[0].after", "a list of names of rules"),
        ([{"name": "a", "pods": "a", "skip": True}, {"after": ["a"]}], "rules[1].after", "without bands and skip"),
        ([{"skip": True}, {"order": 1}], "rules[0]", "pods, namespaces or owners beside skip"),
        ([{"name": "a", "order": 5}, {"after": ["a"], "order": 4}], "rules[1].after", "no higher order"),
        ([{"name": "a", "last": True}, {"after": ["a"]}], "rules[1].after", "no higher order"),
        ([{"name": "a", "order": 4}, {"name": "b", "before": ["a"], "order": 5}], "rules[1].before", "no higher order"),
        ([{"name": "a", "after": ["a"]}], "rules", "without a circle"),
        ([{"name": "a", "after": "b"}, {"name": "b", "after": "c"}, {"name": "c", "after": "a"}], "rules", "circle"),
        ([{"name": "a", "after": "b", "before": "b"}, {"name": "b", "order": 0}], "rules", "circle"),
    ],
)
def test_what_is_wrong_with_rules_is_told(raws: list[t.Any], where: str, expected: str) -> None:
    rules, faults = pod_rules.read(raws)
    assert rules == ()
    assert [fault[0] for fault in faults] == [where]
    assert expected in faults[0][2]


def test_all_that_is_wrong_with_rules_is_told_at_once() -> None:
    rules, faults = pod_rules.read(["skip", {"order": True}, {"skip": True, "grace": 3}])
    assert rules == ()
    assert [fault[0] for fault in faults] == ["rules[0]", "rules[1].order", "rules[2].grace"]
