# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""An account with the roles of some steps, of which one verb at a time is taken away."""

from __future__ import annotations

import contextlib
import copy
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import yaml
from witness import audit
from witness.log import Json

from support import rights
from support.lab import Lab
from support.waiting import until

CLUSTER = "*"
HOME = "default"
"""The namespace of the accounts: one that no step is about."""
OWN = "rbac.authorization.k8s.io"


class Right(NamedTuple):
    """One verb on one resource in the role of a step."""

    step: str
    verb: str
    group: str
    resource: str

    @property
    def words(self) -> str:
        """As messages have it: ``patch deployments.apps/scale``."""
        plural, slash, subresource = self.resource.partition("/")
        return f"{self.verb} {plural}{'.' + self.group if self.group else ''}{slash}{subresource}"

    def named_in(self, said: str) -> bool:
        """Also as one of several verbs: ``may not list, get leases.coordination.k8s.io``."""
        resource = re.escape(self.words.partition(" ")[2])
        return re.search(rf"\b{self.verb}\b(, \w+)* {resource}[ :,.)]", f"{said} ") is not None


def granted(step: str) -> list[Right]:
    """All rights of a step's role, in the order of the file."""
    return [
        Right(step, verb, group, resource)
        for rule in rights.roles()[step]["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


class Account:
    """A ServiceAccount with copies of the roles of these steps, which nobody else uses, each bound where it belongs.

    ``everywhere`` are steps that are bound in the whole cluster though they belong in namespaces; ``lacks`` are the
    resources that no role of it has.
    """

    def __init__(
        self,
        lab: Lab,
        folder: Path,
        name: str,
        steps: Sequence[str],
        everywhere: Sequence[str] = (),
        lacks: Sequence[str] = (),
    ) -> None:
        self.lab, self.api, self.name, self.steps = lab, lab.api, f"ablated-{name}", tuple(steps)
        self.everywhere = frozenset(everywhere)
        self._mark = lab.audit_log.stat().st_size
        kept = {step: rights.roles()[step]["rules"] for step in steps}
        self.roles = {
            step: [copy.deepcopy(rule) for rule in rules if not set(lacks) & {*rule["resources"]}]
            for step, rules in kept.items()
        }
        accounts = f"/api/v1/namespaces/{HOME}/serviceaccounts"
        rights.made(self.api, accounts, {"metadata": {"name": self.name}})
        for step, rules in self.roles.items():
            rights.made(self.api, f"{rights.RBAC}/clusterroles", {"metadata": self._meta(step), "rules": rules})
            for base in self._bases(step):
                rights.made(self.api, base, self._binding(step))
        self.config = folder / f"{self.name}.kubeconfig"
        self.config.write_text(self._kubeconfig(accounts), encoding="utf-8")
        self._await(granted(steps[0])[0], True)

    @property
    def user(self) -> str:
        """As the audit log calls it."""
        return f"system:serviceaccount:{HOME}:{self.name}"

    def _meta(self, step: str) -> Json:
        return {"name": f"{self.name}-{step}"}

    def _binding(self, step: str) -> Json:
        reference = {"apiGroup": OWN, "kind": "ClusterRole", "name": f"{self.name}-{step}"}
        subject = {"kind": "ServiceAccount", "name": self.name, "namespace": HOME}
        return {"metadata": self._meta(step), "roleRef": reference, "subjects": [subject]}

    def _kubeconfig(self, accounts: str) -> str:
        asked = {"spec": {"expirationSeconds": rights.SECONDS}}
        token = self.api.create(f"{accounts}/{self.name}/token", asked)["status"]["token"]
        config = yaml.safe_load(self.api.kubeconfig.read_text(encoding="utf-8"))
        for entry in config["users"]:
            entry["user"] = {"token": token}
        return yaml.safe_dump(config)

    def places(self, step: str) -> list[str]:
        """Where the role of a step is bound: the namespaces, of those that are there, or the whole cluster."""
        if step in self.everywhere:
            return [CLUSTER]
        found = str(rights.roles()[step]["metadata"]["annotations"][rights.BIND_IN]).split()
        return [place for place in found if place == CLUSTER or self.api.find(f"/api/v1/namespaces/{place}")]

    def _bases(self, step: str) -> list[str]:
        return [
            f"{rights.RBAC}/clusterrolebindings"
            if place == CLUSTER
            else f"{rights.RBAC}/namespaces/{place}/rolebindings"
            for place in self.places(step)
        ]

    def used(self) -> set[Right]:
        """Rights of its roles that it has made use of, by the audit log."""
        asked = {
            (
                one.verb,
                one.uri.split("/")[2] if one.uri.startswith("/apis/") else "",
                "/".join(part for part in (one.resource, one.subresource) if part),
            )
            for one in audit.read(self.lab.audit_log, self._mark)
            if one.user == self.user
        }
        return {right for right in self.rights() if right[1:] in asked}

    def rights(self) -> list[Right]:
        """All of its roles, in the order of the file."""
        return [
            right for step in self.steps for right in granted(step) if any(_has(x, right) for x in self.roles[step])
        ]

    @contextlib.contextmanager
    def without(self, right: Right) -> Iterator[None]:
        """The role of the right's step lacks it for a while, and the API server knows."""
        path = f"{rights.RBAC}/clusterroles/{self.name}-{right.step}"
        self.api.patch(path, {"rules": [part for rule in self.roles[right.step] for part in _less(rule, right)]})
        try:
            self._await(right, self.twice(right))
            yield
        finally:
            self.api.patch(path, {"rules": self.roles[right.step]})
            self._await(right, True)

    def twice(self, right: Right) -> bool:
        """Whether another of its roles has the same, there or in the whole cluster."""
        place = self.places(right.step)[0]
        others = [one for one in self.steps if one != right.step and {place, CLUSTER} & {*self.places(one)}]
        return any(other[1:] == right[1:] for step in others for other in granted(step))

    def _await(self, right: Right, allowed: bool) -> None:
        place = self.places(right.step)[0].removesuffix(CLUSTER)
        named = next((name for rule in self.roles[right.step] if _has(rule, right) for name in _names(rule)), "")
        asked = (self.config, *right[1:], place, named)
        until(lambda: rights.may(*asked) is allowed, 10, f"{right}: {allowed}", every=0.02)

    def end(self) -> None:
        """Takes the account, its roles and bindings away."""
        for step in self.steps:
            for base in self._bases(step):
                self.api.delete(f"{base}/{self.name}-{step}")
            self.api.delete(f"{rights.RBAC}/clusterroles/{self.name}-{step}")
        self.api.delete(f"/api/v1/namespaces/{HOME}/serviceaccounts/{self.name}")


def _names(rule: Json) -> list[str]:
    return list(rule.get("resourceNames") or ())


def _has(rule: Json, right: Right) -> bool:
    return right.group in rule["apiGroups"] and right.resource in rule["resources"] and right.verb in rule["verbs"]


def _less(rule: Json, right: Right) -> Iterator[Json]:
    """The rule without the right, in up to two parts."""
    if not _has(rule, right):
        yield rule
        return
    others = [resource for resource in rule["resources"] if resource != right.resource]
    verbs = [verb for verb in rule["verbs"] if verb != right.verb]
    if others:
        yield {**rule, "resources": others}
    if verbs:
        yield {**rule, "resources": [right.resource], "verbs": verbs}
