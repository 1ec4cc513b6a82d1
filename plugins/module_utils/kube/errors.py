# Copyright: Contributors to the kubeops.node_maintenance collection
# SPDX-License-Identifier: BSD-2-Clause
"""What can go wrong with a request, as one tree of types.

ClusterError
  + ConfigError            the connection cannot be set up
  + Unreachable            no answer; a write certainly never left
  |   + Unrenewed          the credentials have expired and cannot be renewed
  + UnknownOutcome         a write was sent and may have happened
  + Unauthorized           401
  + Forbidden              403
  |   + AgainstRule        403 by a rule for the object, such as a quota
  |   + NamespaceTerminating
  + DeniedByWebhook        an admission webhook or policy
  + NotFound               404
  + AlreadyExists          409
  + Conflict               409, no longer as it was read
  + Expired                410
  + Invalid                400, 422
  + BudgetSpent            429 by a PodDisruptionBudget, 403 while its controller is far behind
  + BudgetNotObserved      429 by a budget without a current status
  + TwoBudgets             500 on an eviction
  + Overloaded             429, 503; for reads 502 and 504 too
  |   + FromProxy          404, 409 or 410 for a read, by something before the API server
  + ServerError            anything else

An answer is classified by its HTTP status and the fields of its `Status` body (code, reason,
causes, retryAfterSeconds). The text of the message decides only where the server sends no such
field: a denial by a webhook, an admission policy or a quota, and two budgets on one pod
(kube-apiserver 1.36, recorded in tests/unit/kube).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import verbs

_LONGEST = 600
_DENIALS = (
    ('admission webhook "', '" denied the request'),
    ("AdmissionPolicy '", "' with binding '", "' denied request"),
)
# Authorization names the user; any other refusal of a named object comes from
# admission, once that is ready.
_RULE = re.compile(r" is forbidden: (?!User |not yet ready)")


@dataclass(frozen=True, slots=True)
class Cause:
    """One of `details.causes`, with the field that it is about."""

    reason: str = ""
    message: str = ""
    field: str = ""


class ClusterError(Exception):
    """A request that failed. `status` is 0 if there was no answer; `retry_after` is in seconds.

    `str()` gives the request, the rule that refused it, the server's own words, and the remedy.
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
        text = self.rule
        if self.request is not None:
            asked = (self.request.verb, self.request.resource, self.request.object)
            text = f"{' '.join(filter(None, asked))}: {text}"
        code = " ".join(filter(None, (str(self.status or ""), self.reason)))
        if code:
            text += f" ({code})"
        of_budgets = (c.message for c in self.causes if c.reason == "DisruptionBudget")
        message = _short(" ".join(filter(None, (self.message, *of_budgets))))
        if message:
            text += f": {message}"
        return f"{text.rstrip('.')}. {self.advice}" if self.advice else text


class ConfigError(ClusterError):
    """The connection cannot be set up: kubeconfig, credentials, certificates or proxy."""

    rule = "the connection to the cluster cannot be set up"

    def __str__(self) -> str:
        return f"{self.message.rstrip('.')}. {self.advice}" if self.advice else self.message


class Unreachable(ClusterError):
    """No answer. A write certainly never left, so nothing was changed."""

    rule = "the API server cannot be reached"
    remedy = "Check the address, the network and the proxy."


class Unrenewed(Unreachable):
    """The credentials have expired or were refused, and there are no new ones. Nothing was sent."""

    rule = "the credentials cannot be renewed"
    remedy = "Log in again."


class UnknownOutcome(ClusterError):
    """A write was sent and no clear answer came back, so it may have happened."""

    rule = "it is not known whether the change was made"
    remedy = "Read the object again first."


class Unauthorized(ClusterError):
    """401, even with credentials that were just read again."""

    rule = "the API server does not accept the credentials"
    remedy = "Renew them; they have expired or belong to another cluster."


