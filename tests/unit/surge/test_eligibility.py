# Copyright: Contributors to the kubeops.node_maintenance collection
# GNU General Public License v3.0+ (see LICENSE or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What may be surged is decided from the specification, before anything happens."""

from __future__ import annotations

import json
import re
import typing as t

import pytest

from ansible_collections.kubeops.node_maintenance.plugins.module_utils.surge import eligibility
from ansible_collections.kubeops.node_maintenance.tests.unit.support.objects import (
    Raw,
    claim,
    deployment,
    mounts,
    owned,
    pod,
    snapshot,
    workload,
)


def refused(parts: dict[str, list[Raw]], kind: str = "Deployment", **kinds: t.Any) -> str:
    seen = snapshot(parts, **kinds)
    found = eligibility.refusal(seen, next(w for w in seen.workloads if w.kind == kind))
    assert found is None or (found.message and found.remedy)
    return found.code if found else ""


def with_volumes(volumes: list[Raw]) -> dict[str, list[Raw]]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [], "volumes": volumes}}
    parts = deployment("web", 1, template=template)
    parts["replica_sets"][0]["spec"]["template"] = template
    return parts


@pytest.mark.parametrize(
    ("spec", "code"),
    [
        ({}, ""),
        ({"strategy": {"type": "Recreate"}}, "recreate"),
        ({"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0}}}, ""),
        ({"paused": True}, ""),
    ],
)
def test_deployments(spec: dict[str, t.Any], code: str) -> None:
    assert refused(deployment("web", 1, **spec)) == code


@pytest.mark.parametrize(
    ("volumes", "claims", "code"),
    [
        (mounts("data"), [claim("data", "pv", ("ReadWriteOnce",))], "volume_single_node"),
        (mounts("data"), [claim("data", "pv", ("ReadWriteOncePod",))], "volume_single_node"),
        (mounts("data"), [claim("data", "pv", ("ReadWriteMany",))], ""),
        (mounts("data"), [claim("data", "pv", ("ReadWriteOnce", "ReadWriteMany"))], ""),
        (mounts("data"), [claim("data", "pv", ("ReadWriteOnce", "ReadOnlyMany"))], "volume_single_node"),
        (mounts("data"), [], "volume_single_node"),
        (
            [{"name": "d", "persistentVolumeClaim": {"claimName": "data", "readOnly": True}}],
            [claim("data", "pv", ("ReadWriteOnce", "ReadOnlyMany"))],
            "",
        ),
        ([{"name": "d", "emptyDir": {}}], [], ""),
        ([{"name": "d", "ephemeral": {"volumeClaimTemplate": {}}}], [], ""),
        ([{"name": "d", "awsElasticBlockStore": {"volumeID": "v"}}], [], "volume_single_node"),
        ([{"name": "d", "gcePersistentDisk": {"pdName": "v", "readOnly": True}}], [], ""),
    ],
)
def test_a_volume_of_one_node_cannot_be_at_two(volumes: list[Raw], claims: list[Raw], code: str) -> None:
    assert refused(with_volumes(volumes), claims=claims) == code


def test_volumes_of_pods_count_where_the_template_is_kept_elsewhere() -> None:
    parts = deployment("web", 1, template=None)
    pods = [pod("web-1", "n1", owned("ReplicaSet", "web"), volumes=mounts("data"))]
    found = refused(parts, pods=pods, claims=[claim("data", "pv", ("ReadWriteOnce",))])
    assert found == "volume_single_node"


KEDA = owned("ScaledObject", "web", "keda.sh/v1alpha1")
REFUSED = "autoscaler_owned"
MINIMUM: Raw = {"minReplicas": 2}
BOTH: Raw = {"minReplicas": 2, "maxReplicas": 2}


@pytest.mark.parametrize(
    ("low", "high", "owner", "code", "patches"),
    [
        pytest.param(1, 5, [], REFUSED, (MINIMUM, {"minReplicas": 1}), id="it would lower the count again"),
        pytest.param(0, 1, [], REFUSED, (BOTH, {"minReplicas": 0, "maxReplicas": 1}), id="it may not raise it either"),
        pytest.param(1, 5, KEDA, REFUSED, (), id="somebody else sets its minimum"),
        pytest.param(2, 5, [], "", (), id="it wants one more already"),
        pytest.param(2, 5, KEDA, "", (), id="its owner wants one more already"),
    ],
)
def test_an_autoscaler_that_does_not_hold_one_more_pod(
    low: int, high: int, owner: list[Raw], code: str, patches: tuple[Raw, ...]
) -> None:
    scaler = {
        "metadata": {"name": "web", "namespace": "shop", "uid": "h", "ownerReferences": owner},
        "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "minReplicas": low, "maxReplicas": high},
    }
    seen = snapshot(deployment("web", 1), autoscalers=[scaler])
    found = eligibility.refusal(seen, next(w for w in seen.workloads if w.kind == "Deployment"))
    assert (found.code if found else "") == code
    if found:
        assert ("ScaledObject" in found.remedy) is not bool(patches)
        told = re.findall(r"kubectl patch hpa web -n shop --type=merge -p '([^']+)'", found.remedy)
        assert [json.loads(patch) for patch in told] == [{"spec": each} for each in patches], "and its way back"


@pytest.mark.parametrize(
    ("kind", "owner", "api_version", "code"),
    [
        ("StatefulSet", [], "apps/v1", "stateful_single"),
        ("ReplicaSet", [], "apps/v1", ""),
        ("ReplicaSet", owned("Gadget", "g", "example.com/v1"), "apps/v1", "not_surgeable"),
        ("ReplicaSet", owned("Rollout", "g", "argoproj.io/v1alpha1"), "apps/v1", "not_surgeable"),
        ("ReplicationController", [], "v1", "not_surgeable"),
        ("Gadget", [], "example.com/v1", "not_surgeable"),
        ("Rollout", [], "example.com/v1", "not_surgeable"),
        ("CloneSet", [], "apps.kruise.io/v1alpha1", ""),
    ],
)
def test_kinds(kind: str, owner: list[Raw], api_version: str, code: str) -> None:
    lists = {"StatefulSet": "stateful_sets", "ReplicaSet": "replica_sets"}
    parts = {lists.get(kind, "scales"): [workload(kind, "web", 1, owner, api_version=api_version)]}
    assert refused(parts, kind) == code


def test_a_rollout_acts_through_its_replica_sets() -> None:
    top = workload("Rollout", "web", 1, api_version="argoproj.io/v1alpha1")
    top["status"]["observedGeneration"] = "1"
    first = workload("ReplicaSet", "web-a", 1, owned("Rollout", "web", "argoproj.io/v1alpha1"))
    canary = workload("ReplicaSet", "web-b", 1, owned("Rollout", "web", "argoproj.io/v1alpha1"))
    assert refused({"scales": [top], "replica_sets": [first]}, "Rollout") == ""
    assert refused({"scales": [top], "replica_sets": [first, canary]}, "Rollout") == "rollout_in_progress"


def test_a_clone_set_between_two_revisions() -> None:
    top = workload("CloneSet", "web", 2, api_version="apps.kruise.io/v1alpha1")
    owner = owned("CloneSet", "web", "apps.kruise.io/v1alpha1")
    pods = [pod(f"web-{i}", "n1", owner, labels={"controller-revision-hash": i}) for i in ("a", "b")]
    assert refused({"scales": [top]}, "CloneSet", pods=pods[:1]) == ""
    assert refused({"scales": [top]}, "CloneSet", pods=pods) == "rollout_in_progress"


def not_observed(parts: dict[str, list[Raw]]) -> None:
    parts["deployments"][0]["metadata"]["generation"] = 2


def second_replica_set(parts: dict[str, list[Raw]]) -> None:
    parts["replica_sets"].append(workload("ReplicaSet", "web-old", 1, owned("Deployment", "web")))


def old_pods_left(parts: dict[str, list[Raw]]) -> None:
    old = workload("ReplicaSet", "web-old", 0, owned("Deployment", "web"))
    old["status"]["replicas"] = 1
    parts["replica_sets"].append(old)


def no_replica_set(parts: dict[str, list[Raw]]) -> None:
    parts["replica_sets"].clear()


def another_template(parts: dict[str, list[Raw]]) -> None:
    parts["deployments"][0]["spec"]["template"]["spec"]["containers"] = [{"name": "new"}]


def hash_label(parts: dict[str, list[Raw]]) -> None:
    labels = {"app": "web", "pod-template-hash": "abc"}
    parts["replica_sets"][0]["spec"]["template"] = {"metadata": {"labels": labels}, "spec": {"containers": []}}


def finished_replica_set(parts: dict[str, list[Raw]]) -> None:
    parts["replica_sets"].append(workload("ReplicaSet", "web-old", 0, owned("Deployment", "web")))


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (not_observed, "rollout_in_progress"),
        (second_replica_set, "rollout_in_progress"),
        (old_pods_left, "rollout_in_progress"),
        (no_replica_set, "rollout_in_progress"),
        (another_template, "rollout_in_progress"),
        (hash_label, ""),
        (finished_replica_set, ""),
    ],
)
def test_a_rollout_in_progress(change: t.Callable[[dict[str, list[Raw]]], None], code: str) -> None:
    parts = deployment("web", 1)
    change(parts)
    assert refused(parts) == code


def test_a_paused_deployment_is_surged_with_its_old_template() -> None:
    parts = deployment("web", 1, paused=True)
    another_template(parts)
    assert refused(parts) == ""


def test_consent_is_given_by_the_option_of_that_name() -> None:
    for words in (eligibility.ACCEPT, eligibility.AGREE):
        assert "allow_interruption: true" in words
        assert "maintain_allow_interruption=true" in words
