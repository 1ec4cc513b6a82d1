# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Every answer that a real API server gave has its type, and a message one can act on."""

from __future__ import annotations

import time
from typing import Any

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import errors, kinds, verbs
from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube.errors import ClusterError, from_answer
from ansible_collections.kubeops.node_maintenance.tests.unit.kube.api import RECORDED

EXPECTED = {
    "already_exists": errors.AlreadyExists,
    "bad_request": errors.Invalid,
    "budget_not_observed": errors.BudgetNotObserved,
    "budget_spent": errors.BudgetSpent,
    "delete_version_conflict": errors.Conflict,
    "evict_gone": errors.NotFound,
    "forbidden": errors.Forbidden,
    "forbidden_list": errors.Forbidden,
    "invalid": errors.Invalid,
    "namespace_terminating": errors.NamespaceTerminating,
    "no_such_kind": errors.NotFound,
    "not_found": errors.NotFound,
    "overloaded": errors.Overloaded,
    "patch_conflict": errors.Conflict,
    "policy_denies": errors.DeniedByWebhook,
    "policy_denies_forbidden": errors.DeniedByWebhook,
    "quota": errors.AgainstRule,
    "storage_frozen_write": errors.UnknownOutcome,
    "two_budgets": errors.TwoBudgets,
    "uid_conflict": errors.Conflict,
    "unauthorized": errors.Unauthorized,
    "version_conflict": errors.Conflict,
    "watch_expired": errors.Expired,
    "webhook_denies": errors.DeniedByWebhook,
    "webhook_denies_429": errors.DeniedByWebhook,
    "webhook_denies_500": errors.DeniedByWebhook,
    "webhook_down": errors.ServerError,
}


def of(name: str) -> ClusterError:
    known = RECORDED[name]
    request = verbs.Request(
        known["request"]["method"],
        known["request"]["path"],
        verb="create",
        resource=known["request"]["resource"],
        namespace="shop",
        name="web-1",
    )
    body: Any = known["body"]
    after = known["headers"].get("Retry-After")
    return from_answer(
        request,
        known["status"],
        body if isinstance(body, dict) else None,
        text=body if isinstance(body, str) else "",
        retry_after=float(after) if after else None,
    )


def test_every_recorded_answer_is_in_the_table() -> None:
    assert set(EXPECTED) == {name for name in RECORDED if not name.startswith("_")}


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_type(name: str) -> None:
    assert of(name).__class__ is EXPECTED[name]


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_message_names_what_was_asked_and_what_the_server_said(name: str) -> None:
    text = str(of(name))
    body = RECORDED[name]["body"]
    said = body["message"] if isinstance(body, dict) else body.strip()
    assert text.startswith(f"create {RECORDED[name]['request']['resource']} shop/web-1: ")
    assert said[:60] in text
    assert ".." not in text.replace("...", "")


def test_budget_message_has_the_numbers_and_a_remedy() -> None:
    text = str(of("budget_spent"))
    assert "The disruption budget web needs 2 healthy pods and has 2 currently" in text
    assert "Wait for its pods to become healthy" in text


def test_fields_are_kept() -> None:
    error = of("budget_not_observed")
    assert (error.status, error.reason, error.retry_after) == (429, "TooManyRequests", 10.0)
    assert error.causes[0].reason == "DisruptionBudget"
    assert error.request is not None
    assert error.request.object == "shop/web-1"


def status(code: int, **fields: Any) -> dict[str, Any]:
    return {"kind": "Status", "status": "Failure", "code": code, "message": "x", **fields}


@pytest.mark.parametrize(
    ("code", "body", "kind"),
    [
        (504, status(504, reason="Timeout"), errors.UnknownOutcome),
        (504, None, errors.UnknownOutcome),
        (502, None, errors.UnknownOutcome),
        (503, None, errors.UnknownOutcome),
        (503, status(503, reason="ServiceUnavailable"), errors.Overloaded),
        (500, status(500, reason="InternalError"), errors.ServerError),
        (500, status(500), errors.UnknownOutcome),
        (429, None, errors.Overloaded),
        (404, None, errors.UnknownOutcome),
        (409, {"message": "no such route"}, errors.UnknownOutcome),
        (410, None, errors.UnknownOutcome),
        (404, status(404, reason="NotFound"), errors.NotFound),
        (409, status(409, reason="Conflict"), errors.Conflict),
        (405, status(405), errors.ServerError),
        (301, None, errors.ServerError),
    ],
)
def test_a_write_that_may_have_happened_is_in_doubt(
    code: int, body: dict[str, Any] | None, kind: type[ClusterError]
) -> None:
    request = verbs.delete(kinds.PODS, "a", "shop")
    assert from_answer(request, code, body).__class__ is kind


@pytest.mark.parametrize("code", [429, 502, 503, 504])
def test_a_read_is_never_in_doubt(code: int) -> None:
    request = verbs.get(kinds.PODS, "a", "shop")
    assert from_answer(request, code, None).__class__ is errors.Overloaded


