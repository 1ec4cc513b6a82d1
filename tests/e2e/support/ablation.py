# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""One maintenance by the modules as an account whose rights are taken away one at a time."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from witness import audit
from witness.api import ApiError
from witness.log import Json

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import client, errors, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils._edge import (
    announce,
    cordon,
    drain,
    guard,
    plan,
    specs,
    state,
    taint,
)
from support import rights
from support.arena import Arena
from support.lab import Lab
from support.waiting import until

NAME = "ablated"
STEPS = (*("read", "locks", "runs", "nodes", "conditions", "evict", "guard", "surge", "hooks", "announce", "kubelets"),)
CLUSTER = "*"


class Right(NamedTuple):
    """One verb on one resource, in the whole cluster (`*`) or in one namespace."""

    verb: str
    group: str
    resource: str
    place: str

    def __str__(self) -> str:
        return f"{self.words} ({self.place})"

    @property
    def words(self) -> str:
        """As messages have it: ``patch deployments.apps/scale``."""
        plural, slash, subresource = self.resource.partition("/")
        return f"{self.verb} {plural}{'.' + self.group if self.group else ''}{slash}{subresource}"

    def named_in(self, said: str) -> bool:
        return any(f"{self.words}{end}" in said for end in (" ", ":", ",", "."))


def _others(verb: str, group: str, resources: str, why: str, place: str = CLUSTER) -> dict[Right, str]:
    return {Right(one, group, resource, place): why for resource in resources.split() for one in verb.split()}


_ADD_ON = "an add-on that this cluster does not have; the tests of that add-on run with these rights"
_DEAD = "only for dead nodes; test_dead_nodes.py"
_OWNERS = "only for pods of owners that are no Deployments and the like; test_pods_of_all_kinds.py"
_QUIET = "without it kubectl describe does not show an Event of such a workload, and nothing else changes"
ELSEWHERE: dict[Right, str] = {
    **_others("get list watch", "argoproj.io", "rollouts", _ADD_ON),
    **_others("get patch", "argoproj.io", "rollouts/scale", _ADD_ON),
    **_others("get list watch", "apps.kruise.io", "clonesets", _ADD_ON),
    **_others("get patch", "apps.kruise.io", "clonesets/scale", _ADD_ON),
    **_others("list", "scheduling.koordinator.sh", "podmigrationjobs reservations", _ADD_ON),
    **_others("list", "kubevirt.io", "virtualmachineinstances kubevirts", _ADD_ON),
    **_others("list", "lifecycle.k8s.io", "evictionrequests", _ADD_ON),
    **_others("list", "scheduling.k8s.io", "podgroups", _ADD_ON),
    **_others("list", "resource.k8s.io", "resourceclaims resourceslices deviceclasses devicetaintrules", _ADD_ON),
    **_others("get list", "coordination.k8s.io", "leases", _DEAD, "kube-node-lease"),
    **_others("get", "", "replicationcontrollers replicationcontrollers/scale", _OWNERS),
    **_others("patch", "policy", "poddisruptionbudgets", "only for a guard that serves several nodes; test_roll.py"),
    **_others("get", "apps", "statefulsets", _QUIET),
}
"""Rights that this maintenance cannot use, and why."""


