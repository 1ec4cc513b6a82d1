# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""What can go wrong between us and an API server, as one tree of types.

An answer is classed by its HTTP status and by the fields of its `Status` body (code, reason,
causes, retryAfterSeconds). Message text decides only where the server sends no such field: a denial by
a webhook or an admission policy, a quota's, and two budgets on one pod (all read in kube-apiserver 1.36
and recorded in tests/unit/cluster).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ansible_collections.kubeops.node_maintenance.plugins.module_utils._cluster import verbs

_LONGEST = 600
_DENIED = re.compile(
    r"admission webhook \".+\" denied the request|AdmissionPolicy '.+' with binding '.+' denied request"
)
# Authorization names the user; what else forbids an object by its name is admission, once it is ready.
_RULE = re.compile(r" is forbidden: (?!User |not yet ready)")


@dataclass(frozen=True, slots=True)
class Cause:
    """One of `details.causes`: a machine word, its message, and the field it is about."""

    reason: str = ""
    message: str = ""
    field: str = ""


class ClusterError(Exception):
    """A request that failed. `status` is 0 when no answer came; `retry_after` is in seconds.

    `str()` names what was asked, what rule stands against it, what the server said, and the remedy.
    """

    rule: ClassVar[str] = "the request failed"
    remedy: ClassVar[str] = ""

    def __init__(
        self,
        message: str,
        *,
        request: verbs.Request | None = None,
        status: int = 0,
        reason: str = "",
        causes: tuple[Cause, ...] = (),
        retry_after: float | None = None,
        remedy: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.request = request
        self.status = status
        self.reason = reason
        self.causes = causes
        self.retry_after = retry_after
        self.advice = remedy or self.remedy

    def __str__(self) -> str:
        asked = ""
        if self.request is not None:
            words = (self.request.verb, self.request.resource, self.request.object)
            asked = " ".join(word for word in words if word) + ": "
        told = [self.message, *(c.message for c in self.causes if c.reason == "DisruptionBudget")]
        said = _short(" ".join(part for part in told if part))
        code = " ".join(part for part in (str(self.status or ""), self.reason) if part)
        text = f"{asked}{self.rule}"
        text += f" ({code})" if code else ""
        text += f": {said}" if said else ""
        if self.advice:
            text = f"{text.rstrip('.')}. {self.advice}"
        return text


class ConfigError(ClusterError):
    """The connection itself cannot be set up: kubeconfig, credentials, certificates or proxy."""

    rule = "the connection to the cluster cannot be set up"

    def __str__(self) -> str:
        return f"{self.message.rstrip('.')}. {self.advice}" if self.advice else self.message


class Unreachable(ClusterError):
    """No answer; for a write: it surely never left, nothing was changed."""

    rule = "the API server cannot be reached"
    remedy = "Check the address, the network and the proxy."


class Unrenewed(Unreachable):
    """The credentials have expired or were refused, and there are no new ones; nothing was sent."""

    rule = "the credentials cannot be renewed"
    remedy = "Log in again."


class UnknownOutcome(ClusterError):
    """A write was sent and no clear answer came back: it may have happened. Read again."""

    rule = "it is not known whether the change was made"
    remedy = "Read the object again before anything else."


class Unauthorized(ClusterError):
    """401, also with credentials that were read anew."""

    rule = "the API server does not accept the credentials"
    remedy = "Renew them; they have expired or belong to another cluster."


class Forbidden(ClusterError):
    """403: no permission."""

    rule = "not allowed"
    remedy = "Grant the permission named here, or change the rule that refuses it."


class AgainstRule(Forbidden):
    """403 by a rule for the object, such as a quota: whoever asks, and however often."""

    remedy = "Meet the rule named here, or change it."


class NamespaceTerminating(Forbidden):
    """403 with the cause NamespaceTerminating: nothing new can be made there."""

    rule = "its namespace is being deleted"
    remedy = "Wait until the namespace is gone."


class DeniedByWebhook(ClusterError):
    """An admission webhook or an admission policy said no, whatever status it chose."""

    rule = "an admission webhook or policy denied it"
    remedy = "Ask the owner of the policy, or meet what it demands."


class NotFound(ClusterError):
    """404: the object, or the whole kind, is not there."""

    rule = "not there"


class AlreadyExists(ClusterError):
    """409 with the reason AlreadyExists."""

    rule = "there already"


class Conflict(ClusterError):
    """409: the object is no longer as it was read (resourceVersion), or is another one (UID)."""

    rule = "changed by someone else in the meantime"
    remedy = "Read it again."


class Expired(ClusterError):
    """410: a continue token or a resourceVersion is too old. List again."""

    rule = "the server no longer knows that state"


class Invalid(ClusterError):
    """400 or 422: the object or the question is wrong."""

    rule = "refused as invalid"


class BudgetSpent(ClusterError):
    """429 with the cause DisruptionBudget: no more pods may go until another is healthy again."""

    rule = "the disruption budget allows no more pods to go now"
    remedy = "Wait for its pods to become healthy, or give it more room."


class BudgetNotObserved(ClusterError):
    """429 with that cause and Retry-After: the budget's status is not computed yet, or a race."""

    rule = "the disruption budget has not been observed yet"
    remedy = "Wait; if it lasts, look at kube-controller-manager."


class TwoBudgets(ClusterError):
    """500 on an eviction: several budgets select the pod, it cannot be evicted as long as they do."""

    rule = "more than one PodDisruptionBudget selects the pod"
    remedy = "Remove all of them but one."


class Overloaded(ClusterError):
    """429 without a budget, or 503: nothing was done, try later. For reads 502 and 504 too."""

    rule = "the API server is overloaded or not ready"


class ServerError(ClusterError):
    """Any other failure of the server or of something before it."""

    rule = "the server failed"


_BY_STATUS: Mapping[int, type[ClusterError]] = {
    400: Invalid,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Expired,
    422: Invalid,
    429: Overloaded,
    502: Overloaded,
    503: Overloaded,
    504: Overloaded,
}


def from_answer(
    request: verbs.Request | None,
    status: int,
    body: Mapping[str, Any] | None,
    *,
    text: str = "",
    retry_after: float | None = None,
) -> ClusterError:
    """The error in an answer of 300 and above, or in the Status of a watch's ERROR event.

    `body` is the parsed Status, None when the answer was something else: then it need not come
    from the API server, and 502, 503 and 504 leave a write in doubt. `text` is what it said instead.
    """
    known = body is not None and body.get("kind") == "Status"
    said = body if body is not None and known else {}
    details = said.get("details") or {}
    causes = tuple(
        Cause(cause.get("reason") or "", cause.get("message") or "", cause.get("field") or "")
        for cause in details.get("causes") or ()
    )
    if retry_after is None and details.get("retryAfterSeconds"):
        retry_after = float(details["retryAfterSeconds"])
    reason = str(said.get("reason") or "")
    message = str(said.get("message") or "") or _short(text) or f"HTTP status {status}"
    kind = _class_of(request, status, reason, message, {c.reason for c in causes}, retry_after)
    if request is not None and request.writes and _in_doubt(kind, status, reason, known):
        kind = UnknownOutcome
    return kind(
        message,
        request=request,
        status=status,
        reason=reason,
        causes=causes,
        retry_after=retry_after,
    )


def _class_of(
    request: verbs.Request | None,
    status: int,
    reason: str,
    message: str,
    causes: set[str],
    retry_after: float | None,
) -> type[ClusterError]:
    if status == 429 and "DisruptionBudget" in causes:
        return BudgetSpent if retry_after is None else BudgetNotObserved
    if _DENIED.search(message):
        return DeniedByWebhook
    if "NamespaceTerminating" in causes:
        return NamespaceTerminating
    if status == 403 and _RULE.search(message):
        return AgainstRule
    if status == 409 and reason == "AlreadyExists":
        return AlreadyExists
    evicting = request is not None and request.resource == "pods/eviction"
    if status == 500 and evicting and "more than one PodDisruptionBudget" in message:
        return TwoBudgets
    return _BY_STATUS.get(status, ServerError)


def _in_doubt(kind: type[ClusterError], status: int, reason: str, known: bool) -> bool:
    """Whether a write may have been done although an error came back.

    502 and 504 always; a 500 without a reason is a raw error of the storage ("etcdserver: request
    timed out"); a 503 that does not come from the API server comes from a proxy that lost it.
    """
    if kind is ServerError and status == 500:
        return not reason
    return status in (502, 504) or (status == 503 and not known)


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