class Forbidden(ClusterError):
    """403: no permission."""

    rule = "not allowed"
    remedy = "Grant this permission, or change the rule that refuses it."


class AgainstRule(Forbidden):
    """403 by a rule for the object, such as a quota: no permission and no retry helps."""

    remedy = "Comply with this rule, or change it."


class NamespaceTerminating(Forbidden):
    """403 with the cause NamespaceTerminating: nothing new can be created there."""

    rule = "its namespace is being deleted"
    remedy = "Wait until the namespace is gone."


class DeniedByWebhook(ClusterError):
    """An admission webhook or policy refused the request, with whatever status."""

    rule = "an admission webhook or policy denied it"
    remedy = "Comply with the policy, or ask its owner to change it."


class NotFound(ClusterError):
    """404: the object, or its kind, does not exist."""

    rule = "not found"


class AlreadyExists(ClusterError):
    """409 with the reason AlreadyExists."""

    rule = "already exists"


class Conflict(ClusterError):
    """409: the object is no longer as it was read (resourceVersion), or it is another one (UID)."""

    rule = "changed by someone else in the meantime"
    remedy = "Read it again."


class Expired(ClusterError):
    """410: a continue token or a resourceVersion is too old; list again."""

    rule = "the server no longer has that state"


class Invalid(ClusterError):
    """400 or 422: the object or the query is wrong."""

    rule = "refused as invalid"


class BudgetSpent(ClusterError):
    """429 with the cause DisruptionBudget: no more pods may be evicted until
    another one is healthy.

    403 where its controller confirms no evictions; before 1.37 only the details name the budget,
    without a cause (``checkAndDecrement`` of kube-apiserver's eviction handler,
    v1.36.3 and v1.37.1).
    """

    rule = "the disruption budget allows no more evictions now"
    remedy = "Wait for its pods to become healthy, or relax the budget."


class BudgetNotObserved(ClusterError):
    """429 with that cause and Retry-After: the budget's status has not been computed yet,
    or two evictions raced.
    """

    rule = "the disruption budget has not been observed yet"
    remedy = "Wait; if this persists, check kube-controller-manager."


class TwoBudgets(ClusterError):
    """500 on an eviction: the pod cannot be evicted as long as several budgets select it."""

    rule = "more than one PodDisruptionBudget selects the pod"
    remedy = "Remove all but one of them."


class Overloaded(ClusterError):
    """429 without a budget, or 503: nothing was done, try again later.
    For reads 502 and 504 too.
    """

    rule = "the API server is overloaded or not ready"


class FromProxy(Overloaded):
    """404, 409 or 410 without a Status: a load balancer's, so nothing is known of the object."""

    rule = "a load balancer or proxy answered instead of the API server"
    remedy = "Check what is between here and the API server."


class ServerError(ClusterError):
    """Any other failure of the server, or of a proxy in front of it."""

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

_ALWAYS_SERVED = tuple(
    f"/apis/{version}/"
    for version in (
        "apps/v1",
        "autoscaling/v2",
        "batch/v1",
        "coordination.k8s.io/v1",
        "discovery.k8s.io/v1",
        "policy/v1",
        "storage.k8s.io/v1",
    )
) + ("/api/v1/",)
"""Paths that no API server lacks. Below others it says NO_SUCH_PATH, without a Status,
where it has no such.
"""
NO_SUCH_PATH = "404 page not found"
"""In Kubernetes' words, which are those of Go's ``http.NotFound``."""


def from_answer(
    request: verbs.Request | None,
    status: int,
    body: Mapping[str, Any] | None,
    *,
    text: str = "",
    retry_after: float | None = None,
) -> ClusterError:
    """The error in an answer with a status of 300 and above, or in a watch's ERROR event.

    `body` is the parsed Status, or None if the answer was something else, given as `text`: then it
    need not come from the API server, so it says nothing of an object, and leaves a write in doubt.
    """
    answer = _Answer.of(status, body, text, retry_after)
    kind = _type_of(answer, request, text)
    if request is not None and request.writes and _in_doubt(answer, kind):
        kind = UnknownOutcome
    return kind(
        answer.message,
        request=request,
        status=status,
        reason=answer.reason,
        causes=answer.causes,
        retry_after=answer.retry_after,
    )


