# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A real API server still answers as tests/unit/kube/recorded.json has it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support.arena import Arena
from support.lab import Lab
from support.rights import AGENT
from support.waiting import until

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.client import Cluster
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.connection import ConnectionOptions, connect
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.watch import Reflector

POLICIES = kinds.Kind(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicies",
    "ValidatingAdmissionPolicy",
    namespaced=False,
)
BINDINGS = kinds.Kind(
    "admissionregistration.k8s.io",
    "v1",
    "validatingadmissionpolicybindings",
    "ValidatingAdmissionPolicyBinding",
    namespaced=False,
)


@pytest.fixture
def cluster(lab: Lab) -> Iterator[Cluster]:
    cluster = connect(ConnectionOptions(kubeconfig=str(lab.kubeconfig)), user_agent=AGENT)
    yield cluster
    cluster.close()


def made(cluster: Cluster, kind: kinds.Kind, namespace: str, name: str, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, **({"namespace": namespace} if kind.namespaced else {})}
    obj = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **more}
    return cluster.send(verbs.create(kind, obj))


def budget(cluster: Cluster, arena: Arena, name: str, app: str, **spec: Any) -> None:
    selector = {"matchLabels": {"app": app}}
    made(cluster, kinds.BUDGETS, arena.namespace, name, spec={"selector": selector, **spec})
    until(
        lambda: (
            cluster.send(verbs.get(kinds.BUDGETS, name, arena.namespace)).get("status", {}).get("observedGeneration")
        ),
        30,
        f"budget {name} is observed",
    )


def eviction(arena: Arena, app: str) -> verbs.Request:
    metadata = arena.pods(app)[0]["metadata"]
    return verbs.evict(arena.namespace, metadata["name"], metadata["uid"])


def test_budgets_and_pods(cluster: Cluster, arena: Arena) -> None:
    arena.nodes(1)
    arena.deployment("web", 2, service=False)
    arena.settle()
    ours = eviction(arena, "web")
    with pytest.raises(errors.Conflict):
        cluster.send(verbs.evict(arena.namespace, ours.name, "00000000-0000-0000-0000-000000000000"), patience=0.0)
    with pytest.raises(errors.NotFound):
        cluster.send(verbs.evict(arena.namespace, "gone", "x"), patience=0.0)
    budget(cluster, arena, "one", "web", minAvailable=2)
    with pytest.raises(errors.BudgetSpent, match="needs 2 healthy pods and has 2 currently"):
        cluster.send(ours, patience=0.0)
    budget(cluster, arena, "two", "web", maxUnavailable=1)
    with pytest.raises(errors.TwoBudgets):
        cluster.send(ours, patience=0.0)


def test_a_budget_whose_evictions_nobody_confirms(lab: Lab, cluster: Cluster, arena: Arena) -> None:
    """It refuses with 403 and not with 429; it is no missing permission, and the controller takes it back."""
    arena.nodes(1)
    arena.deployment("web", 2, service=False, budget={"maxUnavailable": 1})
    arena.settle()
    controllers = int((lab.audit_log.parents[1] / "pids" / "kube-controller-manager.pid").read_text())
    unconfirmed = {f"gone-{n}": "2026-01-01T00:00:00Z" for n in range(2001)}
    os.kill(controllers, signal.SIGSTOP)
    try:
        cluster.send(
            verbs.merge_patch(
                kinds.BUDGETS, "web", {"status": {"disruptedPods": unconfirmed}}, arena.namespace, subresource="status"
            )
        )
        with pytest.raises(errors.BudgetSpent, match="not confirmed by PDB controller") as caught:
            cluster.send(eviction(arena, "web"), patience=0.0)
        assert caught.value.status == 403
    finally:
        os.kill(controllers, signal.SIGCONT)

    def pruned() -> bool:
        return not (arena.find("PodDisruptionBudget", "web") or {})["status"].get("disruptedPods")

    until(pruned, 30, "the controller has looked at it")
    cluster.send(eviction(arena, "web"))


def test_writes_on_what_was_read(cluster: Cluster, arena: Arena) -> None:
    read = made(cluster, kinds.CONFIGMAPS, arena.namespace, "a", data={"x": "0"})
    with pytest.raises(errors.AlreadyExists):
        made(cluster, kinds.CONFIGMAPS, arena.namespace, "a")
    version = read["metadata"]["resourceVersion"]
    seen, old = ({"metadata": {"resourceVersion": version}, "data": {"x": x}} for x in ("1", "3"))
    cluster.send(verbs.merge_patch(kinds.CONFIGMAPS, "a", seen, arena.namespace))
    with pytest.raises(errors.Conflict):
        cluster.send(verbs.merge_patch(kinds.CONFIGMAPS, "a", old, arena.namespace), patience=0.0)
    with pytest.raises(errors.Conflict):
        cluster.send(verbs.delete(kinds.CONFIGMAPS, "a", arena.namespace, resource_version=version), patience=0.0)
    with pytest.raises(errors.Invalid):
        made(cluster, kinds.CONFIGMAPS, arena.namespace, "Not_A_Name")
    now = cluster.send(verbs.get(kinds.CONFIGMAPS, "a", arena.namespace))
    assert now["data"] == {"x": "1"}
    managers = {entry["manager"] for entry in now["metadata"]["managedFields"]}
    assert managers == {verbs.FIELD_MANAGER}


