# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Which permissions a run needs, so that a missing one is reported before the first write."""

from __future__ import annotations

import re
import shlex
import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import roles
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    snapshots,
)
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.drain import unreachable
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.hooks import hook_definitions
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.messages import reasons
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.pods import drain_policy


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
    def words(self) -> str:
        """As RBAC writes it: ``patch deployments.apps/scale``."""
        plural, slash, subresource = self.resource.partition("/")
        return f"{self.verb} {plural}{'.' + self.group if self.group else ''}{slash}{subresource}"


KOORDINATOR = "scheduling.koordinator.sh"
COORDINATION = "coordination.k8s.io"
KEEP = "list get create patch delete"
"""Verbs for the objects that the collection keeps in its own namespace,
and for the locks of nodes.
"""
PLURALS: t.Mapping[str, tuple[str, str]] = {
    "Deployment": ("apps", "deployments"),
    "ReplicaSet": ("apps", "replicasets"),
    "Rollout": ("argoproj.io", "rollouts"),
    "CloneSet": ("apps.kruise.io", "clonesets"),
}


def _all(verbs: str, group: str, resources: str, namespaces: tuple[str, ...] = ()) -> list[Need]:
    """Each of the verbs on each of the resources; both are lists with spaces in between."""
    return [
        Need(verb, group, resource, namespaces)
        for resource in resources.split()
        for verb in verbs.split()
    ]


READS = (
    *_all("list", "", "nodes pods persistentvolumeclaims persistentvolumes"),
    *_all("list", "policy", "poddisruptionbudgets"),
    *_all("list", "apps", "deployments replicasets statefulsets daemonsets"),
    *_all("list", "autoscaling", "horizontalpodautoscalers"),
)
"""What a plan may have to list; checked only after one of the lists was refused."""


def needs(
    snapshot: snapshots.Snapshot,
    plans: t.Sequence[drain_policy.PodPlan],
    choices: drain_policy.DrainPolicy,
    *,
    namespace_missing: bool,
    locks: str = names.NAMESPACE,
    conditions: bool = False,
) -> tuple[Need, ...]:
    """What cordoning, draining and giving back these pods' nodes needs,
    apart from the lists that a plan reads.

    ``locks`` is the namespace of the nodes' leases; ``conditions``:
    the nodes' conditions are set, too.
    """
    moved = [plan for plan in plans if plan.route in ("evict", "swap", "replace", "job")]
    swapped = [plan for plan in moved if plan.route == "swap"]
    guarded = [plan for plan in moved if plan.guarded]
    found = [
        *_all("get watch patch", "", "nodes"),
        *_all("get", "", "namespaces"),
        *_all("watch", "", "pods"),
        *_all("list watch", "apps", "daemonsets"),
        *_all("watch", "policy", "poddisruptionbudgets"),
        *_all("list watch", "discovery.k8s.io", "endpointslices"),
        *_all(KEEP, COORDINATION, "leases", (locks,)),
        *_all(KEEP, "", "configmaps", (names.NAMESPACE,)),
    ]
    if conditions:
        found += _all("patch", "", "nodes/status")
    if namespace_missing:
        found += _all("create", "", "namespaces")
    fenced = any(plan.code == unreachable.FENCED for plan in plans)
    if fenced:
        found += _all("list", COORDINATION, "leases", (unreachable.LEASES,))
    if fenced or any(plan.pod.claims for plan in moved):
        found += _all("list", "storage.k8s.io", "volumeattachments")
    found += _for_evictions(moved, choices)
    if any(plan.route == "job" for plan in moved):
        found += _all(f"watch {KEEP}", KOORDINATOR, "podmigrationjobs")
        found += _all("patch", KOORDINATOR, "podmigrationjobs/status")
        found += _all("list get delete", KOORDINATOR, "reservations")
    owners = {plan.pod.owner.kind for plan in moved if plan.pod.owner}
    if "ReplicaSet" in owners:
        found += _all("watch", "apps", "deployments replicasets")
    if "StatefulSet" in owners:
        found += _all("watch", "apps", "statefulsets")
    if guarded:
        found += _all(
            "get create patch delete", "policy", "poddisruptionbudgets", _namespaces(guarded)
        )
    found += _for_replacements([plan for plan in moved if plan.route == "replace"])
    if swapped:
        # A leaving pod that turns NotReady is evicted after all.
        found += _all("create", "", "pods/eviction", _namespaces(swapped))
        found += _for_swaps(snapshot, swapped)
    return tuple(dict.fromkeys(found))


def for_hooks(
    plans: t.Sequence[drain_policy.PodPlan], rules: t.Sequence[hook_definitions.Rule]
) -> tuple[Need, ...]:
    """What the handshakes of these pods' hooks need, which announce the maintenance on the pods."""
    asked = [rule for rule in rules if rule.action == "annotation"]
    announced = [plan for plan in plans if hook_definitions.before(asked, plan)]
    return tuple(_all("get patch", "", "pods", _namespaces(announced))) if announced else ()


def for_events(plans: t.Sequence[drain_policy.PodPlan]) -> tuple[Need, ...]:
    """What Events about the nodes and about these pods' workloads need;
    those about nodes are in ``default``.
    """
    concerned = _namespaces(plan for plan in plans if plan.route != "skip" and plan.pod.owner)
    return tuple(
        _all("get create", "events.k8s.io", "events", tuple(dict.fromkeys(("default", *concerned))))
    )


