# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.kube import kinds, verbs

OURS = ("fieldManager", "kubeops-node-maintenance")


@pytest.mark.parametrize(
    ("request_", "method", "path"),
    [
        (verbs.get(kinds.NODES, "n1"), "GET", "/api/v1/nodes/n1"),
        (verbs.get(kinds.PODS, "a", "shop"), "GET", "/api/v1/namespaces/shop/pods/a"),
        (
            verbs.get(kinds.DEPLOYMENTS, "web", "shop", "scale"),
            "GET",
            "/apis/apps/v1/namespaces/shop/deployments/web/scale",
        ),
        (verbs.list_page(kinds.BUDGETS), "GET", "/apis/policy/v1/poddisruptionbudgets"),
        (verbs.watch(kinds.PODS, "shop"), "GET", "/api/v1/namespaces/shop/pods"),
        (
            verbs.delete(kinds.VOLUME_ATTACHMENTS, "csi-1"),
            "DELETE",
            "/apis/storage.k8s.io/v1/volumeattachments/csi-1",
        ),
        (
            verbs.evict("shop", "a", "u1"),
            "POST",
            "/api/v1/namespaces/shop/pods/a/eviction",
        ),
        (verbs.api_resources("v1"), "GET", "/api/v1"),
        (verbs.api_resources("argoproj.io/v1alpha1"), "GET", "/apis/argoproj.io/v1alpha1"),
        # Names that others have written lead nowhere else: a client resolves `..` before it sends the request.
        (verbs.api_resources("../healthz"), "GET", "/apis/%2E%2E/healthz"),
        (verbs.api_resources("a/../../healthz?verbose"), "GET", "/apis/a/..%2F..%2Fhealthz%3Fverbose"),
        (verbs.api_resources(".."), "GET", "/api/%2E%2E"),
        (
            verbs.get(kinds.DEPLOYMENTS, "..", ".", "scale"),
            "GET",
            "/apis/apps/v1/namespaces/%2E/deployments/%2E%2E/scale",
        ),
    ],
)
def test_paths(request_: verbs.Request, method: str, path: str) -> None:
    assert (request_.method, request_.path) == (method, path)


def test_a_list_asks_for_pages_and_selects() -> None:
    request = verbs.list_page(kinds.PODS, labels="a=b,c", fields="spec.nodeName=n1")
    assert dict(request.query) == {
        "labelSelector": "a=b,c",
        "fieldSelector": "spec.nodeName=n1",
        "limit": "1000",
    }
    assert dict(verbs.list_page(kinds.PODS, limit=0).query) == {}
    assert dict(verbs.list_page(kinds.PODS, token="t").query)["continue"] == "t"


def test_a_watch_wants_bookmarks_and_an_end() -> None:
    query = dict(verbs.watch(kinds.PODS, resource_version="7").query)
    assert query == {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "resourceVersion": "7",
        "timeoutSeconds": "290",
    }


def test_writes_carry_our_field_manager() -> None:
    lease = {"metadata": {"name": "node-n1", "namespace": "x", "resourceVersion": "3"}}
    for request in (
        verbs.create(kinds.LEASES, lease),
        verbs.merge_patch(kinds.NODES, "n1", {}),
        verbs.evict("shop", "a", "u1"),
    ):
        assert OURS in request.query
        assert request.writes
    assert verbs.delete(kinds.NODES, "n1").writes
    assert not verbs.get(kinds.NODES, "n1").writes
    assert not verbs.create(kinds.SELF_SUBJECT_ACCESS_REVIEWS, {}).writes


def test_patch_is_a_merge_patch() -> None:
    request = verbs.merge_patch(kinds.DEPLOYMENTS, "web", {"spec": {"replicas": 2}}, "shop", "scale")
    assert request.content_type == "application/merge-patch+json"
    assert request.verb == "patch"
    assert request.resource == "deployments.apps/scale"
    assert request.object == "shop/web"


def test_an_eviction_names_the_uid_and_leaves_the_grace_to_the_pod() -> None:
    assert verbs.evict("shop", "a", "u1").body == {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": "shop", "name": "a"},
        "deleteOptions": {
            "apiVersion": "v1",
            "kind": "DeleteOptions",
            "preconditions": {"uid": "u1"},
        },
    }


def test_grace_zero_means_zero() -> None:
    body = verbs.evict("shop", "a", "u1", grace_seconds=0).body
    assert body is not None
    assert body["deleteOptions"]["gracePeriodSeconds"] == 0
    body = verbs.delete(kinds.PODS, "a", "shop", grace_seconds=0).body
    assert body is not None
    assert body["gracePeriodSeconds"] == 0


def test_a_deletion_is_conditional_on_what_was_read() -> None:
    request = verbs.delete(kinds.BUDGETS, "b", "shop", uid="u", resource_version="5")
    assert request.body == {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "preconditions": {"uid": "u", "resourceVersion": "5"},
    }


def test_names_cannot_leave_their_place_in_the_path() -> None:
    assert verbs.get(kinds.NODES, "../../x?y#z").path == "/api/v1/nodes/..%2F..%2Fx%3Fy%23z"


@pytest.mark.parametrize("name", ["", "n1"])
def test_a_namespaced_object_needs_its_namespace_and_a_name(name: str) -> None:
    with pytest.raises(ValueError, match=r"namespace|name"):
        verbs.delete(kinds.PODS, name)
    with pytest.raises(ValueError, match="no name"):
        verbs.delete(kinds.NODES, "")
    with pytest.raises(ValueError, match="needs a namespace"):
        verbs.create(kinds.PODS, {"metadata": {"name": "a"}})


def test_kinds_are_found_as_objects_name_them() -> None:
    assert kinds.KINDS["policy/v1", "PodDisruptionBudget"] is kinds.BUDGETS
    assert kinds.KINDS["v1", "Node"] is kinds.NODES
    assert all(kind.api_version == version for (version, _unused), kind in kinds.KINDS.items())


def test_a_dry_run_is_one_in_the_query_and_of_a_deletion_in_its_body() -> None:
    created = verbs.dry(verbs.create(kinds.CONFIGMAPS, {"metadata": {"name": "a", "namespace": "b"}}))
    assert ("dryRun", "All") in created.query
    assert not created.writes
    deleted = verbs.dry(verbs.delete(kinds.CONFIGMAPS, "a", "b", uid="u"))
    assert deleted.body == {**(verbs.delete(kinds.CONFIGMAPS, "a", "b", uid="u").body or {}), "dryRun": ["All"]}
    assert not deleted.writes