@dataclass(frozen=True, slots=True)
class _Answer:
    """What an answer says. `known`: as a Status, so it comes from an API server;
    `about` is the kind of the object that it is about.
    """

    status: int
    known: bool
    reason: str
    message: str
    causes: tuple[Cause, ...]
    about: str
    retry_after: float | None

    @classmethod
    def of(
        cls, status: int, body: Mapping[str, Any] | None, text: str, retry_after: float | None
    ) -> _Answer:
        known = body is not None and body.get("kind") == "Status"
        answered = body if body is not None and known else {}
        details = answered.get("details") or {}
        causes = tuple(
            Cause(cause.get("reason") or "", cause.get("message") or "", cause.get("field") or "")
            for cause in details.get("causes") or ()
        )
        if retry_after is None and details.get("retryAfterSeconds"):
            retry_after = float(details["retryAfterSeconds"])
        message = str(answered.get("message") or "") or _short(text) or f"HTTP status {status}"
        reason = str(answered.get("reason") or "")
        return cls(status, known, reason, message, causes, details.get("kind") or "", retry_after)

    def has_cause(self, reason: str) -> bool:
        return any(cause.reason == reason for cause in self.causes)


# One chain, because the first rule that fits counts.
def _type_of(answer: _Answer, request: verbs.Request | None, text: str) -> type[ClusterError]:
    status = answer.status
    by_budget = answer.has_cause("DisruptionBudget")
    if status == 429 and by_budget:
        return BudgetSpent if answer.retry_after is None else BudgetNotObserved
    if status == 403 and (by_budget or answer.about == "poddisruptionbudget"):
        return BudgetSpent
    if any(_in_order(parts, answer.message) for parts in _DENIALS):
        return DeniedByWebhook
    if answer.has_cause("NamespaceTerminating"):
        return NamespaceTerminating
    if status == 403 and _RULE.search(answer.message):
        return AgainstRule
    if status == 409 and answer.reason == "AlreadyExists":
        return AlreadyExists
    evicting = request is not None and request.resource == "pods/eviction"
    if status == 500 and evicting and "more than one PodDisruptionBudget" in answer.message:
        return TwoBudgets
    kind = _BY_STATUS.get(status, ServerError)
    by_server = answer.known or _not_served(request, status, text)
    if kind in (NotFound, Conflict, Expired) and not by_server:
        return FromProxy
    return kind


def _in_doubt(answer: _Answer, kind: type[ClusterError]) -> bool:
    """Whether a write may have happened although an error came back.

    502 and 504: always. A 500 without a reason is a raw storage error ("etcdserver: request timed
    out"). A 503 that does not come from the API server comes from a proxy that lost the answer.
    """
    if kind is FromProxy:
        return True
    if kind is ServerError and answer.status == 500:
        return not answer.reason
    return answer.status in (502, 504) or (answer.status == 503 and not answer.known)


def _not_served(request: verbs.Request | None, status: int, text: str) -> bool:
    """Whether the API server may have said so itself, of a group or version
    that it does not have.
    """
    if status != 404 or text.strip() not in ("", NO_SUCH_PATH):
        return False
    return request is None or not request.path.startswith(_ALWAYS_SERVED)


def _in_order(parts: tuple[str, ...], text: str) -> bool:
    """Whether the text has these parts one after the other, with something between two
    of them; in one pass.
    """
    at = 0
    for part in parts:
        found = text.find(part, at)
        if found < 0:
            return False
        at = found + len(part) + 1
    return True


def _short(text: str) -> str:
    if "<html" in text.lower():
        return ""
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