class Account:
    """The account with the roles of STEPS, each bound where it belongs."""

    def __init__(self, lab: Lab, folder: Path) -> None:
        self.lab = lab
        self.config = rights.granted(lab.api, folder / NAME, NAME, STEPS)
        self.roles = {step: copy.deepcopy(rights.roles()[step]) for step in STEPS}
        # Others may use the documented roles at the same time: this account has copies of its own.
        for step, role in self.roles.items():
            role["metadata"] = {"name": f"{NAME}-{step}"}
            rights.made(lab.api, f"{rights.RBAC}/clusterroles", role)
            for base in self._bases(step):
                lab.api.delete(f"{base}/{NAME}-{step}")
                reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": f"{NAME}-{step}"}
                subject = {"kind": "ServiceAccount", "name": NAME, "namespace": rights.HOME}
                with contextlib.suppress(ApiError):
                    lab.api.create(
                        base, {"metadata": {"name": f"{NAME}-{step}"}, "roleRef": reference, "subjects": [subject]}
                    )
        until(lambda: rights.may(self.config, "list", "", "nodes"), 10, "its roles are known")

    def _places(self, step: str) -> list[str]:
        found = str(rights.roles()[step]["metadata"]["annotations"][rights.BIND_IN]).split()
        return [place for place in found if place == CLUSTER or self.lab.api.find(f"/api/v1/namespaces/{place}")]

    def _bases(self, step: str) -> list[str]:
        return [
            f"{rights.RBAC}/clusterrolebindings"
            if place == CLUSTER
            else f"{rights.RBAC}/namespaces/{place}/rolebindings"
            for place in self._places(step)
        ]

    def rights(self) -> set[Right]:
        """All that it may do."""
        return {
            Right(verb, group, resource, place)
            for step, role in self.roles.items()
            for rule in role["rules"]
            for verb in rule["verbs"]
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for place in self._places(step)
        }

    @contextlib.contextmanager
    def without(self, right: Right) -> Iterator[None]:
        """It lacks this right for a while, and the API server knows."""
        changed = [step for step in STEPS if right.place in self._places(step)]
        for step in changed:
            rules = [part for rule in self.roles[step]["rules"] for part in _less(rule, right)]
            self.lab.api.patch(f"{rights.RBAC}/clusterroles/{NAME}-{step}", {"rules": rules})
        try:
            self._await(right, False)
            yield
        finally:
            for step in changed:
                self.lab.api.patch(f"{rights.RBAC}/clusterroles/{NAME}-{step}", {"rules": self.roles[step]["rules"]})
            self._await(right, True)

    def _await(self, right: Right, allowed: bool) -> None:
        place = "" if right.place == CLUSTER else right.place
        asked = (right.verb, right.group, right.resource, place)
        rules = [rule for role in self.roles.values() for rule in role["rules"] if right.resource in rule["resources"]]
        named = next((rule["resourceNames"][0] for rule in rules if rule.get("resourceNames")), "")
        until(lambda: rights.may(self.config, *asked, named) is allowed, 10, f"{right}: {allowed}", every=0.05)


def _less(rule: Json, right: Right) -> Iterator[Json]:
    """The rule without the right, in up to two parts."""
    if right.group not in rule["apiGroups"] or right.resource not in rule["resources"]:
        yield rule
        return
    others = [resource for resource in rule["resources"] if resource != right.resource]
    verbs = [verb for verb in rule["verbs"] if verb != right.verb]
    if others:
        yield {**rule, "resources": others}
    if verbs:
        yield {**rule, "resources": [right.resource], "verbs": verbs}


