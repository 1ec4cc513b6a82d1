# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The main job: nodes go in and out of maintenance and no service is ever dark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
from support import shapes
from support.arena import Arena
from support.plays import Player
from support.waiting import until
from support.watching import Watch
from witness.log import Json


def test_a_single_replica_stays_up_with_exactly_one_new_pod(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here, start="5s")
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_method="surge", maintain_reason="new kernel")
        assert run.ok, run.text
        arena.settle()
    seen.all_held()
    assert seen.dark_seconds(web) == 0
    assert len(seen.new_pods(web)) == 1
    assert seen.counts(web) == [1, 2, 1]
    assert seen.guards() == []
    assert seen.evictions() == []
    assert here not in web.nodes()
    assert run.pod(next(p["name"] for p in run.of("node_drain")[0]["nodes"][0]["pods"]))["route"] == "surge"


def test_a_single_replica_with_a_budget_that_allows_nothing_is_surged_too(
    arena: Arena, play: Player, watching: Watch
) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here, start="1s", budget={"minAvailable": 1})
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
        assert run.ok, run.text
    seen.all_held()
    assert seen.dark_seconds(web) == 0
    assert len(seen.new_pods(web)) == 1


@contextlib.contextmanager
def meshed(arena: Arena) -> Iterator[None]:
    """A policy that gives new pods of the arena a label and a native sidecar, as meshes do."""
    group, name = "/apis/admissionregistration.k8s.io/v1", arena.name
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}
    pod = (
        'Object{metadata: Object.metadata{labels: {"acme.io/mesh": "yes"}}, spec: Object.spec{initContainers: '
        '[Object.spec.initContainers{name: "proxy", image: "acme.io/proxy", restartPolicy: "Always"}]}}'
    )
    change = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": pod}}
    matched = {"matchConstraints": {"resourceRules": [rule], **here}, "reinvocationPolicy": "Never"}
    spec = {**matched, "failurePolicy": "Fail", "mutations": [change]}
    arena.api.create(f"{group}/mutatingadmissionpolicies", {"metadata": {"name": name}, "spec": spec})
    arena.api.create(
        f"{group}/mutatingadmissionpolicybindings", {"metadata": {"name": name}, "spec": {"policyName": name}}
    )
    try:
        yield
    finally:
        arena.api.delete(f"{group}/mutatingadmissionpolicybindings/{name}")
        arena.api.delete(f"{group}/mutatingadmissionpolicies/{name}")


TAKERS = {"jobbed": "Job", "counted": "ReplicationController"}
"""Apps whose pods something else selects, too."""


def selecting(arena: Arena, app: str) -> None:
    """What takes the app's pods as soon as nobody controls them, and ends them, as it wants none."""
    made = shapes.template(arena.name, app, "0s", "0s", {"restartPolicy": "Never"}, None)
    if TAKERS[app] == "Job":
        spec = {"suspend": True, "manualSelector": True, "selector": {"matchLabels": {"app": app}}, "template": made}
        arena.api.create(arena.path("Job"), {"metadata": {"name": app}, "spec": spec})
        return
    made["spec"].pop("restartPolicy")
    path = f"/api/v1/namespaces/{arena.namespace}/replicationcontrollers"
    spec = {"replicas": 0, "selector": {"app": app}, "template": made}
    arena.api.create(path, {"metadata": {"name": app}, "spec": spec})


def taken_by(arena: Arena, app: str) -> str:
    """The kind of what takes a pod of the app that somebody lets go, and ends it."""
    name = arena.pods(app)[0]["metadata"]["name"]
    kept = {"labels": {"pod-template-hash": None}, "finalizers": ["lab.kubeops.io/kept"]}
    arena.patch("Pod", name, {"metadata": kept})

    def seen() -> Json:
        metadata: Json = arena.api.get(arena.path("Pod", name))["metadata"]
        return metadata

    until(lambda: seen().get("deletionTimestamp"), 30, f"{name} is ended")
    return " ".join(owner["kind"] for owner in seen()["ownerReferences"] if owner.get("controller"))