def test_permissions(lab: Lab, arena: Arena) -> None:
    options = ConnectionOptions(kubeconfig=str(lab.kubeconfig), impersonate_user="nobody")
    nobody = connect(options, user_agent=AGENT)
    with pytest.raises(errors.Forbidden, match=r'"nobody" cannot create resource "pods/eviction"'):
        nobody.send(verbs.evict(arena.namespace, "a", "u"), patience=0.0)
    wake = threading.Condition()
    pods = Reflector(nobody, kinds.PODS, wake=wake)
    pods.start()
    with wake:
        assert wake.wait_for(lambda: pods.error is not None, 10)
    assert isinstance(pods.error, errors.Forbidden)


def test_a_namespace_that_ends(cluster: Cluster, arena: Arena) -> None:
    name = arena.add_namespace(f"{arena.name}-ends")
    held = {"name": "held", "namespace": name, "finalizers": ["test.kubeops.io/held"]}
    cluster.send(verbs.create(kinds.CONFIGMAPS, {"metadata": held}))
    cluster.send(verbs.delete(kinds.NAMESPACES, name))
    try:
        with pytest.raises(errors.NamespaceTerminating):
            made(cluster, kinds.CONFIGMAPS, name, "late")
    finally:
        free = {"metadata": {"finalizers": None}}
        cluster.send(verbs.merge_patch(kinds.CONFIGMAPS, "held", free, name))


def test_an_admission_policy(cluster: Cluster, arena: Arena) -> None:
    name = f"{arena.name}-deny"
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["configmaps"],
    }
    here = {"matchLabels": {"kubernetes.io/metadata.name": arena.namespace}}
    match = {"resourceRules": [rule], "namespaceSelector": here}
    said = [{"expression": "false", "message": "not today"}]
    spec = {"failurePolicy": "Fail", "matchConstraints": match, "validations": said}
    made(cluster, POLICIES, "", name, spec=spec)
    made(cluster, BINDINGS, "", name, spec={"policyName": name, "validationActions": ["Deny"]})
    try:

        def denied() -> str:
            try:
                made(cluster, kinds.CONFIGMAPS, arena.namespace, f"a{time.monotonic_ns()}")
            except errors.DeniedByWebhook as error:
                return str(error)
            return ""

        until(denied, 30, "the policy is in force")
        assert "not today" in denied()
    finally:
        cluster.send(verbs.delete(BINDINGS, name))
        cluster.send(verbs.delete(POLICIES, name))


@pytest.mark.whole
def test_a_minute_of_watching_is_one_watch(lab: Lab, arena: Arena) -> None:
    """The server's bookmarks keep a quiet watch from counting as dead; they come once a minute if any object of the
    kind has changed.
    """
    options = ConnectionOptions(kubeconfig=str(lab.kubeconfig))
    cluster = connect(options, user_agent=AGENT)
    wake = threading.Condition()
    told: list[str] = []
    watched = Reflector(
        cluster,
        kinds.CONFIGMAPS,
        namespaces=[arena.namespace],
        labels="test=quiet",
        wake=wake,
        on_event=lambda what, obj: told.append(what),
    )
    watched.start()
    until(lambda: watched.quiet_for() > 0, 10, "the watch has begun")
    other = connect(options, user_agent=AGENT)
    other.send(verbs.create(kinds.CONFIGMAPS, {"metadata": {"name": "of-others", "namespace": arena.namespace}}))
    until(lambda: watched.quiet_for() > 80, 90, "80 quiet seconds")
    sent = cluster.requests
    assert sent in (1, 3), "a watch with its list, or one that is refused, a list and a watch"
    labels = {"name": "a", "namespace": arena.namespace, "labels": {"test": "quiet"}}
    other.send(verbs.create(kinds.CONFIGMAPS, {"metadata": labels}))
    until(lambda: told == ["ADDED"], 30, "the watch is still alive")
    assert cluster.requests == sent, "the same watch"
    began = time.monotonic()
    watched.stop()
    assert time.monotonic() - began < 0.3
