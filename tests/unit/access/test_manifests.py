# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What makes an object of ours as its manifest wants it, or removes it."""

from __future__ import annotations

import copy
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.access import accounts, policies
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import Raw

ROLE: Raw = {
    "apiVersion": "v1",
    "kind": "Role",
    "metadata": {"name": "r", "namespace": "shop", "labels": {"a": "b"}},
    "spec": {"rules": [{"verbs": ["get"]}], "depth": 1},
}


def found(**changes: t.Any) -> Raw:
    """As the server has it, with what it adds."""
    raw = copy.deepcopy(ROLE)
    raw["metadata"] |= {"resourceVersion": "7", "uid": "u", **changes.pop("metadata", {})}
    raw["spec"] |= {"added": True, **changes}
    return raw


@pytest.mark.parametrize(
    ("there", "verb", "body"),
    [
        pytest.param(None, "create", ROLE, id="missing"),
        pytest.param(found(metadata={"deletionTimestamp": "x"}), "create", ROLE, id="being deleted"),
        pytest.param(found(), "", None, id="as wanted"),
        pytest.param(found(metadata={"labels": {"a": "b", "c": "d"}}), "", None, id="another label"),
        pytest.param(found(rules=[{"verbs": ["get"], "added": 1}]), "", None, id="completed in a list"),
        pytest.param(found(metadata={"labels": {}}), "patch", {"metadata": {"labels": {"a": "b"}}}, id="no label"),
        pytest.param(found(depth=2), "patch", {"spec": ROLE["spec"]}, id="another value"),
        pytest.param(found(rules=[]), "patch", {"spec": ROLE["spec"]}, id="a shorter list"),
        pytest.param(
            found(depth=2, metadata={"labels": {"a": "x"}}),
            "patch",
            {"metadata": {"labels": {"a": "b"}}, "spec": ROLE["spec"]},
            id="both",
        ),
    ],
)
def test_an_object_is_made_as_its_manifest_wants_it(there: Raw | None, verb: str, body: Raw | None) -> None:
    change = accounts.present(ROLE, there)
    assert (change.verb if change else "") == verb
    assert (change.body if change else None) == body
    assert change is None or change.resource_version == ("7" if verb == "patch" else "")


@pytest.mark.parametrize(
    ("there", "deleted"), [(None, False), (found(), True), (found(metadata={"deletionTimestamp": "x"}), False)]
)
def test_an_object_is_deleted_in_the_version_that_was_read(there: Raw | None, deleted: bool) -> None:
    change = accounts.absent(ROLE, there)
    assert (change is not None) is deleted
    assert change is None or (change.verb, change.resource_version) == ("delete", "7")


def test_the_kind_of_the_fence_is_made_before_its_object_and_is_served_and_stored() -> None:
    assert [raw["kind"] for raw in policies.FENCE] == [
        *("CustomResourceDefinition", "NodeFence", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"),
    ]
    (version,) = policies.DEFINITION["spec"]["versions"]
    assert (version["served"], version["storage"]) == (True, True)
