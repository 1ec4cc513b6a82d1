# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Webhooks and policies that decide on requests (admissionregistration.k8s.io/v1):
on new pods, and on any others.
"""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.cluster import (
    names,
    objects,
    selectors,
)


@dataclass(frozen=True, slots=True)
class Webhook:
    """One that is asked for each new pod that its selectors match,
    and fails it where ``service`` does not answer.

    ``config`` is the object that it is in. ``conditional``: it has conditions in CEL,
    which are not evaluated.
    """

    name: str
    config: objects.Ref
    service: tuple[str, str]
    namespaces: objects.Raw
    pods: objects.Raw
    conditional: bool

    def asks_for(self, labels: t.Mapping[str, str], namespace: t.Mapping[str, str]) -> bool:
        """Whether it is asked for a pod with these labels, in a namespace with those."""
        return selectors.matches(self.pods, labels) and selectors.matches(
            self.namespaces, namespace
        )


@dataclass(frozen=True, slots=True)
class Judge:
    """A webhook, or the ValidatingAdmissionPolicies of one object,
    that may refuse requests by ``rules``.

    Only these and the selector of namespaces are looked at.
    """

    rules: tuple[objects.Raw, ...]
    namespaces: objects.Raw

    def judges(
        self, group: str, resource: str, operation: str, namespace: t.Mapping[str, str] | None
    ) -> bool:
        """Whether it may be asked about requests for a resource (``pods/eviction``).

        ``namespace`` are the labels of the namespace that they are in, ``None`` if unknown.
        """
        asked = any(_covers(rule, group, resource, operation) for rule in self.rules)
        return asked and (namespace is None or selectors.matches(self.namespaces, namespace))


def judges(raw: objects.Raw) -> list[Judge]:
    """The judges in a webhook configuration or a policy; none for our own fence."""
    if raw["metadata"]["name"] == names.FENCE_POLICY:
        return []
    policy = (raw.get("spec") or {}).get("matchConstraints")
    hooks: t.Sequence[objects.Raw] = raw.get("webhooks") or ()
    found = ((one.get("rules"), one.get("namespaceSelector")) for one in hooks)
    of_policy = ((policy.get("resourceRules"), policy.get("namespaceSelector")),) if policy else ()
    return [Judge(tuple(rules or ()), spaces or {}) for rules, spaces in (*found, *of_policy)]


def webhooks(raw: objects.Raw, kind: str) -> list[Webhook]:
    """The webhooks of a configuration that fail closed, judge new pods and run in the cluster."""
    ref = objects.Ref(kind, raw["metadata"]["name"], api_version="admissionregistration.k8s.io/v1")
    found = []
    for one in raw.get("webhooks") or ():
        service = (one.get("clientConfig") or {}).get("service") or {}
        closed = one.get("failurePolicy", "Fail") == "Fail"
        if (
            not closed
            or not service.get("name")
            or not any(_creates_pods(rule) for rule in one.get("rules") or ())
        ):
            continue
        found.append(
            Webhook(
                one["name"],
                config=ref,
                service=(service.get("namespace", ""), service["name"]),
                namespaces=one.get("namespaceSelector") or {},
                pods=one.get("objectSelector") or {},
                conditional=bool(one.get("matchConditions")),
            )
        )
    return found


def _creates_pods(rule: objects.Raw) -> bool:
    version = {"v1", "*"}.intersection(rule.get("apiVersions") or ())
    return bool(version) and _covers(rule, "", "pods", "CREATE")


def _covers(rule: objects.Raw, group: str, resource: str, operation: str) -> bool:
    """Whether it is about such requests in namespaces; with an equivalent version it may be."""
    plural, slash, subresource = resource.partition("/")
    meant = (
        {resource, f"{plural}/*", f"*/{subresource}", "*/*"} if slash else {resource, "*", "*/*"}
    )
    wanted = (("apiGroups", {group, "*"}), ("operations", {operation, "*"}), ("resources", meant))
    inside = all(words.intersection(rule.get(key) or ()) for key, words in wanted)
    return inside and rule.get("scope", "*") in ("*", "Namespaced")
