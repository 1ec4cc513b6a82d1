# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which changes of a maintenance are tried as dry runs, and what a refusal means."""

from __future__ import annotations

import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import admission, names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain.dispositions import routes
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.planning import run_trials
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

EVICTIONS = ("", "pods/eviction", "CREATE")
ALL: Raw = {"apiGroups": ["*"], "apiVersions": ["*"], "operations": ["*"], "resources": ["*/*"]}


def rule(group: str, resource: str, operation: str, **more: t.Any) -> Raw:
    return {"apiGroups": [group], "apiVersions": ["v1"], "operations": [operation], "resources": [resource], **more}


def webhook(*rules: Raw, **more: t.Any) -> Raw:
    return {"metadata": {"name": "policy"}, "webhooks": [{"name": "x.example.com", "rules": list(rules), **more}]}


def policy(*rules: Raw, name: str = "policy", **more: t.Any) -> Raw:
    return {"metadata": {"name": name}, "spec": {"matchConstraints": {"resourceRules": list(rules), **more}}}


@pytest.mark.parametrize(
    ("one", "asked"),
    [
        (rule(*EVICTIONS), True),
        (rule("", "pods/*", "*"), True),
        (rule("*", "*/eviction", "CREATE"), True),
        (ALL, True),
        (rule("", "pods", "CREATE"), False),
        (rule("", "*", "CREATE"), False),
        (rule("", "pods/eviction", "UPDATE"), False),
        (rule("apps", "pods/eviction", "CREATE"), False),
        (rule(*EVICTIONS, scope="Cluster"), False),
    ],
)
def test_who_is_asked_about_evictions(one: Raw, asked: bool) -> None:
    for raw in (webhook(one), policy(one)):
        assert any(judge.judges(*EVICTIONS, {}) for judge in admission.judges(raw)) is asked


def test_who_is_asked_depends_on_the_namespace_and_our_own_fence_is_nobody() -> None:
    here: t.Any = {"namespaceSelector": {"matchLabels": {"team": "shop"}}}
    for raw in (webhook(ALL, **here), policy(ALL, **here)):
        (judge,) = admission.judges(raw)
        spaces: list[dict[str, str] | None] = [{"team": "shop"}, {}, None]
        assert [judge.judges(*EVICTIONS, labels) for labels in spaces] == [True, False, True]
    assert admission.judges(policy(ALL, name=names.FENCE_POLICY)) == []


def tried(judges: list[admission.Judge], replicas: int = 3, **choices: t.Any) -> list[tuple[str, str, str, int]]:
    """Namespace, verb and kind of each trial, and for how many pods it stands."""
    pods = [pod(f"web-{n}", "n1", owner=owned("ReplicaSet", "web")) for n in range(replicas)]
    seen = snapshot(deployment("web", replicas), pods=pods, **choices.pop("kinds", {}))
    asked = DrainPolicy(**choices)
    found = run_trials.trials(seen, routes(seen, ["n1"], asked, now=""), asked, judges)
    return [(x.namespace, x.change.verb, x.change.target.kind, len(x.plans)) for x in found]


def test_each_kind_of_change_is_tried_once_for_all_pods_of_a_namespace() -> None:
    every = admission.judges(webhook(ALL, rule("", "pods", "*"), rule("policy", "*", "CREATE")))
    evicted = [("shop", "evict", "Pod", 3), ("shop", "create", "PodDisruptionBudget", 3)]
    assert tried(every) == evicted
    assert tried(every, kinds={"budgets": [budget("web", 1)]}) == evicted[:1]
    assert tried(every, disable_eviction=True)[0] == ("shop", "delete", "Pod", 3)
    assert tried(every, replicas=1) == [("shop", "patch", "Pod", 1), ("shop", "scale", "Deployment", 1)]


@pytest.mark.parametrize(
    ("one", "kinds"),
    [(rule("", "pods", "UPDATE"), ["patch"]), (rule("apps", "deployments/scale", "UPDATE"), ["scale"])],
)
def test_only_what_somebody_is_asked_about_is_tried(one: Raw, kinds: list[str]) -> None:
    assert [kind for _space, kind, _of, _count in tried(admission.judges(policy(one)), replicas=1)] == kinds
    assert tried(admission.judges(policy(one))) == []


