# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Refusals with exactly the bodies that kube-apiserver 1.36 sends."""

from __future__ import annotations

import typing as t

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.kinds import Kind
from ansible_collections.kubeops.node_maintenance.tests.unit.simulator.store import Raw

SPENT = "Cannot evict pod as it would violate the pod's disruption budget."


class Refused(Exception):
    """An answer of 300 and above: its status, its body (text where it is no Status), its headers."""

    def __init__(self, code: int, body: Raw | str, headers: t.Mapping[str, str] | None = None) -> None:
        super().__init__(f"{code} {body if isinstance(body, str) else body.get('message')}")
        self.code, self.body, self.headers = code, body, dict(headers or {})

    @property
    def reason(self) -> str:
        return "" if isinstance(self.body, str) else str(self.body.get("reason", ""))


def status(code: int, reason: str, message: str, **details: t.Any) -> Raw:
    """A Status of kind Failure."""
    body: Raw = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "code": code,
    }
    if reason:
        body["reason"] = reason
    if details:
        body["details"] = details
    return body


def refused(code: int, reason: str, message: str, **details: t.Any) -> Refused:
    seconds = details.get("retryAfterSeconds")
    return Refused(code, status(code, reason, message, **details), {"Retry-After": str(seconds)} if seconds else {})


def _about(kind: Kind, name: str) -> Raw:
    about: Raw = {"name": name, "kind": kind.plural}
    if kind.group:
        about["group"] = kind.group
    return about


def done(kind: Kind, raw: Raw) -> Raw:
    """What a finished DELETE answers for most kinds."""
    meta = raw["metadata"]
    about = {**_about(kind, meta["name"]), "uid": meta["uid"]}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": about}


def not_found(kind: Kind, name: str) -> Refused:
    return refused(404, "NotFound", f'{kind.resource} "{name}" not found', **_about(kind, name))


def no_such_path() -> Refused:
    return Refused(404, "404 page not found\n", {"Content-Type": "text/plain; charset=utf-8"})


def of_a_balancer(code: int) -> Refused:
    """What nginx says, for one, where it knows no upstream for a path or has been told to say so."""
    return Refused(code, f"<html><head><title>{code}</title></head></html>\n", {"Content-Type": "text/html"})


def exists(kind: Kind, name: str) -> Refused:
    return refused(409, "AlreadyExists", f'{kind.resource} "{name}" already exists', **_about(kind, name))


def modified(kind: Kind, name: str) -> Refused:
    message = (
        f'Operation cannot be fulfilled on {kind.resource} "{name}": the object has been modified; '
        "please apply your changes to the latest version and try again"
    )
    return refused(409, "Conflict", message, **_about(kind, name))


def immutable_uid(kind: Kind, name: str, given: str) -> Refused:
    """Another UID in a patch or update is no precondition but a wrong value; the server says so twice."""
    refusal = invalid(kind, name, "metadata.uid", f'Invalid value: "{given}": field is immutable')
    t.cast("Raw", refusal.body)["details"]["causes"] *= 2
    return refusal


def _precondition(kind: Kind, name: str, said: str) -> Refused:
    typed = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    message = f'Operation cannot be fulfilled on {typed} "{name}": {said}'
    about: Raw = {"name": name, "kind": kind.kind}
    if kind.group:
        about["group"] = kind.group
    return refused(409, "Conflict", message, **about)


def other_uid(kind: Kind, name: str, given: str, is_: str) -> Refused:
    said = (
        f"the UID in the precondition ({given}) does not match the UID in record ({is_}). "
        "The object might have been deleted and then recreated"
    )
    return _precondition(kind, name, said)


def other_version(kind: Kind, name: str, given: str, is_: str) -> Refused:
    said = (
        f"the ResourceVersion in the precondition ({given}) does not match the ResourceVersion in record ({is_}). "
        "The object might have been modified"
    )
    return _precondition(kind, name, said)


def invalid(kind: Kind, name: str, field: str, said: str) -> Refused:
    about: Raw = {"name": name, "kind": kind.kind}
    if kind.group:
        about["group"] = kind.group
    typed = f"{kind.kind}.{kind.group}" if kind.group else kind.kind
    causes = [{"reason": "FieldValueInvalid", "message": said, "field": field}]
    return refused(422, "Invalid", f'{typed} "{name}" is invalid: {field}: {said}', **about, causes=causes)