def test_pods_that_are_replaced_first_are_never_short(arena: Arena, play: Player, watching: Watch) -> None:
    """Whatever the budget says, without another count, in any number, and whatever is added to new pods."""
    here, _unused = arena.nodes(2)
    with arena.placing(here):
        web = arena.deployment("web", start="2s", budget={"minAvailable": 1})
        api = arena.deployment("api", 3, start="2s", budget={"maxUnavailable": 0})
        for app in TAKERS:
            selecting(arena, app)
            arena.deployment(app, 2, budget={"maxUnavailable": 1})
    with meshed(arena), watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_method="replace")
        assert run.ok, run.text
        arena.settle()
    seen.all_held()
    assert all(pod["spec"]["initContainers"][0]["name"] == "proxy" for pod in arena.pods("web") + arena.pods("api"))
    assert (seen.least_serving(web), seen.least_serving(api)) == (1, 3)
    assert (len(seen.new_pods(web)), len(seen.new_pods(api))) == (1, 3)
    asked = [one.code for one in seen.writes if one.evicts and one.name.startswith(("web-", "api-"))]
    assert asked == [201] * 4, "each at the first try"
    assert (seen.counts(web), seen.counts(api), seen.guards()) == ([1], [3], [])
    drained = run.node(here, "node_drain")["pods"]
    moved = {(pod["route"], pod["outcome"]) for pod in drained if pod["name"].startswith(("web-", "api-"))}
    assert moved == {("replace", "replaced")}
    planned = {pod["name"].split("-")[0]: pod for pod in run.of("maintenance_plan")[0]["pods"]}
    for app, kind in TAKERS.items():
        assert planned[app]["route"] == "evict"
        assert f"{kind} {arena.name}/{app}" in planned[app]["reason"]
    assert {app: taken_by(arena, app) for app in TAKERS} == TAKERS


@pytest.mark.whole
def test_a_pod_that_takes_its_time_to_end_is_waited_for(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here, stop="3s")
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
        assert run.ok, run.text
    seen.all_held()
    (pod,) = run.of("node_drain")[0]["nodes"][0]["pods"]
    assert pod["waited_seconds"] >= 3
    assert len(seen.new_pods(web)) == 1


@pytest.mark.whole
def test_min_ready_seconds_count_before_the_old_pod_goes(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    web = arena.deployment("web", on=here, spec={"minReadySeconds": 3})
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_method="surge")
        assert run.ok, run.text
    seen.all_held()
    available = seen.values(web, "status", "availableReplicas")
    assert None not in available, "the old pod went before the new one had been ready for 3 s"
    assert seen.dark_seconds(web) == 0


@pytest.mark.whole
def test_several_workloads_on_one_node_leave_it_together(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused, _unused = arena.nodes(3)
    with arena.placing(here):
        single = [arena.deployment(f"single-{n}", start="2s") for n in range(3)]
        several = arena.deployment("several", 3, start="1s")
        guarded = arena.deployment("guarded", 3, start="1s", budget={"maxUnavailable": 1})
        stateful = arena.statefulset("stateful", 2, start="1s")
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here])
        assert run.ok, run.text
        arena.settle()
    seen.all_held()
    for workload in (*single, several, guarded, stateful):
        assert seen.dark_seconds(workload) == 0
        assert here not in workload.nodes()
    assert all(len(seen.new_pods(workload)) == 1 for workload in single)
    assert len(seen.new_pods(several)) == len(seen.new_pods(guarded)) == 3
    assert len(seen.guards()) == 1, "for the StatefulSet; pods of Deployments are replaced first"
    assert seen.counts(several) == seen.counts(guarded) == [3]


@pytest.mark.whole
def test_a_workload_with_pods_on_two_nodes_of_one_wave(arena: Arena, play: Player, watching: Watch) -> None:
    one, two, _unused = arena.nodes(3)
    pair = arena.deployment("pair", 2, on=[one, two], start="1s")
    web = arena.deployment("web", on=one, start="1s")
    api = arena.deployment("api", on=two, start="1s")
    with watching() as seen:
        run = play("maintain", maintain_nodes=[one, two], maintain_serial=2)
        assert run.ok, run.text
        arena.settle()
    seen.all_held()
    assert sum(seen.dark_seconds(workload) for workload in (pair, web, api)) == 0
    assert [len(seen.new_pods(workload)) for workload in (pair, web, api)] == [2, 1, 1]
    assert len(run.of("node_drain")) == 1, "one bulk call for the whole wave"
    assert not {one, two} & set(pair.nodes() + web.nodes() + api.nodes())


