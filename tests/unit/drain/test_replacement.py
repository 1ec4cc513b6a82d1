# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Which pods are replaced before they leave, by which patch, and when others are enough without them."""

from __future__ import annotations

import copy
import dataclasses
import json
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    index_keys,
    names,
    objects,
    selectors,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster.snapshots import Snapshot
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import (
    dispositions,
    released,
    replacement_conditions,
    unserved,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods.drain_policy import DrainPolicy
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    TOLERATES_ALL,
    Raw,
    budget,
    claim,
    mounts,
    owned,
    pod,
    snapshot,
    workload,
)
from ansible_collections.kubeops.node_maintenance.tests.unit.support.routed import CONSENT, NOW, only

REPLACE = DrainPolicy(method="replace")
HASH = {names.HASH: "5d8f"}
LABELS = {"app": "web", **HASH}
MARK = released.Mark(
    run="r1",
    nonce="n1",
    node="n1",
    since="2026-01-01T12:00:00.000Z",
    deployment="uid-Deployment-web",
    name="web",
    replica_set="uid-ReplicaSet-web",
    hash="5d8f",
)


def web(replicas: int, *, here: int = 1, pods: Raw | None = None, **more: t.Any) -> Snapshot:
    """Deployment `web` with its ReplicaSet, which selects by the hash, too; `here` of its pods on n1."""
    spec = {key: more.pop(key) for key in ("strategy", "template", "annotations") if key in more}
    top = workload("Deployment", "web", replicas, **spec)
    below = workload("ReplicaSet", "web", replicas, owned("Deployment", "web"), selector={"matchLabels": LABELS})
    made = [
        pod(f"web-{i}", "n1" if i < here else "n2", owned("ReplicaSet", "web"), **{"labels": LABELS, **(pods or {})})
        for i in range(replicas)
    ]
    kinds = {"deployments": [top], "replica_sets": [below], **more}
    kinds["replica_sets"] += more.get("bare", [])
    kinds.pop("bare", None)
    return snapshot(pods=made, **kinds)


def plain(name: str, spec: Raw) -> Raw:
    return {"metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}"}, "spec": spec}


def let_go(**changes: t.Any) -> Raw:
    """A pod on n1 that carries the mark."""
    notes = {names.RELEASED: MARK.text}
    labels = {"app": "web", names.RELEASED: "r1"}
    return pod("old", "n1", **{"labels": labels, "annotations": notes, **changes})


CSI = {"name": "secrets", "csi": {"driver": "secrets-store.csi.k8s.io", "readOnly": True}}
OWN = {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {"accessModes": ["ReadWriteOnce"]}}}}
READING = {"name": "data", "persistentVolumeClaim": {"claimName": "d", "readOnly": True}}


@pytest.mark.parametrize(
    ("modes", "volumes", "may"),
    [
        (("ReadWriteOnce",), mounts("d"), False),
        (("ReadWriteOncePod",), mounts("d"), False),
        (("ReadWriteOnce", "ReadOnlyMany"), mounts("d"), False),
        (("ReadWriteOnce", "ReadOnlyMany"), [READING], True),
        (("ReadOnlyMany",), mounts("d"), True),
        (("ReadWriteMany",), mounts("d"), True),
        ((), [CSI], True),
        ((), [OWN], True),
        ((), [{"name": "disk", "awsElasticBlockStore": {"volumeID": "v"}}], False),
        ((), [{"name": "disk", "gcePersistentDisk": {"pdName": "v", "readOnly": True}}], True),
    ],
)
@pytest.mark.parametrize("replicas", [1, 3])
def test_a_volume_that_one_node_attaches_at_a_time_keeps_its_pods(
    replicas: int, modes: tuple[str, ...], volumes: list[Raw], may: bool
) -> None:
    """In-line and generic ephemeral volumes are each pod's own."""
    claims = [claim("d", "pv", modes)] if modes else []
    seen = web(replicas, pods={"volumes": volumes}, claims=claims)
    refusal = replacement_conditions.refusal(seen, seen.pods[0], seen.workload_of(seen.pods[0]))
    assert (refusal.code if refusal else "") == ("" if may else "volume_single_node")
    assert (only(seen, REPLACE).route == "replace") is may


