# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Permissions that the steps of a call need, and what to say of those that are missing."""

from __future__ import annotations

import itertools
import re
import shlex
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import roles
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import names
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons


@dataclass(frozen=True, slots=True)
class Need:
    """One verb on one resource, a plural with its subresource (``pods/eviction``).

    It has to be allowed in each of the ``namespaces``, or in the whole cluster if there are none.
    """

    verb: str
    group: str
    resource: str
    namespaces: tuple[str, ...] = ()

    @property
    def place(self) -> str:
        """The resource as RBAC writes it: ``deployments.apps/scale``."""
        plural, slash, subresource = self.resource.partition("/")
        return f"{plural}{'.' + self.group if self.group else ''}{slash}{subresource}"

    @property
    def words(self) -> str:
        """Verb and resource."""
        return f"{self.verb} {self.place}"


def rights(verbs: str, group: str, resources: str, namespaces: tuple[str, ...] = ()) -> list[Need]:
    """Each of the verbs on each of the resources; both are lists with spaces in between."""
    needs = []
    for resource in resources.split():
        needs += [Need(verb, group, resource, namespaces) for verb in verbs.split()]
    return needs


def of_steps(steps: t.Iterable[str], namespaces: tuple[str, ...]) -> tuple[Need, ...]:
    """What these steps need, of add-ons only where a step is for one;
    ``namespaces`` are those of the pods that move.

    Where none are known, what may be granted in some of them only is asked for the whole cluster.
    """
    found: list[Need] = []
    for role in (roles.BY_STEP[step] for step in steps):
        if role.places in ("workloads", "announced"):
            named = namespaces
        elif role.places == "locks":
            named = (names.NAMESPACE,)
        else:
            named = tuple(roles.BOUND_IN.get(role.places, "").split())
        for rule in role.rules:
            added = rule.group in roles.ADD_ONS and role.step in roles.MAINTAIN
            if not (added or rule.named):
                found += rights(rule.verbs, rule.group, rule.resources, named)
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Lack:
    """A need that is refused in these namespaces; none: in the whole cluster."""

    need: Need
    refused: tuple[str, ...] = ()


def missing(lacks: t.Iterable[Lack], user: str) -> list[reasons.Finding]:
    """A finding for each role that ``user`` lacks, with its command, and for what none allows."""
    by_role: dict[str, list[Lack]] = {}
    lacks = list(lacks)
    all_steps = map(_steps, lacks)
    alone = {steps[0] for steps in all_steps if len(steps) == 1}
    for lack in lacks:
        step = _step(lack, alone)
        by_role.setdefault(roles.BY_STEP[step].name if step else lack.need.words, []).append(lack)
    return [_missing(about, group, user) for about, group in by_role.items()]


def _missing(about: str, group: t.Sequence[Lack], user: str) -> reasons.Finding:
    message = f"These credentials may not {_in_words(group)}."
    if role := next((role for role in roles.ROLES if role.name == about), None):
        remedy = (
            "Grant the role, which the playbook access and rights.yml have: "
            f"{_grant(role, group, user)}"
        )
        return reasons.Finding(
            "missing_permission", message, remedy, "blocker", f"ClusterRole {about}"
        )
    need = group[0].need
    remedy = f"Grant the verb {need.verb} on {need.place} in a role that is bound to their user."
    return reasons.Finding("missing_permission", message, remedy, "blocker", about)


def _steps(lack: Lack) -> list[str]:
    return roles.steps_with(lack.need.verb, lack.need.group, lack.need.resource)


def _step(lack: Lack, others: t.Container[str]) -> str:
    """The step whose role allows it, best one that is bound where it is refused and that
    every maintenance needs.

    A pod is patched by more than one: where ``others``, which are lacking anyway,
    do not allow it, the least will do.
    """

    def rank(step: str) -> tuple[bool, bool, bool, int]:
        role = roles.BY_STEP[step]
        there = role.everywhere or role.places == "descheduler"
        nowhere = not there and not set(lack.refused) <= _bound_in(role)
        return (
            nowhere,
            step not in (*roles.MAINTAIN, "replace"),
            step not in others,
            len(role.rules),
        )

    return min(_steps(lack), key=rank, default="")


def _bound_in(role: roles.Role) -> set[str]:
    return set(roles.BOUND_IN.get(role.places, "").split())


def _grant(role: roles.Role, group: t.Iterable[Lack], user: str) -> str:
    """The command of an administrator that binds the role to the user where it is lacking."""
    name, kind, subject = user, "user", user
    if user.startswith("system:serviceaccount:"):
        kind = "serviceaccount"
        subject = user.removeprefix("system:serviceaccount:")
        name = subject
    binding = f"{role.name}-{re.sub(r'[^A-Za-z0-9.-]+', '-', name)}"
    to = f"{shlex.quote(binding)} --clusterrole={role.name} {shlex.quote(f'--{kind}={subject}')}"
    if role.everywhere:
        return f"kubectl create clusterrolebinding {to}"
    places = set(itertools.chain.from_iterable(lack.refused for lack in group)) or _bound_in(role)
    return "; ".join(f"kubectl -n {place} create rolebinding {to}" for place in sorted(places))


def _in_words(group: t.Iterable[Lack]) -> str:
    """Verbs and resources by place: ``list, watch nodes; patch pods in the whole cluster``."""
    places: dict[str, dict[str, list[str]]] = {}
    for lack in group:
        where = (
            f"in namespace {', '.join(lack.refused)}" if lack.refused else "in the whole cluster"
        )
        places.setdefault(where, {}).setdefault(lack.need.place, []).append(lack.need.verb)
    parts = []
    for where, verbs_of in places.items():
        alike: dict[str, list[str]] = {}
        for resource, verbs in verbs_of.items():
            alike.setdefault(", ".join(verbs), []).append(resource)
        parts.append(
            "; ".join(f"{verbs} {', '.join(found)}" for verbs, found in alike.items()) + f" {where}"
        )
    return ", nor ".join(parts)