@pytest.mark.whole
def test_nodes_chosen_by_a_selector_go_one_after_the_other(arena: Arena, play: Player, watching: Watch) -> None:
    old = arena.nodes(2, labels={"pool": arena.name})
    arena.nodes(1)
    web = arena.deployment("web", on=old[0])
    with watching() as seen:
        run = play("maintain", maintain_node_selector=f"pool={arena.name}")
        assert run.ok, run.text
    seen.all_held()
    assert sorted(seen.taken_out()) == sorted(old)
    assert len(run.of("node_drain")) == 2
    assert seen.dark_seconds(web) == 0


def test_autoscalers_are_left_alone(arena: Arena, play: Player, watching: Watch) -> None:
    """They would end a second pod before it has served: a surge is refused, and pods are replaced."""
    here, _unused = arena.nodes(2)
    with arena.placing(here):
        web = arena.deployment("web", start="2s", pod_notes={"lab.kubeops.io/cpu": "1m"}, pod=CPU)
        full = arena.deployment("full", start="1s", pod_notes={"lab.kubeops.io/cpu": "1m"}, pod=CPU)
    scalers = arena.hpa("web", 1, 3), arena.hpa("full", 1, 1)
    arena.wait_for_autoscaler("web")
    arena.wait_for_autoscaler("full")
    with watching() as seen:
        run = play("maintain", maintain_nodes=[here], maintain_method="surge")
        refused = {finding["object"] for finding in run.findings if finding["code"] == "autoscaler_owned"}
        assert refused == {f"Deployment {arena.namespace}/{name}" for name in ("web", "full")}
        run = play("maintain", maintain_nodes=[here], within=240)
        assert run.ok, run.text
        arena.settle()
    seen.all_held()
    assert seen.dark_seconds(web) == seen.dark_seconds(full) == 0
    assert [seen.values(one, "spec", "minReplicas") for one in scalers] == [[1], [1]]
    assert seen.counts(web) == seen.counts(full) == [1]
    assert len(seen.new_pods(web)) == len(seen.new_pods(full)) == 1


CPU = {"containers": [{"name": "main", "image": "x", "resources": {"requests": {"cpu": "100m"}}}]}


def test_the_report_tells_the_story_of_nodes_pods_and_services(arena: Arena, play: Player) -> None:
    here, _unused = arena.nodes(2)
    arena.deployment("web", on=here, start="1s")
    arena.settle()
    run = play("maintain", maintain_nodes=[here], maintain_reason="new kernel")
    assert run.ok, run.text
    page = (run.folder / "report" / "report.html").read_text(encoding="utf-8")
    for told in (here, "web", "new kernel", "replace"):
        assert told in page
    assert "http://" not in page.replace("http://www.w3.org", ""), "the page is self-contained"
    server = run.report["cluster"]["server"]
    assert server.startswith("https://127.0.0.1:")
    assert "https://" not in page.replace(server, "")
    assert here in str(run.report)
    assert str(run.folder / "report") in run.text


def test_progress_is_told_while_the_long_calls_wait(arena: Arena, play: Player) -> None:
    here, _unused = arena.nodes(2)
    arena.deployment("web", on=here, start="3s", stop="2s")
    arena.settle()
    running = play.start("maintain", maintain_nodes=[here], maintain_method="surge")
    running.until_begun("pdb_guard")
    running.until_says("web", after=len(running.text))
    assert not running.has_done("maintenance_wave"), "the line came while the call was still waiting"
    run = running.wait()
    assert run.ok, run.text