@pytest.mark.parametrize("change", [{"kind": "Rollout"}, {"api_version": "example.com/v1"}])
def test_only_deployments_of_kubernetes_itself_are_replaced(change: Raw) -> None:
    seen = web(3)
    top = seen.workload_of(seen.pods[0])
    assert top
    assert replacement_conditions.refusal(seen, seen.pods[0], top) is None
    refusal = replacement_conditions.refusal(seen, seen.pods[0], dataclasses.replace(top, **change))
    assert refusal
    assert "Only pods of Deployments are replaced" in refusal.message


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("budgets", [[], [budget("b", 0, rule={"maxUnavailable": 0}, desired=3)], [budget("b", 1)]])
def test_a_pod_of_a_deployment_is_replaced_first_whatever_its_budget_says(replicas: int, budgets: list[Raw]) -> None:
    found = only(web(replicas, budgets=budgets), REPLACE)
    assert (found.route, found.code, found.guarded, found.budgets) == ("replace", "replaced_first", False, ())


def test_the_owner_chooses_before_the_caller_does() -> None:
    for method, route in (("surge", "surge"), ("replace", "replace"), ("evict", "refuse")):
        for choices in (DrainPolicy(), REPLACE, DrainPolicy(method="evict")):
            assert only(web(1, annotations={names.METHOD: method}), choices).route == route
    found = only(web(1, annotations={names.METHOD: "never"}), REPLACE)
    assert (found.route, found.code) == ("refuse", "bad_rule")
    assert only(web(1, annotations={names.METHOD: "evict", **CONSENT})).code == "interruption_allowed"


