# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Installing the fence on objects in memory; that its policy does what it says is shown on the lab."""

from __future__ import annotations

import copy
import typing as t
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.errors import Forbidden, NotFound
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster.verbs import Request
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan import access, names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.access import (
    AccessOptions,
    install,
    standing,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._run.context import Context, StopRun

DISCOVERY = verbs.api_resources(access.ADMISSION).path
OURS = verbs.api_resources(names.FENCE_API).path
POLICY = verbs.path(kinds.ADMISSION_POLICIES, name=names.FENCE_POLICY)
MAP = verbs.path(kinds.NODE_FENCES, names.NAMESPACE, names.FENCE_MAP)


@dataclass
class Objects:
    """Objects by path; like an API server it fills in what was not given."""

    kept: dict[str, dict[str, t.Any]] = field(default_factory=dict)
    served: bool = True
    late: int = 0
    denied: bool = False
    writes: list[str] = field(default_factory=list)
    version: int = 0

    def send(self, request: Request, *, fence: Callable[[], None] | None = None, **_times: float) -> dict[str, t.Any]:
        del fence
        if self.denied:
            raise Forbidden("may not", request=request, status=403)
        if request.path == DISCOVERY:
            served = [{"kind": "ValidatingAdmissionPolicy"}] if self.served else [{"kind": "MutatingWebhook"}]
            return {"resources": served}
        if request.path == OURS:
            self.late -= 1
            return {"resources": [{"kind": "NodeFence"}] if self.late < 0 else []}
        if request.resource == "namespaces":
            raise Forbidden("may not", request=request, status=403)
        path = f"{request.path}/{request.name}" if request.method == "POST" else request.path
        if request.path.startswith(f"{OURS}/") and self.late > 0:
            raise NotFound("there is no such kind", request=request, status=404)
        if request.method != "GET":
            self.writes.append(f"{request.verb} {request.name}")
        if request.method == "POST":
            self.put(path, copy.deepcopy(dict(request.body or {})))
        if path not in self.kept:
            raise NotFound("not there", request=request, status=404)
        if request.method == "PATCH":
            self.put(path, {**self.kept[path], "spec": (request.body or {})["spec"]})
        if request.method == "DELETE":
            return self.kept.pop(path)
        return copy.deepcopy(self.kept[path])

    def put(self, path: str, body: dict[str, t.Any]) -> None:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        if body["kind"] == "ValidatingAdmissionPolicy":
            body["spec"]["matchConstraints"] |= {"matchPolicy": "Equivalent", "namespaceSelector": {}}
            body["spec"]["matchConstraints"]["resourceRules"][0]["scope"] = "*"
        self.kept[path] = body


def ctx(store: Objects, *, check: bool = False) -> Context:
    return Context(t.cast("t.Any", store), check=check)


def outcomes(store: Objects, state: t.Literal["present", "absent"], *, check: bool = False) -> list[str]:
    result = install(ctx(store, check=check), AccessOptions(state))
    return [f"{entry['kind']} {entry['outcome']}" for entry in result.data["objects"]]


def test_it_is_installed_once_and_removed_in_the_opposite_order() -> None:
    store = Objects()
    assert outcomes(store, "present") == [
        "CustomResourceDefinition created",
        "NodeFence created",
        "ValidatingAdmissionPolicy created",
        "ValidatingAdmissionPolicyBinding created",
    ]
    writes = len(store.writes)
    assert {words.partition(" ")[2] for words in outcomes(store, "present")} == {"already_present"}
    assert len(store.writes) == writes
    assert outcomes(store, "absent") == [
        "ValidatingAdmissionPolicyBinding deleted",
        "ValidatingAdmissionPolicy deleted",
        "NodeFence deleted",
        "CustomResourceDefinition deleted",
    ]
    assert store.kept == {}
    assert {words.partition(" ")[2] for words in outcomes(store, "absent")} == {"already_absent"}


@pytest.mark.parametrize("state", ["present", "absent"])
def test_check_mode_says_what_the_real_run_does_and_writes_nothing(state: t.Literal["present", "absent"]) -> None:
    store, twin = Objects(), Objects()
    if state == "absent":
        for one in (store, twin):
            install(ctx(one), AccessOptions())
    writes = len(store.writes)
    checked, real = ctx(store, check=True), ctx(twin)
    said, done = install(checked, AccessOptions(state)), install(real, AccessOptions(state))
    assert said.shaped(checked) == done.shaped(real)
    assert done.shaped(real)["changed"]
    assert len(store.writes) == writes


def test_the_kind_that_was_just_defined_is_waited_for() -> None:
    assert outcomes(Objects(late=3), "present")[1] == "NodeFence created"


def test_who_holds_which_lock_is_not_its_to_change() -> None:
    store = Objects()
    outcomes(store, "present")
    store.kept[MAP]["held"] = {"node-a": "r1/n1"}
    assert outcomes(store, "present")[1] == "NodeFence already_present"
    assert store.kept[MAP]["held"] == {"node-a": "r1/n1"}


def test_a_policy_that_was_changed_is_brought_back_and_shown_in_the_diff() -> None:
    store = Objects()
    outcomes(store, "present")
    store.kept[POLICY]["spec"]["validations"][0]["expression"] = "true"
    call = ctx(store)
    assert standing(call) == "incomplete"
    done = install(call, AccessOptions()).shaped(call)
    assert [entry["outcome"] for entry in done["objects"]] == ["already_present"] * 2 + ["changed", "already_present"]
    assert done["diff"][0]["before"]["spec"]["validations"][0]["expression"] == "true"
    assert "matchPolicy" not in done["diff"][0]["before"]["spec"]["matchConstraints"], "nobody asked for that"
    assert standing(call) == "present"


def test_a_server_without_such_policies_is_told_from_one_that_refuses() -> None:
    with pytest.raises(StopRun, match="has no ValidatingAdmissionPolicy") as stopped:
        install(ctx(Objects(served=False)), AccessOptions())
    assert "1.30" in stopped.value.remedy
    assert stopped.value.code == "no_admission_policies"
    with pytest.raises(Forbidden):
        install(ctx(Objects(denied=True)), AccessOptions())


def test_nothing_is_there_to_be_removed_from_an_old_server() -> None:
    assert outcomes(Objects(served=False), "absent") == []


def test_whether_it_stands_is_told_as_far_as_it_may_be_read() -> None:
    store = Objects()
    assert standing(ctx(store)) == "absent"
    outcomes(store, "present")
    assert standing(ctx(store)) == "present"
    del store.kept[MAP]
    assert standing(ctx(store)) == "incomplete"
    store.denied = True
    assert standing(ctx(store)) == "unknown"