def no_watch_lists() -> Refused:
    """Before Kubernetes 1.27, and where WatchList is off."""
    field = "sendInitialEvents"
    said = f"{field} is forbidden for watch unless the WatchList feature gate is enabled"
    causes = [{"reason": "FieldValueForbidden", "message": f"Forbidden: {said}", "field": field}]
    about: Raw = {"group": "meta.k8s.io", "kind": "ListOptions"}
    message = f'ListOptions.meta.k8s.io "" is invalid: {field}: Forbidden: {said}'
    return refused(422, "Invalid", message, **about, causes=causes)


def terminating(kind: Kind, name: str, namespace: str) -> Refused:
    said = f"namespace {namespace} is being terminated"
    causes = [{"reason": "NamespaceTerminating", "message": said, "field": "metadata.namespace"}]
    message = (
        f'{kind.resource} "{name}" is forbidden: unable to create new content in namespace {namespace} '
        "because it is being terminated"
    )
    return refused(403, "Forbidden", message, **_about(kind, name), causes=causes)


def forbidden(verb: str, kind: Kind, subresource: str, namespace: str, name: str) -> Refused:
    what = f"{kind.plural}/{subresource}" if subresource else kind.plural
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    whom = f'{kind.resource} "{name}" is' if name else f"{kind.resource} is"
    message = f'{whom} forbidden: User "somebody" cannot {verb} resource "{what}" in API group "{kind.group}" {where}'
    return refused(403, "Forbidden", message, **_about(kind, name))


def budget_spent(name: str, needs: int, has: int, told: Raw | None = None) -> Refused:
    """`told` is the budget's condition where that is not True and has a message."""
    said = f"The disruption budget {name} does not allow evicting pods currently"
    if told and told["reason"] == "SyncFailed":
        said += f" because it failed sync: {told['message']}"
    elif has <= needs:
        said = f"The disruption budget {name} needs {needs} healthy pods and has {has} currently"
    elif told:
        said += f" ({told['reason']}): {told['message']}"
    return refused(429, "TooManyRequests", SPENT, causes=[{"reason": "DisruptionBudget", "message": said}])


def budget_behind(name: str) -> Refused:
    said = f"The disruption budget {name} is still being processed by the server."
    causes = [{"reason": "DisruptionBudget", "message": said}]
    return refused(429, "TooManyRequests", SPENT, causes=causes, retryAfterSeconds=10)


def budget_unconfirmed(name: str) -> Refused:
    """As kube-apiserver 1.37 says it; 1.36 gives no causes."""
    why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
    said = f"The disruption budget {name} does not allow evicting pods currently: "
    causes = [
        {
            "reason": "DisruptionBudget",
            "message": said + "too many pending evictions not confirmed by PDB controller",
        }
    ]
    about = {"name": name, "group": "policy", "kind": "poddisruptionbudget", "causes": causes}
    return refused(403, "Forbidden", f'poddisruptionbudget.policy "{name}" is forbidden: {why}', **about)


def two_budgets() -> Refused:
    said = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
    return refused(500, "", said)


def denied_by_webhook() -> Refused:
    return refused(400, "", 'admission webhook "deny.example.org" denied the request without explanation')


def denied_by_policy(pod: str, policy: str) -> Refused:
    """A policy that says `reason: Forbidden`."""
    said = f"ValidatingAdmissionPolicy '{policy}' with binding '{policy}' denied request: simulated"
    about = {"name": pod, "kind": "pods", "causes": [{"message": said}]}
    return refused(403, "Forbidden", f'pods "{pod}" is forbidden: {said}', **about)


def too_old(asked: int, known: int) -> Refused:
    return refused(410, "Expired", f"too old resource version: {asked} ({known})")


def overloaded(seconds: int | None) -> Refused:
    headers = {"Content-Type": "text/plain; charset=utf-8"} | ({"Retry-After": str(seconds)} if seconds else {})
    return Refused(429, "Too many requests, please try again later.\n", headers)


def unavailable() -> Refused:
    return refused(503, "ServiceUnavailable", "the server is currently unable to handle the request")


def internal() -> Refused:
    causes = [{"message": "simulated"}]
    return refused(500, "InternalError", "Internal error occurred: simulated", causes=causes)


def storage_failed() -> Refused:
    return refused(500, "", "etcdserver: request timed out")