@pytest.mark.parametrize("owner", [owned("ScaledObject", "web", "keda.sh/v1alpha1"), []], ids=["KEDA", "nobody"])
def test_whoever_scales_it_is_not_asked(owner: list[Raw]) -> None:
    """A surge would change its bounds, which the owner of an autoscaler puts back."""
    spec = {"scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "maxReplicas": 4}
    behaviour = {"scaleDown": {"selectPolicy": "Disabled"}, "scaleUp": {"stabilizationWindowSeconds": 300}}
    scaler = plain("web", {**spec, "minReplicas": 1, "behavior": behaviour})
    scaler["metadata"]["ownerReferences"] = owner
    found = only(web(1, autoscalers=[scaler]), REPLACE)
    assert (found.route, found.code) == ("replace", "replaced_first")


AFFINE = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"matchLabelKeys": [names.HASH]}]}}
TAKERS: list[tuple[str, Raw]] = [
    ("replica_sets", workload("ReplicaSet", "other", 1, selector={"matchLabels": {"app": "web"}})),
    ("daemon_sets", plain("other", {"selector": {"matchLabels": {"app": "web"}}})),
    ("replication_controllers", plain("other", {"selector": {"app": "web"}})),
    ("kruise_daemon_sets", plain("other", {"selector": {"matchLabels": {"app": "web"}}})),
    ("selecting_jobs", plain("other", {"manualSelector": True, "selector": {"matchLabels": {"app": "web"}}})),
]
REVISION = {"matchLabelKeys": [names.HASH], "topologyKey": "kubernetes.io/hostname", "maxSkew": 1}
SPREAD: list[tuple[Raw, bool]] = [
    ({"topologySpreadConstraints": [{**REVISION, "whenUnsatisfiable": "ScheduleAnyway"}]}, True),
    ({"topologySpreadConstraints": [{**REVISION, "whenUnsatisfiable": "DoNotSchedule"}]}, False),
    ({"affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [REVISION]}}}, True),
    ({"affinity": AFFINE}, False),
]


@pytest.mark.parametrize(("spec", "may"), SPREAD)
def test_a_wish_where_to_run_does_not_hold_a_pod(spec: Raw, may: bool) -> None:
    """Spreading the pods of one revision is what many charts wish for; only where they must, room may lack."""
    seen = web(3, template={"metadata": {"labels": {"app": "web"}}, "spec": spec})
    assert (only(seen, REPLACE).route == "replace") is may


HELD: list[tuple[str, dict[str, t.Any]]] = [
    ("Recreate", {"strategy": {"type": "Recreate"}}),
    ("a volume of one node", {"pods": {"volumes": mounts("d")}, "claims": [claim("d", "pv", ("ReadWriteOnce",))]}),
    ("Kruise's budget", {"pods": {"annotations": {"kruise.io/related-pub": "web"}}}),
    ("no hash", {"pods": {"labels": {"app": "web"}}}),
    ("a Service", {"selecting_services": [plain("s", {"selector": LABELS})]}),
    ("a policy", {"network_policies": [plain("n", {"podSelector": {"matchLabels": HASH}})]}),
    ("a budget", {"budgets": [budget("b", 1, selector={"matchLabels": LABELS})]}),
    ("an affinity", {"template": {"metadata": {"labels": {"app": "web"}}, "spec": {"affinity": AFFINE}}}),
]


@pytest.mark.parametrize(("_what", "found"), HELD, ids=[what for what, _found in HELD])
def test_what_needs_the_label_or_may_not_run_twice_keeps_its_way_and_says_why(_what: str, found: Raw) -> None:
    plan = only(web(3, **copy.deepcopy(dict(found))), REPLACE)
    assert plan.route != "replace"
    assert "It is not replaced first" in plan.reason


@pytest.mark.parametrize(("kind", "other"), TAKERS, ids=[kind for kind, _other in TAKERS])
def test_what_another_controller_would_take_keeps_its_way(kind: str, other: Raw) -> None:
    more: dict[str, t.Any] = {"bare": [other]} if kind == "replica_sets" else {kind: [other]}
    plan = only(web(3, **more), REPLACE)
    assert plan.route == "evict"
    assert "shop/other" in plan.reason
    elsewhere = copy.deepcopy(other)
    elsewhere["metadata"]["namespace"] = "else"
    more = {"bare": [elsewhere]} if kind == "replica_sets" else {kind: [elsewhere]}
    assert only(web(3, **more), REPLACE).route == "replace"


@pytest.mark.parametrize(
    ("spec", "conditions_", "may"),
    [
        ({"manualSelector": True}, [], False),
        ({"manualSelector": True, "suspend": True}, [{"type": "Suspended", "status": "True"}], False),
        ({"manualSelector": True}, [{"type": "FailureTarget", "status": "True"}], False),
        ({"manualSelector": True}, [{"type": "Complete", "status": "True"}], True),
        ({"manualSelector": True}, [{"type": "Failed", "status": "True"}], True),
        ({"manualSelector": False}, [], True),
        ({}, [], True),
    ],
)
def test_of_jobs_those_take_it_that_run_and_have_a_selector_of_their_own(
    spec: Raw, conditions_: list[Raw], may: bool
) -> None:
    """The server gives every other one a selector by its UID; a suspended one ends what it takes."""
    raw = plain("other", {**spec, "selector": {"matchLabels": {"app": "web"}}})
    job = index_keys.PARSERS["selecting_jobs"]({**raw, "status": {"conditions": conditions_}})
    seen = web(3).with_fields({"selecting_jobs": () if job is None else (job,)})
    assert (only(seen, REPLACE).route == "replace") is may


def test_what_may_not_be_listed_could_take_it() -> None:
    plan = only(web(3).with_fields({"refused": ("jobs",)}), REPLACE)
    assert plan.route == "evict"
    assert "may not list jobs" in plan.reason


def test_a_clone_set_takes_no_pod_of_a_deployment() -> None:
    """Kruise's controller looks only at pods that have it as their owner."""
    kruise = "apps.kruise.io/v1alpha1"
    other = workload("CloneSet", "other", 1, api_version=kruise, selector={"matchLabels": {"app": "web"}})
    assert only(web(3, clone_sets=[other]), REPLACE).route == "replace"


def test_argo_rollouts_takes_no_pod_of_a_deployment_that_has_the_same_labels() -> None:
    """Its ReplicaSets select by a label of their own, as seen with its controller; nor are its pods replaced first."""
    labels = {"app": "web", "rollouts-pod-template-hash": "6d4d"}
    argo = "argoproj.io/v1alpha1"
    rollout = workload("Rollout", "other", 2, api_version=argo, selector={"matchLabels": {"app": "web"}})
    below = workload("ReplicaSet", "other", 2, owned("Rollout", "other", argo), selector={"matchLabels": labels})
    seen = web(3, bare=[below], rollouts=[rollout])
    assert only(seen, REPLACE).route == "replace"
    theirs = [pod(f"other-{i}", "n1", owned("ReplicaSet", "other"), labels=labels) for i in range(2)]
    alone = snapshot(pods=theirs, replica_sets=[below], rollouts=[rollout])
    assert {plan.route for plan in dispositions.routes(alone, ("n1",), REPLACE, now=NOW)} == {"evict"}


@pytest.mark.parametrize("pods", [{"ready": False}, {"tolerations": TOLERATES_ALL}])
def test_pods_that_do_not_serve_or_come_back_are_not_replaced(pods: Raw) -> None:
    assert only(web(3, pods=pods), REPLACE).route != "replace"


def test_the_replica_sets_of_other_pods_are_not_asked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each Deployment of a namespace has several, and each of its pods is planned."""
    asked: list[object] = []
    matches = selectors.matches
    chosen = [{"matchLabels": {"app": "x", names.HASH: f"{n}"}} for n in range(50)]
    found = web(1, bare=[workload("ReplicaSet", f"other-{n}", 1, selector=one) for n, one in enumerate(chosen)])

    def counted(selector: t.Any, labels: t.Mapping[str, str]) -> bool:
        asked.append(selector)
        return matches(selector, labels)

    monkeypatch.setattr(selectors, "matches", counted)
    assert not list(found.adopting("shop", {"app": "x", "tier": "front"}))
    assert asked == []
    (other,) = found.adopting("shop", {"app": "x", names.HASH: "7"})
    assert other.name == "other-7"
    assert len(asked) == 1


def test_other_selectors_and_other_namespaces_are_no_reason() -> None:
    services = [plain("s", {"selector": {"app": "web"}}), plain("t", {"selector": {**HASH, "app": "other"}})]
    policies = [plain("n", {"podSelector": {"matchLabels": {"app": "web"}}})]
    found = web(3, selecting_services=services, network_policies=policies, budgets=[budget("b", 1)])
    assert only(found, REPLACE).route == "replace"


@pytest.mark.parametrize(("replicas", "consent", "route"), [(3, {}, "evict"), (1, {}, "refuse"), (1, CONSENT, "evict")])
def test_without_a_replacement_it_leaves_as_it_would_have(replicas: int, consent: Raw, route: str) -> None:
    found = web(replicas, annotations=consent)
    given_up = {"uid-Deployment-web": "No node has room."}
    (plan,) = dispositions.routes(found, ("n1",), REPLACE, now=NOW, unreplaced=given_up)
    assert plan.route == route
    assert "No node has room." in plan.reason


def test_a_pod_that_was_let_go_is_known_by_its_mark_and_refused_without_one() -> None:
    found = web(1, here=0)
    seen = found.with_fields({"pods": (*found.pods, objects.Pod.of(let_go()))})
    plan = only(seen)
    assert (plan.route, plan.code, plan.workload) == ("replace", "released", MARK.owner("shop"))
    broken = objects.Pod.of(let_go(annotations={names.RELEASED: "{}"}))
    assert only(found.with_fields({"pods": (broken,)})).code == "bare_pod"


def test_the_patch_leaves_the_controllers_reference_and_is_undone_to_the_letter() -> None:
    raw = pod("web-0", "n1", owned("ReplicaSet", "web"), labels=LABELS, annotations={"a": "b"})
    change = released.releasing(raw, "uid-web-0", MARK)
    assert change is not None
    meta = (change.body or {})["metadata"]
    assert (meta["uid"], change.resource_version) == ("uid-web-0", "1")
    assert meta["labels"] == {names.HASH: None, names.RELEASED: "r1"}
    kept, added = meta["ownerReferences"]
    assert (kept, added["kind"], added["controller"]) == (raw["metadata"]["ownerReferences"][0], "Deployment", False)
    after = copy.deepcopy(raw)
    labels, notes = {"app": "web", names.RELEASED: "r1"}, {"a": "b", **meta["annotations"]}
    after["metadata"] |= {"labels": labels, "annotations": notes, "ownerReferences": [added]}
    assert released.mark_of(objects.Pod.of(after)) == MARK
    assert released.releasing(after, "uid-web-0", MARK) is None, "it is done"
    back = released.undoing(after, "uid-web-0")
    assert back is not None
    meta = (back.body or {})["metadata"]
    assert meta["labels"] == {names.HASH: "5d8f", names.RELEASED: None}
    assert (meta["annotations"], meta["ownerReferences"]) == ({names.RELEASED: None, names.UNSERVED: None}, None)
    assert released.undoing(raw, "uid-web-0") is None, "it is done"


@pytest.mark.parametrize(
    "changes",
    [
        {"labels": {"app": "web"}},
        {"labels": {"app": "web", names.HASH: "other"}},
        {"owner": owned("ReplicaSet", "other")},
        {"owner": []},
        {"deleting": "2026-01-01T00:00:00Z"},
    ],
)
def test_a_pod_that_is_another_one_now_is_left_alone(changes: dict[str, t.Any]) -> None:
    owner = changes.pop("owner", owned("ReplicaSet", "web"))
    raw = pod("web-0", "n1", owner, **{"labels": LABELS, **changes})
    assert released.releasing(raw, "uid-web-0", MARK) is None
    assert released.releasing(raw, "uid-namesake", MARK) is None
    assert released.releasing(None, "uid-web-0", MARK) is None


@pytest.mark.parametrize(
    ("replicas", "strategy", "most"),
    [
        (1, {}, 1),
        (3, {}, 1),
        (10, {}, 2),
        (10, {"rollingUpdate": {"maxUnavailable": 4}}, 4),
        (10, {"rollingUpdate": {"maxUnavailable": "39%"}}, 3),
        (10, {"rollingUpdate": {"maxUnavailable": 0}}, 1),
        (10, {"rollingUpdate": {"maxUnavailable": "x%"}}, 1),
    ],
)
def test_as_many_at_once_as_may_be_unavailable(replicas: int, strategy: Raw, most: int) -> None:
    top = objects.Workload.of(workload("Deployment", "web", replicas, strategy=strategy))
    assert released.most_at_once(top) == most


@pytest.mark.parametrize(
    ("replicas", "most", "text"),
    [
        (4, 1, ""),
        (4, 0, "Meanwhile Deployment shop/web shows 3/4 ready and Available=False."),
        (4, "x", "Meanwhile Deployment shop/web shows 3/4 ready and Available=False."),
        (1, 1, "Meanwhile Deployment shop/web shows 0/1 ready."),
    ],
)
def test_what_a_deployment_shows_meanwhile(replicas: int, most: int | str, text: str) -> None:
    strategy = {"rollingUpdate": {"maxUnavailable": most}}
    top = objects.Workload.of(workload("Deployment", "web", replicas, strategy=strategy))
    assert released.shown(top) == text


def slices(*uids: str, unready: t.Collection[str] = ()) -> list[Raw]:
    endpoints = [{"targetRef": {"uid": uid}, "conditions": {"ready": uid not in unready}} for uid in uids]
    meta = {"name": "web-x", "namespace": "shop", "labels": {"kubernetes.io/service-name": "web"}}
    return [{"metadata": meta, "addressType": "IPv4", "endpoints": endpoints}]


ENOUGH: list[tuple[str, bool, dict[str, t.Any]]] = [
    ("all serve", True, {}),
    ("one is not ready", False, {"pods": {"ready": False}}),
    ("one is in no slice", False, {"slices": slices("uid-old", "uid-web-0")}),
    (
        "one is not ready in a slice",
        False,
        {"slices": slices("uid-old", "uid-web-0", "uid-web-1", unready=["uid-web-1"])},
    ),
    ("the status alone says so", False, {"wanted": 3}),
]


@pytest.mark.parametrize(("_what", "enough", "changes"), ENOUGH, ids=[what for what, _enough, _changes in ENOUGH])
def test_what_the_replica_sets_own_has_to_be_enough_alone(_what: str, enough: bool, changes: dict[str, t.Any]) -> None:
    kinds = {"slices": slices("uid-old", "uid-web-0", "uid-web-1"), **changes}
    wanted = kinds.pop("wanted", 2)
    found = web(2, here=0, **kinds)
    if wanted != 2:
        more = [one for one in found.workloads if one.kind != "Deployment"]
        found = found.with_fields({"workloads": (*more, objects.Workload.of(workload("Deployment", "web", wanted)))})
    old = objects.Pod.of(let_go())
    seen = found.with_fields({"pods": (*found.pods, old)})
    assert (released.lacks(seen, old, MARK) == "") is enough
    assert released.lacks(seen, old, MARK, leaving=["uid-web-1"]), "what is being evicted does not count"


def test_the_pod_itself_does_not_count_before_its_replica_set_has_let_it_go() -> None:
    found = web(1)
    old = objects.Pod.of(let_go())
    held = objects.Pod.of(pod("old", "n1", owned("ReplicaSet", "web"), labels=old.labels, annotations=old.annotations))
    seen = found.with_fields({"pods": (*found.pods, held)})
    assert "to let" in released.lacks(seen, held, MARK)
    assert held not in released.owned(seen, t.cast("objects.Workload", seen.workload("uid-Deployment-web")))


@pytest.mark.parametrize(("replicas", "may"), [(2, True), (0, False), (None, False)])
def test_only_a_replica_set_that_wants_pods_takes_it_back(replicas: int | None, may: bool) -> None:
    sets = [] if replicas is None else [workload("ReplicaSet", "web", replicas)]
    assert released.may_return(snapshot(replica_sets=sets), MARK) is may


def test_the_mark_is_written_in_one_form_alone() -> None:
    """So that an admission policy can tell it from others."""
    text = MARK.text
    assert list(json.loads(text)) == sorted(json.loads(text))
    assert " " not in text


WEB, SHOP = {"app": "web"}, {"shop": "one"}
BOTH, ROLE = {**WEB, **SHOP}, {"role": "leader"}


@pytest.mark.parametrize(
    ("selecting", "held", "taken"),
    [
        ([], [], {}),
        ([{"app": "other"}], [], {}),
        ([WEB], [], WEB),
        ([BOTH, SHOP], [], SHOP | WEB),
        ([BOTH, WEB], [], WEB),
        ([BOTH], [WEB], SHOP),
        ([ROLE], [], ROLE | WEB),
        ([ROLE], [WEB], ROLE),
        ([WEB], [WEB], None),
        ([BOTH, WEB], [WEB], None),
        ([WEB], [{"app": "other"}], WEB),
    ],
)
def test_as_few_labels_as_possible_come_off_and_none_that_a_policy_needs(
    selecting: list[Raw], held: list[Raw], taken: Raw | None
) -> None:
    """One of them is of the Deployment's selector, if that is possible: an autoscaler counts what that matches."""
    services = [plain(f"s{number}", {"selector": one}) for number, one in enumerate(selecting)]
    policies = [plain(f"n{number}", {"podSelector": {"matchLabels": one}}) for number, one in enumerate(held)]
    old = objects.Pod.of(let_go(labels={**WEB, **SHOP, **ROLE, names.RELEASED: "r1"}))
    top = objects.Workload.of(workload("Deployment", "web", 1, selector={"matchLabels": WEB}))
    seen = snapshot(selecting_services=services, network_policies=policies)
    found = unserved.chosen(seen, old, top)
    assert (None if isinstance(found, reasons.Reason) else found) == taken


@pytest.mark.parametrize("text", ["", "2026-01-01T12:00:00Z", "2026-01-01T12:00:00Z,app", "x"])
def test_what_says_how_a_pod_left_its_services_and_cannot_be_read_counts_for_nothing(text: str) -> None:
    assert unserved.of(objects.Pod.of(let_go(annotations={names.UNSERVED: text}))) is None
    out = unserved.Unserved("2026-01-01T12:00:00Z", BOTH)
    assert unserved.of(objects.Pod.of(let_go(annotations={names.UNSERVED: out.text}))) == out


SPENT = budget("b", 0, rule={"maxUnavailable": 0}, desired=3)


@pytest.mark.parametrize(
    ("seen", "words"),
    [
        pytest.param(web(1), "If none comes to serve, it stays.", id="a single pod"),
        pytest.param(
            web(1, annotations=CONSENT),
            "If none comes to serve, it is interrupted, which was allowed.",
            id="one that may be interrupted",
        ),
        pytest.param(web(3), "If none comes to serve: ", id="one of several"),
        pytest.param(web(3, budgets=[SPENT]), "", id="one that may not be evicted otherwise"),
    ],
)
def test_what_is_done_if_no_replacement_comes_to_serve_is_told(seen: Snapshot, words: str) -> None:
    found = only(seen, REPLACE)
    assert found.route == "replace"
    assert words in found.reason
    assert ("If none comes to serve" in found.reason) is bool(words)


def selecting(name: str, *keys: str) -> Raw:
    return plain(name, {"selector": {key: LABELS[key] for key in keys}})


@pytest.mark.parametrize(
    ("found", "words"),
    [
        pytest.param({}, "", id="of no Service"),
        pytest.param(
            {"selecting_services": [selecting("web", "app")]},
            "It leaves its Services 5 s before it ends.",
            id="of a Service",
        ),
        pytest.param(
            {
                "selecting_services": [selecting("web", "app")],
                "network_policies": [plain("n", {"podSelector": {"matchLabels": {"app": "web"}}})],
            },
            "It stays in its Services until then: NetworkPolicy shop/n would change what it does about it",
            id="of a Service by a label that a policy needs",
        ),
    ],
)
def test_whether_it_leaves_its_services_before_it_ends_is_told(found: Raw, words: str) -> None:
    told = only(web(3, **found), dataclasses.replace(REPLACE, load_balancer_wait=5.0))
    assert told.route == "replace"
    assert words in told.reason
    assert ("its Services" in told.reason) is bool(words)
    assert "its Services" not in only(web(3, **found), REPLACE).reason