def _for_evictions(
    moved: list[drain_policy.PodPlan], choices: drain_policy.DrainPolicy
) -> list[Need]:
    found: list[Need] = []
    if any(plan.route == "evict" and plan.pod.responders for plan in moved):
        found += _all("list", "lifecycle.k8s.io", "evictionrequests")
    evicted = any(plan.route == "evict" or plan.guarded for plan in moved)
    if choices.fallback == "eviction" or choices.backend == "auto":
        # A pod whose job comes to nothing is evicted after all.
        evicted = evicted or any(plan.route == "job" for plan in moved)
    if evicted and choices.disable_eviction:
        found += _all("delete", "", "pods", _namespaces(moved))
    elif evicted:
        found += _all("create", "", "pods/eviction", _namespaces(moved))
    return found


def _for_replacements(replaced: list[drain_policy.PodPlan]) -> list[Need]:
    if not replaced:
        return []
    places = _namespaces(replaced)
    found = [*_all("get patch", "", "pods", places), *_all("create", "", "pods/eviction", places)]
    return [*found, *_all("watch", "apps", "deployments replicasets")]


def _for_swaps(snapshot: snapshots.Snapshot, swapped: list[drain_policy.PodPlan]) -> list[Need]:
    # A write whose answer was lost is read before it is repeated,
    # so whatever is patched needs get as well.
    found = _all("get patch", "", "pods", _namespaces(swapped))
    found += _all(f"watch {KEEP}", COORDINATION, "leases", (names.NAMESPACE,))
    found += _all("watch", "apps", "deployments replicasets")
    scaled: dict[str, list[drain_policy.PodPlan]] = {}
    for plan in swapped:
        if workload := snapshot.workload_of(plan.pod):
            scaled.setdefault(workload.kind, []).append(plan)
    for kind, group in scaled.items():
        if kind in PLURALS:
            api_group, plural = PLURALS[kind]
            found += _all("get", api_group, plural, _namespaces(group))
            found += _all("patch", api_group, f"{plural}/scale", _namespaces(group))
    return found


def of_steps(steps: t.Iterable[str], namespaces: tuple[str, ...]) -> tuple[Need, ...]:
    """What these steps need, of add-ons only where a step is for one;
    ``namespaces`` are those of the pods that move.

    Where none are known, what may be granted in some of them only is asked for the whole cluster.
    """
    found: list[Need] = []
    for role in (roles.BY_STEP[step] for step in steps):
        named = (
            namespaces
            if role.places in ("workloads", "announced")
            else tuple(roles.BOUND_IN.get(role.places, "").split())
        )
        if role.places == "locks":
            named = (names.NAMESPACE,)
        for rule in role.rules:
            added = rule.group in roles.ADD_ONS and role.step in roles.MAINTAIN
            if not (added or rule.named):
                found += _all(rule.verbs, rule.group, rule.resources, named)
    return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True)
class Lack:
    """A need that is refused in these namespaces; none: in the whole cluster."""

    need: Need
    refused: tuple[str, ...] = ()


def missing(lacks: t.Iterable[Lack], user: str) -> list[reasons.Finding]:
    """A finding for each role that ``user`` lacks, with the command that grants it,
    and for what no role allows.
    """
    by_role: dict[str, list[Lack]] = {}
    lacks = list(lacks)
    alone = {steps[0] for lack in lacks if len(steps := _steps(lack)) == 1}
    for lack in lacks:
        step = _step(lack, alone)
        by_role.setdefault(roles.BY_STEP[step].name if step else lack.need.words, []).append(lack)
    return [_missing(about, group, user) for about, group in by_role.items()]


def _missing(about: str, group: t.Sequence[Lack], user: str) -> reasons.Finding:
    message = f"These credentials may not {_told(group)}."
    if role := next((role for role in roles.ROLES if role.name == about), None):
        remedy = (
            "Grant the role, which the playbook access and rights.yml have: "
            f"{_grant(role, group, user)}"
        )
        return reasons.Finding(
            "missing_permission", message, remedy, "blocker", f"ClusterRole {about}"
        )
    verb, _space, resource = about.partition(" ")
    remedy = f"Grant the verb {verb} on {resource} in a role that is bound to their user."
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
        kind, subject = "serviceaccount", user.removeprefix("system:serviceaccount:")
        name = subject
    binding = f"{role.name}-{re.sub(r'[^A-Za-z0-9.-]+', '-', name)}"
    to = f"{shlex.quote(binding)} --clusterrole={role.name} {shlex.quote(f'--{kind}={subject}')}"
    if role.everywhere:
        return f"kubectl create clusterrolebinding {to}"
    places = {place for lack in group for place in lack.refused} or _bound_in(role)
    return "; ".join(f"kubectl -n {place} create rolebinding {to}" for place in sorted(places))


def _told(group: t.Iterable[Lack]) -> str:
    """Verbs and resources where they are refused: ``list, watch nodes;
    patch pods in the whole cluster``.
    """
    places: dict[str, dict[str, list[str]]] = {}
    for lack in group:
        where = (
            f"in namespace {', '.join(lack.refused)}" if lack.refused else "in the whole cluster"
        )
        places.setdefault(where, {}).setdefault(lack.need.words.partition(" ")[2], []).append(
            lack.need.verb
        )
    told = []
    for where, verbs_of in places.items():
        alike: dict[str, list[str]] = {}
        for resource, verbs in verbs_of.items():
            alike.setdefault(", ".join(verbs), []).append(resource)
        told.append(
            "; ".join(f"{verbs} {', '.join(found)}" for verbs, found in alike.items()) + f" {where}"
        )
    return ", nor ".join(told)


def _namespaces(plans: t.Iterable[drain_policy.PodPlan]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(plan.pod.namespace for plan in plans))