@pytest.mark.parametrize("code", [404, 409, 410])
@pytest.mark.parametrize("request_", [verbs.get(kinds.LEASES, "a", "shop"), verbs.list_page(kinds.PODS)], ids=str)
def test_what_a_proxy_says_is_nothing_about_an_object(request_: verbs.Request, code: int) -> None:
    assert from_answer(request_, code, None, text="404 page not found").__class__ is errors.FromProxy


@pytest.mark.parametrize(
    "request_",
    [
        verbs.get(kinds.NODE_FENCES, "a", "shop"),
        verbs.merge_patch(kinds.ROLLOUTS, "a", {}, "shop"),
        verbs.api_resources("argoproj.io/v1alpha1"),
        verbs.api_resources("apps/v1beta1"),
    ],
    ids=str,
)
def test_a_kind_that_a_cluster_may_lack_is_not_found(request_: verbs.Request) -> None:
    assert from_answer(request_, 404, None, text="404 page not found\n").__class__ is errors.NotFound
    page = "<html><head><title>404</title></head></html>"
    found = from_answer(request_, 404, None, text=page)
    assert found.__class__ is (errors.UnknownOutcome if request_.writes else errors.FromProxy)
    assert "html" not in str(found)


def test_an_access_review_only_asks() -> None:
    request = verbs.create(kinds.SELF_SUBJECT_ACCESS_REVIEWS, {"spec": {}})
    assert from_answer(request, 504, None).__class__ is errors.Overloaded


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ('pods "a" is forbidden: User "u" cannot get resource "pods" in API group ""', errors.Forbidden),
        ('forbidden: User "u" cannot get path "/version"', errors.Forbidden),
        ('pods "a" is forbidden: not yet ready to handle request', errors.Forbidden),
        ('pods "a" is forbidden: violates PodSecurity "restricted:latest": ...', errors.AgainstRule),
        ('pods "a" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1', errors.AgainstRule),
    ],
)
def test_a_missing_right_is_told_from_a_rule_for_the_object(message: str, kind: type[ClusterError]) -> None:
    body = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": message}
    assert from_answer(None, 403, body).__class__ is kind


def test_a_body_of_another_kind_is_not_believed() -> None:
    error = from_answer(None, 403, {"kind": "Login", "message": "sign in"}, text="sign in")
    assert error.__class__ is errors.Forbidden
    assert "sign in" in str(error)


def test_long_messages_are_cut() -> None:
    error = from_answer(None, 422, status(422, message="x" * 5000))
    assert len(str(error)) < 800


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        ('admission webhook "a" denied the request', errors.DeniedByWebhook),
        ("ValidatingAdmissionPolicy 'a' with binding 'b' denied request: no", errors.DeniedByWebhook),
        ('admission webhook "" denied the request', errors.Invalid),
        ('" denied the request by admission webhook "', errors.Invalid),
        ("ValidatingAdmissionPolicy 'a' denied request", errors.Invalid),
        # Whoever writes such a message would otherwise decide how long it takes to read.
        ('admission webhook "' * 20_000, errors.Invalid),
        ("AdmissionPolicy 'a' with binding 'b' " * 10_000, errors.Invalid),
    ],
)
def test_a_denial_is_found_in_one_pass(message: str, kind: type[ClusterError]) -> None:
    began = time.process_time()
    assert from_answer(None, 422, status(422, message=message)).__class__ is kind
    assert time.process_time() - began < 2


NOT_CONFIRMED = 'poddisruptionbudget.policy "web" is forbidden: DisruptedPods map too big - too many evictions'
CAUSE = {"reason": "DisruptionBudget", "message": "The disruption budget web does not allow evicting pods currently"}


@pytest.mark.parametrize(
    ("details", "kind"),
    [
        # kube-apiserver v1.37.1, pkg/registry/core/pod/storage/eviction.go, checkAndDecrement (PR 138003)
        ({"name": "web", "group": "policy", "kind": "poddisruptionbudget", "causes": [CAUSE]}, errors.BudgetSpent),
        # v1.36.3, the same place: no cause, but the budget is named
        ({"name": "web", "group": "policy", "kind": "poddisruptionbudget"}, errors.BudgetSpent),
        ({"name": "web-1", "kind": "pods"}, errors.AgainstRule),
    ],
)
def test_a_budget_may_refuse_with_403(details: dict[str, Any], kind: type[ClusterError]) -> None:
    """Not a missing permission, for which the client would ask again and again, and the drain give up."""
    request = verbs.evict("shop", "web-1", "uid")
    error = from_answer(request, 403, status(403, reason="Forbidden", message=NOT_CONFIRMED, details=details))
    assert error.__class__ is kind
    assert "web" in str(error)


@pytest.mark.parametrize("causes", [None, [], [{}], [{"reason": None, "message": None}]])
def test_details_may_be_empty(causes: Any) -> None:
    body = status(429, details={"causes": causes})
    assert from_answer(None, 429, body).__class__ is errors.Overloaded
    assert (from_answer(None, 429, status(429, details=None))).__class__ is errors.Overloaded