def let_go(*rules: Raw, announced: bool = False, replicas: int = 3) -> list[run_trials.Trial]:
    """What is tried of the pods of a Deployment that are replaced before they leave."""
    labels = {"app": "web", names.HASH: "5d8f"}
    pods = [pod(f"web-{n}", "n1", owned("ReplicaSet", "web"), labels=labels) for n in range(replicas)]
    above = workload("Deployment", "web", replicas)
    below = workload("ReplicaSet", "web", replicas, owned("Deployment", "web"), selector={"matchLabels": labels})
    seen = snapshot(deployments=[above], replica_sets=[below], pods=pods)
    asked = DrainPolicy(method="replace")
    plans = routes(seen, ["n1"], asked, now="")
    assert [one.route for one in plans] == ["replace"] * replicas
    announcing = [hook_definitions.Rule("before_pod", "x", "annotation")] if announced else []
    return run_trials.trials(seen, plans, asked, admission.judges(policy(*rules)), announcing)


def test_the_very_patch_that_lets_a_pod_go_is_tried_beside_others() -> None:
    """Policies may refuse that labels of pods change."""
    patched = rule("", "pods", "UPDATE")
    both = let_go(patched)
    assert [(one.lets_go, one.by_others, len(one.plans)) for one in both] == [(True, False, 3), (True, True, 3)]
    metas = [(one.change.body or {})["metadata"] for one in both]
    assert [meta["labels"][names.HASH] for meta in metas] == [None, None]
    kinds = [[owner["kind"] for owner in meta["ownerReferences"]] for meta in metas]
    assert kinds == [["ReplicaSet", "Deployment"], ["Deployment"]]
    tried = let_go(patched, rule(*EVICTIONS), announced=True)
    assert [trial.change.verb for trial in tried] == ["patch", "patch", "evict", "patch"]
    assert [trial.by_others for trial in tried] == [False, True, False, False], "evictions are our own"


def test_what_may_not_be_let_go_is_told_apart_from_what_nothing_can_be_done_about() -> None:
    tried = let_go(rule("", "pods", "UPDATE"), rule(*EVICTIONS), announced=True)
    told = [(trial, "no") for trial in tried]
    found = run_trials.findings(told)
    assert [one.severity for one in found] == ["warning", "blocker", "blocker"]
    assert names.METHOD in found[0].remedy
    assert run_trials.unreplaced(told) == {"uid-Deployment-web": "no"}
    assert run_trials.unreplaced(told[2:]) == {}


@pytest.mark.parametrize(("action", "count"), [("annotation", 1), ("http", 0)])
def test_what_a_hook_announces_on_a_pod_is_tried(action: t.Any, count: int) -> None:
    pods = [pod(f"web-{n}", "n1", owner=owned("ReplicaSet", "web"), phase="Running") for n in range(3)]
    seen = snapshot(deployment("web", 3), pods=pods)
    plans = routes(seen, ["n1"], DrainPolicy(), now="")
    every = admission.judges(policy(rule("", "pods", "UPDATE")))
    found = run_trials.trials(seen, plans, DrainPolicy(), every, [hook_definitions.Rule("before_pod", "x", action)])
    assert [(one.change.verb, len(one.plans)) for one in found] == [("patch", 3)] * count


def test_an_operator_that_answers_the_eviction_is_not_asked() -> None:
    every = admission.judges(webhook(rule(*EVICTIONS)))
    assert tried(every, reactive_budgets=("app=web",)) == []


@pytest.mark.parametrize(
    ("words", "who"),
    [
        ('admission webhook "deny.example.org" denied the request: not today', 'webhook "deny.example.org"'),
        ("pods \"x\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no",
         "ValidatingAdmissionPolicy 'p'"),
        ('Internal error occurred: failed calling webhook "w.example.org": no endpoints', 'webhook "w.example.org"'),
        ("nobody knows", "admission"),
    ],
)  # fmt: skip
def test_refusals_of_one_webhook_are_told_together(words: str, who: str) -> None:
    every = admission.judges(webhook(ALL))
    pods = [pod(f"web-{n}", "n1", owner=owned("ReplicaSet", "web")) for n in range(3)]
    seen = snapshot(deployment("web", 3), pods=pods)
    (one, *_more) = run_trials.trials(seen, routes(seen, ["n1"], DrainPolicy(), now=""), DrainPolicy(), every)
    (found,) = run_trials.findings([(one, words), (one, words)])
    assert (found.code, found.severity, found.object, found.nodes) == ("webhook_refuses", "blocker", who, ("n1",))
    assert words in found.message


def test_what_is_not_tried_is_said() -> None:
    assert run_trials.untried(run_trials.MAX_TRIALS) == []
    assert [one.code for one in run_trials.untried(run_trials.MAX_TRIALS + 1)] == ["not_checked"]
