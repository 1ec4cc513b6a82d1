# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause

"""Admission webhooks without which no pod is created (admissionregistration.k8s.io/v1)."""

from __future__ import annotations

import typing as t
from dataclasses import dataclass

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._plan.model import objects, selectors


@dataclass(frozen=True, slots=True)
class Webhook:
    """One that is asked for each new pod that its selectors match, and fails it where ``service`` does not answer.

    ``config`` is the object that it is in. ``conditional``: it has conditions in CEL, which are not evaluated.
    """

    name: str
    config: objects.Ref
    service: tuple[str, str]
    namespaces: objects.Raw
    pods: objects.Raw
    conditional: bool

    def asks_for(self, labels: t.Mapping[str, str], namespace: t.Mapping[str, str]) -> bool:
        """Whether it is asked for a pod with these labels, in a namespace with those."""
        return selectors.matches(self.pods, labels) and selectors.matches(self.namespaces, namespace)


def webhooks(raw: objects.Raw, kind: str) -> list[Webhook]:
    """Those of a configuration that fail closed, are asked for new pods, and are in the cluster."""
    ref = objects.Ref(kind, raw["metadata"]["name"], api_version="admissionregistration.k8s.io/v1")
    found = []
    for one in raw.get("webhooks") or ():
        service = (one.get("clientConfig") or {}).get("service") or {}
        closed = one.get("failurePolicy", "Fail") == "Fail"
        if not closed or not service.get("name") or not any(_creates_pods(rule) for rule in one.get("rules") or ()):
            continue
        found.append(
            Webhook(
                one["name"],
                ref,
                (service.get("namespace", ""), service["name"]),
                one.get("namespaceSelector") or {},
                one.get("objectSelector") or {},
                bool(one.get("matchConditions")),
            )
        )
    return found


def _creates_pods(rule: objects.Raw) -> bool:
    wanted = (("apiGroups", {"", "*"}), ("apiVersions", {"v1", "*"}), ("operations", {"CREATE", "*"}))
    inside = all(words.intersection(rule.get(key) or ()) for key, words in wanted)
    resources = {"pods", "*", "*/*"}.intersection(rule.get("resources") or ())
    return inside and bool(resources) and rule.get("scope", "*") in ("*", "Namespaced")