def unanswered(namespace: str) -> Json:
    """A webhook that fails closed for new pods and counts of the namespace, and whose Service is not there."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    counts = {**rule, "apiGroups": ["apps"], "operations": ["UPDATE"], "resources": ["deployments/scale"]}
    hook = {
        "name": "pods.example.com",
        "admissionReviewVersions": ["v1"],
        "sideEffects": "None",
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "clientConfig": {"service": {"namespace": namespace, "name": "policy"}},
        "rules": [rule, counts],
    }
    return {"metadata": {"name": namespace}, "webhooks": [hook]}


@contextlib.contextmanager
def denying(arena: Arena, name: str, operation: str, expression: str, **which: Json) -> Iterator[None]:
    """A policy, called as what it says, about pods in the namespace of the arena: evictions, or changes of them."""
    group, message = "/apis/admissionregistration.k8s.io/v1", name
    name = f"{arena.name}-{name.replace(' ', '-')}"
    resource = "pods/eviction" if operation == "CREATE" else "pods"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource]}
    here = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": arena.name}}, **which}
    validations = [{"expression": expression, "message": message}]
    spec = {"matchConstraints": {"resourceRules": [rule], **here}, "validations": validations}
    arena.api.create(f"{group}/validatingadmissionpolicies", {"metadata": {"name": name}, "spec": spec})
    bound = {"policyName": name, "validationActions": ["Deny"]}
    arena.api.create(f"{group}/validatingadmissionpolicybindings", {"metadata": {"name": name}, "spec": bound})
    try:
        yield
    finally:
        arena.api.delete(f"{group}/validatingadmissionpolicybindings/{name}")
        arena.api.delete(f"{group}/validatingadmissionpolicies/{name}")


@contextlib.contextmanager
def policed(arena: Arena) -> Iterator[None]:
    """As policy engines do: no evictions; labels of some pods are fixed, and others need a controller."""
    controlled = "object.metadata.ownerReferences.exists(o, o.controller)"
    fixed = "object.metadata.labels == oldObject.metadata.labels"
    with (
        denying(arena, "no evictions on fridays", "CREATE", "false"),
        denying(arena, "fixed labels", "UPDATE", fixed, objectSelector={"matchLabels": {"app": "fixed"}}),
        denying(arena, "no bare pods", "UPDATE", controlled, objectSelector={"matchLabels": {"app": "owned"}}),
    ):
        yield


def test_a_plan_reads_only_and_tells_every_route(arena: Arena, play: Player, watching: Watch) -> None:
    here, _unused = arena.nodes(2)
    with arena.placing(here):
        arena.deployment("web")
        arena.deployment("several", 3)
        arena.statefulset("db")
        for name, replicas in (("fixed", 2), ("owned", 1), ("free", 2)):
            notes = {"maintenance.kubeops.io/method": "replace"}
            arena.deployment(name, replicas, service=False, notes=notes, budget={"maxUnavailable": 1})
    arena.job("import", here)
    hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    arena.api.create(hooks, unanswered(arena.name))
    screen = "kubeops.node_maintenance.maintenance"
    try:
        with policed(arena), watching() as seen:
            run = play("plan", maintain_nodes=[here], maintain_method="surge", env={"ANSIBLE_STDOUT_CALLBACK": screen})
    finally:
        arena.api.delete(f"{hooks}/{arena.name}")
    assert seen.writes == []
    assert run.finding("webhook_down")["severity"] == "blocker"
    refused = {one["object"]: one["message"] for one in run.findings if one["code"] == "webhook_refuses"}
    policies = {one.removeprefix(f"ValidatingAdmissionPolicy '{arena.name}-").rstrip("'"): one for one in refused}
    assert set(policies) == {'webhook "pods.example.com"', "no-evictions-on-fridays", "fixed-labels", "no-bare-pods"}
    assert "no evictions on fridays" in refused[policies["no-evictions-on-fridays"]]
    assert f"Deployment {arena.name}/owned" in refused[policies["no-bare-pods"]]
    warned = [line for line in run.text.splitlines() if line.startswith("warning: ")]
    assert len(warned) == len(set(warned)) == 3, "said once"
    routes = {pod["name"].split("-")[0]: pod["route"] for pod in run.of("maintenance_plan")[-1]["pods"]}
    others = {"free": "replace", "fixed": "evict", "owned": "refuse"}
    assert routes == {"web": "surge", "several": "evict", "db": "refuse", "import": "wait", **others}
    assert arena.name in run.finding("stateful_single")["object"]
    assert run.finding("not_replaced")["object"] == f"Deployment {arena.name}/owned"
    advised = [change["command"] for one in run.of("maintenance_plan")[-1]["advice"] for change in one["changes"]]
    surge = f"kubectl annotate --overwrite deployment owned -n {arena.name} maintenance.kubeops.io/method=surge"
    assert surge in advised
    seen.all_held()