class Way:
    """The way of a node, from the plan to the end, with pods of each kind on it."""

    def __init__(self, lab: Lab, arena: Arena, account: Account) -> None:
        self.lab, self.arena, self.account = lab, arena, account
        self._planned: dict[str, Any] = {}
        self.nodes = arena.nodes(2)
        self.mark = lab.audit_log.stat().st_size
        with arena.placing(self.nodes[0]):
            arena.deployment("single")
            arena.deployment("scaled")
            arena.hpa("scaled", 1, 3)
            arena.workload("ReplicaSet", "set")
            arena.deployment("many", 2, budget={"maxUnavailable": 1})
            arena.deployment("bare", 2, service=False)
            arena.statefulset("ordered", 2, service=False)
            arena.daemonset("agent")
            arena.deployment("shared", 2, pod=arena.claim("ReadWriteMany"), service=False)
        arena.settle()

    def go(self) -> list[str]:
        """What failed, in its words: of the first step that did; then everything is given back with all rights."""
        here = next(node for node in self.nodes if len(self.arena.pods(on=node)) > 1)
        self.mark = self.lab.audit_log.stat().st_size
        mark, run = self.mark, ""
        try:
            found = self._plan(here)
            if found:
                return found
            run = str(self._call(state.SPEC, state="started", input={"n": here}, plan={"waves": [[here]]})["run"])
            return self._steps(here, run)
        except _FailedError as error:
            return error.said
        finally:
            self._give_back(here, run)
            self.mark = mark

    def used(self) -> set[Right]:
        """What the account asked for since the last way began, as rights in the place where it has them."""
        granted = self.account.rights()
        found: set[Right] = set()
        for one in audit.read(self.lab.audit_log, self.mark):
            if one.user != rights.account(NAME):
                continue
            group = one.uri.split("/")[2] if one.uri.startswith("/apis/") else ""
            resource = "/".join(part for part in (one.resource, one.subresource) if part)
            asked = {Right(one.verb, group, resource, place) for place in (CLUSTER, one.namespace)}
            found |= asked & granted
        return found

    def _plan(self, here: str) -> list[str]:
        result = self._planned = self._call(plan.SPEC, nodes=[here], node_conditions=True, announce_events=True)
        return [one["message"] for one in result["findings"] if one["severity"] == "blocker" or _lacks(one)]

    def _steps(self, here: str, run: str) -> list[str]:
        mine: Json = {"nodes": [here], "run": run}
        self._call(cordon.SPEC, state="cordoned", node_conditions=True, reason="ablation", **mine)
        self._call(guard.SPEC, state="present", settle="0s", **mine)
        self._call(drain.SPEC, wait_for=["gone", "replacement", "volumes"], timeout="120s", **mine)
        self._call(cordon.SPEC, state="out", **mine)
        self._call(cordon.SPEC, state="returning", **mine)
        self._call(plan.SPEC, nodes=[here], gates=["ready", "daemonsets"], wait=True, timeout="30s")
        self._call(state.SPEC, state="noted", **mine)
        self._call(guard.SPEC, state="absent", **mine)
        self._call(taint.SPEC, nodes=[here], taints=[{"key": "ablation", "effect": "PreferNoSchedule"}])
        self._call(taint.SPEC, nodes=[here], taints=[{"key": "ablation", "effect": "PreferNoSchedule"}], state="absent")
        self._call(cordon.SPEC, state="uncordoned", **mine)
        self._call(announce.SPEC, moment="ended", events=True, results=[self._planned], run=run)
        self._call(state.SPEC, state="ended", run=run)
        return []

    def _give_back(self, here: str, run: str) -> None:
        admin = str(self.lab.kubeconfig)
        for spec, more in (
            (guard.SPEC, {"state": "absent", "nodes": [here], "run": run}),
            (cordon.SPEC, {"state": "uncordoned", "nodes": [here], "run": run}),
            (state.SPEC, {"state": "ended", "run": run}),
        ):
            if run:
                call(spec, admin, **more)
        self.arena.settle()

    def _call(self, spec: specs.ModuleSpec, **arguments: Any) -> dict[str, Any]:
        with losing_answers():
            result = call(spec, str(self.account.config), **arguments)
        lacking = [one["message"] for one in result.get("findings") or () if _lacks(one)]
        if result["failed"] or lacking:
            nodes = [node.get("message", "") for node in result.get("nodes") or () if node.get("failed")]
            raise _FailedError([result["msg"], *nodes, *lacking])
        return result


class _FailedError(Exception):
    def __init__(self, said: list[str]) -> None:
        super().__init__(" ".join(said))
        self.said = said


@contextlib.contextmanager
def losing_answers() -> Iterator[None]:
    """The first answer to a write of each kind is lost, so what became of it has to be read."""
    send, lost = client.Cluster.send, set[tuple[str, str]]()

    def lossy(cluster: client.Cluster, request: verbs.Request, **how: Any) -> dict[str, Any]:
        answer = send(cluster, request, **how)
        kind = (request.verb, request.resource)
        if request.writes and "eviction" not in request.resource and kind not in lost:
            lost.add(kind)
            raise errors.UnknownOutcome("the answer was lost", request=request)
        return answer

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(client.Cluster, "send", lossy)
        yield


def _lacks(finding: Json) -> bool:
    return finding["code"] in ("missing_permission", "not_checked")


def call(spec: specs.ModuleSpec, kubeconfig: str, **arguments: Any) -> dict[str, Any]:
    """A module's result, in this process."""
    defaults = {name: option.get("default") for name, option in spec.argument_spec.items()}
    return specs.run_call(spec, {**defaults, **arguments, "kubeconfig": kubeconfig}, specs.Call())
